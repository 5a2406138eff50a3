"""How files are laid beside each other: along dimensions, stacked, or as a mosaic.

`Layout` holds the options. Its methods take scanned files and combine them accordingly.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Literal, Self

from gridref.api.layout.cubes import (
    combine_by_coords,
    combine_nested,
    is_ragged,
    nested_alike,
)
from gridref.api.layout.forecasts import with_valid_times, without_valid_times
from gridref.api.layout.frequencies import spacing_problem
from gridref.api.layout.labels import LabelPattern
from gridref.api.layout.names import (
    VARIABLE,
    combine_plate_files,
    labelled_tiles,
    with_telling_parts,
)
from gridref.api.layout.sources import (
    Contradicted,
    Labels,
    check_labels,
    labelled_files,
    with_labels_beside,
    without_attribute,
)
from gridref.catalog.opening import ParquetManifest
from gridref.combine import (
    Combination,
    CombineOptions,
    DriftReport,
    MosaicOptions,
    combine,
    combine_hypercube,
    combine_mosaic,
    combine_ragged,
    combine_stack,
)
from gridref.combine.concatenation import with_label
from gridref.combine.forecasts import VALID_TIME
from gridref.combine.options import Read, Repeat
from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.manifest import ChunkManifest, ChunkState, Manifest
from gridref.options import check_choice, option_values, refuses_unknown


@refuses_unknown
@dataclass(frozen=True)
class Layout:
    """How files are laid beside each other. Give at most one way.

    Attributes
    ----------
    concat_dim
        Dimension to concatenate along, existing or new. With several, files are placed along each
        by their coordinates and labels, with holes where there is no file. If every variable has
        only one of them (ragged arrays), each grows by itself. One file needs none.
    order
        The order of files along one `concat_dim`, or along `stack`. ``"label"``: by label if the
        labels of every file rise, or those of every file fall; otherwise as given, and the report
        says so. ``"given"``: as given.
    combine
        ``"by_coords"`` places files by their coordinates, in any order, along `concat_dim` or, if
        that is None, along each dimension whose coordinates differ. Files with different variables
        are merged. ``"nested"`` takes lists of lists of files in the given order, the outermost
        along the first of several dimensions.
    stack
        New dimension to stack the files along; with `mosaic`, the first of the pattern's fields.
    pattern
        Pattern that finds labels in file names, like ``{time:%Y%m%d}`` or
        ``{model}_{member:d}_{time:%Y%m}.nc``; see `gridref.api.layout.labels.LabelPattern`. The
        fields are dimensions of the result; ``{_sweep:d}`` is a coordinate along them. Text that
        ``{_}`` skips becomes such a coordinate if several files share it. If the files have a
        coordinate of the dimension, it is kept. `stack` and `mosaic` replace it, and the report
        lists both values.
    pattern_of
        Attribute of the files in which the pattern finds labels, like ``TIFFTAG_DATETIME``. By
        default it searches their names.
    labels
        Sources of labels other than file names: for each dimension ``"attribute:NAME"``,
        ``"variable:NAME"`` (a scalar), ``"constant:VALUE"``, ``"column:NAME"`` of the inventory or
        a function of the address; or one function that returns a label for each dimension.
        ``"name:{variable}_p{percentile:d}"`` finds labels in names of variables. These variables
        become one along the dimension before files are laid out. Numbers, and times and durations
        of ISO 8601, are converted from text.
    inventory
        A table that lists the files and their labels, in place of `files`: a data frame, a CSV
        file, a Parquet file like stac-geoparquet's, or the JSON document of an intake-esm
        collection, a STAC item collection or an S3 Inventory. Columns with the names of dimensions
        hold their labels.
    asset
        Keys of the assets to take from each STAC item of the inventory; by default ``"data"``, or
        the only one. The column ``asset`` holds the key of each file.
    mosaic
        Place the files by their georeferencing. Labels that `pattern` finds, like a date or a band,
        give a mosaic each. The field ``{variable}`` finds the name of the file's variable.
    yes
        If no layout is given and several are possible, take the first. By default an error lists
        them.
    group_by
        Lay out the files of each kind by themselves, into a group of that name. The kind is a field
        of `pattern`, or an attribute.
    split
        ``"frequency"`` groups files by their frequency: the attribute ``frequency``, or the spacing
        of the times (``daily``, ``monthly``, ``6hourly``; ``fixed`` without times).
    layout
        For trajectories, profiles or swaths of differing length. ``"ragged"`` puts all samples one
        after the other, with the number of samples of each file in ``row_size`` (CF conventions,
        9.3.3). ``"padded"`` gives each file a row, as long as the longest. `concat_dim` then is the
        dimension whose length differs, and `stack` the one that counts the files; gridref finds
        both if they are None. ``"plate"`` lays microscopy images out by wells and fields, as
        OME-Zarr does, by the fields ``{well}`` (or ``{row}`` and ``{column}``) and ``{field}`` of
        `pattern`; other fields, like ``{c}`` and ``{z}``, are dimensions of the images. Without a
        pattern the usual forms of names are known.

    Raises
    ------
    InvalidRequestError
        For more than one way, or unknown sources of labels.
    """

    concat_dim: str | Sequence[str] | None = None
    order: Literal["label", "given"] = "label"
    combine: Literal["by_coords", "nested"] | None = None
    stack: str | None = None
    pattern: str | None = None
    pattern_of: str | None = None
    labels: Labels | None = None
    inventory: Any = None
    asset: str | Sequence[str] | None = None
    mosaic: bool = False
    layout: Literal["ragged", "padded", "plate"] | None = None
    yes: bool = False
    group_by: str | None = None
    split: Literal["frequency"] | None = None

    def __post_init__(self) -> None:
        if self.layout is not None:
            check_choice("layout", self.layout, ("ragged", "padded", "plate"))
            if self.layout == "plate" and (self.stack or self.concat_dim):
                raise InvalidRequestError("Plate() takes its dimensions from the pattern")
            if self.mosaic:
                raise InvalidRequestError(f"layout={self.layout!r} is another one than a mosaic")
        elif self.concat_dim and (self.stack or self.mosaic):
            raise InvalidRequestError("ask for one of a dimension to concatenate, stack or mosaic")
        self._check_order()
        if self.combine is not None:
            check_choice("combine", self.combine, ("by_coords", "nested"))
            if self.stack or self.mosaic or self.layout:
                raise InvalidRequestError(
                    f"layout={self.combine!r} places files along concat_dim, not in another way"
                )
        placed = self.combine == "nested" or (self.mosaic and self.labels)
        if (self.pattern or self.labels) and placed:
            raise InvalidRequestError(
                "labels need files that are placed by label: lists of lists are not, and mosaics"
                " take labels from a pattern only"
            )
        if self.split is not None:
            check_choice("split", self.split, ("frequency",))
        if self.in_groups and self.combine == "nested":
            raise InvalidRequestError("lists of lists of files are not told apart into groups")
        check_labels(self.labels)
        if self.asset is not None and self.inventory is None:
            raise InvalidRequestError(
                "asset is for STAC items: name them, Labels(inventory='items.json')"
            )
        if self.pattern_of and not self.pattern:
            raise InvalidRequestError("an attribute to find labels in needs their pattern")

    def _check_order(self) -> None:
        check_choice("order", self.order, ("label", "given"))
        others = self.combine or self.pattern or self.labels or self.mosaic or self.layout
        if self.order == "given" and (others or not isinstance(self.stack or self.concat_dim, str)):
            raise InvalidRequestError(
                "order='given' needs files that follow each other along one dimension: name it"
                " (concat_dim='time'), or stack them along a new one (layout=Stack('time')), and"
                " give no other layout"
            )

    def ordered(self, files: Sequence[str]) -> list[str]:
        """The files in the order of the labels in their names, if there is a pattern."""
        pattern = self._parsed_pattern()
        if pattern is None or self.pattern_of is not None:
            return list(files)
        found = zip(files, pattern.of_names(files), strict=True)
        return [file for file, _ in sorted(found, key=lambda pair: tuple(pair[1].values()))]

    def hiding_nothing(self, files: Sequence[str]) -> Self:
        """The layout with labels for informative parts of names that ``{_}`` skips."""
        elsewhere = self.mosaic or self.layout == "plate" or self.in_groups
        if self.pattern is None or self.pattern_of or elsewhere:
            return self
        return replace(self, pattern=with_telling_parts(self.pattern, files))

    @property
    def is_asked_for(self) -> bool:
        """Whether the options name a way to lay out several files."""
        known = self.concat_dim or self.stack or self.mosaic or self.layout
        return bool(known or self.combine or self.pattern or self.labels)

    @property
    def grows_along(self) -> str | None:
        """The dimension along which files are concatenated, if it is the only one."""
        others = self.combine or self.stack or self.pattern or self.labels or self.mosaic
        if others or self.layout or self.in_groups or not isinstance(self.concat_dim, str):
            return None
        return self.concat_dim

    @property
    def in_groups(self) -> bool:
        """Whether files of each kind make a group."""
        return self.group_by is not None or self.split is not None

    @property
    def dims(self) -> tuple[str, ...]:
        """The dimensions that files are concatenated or stacked along, as far as they are named."""
        if self.stack is not None and self.labels:
            return (self.stack,)
        named = self.concat_dim or ()
        return (named,) if isinstance(named, str) else tuple(named)

    @property
    def keeps_labels_whole(self) -> bool:
        """Whether labels that a pattern found in files are kept in one chunk."""
        return self.stack is not None and self.pattern is not None

    def is_cube(self, first: VirtualGroup) -> bool:
        """Whether files are placed by label along dimensions; `first` is one of the files."""
        if self.mosaic or self.layout is not None or self.combine == "nested":
            return False
        if self.labels or (self.stack is None and (self.pattern or self.combine)):
            return True
        return len(self.dims) > 1 and not is_ragged(first, self.dims)

    def _rules(self, rules: CombineOptions) -> CombineOptions:
        """The rules, by which labels that are no dimensions are repeated along these."""
        pattern = self._parsed_pattern()
        if pattern is None or not pattern.beside:
            return rules
        beside: dict[str, Repeat] = {name[1:]: "all" for name in pattern.beside}
        return replace(rules, repeated={**beside, **rules.repeated})

    def combine_cube(
        self,
        scanned: Sequence[tuple[str, VirtualGroup]],
        read: Read,
        rules: CombineOptions,
        before: Sequence[VirtualGroup] = (),
        n_front: int = 0,
    ) -> Combination:
        """Combine files by label with groups that have labels as coordinates.

        The first `n_front` files come before these groups, the others after them.
        """
        pattern = self._parsed_pattern()
        rules = self._rules(rules)
        noted = Contradicted(read)
        groups, dims = labelled_files(scanned, pattern, self.pattern_of, self.labels, noted)
        if not any(VALID_TIME in group.arrays for group in groups):
            before = [without_valid_times(group) for group in before]
        every = [*groups[:n_front], *before, *groups[n_front:]]
        spacing = spacing_problem(scanned, read) if rules.join == "exact" else None
        if spacing is not None:
            return Combination(
                None, DriftReport((), tuple(file for file, _ in scanned)), (spacing,)
            )
        unnamed = [dim for dim in dims if dim not in self.dims]
        if unnamed and self.dims:
            raise InvalidRequestError(
                f"there are labels for {', '.join(unnamed)}, but the dimensions are"
                f" {', '.join(self.dims)}: name it too (concat_dim=), or call the field {{_}}"
            )
        if self.dims:
            done = combine_hypercube(every, self.dims, read=read, options=rules)
        else:
            done = combine_by_coords(every, dims, read=read, options=rules)
        done = replace(done, report=noted.told(done.report))
        group = done.group
        return done if group is None else replace(done, group=with_valid_times(group, read))

    def laid_out(
        self,
        scanned: Iterable[tuple[str, VirtualGroup]],
        read: Read,
        rules: CombineOptions,
        mosaic_options: MosaicOptions,
        tree: Sequence[Any] = (),
    ) -> Combination:
        """Combine files, given as (address, group), into one group; problems are returned.

        With ``combine="nested"``, `tree` is the nesting of the files.
        """
        if self.combine == "nested":
            groups = nested_alike(tree, dict(scanned))
            return combine_nested(groups, self.dims, read, rules)
        rest = iter(scanned)
        first = list(itertools.islice(rest, 1))
        scanned = itertools.chain(first, rest)
        if first and self.is_cube(first[0][1]):
            return self.combine_cube(list(scanned), read, rules)
        return self._in_a_row(scanned, read, rules, mosaic_options)

    def _in_a_row(
        self,
        scanned: Iterable[tuple[str, VirtualGroup]],
        read: Read,
        rules: CombineOptions,
        mosaic_options: MosaicOptions,
    ) -> Combination:
        """Combine files that follow each other along one way, or alone."""
        if self.layout == "plate":
            return combine_plate_files(list(scanned), self._parsed_pattern(), read, rules)
        noted = Contradicted(read)
        if self.layout is not None:
            rows = self.labelled(scanned, noted)
            done = self.combine_ragged(rows, read, rules)
            return replace(done, report=noted.told(done.report))
        if self.mosaic:
            tiles = self.tiles(scanned, noted)
            done = self.combine_mosaic(tiles, read, rules, mosaic_options)
            return replace(done, report=noted.told(done.report))
        by_label = self.order == "label"
        if self.stack is not None:
            labelled = self.labelled(scanned, noted)
            rules = self._rules(rules)
            done = combine_stack(labelled, self.stack, read=read, options=rules, by_label=by_label)
            done = replace(done, report=noted.told(done.report))
            if done.group is None or not self.keeps_labels_whole:
                return done
            return replace(done, group=in_one_chunk(done.group, self.stack, read))
        groups = (group for _, group in scanned)
        if self.concat_dim:
            return combine(groups, self.concat_dim, read=read, options=rules, by_label=by_label)
        ((file, group),) = scanned
        return Combination(group, DriftReport((), (file,)))

    def labelled(
        self, scanned: Iterable[tuple[str, VirtualGroup]], noted: Contradicted
    ) -> Iterable[VirtualGroup]:
        """The groups of files, with their labels where they are stacked.

        Coordinates that labels contradict are noted.
        """
        if self.stack is None:
            return (group for _, group in scanned)
        pairs = self._labelled(self.stack, scanned)
        return noted.noting(pairs, [self.stack])

    def combine_mosaic(
        self,
        groups: Iterable[VirtualGroup],
        read: Read,
        rules: CombineOptions,
        mosaic_options: MosaicOptions,
    ) -> Combination:
        """Combine groups as a mosaic by their georeferencing, one for each label."""
        pattern = self._parsed_pattern()
        fields = [] if pattern is None else [*pattern.fields]
        dims = dict.fromkeys([self.stack, *fields] if self.stack else fields)
        dims.pop(VARIABLE, None)
        done = combine_mosaic(
            groups,
            **option_values(mosaic_options),
            stack=list(dims),
            merge=VARIABLE in fields,
            read=read,
            options=rules,
        )
        if done.group is None:
            return done
        group = done.group
        for dim in dims:
            group = in_one_chunk(group, dim, read)
        return replace(done, group=group)

    def tiles(
        self, scanned: Iterable[tuple[str, VirtualGroup]], noted: Contradicted
    ) -> Iterable[VirtualGroup]:
        """The groups of tiles, with their labels where a pattern finds some.

        Coordinates that labels contradict are noted.
        """
        pattern = self._parsed_pattern()
        if pattern is None:
            return (group for _, group in scanned)
        if self.stack is not None and self.stack not in pattern.fields:
            raise InvalidRequestError(
                f"the pattern {self.pattern!r} has no field {{{self.stack}}}, which is the stack"
            )
        known = list(scanned)
        files = [file for file, _ in known]
        if self.pattern_of is None:
            found = pattern.of_names(files)
        else:
            attrs = [group.attrs for _, group in known]
            found = pattern.of_attributes(attrs, self.pattern_of, files)
            known = [(file, without_attribute(group, self.pattern_of)) for file, group in known]
        labelled = labelled_tiles(known, found, pattern)
        pairs = zip((group for _, group in known), labelled, strict=True)
        return noted.noting(pairs, list(pattern.fields))

    def combine_ragged(
        self, groups: Iterable[VirtualGroup], read: Read, rules: CombineOptions
    ) -> Combination:
        """Combine groups of differing length."""
        dims = [self.concat_dim] if isinstance(self.concat_dim, str) else self.concat_dim or ()
        padded = self.layout == "padded"
        done = combine_ragged(
            groups, samples=dims, instance=self.stack, padded=padded, read=read, options=rules
        )
        return done if done.group is None else replace(done, group=_inline_joined(done.group, read))

    def _parsed_pattern(self) -> LabelPattern | None:
        if self.pattern is None:
            return None
        return LabelPattern.parse(self.pattern, None if self.mosaic else self.stack)

    def _labelled(
        self, dim: str, scanned: Iterable[tuple[str, VirtualGroup]]
    ) -> Iterable[tuple[VirtualGroup, VirtualGroup]]:
        """Groups without and with their labels, in the order of the labels."""
        pattern = self._parsed_pattern()
        if pattern is None:
            return ((group, group) for _, group in scanned)
        if self.pattern_of is None:
            named = ((group, pattern.of_names([file])[0]) for file, group in scanned)
            return ((group, _with_labels(group, dim, own, pattern)) for group, own in named)
        return _sorted_by_attribute(list(scanned), dim, pattern, self.pattern_of)


def _with_labels(
    group: VirtualGroup, dim: str, labels: Mapping[str, Any], pattern: LabelPattern
) -> VirtualGroup:
    """A group with its label along a new dimension, and those beside it."""
    labelled = with_label(group, dim, labels[dim], pattern.attrs(dim))
    return with_labels_beside(labelled, labels, pattern)


def _sorted_by_attribute(
    scanned: Sequence[tuple[str, VirtualGroup]], dim: str, pattern: LabelPattern, name: str
) -> list[tuple[VirtualGroup, VirtualGroup]]:
    """Groups without and with the labels in an attribute, which they no longer have, in order."""
    files, groups = [file for file, _ in scanned], [group for _, group in scanned]
    found = pattern.of_attributes([group.attrs for group in groups], name, files)
    labelled = [
        (own[dim], group, _with_labels(without_attribute(group, name), dim, own, pattern))
        for own, group in zip(found, groups, strict=True)
    ]
    return [(before, after) for _, before, after in sorted(labelled, key=itemgetter(0))]


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
    """Whether no element is in a file, and none is missing."""
    return all(map(_holds_all_inline, array.manifests))


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
