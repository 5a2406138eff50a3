"""Descriptions of catalogs of many kinds, changed in one to four places and signed anew.

Such a catalog says what a stranger wrote. Reading it, or changing it further, must end in values or
in an error of ours. One place of one catalog can be changed in some 40,000 ways, which do not last
for long; several places of several catalogs never repeat.
"""

from __future__ import annotations

import copy
import hashlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import tifffile
import xarray as xr
import zarr

import gridref
from gridref.errors import GridrefError
from gridref.io import SourcePool
from gridref.serve.reader import Reader
from tools.fuzz.catalog_attack import change_member, make_catalog, members

__all__ = ["MemberAttack", "make_catalogs"]

_OTHERS_EVERY = 8
"""Of so many attempts, one goes through other doors than the own reader, or changes the catalog."""
_DAYS = np.datetime64("2000-01-01", "s") + np.arange(40) * np.timedelta64(1, "D")
_MOST_BYTES = 2**24
"""Of arrays that are read whole; of larger ones, a corner."""


class MemberAttack:
    """Attempts on catalogs in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._catalogs = make_catalogs(folder)
        self._contents = [(path / "gridref.json").read_bytes() for path in self._catalogs]
        self._changed = folder / "changed.gridref"
        self._new_file = folder / "new.nc"

    def __call__(self, seed: int) -> str | None:
        """What broke, if anything did."""
        rng = random.Random(seed)
        number = rng.randrange(len(self._catalogs))
        catalog, content = self._catalogs[number], self._contents[number]
        document = json.loads(content)
        for _ in range(rng.choice((1, 1, 2, 4))):
            if rng.random() < 0.3:
                _nudge(document, rng)
            elif document:
                change_member(document, rng)
        changed = _signed(document)
        if rng.randrange(_OTHERS_EVERY):
            root = catalog / "gridref.json"
            root.write_bytes(changed)
            try:
                return _judged(_read, catalog)
            finally:
                root.write_bytes(content)
        shutil.copytree(catalog, self._changed)
        try:
            (self._changed / "gridref.json").write_bytes(changed)
            use = rng.choice(list(_USES.values()))
            return _judged(lambda path: use(path, self._new_file), self._changed)
        finally:
            shutil.rmtree(self._changed)


def make_catalogs(folder: Path) -> list[Path]:
    """Catalogs that have all members among them: parts, tags, groups, statistics, overlays.

    The second has been appended to; `new.nc` beside it fits, too.
    """
    (folder / "usual").mkdir()
    made = [make_catalog(folder / "usual")]
    files = [_grown(folder / f"{number}.nc", number) for number in range(3)]
    grown = folder / "grown.gridref"
    gridref.build(files[0], grown, "time", checksums=True)
    catalog = gridref.open_catalog(grown).append(files[1]).scan_values().tag("first")
    catalog.declare("time", _DAYS[:12]).append(files[2]).remove(files[1])
    made.append(grown)
    _grown(folder / "new.nc", 3)
    tree, _ = folder / "tree.gridref", _store(folder / "s.zarr")
    gridref.build(folder / "s.zarr", tree)
    made.append(tree)
    for number in range(2):
        tifffile.imwrite(folder / f"{number}.tif", np.arange(512, dtype="u1").reshape(16, 32) // 2,
                         tile=(16, 16), compression="deflate")  # fmt: skip
    images = folder / "images.gridref"
    gridref.build([folder / "0.tif", folder / "1.tif"], images, "name:{band:d}.tif")
    layered = folder / "layered.gridref"
    gridref.build([folder / "usual/0.nc", folder / "usual/1.nc"], layered, "time")
    catalog = gridref.open_catalog(layered).rechunk("a", {"time": -1})
    catalog.rechunk("b", {"time": 4}, where={"time": slice(3, 15)}, codec="blosc")
    return [*made, images, layered]


def _grown(path: Path, number: int) -> Path:
    """A file of three times, packed in its own way, with an enumeration, texts and a compound."""
    with h5py.File(path, "w") as file:
        file["time"] = np.arange(3) + 3 * number
        file["time"].attrs["units"] = "days since 2000-01-01"
        file["time"].make_scale("time")
        kinds = h5py.enum_dtype({"land": number % 2, "sea": 1 - number % 2}, "i1")
        pair = np.array([(n, n / 2) for n in range(3)], [("a", "<i2"), ("b", ">f4")])
        for name, values in {
            "packed": np.arange(6, dtype="i2").reshape(3, 2),
            "kind": np.arange(3, dtype="i1") % 2,
            "text": np.array([b"ab", b"c", b""], "S2"),
            "pair": pair,
            "wave": np.array([1 + 2j, np.nan, 0]),
        }.items():
            dtype = kinds if name == "kind" else values.dtype
            chunks = (2, *values.shape[1:])
            file.create_dataset(name, data=values, dtype=dtype, chunks=chunks, fletcher32=True)
            file[name].dims[0].attach_scale(file["time"])
        file["packed"].attrs.update({"scale_factor": 1 + number / 2, "_FillValue": np.int16(-1)})
    return path


def _store(path: Path) -> None:
    root = zarr.open_group(path, mode="w", attributes={"title": "t", "$x": [1, {"y": None}]})
    root.create_array("v", data=np.arange(12.0).reshape(3, 4), chunks=(2, 2),
                      dimension_names=["y", "x"])  # fmt: skip
    root.create_group("a/b").create_array("w", data=np.arange(8), chunks=(2,), shards=(4,))
    root.create_array("empty", shape=(4,), chunks=(2,), dtype="f4", fill_value=np.inf)


def _signed(document: Any) -> bytes:
    """As `sign`, with one serialization."""
    if not isinstance(document, dict):
        return json.dumps(document).encode()
    document.pop("checksum", None)
    text = json.dumps(document, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f'{text[:-1]}{"," * bool(document)}"checksum":"sha256:{digest}"}}'.encode()


def _nudge(document: Any, rng: random.Random) -> None:
    """Change a number or text by a little, or exchange two members of one holder."""
    found = list(members(document))
    if not found:
        return
    holder, key = rng.choice(found)
    value = holder[key]
    if isinstance(value, bool) or value is None or isinstance(value, dict | list):
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        other = rng.choice(keys)
        holder[key], holder[other] = copy.deepcopy(holder[other]), copy.deepcopy(value)
    elif isinstance(value, int | float):
        others = value + 1, value - 1, -value, value * 2, float(value % 2**63), str(value)
        holder[key] = rng.choice(others)
    else:
        place, text = rng.randrange(len(value) + 1), rng.choice(("", "0", "/", "../", "\0", "é"))
        holder[key] = value[:place] + text + value[place + 1 :]


def _judged(use: Callable[[Path], object], catalog: Path) -> str | None:
    try:
        use(catalog)
    except GridrefError:
        return None
    except Exception as error:  # noqa: BLE001 - whatever is raised is the finding
        return f"{type(error).__name__}: {error}"[:200]
    return None


def _corner(shape: tuple[int, ...], n_bytes: int) -> Any:
    return ... if n_bytes <= _MOST_BYTES else tuple(slice(0, 2) for _ in shape)


def _read(catalog: Path) -> None:
    reader = Reader(SourcePool(), n_threads=1)
    for path, array in gridref.open_catalog(catalog, overlay=0).all_arrays().items():
        reader.read(array, _corner(array.shape, array.nbytes), name=path)


def _engine(catalog: Path, _: Path) -> None:
    options: Any = {"engine": "gridref", "decode_cf": False, "cache": False}
    for dataset in xr.open_groups(catalog, **options).values():
        for variable in dataset.variables.values():
            variable[_corner(variable.shape, variable.nbytes)].to_numpy()


def _stores(catalog: Path, _: Path) -> None:
    for view in ("direct", "portable"):  # what zarr makes of codecs of a native view is its own
        root = zarr.open_group(gridref.open_store(catalog, view=view), mode="r")
        for _name, array in root.members(max_depth=None):
            if isinstance(array, zarr.Array):
                array[_corner(array.shape, array.nbytes)]


def _tables(catalog: Path, _: Path) -> None:
    group = gridref.open_catalog(catalog)
    for name, array in group.all_arrays().items():
        if array.nbytes <= _MOST_BYTES:
            group.chunks(name)
    group.sources(), group.statistics(), group.history(), repr(group), group._repr_html_()


def _exports(catalog: Path, _: Path) -> None:
    group = gridref.open_catalog(catalog)
    gridref.interchange.to_stac(group, datetime="2000-01-01")


def _usual(file: Path) -> Path:
    return file.parent / "usual" / "cube.gridref"


def _change(change: Callable[[Any, Path], object]) -> Callable[[Path, Path], None]:
    def use(catalog: Path, file: Path) -> None:
        change(gridref.open_catalog(catalog), file)
        _read(catalog)

    return use


_USES: dict[str, Callable[[Path, Path], None]] = {
    "engine": _engine,
    "stores": _stores,
    "tables": _tables,
    "exports": _exports,
    "append": _change(lambda group, file: group.append(file)),
    "tag": _change(lambda group, _: group.tag("x")),
    "rollback": _change(lambda group, _: group.rollback()),
    "prune": _change(lambda group, _: group.prune(keep=1, grace_seconds=0)),
    "refresh": _change(lambda group, _: group.refresh()),
    "values": _change(lambda group, _: group.scan_values()),
    "declare": _change(lambda group, _: group.declare("time", _DAYS)),
    "difference": _change(lambda group, file: group.diff(_usual(file))),
}
"""What else is done with a changed catalog, and with a file that would fit."""
