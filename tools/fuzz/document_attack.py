"""Hostile documents: listings of files, aggregation files and saved plans."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd

import gridref
from gridref.api.building import plan_document
from gridref.errors import GridrefError
from tools.fuzz.catalog_attack import change_member

__all__ = ["document_attacks"]

type Try = Callable[[int], str | None]

_TEXTS = (
    "f.nc", "../f.nc", "/etc/hostname", "", "\0", "\udc80", "http://127.0.0.1:1/f.nc", "a b", "::",
    "s3://b/k.nc", "file://elsewhere/f.nc", "zip://a::f.nc", "[f.nc", "f.nc?x", "x" * 300,
)  # fmt: skip
_STRANGE_LENGTHS: tuple[Any, ...] = (0, -1, 1, 2, 3, 4, 2**31, 2**62, -(2**63) + 2)


def document_attacks(folder: Path) -> dict[str, Try]:
    """Attempts by name of the document."""
    folder.mkdir()
    with h5py.File(folder / "f.nc", "w") as file:
        file["v"] = np.arange(4.0)
    return {
        "documents: listings": _listings(folder),
        "documents: aggregations": _aggregations(folder / "aggregation.nc"),
        "documents: plans": _plans(folder),
    }


def _judged(call: Callable[[], object]) -> str | None:
    try:
        call()
    except GridrefError:
        return None
    except Exception as error:  # noqa: BLE001 - whatever is raised is the finding
        return f"{type(error).__name__}: {error}"[:200]
    return None


def _listings(folder: Path) -> Try:
    """Tables and documents of addresses, with a bit, a cell or a member changed."""
    listings = _some_listings(folder)
    contents = [(path, path.read_bytes()) for path in listings]

    def attempt(seed: int) -> str | None:
        rng = random.Random(seed)
        path, content = contents[seed % len(contents)]
        path.write_bytes(_changed(content, rng))
        main = folder / "manifest.json" if "inventory" in path.name else path
        asset = rng.choice([None, None, "B04", "none"])
        try:
            return _judged(lambda: gridref.files_from(main, asset=asset))
        finally:
            path.write_bytes(content)

    return attempt


def _some_listings(folder: Path) -> list[Path]:
    """One of each kind; that of objects has its table beside it, whose checksum it leaves out."""
    table = "path,time\nf.nc,2000-01-01\ng.nc,2000-01-02\n"
    item = {
        "type": "Feature", "id": "i", "links": [{"rel": "self", "href": "x"}],
        "properties": {"datetime": "2000-01-01T00:00:00Z"},
        "assets": {"B04": {"href": "f.nc"}, "data": {"href": "g.nc"}},
    }  # fmt: skip
    esm = {
        "esmcat_version": "0.1.0", "attributes": [{"column_name": "time"}],
        "assets": {"column_name": "path", "format": "netcdf"},
    }  # fmt: skip
    rows = [{"path": "f.nc", "time": "2000"}]
    manifest = {
        "sourceBucket": "b", "destinationBucket": "arn:aws:s3:::d", "version": "2016-11-30",
        "fileFormat": "CSV", "fileSchema": "Bucket, Key, IsLatest, IsDeleteMarker, Size",
        "files": [{"key": "x/data/inventory.csv.gz", "size": 1}],
    }  # fmt: skip
    parquet = io.BytesIO()
    pd.DataFrame(rows * 3).to_parquet(parquet)
    contents: dict[str, bytes] = {
        "lines.txt": b"f.nc\n\ng.nc\n",
        "table.csv": table.encode(),
        "table.csv.gz": gzip.compress(table.encode(), mtime=0),
        "table.parquet": parquet.getvalue(),
        "items.json": json.dumps({"type": "FeatureCollection", "features": [item] * 2}).encode(),
        "item.geojson": json.dumps(item).encode(),
        "esm.json": json.dumps(esm | {"catalog_dict": rows}).encode(),
        "esm_of_file.json": json.dumps(esm | {"catalog_file": "table.csv"}).encode(),
        "manifest.json": json.dumps(manifest).encode(),
        "inventory.csv.gz": gzip.compress(b'"b","a/f.nc","true","false","9"\n' * 3, mtime=0),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in contents]


def _changed(content: bytes, rng: random.Random) -> bytes:
    """A bit, the length, an address, or a member of JSON."""
    if content[:1] == b"{" and rng.random() < 0.8:
        document = json.loads(content)
        for _ in range(rng.choice((1, 1, 2, 4))):
            if document:
                change_member(document, rng)
        return json.dumps(document).encode()
    changed = bytearray(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    kind = rng.random()
    if kind < 0.4:
        address = rng.choice(_TEXTS).encode("utf-8", "surrogateescape")
        changed = bytearray(changed.replace(b"f.nc", address, 1))
    elif kind < 0.8:
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    else:
        del changed[rng.randrange(len(changed)) :]
    if content[:2] != b"\x1f\x8b":
        return bytes(changed)
    packed = bytearray(gzip.compress(changed, 1, mtime=0))
    if rng.random() < 0.3:
        packed[rng.randrange(len(packed))] ^= 1 << rng.randrange(8)
    return bytes(packed)


def _aggregations(path: Path) -> Try:
    """CF aggregation files whose instructions say anything."""

    def attempt(seed: int) -> str | None:
        path.write_bytes(_aggregation(random.Random(seed)))
        return _judged(lambda: gridref.scan(path))

    return attempt


def _aggregation(rng: random.Random) -> bytes:
    def often[T](usual: T, *others: T) -> T:
        return usual if rng.random() < 0.6 else rng.choice((usual, *others))

    with h5py.File("a.nc", "w", driver="core", backing_store=False) as file:
        kind = often("f8", "i4", "S3", "i1")
        value = file.create_dataset("v", often((), (4,), (2, 2)), kind)
        value.attrs["aggregated_dimensions"] = often("x", "", "x y", "x x", "/g/x", 3, "x " * 99)
        named = often("map: m uris: u identifiers: i", "map: m unique_values: w", "map: m", "",
                      "map: v uris: v identifiers: v", "map: /m uris: /g/u identifiers: i", 5,
                      "map: m uris: w identifiers: m", "map: u unique_values: u")  # fmt: skip
        value.attrs["aggregated_data"] = named
        for name in ("units", "scale_factor", "_FillValue", "missing_value"):
            if rng.random() < 0.1:
                value.attrs[name] = rng.choice(("m", 1.0, [1, 2], 0, b"x", np.nan))
        lengths = np.resize(rng.choices(_STRANGE_LENGTHS, k=2), 6) if rng.random() < 0.5 else [4]
        shape = often((1, 1), (1, 2), (2, 1), (1,), (), (0, 1), (1, 2**40))
        if np.prod(shape, dtype=float) < 9:
            numbers = np.resize(lengths, shape).astype(often("i8", "f4", "S2", "u1"))
            file.create_dataset("m", data=numbers)
        else:
            file.create_dataset("m", shape, "i4", chunks=(1, 2**20), fillvalue=1)
        count = often((1,), (2,), (), (1, 1), (0,))
        for name, usual in (("u", "f.nc"), ("i", "v")):
            texts = file.create_dataset(name, often(count, ()), h5py.string_dtype())
            if texts.size:
                texts[...] = often(usual, *(t for t in _TEXTS if "\0" not in t)).encode(
                    "utf-8", "surrogateescape"
                )
        file.create_dataset("w", often(count, (2**24,)), often("f8", "i4", "S4"), fillvalue=None)
        file.flush()
        return bytes(file.id.get_file_image())


def _plans(folder: Path) -> Try:
    """Saved plans that a plan of today is compared with."""
    document = plan_document(gridref.plan([folder / "f.nc"]))
    drift = {"cause": "units", "variable": "v", "resolution": "kept", "n_cases": 1}
    document["drifts"] = [drift | {"cases": [{"value": "m", "files": [["a", "b"]]}]}]
    path = folder / "plan.json"

    def attempt(seed: int) -> str | None:
        path.write_bytes(_changed(json.dumps(document).encode(), random.Random(seed)))
        return _judged(lambda: gridref.plan([folder / "f.nc"], expect=path))

    return attempt
