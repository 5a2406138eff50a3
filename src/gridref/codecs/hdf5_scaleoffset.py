"""HDF5's Scale-Offset filter: elements are stored as small distances from the smallest one.

Sources: "Scale-Offset Filter" in the HDF5 documentation (``H5Pset_scaleoffset``, with the meaning
of the client data values), and the filter's output as the library writes it: the number of bits of
a distance (uint32), how many bytes of the minimum count (1 byte), the minimum (8 bytes), 8 bytes of
nothing, then the distances bit by bit, the most significant bit first. The header is little-endian.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.codecs.bits import unpack_integers
from gridref.codecs.stage import ArraySpec, BytesCodec, BytesDecode, Config, Raw, as_bytes, as_u1

__all__ = ["BYTES_CODECS"]

_HEADER_BYTES = 21
_FILL_DEFINED = 1
"""Any other number says as 0 that there is no fill value."""
_D_SCALE, _INTEGER = 0, 2
"""Scale types: floats times a power of 10, integers."""


@dataclass(frozen=True)
class _Scaling:
    """Client data values of the filter.

    Attributes
    ----------
    dtype
        Of the elements, native byte order.
    big_endian
        Byte order of the decoded elements.
    count
        Number of elements.
    decimals
        Power of ten that floats were multiplied with.
    width
        Bits of a distance, as the writer wanted; 0 for floats, or where the filter chooses.
    fill
        Element that stands for "no data", stored as the largest distance; None if there is none.
    """

    dtype: np.dtype[Any]
    big_endian: bool
    count: int
    decimals: int
    width: int
    fill: Any


def _scaling(values: list[int]) -> _Scaling:
    scale_type, factor, count, kind, size, signed, order, has_fill, *fill_words = values
    wanted = _INTEGER if kind == 0 else _D_SCALE
    if kind not in (0, 1) or scale_type != wanted or size not in (1, 2, 4, 8):
        raise ValueError(f"scale type {scale_type} for class {kind} of {size} bytes is not known")
    if kind == 1 and size < 4:
        raise ValueError(f"floats of {size} bytes are not known")
    if kind == 0 and signed not in (0, 1):
        raise ValueError(f"integers of sign {signed} are not known")
    dtype = np.dtype(f"{'f' if kind == 1 else 'i' if signed else 'u'}{size}")
    fill = None
    if has_fill == _FILL_DEFINED:
        fill = np.array(fill_words[:2], "<u4").tobytes()[:size]
        fill = np.frombuffer(fill, dtype.newbyteorder("<"))[0].astype(dtype)
    factor -= (1 << 32) if factor >= 1 << 31 else 0
    decimals, width = (factor, 0) if kind == 1 else (0, factor)
    return _Scaling(dtype, order == 1, count, decimals, width, fill)


def _in_file_order(values: NDArray[Any], big_endian: bool) -> NDArray[np.uint8]:
    ordered = values.astype(values.dtype.newbyteorder(">" if big_endian else "<"), copy=False)
    unpacked: NDArray[np.uint8] = ordered.view(np.uint8)
    return unpacked


def _integers(
    distances: NDArray[Any], minimum: bytes, is_fill: NDArray[np.bool_] | None, scaling: _Scaling
) -> NDArray[Any]:
    """Minimum plus distance, wrapping as unsigned integers do."""
    size = scaling.dtype.itemsize
    start = np.frombuffer(minimum[:size], f"<u{size}")[0].astype(distances.dtype)
    with np.errstate(over="ignore"):
        values: NDArray[Any] = (distances + start).view(scaling.dtype)
    if is_fill is not None:
        values[is_fill] = scaling.fill
    return values


def _floats(
    distances: NDArray[Any], minimum: bytes, is_fill: NDArray[np.bool_] | None, scaling: _Scaling
) -> NDArray[Any]:
    """Distance divided by the power of ten, plus minimum, in the precision of the elements."""
    dtype = scaling.dtype
    start = np.frombuffer(minimum[: dtype.itemsize], dtype.newbyteorder("<"))[0].astype(dtype)
    with np.errstate(all="ignore"):
        values = distances.view(f"i{dtype.itemsize}").astype(dtype)
        values /= np.power(dtype.type(10), dtype.type(scaling.decimals))
        values += start
    if is_fill is not None:
        values[is_fill] = scaling.fill
    return values


def _decode(raw: Raw, scaling: _Scaling) -> Raw:
    if len(raw) < _HEADER_BYTES:
        raise ValueError(f"{len(raw)} bytes are too few for a header")
    header = as_bytes(raw[:_HEADER_BYTES])
    width = int.from_bytes(header[:4], "little")
    minimum = header[5 : 5 + min(8, header[4])].ljust(8, b"\0")
    size, count = scaling.dtype.itemsize, scaling.count
    if width > 8 * size:
        raise ValueError(f"header says that {width} bits are stored of {8 * size}")
    if width == 8 * size:
        # Everything was needed: the elements themselves are stored, in the writer's byte order.
        whole = as_u1(raw)[_HEADER_BYTES : _HEADER_BYTES + count * size]
        return _in_file_order(whole.view(f"<u{size}"), scaling.big_endian)
    if width == 0:
        distances: NDArray[Any] = np.zeros(count, f"u{size}")
    else:
        distances = unpack_integers(raw[_HEADER_BYTES:], width, count, size)
    is_fill = None
    if scaling.fill is not None:
        is_fill = distances == (1 << width) - 1
    restore = _floats if scaling.dtype.kind == "f" else _integers
    return _in_file_order(restore(distances, minimum, is_fill, scaling), scaling.big_endian)


def _stored_whole(scaling: _Scaling, raw: Raw) -> Raw:
    """A dataset whose distances were to have all bits: nothing is done to its elements."""
    if scaling.width > scaling.dtype.itemsize * 8:
        raise ValueError(f"{scaling.width} bits were to be stored of {scaling.dtype}")
    return raw


def _scaleoffset_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    scaling = _scaling(config["cd_values"])
    if scaling.width >= scaling.dtype.itemsize * 8:
        return partial(_stored_whole, scaling)
    if decoded_bytes not in (None, scaling.count * scaling.dtype.itemsize):
        raise ValueError(f"{scaling.count} elements of {scaling.dtype} are not {decoded_bytes}")
    return lambda raw: _decode(raw, scaling)


def _scaleoffset_problem(config: Config) -> str | None:
    values = config["cd_values"]
    if len(values) < 8:
        return f"{len(values)} client data values are too few"
    try:
        _scaling(values)
    except ValueError as error:
        return str(error)
    return None


BYTES_CODECS = {
    "gridref.hdf5_scaleoffset": BytesCodec(
        _scaleoffset_decoder, required=("cd_values",), problem=_scaleoffset_problem
    )
}
