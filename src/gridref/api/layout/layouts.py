"""The layouts that users can ask for: one class each, which combines scanned files.

`Labels`, `Stack`, `Mosaic`, `Ragged`, `Plate` and `Groups` are what users write as ``layout=``.
Ways without options have names; `Row` and `Nested` stand for these, and for no layout. `layout_of`
makes a `Layout` of each. `Combining` is what they follow.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, cast

from gridref.api.layout.facts import (
    Facts,
    frequency,
    is_ragged,
    spacing_problem,
    varying_dims,
)
from gridref.api.layout.forecasts import VALID_TIME, with_valid_times, without_valid_times
from gridref.api.layout.joined_variables import NamePattern, split_labels
from gridref.api.layout.labels import LabelPattern
from gridref.api.layout.names import (
    VARIABLE,
    labelled_tiles,
    with_telling_parts,
)
from gridref.api.layout.plates import combine_plate_files
from gridref.api.layout.sources import (
    Contradicted,
    LabelSources,
    check_labels,
    found_labels,
    labelled_files,
    stackable,
    with_label,
    with_labels_beside,
)
from gridref.api.units import with_converter
from gridref.catalog.parts import ParquetManifest
from gridref.combine import (
    Along,
    Combination,
    CombineOptions,
    DriftReport,
    Hypercube,
    combine,
    combine_mosaic,
    combine_ragged,
    merged_reports,
)
from gridref.combine.mosaic import check_tolerance
from gridref.combine.options import Read, Repeat
from gridref.errors import InvalidRequestError, Message, Option, Place
from gridref.formats import expand_files
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.manifest import ChunkManifest, ChunkState, Manifest
from gridref.options import Shown, check_choices, given_options, near_names, refuses_unknown

KIND = "kind"
"""Groups by what files hold."""

type Order = Literal["label", "given"]
type Resolve = Literal["lossless", "ask"]
"""Whether advice that loses nothing is taken, or asked for."""
type Scanned = Iterable[tuple[str, VirtualGroup]]
"""Addresses of files, and what was scanned of each."""

_DEFAULTS = (None, "label", "lossless")


@dataclass(frozen=True, eq=False)
class Combining:
    """How files are combined: what a call asks for, a search finds and layouts follow.

    Attributes
    ----------
    resolve
        Whether a choice that loses nothing is part of a layout that is found, or asked for.
    """

    concat_dim: str | Sequence[str] | None = None
    order: Order = "label"
    layout: AnyLayout | None = None
    combine: CombineOptions | None = None
    resolve: Resolve = "lossless"

    @property
    def asked(self) -> dict[str, Any]:
        """What is not at its default, by name."""
        own = ((each.name, getattr(self, each.name)) for each in fields(self))
        return {name: value for name, value in own if value not in _DEFAULTS}

    @property
    def way(self) -> Layout:
        """The layout, which combines files."""
        return layout_of(self.layout)

    @property
    def dims(self) -> tuple[str, ...]:
        """The dimensions that files are concatenated along, as far as they are named."""
        named = self.concat_dim or ()
        return (named,) if isinstance(named, str) else tuple(named)

    @property
    def rules(self) -> CombineOptions:
        """How differences are resolved."""
        given = {} if self.combine is None else given_options(self.combine)
        return CombineOptions(**with_converter(given))

    @property
    def by_label(self) -> bool:
        """Whether labels put files in order along one dimension."""
        return self.order == "label"


class Layout(Shown):
    """What all layouts have in common.

    A layout with ``labels`` finds the labels of files in their names and elsewhere.
    """

    labels: Labels | str | None = None

    _tells_parts: ClassVar[bool] = True
    """Whether parts of names that a pattern skips become labels if they say something."""

    @property
    def sought(self) -> Labels:
        """Where labels come from; empty if nothing says so."""
        return Labels(self.labels) if isinstance(self.labels, str) else self.labels or Labels()

    def with_labels(self, labels: Labels) -> Layout:
        """The same layout with labels from somewhere else."""
        return type(self)(**{**given_options(self), "labels": labels})

    def check(self, dims: Sequence[str], order: Order) -> None:
        """Check that ``concat_dim`` and ``order`` mean something for this layout."""
        if dims:
            named = dims[0] if len(dims) == 1 else list(dims)
            raise InvalidRequestError(
                Message(
                    Option("layout", self),
                    " does not place files along ",
                    Option("concat_dim", named),
                    ": leave one out",
                )
            )
        if order == "given":
            raise _no_order()

    def is_asked_for(self, dims: Sequence[str]) -> bool:
        """Whether this, or ``concat_dim``, is a way to lay out several files."""
        return True

    def grows_along(self, dims: Sequence[str]) -> str | None:
        """The dimension that files follow each other along, if it is the only one."""
        return None

    def is_cube(self, first: VirtualGroup, dims: Sequence[str]) -> bool:
        """Whether files are placed by label along dimensions; `first` is one of the files."""
        return False

    def listed_dims(self, dims: Sequence[str]) -> Sequence[str]:
        """The dimensions whose labels a table may list for each file."""
        return ()

    @property
    def needs_all(self) -> bool:
        """Whether a catalog is combined from all of its files again when there are more."""
        return False

    def ordered(self, files: Sequence[str]) -> list[str]:
        """The files in the order of the labels in their names, if there is a pattern."""
        pattern = self._pattern
        if pattern is None or self.sought.of is not None:
            return list(files)
        found = zip(files, pattern.of_names(files), strict=True)
        return [file for file, _ in sorted(found, key=lambda pair: tuple(pair[1].values()))]

    def telling(self, files: Sequence[str]) -> Layout:
        """The layout with labels for informative parts of names that ``{_}`` skips."""
        if not self._tells_parts or self.sought.pattern is None or self.sought.of:
            return self
        told = with_telling_parts(self.sought.pattern, files)
        return (
            self
            if told == self.sought.pattern
            else self.with_labels(self.sought.with_pattern(told))
        )

    def laid_out(self, scanned: Scanned, how: Combining, read: Read) -> Combination:
        """Combine scanned files into one group; problems are returned."""
        noted = Contradicted(read)
        done = self.joined(self.labelled(scanned, noted), how, read)
        return replace(done, report=noted.told(done.report))

    def labelled(self, scanned: Scanned, noted: Contradicted) -> Iterable[VirtualGroup]:
        """The groups of files with their labels; coordinates that labels contradict are noted."""
        return (group for _, group in scanned)

    def joined(self, groups: Iterable[VirtualGroup], how: Combining, read: Read) -> Combination:
        """Combine groups that have their labels: of files, or of a catalog."""
        raise NotImplementedError

    @property
    def _only_field(self) -> str | None:
        """The one field that a pattern of the labels has to have."""
        return None

    @property
    def _pattern(self) -> LabelPattern | None:
        """The pattern of the labels, if there is one."""
        text = self.sought.pattern
        return None if text is None else LabelPattern.parse(text, self._only_field)


def _no_order() -> InvalidRequestError:
    return InvalidRequestError(
        Message(
            Option("order", "given"),
            " needs files in sequence along one dimension: name it (",
            Option("concat_dim", "time"),
            "), or stack them along a new one (",
            Option("stack", "time", "layout=Stack('time')"),
            "), and give no other layout",
        )
    )


def _check_pattern_only(layout: Layout) -> None:
    if layout.sought.of_files:
        raise InvalidRequestError(
            f"{type(layout).__name__}() takes labels of files from a pattern only, and sources need"
            " files that are placed by label: Labels(...) or Stack(...)"
        )


class InARow(Layout):
    """Files that follow each other along dimensions, or lie where their labels say."""

    def check(self, dims: Sequence[str], order: Order) -> None:
        if order == "given" and (self.is_asked_for(()) or len(dims) != 1):
            raise _no_order()

    def is_asked_for(self, dims: Sequence[str]) -> bool:
        return bool(dims)

    def grows_along(self, dims: Sequence[str]) -> str | None:
        return dims[0] if len(dims) == 1 else None

    def is_cube(self, first: VirtualGroup, dims: Sequence[str]) -> bool:
        return len(dims) > 1 and not is_ragged(first, dims)

    def cube_dims(self, dims: Sequence[str]) -> Sequence[str]:
        """The dimensions that files are placed along by label, as far as they are named."""
        return dims

    def listed_dims(self, dims: Sequence[str]) -> Sequence[str]:
        return self.cube_dims(dims)

    def laid_out(self, scanned: Scanned, how: Combining, read: Read) -> Combination:
        rest = iter(scanned)
        first = list(itertools.islice(rest, 2))
        if len(first) == 1 and not self.is_asked_for(how.dims):
            ((file, group),) = first
            return Combination(group, DriftReport((), (file,)))
        scanned = itertools.chain(first, rest)
        if first and self.is_cube(first[0][1], how.dims):
            return self.cube(list(scanned), how, read)
        return self._row(scanned, how, read)

    def _row(self, scanned: Scanned, how: Combining, read: Read) -> Combination:
        along = Along(how.dims, by_label=how.by_label)
        groups = (group for _, group in scanned)
        return combine(groups, along, read=read, options=how.rules)

    def joined(self, groups: Iterable[VirtualGroup], how: Combining, read: Read) -> Combination:
        if not how.dims:
            raise InvalidRequestError(
                Message(
                    "the catalog does not record how its files were combined: name the dimension "
                    "to append along (",
                    Option("concat_dim", "time"),
                    ")",
                )
            )
        return combine(groups, Along(how.dims), read=read, options=how.rules)

    def cube(
        self,
        scanned: Sequence[tuple[str, VirtualGroup]],
        how: Combining,
        read: Read,
        before: Sequence[VirtualGroup] = (),
        n_front: int = 0,
    ) -> Combination:
        """Combine files by label with groups that have labels as coordinates.

        The first `n_front` files come before these groups, the others after them.
        """
        pattern, labels = self._pattern, self.sought
        noted = Contradicted(read)
        groups, dims = labelled_files(scanned, pattern, labels.of, labels.of_files, noted)
        if not any(VALID_TIME in group.arrays for group in groups):
            before = [without_valid_times(group) for group in before]
        every = [*groups[:n_front], *before, *groups[n_front:]]
        rules = _with_labels_beside(how.rules, pattern)
        spacing = spacing_problem(scanned, read) if rules.join == "exact" else None
        if spacing is not None:
            files = tuple(file for file, _ in scanned)
            return Combination(None, DriftReport((), files), (spacing,))
        named = self.cube_dims(how.dims)
        unnamed = [dim for dim in dims if dim not in named]
        if unnamed and named:
            raise InvalidRequestError(
                Message(
                    f"there are labels for {', '.join(unnamed)}, but the dimensions are "
                    f"{', '.join(named)}: name it too (",
                    Option("concat_dim"),
                    "), or call the field {_}",
                )
            )
        if named:
            done = combine(every, Hypercube(tuple(named)), read=read, options=rules)
        else:
            varying = (dim for dim in varying_dims(every, read) if dim not in dims)
            done = combine(every, Hypercube((*dims, *varying)), read=read, options=rules)
        done = replace(done, report=noted.told(done.report))
        group = done.group
        return done if group is None else replace(done, group=with_valid_times(group, read))


@refuses_unknown
@dataclass(frozen=True, repr=False)
class Labels(InARow):
    """Where the labels of files come from. As a layout: files are placed by them.

    Attributes
    ----------
    pattern
        Where labels stand in file names, like ``{time:%Y%m%d}`` or
        ``{model}_{member:d}_{time:%Y%m}.nc``; see `gridref.api.layout.labels.LabelPattern`. The
        fields are dimensions of the result; ``{_sweep:d}`` is a coordinate along them. Text that
        ``{_}`` skips becomes such a coordinate if several files share it. If the files have a
        coordinate of the dimension, it is kept. `Stack` and `Mosaic` replace it, and the report
        lists both values.
    of
        Attribute of the files in which the pattern finds labels, like ``TIFFTAG_DATETIME``. By
        default it searches their names.
    sources
        Sources of labels other than file names: for each dimension ``"attribute:NAME"`` (of a group
        ``"attribute:where/elangle"``), ``"variable:NAME"`` (a scalar), ``"constant:VALUE"``,
        ``"column:NAME"`` of the inventory or a function of the address; or one function that
        returns a label for each dimension.
        ``"name:{variable}_p{percentile:d}"`` finds labels in names of variables. These variables
        become one along the dimension before files are laid out. Numbers, and times and durations
        of ISO 8601, are converted from text.
    inventory
        A table that lists the files and their labels: a data frame, a CSV file, a Parquet file like
        stac-geoparquet's, or the JSON document of an intake-esm collection, a STAC item collection
        or an S3 Inventory. Columns with the names of dimensions hold their labels. Without other
        files (``files=[]``), all of the table are taken.
    asset
        Keys of the assets to take from each STAC item of the inventory; by default ``"data"``, or
        the only one. The column ``asset`` holds the key of each file.

    Raises
    ------
    InvalidRequestError
        For unknown sources, `of` without a pattern, or `asset` without an inventory.
    """

    pattern: str | None = None
    of: str | None = None
    sources: LabelSources | None = None
    inventory: Any = field(default=None, hash=False)
    asset: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        check_labels(self.of_files)
        if self.asset is not None and self.inventory is None:
            raise InvalidRequestError(
                Message(
                    "asset selects from STAC items: name their file, ",
                    Option("inventory", "items.json", "Labels(inventory='items.json')"),
                )
            )
        if self.of and not self.pattern:
            raise InvalidRequestError("an attribute to find labels in needs their pattern")

    @property
    def sought(self) -> Labels:
        return self

    @property
    def of_files(self) -> LabelSources | None:
        """The sources of labels of files: those that are not names of variables."""
        return self._split[0]

    @property
    def of_variables(self) -> tuple[NamePattern, ...]:
        """Where labels stand in names of variables."""
        return self._split[1]

    @cached_property
    def _split(self) -> tuple[LabelSources | None, tuple[NamePattern, ...]]:
        return split_labels(self.sources)

    def with_labels(self, labels: Labels) -> Labels:
        return labels

    def with_pattern(self, pattern: str | None) -> Labels:
        """The same labels with another pattern."""
        return Labels(**{**given_options(self), "pattern": pattern})

    def is_asked_for(self, dims: Sequence[str]) -> bool:
        return bool(dims or self.pattern or self.of_files)

    def is_cube(self, first: VirtualGroup, dims: Sequence[str]) -> bool:
        # With labels of variables only, and no dimension, coordinates say where files lie.
        by_coords = bool(self.of_variables) and not dims
        return self.is_asked_for(()) or by_coords or super().is_cube(first, dims)


@refuses_unknown
@dataclass(frozen=True, repr=False)
class Stack(InARow):
    """Files lie one behind the other along a new dimension.

    Attributes
    ----------
    dim
        Name of the new dimension.
    labels
        Labels of the dimension, which also say the order of the files. A text is a pattern of their
        names.
    """

    dim: str
    labels: Labels | str | None = None

    def check(self, dims: Sequence[str], order: Order) -> None:
        if dims:
            Layout.check(self, dims, order)
        if order == "given" and self.sought.is_asked_for(()):
            raise _no_order()

    def is_asked_for(self, dims: Sequence[str]) -> bool:
        return True

    def grows_along(self, dims: Sequence[str]) -> str | None:
        return self.dim

    def is_cube(self, first: VirtualGroup, dims: Sequence[str]) -> bool:
        return bool(self.sought.of_files)

    def cube_dims(self, dims: Sequence[str]) -> Sequence[str]:
        return (self.dim,)

    def listed_dims(self, dims: Sequence[str]) -> Sequence[str]:
        return () if self.sought.pattern and not self.sought.of_files else (self.dim,)

    def labelled(self, scanned: Scanned, noted: Contradicted) -> Iterable[VirtualGroup]:
        return noted.noting(_stacked(scanned, self.dim, self._pattern, self.sought.of), [self.dim])

    def _row(self, scanned: Scanned, how: Combining, read: Read) -> Combination:
        noted = Contradicted(read)
        inputs = stackable(self.labelled(scanned, noted), self.dim)
        rules = _with_labels_beside(how.rules, self._pattern)
        along = Along((self.dim,), by_label=how.by_label)
        done = combine(inputs, along, read=read, options=rules)
        return self._whole(replace(done, report=noted.told(done.report)), read)

    def joined(self, groups: Iterable[VirtualGroup], how: Combining, read: Read) -> Combination:
        return self._whole(combine(groups, Along((self.dim,)), read=read, options=how.rules), read)

    @property
    def keeps_labels_whole(self) -> bool:
        """Whether labels that a pattern found in files are kept in one chunk."""
        return self.sought.pattern is not None

    def _whole(self, done: Combination, read: Read) -> Combination:
        others = tuple(each for each in done.problems if each.cause != "dimension-missing")
        if others:  # it was asked for that no file has the dimension
            done = replace(done, problems=others)
        if done.group is None or not self.keeps_labels_whole:
            return done
        return replace(done, group=in_one_chunk(done.group, self.dim, read))

    @property
    def _only_field(self) -> str:
        return self.dim


@refuses_unknown
@dataclass(frozen=True, repr=False)
class Mosaic(Layout):
    """Files lie where their georeferencing says.

    Attributes
    ----------
    labels
        Labels, like a date or a band, that give a mosaic each. A text is a pattern of names; its
        field ``{variable}`` is the name of a file's variable.
    stack
        Which field of the pattern is the first dimension.
    x, y
        Names of the dimensions of columns and rows.
    tolerance
        How far, in pixels, a file may be off the grid of the first one.
    grids
        Files of several coordinate reference systems, resolutions or pixel grids: ``"one"`` makes
        them a problem, ``"groups"`` lays out the files of each grid in a group of its own.

    Raises
    ------
    InvalidRequestError
        For a tolerance below 0 or above half a pixel, where places become ambiguous.
    """

    labels: Labels | str | None = None
    stack: str | None = None
    x: str = "x"
    y: str = "y"
    tolerance: float = 0.01
    grids: Literal["one", "groups"] = "one"

    _tells_parts = False

    def __post_init__(self) -> None:
        check_choices(self)
        check_tolerance(self.tolerance)
        _check_pattern_only(self)

    @property
    def needs_all(self) -> bool:
        return self.grids == "groups"

    def labelled(self, scanned: Scanned, noted: Contradicted) -> Iterable[VirtualGroup]:
        pattern, of = self._pattern, self.sought.of
        if pattern is None:
            return super().labelled(scanned, noted)
        if self.stack is not None and self.stack not in pattern.fields:
            raise InvalidRequestError(
                f"the pattern {pattern.text!r} has no field {{{self.stack}}}, which is the stack"
            )
        known = list(scanned)
        groups, found = found_labels(known, pattern, of)
        labelled = labelled_tiles([file for file, _ in known], groups, found, pattern)
        return noted.noting(zip(groups, labelled, strict=True), list(pattern.fields))

    def joined(self, groups: Iterable[VirtualGroup], how: Combining, read: Read) -> Combination:
        pattern = self._pattern
        fields = [] if pattern is None else [*pattern.fields]
        dims = dict.fromkeys([self.stack, *fields] if self.stack else fields)
        dims.pop(VARIABLE, None)
        done = combine_mosaic(
            groups,
            x=self.x,
            y=self.y,
            tolerance=self.tolerance,
            grids=self.grids,
            stack=list(dims),
            merge=VARIABLE in fields,
            read=read,
            options=how.rules,
        )
        if done.group is None:
            return done
        group = done.group
        for dim in dims:
            group = in_one_chunk(group, dim, read)
        return replace(done, group=group)


@refuses_unknown
@dataclass(frozen=True, repr=False)
class Ragged(Layout):
    """Trajectories, profiles or swaths of differing length: all samples one after the other.

    A variable ``row_size`` holds the number of samples of each file (CF conventions, 9.3.3).
    `concat_dim` names the dimension whose length differs; by default it is found.

    Attributes
    ----------
    instance
        Dimension that counts the files; by default it is found.
    padded
        Give each file a row instead, as long as the longest.
    labels
        Labels of the files. A text is a pattern of their names.
    """

    instance: str | None = None
    padded: bool = False
    labels: Labels | str | None = None

    def __post_init__(self) -> None:
        _check_pattern_only(self)
        if self.instance is None and self.sought != Labels():
            raise InvalidRequestError(
                Message(
                    "labels of files in a ragged layout need the dimension that counts the files: "
                    "name it (",
                    Option("stack", "station", "instance='station'"),
                    ")",
                )
            )

    def check(self, dims: Sequence[str], order: Order) -> None:
        super().check((), order)

    @property
    def needs_all(self) -> bool:
        return self.padded

    def labelled(self, scanned: Scanned, noted: Contradicted) -> Iterable[VirtualGroup]:
        if self.instance is None:
            return super().labelled(scanned, noted)
        pairs = _stacked(scanned, self.instance, self._pattern, self.sought.of)
        return noted.noting(pairs, [self.instance])

    def joined(self, groups: Iterable[VirtualGroup], how: Combining, read: Read) -> Combination:
        done = combine_ragged(
            groups,
            samples=how.dims,
            instance=self.instance,
            padded=self.padded,
            read=read,
            options=how.rules,
        )
        if done.group is None:
            return done
        return replace(done, group=_inline_joined(done.group, read))

    @property
    def _only_field(self) -> str | None:
        return self.instance


@refuses_unknown
@dataclass(frozen=True, repr=False)
class Plate(Layout):
    """Microscopy images lie by wells and fields, as in OME-Zarr.

    Attributes
    ----------
    labels
        A pattern of file names with the fields ``{well}`` (or ``{row}`` and ``{column}``) and
        ``{field}``; other fields, like ``{c}`` and ``{z}``, are dimensions of the images. Without
        one the usual forms of names are known.
    """

    labels: Labels | str | None = None

    _tells_parts = False
    needs_all = True

    def __post_init__(self) -> None:
        _check_pattern_only(self)

    def check(self, dims: Sequence[str], order: Order) -> None:
        if dims:
            raise InvalidRequestError("Plate() takes its dimensions from the pattern")
        super().check(dims, order)

    def laid_out(self, scanned: Scanned, how: Combining, read: Read) -> Combination:
        return combine_plate_files(list(scanned), self._pattern, read, how.rules)


@refuses_unknown
@dataclass(frozen=True, repr=False)
class Groups(Layout):
    """Files of each kind lie by themselves, in a group of that name.

    Attributes
    ----------
    by
        What tells the kinds apart: a field of the pattern of `labels`, or an attribute of the
        files. ``"kind"``, if it is neither: files that share variables along the same dimensions,
        on one grid with one calendar, are a kind. Names or attributes that agree name the groups.
    frequency
        Tell files apart by their frequency: the attribute ``frequency``, or the spacing of the
        times (``daily``, ``monthly``, ``6hourly``; ``fixed`` without times).
    labels
        Labels of the files. A text is a pattern of their names.
    each
        Layout within each kind. By default it is found.

    Raises
    ------
    InvalidRequestError
        If nothing tells the kinds apart.
    """

    by: str | None = None
    frequency: bool = False
    labels: Labels | str | None = None
    each: AnyLayout | None = None

    _tells_parts = False
    needs_all = True

    def __post_init__(self) -> None:
        if self.by is None and not self.frequency:
            raise InvalidRequestError(
                Message(
                    "Groups() needs something to group by: an attribute or a field of the file "
                    "names (",
                    Option("group_by", "model", "Groups('model')"),
                    "), or ",
                    Option("split", "frequency", "Groups(frequency=True)"),
                )
            )
        if self.each == "nested" or isinstance(self.each, Groups):
            raise InvalidRequestError(
                "Groups() cannot contain nested lists of files or other groups"
            )
        if isinstance(self.within(), Mosaic | Plate | Ragged):
            _check_pattern_only(self)

    def check(self, dims: Sequence[str], order: Order) -> None:
        self.within().check(dims, order)

    def listed_dims(self, dims: Sequence[str]) -> Sequence[str]:
        return self.within().listed_dims(dims)

    def kinds(
        self, scanned: Sequence[tuple[str, VirtualGroup]], read: Read
    ) -> dict[str, list[tuple[str, VirtualGroup]]]:
        """The files of each kind, by the name of its group."""
        found: dict[str, list[tuple[str, VirtualGroup]]] = {}
        for name, item in zip(self._names(scanned, read), scanned, strict=True):
            found.setdefault(name, []).append(item)
        return dict(sorted(found.items()))

    @property
    def sought(self) -> Labels:
        each = layout_of(self.each).sought
        return Labels(**{**given_options(super().sought), **given_options(each)})

    def with_labels(self, labels: Labels) -> Layout:
        each = layout_of(self.each)
        bare = as_given(each.with_labels(Labels()) if given_options(each.sought) else each)
        return Groups(**{**given_options(self), "labels": labels, "each": bare})

    def within(self) -> Layout:
        """The layout within each kind, with the labels of all but the field that names it."""
        known = {name: own for name, own in given_options(self.sought).items() if own is not None}
        if self.by is not None and "pattern" in known:
            rest = re.sub(rf"\{{{re.escape(self.by)}(?=[:}}])", "{_", known["pattern"])
            known["pattern"] = rest
            if not re.search(r"\{(?!_[:}])", rest):  # no other field
                known = {name: own for name, own in known.items() if name not in ("pattern", "of")}
        each, labels = layout_of(self.each), Labels(**known)
        return each.with_labels(labels) if labels.is_asked_for(()) else each

    def _names(self, scanned: Sequence[tuple[str, VirtualGroup]], read: Read) -> list[str]:
        """The name of the group that each file goes to."""
        parts: list[list[str]] = []
        if self.by is not None:
            parts.append(self._values(scanned, self.by, read))
        if self.frequency:
            parts.append([frequency(group, read, file) for file, group in scanned])
        return [re.sub(r"[^\w.+-]+", "_", "_".join(names)) for names in zip(*parts, strict=True)]

    def _values(
        self, scanned: Sequence[tuple[str, VirtualGroup]], name: str, read: Read
    ) -> list[str]:
        pattern = self._pattern
        files, groups = [file for file, _ in scanned], [group for _, group in scanned]
        if pattern is not None and name in pattern.fields:
            return [str(own[name]) for own in pattern.of_names(files)]
        if name == KIND and not all(name in group.attrs for group in groups):
            return Facts(files, groups, read).names_of_kinds
        for file, group in scanned:
            if name not in group.attrs:
                held = [*group.attrs, *([] if pattern is None else pattern.fields)]
                raise InvalidRequestError(
                    f"{name!r} is no field of the pattern and no attribute of it: there are"
                    f" {', '.join(held) or 'none'}",
                    Place(source=file),
                )
        return [str(group.attrs[name]) for _, group in scanned]


# Layouts without options


@dataclass(frozen=True, repr=False)
class Row(InARow):
    """No layout, or one that has a name only: `LayoutName`."""

    name: Literal["by_coords", "first"] | None = None

    def __repr__(self) -> str:
        return repr(self.name)

    def with_labels(self, labels: Labels) -> Layout:
        return labels  # which lie by coordinates, too

    def is_asked_for(self, dims: Sequence[str]) -> bool:
        return bool(dims) or self.name == "by_coords"

    def is_cube(self, first: VirtualGroup, dims: Sequence[str]) -> bool:
        return self.name == "by_coords" or super().is_cube(first, dims)


@dataclass(frozen=True, repr=False)
class Nested(InARow):
    """Lists of lists of files in the given order.

    Attributes
    ----------
    tree
        The addresses of the files, as they are nested.
    """

    tree: Sequence[Any] = ()

    def __repr__(self) -> str:
        return "'nested'"

    def with_labels(self, labels: Labels) -> Layout:
        raise InvalidRequestError(
            "layout='nested' takes no labels: the nesting of the lists places the files"
        )

    def is_asked_for(self, dims: Sequence[str]) -> bool:
        return True

    def is_cube(self, first: VirtualGroup, dims: Sequence[str]) -> bool:
        return False

    def laid_out(self, scanned: Scanned, how: Combining, read: Read) -> Combination:
        return combine_nested(nested_alike(self.tree, dict(scanned)), how.dims, read, how.rules)


type LayoutName = Literal["by_coords", "nested", "first"]
"""Layouts without options. ``"by_coords"``: files are placed by their coordinates, along
`concat_dim` or, if that is None, along each dimension whose coordinates differ; files with
different variables are merged. ``"nested"``: lists of lists of files in the given order, the
outermost along the first of several dimensions. ``"first"``: the first of the layouts that the
files may have."""
type AnyLayout = Labels | Stack | Mosaic | Ragged | Plate | Groups | LayoutName
LAYOUTS = {kind.__name__: kind for kind in (Labels, Stack, Mosaic, Ragged, Plate, Groups)}
"""The layouts that users make, by the names that recipes of catalogs have for them."""

_NAMED: Mapping[str, Layout] = {
    "by_coords": Row("by_coords"),
    "nested": Nested(),
    "first": Row("first"),
}


def layout_of(layout: AnyLayout | None) -> Layout:
    """What combines files by a layout, as it is given to a call."""
    if layout is None:
        return Row()
    if isinstance(layout, Layout):
        return layout
    if not isinstance(layout, str):
        raise InvalidRequestError(f"layout must be Stack(...) or another layout, got {layout!r}")
    if layout not in _NAMED:
        raise InvalidRequestError(
            f"there is no layout {layout!r}{near_names(layout, _NAMED)}, or take one of"
            " Labels(...), Stack(...), Mosaic(...), Ragged(...), Plate(...), Groups(...)"
        )
    return _NAMED[layout]


def as_given(layout: Layout) -> AnyLayout | None:
    """A layout as it is given to a call: the opposite of `layout_of`."""
    if isinstance(layout, Row):
        return layout.name
    return "nested" if layout == Nested() else cast("AnyLayout", layout)


# Labels of stacked files, and labels in one chunk


def _with_labels_beside(rules: CombineOptions, pattern: LabelPattern | None) -> CombineOptions:
    """The rules, by which labels that are no dimensions are repeated along these."""
    if pattern is None or not pattern.beside:
        return rules
    beside: dict[str, Repeat] = {name[1:]: "all" for name in pattern.beside}
    return replace(rules, repeated={**beside, **rules.repeated})


def _stacked(
    scanned: Scanned, dim: str, pattern: LabelPattern | None, of: str | None
) -> Iterable[tuple[VirtualGroup, VirtualGroup]]:
    """Groups without and with their labels, in the order of labels in an attribute."""
    if pattern is None:
        return ((group, group) for _, group in scanned)
    named: Iterable[tuple[VirtualGroup, Mapping[str, Any]]]
    if of is None:
        named = ((group, pattern.of_names([file])[0]) for file, group in scanned)
    else:
        named = zip(*found_labels(list(scanned), pattern, of), strict=True)
        named = sorted(named, key=lambda pair: pair[1][dim])
    return ((group, _with_labels(group, dim, own, pattern)) for group, own in named)


def _with_labels(
    group: VirtualGroup, dim: str, labels: Mapping[str, Any], pattern: LabelPattern
) -> VirtualGroup:
    """A group with its label along a new dimension, and those beside it."""
    labelled = with_label(group, dim, labels[dim], pattern.attrs(dim))
    return with_labels_beside(labelled, labels, pattern)


def _inline_joined(group: VirtualGroup, read: Read) -> VirtualGroup:
    """Keep what was made for each file, like the number of its samples, in one chunk."""
    arrays = {
        name: VirtualArray.from_numpy(read(array), array.dims, array.attrs)
        if array.ndim == 1 and array.n_blocks > 1 and _is_inline(array)
        else array
        for name, array in group.arrays.items()
    }
    groups = {name: _inline_joined(below, read) for name, below in group.groups.items()}
    return group.with_changes(arrays=arrays, groups=groups)


def _is_inline(array: VirtualArray) -> bool:
    """Whether all elements are of one size, none is in a file, and none is missing."""
    return array.dtype.kind != "T" and all(map(_holds_all_inline, array.manifests))


def _holds_all_inline(manifest: Manifest) -> bool:
    if isinstance(manifest, ParquetManifest):  # of a catalog: rows need not be read
        return manifest.counts.n_inline == manifest.n_rows
    return isinstance(manifest, ChunkManifest) and bool((manifest.state == ChunkState.INLINE).all())


def in_one_chunk(group: VirtualGroup, name: str, read: Read) -> VirtualGroup:
    """Keep the labels of all files in one chunk, since they are read together."""
    if name not in group.arrays:  # a mosaic for each grid
        parts = {path: in_one_chunk(part, name, read) for path, part in group.groups.items()}
        return group.with_changes(groups=parts)
    coordinate = group.arrays[name]
    whole = VirtualArray.from_numpy(read(coordinate), coordinate.dims, coordinate.attrs)
    return group.with_changes(arrays={**group.arrays, name: whole})


# Lists of lists of files


def combine_nested(
    tree: Sequence[Any], dims: Sequence[str | None], read: Read, rules: CombineOptions
) -> Combination:
    """Combine lists of lists of groups, the innermost along the last dimension first.

    A level of one entry needs no dimension: None.
    """
    if not dims or (dims[0] is None and len(tree) > 1):
        raise InvalidRequestError("layout='nested' needs one concat_dim for each level of lists")
    if dims[0] is None:
        return (
            combine_nested(tree[0], dims[1:], read, rules)
            if isinstance(tree[0], list)
            else Combination(tree[0], DriftReport())
        )
    if len(dims) == 1:
        if any(isinstance(branch, list) for branch in tree):
            raise InvalidRequestError(
                "the lists of files are nested deeper than there are dimensions: give one "
                "concat_dim for each level"
            )
        return combine(tree, dims[0], read=read, options=rules)
    if not all(isinstance(branch, list) for branch in tree):
        raise InvalidRequestError(
            f"{len(dims)} dimensions take lists of lists of files: {dims[0]!r} is the outermost"
        )
    rows = [combine_nested(branch, dims[1:], read, rules) for branch in tree]
    reports = [row.report for row in rows]
    problems = tuple(problem for row in rows for problem in row.problems)
    groups = [row.group for row in rows if row.group is not None]
    if len(groups) < len(rows):
        return Combination(None, merged_reports(reports, None), problems)
    done = combine(groups, dims[0], read=read, options=rules)
    return replace(done, report=merged_reports(reports, done.report))


def nested_urls(urls: Any, storage_options: Mapping[str, Any] | None) -> list[Any]:
    """The addresses, expanded, in the nesting that they were given in."""
    branches = [urls] if isinstance(urls, str | os.PathLike) else list(urls)
    if any(isinstance(branch, list | tuple) for branch in branches):
        return [nested_urls(branch, storage_options) for branch in branches]
    return list(expand_files(branches, storage_options))


def flat(tree: Sequence[Any]) -> list[Any]:
    """The leaves of a tree, in order."""
    return [
        leaf for branch in tree for leaf in (flat(branch) if isinstance(branch, list) else [branch])
    ]


def nested_alike(tree: Sequence[Any], groups: Mapping[str, VirtualGroup]) -> list[Any]:
    """Groups in the nesting of their addresses.

    Raises
    ------
    InvalidRequestError
        For an address that there is no group of, as it could not be scanned.
    """
    for file in flat(tree):
        if file not in groups:
            raise InvalidRequestError(
                Message(
                    "a file was left out, and nested lists cannot have a hole; labels or ",
                    Option("combine", "by_coords", "layout='by_coords'"),
                    " allow for it",
                ),
                Place(source=file),
            )
    return [
        nested_alike(branch, groups) if isinstance(branch, list) else groups[branch]
        for branch in tree
    ]
