"""The codec chain of an encoding, resolved once and run for each stored chunk.

`decode_chunk` takes the bytes of a stored chunk and its encoding, and returns the elements.
`why_not` says why a codec cannot be decoded.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.codecs.stage import (
    AnyCodec,
    ArrayCodec,
    ArrayDecode,
    ArraySpec,
    BytesCodec,
    BytesDecode,
    Check,
    Fill,
    Raw,
    SerialCodec,
    SerialDecode,
)
from gridref.errors import DecodeError, number_of
from gridref.extras import plugins
from gridref.model.encoding import Codec, Encoding, bytes_codec

# Codecs by name

GROUP = "gridref.codecs"
"""The entry-point group by which other packages add codecs: the name is the codec's."""


_MODULES = (
    *("core", "arithmetic", "numcodecs_codecs", "hdf4", "hdf5", "tiff", "fits", "grib", "n5"),
    *("blosc2", "jpeg2000", "precomputed"),
)
"""Modules with a table ``CODECS`` of gridref's own codecs by name."""


@cache
def own_codecs() -> Mapping[str, AnyCodec]:
    """Gridref's own codecs by name.

    Opening a catalog needs no codec: their modules are loaded for the first chunk.
    """
    tables = (import_module(f"gridref.codecs.{module}").CODECS for module in _MODULES)
    return {name: codec for table in tables for name, codec in table.items()}


def codec_named(name: str) -> AnyCodec | None:
    """The codec of a name, which says how to decode it; None if it is unknown.

    Raises
    ------
    InvalidRequestError
        If a codec of another package cannot be used; the error names the package.
    """
    own = own_codecs().get(name)
    if own is not None:
        return own
    from gridref.codecs.numcodecs_codecs import fallback

    return fallback(name) or _added(name)


@cache
def _added(name: str) -> AnyCodec | None:
    """The codec that another package adds."""
    plugin = plugins(GROUP, frozenset(own_codecs())).get(name)
    if plugin is None:
        return None
    codec = plugin.load()
    if not isinstance(codec, ArrayCodec | SerialCodec | BytesCodec):
        raise plugin.broken("it is no ArrayCodec, SerialCodec or BytesCodec of gridref.codecs")
    return codec


def why_not(codec: Codec) -> str | None:
    """Say why `codec` cannot be decoded.

    Returns
    -------
    str or None
        The reason, with the codec's name; None if it can be decoded.
    """
    kind = codec_named(codec.name)
    if kind is None:
        return f"codec {codec.name}: no decoder is known"
    missing = [key for key in kind.required if key not in codec.configuration]
    if missing:
        return f"codec {codec.name}: configuration lacks {', '.join(missing)}"
    problem = kind.problem(codec.configuration)
    return None if problem is None else f"codec {codec.name}: {problem}"


# The chain of an encoding

type _BytesStage = tuple[str, BytesDecode, int | None]
"""Name, function and output size of a bytes -> bytes codec."""


