"""Virtual arrays as duck arrays: what xarray rearranges without reading.

Slicing, transposing, concatenating, stacking, broadcasting and reindexing give virtual arrays
again. Anything else needs the values and loads them, up to a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from gridref.combine.packing import Packing
from gridref.errors import CombineError, InvalidRequestError, NotRepresentableError, Problem
from gridref.model.array import VirtualArray
from gridref.model.indexing import flip, getitem, isel
from gridref.model.joining import cast_scalar, concatenate, missing_array, recast
from gridref.model.reshaping import broadcast_axis, expand_dims, squeeze, transpose
from gridref.serve.reader import Reader
from gridref.workflows.opening import reader_for

__all__ = ["LOAD_LIMIT_BYTES", "VirtualDuckArray"]

LOAD_LIMIT_BYTES = 2**30
"""Largest array that is loaded where an operation needs values."""

_HANDLED: dict[Any, Callable[..., Any]] = {}


class VirtualDuckArray:
    """A virtual array that behaves like a numpy array.

    Parameters
    ----------
    array
        The virtual array.
    reader
        What reads it when values are needed.
    limit_bytes
        Largest size that is loaded; larger ones raise.
    """

    __array_priority__ = 1000

    def __init__(
        self,
        array: VirtualArray,
        reader: Reader | None = None,
        limit_bytes: int = LOAD_LIMIT_BYTES,
    ) -> None:
        self.array = array
        self.reader = reader if reader is not None else reader_for()
        self.limit_bytes = limit_bytes

    def like(self, array: VirtualArray) -> VirtualDuckArray:
        """Another array with the same reader and limit."""
        return VirtualDuckArray(array, self.reader, self.limit_bytes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the elements."""
        return np.dtype(object) if self.array.dtype.kind == "T" else self.array.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.array.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.array.size

    @property
    def nbytes(self) -> int:
        """Size of the elements in bytes, if they were loaded."""
        return self.array.nbytes

    @property
    def T(self) -> VirtualDuckArray:  # noqa: N802
        """The array with its axes reversed."""
        return self.transpose()

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"VirtualDuckArray({self.array!r})"

    def _repr_inline_(self, max_width: int) -> str:
        n_blocks = self.array.n_blocks
        return f"virtual, {n_blocks} block{'s' if n_blocks != 1 else ''}"[:max_width]

    def __copy__(self) -> VirtualDuckArray:
        return self

    def __deepcopy__(self, memo: Any) -> VirtualDuckArray:
        return self

    @cached_property
    def _values(self) -> NDArray[Any]:
        return self.reader.read(self.array).astype(self.dtype, copy=False)

    def load(self) -> NDArray[Any]:
        """Read the values.

        Raises
        ------
        InvalidRequestError
            If there are more than the limit allows.
        """
        if self.nbytes > self.limit_bytes:
            raise InvalidRequestError(
                f"this would load {self.nbytes} bytes of a virtual array of shape"
                f" {self.shape}, more than the limit of {self.limit_bytes}: choose an operation"
                " that needs none (in combining, compat='override' and join='override'), select"
                " less, or raise the limit (load_limit)"
            )
        return self._values

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        values = self.load()
        if dtype is not None and np.dtype(dtype) != values.dtype:
            return values.astype(dtype)
        return values.copy() if copy or copy is None else values

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        handler = _HANDLED.get(func)
        if handler is not None:
            result = handler(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return func(*_loaded(args), **{name: _loaded(value) for name, value in kwargs.items()})

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "__call__" and ufunc in (np.equal, np.not_equal) and _are_one(inputs):
            return np.full(self.shape, ufunc is np.equal)
        if method == "__call__" and ufunc is np.isnan and self.array.dtype.kind in "biu":
            return np.zeros(self.shape, bool)
        return getattr(ufunc, method)(*_loaded(inputs), **kwargs)

    def __eq__(self, other: object) -> Any:
        return np.equal(self, other)  # type: ignore[call-overload]

    def __ne__(self, other: object) -> Any:
        return np.not_equal(self, other)  # type: ignore[call-overload]

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Any) -> Any:
        return np.add(self, other)

    def __sub__(self, other: Any) -> Any:
        return np.subtract(self, other)

    def __mul__(self, other: Any) -> Any:
        return np.multiply(self, other)

    def __truediv__(self, other: Any) -> Any:
        return np.divide(self, other)

    def __getitem__(self, key: Any) -> VirtualDuckArray | NDArray[Any]:
        try:
            return self.like(_select(self.array, key))
        except NotRepresentableError:
            return np.asarray(self.load()[key])

    def astype(
        self, dtype: DTypeLike, *, copy: bool = True, **_: Any
    ) -> VirtualDuckArray | NDArray[Any]:
        """Cast the elements, on reading where that can be done."""
        wanted = np.dtype(dtype)
        if wanted == self.dtype:
            return self
        if wanted.kind not in "biufc" or self.array.dtype.kind not in "biufc":
            return self.load().astype(wanted)
        return self.like(recast(self.array, wanted, cast_scalar(self.array.fill_value, wanted)))

    def transpose(self, *axes: Any) -> VirtualDuckArray:
        """Permute the axes, by default in reverse."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return _permuted(self, order or None)

    def reshape(self, *shape: Any, **_: Any) -> NDArray[Any] | VirtualDuckArray:
        """Reshape; the same shape stays virtual."""
        wanted = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if tuple(wanted) == self.shape:
            return self
        return self.load().reshape(wanted)


def _loaded(value: Any) -> Any:
    """The same arguments with virtual arrays loaded, at any depth of lists and tuples."""
    if isinstance(value, VirtualDuckArray):
        return value.load()
    if isinstance(value, list | tuple):
        return type(value)(_loaded(entry) for entry in value)
    return value


def _are_one(inputs: Sequence[Any]) -> bool:
    """Whether two virtual arrays show the same stored chunks, and no NaN can hide in them."""
    one, other = inputs
    if not (isinstance(one, VirtualDuckArray) and isinstance(other, VirtualDuckArray)):
        return False
    a, b = one.array, other.array
    if a.shape != b.shape or a.dtype != b.dtype or a.dtype.kind in "fcmM":
        return False
    same = a is b or (
        a.encodings == b.encodings
        and [id(entry) for entry in a.manifests] == [id(entry) for entry in b.manifests]
        and all(
            np.array_equal(column, vars(b.blocks)[name]) for name, column in vars(a.blocks).items()
        )
    )
    return bool(same)


def _select(array: VirtualArray, key: Any) -> VirtualArray:
    """Index as numpy does, as far as that is one selection per axis."""
    written = key if isinstance(key, tuple) else (key,)
    entries = _without_ellipsis(tuple(map(_plain_entry, written)), array.ndim)
    n_new = sum(entry is None for entry in entries)
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
    if not n_new:
        return result
    return _with_new_axes(result, entries)


def _plain_entry(entry: Any) -> Any:
    """Lists as arrays, as numpy takes them."""
    return np.asarray(entry, None if entry else np.int64) if isinstance(entry, list) else entry


def _without_ellipsis(entries: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    """The same index with the ellipsis written out."""
    at = [place for place, entry in enumerate(entries) if entry is Ellipsis]
    if len(at) != 1:
        return entries
    n_given = sum(entry is not None for entry in entries) - 1
    return (*entries[: at[0]], *[slice(None)] * (ndim - n_given), *entries[at[0] + 1 :])


def _with_new_axes(array: VirtualArray, entries: tuple[Any, ...]) -> VirtualArray:
    axis = 0
    for entry in entries:
        if entry is None:
            array = expand_dims(array, axis, _fresh(array))
            axis += 1
        elif not isinstance(entry, int | np.integer):
            axis += 1
    return array


def _fresh(array: VirtualArray) -> str:
    number = array.ndim
    while f"axis_{number}" in array.dims:
        number += 1
    return f"axis_{number}"


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
            result = expand_dims(result, axis, _fresh(result))
    return result


def _implements[F: Callable[..., Any]](*functions: Any) -> Callable[[F], F]:
    def register(handler: F) -> F:
        for function in functions:
            _HANDLED[function] = handler
        return handler

    return register


def _all_virtual(arrays: Sequence[Any]) -> bool:
    return all(isinstance(entry, VirtualDuckArray) for entry in arrays)


def _virtual(entry: Any, like: VirtualDuckArray) -> VirtualDuckArray:
    """Make small values inline, so that they can lie beside virtual ones."""
    if isinstance(entry, VirtualDuckArray):
        return entry
    values = np.asarray(entry)
    dims = [f"axis_{axis}" for axis in range(values.ndim)]
    return like.like(VirtualArray.from_numpy(values, dims))


@_implements(np.concatenate)
def _concatenate(arrays: Sequence[Any], axis: int = 0, **_: Any) -> Any:
    first = next(entry for entry in arrays if isinstance(entry, VirtualDuckArray))
    if axis is None or any(np.asarray(entry).dtype.hasobject for entry in arrays
                           if not isinstance(entry, VirtualDuckArray)):  # fmt: skip
        return NotImplemented
    virtual = [_virtual(entry, first) for entry in arrays]
    check_alike([entry.array for entry in virtual])
    axis = axis % first.ndim
    return first.like(concatenate([entry.array for entry in virtual], axis))


@_implements(np.stack)
def _stack(arrays: Sequence[Any], axis: int = 0, **_: Any) -> Any:
    if not _all_virtual(arrays):
        return NotImplemented
    check_alike([entry.array for entry in arrays])
    axis = axis % (arrays[0].ndim + 1)
    parts = [expand_dims(entry.array, axis, _fresh(entry.array)) for entry in arrays]
    return arrays[0].like(concatenate(parts, axis))


def check_alike(arrays: Sequence[VirtualArray]) -> None:
    """Refuse to lay stored numbers beside each other that do not mean the same.

    Raises
    ------
    CombineError
        If packing or units differ: xarray keeps one file's attributes for all.
    """
    packings = dict.fromkeys(Packing.of(array) for array in arrays if array.dtype.kind in "biuf")
    units = dict.fromkeys(
        (str(array.attrs["units"]), str(array.attrs.get("calendar", "")))
        for array in arrays
        if "units" in array.attrs
    )
    problems = []
    advice = "gridref.open_virtual_mfdataset and gridref.concat resolve that"
    if len(packings) > 1:
        shown = "; ".join(str(packing) for packing in list(packings)[:4])
        problems.append(
            Problem("packing-differs", f"stored numbers are packed differently: {shown}; {advice}")
        )
    if len(units) > 1:
        shown = "; ".join(" ".join(unit).strip() or "none" for unit in list(units)[:4])
        problems.append(Problem("units-differ", f"units differ: {shown}; {advice}"))
    if problems:
        raise CombineError(problems)


@_implements(np.broadcast_to)
def _broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    if not isinstance(array, VirtualDuckArray):
        return NotImplemented
    wanted = (shape,) if isinstance(shape, int) else tuple(shape)
    result = array.array
    for _ in range(len(wanted) - result.ndim):
        result = expand_dims(result, 0, _fresh(result))
    if len(wanted) != result.ndim:
        return NotImplemented
    for axis, extent in enumerate(wanted):
        result = broadcast_axis(result, axis, extent)
    return array.like(result)


@_implements(np.expand_dims)
def _expand_dims(array: VirtualDuckArray, axis: Any) -> VirtualDuckArray:
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    ndim = array.ndim + len(axes)
    result = array.array
    for place in sorted(entry % ndim for entry in axes):
        result = expand_dims(result, place, _fresh(result))
    return array.like(result)


@_implements(np.squeeze)
def _squeeze(array: VirtualDuckArray, axis: Any = None) -> VirtualDuckArray:
    if axis is None:
        axis = tuple(place for place, extent in enumerate(array.shape) if extent == 1)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    return array.like(squeeze(array.array, axes))


@_implements(np.transpose)
def _permuted(array: VirtualDuckArray, axes: Any = None) -> VirtualDuckArray:
    order = tuple(range(array.ndim))[::-1] if axes is None else tuple(axes)
    return array.like(transpose(array.array, order))


@_implements(np.moveaxis)
def _moveaxis(array: VirtualDuckArray, source: Any, destination: Any) -> VirtualDuckArray:
    stand_in = np.moveaxis(
        np.empty([2 + axis for axis in range(array.ndim)], bool), source, destination
    )
    return _permuted(array, [extent - 2 for extent in stand_in.shape])


@_implements(np.flip)
def _flip(array: VirtualDuckArray, axis: Any = None) -> VirtualDuckArray:
    axes = range(array.ndim) if axis is None else np.atleast_1d(axis).tolist()
    result = array.array
    for place in axes:
        result = flip(result, place % array.ndim)
    return array.like(result)


@_implements(np.result_type)
def _result_type(*entries: Any) -> np.dtype[Any]:
    return np.result_type(
        *(entry.dtype if isinstance(entry, VirtualDuckArray) else entry for entry in entries)
    )


@_implements(np.shape)
def _shape(array: VirtualDuckArray) -> tuple[int, ...]:
    return array.shape


@_implements(np.ndim)
def _ndim(array: VirtualDuckArray) -> int:
    return array.ndim


@_implements(np.size)
def _size(array: VirtualDuckArray, axis: int | None = None) -> int:
    return array.size if axis is None else array.shape[axis]


@_implements(np.full_like)
def _full_like(array: Any, fill_value: Any, dtype: Any = None, **_: Any) -> Any:
    if not isinstance(array, VirtualDuckArray):
        return NotImplemented
    wanted = array.array.dtype if dtype is None else np.dtype(dtype)
    return array.like(
        missing_array(
            array.shape,
            wanted,
            dims=array.array.dims,
            fill_value=cast_scalar(fill_value, wanted),
        )
    )


@_implements(np.where)
def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """Fill in places along one axis, as xarray does in reindexing."""
    if not isinstance(x, VirtualDuckArray) or isinstance(condition, VirtualDuckArray):
        return NotImplemented
    if np.ndim(y) != 0 or isinstance(y, VirtualDuckArray):
        return NotImplemented
    mask = np.broadcast_to(np.asarray(condition, bool), x.shape)
    if mask.all():
        return x
    keep = _one_axis(mask)
    if keep is None:
        return NotImplemented
    axis, flags = keep
    dtype = np.result_type(x.array.dtype, y)
    fill = cast_scalar(y, dtype)
    own = recast(x.array, dtype, cast_scalar(x.array.fill_value, dtype))
    heads = np.flatnonzero(np.concatenate([[True], flags[1:] != flags[:-1]]))
    parts = []
    for start, stop in zip(heads.tolist(), [*heads[1:].tolist(), len(flags)], strict=True):
        part = isel(own, {axis: slice(start, stop)})
        if not flags[start]:
            part = missing_array(part.shape, dtype, dims=part.dims, fill_value=fill)
        parts.append(part)
    return x.like(concatenate(parts, axis, fill_value=fill))


def _one_axis(mask: NDArray[np.bool_]) -> tuple[int, NDArray[np.bool_]] | None:
    """The axis along which alone a mask varies, and the mask along it."""
    for axis in range(mask.ndim):
        others = tuple(other for other in range(mask.ndim) if other != axis)
        flags = mask.all(axis=others)
        if np.array_equal(flags, mask.any(axis=others)):
            return axis, flags
    return None
