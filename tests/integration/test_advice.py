"""Whatever a message recommends is followed here, and the result compared label by label.

Advice is every option that a string of the package or a row of ``docs/errors.md`` names. A new one
without an entry in `CASES`, `TESTED_ELSEWHERE` or `NO_ADVICE` fails `test_all_advice_is_known`.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.errors import GridrefError, Option
from gridref.faces.cli.options import spelled
from tests.by_name import by_name

ROOT = Path(gridref.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "errors.md"

Archive = Callable[[Path], list[Path]]
Cells = dict[tuple[Any, ...], list[Any]]


# What is recommended

_TOKEN = r"""\b([a-z_]+)=("[^"]*"|'[^']*'|\[[^\]]*\]|[A-Z]\w+\([^)]*\)|True|False|\d+)?(?![\w=])"""


def _nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def _parameters(nodes: list[ast.AST]) -> Iterator[str]:
    """Names of options: parameters of functions, and fields of classes."""
    for node in nodes:
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def _texts(nodes: list[ast.AST]) -> Iterator[str]:
    """The strings of a module that are no docstrings; what is filled in is an ellipsis."""
    passed = set()
    for node in nodes:
        if isinstance(node, ast.Expr):
            passed.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            passed |= {id(value) for value in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr) and id(node) not in passed:
            yield "".join(
                str(value.value) if isinstance(value, ast.Constant) else "…"
                for value in node.values
            )
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in passed
        ):
            yield node.value


