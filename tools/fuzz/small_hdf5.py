"""Many small HDF5 files, one structure each: what the scanner is tried with, changed.

A change hits something that matters more often the smaller a file is, and a scan takes less time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import h5py
import hdf5plugin
import netCDF4
import numpy as np

__all__ = ["EXTERNAL", "hdf5_files"]

type Write = Callable[[h5py.File], object]

EXTERNAL = "external.bin"
"""A file beside them that holds the pixels of one."""

_VERSIONS = ("earliest", "v108", "v110", "latest")
_NUMBERS = np.arange(16, dtype="i4").reshape(4, 4)
_ROWS = ((4,), {"maxshape": (None,)})
_PLANES = ((4, 4), {"maxshape": (None, None)})


def hdf5_files() -> dict[str, bytes]:
    """Files by what they hold."""
    files = {
        f"{name} {version}": _written(write, version, **created)
        for name, (write, created) in _writers().items()
        for version in _VERSIONS
    }
    return files | {f"netCDF {version}": _netcdf(version) for version in ("earliest", "latest")}


def _written(write: Write, version: str, **created: Any) -> bytes:
    with h5py.File(
        f"small-{version}.h5", "w", driver="core", backing_store=False, meta_block_size=1,
        libver=version, **created,
    ) as file:  # fmt: skip
        write(file)
        file.flush()
        return file.id.get_file_image()


def _netcdf(version: str) -> bytes:
    """A file of netCDF-C: dimensions, coordinates, fill values, a user's type and strings."""
    file = netCDF4.Dataset("small.nc", "w", memory=4096)
    file.createDimension("time", None if version == "latest" else 3)
    file.createDimension("x", 2)
    file.createVariable("time", "f8", ("time",))[:] = [1, 2, 3]
    pair = file.createCompoundType(np.dtype([("a", "i4"), ("b", "f4")]), "pair")
    file.createVariable("c", pair, ("x",))[:] = np.zeros(2, pair.dtype)
    file.createVariable("v", "i2", ("time", "x"), zlib=True, fill_value=7)[:] = np.ones((3, 2))
    file.createVariable("s", str, ("x",))[0] = "text"
    file.createGroup("g").units = "m"
    data = bytes(file.close())
    return data[: int.from_bytes(data[28:36], "little")] if data[8] else data[:12_000]


def _writers() -> dict[str, tuple[Write, dict[str, Any]]]:
    """What writes each file, and how the file is created for it."""
    plain = dict(itertools.chain(_layouts(), _filters(), _types(), _attributes(), _groups()))
    created: dict[str, tuple[Write, dict[str, Any]]] = {
        "pages": (_many, {"fs_strategy": "page", "fs_page_size": 512, "fs_persist": True}),
        "user block": (_one, {"userblock_size": 512}),
        "creation order": (_nested, {"track_order": True}),
        "aggregated": (_many, {"fs_strategy": "none"}),
    }
    return {name: (write, {}) for name, write in plain.items()} | created


def _one(file: h5py.File) -> None:
    file["a"] = _NUMBERS


def _many(file: h5py.File) -> None:
    file.attrs["title"] = "many"
    file.create_dataset("a", data=_NUMBERS, chunks=(2, 2), compression="gzip")
    file["g/b"] = _NUMBERS[0]
    file["g"].attrs["units"] = "m"


def _dataset(
    shape: tuple[int, ...], dtype: Any = "i4", **options: Any
) -> Callable[[h5py.File], object]:
    def write(file: h5py.File) -> None:
        data = file.create_dataset("a", shape, dtype, **options)
        data[...] = np.arange(data.size).reshape(shape)

    return write


def _layouts() -> Iterator[tuple[str, Write]]:
    """Every way to store a dataset, and every index of chunks with and without a filter."""
    yield "contiguous", _one
    yield "scalar", lambda file: file.create_dataset("a", data=3.0)
    yield "null", lambda file: file.create_dataset("a", data=h5py.Empty("f4"))
    yield "never written", lambda file: file.create_dataset("a", (2, 3), "f4", fillvalue=2.5)
    yield "compact", _compact
    yield "external", lambda file: file.create_dataset("a", (4,), "i4", external=EXTERNAL)
    yield "virtual", _virtual
    yield "virtual without end", _unlimited_virtual
    for note, filtered in (("", {}), (", filtered", {"compression": "gzip", "fletcher32": True})):
        few = {"chunks": (2, 2), **filtered}
        yield f"one chunk{note}", _dataset((4, 4), chunks=(4, 4), **filtered)
        yield f"fixed{note}", _dataset((4, 4), **few)
        yield f"uneven{note}", _dataset((3, 5), **few)
        yield f"extensible{note}", _dataset(_ROWS[0], chunks=(1,), **_ROWS[1], **filtered)
        yield f"many rows{note}", _dataset((40,), chunks=(1,), **_ROWS[1], **filtered)
        yield f"two axes grow{note}", _dataset(_PLANES[0], **_PLANES[1], **few)
        yield f"grows to a limit{note}", _dataset((4, 4), maxshape=(8, 8), **few)
        yield f"missing chunks{note}", _missing_chunks(few)
    yield "pages of a fixed array", _dataset((1200,), "i1", chunks=(1,))
    yield "implicit", _implicit
    yield "filter left out of a chunk", _masked
    yield "large chunk", lambda file: file.create_dataset("a", (1 << 20,), "u1", chunks=(1 << 20,))


