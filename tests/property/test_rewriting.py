"""What is written anew is what the array holds, for zarr-python; and a killed run goes on."""

from __future__ import annotations

import json
import math
import tempfile
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import zarr
from hypothesis import event, given
from hypothesis import strategies as st

from gridref.api.readable import reader_for
from gridref.api.rewriting import plan
from gridref.api.rewriting.plan import BASE_BYTES, CODECS, Resources, plan_rewrite, view_to_write
from gridref.api.rewriting.writer import checksums_of, rewrite, sink_at, written_array
from gridref.io import describe_source
from gridref.model.grid import ChunkGrid
from gridref.serve.tasks import TASK_BYTES
from gridref.testing.strategies import arrays_with_values
from tests.work import FEWER


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
    stored = [math.prod(each.chunk_shape) * each.dtype.itemsize for each in array.encodings]
    chunk_bytes = 4 * math.prod(lengths)
    object_bytes = 4 * math.prod(map(min, array.shape, shards or lengths))
    least = BASE_BYTES + TASK_BYTES[1] + 3 * max(stored, default=0)
    least += 2 * chunk_bytes + 2 * max(chunk_bytes, object_bytes) + 2 * object_bytes
    memory = least + draw(st.sampled_from([0, 50, 500, 10_000, 100_000]))
    resources = Resources(memory, n_threads=2, has_disk=True)
    # Two passes, wherever that can be, in half of the cases.
    with patch.object(plan, "_WORTH_A_PASS", draw(st.sampled_from([0.5, 2]))):
        return plan.plan_rewrite(view, resources), values


def opened(folder, view):
    (folder / "zarr.json").write_text(json.dumps(view.metadata.to_json()))
    return zarr.open_array(folder, mode="r")[...]


@FEWER
@given(rewrites(), st.randoms(use_true_random=False))
def test_zarr_reads_what_was_written_and_what_is_missing_is_written_again(rewriting, random):
    planned, values = rewriting
    reader = reader_for(cache_bytes=0, n_threads=1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        event("one pass" if planned.first is None else "two passes")
        done = rewrite(planned, reader, sink_at(folder), spill=f"{name}/.spill/1")
        np.testing.assert_array_equal(opened(folder, planned.view), values)
        assert not done.found
        assert done.n_decoded >= planned.n_stored * bool(values.size)
        if planned.view.shards is not None:
            again = written_array(
                planned.view, done.objects, lambda each: describe_source(folder / each.name)
            )
            np.testing.assert_array_equal(reader.read(again), values)
        removed = [each for each in done.objects if random.random() < 0.5]
        for each in removed:
            (folder / each.name).unlink()
        after = rewrite(planned, reader, sink_at(folder), spill=f"{name}/.spill/2")
        assert len(after.made) == len(removed)
        assert len(after.found) == len(done.objects) - len(removed)
        np.testing.assert_array_equal(opened(folder, planned.view), values)
        for old, new in zip(done.objects, after.objects, strict=True):
            assert (old.coords, old.name, old.n_bytes) == (new.coords, new.name, new.n_bytes)
            for column in ("offset", "length", "crc32c"):
                np.testing.assert_array_equal(getattr(old, column), getattr(new, column))


class _StoppedError(Exception):
    pass


@pytest.mark.parametrize("is_sharded", [True, False])
def test_two_passes_decode_each_chunk_once_and_go_on_where_they_were_stopped(tmp_path, is_sharded):
    from gridref.testing.builders import chunked_array

    values = np.random.default_rng(0).integers(0, 9, (41, 33, 50)).astype("i2")
    values[:, :12, :12] = 7  # some objects hold the fill value only
    array = chunked_array(values, (1, 33, 50), "tyx", compressed=True, fill_value=7)
    grid = ChunkGrid.regular(array.shape, (41, 4, 6))
    view = view_to_write(array, grid, (41, 4, 12) if is_sharded else None, "zstd")
    needed = BASE_BYTES + 16 * 2**20 + 3 * 33 * 50 * 2 + 6 * 33 * 50 * 2 + 6 * 41 * 4 * 12 * 2
    resources = Resources(needed, n_threads=1)
    once = plan_rewrite(view, resources)
    plan = plan_rewrite(view, replace(resources, has_disk=True))
    assert once.first is None
    assert once.n_decoded > 3 * once.n_stored
    assert plan.n_decoded == plan.n_stored == 41
    assert plan.peak_bytes <= needed
    reader = reader_for(cache_bytes=0)
    for stop in range(1, plan.n_steps + 1, 4):
        folder, spill = tmp_path / str(stop), tmp_path / f"spill {stop}"

        def told(done: int, total: int, stop: int = stop) -> None:
            assert total == plan.n_steps
            if done == stop:
                raise _StoppedError

        with pytest.raises(_StoppedError):
            rewrite(plan, reader, sink_at(folder), spill=str(spill), progress=told)
        done = rewrite(plan, reader, sink_at(folder), spill=str(spill))
        left = plan.first.n_units - stop
        assert done.n_decoded <= max(0, left) * -(-41 // plan.first.n_units)
        np.testing.assert_array_equal(opened(folder, view), values)
        assert [path.name for path in spill.iterdir()] == ["all-written"]
        again = rewrite(plan, reader, sink_at(folder), spill=str(spill))
        assert (len(again.made), again.n_decoded) == (0, 0)
        assert len(again.found) == len(done.objects) > 0


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
    assert (len(after.made), len(after.found)) == (3, len(done.objects) - 3)
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
        assert (len(after.made), len(after.found)) == (1, len(done.objects) - 1)
    finally:
        memory.rm("/rewriting", recursive=True)
