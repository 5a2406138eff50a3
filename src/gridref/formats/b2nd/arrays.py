"""Turn a Blosc2 array into a virtual array.

A frame has a header, which states shapes and data type, the chunks, their offsets (compressed), and
a trailer with attributes. A scan reads all but the chunks. How long a chunk is, it says itself: its
range reaches to the next one.

Sources: C-Blosc2, ``README_CFRAME_FORMAT.rst``, ``README_SFRAME_FORMAT.rst`` and
``README_B2ND_METALAYER.rst``.
"""

from __future__ import annotations

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
    padded_shape,
    special_kind,
)
from gridref.errors import Place, SourceFormatError, UnsupportedFeatureError
from gridref.formats.b2nd.vlmeta import vlmeta
from gridref.formats.chunk_files import StoreFiles, whole_files
from gridref.formats.damage import check_element_size
from gridref.formats.findings import Findings
from gridref.formats.json_metadata import attributes_from_json, dimension_names
from gridref.formats.options import ScanOptions
from gridref.io import ScanFile
from gridref.limits import beyond, limits
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Codec, Encoding
from gridref.model.manifest import ChunkManifest, ChunkState
from gridref.model.scan_report import Fate
from gridref.typing import Int64Array

_FRAME = "chunks.b2frame"
_KINDS = "biufcSU"
_MOST_DIMENSIONS = 16
_COMPUTED = ("b2o", "LazyArray", "proxy-source")
"""Layers of arrays whose values are computed from others, or are elsewhere."""


def scan_file(file: ScanFile, head: bytes, name: str, options: ScanOptions) -> VirtualGroup:
    """Describe a contiguous frame; `head` is its beginning.

    Raises as `gridref.formats.scan` does.
    """
    findings = Findings(file.name)
    arrays: dict[str, VirtualArray] = {}
    with findings.refusing(f"/{name}"):
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
        arrays[name] = frame.array(_manifest(file, header, offsets, frame), bytes(tail))
        findings.note(f"/{name}", Fate.TAKEN)
    return VirtualGroup(arrays, report=findings.report(options))


def scan_folder(files: StoreFiles, name: str, options: ScanOptions) -> VirtualGroup:
    """Describe a sparse frame: a folder with a file for each chunk. Raises as `scan_file` does."""
    findings = Findings(files.url)
    arrays: dict[str, VirtualArray] = {}
    with findings.refusing(f"/{name}"):
        data = files.get(_FRAME)
        if data is None:
            raise SourceFormatError(f"it holds no {_FRAME}")
        header = _parsed(data)
        frame = _Frame.of(header)
        # No chunks are between the header and the offsets.
        tail = data[header.header_bytes :]
        offsets = _offsets(tail, frame)
        arrays[name] = frame.array(_files_of_chunks(files, offsets, frame), tail)
        findings.note(f"/{name}", Fate.TAKEN)
    return VirtualGroup(arrays, report=findings.report(options))


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
        """Check a header.

        Raises
        ------
        SourceFormatError
            If it contradicts itself.
        UnsupportedFeatureError
            If it describes no array, or one of another data type.
        """
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
        return prod(-(-n // c) for n, c in zip(self.shape, self.chunk_shape, strict=True))

    @property
    def chunk_bytes(self) -> int:
        """Decoded bytes of a chunk."""
        return self.dtype.itemsize * prod(padded_shape(self.chunk_shape, self.block_shape))

    def array(self, manifest: ChunkManifest, trailer: bytes) -> VirtualArray:
        """The array with these chunks."""
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
