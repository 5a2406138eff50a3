"""What the pieces of combining promise each other, asked of them one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gridref.combine import CombineOptions, combine
from gridref.combine.georeference import side_by_side
from gridref.combine.rules.packing import rescaled
from gridref.combine.values import inline_values, is_plain_inline
from gridref.errors import NotRepresentableError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Encoding, Unpacking, bytes_codec
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly


@pytest.mark.parametrize("code", ["f8", "i2", "?", "M8[s]", "S3"])
@pytest.mark.parametrize("shape", [(3,), (2, 2), ()])
def test_plain_inline_values_are_read_without_a_reader(code: str, shape: tuple[int, ...]) -> None:
    values = np.arange(int(np.prod(shape))).reshape(shape).astype(code)
    array = VirtualArray.from_numpy(values, [f"d{axis}" for axis in range(len(shape))])
    assert is_plain_inline(array)
    found = inline_values(array)
    assert found is not None
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("options", [{"compressed": True}, {"big_endian": True}])
def test_other_inline_chunks_are_left_to_a_reader(options: dict[str, bool]) -> None:
    array = chunked_array(np.arange(4, dtype="i4"), (4,), ("x",), **options)
    assert not is_plain_inline(array)
    assert inline_values(array) is None
    two_chunks = chunked_array(np.arange(4, dtype="i4"), (2,), ("x",))
    assert inline_values(two_chunks) is None


@pytest.mark.parametrize("code", ["f4", "i8", "U2"])
def test_of_no_elements_nothing_is_read(code: str) -> None:
    array = chunked_array(np.zeros((0, 3), code), (2, 3), ("x", "y"), compressed=True)
    found = inline_values(array)
    assert found is not None
    assert (found.shape, found.dtype) == ((0, 3), np.dtype(code))


def test_rasters_side_by_side_share_nothing() -> None:
    spans = np.array([[[7, 10], [9, 13]], [[1, 3], [1, 6]], [[0, 6], [0, 1]]])
    laid = side_by_side(spans).tolist()
    assert laid == [[[0, 3], [0, 4]], [[0, 2], [4, 9]], [[0, 6], [9, 10]]]


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


@pytest.mark.parametrize(
    ("first", "second", "unit"),
    [
        ((0.5, "hours since 2009-01-01"), (90.0, "minutes since 2009-01-03"), "seconds"),
        ((0.3, "days since 2009-01-01"), (864.0, "seconds since 2009-01-03"), "seconds"),
        ((0.125, "seconds since 2009-01-01"), (0.1, "seconds since 2009-01-02"), "milliseconds"),
        ((1.0, "seconds since 2009-01-01"), (0.3, "seconds since 2009-01-02"), "milliseconds"),
        ((0.0625, "seconds since 2009-01-01"), (0.1, "seconds since 2009-01-02"), "microseconds"),
    ],
)
def test_ticks_are_the_largest_that_hold_every_time(
    first: tuple[float, str], second: tuple[float, str], unit: str
) -> None:
    parts = [times([value], units) for value, units in (first, second)]
    done = combine(parts, "time", read=read_slowly, options=CombineOptions(overlap="keep"))
    assert done.group is not None
    joined = done.group.arrays["time"]
    expected = np.concatenate([decoded(part.arrays["time"]) for part in parts])
    np.testing.assert_array_equal(decoded(joined), expected)
    assert joined.dtype == np.int64
    assert str(joined.attrs["units"]).startswith(f"{unit} since 2009-01-01")


def test_times_that_are_missing_do_not_keep_others_from_whole_seconds() -> None:
    first = times([0, -1, 7200], "seconds since 2000-01-01", "i8", _FillValue=np.int64(-1))
    second = times([1, -1], "days since 2000-02-01", "i8", _FillValue=np.int64(-1))
    done = combine([first, second], "time", read=read_slowly)
    assert done.group is not None
    expected = np.concatenate([decoded(part.arrays["time"]) for part in (first, second)])
    np.testing.assert_array_equal(decoded(done.group.arrays["time"]), expected)


@pytest.mark.parametrize("rule", ["inner", "outer", "left", "right"])
@pytest.mark.parametrize("first", [[1, 2, 3], [], [3]])
@pytest.mark.parametrize("second", [[2, 3, 4], [], [9]])
def test_labels_are_joined_as_xarray_joins_them(
    rule: Any, first: list[int], second: list[int]
) -> None:
    import xarray as xr

    parts = [field(first, 0), field(second, 1)]
    done = combine(parts, "t", read=read_slowly, options=CombineOptions(join=rule))
    assert done.group is not None, done.problems
    expected = xr.concat(
        [
            xr.Dataset(
                {"v": (("t", "x"), read_slowly(p.arrays["v"])), "x": read_slowly(p.arrays["x"])}
            )
            for p in parts
        ],
        "t",
        join=rule,
    )
    assert read_slowly(done.group.arrays["x"]).tolist() == expected["x"].values.tolist()
    np.testing.assert_array_equal(decoded(done.group.arrays["v"]), expected["v"].values)


def field(labels: list[int], day: int) -> VirtualGroup:
    x = np.array(labels, "i4")
    values = (10.0 * day + x)[np.newaxis]
    chunk = (1, max(1, len(labels)))
    return VirtualGroup(
        {
            "x": chunked_array(x, chunk[1:], ("x",)),
            "v": chunked_array(values, chunk, ("t", "x"), attrs={"_FillValue": np.nan}),
        }
    )


def plain(group: VirtualGroup) -> Any:
    import xarray as xr

    values = {name: (array.dims, read_slowly(array)) for name, array in group.arrays.items()}
    return xr.Dataset(values)


def times(values: list[Any], units: str, code: str = "f8", **attrs: Any) -> VirtualGroup:
    data = np.array(values, code)
    array = chunked_array(data, data.shape, ("time",), attrs={"units": units, **attrs})
    return VirtualGroup({"time": array})


def decoded(array: VirtualArray) -> Any:
    import xarray as xr

    variable = xr.Variable(array.dims, read_slowly(array), dict(array.attrs))
    return xr.conventions.decode_cf_variable("v", variable).values
