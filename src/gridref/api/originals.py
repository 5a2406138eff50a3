"""Read source files with their original readers, to compare chunks with them.

h5py, tifffile, netCDF4, pyhdf, astropy, rasterio, tensorstore, wkw and blosc2 take long to load.
They are imported when a file of theirs is opened. If the chunks of an array are files of their own,
a chunk's file is opened by looking for the array around it.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from ast import literal_eval
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from gridref.codecs.grib import total_length
from gridref.codecs.stage import without_unit_axes
from gridref.errors import (
    GridrefError,
    InvalidRequestError,
    Message,
    Place,
    ReadError,
    ScanError,
    SourceFormatError,
    SourceUnavailableError,
    UnsupportedFeatureError,
)
from gridref.extras import missing_package, needed_for
from gridref.forks import new_rlock
from gridref.formats.fits import OriginalImages
from gridref.formats.grib.original import Eccodes
from gridref.formats.jpeg2000 import RasterioFile
from gridref.formats.metadata import json_object
from gridref.formats.n5 import is_dataset
from gridref.formats.tiff.images import nodata_of
from gridref.formats.wkw import Header
from gridref.io import ScanFile, is_absent, is_local, open_for_scan
from gridref.model.array import VirtualArray
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.encoding import Codec, Encoding
from gridref.model.grid import region_of
from gridref.model.manifest import ChunkState, Source
from gridref.model.source_policy import SourcePolicy
from gridref.serve.plan import CrossProduct, PieceBatch

type Region = tuple[slice, ...]
type Shape = tuple[int, ...]

# The choice of stored chunks to compare, and their order

N_RANDOM = 16
"""Stored chunks taken at random from each array, beside its corners."""
_MOST_LOOKED_AT = 1 << 20
"""Stored chunks of an array up to which those that are in a file are looked for."""


def choose(cross: CrossProduct, everything: bool, random: np.random.Generator) -> NDArray[np.int64]:
    """Numbers of the pieces that are compared: all, or corners, edges and some at random.

    If files hold none of these, some that they hold are taken, too.
    """
    counts = tuple(len(axis.pieces) for axis in cross.axes)
    if everything or cross.n_pieces <= N_RANDOM:
        return np.arange(cross.n_pieces)
    ends = [sorted({0, n - 1}) for n in counts]
    corners = np.ravel_multi_index(
        np.stack(np.meshgrid(*ends, indexing="ij"), axis=-1).reshape(-1, len(counts)).T, counts
    )
    edges = [_along(counts, axis, random) for axis in range(len(counts))]
    sample = random.integers(0, cross.n_pieces, N_RANDOM)
    chosen: NDArray[np.int64] = np.unique(np.concatenate([corners, *edges, sample]))
    if len(_held(cross, chosen)) or cross.n_pieces > _MOST_LOOKED_AT:
        return chosen
    held = _held(cross, np.arange(cross.n_pieces))
    return np.union1d(chosen, random.choice(held, min(N_RANDOM, len(held)), replace=False))


def _held(cross: CrossProduct, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those of some pieces that are in a file."""
    batch = cross.resolve(numbers)
    is_held = np.zeros(len(batch), bool)
    present = batch.encoding != MISSING_BLOCK
    for manifest in np.unique(batch.manifest[present]).tolist():
        own = np.flatnonzero(present & (batch.manifest == manifest))
        state = cross.array.manifests[manifest].take(batch.row[own]).state
        is_held[own] = state != ChunkState.MISSING
    return numbers[is_held]


