"""Compare the labels of a cube with the labels that each file gives to its elements.

A label is a value of an index coordinate, of a variable that a ``coordinates`` or ``bounds``
attribute names, or of a variable that is kept inline or has no dimensions. Both sides are decoded
(CF conventions 1.11, 4.4 "Time coordinate", 8.1 "Packed data"). Units, calendars and packing may
differ; the meaning may not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.api.decoding import coordinate_names, refusing_attributes
from gridref.api.job import Job
from gridref.api.layout.layouts import Groups, Mosaic, layout_of
from gridref.api.layout.sources import REPLACED
from gridref.api.originals import Located, Original, Own, Piece, Room, axis_order
from gridref.api.units import converter
from gridref.combine import CombineOptions
from gridref.errors import (
    Message,
    MissingPackageError,
    NotRepresentableError,
    Option,
    ReadError,
    UnsupportedFeatureError,
    number_of,
)
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.conventions import (
    MEANING_ATTRIBUTES,
    UNIT_NS,
    grid_mapping_of,
    is_time_like,
    text_of,
)
from gridref.model.encoding import Encoding
from gridref.model.manifest import ChunkState
from gridref.serve.reader import Reader
from gridref.typing import Int64Array

NOT_IN_FILES = (
    "the files have no such variable: its labels are from names, attributes or options, or made by"
    " the reader of the format"
)

NOT_READ = "a file that holds its labels cannot be read"

_CALENDARS = {
    "gregorian": "standard",
    "proleptic_gregorian": "standard",
    "365_day": "noleap",
    "366_day": "all_leap",
}
"""Other names of calendars (CF conventions 1.11, 4.4.2)."""

_FILLS = ("_FillValue", "missing_value")

_MOST_INLINE = 1 << 16
"""Elements up to which an array is looked at for inline values."""

_MOST_WHOLE = 1 << 20
"""Labels up to which all of a variable are read and decoded at once."""

_SAME_TIME_NS = 1000
"""How far times may differ where one side is a float, which rounds."""


class Labels:
    """The labels of a cube, array by array.

    Parameters
    ----------
    group
        The cube.
    reader
        Reads its values.
    job
        How it was built, where it is a catalog.
    """

    def __init__(self, group: VirtualGroup, reader: Reader, job: Job) -> None:
        self.reader = reader
        self.rules = job.combine or CombineOptions()
        way = layout_of(job.way.each) if isinstance(job.way, Groups) else job.way
        self.pixels = way.tolerance if isinstance(way, Mosaic) else None
        sources = job.way.sought.sources
        self.sources = sources if isinstance(sources, Mapping) else {}
        new = (getattr(way, name, None) for name in ("dim", "stack", "instance"))
        self._growing = {*job.dims, *self.sources, *(dim for dim in new if dim is not None)}
        drifts = group.report.drifts
        self._replaced = {row["variable"] for row in drifts if row["cause"] == REPLACED}
        self._groups = dict(group.walk())
        self.beside = cache(self._beside)
        self.whole = lru_cache(maxsize=64)(self._whole)

    def _beside(self, path: str) -> tuple[tuple[str, VirtualArray], ...]:
        """Paths and arrays of the labels of an array."""
        above, _, own_name = path.rpartition("/")
        dims = set(self._groups[above].arrays[own_name].dims)
        found: dict[str, tuple[str, VirtualArray]] = {}
        while True:
            arrays = self._groups[above].arrays
            for name, array in _labels_of(self._groups[above]).items():
                if set(array.dims) <= dims:
                    bounds = text_of(array.attrs, "bounds"), text_of(array.attrs, "climatology")
                    for each in (name, *bounds):
                        full = f"{above}/{each}".strip("/")
                        if each in arrays and full != path:
                            found.setdefault(each, (full, arrays[each]))
            if not above:
                return tuple(found.values())
            above = above.rpartition("/")[0]

    def taken_instead(self, path: str, array: VirtualArray) -> str:
        """Which option asked for other labels than the file's own; empty if none did."""
        name = path.rpartition("/")[2]
        if path in self._replaced:
            return "labels from names, attributes or options were asked for in place of the files'"
        if array.is_index(name):
            first = self.rules.join == "override" and name not in self._growing
            return (
                Message(
                    "the first file's labels are shown for all files, as ",
                    Option("join", "override"),
                    " asks",
                )
                if first
                else ""
            )
        first = self.rules.compat == "override" and not self._growing & set(array.dims)
        return (
            Message(
                "the first file's values are shown for all files, as ",
                Option("compat", "override"),
                " asks",
            )
            if first
            else ""
        )

    def room(self, own: Own) -> Room:
        """How far labels may differ."""
        return own.room if self.pixels is None else Room(max(self.pixels, 1e-6))

    def _whole(self, path: str) -> _Side | None:
        """All values of a label; None if a file that holds some of them cannot be read."""
        group, _, name = path.rpartition("/")
        array = self._groups[group].arrays[name]
        try:
            return _Side.of(self.reader.read(array, None, name=path), array.attrs)
        except ReadError:
            return None


