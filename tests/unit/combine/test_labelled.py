"""Stacks: inputs laid along a new dimension, with a label for each."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gridref import concat
from gridref.combine import combine
from gridref.errors import CombineError, InvalidRequestError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly


def field(start: float, **attrs: Any) -> VirtualGroup:
    values = np.arange(start, start + 6).reshape(2, 3)
    return VirtualGroup({"t": chunked_array(values, (2, 2), ("y", "x"), attrs=attrs)})


def test_labels_become_the_coordinate() -> None:
    group = concat((field(10.0 * k) for k in range(3)), "run", labels=[5, 7, 6])
    expected = np.stack([np.arange(10.0 * k, 10.0 * k + 6).reshape(2, 3) for k in range(3)])
    np.testing.assert_array_equal(read_slowly(group.arrays["t"]), expected)
    assert group.arrays["t"].dims == ("run", "y", "x")
    np.testing.assert_array_equal(read_slowly(group.arrays["run"]), [5, 7, 6])


def test_a_dimension_that_exists_cannot_be_stacked() -> None:
    inputs = [field(0.0), field(10.0)]
    advice = "'y' of length 2.*along the existing one with concat_dim='y'"
    with pytest.raises(InvalidRequestError, match=advice):
        concat(inputs, "y", labels=[1, 2])
    values = read_slowly(concat(inputs, "y").arrays["t"])  # the advice
    np.testing.assert_array_equal(values[:, 0], [0, 3, 10, 13])


def test_without_labels_there_is_no_coordinate() -> None:
    assert list(concat([field(0.0), field(1.0)], "run").arrays) == ["t"]


@pytest.mark.parametrize(
    ("labels", "expected", "units"),
    [
        ([1, 2], [1, 2], None),
        (["a", "bc"], ["a", "bc"], None),
        (np.array([1, 2], object), [1, 2], None),
        (pd.Series(["2020", "2021"], dtype=object), ["2020", "2021"], None),
        (np.array(["2020-01-01", "2020-01-02"], "M8[D]"), [18262, 18263], "days"),
        (np.array(["2020-01", "2020-02"], "M8[M]"), [18262, 18293], "days"),
        (np.array([0, 7], "M8[W]"), [0, 49], "days"),
        (np.array([0, 7], "M8[s]"), [0, 7], "seconds"),
        (np.array([0, 1], "M8[10s]"), [0, 10 * 10**9], "nanoseconds"),
        ([pd.Timestamp(7), pd.Timestamp(8)], [7, 8], "nanoseconds"),
        (
            [dt.date(1970, 1, 2), dt.datetime.fromisoformat("1970-01-01T00:00:01")],
            [864 * 10**8, 10**6],
            "microseconds",
        ),
    ],
)
def test_labels_are_kept_as_cf_says(labels: Any, expected: list[Any], units: str | None) -> None:
    found = concat([field(0.0), field(1.0)], "time", labels=labels, overlap="keep").arrays["time"]
    assert read_slowly(found).tolist() == expected
    calendar = {"units": f"{units} since 1970-01-01", "calendar": "proleptic_gregorian"}
    assert found.attrs == (calendar if units else {})


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1], "1 for more"),
        ([1, 2, 3], "3 for 2"),
        (5, "of shape"),
        ([[1, 2]], "of shape"),
        ([object(), 2], "numbers, strings or times"),
        ([None, 1], "several kinds"),
        ([None, dt.date(2020, 1, 1)], "NaT"),
        ([1j, 2j], "numbers, strings or times"),
        (np.array(["NaT", "2020"], "M8[s]"), "NaT"),
        (np.array([1, 2], "M8[ps]"), "that ns cannot count"),
        ([10**30, 1], "numbers, strings or times"),
    ],
    ids=range(11),
)
def test_labels_that_do_not_fit_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        concat([field(0.0), field(1.0)], "run", labels=labels)


def test_labels_are_of_one_dimension() -> None:
    with pytest.raises(InvalidRequestError, match="labels need the name of one dimension"):
        concat([field(0.0), field(1.0)], ["run", "y"], labels=[1, 2])


def test_length_one_is_laid_along_and_labelled_anew() -> None:
    short = [
        VirtualGroup({"t": VirtualArray.from_numpy(np.array([float(k)]), ("run",))})
        for k in range(2)
    ]
    group = concat(short, "run", labels=[8, 9])
    assert read_slowly(group.arrays["t"]).tolist() == [0, 1]
    assert read_slowly(group.arrays["run"]).tolist() == [8, 9]


def test_a_label_that_repeats_is_an_overlap() -> None:
    both = [field(0.0), field(10.0)]
    with pytest.raises(CombineError, match="more than once"):
        concat(both, "run", labels=[1, 1])
    group = concat(both, "run", labels=[1, 1], overlap="last")
    assert read_slowly(group.arrays["t"])[0, 0, 0] == 10


def test_drift_is_reported_as_in_a_concatenation() -> None:
    done = combine([field(0.0, title="a"), field(1.0, title="b")], "run")
    assert [drift.cause for drift in done.report] == ["attributes"]
    assert done.group is not None
