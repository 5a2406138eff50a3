"""TIFF files: from an address to a group."""

from __future__ import annotations

from collections.abc import Callable

from gridref.errors import (
    GridrefError,
    Place,
    ScanError,
    SourceFormatError,
    UnsupportedFeatureError,
)
from gridref.formats.options import ScanOptions
from gridref.formats.sniff import Head
from gridref.formats.tiff.cube import build_group
from gridref.formats.tiff.directory import Window, is_ndpi, read_head
from gridref.formats.tiff.file_set import FileSet
from gridref.formats.tiff.image import TiffStructure
from gridref.formats.tiff.plain_reader import read_plain_structure
from gridref.formats.tiff.tifffile_reader import read_companion, read_structure
from gridref.io import ScanFile, open_for_scan
from gridref.model.array import VirtualGroup
from gridref.model.scan_report import Fate, Finding, ScanReport

__all__ = ["TIFFScanner", "scan_tiff"]

_COMPANION_START_BYTES = 2048
_MAX_COMPANION_BYTES = 64 << 20
_MAGIC = (b"II*\0", b"MM\0*", b"II+\0\x08\0\0\0", b"MM\0+\0\x08\0\0")


class TIFFScanner:
    """Recognises and scans TIFF, BigTIFF and what is built on them."""

    name = "TIFF"

    def recognises(self, head: Head) -> bool:
        """Whether a file begins as TIFF 6.0, Section 2 or the BigTIFF design say.

        Companion files of OME-TIFF are recognised, too.
        """
        return head.data.startswith(_MAGIC) or _is_companion(head.data)

    def scan(self, file: ScanFile, options: ScanOptions) -> VirtualGroup:
        """Describe a file: see `scan_tiff`."""
        return scan_tiff(file.name, options)


def scan_tiff(url: str, options: ScanOptions | None = None) -> VirtualGroup:
    """Describe a TIFF file: where the chunks of its images lie, without reading any.

    Parameters
    ----------
    url
        Absolute local path, or fsspec URL.
    options
        How it is scanned.

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
        If the file is not there or cannot be read.
    """
    options = ScanOptions() if options is None else options
    with (
        open_for_scan(url, options.storage_options) as file,
        FileSet(file, options.storage_options) as files,
    ):
        skipped: list[Finding] = []
        try:
            structure = _structure(files, options.max_objects)
            group, findings = build_group(
                structure, options.max_chunk_bytes, _refusal(file.name, options, skipped)
            )
        except GridrefError as error:
            raise error.located(Place(source=file.name)) from error.__cause__
        except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
            # Tags of every type and value come together; none may end in anything but this.
            reason = f"the tags of the file contradict each other: {error}"
            raise SourceFormatError(reason, Place(source=file.name)) from error
        report = ScanReport((*findings, *skipped), files.n_requests, files.n_bytes)
        return group.replace(report=report)


def _is_companion(start: bytes) -> bool:
    """Whether a file begins like OME-XML."""
    return start.startswith((b"<?xml", b"<OME")) and b"<OME" in start


def _structure(files: FileSet, max_directories: int) -> TiffStructure:
    file = files.first
    window = Window(file)
    if _is_companion(window.read(0, min(file.size, _COMPANION_START_BYTES))):
        if file.size > _MAX_COMPANION_BYTES:
            raise UnsupportedFeatureError(f"the companion file has {file.size} bytes")
        file.seek(0)
        text = file.read().decode("utf-8", errors="replace")
        return read_companion(text, files, max_directories)
    plain = read_plain_structure(file, window, read_head(window, ndpi=is_ndpi(file.name)))
    return read_structure(file, files, max_directories) if plain is None else plain


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