def _labels_of(group: VirtualGroup) -> dict[str, VirtualArray]:
    """The arrays of a group that label others."""
    mappings = {grid_mapping_of(array.attrs) for array in group.arrays.values()}
    named = coordinate_names(group.arrays, group.attrs) - mappings
    return {
        name: array
        for name, array in group.arrays.items()
        if array.size
        and "tiff_series" not in array.attrs
        and (name in named or (name not in mappings and (not array.ndim or _is_inline(array))))
    }


def _is_inline(array: VirtualArray) -> bool:
    if array.size > _MOST_INLINE:
        return False
    return any(
        (manifest.take(np.arange(manifest.n_rows)).state == ChunkState.INLINE).any()
        for manifest in array.manifests
    )


@dataclass(frozen=True)
class LabelsFound:
    """How a label of the cube compares with a file's.

    Attributes
    ----------
    difference
        How they differ; empty if they do not.
    not_compared
        Why they were not compared; empty if they were.
    failure
        Why the cube's labels cannot be read. Another file may hold them.
    """

    path: str
    n_labels: int = 0
    difference: str = ""
    not_compared: str = ""
    failure: ReadError | None = None


class LabelsOfFile:
    """Compares the labels of a cube with the labels of one file, each once."""

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self._seen: set[tuple[Any, ...]] = set()
        self._differing: set[str] = set()
        self._about: dict[tuple[str, str], tuple[Mapping[str, Any] | None, Mapping[str, int]]] = {}
        self._values: dict[str, _Side] = {}
        self._first: dict[str, str] = {}
        """The first dataset that each array is seen to come from: most have no other in a file."""

    def compared(
        self,
        piece: Piece,
        original: Original,
        got: NDArray[Any],
        raw: NDArray[Any],
    ) -> Iterator[LabelsFound]:
        """Compare the labels of a piece, and what its values mean.

        Of labels that differ, those of the first piece are found: others follow from them.

        Parameters
        ----------
        original
            The file by its original reader.
        got, raw
            Values of the piece, as the cube and as the original reader have them.
        """
        dataset = original.dataset(piece)
        if dataset == self._first.setdefault(piece.path, dataset):
            dataset = ""  # labels that arrays share are compared once
        for found in self._found(piece, dataset, _Place.of(piece, original)):
            if found.difference:
                self._differing.add(found.path)
            yield found
        if piece.path not in self._differing:
            own, _ = self._about[piece.path, dataset]
            unlike = differing_meaning(got, piece.array.attrs, raw, own)
            if unlike:
                self._differing.add(piece.path)
                yield LabelsFound(piece.path, difference=unlike)

    def is_encoded_anew(
        self, piece: Piece, original: Original, got: NDArray[Any], raw: NDArray[Any]
    ) -> bool:
        """Whether a piece that is kept inline means what the file has, in other units or packing.

        Combining writes times anew where files count them from other dates.
        """
        own, _ = original.about(original.located(piece).name)
        attrs = piece.array.attrs
        if own is None or not _are_numbers(got, raw) or _is_meaning_alike(attrs, own):
            return False
        return not differing_meaning(got, attrs, raw, own)

    def _found(self, piece: Piece, dataset: str, place: _Place) -> Iterator[LabelsFound]:
        new = []
        for path, label in self.labels.beside(piece.path):
            key = path, dataset, *(place.key(dim) for dim in label.dims)
            if key not in self._seen and path not in self._differing:
                self._seen.add(key)
                new.append((path, label))
        about = piece.path, dataset
        if new or about not in self._about:
            for path, label in new:
                yield self._one(path, label, place)
            own, members = self._about[about] = place.original.about(place.located.name)
            unlike = differing_members(
                piece.array.attrs, own, members, _renumbered_by(piece.encoding)
            )
            if unlike and piece.path not in self._differing:
                yield LabelsFound(piece.path, difference=unlike)

    def _one(self, path: str, array: VirtualArray, place: _Place) -> LabelsFound:
        own = self._own(path.rpartition("/")[2], array, place)
        if own is None:
            return LabelsFound(path, not_compared=NOT_IN_FILES)
        axes = _dims_of(own, array, place)
        if axes is None:
            return LabelsFound(path, not_compared=f"the file's own {own.name} has other dimensions")
        in_file = [place.in_file(dim, extent) for dim, extent in zip(axes, own.shape, strict=True)]
        if any(len(at) and at.max() >= n for at, n in zip(in_file, own.shape, strict=True)):
            reason = f"the file's own {own.name} is shorter than its dimension"
            return LabelsFound(path, not_compared=reason)
        in_cube = [
            place.cube[dim] if dim in place.cube else np.arange(extent)
            for dim, extent in zip(array.dims, array.shape, strict=True)
        ]
        try:
            shown = self._of_cube(path, array, in_cube)
        except ReadError as error:
            return LabelsFound(path, not_compared=NOT_READ, failure=error)
        held = self._of_file(own, in_file).laid_as(axes, array.dims)
        message = _differing(shown, held, self.labels.room(own))
        instead = self.labels.taken_instead(path, array) if message else ""
        if instead:
            return LabelsFound(path, not_compared=instead)
        return LabelsFound(path, int(shown.values.size), message)

    def _own(self, name: str, array: VirtualArray, place: _Place) -> Own | None:
        """The file's variable that a label of the cube stands for."""
        original, beside = place.original, place.located.name
        if array.is_index(name):
            axis = place.axis_in_file(name)
            own = None if axis is None else original.labels(beside, axis)
            if own is not None:
                return own
        source = str(self.labels.sources.get(name, ""))
        named = source.removeprefix("variable:") if source.startswith("variable:") else name
        return original.named(beside, named)

    def _of_cube(self, path: str, array: VirtualArray, at: list[Int64Array]) -> _Side:
        whole = self.labels.whole(path) if array.size <= _MOST_WHOLE else None
        if whole is not None:
            return whole.chosen(at)
        read = partial(self.labels.reader.read, array, name=path)
        return _read_around(read, array.attrs, at)

    def _of_file(self, own: Own, at: list[Int64Array]) -> _Side:
        if math.prod(own.shape) <= _MOST_WHOLE:
            if own.name not in self._values:
                raw = own.read(tuple(slice(0, extent) for extent in own.shape))
                self._values[own.name] = _Side.of(raw, own.attrs)
            return self._values[own.name].chosen(at)
        return _read_around(own.read, own.attrs, at)


