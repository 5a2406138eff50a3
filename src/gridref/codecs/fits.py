"""The codecs of FITS files: compressed tiles of images, and the floats that they stand for.

``gridref.fits_tiles`` decodes the binary table of a whole image. The others decode one tile.

Source: FITS standard 4.0 (IAU, 2018), section 10 "Representations of compressed data" and
appendix I "Random number generator". Numbers are computed in the order and precision of astropy.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

import imagecodecs
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
    as_bytes,
    as_u1,
    decompressed,
    without_unit_axes,
)
from gridref.model.grid import chunk_counts

_RICE: dict[int, np.dtype[Any]] = {
    1: np.dtype("u1"),
    2: np.dtype("i2"),
    4: np.dtype("i4"),
}
_WORD = np.dtype(">i2")
_LONGEST_PIXEL = 8
_HCOMPRESS_MAGIC, _HCOMPRESS_HEADER = b"\xdd\x99", 25

# Tiles


def _rice(raw: Raw, shape: tuple[int, ...], block: int, width: int) -> NDArray[Any]:
    """Decode RICE_1: blocks of so many pixels of `width` bytes."""
    dtype = _RICE[width]
    if 0 in shape:
        return np.zeros(shape, dtype)
    decoded = imagecodecs.rcomp_decode(as_bytes(raw), shape=shape, dtype=dtype, nblock=block)
    return decoded.astype(dtype, copy=False)


def _plio(raw: Raw, shape: tuple[int, ...]) -> NDArray[Any]:
    """Decode PLIO_1: big-endian words of IRAF's pixel lists."""
    if len(raw) % _WORD.itemsize:
        raise ValueError(f"{len(raw)} bytes are no words of {_WORD.itemsize}")
    words = np.frombuffer(raw, _WORD).astype("<i2").tobytes()
    decoded: NDArray[Any] = imagecodecs.plio_decode(words, math.prod(shape))
    return decoded.reshape(shape)


def _hcompress(raw: Raw, shape: tuple[int, ...], smooth: int) -> NDArray[Any]:
    """Decode HCOMPRESS_1. The stream states its shape, by which the decoder takes memory."""
    head = bytes(raw[:_HCOMPRESS_HEADER])
    if len(head) < _HCOMPRESS_HEADER or not head.startswith(_HCOMPRESS_MAGIC):
        raise ValueError("is no HCOMPRESS stream")
    rows, columns = (int.from_bytes(head[at : at + 4], "big") for at in (2, 6))
    if without_unit_axes((rows, columns)) != without_unit_axes(shape):
        raise ValueError(f"has the shape {(rows, columns)}, expected {shape}")
    decoded: NDArray[Any] = imagecodecs.hcomp_decode(as_bytes(raw), smooth=smooth)
    return decoded.reshape(shape)


