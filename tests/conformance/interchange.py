"""What other tools keep of a group: exported and read by them, or described by them and read by us.

``python -m tests.conformance.interchange`` writes the table of docs/interchange.md.
"""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import fsspec
import icechunk
import numpy as np
import xarray as xr
import zarr
from icechunk.credentials import Credentials
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtualizarr.parsers import HDFParser

import gridref
from gridref.errors import GridrefError, NotRepresentableError
from gridref.faces.exports.kerchunk import to_kerchunk
from tests.by_kerchunk import hdf5_references
from tests.cf_aggregations import aggregate, read_aggregation

PAGE = Path(__file__).parents[2] / "docs" / "interchange.md"
BEGIN, END = "<!-- made by tests.conformance.interchange -->", "<!-- end -->"

type Read = Callable[[], xr.DataTree]
type Export = Callable[[gridref.VirtualGroup, Path], Read]
type Import = Callable[[Sequence[Path], Path], gridref.VirtualGroup]


def _write(path: Path, tree: Mapping[str, xr.Dataset], **encoding: Any) -> list[Path]:
    xr.DataTree.from_dict(dict(tree)).to_netcdf(path, engine="h5netcdf", encoding=encoding)
    return [path]


def _numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).normal(280, 9, shape).astype("f4")


def _values(folder: Path) -> list[Path]:
    chunked = {"v": {"chunksizes": (10, 30), "zlib": True, "shuffle": True}}
    return _write(
        folder / "a.nc", {"/": xr.Dataset({"v": (("y", "x"), _numbers(40, 60))})}, **{"/": chunked}
    )


def _attributes(folder: Path) -> list[Path]:
    attrs = {"units": "K", "levels": np.array([1, 2, 3], "i4"), "offset": np.float64(0.5)}
    dataset = xr.Dataset({"v": ("x", _numbers(9), attrs)}, attrs={"title": "ours", "version": 3})
    return _write(folder / "a.nc", {"/": dataset})


def _groups(folder: Path) -> list[Path]:
    below = xr.Dataset({"w": ("z", _numbers(7))}, attrs={"title": "below"})
    return _write(folder / "a.nc", {"/": xr.Dataset({"v": ("x", _numbers(9))}), "/low/er": below})


def _packing(folder: Path) -> list[Path]:
    values = np.round(np.linspace(-5, 5, 60).reshape(6, 10), 2)
    values[2, 3] = np.nan
    packed = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 1.5, "_FillValue": -999}
    return _write(
        folder / "a.nc", {"/": xr.Dataset({"v": (("y", "x"), values)})}, **{"/": {"v": packed}}
    )


def _missing(folder: Path, masked: bool) -> list[Path]:
    import h5py

    with h5py.File(folder / "a.nc", "w") as file:
        data = file.create_dataset("v", (40, 30), "i2", chunks=(10, 10), fillvalue=-7)
        data[12:25, 3:18] = 5
        if masked:
            data.attrs["_FillValue"] = np.int16(-7)
        for name, length in (("y", 40), ("x", 30)):
            file[name] = np.arange(length)
            file[name].make_scale(name)
        data.dims[0].attach_scale(file["y"])
        data.dims[1].attach_scale(file["x"])
    return [folder / "a.nc"]


def _uneven(folder: Path) -> list[Path]:
    paths = []
    for length in (31, 28, 30):
        chunked = {"/": {"v": {"chunksizes": (length, 20), "zlib": True}}}
        dataset = xr.Dataset({"v": (("time", "x"), _numbers(length, 40))})
        paths += _write(folder / f"{length}.nc", {"/": dataset}, **chunked)
    return paths


def _codecs(folder: Path) -> list[Path]:
    paths = []
    for number, zlib in enumerate((True, False)):
        chunked = {"/": {"v": {"chunksizes": (10, 20), "zlib": zlib}}}
        dataset = xr.Dataset({"v": (("time", "x"), _numbers(20, 40 + 0 * number))})
        paths += _write(folder / f"{number}.nc", {"/": dataset}, **chunked)
    return paths