def _read_around(
    read: Callable[[tuple[slice, ...]], NDArray[Any]],
    attrs: Mapping[str, Any],
    at: list[Int64Array],
) -> _Side:
    """Some labels. Only labels between them are read."""
    raw = read(tuple(slice(int(part.min()), int(part.max()) + 1) for part in at))
    return _Side.of(raw[np.ix_(*(part - part.min() for part in at))], attrs)


@dataclass(frozen=True, eq=False)
class _Place:
    """Which elements of the cube a piece is, and which of its stored array.

    Attributes
    ----------
    cube, stored
        Indices by dimension.
    axes
        For each dimension its axis in the stored array, in the file's order.
    """

    piece: Piece
    original: Original
    cube: Mapping[str, Int64Array]
    stored: Mapping[str, Int64Array]
    axes: Mapping[str, int]

    @classmethod
    def of(cls, piece: Piece, original: Original) -> _Place:
        number = piece.batch.piece[piece.member]
        chunk = piece.batch.chunk[piece.member].tolist()
        lengths = piece.encoding.chunk_shape
        dims, order = piece.array.dims, list(axis_order(piece.encoding))
        out, inside = piece.cross.in_output(number), piece.cross.in_chunk(number)
        cube = {dim: _indices(part) for dim, part in zip(dims, out, strict=True)}
        stored = {
            # A step of 0 repeats one element.
            dim: np.broadcast_to(at * length + _indices(part), cube[dim].shape)
            for dim, at, length, part in zip(dims, chunk, lengths, inside, strict=True)
        }
        axes = {dim: order.index(axis) for axis, dim in enumerate(dims)}
        return cls(piece, original, cube, stored, axes)

    @cached_property
    def located(self) -> Located:
        """Where it is in the file."""
        return self.original.located(self.piece)

    def key(self, dim: str) -> tuple[int, ...]:
        """The same for pieces that have the same elements along a dimension."""
        if dim not in self.cube or not len(self.cube[dim]):
            return ()
        own, stored = self.cube[dim], self.stored[dim]
        return int(own[0]), int(own[-1]), len(own), int(stored[0]), int(stored[-1])

    def axis_in_file(self, dim: str) -> int | None:
        """The axis of the file's dataset that a dimension is."""
        return self.located.axes[self.axes[dim]] if dim in self.axes else None

    def in_file(self, dim: str, extent: int) -> Int64Array:
        """Indices of its elements along an axis of a file's variable."""
        axis = self.axis_in_file(dim)
        if extent == 1 and (dim not in self.cube or axis is None):
            return np.zeros(1, np.int64)
        if axis is None:
            return np.arange(extent)
        return np.asarray(self.stored[dim] + self.located.shift[self.axes[dim]])


