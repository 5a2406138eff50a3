"""Virtual arrays as duck arrays: what xarray rearranges without reading.

Slicing, transposing, concatenating, stacking, broadcasting, padding and reindexing give virtual
arrays again: `ARRANGEMENTS` has the numpy functions that do it. Everything else needs values, and
virtual arrays have only stored numbers: packed, or times counted from some date. All of it raises
`NoValuesError`, whatever the numbers are.

xarray compares when it merges. `Comparison` and `NotNull` are what it gets. They answer ``all``
only, and for the values: from the chunks if these are the same, else by reading and decoding them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial, reduce
from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray

from gridref.api.decoding import decoded_values
from gridref.api.readable import reader_for
from gridref.combine.columns import array_source
from gridref.combine.rules.flags import named_numbers
from gridref.combine.rules.packing import Packing, float_dtype
from gridref.combine.values import same_chunks
from gridref.errors import (
    CombineError,
    GridrefError,
    InvalidRequestError,
    NotRepresentableError,
    Problem,
    number_of,
)
from gridref.model.array import VirtualArray
from gridref.model.conventions import TimeBase, is_time_like
from gridref.model.indexing import getitem, isel
from gridref.model.joining import (
    cast_scalar,
    concatenate,
    missing_array,
    missing_like,
    recast,
    same_scalar,
)
from gridref.model.projection import expand_ellipsis
from gridref.model.reshaping import broadcast_axis, expand_dims, squeeze, transpose
from gridref.pickling import Picklable
from gridref.serve.reader import Reader

# What stored numbers mean, and whether several arrays agree in it: packing (CF conventions, 8.1),
# units (3.1), reference dates (4.4) and names of numbers (3.5). All that concatenates, replaces or
# fills virtual arrays makes this check.

_RESOLVED_BY = "gridref.open_virtual_mfdataset and gridref.concat resolve that"


def shows_values(array: VirtualArray) -> bool:
    """Whether stored elements are the values: neither packed nor times counted from a date."""
    plain = Packing.of(array).is_trivial or array.dtype.kind not in "biufc"
    return plain and not is_time_like(array.attrs) and "dtype" not in array.attrs


def is_no_data(array: VirtualArray, value: Any) -> bool:
    """Whether a scalar stands for "no data" beside the stored elements of an array."""
    if np.ndim(value) or array.dtype.kind not in "biufc":
        return False
    scalar = np.asarray(value)
    if scalar.dtype.kind not in "biufc":
        return False
    return bool(scalar != scalar) or scalar.item() in Packing.of(array).fills


def check_alike(arrays: Sequence[VirtualArray]) -> None:
    """Raise if stored numbers to be combined do not mean the same.

    Raises
    ------
    CombineError
        If packing, units, reference dates or names of numbers differ: xarray keeps one file's
        attributes for all.
    """
    problems = differences(arrays)
    if problems:
        raise CombineError(problems)


def differences(arrays: Sequence[VirtualArray]) -> list[Problem]:
    """How the stored numbers of arrays differ in what they mean; nothing where they do not."""
    names = [", ".join(named_numbers(array)) for array in arrays]
    meanings = (
        ("packing-differs", "stored numbers are packed differently", map(_packing_text, arrays)),
        ("units-differ", "units differ", _unit_texts(arrays)),
        ("flags-differ", "names of stored numbers differ", filter(None, names)),
    )
    problems = []
    for cause, message, texts in meanings:
        distinct = list(dict.fromkeys(texts))
        if len(distinct) > 1:
            shown = f"{message}: {'; '.join(distinct[:4])}; {_RESOLVED_BY}"
            problems.append(Problem(cause, shown, sources=files_of(arrays)))
    return problems


def files_of(arrays: Sequence[VirtualArray]) -> tuple[str, ...]:
    """The files of arrays, each once."""
    return tuple(name for name in dict.fromkeys(map(array_source, arrays)) if name is not None)


def _packing_text(array: VirtualArray) -> str:
    """What decides how stored numbers become values, in words."""
    if array.dtype.kind not in "biuf":
        return "not packed"
    packing = Packing.of(array)
    text = str(packing)
    if not packing.is_exact:
        text += f", in {float_dtype(array, packing)}"
    if packing.unsigned is not None:
        text += f" {array.dtype}"
    return f"{text}, {array.attrs['dtype']}" if "dtype" in array.attrs else text


def _unit_texts(arrays: Sequence[VirtualArray]) -> list[str]:
    """Units that differ. No unit is one where others count times, and goes with any other."""
    units: dict[TimeBase | str, str] = {}
    for array in arrays:
        units.setdefault(units_of(array.attrs), _unit_text(array.attrs))
    times = any(is_time_like(array.attrs) for array in arrays)
    return [text or "none" for text in units.values() if text or times]


def units_of(attrs: Mapping[str, Any]) -> TimeBase | str:
    """Units and calendar, equal where they mean the same; empty where there are none."""
    return TimeBase.of(attrs) or _unit_text(attrs)


def _unit_text(attrs: Mapping[str, Any]) -> str:
    return f"{attrs['units']} {attrs.get('calendar', '')}".strip() if "units" in attrs else ""


def promoted(array: VirtualArray, dtype: np.dtype[Any]) -> VirtualArray:
    """The same stored numbers in a wider dtype, as xarray asks for where it fills in.

    Raises
    ------
    InvalidRequestError
        If the numbers, or the values that readers make of them, would not be the same.
    """
    wider = recast(array, dtype, cast_scalar(array.fill_value, dtype))
    packing = Packing.of(array)
    if not _holds(array.dtype, dtype) or (dtype.kind not in "fc" and not shows_values(array)):
        raise InvalidRequestError(f"stored {array.dtype} cannot become {dtype} without a change")
    if packing.unsigned is not None:
        reason = f"stored {array.dtype} that count as {'un' * packing.unsigned}signed"
        raise InvalidRequestError(f"{reason} cannot become {dtype}")
    if not packing.is_exact and float_dtype(array, packing) != float_dtype(wider, packing):
        reason = f"packed {array.dtype} would be unpacked in another precision as {dtype}"
        raise InvalidRequestError(reason)
    return wider


def _holds(stored: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether a cast keeps numbers: widening, or integers to the floats that xarray takes."""
    if np.can_cast(stored, wanted, "safe"):
        return True
    return stored.kind in "iu" and wanted.kind in "fc" and wanted.itemsize >= 8


