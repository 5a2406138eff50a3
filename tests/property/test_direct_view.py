"""What zarr-python reads of the direct view equals numpy indexing, by every kind of selection."""

from __future__ import annotations

from typing import Any

import numpy as np
import zarr
from hypothesis import given
from hypothesis import strategies as st

import gridref
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.testing.invariants import select
from gridref.testing.strategies import arrays_with_values
from tests.work import FEWER

NOT_EMPTY = arrays_with_values(min_rank=1, max_rank=3).filter(lambda case: case[0].size > 0)

PIPELINES = [
    "zarr.core.codec_pipeline.BatchedCodecPipeline",
    "zarr.core.codec_pipeline.FusedCodecPipeline",
]


def opened(array: VirtualArray, lengths: list[int]) -> Any:
    chunks = dict(zip(array.dims, lengths, strict=True))
    store = gridref.open_store(VirtualGroup({"x": array}), "direct", chunks=chunks)
    return zarr.open_group(store, mode="r")["x"]


@FEWER
@given(st.data())
def test_every_kind_of_selection(data: st.DataObject) -> None:
    array, expected = data.draw(NOT_EMPTY)
    lengths = [data.draw(st.integers(1, extent + 1)) for extent in array.shape]
    index = [st.integers(-extent, extent - 1) for extent in array.shape]
    bounds = [st.none() | st.integers(-extent - 1, extent + 1) for extent in array.shape]
    basic = tuple(
        data.draw(index[axis] | st.builds(slice, bounds[axis], bounds[axis], st.integers(1, 4)))
        for axis in range(array.ndim)
    )
    several = [data.draw(st.lists(i, min_size=1, max_size=6)) for i in index]
    masks = [
        np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool)
        for n in array.shape
    ]
    orthogonal = tuple(
        data.draw(st.sampled_from([basic[axis], several[axis], masks[axis]]))
        for axis in range(array.ndim)
    )
    n_points = data.draw(st.integers(1, 7))
    points = tuple(
        np.array(data.draw(st.lists(i, min_size=n_points, max_size=n_points))) for i in index
    )
    mask = np.array(
        data.draw(st.lists(st.booleans(), min_size=expected.size, max_size=expected.size)), bool
    ).reshape(expected.shape)
    with zarr.config.set({"codec_pipeline.path": data.draw(st.sampled_from(PIPELINES))}):
        shown = opened(array, lengths)
        assert shown.chunks == tuple(
            min(length, extent) for length, extent in zip(lengths, array.shape, strict=True)
        )
        assert np.array_equal(shown[...], expected)
        assert np.array_equal(shown[basic], expected[basic])
        assert np.array_equal(shown.oindex[orthogonal], select(expected, orthogonal))
        assert np.array_equal(shown.vindex[points], expected[points])
        assert np.array_equal(shown.get_mask_selection(mask), expected[mask])
        assert np.array_equal(
            shown.blocks[(0,) * array.ndim], expected[tuple(slice(0, n) for n in shown.chunks)]
        )