def _as_dtype(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Integers as another dtype, which must have all of them."""
    if values.dtype == dtype:
        return values
    limits = np.iinfo(dtype)
    if values.size and not limits.min <= int(values.min()) <= int(values.max()) <= limits.max:
        raise ValueError(f"holds {values.min()} to {values.max()}, beyond {dtype}")
    return values.astype(dtype)


def _rice_decoder(config: Config, spec: ArraySpec) -> SerialDecode:
    width, block = spec.dtype.itemsize, config.get("nblock") or 32
    if width not in _RICE or spec.dtype.kind not in "iu":
        raise ValueError(f"does not decode to {spec.dtype}")
    return lambda raw: _rice(raw, spec.shape, block, width).view(spec.dtype)


def _plio_decoder(config: Config, spec: ArraySpec) -> SerialDecode:
    return lambda raw: _as_dtype(_plio(raw, spec.shape), spec.dtype)


def _hcompress_decoder(config: Config, spec: ArraySpec) -> SerialDecode:
    smooth = int(config.get("smooth") or 0)
    return lambda raw: _as_dtype(_hcompress(raw, spec.shape, smooth), spec.dtype)


# Unsigned integers of 64 bits


def _unsigned_stored(config: Config, spec: ArraySpec) -> ArraySpec:
    return ArraySpec(spec.shape, np.dtype("i8"))


def _unsigned_decoder(config: Config, spec: ArraySpec) -> ArrayDecode:
    if spec.dtype != np.dtype("u8"):
        raise ValueError(f"does not decode to {spec.dtype}")
    return lambda stored: stored.view("u8") ^ np.uint64(1 << 63)


# Quantised floats

_N_RANDOM, _ZERO_VALUE = 10_000, -2_147_483_646
_MULTIPLIER, _MODULUS, _LAST_SEED = 16_807, 2_147_483_647, 1_043_618_065


@cache
def _random() -> NDArray[np.float32]:
    """float32 (10000,), the numbers that dithering added to the pixels."""
    values, seed = np.empty(_N_RANDOM, np.float32), 1
    for place in range(_N_RANDOM):
        seed = _MULTIPLIER * seed % _MODULUS
        values[place] = seed / _MODULUS
    if seed != _LAST_SEED:
        raise AssertionError("the generator is not that of the standard")
    return values


def _dithers(row: int, n_pixels: int) -> NDArray[np.float32]:
    """The random numbers of a tile, by its row counted from 1 and moved by the seed."""
    random, place = _random(), (row - 1) % _N_RANDOM
    parts, n_found = [], 0
    while n_found < n_pixels:
        parts.append(random[int(random[place] * np.float32(500)) :])
        n_found += len(parts[-1])
        place = (place + 1) % _N_RANDOM
    return np.concatenate([*parts, random[:0]])[:n_pixels]


def _unquantised(
    stored: NDArray[Any], scale: float, zero: float, dither: int, row: int, blank: int | None
) -> NDArray[np.float64]:
    """The floats that integers stand for."""
    values = stored.astype(np.float64)
    if dither:
        values = values - _dithers(row, stored.size).reshape(stored.shape) + 0.5
    values = values * scale + zero
    if dither == 2:
        values[stored == _ZERO_VALUE] = 0
    if blank is not None:
        values[stored == blank] = np.nan
    return values


# Images with their table


def _gunzip(raw: Raw, n_pixels: int) -> bytes:
    most = _LONGEST_PIXEL * n_pixels
    return decompressed(lambda: zlib.decompressobj(31), raw, most, lambda rest: False)


def _pixels(raw: bytes, shape: tuple[int, ...], lossless: np.dtype[Any] | None) -> NDArray[Any]:
    """Big-endian pixels: integers whose size their number tells, or floats of a lossless dtype."""
    n_pixels = math.prod(shape)
    size, rest = divmod(len(raw), max(n_pixels, 1))
    sizes: tuple[int, ...] = (1, 2, 4)  # of quantised floats
    if lossless is not None:
        sizes = (lossless.itemsize,) if lossless.kind == "f" else (1, 2, 4, 8)
    if rest or size not in sizes:
        raise ValueError(f"{len(raw)} bytes are not those of {n_pixels} pixels")
    if lossless is not None and lossless.kind == "f":
        return np.frombuffer(raw, lossless.newbyteorder(">")).reshape(shape)
    return np.frombuffer(raw, f">i{size}" if size > 1 else "u1").reshape(shape)


def _compressed(
    raw: Raw, shape: tuple[int, ...], config: Config, lossless: np.dtype[Any] | None
) -> NDArray[Any]:
    """A tile of the column COMPRESSED_DATA."""
    match config["compression"]:
        case "RICE_1":
            return _rice(raw, shape, config["block"], config["width"])
        case "PLIO_1":
            return _plio(raw, shape)
        case "HCOMPRESS_1":
            return _hcompress(raw, shape, config["smooth"])
        case "GZIP_1":
            return _pixels(_gunzip(raw, math.prod(shape)), shape, lossless)
        case "GZIP_2":
            shuffled = np.frombuffer(_gunzip(raw, math.prod(shape)), np.uint8)
            size = max(1, len(shuffled) // max(1, math.prod(shape)))
            if len(shuffled) % size:
                raise ValueError(f"{len(shuffled)} bytes are not those of {shape} pixels")
            return _pixels(shuffled.reshape(size, -1).T.tobytes(), shape, lossless)
        case _:
            return _pixels(as_bytes(raw), shape, lossless)


class _Rows:
    """The rows of a table before its heap.

    Parameters
    ----------
    config
        Configuration of ``gridref.fits_tiles``.
    n_rows
        Number of tiles.
    """

    def __init__(self, raw: Raw, config: Config, n_rows: int) -> None:
        row_bytes, self._heap = config["row_bytes"], config["heap"]
        self._raw = as_u1(raw)
        if not row_bytes * n_rows <= self._heap <= len(self._raw):
            raise ValueError(f"{len(self._raw)} bytes do not hold {n_rows} rows and a heap")
        self._rows = self._raw[: row_bytes * n_rows].reshape(n_rows, row_bytes)
        self._columns: Mapping[str, Any] = config["columns"]

    def _fields(self, offset: int, dtype: str) -> NDArray[Any]:
        size = np.dtype(dtype).itemsize
        fields = self._rows[:, offset : offset + size]
        return np.ascontiguousarray(fields).view(dtype)[:, 0]

    def numbers(self, name: str) -> list[Any] | None:
        """A number for each tile; None without the column."""
        if name not in self._columns:
            return None
        offset, code, _ = self._columns[name]
        values: list[Any] = self._fields(offset, _NUMBERS[code]).tolist()
        return values

    def tiles(self, name: str) -> Callable[[int], Raw] | None:
        """What gives the bytes of a tile in the heap, empty ones if it has none there."""
        if name not in self._columns:
            return None
        offset, code, pointer = self._columns[name]
        dtype = POINTERS[pointer]
        lengths = (self._fields(offset, dtype).astype(object) * _SIZES[code]).tolist()
        starts = self._fields(offset + np.dtype(dtype).itemsize, dtype).tolist()

        def tile(number: int) -> Raw:
            start, length = starts[number], lengths[number]
            held = len(self._raw) - self._heap
            if length and not 0 <= start <= start + length <= held:
                raise ValueError(f"tile {number} is at byte {start} of a heap of {held}")
            return self._raw[self._heap + start :][:length]

        return tile


_NUMBERS = {"B": "u1", "I": ">i2", "J": ">i4", "K": ">i8", "E": ">f4", "D": ">f8"}
POINTERS = {"P": ">i4", "Q": ">i8"}
"""The two integers of a descriptor: length and offset of an array in the heap."""
_SIZES = {"B": 1, "I": 2, "J": 4, "K": 8, "E": 4, "D": 8}
_COMPRESSED, _GZIPPED, _PLAIN = "COMPRESSED_DATA", "GZIP_COMPRESSED_DATA", "UNCOMPRESSED_DATA"


def _regions(shape: tuple[int, ...], tile: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """The part of the image that each tile holds, in C order."""
    starts = [range(0, extent, length) for extent, length in zip(shape, tile, strict=True)]
    for place in itertools.product(*starts):
        yield tuple(
            slice(start, min(start + length, extent))
            for start, length, extent in zip(place, tile, shape, strict=True)
        )


def _tiles_decoder(config: Config, spec: ArraySpec) -> SerialDecode:
    tile = tuple(config["tile"])
    n_tiles = math.prod(chunk_counts(spec.shape, tile))

    def decode(raw: Raw) -> NDArray[Any]:
        rows = _Rows(raw, config, n_tiles)
        decode_tile = partial(_tile, _Columns(rows), config, spec.dtype)
        image = np.empty(spec.shape, spec.dtype)
        for number, region in enumerate(_regions(spec.shape, tile)):
            shape = tuple(along.stop - along.start for along in region)
            with np.errstate(all="ignore"):
                image[region] = decode_tile(number, shape)
        return image

    return decode


class _Columns:
    """The columns of a table that decoding takes."""

    def __init__(self, rows: _Rows) -> None:
        self.compressed, self.gzipped = rows.tiles(_COMPRESSED), rows.tiles(_GZIPPED)
        self.plain = rows.tiles(_PLAIN)
        self.scales, self.zeros = rows.numbers("ZSCALE"), rows.numbers("ZZERO")
        self.blanks = rows.numbers("ZBLANK")


def _tile(
    columns: _Columns, config: Config, dtype: np.dtype[Any], number: int, shape: tuple[int, ...]
) -> NDArray[Any]:
    """The pixels of a tile, from whichever column holds it."""
    for column, is_gzipped in ((columns.gzipped, True), (columns.plain, False)):
        raw = b"" if column is None else column(number)
        if len(raw):
            plain = _gunzip(raw, math.prod(shape)) if is_gzipped else as_bytes(raw)
            return _lossless(_pixels(plain, shape, dtype), dtype)
    raw = b"" if columns.compressed is None else columns.compressed(number)
    if not len(raw):
        raise ValueError(f"tile {number} has no data")
    if columns.scales is None or columns.zeros is None:
        return _lossless(_compressed(raw, shape, config, dtype), dtype)
    return _unquantised(
        _compressed(raw, shape, config, None),
        columns.scales[number],
        columns.zeros[number],
        config.get("dither", 0),
        number + config.get("seed", 0),
        config.get("blank") if columns.blanks is None else columns.blanks[number],
    )


def _lossless(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    return values.astype(dtype) if dtype.kind == "f" else _as_dtype(values, dtype)


def _tiles_problem(config: Config) -> str | None:
    """Configurations come from catalogs, too."""
    compressions = ("NOCOMPRESS", "GZIP_1", "GZIP_2", "RICE_1", "PLIO_1", "HCOMPRESS_1")
    if config["compression"] not in compressions:
        return f"compression {config['compression']} is unknown"
    needed = {"RICE_1": ("block", "width"), "HCOMPRESS_1": ("smooth",)}
    names = ("row_bytes", "heap", *needed.get(config["compression"], ()))
    if not all(type(config.get(name)) is int and config[name] >= 0 for name in names):
        return f"{', '.join(names)} must be whole numbers"
    if config.get("width", 1) not in _RICE or min(config["tile"], default=1) < 1:
        return "tiles or pixels have no size"
    for name, (offset, code, pointer) in config["columns"].items():
        known = pointer in POINTERS and code in _SIZES if name.endswith("_DATA") else True
        known = known and (pointer != "" or code in _NUMBERS)
        if not known or not 0 <= offset < config["row_bytes"]:
            return f"column {name} has the format {[offset, code, pointer]}"
    return None


CODECS: dict[str, AnyCodec] = {
    "imagecodecs_rcomp": SerialCodec(_rice_decoder),
    "imagecodecs_hcomp": SerialCodec(_hcompress_decoder),
    "gridref.fits_plio": SerialCodec(_plio_decoder),
    "gridref.fits_unsigned": ArrayCodec(_unsigned_decoder, _unsigned_stored),
    "gridref.fits_tiles": SerialCodec(
        _tiles_decoder,
        required=("row_bytes", "heap", "columns", "tile", "compression"),
        problem=_tiles_problem,
    ),
}
