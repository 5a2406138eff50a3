"""Layout, packing and index of virtual shards."""

import itertools

import numpy as np
import pytest

from gridref.codecs import encode_chunk
from gridref.errors import InvalidRequestError, NotRepresentableError
from gridref.model.encoding import Codec
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.model.shard import (
    INDEX_CODECS,
    MISSING_CHUNK,
    IndexLocation,
    PackedShard,
    ShardLayout,
    boxes_of_interval,
    shard_axis,
)


@pytest.mark.parametrize(
    ("edges", "chunk", "expected"),
    [
        ([30, 30, 10], 10, 30),  # shorter than its neighbours: regular, overhanging
        ([30, 30, 7], 10, 30),
        ([360, 365], 5, [360, 365]),
        ([360, 364], 5, [360, 365]),  # rounded up to whole chunks
        ([10, 20], 10, [10, 20]),
        ([7], 3, 9),
        ([], 3, 3),
    ],
)
def test_shard_edges_follow_blocks(edges, chunk, expected):
    axis = shard_axis(sum(edges), chunk, edges)
    assert axis.to_json() == expected
    assert axis.extent == sum(edges)


def test_an_edge_inside_that_does_not_divide_is_refused():
    with pytest.raises(NotRepresentableError, match="31 is not divisible by the chunk length 10"):
        shard_axis(60, 10, [31, 29])


def test_a_layout_checks_its_edges():
    with pytest.raises(InvalidRequestError, match="dimension 1"):
        ShardLayout(ChunkGrid.regular((10, 10), (4, 5)), (2, 2))


def test_chunks_of_a_shard():
    grid = ChunkGrid((GridAxis.from_edges([4, 8]), GridAxis.uniform(10, 6)))
    layout = ShardLayout(grid, (2, 3))
    assert layout.first_chunk((1, 1)) == (2, 2)
    assert layout.chunks_per_shard((1, 1)) == (4, 2)
    assert layout.chunk_grid.grid_shape == (6, 4)
    codec = layout.codec([Codec.of("bytes", endian="little")])
    assert codec.configuration["index_location"] == "end"
    assert codec.configuration["chunk_shape"] == [2, 3]


@pytest.mark.parametrize("location", IndexLocation)
@pytest.mark.parametrize("sizes", [[], [5], [3, 0, 4]])
def test_index_is_that_of_the_specification(location, sizes):
    """Payloads lie back to back, in another order than their chunks."""
    numbers = np.arange(len(sizes))[::-1].copy()
    packed = PackedShard.pack(numbers, np.array(sizes, np.int64), 4, location)
    before = packed.index_bytes if location is IndexLocation.START else 0
    index = packed.index()
    for number, start, size in zip(numbers, np.cumsum([0, *sizes]), sizes, strict=False):
        assert index[number].tolist() == [before + start, size]
    assert (index[len(sizes) :] == MISSING_CHUNK).all()
    assert (packed.payload_bytes, packed.index_bytes) == (sum(sizes), 4 * 16 + 4)
    assert len(encode_chunk(index, INDEX_CODECS)) == packed.index_bytes


def test_crc32c_of_the_index():
    # RFC 3720, section B.4: 32 bytes of zeros.
    data = encode_chunk(np.zeros((2, 2), np.uint64), INDEX_CODECS)
    assert data[-4:] == bytes.fromhex("aa36918a")


@pytest.mark.parametrize("counts", [(), (5,), (3, 4), (2, 3, 4), (1, 5, 1)])
def test_boxes_hold_exactly_the_interval(counts):
    total = int(np.prod(counts))
    numbers = np.arange(total).reshape(counts)
    for first, stop in itertools.product(range(total + 1), repeat=2):
        boxes = boxes_of_interval(first, stop, counts)
        held = [numbers[tuple(slice(a, b) for a, b in box)].reshape(-1).tolist() for box in boxes]
        assert [*itertools.chain(*held)] == list(range(first, stop))
        assert len(boxes) <= max(1, 2 * len(counts) - 1)


@pytest.mark.parametrize("edges", [(4, 5), (5, 4), (3, 3)])
def test_each_edge_of_a_layout_has_to_be_divisible(edges):
    with pytest.raises(InvalidRequestError, match="not divisible by 2"):
        ShardLayout(ChunkGrid((GridAxis.from_edges(edges),)), (2,))
    assert ShardLayout(ChunkGrid((GridAxis.from_edges((4, 2)),)), (2,)).chunk_shape == (2,)
