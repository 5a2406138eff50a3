"""Answer requests for values that the server computes.

======================== ================================================================
``/NAME/look/PATH``      a plane of an array, or every so many elements of it
``/NAME/tiles/PATH/...`` map tiles ``{z}/{x}/{y}.png``, and ``tilejson.json``
``/NAME/series/PATH``    values along a dimension, or means over a box, as they are read
``/NAME/download/PATH``  a part of an array with its coordinates, as a NetCDF or GeoTIFF file
======================== ================================================================
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np
from numpy.typing import NDArray

from gridref.cache import LRU, cache_bytes
from gridref.errors import GridrefError, InvalidRequestError
from gridref.faces.http.objects import CHUNK_TYPE, METADATA_TYPE, Answer, compressed
from gridref.faces.http.requests import Preconditions, Request
from gridref.faces.http.site import ServedCatalog, public_text
from gridref.faces.web.cells import Cells, places_of
from gridref.faces.web.download import Selected, check_netcdf, write_netcdf
from gridref.faces.web.geotiff_file import Raster
from gridref.faces.web.levels import Level, levels
from gridref.faces.web.look import MOST_ALONG, USUAL_ALONG, encoded, look_at
from gridref.faces.web.meaning import NUMBERS, Meaning, array_at, as_stated
from gridref.faces.web.part import GivenUpError, GoesOn, Labels, Part, RefusedError, part_of
from gridref.faces.web.series import Series, as_csv, as_lines
from gridref.faces.web.tiles import (
    MOST_ZOOM,
    SIDE,
    Ground,
    Tile,
    coloured,
    palette,
    png,
    usual_style,
)
from gridref.limits import beyond, limits
from gridref.model.array import VirtualArray
from gridref.model.conventions import is_time_like, text_of

_ALWAYS = ("snapshot", "overlay")
"""What any query may say."""


@dataclass(frozen=True)
class Wanted:
    """What a request asks for of an array.

    Attributes
    ----------
    goes_on
        Whether the client still waits.
    tile
        What the address says behind the path: a tile; None for what there is of them.
    """

    catalog: ServedCatalog
    path: str
    request: Request
    goes_on: GoesOn
    tile: Tile | None = None

    @property
    def array(self) -> VirtualArray:
        """The array."""
        return as_stated(self.catalog.group, self.path)

    @property
    def level(self) -> Level:
        """The array with its coordinates."""
        return Level.of(self.catalog.group, self.path)

    def number(self, name: str, default: int, most: int) -> int:
        """A number of the query, from 1 on."""
        text = self.request.option(name, str(default))
        if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most):
            raise InvalidRequestError(f"{name} is a number from 1 to {most}, got {text!r}")
        return int(text)

    def labels(self, axis: int) -> Labels | None:
        """The labels of a dimension; None if it has none."""
        level = self.level
        found = level.coordinates[axis]
        return None if found is None else labels_of(self.catalog, found, level.dims[axis])

    def part(self, *others: str, whole: Collection[str] = ()) -> Part:
        """The elements that the query asks for; `others` are what else it may say."""
        array, names = self.array, (*_ALWAYS, *others)
        query = self.request.query
        chosen = part_of(array.dims, array.shape, query, self.labels, others=names, whole=whole)
        return Part(self.path, array, chosen)

    def kept(self, of: tuple[Any, ...], make: Callable[[], bytes]) -> bytes:
        """A body, made once for all who wait for it, and kept by what it is of.

        One who waits for a body that another one gave up makes it then.
        """
        while True:
            try:
                return _KEPT.get_or_load((self.catalog.number, self.path, *of), make)
            except GivenUpError:
                if not self.goes_on():
                    raise


_KEPT = LRU[bytes](cache_bytes() // 4, len)
"""Bodies that took work, by what they are of."""
_LABELS = LRU[Labels](cache_bytes() // 4)


def labels_of(catalog: ServedCatalog, path: str, dim: str) -> Labels:
    """The labels in an array, read once."""
    array = array_at(catalog.group, path)
    if array.size > limits().coordinates:
        raise RefusedError(
            f"{path} has {array.size} labels, more than are looked through: give numbers with at="
        )

    def load() -> Labels:
        values = Meaning.of(array).unpacked(catalog.reader.reader.read(array, name=path))
        return Labels(dim, values.astype("f8"), array.attrs)

    return _LABELS.get_or_load((catalog.number, path), load)


def answer(
    catalog: ServedCatalog, request: Request, cache_control: bytes, goes_on: GoesOn
) -> Answer:
    """Work out the answer to a request.

    Raises
    ------
    GivenUpError
        If the client waits no more.
    GridrefError
        If values cannot be read.
    """
    kind, _, path = request.path.removeprefix("/").partition("/")[2].partition("/")
    tile = None
    try:
        if kind == "tiles":
            path, tile = _tile_of(path)
        path = catalog.asked_key(path)
        if catalog.array(path) is None:
            return Answer.plain(404, "nothing is here")
        made = KINDS[kind](Wanted(catalog, path, request, goes_on, tile))
    except InvalidRequestError as error:
        return Answer.plain(400, str(error))
    except RefusedError as error:
        return Answer.plain(error.status, str(error))
    if not isinstance(made.body, bytes):
        return made
    etag = hashlib.sha256(made.body).hexdigest()[:16]
    fields = ((b"etag", f'"{etag}"'.encode()), (b"cache-control", cache_control), *made.headers)
    if Preconditions(request.headers, etag).status == 304:
        return Answer(304, tuple(field for field in fields if field[0] != b"content-type"))
    return replace(made, headers=fields)


# Looks


def _look(wanted: Wanted) -> Answer:
    array, most = wanted.array, wanted.number("most", USUAL_ALONG, MOST_ALONG)
    if array.ndim < 2 or array.dtype.kind not in NUMBERS:
        raise InvalidRequestError(
            f"a look shows planes of numbers; {wanted.path} has rank {array.ndim} and"
            f" type {array.dtype}"
        )
    axes = wanted.level.picture_axes(wanted.catalog.group) or ()
    look = look_at(wanted.part("most", whole=[array.dims[axis] for axis in axes]), most)
    coding = wanted.request.value_coding

    def make() -> bytes:
        body = encoded(look, look.read(wanted.catalog.looks, wanted.goes_on))
        return compressed(body, coding) if coding else body

    body = wanted.kept(("look", look.chosen, coding), make)
    fields = ((b"content-encoding", coding.encode()),) if coding else ()
    return Answer.of(body, CHUNK_TYPE, *fields, (b"vary", b"Accept-Encoding"))


# Tiles

_TILE = re.compile(r"(.+)/(\d{1,2})/(\d{1,9})/(\d{1,9})\.png", re.ASCII | re.DOTALL)
_TILE_ALONG = 512
"""Elements a side that are read for a tile, of the level that suffices."""
_OF_TILES = ("style", "limits")
"""What their query says besides."""
_SMALL_BYTES = 2**26
"""Chunks of a tile that are kept for those beside it."""


def _tile_of(path: str) -> tuple[str, Tile | None]:
    """Path of the array, and the tile; None for ``tilejson.json``, an empty path for neither."""
    match = _TILE.fullmatch(path)
    if match is not None:
        return match[1], Tile(*map(int, match.groups()[1:]))
    array, _, last = path.rpartition("/")
    return (array, None) if last == "tilejson.json" else ("", None)


def _tiles(wanted: Wanted) -> Answer:
    style, given = wanted.request.option("style", usual_style()), wanted.request.option("limits")
    colours = palette(style)
    ground = _ground(wanted, wanted.path)
    part, tile = wanted.part(*_OF_TILES, whole=ground.dims), wanted.tile
    for dim in part.dims:
        if dim not in ground.dims:
            raise InvalidRequestError(f"a tile is of one element along {dim}: give its number")
    low, high = _limits(given) if given else _found_limits(wanted, ground)
    if tile is None:
        return _tilejson(wanted, ground, (low, high))

    def make() -> bytes:
        return png(coloured(_tile_values(wanted, tile, part), low, high), colours)

    body = wanted.kept(("tile", tile, part.chosen, style, low, high), make)
    return Answer.of(body, "image/png")


_GROUNDS = LRU[Ground | Cells](cache_bytes(), keeps_last=1)


def _ground(wanted: Wanted, path: str) -> Ground | Cells:
    """Where an array is on earth, found once."""
    catalog, level = wanted.catalog, Level.of(wanted.catalog.group, path)

    def read(coordinate: str) -> NDArray[np.float64]:
        return labels_of(catalog, coordinate, coordinate).values

    if not level.has_own_places(catalog.group):
        return _GROUNDS.get_or_load(
            (catalog.number, path), lambda: Ground.of(catalog.group, level, read)
        )
    assert level.earth is not None
    rows, columns = level.earth["dims"]
    named = [(each, _plane(wanted, each, (rows, columns))) for each in level.located_by]

    def find() -> Cells:
        latitudes, longitudes = (_read_plane(catalog, *each) for each in named)
        return Cells((rows, columns), places_of(longitudes, latitudes))

    return _GROUNDS.get_or_load((catalog.number, *named, rows), find)


def _plane(wanted: Wanted, path: str, dims: tuple[str, ...]) -> tuple[int, ...]:
    """Which plane of latitudes or longitudes is that of the elements asked for."""
    array, part = array_at(wanted.catalog.group, path), wanted.part(*_OF_TILES, whole=dims)
    chosen = dict(zip(part.array.dims, part.chosen, strict=True))
    numbers = [chosen.get(dim, 0) for dim in array.dims[:-2]]
    return tuple(each if isinstance(each, int) else 0 for each in numbers)


def _read_plane(catalog: ServedCatalog, path: str, plane: tuple[int, ...]) -> NDArray[np.float64]:
    array = array_at(catalog.group, path)
    size = math.prod(array.shape[-2:])
    if size > limits().coordinates:
        raise RefusedError(beyond("coordinates", f"{path} has {size} coordinates"))
    stored = catalog.looks.read(array, (*plane, ...), name=path)
    return Meaning.of(array).unpacked(stored).astype(np.float64)


def _limits(text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        low = high = np.nan
    if not (np.isfinite(high - low) and low < high):
        raise InvalidRequestError(f"limits are two numbers, the lower one first, got {text!r}")
    return low, high


def _found_limits(wanted: Wanted, ground: Ground | Cells) -> tuple[float, float]:
    """From 2 to 98 % of the values of the first plane, so that all tiles have the same."""

    def make() -> bytes:
        array = wanted.array
        sized = zip(array.dims, array.shape, strict=True)
        first = tuple(range(n) if dim in ground.dims else 0 for dim, n in sized)
        look = look_at(Part(wanted.path, array, first), 256)
        values = Meaning.of(array).unpacked(look.read(wanted.catalog.looks, wanted.goes_on))
        known = values[np.isfinite(values)]
        low, high = np.percentile(known, [2, 98]) if known.size else (0, 1)
        return np.array(
            [low, high if low < high else low + max(1, abs(low) / 2**20)], "f8"
        ).tobytes()

    low, high = np.frombuffer(wanted.kept(("limits",), make), "f8").tolist()
    return low, high


def _tile_values(wanted: Wanted, tile: Tile, part: Part) -> NDArray[np.float64]:
    """The value at each pixel, of the coarsest level that suffices; NaN where there is none."""
    catalog, path = wanted.catalog, wanted.path
    ground = _ground(wanted, path)
    seen = ground.at(tile)
    step = max((min(map(len, window)) / SIDE for window in seen.windows), default=1)
    for level in levels(catalog.group, path):
        ratios = dict(zip(part.array.dims, np.divide(part.array.shape, level.shape), strict=True))
        sides = [ratios.pop(dim) for dim in ground.dims]
        if (
            max(sides) <= max(1, step)
            and {*ratios.values()} <= {1}
            and level.is_placed(catalog.group)
        ):
            path = level.path
    if path != wanted.path:
        ground = _ground(wanted, path)
        seen = ground.at(tile)
    level_part = Part(path, array_at(catalog.group, path), part.chosen)
    axes = [level_part.array.dims.index(dim) for dim in ground.dims]
    image = np.full((SIDE, SIDE), np.nan)
    for window in seen.windows:
        shown = level_part
        for axis, along in zip(axes, window, strict=True):
            shown = shown.with_along(axis, along)
        look = look_at(shown, _TILE_ALONG)
        reader = catalog.reader.reader if look.n_bytes <= _SMALL_BYTES else catalog.looks
        stored = look.read(reader, wanted.goes_on)
        values = Meaning.of(look.array).unpacked(stored if axes[0] < axes[1] else stored.T)
        seen.paint(image, (look.along(axes[0]), look.along(axes[1])), values)
    return image


def _tilejson(wanted: Wanted, ground: Ground | Cells, limits: tuple[float, float]) -> Answer:
    array = wanted.array
    given = [(name, texts[-1]) for name, texts in wanted.request.query.items() if name != "limits"]
    query = urlencode([*given, ("limits", f"{limits[0]:.9g},{limits[1]:.9g}")])
    name, path = quote(wanted.catalog.name, safe="@"), quote(wanted.path)
    document = {
        "tilejson": "3.0.0",
        "name": text_of(array.attrs, "long_name") or wanted.path,
        "tiles": [f"{wanted.request.origin}/{name}/tiles/{path}/{{z}}/{{x}}/{{y}}.png?{query}"],
        "bounds": ground.bounds(),
        "minzoom": 0,
        "maxzoom": int(np.clip(np.ceil(np.log2(max(1, ground.around() / SIDE))), 0, MOST_ZOOM)),
    }
    return Answer.of(json.dumps(document).encode(), METADATA_TYPE)


# Series


def _series(wanted: Wanted) -> Answer:
    array, query = wanted.array, wanted.request.query
    if not array.ndim:
        raise InvalidRequestError(f"{wanted.path} is a single value, and no series")
    kinds = {"ndjson": "application/x-ndjson", "csv": "text/csv; charset=utf-8; header=present"}
    kind = wanted.request.option("format", "ndjson")
    along = wanted.request.option("along", _times(wanted))
    if kind not in kinds or along not in array.dims:
        raise InvalidRequestError(
            f"format is one of {', '.join(kinds)}, and along one of {', '.join(array.dims)}:"
            f" got {kind!r} and {along!r}"
        )
    part = wanted.part("format", "along", whole=(along,))
    axis = array.dims.index(along)
    if "along" not in query and len(part.axes) == 1:
        (axis,) = part.axes
    number = part.chosen[axis]
    if isinstance(number, int):
        part = part.with_along(axis, range(number, number + 1))
    series, reader = Series(part, axis, wanted.labels(axis)), wanted.catalog.looks
    parts = as_csv(series, reader) if kind == "csv" else as_lines(series, reader, public_text)
    return replace(Answer.of(b"", kinds[kind], _NOT_KEPT), body=parts)


def _times(wanted: Wanted) -> str:
    """The dimension whose labels are dates; else the first one."""
    level, group = wanted.level, wanted.catalog.group
    for dim, path in zip(level.dims, level.coordinates, strict=True):
        if path is not None and is_time_like(group[path].attrs):
            return dim
    return level.dims[0]


# Downloads

_SENT_BYTES = 2**20
"""Of a file, at a time."""
_FILES = {"netcdf": (".nc", "application/x-netcdf"), "geotiff": (".tif", "image/tiff")}
_NOT_KEPT = (b"cache-control", b"no-store")


class NotWrittenError(RefusedError):
    """The server has no room for a file."""

    status = 507


def _download(wanted: Wanted) -> Answer:
    kind = wanted.request.option("format", "netcdf")
    if kind not in _FILES:
        raise InvalidRequestError(f"format is one of {', '.join(_FILES)}, got {kind!r}")
    group, reader, array = wanted.catalog.group, wanted.catalog.looks, wanted.array
    part = Part(wanted.path, array, ())
    if array.ndim:
        part = wanted.part("format", whole=array.dims)
    selected = Selected.of(group, replace(part, array=array_at(group, wanted.path)))
    write: Callable[[str], None]
    if kind == "netcdf":
        check_netcdf(selected)
        write = partial(write_netcdf, selected=selected, reader=reader, goes_on=wanted.goes_on)
    else:
        raster = Raster.of(group, selected, wanted.labels)
        write = partial(raster.write, reader=reader, goes_on=wanted.goes_on)
    suffix, content_type = _FILES[kind]
    named = f"attachment; filename*=UTF-8''{quote(selected.name, safe='')}{suffix}"
    made = Answer.of(b"", content_type, (b"content-disposition", named.encode()), _NOT_KEPT)
    if wanted.request.method == "HEAD":
        return replace(made, body=iter(()))
    path = _written(write, suffix)
    length = (b"content-length", str(os.path.getsize(path)).encode())
    parts = _sent(path)
    return Answer(200, (*made.headers, length), itertools.chain([next(parts)], parts))


def _written(write: Callable[[str], None], suffix: str) -> str:
    """The path of a file that is made for one answer."""
    descriptor, path = tempfile.mkstemp(suffix, "gridref-")
    os.close(descriptor)
    try:
        write(path)
    except BaseException as error:
        os.remove(path)
        if isinstance(error, OSError) and not isinstance(error, GridrefError):
            raise NotWrittenError(
                f"the server could not write the file ({error.strerror or 'no room?'}): ask for a"
                " smaller part"
            ) from error
        raise
    return path


def _sent(path: str) -> Iterator[bytes]:
    """The content of a file, which is removed then, or when nobody asks for the rest any more."""
    try:
        with open(path, "rb") as file:
            while part := file.read(_SENT_BYTES):
                yield part
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


KINDS: Mapping[str, Callable[[Wanted], Answer]] = {
    "download": _download,
    "look": _look,
    "series": _series,
    "tiles": _tiles,
}
"""What is made of the values of an array, by the word in addresses."""
