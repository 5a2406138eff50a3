"""Values that inputs keep inline, and keys that are equal where values are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gridref.combine.columns import value_keys
from gridref.combine.values import inline_values, is_plain_inline, same_chunks
from gridref.model.array import VirtualArray
from gridref.model.indexing import flip
from gridref.model.joining import concatenate
from gridref.testing.builders import chunked_array

SCALARS: list[Any] = [
    np.float32("nan"),
    np.float64("nan"),
    np.float64(0.0),
    np.float64(-0.0),
    np.int16(0),
    np.int32(0),
    0,
    0.0,
    False,
    "a",
    "b",
    np.str_("a"),
    [1, 2],
    [1, 2.0],
    np.array([1, 2]),
    np.array([1, 3]),
    np.array([[1, 2]]),
    np.array(["a"], object),
    np.array(["a", "b"], np.dtypes.StringDType()),
    None,
    b"a",
    np.bytes_(b"b"),
]


@pytest.mark.parametrize("first", range(len(SCALARS)))
def test_keys_are_those_of_equal_values(first: int) -> None:
    one = SCALARS[first]
    assert value_keys([one]) is None
    assert value_keys([one, one, one]) is None
    for second, other in enumerate(SCALARS):
        alike = first == second or {first, second} == {9, 11}  # a string of numpy is one
        for values in ([one, other], [one, one, other], [other, one, one]):
            keys = value_keys(values)
            assert (keys is None) == alike, values
            if keys is not None:
                same = [value is values[0] for value in values]
                assert [key == keys[0] for key in keys] == same


@pytest.mark.parametrize("n", [2, 3])
def test_numbers_that_differ_in_one_place(n: int) -> None:
    for place in range(n):
        values = [np.int32(5)] * n
        values[place] = np.int32(6)
        keys = value_keys(values)
        assert keys is not None
        assert len(set(keys)) == 2


def inline(values: Any) -> VirtualArray:
    return VirtualArray.from_numpy(np.asarray(values), ["x"])


def test_arrays_of_the_same_chunks_and_of_equal_inline_ones_are_told_without_reading() -> None:
    array = inline([1, 2, 3])
    assert same_chunks(array, inline([1, 2, 3]))
    assert same_chunks(array, array.with_changes(attrs={"units": "m"}, dims=("y",)))
    for other in ([1, 2, 4], [1, 2], [1.0, 2.0, 3.0], [[1, 2, 3]]):
        made = VirtualArray.from_numpy(np.asarray(other), ["x", "y"][: np.ndim(other)])
        assert not same_chunks(array, made)
    two = [concatenate([inline([1]), inline([last])], 0) for last in (2, 2, 3)]
    assert [same_chunks(two[0], other) for other in two] == [True, True, False]
    assert not same_chunks(array, flip(array, 0))
    kinds = [chunked_array(np.arange(4), (2,), ("x",), big_endian=big) for big in (False, True)]
    assert not same_chunks(*kinds)


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
