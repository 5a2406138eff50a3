"""Virtual arrays as numpy sees them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from xarray.core.duck_array_ops import array_equiv, array_notnull_equiv, fillna

from gridref.errors import CombineError, GridrefError, InvalidRequestError
from gridref.faces.xarray.duck_array import NoValuesError, VirtualDuckArray
from gridref.testing.builders import chunked_array

VALUES = np.arange(60, dtype="i4").reshape(5, 3, 4)


def duck(values: Any = VALUES, **attrs: Any) -> VirtualDuckArray:
    dims = [f"d{axis}" for axis in range(np.ndim(values))]
    return VirtualDuckArray(chunked_array(np.asarray(values), [2] * len(dims), dims, attrs=attrs))


@pytest.mark.parametrize(
    "change",
    [
        lambda a: np.concatenate([a, a], axis=1),
        lambda a: np.concatenate([a, a], axis=-1),
        lambda a: np.stack([a, a], axis=-1),
        lambda a: np.concatenate([a, VALUES], axis=1),
        lambda a: np.concatenate([VALUES, a, VALUES[:1]]),
        lambda a: np.concatenate([VALUES[:0], a, VALUES[:0]]),
        lambda a: np.stack([VALUES, a], axis=1),
        lambda a: a.transpose((2, 0, 1))[:, None],
        lambda a: a.transpose((2, 1, 0))[None, :, None].transpose((3, 1, 4, 0, 2)),
        lambda a: a[..., 1:],
        lambda a: a[1:, ..., ::-1],
        lambda a: a[..., 0:0],
        lambda a: a[...],
        lambda a: np.broadcast_to(a, (2, 5, 3, 4)),
        lambda a: np.reshape(a, (1, 5, 3, 1, 4)),
        lambda a: np.reshape(a[:, None], (5, 3, 4)),
        lambda a: np.moveaxis(a, 0, -1),
        lambda a: np.moveaxis(a, [0, 1], [2, 0]),
        lambda a: a[::-1, :, ::-1],
        lambda a: a[1:, ::-2, [3, 0]],
        lambda a: a[..., None, 1],
        lambda a: a[None, 2, ..., None],
        lambda a: a[np.ix_([4, 0], [1], [2, 3, 0])],
        lambda a: a[np.array([[2]]), np.array([[0], [1]]), np.array([[3, 1]])],
        lambda a: a.astype("f8"),
        lambda a: np.where(np.array([[[True, False, True, True]]]), a, 7),
        lambda a: np.where(np.array([True, False, True, False, False]).reshape(5, 1, 1), a, np.nan),
        lambda a: np.full_like(a, 3),
    ],
)
def test_what_stays_virtual(change: Any) -> None:
    found, expected = change(duck()), change(VALUES)
    assert isinstance(found, VirtualDuckArray)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a[[0, 1], [2, 0], [1, 1]],
        lambda a: a[[1], [2], [3]],
        lambda a: a[np.arange(5) > 2, [0, 1]],
        lambda a: a[VALUES > 30],
        lambda a: a[np.arange(5) % 2 == 0],
        lambda a: np.reshape(a, (15, 4)),
        lambda a: a[:, 0, [1, 2]],
        lambda a: a[0, :, [1, 2]],
    ],
)
def test_what_references_cannot_arrange_is_kept_inline(change: Any) -> None:
    found = change(duck(scale_factor=2.0))
    assert isinstance(found, VirtualDuckArray)
    assert found.array.attrs == {"scale_factor": 2.0}
    np.testing.assert_array_equal(found.load(), change(VALUES))


@pytest.mark.parametrize(
    "pad",
    [
        {"mode": "constant", "constant_values": 7},
        {"mode": "constant", "constant_values": ((1, 2), (3, 4), (5, 6))},
        {"mode": "edge"},
        {"mode": "wrap"},
        {"mode": "reflect"},
        {"mode": "symmetric"},
    ],
)
def test_padding_stays_virtual(pad: dict[str, Any]) -> None:
    found = np.pad(duck(), ((1, 2), (0, 0), (2, 0)), **pad)
    assert isinstance(found, VirtualDuckArray)
    np.testing.assert_array_equal(found.load(), np.pad(VALUES, ((1, 2), (0, 0), (2, 0)), **pad))


REFUSED: list[Any] = [
    lambda a: a + 1,
    lambda a: 1 - a,
    lambda a: VALUES * a,
    lambda a: a @ a,
    lambda a: -a,
    abs,
    lambda a: a < 3,
    lambda a: a >= 3,
    lambda a: np.asarray(a == VALUES),
    lambda a: np.asarray(np.isnan(a)),
    lambda a: a != VALUES,
    np.add.reduce,
    lambda a: np.add(a, a, out=VALUES.copy()),
    lambda a: np.concatenate([a, a], axis=None),
    lambda a: np.concatenate([a, a], dtype="f4"),
    lambda a: np.where(VALUES % 3 == 0, a, 0),
    lambda a: np.where(VALUES % 2 == 0, 0, a),
    lambda a: np.where(a, 1, 0),
    lambda a: np.where(np.ones(4, bool), a, np.ones(4)),
    lambda a: np.pad(a, 1, mode="mean"),
    lambda a: np.pad(a, 1, mode="reflect", reflect_type="odd"),
    lambda a: np.array(object(), object) == a[0, 0, 0] or bool(a[0, 0, 0]),
    lambda a: float(a[0, 0, 0]),
    lambda a: int(a[0, 0, 0]),
    lambda a: [1, 2][a[0, 0, 0]],
    bool,
    lambda a: 3 in a,
    lambda a: a.mean(),
    lambda a: a.clip(0, 1),
    lambda a: a.item(),
    lambda a: a.astype("i2"),
    lambda a: a.astype("f4"),
    lambda a: a.astype(str),
    lambda a: a.__setitem__(0, 1),
]


@pytest.mark.parametrize("compute", REFUSED)
@pytest.mark.parametrize("attrs", [{}, {"scale_factor": 0.1}])
def test_nothing_is_computed(compute: Any, attrs: dict[str, Any]) -> None:
    with pytest.raises(NoValuesError, match=r"needs values.*engine='gridref'"):
        compute(duck(**attrs))


ARRANGING = {
    "broadcast_to", "concat", "concatenate", "full_like", "moveaxis", "pad", "result_type", "stack",
    "where", "array_repr", "array_str", "array2string", "copyto", "save", "savetxt", "savez",
    "savez_compressed",
}  # fmt: skip


def _numpy_functions() -> list[str]:
    spaces = [("", np), ("fft.", np.fft), ("linalg.", np.linalg)]
    return sorted(
        prefix + name
        for prefix, space in spaces
        for name in vars(space)
        if hasattr(getattr(space, name), "_implementation") and name not in ARRANGING
    )


@pytest.mark.parametrize("name", _numpy_functions())
def test_no_other_function_of_numpy_takes_packed_numbers(name: str) -> None:
    """Called with a virtual array in any place, none returns anything."""
    space, _, own = name.rpartition(".")
    function = getattr(getattr(np, space) if space else np, own)
    packed = duck(scale_factor=0.1)
    refusals = 0
    for n_arguments in (1, 2, 3, 4):
        for arguments in ((packed,) * n_arguments, (packed, *(0,) * (n_arguments - 1))):
            wrong_call = (TypeError, AttributeError, ValueError)
            with pytest.raises((GridrefError, *wrong_call)) as caught:
                function(*arguments)
            refusals += isinstance(caught.value, GridrefError)
    assert refusals


@pytest.mark.parametrize(
    "name", sorted(name for name in vars(np) if isinstance(getattr(np, name), np.ufunc))
)
def test_no_ufunc_takes_packed_numbers(name: str) -> None:
    ufunc = getattr(np, name)
    packed = duck(scale_factor=0.1)
    with pytest.raises(NoValuesError):
        np.asarray(ufunc(*[packed] * ufunc.nin))


@pytest.mark.parametrize(
    "attrs",
    [
        {"scale_factor": 0.1},
        {"add_offset": 1},
        {"_FillValue": np.int32(3)},
        {"missing_value": 3},
        {"units": "days since 2000-01-01"},
        {"units": "days", "dtype": "timedelta64[ns]"},
    ],
)
def test_numpy_arrays_are_made_of_values_only(attrs: dict[str, Any]) -> None:
    assert np.asarray(duck(units="K")).tolist() == VALUES.tolist()
    with pytest.raises(NoValuesError, match="packed numbers or undecoded times"):
        np.asarray(duck(**attrs))


def test_loading_has_a_limit() -> None:
    small = VirtualDuckArray(duck().array, limit_bytes=100)
    with pytest.raises(InvalidRequestError, match="limit of 100"):
        np.asarray(small)
    assert np.asarray(small[0]).tolist() == VALUES[0].tolist()


@pytest.mark.parametrize("dtype", ["i4", "f8", "S3", "?"])
def test_equality_of_the_same_chunks_needs_no_values(dtype: str) -> None:
    array = duck(VALUES.astype(dtype)).array
    unread, again = (VirtualDuckArray(entry, limit_bytes=0) for entry in (array, copy.copy(array)))
    assert array_equiv(unread, copy.deepcopy(unread))
    assert array_equiv(unread, again[:])
    assert array_notnull_equiv(unread, again)


def test_values_are_compared_not_stored_numbers() -> None:
    packed = duck(np.array([10, 20, -1], "i2"), scale_factor=0.5, _FillValue=np.int16(-1))
    same = duck(np.array([5.0, 10.0, np.nan]))
    assert array_equiv(packed, same)
    assert array_equiv(packed, np.array([5.0, 10.0, np.nan]))
    assert not array_equiv(packed, duck(np.array([10.0, 20.0, -1.0])))
    assert not array_equiv(packed, duck(np.array([10, 20, -1], "i2"), add_offset=8.0))
    assert not array_equiv(duck(units="K"), duck(units="degC"))
    day, late = duck(units="days since 2000-01-01"), duck(VALUES - 1, units="days since 2000-01-02")
    assert array_equiv(day, late)
    assert not array_equiv(day, duck(units="days since 2000-01-02"))


def test_gaps_are_filled_from_equal_arrays_only() -> None:
    one = duck(np.array([1, -1], "i2"), _FillValue=np.int16(-1))
    other = duck(np.array([1, 2], "i2"), _FillValue=np.int16(-1))
    assert fillna(one, copy.copy(one)) is one
    for filling in (other, 5, np.array([1.0, 2.0])):
        with pytest.raises(NoValuesError):
            fillna(one, filling)


def test_no_data_is_put_in_rows_where_numbers_allow_it() -> None:
    rows = np.array([True, False, True, True, False]).reshape(5, 1, 1)
    columns = np.array([True, True, False, True])
    packed = duck(VALUES.astype("i2"), scale_factor=0.1, _FillValue=np.int16(3))
    found = np.where(rows & columns, packed.astype("f4"), np.nan)
    expected = np.where(rows & columns, VALUES.astype("f4"), np.nan)
    np.testing.assert_array_equal(found.load(), expected)
    for fill in (0, 5.0):
        with pytest.raises(NoValuesError, match=r"np\.where"):
            np.where(rows, packed, fill)
    assert np.where(rows, packed, np.int16(3)).dtype == np.dtype("i2")
    unsigned = duck(VALUES.astype("i1"), _Unsigned="true")
    with pytest.raises(NoValuesError, match="count as unsigned"):
        unsigned.astype("f4")
    exact = duck(scale_factor=np.float32(0.1), add_offset=np.float32(1))
    with pytest.raises(NoValuesError, match="another precision"):
        exact.astype("f8")


def test_unlike_numbers_are_not_laid_together() -> None:
    with pytest.raises(CombineError, match="packed differently"):
        np.concatenate([duck(scale_factor=0.1), duck(scale_factor=0.2)])
    with pytest.raises(CombineError, match="units differ"):
        np.stack([duck(units="K"), duck(units="degC")])
    with pytest.raises(CombineError, match="packed differently"):
        np.concatenate([duck(scale_factor=0.1), VALUES])
    with pytest.raises(CombineError, match="units differ"):
        np.concatenate([VALUES, duck(units="days since 2000-01-01")])
    half = {"scale_factor": 0.5}
    with pytest.raises(CombineError, match=r"in float64; .* in float32"):
        np.concatenate([duck(**half), duck(scale_factor=np.float32(0.5))])
    signs = [duck(VALUES.astype(dtype), _Unsigned="true") for dtype in ("i1", "i2")]
    with pytest.raises(CombineError, match="packed differently"):
        np.concatenate(signs)
    beside = np.concatenate([VALUES, duck(units="K")])
    assert beside.shape == (10, 3, 4)
    with pytest.raises(CombineError, match="units differ"):
        np.concatenate([beside, duck(units="degC")])


def test_time_units_that_mean_the_same_are_alike() -> None:
    days = [duck(units=f"days since {date}") for date in ("2000-01-01", "2000-1-1 00:00:00")]
    assert np.concatenate(days).shape == (10, 3, 4)


def test_scalars() -> None:
    scalar = duck()[0, 0, 0]
    assert scalar.shape == ()
    assert int(np.asarray(scalar)) == 0