def _indices(part: Any) -> Int64Array:
    if not isinstance(part, slice):
        return np.asarray(part).reshape(-1)
    return np.arange(part.start, -1 if part.stop is None else part.stop, part.step or 1)


def _dims_of(own: Own, array: VirtualArray, place: _Place) -> list[str] | None:
    """The cube's dimension for each axis of a file's variable; None if unknown."""
    by_axis = {place.axis_in_file(dim): dim for dim in place.axes}
    if len(own.axes) == array.ndim == 1 and own.axes[0] is None:
        return [array.dims[0]]
    dims = [None if axis is None else by_axis.get(axis, "") for axis in own.axes]
    unknown = [extent for dim, extent in zip(dims, own.shape, strict=True) if dim is None]
    rest = [dim for dim in array.dims if dim not in dims]
    if unknown and len(unknown) != len(
        rest
    ):  # the file lacks dimensions of the cube, or has some of length 1
        rest = [dim for dim in rest if dim not in place.cube or place.axis_in_file(dim) is not None]
    if unknown and len(unknown) != len(rest):
        kept = [extent != 1 for extent in unknown]
        if sum(kept) != len(rest):
            return None
        found = iter(rest)
        names = iter([next(found) if each else "" for each in kept])
    else:
        names = iter(rest)
    shown = [next(names) if dim is None else dim for dim in dims]
    lacking = any(
        dim not in array.dims and extent != 1 for dim, extent in zip(shown, own.shape, strict=True)
    )
    return None if lacking else shown


def _laid_as(values: NDArray[Any], dims: list[str], wanted: tuple[str, ...]) -> NDArray[Any]:
    """Values with the wanted dimensions; of length 1 where they have one not."""
    kept = [axis for axis, dim in enumerate(dims) if dim in wanted]
    values = values.reshape([values.shape[axis] for axis in kept])
    named = [dims[axis] for axis in kept]
    values = values.transpose([named.index(dim) for dim in wanted if dim in named])
    lengths = iter(values.shape)
    return values.reshape([next(lengths) if dim in named else 1 for dim in wanted])


@dataclass(frozen=True, eq=False)
class _Side:
    """Labels as decoded and as stored, and what says their meaning."""

    values: NDArray[Any]
    raw: NDArray[Any]
    attrs: Mapping[str, Any]

    @classmethod
    def of(cls, raw: NDArray[Any], attrs: Mapping[str, Any]) -> _Side:
        return cls(_decoded(raw, attrs), raw, attrs)

    def chosen(self, at: list[Int64Array]) -> _Side:
        """Some of them."""
        chosen: Any = (*np.ix_(*at), ...)
        return _Side(self.values[chosen], self.raw[chosen], self.attrs)

    def laid_as(self, dims: list[str], wanted: tuple[str, ...]) -> _Side:
        """The same with the wanted dimensions; of length 1 where they have one not."""
        values, raw = (_laid_as(part, dims, wanted) for part in (self.values, self.raw))
        return _Side(values, raw, self.attrs)


def differing_meaning(
    got: NDArray[Any], attrs: Mapping[str, Any], raw: NDArray[Any], own: Mapping[str, Any] | None
) -> str:
    """How values of a cube differ from a file's in what they mean; empty if attributes are alike.

    Parameters
    ----------
    raw, own
        Values as the original reader returns them, and the file's attributes; None where it has
        none that say what values mean.
    """
    if own is None:
        return ""
    if not any(name in own for name in _FILLS):
        attrs = {name: value for name, value in attrs.items() if name not in _FILLS}
    if not _are_numbers(got, raw) or _is_meaning_alike(attrs, own):
        return ""
    return _differing(_Side.of(got, attrs), _Side.of(raw, own), Room())


