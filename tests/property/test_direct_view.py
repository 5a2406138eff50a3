"""What zarr-python reads of the direct view equals numpy indexing, by every kind of selection."""

from __future__ import annotations

from typing import Any

import numpy as np
import zarr
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import gridref
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import EdgePolicy
from gridref.model.indexing import isel
from gridref.model.joining import concatenate
from gridref.testing.builders import chunked_array

PIPELINES = [
    "zarr.core.codec_pipeline.BatchedCodecPipeline",
    "zarr.core.codec_pipeline.FusedCodecPipeline",
]


@st.composite
def uneven_arrays(draw: st.DrawFn) -> tuple[VirtualArray, NDArray[Any]]:
    """Files of different lengths, chunks, codecs, byte orders and edges along one axis."""
    rank = draw(st.integers(1, 3))
    dims = [f"d{axis}" for axis in range(rank)]
    shape = [draw(st.integers(1, 6)) for _ in range(rank)]
    axis = draw(st.integers(0, rank - 1))
    parts, values = [], []
    for number in range(draw(st.integers(1, 4))):
        shape[axis] = draw(st.integers(1, 9))
        part = np.arange(np.prod(shape), dtype="i4").reshape(shape) + 1000 * number
        parts.append(
            chunked_array(
                part,
                [draw(st.integers(1, extent + 2)) for extent in shape],
                dims,
                edge=draw(st.sampled_from(EdgePolicy)),
                big_endian=draw(st.booleans()),
                compressed=draw(st.booleans()),
            )
        )
        values.append(part)
    array, expected = concatenate(parts, axis), np.concatenate(values, axis=axis)
    if draw(st.booleans()):
        array, expected = isel(array, {dims[0]: slice(None, None, -1)}), expected[::-1]
    return array, expected


def opened(array: VirtualArray, lengths: list[int]) -> Any:
    chunks = dict(zip(array.dims, lengths, strict=True))
    store = gridref.open_store(VirtualGroup({"x": array}), "direct", chunks=chunks)
    return zarr.open_group(store, mode="r")["x"]


@given(st.data())
def test_every_kind_of_selection(data: st.DataObject) -> None:
    array, expected = data.draw(uneven_arrays())
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
        assert np.array_equal(shown.oindex[orthogonal], one_after_the_other(expected, orthogonal))
        assert np.array_equal(shown.vindex[points], expected[points])
        assert np.array_equal(shown.get_mask_selection(mask), expected[mask])
        assert np.array_equal(
            shown.blocks[(0,) * array.ndim], expected[tuple(slice(0, n) for n in shown.chunks)]
        )


def one_after_the_other(values: NDArray[Any], selection: tuple[Any, ...]) -> NDArray[Any]:
    axis = 0
    for entry in selection:
        values = values[(slice(None),) * axis + (entry,)]
        axis += 0 if isinstance(entry, int) else 1
    return values
