"""Headers of special elements of HDF4: compressed, chunked and external ones.

Source: HDF Specification and Developer's Guide, "Extended Tags"; ``hcomp.c``, ``hchunks.c`` and
``hextelt.c`` of the library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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
_REFUSED = {1: "run-length encoding", 2: "n-bit", 3: "skipping Huffman", 5: "szip", 7: "JPEG"}
_NO_CODER, _DEFLATE = 0, 4
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
    return Compression(n_bytes, (COMPRESSED, ref), codecs_of(coder))


def codecs_of(coder: int) -> tuple[Codec, ...]:
    """The codecs of a coder.

    Raises
    ------
    UnsupportedFeatureError
        If there is none for it.
    """
    if coder == _NO_CODER:
        return ()
    if coder == _DEFLATE:
        return (Codec.of("numcodecs.zlib", level=1),)
    name = _REFUSED.get(coder, f"coder {coder}")
    raise UnsupportedFeatureError(
        f"its data are compressed by {name} of HDF4, for which there is no codec"
    )


def compressed_chunks(
    headers: Sequence[bytes], n_bytes: int
) -> tuple[list[Key], tuple[Codec, ...]]:
    """The elements of the bytes of compressed chunks, and the codecs of all."""
    fields = np.frombuffer(b"".join(headers), CHUNK_HEADER)
    coders = np.unique(fields["coder"])
    if any(fields["kind"] != COMPRESSION) or fields["model"].any() or len(coders) > 1:
        raise UnsupportedFeatureError("its chunks are compressed in different ways")
    if any(fields["n_bytes"] != n_bytes):
        raise SourceFormatError(f"its chunks do not decode to {n_bytes} bytes")
    return [(COMPRESSED, ref) for ref in fields["ref"].tolist()], codecs_of(int(coders[0]))


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
