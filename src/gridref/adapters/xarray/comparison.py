"""What xarray asks of two virtual arrays when it combines: are they equal, where is no data.

Both are answered for the values, never for stored numbers: by their chunks where these are the
same, else by reading and decoding them. The answers are good for ``all`` and no more, which is
what ``equals``, ``identical`` and merging ask for; anything else is a computation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from gridref.adapters.xarray.meaning import differences
from gridref.model.array import VirtualArray
from gridref.model.manifest import ChunkManifest, Manifest

__all__ = ["Comparison", "NotNull", "Refuse", "same_chunks"]

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
