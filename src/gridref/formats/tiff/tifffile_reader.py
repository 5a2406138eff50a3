"""Read the structure of TIFF files of any flavour, with tifffile.

tifffile parses directories and metadata. This module copies what it found into gridref's own frozen
types, and never reads pixels.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import IO, Any, cast, override
from xml.etree import ElementTree as ET

import numpy as np
import tifffile
from numpy.typing import NDArray

from gridref.errors import GridrefError, Place, SourceFormatError, SourceUnavailableError
from gridref.formats.findings import refusing_damage
from gridref.formats.tiff.directory import (
    METADATA_TAGS,
    Tag,
    Window,
    check_directories,
    is_ndpi,
    read_head,
)
from gridref.formats.tiff.file_set import BoundedFile, FileSet, MemberFile
from gridref.formats.tiff.images import MAX_SAMPLES, Image, Level, Page, TiffStructure
from gridref.formats.tiff.metadata import pixels_of
from gridref.io import ScanFile, beside
from gridref.model.manifest import Source

_OLD_STYLE_JPEG, _JPEG = 6, 7
_UNREADABLE = "not a readable TIFF file"


def read_companion(text: str, files: FileSet, max_directories: int) -> TiffStructure:
    """Parse a set of files that a companion file of OME-XML describes.

    Source: OME-TIFF specification, "Multi-file OME-TIFF filesets" and ``.companion.ome``.

    Parameters
    ----------
    files
        The companion file, and those beside it.
    max_directories
        Most directories of one file that are followed.

    Raises
    ------
    SourceFormatError
        If the text names no file, or tifffile cannot parse it.
    SourceUnavailableError
        If the first file does not exist.
    """
    names = [name for name in _names_of_files(text).values() if name]
    if not names:
        raise SourceFormatError("the OME-XML names no TIFF file beside it")
    first = files.member(names[0])
    if first is None:
        place = Place(source=beside(files.first.name, names[0]))
        raise SourceUnavailableError("the first file of the set does not exist", place)
    return read_structure(first, files, max_directories, omexml=text)


def read_structure(
    stream: ScanFile | MemberFile,
    files: FileSet,
    max_directories: int,
    *,
    omexml: str | None = None,
) -> TiffStructure:
    """Parse all directories of a file, and of the other files of its set.

    Parameters
    ----------
    max_directories
        Most directories of one file that are followed.
    omexml
        OME-XML to use instead of the file's own.
    """
    url = stream.source.url
    with (
        refusing_damage(url, _UNREADABLE),
        _quiet(),
        _ScannedFile(stream, files, max_directories, omexml=omexml) as file,
    ):
        _check_planes(file.ome_metadata, max_directories)
        sources = _Sources(stream.source, files)
        # The length of `pages` is not used: it changes what tifffile takes for a series.
        images = _with_pixels(
            [_image(series, number, sources) for number, series in enumerate(file.series)],
            file.ome_metadata,
        )
        if not images:
            raise SourceFormatError("the file has no images", Place(source=url))
        tags = _metadata_tags(file)
    return TiffStructure(images, tuple(sources.entries), tags)


class _ScannedFile(tifffile.TiffFile):  # type: ignore[misc]
    """tifffile's reader of a stream, which finds the other files of its set in a `FileSet`.

    tifffile itself opens paths only.
    """

    def __init__(
        self, stream: ScanFile | MemberFile, files: FileSet, max_directories: int, **options: Any
    ) -> None:
        self.source = stream.source
        self.file_set = files
        self.max_directories = max_directories
        file = stream if isinstance(stream, ScanFile) else stream.scan_file
        # tifffile recognises some flavours by the end of the name.
        url = stream.source.url.partition("?")[0]
        window = Window(file)
        check_directories(window, read_head(window, ndpi=is_ndpi(url)), max_directories)
        super().__init__(
            cast(IO[bytes], BoundedFile(stream)), name=os.path.basename(url), **options
        )

    @property
    def _files(self) -> dict[str | None, tifffile.TiffFile]:
        """The files of a set for tifffile, by their UUID."""
        return self._members

    @_files.setter
    def _files(self, files: dict[str | None, tifffile.TiffFile]) -> None:
        self._members = _Members(files, self)


class _Members(dict[str | None, tifffile.TiffFile]):
    """The files of a set by their UUID, read when they are needed."""

    def __init__(self, files: Mapping[str | None, tifffile.TiffFile], root: _ScannedFile) -> None:
        super().__init__(files)
        self._root = root

    @cached_property
    def _names(self) -> dict[str | None, str]:
        return _names_of_files(self._root.ome_metadata or "")

    @override
    def __contains__(self, uuid: object) -> bool:
        if super().__contains__(uuid):
            return True
        if not isinstance(uuid, str) or uuid not in self._names:
            return False
        root = self._root
        stream = root.file_set.member(self._names[uuid])
        if stream is None:
            return False
        url = stream.source.url
        try:
            with refusing_damage(url, _UNREADABLE):
                scanned = _ScannedFile(stream, root.file_set, root.max_directories, _root=root)
                scanned.pages.cache = scanned.pages.useframes = True
                scanned.pages.set_keyframe(0)
                scanned.pages._load(None)  # noqa: SLF001 (as tifffile reads the files of a set)
        except GridrefError as error:
            raise error.located(Place(source=url)) from error.__cause__
        self[uuid] = scanned
        return True


def _check_planes(text: str | None, max_planes: int) -> None:
    """Refuse OME-XML with absurdly many planes: tifffile keeps a list of them.

    Raises
    ------
    SourceFormatError
        If an image, or an entry of it, is out of bounds.
    """
    if not text:
        return
    try:
        elements = list(ET.fromstring(text).iter())
    except ET.ParseError:
        return
    for element in elements:
        numbers = {
            name: int(value)
            for name, value in element.attrib.items()
            if name in _PLANE_NUMBERS and value.isdecimal()
        }
        lengths = [max(1, numbers.get(f"Size{axis}", 1)) for axis in "ZCT"]
        n_planes = max(math.prod(lengths), *numbers.values(), 0) if numbers else 0
        if n_planes > max_planes:
            raise SourceFormatError(f"the OME-XML claims to have {n_planes} planes")


_PLANE_NUMBERS = frozenset(
    {"SizeZ", "SizeC", "SizeT", "FirstZ", "FirstC", "FirstT", "IFD", "PlaneCount", "NumPlanes"}
)


def _names_of_files(text: str) -> dict[str | None, str]:
    """File names in OME-XML, by UUID; the first one of each counts."""
    names: dict[str | None, str] = {}
    try:
        for element in ET.fromstring(text).iter():
            if element.tag.endswith("UUID") and "FileName" in element.attrib:
                names.setdefault(element.text, element.attrib["FileName"])
    except ET.ParseError:
        return {}
    return names


def companion_of(text: str) -> str | None:
    """The companion file that OME-XML names in place of metadata; None if it names none."""
    if "BinaryOnly" not in text:
        return None
    try:
        elements = list(ET.fromstring(text).iter())
    except ET.ParseError:
        return None
    named = (each.get("MetadataFile") for each in elements if each.tag.endswith("BinaryOnly"))
    return next(filter(None, named), None)


def is_of_set(companion: str, text: str, url: str) -> bool:
    """Whether a companion file's OME-XML names a file, by its own UUID or its name."""
    names = _names_of_files(companion)
    own = ET.fromstring(text).get("UUID")
    return own in names or any(beside(url, name) == url for name in names.values() if name)


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
    """The files that pages are in, numbered in order of appearance."""

    def __init__(self, source: Source, files: FileSet) -> None:
        self.entries = [source]
        self.missing = files.missing
        self._ids = {source.url: 0}

    def id_of(self, page: Any) -> int:
        source: Source = page.parent.source
        if source.url not in self._ids:
            self._ids[source.url] = len(self.entries)
            self.entries.append(source)
        return self._ids[source.url]


