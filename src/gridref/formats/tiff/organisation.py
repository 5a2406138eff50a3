"""How a TIFF file is organised, and what writing it anew as a COG would give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gridref.formats.options import ScanOptions
from gridref.formats.organisation import Advice, MetadataPieces, Organisation
from gridref.formats.tiff.directory import Directory, Window, is_ndpi, read_directories, read_head
from gridref.formats.tiff.tags import Tag
from gridref.io import ScanFile

__all__ = ["tiff_organisation"]

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
