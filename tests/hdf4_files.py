"""HDF4 files for tests, written by the HDF library through pyhdf.

pyhdf lacks the calls for chunks, external files and byte orders. They are called in its library.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyhdf import _hdfext
from pyhdf.HDF import HC, HDF
from pyhdf.SD import SD, SDC
from pyhdf.VS import VS  # noqa: F401 - gives files their tables

__all__ = [
    "TILE_METRES",
    "TYPES",
    "library_values",
    "modis_tile",
    "set_chunks",
    "set_external",
    "set_nbit",
    "write_bytes",
    "write_datasets",
    "write_old",
    "write_structures",
]

_LIBRARY = ctypes.CDLL(_hdfext.__file__)
TYPES = {
    "S1": SDC.CHAR,
    "i1": SDC.INT8,
    "u1": SDC.UINT8,
    "i2": SDC.INT16,
    "u2": SDC.UINT16,
    "i4": SDC.INT32,
    "u4": SDC.UINT32,
    "f4": SDC.FLOAT32,
    "f8": SDC.FLOAT64,
}
_CHUNKED, _COMPRESSED, _NBIT = 1, 3, 5
_DEFLATE = 4


class _ChunkDefinition(ctypes.Structure):
    _fields_ = (
        ("lengths", ctypes.c_int32 * 32),
        ("coder", ctypes.c_int32),
        ("model", ctypes.c_int32),
        ("parameters", ctypes.c_int32 * 16),
    )


def set_chunks(
    dataset: Any, chunk_shape: Sequence[int], deflate: int = 0, coder: Sequence[int] = ()
) -> None:
    """Store a new data set in chunks, compressed with a level of zlib if that is not 0.

    ``coder`` is another compression with its parameters, as pyhdf's ``setcompress`` takes them.
    """
    coder = (_DEFLATE, deflate) if deflate else coder
    definition = _ChunkDefinition()
    definition.lengths[: len(chunk_shape)] = chunk_shape
    if coder:
        definition.coder, *parameters = coder
        definition.parameters[: len(parameters)] = parameters
    flags = _COMPRESSED if coder else _CHUNKED
    assert _LIBRARY.SDsetchunk(dataset._id, definition, flags) == 0  # noqa: SLF001


def set_nbit(dataset: Any, bits: Sequence[int], chunk_shape: Sequence[int] = ()) -> None:
    """Store some bits of each element: the highest, their number, sign extension, filling ones."""
    number = dataset._id  # noqa: SLF001
    if not chunk_shape:
        assert _LIBRARY.SDsetnbitdataset(number, *bits) != -1
        return
    definition = _ChunkDefinition()
    definition.lengths[: len(chunk_shape)] = chunk_shape
    definition.coder, definition.model = bits[:2]  # the same memory has other names
    definition.parameters[:2] = bits[2:]
    assert _LIBRARY.SDsetchunk(number, definition, _NBIT) == 0


def set_external(dataset: Any, path: str, offset: int = 0) -> None:
    """Store a new data set in another file."""
    assert _LIBRARY.SDsetexternalfile(dataset._id, path.encode(), offset) == 0  # noqa: SLF001


def write_bytes(dataset: Any, values: NDArray[Any]) -> None:
    """Write a new data set of any byte order, of values of this machine."""
    counts = (ctypes.c_int32 * values.ndim)(*values.shape)
    starts = (ctypes.c_int32 * values.ndim)()
    address = values.ctypes.data_as(ctypes.c_void_p)
    number = dataset._id  # noqa: SLF001
    assert _LIBRARY.SDwritedata(number, starts, None, counts, address) == 0


def write_datasets(
    path: Path, datasets: Mapping[str, NDArray[Any]], dims: Sequence[str] = (), **attrs: Any
) -> Path:
    """Write contiguous data sets, whose dimensions have the first of some names."""
    file = SD(str(path), SDC.WRITE | SDC.CREATE | SDC.TRUNC)
    for name, value in attrs.items():
        setattr(file, name, value)
    for name, values in datasets.items():
        dataset = file.create(name, TYPES[values.dtype.str[1:]], values.shape)
        for axis, dim in enumerate(dims[: values.ndim]):
            dataset.dim(axis).setname(dim)
        dataset[:] = values
        dataset.endaccess()
    file.end()
    return path


def write_old(path: Path, datasets: Sequence[NDArray[Any]]) -> Path:
    """Write data sets as before HDF 3.3, with labels, texts, a range and a calibration."""
    for values in datasets:
        shape = (ctypes.c_int32 * values.ndim)(*values.shape)
        _LIBRARY.DFSDclear()
        _LIBRARY.DFSDsetdims(values.ndim, shape)
        _LIBRARY.DFSDsetNT(TYPES[values.dtype.str[1:]])
        _LIBRARY.DFSDsetdatastrs(b"a label", b"a unit", b"a format", b"a system")
        _LIBRARY.DFSDsetdimstrs(1, b"rows", b"km", b"F5.1")
        labels = np.arange(values.shape[-1], dtype=values.dtype)
        _LIBRARY.DFSDsetdimscale(values.ndim, len(labels), _address(labels))
        _LIBRARY.DFSDsetrange(_address(values.max(keepdims=True)), _address(values))
        factors = [ctypes.c_double(factor) for factor in (0.5, 0.1, 7.0, 0.2)]
        _LIBRARY.DFSDsetcal(*factors, ctypes.c_int32(22))
        assert _LIBRARY.DFSDadddata(str(path).encode(), values.ndim, shape, _address(values)) == 0
    return path


def _address(values: NDArray[Any]) -> ctypes.c_void_p:
    return values.ctypes.data_as(ctypes.c_void_p)


SINUSOIDAL = {
    "Projection": "GCTP_SNSOID",
    "ProjParams": "(6371007.181000,0,0,0,0,0,0,0,0,0,0,0,0)",
    "SphereCode": "-1",
}
"""The projection of MODIS."""
TILE_METRES = 1111950.519667


def modis_tile(horizontal: int, vertical: int) -> dict[str, str]:
    """The entries of a grid that is a tile of MODIS."""
    left, top = (horizontal - 18) * TILE_METRES, (9 - vertical) * TILE_METRES
    return {
        "UpperLeftPointMtrs": f"({left:.6f},{top:.6f})",
        "LowerRightMtrs": f"({left + TILE_METRES:.6f},{top - TILE_METRES:.6f})",
        **SINUSOIDAL,
        "GridOrigin": "HDFE_GD_UL",
    }


def write_structures(
    path: Path,
    structures: Mapping[str, Mapping[str, Any]],
    *,
    deflate: int = 0,
    chunks: Sequence[int] = (),
    attrs: Mapping[str, Any] = MappingProxyType({}),
) -> Path:
    """Write grids and swaths of HDF-EOS2.

    Each has ``fields``, by name dimensions and values; a grid has other entries in ODL besides. A
    structure whose fields have the dimension ``XDim`` is a grid. Fields of one dimension are tables
    of that name, as the HDF-EOS library writes them.
    """
    file = SD(str(path), SDC.WRITE | SDC.CREATE | SDC.TRUNC)
    listed: dict[str, list[str]] = {"Swath": [], "Grid": []}
    for name, structure in structures.items():
        fields = structure["fields"]
        kind = "Grid" if any("XDim" in dims for dims, _ in fields.values()) else "Swath"
        listed[kind].append(_in_odl(kind, name, structure, len(listed[kind]) + 1))
        for field, (dims, values) in fields.items():
            if values.ndim == 1:
                continue
            dataset = file.create(field, TYPES[values.dtype.str[1:]], values.shape)
            for axis, dim in enumerate(dims):
                dataset.dim(axis).setname(f"{dim}:{name}")
            for attribute, value in attrs.items():
                if attribute == "_FillValue":
                    dataset.setfillvalue(value)
                else:
                    setattr(dataset, attribute, value)
            if chunks and values.ndim == len(chunks):
                set_chunks(dataset, chunks, deflate)
            elif deflate:
                dataset.setcompress(SDC.COMP_DEFLATE, deflate)
            dataset[:] = values
            dataset.endaccess()
    file.HDFEOSVersion = "HDFEOS_V2.19"
    odl = "".join(
        f"GROUP={kind}Structure\n{''.join(parts)}END_GROUP={kind}Structure\n"
        for kind, parts in listed.items()
    )
    file.attr("StructMetadata.0").set(SDC.CHAR, (odl + "END\n").ljust(32000, "\0"))
    file.end()
    for structure in structures.values():
        for field, (_, values) in structure["fields"].items():
            if values.ndim == 1:
                _write_table(path, field, values)
    return path


def _write_table(path: Path, name: str, values: NDArray[Any]) -> None:
    """Add a Vdata of one field to a file."""
    file = HDF(str(path), HC.WRITE)
    interface = file.vstart()
    table = interface.create(name, ((name, TYPES[values.dtype.str[1:]], 1),))
    table.write([[value] for value in values.tolist()])
    table.detach()
    interface.end()
    file.close()


def _in_odl(kind: str, name: str, structure: Mapping[str, Any], number: int) -> str:
    """The entry of a grid or swath, with its fields, in the way of the HDF-EOS library."""
    sizes = {
        dim: length
        for dims, values in structure["fields"].values()
        for dim, length in zip(dims, values.shape, strict=True)
    }
    facts = {f"{kind}Name": f'"{name}"'}
    if kind == "Grid":
        facts |= {"XDim": str(sizes["XDim"]), "YDim": str(sizes["YDim"])}
    facts |= {key: value for key, value in structure.items() if key != "fields"}
    lines = [f"\tGROUP={kind.upper()}_{number}"]
    lines += [f"\t\t{key}={value}" for key, value in facts.items()]
    for which, is_geo in (("GeoField", True), ("DataField", False)):
        lines.append(f"\t\tGROUP={which}")
        for place, (field, (dims, _)) in enumerate(structure["fields"].items(), 1):
            if is_geo == (field in ("Latitude", "Longitude")):
                listed = ",".join(f'"{dim}"' for dim in dims)
                lines.append(f"\t\t\tOBJECT={which}_{place}")
                lines.append(f'\t\t\t\t{which}Name="{field}"')
                lines.append(f"\t\t\t\tDimList=({listed})")
                lines.append(f"\t\t\tEND_OBJECT={which}_{place}")
        lines.append(f"\t\tEND_GROUP={which}")
    return "\n".join([*lines, f"\tEND_GROUP={kind.upper()}_{number}", ""])


def library_values(path: Path) -> dict[str, NDArray[Any]]:
    """The values of all data sets that have any, by pyhdf."""
    file = SD(str(path))
    values = {}
    for number in range(file.info()[0]):
        dataset = file.select(number)
        name, _, shape, *_ = dataset.info()
        if np.prod(shape):
            values[name] = np.asarray(dataset.get())
        dataset.endaccess()
    file.end()
    return values