LOAD_LIMIT_BYTES = 2**30
"""Largest array that is loaded where values have to be compared, or cannot stay in their file."""

ADVICE = (
    "a virtual variable holds stored numbers, not values: write the dataset with"
    " ds.gridref.save(path) and open that with xr.open_dataset(path, engine='gridref'), or"
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


# What xarray does with axes


def _shape_of(view: Callable[[NDArray[Any]], NDArray[Any]], array: VirtualArray) -> tuple[int, ...]:
    """What a function of numpy makes of the shape of an array."""
    return view(np.broadcast_to(np.False_, array.shape)).shape


def with_shape(array: VirtualArray, shape: Sequence[int]) -> VirtualArray:
    """Add and drop axes of extent 1."""
    axis = 0
    for extent in shape:
        while axis < array.ndim and array.shape[axis] == 1 != extent:
            array = squeeze(array, [axis])
        if axis == array.ndim or array.shape[axis] != extent:
            if extent != 1:
                raise NotRepresentableError("a new shape")
            array = _with_new_axis(array, axis)
        axis += 1
    if set(array.shape[axis:]) - {1}:
        raise NotRepresentableError("a new shape")
    return squeeze(array, range(axis, array.ndim))


def _with_new_axis(array: VirtualArray, axis: int) -> VirtualArray:
    number = next(n for n in range(array.ndim + 1) if f"axis_{n}" not in array.dims)
    return expand_dims(array, axis, f"axis_{number}")


# Indexing as numpy does it, if it is one selection per axis


def select(array: VirtualArray, key: Any) -> VirtualArray:
    """The elements that an index of numpy's basic or advanced indexing selects."""
    written = tuple(map(_plain_indexer, key if isinstance(key, tuple) else (key,)))
    indexers = expand_ellipsis(written, array.ndim + sum(each is None for each in written))
    others = [each for each in indexers if not isinstance(each, np.ndarray)]
    if len(others) == len(indexers):  # basic indexing
        selected = getitem(array, tuple(each for each in indexers if each is not None))
        return with_shape(selected, _shape_of(lambda shown: shown[tuple(indexers)], array))
    arrays = [each for each in indexers if isinstance(each, np.ndarray)]
    if len(arrays) == arrays[0].ndim == 1 and all(isinstance(each, slice) for each in others):
        return getitem(array, tuple(indexers))
    if others or not _is_open_mesh(arrays):
        raise NotRepresentableError("a pointwise selection")
    selected = getitem(array, tuple(each.reshape(-1) for each in arrays))
    return with_shape(selected, np.broadcast_shapes(*(each.shape for each in arrays)))


def _plain_indexer(indexer: Any) -> Any:
    """Lists as arrays, and arrays of no dimension as integers, as numpy takes them."""
    if isinstance(indexer, list):
        return np.asarray(indexer, None if indexer else np.int64)
    return indexer.item() if isinstance(indexer, np.ndarray) and not indexer.ndim else indexer


def _is_open_mesh(arrays: Sequence[NDArray[Any]]) -> bool:
    """Whether arrays select each along its own axis (`numpy.ix_`), as xarray writes such keys."""
    wide = [[axis for axis in range(-each.ndim, 0) if each.shape[axis] != 1] for each in arrays]
    axes = [axis for own in wide for axis in own]
    masks = any(each.dtype == np.bool_ for each in arrays)
    return not masks and all(len(own) < 2 for own in wide) and axes == sorted(set(axes))


# The functions of numpy that xarray calls and that only arrange elements. Those that return
# NotImplemented, or do not know an argument, need values.


def _moveaxis(array: VirtualDuckArray, source: Any, destination: Any) -> VirtualArray:
    """Move axes as numpy does those of an array whose axes have the extents 0, 1, 2, ..."""
    numbered = np.empty(tuple(range(array.ndim)), bool)
    return transpose(array.array, np.moveaxis(numbered, source, destination).shape)


def _broadcast_to(array: VirtualDuckArray, shape: Any) -> VirtualArray:
    wide = array.array
    wanted = _shape_of(lambda shown: np.broadcast_to(shown, shape), wide)
    for _ in range(len(wanted) - wide.ndim):
        wide = _with_new_axis(wide, 0)
    for axis, extent in enumerate(wanted):
        wide = broadcast_axis(wide, axis, extent)
    return wide


def _result_type(*operands: Any) -> np.dtype[Any]:
    return np.result_type(*(o.dtype if isinstance(o, VirtualDuckArray) else o for o in operands))


def _concatenate(arrays: Sequence[Any], axis: int | None = 0) -> Any:
    if axis is None:
        return NotImplemented
    virtual = list(map(_as_virtual, arrays))
    check_alike(virtual)
    attrs = next((array.attrs for array in virtual if array.attrs), {})  # numpy arrays have none
    return concatenate(virtual, axis % virtual[0].ndim).with_changes(attrs=attrs)


def _stack(arrays: Sequence[Any], axis: int = 0) -> Any:
    axis %= arrays[0].ndim + 1
    wide = (*[slice(None)] * axis, None)
    return _concatenate([array[wide] for array in arrays], axis)


def _as_virtual(operand: Any) -> VirtualArray:
    """Make small values inline, to combine them with virtual ones."""
    if isinstance(operand, VirtualDuckArray):
        return operand.array
    values = np.asarray(operand)
    if values.dtype.kind not in "biufcSU":
        raise TypeError(f"an array of {values.dtype}")
    return VirtualArray.from_numpy(values, [f"axis_{axis}" for axis in range(values.ndim)])


def _full_like(array: Any, fill_value: Any, dtype: Any = None, **_: Any) -> Any:
    """An array that is missing everywhere; of truth values, where elements are no data."""
    if not isinstance(array, VirtualDuckArray):
        return NotImplemented
    stored = array.array
    wanted = stored.dtype if dtype is None else np.dtype(dtype)
    if wanted.kind == "b" and dtype is not None:
        return _gaps(array)
    if not _may_fill(stored, fill_value) or wanted.kind in "TO":
        return NotImplemented
    fill = cast_scalar(fill_value, wanted)
    return missing_array(
        stored.shape, wanted, dims=stored.dims, fill_value=fill, attrs=stored.attrs
    )


def _may_fill(array: VirtualArray, value: Any) -> bool:
    """Whether a value may be put beside stored elements: "no data", or any beside plain values."""
    return is_no_data(array, value) or shows_values(array)


def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """One of two arrays, or "no data" in whole slices of one, as xarray puts it in reindexing."""
    if isinstance(condition, NotNull):
        return x if isinstance(x, VirtualDuckArray) and condition.keeps(x, y) else NotImplemented
    apart = (VirtualDuckArray, Comparison, NotNull)
    if isinstance(condition, apart):
        return NotImplemented
    if not isinstance(x, VirtualDuckArray):
        nothing = np.ndim(condition) == 0 and not condition
        absent = isinstance(y, VirtualDuckArray) and is_no_data(y.array, x)
        return y if nothing and absent else NotImplemented
    if isinstance(y, apart) or np.ndim(y):
        return NotImplemented
    mask = np.broadcast_to(np.asarray(condition, bool), x.shape)
    if mask.all() and (_may_fill(x.array, y) or x.array.dtype.kind in "TSU"):
        return x
    axes = range(x.ndim)
    kept = [mask.any(axis=tuple(other for other in axes if other != axis)) for axis in axes]
    product: NDArray[np.bool_] = reduce(np.logical_and.outer, kept, np.ones((), bool))
    is_product = np.array_equal(product, mask)
    numbers = x.dtype.kind in "biufc" and np.asarray(y).dtype.kind in "biufc"
    if not (is_product and numbers and _may_fill(x.array, y)):
        return NotImplemented
    dtype = np.result_type(x.dtype, y)
    result = promoted(x.array, dtype) if dtype != x.dtype else x.array
    for axis, flags in enumerate(kept):
        result = _emptied(result, axis, flags, cast_scalar(y, dtype))
    return result


def _emptied(array: VirtualArray, axis: int, keep: NDArray[np.bool_], fill: Any) -> VirtualArray:
    """Keep only some places along an axis of an array; the others become missing."""
    if keep.all():
        return array
    runs = np.split(np.arange(len(keep)), np.flatnonzero(np.diff(keep)) + 1)
    parts = [
        isel(array, {axis: slice(run[0], run[-1] + 1)})
        if keep[run[0]]
        else missing_like(array, axis, len(run), fill)
        for run in runs
    ]
    return concatenate(parts, axis, fill_value=fill)


def _pad(
    padded: VirtualDuckArray,
    pad_width: Any,
    mode: Any = "constant",
    *,
    constant_values: Any = 0,
    reflect_type: str = "even",
) -> Any:
    """Pad with "no data", or with the array's own elements."""
    array = padded.array
    widths = np.broadcast_to(np.asarray(pad_width), (array.ndim, 2))
    if mode == "constant":
        fills = np.broadcast_to(np.asarray(constant_values), widths.shape)
        if array.dtype.kind not in "biufc" or not all(
            _may_fill(array, fill) for fill in fills.flat
        ):
            return NotImplemented
        for axis, side in np.argwhere(widths).tolist():
            fill = cast_scalar(fills[axis, side], array.dtype)
            padding = missing_like(array, axis, int(widths[axis, side]), fill)
            array = concatenate([array, padding] if side else [padding, array], axis)
        return array
    if mode not in ("edge", "wrap", "reflect", "symmetric") or reflect_type == "odd":
        return NotImplemented
    for axis in np.flatnonzero(widths.any(axis=1)).tolist():
        array = isel(array, {axis: np.pad(np.arange(array.shape[axis]), widths[axis], mode=mode)})
    return array


def _reshape(array: VirtualDuckArray, shape: Any) -> VirtualDuckArray:
    """Elements are kept inline unless only axes of extent 1 come or go."""
    return array.arranged(
        lambda own: with_shape(own, _shape_of(lambda shown: np.reshape(shown, shape), own)),
        lambda stored: np.reshape(stored, shape),
    )


ARRANGEMENTS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.result_type: _result_type,
    np.concatenate: _concatenate,
    np.stack: _stack,
    np.broadcast_to: _broadcast_to,
    np.moveaxis: _moveaxis,
    np.reshape: _reshape,
    np.pad: _pad,
    np.full_like: _full_like,
    np.where: _where,
}


