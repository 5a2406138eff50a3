"""Turn a TIFF file into a virtual group, and describe how the file is organised.

`scan_tiff` takes an open file and returns its images as a group, without reading any pixels. It
uses the plain reader, or tifffile for files that are not ordinary. `tiff_organisation` describes
how the file keeps its directories and what rewriting it as a COG would gain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gridref.errors import (
    GridrefError,
    Place,
    ScanError,
    SourceFormatError,
    UnsupportedFeatureError,
)
from gridref.formats.location import Location
from gridref.formats.options import ScanOptions
from gridref.formats.scanner import Advice, MetadataPieces, Organisation
from gridref.formats.tiff.directory import (
    Directory,
    Tag,
    Window,
    is_ndpi,
    read_directories,
    read_head,
)
from gridref.formats.tiff.file_set import FileSet
from gridref.formats.tiff.group import build_group
from gridref.formats.tiff.images import TiffStructure
from gridref.formats.tiff.plain_reader import plain_directories, read_plain_structure
from gridref.formats.tiff.siblings import (
    Described,
    describe_as_sibling,
    keep_for_siblings,
    likeness,
)
from gridref.formats.tiff.tifffile_reader import (
    companion_of,
    is_of_set,
    read_companion,
    read_structure,
)
from gridref.io import ScanFile
from gridref.limits import beyond, limits
from gridref.model.array import VirtualGroup
from gridref.model.scan_report import Fate, Finding, ScanReport

# The file as a virtual group


def scan_tiff(location: Location, options: ScanOptions) -> VirtualGroup:
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
            # Tags of any type and value meet here; every failure must end in this error.
            reason = f"the tags of the file contradict each other: {error}"
            raise SourceFormatError(reason, Place(source=file.name)) from error
    return group.with_changes(report=ScanReport((*findings, *skipped)))


def _described(
    files: FileSet, head: bytes, options: ScanOptions, skipped: list[Finding]
) -> Described:
    """The group of a file, by a similar file if there was one."""
    file = files.first
    refuse = _refusal(file.name, options, skipped)
    if head.startswith(b"<"):
        structure = read_companion(_text(file), files, options.max_objects)
        return build_group(structure, options.max_chunk_bytes, refuse)
    window = Window(file, head)
    directories = plain_directories(window, read_head(window, ndpi=is_ndpi(file.name)))
    alike = likeness(directories, options.max_chunk_bytes)
    described = describe_as_sibling(alike, directories, file.source)
    if described is not None:
        return described
    plain = read_plain_structure(file, directories)
    structure = plain or _by_companion(
        read_structure(file, files, options.max_objects), files, options, skipped
    )
    described = build_group(structure, options.max_chunk_bytes, refuse)
    if plain is not None and not skipped:
        keep_for_siblings(alike, directories, plain, described)
    return described


def _by_companion(
    structure: TiffStructure, files: FileSet, options: ScanOptions, skipped: list[Finding]
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
    skipped.append(Finding("/", Fate.SKIPPED, reason, url))
    return structure


def _text(companion: ScanFile) -> str:
    """The text of a companion file."""
    if companion.size > limits().companion_bytes:
        what = f"the companion file has {companion.size} bytes"
        place = Place(source=companion.name)
        raise UnsupportedFeatureError(beyond("companion_bytes", what), place)
    return companion.read_many([0], [companion.size])[0].decode("utf-8", errors="replace")


def _refusal(
    url: str, options: ScanOptions, skipped: list[Finding]
) -> Callable[[str, ScanError], None]:
    """Raise an error for an image that cannot be described, or record it in `skipped`."""

    def refuse(path: str, error: ScanError) -> None:
        error.located(Place(source=url, variable=f"/{path}"))
        if options.on_unsupported == "raise" or not isinstance(error, UnsupportedFeatureError):
            raise error
        skipped.append(Finding(f"/{path}", Fate.SKIPPED, error.reason, url))

    return refuse


# The organisation of the file, and what rewriting it as a COG would gain

_HEAD_BYTES = 16 << 10
_COG = "gdal_translate -of COG IN OUT"
_IFDS_FIRST = b"LAYOUT=IFDS_BEFORE_DATA"


def tiff_organisation(
    file: ScanFile, options: ScanOptions, metadata: MetadataPieces
) -> Organisation:
    """Describe a TIFF file by its chain of directories; raises as `gridref.formats.scan` does."""
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
    n_bytes = sum(_n_bytes(each) for each in directories)
    n_then = 1 if n_bytes < _HEAD_BYTES else 2
    if metadata.n_requests > n_then:
        last = max(each.offset for each in directories)
        yield Advice(
            f"its {len(directories)} directories and tables of tiles, {n_bytes} bytes, reach to"
            f" byte {last} of {metadata.file_bytes}",
            _COG,
            f"all of it at the beginning: {n_then} request{'s' * (n_then > 1)}, not"
            f" {metadata.n_requests}",
        )
    if directories and not _is_tiled(directories[0]):
        yield Advice(
            "the image is stored in strips: a part of it takes whole rows", _COG, "tiles of 512"
        )


def _n_bytes(directory: Directory) -> int:
    """Size of a directory and the values of its tags."""
    return sum(20 + entry.n_bytes for entry in directory.entries.values())
