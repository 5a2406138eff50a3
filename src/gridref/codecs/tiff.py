"""TIFF's own compressions, packings and predictors.

Sources: TIFF 6.0, sections 9 (PackBits), 13 (LZW), 14 (predictor 2), ``FillOrder`` and
``BitsPerSample``; Adobe Photoshop TIFF Technical Note 3 (predictor 3 and floats of 24 bits). In
doubtful cases, the decoded bytes are those of tifffile's `TiffPage.decode`.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from gridref.codecs.stage import (
    AnyCodec,
    ArrayCodec,
    ArrayDecode,
    ArraySpec,
    BytesCodec,
    BytesDecode,
    Config,
    Raw,
    as_bytes,
    most_bytes,
    same_bytes,
)


def little_endian_bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of an array's elements in C order, each in little-endian order."""
    ordered = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    flat: NDArray[np.uint8] = ordered.reshape(-1).view(np.uint8)
    return flat


def _lzw_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    size = most_bytes(decoded_bytes)
    short = config.get("short_bytes")
    # The decoder stops where the output is full.
    return lambda raw: _padded(imagecodecs.lzw_decode(raw, out=size), short, decoded_bytes)


def _packbits_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    short = config.get("short_bytes")
    # A byte makes 64 at most: the output needs no limit.
    return lambda raw: _padded(
        imagecodecs.packbits_decode(raw)[:decoded_bytes], short, decoded_bytes
    )


def _padded(decoded: Raw, short: int | None, decoded_bytes: int | None) -> Raw:
    """Pad a tile that lacks the rows beyond the end of the image."""
    if short is not None and decoded_bytes is not None and len(decoded) == short:
        return as_bytes(decoded).ljust(decoded_bytes, b"\0")
    return decoded


def _byte_order(config: Config) -> Literal["<", ">"]:
    return ">" if config.get("endian", "little") == "big" else "<"


def _endian_problem(config: Config) -> str | None:
    endian = config.get("endian", "little")
    return None if endian in ("little", "big") else f"endian {endian!r} is neither big nor little"