# The duck array


class VirtualDuckArray(Picklable, NDArrayOperatorsMixin):
    """A virtual array that xarray can arrange.

    Parameters
    ----------
    reader
        Reads it when its elements have to be compared, or copied out of their file.
    limit_bytes
        Largest size that is read in this way; larger arrays raise.
    raw
        Whether the caller asked for stored numbers. They then count as values.
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
    ) -> None:
        self.array = array
        self.reader = reader if reader is not None else reader_for()
        self.limit_bytes = limit_bytes
        self.raw = raw
        self.shape = array.shape
        self.ndim = array.ndim
        self.size = array.size
        self.nbytes = array.nbytes
        # xarray takes strings of variable length as objects.
        self.dtype = np.dtype(object) if array.dtype.kind == "T" else array.dtype

    def like(self, array: VirtualArray) -> VirtualDuckArray:
        """Another array with the same reader and limit."""
        return VirtualDuckArray(array, self.reader, self.limit_bytes, raw=self.raw)

    def __repr__(self) -> str:
        return f"VirtualDuckArray({self.array!r})"

    def _repr_inline_(self, max_width: int) -> str:
        n_blocks = self.array.n_blocks
        return f"virtual, {number_of(n_blocks, 'block')}"[:max_width]

    def __deepcopy__(self, memo: Any) -> VirtualDuckArray:
        return self

    # What arranges

    def __getitem__(self, key: Any) -> VirtualDuckArray:
        return self.arranged(lambda array: select(array, key), lambda stored: stored[key])

    def arranged(
        self,
        arrange: Callable[[VirtualArray], VirtualArray],
        arrange_values: Callable[[NDArray[Any]], NDArray[Any]],
    ) -> VirtualDuckArray:
        """Arrange references, or else the elements, which are read and kept beside them."""
        try:
            return self.like(arrange(self.array))
        except NotRepresentableError:
            pass
        if self.dtype.hasobject:
            raise NoValuesError.of("a pointwise selection or a new shape of strings")
        stored = np.asarray(arrange_values(self.load()))
        dims = [f"axis_{axis}" for axis in range(stored.ndim)]
        array = self.array
        return self.like(VirtualArray.from_numpy(stored, dims, array.attrs, array.fill_value))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        try:
            result = ARRANGEMENTS.get(func, _refused)(*args, **kwargs)
        except TypeError as error:
            raise NoValuesError.of(f"np.{func.__name__} with {error}") from error
        if result is NotImplemented:
            raise NoValuesError.of(f"np.{func.__name__}")
        return self.like(result) if isinstance(result, VirtualArray) else result

    def transpose(self, axes: Sequence[int]) -> VirtualDuckArray:
        """Permute the axes."""
        return self.like(transpose(self.array, axes))

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
        if wanted.kind not in "biufc" or self.array.dtype.kind not in "biufc":
            raise NoValuesError.of(f"a cast of {self.dtype} to {wanted}")
        try:
            return self.like(promoted(self.array, wanted))
        except GridrefError as error:
            raise NoValuesError.of(f"a cast ({error.reason})") from error

    # What reads

    @cached_property
    def _stored(self) -> NDArray[Any]:
        return self.reader.read(self.array).astype(self.dtype, copy=False)

    def load(self) -> NDArray[Any]:
        """Read the stored elements, as they are in the file."""
        if self.nbytes > self.limit_bytes:
            raise InvalidRequestError(
                f"this would load {self.nbytes} bytes of a virtual array of shape"
                f" {self.shape}, more than the limit of {self.limit_bytes}: select less, or raise"
                " the limit (load_limit); in combining, compat='override' takes the first file's"
                " values unseen and loses the others"
            )
        return self._stored

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if not (self.raw or shows_values(self.array)):
            raise NoValuesError.of("making a numpy array of packed numbers or undecoded times")
        stored = self.load()
        if dtype is not None and np.dtype(dtype) != stored.dtype:
            return stored.astype(dtype)
        return stored.copy() if copy or copy is None else stored

    # What compares, and what is refused

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "__call__" and not kwargs:
            if ufunc is np.equal:
                return Comparison(lambda: _equal(*inputs))
            itself = ufunc is np.not_equal and inputs[0] is inputs[1]
            if itself or ufunc in (np.isnan, np.isnat):
                return _gaps(self)
        raise NoValuesError.of(f"np.{ufunc.__name__}")

    def _refuse(self, *_: Any) -> NoReturn:
        raise NoValuesError.of("making a number or a truth value, or assigning one,")

    __bool__ = __int__ = __float__ = __complex__ = __index__ = __contains__ = __setitem__ = _refuse

    real = imag = property(_refuse)

    def __getattr__(self, name: str) -> NoReturn:
        if not name.startswith("_") and hasattr(np.ndarray, name):
            raise _NoSuchMethodError.of(f"{name}()")
        raise AttributeError(f"a virtual array has no attribute {name!r}")


def _refused(*_: Any, **__: Any) -> Any:
    return NotImplemented


# Comparisons that xarray makes when it combines: equality and missing values


class Comparison(NDArrayOperatorsMixin):
    """The result of a comparison, which is worked out only to say whether all of it is true.

    Parameters
    ----------
    answer
        Works the truth values out.
    gaps_of
        The array, if they say where it has no data.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, answer: Callable[[], NDArray[np.bool_]], gaps_of: VirtualDuckArray | None = None
    ) -> None:
        self.answer = answer
        self.gaps_of = gaps_of

    def all(self, axis: Any = None, **_: Any) -> bool:
        """Whether all are true."""
        if axis is not None:
            raise NoValuesError.of("comparing along an axis")
        return bool(self.answer().all())

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **_: Any) -> Any:
        if ufunc is np.invert and self.gaps_of is not None:
            return NotNull(self.gaps_of)
        if ufunc in (np.bitwise_or, np.bitwise_and) and method == "__call__":
            return Comparison(lambda: _joined(ufunc, *inputs))
        raise NoValuesError.of(f"np.{ufunc.__name__}")

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        raise NoValuesError.of("comparing")

    __bool__ = __array__