def _with_pixels(images: Sequence[Image], text: str | None) -> tuple[Image, ...]:
    """Images with their OME-XML metadata, if that describes as many."""
    ours = [image for image in images if image.kind == "ome"]
    described = pixels_of(text) if ours else []
    if len(ours) != len(described):
        return tuple(images)
    known = iter(described)
    return tuple(
        replace(image, pixels=next(known)) if image.kind == "ome" else image for image in images
    )


def _image(series: Any, number: int, sources: _Sources) -> Image:
    levels = tuple(
        _level(level, number, depth, sources) for depth, level in enumerate(series.levels)
    )
    sizes = {}
    names = np.zeros(0)
    if (image := Image(series.kind, str(series.name or ""), levels)).is_microscopy:
        names = series.coords.get("C", names)
        sizes = {
            axis: (float(step), str(series.coord_units[axis]))
            for axis, step in series.coord_scales.items()
            if axis in "XYZ" and step > 0 and series.coord_units.get(axis)
        }
    labels = tuple(str(name) for name in names) if names.dtype.kind == "U" else ()
    return replace(image, channel_names=labels, pixel_sizes=sizes)


def _level(series: Any, number: int, depth: int, sources: _Sources) -> Level:
    keyframe = _page(series.keyframe, series.keyframe)
    contiguous = series.dataoffset
    series_pages = [*series._pages]  # noqa: SLF001 (indexing would fill in virtual pages)
    whole = _page_of(series_pages[0], series.keyframe, keyframe) if len(series_pages) == 1 else None
    pages = (
        (whole,)
        if len(series_pages) == 1
        else tuple(_page_of(page, series.keyframe, keyframe) for page in series_pages)
    )
    source_ids = tuple(0 if page is None else sources.id_of(page) for page in series_pages)
    problem = None
    if series.transform is not None:
        problem = f"{series.kind} images need a transformation that no codec expresses"
    elif None in pages and sources.missing:
        missing = ", ".join(sorted(sources.missing))
        problem = f"the image lies in files that are not there: {missing}"
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
    """Copy the tags of a page; frames take missing ones from their keyframe."""
    place = Place(source=keyframe.parent.source.url)
    if keyframe.planarconfig not in (1, 2):
        reason = f"PlanarConfiguration is {keyframe.planarconfig!s}, neither 1 nor 2"
        raise SourceFormatError(reason, place)
    if not 1 <= keyframe.samplesperpixel <= MAX_SAMPLES:
        raise SourceFormatError(f"a pixel has {keyframe.samplesperpixel} samples", place)
    axes, shape, chunk_shape = _layout(keyframe)
    return Page(
        index=tuple(page._index),  # noqa: SLF001 (the public form differs by depth)
        shape=shape,
        axes=axes,
        chunk_shape=chunk_shape,
        tiled=keyframe.is_tiled,
        dtype=keyframe.dtype,
        big_endian=keyframe.parent.byteorder == ">",
        compression=_compression(page, keyframe),
        predictor=int(keyframe.predictor),
        photometric=int(keyframe.photometric),
        fill_order=int(keyframe.fillorder),
        sample_format=int(keyframe.sampleformat),
        bits=keyframe.bitspersample,
        samples=int(keyframe.samplesperpixel),
        planar=int(keyframe.planarconfig) == 2,
        extra_samples=tuple(int(value) for value in keyframe.extrasamples),
        subsampled=bool(keyframe.is_subsampled),
        t4_options=int(keyframe.tags.valueof(Tag.T4_OPTIONS, 0)),
        jpeg_tables=_jpeg_tables(page, keyframe),
        nodata=keyframe.nodata,
        subfile_type=int(keyframe.subfiletype),
        offsets=_column(page.dataoffsets),
        counts=_column(page.databytecounts),
        contiguous=bool(keyframe.is_final) and _one_piece(page, keyframe),
    )


def _compression(page: Any, keyframe: Any) -> int:
    """The Compression tag; old-style JPEG whose only strip is a whole stream is JPEG.

    Thumbnails are stored so: the strip is the stream that JPEGInterchangeFormat points to.
    """
    if keyframe.compression != _OLD_STYLE_JPEG or page is not keyframe:
        return int(keyframe.compression)
    tags = (Tag.JPEG_INTERCHANGE_FORMAT, Tag.JPEG_INTERCHANGE_FORMAT_LENGTH)
    stream = [np.ravel(page.tags.valueof(tag, ())).tolist() for tag in tags]
    is_whole = stream == [[*page.dataoffsets], [*page.databytecounts]]
    return _JPEG if is_whole and len(page.dataoffsets) == 1 else _OLD_STYLE_JPEG


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
    values = {code: tags.valueof(code) for code in METADATA_TAGS}
    return {code: value for code, value in values.items() if value is not None}
