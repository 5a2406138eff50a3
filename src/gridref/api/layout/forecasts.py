"""Views of a cube of forecasts along valid times. Only runs and steps are read.

A cube of forecasts has a dimension of runs (when a forecast began) and one of steps (how far ahead
it looks). The valid time of an element is the sum of both (CF conventions 1.11, standard names
``forecast_reference_time``, ``forecast_period`` and ``time``). `ForecastAxes` picks one run and
step for each valid time and rearranges the arrays. The views are those of the Unidata Forecast
Model Run Collections: best time series, constant forecast offset, one run.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.api.layout.labels import duration_seconds
from gridref.api.opening import open_group
from gridref.api.readable import Sources, readable, reader_for
from gridref.catalog.commit import write_catalog
from gridref.combine.boxes import held_along
from gridref.combine.options import Read
from gridref.errors import InvalidRequestError, Message, Option
from gridref.io import Allow
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.conventions import UNIT_NS, TimeBase, text_of, units_with
from gridref.model.indexing import isel
from gridref.model.joining import concatenate
from gridref.model.reshaping import transpose
from gridref.typing import Int64Array

# A run and a step for each valid time. Pure

VALID_TIME = "valid_time"
"""The dimension of a view, and its coordinate."""


@dataclass(frozen=True, eq=False)
class Picks:
    """Which element is shown at each valid time.

    Attributes
    ----------
    valid_ns
        int64 (n,), rising valid times, in nanoseconds since the reference date of the runs.
    run, step
        int64 (n,), number of the run and of the step.
    """

    valid_ns: Int64Array
    run: Int64Array
    step: Int64Array


@dataclass(frozen=True, eq=False)
class ForecastAxes:
    """The dimensions of a cube of forecasts.

    Attributes
    ----------
    runs_ns
        int64 (n_runs,), when each run began, in nanoseconds since a reference date.
    steps_ns
        int64 (n_steps,), how far each step is ahead, in nanoseconds.
    """

    run: str
    step: str
    runs_ns: Int64Array
    steps_ns: Int64Array

    def best(self, there: NDArray[np.bool_], after_ns: int = 0) -> Picks:
        """For each valid time the newest run that has it, of steps that are no nearer than asked.

        Parameters
        ----------
        there
            bool (n_runs, n_steps), which elements there are.
        after_ns
            The least step, in nanoseconds: nearer ones may be spin-up.
        """
        wanted = there & (self.steps_ns >= after_ns)
        run, step = np.nonzero(wanted)
        valid = self.runs_ns[run] + self.steps_ns[step]
        order = np.lexsort((self.runs_ns[run], valid))
        newest = order[np.append(np.diff(valid[order]) != 0, True)] if order.size else order
        return Picks(valid[newest], run[newest], step[newest])

    def at_offset(self, offset_ns: int) -> Picks:
        """What each run says for one distance ahead."""
        (steps,) = np.nonzero(self.steps_ns == offset_ns)
        if not steps.size:
            hours = ", ".join(f"{ns / 3.6e12:g}h" for ns in self.steps_ns.tolist())
            raise InvalidRequestError(f"no step is {offset_ns / 3.6e12:g}h; there are {hours}")
        runs = np.argsort(self.runs_ns, kind="stable")
        return Picks(self.runs_ns[runs] + offset_ns, runs, np.repeat(steps[:1], len(runs)))

    def of_run(self, number: int) -> Picks:
        """All steps of one run."""
        steps = np.argsort(self.steps_ns, kind="stable")
        valid = self.runs_ns[number] + self.steps_ns[steps]
        return Picks(valid, np.full(len(steps), number), steps)

    def there(self, group: VirtualGroup) -> NDArray[np.bool_]:
        """Bool (n_runs, n_steps): which elements have a block in any array."""
        found = np.zeros((len(self.runs_ns), len(self.steps_ns)), bool)
        for array in group.arrays.values():
            if self.run in array.dims and self.step in array.dims:
                found |= held_along(
                    array, [array.dims.index(self.run), array.dims.index(self.step)]
                )
        return found

    def view(self, group: VirtualGroup, picks: Picks, valid_time: VirtualArray) -> VirtualGroup:
        """The arrays with one dimension of valid times in place of runs and steps.

        Run and step of each valid time stay as coordinates; nothing is read.

        Parameters
        ----------
        group
            The cube; groups below it are left out.
        valid_time
            The coordinate of the valid times, of the group's ``valid_time`` dimension.
        """
        arrays = {
            name: self._picked(array, picks)
            for name, array in group.arrays.items()
            if name != VALID_TIME
        }
        beside = str(group.attrs.get("coordinates", "")).split()
        named = dict.fromkeys([*beside, *(dim for dim in (self.run, self.step) if dim in arrays)])
        attrs = {**group.attrs, "coordinates": " ".join(name for name in named if name in arrays)}
        return group.with_changes(arrays={VALID_TIME: valid_time, **arrays}, groups={}, attrs=attrs)

    def _picked(self, array: VirtualArray, picks: Picks) -> VirtualArray:
        if self.run in array.dims and self.step in array.dims:
            first = min(map(array.dims.index, (self.run, self.step)))
            parts = [self._stretch(array, picks, part) for part in _stretches(picks)]
            return parts[0] if len(parts) == 1 else concatenate(parts, first)
        for dim, chosen in ((self.run, picks.run), (self.step, picks.step)):
            if dim in array.dims:
                return _renamed(isel(array, {dim: chosen}), dim)
        return array

    def _stretch(self, array: VirtualArray, picks: Picks, part: slice) -> VirtualArray:
        """The elements of some valid times that have one run, or one step, in common."""
        run, step = picks.run[part], picks.step[part]
        if (run == run[0]).all():
            one = isel(isel(array, {self.run: int(run[0])}), {self.step: step})
            return self._leading(_renamed(one, self.step), array)
        one = isel(isel(array, {self.step: int(step[0])}), {self.run: run})
        return self._leading(_renamed(one, self.run), array)

    def _leading(self, array: VirtualArray, original: VirtualArray) -> VirtualArray:
        """The array with the valid times where the first of both dimensions was."""
        others = [dim for dim in original.dims if dim not in (self.run, self.step)]
        at = min(original.dims.index(self.run), original.dims.index(self.step))
        dims = [*others[:at], VALID_TIME, *others[at:]]
        return transpose(array, [array.dims.index(dim) for dim in dims])


def _renamed(array: VirtualArray, dim: str) -> VirtualArray:
    dims = tuple(VALID_TIME if name == dim else name for name in array.dims)
    return array.with_changes(dims=dims)


def _stretches(picks: Picks) -> Iterator[slice]:
    """Cut picks so that those of each part have one run, or one step, in common."""
    if not picks.run.size or (picks.step == picks.step[0]).all():
        yield slice(0, max(1, picks.run.size))
        return
    cuts = (np.flatnonzero(np.diff(picks.run)) + 1).tolist()
    for start, stop in zip([0, *cuts], [*cuts, picks.run.size], strict=True):
        yield slice(start, stop)


# Views of a cube, whose runs and steps are read

RUN_NAMES = ("forecast_reference_time", "reference_time", "init_time", "init", "run", "time")
_RUN_TIME = "forecast_reference_time"
STEP_NAMES = ("forecast_period", "step", "lead_time", "leadtime", "lead", "prediction_timedelta")


def forecast(
    catalog: str | os.PathLike[str] | VirtualGroup,
    *,
    after: str | None = None,
    offset: str | None = None,
    run: str | None = None,
    run_dim: str | None = None,
    step_dim: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    allow: Allow = None,
    snapshot: str | None = None,
) -> VirtualGroup:
    """Show a cube of forecasts along valid times: the best series, one offset, or one run.

    Without `offset` and `run`, the best series: for each valid time the newest run that has it. The
    result has a dimension ``valid_time`` in place of runs and steps, which stay as coordinates; it
    is virtual, and `write_catalog` keeps it.

    Parameters
    ----------
    after
        Of the best series, the least step, like ``"12h"``: nearer ones are left to older runs.
    offset
        Show what every run says so far ahead, like ``"24h"`` or ``"PT24H"``.
    run
        Show all steps of one run: its time, like ``"2022-03-01T12:00"``, or ``"latest"``.
    run_dim, step_dim
        Dimensions of runs and steps; by default those whose coordinates have the standard names
        ``forecast_reference_time`` and ``forecast_period``, or a usual name.
    storage_options, allow, snapshot
        As for `open_catalog`.

    Raises
    ------
    InvalidRequestError
        If there are no such dimensions, no such offset or run, or more than one view is asked for.
    """
    if sum(asked is not None for asked in (after, offset, run)) > 1:
        raise InvalidRequestError(
            Message(
                "choose one view: the best (",
                Option("after"),
                "), an ",
                Option("offset"),
                ", or one ",
                Option("run"),
            )
        )
    group = open_group(catalog, storage_options, allow, snapshot)
    if not isinstance(catalog, VirtualGroup):
        group = readable(group, Sources(storage_options))
    runs = _coordinate(group, run_dim, RUN_NAMES, _RUN_TIME, "run_dim")
    steps = _coordinate(group, step_dim, STEP_NAMES, "forecast_period", "step_dim")
    base = TimeBase.of(group.arrays[runs].attrs)
    if base is None:
        units = group.arrays[runs].attrs.get("units")
        raise InvalidRequestError(f"{runs} has units {units!r}, which are not times")
    reader = reader_for(storage_options)
    start, since = _run_times(reader.read(group.arrays[runs], name=runs), base)
    ahead = _nanoseconds(reader.read(group.arrays[steps], name=steps), _unit_ns(group, steps))
    axes = ForecastAxes(runs, steps, start, ahead)
    picks = _picks(group, axes, since, after=after, offset=offset, run=run)
    units = str(group.arrays[runs].attrs["units"])
    valid_time = _as_times(picks.valid_ns, since, base, (VALID_TIME,), units)
    return axes.view(group, picks, valid_time)


def to_forecast(
    catalog: VirtualGroup,
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    after: str | None = None,
    offset: str | None = None,
    run: str | None = None,
    run_dim: str | None = None,
    step_dim: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> VirtualGroup:
    """Write a catalog that shows forecasts along valid times, and return what `forecast` does.

    Parameters
    ----------
    catalog
        The cube.
    path
        Address of the catalog to write; with `name` it may be the one of the cube.
    name
        Keep the cube, and add the forecast as a group of this name.
    after, offset, run, run_dim, step_dim
        As for `forecast`.
    storage_options
        As for `open_catalog`.
    """
    view = forecast(
        catalog,
        after=after,
        offset=offset,
        run=run,
        run_dim=run_dim,
        step_dim=step_dim,
        storage_options=storage_options,
    )
    kept = catalog.with_changes(groups={**catalog.groups, name: view}) if name else view
    write_catalog(kept, path, storage_options)
    return view


def with_valid_times(group: VirtualGroup, read: Read) -> VirtualGroup:
    """A cube of runs by steps with its valid times as a coordinate of both, if it has none yet.

    The numbers are kept inline. Other groups are handed through: those without runs, which count
    times, or without steps, which are durations.
    """
    try:
        runs = _coordinate(group, None, RUN_NAMES, _RUN_TIME, "run_dim")
        steps = _coordinate(group, None, STEP_NAMES, "forecast_period", "step_dim")
        step_ns = _unit_ns(group, steps)
    except InvalidRequestError:
        return group
    # A time that is not said to be that of runs is the valid time.
    named = group.arrays[runs].attrs.get("standard_name", "" if runs == "time" else _RUN_TIME)
    if not isinstance(named, str) or named != _RUN_TIME:
        return group
    base = TimeBase.of(group.arrays[runs].attrs)
    shown = [a for a in group.arrays.values() if {runs, steps} <= set(a.dims)]
    named = VALID_TIME in group.arrays or any(
        text_of(a.attrs, "standard_name") == "time" for a in shown
    )
    if base is None or named or not shown:
        return group
    start, since = _run_times(read(group.arrays[runs]), base)
    ahead = _nanoseconds(read(group.arrays[steps]), step_ns)
    units = str(group.arrays[runs].attrs["units"])
    try:
        valid = _as_times(np.add.outer(start, ahead), since, base, (runs, steps), units)
    except InvalidRequestError:
        return group
    beside = str(group.attrs.get("coordinates", "")).split()
    attrs = {**group.attrs, "coordinates": " ".join([*beside, VALID_TIME])}
    return group.with_changes(arrays={**group.arrays, VALID_TIME: valid}, attrs=attrs)


def without_valid_times(group: VirtualGroup) -> VirtualGroup:
    """The group without what `with_valid_times` adds."""
    arrays = {name: array for name, array in group.arrays.items() if name != VALID_TIME}
    attrs = {name: value for name, value in group.attrs.items() if name != "coordinates"}
    beside = str(group.attrs.get("coordinates", "")).split()
    if beside != [VALID_TIME] and beside:
        attrs["coordinates"] = " ".join(name for name in beside if name != VALID_TIME)
    return group.with_changes(arrays=arrays, attrs=attrs)


def _picks(
    group: VirtualGroup,
    axes: ForecastAxes,
    base: TimeBase,
    *,
    after: str | None,
    offset: str | None,
    run: str | None,
) -> Picks:
    if offset is not None:
        return axes.at_offset(_duration_ns(offset))
    if run is not None:
        return axes.of_run(_run_number(axes, base, run))
    picks = axes.best(axes.there(group), 0 if after is None else _duration_ns(after))
    if not picks.run.size:
        raise InvalidRequestError(f"no forecast step is {after} or more ahead")
    return picks


def _run_number(axes: ForecastAxes, base: TimeBase, run: str) -> int:
    if run == "latest":
        return int(np.argmax(axes.runs_ns))
    asked = TimeBase.of({"units": f"seconds since {run}", "calendar": base.calendar})
    if asked is None:
        raise InvalidRequestError(f"{run!r} is no time: write it like 2022-03-01T12:00, or latest")
    (numbers,) = np.nonzero(axes.runs_ns == asked.epoch_ns - base.epoch_ns)
    if not numbers.size:
        raise InvalidRequestError(f"no run of {run}; there are {len(axes.runs_ns)} others")
    return int(numbers[0])


def _coordinate(
    group: VirtualGroup, asked: str | None, names: tuple[str, ...], standard: str, option: str
) -> str:
    """The name of the coordinate of runs, or of steps."""
    own = [name for name, array in group.arrays.items() if array.is_index(name)]
    if asked is not None:
        if asked not in own:
            raise InvalidRequestError(f"no coordinate {asked!r}; there are {', '.join(own)}")
        return asked
    called = [
        name for name in own if text_of(group.arrays[name].attrs, "standard_name") == standard
    ]
    usual = [name for name in names if name in own]
    for name in (*called, *usual):
        return name
    raise InvalidRequestError(
        f"no coordinate has the standard name {standard} or is called {' or '.join(names)}:"
        f" say which it is ({option}=...); there are {', '.join(own)}"
    )


def _unit_ns(group: VirtualGroup, name: str) -> int:
    units = str(group.arrays[name].attrs.get("units", ""))
    known = UNIT_NS.get(units.lower())
    if known is None:
        raise InvalidRequestError(f"{name} has units {units!r}, which are not durations")
    return known


def _run_times(values: NDArray[Any], base: TimeBase) -> tuple[Int64Array, TimeBase]:
    """Times of runs from the first one, and when that is: reference dates may be centuries ago."""
    first = math.floor(values.flat[0]) if values.size and np.isfinite(values.flat[0]) else 0
    wide = values.astype(np.int64) if values.dtype.kind == "u" else values
    since = replace(base, epoch_ns=base.epoch_ns + first * base.unit_ns)
    return _nanoseconds(wide - first, base.unit_ns), since


def _nanoseconds(values: NDArray[Any], unit_ns: int) -> Int64Array:
    if values.dtype.kind in "iu":
        return values.astype(np.int64) * np.int64(unit_ns)
    nanoseconds: Int64Array = np.rint(values.astype(np.float64) * unit_ns).astype(np.int64)
    return nanoseconds


def _duration_ns(text: str) -> int:
    return round(duration_seconds(text.strip()) * 10**9)


def _as_times(
    valid_ns: Int64Array, since: TimeBase, base: TimeBase, dims: tuple[str, ...], units: str
) -> VirtualArray:
    """Valid times, in the largest unit of whole numbers up to hours.

    Parameters
    ----------
    since, base
        From when they are counted, and from when they are to be.

    Raises
    ------
    InvalidRequestError
        If 64 bits do not hold them.
    """
    begin = since.epoch_ns - base.epoch_ns
    unit_ns = next(
        ns for ns in (3600 * 10**9, 10**9, 1) if not (begin % ns or (valid_ns % ns).any())
    )
    if abs(begin // unit_ns) >= 2**62:
        raise InvalidRequestError(f"valid times in nanoseconds, counted as {units}, are too large")
    attrs = {
        "standard_name": "time",
        "units": units_with(units, unit_ns),
        "calendar": base.calendar,
    }
    return VirtualArray.from_numpy(valid_ns // unit_ns + begin // unit_ns, dims, attrs)
