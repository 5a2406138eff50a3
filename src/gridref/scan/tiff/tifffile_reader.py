"""The structure of a file by way of tifffile, which knows the many flavours of TIFF.

Nothing here reads pixels: tifffile parses directories and metadata, and what it found is copied
into our own frozen types.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, cast

import numpy as np
import tifffile
from numpy.typing import NDArray

from gridref.errors import GridrefError, Place, SourceFormatError
from gridref.io import ScanFile, describe_source
from gridref.model.manifest import Source
from gridref.scan.tiff.image import Image, Level, TiffStructure
from gridref.scan.tiff.page import Page
from gridref.scan.tiff.tags import METADATA_TAGS

__all__ = ["read_companion", "read_structure"]

_FLAVOURED = frozenset({"ome", "svs", "ndpi", "scn", "bif", "philips", "qpi", "lsm", "imagej"})


def read_companion(text: str, folder: str) -> TiffStructure:
    """Parse a set of files that a companion file of OME-XML describes.

    Source: OME-TIFF specification, "Multi-file OME-TIFF filesets" and ``.companion.ome``.

    Parameters
    ----------
    text
        The OME-XML.
    folder
        The directory that the files lie in.

    Raises
    ------
    SourceFormatError
        If the text names no file, or tifffile cannot make sense of it.
    SourceUnavailableError
        If the first file is not there.
    """
    names = re.findall(r'FileName="([^"]+)"', text)
    if not names or os.path.basename(names[0]) != names[0]:
        raise SourceFormatError("the OME-XML names no TIFF file beside it")
    source = describe_source(os.path.join(folder, names[0]))
    return read_structure(source.url, source, omexml=text)


def read_structure(
    stream: ScanFile | str, source: Source, *, omexml: str | None = None
) -> TiffStructure:
    """Parse all directories of a file.

    Parameters
    ----------
    stream
        The open file; or its path, so that tifffile finds further files of a set beside it.
    source
        The file, as chunk references name it.
    omexml
        OME-XML to go by instead of the file's own.

    Raises
    ------
    SourceFormatError
        If tifffile cannot make sense of it.
    """
    place = Place(source=source.url)
    # tifffile tells some flavours by the end of the name.
    name = None if isinstance(stream, str) else source.url.partition("?")[0]
    try:
        with _quiet(), tifffile.TiffFile(cast(IO[bytes], stream), name=name, omexml=omexml) as file:
            sources = _Sources(source, file)
            # The length of `pages` is not asked for: it changes what tifffile takes for a series.
            images = tuple(
                _image(series, number, sources) for number, series in enumerate(file.series)
            )
            if not images:
                raise SourceFormatError("the file has no images", place)
            tags = _metadata_tags(file)
    except GridrefError:
        raise
    except Exception as error:  # a broken file makes any of tifffile's assumptions fail
        text = str(error) or type(error).__name__
        raise SourceFormatError(f"not a readable TIFF file: {text}", place) from error
    return TiffStructure(images, tuple(sources.entries), tags)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep tifffile from logging; what matters is raised or reported."""
    logger = logging.getLogger("tifffile")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


class _Sources:
    """The files that pages lie in, numbered in the order in which they turn up."""

    def __init__(self, source: Source, file: Any) -> None:
        self.entries = [source]
        self._root = file
        self._ids = {id(file): 0}

    def id_of(self, page: Any) -> int:
        parent = page.parent
        if id(parent) not in self._ids:
            path = os.path.abspath(parent.filehandle.path)
            stat = os.stat(path)
            self._ids[id(parent)] = len(self.entries)
            self.entries.append(Source(path, stat.st_size, stat.st_mtime_ns))
        return self._ids[id(parent)]

    def absent(self) -> list[str]:
        """Names of the files of an OME set that are not there (OME-TIFF, ``TiffData/UUID``)."""
        names = set(re.findall(r'FileName="([^"]+)"', self._root.ome_metadata or ""))
        here = {os.path.basename(entry.url) for entry in self.entries}
        return sorted(names - here)


def _image(series: Any, number: int, sources: _Sources) -> Image:
    levels = tuple(
        _level(level, number, depth, sources) for depth, level in enumerate(series.levels)
    )
    sizes = {}
    if series.kind in _FLAVOURED:
        sizes = {
            axis: (float(step), str(series.coord_units[axis]))
            for axis, step in series.coord_scales.items()
            if axis in "XYZ" and step > 0 and series.coord_units.get(axis)
        }
    names = series.coords.get("C", np.zeros(0)) if series.kind in _FLAVOURED else np.zeros(0)
    return Image(
        series.kind,
        str(series.name or ""),
        levels,
        tuple(str(name) for name in names) if names.dtype.kind == "U" else (),
        sizes,
    )


