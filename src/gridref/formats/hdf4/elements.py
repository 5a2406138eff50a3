"""The data elements of an HDF4 file: their descriptors, places and bytes.

A file is a chain of descriptor blocks. Each descriptor names an element by a tag, which says what
it is, and a reference number, and gives its place. If bit 14 of the tag is set, the place holds a
special header, which says how the element is stored instead: in linked blocks, in an external file,
compressed, or in chunks. Everything is big-endian.

Source: HDF Specification and Developer's Guide, version 3.2 (NCSA) and 4.2 (The HDF Group),
chapters "Basic Structure of HDF Files", "Extended Tags" and "Tag Specifications"; ``hcomp.c``,
``hchunks.c`` and ``hextelt.c`` of the library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gridref.codecs import why_not
from gridref.errors import Place, SourceFormatError, UnsupportedFeatureError
from gridref.formats.metadata import decoded
from gridref.io import ScanFile
from gridref.limits import beyond, limits
from gridref.model.encoding import Codec

type Key = tuple[int, int]
"""Tag without the special bit, and reference number."""

LINKED_BLOCK, COMPRESSED, CHUNK, NUMBER_TYPE = 20, 40, 61, 106
DATA = 702
TABLE, TABLE_ROWS, GROUP = 1962, 1963, 1965
LINKED, EXTERNAL, COMPRESSION, CHUNKED = 1, 2, 3, 5
"""Kinds of special elements."""

_SPECIAL = 0x4000
_NO_TAG = 1
_NOWHERE = 0xFFFFFFFF
_DESCRIPTORS = np.dtype([("tag", ">u2"), ("ref", ">u2"), ("offset", ">u4"), ("length", ">u4")])
_USUAL_BLOCK_BYTES = 6 + 200 * 12
_MAX_BLOCKS = 1 << 17
"""Of linked blocks of an element; there are 65,535 reference numbers."""


class Where(NamedTuple):
    """The place of an element, or of its special header."""

    offset: int
    length: int
    is_special: bool


_EMPTY = Where(0, 0, False)
"""Of an element that was created and never written."""


class Run(NamedTuple):
    """Consecutive bytes of an element in the file; an `offset` of -1 stands for zeros."""

    offset: int
    length: int


class Elements:
    """The elements of a file.

    Parameters
    ----------
    head
        Its beginning.
    max_elements
        Most descriptors.
    """

    def __init__(self, file: ScanFile, head: bytes, max_elements: int) -> None:
        self.file = file
        self._head = head
        self._left = limits().reads_of(file.size)
        self._kept: dict[Run, bytes] = {}
        self.places: dict[Key, Where] = {}
        offset, seen = 4, 4
        while offset:
            start = self._at(offset, min(_USUAL_BLOCK_BYTES, file.size - offset), "descriptors")
            n_bytes = 6 + 12 * int.from_bytes(start[:2], "big")
            seen += n_bytes  # blocks do not overlap, so a chain that is longer is a circle
            if seen > file.size or len(start) < 6:
                raise self.error("descriptors are longer than the file", offset)
            block = start if n_bytes <= len(start) else self._at(offset, n_bytes, "descriptors")
            self._note(np.frombuffer(block[6:n_bytes], _DESCRIPTORS), offset)
            if len(self.places) > max_elements:
                raise self.error(f"there are more elements than max_objects, {max_elements}", 4)
            offset = int.from_bytes(block[2:6], "big")

    def _note(self, descriptors: np.ndarray[tuple[int], np.dtype[np.void]], offset: int) -> None:
        for tag, ref, start, length in descriptors.tolist():
            if tag == _NO_TAG:
                continue
            key = tag & ~_SPECIAL if tag < 0x8000 else tag, ref
            if key in self.places:
                raise self.error(f"there are two elements of tag {key[0]}, number {ref}", offset)
            written = _NOWHERE not in (start, length)
            self.places[key] = Where(start, length, key[0] != tag) if written else _EMPTY

    def error(self, reason: str, offset: int, length: int = 0) -> SourceFormatError:
        """An error about the structure of the file at a place."""
        return SourceFormatError(
            reason, Place(source=self.file.name, start=offset, stop=offset + length)
        )

    def _at(self, offset: int, length: int, what: str) -> bytes:
        run = Run(offset, length)
        return self._kept[run] if run in self._kept else self._read([run], what)[0]

    def keep(self, keys: Sequence[Key]) -> None:
        """Read small elements or special headers at once, which are wanted one by one later."""
        places = [self.places[key] for key in keys if key in self.places]
        runs = [Run(where.offset, where.length) for where in places]
        self._kept.update(zip(runs, self._read(runs, "elements"), strict=True))

    def _read(self, runs: Sequence[Run], what: str) -> list[bytes]:
        for run in runs:
            self._left -= run.length
            if run.offset + run.length > self.file.size or run.length < 0:
                raise self.error(f"{what} reach beyond the end of the file", *run)
            if self._left < 0:
                raise self.error(beyond("read_bytes", "reading the structure takes more bytes"), 0)
        if all(run.offset + run.length <= len(self._head) for run in runs):
            return [self._head[start : start + length] for start, length in runs]
        return self.file.read_many([run.offset for run in runs], [run.length for run in runs])

    def of_tag(self, tag: int) -> list[int]:
        """The reference numbers of elements, ascending."""
        return sorted(ref for each, ref in self.places if each == tag)

    def special(self, key: Key) -> tuple[int, Cursor] | None:
        """Kind and header of a special element; None for others."""
        where = self.where(key)
        if not where.is_special:
            return None
        cursor = Cursor(self, self._at(where.offset, where.length, "special headers"), where.offset)
        return cursor.number(2), cursor

    def headers(self, keys: Sequence[Key], n_bytes: int) -> list[bytes]:
        """The beginnings of several special headers."""
        runs = [Run(self.where(key).offset, n_bytes) for key in keys]
        return self._read(runs, "special headers")

    def read(self, keys: Sequence[Key]) -> list[bytes]:
        """The bytes of elements, which may be in linked blocks; none for one that has no data."""
        return self._joined([self.runs(key) if key in self.places else [] for key in keys])

    def small(self, key: Key) -> bytes:
        """The bytes of an element that is whole."""
        where = self.where(key)
        return self._at(where.offset, where.length, "elements")

    def joined(self, runs: Sequence[Run]) -> bytes:
        """The bytes of the runs of an element."""
        return self._joined([runs])[0]

    def _joined(self, elements: Sequence[Sequence[Run]]) -> list[bytes]:
        """The bytes of each element, all read at once."""
        parts = iter(
            self._read([run for runs in elements for run in runs if run.offset >= 0], "data")
        )
        return [
            b"".join([next(parts) if run.offset >= 0 else bytes(run.length) for run in runs])
            for runs in elements
        ]

    def where(self, key: Key) -> Where:
        """The place of an element, which must be there."""
        where = self.places.get(key)
        if where is None:
            raise self.error(f"element {key[1]} of tag {key[0]} is not in the file", 4)
        return where

    def runs(self, key: Key) -> list[Run]:
        """The places of the bytes of an element that is whole or in linked blocks."""
        where = self.where(key)
        special = self.special(key)
        if special is None:
            return [Run(where.offset, where.length)]
        kind, header = special
        if kind != LINKED:
            raise self.error(f"an element of tag {key[0]} is special, of kind {kind}", *where[:2])
        left, block_bytes, _, table = (header.number(n) for n in (4, 4, 4, 2))
        runs: list[Run] = []
        refs = self._block_refs(table, *where[:2]) if left else []
        for ref in refs:
            block = self.places.get((LINKED_BLOCK, ref))
            if block is None and ref:
                raise header.error(f"names linked block {ref}, which is not there")
            # Only the first one may differ: it is the element as it was before it grew.
            n_bytes = block_bytes if runs or block is None else block.length
            n_bytes = min(left, n_bytes)
            if block is not None and block.length < n_bytes:
                raise header.error(f"names linked block {ref} of only {block.length} bytes")
            offset = -1 if block is None else block.offset
            if runs and offset >= 0 and runs[-1].offset >= 0 and sum(runs[-1]) == offset:
                runs[-1] = Run(runs[-1].offset, runs[-1].length + n_bytes)
            else:
                runs.append(Run(offset, n_bytes))
            left -= n_bytes
            if not left:
                return runs
        if left:
            raise header.error(f"names linked blocks that lack {left} bytes")
        return runs

    def _block_refs(self, table: int, offset: int, length: int) -> list[int]:
        """The numbers of linked blocks in a chain of tables; 0 for blocks that are not stored."""
        refs: list[int] = []
        tables = set[int]()
        while table and table not in tables and len(refs) < _MAX_BLOCKS:
            tables.add(table)
            where = self.places.get((LINKED_BLOCK, table))
            if where is None:
                raise self.error(f"linked blocks lack their table {table}", offset, length)
            numbers = np.frombuffer(
                self._at(where.offset, where.length // 2 * 2, "tables of linked blocks"), ">u2"
            ).tolist()
            table = (numbers or [0])[0]
            refs += numbers[1:]
        return refs


class Cursor:
    """Takes the fields of an element one after the other."""

    def __init__(self, elements: Elements, data: bytes, offset: int) -> None:
        self._elements = elements
        self._data = data
        self._offset = offset
        self._position = 0

    def error(self, reason: str) -> SourceFormatError:
        """An error about the element."""
        return self._elements.error(f"an element {reason}", self._offset, len(self._data))

    def take(self, n_bytes: int) -> bytes:
        start, self._position = self._position, self._position + n_bytes
        if self._position > len(self._data):
            raise self.error("is cut off")
        return self._data[start : self._position]

    def number(self, n_bytes: int) -> int:
        """The next bytes as an unsigned number."""
        return int.from_bytes(self.take(n_bytes), "big")

    def numbers(self, count: int) -> list[int]:
        """Numbers of two bytes."""
        return np.frombuffer(self.take(2 * count), ">u2").tolist()

    def text(self) -> str:
        """A text behind its length."""
        return text_of(self.take(self.number(2)))


def text_of(raw: bytes) -> str:
    """Text up to the first zero."""
    return decoded(raw.partition(b"\0")[0])


# Headers of special elements: compressed, chunked and external ones


CHUNK_HEADER = np.dtype(
    [
        ("kind", ">u2"),
        ("version", ">u2"),
        ("n_bytes", ">u4"),
        ("ref", ">u2"),
        ("model", ">u2"),
        ("coder", ">u2"),
    ]
)
"""The header of a compressed element without the parameters of the coder."""
_MAX_RANK = 32
_NO_CODER, _RLE, _NBIT, _HUFFMAN, _DEFLATE, _SZIP = range(6)
_REFUSED = {7: "JPEG"}
_PARAMETERS = {_NBIT: (4, 2, 2, 4, 4), _HUFFMAN: (4, 4), _SZIP: (4, 4, 4, 1, 1)}
"""Sizes of the numbers behind the coder."""
_NUMBER_BYTES = {3: 1, 4: 1, 5: 4, 6: 8, 20: 1, 21: 1, 22: 2, 23: 2, 24: 4, 25: 4}
"""Bytes of numbers by their type, without the flags of byte orders."""
_COMPRESSED_CHUNKS = 3


@dataclass(frozen=True, slots=True)
class Compression:
    """A compressed element: its size when decoded, the element of its bytes, and the codecs."""

    n_bytes: int
    data: Key
    codecs: tuple[Codec, ...]


@dataclass(frozen=True, slots=True)
class Chunks:
    """An element in chunks.

    Attributes
    ----------
    n_bytes
        Size of all elements.
    table
        Number of the Vdata that lists the chunks.
    fill
        The element that absent chunks hold, as it is stored.
    is_compressed
        Whether each chunk is a compressed element.
    """

    n_bytes: int
    table: int
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    fill: bytes
    is_compressed: bool


@dataclass(frozen=True, slots=True)
class ExternalData:
    """Bytes in another file."""

    n_bytes: int
    offset: int
    name: str


def compression_of(header: Cursor) -> Compression:
    """Read the header of a compressed element, behind its kind."""
    _, n_bytes, ref, model, coder = (header.number(n) for n in (2, 4, 2, 2, 2))
    if model != 0:
        raise UnsupportedFeatureError(f"it is compressed by the unknown model {model}")
    parameters = [header.number(size) for size in _PARAMETERS.get(coder, ())]
    return Compression(n_bytes, (COMPRESSED, ref), codecs_of(coder, parameters, n_bytes))


def codecs_of(coder: int, parameters: Sequence[int], n_bytes: int) -> tuple[Codec, ...]:
    """The codecs of a coder, of data that decode to so many bytes."""
    if coder == _NO_CODER:
        return ()
    if coder == _DEFLATE:
        return (Codec.of("numcodecs.zlib", level=1),)
    if coder == _RLE:
        return (Codec.of("gridref.hdf4_rle"),)
    if coder == _NBIT:
        return (_nbit(*parameters),)
    if coder == _HUFFMAN:
        if n_bytes > limits().huffman_bytes:
            said = f"its data are compressed by skipping Huffman in pieces of {n_bytes} bytes"
            raise UnsupportedFeatureError(beyond("huffman_bytes", said))
        return (_decodable(Codec.of("gridref.hdf4_skphuff", skip=parameters[0])),)
    if coder == _SZIP:
        _, scanline, options, bits, block = parameters
        return (Codec.of("gridref.hdf4_szip", parameters=[options, block, bits, scanline]),)
    name = _REFUSED.get(coder, f"coder {coder}")
    raise UnsupportedFeatureError(
        f"its data are compressed by {name} of HDF4, for which there is no codec"
    )


def _nbit(number_type: int, sign: int, ones: int, start_bit: int, n_bits: int) -> Codec:
    codec = Codec.of(
        "gridref.hdf4_nbit",
        element_bytes=_NUMBER_BYTES.get(number_type & 0xFF, 0),
        start_bit=start_bit,
        n_bits=n_bits,
        sign_extended=bool(sign),
        fill_ones=bool(ones),
    )
    return _decodable(codec)


def _decodable(codec: Codec) -> Codec:
    """A codec with parameters that make sense."""
    reason = why_not(codec)
    if reason is not None:
        raise SourceFormatError(f"the parameters of its compression are damaged: {reason}")
    return codec


def compressed_chunks(
    elements: Elements, chunks: Sequence[Key], n_bytes: int
) -> tuple[list[Key], tuple[Codec, ...]]:
    """The elements of the bytes of compressed chunks, and the codecs of all."""
    n_fixed = CHUNK_HEADER.itemsize
    fields = np.frombuffer(b"".join(elements.headers(chunks, n_fixed)), CHUNK_HEADER)
    coders = np.unique(fields["coder"])
    if any(fields["kind"] != COMPRESSION) or fields["model"].any() or len(coders) > 1:
        raise UnsupportedFeatureError("its chunks are compressed in different ways")
    if any(fields["n_bytes"] != n_bytes):
        raise SourceFormatError(f"its chunks do not decode to {n_bytes} bytes")
    sizes = _PARAMETERS.get(int(coders[0]), ())
    stated = {b""}
    if sizes:
        stated = {header[n_fixed:] for header in elements.headers(chunks, n_fixed + sum(sizes))}
    if len(stated) > 1:
        raise UnsupportedFeatureError("its chunks are compressed with different parameters")
    rest, parameters = stated.pop(), []
    for size in sizes:
        parameters.append(int.from_bytes(rest[:size], "big"))
        rest = rest[size:]
    keys: list[Key] = [(COMPRESSED, ref) for ref in fields["ref"].tolist()]
    return keys, codecs_of(int(coders[0]), parameters, n_bytes)


def chunks_of(header: Cursor) -> Chunks:
    """Read the header of an element in chunks, behind its kind."""
    _, version, flags, count, _, item_bytes, _, table = (
        header.number(n) for n in (4, 1, 4, 4, 4, 4, 2, 2)
    )
    header.number(4)  # tag and number of a second table, which was never used
    rank = header.number(4)
    if version != 0 or not 0 < rank <= _MAX_RANK:
        raise header.error(f"has chunks of version {version} and rank {rank}")
    lengths = [tuple(header.number(4) for _ in range(3)) for _ in range(rank)]
    fill = header.take(header.number(4))
    shape, chunk_shape = (tuple(each[n] for each in lengths) for n in (1, 2))
    if min(chunk_shape) < 1:
        raise header.error(f"has chunks of shape {chunk_shape}")
    is_compressed = flags & 0xFF == _COMPRESSED_CHUNKS
    return Chunks(count * item_bytes, table, shape, chunk_shape, fill, is_compressed)


def external_data(header: Cursor) -> ExternalData:
    """Read the header of an external element, behind its kind."""
    n_bytes, offset, n_name = (header.number(4) for _ in range(3))
    return ExternalData(
        n_bytes, offset, header.take(n_name).rstrip(b"\0").decode("utf-8", "replace")
    )


def logical_bytes(elements: Elements, key: Key) -> int:
    """The size of the data of an element, however it is stored."""
    special = elements.special(key)
    if special is None:
        return elements.places[key].length
    kind, header = special
    if kind in (LINKED, EXTERNAL):
        return header.number(4)
    if kind == COMPRESSION:
        return compression_of(header).n_bytes
    if kind == CHUNKED:
        return chunks_of(header).n_bytes
    raise UnsupportedFeatureError(f"its data are a special element of kind {kind}")
