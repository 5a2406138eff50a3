"""What is written anew is what the array holds, for zarr-python; and a killed run goes on."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from gridref.api.readable import reader_for
from gridref.api.rewriting.plan import BASE_BYTES, CODECS, Resources, plan_rewrite, view_to_write
from gridref.api.rewriting.writer import checksums_of, rewrite, sink_at, written_array
from gridref.io import describe_source
from gridref.model.grid import ChunkGrid
from gridref.testing.strategies import arrays_with_values


@st.composite
def rewrites(draw):
    """An array with its values, and how it is written."""
    array, values = draw(arrays_with_values(max_rank=3))
    lengths = [draw(st.integers(1, max(1, extent) + 2)) for extent in array.shape]
    shards = [n * draw(st.integers(1, 3)) for n in lengths] if draw(st.booleans()) else None
    if array.ndim == 0:
        shards = None
    grid = ChunkGrid.regular(array.shape, lengths)
    separator = draw(st.sampled_from("/."))
    view = view_to_write(
        array, grid, shards, draw(st.sampled_from(list(CODECS))), key_separator=separator
    )
    needed = 17 * 10**6 + 10 * 4 * math.prod(shards or lengths) + 4000
    memory = BASE_BYTES + needed + draw(st.sampled_from([0, 500, 10_000]))
    return plan_rewrite(view, Resources(memory, n_threads=2)), values


def opened(folder, view):
    (folder / "zarr.json").write_text(json.dumps(view.metadata.to_json()))
    return zarr.open_array(folder, mode="r")[...]


@given(rewrites(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=60)
def test_zarr_reads_what_was_written_and_what_is_missing_is_written_again(planned, random):
    plan, values = planned
    reader = reader_for(cache_bytes=0, n_threads=1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        done = rewrite(plan, reader, sink_at(folder))
        np.testing.assert_array_equal(opened(folder, plan.view), values)
        assert done.n_adopted == 0
        assert done.n_decoded >= plan.n_stored * bool(values.size)
        if plan.view.shards is not None:
            again = written_array(
                plan.view, done.objects, lambda each: describe_source(folder / each.name)
            )
            np.testing.assert_array_equal(reader.read(again), values)
        removed = [each for each in done.objects if random.random() < 0.5]
        for each in removed:
            (folder / each.name).unlink()
        after = rewrite(plan, reader, sink_at(folder))
        assert after.n_written == len(removed)
        assert after.n_adopted == len(done.objects) - len(removed)
        np.testing.assert_array_equal(opened(folder, plan.view), values)
        for old, new in zip(done.objects, after.objects, strict=True):
            assert (old.coords, old.name, old.n_bytes) == (new.coords, new.name, new.n_bytes)
            for column in ("offset", "length", "crc32c"):
                np.testing.assert_array_equal(getattr(old, column), getattr(new, column))


def test_damaged_shards_are_written_again(tmp_path):
    from gridref.testing.builders import chunked_array

    values = np.random.default_rng(0).integers(0, 99, (20, 30))
    array = chunked_array(values, (5, 30), ("y", "x"))
    view = view_to_write(array, ChunkGrid.regular((20, 30), (5, 5)), (10, 10), "zstd")
    plan = plan_rewrite(view, Resources(10**9))
    reader = reader_for(cache_bytes=0)
    done = rewrite(plan, reader, sink_at(tmp_path))
    cut, torn, longer, whole, *_ = [tmp_path / each.name for each in done.objects]
    cut.write_bytes(cut.read_bytes()[:-1])
    torn.write_bytes(bytes(torn.stat().st_size))
    longer.write_bytes(b"?" + longer.read_bytes())
    before = whole.stat().st_mtime_ns
    after = rewrite(plan, reader, sink_at(tmp_path))
    assert (after.n_written, after.n_adopted) == (3, len(done.objects) - 3)
    assert whole.stat().st_mtime_ns == before
    np.testing.assert_array_equal(opened(tmp_path, view), values)
    # The checksums are those of the bytes in the objects.
    from gridref.io import crc32c_of

    for each in after.objects:
        content = (tmp_path / each.name).read_bytes()
        held = checksums_of(each)
        for offset, length, crc32c in zip(held.offset, held.length, held.crc32c, strict=True):
            assert crc32c_of(content[offset : offset + length]) == crc32c


@pytest.mark.parametrize("fill", [np.float32(0), np.float32("nan"), np.float32(-0.0)])
def test_chunks_of_the_fill_value_are_not_stored_and_others_are(tmp_path, fill):
    from gridref.testing.builders import chunked_array

    values = np.full((4, 6), fill, "f4")
    values[0, 0], values[0, 3] = np.float32(0), np.float32(-0.0)
    values[2, 0] = np.uint32(0x7FC00001).view("f4")  # a NaN with a payload
    array = chunked_array(values, (4, 6), ("y", "x"), fill_value=fill)
    view = view_to_write(array, ChunkGrid.regular((4, 6), (2, 3)), None, "none")
    done = rewrite(plan_rewrite(view, Resources(10**9)), reader_for(), sink_at(tmp_path))
    bits = np.asarray(fill).view("u4")
    differs = (values.view("u4") != bits).reshape(2, 2, 2, 3).any(axis=(1, 3))
    held = [place for place in np.ndindex(2, 2) if differs[place]]
    assert [each.coords for each in done.objects] == held
    assert len(held) < 4
    np.testing.assert_array_equal(opened(tmp_path, view).view("u4"), values.view("u4"))


def test_the_same_on_a_remote_filesystem():
    import fsspec

    from gridref.testing.builders import chunked_array

    values = np.random.default_rng(0).integers(0, 99, (20, 30))
    array = chunked_array(values, (5, 30), ("y", "x"))
    view = view_to_write(array, ChunkGrid.regular((20, 30), (5, 5)), (10, 10), "zstd")
    plan = plan_rewrite(view, Resources(10**9, is_streamed=False))
    memory = fsspec.filesystem("memory")
    try:
        done = rewrite(plan, reader_for(), sink_at("memory://rewriting/v"))
        memory.pipe_file("/rewriting/v/zarr.json", json.dumps(view.metadata.to_json()).encode())
        found = zarr.open_array("memory://rewriting/v", mode="r")[...]
        np.testing.assert_array_equal(found, values)
        memory.rm_file(f"/rewriting/v/{done.objects[0].name}")
        after = rewrite(plan, reader_for(), sink_at("memory://rewriting/v"))
        assert (after.n_written, after.n_adopted) == (1, len(done.objects) - 1)
    finally:
        memory.rm("/rewriting", recursive=True)
