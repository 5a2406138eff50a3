"""Views of forecasts: one value for each valid time, chosen from runs and steps. Pure.

A cube of forecasts has a dimension of runs (when a forecast began) and one of steps (how far ahead
it looks). The valid time of an element is the sum of both (CF conventions 1.11, standard names
``forecast_reference_time``, ``forecast_period`` and ``time``). `ForecastAxes` picks one run and
step for each valid time and rearranges the arrays. The views are those of the Unidata Forecast
Model Run Collections: best time series, constant forecast offset, one run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.indexing import isel
from gridref.model.joining import concatenate
from gridref.model.reshaping import transpose
from gridref.typing import Int64Array

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
                found |= self._blocks(array)
        return found

    def _blocks(self, array: VirtualArray) -> NDArray[np.bool_]:
        axes = [array.dims.index(dim) for dim in (self.run, self.step)]
        present = np.asarray(array.blocks.encoding != MISSING_BLOCK)
        present = np.moveaxis(present.reshape(array.grid.grid_shape), axes, (0, 1))
        any_there = present.reshape(*present.shape[:2], -1).any(axis=2)
        for at, axis in enumerate(axes):
            grid_axis = array.grid.axes[axis]
            starts = grid_axis.starts(np.arange(grid_axis.n_chunks))
            lengths = np.diff(np.append(starts, grid_axis.extent))
            any_there = np.repeat(any_there, lengths, axis=at)
        return any_there

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
