"""Indexing virtual arrays as numpy indexes arrays, as far as that is one selection per axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gridref.adapters.xarray.arrangement import fresh_dim
from gridref.errors import NotRepresentableError
from gridref.model.array import VirtualArray
from gridref.model.indexing import getitem
from gridref.model.projection import expand_ellipsis
from gridref.model.reshaping import expand_dims, squeeze

__all__ = ["select"]


def select(array: VirtualArray, key: Any) -> VirtualArray:
    """The elements that an index of numpy's basic or advanced indexing selects.

    Raises
    ------
    NotRepresentableError
        If it is a selection of points.
    """
    written = tuple(map(_plain_entry, key if isinstance(key, tuple) else (key,)))
    n_new = sum(entry is None for entry in written)
    entries = expand_ellipsis(written, array.ndim + n_new)
    plain = tuple(entry for entry in entries if entry is not None)
    arrays = [entry for entry in plain if isinstance(entry, np.ndarray) and entry.ndim > 0]
    if len(arrays) > 1 and any(entry.dtype == np.bool_ for entry in arrays):
        raise NotRepresentableError("a mask together with other arrays")
    if len(arrays) > 1:
        if n_new:
            raise NotRepresentableError("new axes together with arrays of integers")
        return _select_outer(array, plain)
    if any(entry.ndim > 1 for entry in arrays):
        raise NotRepresentableError("an index array of several dimensions")
    if arrays and any(isinstance(entry, int | np.integer) for entry in plain):
        places = [place for place, entry in enumerate(plain) if not isinstance(entry, slice)]
        if places != list(range(places[0], places[-1] + 1)):
            raise NotRepresentableError("integers apart from an array: numpy moves its axis")
    result = getitem(array, plain)
    return _with_new_axes(result, entries) if n_new else result


def _plain_entry(entry: Any) -> Any:
    """Lists as arrays, as numpy takes them."""
    return np.asarray(entry, None if entry else np.int64) if isinstance(entry, list) else entry


def _with_new_axes(array: VirtualArray, entries: Sequence[Any]) -> VirtualArray:
    axis = 0
    for entry in entries:
        if entry is None:
            array = expand_dims(array, axis, fresh_dim(array))
            axis += 1
        elif not isinstance(entry, int | np.integer):
            axis += 1
    return array


def _select_outer(array: VirtualArray, entries: tuple[Any, ...]) -> VirtualArray:
    """Select with open-mesh arrays (`numpy.ix_`), as xarray writes orthogonal selections."""
    if len(entries) != array.ndim or any(not isinstance(entry, np.ndarray) for entry in entries):
        raise NotRepresentableError("a pointwise selection")
    ndim = max(entry.ndim for entry in entries)
    shape = np.broadcast_shapes(*(entry.shape for entry in entries))
    place = -1
    for entry in entries:
        wide = [axis for axis in range(entry.ndim) if entry.shape[axis] != 1]
        if len(wide) > 1 or (wide and (entry.ndim != ndim or wide[0] <= place)):
            raise NotRepresentableError("a pointwise selection")
        place = wide[0] if wide else place
    result = getitem(array, tuple(entry.reshape(-1) for entry in entries))
    result = squeeze(result, [axis for axis in range(result.ndim) if result.shape[axis] == 1])
    for axis, extent in enumerate(shape):
        if extent == 1:
            result = expand_dims(result, axis, fresh_dim(result))
    return result
