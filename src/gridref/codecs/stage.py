"""The contract of a codec with the pipeline: how it is resolved, and the sizes that it states.

A codec is resolved into a plain function once for each encoding and chunk shape (see
`gridref.codecs.pipeline`), which saves all look-ups for each chunk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gridref.limits import beyond, limits

type Raw = bytes | bytearray | memoryview | NDArray[np.uint8]
"""One-dimensional bytes: ``len`` is the size in bytes."""

type BytesDecode = Callable[[Raw], Raw]
"""Undoes a bytes -> bytes codec."""

type SerialDecode = Callable[[Raw], NDArray[Any]]
"""Undoes an array -> bytes codec."""

type ArrayDecode = Callable[[NDArray[Any]], NDArray[Any]]
"""Undoes an array -> array codec."""

type Check = Callable[[Raw, int], None]
"""Compares stored bytes with the number that claims what they are."""

type Fill = Callable[[Raw, memoryview], Raw]
"""Decodes bytes into memory of exactly their decoded size; returns the written part of it."""

type Together = Callable[[NDArray[np.uint8]], NDArray[np.uint8]]
"""Decodes the bytes of many chunks of one size, (chunks, bytes)."""

type Config = Mapping[str, Any]
"""A codec's configuration, decoded from JSON."""


@dataclass(frozen=True)
class ArraySpec:
    """Shape and dtype, in native byte order, of an array between two codecs."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def n_bytes(self) -> int:
        """Size of all elements in bytes."""
        return self.size * self.dtype.itemsize


def _no_problem(config: Config) -> str | None:
    return None


def _unknown_size(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> int | None:
    return None


def same_bytes(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> int | None:
    """Stored size of a codec that keeps the size."""
    return decoded_bytes


def four_more_bytes(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> int | None:
    """Stored size of a codec that puts a checksum of 32 bits before or after the bytes."""
    return None if decoded_bytes is None else decoded_bytes + 4


def most_bytes(decoded_bytes: int | None) -> int:
    """The number of bytes that a stage may produce."""
    return limits().decoded_bytes if decoded_bytes is None else decoded_bytes


def too_large(what: str, max_bytes: int) -> ValueError:
    """The error about more bytes than `most_bytes` says, which may be those of the array."""
    is_limit = max_bytes == limits().decoded_bytes
    return ValueError(beyond("decoded_bytes", what) if is_limit else what)


def need(raw: Raw, n_bytes: int, what: str = "a header") -> None:
    """Refuse bytes that are too few for what they begin or end with."""
    if len(raw) < n_bytes:
        raise ValueError(f"{len(raw)} bytes are too few for {what}")


def stated_size(said: int, decoded_bytes: int | None) -> int:
    """The decoded size that a header states, which must be that of the array, and within limits."""
    what = f"header says {said} bytes are decoded"
    if decoded_bytes not in (None, said):
        raise ValueError(f"{what}, expected {decoded_bytes}")
    if said > limits().decoded_bytes:
        raise ValueError(beyond("decoded_bytes", what))
    return said


def _same_spec(config: Config, spec: ArraySpec) -> ArraySpec:
    return spec


def _unknown_serial_size(config: Config, spec: ArraySpec) -> int | None:
    return None


@dataclass(frozen=True)
class BytesCodec:
    """A bytes -> bytes codec.

    Attributes
    ----------
    decoder
        Makes the decoding function from the configuration, the size in bytes that it must produce
        (None if unknown) and the array that the whole chain of bytes encodes.
    stored_bytes
        Size in bytes of the encoded form of so many decoded bytes, if it is determined.
    required
        Keys that the configuration must have.
    problem
        Returns the reason why a configuration cannot be decoded; None if it can.
    filler
        Makes the function that decodes into given memory, which saves a copy into the output; None
        for a codec that cannot.
    together
        Makes the function that decodes many chunks at once; None for a codec that gains nothing.
    """

    decoder: Callable[[Config, int | None, ArraySpec], BytesDecode]
    stored_bytes: Callable[[Config, int | None, ArraySpec], int | None] = _unknown_size
    required: tuple[str, ...] = ()
    problem: Callable[[Config], str | None] = _no_problem
    filler: Callable[[Config, ArraySpec], Fill] | None = None
    together: Callable[[Config], Together] | None = None


@dataclass(frozen=True)
class SerialCodec:
    """An array -> bytes codec.

    Attributes
    ----------
    decoder
        Makes the function that turns bytes into an array of the given shape and dtype.
    stored_bytes
        Size in bytes of the encoded form of such an array, if it is determined.
    required, problem
        As for `BytesCodec`.
    check
        Raises if bytes are not those that a chunk's number claims. At the end of a chain,
        the filter mask of a chunk is that number; 0 claims nothing.
    """

    decoder: Callable[[Config, ArraySpec], SerialDecode]
    stored_bytes: Callable[[Config, ArraySpec], int | None] = _unknown_serial_size
    required: tuple[str, ...] = ()
    problem: Callable[[Config], str | None] = _no_problem
    check: Check | None = None


@dataclass(frozen=True)
class ArrayCodec:
    """An array -> array codec.

    Attributes
    ----------
    decoder
        Makes the decoding function from the configuration and the array that it must produce.
    stored
        Shape and dtype of the encoded form of an array.
    required, problem
        As for `BytesCodec`.
    """

    decoder: Callable[[Config, ArraySpec], ArrayDecode]
    stored: Callable[[Config, ArraySpec], ArraySpec] = _same_spec
    required: tuple[str, ...] = ()
    problem: Callable[[Config], str | None] = _no_problem


type AnyCodec = ArrayCodec | SerialCodec | BytesCodec
"""A codec of any kind."""


def as_u1(raw: Raw) -> NDArray[np.uint8]:
    """View bytes as an array of uint8, without a copy."""
    return raw if isinstance(raw, np.ndarray) else np.frombuffer(raw, np.uint8)


def without_unit_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without axes of length 1: they come and go when files are stacked."""
    return tuple(extent for extent in shape if extent != 1)


def as_bytes(raw: Raw) -> bytes:
    """Turn into ``bytes``, for libraries that take nothing else; a copy unless it is already."""
    return raw if isinstance(raw, bytes) else bytes(raw)


class DecompressionStream(Protocol):
    """The common interface of the standard library's decompressors."""

    @property
    def eof(self) -> bool:
        """Whether the end of the stream was reached."""
        ...

    @property
    def unused_data(self) -> bytes:
        """The bytes after the end of the stream."""
        ...

    def decompress(self, data: Raw, max_length: int = -1, /) -> bytes:
        """The next decoded bytes, at most so many."""
        ...


def decompressed(
    start: Callable[[], DecompressionStream],
    raw: Raw,
    max_bytes: int,
    goes_on: Callable[[bytes], bool] = bool,
) -> bytes:
    """Decompress the streams that follow each other in `raw`.

    Parameters
    ----------
    start
        Makes the decompressor of a stream.
    max_bytes
        Most bytes that they may hold in all.
    goes_on
        Whether another stream begins with the bytes after one.
    """
    rest: Raw = raw
    parts: list[bytes] = []
    size = 0
    while not parts or goes_on(bytes(rest)):
        stream = start()
        # One byte more than wanted reveals a stream that is too long.
        parts.append(stream.decompress(rest, max_bytes - size + 1))
        size += len(parts[-1])
        if size > max_bytes:
            raise too_large(f"decompresses to more than {max_bytes} bytes", max_bytes)
        if not stream.eof:
            raise ValueError("compressed stream is cut short")
        rest = stream.unused_data
    return b"".join(parts)
