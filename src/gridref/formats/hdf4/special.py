"""Read headers of special elements of HDF4: compressed, chunked and external ones.

Source: HDF Specification and Developer's Guide, "Extended Tags"; ``hcomp.c``, ``hchunks.c`` and
``hextelt.c`` of the library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gridref.codecs import why_not
from gridref.codecs.hdf4 import MOST_HUFFMAN_BYTES
from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf4.elements import (
    CHUNKED,
    COMPRESSED,
    COMPRESSION,
    EXTERNAL,
    LINKED,
    Cursor,
    Elements,
    Key,
)
from gridref.model.encoding import Codec

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
    shape, chunk_shape
        Lengths of the dimensions and of a chunk.
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
    if coder == _HUFFMAN and n_bytes <= MOST_HUFFMAN_BYTES:
        return (_decodable(Codec.of("gridref.hdf4_skphuff", skip=parameters[0])),)
    if coder == _SZIP:
        _, scanline, options, bits, block = parameters
        return (Codec.of("gridref.hdf4_szip", parameters=[options, block, bits, scanline]),)
    name = _REFUSED.get(coder, f"coder {coder}")
    if coder == _HUFFMAN:
        name = f"skipping Huffman in pieces of more than {MOST_HUFFMAN_BYTES} bytes"
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
