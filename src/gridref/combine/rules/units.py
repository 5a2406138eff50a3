"""Bring numbers and times whose units differ into the units of the first file.

Numbers are converted if the caller asks for it; otherwise different units are a problem. Times, and
durations, are changed exactly or not at all: integers by integer arithmetic, floats where the sum
has no rounding error (the error term of Knuth's TwoSum, The Art of Computer Programming 2, 4.2.2),
and otherwise as whole ticks of the coarsest unit, from seconds to nanoseconds, that holds every
value. Coordinates whose units agree with the first file's are not rewritten. Bounds of a variable
are in its units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.combine.columns import Column, Kind, Notes, value_text
from gridref.combine.rules.packing import (
    Packing,
    as_floats,
    float_dtype,
    without_packing,
)
from gridref.combine.values import Values
from gridref.errors import Message, Option
from gridref.model.array import VirtualArray
from gridref.model.conventions import (
    BOUNDS,
    GREGORIAN_START_NS,
    UNIT_NAMES,
    TimeBase,
    duration_base,
    is_time_like,
    text_of,
    units_with,
)

Factor = tuple[float, float]
_SAME: Factor = (1.0, 0.0)


def resolve_units(columns: Mapping[str, Column], notes: Notes) -> dict[str, Column]:
    """Convert numbers, and their bounds, to the first file's units, or note a problem."""
    result = dict(columns)
    for name, column in columns.items():
        factors = _factors(column, notes)
        if not factors:
            continue
        by_file = {
            file: factors[_units(kind)] for kind in column.kinds for file in column.files_of(kind)
        }
        target = str(column.first.attrs["units"])
        for member in [
            name,
            *_bounds_of(column, columns, ("bounds",), lambda attrs: "units" in attrs),
        ]:
            result[member] = _rescaled_column(result[member], by_file, target)
    return result


def _units(kind: Kind) -> str:
    return str(kind.array.attrs.get("units"))


def _bounds_of(
    column: Column,
    columns: Mapping[str, Column],
    attributes: Sequence[str],
    have_own: Callable[[Mapping[str, Any]], bool],
) -> list[str]:
    """Bounds that have no units of their own (CF conventions, 7.1): they are in the column's."""
    arrays = [kind.array for kind in column.kinds]
    names = (text_of(array.attrs, name) for array in arrays for name in attributes)
    return [
        name
        for name in dict.fromkeys(names)
        if name in columns and not any(have_own(kind.array.attrs) for kind in columns[name].kinds)
    ]


def _factors(column: Column, notes: Notes) -> dict[str, Factor]:
    """Factor and offset of every unit of a column; none where nothing is to be changed."""
    units = {_units(kind) for kind in column.kinds if "units" in kind.array.attrs}
    if len(units) < 2 or any(is_time_like(kind.array.attrs) for kind in column.kinds):
        return {}
    cases = column.cases(lambda kind: value_text(kind.array.attrs.get("units")))
    convert = notes.options.convert_units
    target = str(column.first.attrs.get("units"))
    if not callable(convert):
        advice: str = Message(Option("convert_units", True), " converts them to the first file's")
    else:
        factor_of = {unit: _SAME if unit == target else convert(unit, target) for unit in units}
        factors = {unit: pair for unit, pair in factor_of.items() if pair is not None}
        advice = _obstacle(column, factor_of)
        if not advice and all(pair == _SAME for pair in factors.values()):
            notes.drift("units", column.path, cases, "they mean the same; the first file's")
            return {}
        if not advice:
            notes.drift("units", column.path, cases, f"converted to {target}")
            return factors
    notes.conflict("units-differ", column.path, "units", cases, advice)
    return {}


def _obstacle(column: Column, factor_of: Mapping[str, Factor | None]) -> str:
    """Why units cannot be converted; empty where they can."""
    if None in factor_of.values():
        return "they cannot be converted"
    if any("units" not in kind.array.attrs for kind in column.kinds):
        return "files without units cannot be converted"
    if any(kind.array.dtype.kind not in "biuf" for kind in column.kinds):
        return "only numbers can be converted"
    shifted = any(pair is not None and pair[1] for pair in factor_of.values())
    if shifted and any(_is_difference(kind.array.attrs) for kind in column.kinds):
        return "differences have no zero to shift: convert them before combining"
    return ""


