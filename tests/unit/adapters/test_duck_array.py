"""Virtual arrays as numpy sees them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from gridref.adapters.xarray.duck_array import VirtualDuckArray
from gridref.errors import CombineError, InvalidRequestError
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
        lambda a: np.broadcast_to(a, (2, 5, 3, 4)),
        lambda a: np.expand_dims(a, (0, 3)),
        lambda a: np.squeeze(np.expand_dims(a, 1)),
        lambda a: np.transpose(a, (2, 0, 1)),
        lambda a: a.T,
        lambda a: np.moveaxis(a, 0, -1),
        lambda a: np.moveaxis(a, [0, 1], [2, 0]),
        lambda a: np.flip(a, (0, 2)),
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
        lambda a: a + 1,
        lambda a: np.mean(a, axis=0),
        lambda a: np.sort(a, axis=1),
        lambda a: a == VALUES,
        lambda a: a[[0, 1], [2, 0], [1, 1]],
        lambda a: a[[1], [2], [3]],
        lambda a: a[np.arange(5) > 2, [0, 1]],
        lambda a: a[VALUES > 30],
        lambda a: np.asarray(a[np.arange(5) % 2 == 0]),
        lambda a: np.where(VALUES % 2 == 0, a, 0),
        lambda a: np.concatenate([a, a], axis=None),
        lambda a: a.reshape(15, 4),
        lambda a: a[:, 0, [1, 2]] if isinstance(a, np.ndarray) else np.asarray(a[:, 0, [1, 2]]),
        lambda a: np.asarray(a[0, :, [1, 2]]),
    ],
)
def test_what_loads_is_right(change: Any) -> None:
    np.testing.assert_array_equal(change(duck()), change(VALUES))


def test_loading_has_a_limit() -> None:
    small = VirtualDuckArray(duck().array, limit_bytes=100)
    with pytest.raises(InvalidRequestError, match="limit of 100"):
        np.asarray(small)
    assert np.asarray(small[0]).tolist() == VALUES[0].tolist()


def test_equality_of_the_same_chunks_needs_no_values() -> None:
    array = VirtualDuckArray(duck().array, limit_bytes=0)
    assert (array == copy.deepcopy(array)).all()
    assert not (array != array[:]).any()


def test_unlike_numbers_are_not_laid_together() -> None:
    with pytest.raises(CombineError, match="packed differently"):
        np.concatenate([duck(scale_factor=0.1), duck(scale_factor=0.2)])
    with pytest.raises(CombineError, match="units differ"):
        np.stack([duck(units="K"), duck(units="degC")])
    assert np.concatenate([duck(units="K"), VALUES]).shape == (10, 3, 4)


def test_scalars_and_length() -> None:
    assert len(duck()) == 5
    scalar = duck()[0, 0, 0]
    assert scalar.shape == ()
    assert int(np.asarray(scalar)) == 0
    with pytest.raises(TypeError):
        len(scalar)
