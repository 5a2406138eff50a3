"""Manifests joined into one."""

from __future__ import annotations

import pickle

import numpy as np

from gridref.model.manifest import ChunkManifest, ChunkState, RunManifest, Source

A, B, C = (Source(f"/data/{name}.nc") for name in "abc")


def ranges(sources: tuple[Source, ...], source: list[int], offset: list[int]) -> ChunkManifest:
    return ChunkManifest.from_columns(sources, source=source, offset=offset, length=[10])


def located(manifest: ChunkManifest) -> list[tuple[str, int]]:
    return [
        (manifest.sources[source].url, offset)
        for source, offset in zip(manifest.source.tolist(), manifest.offset.tolist(), strict=True)
    ]


def test_rows_keep_their_sources_and_shared_sources_are_kept_once() -> None:
    parts = [ranges((A,), [0, 0], [1, 2]), ranges((B, C), [1, 0], [3, 4]), ranges((A,), [0], [5])]
    joined = ChunkManifest.concatenate(parts)
    expected = [(A.url, 1), (A.url, 2), (C.url, 3), (B.url, 4), (A.url, 5)]
    assert located(joined) == expected
    assert len(joined.sources) == 3


def test_inline_and_missing_rows_between_ranges() -> None:
    parts = [
        ChunkManifest.from_inline([b"one", b"three"]),
        ranges((A,), [0], [7]),
        ChunkManifest.missing(1),
        ChunkManifest.from_inline([b"four"]),
    ]
    joined = ChunkManifest.concatenate(parts)
    inline = np.flatnonzero(joined.state == ChunkState.INLINE).tolist()
    assert [joined.inline_bytes(row) for row in inline] == [b"one", b"three", b"four"]
    assert joined.state.tolist() == [2, 2, 1, 0, 2]
    assert located(joined)[2] == (A.url, 7)


def test_masks_of_some() -> None:
    masked = ChunkManifest.from_columns((A,), offset=[0, 1], length=[1], filter_mask=[0, 2])
    joined = ChunkManifest.concatenate([ChunkManifest.missing(1), masked])
    assert joined.filter_mask is not None
    assert joined.filter_mask.tolist() == [0, 0, 2]
    assert ChunkManifest.concatenate([ChunkManifest.missing(2)]).filter_mask is None


def test_nothing_and_one() -> None:
    assert ChunkManifest.concatenate([]).n_rows == 0
    assert located(ChunkManifest.concatenate([ranges((A, B), [1], [3])])) == [(B.url, 3)]


def test_joined_manifests_count_beyond_32_bits() -> None:
    """Offsets kept in 32 bits are added to as 64 bits, and larger ones stay as they are."""
    edge = 2**32 - 1
    low, high = (
        ChunkManifest.from_columns([Source(name)], offset=offset + np.arange(100), length=edge)
        for name, offset in (("low", edge - 99), ("high", 2**40))
    )
    for parts in ([low, low], [low, high]):
        joined = ChunkManifest.concatenate(parts)
        expected = np.concatenate([part.offset for part in parts])
        for rows in (joined, joined.take(np.arange(200)), pickle.loads(pickle.dumps(joined))):
            assert rows.offset.dtype == rows.length.dtype == np.int64
            np.testing.assert_array_equal(rows.offset + rows.length, expected + edge)


def test_a_run_is_the_rows_that_it_stands_for() -> None:
    run = RunManifest((A,), first=100, stride=40, length=8, n_rows=1_000_000_000_000)
    rows = run.take(np.array([3, 0, 999_999_999_999]))
    assert located(rows) == [(A.url, 220), (A.url, 100), (A.url, 100 + 40 * 999_999_999_999)]
    assert rows.length.tolist() == [8, 8, 8]
    assert rows.state.tolist() == [ChunkState.RANGE] * 3
    assert run.take(np.zeros(0, np.int64)).n_rows == 0
    assert not run.has_filter_masks
    assert pickle.loads(pickle.dumps(run)) == run
    assert located(run.with_sources((B,)).take(np.array([1]))) == [(B.url, 140)]
