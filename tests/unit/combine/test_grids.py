"""Inputs of several grids: which lie on one, what the groups are called, what they hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gridref.combine import Combination, Drift, DriftReport, in_groups
from gridref.combine.georeference import Misfit, Raster
from gridref.combine.grids import by_grid
from gridref.combine.mosaic import held_rasters
from gridref.errors import InvalidRequestError, Problem
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.placing import lay_out
from gridref.testing.builders import chunked_array

UTM = 'PROJCRS["utm 32", ID["EPSG",32632]]'
OTHER = 'PROJCRS["utm 33", ID["EPSG",32633]]'
NAMELESS = 'PROJCRS["somewhere"]'
FIRST = Raster("a", 0.0, 10.0, 0.0, -10.0, 4, 6, UTM)


def names(*rasters: Raster | Misfit) -> dict[str, list[int]]:
    groups = [VirtualGroup(attrs={"n": number}) for number in range(len(rasters))]
    found = by_grid(groups, lambda group: rasters[group.attrs["n"]], 0.1)
    return {name: [group.attrs["n"] for group in part] for name, part in found.items()}


SHIFTED = replace(FIRST, x0=5.0)
COARSE = replace(FIRST, dx=20.0, dy=-20.0)
NOWHERE = Misfit("not-georeferenced", "")


@pytest.mark.parametrize(
    ("rasters", "expected"),
    [
        ([FIRST], {"": [0]}),
        ([FIRST, replace(FIRST, x0=40.0)], {"": [0, 1]}),
        ([FIRST, NOWHERE, FIRST], {"": [0, 2, 1]}),
        ([NOWHERE], {"": [0]}),
        ([NOWHERE, FIRST, COARSE], {"10": [1, 0], "20": [2]}),
        ([FIRST, COARSE, FIRST, COARSE], {"10": [0, 2], "20": [1, 3]}),
        ([FIRST, SHIFTED], {"grid": [0], "grid_2": [1]}),
        ([FIRST, SHIFTED, replace(FIRST, x0=2.5)], {"grid": [0], "grid_2": [1], "grid_3": [2]}),
        ([FIRST, replace(FIRST, crs=OTHER)], {"epsg_32632": [0], "epsg_32633": [1]}),
        ([FIRST, replace(FIRST, crs=NAMELESS)], {"epsg_32632": [0], "crs_2": [1]}),
        (
            [FIRST, replace(COARSE, crs=OTHER), SHIFTED],
            {"epsg_32632_10": [0], "epsg_32633_20": [1], "epsg_32632_10_2": [2]},
        ),
        ([FIRST, replace(FIRST, dx=10.5)], {"10": [0], "10.5": [1]}),
        ([FIRST, replace(FIRST, dy=-20.0)], {"10": [0], "10_2": [1]}),
    ],
    ids=range(13),
)
def test_grids_are_named_by_what_tells_them_apart(
    rasters: list[Raster | Misfit], expected: dict[str, list[int]]
) -> None:
    assert names(*rasters) == expected


def test_no_inputs_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="no inputs"):
        names()


def part(name: str, *, problem: bool = False) -> Combination:
    drift = Drift.of("gap", name, {"jump": [0]}, "left")
    problems = (Problem("overlap", f"in {name}"),) if problem else ()
    group = None if problem else VirtualGroup(attrs={"of": name})
    return Combination(group, DriftReport((drift,), (f"{name}.tif",)), problems)


def test_each_grid_is_a_group() -> None:
    alone = part("v")
    assert in_groups({"": alone}) is alone
    done = in_groups({"10": part("v"), "20": part("")})
    assert done.group is not None
    assert {name: group.attrs["of"] for name, group in done.group.groups.items()} == {
        "10": "v",
        "20": "",
    }
    assert [drift.variable for drift in done.report] == ["10/v", "20"]
    assert done.report.files == ("v.tif", ".tif")
    failed = in_groups({"10": part("v"), "20": part("w", problem=True)})
    assert failed.group is None
    assert [(problem.variable, problem.message) for problem in failed.problems] == [("20", "in w")]
    assert len(failed.report) == 2


def laid(places: list[list[int]], shape: list[int], dims: tuple[str, ...]) -> VirtualArray:
    tile = [1] * len(shape)
    tile[-2:] = [2, 3]
    array = chunked_array(np.ones(tile, "u1"), tile, dims)
    return lay_out([array] * len(places), places, shape)


def boxes(rasters: list[Raster]) -> list[tuple[Any, ...]]:
    found = [(int(-r.y0 / 10), int(r.x0 / 10), r.n_rows, r.n_columns, r.labels) for r in rasters]
    return sorted(found, key=str)


def test_an_input_without_holes_is_one_raster() -> None:
    array = chunked_array(np.ones((4, 6), "u1"), (2, 3), ("y", "x"))
    arrays = {"v": array, "spatial_ref": chunked_array(np.array(0), (), ())}
    (alone,) = held_rasters(FIRST, arrays, {}, ("y", "x"), merges=False)
    assert alone == replace(FIRST, labels=(("",),))
    labels = {"t": [5, 6], "z": ["a"]}
    (several,) = held_rasters(FIRST, {**arrays, "w": array}, labels, ("y", "x"), merges=True)
    assert several.labels == ((5, "a", "v"), (5, "a", "w"), (6, "a", "v"), (6, "a", "w"))


def test_pixels_around_holes_are_boxes() -> None:
    array = laid([[0, 0], [0, 3], [2, 3]], [4, 6], ("y", "x"))
    found = held_rasters(FIRST, {"v": array}, {}, ("y", "x"), merges=False)
    held = np.zeros((4, 6), int)
    for top, left, n_rows, n_columns, own in boxes(found):
        held[top : top + n_rows, left : left + n_columns] += 1
        assert own == (("",),)
    expected = np.ones((4, 6), int)
    expected[2:, :3] = 0
    assert held.tolist() == expected.tolist()


@pytest.mark.parametrize("dims", [("t", "y", "x"), ("t", "b", "y", "x")])
def test_holes_of_some_labels(dims: tuple[str, ...]) -> None:
    """Label 5 of the left half, labels 6 and 7 of the right one."""
    n = len(dims) - 3
    places = [[t, *[0] * n, row, 3 * (t > 0)] for t in range(3) for row in (0, 2)]
    array = laid(places, [3, *[1] * n, 4, 6], dims)
    found = held_rasters(FIRST, {"v": array}, {"t": [5, 6, 7]}, ("y", "x"), merges=False)
    shown = {(top, left, rows, columns): own for top, left, rows, columns, own in boxes(found)}
    held = {label: np.zeros((4, 6), int) for label in (5, 6, 7)}
    for (top, left, rows, columns), own in shown.items():
        for label, name in own:
            assert name == ""
            held[label][top : top + rows, left : left + columns] = 1
    assert held[5].tolist() == [[1, 1, 1, 0, 0, 0]] * 4 or held[5].sum() == 12


def test_each_variable_has_pixels_of_its_own_where_files_are_merged() -> None:
    left = laid([[0, 0], [2, 0]], [4, 6], ("y", "x"))
    whole = laid([[0, 0], [0, 3], [2, 0], [2, 3]], [4, 6], ("y", "x"))
    found = held_rasters(FIRST, {"v": left, "w": whole}, {}, ("y", "x"), merges=True)
    of = {own[0][0]: (rows, columns) for _, _, rows, columns, own in boxes(found)}
    assert of == {"v": (4, 3), "w": (4, 6)}