def _compact(file: h5py.File) -> None:
    created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    created.set_layout(h5py.h5d.COMPACT)
    space = h5py.h5s.create_simple((4, 4))
    data = h5py.h5d.create(file.id, b"a", h5py.h5t.STD_I32LE, space, created)
    data.write(h5py.h5s.ALL, h5py.h5s.ALL, _NUMBERS)


def _implicit(file: h5py.File) -> None:
    created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    created.set_chunk((2, 2))
    created.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    h5py.h5d.create(file.id, b"a", h5py.h5t.STD_I32LE, h5py.h5s.create_simple((4, 4)), created)


def _masked(file: h5py.File) -> None:
    data = file.create_dataset("a", (4,), "i4", chunks=(2,), compression="gzip", shuffle=True)
    data.id.write_direct_chunk((0,), bytes(8), filter_mask=3)
    data[2:] = 5


def _missing_chunks(options: dict[str, Any]) -> Write:
    def write(file: h5py.File) -> None:
        file.create_dataset("a", (8, 8), "i4", fillvalue=9, **options)[4:6, 2:4] = 1

    return write


def _virtual(file: h5py.File) -> None:
    file["s"] = _NUMBERS
    layout = h5py.VirtualLayout((4, 8), "i4")
    layout[:, :4] = h5py.VirtualSource(".", "s", (4, 4))
    layout[:, 4:] = h5py.VirtualSource("elsewhere.h5", "s", (4, 4))
    file.create_virtual_dataset("a", layout, fillvalue=-1)


def _unlimited_virtual(file: h5py.File) -> None:
    file.create_dataset("s", (2,), "i4", maxshape=(None,), chunks=(2,))
    layout = h5py.VirtualLayout((2, 2), "i4", maxshape=(None, 2))
    source = h5py.VirtualSource(".", "s", (2,), maxshape=(None,))
    layout[: h5py.h5s.UNLIMITED, 0] = source[: h5py.h5s.UNLIMITED]
    file.create_virtual_dataset("a", layout)


def _filters() -> Iterator[tuple[str, Write]]:
    """Every filter, alone or with one that goes with it."""
    options: dict[str, dict[str, Any]] = {
        "gzip": {"compression": "gzip", "shuffle": True},
        "lzf": {"compression": "lzf"},
        "fletcher32": {"fletcher32": True},
        "scale-offset": {"scaleoffset": 0},
        "blosc": dict(hdf5plugin.Blosc(cname="lz4")),
        "blosc2": dict(hdf5plugin.Blosc2()),
        "bitshuffle": dict(hdf5plugin.Bitshuffle()),
        "zstd": dict(hdf5plugin.Zstd()),
        "lz4": dict(hdf5plugin.LZ4()),
        "bzip2": dict(hdf5plugin.BZip2()),
    }
    for name, each in options.items():
        yield name, _dataset((4, 4), chunks=(2, 4), **each)
    yield "scale-offset of floats", _dataset((4, 4), "f4", chunks=(2, 4), scaleoffset=2)
    yield "zfp", _dataset((4, 4), "f4", chunks=(4, 4), **hdf5plugin.Zfp(precision=8))
    yield "nbit", _nbit


def _nbit(file: h5py.File) -> None:
    created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    created.set_chunk((2, 2))
    created.set_filter(5, h5py.h5z.FLAG_OPTIONAL)
    kind = h5py.h5t.STD_I32LE.copy()
    kind.set_precision(16)
    data = h5py.h5d.create(file.id, b"a", kind, h5py.h5s.create_simple((4, 4)), created)
    data.write(h5py.h5s.ALL, h5py.h5s.ALL, _NUMBERS)


