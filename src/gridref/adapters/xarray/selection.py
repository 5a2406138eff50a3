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
    written = tuple(map(_plain_indexer, key if isinstance(key, tuple) else (key,)))
    n_new = sum(indexer is None for indexer in written)
    indexers = expand_ellipsis(written, array.ndim + n_new)
    plain = tuple(indexer for indexer in indexers if indexer is not None)
    arrays = [indexer for indexer in plain if isinstance(indexer, np.ndarray) and indexer.ndim > 0]
    if len(arrays) > 1 and any(indexer.dtype == np.bool_ for indexer in arrays):
        raise NotRepresentableError("a mask together with other arrays")
    if len(arrays) > 1:
        if n_new:
            raise NotRepresentableError("new axes together with arrays of integers")
        return _select_outer(array, plain)
    if any(indexer.ndim > 1 for indexer in arrays):
        raise NotRepresentableError("an index array of several dimensions")
    if arrays and any(isinstance(indexer, int | np.integer) for indexer in plain):
        axes = [axis for axis, indexer in enumerate(plain) if not isinstance(indexer, slice)]
        if axes != list(range(axes[0], axes[-1] + 1)):
            raise NotRepresentableError("integers apart from an array: numpy moves its axis")
    result = getitem(array, plain)
    return _with_new_axes(result, indexers) if n_new else result


def _plain_indexer(indexer: Any) -> Any:
    """Lists as arrays, as numpy takes them."""
    return (
        np.asarray(indexer, None if indexer else np.int64) if isinstance(indexer, list) else indexer
    )


def _with_new_axes(array: VirtualArray, indexers: Sequence[Any]) -> VirtualArray:
    axis = 0
    for indexer in indexers:
        if indexer is None:
            array = expand_dims(array, axis, fresh_dim(array))
            axis += 1
        elif not isinstance(indexer, int | np.integer):
            axis += 1
    return array


def _select_outer(array: VirtualArray, indexers: tuple[Any, ...]) -> VirtualArray:
    """Select with open-mesh arrays (`numpy.ix_`), as xarray writes orthogonal selections."""
    if len(indexers) != array.ndim or any(
        not isinstance(indexer, np.ndarray) for indexer in indexers
    ):
        raise NotRepresentableError("a pointwise selection")
    ndim = max(indexer.ndim for indexer in indexers)
    shape = np.broadcast_shapes(*(indexer.shape for indexer in indexers))
    last_axis = -1
    for indexer in indexers:
        wide = [axis for axis in range(indexer.ndim) if indexer.shape[axis] != 1]
        if len(wide) > 1 or (wide and (indexer.ndim != ndim or wide[0] <= last_axis)):
            raise NotRepresentableError("a pointwise selection")
        last_axis = wide[0] if wide else last_axis
    result = getitem(array, tuple(indexer.reshape(-1) for indexer in indexers))
    result = squeeze(result, [axis for axis in range(result.ndim) if result.shape[axis] == 1])
    for axis, extent in enumerate(shape):
        if extent == 1:
            result = expand_dims(result, axis, fresh_dim(result))
    return result
