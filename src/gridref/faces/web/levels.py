"""Find the levels of detail of an array: itself, and smaller images of it."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from typing import Any

from gridref.errors import InvalidRequestError
from gridref.faces.picture import shortened
from gridref.faces.web.earth import earth_of
from gridref.faces.web.look import LOOK_BYTES, MOST_ALONG, MOST_LOOK_BYTES, USUAL_ALONG, look_at
from gridref.faces.web.meaning import array_at, groups_around, nexus_axis, stated
from gridref.faces.web.part import Along, Part, RefusedError
from gridref.model.array import VirtualArray, VirtualGroup, path_in
from gridref.model.conventions import (
    BOUNDS,
    MissingValues,
    compass_of,
    direction,
    is_time_like,
    text_of,
)

MOST_LEVELS = 32
_PREVIEWED_ALONG = 256
"""Elements a side of a small picture, at most."""


@dataclass(frozen=True)
class Level:
    """One of them, as the viewer opens it.

    Attributes
    ----------
    coordinates
        Path of the array that labels each dimension; None where there is none.
    earth
        Where its elements are on earth; see `earth_of`.
    channels
        Which dimension has the channels of microscopy, and how each is shown; see `_channels`.
    attributes
        Attributes of CF that say what its format states elsewhere; None for those that say nothing.
    steps
        Of a look at the array, for each dimension the first element and the step to the next one
        (`gridref.faces.web.look`); None for the array itself.
    """

    path: str
    shape: tuple[int, ...]
    dims: tuple[str, ...]
    coordinates: tuple[str | None, ...]
    earth: dict[str, Any] | None = None
    channels: dict[str, Any] | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    steps: tuple[tuple[int, int], ...] | None = None

    @classmethod
    def of(cls, group: VirtualGroup, path: str) -> Level:
        """The level that an array is."""
        array = array_at(group, path)
        labels = tuple(
            nexus_axis(group, path, axis) or _coordinate(group, path, dim)
            for axis, dim in enumerate(array.dims)
        )
        channels = _channels(_multiscale(group, path), array.shape)
        earth = earth_of(group, path)
        attributes = _meant_attributes(group, path, array)
        return cls(path, array.shape, array.dims, labels, earth, channels, attributes)

    def among(self, paths: Container[str]) -> Level:
        """It with only those coordinates that are there."""
        found = (path if path in paths else None for path in self.coordinates)
        is_placed = all(each in paths for each in self.located_by)
        return replace(self, coordinates=tuple(found), earth=self.earth if is_placed else None)

    def picture_axes(self, group: VirtualGroup) -> tuple[int, int] | None:
        """The dimensions that the viewer shows first, rows and columns; None if it has none."""
        if len(self.dims) < 2:
            return None
        ways = [direction(group[each].attrs) if each else "" for each in self.coordinates]
        if {"x", "y"} <= set(ways):
            return ways.index("y"), ways.index("x")
        if self.earth is not None:
            rows, columns = map(self.dims.index, self.earth["dims"])
            return rows, columns
        lengths = zip(self.dims, self.shape, strict=True)
        plain = [n for n, each in enumerate(lengths) if len(self.dims) == 2 or not _is_band(*each)]
        rows, columns = plain[-2:] if len(plain) > 1 else (0, 1)
        return rows, columns

    @property
    def located_by(self) -> Sequence[str]:
        """Paths of its latitudes and longitudes, if these are arrays of two dimensions."""
        names = ("latitude", "longitude")
        return [self.earth[name] for name in names if name in self.earth] if self.earth else ()

    def _compass(self, group: VirtualGroup) -> list[str | None]:
        """Of each dimension ``"N"`` if its labels are latitudes, and ``"E"`` if longitudes."""
        return [compass_of(group[each].attrs) if each else None for each in self.coordinates]

    def is_on_earth(self, group: VirtualGroup) -> bool:
        """Whether one dimension has latitudes, and another one longitudes."""
        return {"N", "E"} <= set(self._compass(group))

    def has_own_places(self, group: VirtualGroup) -> bool:
        """Whether its elements have latitudes and longitudes that no dimension has."""
        return bool(self.located_by) and not self.is_on_earth(group)

    def is_placed(self, group: VirtualGroup) -> bool:
        """Whether something says where its elements are on earth."""
        return self.has_own_places(group) or not isinstance(self.grid_axes(group), str)

    def grid_axes(self, group: VirtualGroup) -> tuple[int, int] | str:
        """Rows and columns of a grid on earth, both with coordinates; or why there is none."""
        if self.is_on_earth(group):
            compass = self._compass(group)
            return compass.index("N"), compass.index("E")
        if self.earth is None or not {"projection", "pole"} & set(self.earth):
            return "neither latitudes and longitudes nor a grid mapping say where it is"
        rows, columns = (self.dims.index(dim) for dim in self.earth["dims"])
        for axis in (rows, columns):
            if self.coordinates[axis] is None:
                return f"dimension {self.dims[axis]} has no coordinates"
        return rows, columns


def _meant_attributes(group: VirtualGroup, path: str, array: VirtualArray) -> dict[str, Any]:
    """What the array's own attributes do not say, or say in vain: JSON has no types of numbers."""
    known, attrs = MissingValues.of(array), array.attrs
    is_bounded = (known.low, known.high) != (None, None)
    vain = () if is_bounded else (name for name in BOUNDS if name in attrs)
    elsewhere = {name: value for name, value in stated(group, path).items() if name not in attrs}
    return {**elsewhere, **dict.fromkeys(vain)}


