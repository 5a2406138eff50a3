"""Doors to a catalog: each opens one group of an archive as a dataset of stored values."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import xarray as xr
import zarr

import gridref
from gridref.faces.exports.kerchunk import to_kerchunk
from gridref.model.array import VirtualGroup
from gridref.serve.names import IN_ADDRESSES, IN_ZARR, shown_name
from tests.conformance.door_archives import Archive

RAW: dict[str, Any] = {"decode_cf": False, "mask_and_scale": False, "create_default_indexes": False}
"""Stored values: decoding and indexes are xarray's own, behind every door."""
PIPELINES = {
    "batched": "zarr.core.codec_pipeline.BatchedCodecPipeline",
    "fused": "zarr.core.codec_pipeline.FusedCodecPipeline",
    "zarrs": "zarrs.ZarrsCodecPipeline",
}


@dataclass(frozen=True)
class Place:
    """Where the doors find the archives.

    Attributes
    ----------
    folder
        Folder of the catalogs.
    url
        Address of the server.
    """

    folder: Path
    url: str

    def catalog(self, archive: Archive) -> Path:
        """Its catalog."""
        return self.folder / f"{archive.name}.gridref"


Open = Callable[[Archive, Place], Callable[[str], xr.Dataset]]
"""Opens an archive once; what that gives opens the group at a path."""
Refuse = Callable[[VirtualGroup], Any]
"""Raises where arrays of a group are refused by name."""


@dataclass(frozen=True)
class Door:
    """One way in.

    Attributes
    ----------
    name, about
        Its name, and what a user calls.
    open
        Opens an archive, and then its groups.
    pipeline
        zarr-python's codec pipeline.
    samples
        Whether one array of each kind is tried only: what the door adds to another one is the same
        for all.
    refuse
        How an array is refused before: the others are tried without it. None tries all.
    unsafe
        What is shown quoted in names; None shows all as they are.
    """

    name: str
    about: str
    open: Open
    pipeline: str = "batched"
    samples: bool = False
    refuse: Refuse | None = None
    unsafe: re.Pattern[str] | None = IN_ZARR

    def shown(self, path: str) -> str:
        """Under which path an array or a group is found."""
        return path if self.unsafe is None else shown_path(path, self.unsafe)

    def configured(self) -> Any:
        """zarr-python as this door wants it."""
        settings = {"codec_pipeline.path": PIPELINES[self.pipeline]}
        return zarr.config.set({**settings, "array.rectilinear_chunks": self.name == "kerchunk"})


def shown_path(path: str, unsafe: re.Pattern[str]) -> str:
    """What is shown for each name of a path."""
    return "/".join(shown_name(name, unsafe) for name in path.split("/"))


def _engine(archive: Archive, place: Place) -> Callable[[str], xr.Dataset]:
    catalog = place.catalog(archive)
    return lambda group: xr.open_dataset(catalog, engine="gridref", group=group, **RAW)


def _open_zarr(store: Any, group: str, **options: Any) -> xr.Dataset:
    return xr.open_zarr(
        store, group=group or None, zarr_format=3, chunks=None, consolidated=True, **RAW, **options
    )


def _store(**options: Any) -> Open:
    return lambda archive, place: partial(_open_zarr, gridref.open_store(archive.group, **options))


def _url(archive: Archive, place: Place) -> Callable[[str], xr.Dataset]:
    return partial(_open_zarr, f"gridref::file://{place.catalog(archive)}")


def _http(view: str) -> Open:
    return lambda archive, place: partial(_open_zarr, f"{place.url}/{archive.name}/{view}")


def _kerchunk(archive: Archive, place: Place) -> Callable[[str], xr.Dataset]:
    references = _as_references(archive.group)
    return partial(_open_zarr, "reference://", storage_options={"fo": references})


def _virtual(archive: Archive, place: Place) -> Callable[[str], xr.Dataset]:
    options: dict[str, Any] = {"loadable_variables": (), "decode_times": False}

    def opened(group: str) -> xr.Dataset:
        catalog = place.folder / f"{archive.name}-virtual-{group.replace('/', '-')}.gridref"
        if len(archive.sources) > 1:
            virtual = gridref.open_virtual_mfdataset(
                archive.sources, "time", combine="nested", **options
            )
        else:
            virtual = gridref.open_virtual_dataset(archive.group, group=group or None, **options)
        virtual.gridref.save(catalog)
        return xr.open_dataset(catalog, engine="gridref", **RAW)

    return opened


def _natively(group: VirtualGroup) -> None:
    gridref.open_store(group, "native").get_sync("zarr.json")


@lru_cache(maxsize=1)
def _as_references(group: VirtualGroup) -> dict[str, Any]:
    return to_kerchunk(group, zarr_format=3)


_BY_ADDRESS: dict[str, Any] = {"samples": True, "unsafe": IN_ADDRESSES}
DOORS = (
    Door("engine", '`xr.open_dataset("cube.gridref")`', _engine, unsafe=None),
    Door(
        "native", '`xr.open_zarr(open_store(c, "native"))`', _store(view="native"), refuse=_natively
    ),
    Door("portable", '`xr.open_zarr(open_store(c, "portable"))`', _store(view="portable")),
    Door("auto", "`xr.open_zarr(open_store(c))`", _store()),
    Door("fused", "the same, zarr's fused codec pipeline", _store(), "fused", samples=True),
    Door("shards", '`xr.open_zarr(open_store(c, shards="auto"))`', _store(shards="auto")),
    Door(
        "shards, portable",
        '`xr.open_zarr(open_store(c, "portable", shards="auto"))`',
        _store(view="portable", shards="auto"),
        "fused",
        samples=True,
    ),
    Door("URL", '`xr.open_zarr("gridref::file://cube.gridref")`', _url, samples=True),
    Door("kerchunk", "`to_kerchunk` read by fsspec", _kerchunk, refuse=_as_references),
    Door("HTTP, native", "`gridref serve`, native", _http("native"), **_BY_ADDRESS),
    Door("HTTP, portable", "`gridref serve`, portable", _http("portable"), **_BY_ADDRESS),
    Door(
        "zarrs",
        "`gridref serve`, portable, by zarrs-python",
        _http("portable"),
        "zarrs",
        **_BY_ADDRESS,
    ),
    Door("virtual", "`open_virtual_dataset(c).gridref.save(d)`, engine", _virtual, unsafe=None),
)