def _is_difference(attrs: Mapping[str, Any]) -> bool:
    """Whether values are differences or spreads (CF conventions, 3.1.2 and appendix E)."""
    methods = str(attrs.get("cell_methods", ""))
    return "difference" in str(attrs.get("units_metadata", "")) or any(
        method in methods for method in ("standard_deviation", "range", "variance")
    )


def _rescaled_column(column: Column, by_file: Mapping[int, Factor], target: str) -> Column:
    dtype = np.result_type(
        *(float_dtype(kind.array, Packing.of(kind.array)) for kind in column.kinds)
    )
    arrays = [
        _converted(array, by_file.get(file, _SAME), target, dtype)
        for file, array in zip(column.files, column.arrays, strict=True)
    ]
    return column.with_arrays(arrays)


def _converted(
    array: VirtualArray, factor: Factor, target: str, dtype: np.dtype[Any]
) -> VirtualArray:
    """Unpacked floats in other units: the packing's scale and offset take in those of the units."""
    packing = Packing.of(array)
    if factor != _SAME:
        scale = (1.0 if packing.scale is None else packing.scale) * factor[0]
        offset = (0.0 if packing.offset is None else packing.offset) * factor[0] + factor[1]
        packing = replace(packing, scale=scale, offset=offset)
    floats = as_floats(array, dtype, packing.unpacking(dtype), {})
    attrs = without_packing(array.attrs, dtype)
    if factor != _SAME:
        attrs = {name: n for name, n in attrs.items() if name not in (*BOUNDS, "actual_range")}
    if "units" in attrs:
        attrs["units"] = target
    return floats.with_changes(attrs=attrs)


# Times: exact arithmetic on the numbers of time coordinates

_INT64 = np.iinfo(np.int64)

NO_TIME = int(_INT64.min)
"""What integers hold where there is no time."""


@dataclass(frozen=True, eq=False)
class TimePart:
    """One file's part of a time coordinate or of its bounds."""

    column: int
    position: int
    base: TimeBase
    array: VirtualArray


def _valid(part: TimePart, values: Values) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Values, and which of them are times."""
    data = values.of(part.array)
    valid = np.ones(data.shape, bool) if data.dtype.kind != "f" else ~np.isnan(data)
    for fill in Packing.of(part.array).fills:
        valid &= data != fill
    return data, valid


def all_gregorian(parts: Sequence[TimePart], values: Values) -> bool:
    """Whether no time is before the Gregorian calendar's first day, 1582-10-15."""
    for part in parts:
        data, valid = _valid(part, values)
        if valid.any():
            first = math.floor(data[valid].min())
            if first * part.base.unit_ns + part.base.epoch_ns < GREGORIAN_START_NS:
                return False
    return True


def factors(base: TimeBase, target: TimeBase) -> tuple[int, int]:
    """Factor and offset, in the target's units, that turn times of one base into those of another.

    Hours since 1970-01-02, in minutes since 1970-01-01: the factor is 60, the offset 1440.
    """
    return base.unit_ns // target.unit_ns, (base.epoch_ns - target.epoch_ns) // target.unit_ns


def sums_exactly(part: TimePart, target: TimeBase, values: Values) -> bool:
    """Whether scaling and shifting in float64 never rounds."""
    if any(encoding.unpacking is not None for encoding in part.array.encodings):
        return False  # shifted already, with other files: one sum more might round
    ratio, shift = factors(part.base, target)
    dtype = part.array.dtype
    if dtype.kind in "iu" and dtype.itemsize <= 4:
        return 2**32 * ratio + abs(shift) < 2**53
    data, valid = _valid(part, values)
    if dtype.kind in "iu":
        largest = (
            max(abs(int(data[valid].min())), abs(int(data[valid].max()))) if valid.any() else 0
        )
        return largest * ratio + abs(shift) < 2**53
    wide = np.where(valid, data, 0).astype(np.float64)
    return _sum_without_rounding(wide, valid, ratio, float(shift)) is not None