def _named(nodes: list[ast.AST]) -> Iterator[str]:
    """The options that messages of a module name, as Python writes them."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            values = [each.value if isinstance(each, ast.Constant) else ... for each in node.args]
            if node.func.id == "Option" and values[0] is not ...:
                yield f"{Option(*values)}".replace("=...", "=") if values[2:] == [] else values[2]


@cache
def _package() -> tuple[frozenset[str], dict[str, tuple[list[str], list[str]]]]:
    """The names of all options of the package, and of each module its texts and named options."""
    names, said = set(), {}
    for path in ROOT.rglob("*.py"):
        nodes = _nodes(path)
        names.update(_parameters(nodes))
        said[path.relative_to(ROOT).as_posix()] = list(_texts(nodes)), list(_named(nodes))
    return frozenset(names), said


def _advice_in(text: str) -> Iterator[str]:
    for match in re.finditer(_TOKEN, text):
        name, value = match.groups()
        if name in _package()[0]:
            plain = "" if value is None or value[0] == "[" else value.replace('"', "'")
            yield f"{name}={plain}"


def recommended() -> frozenset[tuple[str, str]]:
    """Each place of the package with each option that it names."""
    found = set()
    for where, (texts, named) in _package()[1].items():
        if where.startswith(("faces/cli/", "faces/http/", "faces/picture", "faces/web/")):
            continue  # help of the options themselves; code and drawings of pages
        sentences = [text for text in texts if " " in text and "<" not in text]
        found |= {(where, each) for text in sentences + named for each in _advice_in(text)}
    for row in re.findall(r"^\| `([a-z-]+)` \|.*\|(.*)\|$", PAGE.read_text("utf-8"), re.MULTILINE):
        found |= {(f"errors.md {row[0]}", each) for each in _advice_in(row[1])}
    return frozenset(found)


# Archives that are refused


def dataset(time: Any, lat: Any = (10, 20), offset: float = 0, **variables: Any) -> xr.Dataset:
    values = offset + 100.0 * np.arange(len(time))[:, None] + np.arange(len(lat))
    return xr.Dataset(
        {"t": (("time", "lat"), values), **variables},
        {"time": np.asarray(time, "f8"), "lat": np.asarray(lat, "f8")},
    )


def written(*datasets: xr.Dataset) -> Archive:
    def write(folder: Path) -> list[Path]:
        for number, ds in enumerate(datasets):
            ds.to_netcdf(folder / f"{number}.nc")
        return sorted(folder.glob("*.nc"))

    return write


OTHER_LABELS = written(
    *(
        dataset([number], labels, 1000 * number)
        for number, labels in enumerate(([10, 20, 30], [40, 30, 20], [20, 30, 50], [30, 20, 10]))
    )
)
OVERLAP = written(dataset([0, 1, 2]), dataset([2, 3], offset=5000), dataset([2], offset=9000))
OTHER_VALUES = written(
    dataset([0], height=("lat", [1.0, 2])), dataset([1], offset=500, height=("lat", [1.0, 3]))
)
SOME_LACK_IT = written(dataset([0], u=("time", [7.0])), dataset([1], offset=500))
OTHER_ATTRIBUTES = written(
    dataset([0]).assign_attrs(title="a"), dataset([1], offset=500).assign_attrs(title="b")
)
OTHER_DTYPES = written(
    dataset([0], n=("time", np.int64([2**53 + 1]))), dataset([1], n=("time", np.float32([0.5])))
)
OTHER_NAMES = written(
    *(
        dataset(
            [time],
            surface=(
                "time",
                np.int8([1]),
                {"flag_values": np.int8([0, 1]), "flag_meanings": names},
            ),
        )
        for time, names in enumerate(("land sea", "land lake"))
    )
)
OTHER_UNITS = written(
    dataset([0], p=("time", [1000.0], {"units": "hPa"})),
    dataset([1], offset=500, p=("time", [99000.0], {"units": "Pa"})),
)


SOME_LACK_THE_DIMENSION = written(
    dataset([0, 1]).rename(lat="y"),
    *(xr.Dataset({"m": ("x", [n, n + 1.0])}, {"x": [0.0, 1]}) for n in (10.0, 20)),
)


def boxes(*places: tuple[float, float]) -> Archive:
    """Files of one time and one member each, which hold a static variable."""
    return written(
        *(
            xr.Dataset(
                {
                    "t": (("time", "member", "x"), np.full((1, 1, 2), 10.0 * number)),
                    "area": (("time", "x"), [[1.0, 2.0 + number]]),
                },
                {"time": [time], "member": [member], "x": [0.0, 1]},
            )
            for number, (time, member) in enumerate(places)
        )
    )


def unlabelled(folder: Path) -> list[Path]:
    for number in range(2):
        values = [[10.0 * number, 1 + number]]
        ds = xr.Dataset({"t": (("time", "x"), values)}, {"x": [0.0, 1]}, attrs={"day": number})
        ds.to_netcdf(folder / f"day{number}.nc")
    return sorted(folder.glob("*.nc"))


def tile(x: Any, y: Any, offset: float, crs: int | None = None) -> xr.Dataset:
    values = offset + np.arange(len(x) * len(y), dtype="f8").reshape(len(y), len(x))
    ds = xr.Dataset(
        {"t": (("y", "x"), values)},
        {
            "x": ("x", np.asarray(x, "f8"), {"standard_name": "projection_x_coordinate"}),
            "y": ("y", np.asarray(y, "f8"), {"standard_name": "projection_y_coordinate"}),
        },
    )
    if crs is not None:
        import pyproj

        ds["crs"] = ((), 0, {"crs_wkt": pyproj.CRS.from_epsg(crs).to_wkt()})
        ds.t.attrs["grid_mapping"] = "crs"
    return ds


ROWS = (30.0, 20.0, 10.0)
TILES = written(tile([0, 10, 20], ROWS, 0), tile([20, 30, 40], ROWS, 100))
OTHER_SYSTEMS = written(tile([0, 10, 20], ROWS, 0, 32631), tile([30, 40, 50], ROWS, 100, 32632))
OTHER_PIXELS = written(tile([0, 10, 20], ROWS, 0), tile([30, 35, 40, 45], ROWS, 100))
OFF_THE_GRID = written(tile([0, 10, 20], ROWS, 0), tile([34, 44, 54], ROWS, 100))
UNEVEN = written(tile([0, 10, 21], ROWS, 0), tile([30, 41, 50], ROWS, 100))


def one_cut(folder: Path) -> list[Path]:
    files = written(dataset([0]), dataset([1], offset=500), dataset([2], offset=900))(folder)
    cut = files[1]
    cut.write_bytes(cut.read_bytes()[:900])
    return files


def one_unsupported(folder: Path) -> list[Path]:
    for number in range(2):
        path = folder / f"{number}.nc"
        dataset([number], offset=500 * number).to_netcdf(path)
        with h5py.File(path, "a") as file:
            settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            settings.set_chunk((4,))
            settings.set_filter(32024, h5py.h5z.FLAG_OPTIONAL, ())  # SZ3, which nothing decodes
            space = h5py.h5s.create_simple((4,))
            made = h5py.h5d.create(file.id, b"a", h5py.h5t.NATIVE_FLOAT, space, settings)
            made.write_direct_chunk((0,), b"compressed")
    return sorted(folder.glob("*.nc"))


def other_calendars(folder: Path) -> list[Path]:
    for number, calendar in enumerate(("360_day", "noleap")):
        dataset([number], offset=500 * number).to_netcdf(folder / f"{number}.nc")
        with netCDF4.Dataset(folder / f"{number}.nc", "a") as file:
            for dim in ("time",):
                file[dim].units, file[dim].calendar = "days since 2000-01-01", calendar
    return sorted(folder.glob("*.nc"))


# What following advice gives


@dataclass(frozen=True)
class Case:
    """An archive that is refused with a piece of advice.

    Attributes
    ----------
    where
        Modules, and rows of the page of errors, that give the advice.
    advice
        Options to follow it by; those that are None are taken away.
    asked
        Options of the call that is refused.
    shows
        What is found under each label: what the files hold there (``"all"``), or the ``"first"``
        or ``"last"`` of them.
    loses
        Words that say what the advice loses; without any, all labels of all files are found.
    changes
        What values of a variable become, by name.
    lost
        Variables that are left out.
    also
        Further options that the advice takes.
    labelled
        A file's dataset with the labels that its variables lack.
    """

    where: tuple[str, ...]
    archive: Archive
    advice: Mapping[str, Any]
    asked: Mapping[str, Any] = field(default_factory=lambda: {"concat_dim": "time"})
    shows: str = "all"
    loses: str = ""
    changes: Mapping[str, Callable[[xr.DataArray], xr.DataArray]] = field(default_factory=dict)
    lost: tuple[str, ...] = ()
    also: Mapping[str, Any] = field(default_factory=dict)
    labelled: Callable[[xr.Dataset, Path], xr.Dataset] = lambda ds, path: ds

    def __str__(self) -> str:
        return f"{self.where[0]} {self.advice}"

    def tokens(self) -> Iterator[tuple[str, str]]:
        """The advice, as `recommended` finds it."""
        for where, (name, value) in product(self.where, self.advice.items()):
            if value is not None:
                if name == "combine":
                    yield where, f"layout={value!r}"
                if name in ("labels", "stack"):
                    yield (
                        where,
                        {"labels": "layout=Labels(...)", "stack": "layout=Stack(...)"}[name],
                    )
                yield where, f"{name}={value!r}"
                yield where, f"{name}="


CASES = [
    Case(
        ("combine/rules/joined_labels.py", "errors.md labels-differ"),
        OTHER_LABELS,
        {"join": "outer"},
    ),
    Case(
        ("combine/rules/joined_labels.py", "errors.md labels-differ"),
        OTHER_LABELS,
        {"join": "inner"},
        loses="keeps only the labels that all files have",
    ),
    Case(
        ("combine/labels.py", "errors.md overlap"),
        OVERLAP,
        {"overlap": "first"},
        shows="first",
        loses="hides the others",
    ),
    Case(
        ("combine/labels.py", "errors.md overlap"),
        OVERLAP,
        {"overlap": "last"},
        shows="last",
        loses="hides the others",
    ),
    Case(("combine/labels.py", "errors.md overlap"), OVERLAP, {"overlap": "keep"}),
    Case(
        ("combine/level.py", "errors.md values-differ"),
        OTHER_VALUES,
        {"variables": "different"},
    ),
    Case(
        ("combine/level.py", "errors.md values-differ"),
        OTHER_VALUES,
        {"compat": "override"},
        shows="first",
        loses="loses the others",
    ),
    Case(
        ("combine/rules/dimensions.py",),
        written(dataset([0]), dataset([1], (10, 20, 30), 500)),
        {"join": "outer"},
    ),
    Case(
        ("combine/placement.py",),
        SOME_LACK_THE_DIMENSION,
        {"compat": "override"},
        asked={"concat_dim": "time", "variables": "different"},
        shows="first",
        loses="loses the others",
    ),
    Case(
        ("combine/rules/packing.py", "errors.md variable-missing"), SOME_LACK_IT, {"join": "outer"}
    ),
    Case(
        ("combine/rules/packing.py", "errors.md variable-missing"),
        SOME_LACK_IT,
        {"join": "inner"},
        loses="leaves the variable out of all",
        lost=("u",),
    ),
    *(
        Case(
            where,
            OTHER_ATTRIBUTES,
            {"combine_attrs": rule},
            asked={"concat_dim": "time", "combine_attrs": "identical"},
            loses=loses,
        )
        for where, rule, loses in (
            (
                ("combine/rules/attributes.py", "errors.md attributes"),
                "override",
                "loses the others",
            ),
            (("errors.md attributes",), "drop_conflicts", "leaves those that differ out"),
        )
    ),
    Case(
        ("combine/rules/flags.py", "errors.md flags-differ"),
        OTHER_NAMES,
        {"combine_attrs": "drop_conflicts"},
        loses="leaves the names out",
    ),
    Case(
        ("combine/rules/packing.py", "errors.md dtype-differs"),
        OTHER_DTYPES,
        {"lossy": True},
        loses="rounds",
        changes={"n": lambda values: values.astype("f8")},
    ),
    Case(
        ("combine/rules/units.py", "errors.md units-differ"),
        OTHER_UNITS,
        {"convert_units": True},
        changes={"p": lambda p: p / 100 if p.attrs["units"] == "Pa" else p},
    ),
    Case(
        ("errors.md calendar-differs", "errors.md time-units-differ"),
        other_calendars,
        {"conflicts": "skip"},
        loses="leaves the coordinate out",
        lost=("time",),
    ),
    Case(
        ("combine/hypercube.py",),
        boxes((0, 0), (0, 1), (1, 0)),
        {"variables": "different"},
        asked={"concat_dim": ["time", "member"]},
    ),
    Case(
        ("combine/hypercube.py",),
        boxes((0, 0), (0, 1), (1, 0)),
        {"compat": "override"},
        asked={"concat_dim": ["time", "member"]},
        shows="first",
        loses="loses the others",
    ),
    *(
        Case(
            ("combine/hypercube.py",),
            boxes((0, 0), (0, 1), (0, 1)),
            {"overlap": shown},
            asked={"concat_dim": ["time", "member"], "variables": "different"},
            shows=shown,
            loses="hides the others",
        )
        for shown in ("first", "last")
    ),
    Case(
        ("combine/hypercube.py",),
        boxes((0, 0), (0, 1), (0, 1)),
        {"pattern": "{number:d}.nc"},
        asked={"concat_dim": ["time", "member"], "variables": "different"},
        also={"concat_dim": ["number", "time", "member"]},
        labelled=lambda ds, path: ds.assign_coords(number=float(path.stem)),
    ),
    Case(
        ("combine/hypercube.py",),
        unlabelled,
        {"labels": {"time": "attribute:day"}},
        asked={"concat_dim": "time", "combine": "by_coords"},
        labelled=lambda ds, path: ds.assign_coords(time=[ds.attrs["day"]]),
    ),
    Case(
        ("combine/hypercube.py",),
        unlabelled,
        {"combine": None},
        asked={"concat_dim": "time", "combine": "by_coords"},
        also={"concat_dim": "time"},
    ),
    Case(
        ("combine/level.py",),
        written(*(xr.Dataset({"t": ("x", [own, 1.0])}, {"x": [0.0, 1]}) for own in (5.0, 7.0))),
        {"stack": "time", "combine": None},
        asked={"combine": "by_coords"},
        labelled=lambda ds, path: ds.expand_dims("time"),
    ),
    Case(
        ("combine/hypercube.py",),
        OVERLAP,
        {"combine": None},
        asked={"concat_dim": "time", "combine": "by_coords", "overlap": "keep"},
        also={"concat_dim": "time"},
    ),
    *(
        Case(
            ("combine/mosaic.py",),
            TILES,
            {"overlap": shown},
            asked={"mosaic": True} | refused,
            shows=shown,
            loses=loses,
        )
        for shown in ("first", "last")
        for refused, loses in (({}, "hides the others"), ({"overlap": "keep"}, "hide the others"))
    ),
    *(
        Case(("combine/mosaic.py",), archive, {"grids": "groups"}, asked={"mosaic": True})
        for archive in (OTHER_SYSTEMS, OTHER_PIXELS, OFF_THE_GRID)
    ),
    Case(
        ("combine/mosaic.py",),
        UNEVEN,
        {"concat_dim": ["x", "y"], "mosaic": None},
        asked={"mosaic": True},
    ),
    Case(
        ("api/scan.py",),
        one_cut,
        {"on_error": "skip"},
        loses="leaves it out",
    ),
    Case(
        ("formats/scanner.py",),
        one_unsupported,
        {"on_unsupported": "skip"},
        loses="leaves out what is refused",
        lost=("a",),
    ),
]


def _all(where: str, *tokens: str, by: str) -> dict[tuple[str, str], str]:
    return {(where, token): by for token in tokens}


_RAGGED = "integration/test_ragged_archives.py::"
_COPYING = "integration/test_copying.py::"
TESTED_ELSEWHERE = {
    ("options.py", "concat_dim="): "integration/test_advice.py::test_dim_is_called_concat_dim",
    ("options.py", "layout=Stack(...)"): "integration/test_building.py::test_stack_of_dated_files",
    **_all(
        "combine/rules/dimensions.py",
        "layout=Ragged()",
        by=_RAGGED + "test_ragged_has_all_samples_and_how_many_each_file_has",
    ),
    (
        "api/layout/sources.py",
        "concat_dim=",
    ): "unit/combine/test_labelled.py::test_a_dimension_that_exists_cannot_be_stacked",
    (
        "api/overviews.py",
        "method='mode'",
    ): "integration/test_overviews.py::test_what_cannot_be",
    (
        "api/overviews.py",
        "factor=",
    ): "integration/test_overviews.py::test_what_cannot_be",
    **_all(
        "api/copying.py",
        "arrays=",
        by=f"{_COPYING}test_types_that_zarr_does_not_have_are_refused_before_anything_is_written",
    ),
    **_all(
        "api/rechunking.py",
        "chunks=",
        by="integration/test_overlays.py::test_write_list_update_and_drop",
    ),
    **_all(
        "api/rewriting/plan.py",
        "memory=",
        by="unit/api/test_rewriting_plan.py::test_too_little_memory_names_the_least",
    ),
    **_all(
        "api/rewriting/writer.py",
        "memory=",
        "spill=",
        by=f"{_COPYING}test_without_room_for_intermediate_files_the_advice_helps",
    ),
    **_all(
        "api/layout/layouts.py",
        "instance='station'",
        by="integration/test_ragged_archives.py::test_labels_out_of_names",
    ),
    **_all(
        "combine/rules/joined_labels.py",
        "join='override'",
        by="integration/test_layouts.py::test_labels_that_are_the_same_in_float32",
    ),
    **_all(
        "faces/xarray/opening.py",
        "concat_dim=",
        "data_vars=",
        "coords=",
        by="integration/test_open_mfdataset.py::test_advice_names_options_that_the_call_has",
    ),
    **_all(
        "faces/xarray/duck_array.py",
        "compat='override'",
        by="integration/test_virtual_datasets.py::test_merge_and_reindex",
    ),
    **_all(
        "catalog/opening.py",
        "pending='fill'",
        by="integration/test_append.py::test_strict_readers_raise",
    ),
    **_all(
        "combine/rules/packing.py",
        "on_unsupported='skip'",
        by="integration/test_bad_input.py::test_what_is_corrupt_in_one_file_is_not_absent",
    ),
    **_all(
        "faces/xarray/opening.py",
        "combine='by_coords'",
        by="integration/test_cubes.py::test_the_same_as_an_xarray_dataset",
    ),
    **_all(
        "errors.md variable-damaged",
        "on_unsupported='skip'",
        by="integration/test_bad_input.py::test_what_is_corrupt_in_one_file_is_not_absent",
    ),
    **_all(
        "combine/placement.py",
        "layout=Ragged()",
        by="integration/test_families.py::test_what_differs_beside_sweeps_is_kept_by_file",
    ),
    **_all(
        "errors.md values-differ",
        "layout=Ragged()",
        by="integration/test_families.py::test_advice_that_loses_nothing_is_taken_and_told",
    ),
    **_all(
        "combine/level.py",
        "layout=Ragged()",
        by="integration/test_families.py::test_advice_that_loses_nothing_is_taken_and_told",
    ),
    **_all(
        "combine/instances.py",
        "layout=Ragged()",
        by=_RAGGED + "test_samples_that_say_their_instance",
    ),
    **_all(
        "combine/instances.py",
        "layout=Ragged(padded=True)",
        by=_RAGGED + "test_profiles_side_by_side_in_their_files",
    ),
    **_all(
        "combine/instances.py",
        "concat_dim='obs'",
        by=_RAGGED + "test_what_does_not_say_what_differs_is_asked_for",
    ),
    **_all(
        "errors.md dimension-missing",
        "layout=Stack(...)",
        by="integration/test_building.py::test_stack_of_dated_files",
    ),
    **_all(
        "errors.md index-shift",
        "index_variables=",
        by="unit/combine/test_ragged.py::test_variables_may_be_named_that_count",
    ),
    **_all(
        "errors.md labels-missing",
        "layout=Labels(...)",
        by="integration/test_cubes.py::test_forecasts_by_init_and_step",
    ),
    **_all(
        "errors.md packing-differs",
        "conflicts='skip'",
        by="unit/combine/test_drift.py::test_all_problems_come_at_once_and_can_be_left_out",
    ),
    **_all(
        "errors.md shape-differs",
        "layout=Ragged()",
        by=_RAGGED + "test_ragged_has_all_samples_and_how_many_each_file_has",
    ),
    **_all(
        "api/summary.py",
        "group=",
        by="integration/test_layouts.py::test_yes_reaches_the_layouts_within_each_kind",
    ),
    **{
        key: by
        for where in ("errors.md spacing-differs", "api/layout/facts.py")
        for key, by in _all(
            where,
            "layout=Groups(frequency=True)",
            "join='outer'",
            by="integration/test_layouts.py::"
            "test_times_of_different_spacing_are_a_problem_with_two_ways_out",
        ).items()
    },
    **{
        (where, "on_unsupported='skip'"): "integration/test_bad_input.py::"
        "test_what_is_corrupt_in_one_file_is_not_absent"
        for where in ("combine/rules/packing.py", "errors.md variable-damaged")
    },
    **_all(
        "api/building.py",
        "overwrite=True",
        by="integration/test_plan.py::test_a_catalog_that_is_there_is_replaced_when_asked_only",
    ),
    **dict.fromkeys(
        (("io/identity.py", "identity='size'"), ("api/catalog.py", "identity=")),
        "integration/test_moving.py::test_copies_are_refused_where_identity_is_strict",
    ),
    **{
        (where, "index_files='offsets'"): "integration/test_scan_grib.py::test_offsets_only"
        for where in ("codecs/grib.py", "serve/grids.py")
    },
    **_all(
        "faces/ragged.py",
        "layout=Ragged()",
        by="integration/test_awkward.py::test_rows_are_those_of_the_files",
    ),
    **_all(
        "faces/ragged.py",
        "layout=Ragged()",
        by="integration/test_sparse.py::test_files_lie_along_cells",
    ),
    **_all(
        "api/changes.py",
        "vanished='skip'",
        by="integration/test_replace.py::test_what_has_changed_is_found",
    ),
    **_all(
        "api/layout/discovery.py",
        "layout='first'",
        by="integration/test_layouts.py::test_several_layouts_are_listed_with_what_each_gives",
    ),
    **_all(
        "api/layout/layouts.py",
        "layout='by_coords'",
        by="integration/test_cubes.py::test_one_variable_a_file_is_merged",
    ),
    **_all(
        "api/layout/layouts.py",
        "layout='nested'",
        by="integration/test_virtual_datasets.py::test_it_does_what_xarray_does",
    ),
    **_all(
        "api/layout/forecasts.py",
        "offset=",
        "after=",
        "run=",
        by="integration/test_forecast_views.py::test_one_offset_of_all_runs",
    ),
    **_all(
        "faces/exports/icechunk.py",
        "materialize=True",
        by="integration/test_icechunk.py::"
        "test_what_cannot_be_referenced_is_refused_or_decoded_if_asked",
    ),
}
"""Advice that other tests follow; they compare values and labels with other readers."""

NO_ADVICE = {
    ("api/overviews.py", "levels="),  # what was asked for
    ("api/rechunking.py", "where="),  # what was asked for
    ("catalog/overlays.py", "overlay="),
    ("api/catalog.py", "overlay="),
    ("api/opening.py", "overlay="),
    ("combine/hypercube.py", "concat_dim="),
    ("combine/hypercube.py", "overlap='keep'"),  # what is refused, or was asked for
    ("combine/mosaic.py", "overlap='keep'"),
    ("api/layout/layouts.py", "layout='nested'"),
    ("api/catalog.py", "pending='raise'"),  # what was asked for
    ("api/layout/layouts.py", "frequency=True"),
    ("api/layout/layouts.py", "layout='nested'"),  # what is refused
    ("api/verify_labels.py", "compat='override'"),
    ("api/verify_labels.py", "join='override'"),
    ("api/layout/layouts.py", "order='given'"),
    ("api/layout/layouts.py", "layout="),
    ("faces/xarray/opening.py", "layout="),  # what was asked for
    ("faces/xarray/opening.py", "combine="),
    ("faces/xarray/opening.py", "combine='nested'"),  # that xarray needs for concat_dim
    ("combine/instances.py", "concat_dim="),  # what the caller is asked to choose, with an example
    ("api/combining.py", "stack='time'"),
    ("errors.md dimension-missing", "concat_dim="),  # what the caller is asked to choose
    ("errors.md variable-damaged", "join="),
    ("api/changes.py", "concat_dim='time'"),
    ("api/changes.py", "concat_dim='time'"),
    ("api/layout/discovery.py", "concat_dim='time'"),
    ("api/layout/discovery.py", "layout=Stack('time')"),
    ("api/layout/discovery.py", "layout=Mosaic()"),
    ("api/layout/facts.py", "layout=Groups('model')"),
    ("api/layout/layouts.py", "concat_dim="),
    ("api/layout/layouts.py", "concat_dim='time'"),
    ("api/layout/layouts.py", "layout=Stack('time')"),
}
"""Options that a message names without recommending what it gives."""

NO_VALUES = {
    "allow", "append_dim", "asset", "at", "boundary", "datetime", "decode_times", "edges", "etag",
    "events", "expect", "extent", "inventory", "keep", "load_limit", "loadable_variables",
    "mask_and_scale", "max_errors", "max_in_flight", "max_inline_bytes", "mtime_ns", "prefixes",
    "replace", "size_bytes", "snapshot", "storage_options", "templates", "to", "url", "version",
    "vlen_encode", "work", "zarr_format",
}  # fmt: skip
"""Options that say where something is, how much of it is done, or how it is read or written."""


def _labels(ds: xr.Dataset, dim: str, starts: Mapping[str, int]) -> list[float]:
    """Labels of a dimension; numbers of its elements in all files where it has none."""
    if dim in ds.variables:
        return [float(label) for label in np.atleast_1d(ds[dim].values)]
    return [float(starts[dim] + number) for number in range(ds.sizes[dim])]


def cells(array: xr.DataArray, ds: xr.Dataset, dims: Any, starts: Mapping[str, int]) -> Cells:
    """Each value with its labels along some dimensions, along some of which it may repeat."""
    found: Cells = defaultdict(list)
    every = [_labels(ds, dim, starts) for dim in dims]
    wide = array.expand_dims([dim for dim in dims if dim not in array.dims]).transpose(*dims)
    for at in np.ndindex(*map(len, every)):
        place = [k if n > 1 else 0 for k, n in zip(at, wide.shape, strict=True)]
        key = tuple(labels[k] for labels, k in zip(every, at, strict=True))
        found[key].append(wide.values[tuple(place)].item())
    return found


def originals(files: list[Path], case: Case) -> Iterator[xr.Dataset]:
    """The files as netCDF4 reads them, without what is left out."""
    for path in files:
        if not h5py.is_hdf5(path) or not _opens(path):
            continue
        with xr.open_dataset(path, engine="netcdf4", decode_times=False) as ds:
            own = case.labelled(ds.drop_vars(case.lost, errors="ignore").load(), path)
        yield own.assign({name: change(own[name]) for name, change in case.changes.items()})


def _opens(path: Path) -> bool:
    try:
        with h5py.File(path):
            return True
    except OSError:
        return False


def check_by_label(levels: list[xr.Dataset], files: list[Path], case: Case) -> None:
    names = {name for level in levels for name in level.variables if name not in level.sizes}
    names -= {"crs", "spatial_ref"}
    assert not names.intersection(case.lost)
    expected_names = {name for ds in originals(files, case) for name in ds.data_vars} - {"crs"}
    assert names == expected_names
    for name in names:
        holding = [level for level in levels if name in level.variables]
        dims = holding[0][name].dims
        found: Cells = defaultdict(list)
        expected: Cells = defaultdict(list)
        for level in holding:
            for key, values in cells(level[name], level, dims, defaultdict(int)).items():
                found[key] += values
        starts: dict[Any, int] = defaultdict(int)
        for ds in originals(files, case):
            if name in ds:
                for key, values in cells(ds[name], ds, dims, starts).items():
                    expected[key] += values
            for dim, extent in ds.sizes.items():
                starts[dim] += extent
        assert case.loses or expected.keys() <= found.keys()
        assert expected.keys() & found.keys()
        for key, values in found.items():
            held = expected.get(key, [])
            held = {"first": held[:1], "last": held[-1:]}.get(case.shows, held) or [np.nan]
            shown = values * len(held) if len(values) == 1 else values
            np.testing.assert_array_equal(sorted(shown), sorted(held))


@pytest.mark.long(but=10)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_following_advice_gives_what_the_files_hold(case: Case, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    files = case.archive(tmp_path / "in")
    with pytest.raises(GridrefError) as refused:
        gridref.build(files, tmp_path / "refused.gridref", **by_name(**case.asked))
    rows = {where: _row(where) for where in case.where if where.startswith("errors.md")}
    messages = [*rows.values(), *([str(refused.value)] if len(rows) < len(case.where) else [])]
    for message in messages:
        assert case.loses in message
        assert any(token in set(_advice_in(message)) for _, token in case.tokens()) or case.also
    # What is advised is no mere text: each face writes it in its own way.
    named = {str(option) for option in refused.value.options}
    advised = {*_advice_in(str(refused.value))}
    assert advised == {each for text in named for each in _advice_in(text)}
    assert not any(text in spelled(refused.value.message) for text in named)
    options = {k: v for k, v in {**case.asked, **case.advice, **case.also}.items() if v is not None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gridref.errors.SkippedFilesWarning)
        gridref.build(files, tmp_path / "cube.gridref", **by_name(**options))
    with xr.open_datatree(
        f"gridref::{tmp_path / 'cube.gridref'}", engine="zarr", decode_times=False
    ) as tree:
        check_by_label([node.to_dataset().load() for node in tree.subtree], files, case)


def test_dim_is_called_concat_dim(tmp_path: Path) -> None:
    files = written(dataset([0]), dataset([1], offset=500))(tmp_path)
    with pytest.raises(GridrefError, match="write concat_dim="):
        gridref.build(files, tmp_path / "cube.gridref", dim="time")
    group = gridref.build(files, tmp_path / "cube.gridref", concat_dim="time")
    assert group.arrays["t"].shape == (2, 2)


def _row(where: str) -> str:
    cause = where.partition(" ")[2]
    (row,) = re.findall(rf"^\| `{cause}` \|.*$", PAGE.read_text("utf-8"), re.MULTILINE)
    return str(row)


def test_all_advice_is_known() -> None:
    tested = {token for case in CASES for token in case.tokens()}
    listed = {*TESTED_ELSEWHERE, *NO_ADVICE}
    given = {each for each in recommended() if each[1].partition("=")[0] not in NO_VALUES}
    assert sorted(given - tested - listed) == [], "new advice: follow it in CASES"
    assert sorted(listed - given) == [], "no longer given"


def test_advice_is_found(tmp_path: Path) -> None:
    module = tmp_path / "a.py"
    module.write_text(
        "def f(n):\n    \"join='left'\"\n    return f\"{n} differ; join='outer' fills in\"\n"
        "def g(n):\n    return Message(f'{n}: ', Option('join', 'inner'), Option('join', n))\n"
    )
    assert [token for text in _texts(_nodes(module)) for token in _advice_in(text)] == [
        "join='outer'"
    ]
    named = [token for text in _named(_nodes(module)) for token in _advice_in(text)]
    assert named == ["join='inner'", "join="]


def test_tests_elsewhere_are_there() -> None:
    for where in sorted(set(TESTED_ELSEWHERE.values())):
        path, _, name = where.partition("::")
        text = (Path(__file__).parents[1] / path).read_text(encoding="utf-8")
        assert f"def {name}(" in text, where
