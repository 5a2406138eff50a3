"""Options of public calls: unknown ones, former names, choices."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.api.catalog import write_catalog
from gridref.api.job import Job
from gridref.api.scan import scan_many
from gridref.errors import InvalidRequestError
from gridref.faces.fsspec import GridrefFileSystem
from gridref.faces.http import create_app
from gridref.faces.xarray.virtual_dataset import Loading

OPTIONS = (gridref.CombineOptions, gridref.ScanOptions, gridref.RunOptions)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as handle:
        handle["v"] = np.arange(6.0)
    return str(path)


CALLS: dict[str, Callable[..., Any]] = {
    "scan": gridref.scan,
    "scan_many": lambda file, **options: scan_many([file], **options),
    "plan": gridref.plan,
    "build": lambda file, **options: gridref.build(
        file, f"{file}.gridref", overwrite=True, **options
    ),
    "concat": lambda file, **options: gridref.concat([gridref.scan(file)] * 2, "t", **options),
    "write_catalog": lambda file, **options: write_catalog(
        gridref.scan(file), f"{file}.gridref", **options
    ),
    "open_store": lambda file, **options: gridref.open_store(gridref.scan(file), **options),
    "verify": lambda file, **options: gridref.verify(gridref.scan(file), **options),
    "open_virtual_dataset": gridref.open_virtual_dataset,
    "open_virtual_mfdataset": gridref.open_virtual_mfdataset,
    "open_virtual_datatree": gridref.open_virtual_datatree,
    "open_catalog": lambda file, **options: gridref.open_catalog(
        gridref.build(file, f"{file}.gridref", overwrite=True) and f"{file}.gridref", **options
    ),
    "create_app": lambda file, **options: create_app({"a": gridref.scan(file)}, **options),
    "open_dataset": lambda file, **options: xr.open_dataset(
        gridref.scan(file), engine="gridref", **options
    ),
    "open_datatree": lambda file, **options: xr.open_datatree(
        gridref.scan(file), engine="gridref", **options
    ),
    "to_catalog": lambda file, **options: gridref.open_virtual_dataset(file).gridref.save(
        f"{file}.gridref", **options
    ),
    "GridrefFileSystem": lambda file, **options: GridrefFileSystem(gridref.scan(file), **options),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_option_that_nobody_knows_is_our_error_with_one_file_too(name: str, file: str) -> None:
    CALLS[name](file)
    with pytest.raises(InvalidRequestError, match="has no option 'storage_option'") as raised:
        CALLS[name](file, storage_option={})
    assert "did you mean 'storage_options'" in str(raised.value)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("build", {"jion": "outer"}, "'jion': did you mean 'join'"),
        ("build", {"join": "outer"}, r"write combine=CombineOptions\(join=\.\.\.\)"),
        ("open_dataset", {"join": "outer"}, r"write combine=CombineOptions\(join=\.\.\.\)"),
        ("open_datatree", {"join": "outer"}, r"write combine=CombineOptions\(join=\.\.\.\)"),
        ("plan", {"stack": "time"}, r"write layout=Stack\(\.\.\.\)"),
        ("plan", {"pattern": "{time:%Y}"}, r"write layout=Labels\(pattern=\.\.\.\)"),
        ("build", {"layout": "ragged"}, r"no layout 'ragged'.*Ragged\(\.\.\.\)"),
        ("build", {"layout": "by_coord"}, "did you mean 'by_coords'"),
        (
            "build",
            {"combine": "by_coords"},
            r"combine must be CombineOptions\(\.\.\.\) or None.*write layout='by_coords'",
        ),
        (
            "build",
            {"layout": gridref.Mosaic(), "combine": gridref.CombineOptions(overlap="keep")},
            "a mosaic shows one input",
        ),
        ("concat", {"compt": "equals"}, "'compt': did you mean 'compat'"),
        ("concat", {"lables": [1, 2]}, "'lables': did you mean 'labels'"),
        ("build", {"tolerance": 0.1}, r"write layout=Mosaic\(tolerance=\.\.\.\)"),
        (
            "scan",
            {"phony_dims": "sorted"},
            "'sorted' is none of .*: did you mean 'sort'",
        ),
        ("open_virtual_mfdataset", {"data_vars": "bogus"}, "data_vars='bogus' is none of"),
        ("open_virtual_mfdataset", {"combine": "nestd"}, "combine='nestd' is none of .*'nested'"),
        ("open_virtual_mfdataset", {"compat": "xyz"}, "compat='xyz' is none of"),
        ("open_virtual_mfdataset", {"jion": "outer"}, "'jion': did you mean 'join'"),
        (
            "open_virtual_datatree",
            {"coords": "al"},
            "'al' is none of .*: did you mean 'all'",
        ),
        ("open_virtual_dataset", {"load_limit": -1}, "load_limit=-1 must be >= 0"),
        ("open_virtual_dataset", {"phony_dims": "sorted"}, "did you mean 'sort'"),
        ("open_virtual_mfdataset", {"variables": "all"}, "no option 'variables'"),
        ("open_store", {"grid": "reglar"}, "grid='reglar' is none of .*: did you mean 'regular'"),
        ("create_app", {"shrads": "blocks"}, "'shrads': did you mean 'shards'"),
        ("create_app", {"shards": "block"}, "shards must be"),
        ("GridrefFileSystem", {"shrads": "blocks"}, "'shrads': did you mean 'shards'"),
        (
            "open_store",
            {"index_location": "middle"},
            "'middle' is none of 'start', 'end'",
        ),
    ],
)
def test_bad_options_name_what_was_meant(
    name: str, options: dict[str, Any], message: str, file: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        CALLS[name](file, **options)


BAD_VALUES: dict[Any, dict[str, Any]] = {
    gridref.RunOptions: {
        "max_in_flight": "many",
        "on_error": ["skip"],
        "max_errors": None,
        "work": 5,
    },
    gridref.CombineOptions: {
        "join": ["outer"],
        "overlap": None,
        "variables": {"a": "all"},
        "repeated": ["a"],
        "compat": 5,
        "combine_attrs": ["drop"],
        "conflicts": [],
        "lossy": "no",
        "convert_units": "pint",
        "index_variables": {"a": 5},
    },
    gridref.ScanOptions: {
        "on_unsupported": ["skip"],
        "storage_options": ["anon"],
        "allow": 5,
        "phony_dims": ["sort"],
        "max_chunk_bytes": "4 MB",
        "max_inline_bytes": [],
        "max_objects": "all",
        "index_files": "label",
        "hints": "dmr",
    },
    gridref.Labels: {"pattern": ["{time}"], "of": 5, "sources": ["time"], "asset": 5},
    gridref.Stack: {"dim": ["time"], "labels": 5},
    gridref.Mosaic: {
        "labels": 5,
        "stack": ["time"],
        "x": ["x"],
        "y": 5,
        "tolerance": "some",
        "grids": ["one"],
    },
    gridref.Ragged: {"instance": 5, "padded": "no", "labels": ["orbit"]},
    gridref.Plate: {"labels": ["{well}"]},
    gridref.Groups: {"by": ["model"], "frequency": "daily", "labels": 5, "each": 5},
}
ANYTHING = {"executor", "inventory", "parser"}
"""Options whose values are told by what they do."""


@pytest.mark.parametrize("kind", BAD_VALUES)
def test_every_option_refuses_a_bad_value(kind: Any) -> None:
    assert {option.name for option in dataclasses.fields(kind)} - ANYTHING == {*BAD_VALUES[kind]}
    needed = {"dim": "time"} if kind is gridref.Stack else {}
    for name, value in BAD_VALUES[kind].items():
        with pytest.raises(InvalidRequestError, match=rf"({name}|layout)( must be |=)"):
            kind(**{**needed, name: value})


OTHER_TYPES = [
    ("concat_dim", ["time", 5]),
    ("order", ["given"]),
    ("layout", 5),
    ("layout", "plates"),
    ("combine", "outer"),
]
OF_SOURCES = [("storage_options", ["anon"]), ("allow", 5)]
"""Those that a catalog was opened with, where files are appended."""


@pytest.mark.parametrize(
    ("call", "name", "value"),
    [
        (call, *each)
        for call, values in (
            ("build", OTHER_TYPES + OF_SOURCES),
            ("plan", OTHER_TYPES + OF_SOURCES),
            ("append", OTHER_TYPES),
        )
        for each in values
    ],
)
def test_a_value_of_another_type_is_our_error(
    call: str, name: str, value: Any, file: str, one_file: gridref.Catalog
) -> None:
    called = functools.partial(one_file.append if call == "append" else CALLS[call], file)
    with pytest.raises(InvalidRequestError, match=rf"{name}( must be |=)|no layout 'plates'"):
        called(**{name: value})


@pytest.fixture(scope="module")
def one_file(tmp_path_factory: pytest.TempPathFactory) -> gridref.Catalog:
    path = tmp_path_factory.mktemp("one") / "a.h5"
    with h5py.File(path, "w") as handle:
        handle["v"] = np.arange(6.0)
    gridref.build(path, path.with_suffix(".gridref"))
    return gridref.open_catalog(path.with_suffix(".gridref"))


@pytest.mark.parametrize(
    ("call", "arguments", "message"),
    [
        (gridref.build, ([], ["a.gridref"]), "catalog must be a string or PathLike, got "),
        (gridref.build, (5, "a.gridref"), "files must be a string or PathLike or a list of those"),
        (gridref.plan, (None,), "files must be"),
        (gridref.open_catalog, (["a"],), "catalog must be"),
    ],
    ids=["catalog", "files", "no files", "opened"],
)
def test_what_a_call_is_of_is_checked_too(
    call: Callable[..., Any], arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        call(*arguments)


def test_one_name_to_leave_out_is_a_name_and_not_its_letters(file: str) -> None:
    assert list(gridref.open_virtual_dataset(file, drop_variables="v").variables) == []
    assert list(gridref.open_virtual_dataset(file, drop_variables="vw").variables) == ["v"]


@pytest.mark.parametrize("name", [name for name in gridref.__all__ if name.endswith("Options")])
def test_dataclasses_of_options_name_what_was_meant(name: str) -> None:
    options = getattr(gridref, name)
    field = dataclasses.fields(options)[0].name
    with pytest.raises(InvalidRequestError, match=f"has no option '{field}s': did you mean"):
        options(**{f"{field}s": None})


def test_a_layout_or_loading_names_what_was_meant() -> None:
    with pytest.raises(InvalidRequestError, match="'concat_dims': did you mean 'concat_dim'"):
        Job(concat_dims="time")  # type: ignore[call-arg]
    with pytest.raises(InvalidRequestError, match="'label': did you mean 'labels'"):
        gridref.Stack("time", label="{time}")  # type: ignore[call-arg]
    with pytest.raises(InvalidRequestError, match="'load_limits': did you mean 'load_limit'"):
        Loading(load_limits=1)  # type: ignore[call-arg]


def test_what_values_of_mappings_may_be_is_told() -> None:
    with pytest.raises(InvalidRequestError, match=r"a mapping \(each value a string or a function"):
        gridref.Labels(sources={"lat": [1, 2]})  # type: ignore[dict-item]
