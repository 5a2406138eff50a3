"""Read tile-compressed images: binary tables with a row for each tile, and tiles in the heap.

`compressed_chunks` finds the tiles. Where all of them are compressed in one way without loss, each
is a stored chunk. Quantised floats have a scale and a zero for each tile in the table, and tiles
that do not compress may be in another column: the codec needs the table, so the table and its heap
are one stored chunk.

Source: FITS standard 4.0, sections 7.3 "Binary-table extension" and 10 "Representations of
compressed data".
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gridref.codecs.fits import POINTERS
from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.contiguous import require_inside
from gridref.formats.fits.header import Unit, integer
from gridref.io import ScanFile
from gridref.limits import beyond, limits
from gridref.model.encoding import Codec, bytes_codec
from gridref.model.grid import chunk_counts
from gridref.model.manifest import ChunkManifest, Source

_FORM = re.compile(r"(\d{0,9})([LXBIJKAEDCMPQ])(.*)", re.DOTALL)
_TARGET = re.compile(r"\(?([LXBIJKAEDCM])")
_SIZES = {"L": 1, "B": 1, "A": 1, "I": 2, "J": 4, "K": 8, "E": 4, "D": 8, "C": 8, "M": 16}
_TILES, _ELSEWHERE = "COMPRESSED_DATA", ("GZIP_COMPRESSED_DATA", "UNCOMPRESSED_DATA")
_OF_TILES = ("ZSCALE", "ZZERO", "ZBLANK")
_DITHERS = {
    "NONE": 0,
    "NO_DITHER": 0,
    "SUBTRACTIVE_DITHER_1": 1,
    "SUBTRACTIVE_DITHER_2": 2,
}
_MAX_SEED = 10_000
_MAX_FIELDS = 999

type Chunks = tuple[tuple[int, ...], ChunkManifest, tuple[Codec, ...]]
"""Chunk shape, chunks, and the codecs from the array -> bytes codec on."""


@dataclass(frozen=True)
class _Column:
    """A column of the table.

    Attributes
    ----------
    offset
        First byte in a row.
    code
        The letter of its elements; of an array in the heap, that of the array's.
    pointer
        ``P`` or ``Q`` for a descriptor of an array in the heap; else empty.
    """

    offset: int
    code: str
    pointer: str

    def to_json(self) -> list[Any]:
        return [self.offset, self.code, self.pointer]


@dataclass(frozen=True)
class _Table:
    """The table of a unit.

    Attributes
    ----------
    row_bytes, n_rows
        Its rows, one for each tile.
    heap
        First byte of the heap, from that of the table.
    columns
        By name, in capitals.
    """

    row_bytes: int
    n_rows: int
    heap: int
    columns: Mapping[str, _Column]


def _table(unit: Unit) -> _Table:
    cards = unit.cards
    row_bytes, n_rows = integer(cards, "NAXIS1"), integer(cards, "NAXIS2")
    heap = integer(cards, "THEAP", row_bytes * n_rows)
    if not row_bytes * n_rows <= heap <= unit.data_bytes:
        raise SourceFormatError(f"its heap begins at byte {heap} of {unit.data_bytes}")
    n_fields = integer(cards, "TFIELDS")
    if not 0 < n_fields <= _MAX_FIELDS:
        raise SourceFormatError(f"its table has {n_fields} columns")
    columns, at = dict[str, _Column](), 0
    for number in range(1, n_fields + 1):
        column, n_bytes = _column(at, str(cards.get(f"TFORM{number}", "")).strip())
        columns.setdefault(str(cards.get(f"TTYPE{number}", "")).strip().upper(), column)
        at += n_bytes
    if at != row_bytes:
        raise SourceFormatError(f"its columns take {at} bytes of rows of {row_bytes}")
    return _Table(row_bytes, n_rows, heap, columns)


def _column(offset: int, form: str) -> tuple[_Column, int]:
    """A column of a TFORM, and its bytes in a row."""
    match = _FORM.fullmatch(form)
    if match is None:
        raise SourceFormatError(f"a column has the format {form[:50]!r}")
    repeat, code = int(match[1] or 1), match[2]
    if code in POINTERS:
        target = _TARGET.match(match[3])
        if target is None:
            raise SourceFormatError(f"a column has the format {form[:50]!r}")
        n_bytes = repeat * 2 * np.dtype(POINTERS[code]).itemsize
        return _Column(offset, target[1], code), n_bytes
    n_bytes = -(-repeat // 8) if code == "X" else repeat * _SIZES[code]
    return _Column(offset, code, ""), n_bytes


def compressed_chunks(
    unit: Unit, shape: tuple[int, ...], dtype: np.dtype[Any], file: ScanFile
) -> Chunks:
    """The chunks of an image of a shape, and the stored dtype of its pixels.

    Raises
    ------
    UnsupportedFeatureError
        If it is compressed in a way that no codec decodes.
    SourceFormatError
        If it is damaged or cut off.
    """
    require_inside(file.source, unit.data_offset, unit.data_offset + unit.data_bytes)
    table = _table(unit)
    tile = _tile_shape(unit.cards, shape)
    n_tiles = math.prod(chunk_counts(shape, tile))
    if n_tiles > limits().chunk_rows:
        raise UnsupportedFeatureError(beyond("chunk_rows", f"an image of {n_tiles} tiles"))
    if table.n_rows != n_tiles:
        raise SourceFormatError(f"its table has {table.n_rows} rows for {n_tiles} tiles")
    if _TILES not in table.columns or not table.columns[_TILES].pointer:
        raise SourceFormatError(f"its table has no column {_TILES}")
    compression = _Compression.of(unit.cards, dtype, tile)
    if any(name in table.columns for name in _OF_TILES):
        return _as_one_chunk(unit, table, shape, tile, compression, dtype, file.source)
    if dtype.kind == "f" and not compression.keeps_floats:
        raise UnsupportedFeatureError(f"{compression.name} compresses no floats by itself")
    places = _places(unit, table, file)
    if (places.length == 0).any():
        if not any(name in table.columns for name in _ELSEWHERE):
            raise SourceFormatError("its table has tiles without data")
        return _as_one_chunk(unit, table, shape, tile, compression, dtype, file.source)
    codecs = compression.codecs
    if compression.name.startswith("GZIP"):
        stored = _gzipped_dtype(dtype, tile, places, file)
        codecs = _Compression.of(unit.cards, stored, tile).codecs
        if stored != dtype:
            codecs = (Codec.of("cast_value", data_type=stored.name), *codecs)
    return tile, places, codecs


def _gzipped_dtype(
    dtype: np.dtype[Any], tile: tuple[int, ...], places: ChunkManifest, file: ScanFile
) -> np.dtype[Any]:
    """The dtype of pixels in gzip streams: early versions of fpack made int32 of all integers.

    The last four bytes of a stream are the size of what it holds.
    """
    if not places.n_rows:
        return dtype
    end = int(places.offset[0] + places.length[0])
    (size,) = file.read_many([max(0, end - 4)], [4])
    width, rest = divmod(int.from_bytes(size, "little"), math.prod(tile))
    if rest or width not in (1, 2, 4, 8) or (dtype.kind == "f" and width != dtype.itemsize):
        raise UnsupportedFeatureError(f"its tiles hold {width} bytes for a pixel of {dtype}")
    return dtype if width == dtype.itemsize else np.dtype("u1" if width == 1 else f"i{width}")


def _tile_shape(cards: Mapping[str, Any], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a tile, by default a row of pixels."""
    n_axes = len(shape)
    tile = []
    for number, extent in zip(range(n_axes, 0, -1), shape, strict=True):
        length = integer(cards, f"ZTILE{number}", extent if number == 1 else 1)
        if length < 1:
            raise SourceFormatError(f"its tiles have the length {length} along an axis")
        tile.append(min(length, extent))
    return tuple(tile)


