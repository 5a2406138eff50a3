"""Turn a TIFF file into a virtual group, and describe how the file is organised.

`scan` takes an open file and returns its images as a group, without reading any pixels. It
uses the plain reader, or tifffile for files that are not ordinary. `organisation` describes
how the file keeps its directories and what rewriting it as a COG would gain.

In an archive of images on one grid, all directories are equal except for the offsets and sizes of
segments. The arrays, coordinates and attributes are then equal, too. They are kept in
`gridref.learned.FORMS` for the first file, and each further file is described by them and its own
offsets and sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gridref.errors import (
    GridrefError,
    Place,
    SourceFormatError,
    UnsupportedFeatureError,
    number_of,
)
from gridref.formats.location import Location
from gridref.formats.scanner import Advice, Findings, MetadataPieces, Organisation, ScanOptions
from gridref.formats.tiff.directory import (
    Directory,
    Tag,
    Window,
    is_ndpi,
    read_directories,
    read_head,
)
from gridref.formats.tiff.group import build_group
from gridref.formats.tiff.images import Page, TiffStructure
from gridref.formats.tiff.plain_reader import (
    NotOrdinaryError,
    plain_directories,
    read_plain_structure,
    segments_of,
)
from gridref.formats.tiff.storage import Segments, has_spliced_tables, segment_manifest
from gridref.formats.tiff.tifffile_reader import (
    FileSet,
    companion_of,
    is_of_set,
    read_companion,
    read_structure,
)
from gridref.io import ScanFile
from gridref.learned import FORMS
from gridref.limits import beyond, limits
from gridref.model.array import VirtualGroup
from gridref.model.manifest import ChunkManifest, Manifest, Source
from gridref.model.scan_report import Fate, Finding

# The file as a virtual group


def scan(location: Location, options: ScanOptions) -> VirtualGroup:
    """Describe a TIFF file and the places of its chunks, without reading any of them.

    Parameters
    ----------
    location
        A TIFF file, or OME-XML that names TIFF files beside it.

    Returns
    -------
    VirtualGroup
        See `gridref.formats.tiff.group` for its arrays. Each has the attributes ``tiff_series`` and
        ``tiff_level``, which count as tifffile does.
    """
    file = location.opened
    findings = Findings(file.name)
    with FileSet(file, options) as files:
        try:
            group = _described(files, location.head, options, findings)
            return group.with_changes(report=findings.report(options))
        except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
            # Tags of any type and value meet here; every failure must end in this error.
            reason = f"the tags of the file contradict each other: {error}"
            raise SourceFormatError(reason, Place(source=file.name)) from error


def _described(
    files: FileSet, head: bytes, options: ScanOptions, findings: Findings
) -> VirtualGroup:
    """The group of a file, by a similar file if there was one."""
    file = files.first
    if head.startswith(b"<"):
        structure = read_companion(_text(file), files, options.max_objects)
        return build_group(structure, options.max_chunk_bytes, findings)
    window = Window(file, head)
    directories = plain_directories(window, read_head(window, ndpi=is_ndpi(file.name)))
    alike = _likeness(directories, options.max_chunk_bytes)
    sibling = _describe_as_sibling(alike, directories, file.source, findings)
    if sibling is not None:
        return sibling
    plain = read_plain_structure(file, directories)
    structure = plain or _by_companion(
        read_structure(files, options.max_objects), files, options, findings
    )
    group = build_group(structure, options.max_chunk_bytes, findings)
    if plain is not None and all(each.fate is not Fate.SKIPPED for each in findings.found):
        _keep_for_siblings(alike, directories, plain, group, findings)
    return group


def _by_companion(
    structure: TiffStructure, files: FileSet, options: ScanOptions, findings: Findings
) -> TiffStructure:
    """The structure of the set of a file whose metadata is in a companion file, if that is there.

    Source: OME-TIFF specification, "Multi-file OME-TIFF filesets": ``BinaryOnly`` names the file
    beside it that holds the metadata.
    """
    description = str(structure.tags.get(Tag.IMAGE_DESCRIPTION, ""))
    name = companion_of(description)
    if name is None:
        return structure
    url = files.first.name
    companion = files.member(name)
    if companion is None:
        reason = f"its OME-XML is in {name}, which is not beside it: nothing says what its axes are"
    else:
        text = _text(companion.scan_file)
        if is_of_set(text, description, url):
            return read_companion(text, files, options.max_objects)
        reason = f"its OME-XML is in {name}, which does not name it: nothing says what its axes are"
    findings.note("/", Fate.SKIPPED, reason)
    return structure


def _text(companion: ScanFile) -> str:
    if companion.size > limits().companion_bytes:
        what = f"the companion file has {companion.size} bytes"
        place = Place(source=companion.name)
        raise UnsupportedFeatureError(beyond("companion_bytes", what), place)
    return companion.read_many([0], [companion.size])[0].decode("utf-8", errors="replace")


# Files that differ from an earlier one only in the places of strips or tiles

_MAX_FACTS_BYTES = 32 << 10


@dataclass(frozen=True, eq=False)
class _First:
    """The first of similar files, and by path the page that holds each array's chunks."""

    group: VirtualGroup
    findings: tuple[Finding, ...]
    pages: Mapping[str, Page]

    @property
    def n_bytes(self) -> int:
        """Its approximate size in memory: coordinates are most of it."""
        return 20_000 + sum(
            array.nbytes
            for path, array in self.group.all_arrays().items()
            if path not in self.pages
        )


