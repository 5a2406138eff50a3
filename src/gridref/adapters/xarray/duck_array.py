"""Virtual arrays as duck arrays: what xarray rearranges without reading.

Slicing, transposing, concatenating, stacking, broadcasting, padding and reindexing give virtual
arrays again. Everything else needs values, and virtual arrays have stored numbers only: packed,
or times counted from some date. It is refused, whatever the numbers are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import xarray as xr
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray

from gridref.adapters.xarray.arrangement import ARRANGEMENTS, shown_dtype
from gridref.adapters.xarray.comparison import Comparison, NotNull, same_chunks
from gridref.adapters.xarray.foreign_writers import refuse_foreign_writers, shown_class
from gridref.adapters.xarray.meaning import differences, is_no_data, promoted, shows_values
from gridref.adapters.xarray.selection import select
from gridref.errors import GridrefError, InvalidRequestError, NotRepresentableError
from gridref.model.array import VirtualArray
from gridref.serve.reader import Reader
from gridref.workflows.decoding import decoded
from gridref.workflows.identity import with_renamed_sources
from gridref.workflows.opening import reader_for

__all__ = ["LOAD_LIMIT_BYTES", "NoValuesError", "VirtualDuckArray"]

LOAD_LIMIT_BYTES = 2**30
"""Largest array that is loaded where values have to be compared, or cannot stay in their file."""

ADVICE = (
    "a virtual variable holds stored numbers, not values: write the dataset with"
    " ds.gridref.to_catalog(path) and open that with xr.open_dataset(path, engine='gridref'), or"
    " load the variable when opening (loadable_variables=[...])"
)


class NoValuesError(InvalidRequestError, TypeError):
    """An operation needs values, and a virtual array has none."""

    @classmethod
    def of(cls, operation: str) -> NoValuesError:
        """The error of an operation, saying how to open values."""
        return cls(f"{operation} needs values: {ADVICE}")


class _NoSuchMethodError(NoValuesError, AttributeError):
    """A method of numpy arrays that virtual arrays do not have."""


class VirtualDuckArray(NDArrayOperatorsMixin):
    """A virtual array that xarray can arrange.

    Parameters
    ----------
    reader
        What reads it where its elements have to be compared or moved out of their file.
    limit_bytes
        Largest size that is read so; larger ones raise.
    raw
        Whether stored numbers are what was asked for, so that they may be taken for the values.
    renamed
        Whether it was told that its files lie elsewhere.
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
        """Shape of the array."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the stored elements; strings of variable length are objects."""
        return shown_dtype(self.array)

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
                f" {self.shape}, more than the limit of {self.limit_bytes}: choose an operation"
                " that needs none (in combining, compat='override' and join='override'), select"
                " less, or raise the limit (load_limit)"
            )
        return self._stored

    def decoded(self) -> NDArray[Any]:
        """Read the values, as xarray decodes them."""
        dims = [f"axis_{axis}" for axis in range(self.ndim)]
        attrs = {name: value for name, value in self.array.attrs.items() if name != "coordinates"}
        raw = xr.Variable(dims, self.load(), attrs)
        return np.asarray(decoded("", raw, decode_times=True).values)

    def _class(self) -> type:
        return shown_class(type(self), sys._getframe(1))  # noqa: SLF001 (it is documented)

    # isinstance asks it, where the type itself does not tell.
    __class__ = property(_class)

    def rename_paths(self, new: str | Callable[[str], str]) -> VirtualDuckArray:
        """Its chunks in other files: what ``ds.vz.rename_paths`` asks of each array.

        The files are told by their sizes from now on: times of change and ETags are others there.

        Parameters
        ----------
        new
            The address of all its files, or what gives it for each former one, a URI.
        """
        array = with_renamed_sources(self.array, new)
        return VirtualDuckArray(array, self.reader, self.limit_bytes, raw=self.raw, renamed=True)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        refuse_foreign_writers()
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
