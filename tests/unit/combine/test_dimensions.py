"""Dimensions of files that are written otherwise, and variables that lack the growing one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gridref.combine import Combination, CombineOptions, combine
from gridref.combine.rules.dimensions import (
    _new_dims,
    lengths_along,
    shared_lengths,
    stacked_attributes,
)
from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly


def array(values: Any, dims: tuple[str, ...], **attrs: Any) -> VirtualArray:
    data = np.asarray(values)
    return chunked_array(data, [max(1, n) for n in data.shape], dims, attrs=attrs)


def joined(*groups: VirtualGroup, dim: Any = "t", **options: Any) -> Combination:
    return combine(list(groups), dim, read=read_slowly, options=CombineOptions(**options))


PHONY = ("phony_dim_0", "phony_dim_1")


@pytest.mark.parametrize(
    ("dims", "wanted", "growing", "expected"),
    [
        (("t", "x"), ("t", "x"), ("t",), ("t", "x")),
        (("x", "t"), ("t", "x"), ("t",), ("x", "t")),
        (("t", "y"), ("t", "x"), ("t",), None),
        (PHONY, PHONY[::-1], (), PHONY[::-1]),
        (("x", "phony_dim_1"), ("phony_dim_1", "x"), (), None),
        (("t", "phony_dim_3"), ("t", "phony_dim_1"), ("t",), ("t", "phony_dim_1")),
        (("t", "phony_dim_3"), ("t", "x"), ("t",), None),
        (("s", "phony_dim_3"), ("t", "phony_dim_1"), ("t",), None),
        (("x",), ("t", "x"), ("t",), ("x",)),
        (("x",), ("t", "x"), (), None),
        (("t",), ("t", "x"), ("t",), None),
        (("y",), ("t", "x"), ("t",), None),
        ((), ("t",), ("t",), ()),
        (("x", "x"), ("x", "y"), ("t",), None),
    ],
)
def test_names_that_fit(dims: Any, wanted: Any, growing: Any, expected: Any) -> None:
    assert _new_dims(dims, wanted, growing) == expected


def test_axes_in_another_order_are_turned() -> None:
    values = np.arange(6).reshape(2, 3)
    one = VirtualGroup({"v": array(values, ("t", "x"))})
    other = VirtualGroup({"v": array(values.T + 10, ("x", "t"))})
    done = joined(one, other)
    assert done.group is not None
    assert read_slowly(done.group.arrays["v"]).tolist() == [
        *values.tolist(),
        *(values + 10).tolist(),
    ]
    assert [drift.cause for drift in done.report] == ["dimensions"]


def test_lengths_that_all_groups_share() -> None:
    def group(n: int, m: int | None) -> VirtualGroup:
        below = {} if m is None else {"g": VirtualGroup({"w": array(np.zeros(m), ("t",))})}
        arrays = {"v": array(np.zeros((n, 2)), ("t", "phony_dim_0"))}
        return VirtualGroup(arrays, groups=below)

    growing = ("t", "phony_dim_0")
    assert shared_lengths([group(2, None), group(3, None)], growing) == {}
    assert shared_lengths([group(2, 2), group(3, 3)], growing) == {"t": {0: 2, 1: 3}}
    assert shared_lengths([group(2, 2), group(3, 4)], growing) == {}
    assert shared_lengths([group(2, None), group(3, 3)], growing) == {"t": {0: 2, 1: 3}}


def test_lengths_of_a_group_go_before_those_above() -> None:
    from gridref.combine.columns import Column

    arrays = [array(np.zeros(2), ("t",)), array(np.zeros(3), ("t",))]
    columns = {"v": Column("v", "v", [0, 2], arrays), "w": Column("w", "w", [2, 3], arrays)}
    found = lengths_along(columns, ("t", "s"), {"t": {1: 9, 2: 9}})
    assert found == {"t": {0: 2, 1: 9, 2: 3, 3: 3}, "s": {}}


def field(t: int, x: list[float], below: bool = False) -> VirtualGroup:
    values = 100.0 * t + np.array([x])
    arrays = {
        "t": array([t], ("t",)),
        "x": array(np.array(x), ("x",)),
        "v": array(values, ("t", "x")),
    }
    inner = VirtualGroup({"w": array(values, ("t", "x"))})
    return VirtualGroup(arrays, groups={"g": inner} if below else {})


@pytest.mark.parametrize("below", [False, True])
def test_labels_that_run_the_other_way_round_are_flipped(below: bool) -> None:
    done = joined(
        field(0, [1, 2, 3], below), field(1, [3, 2, 1], below), field(2, [1, 2, 3], below)
    )
    assert done.group is not None
    expected = [[1, 2, 3], [101, 102, 103], [201, 202, 203]]
    assert read_slowly(done.group.arrays["x"]).tolist() == [1, 2, 3]
    assert read_slowly(done.group.arrays["v"]).tolist() == expected
    if below:
        assert read_slowly(done.group.groups["g"].arrays["w"]).tolist() == expected
    (drift,) = done.report.of_cause("direction")
    assert [case.ranges for case in drift.cases] == [((0, 0), (2, 2)), ((1, 1),)]


def test_a_group_with_labels_of_its_own_is_not_flipped_with_the_one_above() -> None:
    def nested(t: int, x: list[float]) -> VirtualGroup:
        return field(t, x).with_changes(groups={"g": field(t, [5, 6, 7])})

    done = joined(nested(0, [1, 2, 3]), nested(1, [3, 2, 1]))
    assert done.group is not None
    inner = done.group.groups["g"]
    assert read_slowly(inner.arrays["x"]).tolist() == [5, 6, 7]
    assert read_slowly(inner.arrays["v"]).tolist() == [[5, 6, 7], [105, 106, 107]]


def test_labels_that_read_the_same_both_ways_are_left() -> None:
    done = joined(field(0, [1, 2, 1]), field(1, [1, 2, 1]))
    assert "direction" not in [drift.cause for drift in done.report]
    done = joined(field(0, [1]), field(1, [1]))
    assert len(done.report) == 0
    done = joined(field(0, [1, 2]), field(1, [2, 1]), compat="override")
    assert done.group is not None
    assert read_slowly(done.group.arrays["v"]).tolist() == [[1, 2], [101, 102]]


def test_other_sizes_are_a_problem_that_names_them() -> None:
    one = VirtualGroup({"v": array(np.zeros((1, 2)), ("t", "x"))})
    other = VirtualGroup({"v": array(np.zeros((1, 3)), ("t", "x"))})
    turned = VirtualGroup({"v": array(np.zeros((2, 1)), ("x", "t"))})
    done = joined(one, other)
    assert [problem.cause for problem in done.problems] == ["shape-differs"]
    assert "sizes along 'x' differ: 2 in input 1; 3 in input 2" in done.problems[0].message
    assert joined(one, turned).group is not None


def test_variables_of_one_group_grow_alike() -> None:
    uneven = VirtualGroup({"v": array(np.zeros(1), ("t",)), "w": array(np.zeros(2), ("t",))})
    done = joined(uneven, uneven)
    assert "shape-differs" in [problem.cause for problem in done.problems]
    assert "2 of v; 4 of w" in str(done.problems[-1].message)


def test_several_dimensions_that_no_input_has() -> None:
    group = VirtualGroup({"v": array(np.zeros(2), ("x",))})
    with pytest.raises(InvalidRequestError, match="any of the dimensions t, s"):
        joined(group, group, dim=["t", "s"])
    assert joined(group, group, dim=["t"]).group is not None
    apart = VirtualGroup({"v": array(np.zeros(1), ("t",)), "w": array(np.zeros(2), ("x",))})
    assert joined(apart, apart, dim=["t", "x"]).group is not None


# Overviews of mosaics


def tile(
    column: int, level_shift: float = 0, *, overview: bool = True, value: int = 1
) -> VirtualGroup:
    from gridref.combine.mosaic import GRID_MAPPING

    def plane(n: int, step: float, shift: float) -> dict[str, VirtualArray]:
        transform = f"{column * 40 + shift} {step} 0 0 0 {-step}"
        mapping = VirtualArray.from_numpy(np.array(0), [], {"GeoTransform": transform})
        data = np.full((n, n), value, "u1")
        return {GRID_MAPPING: mapping, "v": array(data, ("y", "x"), grid_mapping=GRID_MAPPING)}

    groups = {"o": VirtualGroup(plane(2, 20, level_shift))} if overview else {}
    layout = [{"asset": "v"}, *({"asset": "o/v"} for _ in groups)]
    attrs = {"multiscales": {"layout": layout, "k": 1}, "a": 1}
    return VirtualGroup(plane(4, 10, 0), attrs=attrs, groups=groups)


def mosaic(*tiles: VirtualGroup, **options: Any) -> Combination:
    from gridref.combine import combine_mosaic

    return combine_mosaic(tiles, read=read_slowly, options=CombineOptions(**options))


def test_overviews_are_laid_out_with_the_tiles() -> None:
    done = mosaic(tile(0, value=1), tile(1, value=2))
    assert done.group is not None, done.problems
    assert read_slowly(done.group.arrays["v"])[0].tolist() == [1] * 4 + [2] * 4
    assert read_slowly(done.group.groups["o"].arrays["v"])[0].tolist() == [1, 1, 2, 2]
    assert done.group.attrs["multiscales"] == {"layout": [{"asset": "v"}, {"asset": "o/v"}], "k": 1}
    assert done.report.of_cause("overview") == ()


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (tile(1, overview=False), "some inputs lack it"),
        (tile(1, level_shift=10), "off the pixels"),
        (tile(1, level_shift=-20), "pixels (rows, columns) of it overlap"),
    ],
    ids=["lacking", "off", "overlapping"],
)
def test_overviews_that_do_not_fit_are_left_out(second: VirtualGroup, words: str) -> None:
    done = mosaic(tile(0), second)
    assert done.group is not None, done.problems
    assert [*done.group.groups] == []
    assert "multiscales" not in done.group.attrs
    assert done.group.attrs["a"] == 1
    (drift,) = done.report.of_cause("overview")
    assert (drift.variable, drift.resolution) == ("o", "left out")
    assert words in drift.cases[0].value
    assert drift.cases[0].ranges[-1][-1] == 1
    assert [finding.path for finding in done.group.report.skipped] == ["/o"]
    assert read_slowly(done.group.arrays["v"]).shape == (4, 8)


def test_overviews_that_overlap_may_be_shown() -> None:
    done = mosaic(tile(0, value=1), tile(1, level_shift=-20, value=2), overlap="last")
    assert done.group is not None
    assert read_slowly(done.group.groups["o"].arrays["v"])[0].tolist() == [1, 2, 2]
    first = mosaic(tile(0, value=1), tile(1, level_shift=-20, value=2), overlap="first")
    assert first.group is not None
    assert read_slowly(first.group.groups["o"].arrays["v"])[0].tolist() == [1, 1, 2]


# Variables that lack the dimension


def ome(*axes: str) -> dict[str, Any]:
    kinds = {"t": "time", "c": "channel", "y": "space", "x": "space"}
    steps = [{"type": "scale", "scale": [1.0] * len(axes)}]
    image = {
        "name": "image",
        "axes": [{"name": axis, "type": kinds[axis]} for axis in axes],
        "datasets": [{"path": "0/image", "coordinateTransformations": steps}],
    }
    return {"title": "x", "ome": {"version": "0.5", "multiscales": [image]}}


@pytest.mark.parametrize("axes", ["yx", "cyx"])
def test_time_becomes_the_first_axis(axes: str) -> None:
    before = ome(*axes)
    (image,) = stacked_attributes(before, "time")["ome"]["multiscales"]
    assert image["axes"][0] == {"name": "time", "type": "time"}
    assert [axis["name"] for axis in image["axes"][1:]] == list(axes)
    (level,) = image["datasets"]
    assert level["coordinateTransformations"] == [
        {"type": "scale", "scale": [1.0] * (len(axes) + 1)}
    ]
    assert before == ome(*axes)


def test_another_dimension_is_an_axis_without_type() -> None:
    (image,) = stacked_attributes(ome("y", "x"), "slide")["ome"]["multiscales"]
    assert image["axes"][0] == {"name": "slide"}


@pytest.mark.parametrize(("axes", "dim"), [("tyx", "time"), ("cyx", "slide"), ("tyx", "slide")])
def test_what_ome_zarr_does_not_know_is_left_out(axes: str, dim: str) -> None:
    assert stacked_attributes(ome(*axes), dim) == {"title": "x"}


def test_georeferenced_pyramids() -> None:
    layout = [
        {"asset": "band_data", "transform": {"scale": [1.0, 1.0], "translation": [0.0, 0.0]}},
        {"asset": "1/band_data", "derived_from": "band_data", "transform": {"scale": [2.0, 2.0]}},
        {"asset": "2/band_data"},
    ]
    found = stacked_attributes({"multiscales": {"layout": layout}}, "time")
    assert found["multiscales"]["layout"] == [
        {
            "asset": "band_data",
            "transform": {"scale": [1.0, 1.0, 1.0], "translation": [0.0, 0.0, 0.0]},
        },
        {
            "asset": "1/band_data",
            "derived_from": "band_data",
            "transform": {"scale": [1.0, 2.0, 2.0]},
        },
        {"asset": "2/band_data"},
    ]


@pytest.mark.parametrize("strange", [5, [3], [{}], [{"axes": [], "datasets": [{}]}]])
def test_broken_descriptions_are_left_out(strange: Any) -> None:
    assert stacked_attributes({"ome": {"multiscales": strange}}, "time") == {}


@pytest.mark.parametrize("strange", [5, [], {"layout": 3}, {"layout": [1, {"transform": 2}]}])
def test_attributes_of_that_name_that_mean_something_else(strange: Any) -> None:
    attrs = {"multiscales": strange, "ome": "a text"}
    assert stacked_attributes(attrs, "time") == attrs


def test_gaps_leave_doubles_beside_floats_as_they_are() -> None:
    """Files of float32 and float64, and one that lacks the variable."""
    single, double = (
        VirtualGroup(
            {
                "t": VirtualArray.from_numpy(np.array([0.1], dtype), ("time",)),
                "u": VirtualArray.from_numpy(np.array([1.0]), ("time",)),
            }
        )
        for dtype in ("f4", "f8")
    )
    lacking = VirtualGroup({"u": double.arrays["u"]})
    rules = CombineOptions(join="outer")
    t = combine([single, double, lacking], "time", options=rules).unwrap().arrays["t"]
    assert t.dtype == np.float64
    np.testing.assert_array_equal(read_slowly(t), [np.float32(0.1), 0.1, np.nan])