def _types() -> Iterator[tuple[str, Write]]:
    """Every class of datatypes."""
    plain = {
        "big-endian": ">i8", "half": "f2", "complex": "c8", "truth": "?", "bytes": "S3",
        "opaque": "V5", "array": ("i2", (2, 3)), "pairs": [("a", "i4"), ("b", "S3")],
        "compound in compound": [("a", [("b", "i2"), ("c", "f8", (2,))]), ("d", "S1")],
    }  # fmt: skip
    for name, dtype in plain.items():
        yield name, lambda file, dtype=dtype: file.create_dataset("a", data=np.zeros(3, dtype))
    special = {
        "text": (h5py.string_dtype(), ["a", "bcd", "ä"]),
        "fixed text": (h5py.string_dtype("utf-8", 4), ["a", "bcd"]),
        "lists": (h5py.vlen_dtype("i2"), [[1, 2], [3]]),
        "enumeration": (h5py.enum_dtype({"no": 0, "yes": 1}, "i1"), [0, 1]),
    }
    for name, (dtype, values) in special.items():
        yield name, lambda file, d=dtype, v=values: _filled(file, d, v)
    yield "references", _references
    yield "named type", _named_type


def _filled(file: h5py.File, dtype: Any, values: list[Any]) -> None:
    data = file.create_dataset("a", (len(values),), dtype)
    for number, value in enumerate(values):
        data[number] = value


def _references(file: h5py.File) -> None:
    file["s"] = _NUMBERS
    file.create_dataset("o", (2,), h5py.ref_dtype)[0] = file["s"].ref
    file.create_dataset("r", (1,), h5py.regionref_dtype)[0] = file["s"].regionref[1:3, 2]


def _named_type(file: h5py.File) -> None:
    file["t"] = np.dtype([("a", "i4")])
    file.create_dataset("a", (2,), file["t"])
    file["a"].attrs.create("b", np.zeros(1, [("a", "i4")]), dtype=file["t"])


def _attributes() -> Iterator[tuple[str, Write]]:
    """Every place and many types of attributes."""

    def with_attributes(values: dict[str, Any]) -> Write:
        return lambda file: file.create_dataset("a", (2,), "i1").attrs.update(values)

    yield "attributes", with_attributes({"i": 1, "f": [0.5, 2], "s": "text", "b": b"bytes"})
    yield "texts", with_attributes({"t": ["a", "bc"], "n": h5py.Empty("S1"), "e": ""})
    yield "compound attribute", with_attributes({"c": np.zeros(2, [("a", "i2"), ("b", "S2")])})
    yield "dense attributes", with_attributes({f"n{number}": number for number in range(12)})
    yield "large attribute", with_attributes({"l": np.arange(300)})
    yield "attributes of the root", lambda file: file.attrs.update(a=1, b=h5py.Empty("f4"))
    yield "attributes that refer", _referring
    yield "dimensions", _dimensions
    yield "in order", _in_order


def _referring(file: h5py.File) -> None:
    file["a"] = _NUMBERS
    file["a"].attrs["o"] = file["a"].ref
    file["a"].attrs["r"] = file["a"].regionref[:2]
    lists = np.array([np.arange(2), np.arange(3)], dtype=object)
    file["a"].attrs.create("v", lists, dtype=h5py.vlen_dtype("i4"))


def _dimensions(file: h5py.File) -> None:
    file["x"] = np.arange(4)
    file["x"].make_scale("x")
    file["a"] = _NUMBERS
    file["a"].dims[1].attach_scale(file["x"])
    file["a"].dims[0].label = "y"


def _in_order(file: h5py.File) -> None:
    data = file.create_dataset("a", (2,), "i1", track_order=True)
    data.attrs.update({f"n{number}": number for number in range(10)})


def _groups() -> Iterator[tuple[str, Write]]:
    """Every way to hold links, and every kind of link."""
    yield "empty", lambda _: None
    yield "nested", _nested
    yield "links", _links
    yield "circle", _circle
    yield "dense links", lambda file: [file.create_group(f"group{n}") for n in range(10)]
    yield "commented", _commented


def _nested(file: h5py.File) -> None:
    file["a/b/c"] = _NUMBERS[0]
    file["a/d"] = 1


def _links(file: h5py.File) -> None:
    file["a"] = _NUMBERS[0]
    file["soft"] = h5py.SoftLink("/a")
    file["dangling"] = h5py.SoftLink("/no/where")
    file["external"] = h5py.ExternalLink("elsewhere.h5", "/a")
    file["hard"] = file["a"]


def _circle(file: h5py.File) -> None:
    file["g/h"] = file["/"]
    file["g/s"] = h5py.SoftLink("/g/s")


def _commented(file: h5py.File) -> None:
    file.create_dataset("a", data=_NUMBERS[0], track_times=True)
    h5py.h5o.set_comment(file["a"].id, b"a comment")
