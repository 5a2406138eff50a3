"""The numpy functions that only arrange elements, done on virtual arrays without reading them.

`ARRANGEMENTS` is the whole of what virtual arrays can do: what is not in it needs values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.adapters.xarray.meaning import check_alike, is_no_data, promoted, shows_values
from gridref.model.array import VirtualArray
from gridref.model.indexing import flip, isel
from gridref.model.joining import cast_scalar, concatenate, missing_array, missing_like
from gridref.model.reshaping import broadcast_axis, expand_dims, squeeze, transpose

__all__ = ["ARRANGEMENTS", "fresh_dim", "shown_dtype"]

ARRANGEMENTS: dict[Callable[..., Any], Callable[..., Any]] = {}
"""Handlers by numpy function. They take and return `VirtualArray`, or NotImplemented."""


def _implements[F: Callable[..., Any]](*functions: Any) -> Callable[[F], F]:
    def register(handler: F) -> F:
        for function in functions:
            ARRANGEMENTS[function] = handler
        return handler

    return register


def fresh_dim(array: VirtualArray) -> str:
    """A name that no dimension of an array has."""
    number = array.ndim
    while f"axis_{number}" in array.dims:
        number += 1
    return f"axis_{number}"


@_implements(np.concatenate)
def _concatenate(arrays: Sequence[Any], axis: int | None = 0) -> Any:
    virtual = _all_virtual(arrays)
    if axis is None or not virtual:
        return NotImplemented
    check_alike(virtual)
    return _with_attrs_of(virtual, concatenate(virtual, axis % virtual[0].ndim))


def _all_virtual(arrays: Sequence[Any]) -> list[VirtualArray]:
    """Each of the arrays as a virtual one; nothing where one cannot be one."""
    virtual = [_as_virtual(array) for array in arrays]
    known = [array for array in virtual if array is not None]
    return known if len(known) == len(virtual) else []


def _with_attrs_of(arrays: Sequence[VirtualArray], joined: VirtualArray) -> VirtualArray:
    """The array with the attributes of the first one that has any: numpy arrays have none."""
    return joined.replace(attrs=next((array.attrs for array in arrays if array.attrs), {}))


def _as_virtual(operand: Any) -> VirtualArray | None:
    """Make small values inline, so that they can lie beside virtual ones; None for objects."""
    if isinstance(operand, VirtualArray):
        return operand
    values = np.asarray(operand)
    if values.dtype.hasobject or values.dtype.kind not in "biufcSU":
        return None
    return VirtualArray.from_numpy(values, [f"axis_{axis}" for axis in range(values.ndim)])


@_implements(np.stack)
def _stack(arrays: Sequence[Any], axis: int = 0) -> Any:
    virtual = _all_virtual(arrays)
    if not virtual:
        return NotImplemented
    check_alike(virtual)
    axis = axis % (virtual[0].ndim + 1)
    parts = [expand_dims(array, axis, fresh_dim(array)) for array in virtual]
    return _with_attrs_of(virtual, concatenate(parts, axis))


@_implements(np.broadcast_to)
def _broadcast_to(array: VirtualArray, shape: Any, subok: bool = False) -> Any:
    wanted = (shape,) if isinstance(shape, int) else tuple(shape)
    for _ in range(len(wanted) - array.ndim):
        array = expand_dims(array, 0, fresh_dim(array))
    if len(wanted) != array.ndim:
        return NotImplemented
    for axis, extent in enumerate(wanted):
        array = broadcast_axis(array, axis, extent)
    return array


@_implements(np.expand_dims)
def _expand_dims(array: VirtualArray, axis: Any) -> VirtualArray:
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    ndim = array.ndim + len(axes)
    for position in sorted(each % ndim for each in axes):
        array = expand_dims(array, position, fresh_dim(array))
    return array


@_implements(np.squeeze)
def _squeeze(array: VirtualArray, axis: Any = None) -> VirtualArray:
    if axis is None:
        axis = tuple(position for position, extent in enumerate(array.shape) if extent == 1)
    return squeeze(array, (axis,) if isinstance(axis, int) else tuple(axis))


@_implements(np.transpose)
def _transpose(array: VirtualArray, axes: Any = None) -> VirtualArray:
    order = range(array.ndim)[::-1] if axes is None else [axis % array.ndim for axis in axes]
    return transpose(array, tuple(order))


@_implements(np.moveaxis)
def _moveaxis(array: VirtualArray, source: Any, destination: Any) -> VirtualArray:
    stand_in = np.empty([2 + axis for axis in range(array.ndim)], bool)
    moved = np.moveaxis(stand_in, source, destination)
    return transpose(array, tuple(extent - 2 for extent in moved.shape))


@_implements(np.flip)
def _flip(array: VirtualArray, axis: Any = None) -> VirtualArray:
    axes = range(array.ndim) if axis is None else np.atleast_1d(axis).tolist()
    for each in axes:
        array = flip(array, each % array.ndim)
    return array


@_implements(np.result_type)
def _result_type(*operands: Any) -> np.dtype[Any]:
    return np.result_type(
        *(
            shown_dtype(operand) if isinstance(operand, VirtualArray) else operand
            for operand in operands
        )
    )


def shown_dtype(array: VirtualArray) -> np.dtype[Any]:
    """The dtype that xarray is told: it takes strings of variable length as objects."""
    return np.dtype(object) if array.dtype.kind == "T" else array.dtype


@_implements(np.shape)
def _shape(array: VirtualArray) -> tuple[int, ...]:
    return array.shape


@_implements(np.ndim)
def _ndim(array: VirtualArray) -> int:
    return array.ndim


@_implements(np.size)
def _size(array: VirtualArray, axis: int | None = None) -> int:
    return array.size if axis is None else array.shape[axis]


@_implements(np.full_like)
def _full_like(array: Any, fill_value: Any, dtype: Any = None, **_: Any) -> Any:
    """An array that is missing everywhere."""
    if not isinstance(array, VirtualArray):
        return NotImplemented
    wanted = array.dtype if dtype is None else np.dtype(dtype)
    if not (is_no_data(array, fill_value) or shows_values(array)) or wanted.kind in "TO":
        return NotImplemented
    fill = cast_scalar(fill_value, wanted)
    return missing_array(array.shape, wanted, dims=array.dims, fill_value=fill, attrs=array.attrs)


@_implements(np.where)
def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """Put "no data" in whole slices, as xarray does in reindexing."""
    if not isinstance(x, VirtualArray) or isinstance(condition, VirtualArray) or np.ndim(y):
        return NotImplemented
    if isinstance(y, VirtualArray) or y is None:
        return NotImplemented
    mask = np.broadcast_to(np.asarray(condition, bool), x.shape)
    no_data = is_no_data(x, y)
    if mask.all() and (no_data or shows_values(x) or x.dtype.kind in "TSU"):
        return x
    kept = _kept_places(mask)
    numbers = x.dtype.kind in "biufc" and np.asarray(y).dtype.kind in "biufc"
    if kept is None or not numbers or not (no_data or shows_values(x)):
        return NotImplemented
    dtype = np.result_type(x.dtype, y)
    x = promoted(x, dtype) if dtype != x.dtype else x
    for axis, flags in enumerate(kept):
        x = _emptied(x, axis, flags, cast_scalar(y, dtype))
    return x


def _kept_places(mask: NDArray[np.bool_]) -> list[NDArray[np.bool_]] | None:
    """Flags along every axis whose product a mask is; None where it is none."""
    everywhere = range(mask.ndim)
    flags = [
        mask.any(axis=tuple(other for other in everywhere if other != axis)) for axis in everywhere
    ]
    product = np.ones((), bool)
    for own in flags:
        product = np.logical_and.outer(product, own)
    return flags if np.array_equal(product, mask) else None


def _emptied(array: VirtualArray, axis: int, keep: NDArray[np.bool_], fill: Any) -> VirtualArray:
    """An array in which only some places along an axis are kept, and others are missing."""
    if keep.all():
        return array
    parts = [
        isel(array, {axis: slice(start, stop)})
        if keep[start]
        else missing_like(array, axis, stop - start, fill)
        for start, stop in _runs(keep)
    ]
    return concatenate(parts, axis, fill_value=fill)


def _runs(flags: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Start and stop of every run of equal flags."""
    heads = np.flatnonzero(np.concatenate([[True], flags[1:] != flags[:-1]])).tolist()
    return zip(heads, [*heads[1:], len(flags)], strict=True)