def _joined(ufunc: Any, *operands: Any) -> NDArray[np.bool_]:
    """Both answers; the second one is not worked out where the first decides."""
    first, second = (
        operand.answer if isinstance(operand, Comparison) else partial(np.asarray, operand)
        for operand in operands
    )
    known = first()
    decided = known.all() if ufunc is np.bitwise_or else not known.any()
    return known if decided else np.asarray(ufunc(known, second()))


class NotNull(NDArrayOperatorsMixin):
    """The result of ``notnull``: a condition of ``numpy.where`` between arrays that are equal."""

    dtype = np.dtype(bool)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, array: VirtualDuckArray) -> None:
        self.array = array
        self.shape = array.shape
        self.ndim = array.ndim

    def __repr__(self) -> str:
        return f"<where there is data, of shape {self.shape}: not worked out>"

    def astype(self, dtype: Any, **_: Any) -> NotNull:
        """Itself: truth values already."""
        return self

    def keeps(self, x: VirtualDuckArray, y: Any) -> bool:
        """Whether ``where(self, x, y)`` is `x`: it equals `y`, or "no data" is put in its gaps."""
        if isinstance(y, VirtualDuckArray):
            return x.shape == y.shape and bool(_equal(x, y).all())
        # It may have been cast since.
        same = self.shape == x.shape and _same(self.array.astype(x.dtype).array, x.array)
        return same and is_no_data(x.array, y)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        raise NoValuesError.of("finding missing values")

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return NotImplemented if func is np.where else self.__array__()

    def __array_ufunc__(self, *_: Any, **__: Any) -> Any:
        self.__array__()


