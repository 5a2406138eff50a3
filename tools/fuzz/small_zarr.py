"""Small Zarr stores, one way to store arrays each: what the scanner is tried with, changed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import zarr
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)

__all__ = ["write_stores"]


def write_stores(folder: Path) -> list[Path]:
    """Stores in folders below one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, options in _arrays().items():
            _write(folder / f"{name}.zarr", **options)
        for name, write in _GROUPS.items():
            write(folder / f"{name}.zarr")
    return sorted(folder.iterdir())


def _write(path: Path, **options: Any) -> None:
    given = {"shape": (4, 4), "chunks": (2, 2), "dtype": "i4", "zarr_format": 3} | options
    array = zarr.create_array(path, **given)
    ones = np.ones(array.shape, "U1" if array.dtype.kind in "OTV" else "i1")
    array[...] = ones.astype(array.dtype)


def _arrays() -> dict[str, dict[str, Any]]:
    """Options of arrays, by name."""
    shards = {"shards": (4, 4), "compressors": None}
    old: dict[str, Any] = {"zarr_format": 2}
    arrays: dict[str, dict[str, Any]] = {
        "plain": {"compressors": None},
        "zstd": {"compressors": ZstdCodec()},
        "gzip": {"compressors": GzipCodec()},
        "blosc": {"compressors": BloscCodec()},
        "checked": {"compressors": [GzipCodec(), Crc32cCodec()]},
        "big-endian": {"dtype": ">i4", "compressors": None},
        "transposed": {"filters": [TransposeCodec(order=(1, 0))], "compressors": None},
        "uneven": {"shape": (3, 5), "compressors": None, "fill_value": 7},
        "no dimensions": {"shape": (), "chunks": (), "compressors": None},
        "described": {"attributes": {"units": "m"}, "dimension_names": ("y", None)},
        "keys of version 2": {"chunk_key_encoding": {"name": "v2", "separator": "/"}},
        "shards": shards,
        "several shards": {**shards, "shards": (2, 4)},
        "compressed in shards": {"shards": (4, 4)},
        "index first": {"chunks": (4, 4), "compressors": None, "serializer": _sharding("start")},
        "shards in shards": {"chunks": (4, 4), "compressors": None, "serializer": _nested()},
        "old": {**old, "compressors": None},
        "old zlib": {**old, "compressors": numcodecs.Zlib()},
        "old blosc": {**old, "compressors": numcodecs.Blosc()},
        "old filters": {**old, "filters": [numcodecs.Delta("i4")], "compressors": numcodecs.LZ4()},
        "old order": {**old, "order": "F", "compressors": None},
        "old nested": {**old, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
        "old fixed scale": {
            **old, "dtype": "f8",
            "filters": [numcodecs.FixedScaleOffset(0, 10, "f8", "i2")],
        },
    }  # fmt: skip
    for dtype in ("?", "i1", "u8", "f2", "f8", "c8", "U2", "S3", "M8[s]", "m8[ns]"):
        arrays[f"of {dtype}"] = {"shape": (2,), "chunks": (2,), "dtype": dtype, "compressors": None}
        arrays[f"old of {dtype}"] = {**arrays[f"of {dtype}"], **old}
    for dtype in (str, [("a", "i4"), ("b", "S2")]):
        for number in (2, 3):
            options = {"shape": (2,), "chunks": (2,), "dtype": dtype, "zarr_format": number}
            arrays[f"{'text' if dtype is str else 'pairs'} {number}"] = options
    return arrays


def _sharding(location: str, chunk: int = 2, **options: Any) -> ShardingCodec:
    codecs = options.get("codecs", [BytesCodec()])
    return ShardingCodec(chunk_shape=(chunk, chunk), codecs=codecs, index_location=location)


def _nested() -> ShardingCodec:
    return _sharding("end", 2, codecs=[_sharding("end", 1)])


def _group(path: Path, number: int = 3) -> zarr.Group:
    group = zarr.open_group(path, mode="w", zarr_format=number, attributes={"title": "t"})
    group.create_array("a", shape=(4,), chunks=(2,), dtype="i2", compressors=None)[...] = 1
    group.create_group("g").create_array("b", shape=(1,), dtype="f4", compressors=None)[...] = 2
    return group


def _consolidated(path: Path, number: int) -> None:
    _group(path, number)
    zarr.consolidate_metadata(path, zarr_format=number)


def _xarray(path: Path, number: int) -> None:
    import xarray as xr

    data = xr.Dataset({"v": (("x",), [1.0, 2.0], {"units": "m"})}, {"x": [1, 2]})
    data.to_zarr(path, zarr_format=number)


_GROUPS: dict[str, Callable[[Path], object]] = {
    "group": _group,
    "old group": lambda path: _group(path, 2),
    "consolidated": lambda path: _consolidated(path, 3),
    "old consolidated": lambda path: _consolidated(path, 2),
    "xarray": lambda path: _xarray(path, 3),
    "old xarray": lambda path: _xarray(path, 2),
    "empty": lambda path: zarr.open_group(path, mode="w"),
}
