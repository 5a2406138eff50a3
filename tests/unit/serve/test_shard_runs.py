"""Shards put together of many runs, of several files and of none."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

import gridref
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.testing.builders import chunked_array

VALUES = np.arange(48, dtype="i4").reshape(12, 4)


@pytest.fixture
def scattered(tmp_path: Path) -> VirtualArray:
    """Three files, whose chunks lie in the order in which they were written."""
    parts = []
    for number in range(3):
        path = tmp_path / f"{number}.h5"
        with h5py.File(path, "w", libver="latest") as file:
            data = file.create_dataset("v", (4, 4), "i4", chunks=(1, 2), maxshape=(None, 4))
            for row in (2, 0, 3, 1):
                data[row] = VALUES[4 * number + row]
                file.create_dataset(f"between{row}", data=np.zeros(5))
        parts.append(gridref.scan(path).arrays["v"])
    return gridref.concat(parts, parts[0].dims[0])


@pytest.mark.parametrize("view", ["native", "portable"])
@pytest.mark.parametrize("shape", [(12, 4), (6, 4), (4, 2), (1, 4)])
def test_shards_hold_what_was_asked_for(
    scattered: VirtualArray, view: str, shape: tuple[int, int]
) -> None:
    asked = dict(zip(scattered.dims, shape, strict=True))
    group = VirtualGroup({"v": scattered})
    chunks = dict(zip(scattered.dims, (1, 2), strict=True)) if view == "portable" else None
    store = gridref.open_store(group, view, shards=asked, chunks=chunks)
    array = zarr.open_group(store, mode="r")["v"]
    assert (array.shards, array.chunks) == (shape, (1, 2))
    np.testing.assert_array_equal(array[...], VALUES)
    for part in (np.s_[1:11:3], np.s_[7], np.s_[3:5, 1:3]):
        np.testing.assert_array_equal(array[part], VALUES[part])


def test_inline_chunks_and_files_in_one_shard(scattered: VirtualArray) -> None:
    inline = chunked_array(100 + VALUES[:4], (1, 2), scattered.dims)
    mixed = gridref.concat([scattered, inline, scattered], scattered.dims[0])
    expected = np.concatenate([VALUES, 100 + VALUES[:4], VALUES])
    store = gridref.open_store(
        VirtualGroup({"v": mixed}), "native", shards=dict(zip(mixed.dims, (28, 4), strict=True))
    )
    array = zarr.open_group(store, mode="r")["v"]
    assert array.shards == (28, 4)
    np.testing.assert_array_equal(array[...], expected)
