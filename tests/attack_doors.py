"""The doors that attacks go through: each reads all of one array as it is stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

import gridref
from gridref.api.readable import reader_for
from gridref.errors import GridrefError
from gridref.faces.http import create_app
from tests.uvicorn_server import running

type Read = Callable[[str | Path, str], NDArray[Any]]

RAW: dict[str, Any] = {"decode_cf": False, "mask_and_scale": False, "consolidated": False}


def _own_reader(catalog: str | Path, name: str) -> NDArray[Any]:
    return np.asarray(reader_for().read(gridref.open_catalog(catalog).arrays[name], ...))


def _engine(catalog: str | Path, name: str) -> NDArray[Any]:
    with xr.open_dataset(catalog, engine="gridref", decode_cf=False, cache=False) as opened:
        return opened[name].values


def _store(view: str) -> Read:
    def read(catalog: str | Path, name: str) -> NDArray[Any]:
        store = gridref.open_store(catalog, view=view)
        return xr.open_zarr(store, chunks=None, **RAW)[name].values

    return read


def _url(catalog: str | Path, name: str) -> NDArray[Any]:
    return xr.open_zarr(f"gridref::file://{catalog}", chunks=None, **RAW)[name].values


def _http(view: str) -> Read:
    def read(catalog: str | Path, name: str) -> NDArray[Any]:
        with running(create_app({"a": str(catalog)})) as url:
            return xr.open_zarr(f"{url}/a/{view}", chunks=None, **RAW)[name].values

    return read


DOORS: dict[str, Read] = {
    "own reader": _own_reader,
    "engine": _engine,
    "direct": _store("direct"),
    "portable": _store("portable"),
    "native": _store("native"),
    "gridref:: URL": _url,
    "HTTP, portable": _http("portable"),
    "HTTP, native": _http("native"),
}
"""Ways in, by name: all of an array of a catalog, by its name."""


def is_told_by_http(error: BaseException) -> bool:
    """Whether a client was told of an error by status 5xx, and not that a chunk is absent."""
    return 500 <= getattr(error, "status", 0) < 600


def told_at_a_door(kind: type[GridrefError]) -> pytest.RaisesExc[BaseException]:
    """As `pytest.raises`: an error of ours, or what an HTTP client makes of the server's."""
    return pytest.raises(check=lambda error: isinstance(error, kind) or is_told_by_http(error))
