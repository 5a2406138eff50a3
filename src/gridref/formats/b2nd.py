"""Blosc2 arrays (b2nd): chunks of blocks, in a file or in a folder of files.

A frame has a header, which states shapes and data type, the chunks, their offsets (compressed), and
a trailer with attributes (vlmeta), each a chunk whose content is msgpack. A scan reads all but the
chunks. How long a chunk is, it says itself: its range reaches to the next one.

Sources: C-Blosc2, ``README_CFRAME_FORMAT.rst``, ``README_SFRAME_FORMAT.rst`` and
``README_B2ND_METALAYER.rst``; https://github.com/msgpack/msgpack/blob/master/spec.md.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from gridref.codecs.blosc2 import (
    DELTA,
    NANS,
    UNINITIALISED,
    ZEROS,
    Blosc2Header,
    chunk_offsets,
    decoded_chunk,
    padded_shape,
    special_kind,
)
from gridref.errors import Place, SourceFormatError, UnsupportedFeatureError
from gridref.formats.chunks import StoreFiles, array_name, whole_files
from gridref.formats.location import Location
from gridref.formats.metadata import attributes_from_json, dimension_names
from gridref.formats.scanner import Findings, ScanOptions, check_element_size
from gridref.io import ScanFile
from gridref.limits import beyond, limits
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Codec, Encoding
from gridref.model.grid import chunk_counts
from gridref.model.manifest import ChunkManifest, ChunkState
from gridref.typing import Int64Array

_FRAME = "chunks.b2frame"
_KINDS = "biufcSU"
_MOST_DIMENSIONS = 16
_COMPUTED = ("b2o", "LazyArray", "proxy-source")
"""Layers of arrays whose values are computed from others, or are elsewhere."""


def scan(location: Location, options: ScanOptions) -> VirtualGroup:
    """Describe an array, which gets the name of the file; raises as `gridref.formats.scan` does."""
    is_folder = location.is_folder or location.name == _FRAME
    url = location.folder if is_folder else location.url
    name = array_name(url.partition("?")[0])
    findings = Findings(url)
    arrays: dict[str, VirtualArray] = {}
    with findings.taking(f"/{name}"):
        if is_folder:
            arrays[name] = _of_folder(StoreFiles.at(location, options))
        else:
            arrays[name] = _of_file(location.opened, location.head)
    return VirtualGroup(arrays, report=findings.report(options))


def _of_file(file: ScanFile, head: bytes) -> VirtualArray:
    """The array of a contiguous frame; `head` is its beginning."""
    header = _header(head, file)
    frame = _Frame.of(header)
    if header.is_sparse:
        raise SourceFormatError("its chunks are in other files: scan its folder")
    if header.frame_bytes != file.size or not 0 < header.index_start < file.size:
        raise SourceFormatError(f"its header states {header.frame_bytes} bytes")
    if file.size - header.index_start > limits().reads_of(0) + 16 * frame.n_chunks:
        raise SourceFormatError("its offsets and trailer are larger than any valid ones")
    (tail,) = file.read_many([header.index_start], [file.size - header.index_start])
    offsets = _offsets(tail, frame)
    return frame.array(_manifest(file, header, offsets, frame), bytes(tail))


def _of_folder(files: StoreFiles) -> VirtualArray:
    """The array of a sparse frame: a folder with a file for each chunk."""
    data = files.get(_FRAME)
    if data is None:
        raise SourceFormatError(f"it holds no {_FRAME}")
    header = _parsed(data)
    frame = _Frame.of(header)
    tail = data[header.header_bytes :]  # no chunks are between the header and the offsets
    return frame.array(_files_of_chunks(files, _offsets(tail, frame), frame), tail)


# Headers


def _header(head: bytes, file: ScanFile) -> Blosc2Header:
    header = _parsed(head)
    if header.header_bytes > len(head):
        if header.header_bytes > min(file.size, limits().header_bytes):
            raise SourceFormatError(f"its header states that it has {header.header_bytes} bytes")
        header = _parsed(bytes(file.read_many([0], [header.header_bytes])[0]))
    return header


def _parsed(data: bytes) -> Blosc2Header:
    try:
        return Blosc2Header(data)
    except ValueError as error:
        raise SourceFormatError(f"it {error}") from error


@dataclass(frozen=True)
class _Frame:
    """What a header says about an array."""

    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    block_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_big_endian: bool

    @classmethod
    def of(cls, header: Blosc2Header) -> _Frame:
        """Check a header."""
        if not header.has_dimensions:
            raise UnsupportedFeatureError("it is a frame without dimensions, no array")
        for layer in _COMPUTED:
            if header.has_layer(layer):
                raise UnsupportedFeatureError(f"its values are computed, or elsewhere ({layer})")
        if DELTA in header.filters:
            reason = "its filter is delta, which C-Blosc2 does not undo reliably"
            raise UnsupportedFeatureError(reason)
        shape, chunk, block = map(tuple, header.extents())
        if 0 in shape:  # whatever its chunks are, there are none
            chunk = block = (1,) * len(shape)
        elif not header.has_equal_chunks:
            raise UnsupportedFeatureError("its chunks have several sizes")
        lengths = (*chunk, *block)
        if len(shape) > _MOST_DIMENSIONS or min((0, *shape)) < 0 or min((1, *lengths)) < 1:
            raise SourceFormatError(f"shape {shape}, chunks {chunk} and blocks {block}")
        if any(part > whole for part, whole in zip(block, chunk, strict=True)):
            raise SourceFormatError(f"blocks {block} are larger than chunks {chunk}")
        stored = _dtype(header)
        frame = cls(shape, chunk, block, stored.newbyteorder("="), stored.byteorder == ">")
        n_bytes = frame.chunk_bytes
        if n_bytes > limits().decoded_bytes:
            raise SourceFormatError(beyond("decoded_bytes", f"chunks of {n_bytes} bytes"))
        if frame.n_chunks > limits().chunk_rows:
            raise SourceFormatError(beyond("chunk_rows", f"{frame.n_chunks} chunks"))
        stated = header.number(30, 8), header.number(58, 4)
        if frame.n_chunks and stated != (frame.n_chunks * n_bytes, n_bytes):
            raise SourceFormatError(f"its header does not state {frame.n_chunks} x {n_bytes} bytes")
        return frame

    @property
    def n_chunks(self) -> int:
        return prod(chunk_counts(self.shape, self.chunk_shape))

    @property
    def chunk_bytes(self) -> int:
        """Decoded bytes of a chunk."""
        return self.dtype.itemsize * prod(padded_shape(self.chunk_shape, self.block_shape))

    def array(self, manifest: ChunkManifest, trailer: bytes) -> VirtualArray:
        try:
            attrs: Mapping[str, Any] = vlmeta(trailer)
        except (UnicodeDecodeError, ValueError) as error:
            raise SourceFormatError(f"its trailer is damaged: {error}") from error
        endian = "big" if self.is_big_endian else "little"
        codec = Codec.of("gridref.b2nd", block_shape=list(self.block_shape), endian=endian)
        return VirtualArray.of_one_block(
            self.shape,
            self.dtype,
            encoding=Encoding(self.chunk_shape, self.dtype, (codec,)),
            manifest=manifest,
            dims=dimension_names(None, self.shape, {}),
            attrs=attributes_from_json(attrs, None),
        )


def _dtype(header: Blosc2Header) -> np.dtype[Any]:
    name = header.data_type()
    if name is None:
        raise UnsupportedFeatureError("it does not state a data type of numpy")
    try:
        dtype: np.dtype[Any] = np.dtype(name)
    except (SyntaxError, TypeError, ValueError) as error:
        raise UnsupportedFeatureError(f"the data type {name[:100]!r} is not read") from error
    if dtype.kind not in _KINDS or dtype.itemsize != header.item_bytes or dtype.itemsize == 0:
        raise UnsupportedFeatureError(f"the data type {name[:100]!r} is not read")
    check_element_size(dtype)
    return dtype


# Chunks


def _offsets(tail: bytes, frame: _Frame) -> Int64Array:
    """Offsets of the chunks, from the bytes that begin with them."""
    if frame.n_chunks == 0:
        return np.zeros(0, np.int64)
    try:
        return chunk_offsets(bytes(tail), frame.n_chunks).astype(np.int64)
    except (ValueError, RuntimeError) as error:
        raise SourceFormatError(f"the offsets of its chunks are damaged: {error}") from error


def _special(offsets: Int64Array, frame: _Frame) -> tuple[Any, bytes]:
    """The state of each chunk, and a chunk that decodes to NaN."""
    kinds = np.where(offsets < 0, special_kind(offsets), 0)  # type: ignore[arg-type]
    unknown = set(np.unique(kinds[offsets < 0]).tolist()) - {ZEROS, NANS, UNINITIALISED}
    if unknown:
        raise UnsupportedFeatureError(f"chunks of repeated values of kind {unknown}")
    state = np.where(offsets < 0, ChunkState.MISSING, ChunkState.RANGE)
    state[kinds == NANS] = ChunkState.INLINE
    if (kinds == NANS).any() and (frame.dtype.kind, frame.dtype.itemsize) not in (
        ("f", 4),
        ("f", 8),
    ):
        raise UnsupportedFeatureError(f"chunks of NaN in an array of {frame.dtype}")
    return state, _chunk_of_nan(frame)


def _chunk_of_nan(frame: _Frame) -> bytes:
    """A chunk that is nothing but its header, as C-Blosc2 writes it for repeated NaN."""
    sizes = np.array([frame.chunk_bytes, prod(frame.block_shape) * frame.dtype.itemsize, 32], "<u4")
    flags = bytes([5, 1, 5, frame.dtype.itemsize])
    return flags + sizes.tobytes() + bytes(15) + bytes([NANS << 4])


def _manifest(
    file: ScanFile, header: Blosc2Header, offsets: Int64Array, frame: _Frame
) -> ChunkManifest:
    """Rows of the chunks of a contiguous frame."""
    state, chunk_of_nan = _special(offsets, frame)
    stop = header.index_start - header.header_bytes
    stored = np.unique(offsets[offsets >= 0])
    if stored.size and int(stored[-1]) >= stop:
        raise SourceFormatError("a chunk is outside of its frame", Place(source=file.name))
    ends = np.append(stored[1:], stop)
    length = np.zeros_like(offsets)
    is_range = state == ChunkState.RANGE
    length[is_range] = (ends - stored)[np.searchsorted(stored, offsets[is_range])]
    length[state == ChunkState.INLINE] = len(chunk_of_nan)
    return ChunkManifest.from_columns(
        [file.source],
        offset=np.where(is_range, offsets + header.header_bytes, 0),
        length=length,
        state=state,
        inline=chunk_of_nan,
    )


def _files_of_chunks(files: StoreFiles, offsets: Int64Array, frame: _Frame) -> ChunkManifest:
    """Rows of the chunks of a sparse frame, whose offsets are numbers of files."""
    state, chunk_of_nan = _special(offsets, frame)
    keys = [f"{number:08X}.chunk" for number in np.maximum(offsets, 0).tolist()]
    found = whole_files(files, keys, "")
    absent = (state == ChunkState.RANGE) & (found.state == ChunkState.MISSING)
    if absent.any():
        raise SourceFormatError(f"the file {keys[int(np.argmax(absent))]} is not there")
    is_inline = state == ChunkState.INLINE
    return ChunkManifest.from_columns(
        found.sources,
        source=found.source,
        offset=np.zeros(len(keys), np.int64),
        length=np.where(is_inline, len(chunk_of_nan), found.length),
        state=state,
        inline=chunk_of_nan,
    )


# Attributes: the variable-length metadata in the trailer


_MOST_DEPTH = 32
_NUMBERS = {
    **dict(zip(range(0xCC, 0xD0), (">B", ">H", ">I", ">Q"), strict=True)),
    **dict(zip(range(0xD0, 0xD4), (">b", ">h", ">i", ">q"), strict=True)),
    0xCA: ">f",
    0xCB: ">d",
}
_SIZES = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I", 0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
_COUNTS = {0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}


class Unpacker:
    """Reads msgpack values one after the other; raises ValueError for what is damaged or unknown.

    Parameters
    ----------
    data
        The bytes.
    at
        The first byte to read.
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def take(self, n_bytes: int) -> bytes:
        if not 0 <= n_bytes <= len(self.data) - self.at:
            raise ValueError("msgpack ends too early")
        self.at += n_bytes
        return self.data[self.at - n_bytes : self.at]

    def number(self, form: str) -> Any:
        """The next number, in a form of `struct`."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def value(self, depth: int = 0) -> Any:
        """The next value."""
        if depth > _MOST_DEPTH:
            raise ValueError("msgpack is nested too deep")
        mark = self.number(">B")
        if mark < 0x80 or mark >= 0xE0:
            return mark - 256 if mark >= 0xE0 else mark
        if mark in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[mark]
        if mark in _NUMBERS:
            return self.number(_NUMBERS[mark])
        if mark in _SIZES or 0xA0 <= mark < 0xC0:
            text = self.take(self.number(_SIZES[mark]) if mark in _SIZES else mark & 31)
            return text if mark in (0xC4, 0xC5, 0xC6) else text.decode()
        n = self.number(_COUNTS[mark]) if mark in _COUNTS else mark & 15
        if mark in (0xDC, 0xDD) or 0x90 <= mark < 0xA0:
            return [self.value(depth + 1) for _ in range(n)]
        if mark in (0xDE, 0xDF) or 0x80 <= mark < 0x90:
            pairs = [(self.value(depth + 1), self.value(depth + 1)) for _ in range(n)]
            return {str(key): value for key, value in pairs}
        raise ValueError(f"msgpack of type {mark:#x} is not read")


def vlmeta(trailer: bytes) -> dict[str, Any]:
    """Attributes from the bytes that end with a trailer; those of unknown types are left out."""
    # It ends with its size (0xCE, uint32) and a fingerprint of 18 bytes.
    if len(trailer) < 23 or trailer[-23] != 0xCE:
        raise ValueError("the frame has no trailer")
    size = int.from_bytes(trailer[-22:-18], "big")
    if not 23 <= size <= len(trailer):
        raise ValueError(f"the trailer states {size} bytes")
    data = trailer[len(trailer) - size :]
    layers = Unpacker(data, 2)  # after the array of four, and the version
    if layers.number(">B") != 0x93:
        raise ValueError("the trailer has no vlmeta")
    layers.value()  # the size of the map
    places = layers.value()
    if not isinstance(places, dict):
        raise ValueError("the trailer has no vlmeta")
    return {name: value for name, at in places.items() for value in _content(data, at)}


def _content(data: bytes, at: Any) -> list[Any]:
    """The value of a layer; nothing if it is of a type that is not read."""
    stored = Unpacker(data, at if type(at) is int and at >= 0 else len(data)).value()
    if not isinstance(stored, bytes):
        raise ValueError("vlmeta is not where the trailer says")
    n_bytes = int.from_bytes(stored[4:8], "little")
    if n_bytes > limits().header_bytes:
        raise ValueError(f"vlmeta of {n_bytes} bytes")
    content = decoded_chunk(stored, n_bytes).tobytes()
    try:
        value = Unpacker(content).value()
    except ValueError:
        return []
    return [] if isinstance(value, bytes) or value is None else [value]
