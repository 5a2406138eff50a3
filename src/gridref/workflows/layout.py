"""How files are laid beside each other: along a dimension, stacked, or as a mosaic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Literal

from gridref.combine import (
    Combination,
    CombineOptions,
    DriftReport,
    MosaicOptions,
    combine,
    combine_mosaic,
    combine_ragged,
    combine_stack,
)
from gridref.combine.labelled import with_label
from gridref.combine.options import Read
from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.options import check_choice, refuses_unknown
from gridref.workflows.labels import LabelPattern

__all__ = ["Layout"]


@refuses_unknown
@dataclass(frozen=True)
class Layout:
    """How files are laid beside each other: at most one way.

    Attributes
    ----------
    concat_dim
        Dimension to concatenate along, existing or new; several for ragged arrays. One file needs
        none.
    stack
        New dimension to stack the files along; with `mosaic`, those of each label beside each
        other.
    pattern
        What the labels of a stack look like in the file names, like ``{time:%Y%m%d}``. The files
        are put in the order of their labels.
    pattern_of
        Attribute of the files to find the labels in instead of their names, like
        ``TIFFTAG_DATETIME``.
    mosaic
        Lay the files out by their georeferencing.
    layout
        For trajectories, profiles or swaths of differing length: ``"ragged"`` lays all samples one
        after the other, with the number of each file's in ``row_size`` (CF conventions, 9.3.3);
        ``"padded"`` gives each file a row, as long as the longest. `concat_dim` then is the
        dimension whose length differs, and `stack` the one that counts the files; both are found
        where they are None.

    Raises
    ------
    InvalidRequestError
        For more than one way, or a pattern without a stack.
    """

    concat_dim: str | Sequence[str] | None = None
    stack: str | None = None
    pattern: str | None = None
    pattern_of: str | None = None
    mosaic: bool = False
    layout: Literal["ragged", "padded"] | None = None

    def __post_init__(self) -> None:
        if self.layout is not None:
            check_choice("layout", self.layout, ("ragged", "padded"))
            if self.mosaic:
                raise InvalidRequestError(f"layout={self.layout!r} is another one than a mosaic")
        elif self.concat_dim and (self.stack or self.mosaic):
            raise InvalidRequestError("ask for one of a dimension to concatenate, stack or mosaic")
        if self.pattern and not self.stack:
            raise InvalidRequestError("a pattern labels the files of a stack: name its dimension")
        if self.pattern_of and not self.pattern:
            raise InvalidRequestError("an attribute to find labels in needs their pattern")

    def ordered(self, files: Sequence[str]) -> list[str]:
        """The files in the order in which they are combined, as far as their names tell."""
        if len(files) > 1 and not (self.concat_dim or self.stack or self.mosaic or self.layout):
            raise InvalidRequestError(
                f"{len(files)} files need a dimension to lie along: name it (concat_dim='time'),"
                " stack them along a new one (stack='time') or by their place (mosaic=True)"
            )
        pattern = self._parsed_pattern()
        if pattern is None or self.pattern_of is not None:
            return list(files)
        return sorted(files, key=pattern.label_of_name)

    def combine(
        self,
        scanned: Iterable[tuple[str, VirtualGroup]],
        read: Read,
        rules: CombineOptions,
        mosaic_options: MosaicOptions,
    ) -> Combination:
        """Combine files, given as (address, group), into one group, or say what prevents it."""
        if self.layout is not None:
            return self.combine_ragged(self.labelled(scanned), read, rules)
        if self.mosaic:
            return self.combine_mosaic(self.labelled(scanned), read, rules, mosaic_options)
        if self.stack is not None:
            done = combine_stack(self.labelled(scanned), self.stack, read=read, options=rules)
            if done.group is None or self.pattern is None:
                return done
            return replace(done, group=_in_one_chunk(done.group, self.stack, read))
        groups = (group for _, group in scanned)
        if self.concat_dim:
            return combine(groups, self.concat_dim, read=read, options=rules)
        ((file, group),) = scanned
        return Combination(group, DriftReport((), (file,)))

    def labelled(self, scanned: Iterable[tuple[str, VirtualGroup]]) -> Iterable[VirtualGroup]:
        """The groups of files, with their labels where they are stacked."""
        if self.stack is None:
            return (group for _, group in scanned)
        return self._labelled(self.stack, scanned)

    def combine_mosaic(
        self,
        groups: Iterable[VirtualGroup],
        read: Read,
        rules: CombineOptions,
        mosaic_options: MosaicOptions,
    ) -> Combination:
        """Combine groups by where they lie, those of each label beside each other."""
        options = vars(mosaic_options)
        done = combine_mosaic(groups, **options, stack=self.stack, read=read, options=rules)
        if done.group is None or self.stack is None:
            return done
        return replace(done, group=_in_one_chunk(done.group, self.stack, read))

    def combine_ragged(
        self, groups: Iterable[VirtualGroup], read: Read, rules: CombineOptions
    ) -> Combination:
        """Combine groups of differing length."""
        dims = [self.concat_dim] if isinstance(self.concat_dim, str) else self.concat_dim or ()
        padded = self.layout == "padded"
        return combine_ragged(
            groups, samples=dims, instance=self.stack, padded=padded, read=read, options=rules
        )

    def _parsed_pattern(self) -> LabelPattern | None:
        if self.stack is None or self.pattern is None:
            return None
        return LabelPattern.parse(self.pattern, self.stack)

    def _labelled(
        self, dim: str, scanned: Iterable[tuple[str, VirtualGroup]]
    ) -> Iterable[VirtualGroup]:
        """Groups with their labels, in the order of the labels."""
        pattern = self._parsed_pattern()
        if pattern is None:
            return (group for _, group in scanned)
        if self.pattern_of is None:
            return (
                with_label(group, dim, pattern.label_of_name(file), pattern.attrs)
                for file, group in scanned
            )
        labelled = []
        for file, group in scanned:
            label = pattern.label_of_attribute(group.attrs, self.pattern_of, file)
            others = {name: text for name, text in group.attrs.items() if name != self.pattern_of}
            rest = group.replace(attrs=others)
            labelled.append((label, with_label(rest, dim, label, pattern.attrs)))
        return [group for _, group in sorted(labelled, key=itemgetter(0))]


def _in_one_chunk(group: VirtualGroup, name: str, read: Read) -> VirtualGroup:
    """Keep the labels of all files in one chunk, since they are read together."""
    coordinate = group.arrays[name]
    whole = VirtualArray.from_numpy(read(coordinate), coordinate.dims, coordinate.attrs)
    return group.replace(arrays={**group.arrays, name: whole})
