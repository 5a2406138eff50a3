"""Changed catalogs: bits of their files, and members of their description.

A changed bit is noticed, or changes nothing. A catalog that was changed and signed anew says what
it says; reading it must end in values or in an error of ours.
"""

from __future__ import annotations

import copy
import hashlib
import json
import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

import gridref
from gridref.api.readable import reader_for
from gridref.errors import GridrefError

__all__ = ["ATTACKS", "attack", "change_member", "make_catalog", "members", "read_all", "sign"]

STRANGE = (
    None, True, -1, 0, 2**31, 2**63, 10**400, 0.5, "", "a/b", "\ud800", "\0", [], {}, [[]], [-1],
    {"$numpy": {"dtype": "<f8", "shape": [10**12], "raw": ""}}, {"$": 1},
)  # fmt: skip
"""Values that stand for nothing in most places."""

type Values = dict[str, NDArray[Any]]


def sign(document: dict[str, Any]) -> None:
    """Put the checksum of its content into a root file's document, as the format's page says."""
    content = {name: value for name, value in document.items() if name != "checksum"}
    text = json.dumps(content, separators=(",", ":")).encode()
    document["checksum"] = f"sha256:{hashlib.sha256(text).hexdigest()}"


def make_catalog(folder: Path) -> Path:
    """A catalog of two files, with chunks, codecs, missing ones, attributes, text and groups."""
    rng = np.random.default_rng(1)
    for number in range(2):
        with h5py.File(folder / f"{number}.nc", "w") as file:
            file["time"] = np.arange(10.0) + 10 * number
            file["time"].make_scale("time")
            for name, dtype, options in (
                ("a", "i4", {"compression": "gzip", "shuffle": True}),
                ("b", ">f8", {}),
            ):
                data = file.create_dataset(
                    name, (10, 8), dtype, chunks=(5, 4), fillvalue=7, **options
                )
                data[:, :6] = rng.integers(1, 2**31, (10, 6))
                data[:5] = rng.integers(1, 2**31, (5, 8))
                data.dims[0].attach_scale(file["time"])
                data.attrs["units"] = "m"
    catalog = folder / "cube.gridref"
    gridref.build([folder / "0.nc", folder / "1.nc"], catalog, "time")
    return catalog


def read_all(catalog: Path) -> Values:
    """All values of all arrays, from an overlay where there is one."""
    group, reader = gridref.open_catalog(catalog, overlay=0), reader_for()
    return {name: np.asarray(reader.read(array, ...)) for name, array in group.arrays.items()}


def attack(
    catalog: Path, kind: str, seed: int, copies: Path, expected: Values | None = None
) -> str | None:
    """Change a copy of a catalog in one way, and read it; what went wrong, if anything did.

    `expected` are its values, read if they are not given.
    """
    expected = expected or read_all(catalog)
    changed = copies / "changed.gridref"
    if not changed.exists():
        shutil.copytree(catalog, changed)
    rng = random.Random(seed)
    path = _changed_file(changed, kind, rng)
    content = path.read_bytes()
    try:
        path.write_bytes(ATTACKS[kind](content, rng))
        return _judged(changed, kind, expected)
    finally:
        path.write_bytes(content)


def _changed_file(catalog: Path, kind: str, rng: random.Random) -> Path:
    tables = sorted(catalog.glob("*.parquet"))
    return rng.choice(tables) if kind == "a bit of a table" else catalog / "gridref.json"


def _judged(changed: Path, kind: str, expected: Values) -> str | None:
    try:
        found = read_all(changed)
    except GridrefError:
        return None
    except Exception as error:  # noqa: BLE001 - whatever is raised is the finding
        return f"{type(error).__name__}: {error}"[:200]
    if kind == "members, signed anew" or _same(found, expected):
        return None
    return "other values"


def _same(found: Values, expected: Values) -> bool:
    return found.keys() == expected.keys() and all(
        array.dtype == expected[name].dtype and array.tobytes() == expected[name].tobytes()
        for name, array in found.items()
    )


def _flip(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _change_member(content: bytes, rng: random.Random) -> bytes:
    document = json.loads(content)
    change_member(document, rng)
    with suppress(KeyError, TypeError, AttributeError):  # what is signed may not be there any more
        sign(document)
    return json.dumps(document).encode()


def change_member(document: Any, rng: random.Random) -> None:
    """Drop, rename, copy or overwrite one member of a document."""
    found = list(members(document))
    holder, key = rng.choice(found)
    change = rng.randrange(4)
    if change == 0:
        del holder[key]
    elif change == 1 and isinstance(holder, dict):
        holder[f"{key}x"] = holder.pop(key)
    elif change == 2:
        other, name = rng.choice(found)
        holder[key] = copy.deepcopy(other[name])
    else:
        holder[key] = copy.deepcopy(rng.choice(STRANGE))


def members(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every member of a document, with what holds it."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from members(value[key])


ATTACKS = {
    "a bit of gridref.json": _flip,
    "a bit of a table": _flip,
    "members, signed anew": _change_member,
}
"""Ways to change a file of a catalog, by name."""