def levels(group: VirtualGroup, path: str) -> list[Level]:
    """The array at a path, and coarser ones of the same rank, the finest first.

    Sources: OME-Zarr (multiscales); groups ``overview_1``, … are gridref's own for GeoTIFF.
    """
    listed = _multiscale(group, path)
    coarser = [] if listed is None else listed.paths[listed.paths.index(path) + 1 :]
    smaller = [each for each in coarser if _is_array(group, each)] or _overviews(group, path)
    found = [Level.of(group, each) for each in (path, *smaller[: MOST_LEVELS - 1])]
    return [level for level in found if len(level.shape) == len(found[0].shape)]


def looks(group: VirtualGroup, path: str, most: int = USUAL_ALONG) -> list[Level]:
    """The levels of an array, and looks at the coarsest one if that is too large for a picture.

    The last one is quick; where it leaves out much, a finer one is before it.
    """
    found = levels(group, path)
    coarsest = found[-1]
    array, axes = array_at(group, coarsest.path), coarsest.picture_axes(group)
    if axes is None or max(coarsest.shape[axis] for axis in axes) <= MOST_ALONG:
        return found
    chosen = tuple(range(n) if axis in axes else 0 for axis, n in enumerate(array.shape))
    try:
        whole, bounds = Part(coarsest.path, array, chosen), (MOST_LOOK_BYTES, LOOK_BYTES)
        planned = [look_at(whole, most, bound) for bound in bounds]
    except (InvalidRequestError, RefusedError):
        return found
    steps = dict.fromkeys(tuple(map(_steps, look.chosen)) for look in planned)
    return [*found, *(_looked_at(coarsest, each) for each in steps)]


def _steps(along: Along) -> tuple[int, int]:
    return (along.start, along.step) if isinstance(along, range) else (0, 1)


def _looked_at(level: Level, steps: tuple[tuple[int, int], ...]) -> Level:
    shape = [
        len(range(first, n, step)) for n, (first, step) in zip(level.shape, steps, strict=True)
    ]
    return replace(level, shape=tuple(shape), steps=steps)


_BANDS = re.compile(r"(bands?|channels?|wavelengths?)(_\d+)?", re.IGNORECASE)
_SAMPLES = re.compile(r"(samples?|rgb|s|c)(_\d+)?", re.IGNORECASE)


def _is_band(dim: str, length: int) -> bool:
    """Whether a dimension may be that of red, green and blue."""
    if _BANDS.fullmatch(dim):
        return length > 2
    return length in (3, 4) and _SAMPLES.fullmatch(dim) is not None


def previewed(group: VirtualGroup) -> Sequence[Level]:
    """The levels of the array that shows best what a group holds; none if no array is a picture.

    It is the largest one of numbers whose last two dimensions have labels, or else the largest;
    not latitudes, longitudes or times.
    """
    pictures = {
        path: array
        for path, array in group.all_arrays().items()
        if array.ndim >= 2
        and min(array.shape[-2:]) > 1
        and array.dtype.kind in "iuf"
        and compass_of(array.attrs) is None
        and not is_time_like(array.attrs)
    }

    def rank(path: str) -> tuple[bool, int]:
        dims = pictures[path].dims[-2:]
        return all(_named(group, path, [dim], dim) for dim in dims), pictures[path].size

    return looks(group, max(pictures, key=rank), _PREVIEWED_ALONG) if pictures else ()


def _overviews(group: VirtualGroup, path: str) -> Sequence[str]:
    above, _, name = path.rpartition("/")
    named = (path_in(above, f"overview_{n}/{name}") for n in count(1))
    return list(takewhile(lambda each: _is_array(group, each), named))


@dataclass(frozen=True)
class _Multiscale:
    """What the attributes of a group say of the levels of an image.

    Attributes
    ----------
    paths
        Of the levels' arrays, the finest first.
    """

    paths: Sequence[str]
    axes: Any
    omero: Any


def _multiscale(group: VirtualGroup, path: str) -> _Multiscale | None:
    """The one of a group above that lists the array at a path."""
    around = reversed([*groups_around(group, path)])
    listed = (found for above, holder in around for found in _multiscales(holder.attrs, above))
    return next((found for found in listed if path in found.paths), None)