def _packints_stored_bytes(config: Config, decoded: int | None, spec: ArraySpec) -> int | None:
    if decoded is None:
        return None
    run_length = int(config["run_length"])
    n_values = decoded // np.dtype(config["dtype"]).itemsize
    rows, rest = divmod(n_values, run_length)
    if rest:
        raise ValueError(f"{n_values} values are no rows of {run_length}")
    return rows * -(-int(config["bits"]) * run_length // 8)


def _packints_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    """Rows begin on a byte boundary, and the highest bit of a value comes first in any file."""
    dtype = np.dtype(config["dtype"])
    bits, run_length = config["bits"], config["run_length"]

    def decode(raw: Raw) -> Raw:
        values = imagecodecs.packints_decode(as_bytes(raw), dtype, bits, runlen=run_length)
        return little_endian_bytes(values)

    return decode


def _packints_problem(config: Config) -> str | None:
    bits, dtype = config["bits"], np.dtype(config["dtype"])
    if dtype.kind not in "bu" or not 1 <= bits <= 8 * dtype.itemsize:
        return f"{bits} bits do not become {dtype}"
    if bits > 31:
        return f"integers of {bits} bits are not supported"
    if config["run_length"] < 1:
        return f"run_length must be >= 1, got {config['run_length']}"
    return _endian_problem(config)


def _float24_stored_bytes(config: Config, decoded: int | None, spec: ArraySpec) -> int | None:
    return None if decoded is None else decoded // 4 * 3


def _float24_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    order = _byte_order(config)
    return lambda raw: little_endian_bytes(
        imagecodecs.float24_decode(as_bytes(raw), byteorder=order)
    )


def _pixel_dtype(config: Config) -> np.dtype[Any]:
    """The unsigned integer that holds all samples of a pixel."""
    n_bits = sum(config["bits"])
    size = next(size for size in (1, 2, 4) if 8 * size >= n_bits)
    return np.dtype(f"{_byte_order(config)}u{size}")


def _rgb_bits_problem(config: Config) -> str | None:
    n_bits, dtype = sum(config["bits"]), np.dtype(config["dtype"])
    if dtype.kind != "u" or n_bits > 32 or max(config["bits"]) > 8 * dtype.itemsize:
        return f"samples of {config['bits']} bits do not become {dtype}"
    if config.get("endian") == "big" and dtype.itemsize == 1:
        return "readers disagree about the byte order of pixels of odd samples"
    return _endian_problem(config)


def _rgb_bits_stored_bytes(config: Config, decoded: int | None, spec: ArraySpec) -> int | None:
    if decoded is None:
        return None
    n_pixels = decoded // (np.dtype(config["dtype"]).itemsize * len(config["bits"]))
    return n_pixels * _pixel_dtype(config).itemsize


def _rgb_bits_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    """Samples are stretched to all bits of the dtype by repeating their bits."""
    dtype, pixel_dtype = np.dtype(config["dtype"]), _pixel_dtype(config)
    widths = config["bits"]
    target_bits = 8 * dtype.itemsize

    def decode(raw: Raw) -> Raw:
        pixels = np.frombuffer(raw, pixel_dtype).astype(np.uint64)
        samples = np.empty((len(pixels), len(widths)), dtype)
        for index, width in enumerate(widths):
            sample = pixels >> sum(widths[index + 1 :]) & ((1 << width) - 1)
            repeated = (target_bits // width + 1) * width
            sample *= ((1 << repeated) - 1) // ((1 << width) - 1)
            samples[:, index] = sample >> (repeated - target_bits)
        return little_endian_bytes(samples)

    return decode


def _complex_stored_bytes(config: Config, decoded: int | None, spec: ArraySpec) -> int | None:
    return None if decoded is None else decoded // spec.dtype.itemsize * config["bits"] // 4


def _complex_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    """Pairs of integers: real and imaginary part."""
    if spec.dtype.kind != "c":
        raise ValueError(f"decodes to complex numbers, not {spec.dtype}")
    part = np.dtype(f"{_byte_order(config)}i{config['bits'] // 8}")
    real = np.dtype(f"f{spec.dtype.itemsize // 2}")
    return lambda raw: little_endian_bytes(np.frombuffer(raw, part).astype(real))


def _complex_problem(config: Config) -> str | None:
    if config["bits"] not in (8, 16, 32):
        return f"parts of {config['bits']} bits are not supported"
    return _endian_problem(config)


def _predictor_problem(config: Config) -> str | None:
    if config["predictor"] not in (2, 3):
        return f"predictor {config['predictor']} is unknown"
    # imagecodecs, and with it tifffile, has other distances for floats only.
    if config.get("distance", 1) not in ((1,) if config["predictor"] == 2 else (1, 2, 4)):
        return f"distance {config['distance']} of predictor {config['predictor']} is not supported"
    return None


def _predictor_decoder(config: Config, spec: ArraySpec) -> ArrayDecode:
    """Undo differences along the width of the image, for each sample by itself."""
    is_float = config["predictor"] == 3
    if is_float and spec.dtype.kind != "f":
        raise ValueError(f"predictor 3 does not apply to {spec.dtype}")
    axis, distance = config["axis"], config.get("distance", 1)
    axis += len(spec.shape) if axis < 0 else 0
    shape = (
        math.prod(spec.shape[:axis]),
        spec.shape[axis],
        math.prod(spec.shape[axis + 1 :]),
    )
    undo = imagecodecs.floatpred_decode if is_float else imagecodecs.delta_decode

    def decode(stored: NDArray[Any]) -> NDArray[Any]:
        if stored.size == 0:
            return stored
        rows = np.ascontiguousarray(stored).reshape(shape)
        values: NDArray[Any] = undo(rows, axis=-2, dist=distance)
        return values.reshape(spec.shape)

    return decode


CODECS: dict[str, AnyCodec] = {
    "gridref.tiff_lzw": BytesCodec(_lzw_decoder),
    "gridref.tiff_packbits": BytesCodec(_packbits_decoder),
    "gridref.tiff_bitorder": BytesCodec(
        lambda config, decoded_bytes, spec: lambda raw: imagecodecs.bitorder_decode(as_bytes(raw)),
        same_bytes,
    ),
    "gridref.tiff_packints": BytesCodec(
        _packints_decoder,
        _packints_stored_bytes,
        required=("bits", "dtype", "run_length"),
        problem=_packints_problem,
    ),
    "gridref.tiff_float24": BytesCodec(
        _float24_decoder, _float24_stored_bytes, problem=_endian_problem
    ),
    "gridref.tiff_rgb_bits": BytesCodec(
        _rgb_bits_decoder,
        _rgb_bits_stored_bytes,
        required=("bits", "dtype"),
        problem=_rgb_bits_problem,
    ),
    "gridref.tiff_complex_integers": BytesCodec(
        _complex_decoder,
        _complex_stored_bytes,
        required=("bits",),
        problem=_complex_problem,
    ),
    "gridref.tiff_predictor": ArrayCodec(
        _predictor_decoder, required=("predictor", "axis"), problem=_predictor_problem
    ),
}