def _are_numbers(got: NDArray[Any], raw: NDArray[Any]) -> bool:
    return got.dtype.kind in "iuf" and raw.dtype.kind in "iuf" and got.shape == raw.shape


def _is_meaning_alike(attrs: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    return all(_text(attrs.get(name)) == _text(own.get(name)) for name in MEANING_ATTRIBUTES)


def differing_members(
    attrs: Mapping[str, Any],
    own: Mapping[str, Any] | None,
    members: Mapping[str, int],
    renumbered: Mapping[int, int],
) -> str:
    """How the names of numbers differ; empty where they agree, or one side has none.

    Parameters
    ----------
    attrs, own
        Attributes of the cube, and of the file.
    members
        Names and numbers of the file's enumeration.
    renumbered
        Numbers of the file that the cube shows as others.
    """
    shown, held = _flags(attrs), _flags(own or {})
    held |= {(int(number), None): name for name, number in members.items()}
    for (number, mask), name in sorted(held.items(), key=str) if shown else ():
        meaning = shown.get((renumbered.get(number, number), mask))
        if meaning != name:
            return f"{number} means {meaning or 'nothing'!r} instead of {name!r}"
    return ""


def _renumbered_by(encoding: Encoding) -> dict[int, int]:
    """The numbers that an encoding changes."""
    pairs = (
        codec.configuration["pairs"]
        for codec in encoding.codecs
        if codec.name == "gridref.renumber"
    )
    return dict(next(pairs, ()))


def _flags(attrs: Mapping[str, Any]) -> dict[tuple[int, int | None], str]:
    """The names of numbers and bit masks that CF attributes say."""
    meanings = attrs.get("flag_meanings")
    words = meanings.split() if isinstance(meanings, str) else []
    masks = _whole_numbers(attrs.get("flag_masks"))
    numbers = _whole_numbers(attrs.get("flag_values")) or masks
    if len(numbers) != len(words) or (masks and len(masks) != len(words)):
        return {}
    pairs = zip(numbers, masks or itertools.repeat(None), strict=False)
    return dict(zip(pairs, words, strict=True))


def _whole_numbers(value: Any) -> list[int]:
    numbers = np.atleast_1d(np.asarray(() if value is None else value))
    return numbers.reshape(-1).tolist() if numbers.dtype.kind in "iu" else []


def _text(value: Any) -> str:
    return "" if value is None else str(np.asarray(value).tolist())


def _decoded(raw: NDArray[Any], attrs: Mapping[str, Any]) -> NDArray[Any]:
    """Values as xarray decodes them; as stored where it cannot."""
    import xarray as xr

    own = {name: attrs[name] for name in MEANING_ATTRIBUTES if name in attrs}
    if raw.dtype.kind not in "iuf" or not own:
        return raw
    variable = xr.Variable([f"d{axis}" for axis in range(raw.ndim)], raw, own)
    with suppress(NotRepresentableError), refusing_attributes(None):
        shown = xr.conventions.decode_cf_variable(
            "labels", variable, decode_times=is_time_like(own), decode_timedelta=False
        )
        return np.asarray(shown.values)
    return raw


def _differing(cube: _Side, file: _Side, allowed: Room) -> str:
    """How labels differ; empty where they mean the same."""
    try:
        held = np.broadcast_to(file.values, cube.values.shape)
    except ValueError:
        return f"labels of shape {cube.values.shape} instead of {file.values.shape}"
    times = [is_time_like(side.attrs) and side.values.dtype.kind in "MO" for side in (cube, file)]
    if any(times):
        return _differing_times(cube, file, held) if all(times) else "only one of them is a time"
    units, own_units = (str(side.attrs.get("units", "")) for side in (cube, file))
    shown: NDArray[Any] = cube.values
    if shown.dtype.kind not in "biuf" or held.dtype.kind not in "biuf":
        words, own_words = texts_of(shown), texts_of(held)
        same = words == own_words
        return "" if np.all(same) else _words(words, own_words, np.asarray(~same))
    room = 0.0
    if units and own_units and units != own_units:
        factors = _factors(own_units, units)
        if factors is None:
            return f"{units!r} instead of {own_units!r}"
        held = held * factors[0] + factors[1]
        room = 1e-6
    elif any(
        _text(cube.attrs.get(n)) != _text(file.attrs.get(n)) for n in ("scale_factor", "add_offset")
    ):
        room = 1e-6
    same = (shown == held) | ((shown != shown) & (held != held))
    if (room or allowed != Room()) and not same.all():
        with np.errstate(invalid="ignore"):
            far = room * max(_most(shown), _most(held)) + allowed.parts * _spacing(held)
            apart = np.abs(np.subtract(shown, held, dtype="f8"))
            if allowed.period:
                apart = np.minimum(apart % allowed.period, -apart % allowed.period)
            same |= apart <= far + allowed.within
    return "" if same.all() else _words(shown, held, ~same)


def _differing_times(cube: _Side, file: _Side, held: NDArray[Any]) -> str:
    calendars = [_calendar(side) for side in (cube, file)]
    if calendars[0] != calendars[1]:
        return f"calendar {calendars[0]!r} instead of {calendars[1]!r}"
    shown, room = cube.values, max(map(_rounding_ns, (cube, file)))
    if shown.dtype.kind != held.dtype.kind:  # years that only one of them can be decoded with
        shown, held = _as_texts(shown), _as_texts(held)
        same = np.asarray(shown == held)
    elif shown.dtype.kind == "O":
        held = _in_calendar_of(held, shown)
        apart = np.asarray(shown - held, "m8[us]").astype(np.int64)
        same = np.abs(apart) * 1000 <= room
    else:
        left, right = shown.astype("M8[ns]"), held.astype("M8[ns]")
        near = np.abs((left - right).astype(np.int64)) <= room
        is_missing = np.isnat(left)
        same = (is_missing == np.isnat(right)) & (is_missing | near)
    return "" if same.all() else _words(shown, held, ~same)


def _in_calendar_of(dates: NDArray[Any], others: NDArray[Any]) -> NDArray[Any]:
    """The same instants, as dates in the calendar of others."""
    own, wanted = (each.flat[0].calendar if each.size else "" for each in (dates, others))
    if own == wanted:
        return dates
    changed = [date.change_calendar(wanted) for date in dates.flat]
    return np.array(changed, object).reshape(dates.shape)


def _calendar(side: _Side) -> str:
    """The calendar of times; the two whose days since 1582 are the same count as one."""
    name = str(side.attrs.get("calendar", "standard")).lower()
    return _CALENDARS.get(name, name)


def _rounding_ns(side: _Side) -> int:
    """How far a float may be from the time it is meant to be."""
    if side.raw.dtype.kind != "f":
        return 0
    unit = UNIT_NS.get(str(side.attrs.get("units", "")).split(" ")[0].lower(), 1)
    return _SAME_TIME_NS + int(2 * np.spacing(_most(side.raw)) * unit)


def _most(values: NDArray[Any]) -> float:
    finite = np.abs(values[np.isfinite(values)]) if values.size else values
    return float(finite.max()) if finite.size else 0.0


def _spacing(values: NDArray[Any]) -> float:
    """The least distance of neighbours."""
    steps = np.abs(np.diff(values.reshape(-1).astype("f8")))
    return float(steps[steps > 0].min()) if (steps > 0).any() else 0.0


@lru_cache(maxsize=256)
def _factors(unit: str, target: str) -> tuple[float, float] | None:
    """Factor and offset between units; None where they do not measure the same."""
    if unit in UNIT_NS and target in UNIT_NS:
        return UNIT_NS[unit] / UNIT_NS[target], 0.0
    try:
        return converter()(unit, target)
    except MissingPackageError as error:
        raise UnsupportedFeatureError(f"units {unit!r} and {target!r} need pint") from error


def texts_of(values: NDArray[Any]) -> NDArray[Any]:
    """Values as texts, in an array of objects."""
    texts = [
        value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
        for value in np.asarray(values).reshape(-1).tolist()
    ]
    return np.array(texts, object).reshape(np.shape(values))


def _as_texts(values: NDArray[Any]) -> NDArray[Any]:
    """Times as ISO 8601 to the second, whatever their calendar."""
    if values.dtype.kind == "M":
        return np.datetime_as_string(values, "s").astype(object)
    texts = [str(getattr(item, "isoformat", lambda i=item: str(i))()) for item in values.flat]
    return np.array(texts, object).reshape(values.shape)


def _words(shown: NDArray[Any], held: NDArray[Any], unlike: NDArray[Any]) -> str:
    """The first label that differs, and how many do."""
    at = tuple(np.argwhere(unlike)[0]) if np.ndim(unlike) else ()
    n_unlike = int(np.sum(unlike))
    of_all = f"{n_unlike} of {number_of(shown.size, 'label')} differ"
    return f"{of_all}: {shown[at]} instead of {held[at]}"
