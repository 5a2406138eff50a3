"""Read the structure of TIFF files of any flavour, with tifffile.

tifffile parses directories and metadata. This module copies what it found into gridref's own frozen
types, and never reads pixels. The files of an OME-TIFF set name each other relative to the folder
that they are in: a `FileSet` opens them.

Source: OME-TIFF specification, "Multi-file OME-TIFF filesets" (``TiffData/UUID/FileName``).
"""

from __future__ import annotations

import io
import logging
import math
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any, Self, cast, override

import numpy as np
import tifffile
from numpy.typing import NDArray

from gridref.errors import GridrefError, Place, SourceFormatError, SourceUnavailableError
from gridref.formats.location import only_allowed
from gridref.formats.scanner import ScanOptions, refusing_damage
from gridref.formats.tiff.directory import (
    METADATA_TAGS,
    Tag,
    Window,
    check_directories,
    is_ndpi,
    read_head,
)
from gridref.formats.tiff.images import (
    MAX_SAMPLES,
    Image,
    Level,
    Page,
    TiffStructure,
    elements_of,
    nodata_of,
    pixels_of,
)
from gridref.io import ScanFile, beside, is_absent, open_for_scan, policy_for
from gridref.io.scan_file import SeekableFile
from gridref.model.manifest import Source

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# The files of a set, as tifffile reads them

_ALWAYS_READS, _BYTES_A_READ = 10_000, 4
"""Most reads of a file: so many, and one more for so many of its bytes."""

_MAX_OPEN = 64


class FileSet:
    """A file and others beside it, opened when they are needed.

    Parameters
    ----------
    options
        Options of the scan: the folders besides its own that other files may be in.

    Attributes
    ----------
    missing
        Requested names without a file.
    """

    def __init__(self, first: ScanFile, options: ScanOptions | None = None) -> None:
        self.first = first
        self.missing: list[str] = []
        self._options = options or ScanOptions()
        self._members: dict[str, Source] = {}
        self._open: OrderedDict[str, ScanFile] = OrderedDict()

    def member(self, name: str) -> MemberFile | None:
        """A file by its name relative to the first one's folder; None if there is none.

        Names that lead out of the folder are not followed.
        """
        if name not in self._members:
            parts = name.replace("\\", "/").split("/")
            try:
                if not name or ".." in parts or "://" in name or os.path.isabs(name):
                    raise FileNotFoundError(name)
                self._members[name] = self.opened(name).source
            except (FileNotFoundError, SourceUnavailableError) as error:
                if not is_absent(error):
                    raise
                self.missing.append(name)
                return None
        return MemberFile(self, name, self._members[name])

    def opened(self, name: str | None) -> ScanFile:
        """A file, open; if too many are open, the least recently used one is closed."""
        if name is None:
            return self.first
        if name not in self._open:
            address = beside(self.first.name, name)
            policy = policy_for(self.first.name, self._options.allow)
            with only_allowed(policy, address):
                self._open[name] = open_for_scan(
                    address, self._options.storage_options, policy=policy
                )
            if len(self._open) > _MAX_OPEN:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(name)
        return self._open[name]

    def close(self) -> None:
        """Close the files beside the first one."""
        while self._open:
            self._open.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class MemberFile(SeekableFile):
    """A file of a set for tifffile, which is opened again after it had to be closed.

    It ends after more reads than a file of its size can need. Directories of a valid file do not
    overlap. tifffile takes the last bytes of a truncated directory for the offset of the next, and
    may continue without end.
    """

    def __init__(self, files: FileSet, member: str | None, source: Source) -> None:
        super().__init__()
        self.source = source
        self._files = files
        self._member = member
        self._position = 0
        self._n_left = _ALWAYS_READS + (source.size_bytes or 0) // _BYTES_A_READ

    @property
    def scan_file(self) -> ScanFile:
        """The open file, valid until another member is requested."""
        return self._files.opened(self._member)

    @override
    def tell(self) -> int:
        return self._position

    @override
    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if whence == io.SEEK_CUR:
            offset, whence = self._position + offset, io.SEEK_SET
        self._position = self.scan_file.seek(offset, whence)
        return self._position

    @override
    def read(self, size: int | None = -1, /) -> bytes:
        data = self._placed().read(-1 if size is None else size)
        self._position += len(data)
        return data

    @override
    def readinto(self, buffer: WriteableBuffer, /) -> int:
        n_read = self._placed().readinto(buffer)
        self._position += n_read
        return n_read

    def _placed(self) -> ScanFile:
        """The open file at the position of this one, for one more read."""
        self._n_left -= 1
        if self._n_left < 0:
            raise SourceFormatError("directories of the file overlap, or go round in circles")
        file = self.scan_file
        file.seek(self._position)
        return file


