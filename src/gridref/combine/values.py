"""Read the values that rules of combining compare.

Inline arrays hold their values. All others are read by a function that the caller gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.cache import LRU
from gridref.combine.options import Read
from gridref.errors import GridrefError, InvalidRequestError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.blocks import BlockTable
from gridref.model.joining import concatenate
from gridref.model.manifest import ChunkManifest, ChunkState

KEPT_BYTES = 256 * 2**20
"""Size of the values that are kept for the next rule that asks for them."""


type Kept = Callable[[VirtualArray], NDArray[Any] | None]


class Values:
    """Gives values of arrays, if they can be had.

    Parameters
    ----------
    read
        Reads all values of an array; None where only inline values may be used.
    """

    def __init__(self, read: Read | None) -> None:
        self._read = read
        # An array stays alive beside its values, so that no other one gets its id.
        self._kept = LRU[tuple[VirtualArray, NDArray[Any]]](
            KEPT_BYTES, lambda kept: kept[1].nbytes, keeps_last=2
        )

    def available(self, array: VirtualArray) -> bool:
        """Whether the values can be had."""
        return self._read is not None or array.size == 0 or is_plain_inline(array)

    def of(self, array: VirtualArray) -> NDArray[Any]:
        """All values of an array. Those used last are kept, up to `KEPT_BYTES`.

        Raises
        ------
        InvalidRequestError
            If they are not inline and nothing can read them.
        """
        return self._kept.get_or_load(id(array), lambda: (array, self._load(array)))[1]

    def labels_of(self, array: VirtualArray) -> NDArray[Any]:
        """The same to be compared and sorted."""
        return sortable(self.of(array))

    def read_together(self, arrays: Iterable[VirtualArray], kept: Kept) -> None:
        """Read arrays of numbers along one dimension at once, which costs less than one by one.

        Arrays in `kept` are not read again. If an array cannot be read, it is left out here: a rule
        that asks for it gets the error.
        """
        if self._read is None:
            return
        by_dtype: dict[np.dtype[Any], list[VirtualArray]] = {}
        for array in arrays:
            if array.ndim != 1 or array.dtype.kind not in "iuf":
                continue
            own = kept(array)
            if own is not None:
                self._kept.put(id(array), (array, own))
            elif inline_values(array) is None:
                by_dtype.setdefault(array.dtype, []).append(array)
        for alike in by_dtype.values():
            if not 1 < sum(array.nbytes for array in alike) <= KEPT_BYTES // 2:
                continue
            with suppress(GridrefError):
                values = self._read(concatenate(alike, 0))
                ends = np.cumsum([array.size for array in alike])
                for array, own in zip(alike, np.split(values, ends[:-1]), strict=True):
                    self._kept.put(id(array), (array, own))

    def _load(self, array: VirtualArray) -> NDArray[Any]:
        values = inline_values(array)
        if values is not None:
            return values
        if self._read is None:
            raise InvalidRequestError(
                "values are needed, but no reader is available for this array"
            )
        return self._read(array)


def with_labels_at_hand(groups: Iterable[VirtualGroup], read: Read, kept: Kept) -> Read:
    """Read the labels of groups, all at once; the function that it returns has them.

    Parameters
    ----------
    kept
        Elements of an array that are known already; None for those of others.
    """
    values = Values(read)
    arrays = (pair for group in groups for pair in group.all_arrays().items())
    values.read_together((a for path, a in arrays if a.is_index(path)), kept)
    return values.of


def same_chunks(one: VirtualArray, other: VirtualArray) -> bool:
    """Whether two arrays surely show the same elements, out of the same or equal inline chunks.

    Nothing is read. Their metadata may differ.
    """
    return one is other or all(
        _alike(getattr(one, name), getattr(other, name))
        for name in ("shape", "encodings", "manifests", "blocks")
    )


_COLUMNS = {kind: [own.name for own in fields(kind)] for kind in (ChunkManifest, BlockTable)}


def _alike(one: Any, other: Any) -> bool:
    """Whether two parts of arrays are equal; manifests of catalogs, if they are one object."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, np.ndarray):
        return bool(one.shape == other.shape and one.tobytes() == other.tobytes())
    if type(one) in _COLUMNS:
        return all(_alike(getattr(one, n), getattr(other, n)) for n in _COLUMNS[type(one)])
    return bool(one == other)


def inline_values(array: VirtualArray) -> NDArray[Any] | None:
    """Values that are kept inline as one plain chunk, as `VirtualArray.from_numpy` does."""
    if array.size == 0:
        return np.zeros(array.shape, array.dtype)
    manifest = array.manifests[0] if is_plain_inline(array) else None
    if not isinstance(manifest, ChunkManifest):
        return None
    raw = manifest.inline_bytes(int(array.blocks.first_row[0]))
    little = np.frombuffer(raw, array.dtype.newbyteorder("<"))
    return little.astype(array.dtype).reshape(array.shape)


def is_plain_inline(array: VirtualArray) -> bool:
    """Whether an array is all of one inline chunk that holds nothing but its elements."""
    blocks = array.blocks
    is_one = len(blocks) == len(array.encodings) == len(array.manifests) == 1
    if not is_one or array.dtype.hasobject:
        return False
    (encoding,), (manifest,) = array.encodings, array.manifests
    plain = (
        encoding.chunk_shape == array.shape
        and encoding.dtype == array.dtype
        and len(encoding.codecs) == 1
        and encoding.codecs[0].name == "bytes"
        and '"big"' not in encoding.codecs[0].configuration_json
        and encoding.unpacking is None
        and not encoding.prefix
    )
    if not plain or not isinstance(manifest, ChunkManifest):
        return False
    held = manifest.state[int(blocks.first_row[0])] == ChunkState.INLINE
    return bool(held and (blocks.origin == 0).all() and (blocks.step == 1).all())


def sortable(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels that can be compared, sorted and hashed: texts of fixed length."""
    return np.array(labels.tolist(), str) if labels.dtype.kind == "T" else labels


def same_values(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two arrays hold the same values, NaN equal to NaN."""
    if one.shape != other.shape:
        return False
    floats = one.dtype.kind in "fc" and other.dtype.kind in "fc"
    return bool(np.array_equal(one, other, equal_nan=floats))
