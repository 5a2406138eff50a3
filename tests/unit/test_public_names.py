"""The public names: what is added or taken away is a decision, not an accident."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gridref
from gridref.api.catalog import write_catalog
from gridref.api.inspect import inspect as inspect_file
from gridref.api.layout.forecasts import forecast
from gridref.api.scan import scan_many
from gridref.faces.duckdb import sql
from gridref.faces.web.publishing import publish

CALLS = [
    gridref.build,
    gridref.concat,
    gridref.copy,
    gridref.mosaic,
    gridref.open_catalog,
    gridref.open_mfdataset,
    gridref.open_mfdatatree,
    gridref.open_store,
    gridref.open_virtual_dataset,
    gridref.open_virtual_datatree,
    gridref.open_virtual_mfdataset,
    gridref.plan,
    gridref.scan,
    gridref.verify,
    forecast,
    inspect_file,
    publish,
    scan_many,
    sql,
    write_catalog,
]
READ, KEPT = {"file", "files", "items", "groups", "group"}, {"catalog"}


def test_a_misspelt_name_is_suggested() -> None:
    with pytest.raises(AttributeError) as caught:
        gridref.opencatalog  # noqa: B018
    shown = "".join(traceback.format_exception(caught.value))
    assert "Did you mean: 'open_catalog'?" in shown
    assert {"copy", "create_app"} <= {*dir(gridref)}


def test_public_names() -> None:
    assert sorted(gridref.__all__) == [
        "Catalog",
        "CombineOptions",
        "Groups",
        "Labels",
        "Mosaic",
        "Plate",
        "Ragged",
        "RunOptions",
        "ScanOptions",
        "Stack",
        "ViewOptions",
        "VirtualGroup",
        "__version__",
        "build",
        "concat",
        "errors",
        "files_from",
        "mosaic",
        "open_catalog",
        "open_mfdataset",
        "open_mfdatatree",
        "open_store",
        "open_virtual_dataset",
        "open_virtual_datatree",
        "open_virtual_mfdataset",
        "plan",
        "scan",
        "to_kerchunk",
        "verify",
    ]
    # At most 30 names, with `copy`, which would hide Python's module, and `create_app`, which needs
    # packages that may be missing.
    assert len({*gridref.__all__, "copy", "create_app"} - {"__version__"}) <= 30
    for name in [*gridref.__all__, "copy", "create_app", "interchange", "virtualizarr"]:
        assert getattr(gridref, name).__doc__
    for name in dir(gridref.interchange):
        assert getattr(gridref.interchange, name).__doc__


def test_errors_are_never_taken_for_a_missing_chunk() -> None:
    """Zarr readers fill in values for these, or let a KeyError pass for a missing key."""
    for name in gridref.errors.__all__:
        kind = getattr(gridref.errors, name)
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert not issubclass(
                kind, KeyError | FileNotFoundError | IsADirectoryError | NotADirectoryError
            )


@pytest.mark.parametrize("call", CALLS)
def test_the_same_thing_has_one_name_in_every_call(call: Callable[..., Any]) -> None:
    parameters = inspect.signature(call).parameters
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
