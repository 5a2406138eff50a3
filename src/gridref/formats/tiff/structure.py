"""TIFF files: from an open file to a group."""

from __future__ import annotations

from collections.abc import Callable

from gridref.errors import (
    GridrefError,
    Place,
    ScanError,
    SourceFormatError,
    UnsupportedFeatureError,
)
from gridref.formats.location import Location
from gridref.formats.options import ScanOptions
from gridref.formats.tiff.cube import build_group
from gridref.formats.tiff.directory import Window, is_ndpi, read_head
from gridref.formats.tiff.file_set import FileSet
from gridref.formats.tiff.plain_reader import plain_directories, read_plain_structure
from gridref.formats.tiff.siblings import (
    Described,
    describe_as_sibling,
    keep_for_siblings,
    likeness,
)
from gridref.formats.tiff.tifffile_reader import read_companion, read_structure
from gridref.model.array import VirtualGroup
from gridref.model.scan_report import Fate, Finding, ScanReport

__all__ = ["scan_tiff"]

_MAX_COMPANION_BYTES = 64 << 20


def scan_tiff(location: Location, options: ScanOptions) -> VirtualGroup:
    """Describe a TIFF file: where the chunks of its images lie, without reading any.

    Parameters
    ----------
    location
        A TIFF file, or OME-XML that names TIFF files beside it.

    Returns
    -------
    VirtualGroup
        See `gridref.formats.tiff.cube` for its arrays. Each has the attributes ``tiff_series`` and
        ``tiff_level``, which count as tifffile does.

    Raises
    ------
    SourceFormatError
        If the file is truncated or corrupt.
    UnsupportedFeatureError
        If an image cannot be decoded faithfully and ``on_unsupported`` is ``"raise"``.
    SourceUnavailableError
        If the file cannot be read.
    """
    skipped: list[Finding] = []
    file = location.opened
    with FileSet(file, options) as files:
        try:
            group, findings = _described(files, location.head, options, skipped)
        except GridrefError as error:
            raise error.located(Place(source=file.name)) from error.__cause__
        except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
            # Tags of every type and value come together; none may end in anything but this.
            reason = f"the tags of the file contradict each other: {error}"
            raise SourceFormatError(reason, Place(source=file.name)) from error
    return group.replace(report=ScanReport((*findings, *skipped)))


def _described(
    files: FileSet, head: bytes, options: ScanOptions, skipped: list[Finding]
) -> Described:
    """The group of a file, by one that is like it if there was one."""
    file = files.first
    refuse = _refusal(file.name, options, skipped)
    if head.startswith(b"<"):
        if file.size > _MAX_COMPANION_BYTES:
            raise UnsupportedFeatureError(f"the companion file has {file.size} bytes")
        text = file.read_many([0], [file.size])[0].decode("utf-8", errors="replace")
        structure = read_companion(text, files, options.max_objects)
        return build_group(structure, options.max_chunk_bytes, refuse)
    window = Window(file, head)
    directories = plain_directories(window, read_head(window, ndpi=is_ndpi(file.name)))
    alike = likeness(window, directories, options.max_chunk_bytes)
    described = describe_as_sibling(alike, directories, file.source)
    if described is not None:
        return described
    plain = read_plain_structure(file, window, directories)
    structure = plain or read_structure(file, files, options.max_objects)
    described = build_group(structure, options.max_chunk_bytes, refuse)
    if plain is not None and not skipped:
        keep_for_siblings(alike, directories, plain, described)
    return described


def _refusal(
    url: str, options: ScanOptions, skipped: list[Finding]
) -> Callable[[str, ScanError], None]:
    """Raise what cannot be described, or note it in `skipped`."""

    def refuse(path: str, error: ScanError) -> None:
        error.located(Place(source=url, variable=f"/{path}"))
        if options.on_unsupported == "raise" or not isinstance(error, UnsupportedFeatureError):
            raise error
        skipped.append(Finding(f"/{path}", Fate.SKIPPED, error.reason, url))

    return refuse
