"""Find the elements of an array that mean "no value", by the CF conventions.

Source: CF conventions 1.11, 2.5.1 "Missing data, valid and actual range of data".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.model.array import VirtualArray


@dataclass(frozen=True)
class MissingValues:
    """What is no value among the stored elements of an array. NaN never is one.

    Attributes
    ----------
    marks
        Elements that stand for no value.
    low, high
        Least and greatest value; None for no bound.
    """

    marks: tuple[Any, ...] = ()
    low: Any = None
    high: Any = None

    @classmethod
    def of(cls, array: VirtualArray) -> MissingValues:
        """Those of an array, by its attributes; marks that no element equals do not count."""
        attrs, dtype = array.attrs, meant_dtype(array)
        named = [n for name in ("_FillValue", "missing_value") for n in _numbers(attrs, name)]
        marks = [mark for mark in (_as_element(each, dtype) for each in named) if mark is not None]
        bounds = [next(_numbers(attrs, name), None) for name in ("valid_min", "valid_max")]
        in_range = list(_numbers(attrs, "valid_range"))
        low, high = in_range if len(in_range) == 2 else bounds
        if dtype.kind in "iu" and {type(low), type(high)} & {float} and "scale_factor" in attrs:
            low = high = None  # of unpacked values, which the conventions do not have
        return cls(tuple(dict.fromkeys(marks)), low, high)

    @property
    def key(self) -> str:
        """A short text that is the same for the same rules."""
        said = repr((sorted(map(float, self.marks)), self.low, self.high))
        return hashlib.sha256(said.encode()).hexdigest()[:16]

    def among(self, values: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Which elements are no values; None if all are."""
        found: NDArray[np.bool_] | None = None
        if values.dtype.kind == "f":
            found = np.isnan(values)
        for mark in self.marks:
            same = values == mark
            found = same if found is None else found | same
        for outside in (
            None if self.low is None else values < self.low,
            None if self.high is None else values > self.high,
        ):
            if outside is not None:
                found = outside if found is None else found | outside
        return found if found is not None and found.any() else None

    def shown_as(self, dtype: np.dtype[Any]) -> Any:
        """An element that stands for no value; 0 where every element is one.

        The first one of `marks`, which is ``_FillValue`` where there is one; else NaN, or an
        element outside of the bounds.
        """
        if self.marks:
            return dtype.type(self.marks[0])
        if dtype.kind == "f":
            return dtype.type(np.nan)
        info: Any = np.iinfo(dtype) if dtype.kind in "iu" else None
        if info is not None and self.low is not None and self.low > info.min:
            return dtype.type(info.min)
        if info is not None and self.high is not None and self.high < info.max:
            return dtype.type(info.max)
        return dtype.type(0)


def _numbers(attrs: Mapping[str, Any], name: str) -> Iterator[Any]:
    """The numbers of an attribute as Python's; nothing for texts."""
    found = np.asarray(attrs.get(name, []))
    if found.dtype.kind in "iuf":
        yield from found.reshape(-1).tolist()


def _as_element(mark: Any, dtype: np.dtype[Any]) -> Any:
    """A number as an element of a dtype; None if no element is that, or NaN."""
    if mark != mark:
        return None
    if dtype.kind == "f":
        with np.errstate(all="ignore"):
            return dtype.type(mark).item()
    if dtype.kind not in "iu" or not np.isfinite(mark) or mark != int(mark):
        return None
    if dtype.kind == "u" and mark < 0:  # written as the signed number of the same bytes
        mark += 2 ** (8 * dtype.itemsize)
    info = np.iinfo(dtype)
    return int(mark) if info.min <= mark <= info.max else None


def meant_dtype(array: VirtualArray) -> np.dtype[Any]:
    """The dtype of an array, with the sign that ``_Unsigned`` gives to integers."""
    unsigned, dtype = array.attrs.get("_Unsigned"), array.dtype
    if dtype.kind == "i" and unsigned == "true":
        return np.dtype(f"u{dtype.itemsize}")
    if dtype.kind == "u" and unsigned == "false":
        return np.dtype(f"i{dtype.itemsize}")
    return dtype