@dataclass(frozen=True)
class _Pipeline:
    """A codec chain for one chunk shape and filter mask, in the order of decoding.

    Attributes
    ----------
    prefix
        Bytes to put before the stored ones.
    stored_bytes
        Size that the stored bytes must have, if it is determined.
    fill
        Decodes the last bytes -> bytes codec into given memory; None if it cannot, or if its output
        is not in the order of the elements.
    check
        Compares stored bytes with a claim about them; None for codecs that know of none.
    """

    prefix: bytes
    stored_bytes: int | None
    bytes_stages: tuple[_BytesStage, ...]
    serial_stage: tuple[str, SerialDecode]
    array_stages: tuple[tuple[str, ArrayDecode], ...]
    spec: ArraySpec
    fill: Fill | None
    check: Check | None

    def compare(self, data: bytes | memoryview, claim: int) -> None:
        """Raise unless stored bytes are what a claim says, if there is one."""
        if claim and self.check is not None:
            try:
                self.check(data, claim)
            except ValueError as error:
                raise DecodeError(f"codec {self.serial_stage[0]}: {error}") from error

    def run(self, data: bytes | memoryview, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Decode one chunk, into `out` if possible."""
        raw: Raw = data
        if isinstance(data, memoryview) and (data.format != "B" or data.ndim != 1):
            raw = data.cast("B")
        if self.prefix:
            raw = self.prefix + bytes(raw)
        name, _ = self.serial_stage
        try:
            if self.stored_bytes is not None and len(raw) != self.stored_bytes:
                name = self.bytes_stages[0][0] if self.bytes_stages else name
                raise ValueError(f"has {number_of(len(raw), 'byte')}, expected {self.stored_bytes}")
            for name, decode, n_bytes in self._stages_into(out):  # noqa: B007 (the error names it)
                raw = decode(raw)
                if n_bytes is not None and len(raw) != n_bytes:
                    raise ValueError(
                        f"decodes to {number_of(len(raw), 'byte')}, expected {n_bytes}"
                    )
            if out is not None and self.fill is not None:
                return out
            name, to_array = self.serial_stage
            values = to_array(raw)
            for name, convert in self.array_stages:  # noqa: B007
                values = convert(values)
            if values.shape != self.spec.shape:
                raise ValueError(f"decodes to shape {values.shape}, expected {self.spec.shape}")
            if values.dtype != self.spec.dtype:
                raise ValueError(f"decodes to dtype {values.dtype}, expected {self.spec.dtype}")
        except Exception as error:  # each of the many decoders has its own exceptions
            text = str(error) or type(error).__name__
            if isinstance(error, MemoryError):
                text = "there is not enough memory to decode it"
            raise DecodeError(f"codec {name}: {text}") from error
        return values

    def _stages_into(self, out: NDArray[Any] | None) -> Sequence[_BytesStage]:
        """The bytes -> bytes codecs; the last one writes to `out` if it can."""
        fill = self.fill
        if out is None or fill is None:
            return self.bytes_stages
        flat = out.reshape(-1).view(np.uint8).data
        *others, (name, _, n_bytes) = self.bytes_stages
        return [*others, (name, lambda raw: fill(raw, flat), n_bytes)]


def _split(encoding: Encoding) -> tuple[tuple[Codec, ...], Codec, tuple[Codec, ...]]:
    """The chain as (array -> array codecs, array -> bytes codec, bytes -> bytes codecs)."""
    for codec in encoding.codecs:
        reason = why_not(codec)
        if reason is not None:
            raise DecodeError(reason)
    for position, codec in enumerate(encoding.codecs):
        if isinstance(codec_named(codec.name), SerialCodec):
            return encoding.codecs[:position], codec, encoding.codecs[position + 1 :]
    names = [codec.name for codec in encoding.codecs]
    raise DecodeError(f"codec chain {names} has no array -> bytes codec")


def _of_kind[Kind](kind: type[Kind], name: str) -> Kind:
    codec = codec_named(name)
    if not isinstance(codec, kind):
        raise KeyError(name)
    return codec


@lru_cache(maxsize=4096)
def _resolve(encoding: Encoding, shape: tuple[int, ...], filter_mask: int) -> _Pipeline:
    """Resolve the chain of `encoding` for chunks of the given shape and filter mask."""
    array_codecs, serial_codec, bytes_codecs = _split(encoding)
    name = ""
    try:
        spec = ArraySpec(shape, encoding.dtype)
        array_stages = []
        for codec in array_codecs:
            name = codec.name
            kind = _of_kind(ArrayCodec, name)
            array_stages.append((name, kind.decoder(codec.configuration, spec)))
            spec = kind.stored(codec.configuration, spec)
        name = serial_codec.name
        serial = _of_kind(SerialCodec, name)
        to_array = serial.decoder(serial_codec.configuration, spec)
        n_bytes = serial.stored_bytes(serial_codec.configuration, spec)
        bytes_stages: list[_BytesStage] = []
        fill = None
        for position, codec in enumerate(bytes_codecs):
            if filter_mask >> position & 1:
                continue
            name = codec.name
            step = _of_kind(BytesCodec, name)
            decode = step.decoder(codec.configuration, n_bytes, spec)
            if not bytes_stages and step.filler is not None and _lies_as_decoded(encoding, n_bytes):
                fill = step.filler(codec.configuration, spec)
            bytes_stages.append((name, decode, n_bytes))
            n_bytes = step.stored_bytes(codec.configuration, n_bytes, spec)
    except KeyError as error:
        raise DecodeError(f"codec {name} is at the wrong place in its chain") from error
    except Exception as error:
        raise DecodeError(f"codec {name}: {error}") from error
    return _Pipeline(
        encoding.prefix,
        n_bytes,
        tuple(reversed(bytes_stages)),
        (serial_codec.name, to_array),
        tuple(reversed(array_stages)),
        ArraySpec(shape, encoding.dtype),
        fill,
        None if bytes_codecs else serial.check,
    )


def _lies_as_decoded(encoding: Encoding, n_bytes: int | None) -> bool:
    """Whether the output of the bytes -> bytes codecs is the elements as they are in memory."""
    return (
        bool(n_bytes)
        and encoding.dtype.kind in "biufc"
        and sys.byteorder == "little"
        and encoding.codecs[0] == bytes_codec(encoding.dtype)
    )


def decode_chunk(
    data: bytes | memoryview,
    encoding: Encoding,
    shape: tuple[int, ...] | None = None,
    filter_mask: int = 0,
    out: NDArray[Any] | None = None,
) -> np.ndarray[Any, Any]:
    """Turn the bytes of one stored chunk into its elements.

    Threads may decode at the same time: the decoders hold no state and release the GIL.

    Parameters
    ----------
    data
        The stored bytes.
    encoding
        Their encoding.
    shape
        Shape of the stored chunk if it is not ``encoding.chunk_shape`` (truncated edges).
    filter_mask
        Bit ``i`` means that the ``i``-th bytes -> bytes codec was not applied to this chunk. At the
        end of a chain, a `SerialCodec` with a check compares the bytes with it instead.
    out
        Memory that the elements may be decoded into, which spares a copy: C-contiguous, of the
        chunk's shape and dtype. It holds them if it is the result; else it may hold anything.

    Returns
    -------
    numpy.ndarray
        Elements of dtype ``encoding.dtype`` and shape `shape`. It may be read-only, and have any
        strides.

    Raises
    ------
    DecodeError
        If the bytes are not what the codec chain produces, or a codec cannot be decoded.
    """
    shape = encoding.chunk_shape if shape is None else shape
    if not filter_mask or not _is_claim(encoding):
        return _resolve(encoding, shape, filter_mask).run(data, out)
    pipeline = _resolve(encoding, shape, 0)
    pipeline.compare(data, filter_mask)
    return pipeline.run(data, out)


def decode_together(
    data: Sequence[bytes | memoryview], encoding: Encoding, shape: tuple[int, ...]
) -> NDArray[Any]:
    """Turn many small stored chunks into elements, with few calls a chunk.

    Parameters
    ----------
    data
        The stored bytes of each.
    encoding
        Of all of them; it begins with ``bytes``.
    shape
        Of each of them.

    Returns
    -------
    numpy.ndarray
        The elements, (chunks, ``*shape``).

    Raises
    ------
    DecodeError
        If the bytes are not what the codec chain produces.
    """
    serial, *coded = encoding.codecs
    found: Sequence[Raw] = data
    name = serial.name
    try:
        for (name, decode, n_bytes), codec in zip(
            _resolve(encoding, shape, 0).bytes_stages, reversed(coded), strict=True
        ):
            step = _of_kind(BytesCodec, name)
            if step.together is None or n_bytes is None:
                found = [decode(raw) for raw in found]
            else:
                chunks = np.frombuffer(b"".join(found), np.uint8).reshape(len(found), n_bytes)
                found = [*step.together(codec.configuration)(chunks)]
            if n_bytes is not None and any(len(raw) != n_bytes for raw in found):
                raise ValueError(f"not all chunks decode to {n_bytes} bytes")
    except Exception as error:  # each of the many decoders has its own exceptions
        raise DecodeError(f"codec {name}: {error}") from error
    whole = (len(data), *shape)
    stacked = replace(encoding, codecs=(serial,), chunk_shape=whole)
    return decode_chunk(b"".join(found), stacked, whole)


@lru_cache(maxsize=4096)
def _is_claim(encoding: Encoding) -> bool:
    """Whether filter masks of its chunks are claims: no bytes -> bytes codec can be left out."""
    last = codec_named(encoding.codecs[-1].name) if encoding.codecs else None
    return isinstance(last, SerialCodec) and last.check is not None