def in_units(
    part: TimePart, target: TimeBase, values: Values, fills: Collection[float] = ()
) -> NDArray[Any] | None:
    """Values in the target's units, in the file's own kind of number.

    None if that would round, or if `fills`, which mean "no time" in the result, do not tell apart
    what is a time.
    """
    data, valid = _valid(part, values)
    if not fills and data.dtype.kind != "f" and not valid.all():
        return None
    found = _moved(part.base, target, data, valid)
    return None if found is None or np.isin(found[valid], [*fills]).any() else found


def _moved(
    base: TimeBase, target: TimeBase, data: NDArray[Any], valid: NDArray[np.bool_]
) -> NDArray[Any] | None:
    ratio, rest = divmod(base.unit_ns, target.unit_ns)
    shift, shift_rest = divmod(base.epoch_ns - target.epoch_ns, target.unit_ns)
    if rest or (shift_rest and data.dtype.kind != "f"):
        return None
    if data.dtype.kind in "iu":
        return _scaled_integers(data, valid, ratio, shift)
    delta = shift + shift_rest / target.unit_ns
    if shift_rest and delta * target.unit_ns != shift * target.unit_ns + shift_rest:
        return None
    wide = np.where(valid, data, 0).astype(np.float64)
    return _sum_without_rounding(wide, valid, ratio, delta)


def _sum_without_rounding(
    wide: NDArray[np.float64], valid: NDArray[np.bool_], ratio: int, delta: float
) -> NDArray[np.float64] | None:
    """``wide * ratio + delta``, NaN where not valid; None if any step would round."""
    scaled = wide * ratio
    total = scaled + delta
    back = total - scaled
    error = (scaled - (total - back)) + (delta - back)
    if (error[valid] != 0).any() or (scaled / ratio != wide).any() or not _exact(scaled, ratio):
        return None
    return np.where(valid, total, np.nan)


def _exact(scaled: NDArray[np.float64], ratio: int) -> bool:
    """Whether products with a ratio are what the file means.

    A fraction whose product is whole and below 2^53 was rounded in the file: 0.001 us are 1 ns.
    """
    return ratio == 1 or bool(
        ((scaled == np.rint(scaled)) & (np.abs(scaled) < 2.0**53) & (ratio < 2**53)).all()
    )


def _scaled_integers(
    data: NDArray[Any], valid: NDArray[np.bool_], ratio: int, shift: int
) -> NDArray[np.int64] | None:
    held = data[valid]
    if held.size:
        ends = (int(held.min()) * ratio + shift, int(held.max()) * ratio + shift)
        extreme = max(map(abs, (*ends, ends[0] - shift, ends[1] - shift, shift)))
        if extreme > _INT64.max:
            return None
    result = np.full(data.shape, NO_TIME, np.int64)
    result[valid] = held.astype(np.int64) * ratio + shift
    return result