PROBES: dict[str, Callable[[Path], list[Path]]] = {
    "values": _values,
    "attributes": _attributes,
    "groups": _groups,
    "packing": _packing,
    "missing chunks, masked": lambda folder: _missing(folder, masked=True),
    "missing chunks, a fill value only": lambda folder: _missing(folder, masked=False),
    "uneven grids": _uneven,
    "differing codecs": _codecs,
    "changed files are refused": _values,
}


def _original(files: Sequence[Path]) -> xr.DataTree:
    # Closed at once: a file that is collected while kerchunk holds h5py's lock stops everything.
    if len(files) == 1:
        with xr.open_datatree(files[0], engine="h5netcdf") as tree:
            return tree.load()
    return xr.DataTree(
        xr.concat([xr.load_dataset(file, engine="h5netcdf") for file in files], "time")
    )


def _group(files: Sequence[Path]) -> gridref.VirtualGroup:
    groups = [gridref.scan(file) for file in files]
    return groups[0] if len(groups) == 1 else gridref.concat(groups, "time")


def _zarr_tree(store: Any, zarr_format: int = 3) -> xr.DataTree:
    with zarr.config.set({"array.rectilinear_chunks": True}):
        return xr.open_datatree(
            store, engine="zarr", consolidated=False, zarr_format=zarr_format, chunks=None
        ).load()


def _to_kerchunk(zarr_format: Any) -> Export:
    def export(group: gridref.VirtualGroup, folder: Path) -> Read:
        to_kerchunk(group, folder / "refs.json", zarr_format=zarr_format, inline_limit=0)
        document = json.loads((folder / "refs.json").read_text())
        return lambda: _referenced_tree(document, zarr_format)

    return export


def _referenced_tree(document: Mapping[str, Any], zarr_format: int) -> xr.DataTree:
    """What fsspec and zarr read of references."""
    files = fsspec.filesystem("reference", fo=document, asynchronous=True, skip_instance_cache=True)
    store = zarr.storage.FsspecStore(files, read_only=True, path="")
    return _zarr_tree(store, zarr_format)


def _to_virtualizarr(group: gridref.VirtualGroup, folder: Path) -> Read:
    virtual = gridref.interchange.to_virtualizarr(group, loadable_variables=[], inline_limit=0)
    config, prefix = icechunk.RepositoryConfig.default(), f"file://{folder}/"
    store = icechunk.local_filesystem_store(str(folder))
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, store))
    access = {prefix: Credentials.LocalFileSystemAccess()}
    repository = icechunk.Repository.create(icechunk.in_memory_storage(), config, access)
    session = repository.writable_session("main")
    virtual.vz.to_icechunk(session.store)
    return lambda: _zarr_tree(session.store)


def _to_icechunk(group: gridref.VirtualGroup, folder: Path) -> Read:
    gridref.interchange.to_icechunk(group, folder / "a.icechunk", inline_limit=0)

    def read() -> xr.DataTree:
        storage = icechunk.local_filesystem_storage(str(folder / "a.icechunk"))
        prefixes = icechunk.Repository.fetch_config(storage).virtual_chunk_containers
        access = dict.fromkeys(prefixes, Credentials.LocalFileSystemAccess())
        repository = icechunk.Repository.open(storage, authorize_virtual_chunk_access=access)
        return _zarr_tree(repository.readonly_session("main").store)

    return read


def _to_cf_aggregation(group: gridref.VirtualGroup, folder: Path) -> Read:
    gridref.interchange.to_cf_aggregation(group, folder / "all.nc", inline_limit=0)
    return lambda: read_aggregation(folder / "all.nc")


def _as_kerchunk_says(files: Sequence[Path]) -> xr.DataTree:
    trees = [_referenced_tree(hdf5_references(file, inline_threshold=0), 2) for file in files]
    if len(trees) == 1:
        return trees[0]
    return xr.DataTree(xr.concat([tree.to_dataset() for tree in trees], "time"))


def _from_kerchunk(files: Sequence[Path], folder: Path) -> gridref.VirtualGroup:
    groups = []
    for file in files:
        document = hdf5_references(file, inline_threshold=0)
        (folder / f"{file.stem}.json").write_text(json.dumps(document))
        groups.append(gridref.scan(folder / f"{file.stem}.json"))
    return groups[0] if len(groups) == 1 else gridref.concat(groups, "time")


