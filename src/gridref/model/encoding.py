"""Encodings: how the bytes of a stored chunk become elements of an array.

An `Encoding` is shared by all chunks of a block, and interned: ten thousand similar files have one.
Its codec chain is a Zarr v3 codec chain (array -> array codecs, one array -> bytes codec, bytes ->
bytes codecs). The `native` view can therefore show it to a reader without changes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache
from numbers import Real
from typing import Any

import numpy as np

from gridref.errors import InvalidRequestError
from gridref.pickling import Picklable


class EdgePolicy(StrEnum):
    """How a stored chunk that overhangs the stored array's edge is kept in the file."""

    PADDED = "padded"
    """At the full chunk shape (HDF5 chunks, TIFF tiles)."""
    TRUNCATED = "truncated"
    """At the shape of the data it holds (TIFF strips, slices of contiguous data)."""


@dataclass(frozen=True)
class Codec(Picklable):
    """One codec of a chain, under its Zarr v3 name.

    Names are those of the Zarr v3 core and registry where the bytes allow it, ``numcodecs.*`` where
    zarr-python knows them, and ``gridref.*`` for stored forms that no Zarr reader can decode.

    Parameters
    ----------
    name
        Codec name, like ``"gzip"`` or ``"numcodecs.shuffle"``.
    configuration
        JSON text of the configuration, keys sorted; use `Codec.of` to build one from keywords.
    """

    name: str
    configuration_json: str = "{}"

    @classmethod
    def of(cls, codec_name: str, /, **configuration: Any) -> Codec:
        """Build from configuration keywords; equal codecs mostly are one object, compared fast."""
        return _shared_codec(codec_name, json.dumps(configuration, sort_keys=True))

    @classmethod
    def from_json(cls, document: Mapping[str, Any] | str) -> Codec:
        """Build from a codec entry of a ``zarr.json``."""
        if isinstance(document, str):
            return cls(document)
        return cls.of(document["name"], **document.get("configuration", {}))

    @cached_property
    def configuration(self) -> Mapping[str, Any]:
        """The configuration, decoded. It must not be changed."""
        return json.loads(self.configuration_json)  # type: ignore[no-any-return]

    def to_json(self) -> dict[str, Any]:
        """The codec entry of a ``zarr.json``; zarr-python needs a configuration, even empty."""
        return {"name": self.name, "configuration": json.loads(self.configuration_json)}


@lru_cache(maxsize=1024)
def _shared_codec(name: str, configuration_json: str) -> Codec:
    return Codec(name, configuration_json)


_LITTLE_ENDIAN = Codec.of("bytes", endian="little")
_BIG_ENDIAN = Codec.of("bytes", endian="big")


def bytes_codec(dtype: np.dtype[Any], *, big_endian: bool = False) -> Codec:
    """The Zarr v3 ``bytes`` codec for elements of `dtype`."""
    if not _has_byte_order(dtype):
        return Codec("bytes")
    return _BIG_ENDIAN if big_endian else _LITTLE_ENDIAN


BLOSC_SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")
"""How Blosc puts bytes in order, by C-Blosc's number."""


def blosc_codec(cname: str, clevel: int, shuffle: int, typesize: int, blocksize: int = 0) -> Codec:
    """The ``blosc`` codec of the Zarr v3 registry; `shuffle` is a number of `BLOSC_SHUFFLES`."""
    return Codec.of(
        "blosc",
        cname=cname,
        clevel=clevel,
        shuffle=BLOSC_SHUFFLES[shuffle],
        typesize=max(1, typesize),
        blocksize=blocksize,
    )


def _has_byte_order(dtype: np.dtype[Any]) -> bool:
    """Whether elements, or any of their fields, depend on the byte order."""
    if dtype.subdtype is not None:
        return _has_byte_order(dtype.base)
    if dtype.names is not None:
        return any(_has_byte_order(dtype[name]) for name in dtype.names)
    return dtype.kind not in "SV" and dtype.itemsize > 1


def transpose_codec(order: tuple[int, ...]) -> Codec:
    """The Zarr v3 ``transpose`` codec: axis ``i`` of the stored chunk is axis ``order[i]``."""
    return Codec.of("transpose", order=list(order))


@dataclass(frozen=True)
class Unpacking:
    """CF unpacking of stored values, where the blocks of one array are packed differently.

    The result is ``stored * scale + offset`` in the array's dtype, and NaN where the stored value
    is one of `fill_values` (CF conventions, section 8.1 "Packed Data", 2.5.1 "Missing data").

    Attributes
    ----------
    scale, offset
        ``scale_factor`` and ``add_offset``; None where the file has none.
    fill_values
        Stored values (``_FillValue``, ``missing_value``) that mean "no data".
    unsigned
        Whether the stored integers are to be read as unsigned (``_Unsigned = "true"``) or, for
        unsigned stored integers, as signed (False); None leaves them.
    dtype
        Floating dtype in which the arithmetic is done, like ``"float32"``.

    Raises
    ------
    InvalidRequestError
        For factors or fill values that are no numbers, and dtypes that do not float.
    """

    scale: float | None = None
    offset: float | None = None
    fill_values: tuple[float | int, ...] = ()
    unsigned: bool | None = None
    dtype: str = "float64"

    def __post_init__(self) -> None:
        factors = [each for each in (self.scale, self.offset) if each is not None]
        numbers = [*factors, *self.fill_values] if isinstance(self.fill_values, tuple) else [None]
        if not all(_is_number(each) for each in numbers):
            raise InvalidRequestError(f"scale and offset must be numbers: {vars(self)}")
        if self.unsigned not in (None, True, False) or np.dtype(self.dtype).kind != "f":
            raise InvalidRequestError(f"unpacking that is not defined: {vars(self)}")


