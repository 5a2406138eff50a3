"""The public functions `concat` and `mosaic`, which combine groups and arrays.

They call `gridref.combine`, and give it a function that reads values from the sources, for the
rules that have to compare or change values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, overload

from numpy.typing import ArrayLike, NDArray

from gridref.api.layout.sources import with_labels
from gridref.api.readable import SourceAccess, Sources, readable
from gridref.api.units import with_converter
from gridref.catalog import CatalogGroup
from gridref.combine import (
    CombineOptions,
    combine,
    combine_mosaic,
)
from gridref.combine.mosaic import check_tolerance
from gridref.combine.options import Read
from gridref.errors import InvalidRequestError, Message, Option
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.options import check_choice, verb

Dims = str | Sequence[str]


@overload
def concat(
    items: Iterable[VirtualGroup],
    dim: Dims,
    *,
    labels: ArrayLike | None = None,
    storage_options: Mapping[str, Any] | None = None,
    read: Read | None = None,
    **options: Any,
) -> VirtualGroup: ...
@overload
def concat(
    items: Iterable[VirtualArray],
    dim: Dims,
    *,
    storage_options: Mapping[str, Any] | None = None,
    read: Read | None = None,
    **options: Any,
) -> VirtualArray: ...
@verb(CombineOptions)
def concat(
    items: Iterable[VirtualGroup] | Iterable[VirtualArray],
    dim: Dims,
    *,
    labels: ArrayLike | None = None,
    storage_options: Mapping[str, Any] | None = None,
    read: Read | None = None,
    **options: Any,
) -> VirtualGroup | VirtualArray:
    """Lay groups or arrays one after the other along a dimension, existing or new.

    Parameters
    ----------
    items
        The inputs, in order. An iterator is taken in batches, and no input is kept.
    dim
        Name of the dimension; a new one is put first. Several names let each of them grow (ragged
        arrays).
    labels
        One label for each group: numbers, strings or ``datetime64``. They become the coordinate of
        the dimension, which is new, or of length 1 in each group.
    storage_options
        Options of fsspec's filesystems of the sources; by default those that the inputs were opened
        with.
    read
        Reads all values of an array, in place of the sources.
    **options
        Fields of `CombineOptions`; ``convert_units=True`` converts with pint.

    Returns
    -------
    VirtualGroup or VirtualArray
        Of the kind of the inputs.

    Raises
    ------
    CombineError
        With every problem, where the inputs do not fit together.
    InvalidRequestError
        For inputs that were opened with different storage options, if none are given; for labels
        that are not one for each group, or of a group in which the dimension is longer than 1.
    """
    opened = _Opened(storage_options)
    rules = CombineOptions(**with_converter(options))
    has_arrays = False

    def groups() -> Iterator[VirtualGroup]:
        nonlocal has_arrays
        for item in items:
            has_arrays |= isinstance(item, VirtualArray)
            yield VirtualGroup({"": item}) if isinstance(item, VirtualArray) else item

    inputs = opened.noted(groups())
    if labels is not None:
        inputs = with_labels(inputs, dim, labels)
    done = combine(inputs, dim, read=read or opened.read, options=rules).unwrap()
    if has_arrays:
        return done.arrays[""].with_changes(access=SourceAccess(opened.sources))
    return readable(done, opened.sources)


@verb(CombineOptions)
def mosaic(
    groups: Iterable[VirtualGroup],
    *,
    stack: str | None = None,
    labels: ArrayLike | None = None,
    x: str = "x",
    y: str = "y",
    tolerance: float = 0.01,
    grids: Literal["one", "groups"] = "one",
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> VirtualGroup:
    """Lay georeferenced groups on one grid, and their overviews on coarser ones.

    An overview is left out if an input lacks it, or if those of the inputs do not fit on one grid;
    the report gives the reason. Other groups below the inputs are left out too.

    Parameters
    ----------
    groups
        The inputs, each with a ``spatial_ref``. An iterator is taken in batches.
    stack
        Name of a new first dimension. Inputs with the same label are in one mosaic, and elements
        that no input holds at a label are missing there.
    labels
        The label of each input along that dimension, as for `concat`. By default, each input's
        variable of that name holds its label.
    x, y, tolerance, grids
        As for `gridref.Mosaic`.
    storage_options
        As for `concat`.
    **options
        Fields of `CombineOptions`. ``overlap="first"`` and ``"last"`` decide
        which input is shown where several cover a pixel.

    Raises
    ------
    CombineError
        With every problem: inputs that have no georeferencing, are rotated, differ in coordinate
        reference system or resolution, are off the grid, or overlap; and drift that no rule
        resolves.
    InvalidRequestError
        For no inputs, or an option that has no meaning for a mosaic, like ``overlap="keep"``.
    """
    opened = _Opened(storage_options)
    if labels is not None:
        if stack is None:
            raise InvalidRequestError(
                Message(
                    "labels were given, but no dimension: name it (", Option("stack", "time"), ")"
                )
            )
        groups = with_labels(groups, stack, labels)
    check_tolerance(tolerance)
    check_choice("grids", grids, ("one", "groups"))
    rules = CombineOptions(**with_converter(options))
    done = combine_mosaic(
        opened.noted(groups),
        x=x,
        y=y,
        tolerance=tolerance,
        grids=grids,
        stack=() if stack is None else (stack,),
        read=opened.read,
        options=rules,
    ).unwrap()
    return readable(done, opened.sources)


class _Opened:
    """How the sources of a call's inputs are read: with the options given, else the inputs' own."""

    def __init__(self, storage_options: Mapping[str, Any] | None) -> None:
        self._known = self._given = storage_options is not None
        self.sources = Sources(storage_options)

    def noted(self, groups: Iterable[VirtualGroup]) -> Iterator[VirtualGroup]:
        """The inputs as they come, each one's storage options noted on the way."""
        for group in groups:
            if not self._given:
                self._note(group)
            yield group.from_files() if isinstance(group, CatalogGroup) else group

    def read(self, array: VirtualArray) -> NDArray[Any]:
        """All values of an array."""
        return self.sources.reader.read(array)

    def _note(self, group: VirtualGroup) -> None:
        for access in (array.access for array in group.arrays.values()):
            if not isinstance(access, SourceAccess) or access.sources is self.sources:
                continue
            if not self._known:
                self.sources, self._known = access.sources, True
            elif access.sources != self.sources:
                raise InvalidRequestError(
                    "the inputs were opened with different storage options: give those of all,"
                    ' storage_options={"s3": {...}, "https": {...}}'
                )