def _from_virtualizarr(files: Sequence[Path], folder: Path) -> gridref.VirtualGroup:
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    parsed = [HDFParser()(f"file://{file}", registry) for file in files]
    groups = [gridref.interchange.from_virtualizarr(store) for store in parsed]
    return groups[0] if len(groups) == 1 else gridref.concat(groups, "time")


def _from_icechunk(files: Sequence[Path], folder: Path) -> gridref.VirtualGroup:
    gridref.interchange.to_icechunk(
        _group(files), folder / "b.icechunk", materialize=True, inline_limit=0
    )
    return gridref.interchange.from_icechunk(folder / "b.icechunk")


def _from_cf_aggregation(files: Sequence[Path], folder: Path) -> gridref.VirtualGroup:
    return gridref.scan(aggregate(files, folder / "all.nc"))


TO: dict[str, Export] = {
    "to kerchunk, Zarr v2": _to_kerchunk(2),
    "to kerchunk, Zarr v3": _to_kerchunk(3),
    "to VirtualiZarr": _to_virtualizarr,
    "to Icechunk": _to_icechunk,
    "to CF aggregation": _to_cf_aggregation,
}
FROM: dict[str, Import] = {
    "from kerchunk": _from_kerchunk,
    "from VirtualiZarr": _from_virtualizarr,
    "from Icechunk": _from_icechunk,
    "from CF aggregation": _from_cf_aggregation,
}


def outcome(probe: str, way: str, folder: Path) -> str:
    """``yes`` if it is kept, ``no`` if it comes through another, ``refused`` if it does not."""
    files = PROBES[probe](folder)
    # kerchunk's scanner says some things otherwise than the file; what it says is what comes in.
    expected = _as_kerchunk_says(files) if way == "from kerchunk" else _original(files)
    try:
        read = _reading(way, files, folder)
    except NotRepresentableError:
        return "refused"
    if probe == "changed files are refused":
        return _notices_change(read, files[0])
    got = read()
    same = all(
        node.to_dataset().equals(got[path].to_dataset()) and _has(node, got[path])
        for path, node in expected.subtree_with_keys
    )
    return "yes" if same else "no"


def _reading(way: str, files: Sequence[Path], folder: Path) -> Read:
    if way in TO:
        return TO[way](_group(files), folder)
    group = FROM[way](files, folder)
    return lambda: xr.open_datatree(group, engine="gridref").load()  # type: ignore[arg-type]


def _has(expected: xr.DataTree, got: xr.DataTree) -> bool:
    """Whether all attributes are there, with the same values."""
    pairs = [(expected.attrs, got.attrs)]
    pairs += [(v.attrs, got.variables[name].attrs) for name, v in expected.variables.items()]
    return all(
        name in there and np.array_equal(value, there[name])
        for attrs, there in pairs
        for name, value in attrs.items()
    )


def _notices_change(read: Read, file: Path) -> str:
    later = os.stat(file).st_mtime + 10
    os.utime(file, (later, later))
    try:
        read()
    except (icechunk.IcechunkError, GridrefError):
        return "yes"
    return "no"


def table() -> str:
    """The table, in Markdown."""
    ways = [*TO, *FROM]
    lines = [f"| | {' | '.join(ways)} |", "|---" * (len(ways) + 1) + "|"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for probe in PROBES:
            cells = []
            for way in ways:
                with tempfile.TemporaryDirectory() as folder:
                    cells.append(outcome(probe, way, Path(folder)))
            lines.append(f"| {probe} | {' | '.join(cells)} |")
    names = ("kerchunk", "virtualizarr", "icechunk", "zarr", "xarray")
    lines.append("\nVersions: " + ", ".join(f"{name} {version(name)}" for name in names))
    return "\n".join(lines) + "\n"


def in_page() -> str:
    """The table that stands in the page."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0].strip("\n") + "\n"


def main() -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{table()}\n{END}{after}")


if __name__ == "__main__":
    main()
