"""Codecs that compute: ``scale_offset``, ``cast_value`` and ``packbits``; and CF unpacking.

Sources: https://github.com/zarr-developers/zarr-extensions (``codecs/scale_offset``,
``codecs/cast_value``, ``codecs/packbits``), and for scalars in JSON the Zarr v3 core specification,
"Fill value"; for unpacking CF conventions, sections 2.5.1 and 8.1, and NetCDF Best Practices for
``_Unsigned``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.codecs.stage import (
    AnyCodec,
    ArrayCodec,
    ArrayDecode,
    ArraySpec,
    Config,
    Raw,
    SerialCodec,
    SerialDecode,
    as_u1,
)
from gridref.model.encoding import Unpacking


def _scalar(value: Any, dtype: np.dtype[Any]) -> Any:
    """A JSON scalar as a numpy scalar of `dtype`."""
    if isinstance(value, str) and value.startswith("0x"):
        word = np.array([int(value, 16)], f"u{dtype.itemsize}")
        return word.view(dtype)[0]
    if dtype.kind in "iu":
        if int(value) != float(value):
            raise ValueError(f"{value} is not an integer")
        return dtype.type(int(value))
    return dtype.type(value)


def _checked_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind not in "iuf":
        raise ValueError(f"does not apply to dtype {dtype}")
    return dtype


def _unscale_integers(
    stored: NDArray[Any], offset: int, scale: int, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """``stored / scale + offset``, or an error where that is no value of `dtype`."""
    if stored.size == 0:
        return stored
    limits = np.iinfo(dtype)
    if scale == -1 and int(stored.min()) == limits.min < 0:
        raise ValueError(f"{limits.min} divided by -1 lies outside of {dtype}")
    quotient, remainder = np.divmod(stored, dtype.type(scale))
    if remainder.any():
        raise ValueError(f"a stored value is not a multiple of the scale {scale}")
    low, high = int(quotient.min()) + offset, int(quotient.max()) + offset
    if low < limits.min or high > limits.max:
        raise ValueError(f"values {low} to {high} lie outside of {dtype}")
    shifted: NDArray[Any] = quotient + dtype.type(offset)
    return shifted


def _scale_offset_decoder(config: Config, spec: ArraySpec) -> ArrayDecode:
    dtype = _checked_dtype(spec.dtype)
    scale = _scalar(config.get("scale", 1), dtype)
    offset = _scalar(config.get("offset", 0), dtype)
    if scale == 0:
        raise ValueError("scale must not be 0")
    if dtype.kind in "iu":
        return lambda stored: _unscale_integers(stored, int(offset), int(scale), dtype)

    def decode(stored: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(all="ignore"):
            values: NDArray[Any] = stored / scale
            values += offset
        return values

    return decode


_CASTABLE = frozenset(
    [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    + ["float16", "float32", "float64"]
)

_ROUNDINGS: dict[str, ArrayDecode] = {
    "nearest-even": np.rint,
    "towards-zero": np.trunc,
    "towards-positive": np.ceil,
    "towards-negative": np.floor,
    "nearest-away": lambda values: np.copysign(_half_away(np.abs(values)), values),
}


def _half_away(magnitudes: NDArray[Any]) -> NDArray[Any]:
    whole = np.floor(magnitudes)
    rounded: NDArray[Any] = whole + (magnitudes - whole >= 0.5)
    return rounded


def _cast_stored(config: Config, spec: ArraySpec) -> ArraySpec:
    return ArraySpec(spec.shape, np.dtype(config["data_type"]))


def _cast_problem(config: Config) -> str | None:
    if config["data_type"] not in _CASTABLE:
        return f"data type {config['data_type']} is not supported"
    if config.get("rounding", "nearest-even") not in _ROUNDINGS:
        return f"rounding {config['rounding']} is unknown"
    if config.get("out_of_range", "error") not in {None, "error", "clamp", "wrap"}:
        return f"out_of_range {config['out_of_range']} is unknown"
    return None


def _cast_decoder(config: Config, spec: ArraySpec) -> ArrayDecode:
    target = _checked_dtype(spec.dtype)
    source = np.dtype(config["data_type"])
    rounding = config.get("rounding", "nearest-even")
    out_of_range = config.get("out_of_range") or "error"
    if target.kind == "f" and not np.can_cast(source, target) and rounding != "nearest-even":
        raise ValueError(f"rounding {rounding} from {source} to {target} is not supported")
    replaced = [
        (_scalar(key, source), _scalar(value, target))
        for key, value in dict(config.get("scalar_map") or {}).get("decode", [])
    ]

    def decode(stored: NDArray[Any]) -> NDArray[Any]:
        masks = [(np.isnan(stored) if key != key else stored == key) for key, _ in replaced]
        if masks:
            stored = np.where(np.logical_or.reduce(masks), source.type(0), stored)
        with np.errstate(all="ignore"):
            values = _cast(stored, target, _ROUNDINGS[rounding], out_of_range)
        # The first entry that matches counts.
        for mask, (_, value) in reversed(list(zip(masks, replaced, strict=True))):
            values[mask] = value
        return values

    return decode


def _cast(
    stored: NDArray[Any],
    target: np.dtype[Any],
    rounded: ArrayDecode,
    out_of_range: str,
) -> NDArray[Any]:
    """Convert values, not bits."""
    if np.can_cast(stored.dtype, target):
        return stored.astype(target)
    if target.kind == "f":
        return _cast_to_float(stored, target, out_of_range)
    if stored.dtype.kind == "f":
        if np.isnan(stored).any():
            raise ValueError(f"NaN is no value of {target}")
        # As float64, which has all values of the others, and none of the limits is infinite.
        stored = rounded(stored.astype(np.float64, copy=False))
    limits = np.iinfo(target)
    # As float64 the largest of 64 bits rounds up to one too many, so the ends are compared apart.
    below = stored < limits.min
    above = stored >= 2.0 ** (target.itemsize * 8 - (target.kind == "i"))
    if stored.dtype.kind != "f":
        above = stored > limits.max
    if not (below.any() or above.any()):
        return stored.astype(target)
    if out_of_range == "clamp":
        values = np.where(below | above, stored.dtype.type(0), stored).astype(target)
        values[below], values[above] = limits.min, limits.max
        return values
    if out_of_range == "wrap" and stored.dtype.kind != "f":
        return stored.astype(target)
    raise ValueError(f"a stored value lies outside of {target}")


def _cast_to_float(stored: NDArray[Any], target: np.dtype[Any], out_of_range: str) -> NDArray[Any]:
    values = stored.astype(target)
    overflown = np.isinf(values) & np.isfinite(stored)
    if overflown.any():
        if out_of_range != "clamp":
            raise ValueError(f"a stored value lies outside of {target}")
        values[overflown] = np.copysign(np.finfo(target).max, values[overflown])
    return values


def _bit_range(config: Config, dtype: np.dtype[Any]) -> tuple[int, int, int]:
    """First bit, number of bits kept, and number of components of an element."""
    if dtype.kind not in "biufc":
        raise ValueError(f"does not apply to dtype {dtype}")
    components = 2 if dtype.kind == "c" else 1
    n_bits = 1 if dtype.kind == "b" else dtype.itemsize * 8 // components
    first = config.get("first_bit") or 0
    last = config.get("last_bit")
    last = n_bits - 1 if last is None else last
    if not 0 <= first <= last < n_bits:
        raise ValueError(f"bits {first} to {last} do not lie in an element of {n_bits} bits")
    return first, last - first + 1, components


def _packbits_stored_bytes(config: Config, spec: ArraySpec) -> int:
    _, kept, components = _bit_range(config, spec.dtype)
    has_padding_byte = config.get("padding_encoding", "none") != "none"
    return -(-spec.size * kept * components // 8) + int(has_padding_byte)


def _packbits_problem(config: Config) -> str | None:
    padding = config.get("padding_encoding", "none")
    known = padding in {"none", "first_byte", "last_byte"}
    return None if known else f"padding_encoding {padding} is unknown"


def _packbits_decoder(config: Config, spec: ArraySpec) -> SerialDecode:
    first, kept, components = _bit_range(config, spec.dtype)
    n_values = spec.size * components
    padding_encoding = config.get("padding_encoding", "none")

    def decode(raw: Raw) -> NDArray[Any]:
        packed = as_u1(raw)
        if padding_encoding != "none":
            at_start = padding_encoding == "first_byte"
            padding = int(packed[0] if at_start else packed[-1])
            packed = packed[1:] if at_start else packed[:-1]
            if padding != -n_values * kept % 8:
                raise ValueError(f"{padding} bits are said to be unused")
        bits = np.unpackbits(packed, count=n_values * kept, bitorder="little")
        if spec.dtype.kind == "b":
            return bits.view(np.bool_).reshape(spec.shape)
        return _from_bits(bits.reshape(n_values, kept), first, spec)

    return decode


def _from_bits(bits: NDArray[np.uint8], first: int, spec: ArraySpec) -> NDArray[Any]:
    """Elements out of their kept bits, the least significant one first."""
    dtype = spec.dtype
    n_values, kept = bits.shape
    n_bits = dtype.itemsize * 8 // (2 if dtype.kind == "c" else 1)
    whole = np.zeros((n_values, n_bits), np.uint8)
    whole[:, first : first + kept] = bits
    if dtype.kind == "i":
        whole[:, first + kept :] = bits[:, -1:]
    little = np.packbits(whole, bitorder="little").view(dtype.newbyteorder("<"))
    return little.astype(dtype, copy=False).reshape(spec.shape)


CODECS: dict[str, AnyCodec] = {
    "scale_offset": ArrayCodec(_scale_offset_decoder),
    "cast_value": ArrayCodec(
        _cast_decoder, _cast_stored, required=("data_type",), problem=_cast_problem
    ),
    "packbits": SerialCodec(_packbits_decoder, _packbits_stored_bytes, problem=_packbits_problem),
}


# CF unpacking, and other numbers, of decoded values


def unpack(values: NDArray[Any], unpacking: Unpacking) -> NDArray[Any]:
    """Turn packed values into physical ones, in the order and precision of xarray.

    The values are converted to the result's dtype, then compared with the fill values, then scaled,
    then shifted, each step rounding to that dtype (CF conventions, sections 2.5.1 and 8.1; NetCDF
    Best Practices for ``_Unsigned``).

    Parameters
    ----------
    values
        Stored values of any integer or floating dtype.

    Returns
    -------
    numpy.ndarray
        A new array of dtype ``unpacking.dtype`` and the shape of `values`.
    """
    fills = unpacking.fill_values
    kind, size = values.dtype.kind, values.dtype.itemsize
    if (kind, unpacking.unsigned) in {("i", True), ("u", False)}:
        other = np.dtype(f"{'u' if kind == 'i' else 'i'}{size}")
        stored, values = values.dtype, values.astype(other)
        fills = tuple(_wrapped(fill, stored, other) for fill in fills)
    with np.errstate(all="ignore"):
        unpacked = values.astype(unpacking.dtype)
        masked = [unpacked == np.float64(fill) for fill in fills if fill == fill]
        if masked:
            unpacked[np.logical_or.reduce(masked)] = np.nan
        if unpacking.scale is not None:
            unpacked *= _factor(unpacking.scale, unpacked.dtype)
        if unpacking.offset is not None:
            unpacked += _factor(unpacking.offset, unpacked.dtype)
    return unpacked


def renumber(values: NDArray[Any], pairs: Sequence[Sequence[int]]) -> NDArray[Any]:
    """A copy of integers in which each number of a pair has become the other one."""
    shown = values.copy()
    for number, other in pairs:
        shown[values == number] = other
    return shown


def _wrapped(fill: float, stored: np.dtype[Any], dtype: np.dtype[Any]) -> float:
    """A stored integer read with the other signedness; what cannot be stored stays as it is."""
    storable = np.iinfo(stored)
    if not storable.min <= fill <= storable.max or fill != int(fill):
        return fill
    limits = np.iinfo(dtype)
    return (int(fill) - int(limits.min)) % (1 << dtype.itemsize * 8) + int(limits.min)


def _factor(number: float, dtype: np.dtype[Any]) -> Any:
    """A factor for numpy: in the array's precision, if that loses nothing."""
    narrow = dtype.type(number)
    return narrow if float(narrow) == float(number) else np.float64(number)
