"""Views of forecasts, against loops over runs and steps."""

from __future__ import annotations

import numpy as np
import pytest

from gridref.api.layout.forecasts import ForecastAxes, _stretches
from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.joining import lay_out
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly

HOUR = 3600 * 10**9


def axes(runs: list[int], steps: list[int]) -> ForecastAxes:
    return ForecastAxes("run", "step", np.array(runs) * HOUR, np.array(steps) * HOUR)


RUNS = [[0, 6, 12], [12, 0, 6], [0], [0, 24]]
STEPS = [[0, 6, 12], [3], [12, 0, 6], [0, 1, 2, 6, 12]]


@pytest.mark.parametrize("runs", RUNS, ids=str)
@pytest.mark.parametrize("steps", STEPS, ids=str)
@pytest.mark.parametrize("after", [0, 1, 6, 99])
def test_the_newest_run_of_each_time(runs: list[int], steps: list[int], after: int) -> None:
    rng = np.random.default_rng(len(runs) + len(steps))
    for there in (
        np.ones((len(runs), len(steps)), bool),
        rng.random((len(runs), len(steps))) > 0.4,
    ):
        expected: dict[int, tuple[int, int, int]] = {}
        for i, run in enumerate(runs):
            for j, step in enumerate(steps):
                known = expected.get(run + step)
                if there[i, j] and step >= after and (known is None or known[0] < run):
                    expected[run + step] = (run, i, j)
        picks = axes(runs, steps).best(there, after * HOUR)
        assert (picks.valid_ns // HOUR).tolist() == sorted(expected)
        assert picks.run.tolist() == [expected[at][1] for at in sorted(expected)]
        assert picks.step.tolist() == [expected[at][2] for at in sorted(expected)]


def test_one_distance_ahead_and_one_run() -> None:
    picks = axes([12, 0, 6], [6, 0, 3]).at_offset(3 * HOUR)
    assert (picks.valid_ns // HOUR).tolist() == [3, 9, 15]
    assert (picks.run.tolist(), picks.step.tolist()) == ([1, 2, 0], [2, 2, 2])
    picks = axes([12, 0, 6], [6, 0, 3]).of_run(2)
    assert (picks.valid_ns // HOUR).tolist() == [6, 9, 12]
    assert (picks.run.tolist(), picks.step.tolist()) == ([2, 2, 2], [1, 2, 0])
    with pytest.raises(InvalidRequestError, match=r"no step is 1h; there are 6h, 0h, 3h"):
        axes([0], [6, 0, 3]).at_offset(HOUR)


def cube(dims: tuple[str, ...]) -> tuple[VirtualArray, np.ndarray]:
    sizes = {"run": 3, "step": 3, "x": 2}
    values = np.arange(18, dtype="i4").reshape([sizes[dim] for dim in dims])
    return chunked_array(values, [1] * len(dims), dims), values


@pytest.mark.parametrize(
    "dims",
    [
        ("run", "step"),
        ("step", "run"),
        ("run", "step", "x"),
        ("x", "step", "run"),
        ("run", "x", "step"),
    ],
)
def test_views_have_valid_times_in_place_of_runs_and_steps(dims: tuple[str, ...]) -> None:
    if len(dims) == 2:
        values = np.arange(9, dtype="i4").reshape(3, 3)
        array = chunked_array(values, (1, 1), dims)
    else:
        array, values = cube(dims)
    of_run = VirtualArray.from_numpy(np.array([10, 20, 30]), ["run"])
    other = VirtualArray.from_numpy(np.array([7, 8]), ["x"])
    labels = {"run": of_run, "x": other, "valid_time": other}
    group = VirtualGroup({"v": array, **labels}, attrs={"coordinates": "run gone x"})
    forecast = axes([0, 6, 12], [0, 6, 12])
    for picks in (
        forecast.best(np.ones((3, 3), bool)),
        forecast.best(np.ones((3, 3), bool), 6 * HOUR),
        forecast.at_offset(6 * HOUR),
        forecast.of_run(1),
    ):
        times = VirtualArray.from_numpy(picks.valid_ns, ["valid_time"])
        shown = forecast.view(group, picks, times)
        found = shown.arrays["v"]
        moved = np.moveaxis(values, [dims.index("run"), dims.index("step")], [0, 1])
        picked = moved[picks.run, picks.step]
        place = min(dims.index("run"), dims.index("step"))
        assert found.dims.index("valid_time") == place
        np.testing.assert_array_equal(np.moveaxis(read_slowly(found), place, 0), picked)
        assert len(found.dims) == len(dims) - 1
        run = shown.arrays["run"]
        assert run.dims == ("valid_time",)
        assert read_slowly(run).tolist() == np.array([10, 20, 30])[picks.run].tolist()
        assert shown.arrays["x"].dims == ("x",)
        assert shown.attrs["coordinates"] == "run x"
        assert next(iter(shown.arrays)) == "valid_time"


def test_which_elements_there_are() -> None:
    tile = chunked_array(np.ones((1, 2), "i4"), (1, 2), ("run", "step"))
    array = lay_out([tile, tile], [[0, 0], [2, 1]], [3, 4])
    beside = chunked_array(np.ones(3), (3,), ("run",))
    forecast = axes([0, 6, 12], [0, 1, 2, 3])
    there = forecast.there(VirtualGroup({"v": array, "w": beside}))
    assert there.astype(int).tolist() == [[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 1, 0]]
    assert not forecast.there(VirtualGroup({"w": beside})).any()


@pytest.mark.parametrize(
    ("run", "step", "expected"),
    [
        ([], [], [(0, 1)]),
        ([0], [0], [(0, 1)]),
        ([0, 1, 2], [5, 5, 5], [(0, 3)]),
        ([0, 0, 1], [4, 5, 4], [(0, 2), (2, 3)]),
        ([0, 1, 1, 0], [1, 2, 3, 4], [(0, 1), (1, 3), (3, 4)]),
    ],
)
def test_stretches_have_a_run_or_a_step_in_common(
    run: list[int], step: list[int], expected: list[tuple[int, int]]
) -> None:
    from gridref.api.layout.forecasts import Picks

    picks = Picks(np.arange(len(run)), np.array(run, np.int64), np.array(step, np.int64))
    assert [(part.start, part.stop) for part in _stretches(picks)] == expected