def _likeness(directories: Sequence[Directory], max_chunk_bytes: int) -> tuple[Any, ...] | None:
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


def _describe_as_sibling(
    alike: tuple[Any, ...] | None,
    directories: Sequence[Directory],
    source: Source,
    findings: Findings,
) -> VirtualGroup | None:
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
    findings.found += [finding._replace(source=source.url) for finding in first.findings]
    return _with_manifests(first.group, "", manifests)


def _keep_for_siblings(
    alike: tuple[Any, ...] | None,
    directories: Sequence[Directory],
    structure: TiffStructure,
    group: VirtualGroup,
    findings: Findings,
) -> None:
    """Keep the group of a file, if the places of segments are in manifests only."""
    levels = [level for image in structure.images for level in image.levels]
    if alike is None or not all(
        len(level.pages) == 1 and level.keyframe.compression != 1 and level.problem is None
        for level in levels
    ):
        return
    pages = {(level.series, level.level): level.keyframe for level in levels}
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
        pages_of = {path: page for path, (_, page) in arrays.items()}
        first = _First(group, tuple(findings.found), pages_of)
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


# The organisation of the file, and what rewriting it as a COG would gain

_HEAD_BYTES = 16 << 10
_COG = "gdal_translate -of COG IN OUT"
_IFDS_FIRST = b"LAYOUT=IFDS_BEFORE_DATA"


def organisation(
    location: Location, options: ScanOptions, metadata: MetadataPieces
) -> Organisation:
    """Describe a TIFF file by its chain of directories; raises as `gridref.formats.scan` does."""
    file = location.opened
    if not file.size or file.read_many([0], [1]) == [b"<"]:
        return Organisation()  # OME-XML that names TIFF files
    window = Window(file)
    head = read_head(window, ndpi=is_ndpi(file.name))
    directories, _ = read_directories(window, head, options.max_objects)
    facts = {
        "BigTIFF": head.big,
        "first directory at byte": head.first,
        "last directory at byte": max((each.offset for each in directories), default=0),
        "directories": len(directories),
        "directories without tiles": sum(not _is_tiled(each) for each in directories),
        "says it is a COG": _IFDS_FIRST in window.read(0, min(file.size, 512)),
    }
    return Organisation(facts, {}, tuple(_advice(directories, metadata)))


def _is_tiled(directory: Directory) -> bool:
    return Tag.TILE_WIDTH in directory.entries


def _advice(directories: Sequence[Directory], metadata: MetadataPieces) -> Iterator[Advice]:
    entries = [entry for each in directories for entry in each.entries.values()]
    n_bytes = sum(20 + entry.n_bytes for entry in entries)  # with the values of the tags
    n_then = 1 if n_bytes < _HEAD_BYTES else 2
    if metadata.n_requests > n_then:
        last = max(each.offset for each in directories)
        yield Advice(
            f"its {len(directories)} directories and tables of tiles, {n_bytes} bytes, reach to"
            f" byte {last} of {metadata.file_bytes}",
            _COG,
            f"all of it at the beginning: {number_of(n_then, 'request')}, not"
            f" {metadata.n_requests}",
        )
    if directories and not _is_tiled(directories[0]):
        yield Advice(
            "the image is stored in strips: a part of it takes whole rows", _COG, "tiles of 512"
        )
