"""Labels that are times and were not decoded, so that those of two files are never mixed up.

With ``decode_times=False`` a dimension's labels are numbers that count from a date which only
their attributes tell. xarray keeps the first file's attributes when it lays labels together; this
index refuses to lay labels together that count from different dates, or in different units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

import xarray as xr
from xarray.indexes import Index, PandasIndex

from gridref.combine.calendars import TimeBase
from gridref.errors import CombineError, Problem

__all__ = ["StoredTimesIndex"]


class StoredTimesIndex(PandasIndex):
    """An index of undecoded times, which knows what they count from.

    It is made by `of`, and otherwise is what `xarray.indexes.PandasIndex` is.
    """

    __slots__ = ("since", "sources")

    since: str
    sources: tuple[str, ...]

    @classmethod
    def of(cls, name: str, variable: xr.Variable, sources: tuple[str, ...] = ()) -> Self:
        """The index of a coordinate of some files with ``units`` like ``"days since ..."``."""
        plain = cls.from_variables({name: variable}, options={})
        return cls._counting(plain, _since(variable.attrs), sources)

    @classmethod
    def _counting(cls, index: Any, since: str, sources: tuple[str, ...]) -> Self:
        """An index that was made anew, knowing what its labels count from, and their files."""
        index.since, index.sources = since, sources
        return cast(Self, index)

    def _replace(self, *args: Any, **kwargs: Any) -> Self:
        plain = super()._replace(*args, **kwargs)  # type: ignore[no-untyped-call]
        return self._counting(plain, self.since, self.sources)

    @classmethod
    def concat(cls, indexes: Sequence[Self], dim: Any, positions: Any = None) -> Self:
        """Labels one after the other.

        Raises
        ------
        CombineError
            If they do not count alike.
        """
        sources = _check(indexes)
        return cls._counting(super().concat(indexes, dim, positions), indexes[0].since, sources)

    def equals(self, other: Index, **options: Any) -> bool:
        """Whether labels are the same, and count alike."""
        alike = isinstance(other, StoredTimesIndex) and other.since == self.since
        return alike and super().equals(other, **options)

    def join(self, other: Self, how: Any = "inner") -> Self:
        """Labels of two indexes together; see `concat` for what it raises."""
        sources = _check([self, other])
        return self._counting(super().join(other, how), self.since, sources)

    def reindex_like(
        self, other: Self, method: Any = None, tolerance: Any = None
    ) -> dict[Any, Any]:
        """Where another index' labels are in this one; see `concat` for what it raises."""
        _check([self, other])
        return super().reindex_like(other, method, tolerance)


def _since(attrs: Mapping[str, Any]) -> str:
    """A key that is equal for times of the same units and calendar."""
    base = TimeBase.of(attrs)
    return str(base) if base is not None else f"{attrs.get('units')} {attrs.get('calendar', '')}"


def _check(indexes: Sequence[StoredTimesIndex]) -> tuple[str, ...]:
    """The files of all labels, if they count alike."""
    sources = tuple(dict.fromkeys(name for index in indexes for name in index.sources))
    if len({index.since for index in indexes}) > 1:
        message = (
            "undecoded times count from different dates; open them with decode_times=True, or"
            " combine with gridref.open_virtual_mfdataset or gridref.concat"
        )
        raise CombineError([Problem("units-differ", message, sources=sources)])
    return sources
