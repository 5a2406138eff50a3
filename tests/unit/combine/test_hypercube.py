"""Variables that lack some of a cube's dimensions, and labels that only some files have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gridref.combine import Combination, CombineOptions, Hypercube, combine
from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly


def array(values: Any, dims: str = "", **attrs: Any) -> VirtualArray:
    data = np.asarray(values)
    return chunked_array(data, [max(1, n) for n in data.shape], tuple(dims), attrs=attrs)


def field(t: list[int], x: list[int], **more: VirtualArray) -> VirtualGroup:
    values = 100 * np.array(t)[:, np.newaxis] + np.array(x)
    arrays = {"t": array(t, "t"), "x": array(x, "x"), "v": array(values, "tx")}
    return VirtualGroup({**arrays, **more})


def cube(*groups: VirtualGroup, **options: Any) -> Combination:
    return combine(
        list(groups),
        Hypercube(("t", "x")),
        read=read_slowly,
        options=CombineOptions(**options),
    )


def values_of(done: Combination, name: str) -> list[Any]:
    assert done.group is not None, done.problems
    found: list[Any] = read_slowly(done.group.arrays[name]).tolist()
    return found


PLACES = [([0], [0]), ([0], [1]), ([1], [0]), ([1], [1])]


@pytest.mark.parametrize(
    ("per_file", "options", "expected", "cause"),
    [
        ([5, 5, 5, 5], {}, 5, None),
        ([5, 6, 7, 8], {}, [[5, 6], [7, 8]], "repeated"),
        ([5, 5, 5, 6], {}, [[5, 5], [5, 6]], "repeated"),
        ([5, 6, 7, 8], {"compat": "override"}, 5, None),
        ([5, 5, 5, 5], {"variables": "all"}, [[5, 5], [5, 5]], "repeated"),
    ],
)
def test_single_values_are_labels_where_they_differ(
    per_file: list[int], options: dict[str, Any], expected: Any, cause: str | None
) -> None:
    groups = [field(t, x, s=array(value)) for (t, x), value in zip(PLACES, per_file, strict=True)]
    done = cube(*groups, **options)
    assert values_of(done, "s") == expected
    assert [drift.cause for drift in done.report] == ([cause] if cause else [])
    assert values_of(done, "v") == [[0, 1], [100, 101]]


def test_packed_single_values_are_no_labels() -> None:
    groups = [
        field(t, x, s=array(np.int16(n), scale_factor=2.0)) for n, (t, x) in enumerate(PLACES)
    ]
    done = cube(*groups)
    assert "repeated" not in [drift.cause for drift in done.report]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, None),
        ({"compat": "override"}, [10, 11]),
        ({"variables": "different"}, [[10, 11], [10, 12]]),
        ({"variables": "all"}, [[10, 11], [10, 12]]),
        ({"repeated": {"w": "different"}}, [[10, 11], [10, 12]]),
        ({"repeated": {"u": "different"}}, None),
        ({"conflicts": "skip"}, "dropped"),
    ],
)
def test_what_lacks_a_dimension_agrees_or_is_repeated(
    options: dict[str, Any], expected: Any
) -> None:
    per_file = [10, 11, 10, 12]
    groups = [
        field(t, x, w=array([value], "x")) for (t, x), value in zip(PLACES, per_file, strict=True)
    ]
    done = cube(*groups, **options)
    if expected is None:
        assert [problem.cause for problem in done.problems] == ["values-differ"]
        assert "no dimension t" in done.problems[0].message
    elif expected == "dropped":
        assert done.group is not None
        assert "w" not in done.group.arrays
    else:
        assert values_of(done, "w") == expected


def test_bounds_that_lack_a_dimension_agree_or_are_repeated() -> None:
    def file(t: int, factor: float) -> VirtualGroup:
        edges = factor * np.arange(4.0).reshape(2, 2)
        plain = field([t], [0, 1], edges=array(edges, "xn"))
        bounded = plain.arrays["x"].with_changes(attrs={"bounds": "edges"})
        return plain.with_changes(arrays={**plain.arrays, "x": bounded})

    assert values_of(cube(file(0, 1), file(1, 1)), "edges") == [[0, 1], [2, 3]]
    assert [problem.cause for problem in cube(file(0, 1), file(1, 2)).problems] == ["values-differ"]
    wide = cube(file(0, 1), file(1, 2), variables="different")
    assert values_of(wide, "edges") == [[[0, 1], [2, 3]], [[0, 2], [4, 6]]]


def test_what_agrees_is_kept_once() -> None:
    groups = [field(t, x, w=array([7 + x[0]], "x")) for t, x in PLACES]
    assert values_of(cube(*groups), "w") == [7, 8]
    assert values_of(cube(*groups, variables="different"), "w") == [7, 8]
    packed = [
        field(t, x, w=array(np.array([8 // scale], "i2"), "x", scale_factor=float(scale)))
        for (t, x), scale in zip(PLACES, (1, 2, 2, 4), strict=True)
    ]
    assert values_of(cube(*packed), "w") == [8.0, 8.0]


@pytest.mark.parametrize("same", [True, False])
def test_coordinates_may_be_in_several_files(same: bool) -> None:
    """The same label of x in two files of one t, with coordinates beside it."""
    one = field([0], [0, 1], lon=array([[5.0, 6.0]], "tx"))
    two = field(
        [0], [1, 2], lon=array([[6.0 if same else 7.0, 8.0]], "tx"), w=array([[1, 2]], "tx")
    )
    one = VirtualGroup({name: one.arrays[name] for name in ("t", "x", "lon")}, attrs={})
    v = two.arrays["w"].with_changes(attrs={"coordinates": "lon"})
    two = VirtualGroup(
        {"t": two.arrays["t"], "x": two.arrays["x"], "lon": two.arrays["lon"], "w": v}
    )
    done = cube(one, two)
    if same:
        assert values_of(done, "lon") == [[5.0, 6.0, 8.0]]
        assert done.group is not None
    else:
        assert [problem.cause for problem in done.problems] == ["overlap"]


@pytest.mark.parametrize("call", [cube, lambda: cube(field([0], [0]), overlap="keep")])
def test_calls_that_mean_nothing(call: Any) -> None:
    with pytest.raises(InvalidRequestError):
        call()


def test_files_of_other_dimensions_are_told() -> None:
    short = VirtualGroup({"t": array(1), "x": array([0, 1], "x"), "v": array([100, 101], "x")})
    done = cube(field([0], [0, 1]), short)
    assert values_of(done, "v") == [[0, 1], [100, 101]]
    assert "dimensions" in [drift.cause for drift in done.report]


def test_labels_that_no_file_says() -> None:
    done = cube(field([0], [0]), VirtualGroup({"x": array([1], "x"), "v": array([9], "x")}))
    assert done.group is None
    assert [problem.cause for problem in done.problems] == ["labels-missing"]
    assert "no labels along t" in done.problems[0].message


@pytest.mark.parametrize(
    ("second", "cause", "words"),
    [
        ([np.nan, 1.0], "labels-differ", "cannot be compared"),
        ([2.0, 2.0], "overlap", "labels repeat within a file"),
        (["a", "b"], "dtype-differs", "no common one"),
        ([2.0, 3.0], None, ""),
    ],
    ids=range(4),
)
def test_labels_that_place_nothing(second: list[Any], cause: str | None, words: str) -> None:
    def part(labels: list[Any]) -> VirtualGroup:
        arrays = {"t": array([0], "t"), "x": array(np.array(labels), "x")}
        return VirtualGroup({**arrays, "v": array([[1, 2]], "tx")})

    done = cube(part([0.0, 1.0]), part(second))
    assert [problem.cause for problem in done.problems] == ([cause] if cause else [])
    assert (done.group is None) == (cause is not None)
    assert not cause or words in done.problems[0].message


# Labels for stacking


def test_single_values_that_differ_where_labels_cannot_be_compared() -> None:
    groups = [field(t, x, s=array(np.int16(n))) for n, (t, x) in enumerate(PLACES)]
    units = ({"units": "days since 2001-01-01", "calendar": name} for name in ("noleap", "360_day"))
    parts = [
        group.with_changes(arrays={**group.arrays, "t": array([0], "t", **attrs)})
        for group, attrs in zip(groups, units, strict=False)
    ]
    done = cube(*parts)
    assert done.group is None
    assert "calendar-differs" in {problem.cause for problem in done.problems}


def beside(label: int, z: list[int]) -> VirtualGroup:
    """A file at one place, with labels along a dimension that does not grow."""
    more = {"z": array(z, "z"), "w": array(10 * label + np.array([[z]]), "txz")}
    return field([label], [0], **more)


JOINED = [("left", [3, 1]), ("right", [1, 2]), ("override", [3, 1]), ("inner", [1])]


@pytest.mark.parametrize(("join", "expected"), JOINED)
def test_the_first_and_last_of_a_join_are_so_by_label(join: str, expected: list[int]) -> None:
    files = [beside(2, [1, 4]), beside(1, [3, 1]), beside(3, [1, 2])]
    assert values_of(cube(*files, join=join), "z") == expected
    falling = {2: [1, 4], 4: [3, 1], 0: [1, 2]}
    long = [field([n + 1, n], [0], z=array(own, "z")) for n, own in falling.items()]
    assert values_of(cube(*long, join=join), "z") == expected


def test_labels_are_never_repeated() -> None:
    done = cube(beside(1, [3, 1]), beside(0, [3, 1]), variables="all", repeated={"z": "all"})
    assert values_of(done, "z") == [3, 1]
    assert values_of(done, "w") == [[[3, 1]], [[13, 11]]]
