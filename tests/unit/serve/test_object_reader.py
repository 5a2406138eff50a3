"""Ranges of objects: exactly the bytes that were asked for, by exactly the reads that it takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from gridref.codecs import encode_chunk
from gridref.errors import ReadError
from gridref.model.encoding import Codec, bytes_codec
from gridref.model.manifest import Source
from gridref.serve import object_reader
from gridref.serve.object_reader import ObjectReader, _encoded
from gridref.serve.pages import (
    LiteralSegment,
    PackedSegment,
    Segment,
    SourceSegment,
    VirtualObject,
)
from gridref.serve.reader import Reader

FILES = {"/a": bytes(range(40)), "/b": bytes(range(100, 140))}
A, B = map(Source, FILES)
LITERALS = (b"first", b"second")


class Memory:
    """Files that are at hand, and what was read of them."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[tuple[int, int]]]] = []

    def read_ranges(self, source: Source, offsets: Any, lengths: Any) -> Sequence[bytes]:
        ranges = list(zip(offsets.tolist(), lengths.tolist(), strict=True))
        self.asked.append((source.url, ranges))
        return [FILES[source.url][at : at + n] for at, n in ranges]

    def read_into(self, source: Source, offset: int, buffer: memoryview) -> bool:
        return False

    def at_hand(self, source: Source, offset: int, length: int) -> bytes:
        return FILES[source.url][offset : offset + length]


def packed() -> PackedSegment:
    """Runs of both files and of the literals: 3 and 2 bytes of a, 4 of b, 3, 2 and 1 of a."""
    runs = [(0, 5, 3), (0, 20, 2), (1, 7, 4), (-2, 1, 3), (-1, 0, 2), (0, 30, 1)]
    source, offset, length = (np.array(column, np.int64) for column in zip(*runs, strict=True))
    return PackedSegment((A, B), LITERALS, source, offset, np.append(0, np.cumsum(length)))


PACKED = (
    FILES["/a"][5:8] + FILES["/a"][20:22] + FILES["/b"][7:11] + b"eco" + b"fi" + FILES["/a"][30:31]
)
SEGMENTS: tuple[tuple[Segment, bytes], ...] = (
    (LiteralSegment(b"head"), b"head"),
    (packed(), PACKED),
    (SourceSegment(B, 30, 5), FILES["/b"][30:35]),
    (LiteralSegment(b"t"), b"t"),
)
OBJECT = VirtualObject(tuple(segment for segment, _ in SEGMENTS), "tag", "v", (1, 2))
WHOLE = b"".join(data for _, data in SEGMENTS)


def ranges() -> Iterator[tuple[int, int]]:
    return ((a, b) for a in range(len(WHOLE)) for b in range(a + 1, len(WHOLE) + 1))


def test_every_range_of_an_object_is_that_part_of_it() -> None:
    reader = ObjectReader(Reader(Memory()))
    assert OBJECT.n_bytes == reader.size(OBJECT) == len(WHOLE)
    assert reader.read(OBJECT) == WHOLE
    for a, b in ranges():
        assert reader.read(OBJECT, a, b) == WHOLE[a:b]
        assert reader.read(OBJECT, a) == WHOLE[a:]
        assert reader.read(OBJECT, a, b + len(WHOLE)) == WHOLE[a:]
        assert reader.read(OBJECT, a, a) == b""
    assert reader.read(OBJECT, len(WHOLE)) == b""


def test_no_more_is_read_of_files_than_the_range_holds() -> None:
    in_files = np.zeros(len(WHOLE), bool)
    in_files[[*range(4, 13), *range(18, 24)]] = True
    for a, b in ranges():
        memory = Memory()
        ObjectReader(Reader(memory)).read(OBJECT, a, b)
        lengths = [n for _, asked in memory.asked for _, n in asked]
        assert all(n > 0 for n in lengths)
        assert sum(lengths) == in_files[a:b].sum()