def _level(series: Any, number: int, depth: int, sources: _Sources) -> Level:
    keyframe = _page(series.keyframe, series.keyframe)
    contiguous = series.dataoffset
    found = [*series._pages]  # noqa: SLF001 (indexing would fill in virtual pages)
    whole = _page_of(found[0], series.keyframe, keyframe) if len(found) == 1 else None
    pages = (
        (whole,)
        if len(found) == 1
        else tuple(_page_of(page, series.keyframe, keyframe) for page in found)
    )
    source_ids = tuple(0 if page is None else sources.id_of(page) for page in found)
    problem = None
    if series.transform is not None:
        problem = f"{series.kind} images need a transformation that no codec expresses"
    elif None in pages and sources.absent():
        problem = "the image lies in files that are not there: " + ", ".join(sources.absent())
    return Level(
        number,
        depth,
        tuple(int(extent) for extent in series.shape),
        series.axes,
        keyframe,
        pages,
        source_ids,
        None if contiguous is None else int(contiguous),
        problem,
    )


def _page_of(page: Any, theirs: Any, keyframe: Page) -> Page | None:
    if page is None:
        return None
    if page is theirs:
        return keyframe
    return _page(page, page.keyframe)


def _page(page: Any, keyframe: Any) -> Page:
    """Copy what one page says; frames take from their keyframe what they do not know."""
    axes, shape, chunk_shape = _layout(keyframe)
    return Page(
        index=tuple(page._index),  # noqa: SLF001 (the public form differs by depth)
        shape=shape,
        axes=axes,
        chunk_shape=chunk_shape,
        tiled=keyframe.is_tiled,
        dtype=keyframe.dtype,
        big_endian=keyframe.parent.byteorder == ">",
        compression=int(keyframe.compression),
        predictor=int(keyframe.predictor),
        photometric=int(keyframe.photometric),
        fill_order=int(keyframe.fillorder),
        sample_format=int(keyframe.sampleformat),
        bits=keyframe.bitspersample,
        samples=int(keyframe.samplesperpixel),
        planar=int(keyframe.planarconfig) == 2,
        extra_samples=tuple(int(value) for value in keyframe.extrasamples),
        subsampled=bool(keyframe.is_subsampled),
        t4_options=int(keyframe.tags.valueof(292, 0)),
        jpeg_tables=_jpeg_tables(page, keyframe),
        nodata=keyframe.nodata,
        subfile_type=int(keyframe.subfiletype),
        offsets=_column(page.dataoffsets),
        counts=_column(page.databytecounts),
        contiguous=bool(keyframe.is_final) and _one_piece(page, keyframe),
    )


def _layout(page: Any) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """Axes, shape and segment shape of a page."""
    axes = str(page.axes)
    shape = tuple(int(extent) for extent in page.shape)
    if page.is_tiled:
        depth, length, width = page.tiledepth, page.tilelength, page.tilewidth
    else:
        depth, length, width = 1, page.rowsperstrip, page.imagewidth
    contiguous_samples = axes.endswith("S")
    lengths = {
        "Z": depth,
        "Y": length,
        "X": width,
        "S": page.samplesperpixel if contiguous_samples else 1,
    }
    return axes, shape, tuple(int(lengths[axis]) for axis in axes)


def _one_piece(page: Any, keyframe: Any) -> bool:
    """Whether this page's own segments follow each other, as its keyframe's do."""
    if len(page.dataoffsets) < 2 or page is keyframe:
        return True
    offsets, counts = _column(page.dataoffsets), _column(page.databytecounts)
    return len(offsets) == len(counts) and bool((offsets[1:] == (offsets + counts)[:-1]).all())


def _jpeg_tables(page: Any, keyframe: Any) -> bytes | None:
    header = getattr(keyframe, "jpegheader", None)
    tables = header if header is not None else page.jpegtables
    return None if tables is None else bytes(tables)


def _column(values: Sequence[int]) -> NDArray[np.int64]:
    """Offsets or counts as a column; values that no file can have become -1."""
    if isinstance(values, np.ndarray):
        column = values.astype(np.uint64)
    else:
        column = np.array(values, dtype=np.uint64).reshape(-1)
    known = column <= np.uint64(2**62)
    return np.where(known, np.where(known, column, np.uint64(0)).astype(np.int64), np.int64(-1))


def _metadata_tags(file: Any) -> dict[int, Any]:
    """Values of the first page's tags that describe the image."""
    tags = file.pages.first.tags
    found = {code: tags.valueof(code) for code in METADATA_TAGS}
    return {code: value for code, value in found.items() if value is not None}
