"""Doors to a catalog: each opens one group of an archive as a dataset of stored values."""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import xarray as xr
import zarr

import gridref
from gridref.faces.exports.kerchunk import to_kerchunk
from gridref.faces.http import create_app
from gridref.model.array import VirtualGroup
from gridref.serve.names import IN_ADDRESSES, IN_ZARR, shown_name
from tests.conformance.door_archives import Archive
from tests.uvicorn_server import running

RAW: dict[str, Any] = {"decode_cf": False, "mask_and_scale": False}
"""Stored values: decoding is xarray's own, behind every door."""
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
    references = to_kerchunk(archive.group, zarr_format=3)
    return partial(_open_zarr, "reference://", storage_options={"fo": references})


def _virtual(archive: Archive, place: Place) -> Callable[[str], xr.Dataset]:
    first, several = archive.sources[0], len(archive.sources) > 1
    in_groups = any("/" in path for path in archive.group.all_arrays())
    file = gridref.scan(first, on_unsupported="skip") if in_groups else first

    def opened(group: str) -> xr.Dataset:
        catalog = place.folder / f"{archive.name}-virtual-{group.replace('/', '-')}.gridref"
        options: dict[str, Any] = {
            "group": group or None,
            "loadable_variables": (),
            "decode_times": False,
        }
        if several:
            virtual = gridref.open_virtual_mfdataset(
                archive.sources, "time", combine="nested", on_unsupported="skip", **options
            )
        elif in_groups:
            virtual = gridref.open_virtual_dataset(file, **options)
        else:
            virtual = gridref.open_virtual_dataset(file, on_unsupported="skip", **options)
        virtual.gridref.save(catalog)
        return xr.open_dataset(catalog, engine="gridref", **RAW)

    return opened


def _natively(group: VirtualGroup) -> None:
    zarr.open_group(gridref.open_store(group, "native"), mode="r")


def _as_references(group: VirtualGroup) -> None:
    to_kerchunk(group, zarr_format=3)


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
    Door("virtual", "`open_virtual_dataset(f).gridref.save(c)`, engine", _virtual, unsafe=None),
)


@contextmanager
def served(catalogs: Mapping[str, str]) -> Iterator[str]:
    """Serve catalogs from another process: some clients hold the GIL while they wait."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(dict(catalogs), theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("stop")
        process.join(20)


def _serve(catalogs: dict[str, str], pipe: Connection) -> None:
    with running(create_app(catalogs)) as url:
        pipe.send(url)
        pipe.recv()