def _multiscales(attrs: Mapping[str, Any], above: str) -> Iterator[_Multiscale]:
    """Those that attributes state, which may be anything: of OME-Zarr 0.5 below ``ome``."""
    ome = attrs.get("ome", attrs)
    scales = ome.get("multiscales") if isinstance(ome, Mapping) else None
    for scale in scales if isinstance(scales, list) else ():
        datasets = scale.get("datasets") if isinstance(scale, Mapping) else None
        if isinstance(datasets, list) and all(isinstance(each, Mapping) for each in datasets):
            paths = [f"{above}/{each.get('path', '')}".lstrip("/") for each in datasets]
            yield _Multiscale(paths, scale.get("axes"), ome.get("omero"))


# Channels of microscopy

MOST_CHANNELS = 256
MOST_LABEL = 80
_MOST_LIMIT = 1e300
_COLOUR = re.compile(r"#?([0-9A-Fa-f]{6})")


def _channels(listed: _Multiscale | None, shape: Sequence[int]) -> dict[str, Any] | None:
    """``axis``, and of each channel ``label``, ``colour``, ``window`` and ``active``.

    Colours are six hexadecimal digits, and None where nothing is stated. So are windows: one as
    wide as the range of the values was not chosen by anybody.

    Source: OME-Zarr 0.5, "omero".
    """
    axis = None if listed is None else _channel_axis(listed.axes, len(shape))
    if listed is None or axis is None or not isinstance(listed.omero, Mapping):
        return None
    stated = listed.omero.get("channels")
    if not isinstance(stated, list) or not 1 <= len(stated) == shape[axis] <= MOST_CHANNELS:
        return None
    return {"axis": axis, "entries": [_channel(each, number) for number, each in enumerate(stated)]}


def _channel_axis(axes: Any, ndim: int) -> int | None:
    """OME-Zarr 0.3 states names, later versions types as well."""
    if not isinstance(axes, list) or len(axes) != ndim:
        return None
    kinds = [each.get("type") if isinstance(each, Mapping) else each for each in axes]
    return next((axis for axis, kind in enumerate(kinds) if kind in ("channel", "c")), None)


def _channel(stated: Any, number: int) -> dict[str, Any]:
    said = stated if isinstance(stated, Mapping) else {}
    colour = _COLOUR.fullmatch(str(said.get("color", "")))
    return {
        "label": shortened(str(said.get("label") or f"channel {number}"), MOST_LABEL),
        "colour": colour and colour[1].lower(),
        "window": _window(said.get("window")),
        "active": said.get("active") is not False,
    }


def _window(stated: Any) -> list[float] | None:
    said = stated if isinstance(stated, Mapping) else {}
    low, high = (_number(said.get(name)) for name in ("start", "end"))
    if low is None or high is None or not low < high:
        return None
    return None if (low, high) == (said.get("min"), said.get("max")) else [low, high]


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and -_MOST_LIMIT < value < _MOST_LIMIT
    return value if is_number else None


def _is_array(group: VirtualGroup, path: str) -> bool:
    return path in group and isinstance(group[path], VirtualArray)


def _coordinate(group: VirtualGroup, path: str, dim: str) -> str | None:
    """Path of the array that labels a dimension, in the array's group or one above (CF, 2.7).

    It has the dimension's name. Where there is none, it is one that ``coordinates`` names (CF, 5),
    or the only one of times: models call the time of ``time_counter`` ``time_centered``.
    """
    named = _named(group, path, [dim, *text_of(group[path].attrs, "coordinates").split()], dim)
    around = groups_around(group, path)
    sized = _sized(group, path, dim)
    return named or next(filter(None, (_times(*each, sized) for each in around)), None)


def _named(group: VirtualGroup, path: str, names: Sequence[str], dim: str) -> str | None:
    """The first of these names that labels a dimension, in the array's group or one above."""
    folders = [folder for folder, _ in groups_around(group, path)]
    candidates = (path_in(folder, name) for name in names for folder in folders)
    sized = _sized(group, path, dim)
    return next(
        (each for each in candidates if each in group and _labels(group[each], sized)), None
    )


def _sized(group: VirtualGroup, path: str, dim: str) -> tuple[str, int]:
    """A dimension and its length: coarser levels lie below labels of the finest one."""
    array = array_at(group, path)
    return dim, array.shape[array.dims.index(dim)]


def _labels(array: VirtualArray | VirtualGroup, sized: tuple[str, int]) -> bool:
    if not isinstance(array, VirtualArray) or array.dtype.kind not in "iuf":
        return False
    return [*zip(array.dims, array.shape, strict=True)] == [sized]


def _times(folder: str, holder: VirtualGroup, sized: tuple[str, int]) -> str | None:
    """Path of the only array of times along a dimension in a group."""
    found = [
        path_in(folder, name)
        for name, array in holder.arrays.items()
        if _labels(array, sized) and is_time_like(array.attrs)
    ]
    return found[0] if len(found) == 1 else None
