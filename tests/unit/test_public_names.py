"""The public names: what is added or taken away is a decision, not an accident."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import gridref

CALLS = [
    "build",
    "concat",
    "diff",
    "forecast",
    "inspect",
    "mosaic",
    "open_catalog",
    "open_store",
    "open_virtual_dataset",
    "open_virtual_datatree",
    "open_virtual_mfdataset",
    "plan",
    "publish",
    "relocate",
    "scan",
    "scan_many",
    "sql",
    "stack",
    "verify",
    "watch",
    "write_catalog",
]
READ, KEPT = {"file", "files", "items", "groups", "group"}, {"catalog"}


def test_public_names() -> None:
    assert sorted(gridref.__all__) == [
        "Catalog",
        "ChunkMap",
        "Combination",
        "CombineOptions",
        "GridrefStore",
        "Groups",
        "Inspection",
        "Labels",
        "Loading",
        "Mosaic",
        "MosaicOptions",
        "Plate",
        "Ragged",
        "RunOptions",
        "ScanOptions",
        "Stack",
        "Verification",
        "ViewOptions",
        "VirtualArray",
        "VirtualGroup",
        "__version__",
        "build",
        "concat",
        "diff",
        "errors",
        "files_from",
        "forecast",
        "inspect",
        "mosaic",
        "open_catalog",
        "open_store",
        "open_virtual_dataset",
        "open_virtual_datatree",
        "open_virtual_mfdataset",
        "plan",
        "publish",
        "relocate",
        "scan",
        "scan_many",
        "sql",
        "stack",
        "to_cf_aggregation",
        "to_stac",
        "verify",
        "watch",
        "write_catalog",
    ]
    for name in [
        *gridref.__all__,
        *("from_icechunk", "from_virtualizarr", "to_icechunk", "to_virtualizarr", "virtualizarr"),
    ]:
        assert getattr(gridref, name).__doc__


def test_errors_are_never_taken_for_a_missing_chunk() -> None:
    """Zarr readers fill in values for these, or let a KeyError pass for a missing key."""
    for name in gridref.errors.__all__:
        kind = getattr(gridref.errors, name)
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert not issubclass(
                kind, KeyError | FileNotFoundError | IsADirectoryError | NotADirectoryError
            )


@pytest.mark.parametrize("name", CALLS)
def test_the_same_thing_has_one_name_in_every_call(name: str) -> None:
    parameters = inspect.signature(getattr(gridref, name)).parameters
    first = next(iter(parameters))
    assert first in READ | KEPT
    assert not {"url", "urls", "source", "output", "rectilinear", "path", "paths"} & {*parameters}
    for option in ("storage_options", "progress", "on_unsupported", "overlap", "join"):
        if option in parameters:
            assert parameters[option].kind is inspect.Parameter.KEYWORD_ONLY
    assert "storage_options" in parameters
    assert not any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def test_terms_names_each_parameter_that_several_calls_share() -> None:
    terms = (Path(__file__).parents[2] / "docs" / "terms.md").read_text()
    for option in ("files", "catalog", "storage_options", "on_unsupported", "progress", "overlap"):
        assert f"| `{option}` |" in terms