def test_runs_of_one_source_are_asked_for_at_once() -> None:
    memory = Memory()
    ObjectReader(Reader(memory)).read(OBJECT, 5, 20)
    assert memory.asked == [
        ("/a", [(6, 2), (20, 2)]),
        ("/b", [(7, 4)]),
        ("/a", [(30, 1)]),
        ("/b", [(30, 1)]),
    ]


def test_what_is_at_hand_lies_in_one_segment_that_is_not_put_together() -> None:
    reader = ObjectReader(Reader(Memory()))
    bounds = np.cumsum([0, *(len(data) for _, data in SEGMENTS)]).tolist()
    for a, b in ranges():
        inside = [low <= a and b <= high for low, high in pairwise(bounds)]
        got = reader.at_hand(OBJECT, a, b)
        if any(inside) and not inside[1]:
            assert got is not None
            assert bytes(got) == WHOLE[a:b]
        else:
            assert got is None
    assert reader.at_hand(OBJECT, len(WHOLE), len(WHOLE) + 1) is None


@pytest.mark.parametrize(("n_bytes", "is_at_hand"), [(3, True), (4, False)])
def test_large_parts_of_files_are_not_copied_at_once(
    monkeypatch: pytest.MonkeyPatch, n_bytes: int, is_at_hand: bool
) -> None:
    monkeypatch.setattr(object_reader, "AT_HAND_BYTES", 3)
    reader = ObjectReader(Reader(Memory()))
    held = VirtualObject((SourceSegment(A, 2, 9),), "tag")
    assert (reader.at_hand(held, 1, 1 + n_bytes) is not None) == is_at_hand
    literal = VirtualObject((LiteralSegment(b"longer than that"),), "tag")
    assert reader.at_hand(literal, 0, 16) is not None


def test_refused_sources_name_the_array_and_the_chunk() -> None:
    class Refused(Memory):
        def at_hand(self, source: Source, offset: int, length: int) -> bytes:
            raise ReadError("no")

        def read_ranges(self, source: Source, offsets: Any, lengths: Any) -> Sequence[bytes]:
            raise ReadError("no")

    reader = ObjectReader(Reader(Refused()))
    for read in (reader.at_hand, reader.read):
        with pytest.raises(ReadError) as caught:
            read(OBJECT, 20, 21)
        assert (caught.value.place.variable, caught.value.place.chunk) == ("v", (1, 2))


I4 = np.dtype("<i4")


@pytest.mark.parametrize(
    ("values", "codecs", "is_shown_in_place"),
    [
        (np.arange(6, dtype="<i4").reshape(2, 3), (bytes_codec(I4),), True),
        (np.arange(6) > 2, (bytes_codec(np.dtype(bool)),), True),
        (np.arange(6, dtype="<c8"), (bytes_codec(np.dtype("<c8")),), True),
        (np.array(5, "<i4"), (bytes_codec(I4),), True),
        (np.arange(6, dtype="<i4").reshape(2, 3).T, (bytes_codec(I4),), False),
        (np.arange(6, dtype=">i4"), (bytes_codec(np.dtype("<i4")),), False),
        (np.arange(6, dtype="<i4"), (Codec.of("bytes", endian="big"),), False),
        (np.arange(6, dtype="<i4"), (bytes_codec(I4), Codec.of("gzip", level=5)), False),
        (np.arange(3).astype("S2"), (bytes_codec(np.dtype("S2")),), False),
        (np.arange(3).astype("M8[s]"), (bytes_codec(np.dtype("M8[s]")),), False),
        (np.zeros(0, "<i4"), (bytes_codec(I4),), False),
    ],
)
def test_numbers_that_lie_as_they_are_served_are_not_copied(
    values: np.ndarray, codecs: tuple[Codec, ...], is_shown_in_place: bool
) -> None:
    got = _encoded(values, codecs)
    assert bytes(got) == encode_chunk(values, codecs)
    assert np.shares_memory(np.frombuffer(got, "u1"), values) == is_shown_in_place
