"""Fragments of aggregation variables at their places, with what their files say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gridref.api.aggregations import Fragment, combine_fragments
from gridref.combine import CombineOptions
from gridref.model.array import VirtualArray
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly


def fragment(corner: tuple[int, int], values: Any, dtype: str = "i2", **attrs: Any) -> Fragment:
    data = np.array(values, dtype)
    return Fragment(
        chunked_array(data, data.shape, ("y", "x"), attrs=attrs), corner, f"{corner}.nc"
    )


def combined(
    attrs: dict[str, Any], shape: tuple[int, int], *fragments: Fragment, **options: Any
) -> Any:
    return combine_fragments(
        "v", attrs, shape, fragments, read=read_slowly, options=CombineOptions(**options)
    )


def shown(done: Any) -> VirtualArray:
    assert done.group is not None, done.problems
    array = done.group.arrays["v"]
    assert isinstance(array, VirtualArray)
    return array


def test_fragments_lie_at_their_corners() -> None:
    done = combined(
        {"units": "m", "k": 1},
        (2, 3),
        fragment((0, 2), [[3], [6]], units="m"),
        fragment((0, 0), [[1, 2], [4, 5]], units="m"),
    )
    array = shown(done)
    assert read_slowly(array).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert (array.dtype, dict(array.attrs)) == (np.dtype("i2"), {"k": 1, "units": "m"})
    assert len(done.report) == 0


def test_what_no_fragment_holds_is_missing() -> None:
    array = shown(combined({}, (2, 2), fragment((0, 0), [[1, 2]], _FillValue=np.int16(-9))))
    assert read_slowly(array).tolist() == [[1, 2], [-9, -9]]
    bare = shown(combined({"_FillValue": np.int16(-7)}, (2, 2), fragment((1, 0), [[1, 2]])))
    assert read_slowly(bare).tolist() == [[-7, -7], [1, 2]]
    assert bare.attrs["_FillValue"] == -7
    none = shown(combined({}, (2, 2), fragment((1, 0), [[1, 2]])))
    np.testing.assert_array_equal(read_slowly(none), [[np.nan, np.nan], [1, 2]])


@pytest.mark.parametrize(
    ("own", "variable", "expected"),
    [
        ({}, {"units": "days since 2000-01-01"}, [[1, 2]]),
        ({"units": "days since 2000-01-02"}, {"units": "days since 2000-01-01"}, [[2, 3]]),
        ({"units": "days since 2000-01-02"}, {}, [[1, 2]]),
    ],
)
def test_fragments_are_in_the_units_of_the_variable(own: Any, variable: Any, expected: Any) -> None:
    array = shown(combined(variable, (1, 2), fragment((0, 0), [[1, 2]], "i4", **own)))
    assert read_slowly(array).tolist() == expected
    assert array.attrs.get("units") == (variable or own)["units"]


def test_a_fill_value_of_another_type_is_not_the_fragments() -> None:
    array = shown(combined({"_FillValue": np.float32(-7)}, (1, 2), fragment((0, 0), [[1, 2]])))
    assert "_FillValue" not in array.attrs
    own = fragment((0, 0), [[1, 2]], missing_value=np.int16(5))
    array = shown(combined({"_FillValue": np.int16(-7)}, (1, 2), own))
    assert "_FillValue" not in array.attrs
    assert array.attrs["missing_value"] == 5


def test_packings_of_fragments_are_their_own() -> None:
    parts = [
        fragment((0, 0), [[1, 2]], scale_factor=0.5),
        fragment((1, 0), [[3, 4]], scale_factor=0.25),
    ]
    done = combined({"scale_factor": 9.0, "k": 1}, (2, 2), *parts)
    array = shown(done)
    assert read_slowly(array).tolist() == [[0.5, 1.0], [0.75, 1.0]]
    assert "scale_factor" in array.attrs  # which the variable says of its own
    alike = shown(combined({}, (1, 2), parts[0]))
    assert (alike.attrs["scale_factor"], read_slowly(alike).tolist()) == (0.5, [[1, 2]])


def test_fragments_that_do_not_fit_are_a_problem() -> None:
    done = combined(
        {"units": "m"},
        (2, 2),
        fragment((0, 0), [[1, 2]], units="m"),
        fragment((1, 0), [[3, 4]], units="K"),
    )
    assert done.group is None
    assert [problem.cause for problem in done.problems] == ["units-differ"]
    assert "(1, 0).nc" in str(done.problems[0])