def _along(counts: tuple[int, ...], axis: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Some chunks at the far end of an axis, where stored chunks overhang."""
    coords = [random.integers(0, n, 4) for n in counts]
    coords[axis][:] = counts[axis] - 1
    return np.asarray(np.ravel_multi_index(coords, counts))


@dataclass(frozen=True, eq=False)
class Choice:
    """Pieces of one array that are compared, in the order of their stored chunks."""

    path: str
    cross: CrossProduct
    batch: PieceBatch

    @classmethod
    def of(cls, path: str, cross: CrossProduct, numbers: NDArray[np.int64]) -> Choice:
        """The pieces of these numbers."""
        batch = cross.resolve(numbers)
        order = np.lexsort((batch.row, batch.manifest))
        return cls(path, cross, cross.resolve(numbers[order]))

    @cached_property
    def _rows(self) -> NDArray[np.int64]:
        """Manifest and row of every stored chunk."""
        there = self.batch.encoding != MISSING_BLOCK
        pairs = np.stack([self.batch.manifest[there], self.batch.row[there]], axis=1)
        return np.unique(pairs, axis=0)

    @property
    def n_chunks(self) -> int:
        return len(self._rows)

    @property
    def stored_bytes(self) -> int:
        """Sum of the stored sizes of the chunks."""
        manifests = self.cross.array.manifests
        return sum(
            manifests[number].take(self._rows[self._rows[:, 0] == number, 1]).stored_bytes
            for number in np.unique(self._rows[:, 0]).tolist()
        )

    def members_by_url(self) -> dict[str | None, list[int]]:
        """The numbers of the pieces that each file holds; None for what no file holds."""
        found: dict[str | None, list[int]] = {}
        for member, url in enumerate(self._urls()):
            found.setdefault(url, []).append(member)
        return found

    def _urls(self) -> list[str | None]:
        """The file behind each piece, as `source_of` says it."""
        urls: list[str | None] = [None] * len(self.batch)
        by_block = cache(partial(source_of, self.cross.array))
        present = np.flatnonzero(self.batch.encoding != MISSING_BLOCK)
        ends = np.flatnonzero(np.diff(self.batch.manifest[present])) + 1
        for members in np.split(present, ends) if present.size else ():
            manifest = self.cross.array.manifests[int(self.batch.manifest[members[0]])]
            chunks = manifest.take(self.batch.row[members])
            known = [source.url for source in chunks.sources]
            for at, member in enumerate(members.tolist()):
                if chunks.state[at] == ChunkState.RANGE:
                    urls[member] = known[int(chunks.source[at])]
                else:
                    source, _ = by_block(int(self.batch.block[member]), int(self.batch.row[member]))
                    urls[member] = None if source is None else source.url
        return urls


type Share = list[tuple[Choice, list[int]]]
"""All that is compared with one file: choices, and the numbers of their pieces that it holds."""


def shares_of(chosen: Sequence[Choice]) -> dict[str | None, Share]:
    """The pieces of all choices file by file, so that each is opened once; None for no file."""
    shares: dict[str | None, Share] = {}
    for choice in chosen:
        for url, members in choice.members_by_url().items():
            shares.setdefault(url, []).append((choice, members))
    return shares


def pieces_of(share: Share) -> Iterator[Piece]:
    """The pieces; those of one stored chunk come one after the other and share its values."""
    for choice, members in share:
        shared: dict[tuple[int, int, int], NDArray[Any]] = {}
        for member in members:
            yield Piece(choice.path, choice.cross, choice.batch, member, shared)


@dataclass(frozen=True, eq=False)
class Piece:
    """Elements that one stored chunk gives to an array.

    The chunk is looked for in its file with its axes in the file's order.

    Attributes
    ----------
    shared
        Values of the last chunk as the original reader returns them.
    """

    path: str
    cross: CrossProduct
    batch: PieceBatch
    member: int
    shared: dict[tuple[int, int, int], NDArray[Any]]

    @property
    def array(self) -> VirtualArray:
        """The array in the cube."""
        return self.cross.array

    @property
    def key(self) -> tuple[int, int, int]:
        """A key that pieces share only if they are of one stored chunk."""
        at, batch = self.member, self.batch
        return int(batch.manifest[at]), int(batch.row[at]), int(batch.encoding[at])

    @property
    def encoding(self) -> Encoding:
        return self.array.encodings[int(self.batch.encoding[self.member])]

    @cached_property
    def _in_file(self) -> tuple[Source | None, int | None]:
        at, batch = self.member, self.batch
        return source_of(self.array, int(batch.block[at]), int(batch.row[at]))

    @property
    def source(self) -> Source | None:
        """The file of the chunk, or of the chunks beside it."""
        return self._in_file[0]

    @property
    def place(self) -> Place:
        """Where it is, for messages."""
        url = None if self.source is None else self.source.url
        coords = tuple(self.batch.chunk[self.member].tolist())
        return Place(source=url, variable=self.path, chunk=coords)

    @property
    def offset(self) -> int | None:
        """First byte of the chunk in the file; None if it is in none.

        It identifies dataset and chunk if several files make up one stored array.
        """
        return self._in_file[1]

    @cached_property
    def stored_shape(self) -> Shape:
        """Shape of the stored array; it may have axes of length 1 that the file does not."""
        shape = self.array.blocks.stored_shape[int(self.batch.block[self.member])].tolist()
        return tuple(shape[axis] for axis in axis_order(self.encoding))

    @cached_property
    def region(self) -> Region:
        """The elements of the chunk in the stored array, a slice of step 1 for each axis."""
        order = axis_order(self.encoding)
        numbers = self.batch.chunk[self.member].tolist()
        firsts = [numbers[axis] * self.encoding.chunk_shape[axis] for axis in order]
        lengths = [self.encoding.chunk_shape[axis] for axis in order]
        return tuple(
            slice(first, min(first + length, extent))
            for first, length, extent in zip(firsts, lengths, self.stored_shape, strict=True)
        )


def axis_order(encoding: Encoding) -> Sequence[int]:
    """For each axis of the file, its position among the axes of the array.

    Axes of length 1 that were added after scanning are beside one of the file's.
    """
    return _axis_order(encoding.codecs, encoding.chunk_shape)


def _axis_order(codecs: Sequence[Codec], lengths: Sequence[int]) -> Sequence[int]:
    head = codecs[0]
    if head.name == "transpose":
        order: Sequence[int] = head.configuration["order"]
        return order
    if head.name not in ("reshape", "gridref.select"):
        return range(len(lengths))
    groups = head.configuration["shape"] if head.name == "reshape" else ()
    if not _only_adds_axes(groups, lengths):
        raise UnsupportedFeatureError("its axes were added or dropped after scanning")
    inner = _axis_order(codecs[1:], [math.prod(lengths[axis] for axis in own) for own in groups])
    return [axis for number in inner for axis in groups[number]]


def _only_adds_axes(groups: Sequence[Sequence[int] | int], lengths: Sequence[int]) -> bool:
    """Whether a codec that merges groups of axes only drops those of length 1."""
    merged = [group for group in groups if not isinstance(group, int)]
    n_long = [sum(lengths[axis] != 1 for axis in group) for group in merged]
    axes = sorted(chain.from_iterable(merged))
    return len(merged) == len(groups) > 0 and axes == [*range(len(lengths))] and max(n_long) <= 1


def source_of(array: VirtualArray, block: int, row: int) -> tuple[Source | None, int | None]:
    """The file behind a chunk, and the place in it.

    If it is missing or inline, the file of its block's other chunks, where that is one, and no
    place.
    """
    manifest = array.manifests[int(array.blocks.manifest[block])]
    chunk = manifest.take(np.array([row], np.int64))
    if chunk.state[0] == ChunkState.RANGE:
        return chunk.sources[int(chunk.source[0])], int(chunk.offset[0])
    n_chunks = -(-array.blocks.stored_shape[block] // array.stored_chunk_shapes[block])
    first = int(array.blocks.first_row[block])
    last = int(array.blocks.manifest_row(block, np.maximum(n_chunks - 1, 0)))
    rows = manifest.take(np.arange(first, last + 1))
    used = np.unique(rows.source[rows.state == ChunkState.RANGE])
    if len(used) == 1:
        return rows.sources[int(used[0])], None
    return (rows.sources[0] if len(rows.sources) == 1 else None), None


# Source files in their original readers: h5py, tifffile, netCDF4 and pyhdf


@dataclass(frozen=True)
class Located:
    """Where a stored chunk is in its file.

    Attributes
    ----------
    name
        The dataset, or the image.
    axes
        For each axis of the stored array, in the file's order, that of the dataset; None for those
        of length 1 that the file does not have.
    shift
        For each axis of the stored array, what its indices are short of the dataset's.
    """

    name: str
    axes: tuple[int | None, ...]
    shift: tuple[int, ...]


@dataclass(frozen=True)
class Room:
    """How far labels may differ.

    Attributes
    ----------
    parts
        In parts of their spacing.
    within
        In their units.
    period
        What they may differ by as often as they like; 0 for nothing.
    """

    parts: float = 0.0
    within: float = 0.0
    period: float = 0.0


@dataclass(frozen=True)
class Own:
    """A variable of a file, by its original reader.

    Attributes
    ----------
    axes
        For each of its axes the one of the dataset beside it; None where the file does not say.
    shape, attrs
        As the reader gives them.
    read
        Its values, by a slice for each axis.
    room
        How far labels may be from these values, which others have rounded.
    """

    name: str
    axes: tuple[int | None, ...]
    shape: Shape
    attrs: Mapping[str, Any]
    read: Callable[[Region], NDArray[Any]]
    room: Room = Room()

    @classmethod
    def known(
        cls,
        name: str,
        axes: tuple[int | None, ...],
        values: NDArray[Any],
        room: Room,
        attrs: Mapping[str, Any] | None = None,
    ) -> Own:
        """One whose values are in memory."""
        return cls(name, axes, values.shape, attrs or {}, lambda own: values[own], room)


OF_PIXELS = Room(parts=0.01)
"""Of labels that are worked out of a georeference."""


@contextmanager
def _refusing(cannot: str, *kinds: type[Exception], of: str = "") -> Iterator[None]:
    """Errors of an original reader, by default all, in words of ours.

    Parameters
    ----------
    cannot
        What the reader cannot do.
    of
        What is compared, if the reader's package may be missing.
    """
    try:
        yield
    except Exception as error:
        if of and isinstance(error, ImportError):
            raise missing_package(f"comparing with {of}", error) from error
        is_ours = isinstance(error, GridrefError if of else ReadError)
        if is_ours or not isinstance(error, kinds or Exception):
            raise
        raise UnsupportedFeatureError(f"{cannot}: {error}") from error


class Original:
    """A file open in its original reader: an array is found, and the chunk is a part of it.

    By itself a file says nothing of labels, and has no attributes of CF.
    """

    is_called: ClassVar[str] = "image"
    """What an array of it is, in messages."""
    file: Any

    def _found(self, piece: Piece) -> tuple[str, Shape]:
        """Name and shape of the array that a chunk is of."""
        raise NotImplementedError

    def _values(self, name: str, own: Region) -> NDArray[Any]:
        """A part of an array."""
        raise NotImplementedError

    def _found_alike(self, piece: Piece) -> tuple[str, Shape]:
        """The same, refused unless it has the axes of the stored array, in their order.

        Axes of length 1 come and go when files are stacked.
        """
        name, shape = self._found(piece)
        if without_unit_axes(shape) != without_unit_axes(piece.stored_shape):
            raise UnsupportedFeatureError(f"its {self.is_called} has shape {shape}")
        return name, shape

    def read(self, piece: Piece) -> NDArray[Any]:
        """The elements of a stored chunk."""
        name, shape = self._found_alike(piece)
        values = self._values(name, _lined_up(piece.region, piece.stored_shape, shape))
        return values.reshape([along.stop - along.start for along in piece.region])

    def located(self, piece: Piece) -> Located:
        """Where the same elements are in the file."""
        name, shape = self._found_alike(piece)
        axes = _axes_lined_up(piece.stored_shape, shape)
        return Located(name, axes, (0,) * len(axes))

    def dataset(self, piece: Piece) -> str:
        """What differs for chunks of datasets that have labels and attributes of their own."""
        return ""

    def labels(self, beside: str, axis: int) -> Own | None:
        """What labels an axis of a dataset, as the file says itself."""
        return None

    def named(self, beside: str, name: str) -> Own | None:
        """The variable of a name in a dataset's group, or the next one above it."""
        return None

    def about(self, name: str) -> tuple[Mapping[str, Any] | None, Mapping[str, int]]:
        """Attributes of a dataset, None where it has none of CF, and members of its enumeration."""
        return None, {}

    def close(self) -> None:
        """Close the file."""
        self.file.close()


class _HDF5Original(Original):
    def __init__(self, url: str, storage_options: Mapping[str, Any] | None) -> None:
        with suppress(ImportError):
            import hdf5plugin  # noqa: F401 - importing it gives h5py more filters
        with needed_for("comparing with HDF5 files"):
            from gridref.formats.hdf5.original import OriginalFile

        self.file = OriginalFile(url, storage_options)

    def read(self, piece: Piece) -> NDArray[Any]:
        try:
            path, own = self._located(piece)
            values: NDArray[Any] = self.file.read(path, own)
        except (SourceFormatError, ValueError) as error:
            reason = error.reason if isinstance(error, GridrefError) else str(error)
            raise UnsupportedFeatureError(reason) from error
        return values.reshape([along.stop - along.start for along in piece.region])

    def _located(self, piece: Piece) -> tuple[str, Region]:
        """Dataset and region of a chunk in the file, where references moved it to another array.

        That is so where the file has no dataset like the stored array. Where it has one, a chunk is
        compared with what is at its own place: that it is found there is to be verified.
        """
        path, region, stored_shape = piece.path, piece.region, piece.stored_shape
        own, offset = region, piece.offset
        with suppress(InvalidRequestError):
            shape = self.file.shape_of(path)
            own = _lined_up(region, stored_shape, shape)
            if offset is None or without_unit_axes(shape) == without_unit_axes(stored_shape):
                return path, own
        start = tuple(along.start for along in own)
        original = None if offset is None else self.file.element_at(path, start, offset)
        shape = self.file.shape_of(path if original is None else original[0])
        own = _lined_up(region, stored_shape, shape)
        if original is None:
            raise UnsupportedFeatureError("its dataset has another shape")
        name, first = original
        first = (*first, *(along.start for along in own[len(first) :]))
        lengths = [along.stop - along.start for along in own]
        return name, region_of(first, lengths)

    def located(self, piece: Piece) -> Located:
        try:
            name, own = self._located(piece)
            axes = _axes_lined_up(piece.stored_shape, self.file.shape_of(name))
        except (SourceFormatError, ValueError) as error:
            reason = error.reason if isinstance(error, GridrefError) else str(error)
            raise UnsupportedFeatureError(reason) from error
        shift = tuple(
            0 if axis is None else own[axis].start - along.start
            for axis, along in zip(axes, piece.region, strict=True)
        )
        return Located(name, axes, shift)

    def dataset(self, piece: Piece) -> str:
        return self._located(piece)[0]

    def labels(self, beside: str, axis: int) -> Own | None:
        variable = self.file.variable(beside)
        scales = () if variable is None or axis >= len(variable.scales) else variable.scales[axis]
        return next(filter(None, (self._own(scale, beside) for scale in scales)), None)

    def named(self, beside: str, name: str) -> Own | None:
        path = self.file.near(beside, name)
        return None if path is None else self._own(path, beside)

    def about(self, name: str) -> tuple[Mapping[str, Any] | None, Mapping[str, int]]:
        variable = self.file.variable(name)
        return (None, {}) if variable is None else (variable.attrs, variable.members)

    def _own(self, path: str, beside: str) -> Own | None:
        variable, dataset = self.file.variable(path), self.file.variable(beside)
        if variable is None or dataset is None:
            return None
        if str(variable.attrs.get("NAME", "")).startswith(_NOT_A_VARIABLE):
            return None
        axes: list[int | None] = []
        for own in variable.scales:
            same = (k for k, scales in enumerate(dataset.scales) if set(own) & set(scales))
            axes.append(next((k for k in same if k not in axes), None))
        return Own(path, tuple(axes), variable.shape, variable.attrs, partial(self.file.read, path))


_NOT_A_VARIABLE = "This is a netCDF dimension but not a netCDF variable"
"""What the HDF5 name of a dimension scale begins with that netCDF shows as no variable."""


def _axes_lined_up(stored_shape: Shape, shape: Shape) -> tuple[int | None, ...]:
    """The axes of a dataset that those of a stored array are."""
    if len(shape) == len(stored_shape):
        return tuple(range(len(shape)))
    rest = iter(axis for axis, extent in enumerate(shape) if extent != 1)
    return tuple(None if extent == 1 else next(rest) for extent in stored_shape)


def _lined_up(region: Region, stored_shape: Shape, shape: Shape) -> Region:
    """A region along the axes of a dataset: those of length 1 come and go when files are joined."""
    if len(shape) == len(stored_shape):
        return region
    kept = [along for along, extent in zip(region, stored_shape, strict=True) if extent != 1]
    if len(kept) != len(without_unit_axes(shape)):
        raise ValueError(f"its dataset has rank {len(shape)}, not {len(region)}")
    rest = iter(kept)
    return tuple(slice(0, 1) if extent == 1 else next(rest) for extent in shape)


_LERC = 34887


class _TIFFOriginal(Original):
    def __init__(self, file: Any) -> None:
        import tifffile

        self.stream = file
        try:
            with _refusing("tifffile cannot open its source"):  # raw data that begins like TIFF
                self.file = tifffile.TiffFile(file)
        except GridrefError:
            file.close()
            raise
        self._image = lru_cache(maxsize=2)(self._load)

    def _found(self, piece: Piece) -> tuple[str, Shape]:
        if "tiff_series" not in piece.array.attrs:
            raise UnsupportedFeatureError("it is not an image of the file")
        series = int(piece.array.attrs["tiff_series"])
        level = int(piece.array.attrs.get("tiff_level", 0))
        return f"{series}/{level}", self.file.series[series].levels[level].shape

    def _values(self, name: str, own: Region) -> NDArray[Any]:
        return self._image(name)[own]

    def labels(self, beside: str, axis: int) -> Own | None:
        """Centres of pixels along rows or columns, worked out of the tags that tifffile reads."""
        series, level = map(int, beside.split("/"))
        image = self.file.series[series].levels[level]
        letter, length = image.axes[axis], image.shape[axis]
        finest = self.file.series[0].levels[0]
        if letter not in "XY" or letter not in finest.axes:
            return None
        affine = _affine(self.file.pages.first)
        if affine is None:
            return None
        start, step = affine[letter]
        step *= finest.shape[finest.axes.index(letter)] / length
        centres = start + (np.arange(length) + 0.5) * step
        return Own.known(f"{beside}/{letter.lower()}", (axis,), centres, OF_PIXELS)

    def _load(self, name: str) -> NDArray[Any]:
        series, level = map(int, name.split("/"))
        with _refusing("tifffile cannot read it"):
            image = self.file.series[series]
            page = image.levels[level].keyframe
            if page.compression == _LERC and page.dtype.kind == "f":
                raise ValueError("it leaves out the masks of LERC")
            # It knows no nodata value at the end of the range of its dtype.
            page.nodata = nodata_of(page.tags.valueof("GDAL_NODATA"), page.dtype) or 0
            if page.jpegheader is not None:
                # Decoded as one stream, chroma would be smoothed over the edges of its tiles.
                import zarr

                return np.asarray(zarr.open_array(image.aszarr(level=level), mode="r")[...])
            return np.asarray(image.levels[level].asarray())

    def close(self) -> None:
        self.file.close()
        self.stream.close()


def _affine(page: Any) -> dict[str, tuple[float, float]] | None:
    """Outer edge and step along columns and rows; None where they are rotated or nothing says.

    Source: OGC GeoTIFF Standard 1.1 (OGC 19-008r4), annex B.
    """
    codes = (33550, 33922, 34264)  # ModelPixelScale, ModelTiepoint, ModelTransformation
    scale, tie, matrix = (page.tags.valueof(code) for code in codes)
    if scale is not None and tie is not None and len(np.ravel(tie)) >= 6:
        column, row, _, x, y, _ = np.ravel(tie)[:6]
        dx, dy = float(scale[0]), -abs(float(scale[1]))
        edges = {"X": (x - column * dx, dx), "Y": (y - row * dy, dy)}
    elif matrix is not None and not (np.ravel(matrix)[1] or np.ravel(matrix)[4]):
        numbers = np.ravel(matrix)
        edges = {"X": (numbers[3], numbers[0]), "Y": (numbers[7], numbers[5])}
    else:
        return None
    if (
        int((page.geotiff_tags or {}).get("GTRasterTypeGeoKey", 1)) == 2
    ):  # tie points are of centres
        return {letter: (start - step / 2, step) for letter, (start, step) in edges.items()}
    return edges


class _Variables(Original):
    """A file of variables with named dimensions, by a library that serves one thread at a time.

    Cubes may have the variables in groups of theirs.
    """

    has_none: ClassVar[str]

    def _has(self, name: str) -> bool:
        """Whether there is just one variable of a name."""
        raise NotImplementedError

    def _described(self, name: str) -> tuple[Shape, tuple[str, ...], Mapping[str, Any]]:
        """Shape, dimensions and attributes of a variable."""
        raise NotImplementedError

    def _found(self, piece: Piece) -> tuple[str, Shape]:
        name = piece.path.rpartition("/")[2]
        if not self._has(name):
            raise UnsupportedFeatureError(self.has_none)
        return name, self._described(name)[0]

    def labels(self, beside: str, axis: int) -> Own | None:
        return self.named(beside, self._described(beside)[1][axis])

    def named(self, beside: str, name: str) -> Own | None:
        if not self._has(name):
            return None
        shape, dims, attrs = self._described(name)
        around = self._described(beside)[1]
        axes = tuple(around.index(dim) if dim in around else None for dim in dims)
        return Own(name, axes, shape, attrs, partial(self._values, name))

    def about(self, name: str) -> tuple[Mapping[str, Any] | None, Mapping[str, int]]:
        return self._described(name)[2], {}


class _NetCDF3Original(_Variables):
    """A file in netCDF4."""

    is_called = "variable"
    has_none = "its source has no variable of this name"

    def __init__(self, file: Any, url: str) -> None:
        with _refusing("", of="NetCDF3 files"):
            import netCDF4
        head = file.read(12)
        if set(head[4 : 12 if head[3] == 5 else 8]) == {0xFF}:
            raise UnsupportedFeatureError(
                "its source does not state the number of records, which netCDF4 needs"
            )
        file.seek(0)
        memory = file.read() if file.is_remote else None
        name = "copy.nc" if file.is_remote else url  # it would ask a server for OPeNDAP
        with _NETCDF_LOCK:
            with _refusing("netCDF4 cannot open its source", OSError, RuntimeError):
                self.file = netCDF4.Dataset(name, memory=memory)
            self.file.set_auto_maskandscale(False)
            self.file.set_auto_chartostring(False)

    def _has(self, name: str) -> bool:
        return name in self.file.variables

    def _described(self, name: str) -> tuple[Shape, tuple[str, ...], Mapping[str, Any]]:
        with _NETCDF_LOCK:
            variable = self.file[name]
            attrs = {each: variable.getncattr(each) for each in variable.ncattrs()}
            return variable.shape, variable.dimensions, attrs

    def _values(self, name: str, own: Region) -> NDArray[Any]:
        with _NETCDF_LOCK:
            values = np.asarray(self.file[name][own or ...])
        return values.astype(values.dtype.newbyteorder("="), copy=False)

    def close(self) -> None:
        with _NETCDF_LOCK:
            self.file.close()


_NETCDF_LOCK = new_rlock()


class _HDF4Original(_Variables):
    """A file in pyhdf, which needs a local file."""

    is_called = "data set"
    has_none = "its source does not have one data set of this name"

    def __init__(self, file: Any, url: str) -> None:
        with _refusing("", of="HDF4 files"):
            from pyhdf.error import HDF4Error
            from pyhdf.SD import SD
        self._errors = HDF4Error, ValueError
        with ExitStack() as stack:
            if file.is_remote:
                folder = stack.enter_context(TemporaryDirectory())
                url = os.path.join(folder, "copy.hdf")
                with open(url, "wb") as copy:
                    shutil.copyfileobj(file, copy)
            with _HDF4_LOCK, _refusing("pyhdf cannot open its source", *self._errors):
                self.file = SD(url)
                found: dict[str, list[int]] = {}
                for number in range(self.file.info()[0]):
                    variable = self.file.select(number)
                    found.setdefault(variable.info()[0], []).append(number)
                    variable.endaccess()
            self._numbers = found
            self._copy = stack.pop_all()

    def _has(self, name: str) -> bool:
        return len(self._numbers.get(name, ())) == 1

    def _described(self, name: str) -> tuple[Shape, tuple[str, ...], Mapping[str, Any]]:
        with _HDF4_LOCK:
            variable = self.file.select(self._numbers[name][0])
            _, rank, lengths = variable.info()[:3]
            dims = tuple(variable.dim(axis).info()[0] for axis in range(rank))
            # A single length is a number.
            shape = (lengths,) if isinstance(lengths, int) else tuple(lengths)
            return shape, dims, variable.attributes()

    def _values(self, name: str, own: Region) -> NDArray[Any]:
        with _HDF4_LOCK, _refusing("pyhdf cannot read its data set", *self._errors):
            variable = self.file.select(self._numbers[name][0])
            starts = [along.start for along in own]
            counts = [along.stop - along.start for along in own]
            values = np.asarray(variable.get(starts, counts))
        return values.reshape(counts)

    def close(self) -> None:
        with _HDF4_LOCK:
            self.file.end()
        self._copy.close()


_HDF4_LOCK = new_rlock()


class _GRIBOriginal(Original):
    """A file whose fields eccodes decodes, in a process of its own."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.eccodes = Eccodes()
        self._located: tuple[tuple[bytes, str], Mapping[str, Any]] | None = None

    def read(self, piece: Piece) -> NDArray[Any]:
        with _refusing("eccodes cannot decode it", ValueError, of="GRIB files"):
            values = self.eccodes.values(*self._field(piece))
        shape = [along.stop - along.start for along in piece.region]
        return np.asarray(values, "f4").reshape(shape)

    def _field(self, piece: Piece) -> tuple[bytes, str]:
        """The message that holds a field, and the field's short name."""
        short_name = piece.array.attrs.get("GRIB_shortName")
        if piece.offset is None or not isinstance(short_name, str):
            raise UnsupportedFeatureError("it is no field of its source")
        (head,) = self.file.read_many([piece.offset], [16])
        (message,) = self.file.read_many([piece.offset], [total_length(head)])
        return bytes(message), short_name

    def located(self, piece: Piece) -> Located:
        """A field is a dataset of its own: its name is offset and short name."""
        name = f"{piece.offset} {piece.array.attrs.get('GRIB_shortName')}"
        field = self._field(piece)
        n_axes = 0
        labels: Mapping[str, Any] = {}
        refusing = _refusing("eccodes cannot label it", ValueError, of="GRIB files")
        with suppress(UnsupportedFeatureError), refusing:
            n_axes, labels = self.eccodes.labels(*field)
        self._located = field, labels  # what labels it is asked for next
        n_others = len(piece.stored_shape) - n_axes
        return Located(name, (*[None] * n_others, *range(n_axes)), (0,) * len(piece.stored_shape))

    def named(self, beside: str, name: str) -> Own | None:
        assert self._located is not None
        field, labels = self._located
        own, units = f"{beside} {name}", _GRIB_UNITS.get(name, {})
        if name in labels:
            return Own.known(own, (), np.asarray(labels[name]), Room(), units)
        if name not in ("latitude", "longitude"):
            return None
        try:
            places, axes = self.eccodes.places(*field, name)
        except ValueError:
            return None
        room = Room(within=1e-3, period=360.0 if name == "longitude" else 0.0)
        return Own.known(own, axes, places, room, units)

    def close(self) -> None:
        self.eccodes.close()
        self.file.close()


_SECONDS = {"units": "seconds since 1970-01-01T00:00:00", "calendar": "proleptic_gregorian"}
_GRIB_UNITS: Mapping[str, Mapping[str, str]] = {
    "time": _SECONDS,
    "valid_time": _SECONDS,
    "step": {"units": "seconds"},
}


class _FITSOriginal(Original):
    """A file whose images astropy reads."""

    file: OriginalImages

    def __init__(self, file: Any) -> None:
        self.file = OriginalImages(file)

    def _found(self, piece: Piece) -> tuple[str, Shape]:
        number = self.file.number_at(piece.offset)
        return f"HDU {number}", self.file.shape(number)

    def _values(self, name: str, own: Region) -> NDArray[Any]:
        return self.file.read(int(name.removeprefix("HDU ")), own)


class _JPEG2000Original(Original):
    """A file in rasterio."""

    file: RasterioFile

    def __init__(self, file: Any) -> None:
        try:
            self.file = RasterioFile(file)
        except ImportError as error:
            raise missing_package("comparing with JPEG 2000 files", error) from error
        except ValueError as error:
            raise UnsupportedFeatureError(str(error)) from error

    def _found(self, piece: Piece) -> tuple[str, Shape]:
        """The image or overview that an array is; shapes are their names."""
        wanted = without_unit_axes(piece.stored_shape)
        for shape in self.file.levels:
            if without_unit_axes(shape) == wanted:
                return repr(shape), shape
        raise UnsupportedFeatureError(f"rasterio has no image of shape {piece.stored_shape} in it")

    def _values(self, name: str, own: Region) -> NDArray[Any]:
        try:
            return self.file.read(literal_eval(name), own)
        except ValueError as error:
            raise UnsupportedFeatureError(str(error)) from error

    def labels(self, beside: str, axis: int) -> Own | None:
        shape = literal_eval(beside)
        centres = self.file.centres(shape, axis)
        if centres is None:
            return None
        return Own.known(f"{beside}/{axis}", (axis,), centres, OF_PIXELS)


# Volumes: arrays whose chunks are files of their own, and others that are all of a file

_MOST_LEVELS = 32


class _VolumeFiles:
    """The folders around a file, on the local disk for readers that open nothing else.

    Of a volume on a server, the metadata and that file are copied: to the original reader, all
    other chunks are absent.

    Parameters
    ----------
    url
        Absolute address of the file of a chunk, or of several.
    storage_options
        fsspec options.
    policy
        Decides what may be opened.
    """

    def __init__(
        self,
        url: str,
        storage_options: Mapping[str, Any] | None = None,
        policy: SourcePolicy | None = None,
    ) -> None:
        self.url = url
        self._storage_options = storage_options
        self._policy = policy
        self._copy: TemporaryDirectory[str] | None = None

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.url.rpartition("/")[2]

    def folders(self) -> Iterator[tuple[str, str]]:
        """Each folder around the file, from the next one on, and the file's key in it."""
        folder = self.url
        for _ in range(_MOST_LEVELS):
            folder, slash, _ = folder.rpartition("/")
            if not slash or folder.endswith("/"):
                return
            yield folder, self.url[len(folder) + 1 :]

    def get(self, url: str) -> bytes | None:
        """All of a file; None where there is none."""
        try:
            with open_for_scan(url, self._storage_options, policy=self._policy) as file:
                return bytes(file.read_many([0], [file.size])[0]) if file.size else b""
        except SourceUnavailableError as error:
            if is_absent(error) or isinstance(error.__cause__, IsADirectoryError):
                return None
            raise

    def local(self, folder: str, metadata: Mapping[str, bytes]) -> str:
        """A path at which a folder can be opened.

        Parameters
        ----------
        folder
            One of those around the file.
        metadata
            Files of it that belong in a copy, beside the file itself.
        """
        if is_local(folder):
            return folder
        self._copy = TemporaryDirectory()
        key = self.url[len(folder) + 1 :]
        for name, data in {**metadata, key: self.get(self.url) or b""}.items():
            path = Path(self._copy.name, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return os.path.realpath(self._copy.name)

    def close(self) -> None:
        """Delete copies."""
        if self._copy is not None:
            self._copy.cleanup()


class _Volume(Original):
    """An array with the axes that gridref shows, or a part of one that a file holds.

    Attributes
    ----------
    files
        The files around the one that is compared, if it is one of several.
    """

    reader: ClassVar[str]
    shape: Shape
    files: _VolumeFiles | None = None

    def _part(self, own: Region) -> NDArray[Any]:
        """Elements; raises as the reader does."""
        raise NotImplementedError

    def _centres(self, axis: int) -> NDArray[np.float64] | None:
        """Places of the elements' centres along an axis in nm; None where the reader has none."""
        return None

    def _found(self, piece: Piece) -> tuple[str, Shape]:
        return "array", self.shape

    def _values(self, name: str, own: Region) -> NDArray[Any]:
        with _refusing(f"{self.reader} cannot read it"):
            return self._part(own)

    def labels(self, beside: str, axis: int) -> Own | None:
        centres = self._centres(axis)
        if centres is None:
            return None
        return Own.known(str(axis), (axis,), centres, OF_PIXELS, {"units": "nm"})

    def close(self) -> None:
        if self.files is not None:
            self.files.close()


class _Tensorstore(_Volume):
    """An array from its corner on."""

    reader = "tensorstore"

    def __init__(self, store: Any) -> None:
        self._store = store
        self.shape = tuple(store.shape)

    def _part(self, own: Region) -> NDArray[Any]:
        return np.asarray(self._store.translate_to[0][own].read().result())


class _Scale(_Tensorstore):
    """A scale of a precomputed volume, with the axes channel, z, y and x."""

    def _centres(self, axis: int) -> NDArray[np.float64] | None:
        unit = self._store.dimension_units[axis]
        if unit is None or unit.base_unit != "nm":
            return None
        numbers = self._store.origin[axis] + np.arange(self.shape[axis]) + 0.5
        places: NDArray[np.float64] = numbers * unit.multiplier
        return places


def _in_tensorstore(driver: str, path: str, **options: Any) -> Any:
    import tensorstore

    kvstore = {"driver": "file", "path": f"{path}/"}
    return tensorstore.open({"driver": driver, "kvstore": kvstore, **options}, read=True).result()


def _n5_dataset(files: _VolumeFiles) -> _Volume | None:
    """The dataset of N5 that a block belongs to."""
    attributes = "attributes.json"
    for folder, key in files.folders():
        if not key.replace("/", "").isdecimal():
            return None
        data = files.get(f"{folder}/{attributes}")
        if data is None:
            continue
        try:
            if not is_dataset(json_object(data, attributes)):
                return None
        except ScanError:
            return None
        return _Tensorstore(_in_tensorstore("n5", files.local(folder, {attributes: data})))
    return None


_PRECOMPUTED = re.compile(r"-?\d+-\d+_-?\d+-\d+_-?\d+-\d+(\.gz)?|[0-9a-f]+\.shard")


def _precomputed_scale(files: _VolumeFiles) -> _Volume | None:
    """The scale that a chunk file or a shard belongs to."""
    if _PRECOMPUTED.fullmatch(files.name) is None:
        return None
    for folder, key in files.folders():
        data = files.get(f"{folder}/info")
        if data is not None:
            try:
                keys = [scale["key"].strip("/") for scale in json.loads(data)["scales"]]
                number = keys.index(key.rpartition("/")[0])
            except (AttributeError, KeyError, TypeError, ValueError):
                return None
            path = files.local(folder, {"info": data})
            store = _in_tensorstore("neuroglancer_precomputed", path, scale_index=number)
            return _Scale(store.T)
    return None


class _WKWFile(_Volume):
    """The voxels of one file of a magnification that is open in ``wkw``.

    Parameters
    ----------
    path
        Folder of the magnification.
    corner
        Number of the file along x, y and z.
    """

    reader = "wkw"

    def __init__(self, path: str, header: Header, corner: tuple[int, ...]) -> None:
        import wkw

        length = header.file_length
        self._dataset: Any = wkw.Dataset.open(path)
        self._start = np.array(corner) * length
        self.shape = (length, length, length, header.n_channels)

    def _part(self, own: Region) -> NDArray[Any]:
        z, y, x, channels = own
        start = self._start + np.array([x.start, y.start, z.start])
        lengths = [along.stop - along.start for along in (x, y, z)]
        values = self._dataset.read(tuple(start.tolist()), tuple(lengths))
        return np.asarray(values)[channels].T

    def close(self) -> None:
        self._dataset.close()
        super().close()


_WKW = re.compile(r"z(\d+)/y(\d+)/x(\d+)\.wkw")


def _wkw_file(files: _VolumeFiles) -> _Volume | None:
    """The voxels of a file, if it is one of a magnification."""
    for folder, key in files.folders():
        if (match := _WKW.fullmatch(key)) is not None:
            data = files.get(f"{folder}/header.wkw")
            if data is None:
                return None
            z, y, x = map(int, match.groups())
            path = files.local(folder, {"header.wkw": data})
            return _WKWFile(path, Header.from_bytes(data), (x, y, z))
    return None


class _Blosc2Array(_Volume):
    reader = "blosc2"

    def __init__(self, array: Any) -> None:
        self._array = array
        self.shape = tuple(array.shape)

    def _part(self, own: Region) -> NDArray[Any]:
        values = np.asarray(self._array[own])
        return values.astype(values.dtype.newbyteorder("="), copy=False)


def _blosc2_frame(file: ScanFile) -> _Volume:
    """The array of a contiguous frame."""
    import blosc2

    if file.is_remote:
        (data,) = file.read_many([0], [file.size])
        return _Blosc2Array(blosc2.ndarray_from_cframe(bytes(data), copy=True))
    return _Blosc2Array(blosc2.open(file.name, mode="r"))


_B2ND = re.compile(r"[0-9A-F]{8}\.chunk")


def _blosc2_array(files: _VolumeFiles) -> _Volume | None:
    """The array that a chunk of a sparse frame belongs to."""
    if _B2ND.fullmatch(files.name) is None:
        return None
    folder = files.url.rpartition("/")[0]
    # It looks at the first chunk for the sizes of all.
    held = {name: files.get(f"{folder}/{name}") for name in ("chunks.b2frame", "00000000.chunk")}
    if held["chunks.b2frame"] is None:
        return None
    import blosc2

    copied = {name: data for name, data in held.items() if data is not None}
    return _Blosc2Array(blosc2.open(files.local(folder, copied), mode="r"))


_VOLUMES: Mapping[str, tuple[type[_Volume], Callable[[_VolumeFiles], _Volume | None]]] = {
    "N5 containers": (_Tensorstore, _n5_dataset),
    "precomputed volumes": (_Tensorstore, _precomputed_scale),
    "WKW datasets": (_WKWFile, _wkw_file),
    "Blosc2 arrays": (_Blosc2Array, _blosc2_array),
}
"""What a volume is, and what finds the one around a file: None where there is none."""


def _volume_around(
    url: str, storage_options: Mapping[str, Any] | None, policy: SourcePolicy | None
) -> Original | None:
    """The volume that a file belongs to; None if its name is no chunk's."""
    files = _VolumeFiles(url, storage_options, policy)
    for what, (kind, around) in _VOLUMES.items():
        with _refusing(f"{kind.reader} cannot open its source", of=what):
            volume = around(files)
            if volume is not None:
                volume.files = files
                return volume
    return None


def open_original(
    url: str,
    storage_options: Mapping[str, Any] | None = None,
    policy: SourcePolicy | None = None,
) -> Original:
    """Open a file in its original reader, if a policy allows it and where it redirects to.

    Raises
    ------
    UnsupportedFeatureError
        If the original reader has nothing that could be compared.
    """
    volume = _volume_around(url, storage_options, policy)
    if volume is not None:
        return volume
    file = cast(Any, open_for_scan(url, storage_options, policy=policy))
    magic = file.read(10)
    file.seek(0)
    if magic[1:] == b"\xa8b2frame\0":
        with file, _refusing("blosc2 cannot open its source", of="Blosc2 arrays"):
            return _blosc2_frame(file)
    magic = magic[:4]
    if magic[:2] in (b"II", b"MM"):
        return _TIFFOriginal(file)
    if magic in (b"CDF\x01", b"CDF\x02", b"CDF\x05"):
        with file:
            return _NetCDF3Original(file, url)
    if magic == b"\x0e\x03\x13\x01":
        with file:
            return _HDF4Original(file, url)
    if magic == b"SIMP":
        return _FITSOriginal(file)
    if magic in (b"\0\0\0\x0c", b"\xff\x4f\xff\x51"):
        with file:
            return _JPEG2000Original(file)
    if b"GRIB" in cast(ScanFile, file).read_many([0], [min(512, file.size)])[0]:
        return _GRIBOriginal(file)
    file.close()
    try:
        return _HDF5Original(url, storage_options)
    except SourceFormatError as error:
        reason = Message("h5py cannot open its source: ", error.reason)
        raise UnsupportedFeatureError(reason) from error
