"""Virtual arrays as duck arrays: what xarray rearranges without reading.

Slicing, transposing, concatenating, stacking, broadcasting, padding and reindexing give virtual
arrays again. Everything else needs values, and virtual arrays have only stored numbers: packed, or
times counted from some date. Such operations raise, whatever the numbers are.

`ARRANGEMENTS` lists the numpy functions that work without values.

`Comparison` and `NotNull` answer for the values, never for stored numbers: from the chunks if these
are the same, else by reading and decoding them. The answers support ``all`` only, which is what
``equals``, ``identical`` and merging need. Any other use of them is a computation, and raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import xarray as xr
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray

from gridref.api.decoding import decoded
from gridref.api.each_chunk import with_renamed_sources
from gridref.api.opening import reader_for
from gridref.errors import GridrefError, InvalidRequestError, NotRepresentableError
from gridref.faces.xarray.meaning import (
    check_alike,
    differences,
    is_no_data,
    promoted,
    shows_values,
)
from gridref.model.array import VirtualArray
from gridref.model.indexing import flip, getitem, isel
from gridref.model.joining import cast_scalar, concatenate, missing_array, missing_like
from gridref.model.manifest import ChunkManifest, Manifest
from gridref.model.projection import expand_ellipsis
from gridref.model.reshaping import broadcast_axis, expand_dims, squeeze, transpose
from gridref.serve.reader import Reader

# Numpy functions that only arrange elements

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
    """Make small values inline, to combine them with virtual ones; None for objects."""
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
    """The dtype for xarray, which takes strings of variable length as objects."""
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
    """Keep only some places along an axis of an array; the others become missing."""
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


# Comparisons that xarray makes when it combines: equality and missing values

Answer = Callable[[], NDArray[np.bool_]]
Refuse = Callable[[str], Exception]
"""Makes the error of an operation that needs values."""


class Comparison:
    """The result of a comparison, which is worked out only to say whether all of it is true.

    Parameters
    ----------
    answer
        Works the truth values out.
    refuse
        Makes the error for everything else.
    shape
        Shape of the arrays that are compared.
    """

    def __init__(self, answer: Answer, refuse: Refuse, shape: tuple[int, ...]) -> None:
        self.answer = answer
        self.shape = shape
        self._refuse = refuse

    def __or__(self, other: Any) -> Comparison:
        def either() -> NDArray[np.bool_]:
            known = self.answer()
            return known if known.all() else known | _truth(other)

        return Comparison(either, self._refuse, self.shape)

    def __and__(self, other: Any) -> Comparison:
        return Comparison(lambda: self.answer() & _truth(other), self._refuse, self.shape)

    def __invert__(self) -> NotNull:
        return NotNull(self._refuse, self.shape)

    def all(self, axis: Any = None, **_: Any) -> bool:
        """Whether all are true."""
        if axis is not None:
            raise self._refuse("comparing along an axis")
        return bool(self.answer().all())

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        raise self._refuse("comparing")

    def __bool__(self) -> bool:
        raise self._refuse("comparing")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **_: Any) -> Comparison:
        """Work as the right side of ``|`` and ``&``, whose left is a numpy array."""
        if ufunc is np.bitwise_or and method == "__call__":
            return self.__or__(inputs[0])
        if ufunc is np.bitwise_and and method == "__call__":
            return self.__and__(inputs[0])
        raise self._refuse(f"np.{ufunc.__name__}")


def _truth(other: Any) -> NDArray[np.bool_]:
    return other.answer() if isinstance(other, Comparison) else np.asarray(other)


class NotNull(NDArrayOperatorsMixin):
    """The result of ``notnull``: a condition of ``numpy.where`` between arrays that are equal.

    Parameters
    ----------
    refuse
        Makes the error for everything else.
    """

    dtype = np.dtype(bool)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, refuse: Refuse, shape: tuple[int, ...]) -> None:
        self._refuse = refuse
        self.shape = shape
        self.ndim = len(shape)

    def __repr__(self) -> str:
        return f"<where there is data, of shape {self.shape}: not worked out>"

    def astype(self, dtype: Any, **_: Any) -> NotNull:
        """Itself: truth values already."""
        return self

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        raise self._refuse("finding missing values")

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return NotImplemented if func is np.where else self.__array__()

    def __array_ufunc__(self, *_: Any, **__: Any) -> Any:
        self.__array__()


def same_chunks(one: VirtualArray, other: VirtualArray) -> bool:
    """Whether two arrays show the same stored chunks in the same way, and mean the same by them."""
    if one is other:
        return True
    alike = (
        one.shape == other.shape
        and one.dtype == other.dtype
        and one.encodings == other.encodings
        and np.asarray(one.fill_value).tobytes() == np.asarray(other.fill_value).tobytes()
        and len(one.manifests) == len(other.manifests)
        and all(
            np.array_equal(column, vars(other.blocks)[name])
            for name, column in vars(one.blocks).items()
        )
    )
    return (
        alike
        and all(map(_same_rows, one.manifests, other.manifests))
        and not differences([one, other])
    )


def _same_rows(one: Manifest, other: Manifest) -> bool:
    """Whether two manifests refer to the same bytes of the same files."""
    if one is other:
        return True
    if not (isinstance(one, ChunkManifest) and isinstance(other, ChunkManifest)):
        return False
    columns = ("source", "offset", "length", "state", "filter_mask")
    return (
        one.sources == other.sources
        and one.inline == other.inline
        and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in columns)
    )


# Indexing as numpy does it, if it is one selection per axis


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


# The duck array

LOAD_LIMIT_BYTES = 2**30
"""Largest array that is loaded where values have to be compared, or cannot stay in their file."""

ADVICE = (
    "a virtual variable holds stored numbers, not values: write the dataset with"
    " ds.gridref.to_catalog(path) and open that with xr.open_dataset(path, engine='gridref'), or"
    " load the variable when opening (loadable_variables=[...])"
)


class NoValuesError(InvalidRequestError, TypeError):
    """An operation needs values, which a virtual array does not have."""

    @classmethod
    def of(cls, operation: str) -> NoValuesError:
        """The error for an operation, with advice how to open values."""
        return cls(f"{operation} needs values: {ADVICE}")


class _NoSuchMethodError(NoValuesError, AttributeError):
    """A method of numpy arrays that virtual arrays do not have."""


class VirtualDuckArray(NDArrayOperatorsMixin):
    """A virtual array that xarray can arrange.

    Parameters
    ----------
    reader
        Reads it when its elements have to be compared, or copied out of their file.
    limit_bytes
        Largest size that is read in this way; larger arrays raise.
    raw
        Whether the caller asked for stored numbers. They then count as values.
    renamed
        Whether its files were renamed (`rename_paths`).
    """

    __array_priority__ = 1000
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        array: VirtualArray,
        reader: Reader | None = None,
        limit_bytes: int = LOAD_LIMIT_BYTES,
        *,
        raw: bool = False,
        renamed: bool = False,
    ) -> None:
        self.array = array
        self.reader = reader if reader is not None else reader_for()
        self.limit_bytes = limit_bytes
        self.raw = raw
        self.renamed = renamed

    def like(self, array: VirtualArray) -> VirtualDuckArray:
        """Another array with the same reader and limit."""
        same = {"raw": self.raw, "renamed": self.renamed}
        return VirtualDuckArray(array, self.reader, self.limit_bytes, **same)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the stored elements; strings of variable length are objects."""
        return shown_dtype(self.array)

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def size(self) -> int:
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
    def _stored(self) -> NDArray[Any]:
        return self.reader.read(self.array).astype(self.dtype, copy=False)

    def load(self) -> NDArray[Any]:
        """Read the stored elements, as they are in the file.

        Raises
        ------
        InvalidRequestError
            If there are more than the limit allows.
        """
        if self.nbytes > self.limit_bytes:
            raise InvalidRequestError(
                f"this would load {self.nbytes} bytes of a virtual array of shape"
                f" {self.shape}, more than the limit of {self.limit_bytes}: select less, or raise"
                " the limit (load_limit); in combining, compat='override' takes the first file's"
                " values unseen and loses the others"
            )
        return self._stored

    def decoded(self) -> NDArray[Any]:
        """Read the values, as xarray decodes them."""
        dims = [f"axis_{axis}" for axis in range(self.ndim)]
        attrs = {name: value for name, value in self.array.attrs.items() if name != "coordinates"}
        raw = xr.Variable(dims, self.load(), attrs)
        return np.asarray(decoded("", raw, decode_times=True).values)

    def rename_paths(self, new: str | Callable[[str], str]) -> VirtualDuckArray:
        """Return the array with other addresses of its files. Reads check their sizes only.

        Times of change and ETags are different there.

        Parameters
        ----------
        new
            The address of all its files, or a function that returns it for each present one, a URI.
        """
        array = with_renamed_sources(self.array, new)
        return VirtualDuckArray(array, self.reader, self.limit_bytes, raw=self.raw, renamed=True)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if not (self.raw or shows_values(self.array)):
            raise NoValuesError.of("making a numpy array of packed numbers or undecoded times")
        stored = self.load()
        if dtype is not None and np.dtype(dtype) != stored.dtype:
            return stored.astype(dtype)
        return stored.copy() if copy or copy is None else stored

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is np.where and (whole := _unfilled(*args, **kwargs)) is not None:
            return whole
        if func is np.full_like and np.dtype(kwargs.get("dtype")).kind == "b":
            return Comparison(lambda: _null(args[0]), NoValuesError.of, self.shape)
        if func is np.reshape and len(args) == 2:
            return self.reshape(args[1], **kwargs)
        result = NotImplemented
        if func in ARRANGEMENTS:
            try:
                result = ARRANGEMENTS[func](*_bare(args), **_bare(kwargs))
            except NoValuesError:
                raise
            except TypeError as error:
                raise NoValuesError.of(f"np.{func.__name__} with {error}") from error
        if result is NotImplemented:
            raise NoValuesError.of(f"np.{func.__name__}")
        return self.like(result) if isinstance(result, VirtualArray) else result

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "__call__" and not kwargs:
            if ufunc is np.equal:
                return Comparison(lambda: _equal(*inputs), NoValuesError.of, self.shape)
            if ufunc is np.not_equal and inputs[0] is inputs[1]:
                return Comparison(lambda: _null(inputs[0]), NoValuesError.of, self.shape)
            if ufunc in (np.isnan, np.isnat):
                return Comparison(lambda: _null(inputs[0]), NoValuesError.of, self.shape)
        raise NoValuesError.of(f"np.{ufunc.__name__}")

    def _refuse(self, *_: Any) -> NoReturn:
        raise NoValuesError.of("making a number or a truth value, or assigning one,")

    __bool__ = __int__ = __float__ = __complex__ = __index__ = __contains__ = __setitem__ = _refuse

    real = imag = property(_refuse)

    def __getattr__(self, name: str) -> NoReturn:
        if not name.startswith("_") and hasattr(np.ndarray, name):
            raise _NoSuchMethodError.of(f"{name}()")
        raise AttributeError(f"a virtual array has no attribute {name!r}")

    def __getitem__(self, key: Any) -> VirtualDuckArray:
        try:
            return self.like(select(self.array, key))
        except NotRepresentableError:
            return self._inline(lambda stored: stored[key])

    def _inline(self, arrange: Any) -> VirtualDuckArray:
        """What references cannot arrange: the elements are read and kept beside them."""
        if self.dtype.hasobject:
            raise NoValuesError.of("a pointwise selection or a new shape of strings")
        stored = np.asarray(arrange(self.load()))
        dims = [f"axis_{axis}" for axis in range(stored.ndim)]
        array = self.array
        return self.like(VirtualArray.from_numpy(stored, dims, array.attrs, array.fill_value))

    def astype(self, dtype: DTypeLike, *, copy: bool = True, **_: Any) -> VirtualDuckArray:
        """Hold the same stored numbers in a wider dtype, as where "no data" is put beside them.

        Raises
        ------
        NoValuesError
            For any other cast: it would be one of stored numbers.
        """
        wanted = np.dtype(dtype)
        if wanted == self.dtype or (wanted.itemsize == 0 and wanted.kind == self.dtype.kind):
            return self
        numbers = wanted.kind in "biufc" and self.array.dtype.kind in "biufc"
        if not numbers:
            raise NoValuesError.of(f"a cast of {self.dtype} to {wanted}")
        try:
            return self.like(promoted(self.array, wanted))
        except GridrefError as error:
            raise NoValuesError.of(f"a cast ({error.reason})") from error

    def transpose(self, *axes: Any) -> VirtualDuckArray:
        """Permute the axes, by default in reverse."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return self.like(ARRANGEMENTS[np.transpose](self.array, order or None))

    def reshape(self, *shape: Any, **_: Any) -> VirtualDuckArray:
        """Reshape; the elements are kept inline, unless the shape is the same."""
        wanted = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if tuple(np.atleast_1d(wanted)) == self.shape:
            return self
        return self._inline(lambda stored: stored.reshape(wanted))


def _bare(value: Any) -> Any:
    """The arguments with each duck array replaced by its virtual array, at any depth."""
    if isinstance(value, VirtualDuckArray):
        return value.array
    if isinstance(value, list | tuple):
        return type(value)(_bare(item) for item in value)
    if isinstance(value, dict):
        return {name: _bare(item) for name, item in value.items()}
    return value


def _unfilled(condition: Any, x: Any = None, y: Any = None) -> VirtualDuckArray | None:
    """The array that ``numpy.where`` returns unchanged, where it has no gaps to fill.

    That is so with "no data" on one side, or the same values on both.
    """
    if not isinstance(y, VirtualDuckArray):
        known = isinstance(condition, NotNull) and isinstance(x, VirtualDuckArray)
        return x if known and is_no_data(x.array, y) else None
    if isinstance(condition, NotNull) and isinstance(x, VirtualDuckArray):
        return x if x.shape == y.shape and bool(_equal(x, y).all()) else None
    absent = not isinstance(x, VirtualDuckArray) and is_no_data(y.array, x)
    return y if absent and np.ndim(condition) == 0 and not condition else None


def _equal(one: Any, other: Any) -> NDArray[np.bool_]:
    """Where values are equal, or both are no data."""
    a, b = _bare(one), _bare(other)
    if isinstance(a, VirtualArray) and isinstance(b, VirtualArray):
        if same_chunks(a, b):
            return np.ones((), bool)
        if any(problem.cause == "units-differ" for problem in _beyond_times(a, b)):
            return np.zeros((), bool)
    left, right = (_values(operand) for operand in (one, other))
    return np.asarray(left == right) | (_no_data(left) & _no_data(right))


def _beyond_times(a: VirtualArray, b: VirtualArray) -> list[Any]:
    """How two arrays differ in meaning, where decoding does not resolve it."""
    times = [" since " in str(array.attrs.get("units", "")) for array in (a, b)]
    return [] if all(times) else differences([a, b])


def _null(array: VirtualDuckArray) -> NDArray[np.bool_]:
    return _no_data(array.decoded())


def _values(operand: Any) -> NDArray[Any]:
    return operand.decoded() if isinstance(operand, VirtualDuckArray) else np.asarray(operand)


def _no_data(values: NDArray[Any]) -> NDArray[np.bool_]:
    if values.dtype.kind in "fcmMO":
        return np.asarray(values != values)
    return np.zeros(values.shape, bool)