def _places(unit: Unit, table: _Table, file: ScanFile) -> ChunkManifest:
    """The place of each tile in the heap."""
    column = table.columns[_TILES]
    n_bytes = table.row_bytes * table.n_rows
    rows = np.frombuffer(file.read_many([unit.data_offset], [n_bytes])[0], np.uint8)
    pointer = np.dtype(POINTERS[column.pointer])
    fields = rows.reshape(table.n_rows, table.row_bytes)[:, column.offset :]
    pairs = np.ascontiguousarray(fields[:, : 2 * pointer.itemsize]).view(pointer).astype(np.int64)
    length, offset = pairs[:, 0], pairs[:, 1]
    held, itemsize = unit.data_bytes - table.heap, _SIZES.get(column.code, 0)
    if itemsize not in (1, 2, 4) or (pairs < 0).any() or (length > held // itemsize).any():
        raise SourceFormatError("its table has tiles that are not in the heap")
    length = length * itemsize
    if (offset > held - length)[length > 0].any():
        raise SourceFormatError("its table has tiles that are not in the heap")
    first = unit.data_offset + table.heap
    return ChunkManifest.from_columns([file.source], offset=first + offset, length=length)


@dataclass(frozen=True)
class _Compression:
    """How tiles are compressed.

    Attributes
    ----------
    name
        ``ZCMPTYPE``.
    codecs
        Codecs of tiles that are compressed without loss.
    settings
        What a codec of all tiles must know.
    keeps_floats
        Whether it takes floats as they are.
    """

    name: str
    codecs: tuple[Codec, ...]
    settings: Mapping[str, int]
    keeps_floats: bool = False

    @classmethod
    def of(
        cls, cards: Mapping[str, Any], dtype: np.dtype[Any], tile: tuple[int, ...]
    ) -> _Compression:
        name = str(cards.get("ZCMPTYPE", "")).strip()
        plain = bytes_codec(dtype, big_endian=True)
        shuffle = Codec.of("numcodecs.shuffle", elementsize=dtype.itemsize)
        gzip = Codec.of("gzip", level=5)
        match name:
            case "NOCOMPRESS":
                return cls(name, (plain,), {}, keeps_floats=True)
            case "GZIP_1":
                return cls(name, (plain, gzip), {}, keeps_floats=True)
            case "GZIP_2":
                shuffles = (shuffle,) if dtype.itemsize > 1 else ()
                return cls(name, (plain, *shuffles, gzip), {}, keeps_floats=True)
            case "RICE_1" | "RICE_ONE":
                return _rice(cards, dtype)
            case "PLIO_1":
                return cls(name, (Codec.of("gridref.fits_plio"),), {})
            case "HCOMPRESS_1":
                if sum(length > 1 for length in tile) > 2:
                    raise SourceFormatError(f"its tiles of shape {tile} are no planes")
                smooth = int(bool(_setting(cards, "SMOOTH", 0)))
                return cls(
                    name, (Codec.of("imagecodecs_hcomp", smooth=smooth),), {"smooth": smooth}
                )
        raise UnsupportedFeatureError(f"no codec decodes its compression {name[:50]!r}")


def _rice(cards: Mapping[str, Any], dtype: np.dtype[Any]) -> _Compression:
    block, width = _setting(cards, "BLOCKSIZE", 32), _setting(cards, "BYTEPIX", 4)
    if type(block) is not int or not 1 <= block <= 1 << 16 or width not in (1, 2, 4):
        raise UnsupportedFeatureError(f"RICE_1 with blocks of {block!r} pixels of {width!r} bytes")
    codecs: tuple[Codec, ...] = (Codec.of("imagecodecs_rcomp", nblock=block),)
    if width != dtype.itemsize:
        codecs = (Codec.of("cast_value", data_type=f"int{8 * width}"), *codecs)
    return _Compression("RICE_1", codecs, {"block": block, "width": width})


def _setting(cards: Mapping[str, Any], name: str, default: int) -> Any:
    """A parameter of the compression: ``ZVALn`` of the ``ZNAMEn`` that is its name."""
    for number in range(1, _MAX_FIELDS + 1):
        found = cards.get(f"ZNAME{number}")
        if found is None:
            break
        if str(found).strip().upper() == name:
            return cards.get(f"ZVAL{number}", default)
    return default


def _as_one_chunk(
    unit: Unit,
    table: _Table,
    shape: tuple[int, ...],
    tile: tuple[int, ...],
    compression: _Compression,
    dtype: np.dtype[Any],
    source: Source,
) -> Chunks:
    """The table with its heap as the only chunk."""
    n_bytes = math.prod(shape) * dtype.itemsize
    if n_bytes > limits().decoded_bytes:
        raise UnsupportedFeatureError(beyond("decoded_bytes", f"an image of {n_bytes} bytes"))
    of_tiles = [name for name in _OF_TILES if name in table.columns]
    is_quantised = of_tiles[:2] == ["ZSCALE", "ZZERO"] and dtype.kind == "f"
    if of_tiles and not is_quantised:
        named = " and ".join(of_tiles)
        raise UnsupportedFeatureError(f"pixels of dtype {dtype} have {named} for each tile")
    known = (_TILES, *_ELSEWHERE, *_OF_TILES)
    columns = {name: table.columns[name].to_json() for name in known if name in table.columns}
    codec = Codec.of(
        "gridref.fits_tiles",
        row_bytes=table.row_bytes,
        heap=table.heap,
        columns=columns,
        tile=tile,
        compression=compression.name,
        **compression.settings,
        **(_quantisation(unit.cards) if is_quantised else {}),
    )
    manifest = ChunkManifest.from_columns(
        [source], offset=[unit.data_offset], length=[unit.data_bytes]
    )
    return shape, manifest, (codec,)


def _quantisation(cards: Mapping[str, Any]) -> dict[str, int]:
    """What all tiles of quantised floats share: dithering, the integer of undefined pixels."""
    method = str(cards.get("ZQUANTIZ", "NO_DITHER")).strip()
    if method not in _DITHERS:
        raise UnsupportedFeatureError(f"ZQUANTIZ is {method[:50]!r}")
    found = {}
    if _DITHERS[method]:
        found = {"dither": _DITHERS[method], "seed": integer(cards, "ZDITHER0")}
        if not 1 <= found["seed"] <= _MAX_SEED:
            raise SourceFormatError(f"ZDITHER0 is {found['seed']}, not 1 to {_MAX_SEED}")
    if "ZBLANK" in cards or "BLANK" in cards:
        found["blank"] = integer(cards, "ZBLANK" if "ZBLANK" in cards else "BLANK")
    return found