def _equal(one: Any, other: Any) -> NDArray[np.bool_]:
    """Where values are equal, or both are no data."""
    if isinstance(one, VirtualDuckArray) and isinstance(other, VirtualDuckArray):
        arrays = (one.array, other.array)
        if _same(*arrays):
            return np.ones((), bool)
        times = all(is_time_like(array.attrs) for array in arrays)
        unlike = [] if times else differences(arrays)  # decoding resolves other times
        if any(problem.cause == "units-differ" for problem in unlike):
            return np.zeros((), bool)
    left, right = (_values(operand) for operand in (one, other))
    return np.asarray(left == right) | (_no_data(left) & _no_data(right))


def _same(one: VirtualArray, other: VirtualArray) -> bool:
    """Whether two arrays show the same stored chunks, and mean the same by them."""
    return one is other or (
        one.dtype == other.dtype
        and same_chunks(one, other)
        and same_scalar(one.fill_value, other.fill_value, one.dtype)
        and not differences([one, other])
    )


def _gaps(array: VirtualDuckArray) -> Comparison:
    """Where an array has no data."""
    return Comparison(lambda: _no_data(_values(array)), gaps_of=array)


def _values(operand: Any) -> NDArray[Any]:
    """Values as xarray decodes them."""
    if isinstance(operand, VirtualDuckArray):
        return decoded_values("", operand.load(), operand.array)
    return np.asarray(operand)


def _no_data(values: NDArray[Any]) -> NDArray[np.bool_]:
    if values.dtype.kind in "fcmMO":
        return np.asarray(values != values)
    return np.zeros(values.shape, bool)
