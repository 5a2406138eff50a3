"""Entity tags of chunks that hold different things, though they are made of the same parts."""

from __future__ import annotations

import numpy as np
import pytest

from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.joining import concatenate, lay_out
from gridref.serve.objects import KeySpace
from gridref.serve.views import View, ViewOptions
from gridref.testing.builders import chunked_array

ONE, TWO = np.array([1, 2], "i4"), np.array([3, 4], "i4")


def held(values: np.ndarray, **options: object) -> VirtualArray:
    return chunked_array(values, (2,), ("t",), **options)


def tag(array: VirtualArray, **options: object) -> str:
    view = ViewOptions(View.PORTABLE, chunks={"t": 4}, **options)
    found = KeySpace(VirtualGroup({"a": array}), view).resolve("a/c/0")
    assert found is not None
    return found.etag


PAIRS = {
    "order of blocks": ([held(ONE), held(TWO)], [held(TWO), held(ONE)]),
    "byte order of one": ([held(ONE), held(ONE, big_endian=True)], [held(ONE)] * 2),
    "which is which": (
        [held(ONE), held(ONE, compressed=True)],
        [held(ONE, compressed=True), held(ONE)],
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_parts_in_another_order_are_another_object(name: str) -> None:
    one, other = (concatenate(parts, 0) for parts in PAIRS[name])
    assert tag(one) != tag(other)
    assert tag(one) == tag(concatenate(PAIRS[name][0], 0))


def test_where_nothing_is_held_counts() -> None:
    first = lay_out([held(ONE)], [[0]], [4])
    last = lay_out([held(ONE)], [[2]], [4])
    assert tag(first) != tag(last)
    assert tag(first) == tag(lay_out([held(ONE)], [[0]], [4]))


def test_chunks_that_a_file_lacks_count() -> None:
    four = np.concatenate([ONE, ONE])
    tags = {tag(held(four, absent=absent)) for absent in ([], [0], [1])}
    assert len(tags) == 3


def test_the_value_of_what_is_missing_counts() -> None:
    assert tag(lay_out([held(ONE, fill_value=7)], [[0]], [4])) != tag(
        lay_out([held(ONE, fill_value=8)], [[0]], [4])
    )


def test_compressed_answers_have_tags_of_their_own() -> None:
    assert tag(held(ONE)) != tag(held(ONE), compressor="gzip")
