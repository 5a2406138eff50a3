"""A sharded view holds what the unsharded one does, and both what the array holds."""

import asyncio

import numpy as np
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype

from gridref.faces.zarr.store import open_store
from gridref.model.array import VirtualGroup
from gridref.model.encoding import EdgePolicy
from gridref.model.indexing import getitem
from gridref.model.joining import concatenate
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly
from tests.work import FEWER

SHARDS = st.one_of(
    st.sampled_from(["blocks", "auto"]),
    st.dictionaries(st.sampled_from(["t", "x"]), st.integers(1, 24), min_size=1),
)


@st.composite
def virtual_arrays(draw):
    """Blocks of uneven length along the first axis, some flipped, with absent chunks."""
    width = draw(st.integers(1, 7))
    chunk_x = draw(st.integers(1, 8))
    chunk_t = draw(st.integers(1, 5))
    alike = draw(st.booleans())
    blocks = []
    for number in range(draw(st.integers(1, 4))):
        length = (
            draw(st.integers(1, 4)) * chunk_t if draw(st.booleans()) else draw(st.integers(1, 9))
        )
        values = (np.arange(length * width) + 1000 * number + 1).reshape(length, width)
        own = chunk_t if alike else draw(st.integers(1, 5))
        n_chunks = -(-length // own) * -(-width // chunk_x)
        array = chunked_array(
            values.astype("i4"),
            (own, chunk_x),
            ("t", "x"),
            compressed=alike or draw(st.booleans()),
            absent=draw(st.sets(st.integers(0, n_chunks - 1))),
            edge=EdgePolicy.PADDED if alike else draw(st.sampled_from(list(EdgePolicy))),
            fill_value=-7,
        )
        if not alike and draw(st.booleans()):
            array = getitem(array, np.s_[::-1])
        blocks.append(array)
    return concatenate(blocks, 0)


def selections(shape):
    def one(extent):
        return st.tuples(st.integers(0, extent), st.integers(0, extent)).map(
            lambda pair: slice(min(pair), max(pair))
        )

    return st.tuples(*map(one, shape))


@FEWER
@given(
    data=st.data(),
    array=virtual_arrays(),
    view=st.sampled_from(["auto", "portable"]),
    grid=st.sampled_from(["regular", "rectilinear"]),
    location=st.sampled_from(["start", "end"]),
)
def test_sharded_equals_unsharded(data, array, view, grid, location):
    expected = read_slowly(array)
    group = VirtualGroup({"a": array})
    shards = data.draw(SHARDS)
    chunks = data.draw(st.none() | st.dictionaries(st.sampled_from(["t", "x"]), st.integers(1, 9)))
    sharded = open_store(
        group, view, shards=shards, grid=grid, index_location=location, chunks=chunks
    )
    flat = open_store(group, view, grid=grid, chunks=chunks)
    shown = sharded.space.array_view("a")
    assert (shown.shards is None) == bool(shown.shard_reason)
    with zarr.config.set({"array.rectilinear_chunks": True}):
        one = zarr.open_group(sharded, mode="r")["a"]
        other = zarr.open_group(flat, mode="r")["a"]
    for _ in range(3):
        selection = data.draw(selections(array.shape))
        np.testing.assert_array_equal(one[selection], expected[selection])
        np.testing.assert_array_equal(other[selection], expected[selection])


@FEWER
@given(data=st.data(), array=virtual_arrays(), view=st.sampled_from(["auto", "portable"]))
def test_any_range_of_a_shard_is_that_part_of_it(data, array, view):
    store = open_store(
        VirtualGroup({"a": array}), view, shards=data.draw(SHARDS), grid="rectilinear"
    )
    for key in store.space.keys("a/c/"):
        found = store.space.resolve(key)
        whole = store.reader.read(found)
        assert len(whole) == found.n_bytes
        a, b = sorted(data.draw(st.tuples(*[st.integers(0, len(whole))] * 2)))
        requests = [RangeByteRequest(a, b), OffsetByteRequest(a), SuffixByteRequest(b)]
        parts = [whole[a:b], whole[a:], whole[max(0, len(whole) - b) :]]
        for request, part in zip(requests, parts, strict=True):
            got = asyncio.run(store.get(key, default_buffer_prototype(), request))
            assert got.to_bytes() == part
        assert store.space.resolve(key).etag == found.etag


@FEWER
@given(array=virtual_arrays(), shards=SHARDS)
def test_a_listing_holds_the_keys_that_resolve(array, shards):
    for view in ("auto", "portable"):
        space = open_store(
            VirtualGroup({"a": array}), view, shards=shards, grid="rectilinear"
        ).space
        grid_shape = space.array_view("a").metadata.grid.grid_shape
        every = {f"a/c/{t}/{x}" for t in range(grid_shape[0]) for x in range(grid_shape[1])}
        there = {key for key in every if space.resolve(key) is not None}
        assert set(space.keys("a/c/")) == there
