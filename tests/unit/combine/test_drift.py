"""Each kind of drift, resolved or reported."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import xarray as xr

from gridref import concat
from gridref.api.readable import reader_for
from gridref.combine import CombineOptions, DriftReport, combine
from gridref.errors import CombineError, InvalidRequestError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly


def numbers(values: Any, dims: Any = ("time",), chunks: Any = None, **attrs: Any) -> VirtualArray:
    data = np.asarray(values)
    chunks = chunks or [max(1, -(-n // 2)) for n in data.shape]
    fill = attrs.get("_FillValue")
    return chunked_array(data, chunks, dims, attrs=attrs, fill_value=fill)


def group(**arrays: VirtualArray) -> VirtualGroup:
    return VirtualGroup(arrays)


def decoded(array: VirtualArray) -> np.ndarray:
    """Values as xarray shows them."""
    raw = xr.Variable(array.dims, read_slowly(array), dict(array.attrs))
    return xr.conventions.decode_cf_variable("v", raw, decode_times=True).values


def expected(*arrays: VirtualArray) -> np.ndarray:
    return np.concatenate([decoded(array) for array in arrays])


def causes(report: DriftReport) -> set[str]:
    return {drift.cause for drift in report}


def problems(*groups: VirtualGroup, dim: str = "time", **options: Any) -> dict[str, str]:
    result = combine(list(groups), dim, read=read_slowly, options=CombineOptions(**options))
    assert result.group is None
    return {problem.cause: str(problem) for problem in result.problems}


# Packing


def test_unpacked_cubes_combine_again() -> None:
    parts = [
        numbers(np.int16([1, -9, 3]), scale_factor=0.1, _FillValue=np.int16(-9)),
        numbers(np.int16([-9, 5]), scale_factor=0.2, _FillValue=np.int16(-9)),
        numbers(np.int16([7, 8]), scale_factor=0.3),
    ]
    twice = concat([concat(parts[:2], "time"), parts[2]], "time")
    np.testing.assert_array_equal(decoded(twice), expected(*parts))


def test_missing_chunks_of_packed_blocks_are_nan() -> None:
    parts = [
        chunked_array(
            np.arange(6, dtype="i2"),
            (2,),
            ("time",),
            attrs={"scale_factor": 0.1, "_FillValue": np.int16(-9)},
            fill_value=np.int16(-9),
            absent=[1],
        ),
        numbers(np.int16([3]), scale_factor=0.2, _FillValue=np.int16(-9)),
    ]
    np.testing.assert_array_equal(decoded(concat(parts, "time")), expected(*parts))


# Dtypes


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        (np.int16([1]), np.int32([70_000]), "int32"),
        (np.float32([0.1]), np.float64([0.1]), "float64"),
        (np.array([b"ab"]), np.array([b"abcdef"]), "S6"),
        (np.array(["a"]), np.array(["bcde"]), "U4"),
        (np.uint8([200]), np.int8([-1]), "int16"),
        (np.uint8([200]), np.float32([0.5]), "float32"),
        (np.int32([2**31 - 1]), np.float32([0.5]), "float64"),
    ],
)
def test_dtypes_are_promoted_safely(one: Any, other: Any, common: str) -> None:
    result = combine([group(v=numbers(one)), group(v=numbers(other))], "time")
    assert result.group is not None
    joined = result.group.arrays["v"]
    assert joined.dtype == np.dtype(common)
    np.testing.assert_array_equal(read_slowly(joined), np.concatenate([one, other]))
    assert causes(result.report) == {"dtype"}


def test_lossy_promotion_only_if_asked() -> None:
    parts = [numbers(np.int64([2**53 + 1])), numbers(np.float32([0.5]))]
    with pytest.raises(CombineError, match="lossy=True"):
        concat(parts, "time")
    assert concat(parts, "time", lossy=True).dtype == np.float64
    with pytest.raises(CombineError, match="no common one"):
        concat([numbers(np.int64([1])), numbers(np.array([b"a"]))], "time")


# Times


def time_values(
    *groups: VirtualGroup, read: Any = read_slowly, **options: Any
) -> tuple[np.ndarray, VirtualArray, Any]:
    result = combine(list(groups), "time", read=read, options=CombineOptions(**options))
    assert result.problems == ()
    assert result.group is not None
    array = result.group.arrays["time"]
    return decoded(array), array, result.report


@pytest.mark.parametrize(
    ("units", "dtype"),
    [
        (["days since 2000-01-01", "days since 2000-02-01"], "f8"),
        (["days since 2000-01-01", "days since 2000-02-01 12:00"], "f8"),
        (["days since 2000-01-01", "days since 2000-02-01 12:00:00"], "i4"),
        (["hours since 1900-01-01", "days since 2000-1-1"], "i8"),
        (["hours since 1900-01-01 00:00:0.0", "seconds since 2000-01-01T00:00:00Z"], "i4"),
        (["seconds since 1970-01-01", "seconds since 2001-01-01 03:00 +01:00"], "f4"),
        (["days since 1850-01-01", "days since 1850-1-1 00:00:00"], "f8"),
        (["milliseconds since 1970-01-01", "minutes since 2010-05-06 07:08:09.123"], "i8"),
    ],
)
def test_times_are_put_on_one_epoch_exactly(units: list[str], dtype: str) -> None:
    parts = [
        numbers(np.array([3, 4, 5], dtype), units=units[0]),
        numbers(np.array([7, 8, 9, 11], dtype), units=units[1]),
    ]
    values, _, report = time_values(*[group(time=part) for part in parts], overlap="keep")
    np.testing.assert_array_equal(values, expected(*parts))
    assert causes(report) & {"time-units"}


def test_times_keep_their_gaps() -> None:
    parts = [
        numbers(np.int32([1, -1, 3]), units="days since 2000-01-01", _FillValue=np.int32(-1)),
        numbers(np.int32([-5, 2]), units="days since 2000-02-01", _FillValue=np.int32(-5)),
    ]
    values, _, _ = time_values(*[group(time=part) for part in parts])
    np.testing.assert_array_equal(values, expected(*parts))


def test_bounds_follow_their_time() -> None:
    def part(day: int, units: str) -> VirtualGroup:
        return group(
            time=numbers(np.float64([day]), units=units, bounds="time_bnds"),
            time_bnds=numbers(np.float64([[day - 0.5, day + 0.5]]), ("time", "nv"), (1, 2)),
        )

    result = combine(
        [part(0, "days since 2000-01-01"), part(1, "days since 2000-03-01")],
        "time",
        read=read_slowly,
    )
    assert result.group is not None
    bounds = read_slowly(result.group.arrays["time_bnds"])
    assert bounds.tolist() == [[-0.5, 0.5], [60.5, 61.5]]


def test_times_of_equal_units_stay_virtual() -> None:
    parts = [numbers(np.arange(2.0) + 2 * k, units="days since 2000-01-01") for k in range(3)]
    joined = concat([group(time=part) for part in parts], "time").arrays["time"]
    assert isinstance(joined, VirtualArray)
    assert joined.n_blocks == 3
    assert {len(array.encodings) for array in [joined]} == {1}


def test_calendars_that_mean_the_same_days_combine() -> None:
    parts = [
        numbers(np.int64([0, 1]), units="days since 2000-01-01", calendar="standard"),
        numbers(np.int64([0, 1]), units="days since 2001-01-01", calendar="proleptic_gregorian"),
    ]
    values, array, _ = time_values(*[group(time=part) for part in parts])
    np.testing.assert_array_equal(values, expected(*parts))
    assert array.attrs["calendar"] == "standard"


@pytest.mark.parametrize("calendar", ["noleap", "julian"])
def test_calendars_of_other_days_are_a_problem(calendar: str) -> None:
    parts = [
        numbers(np.int64([0, 1]), units="days since 2000-01-01", calendar="standard"),
        numbers(np.int64([2, 3]), units="days since 2000-01-01", calendar=calendar),
    ]
    found = problems(*[group(time=part) for part in parts])
    assert set(found) == {"calendar-differs"}


def test_times_need_a_reader_or_inline_values() -> None:
    parts = [
        chunked_array(np.arange(4.0), (3,), ("time",), compressed=True, attrs={"units": units})
        for units in ("days since 2000-01-01", "days since 2000-02-01")
    ]
    result = combine([group(time=part) for part in parts], "time")
    assert [problem.cause for problem in result.problems] == ["time-units-differ"]
    assert "which cannot be read here" in str(result.problems[0])


# Units


# Missing variables and dimensions


def test_missing_variables() -> None:
    full = group(a=numbers(np.float32([1, 2])), b=numbers(np.float32([3, 4])))
    part = group(a=numbers(np.float32([5])))
    assert "variable-missing" in problems(full, part)
    outer = combine([full, part, full], "time", options=CombineOptions(join="outer"))
    assert outer.group is not None
    b = outer.group.arrays["b"]
    np.testing.assert_array_equal(decoded(b), np.float32([3, 4, np.nan, 3, 4]))
    assert "variable-missing" in causes(outer.report)
    inner = combine([full, part], "time", options=CombineOptions(join="inner"))
    assert inner.group is not None
    assert set(inner.group.arrays) == {"a"}
    assert "variable-missing" in causes(inner.report)


@pytest.mark.parametrize(
    "attrs",
    [{}, {"_FillValue": np.int16(-1)}, {"scale_factor": 0.5}, {"missing_value": 1e20}],
    ids=str,
)
def test_missing_integers_read_as_no_data(attrs: dict[str, Any]) -> None:
    full = group(a=numbers(np.int16([1, 2])), b=numbers(np.int16([3, 4]), **attrs))
    part = group(a=numbers(np.int16([5])))
    joined = concat([part, full], "time", join="outer").arrays["b"]
    assert isinstance(joined, VirtualArray)
    scale = attrs.get("scale_factor", 1)
    np.testing.assert_array_equal(decoded(joined), [np.nan, 3 * scale, 4 * scale])


def test_files_without_rows_add_nothing() -> None:
    full = group(a=numbers(np.float32([1, 2])), b=numbers(np.float32([3, 4])))
    empty = group(a=numbers(np.float32([])))
    joined = concat([empty, full, empty], "time")
    assert read_slowly(joined.arrays["a"]).tolist() == [1, 2]
    assert read_slowly(joined.arrays["b"]).tolist() == [3, 4]


def test_groups_that_some_files_lack_are_filled_as_long_as_the_others() -> None:
    def part(n: int, **groups: dict[str, VirtualArray]) -> VirtualGroup:
        below = {name: VirtualGroup(arrays) for name, arrays in groups.items()}
        return VirtualGroup({"t": numbers(np.arange(float(n)))}, below)

    full = part(2, g={"u": numbers(np.float32([7, 8]))})
    bare = part(3)
    assert "variable-missing" in problems(full, bare)
    wide = concat([full, bare, full], "time", join="outer")["g/u"]
    assert isinstance(wide, VirtualArray)
    np.testing.assert_array_equal(decoded(wide), [7, 8, np.nan, np.nan, np.nan, 7, 8])
    assert not concat([full, bare], "time", join="inner").groups["g"].arrays


def test_dimensions_of_one_name_in_groups_of_other_length() -> None:
    def part(n: int, m: int) -> VirtualGroup:
        groups = {name: VirtualGroup({"v": numbers(np.arange(float(k)))})
                  for name, k in (("a", n), ("b", m)) if k}  # fmt: skip
        return VirtualGroup({}, groups)

    result = combine([part(2, 3), part(4, 0), part(1, 1)], "time")
    assert result.group is not None
    assert result.group.all_arrays()["a/v"].shape == (7,)
    assert result.group.all_arrays()["b/v"].shape == (4,)
    (drift,) = result.report
    assert "unknown" in drift.resolution


def test_stacked_groups_that_some_files_lack() -> None:
    full = VirtualGroup({}, {"g": VirtualGroup({"u": numbers(np.float32([7, 8]), ("x",))})})
    bare = VirtualGroup({"v": numbers(np.float32([1, 2]), ("x",))})
    both = concat([full, bare], "member", join="outer").all_arrays()
    assert decoded(both["g/u"]).shape == decoded(both["v"]).shape == (2, 2)
    np.testing.assert_array_equal(decoded(both["g/u"])[:, 0], [7, np.nan])
    np.testing.assert_array_equal(decoded(both["v"])[:, 0], [np.nan, 1])


def test_dimensions_that_some_files_lack() -> None:
    def part(n: int, v: VirtualArray) -> VirtualGroup:
        return group(time=numbers(np.arange(float(n)) + 10 * n), v=v)

    rows = np.arange(6.0).reshape(2, 3)
    once = np.array([7.0, 8, 9])
    parts = [part(2, numbers(rows, ("time", "x"))), part(3, numbers(once, ("x",)))]
    for order in (parts, parts[::-1]):
        result = combine(order, "time", read=read_slowly, options=CombineOptions(overlap="keep"))
        assert result.group is not None
        repeated = np.repeat(once[np.newaxis], 3, axis=0)
        wanted = [rows, repeated] if order is parts else [repeated, rows]
        np.testing.assert_array_equal(read_slowly(result.group.arrays["v"]), np.concatenate(wanted))
        (drift,) = result.report.of_cause("dimensions")
        assert "repeated along time" in drift.resolution


def test_fill_values_are_reported_and_stay_each_files_own() -> None:
    parts = [
        chunked_array(np.int16([1, 2, 3, 4]), (2,), ("time",), fill_value=np.int16(f), absent=[1])
        for f in (0, 0, 5)
    ]
    result = combine([group(v=part) for part in parts], "time")
    assert result.group is not None
    joined = read_slowly(result.group.arrays["v"])
    assert joined.tolist() == [1, 2, 0, 0, 1, 2, 0, 0, 1, 2, 5, 5]
    (drift,) = result.report
    assert drift.cause == "fill-value"
    assert [(case.value, case.ranges) for case in drift.cases] == [
        ("fill value 0", ((0, 1),)),
        ("fill value 5", ((2, 2),)),
    ]


def test_dimensions_of_other_names_are_a_problem_unless_made_up() -> None:
    parts = [group(v=numbers([1, 2], ("time",))), group(v=numbers([[1]], ("time", "x")))]
    assert "dimensions-differ" in problems(*parts)
    phony = [
        group(v=numbers([[1, 2]], ("phony_dim_0", "phony_dim_1"))),
        group(v=numbers([[3, 4]], ("phony_dim_5", "phony_dim_2"))),
    ]
    joined = concat(phony, "phony_dim_0").arrays["v"]
    assert read_slowly(joined).tolist() == [[1, 2], [3, 4]]


# Labels


def labelled(*labels: float, offset: float = 0) -> VirtualGroup:
    values = np.array(labels, float)
    return group(time=numbers(values, chunks=[2]), v=numbers(values * 10 + offset, chunks=[3]))


def test_overlaps_are_an_error_by_default() -> None:
    found = problems(labelled(1, 2, 3), labelled(3, 4))
    assert "overlap='first'" in found["overlap"]


def dated(*days: int) -> VirtualGroup:
    labels = numbers(days).with_changes(attrs={"units": "days since 2024-06-01"})
    return group(time=labels, v=numbers(days))


def test_labels_that_count_time_are_reported_as_dates() -> None:
    repeating = [dated(0, 1, 2), dated(1, 2, 3)]
    assert "once: 2024-06-02, 2024-06-03;" in problems(*repeating)["overlap"]
    shown = combine(repeating, "time", read=read_slowly, options=CombineOptions(overlap="first"))
    assert "2 repeated labels -> the first" in str(shown.report)
    gap = str(combine([dated(0, 1), dated(8, 9)], "time", read=read_slowly).report)
    assert "files 1 to 2: nothing between 2024-06-02 and 2024-06-09 -> left as it is" in gap


@pytest.mark.parametrize("rule", ["first", "last"])
@pytest.mark.parametrize("sign", [1, -1], ids=["rising", "falling"])
def test_overlaps_are_trimmed_inside_chunks(rule: str, sign: int) -> None:
    labels = [1, 2, 3, 4, 5, 6, 7], [3, 4], [6, 7, 8, 9], [0, 1]
    files = [
        labelled(*(sign * np.array(own)), offset=number / 10) for number, own in enumerate(labels)
    ]
    result = combine(files, "time", read=read_slowly, options=CombineOptions(overlap=rule))
    assert result.group is not None
    found, values = (read_slowly(result.group.arrays[name]) for name in ("time", "v"))
    known: dict[float, float] = {}
    for file in files:
        for label, value in zip(
            read_slowly(file.arrays["time"]), read_slowly(file.arrays["v"]), strict=True
        ):
            if rule == "last" or label not in known:
                known[label] = value
    assert found.tolist() == sorted(known, reverse=sign < 0)
    assert values.tolist() == [known[label] for label in found.tolist()]
    assert "overlap" in causes(result.report)


@pytest.mark.parametrize("sign", [1, -1])
def test_unevenly_spaced_labels_make_no_gap(sign: int) -> None:
    files = [labelled(*(sign * np.array(own))) for own in ([1, 2, 9], [12, 13, 20], [27, 28])]
    assert causes(combine(files, "time", read=read_slowly).report) == set()
    files.append(labelled(*(sign * np.array([60, 61]))))
    (drift,) = combine(files, "time", read=read_slowly).report
    assert (drift.cause, drift.cases[0].ranges) == ("gap", ((2, 3),))  # the files beside it


def of_one_variable(name: str, labels: list[int], start: float) -> VirtualGroup:
    values = np.arange(start, start + len(labels))
    return VirtualGroup(
        {"time": numbers(np.array(labels, float), chunks=[2]), name: numbers(values, chunks=[3])}
    )


@pytest.mark.parametrize("rule", ["first", "last"])
@pytest.mark.parametrize("batch", [2, 1024])
def test_files_of_one_variable_each_hide_nothing_of_each_other(
    rule: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", batch)
    files = [
        of_one_variable("tas", [0, 1, 2], 10.0),
        of_one_variable("pr", [0, 1, 2], 20.0),
        of_one_variable("tas", [2, 3, 4], 30.0),
        of_one_variable("pr", [3, 4, 5], 40.0),
    ]
    joined = concat(files, "time", read=read_slowly, overlap=rule, join="outer")
    assert read_slowly(joined.arrays["time"]).tolist() == [0, 1, 2, 3, 4, 5]
    tas, pr = (decoded(joined.arrays[name]) for name in ("tas", "pr"))
    np.testing.assert_array_equal(tas, [10, 11, 12 if rule == "first" else 30, 31, 32, np.nan])
    np.testing.assert_array_equal(pr, [20, 21, 22, 40, 41, 42])


def test_integers_that_other_files_complete_stay_integers() -> None:
    time = numbers(np.array([0.0, 1.0]))
    files = [group(time=time, a=numbers([1, 2])), group(time=time, b=numbers([3, 4]))]
    done = combine(
        files, "time", read=read_slowly, options=CombineOptions(overlap="first", join="outer")
    )
    assert done.group is not None
    for name, values in (("a", [1, 2]), ("b", [3, 4])):
        assert done.group.arrays[name].dtype.kind == "i"
        assert read_slowly(done.group.arrays[name]).tolist() == values
    told = done.report.of_cause("variable-missing")
    assert {drift.resolution for drift in told} == {"taken from the files that have it"}


@pytest.mark.parametrize("batch", [1, 1024])
def test_a_dimension_that_no_file_has_is_said_first(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", batch)
    files = [labelled(1, 2, 3), labelled(4, 5)]
    with pytest.raises(CombineError) as error:
        concat(files, "tmie", read=read_slowly)
    first = error.value.problems[0]
    assert first.cause == "dimension-missing"
    assert "'tmie'" in first.message
    assert "time" in first.message
    assert concat([labelled(1, 2), labelled(1, 2)], "member").arrays["v"].shape == (2, 2)


def test_what_dropped_conflicts_leave_out_is_told() -> None:
    one = group(a=numbers([1.0]), b=numbers(np.array([b"x"])))
    other = group(a=numbers([2.0]), b=numbers([1]))
    done = combine([one, other], "time", options=CombineOptions(conflicts="skip"))
    assert done.group is not None
    assert list(done.group.arrays) == ["a"]
    assert [drift.variable for drift in done.report.left_out] == ["b"]
    (finding,) = done.group.report.skipped
    assert finding.path == "/b"
    assert "dtypes differ" in finding.reason


# Variables without the dimension


def static(value: float) -> VirtualGroup:
    return group(v=numbers([1.0, 2.0]), height=numbers(np.array(value), (), ()))


def test_a_dimension_written_otherwise_is_pointed_out() -> None:
    parts = [group(TIME=numbers(np.array(value), ("TIME",))) for value in ([1.0], [3.0])]
    found = problems(*parts)
    assert "no dimension 'time' (but 'TIME')" in found["labels-differ"]


def test_static_variables_stay_single_or_say_where_they_differ() -> None:
    joined = concat([static(2), static(2)], "time", read=read_slowly)
    assert joined.arrays["height"].shape == ()
    repeated = concat([static(2), static(10)], "time", read=read_slowly)
    assert read_slowly(repeated.arrays["height"]).tolist() == [2, 2, 10, 10]
    with pytest.raises(CombineError, match="variables='different'"):
        concat([static(2), static(10)], "time", read=read_slowly, repeated={"height": "minimal"})
    first = concat([static(2), static(10)], "time", compat="override")
    assert read_slowly(first.arrays["height"]).tolist() == 2


def test_all_repeats_everything() -> None:
    joined = concat([static(2), static(2)], "time", variables="all")
    assert read_slowly(joined.arrays["height"]).tolist() == [2, 2, 2, 2]


def test_a_new_dimension_stacks_data_and_keeps_coordinates_single() -> None:
    def part(k: int) -> VirtualGroup:
        return group(
            x=numbers(np.arange(3.0), ("x",)),
            v=numbers(np.arange(3.0) * k, ("x",)),
            run=numbers(np.array(k), (), ()),
        )

    joined = concat([part(1), part(2)], "run", read=read_slowly)
    assert joined.arrays["x"].dims == ("x",)
    assert joined.arrays["v"].dims == ("run", "x")
    assert read_slowly(joined.arrays["v"]).tolist() == [[0, 1, 2], [0, 2, 4]]
    assert read_slowly(joined.arrays["run"]).tolist() == [1, 2]


# Groups, attributes, ragged arrays


def test_groups_combine_one_by_one() -> None:
    def part(k: int) -> VirtualGroup:
        inner = group(v=numbers(np.array([k, k + 1])))
        return VirtualGroup({"w": numbers(np.array([k, k]))}, {"a": inner}, {"n": k})

    result = combine([part(1), part(5)], "time")
    assert result.group is not None
    assert read_slowly(result.group.groups["a"].arrays["v"]).tolist() == [1, 2, 5, 6]
    assert result.group.attrs == {"n": 1}
    assert causes(result.report) == {"attributes"}


def test_attributes() -> None:
    parts = [
        numbers([1.0], history="a", units="K"),
        numbers([2.0], history="b", units="K", extra="x"),
    ]
    for rule, wanted in {
        "override": {"history": "a", "units": "K"},
        "drop_conflicts": {"units": "K", "extra": "x"},
        "drop": {},
    }.items():
        assert concat(parts, "time", combine_attrs=rule).attrs == wanted
    for rule in ("identical", "no_conflicts"):
        with pytest.raises(CombineError, match="history"):
            concat(parts, "time", combine_attrs=rule)


def test_ragged_arrays_grow_along_several_dimensions() -> None:
    def part(sizes: list[int], start: float) -> VirtualGroup:
        n = sum(sizes)
        index = np.repeat(np.arange(len(sizes)), sizes).astype(np.int32)
        return group(
            row_size=numbers(np.int32(sizes), ("traj",), sample_dimension="obs"),
            temp=numbers(np.arange(n) + start, ("obs",)),
            which=numbers(index, ("obs",), instance_dimension="traj"),
            limit=numbers(np.array(7.0), (), ()),
        )

    joined = concat(
        [part([2, 3], 0), part([1], 100), part([4, 1], 200)], ["traj", "obs"], read=read_slowly
    )
    assert read_slowly(joined.arrays["row_size"]).tolist() == [2, 3, 1, 4, 1]
    assert read_slowly(joined.arrays["which"]).tolist() == [0, 0, 1, 1, 1, 2, 3, 3, 3, 3, 4]
    assert joined.arrays["temp"].shape == (11,)


# Problems


def test_all_problems_come_at_once_and_can_be_left_out() -> None:
    one = group(
        a=numbers([1.0]),
        b=numbers([[1.0, 2.0]], ("time", "x")),
        c=numbers([1.0], units="K"),
        d=numbers([1]),
        e=numbers([1.0]),
    )
    other = group(
        a=numbers([1.0]),
        b=numbers([[1.0]], ("time", "x")),
        c=numbers([1.0], units="m"),
        d=numbers(np.array([b"x"])),
    )
    found = problems(one, other)
    assert set(found) == {"shape-differs", "units-differ", "dtype-differs", "variable-missing"}
    assert all("input" in text for text in found.values())
    both = [group(v=numbers([1]), w=numbers([1]), x=numbers([[1]], ("time", "y")))]
    both.append(group(v=numbers([b"x"]), x=numbers([[1, 2]], ("time", "y")), w=numbers([b"x"])))
    grouped = combine(both, "time").problems
    assert [problem.cause for problem in grouped] == [
        "dtype-differs",
        "dtype-differs",
        "shape-differs",
    ]
    assert all(problem.sources == ("input 2",) for problem in grouped)
    left = combine([one, other], "time", options=CombineOptions(conflicts="skip"))
    assert left.group is not None
    assert set(left.group.arrays) == {"a"}
    assert {drift.variable for drift in left.report} >= {"b", "c", "d", "e"}


def test_chunks_codecs_and_byte_order_are_never_a_conflict() -> None:
    values = np.arange(40, dtype="i4").reshape(10, 4)
    parts = [
        chunked_array(values, (3, 4), ("time", "x")),
        chunked_array(values + 1, (10, 1), ("time", "x"), big_endian=True),
        chunked_array(values + 2, (4, 3), ("time", "x"), compressed=True),
    ]
    result = combine([group(v=part) for part in parts], "time")
    assert len(result.report) == 0
    assert result.group is not None
    np.testing.assert_array_equal(
        read_slowly(result.group.arrays["v"]),
        np.concatenate([values, values + 1, values + 2]),
    )


@pytest.mark.parametrize("bad", [{"join": "no"}, {"overlap": True}, {"conflicts": ""}])
def test_bad_options(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match=r"is none of|must be 'raise'"):
        CombineOptions(**bad)


def test_nothing_to_combine() -> None:
    with pytest.raises(InvalidRequestError):
        concat([], "time")


# Many files


def test_batches_combine_like_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def part(k: int) -> VirtualGroup:
        scale = 0.1 if k < 7 else 0.2
        return VirtualGroup(
            {
                "time": numbers(np.float64([0, 1]), units=f"days since 2000-01-{1 + 2 * k:02d}"),
                "v": numbers(np.int16([k, -1]), scale_factor=scale, _FillValue=np.int16(-1)),
            },
            attrs={"history": f"h{k}"},
        )

    files = [part(k) for k in range(11)]
    whole = combine(files, "time", read=read_slowly)
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", 3)
    batched = combine(iter(files), "time", read=read_slowly)
    assert whole.group is not None
    assert batched.group is not None
    for name in ("time", "v"):
        np.testing.assert_array_equal(
            decoded(batched.group.arrays[name]), decoded(whole.group.arrays[name])
        )
    assert causes(batched.report) >= causes(whole.report) - {"time-units"}
    (packing,) = whole.report.of_cause("packing")
    assert [case.where(11) for case in packing.cases] == ["files 1 to 7", "file 8 onward"]
    assert batched.report.files == whole.report.files


def test_inputs_of_an_iterator_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", 4)
    alive: list[weakref.ref[VirtualGroup]] = []
    most = 0
    gc.freeze()  # objects of other tests, which would be looked at again and again

    def files() -> Iterator[VirtualGroup]:
        nonlocal most
        for k in range(24):
            part = group(v=numbers([float(k)]))
            alive.append(weakref.ref(part))
            yield part
            del part
            if k % 4 == 3:
                gc.collect()
                most = max(most, sum(known() is not None for known in alive))

    joined = concat(files(), "time")
    assert read_slowly(joined.arrays["v"]).tolist() == list(range(24))
    assert most <= 2 * 4
    assert len(joined.arrays["v"].manifests) == 1


@pytest.mark.parametrize(
    "attrs",
    [
        {"valid_min": np.float32("nan"), "units": "K"},
        {"valid_range": np.int16([0, 9]), "units": "K"},
        {"flags": np.array([b"a", b"b"])},
        {"missing_value": np.int16([4])},
        {"names": ["a", "b"]},
        {},
    ],
    ids=str,
)
def test_alike_attributes_are_no_drift(attrs: dict[str, Any]) -> None:
    parts = [group(v=numbers(np.int16([k]), **copy.deepcopy(attrs))) for k in range(3)]
    result = combine(parts, "time")
    assert len(result.report) == 0
    assert result.group is not None
    np.testing.assert_equal(result.group.arrays["v"].attrs, attrs)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.float32(0.5), np.float64(0.5)),
        (np.int16(1), np.int32(1)),
        (1, True),
        (0.0, -0.0),
        (np.float32(0.0), np.float32(-0.0)),
        (np.int16([1]), np.int16(1)),
        (np.int16([1]), np.int32([1])),
        ("1", np.int16(1)),
        ("a" * 100, "a" * 99 + "b"),
        (["a"], "a"),
    ],
    ids=repr,
)
def test_attributes_that_differ_a_little_are_reported(one: Any, other: Any) -> None:
    parts = [group(v=numbers([1.0], note=value)) for value in (one, one, other, one)]
    (drift,) = combine(parts, "time").report
    assert drift.cause == "attributes"
    assert [case.ranges for case in drift.cases] == [((0, 1), (3, 3)), ((2, 2),)]


@pytest.mark.parametrize("batch", [1024, 7])
def test_attributes_of_many_values_are_counted(monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", batch)
    parts = [group(v=numbers([1.0], note=f"n{k // 2}")) for k in range(60)]
    (drift,) = combine(parts, "time").report
    assert [case.value for case in drift.cases[:2]] == ["note = n0", "note = n1"]
    assert [case.ranges for case in drift.cases[:2]] == [((0, 1),), ((2, 3),)]
    assert len(drift.cases) == drift.MAX_CASES
    assert drift.n_cases == 30
    refused = combine(parts, "time", options=CombineOptions(combine_attrs="identical")).problems
    assert all("attributes 'note' differ" in problem.message for problem in refused)
    assert "input 60" in {name for problem in refused for name in problem.sources}


def test_fill_values_of_other_sign_are_kept_apart() -> None:
    parts = [
        chunked_array(np.zeros(2), (1,), ("time",), fill_value=np.float64(fill), absent=[0])
        for fill in (0.0, -0.0)
    ]
    joined = concat(parts, "time")
    assert np.signbit(read_slowly(joined)).tolist() == [False, False, True, False]


@pytest.mark.parametrize("dtype", ["i4", "f8", "f4", "i8"])
@pytest.mark.parametrize("fill", [None, -7])
def test_large_times_stay_virtual(
    monkeypatch: pytest.MonkeyPatch, dtype: str, fill: int | None
) -> None:
    monkeypatch.setattr("gridref.combine.rules.units.INLINE_LIMIT_BYTES", 10)
    attrs = {} if fill is None else {"_FillValue": np.dtype(dtype).type(fill)}
    parts = [
        numbers(np.array([3, -7, 5], dtype), units="seconds since 2000-01-01", **attrs),
        numbers(np.array([7, 8, 9, 11], dtype), units="minutes since 2000-02-01", **attrs),
        numbers(np.array([-7, 8], dtype), units="seconds since 2000-01-01 00:00:0.5", **attrs),
    ]
    values, array, report = time_values(*[group(time=part) for part in parts], overlap="keep")
    np.testing.assert_array_equal(values, expected(*parts))
    assert [len(manifest.inline) > 0 for manifest in array.manifests] == [True]
    assert array.n_blocks == 3
    assert all(encoding.dtype == np.dtype(dtype) for encoding in array.encodings)
    assert "time-units" in causes(report)


FRACTIONS = (
    (np.array([0.1, 0.2]), "seconds since 2009-01-01"),
    (
        np.array([0.1, 0.3]),
        "seconds since 2009-01-02",
    ),
)


def test_times_too_large_to_rewrite_that_would_round_are_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gridref.combine.rules.units.INLINE_LIMIT_BYTES", 10)
    monkeypatch.setattr("gridref.combine.rules.units.REWRITTEN_LIMIT_BYTES", 10)
    parts = [numbers(data, units=units) for data, units in FRACTIONS]
    found = problems(*[group(time=part) for part in parts])
    assert set(found) == {"time-units-differ"}
    assert "cannot be given one reference date exactly" in found["time-units-differ"]


DAYS = "days since 2000-01-{:02d}"
BATCHED_TIMES: dict[str, list[tuple[str, Any]]] = {
    "an epoch for each file": [(DAYS.format(k), np.int32([0, 1])) for k in range(1, 8)],
    "floats": [(DAYS.format(k), np.float64([0, 0.25])) for k in range(1, 8)],
    "fractions that round": [
        (f"seconds since 2009-01-{k:02d}", np.float64([0.1, 0.2, 0.7])) for k in range(1, 8)
    ],
    "fractions in some batches": [
        (f"seconds since 2009-01-{k:02d}", np.float64([0.1, 0.2] if k > 4 else [1, 2]))
        for k in range(1, 8)
    ],
    "units of other lengths": [
        (f"{unit} since 2000-01-{k:02d}", np.int64([1, 3]))
        for k, unit in enumerate(("days", "days", "hours", "seconds", "milliseconds", "days"), 1)
    ],
    "batches that agree inside": [(DAYS.format(1 + k // 2), np.int16([k, 9])) for k in range(7)],
}


@pytest.mark.parametrize("name", BATCHED_TIMES)
@pytest.mark.parametrize("limit", [0, 20, 2**20])
def test_times_of_batches_and_their_bounds_are_exact_at_any_size(
    monkeypatch: pytest.MonkeyPatch, name: str, limit: int
) -> None:
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", 2)
    monkeypatch.setattr("gridref.combine.rules.units.INLINE_LIMIT_BYTES", limit)
    times, bounds, groups = [], [], []
    for units, data in BATCHED_TIMES[name]:
        pairs = np.stack([data, data + 1], 1)
        times.append(numbers(data, units=units, bounds="tb"))
        bounds.append(numbers(pairs, ("time", "nv"), units=units))
        groups.append(group(time=times[-1], tb=numbers(pairs, ("time", "nv"))))
    found = combine(groups, "time", read=read_slowly, options=CombineOptions(overlap="keep"))
    assert found.problems == ()
    assert found.group is not None
    time, both = (found.group.arrays[name] for name in ("time", "tb"))
    np.testing.assert_array_equal(decoded(time), expected(*times))
    both = both.with_changes(attrs={**both.attrs, "units": time.attrs["units"]})
    np.testing.assert_array_equal(decoded(both), expected(*bounds))


def test_fractions_of_more_files_than_a_batch_and_above_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n_files, n_times = 11, 12
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", 8)
    monkeypatch.setattr("gridref.combine.rules.units.INLINE_LIMIT_BYTES", 8 * 8 * 10)
    data = np.arange(n_times) / 10
    days = np.datetime64("2001-01-01") + np.arange(n_files)
    parts = [
        chunked_array(
            data, (n_times,), ("time",), attrs={"units": f"seconds since {day}"}, compressed=True
        )
        for day in days.tolist()
    ]
    values, _, _ = time_values(*[group(time=part) for part in parts], read=reader_for().read)
    offsets = (data * 1e9).astype("m8[ns]")  # xarray cuts at the nanosecond, too
    expected = (days.astype("M8[ns]")[:, np.newaxis] + offsets).reshape(-1)
    np.testing.assert_array_equal(values, expected)


def test_variables_that_come_and_go_are_reported() -> None:
    crs = numbers(np.array(1), (), ())
    one = group(v=numbers([1.0, 2.0]), crs=crs)
    other = group(v=numbers([3.0]))
    result = combine([one, other], "time")
    assert result.group is not None
    assert set(result.group.arrays) == {"v", "crs"}
    (drift,) = result.report
    assert drift.variable == "crs"
    assert drift.cause == "variable-missing"
