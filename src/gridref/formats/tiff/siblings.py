"""Describe files that differ from an earlier file only in the places of their strips or tiles.

In an archive of images on one grid, all directories are equal except for the offsets and sizes of
segments. The arrays, coordinates and attributes are then equal, too. This module keeps them
in `gridref.learned.FORMS` for the first file, and describes each further file by them and its own
offsets and sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gridref.errors import GridrefError
from gridref.formats.tiff.directory import Directory
from gridref.formats.tiff.images import Page, TiffStructure
from gridref.formats.tiff.plain_reader import NotOrdinaryError, segments_of
from gridref.formats.tiff.storage import Segments, has_spliced_tables, segment_manifest
from gridref.learned import FORMS
from gridref.model.array import VirtualGroup
from gridref.model.manifest import ChunkManifest, Manifest, Source
from gridref.model.scan_report import Finding

_MAX_FACTS_BYTES = 32 << 10

Described = tuple[VirtualGroup, list[Finding]]
"""The group of a file, and the findings about it."""


@dataclass(frozen=True, eq=False)
class _First:
    """The first of similar files, and by path the page that holds each array's chunks."""

    group: VirtualGroup
    findings: list[Finding]
    pages: Mapping[str, Page]

    @property
    def n_bytes(self) -> int:
        """Its approximate size in memory: coordinates are most of it."""
        return 20_000 + sum(
            array.nbytes
            for path, array in self.group.all_arrays().items()
            if path not in self.pages
        )


def likeness(directories: Sequence[Directory], max_chunk_bytes: int) -> tuple[Any, ...] | None:
    """A key that is equal for similar files; None for files that have no siblings."""
    n_bytes = sum(n for each in directories for _, n in each.table.outside)
    if not directories or n_bytes > _MAX_FACTS_BYTES:
        return None
    head = directories[0].head
    try:
        facts = [each.facts() for each in directories]
    except GridrefError:  # a value is not in the file: the reader reports it
        return None
    return _First, head, max_chunk_bytes, *facts


def describe_as_sibling(
    alike: tuple[Any, ...] | None, directories: Sequence[Directory], source: Source
) -> Described | None:
    """Describe a file by a similar one; None if there is none, or if the file has a fault."""
    first: _First | None = None if alike is None else FORMS.get(alike)
    if first is None:
        return None
    try:
        manifests = {
            path: _manifest(page, directories[page.index[0]], source)
            for path, page in first.pages.items()
        }
    except (GridrefError, NotOrdinaryError):
        return None
    findings = [finding._replace(source=source.url) for finding in first.findings]
    return _with_manifests(first.group, "", manifests), findings


def keep_for_siblings(
    alike: tuple[Any, ...] | None,
    directories: Sequence[Directory],
    structure: TiffStructure,
    described: Described,
) -> None:
    """Keep the group of a file, if the places of segments are in manifests only."""
    levels = [level for image in structure.images for level in image.levels]
    if alike is None or not all(
        len(level.pages) == 1 and level.keyframe.compression != 1 and level.problem is None
        for level in levels
    ):
        return
    pages = {(level.series, level.level): level.keyframe for level in levels}
    group, findings = described
    arrays = {
        path: (array, pages[array.attrs["tiff_series"], array.attrs["tiff_level"]])
        for path, array in group.all_arrays().items()
        if "tiff_series" in array.attrs
    }
    (source,) = structure.sources
    if all(
        _is_same(array.manifests, _manifest(page, directories[page.index[0]], source))
        for array, page in arrays.values()
    ):
        first = _First(group, findings, {path: page for path, (_, page) in arrays.items()})
        FORMS.put(alike, first, first.n_bytes)


def _manifest(page: Page, directory: Directory, source: Source) -> ChunkManifest:
    """Chunks in C order of the axes of the page, with samples not split."""
    offsets, counts = segments_of(directory, page.tiled, page.n_chunks)
    segments = Segments(page.index, offsets, counts)
    return segment_manifest(page, [segments], (0,), (source,), has_tables=has_spliced_tables(page))


def _is_same(manifests: Sequence[Manifest], made: ChunkManifest) -> bool:
    if len(manifests) != 1 or not isinstance(manifests[0], ChunkManifest):
        return False
    known = manifests[0]
    return all(
        np.array_equal(getattr(known, name), getattr(made, name))
        for name in ("offset", "length", "state", "source")
    )


def _with_manifests(
    group: VirtualGroup, path: str, manifests: Mapping[str, ChunkManifest]
) -> VirtualGroup:
    """The group with other manifests for the arrays at some paths.

    `VirtualGroup.with_each_array` takes 30 µs more, a twelfth of the scan of a sibling.
    """
    arrays = {
        name: array.with_changes(manifests=(manifests[f"{path}{name}"],))
        if f"{path}{name}" in manifests
        else array
        for name, array in group.arrays.items()
    }
    groups = {
        name: _with_manifests(below, f"{path}{name}/", manifests)
        for name, below in group.groups.items()
    }
    return VirtualGroup(arrays, groups, group.attrs)
