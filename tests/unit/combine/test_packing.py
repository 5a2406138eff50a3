"""Stored numbers: what attributes say, the floats and dtypes that they become, and gaps.

xarray is the oracle.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import xarray as xr

from gridref.combine import CombineOptions, combine
from gridref.combine.rules.packing import (
    Packing,
    _common,
    float_dtype,
    no_data_of,
    rescaled,
    without_packing,
)
from gridref.errors import NotRepresentableError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Encoding, Unpacking, bytes_codec
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly
from tests.short_series import combined, series

f4, f8 = np.float32, np.float64


def array(code: str, values: Any = (0, 1, 2), **attrs: Any) -> VirtualArray:
    data = np.array(values).astype(code)
    return chunked_array(data, (2,), ("x",), attrs=attrs)


PACKINGS: list[tuple[str, dict[str, Any], Packing]] = [
    ("i2", {}, Packing()),
    ("i2", {"scale_factor": 0.5}, Packing(scale=0.5)),
    ("i2", {"scale_factor": np.array([0.5])}, Packing(scale=0.5)),
    ("i2", {"add_offset": f4(3)}, Packing(offset=3.0)),
    ("i2", {"_FillValue": np.int16(-9)}, Packing(fills=frozenset({-9}))),
    ("i2", {"missing_value": [1, 2]}, Packing(fills=frozenset({1, 2}))),
    ("i2", {"_FillValue": "x"}, Packing()),
    ("f4", {"_FillValue": np.nan, "missing_value": 1e20}, Packing(fills=frozenset({1e20}))),
    ("i1", {"_Unsigned": "true"}, Packing(unsigned=True)),
    ("i1", {"_Unsigned": "false"}, Packing()),
    ("u1", {"_Unsigned": "false"}, Packing(unsigned=False)),
    ("u1", {"_Unsigned": "true"}, Packing()),
    ("f4", {"_Unsigned": "true"}, Packing()),
    (
        "i1",
        {"_Unsigned": "true", "_FillValue": np.int8(-1)},
        Packing(None, None, frozenset({255}), True),
    ),
    ("i1", {"_Unsigned": "TRUE", "_FillValue": np.int8(-1)}, Packing(fills=frozenset({-1}))),
    ("u1", {"_Unsigned": "false", "_FillValue": 255}, Packing(None, None, frozenset({-1}), False)),
    ("i1", {"_Unsigned": "true", "missing_value": -1}, Packing(unsigned=True)),
    ("i1", {"_Unsigned": "true", "missing_value": 0}, Packing(None, None, frozenset({0}), True)),
    (
        "i1",
        {"_Unsigned": "true", "missing_value": 255},
        Packing(None, None, frozenset({255}), True),
    ),
    ("i1", {"_Unsigned": "true", "missing_value": 256}, Packing(unsigned=True)),
    (
        "u1",
        {"_Unsigned": "false", "missing_value": -128},
        Packing(None, None, frozenset({-128}), False),
    ),
    ("u1", {"_Unsigned": "false", "missing_value": 128}, Packing(unsigned=False)),
]


@pytest.mark.parametrize(("code", "attrs", "expected"), PACKINGS, ids=range(len(PACKINGS)))
def test_what_attributes_say(code: str, attrs: dict[str, Any], expected: Packing) -> None:
    found = Packing.of(array(code, **attrs))
    assert found == expected
    assert found.is_trivial == (expected == Packing())
    assert found.is_exact == (found.scale is None and found.offset is None)


@pytest.mark.parametrize(
    ("packing", "text"),
    [
        (Packing(), "not packed"),
        (
            Packing(0.5, 3.0, frozenset({7, -1}), True),
            "scale_factor 0.5, add_offset 3, fill -1, 7, unsigned",
        ),
        (Packing(unsigned=False), "signed"),
        (Packing(0.0), "scale_factor 0"),
        (Packing(None, 0.0), "add_offset 0"),
    ],
)
def test_packings_in_words(packing: Packing, text: str) -> None:
    assert str(packing) == text


NUMBERS = [None, f4(0.5), f8(0.1), np.int16(2), 2, 0.5]


@pytest.mark.parametrize("code", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "f2", "f4", "f8"])
@pytest.mark.parametrize("fill", [None, 1])
@pytest.mark.filterwarnings("ignore")
def test_floats_are_those_that_xarray_decodes_to(code: str, fill: int | None) -> None:
    for scale in NUMBERS:
        for offset in NUMBERS:
            attrs: dict[str, Any] = {}
            if fill is not None:
                attrs["_FillValue"] = np.dtype(code).type(fill)
            attrs |= {} if scale is None else {"scale_factor": scale}
            attrs |= {} if offset is None else {"add_offset": offset}
            if not attrs:
                continue
            stored = array(code, **attrs)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                variable = xr.Variable(("x",), read_slowly(stored), attrs)
                wanted = xr.conventions.decode_cf_variable("v", variable).dtype
            if wanted.kind != "f":  # which has no NaN, for what is missing
                wanted = np.dtype("f8")
            assert float_dtype(stored, Packing.of(stored)) == wanted, attrs


def test_attributes_of_what_is_unpacked() -> None:
    attrs = {"scale_factor": 2, "add_offset": 1, "missing_value": 3, "_Unsigned": "true", "k": 1}
    found = without_packing({**attrs, "_FillValue": 7}, np.dtype("f4"))
    assert found.keys() == {"k", "_FillValue"}
    assert found["k"] == 1
    assert np.isnan(found["_FillValue"])
    assert found["_FillValue"].dtype == "f4"


def group(labels: list[int], stored: VirtualArray) -> VirtualGroup:
    x = np.array(labels)
    return VirtualGroup({"x": chunked_array(x, x.shape, ("x",)), "v": stored})


def joined(one: VirtualArray, other: VirtualArray, **options: Any) -> Any:
    n, m = one.shape[0], other.shape[0]
    groups = [group([*range(n)], one), group([*range(n, n + m)], other)]
    return combine(groups, "x", read=read_slowly, options=CombineOptions(**options))


def first(**attrs: Any) -> VirtualArray:
    return array("i2", (1, -9, 3, 4), **attrs)


def second(**attrs: Any) -> VirtualArray:
    return array("i2", (-9, -99, 5), **attrs)


DRIFTS: list[tuple[VirtualArray, VirtualArray, bool]] = [
    (array("i2", scale_factor=0.5), array("i2", scale_factor=0.5), False),
    (array("i2", scale_factor=0.5), array("i2", scale_factor=0.25), True),
    (array("i2", scale_factor=0.5), array("i2", scale_factor=f4(0.5)), True),
    (array("i2", add_offset=1.0), array("i2"), True),
    (array("i2", _FillValue=np.int16(1)), array("i2", _FillValue=np.int16(2)), True),
    (array("i2", _FillValue=np.int16(1)), array("i2", missing_value=np.int16(1)), False),
    (array("i1", _Unsigned="true"), array("i2", _Unsigned="true"), True),
    (array("i1", _Unsigned="true"), array("i1", _Unsigned="true"), False),
    (array("i1", _Unsigned="true"), array("i1", _Unsigned="true", long_name="other"), False),
    (array("i1", (0, 1, -1), _Unsigned="true"), array("u1", (0, 1, 255)), True),
    (array("i1"), array("i2"), False),
    (
        array("f4", (1, 1e20), _FillValue=f4(1e20)),
        array("f4", (-999, 2), _FillValue=f4(-999)),
        True,
    ),
    (
        first(scale_factor=0.01, add_offset=273.15),
        second(scale_factor=0.02, add_offset=270.0),
        True,
    ),
    (
        first(scale_factor=f4(0.01), _FillValue=np.int16(-9)),
        second(scale_factor=f4(0.5), _FillValue=np.int16(-9)),
        True,
    ),
    (
        first(scale_factor=f4(0.5), add_offset=f4(270.1)),
        second(scale_factor=0.5, add_offset=f8(f4(270.1))),
        True,
    ),
    (first(scale_factor=0.1, _FillValue=np.int16(-9)), second(_FillValue=np.int16(-9)), True),
    (first(_FillValue=np.int16(-9), missing_value=np.int16(-9)), second(), True),
    (first(missing_value=np.int16([-9, 4])), second(_FillValue=np.int16(5)), True),
    (first(_Unsigned="true", _FillValue=np.int16(-9)), second(_FillValue=np.int16(-9)), True),
]


@pytest.mark.parametrize(("one", "other", "drifts"), DRIFTS, ids=range(len(DRIFTS)))
@pytest.mark.filterwarnings("ignore")
def test_each_file_is_unpacked_with_its_own_numbers(
    one: VirtualArray, other: VirtualArray, drifts: bool
) -> None:
    done = joined(one, other)
    assert done.group is not None, done.problems
    assert ("packing" in [drift.cause for drift in done.report]) == drifts
    found = done.group.arrays["v"]

    def decoded(stored: VirtualArray) -> Any:
        variable = xr.Variable(("x",), read_slowly(stored), dict(stored.attrs))
        return xr.conventions.decode_cf_variable("v", variable).values

    parts = [decoded(one), decoded(other)]
    np.testing.assert_array_equal(decoded(found), np.concatenate(parts).astype("f8"))
    if drifts:
        assert found.dtype == np.result_type(*parts, f4)
        assert not found.attrs.keys() & {"scale_factor", "add_offset", "_Unsigned"}
        assert np.isnan(found.attrs["_FillValue"])
    else:
        assert found.dtype == np.result_type(one.dtype, other.dtype)
        np.testing.assert_equal(found.attrs, one.attrs)


def test_texts_beside_packed_numbers_are_another_type() -> None:
    parts = [
        group([0, 1, 2], array("i2", scale_factor=0.5)),
        group([3, 4, 5], array("i2", scale_factor=0.25)),
        group([6, 7, 8], array("S1")),
    ]
    done = combine(parts, "x", read=read_slowly)
    assert [problem.cause for problem in done.problems] == ["dtype-differs"]


@pytest.mark.parametrize("name", ["scales", "offsets"])
def test_numbers_of_single_bands_are_not_unpacked(name: str) -> None:
    one, other = array("i2", **{name: [1.0, 2.0]}), array("i2", **{name: [1.0, 3.0]})
    done = joined(one, other)
    assert [problem.cause for problem in done.problems] == ["packing-differs"]
    assert joined(one, one).group is not None


UNITS = {"m": 1.0, "km": 1000.0}


def convert(unit: str, target: str) -> tuple[float, float] | None:
    if {unit, target} == {"K", "degC"}:
        return (1.0, 273.15) if target == "K" else (1.0, -273.15)
    if unit in UNITS and target in UNITS:
        return UNITS[unit] / UNITS[target], 0.0
    return (1.0, 0.0) if {unit, target} == {"1", "none"} else None


CONVERSIONS: list[tuple[dict[str, Any], dict[str, Any], Any]] = [
    ({"units": "km"}, {"units": "m"}, [0.0, 1.0, 2.0, 0.0, 0.001, 0.002]),
    ({"units": "m"}, {"units": "km"}, [0.0, 1.0, 2.0, 0.0, 1000.0, 2000.0]),
    (
        {"units": "m", "scale_factor": 2.0},
        {"units": "km", "add_offset": 1.0},
        [0, 2, 4, 1000, 2000, 3000],
    ),
    ({"units": "K"}, {"units": "degC"}, [0, 1, 2, 273.15, 274.15, 275.15]),
    ({"units": "1"}, {"units": "none"}, [0, 1, 2, 0, 1, 2]),
    ({"units": "m"}, {"units": "m"}, [0, 1, 2, 0, 1, 2]),
    ({"units": "m"}, {"units": "K"}, "cannot be converted"),
    ({"units": "m"}, {}, [0, 1, 2, 0, 1, 2]),
    ({"units": "K", "cell_methods": "time: range"}, {"units": "degC"}, "no zero to shift"),
    ({"units": "K", "units_metadata": "temperature: difference"}, {"units": "degC"}, "no zero"),
    ({"units": "km", "cell_methods": "time: range"}, {"units": "m"}, [0, 1, 2, 0, 0.001, 0.002]),
]


@pytest.mark.parametrize(("one", "other", "expected"), CONVERSIONS, ids=range(len(CONVERSIONS)))
def test_units_are_brought_on_the_first_ones(one: Any, other: Any, expected: Any) -> None:
    done = joined(array("i4", **one), array("i4", **other), convert_units=convert)
    if isinstance(expected, str):
        assert [problem.cause for problem in done.problems] == ["units-differ"]
        assert expected in str(done.problems[0])
        return
    assert done.group is not None, done.problems
    found = done.group.arrays["v"]
    np.testing.assert_allclose(read_slowly(found), expected, rtol=1e-15)
    assert found.attrs["units"] == one["units"]
    if {one["units"], other.get("units")} == {"1", "none"}:
        (drift,) = done.report.of_cause("units")
        assert drift.resolution == "they mean the same; the first file's"
        assert found.dtype == np.int32
    if one != other and "units" in other:
        assert [p.cause for p in joined(array("i4", **one), array("i4", **other)).problems] == [
            "units-differ"
        ]


def test_files_without_units_are_not_converted_with_others() -> None:
    groups = [
        group([2 * n, 2 * n + 1], array("i4", (1, 2), **attrs))
        for n, attrs in enumerate([{"units": "m"}, {"units": "km"}, {}])
    ]
    options = CombineOptions(convert_units=convert)
    done = combine(groups, "x", read=read_slowly, options=options)
    assert "without units" in str(done.problems[0])


def test_what_is_unpacked_is_not_packed_once_more() -> None:
    dtype = np.dtype("i2")
    inner = Unpacking(2.0, 1.0, (), None, "f8")
    encoding = Encoding((3,), dtype, (bytes_codec(dtype),), unpacking=inner)
    with pytest.raises(NotRepresentableError, match="packed once more"):
        rescaled(encoding, Unpacking(None, None, (-1.0,), None, "f8"))
    with pytest.raises(NotRepresentableError, match="packed once more"):
        rescaled(encoding, Unpacking(None, None, (), True, "f8"))
    both = rescaled(encoding, Unpacking(10.0, 3.0, (), None, "f8")).unpacking
    assert both is not None
    assert (both.scale, both.offset) == (20.0, 13.0)
    for outer, expected in (
        ((None, None), (2.0, 1.0)),
        ((None, 3.0), (2.0, 4.0)),
        ((10.0, None), (20.0, 10.0)),
        ((0.0, 3.0), (0.0, 3.0)),
    ):
        found = rescaled(encoding, Unpacking(*outer, (), None, "f4")).unpacking
        assert found is not None
        assert ((found.scale, found.offset), found.dtype) == (expected, "f4")
    plain = Encoding((3,), dtype, (bytes_codec(dtype),))
    assert rescaled(plain, inner).unpacking == inner
    bare = Encoding((3,), dtype, (bytes_codec(dtype),), unpacking=Unpacking(dtype="f8"))
    shifted = rescaled(bare, Unpacking(10.0, 3.0, (), None, "f8")).unpacking
    assert shifted is not None
    assert (shifted.scale, shifted.offset) == (10.0, 3.0)


# One dtype

COMPOUNDS: list[tuple[Any, Any, Any]] = [
    ([("a", "S3"), ("n", "i4")], [("a", "S5"), ("n", "i2")], [("a", "S5"), ("n", "i4")]),
    ([("a", "S3", (2,))], [("a", "S4", (2,))], [("a", "S4", (2,))]),
    ([("a", "S3", (2,))], [("a", "S4", (3,))], None),
    ([("a", "S3")], [("b", "S3")], None),
    ([("a", "S3")], [("a", "i4")], None),
    ([("a", "V3"), ("b", "f4")], [("a", "V3"), ("b", "f8")], [("a", "V3"), ("b", "f8")]),
    ([("a", [("b", "S1")])], [("a", [("b", "S2")])], [("a", [("b", "S2")])]),
    ([("a", "S3")], "S3", None),
]


@pytest.mark.parametrize(("one", "other", "expected"), COMPOUNDS, ids=range(len(COMPOUNDS)))
def test_compounds_are_joined_member_by_member(one: Any, other: Any, expected: Any) -> None:
    dtypes = [np.dtype(one), np.dtype(other)]
    for order in (dtypes, dtypes[::-1]):
        found = _common(order)
        assert found == (None if expected is None else np.dtype(expected))


@pytest.mark.parametrize(
    ("one", "other"), [("S3", "U3"), ("S3", "i2"), ("?", "u1"), ("M8[s]", "m8[s]"), ("U2", "M8[s]")]
)
def test_dtypes_without_a_common_one(one: str, other: str) -> None:
    done = combined(series([0, 1], np.zeros(2, one)), series([2, 3], np.zeros(2, other)))
    assert done.group is None
    assert [problem.cause for problem in done.problems] == ["dtype-differs"]


# Gaps


def labelled(code: str, **attrs: Any) -> VirtualArray:
    return chunked_array(np.zeros(3, code), (3,), ("x",), attrs=attrs)


@pytest.mark.parametrize(
    ("code", "attrs", "expected"),
    [
        ("i2", {}, None),
        ("i2", {"_FillValue": np.int16(-9)}, np.int16(-9)),
        ("i2", {"_FillValue": np.array([-9], "i2")}, np.int16(-9)),
        ("i2", {"missing_value": np.int16(7)}, np.int16(7)),
        ("i2", {"missing_value": np.array([7, 8], "i2")}, np.int16(7)),
        ("i2", {"_FillValue": np.int16(1), "missing_value": np.int16(7)}, np.int16(1)),
        ("f4", {"_FillValue": np.float32(1e20)}, np.float32(1e20)),
        ("S3", {}, b""),
        ("?", {}, None),
    ],
    ids=str,
)
def test_what_says_no_data(code: str, attrs: dict[str, Any], expected: Any) -> None:
    found = no_data_of(labelled(code, **attrs))
    assert found == expected
    assert type(found) is type(expected) or code == "S3"


@pytest.mark.parametrize("code", ["f4", "f8"])
def test_floats_say_nan(code: str) -> None:
    found = no_data_of(labelled(code))
    assert np.isnan(found)
    assert found.dtype == code