@_implements(np.pad)
def _pad(array: VirtualArray, pad_width: Any, mode: Any = "constant", **options: Any) -> Any:
    """Pad with "no data", or with the array's own elements."""
    widths = np.broadcast_to(np.asarray(pad_width), (array.ndim, 2)).tolist()
    if mode == "constant":
        fills = np.broadcast_to(np.asarray(options.get("constant_values", 0)), (array.ndim, 2))
        known = shows_values(array) or all(is_no_data(array, fill) for fill in fills.flat)
        if not known or array.dtype.kind not in "biufc":
            return NotImplemented
        for axis, (before, behind) in enumerate(widths):
            array = _padded(array, axis, (before, behind), fills[axis])
        return array
    if mode not in ("edge", "wrap", "reflect", "symmetric") or options.get("reflect_type") == "odd":
        return NotImplemented
    for axis, width in enumerate(widths):
        if any(width):
            array = isel(array, {axis: np.pad(np.arange(array.shape[axis]), width, mode=mode)})
    return array


def _padded(
    array: VirtualArray, axis: int, width: tuple[int, int], fills: NDArray[Any]
) -> VirtualArray:
    before, behind = (
        [missing_like(array, axis, extent, cast_scalar(fill, array.dtype))] if extent else []
        for extent, fill in zip(width, fills, strict=True)
    )
    return concatenate([*before, array, *behind], axis) if before or behind else array
