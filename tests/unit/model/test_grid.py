"""Chunk grids."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridref.errors import InvalidRequestError, NotRepresentableError
from gridref.model.grid import MAX_RANK, ChunkGrid, GridAxis, chunk_counts, chunk_runs
from gridref.model.joining import joined_axis


@st.composite
def axes(draw: st.DrawFn) -> tuple[GridAxis, list[int]]:
    """An axis and the data lengths of its chunks, worked out one by one."""
    edges = draw(st.lists(st.integers(1, 9), min_size=1, max_size=12))
    extent = draw(st.integers(0, sum(edges)))
    lengths, left = [], extent
    for edge in edges:
        if left <= 0:
            break
        lengths.append(min(edge, left))
        left -= edge
    return GridAxis.from_edges(edges, extent), lengths


@given(axes())
def test_every_chunk_is_where_a_loop_finds_it(case: tuple[GridAxis, list[int]]) -> None:
    axis, lengths = case
    chunks = np.arange(len(lengths))
    assert axis.n_chunks == len(lengths)
    assert axis.data_lengths(chunks).tolist() == lengths
    starts = [sum(lengths[:k]) for k in chunks]
    assert axis.starts(chunks).tolist() == starts
    owners = [k for k, length in enumerate(lengths) for _ in range(length)]
    assert axis.locate(np.arange(axis.extent)).tolist() == owners
    assert axis.edges().tolist() == lengths
    for first in range(len(lengths)):
        for last in range(first, len(lengths)):
            assert axis.starts_between(first, last).tolist() == starts[first : last + 1]
    for chunk in (-1, len(lengths)):
        for of_chunk in (axis.starts, axis.chunk_lengths, axis.data_lengths):
            with pytest.raises(InvalidRequestError, match="chunk"):
                of_chunk(chunk)
    for element in (-1, axis.extent):
        with pytest.raises(InvalidRequestError, match="element"):
            axis.locate(element)


@given(axes())
def test_json_round_trip(case: tuple[GridAxis, list[int]]) -> None:
    axis, _ = case
    if axis.extent:
        assert GridAxis.from_json(axis.to_json(), axis.extent) == axis


@given(st.lists(axes(), min_size=1, max_size=4))
def test_concatenation_is_the_list_of_edges(cases: list[tuple[GridAxis, list[int]]]) -> None:
    exact = [GridAxis.from_edges(lengths) for _, lengths in cases if lengths]
    joined = joined_axis(exact or [GridAxis.uniform(0, 1)])
    assert joined.edges().tolist() == [length for _, lengths in cases for length in lengths]


def test_equality_is_by_meaning() -> None:
    assert GridAxis.from_edges([5, 5, 5]) == GridAxis.uniform(15, 5)
    assert GridAxis.from_edges([5, 5, 5], 13) == GridAxis.uniform(13, 5)
    assert GridAxis.from_edges([5, 5, 3]) != GridAxis.uniform(13, 5)
    assert GridAxis.from_edges([5, 5, 5, 5], 12) == GridAxis.uniform(12, 5)
    assert hash(GridAxis.from_edges([5, 5, 5])) == hash(GridAxis.uniform(15, 5))
    assert GridAxis.uniform(15, 5) != GridAxis.uniform(15, 3)


def test_a_million_equal_chunks_cost_nothing() -> None:
    axis = joined_axis([GridAxis.uniform(10**12, 10**6)] * 3)
    assert len(axis.run_lengths) == 1
    assert axis.n_chunks == 3 * 10**6
    assert axis.locate(2 * 10**12 + 1) == 2 * 10**6


def test_runs_far_beyond_the_extent() -> None:
    axis = GridAxis.from_runs([1, 2**40, 2**62], [2, 2**40, 9], 10)
    assert axis == GridAxis.from_edges([1, 1, 2**40], 10)


@pytest.mark.parametrize(
    ("entry", "extent", "message"),
    [
        ([3, 0], 3, "edge length must be >= 1, got 0"),
        ([3, 3], 7, "edges cover 6 of 7"),
        ([[3, 0]], 0, "repeat count"),
        ([[3, 1, 1]], 3, "got \\[3, 1, 1\\]"),
        ("3", 3, "integer or a list"),
        (True, 3, "integer or a list"),
        (0, 3, "got 0"),
    ],
)
def test_bad_edges(entry: object, extent: int, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        GridAxis.from_json(entry, extent)  # type: ignore[arg-type]


def test_specification_example() -> None:
    document = {
        "name": "rectilinear",
        "configuration": {
            "kind": "inline",
            "chunk_shapes": [4, [1, 2, 3], [[4, 2]], [[1, 3], 3], [4, 4, 4]],
        },
    }
    grid = ChunkGrid.from_json(document, (6, 6, 6, 6, 6))
    assert grid.grid_shape == (2, 3, 2, 4, 2)
    assert grid.chunk_shape((1, 2, 1, 3, 1)) == (4, 3, 4, 3, 4)
    assert grid.data_shape((1, 2, 1, 3, 1)) == (2, 3, 2, 3, 2)
    assert grid.start((1, 2, 1, 3, 1)) == (4, 3, 4, 3, 4)
    assert not grid.is_regular
    assert ChunkGrid.from_json(grid.to_json(), grid.shape) == grid


def test_regular_is_written_wherever_it_fits() -> None:
    grid = ChunkGrid.from_edges([[5, 5, 5], [7]])
    assert grid.to_json() == {"name": "regular", "configuration": {"chunk_shape": [5, 7]}}


def test_draft_rectangular_grid_is_read() -> None:
    document = {"name": "rectangular", "configuration": {"chunk_shape": [[5, 5, 3], 10]}}
    grid = ChunkGrid.from_json(document, (13, 25))
    assert grid.grid_shape == (3, 3)
    assert grid.to_json()["name"] == "rectilinear"
    with pytest.raises(InvalidRequestError, match="sum to the extent"):
        ChunkGrid.from_json(document, (12, 25))


def test_unknown_grid() -> None:
    with pytest.raises(InvalidRequestError, match="unknown chunk grid 'hexagonal'"):
        ChunkGrid.from_json({"name": "hexagonal"}, (1,))


def test_scalar() -> None:
    grid = ChunkGrid(())
    assert grid.n_chunks == 1
    assert grid.is_regular


def test_zarr_python_cuts_the_same() -> None:
    import zarr

    with zarr.config.set({"array.rectilinear_chunks": True}):
        store = zarr.storage.MemoryStore()
        made = zarr.create_array(
            store, shape=(12, 10), chunks=[[1, 2, 3, 6], [5, 5]], dtype="i4", compressors=None
        )
        document = made.metadata.to_dict()["chunk_grid"]
        grid = ChunkGrid.from_json(document, made.shape)
        assert [axis.edges().tolist() for axis in grid.axes] == [
            list(sizes) for sizes in made.read_chunk_sizes
        ]


@pytest.mark.parametrize(
    ("lengths", "counts", "length"), [([], [], 1), ([4], [0], 4), ([4, 7], [3, 1], 4)]
)
def test_an_axis_of_nothing_has_a_length_of_chunks(lengths, counts, length):
    axis = GridAxis.from_runs(lengths, counts, 0)
    assert (axis.extent, axis.n_chunks, axis.uniform_length) == (0, 0, length)


UNEVEN = GridAxis.from_edges([3, 3, 5, 5, 2])


def test_axes_differ_in_extent_lengths_and_counts() -> None:
    alike = GridAxis.from_runs([3, 5, 2], [2, 2, 1])
    assert alike == UNEVEN
    assert hash(alike) == hash(UNEVEN)
    others = [
        GridAxis.from_edges([3, 3, 5, 5, 2], 17),
        GridAxis.from_edges([3, 3, 5, 5, 1]),
        GridAxis.from_edges([3, 5, 5, 3, 2]),
        GridAxis.from_runs([3, 5, 2], [1, 2, 1]),
    ]
    for other in others:
        assert other != UNEVEN
        assert hash(other) != hash(UNEVEN)
    assert UNEVEN != [3, 3, 5, 5, 2]
    assert UNEVEN != 18
    assert len({*others, alike, UNEVEN}) == 5


def test_how_axes_are_written() -> None:
    assert UNEVEN.to_json() == [[3, 2], [5, 2], 2]
    assert GridAxis.uniform(7, 3).to_json() == 3
    assert repr(GridAxis.uniform(7, 3)) == "GridAxis(extent=7, edges=3)"
    grid = ChunkGrid((UNEVEN, GridAxis.uniform(7, 3), GridAxis.uniform(0, 4)))
    assert grid.to_json()["configuration"] == {
        "kind": "inline",
        "chunk_shapes": [[[3, 2], [5, 2], 2], [[3, 3]], 4],
    }
    with pytest.raises(NotRepresentableError, match="lengths differ"):
        _ = UNEVEN.uniform_length


def test_where_the_last_chunk_ends() -> None:
    exact = {n: GridAxis.uniform(n, 3).is_exact for n in range(7)}
    assert exact == {n: n % 3 == 0 for n in range(7)}
    assert UNEVEN.is_exact
    assert not GridAxis.from_edges([3, 3, 5], 10).is_exact


def test_grids_have_a_place_for_each_chunk() -> None:
    grid = ChunkGrid((UNEVEN, GridAxis.uniform(7, 3)))
    assert (grid.shape, grid.ndim, grid.grid_shape, grid.n_chunks) == ((18, 7), 2, (5, 3), 15)
    assert grid.start((3, 2)) == (11, 6)
    assert (grid.chunk_shape((3, 2)), grid.data_shape((3, 2))) == ((5, 3), (5, 1))
    assert not grid.is_regular
    assert ChunkGrid.from_edges([[3, 3], [2]]) == ChunkGrid.regular((6, 2), (3, 2))


@pytest.mark.parametrize(
    "make",
    [
        lambda: GridAxis.uniform(-1, 3),
        lambda: GridAxis.uniform(3, 0),
        lambda: GridAxis.from_edges([3], -1),
        lambda: GridAxis.from_edges([3, -1]),
        lambda: GridAxis.from_runs([3], [-1]),
        lambda: GridAxis.from_runs([3], [1, 1]),
        lambda: GridAxis.from_edges([], 1),
        lambda: ChunkGrid.regular((3,), (3, 3)),
        lambda: ChunkGrid((GridAxis.uniform(1, 1),) * (MAX_RANK + 1)),
        lambda: ChunkGrid.from_json(
            {"name": "rectilinear", "configuration": {"kind": "url", "chunk_shapes": [3]}}, (3,)
        ),
        lambda: ChunkGrid.from_json(
            {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [3]}},
            (3, 3),
        ),
    ],
    ids=range(11),
)
def test_grids_that_cannot_be(make) -> None:
    with pytest.raises(InvalidRequestError):
        make()


def test_the_least_of_everything_can_be() -> None:
    assert GridAxis.uniform(0, 1).n_chunks == 0
    assert GridAxis.from_edges([1]).n_chunks == 1
    assert GridAxis.from_edges([]).extent == 0
    assert GridAxis.from_runs([4, 2, 4], [1, 0, 1]) == GridAxis.uniform(8, 4)
    assert ChunkGrid((GridAxis.uniform(1, 1),) * MAX_RANK).n_chunks == 1


@pytest.mark.parametrize(
    ("shape", "chunk_shape"),
    [((), ()), ((7,), (3,)), ((4, 5), (3, 2)), ((2, 3, 4), (1, 3, 3)), ((0, 2), (2, 2))],
)
def test_runs_of_chunks_are_those_of_a_loop(shape, chunk_shape) -> None:
    counts = chunk_counts(shape, chunk_shape)
    flat = np.arange(int(np.prod(shape))).reshape(shape)
    start, count = chunk_runs(shape, chunk_shape)
    expected = [
        flat[tuple(slice(k * n, (k + 1) * n) for k, n in zip(coords, chunk_shape, strict=True))]
        for coords in np.ndindex(*counts)
    ]
    assert start.tolist() == [int(part.flat[0]) for part in expected]
    assert count.tolist() == [part.size for part in expected]