def _is_number(value: Any) -> bool:
    """Whether a value is a real number that a float can hold."""
    if not isinstance(value, Real) or isinstance(value, np.ndarray):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


@dataclass(frozen=True)
class Encoding:
    """How the stored chunks of a block become elements.

    Attributes
    ----------
    chunk_shape
        Shape of a stored chunk, one length per axis of the *array* (also for a transposed block:
        the ``transpose`` codec at the head of the chain says how the axes are in the file).
    dtype
        Dtype of the stored elements in native byte order (the ``bytes`` codec knows the stored
        order).
    codecs
        Zarr v3 codec chain. The bytes -> bytes codecs after the array -> bytes codec are in the
        order in which they were applied on writing; bit ``i`` of a chunk's filter mask switches the
        ``i``-th of them off.
    edge
        Whether chunks at the stored array's end are padded or truncated.
    prefix
        Bytes to put before each stored chunk before decoding (JPEG tables).
    fill
        Raw native-order bytes of the element that a missing chunk holds; None means the array's
        own.
    unpacking
        Set only if blocks of the array are packed differently.

    Raises
    ------
    InvalidRequestError
        For a chunk length below 1.
    """

    chunk_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    codecs: tuple[Codec, ...]
    edge: EdgePolicy = EdgePolicy.PADDED
    prefix: bytes = b""
    fill: bytes | None = None
    unpacking: Unpacking | None = None
    _key: tuple[Any, ...] = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for axis, length in enumerate(self.chunk_shape):
            if length < 1:
                raise InvalidRequestError(
                    f"stored chunk length must be >= 1, got {length} (dimension {axis})"
                )
        key = (
            self.chunk_shape,
            self.dtype,
            self.codecs,
            self.edge,
            self.prefix,
            self.fill,
            self.unpacking,
        )
        object.__setattr__(self, "_key", key)
        object.__setattr__(self, "_hash", hash(key))

    def __eq__(self, other: object) -> bool:
        # Compared once for every variable of every file.
        if not isinstance(other, Encoding):
            return NotImplemented
        return self._hash == other._hash and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        # Hashes differ between processes; and there, too, equal encodings are one object.
        return shared_encoding, self._key

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.chunk_shape)

    @cached_property
    def split_codecs(self) -> tuple[tuple[Codec, ...], Codec, tuple[Codec, ...]]:
        """The chain as (array -> array codecs, array -> bytes codec, bytes -> bytes codecs)."""
        for position, codec in enumerate(self.codecs):
            if codec.name in ARRAY_TO_BYTES:
                return self.codecs[:position], codec, self.codecs[position + 1 :]
        raise InvalidRequestError(
            f"codec chain {[codec.name for codec in self.codecs]} has no array -> bytes codec"
        )


@lru_cache(maxsize=4096)
def shared_encoding(*fields: Any) -> Encoding:
    """The encoding with these fields in their order; one object for all that are equal."""
    return Encoding(*fields)


ARRAY_TO_BYTES = frozenset(
    {
        "bytes",
        "gridref.b2nd",
        "gridref.compressed_segmentation",
        "gridref.fits_plio",
        "gridref.fits_tiles",
        "gridref.grib",
        "gridref.grib_places",
        "gridref.jpeg2000",
        "gridref.precomputed_jpeg",
        "gridref.precomputed_jpegxl",
        "gridref.precomputed_png",
        "imagecodecs_hcomp",
        "imagecodecs_rcomp",
        "n5_default",
        "numcodecs.pcodec",
        "numcodecs.zfpy",
        "packbits",
        "sharding_indexed",
        "vlen-bytes",
        "vlen-utf8",
    }
)
"""Names of the array -> bytes codecs."""


def element_bytes(values: Any, dtype: np.dtype[Any]) -> bytes:
    r"""The bytes of an element or an array, with zeros in the gaps between members of compounds.

    numpy copies members only: the gaps of a copy hold arbitrary memory.

    Examples
    --------
    >>> aligned = np.dtype({"names": ["a", "b"], "formats": ["u1", "<u2"], "offsets": [0, 2]})
    >>> element_bytes((1, 2), aligned)
    b'\x01\x00\x02\x00'
    """
    exact = np.asarray(values, dtype)
    if dtype.names is not None:
        known = np.zeros(exact.shape, dtype)
        _copy_members(exact, known)
        exact = known
    return exact.tobytes()


def _copy_members(values: np.ndarray[Any, Any], to: np.ndarray[Any, Any]) -> None:
    if values.dtype.names is None:
        to[...] = values
        return
    for name in values.dtype.names:
        _copy_members(values[name], to[name])