def in_ticks(part: TimePart, target: TimeBase, values: Values) -> NDArray[np.int64] | None:
    """Values as whole ticks of the target; None if they are none."""
    data, valid = _valid(part, values)
    shift = part.base.epoch_ns - target.epoch_ns
    if data.dtype.kind == "f":
        nanoseconds = _whole_nanoseconds(np.where(valid, data, 0), part.base)
        if nanoseconds is None:
            return None
        whole: NDArray[Any] = nanoseconds
        ratio = 1
    else:
        whole, ratio = data, part.base.unit_ns
    common = np.gcd.reduce(whole[valid].astype(np.int64)) if valid.any() else 0
    if (int(common) * ratio) % target.unit_ns or shift % target.unit_ns:
        return None
    if ratio % target.unit_ns:
        if ratio != 1:
            return None
        return _scaled_integers(whole // target.unit_ns, valid, 1, shift // target.unit_ns)
    return _scaled_integers(whole, valid, ratio // target.unit_ns, shift // target.unit_ns)


def _whole_nanoseconds(data: NDArray[Any], base: TimeBase) -> NDArray[np.int64] | None:
    """Floating times as the nanoseconds that readers show; None if they are too many.

    xarray cuts times of the standard calendars at the nanosecond, cftime rounds others to the
    microsecond.
    """
    wide = data.astype(np.float64)
    if base.calendar in ("standard", "proleptic_gregorian"):
        ns = np.trunc(wide * base.unit_ns)
    else:
        ns = np.rint(wide * (base.unit_ns / 1000)) * 1000
    return None if (np.abs(ns) >= 2.0**63).any() else ns.astype(np.int64)


# Times and durations of all files in the units of the first

INLINE_LIMIT_BYTES = 2**20
"""Above this size in any input times stay where they are, and are scaled and shifted on reading.

Inputs are files, or what batches of files have become.
"""

REWRITTEN_LIMIT_BYTES = 2**28
"""Above this size in all, times that would round on reading are a problem and not rewritten."""


def resolve_times(columns: Mapping[str, Column], notes: Notes, values: Values) -> dict[str, Column]:
    """Express every time coordinate, and its bounds, in the units of its first file.

    Scalars and coordinates of durations, too: xarray writes zeros as days, and others as hours.
    """
    result = dict(columns)
    for name, column in columns.items():
        if not (any(is_time_like(kind.array.attrs) for kind in column.kinds) or _lasts(column)):
            continue
        members = [name, *_bounds_of(column, columns, ("bounds", "climatology"), is_time_like)]
        changed = _resolve([result[member] for member in members], notes, values)
        result.update(zip(members, changed, strict=True))
    return result


def _lasts(column: Column) -> bool:
    """Whether a column has durations, one or a line of them, in every file."""
    arrays = [kind.array for kind in column.kinds]
    return all(array.ndim < 2 and duration_base(array.attrs) is not None for array in arrays)


def _resolve(columns: list[Column], notes: Notes, values: Values) -> list[Column]:
    main = columns[0]
    bases = _bases(main, notes)
    if bases is None:
        return columns
    calendars = {base.calendar for base in bases.values()}
    cases = main.cases(lambda kind: _described(kind.array.attrs))
    if len(cases) == 1:
        cases = main.cases(lambda kind: str(Packing.of(kind.array)))
    if len(calendars) > 1 and not calendars <= {"standard", "proleptic_gregorian"}:
        advice = "the same date is another day in each: build a catalog for each calendar"
        notes.conflict("calendar-differs", main.path, "calendars", cases, advice)
        return columns
    parts = [
        TimePart(number, position, bases[file], array)
        for number, column in enumerate(columns)
        for position, (file, array) in enumerate(zip(column.files, column.arrays, strict=True))
        if file in bases
    ]
    target = bases[main.files[0]]
    times = _Times(columns, parts, target, cases, notes, values)
    needed = [part for part in parts if len(calendars) > 1 or not times.is_same(part)]
    if not all(values.available(part.array) for part in needed):
        advice = "converting them needs their values, which cannot be read here"
        notes.conflict("time-units-differ", main.path, "units", cases, advice)
        return columns
    if len(calendars) > 1 and not all_gregorian(parts, values):
        advice = "dates before 1582-10-15 are not the same days in both"
        notes.conflict("calendar-differs", main.path, "calendars", cases, advice)
        return columns
    return times.reencoded()


def _bases(column: Column, notes: Notes) -> dict[int, TimeBase] | None:
    """The time base of every file; None where numbers agree anyway, or cannot be understood."""
    if len({(_described(kind.array.attrs), _wide_fills(kind.array)) for kind in column.kinds}) == 1:
        return None
    lasts = _lasts(column)
    bases: dict[int, TimeBase] = {}
    for kind in column.kinds:
        base = duration_base(kind.array.attrs) if lasts else TimeBase.of(kind.array.attrs)
        packing = Packing.of(kind.array)
        if base is None or not packing.is_exact or packing.unsigned is not None:
            cases = column.cases(lambda kind: _described(kind.array.attrs))
            advice = f"{_described(kind.array.attrs)!r} cannot be brought on others exactly"
            notes.conflict("time-units-differ", column.path, "units", cases, advice)
            return None
        bases.update(dict.fromkeys(column.files_of(kind), base))
    return bases


def _wide_fills(array: VirtualArray) -> Collection[float]:
    """What means "no time" among integers that floats do not hold, so that NaN cannot."""
    return Packing.of(array).fills if array.dtype.kind in "iu" and array.dtype.itemsize == 8 else ()


def _described(attrs: Mapping[str, Any]) -> str:
    calendar = attrs.get("calendar")
    units = value_text(attrs.get("units"))
    return units if calendar is None else f"{units} ({value_text(calendar)})"


@dataclass(frozen=True, eq=False)
class _Times:
    """A time coordinate and its bounds in all files, and the units that they are to have.

    Attributes
    ----------
    columns
        The coordinate, then its bounds.
    parts
        Each file's part of them.
    target
        Units and reference date of the first file.
    cases
        Files by their units, in words.
    """

    columns: list[Column]
    parts: list[TimePart]
    target: TimeBase
    cases: dict[str, list[int]]
    notes: Notes
    values: Values

    def reencoded(self) -> list[Column]:
        """The columns in the same units; unchanged, with a problem noted, where that cannot be."""
        if all(map(self.is_same, self.parts)):
            self._note("they mean the same")
            return _with_units(self.columns, self.parts, {}, self.target.unit_ns, {})
        if any(part.array.nbytes > INLINE_LIMIT_BYTES for part in self.parts):
            kept = self._kept_virtual()
            if kept is not None:
                return kept
            if sum(part.array.nbytes for part in self.parts) > REWRITTEN_LIMIT_BYTES:
                return self._refused(
                    "so many times cannot be given one reference date exactly; combine parts of"
                    " the files"
                )
        return self._rewritten()

    @cached_property
    def _fills(self) -> list[frozenset[float | int]]:
        """What means "no time" in the first file, of each column."""
        return [Packing.of(column.first).fills for column in self.columns]

    def is_same(self, part: TimePart) -> bool:
        """Whether numbers of a part mean what they would in the first file."""
        base, target = part.base, self.target
        own = base.epoch_ns, base.unit_ns, Packing.of(part.array).fills
        return own == (target.epoch_ns, target.unit_ns, self._fills[part.column])

    def _note(self, resolution: str) -> None:
        self.notes.drift("time-units", self.columns[0].path, self.cases, resolution)

    def _refused(self, advice: str) -> list[Column]:
        path = self.columns[0].path
        self.notes.conflict("time-units-differ", path, "units", self.cases, advice)
        return self.columns

    def _rewritten(self) -> list[Column]:
        """New values in the first file's units, or in whole ticks of a finer one."""
        converted = {
            number: in_units(part, self.target, self.values, self._fills[part.column])
            for number, part in enumerate(self.parts)
            if not self.is_same(part)
        }
        units = self.columns[0].first.attrs["units"]
        if all(result is not None for result in converted.values()):
            self._note(f"re-encoded exactly as {units!r}")
            return _with_units(self.columns, self.parts, converted, self.target.unit_ns, {})
        finest = [min(part.base.unit_ns for part in self.parts)] if _lasts(self.columns[0]) else []
        for unit_ns in (*finest, 10**9, 10**6, 10**3, 1):
            ticks = {
                number: in_ticks(part, self.target.in_unit(unit_ns), self.values)
                for number, part in enumerate(self.parts)
            }
            if all(result is not None for result in ticks.values()):
                self._note(f"re-encoded as {units_with(units, unit_ns)!r}")
                fill = {"_FillValue": NO_TIME}
                return _with_units(self.columns, self.parts, ticks, unit_ns, fill)
        return self._refused("they have no common unit that holds every value in 64 bits")

    def _kept_virtual(self) -> list[Column] | None:
        """Scale and shift every block on reading; None if that would round."""
        target, bases = self.target, [part.base for part in self.parts]
        shifts = {base.epoch_ns - target.epoch_ns for base in bases}
        wanted = math.gcd(target.unit_ns, *(base.unit_ns for base in bases), *shifts)
        unit_ns = max((ns for ns in UNIT_NAMES if wanted % ns == 0), default=1)
        base = target.in_unit(unit_ns)
        if not all(sums_exactly(part, base, self.values) for part in self.parts):
            return None
        arrays = [list(column.arrays) for column in self.columns]
        units = units_with(self.columns[0].first.attrs["units"], unit_ns)
        for part in self.parts:
            first = self.columns[part.column].first
            attrs = without_packing(_attrs(part.array, first, unit_ns, {}), np.dtype("f8"))
            if "units" in attrs:
                attrs["units"] = units
            arrays[part.column][part.position] = _shifted(part, base).with_changes(attrs=attrs)
        self._note(f"shifted exactly on reading, as {units!r}")
        pairs = zip(self.columns, arrays, strict=True)
        return [column.with_arrays(changed) for column, changed in pairs]


def _shifted(part: TimePart, target: TimeBase) -> VirtualArray:
    """The same stored chunks, unpacked to the target's unit and epoch."""
    ratio, shift = factors(part.base, target)
    packing = replace(
        Packing.of(part.array),
        scale=None if ratio == 1 else float(ratio),
        offset=None if shift == 0 else float(shift),
    )
    floats = np.dtype("f8")
    return as_floats(part.array, floats, packing.unpacking(floats), {})


def _with_units(
    columns: list[Column],
    parts: Sequence[TimePart],
    converted: Mapping[int, NDArray[Any] | None],
    unit_ns: int,
    extra: Mapping[str, Any],
) -> list[Column]:
    """Put new values and units in position."""
    arrays = [list(column.arrays) for column in columns]
    reference = [column.first for column in columns]
    for number, part in enumerate(parts):
        first = reference[part.column]
        attrs = _attrs(part.array, first, unit_ns, extra)
        data = converted.get(number)
        if data is None:
            changed = part.array.with_changes(attrs=attrs)
        else:
            changed = _inline(data, part.array.dims, attrs, first, extra)
        arrays[part.column][part.position] = changed
    return [column.with_arrays(new) for column, new in zip(columns, arrays, strict=True)]


def _attrs(
    array: VirtualArray, first: VirtualArray, unit_ns: int, extra: Mapping[str, Any]
) -> dict[str, Any]:
    attrs = dict(array.attrs)
    for name in ("units", "calendar", "_FillValue", "missing_value"):
        attrs.pop(name, None)
        if name in first.attrs:
            attrs[name] = first.attrs[name]
    if extra:
        attrs.pop("missing_value", None)
        if "units" in attrs:
            attrs["units"] = units_with(attrs["units"], unit_ns)
        attrs.update({name: np.int64(value) for name, value in extra.items()})
    return attrs


def _inline(
    data: NDArray[Any],
    dims: tuple[str, ...],
    attrs: dict[str, Any],
    first: VirtualArray,
    extra: Mapping[str, Any],
) -> VirtualArray:
    """New values as an inline array, in the first file's dtype where that holds them."""
    fills = Packing.of(first).fills
    if not extra and fills:
        fill = next(iter(fills))
        absent = np.isnan(data) if data.dtype.kind == "f" else data == NO_TIME
        data = np.where(absent, np.asarray(fill, data.dtype), data)
    narrow = data
    if not extra and first.dtype.kind in "iuf":
        with np.errstate(all="ignore"):
            narrow = data.astype(first.dtype)
        same = (narrow.astype(data.dtype) == data) | ((data != data) & (narrow != narrow))
        narrow = narrow if bool(same.all()) else data
    return VirtualArray.from_numpy(narrow, dims, attrs, None if not extra else np.int64(0))
