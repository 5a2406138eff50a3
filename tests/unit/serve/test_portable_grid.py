"""Which chunks the decoded views show."""

from __future__ import annotations

import numpy as np
import pytest

from gridref.errors import NotRepresentableError
from gridref.model.array import VirtualArray
from gridref.model.encoding import Encoding, bytes_codec
from gridref.model.indexing import getitem
from gridref.model.joining import concatenate
from gridref.model.manifest import ChunkManifest
from gridref.serve.grids import block_chunks, direct_grid, native_grid, portable_grid
from gridref.testing.builders import chunked_array


def cut(shape: tuple[int, ...], chunks: tuple[int, ...], dtype: str = "u1") -> VirtualArray:
    """An array of which nothing is held, of any size."""
    n_chunks = int(np.prod([-(-n // length) for n, length in zip(shape, chunks, strict=True)]))
    encoding = Encoding(chunks, np.dtype(dtype), (bytes_codec(np.dtype(dtype)),))
    dims = ("t", "x", "y")[: len(shape)]
    manifest = ChunkManifest.missing(n_chunks)
    return VirtualArray.of_one_block(
        shape, np.dtype(dtype), encoding=encoding, manifest=manifest, dims=dims
    )


def edges(array: VirtualArray, *, grow: bool = False, rectilinear: bool = False, **chunks: int):
    grid = portable_grid(array, chunks, rectilinear=rectilinear, grow=grow)
    return [axis.edges().tolist() for axis in grid.axes]


def test_stored_chunks_are_kept_where_they_are_even() -> None:
    assert edges(cut((10, 7), (4, 3))) == [[4, 4, 2], [3, 3, 1]]
    assert edges(concatenate([cut((8,), (4,)), cut((6,), (4,))], 0)) == [[4, 4, 4, 2]]


def test_uneven_ones_are_kept_only_for_readers_that_know_them() -> None:
    array = concatenate([cut((6,), (4,)), cut((5,), (4,))], 0)
    assert edges(array, rectilinear=True) == [[4, 2, 4, 1]]
    assert edges(array) == [[4, 4, 3]]


def test_blocks_that_begin_inside_a_chunk_or_in_steps_have_equal_chunks() -> None:
    assert edges(getitem(cut((12,), (4,)), np.s_[1:]), rectilinear=True) == [[4, 4, 3]]
    assert edges(getitem(cut((12,), (4,)), np.s_[::2]), rectilinear=True) == [[2, 2, 2]]
    assert edges(getitem(cut((12,), (4,)), np.s_[::-3]), rectilinear=True) == [[1, 1, 1, 1]]
    assert edges(getitem(cut((12,), (4,)), np.s_[::8]), rectilinear=True) == [[1, 1]]


def test_the_commonest_length_counts_by_elements_and_the_shortest_of_several() -> None:
    parts = [cut((4,), (2,)), cut((3,), (3,)), cut((4,), (2,))]
    assert edges(concatenate(parts, 0)) == [[2, 2, 2, 2, 2, 1]]
    assert edges(concatenate([cut((6,), (3,)), cut((6,), (2,))], 0)) == [[2] * 6]


def test_what_is_asked_for_goes_before_what_is_stored() -> None:
    assert edges(cut((10, 7), (4, 3)), t=5) == [[5, 5], [3, 3, 1]]
    assert edges(cut((10, 7), (4, 3)), t=99) == [[10], [3, 3, 1]]


@pytest.mark.parametrize("grow", [False, True])
def test_nothing_and_scalars(grow: bool) -> None:
    empty = portable_grid(cut((0, 7), (4, 3)), {}, rectilinear=False, grow=grow)
    assert empty.shape == (0, 7)
    assert empty.n_chunks == 0
    assert portable_grid(cut((0,), (4,)), {"t": 3}, rectilinear=False, grow=grow).n_chunks == 0
    assert edges(cut((), ()), grow=grow) == []
    assert edges(cut((1,), (1,)), grow=grow) == [[1]]


def test_tiny_chunks_grow_along_the_last_axis_first() -> None:
    assert edges(cut((100, 2000), (1, 1000)), grow=True) == [[100], [2000]]
    # 2**20 bytes are all of the last axis (2**11) and 2**9 of the first.
    assert edges(cut((1024, 2**11), (1, 16)), grow=True) == [[512, 512], [2048]]
    assert edges(cut((1024, 2**11), (1, 16), "u2"), grow=True) == [[256] * 4, [2048]]
    assert edges(cut((2, 2**13), (1, 2**13)), grow=True) == [[1, 1], [2**13]]
    assert edges(cut((2, 2**13 - 1), (1, 2**13 - 1)), grow=True) == [[2], [2**13 - 1]]
    assert edges(cut((100, 2000), (1, 1000)), grow=False) == [[1] * 100, [1000, 1000]]


def test_elements_without_bytes_do_not_count_as_nothing() -> None:
    assert edges(cut((2**14,), (2,), "S0"), grow=True) == [[2**14]]


def test_blocks_are_cut_along_stored_chunks_only_if_too_large() -> None:
    array = concatenate([cut((100, 10), (7, 10)), cut((50, 10), (7, 10))], 0)
    assert block_chunks(array, 1000) == ((100, 50), (10,))
    assert block_chunks(array, 999) == ((98, 2, 50), (10,))
    assert block_chunks(array, 10) == ((*(7,) * 14, 2, *(7,) * 7, 1), (10,))
    assert block_chunks(cut((0, 3), (2, 2)), 1) == ((), (3,))


# The direct view: the largest pieces of at most 128 MiB; an element of x takes 1 MiB here


def rows(extent: int, chunk: int) -> VirtualArray:
    return cut((extent, 2**20), (chunk, 2**20))


def super_rows(array: VirtualArray) -> int:
    return direct_grid(array, {}).axes[0].uniform_length


def test_what_fits_is_one_piece() -> None:
    assert super_rows(rows(128, 24)) == 128
    assert super_rows(rows(129, 24)) == 72


def test_pieces_are_whole_files_or_equal_parts_of_files() -> None:
    assert super_rows(concatenate([rows(30, 7)] * 6, 0)) == 90
    assert super_rows(concatenate([rows(720, 16)] * 3, 0)) == 80
    assert super_rows(concatenate([rows(720, 32)] * 3, 0)) == 128


def test_a_stored_chunk_that_is_too_large_is_one_piece() -> None:
    assert super_rows(rows(600, 200)) == 200


def test_empty_arrays_have_pieces_of_one() -> None:
    assert direct_grid(cut((0, 5), (4, 5)), {}).shape == (0, 5)
    assert direct_grid(cut((0, 5), (4, 5)), {}).n_chunks == 0


def test_lengths_that_were_asked_for_are_kept() -> None:
    assert direct_grid(rows(600, 16), {"t": 10}).axes[0].uniform_length == 10


# The native view


def test_blocks_whose_chunks_differ_across_have_no_grid_of_stored_chunks() -> None:
    def tile(length: int) -> VirtualArray:
        return chunked_array(np.zeros((6, 6), "u1"), (length, length), ("t", "x"))

    crossed = [concatenate([tile(a), tile(b)], 0) for a, b in ((2, 3), (3, 2))]
    array = concatenate(crossed, 1)
    with pytest.raises(NotRepresentableError, match="blocks are cut differently"):
        native_grid(array, array.encodings[0])
    assert edges(array) == [[2] * 6, [2] * 6]