# What tifffile finds in them

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
    """
    names = [name for name in _names_of_files(text).values() if name]
    if not names:
        raise SourceFormatError("the OME-XML names no TIFF file beside it")
    first = files.member(names[0])
    if first is None:
        place = Place(source=beside(files.first.name, names[0]))
        raise SourceUnavailableError("the first file of the set does not exist", place)
    return read_structure(files, max_directories, start=first, omexml=text)


def read_structure(
    files: FileSet,
    max_directories: int,
    *,
    start: MemberFile | None = None,
    omexml: str | None = None,
) -> TiffStructure:
    """Parse all directories of a file, and of the other files of its set.

    Parameters
    ----------
    max_directories
        Most directories of one file that are followed.
    start
        The file to begin with; None: the first one of the set.
    omexml
        OME-XML to use instead of the file's own.
    """
    stream = start or MemberFile(files, None, files.first.source)
    url = stream.source.url
    with (
        refusing_damage(url, _UNREADABLE),
        _quiet(),
        _ScannedFile(stream, files, max_directories, omexml=omexml) as file,
    ):
        _check_planes(file.ome_metadata, max_directories)
        sources = {url: stream.source}
        # The length of `pages` is not used: it changes what tifffile takes for a series.
        images = _with_pixels(
            [_image(series, number, sources, files) for number, series in enumerate(file.series)],
            file.ome_metadata,
        )
        if not images:
            raise SourceFormatError("the file has no images", Place(source=url))
        tags = _metadata_tags(file)
    return TiffStructure(images, tuple(sources.values()), tags)


class _ScannedFile(tifffile.TiffFile):  # type: ignore[misc]
    """tifffile's reader of a stream, which finds the other files of its set in a `FileSet`.

    tifffile itself opens paths only.
    """

    def __init__(
        self, stream: MemberFile, files: FileSet, max_directories: int, **options: Any
    ) -> None:
        self.source = stream.source
        self.file_set = files
        self.max_directories = max_directories
        # tifffile recognises some flavours by the end of the name.
        url = stream.source.url.partition("?")[0]
        window = Window(stream.scan_file)
        check_directories(window, read_head(window, ndpi=is_ndpi(url)), max_directories)
        super().__init__(cast(IO[bytes], stream), name=os.path.basename(url), **options)

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
    """Refuse OME-XML with absurdly many planes: tifffile keeps a list of them."""
    for element in elements_of(text):
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
    for element in elements_of(text):
        if element.tag.endswith("UUID") and "FileName" in element.attrib:
            names.setdefault(element.text, element.attrib["FileName"])
    return names


def companion_of(text: str) -> str | None:
    """The companion file that OME-XML names in place of metadata; None if it names none."""
    elements = elements_of(text) if "BinaryOnly" in text else []
    named = (each.get("MetadataFile") for each in elements if each.tag.endswith("BinaryOnly"))
    return next(filter(None, named), None)


def is_of_set(companion: str, text: str, url: str) -> bool:
    """Whether a companion file's OME-XML names a file, by its own UUID or its name."""
    names = _names_of_files(companion)
    own = elements_of(text)[0].get("UUID")
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


def _image(series: Any, number: int, sources: dict[str, Source], files: FileSet) -> Image:
    levels = tuple(
        _level(level, number, depth, sources, files) for depth, level in enumerate(series.levels)
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


def _level(
    series: Any, number: int, depth: int, sources: dict[str, Source], files: FileSet
) -> Level:
    """One resolution; the files of its pages are added to `sources`, by address."""
    keyframe = _page(series.keyframe, series.keyframe)
    contiguous = series.dataoffset
    series_pages = [*series._pages]  # noqa: SLF001 (indexing would fill in virtual pages)
    pages = tuple(_page_of(page, series.keyframe, keyframe) for page in series_pages)
    for page in series_pages:
        if page is not None:
            sources.setdefault(page.parent.source.url, page.parent.source)
    ids = {url: number for number, url in enumerate(sources)}
    source_ids = tuple(0 if page is None else ids[page.parent.source.url] for page in series_pages)
    problem = None
    if series.transform is not None:
        problem = f"{series.kind} images need a transformation that no codec expresses"
    elif None in pages and files.missing:
        missing = ", ".join(sorted(files.missing))
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
        nodata=nodata_of(keyframe.tags.valueof(Tag.GDAL_NODATA), keyframe.dtype),
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
    tags = file.pages.first.tags
    values = {code: tags.valueof(code) for code in METADATA_TAGS}
    return {code: value for code, value in values.items() if value is not None}
