"""Every view as a Zarr store: it answers as zarr's own store of files that hold a copy of its keys.

zarr's suite (`test_zarr_store`) puts keys of its own into the store, which is one class for all
views; here the keys are those of the views.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import LocalStore

import gridref
from gridref.errors import ReadOnlyError
from gridref.faces.zarr.store import GridrefStore
from gridref.serve.views import View

VIEWS: dict[str, dict[str, Any]] = {
    "direct": {"view": "direct"},
    "native": {"view": "native"},
    "portable": {"view": "portable"},
    "compressed": {"view": "portable", "compressor": "zstd"},
    "native shards": {"view": "native", "shards": "auto"},
    "portable shards": {"view": "portable", "shards": "auto"},
}
RANGES: tuple[ByteRequest | None, ...] = (
    None,
    RangeByteRequest(0, 4),
    RangeByteRequest(3, 10**6),
    OffsetByteRequest(5),
    SuffixByteRequest(6),
    SuffixByteRequest(10**6),
)
PROTOTYPE = default_buffer_prototype()

Pair = tuple[GridrefStore, LocalStore]


def written(folder: Path) -> list[str]:
    """Two files that every view can show."""
    files = [str(folder / f"{number}.nc") for number in range(2)]
    for number, file in enumerate(files):
        time = np.arange(20) + 20 * number
        tas = np.random.default_rng(number).random((20, 8, 12))
        dataset = xr.Dataset({"tas": (("time", "y", "x"), tas)}, {"time": time, "x": range(12)})
        dataset.to_netcdf(file, encoding={"tas": {"chunksizes": (5, 8, 6), "zlib": True}})
    return files


@pytest.fixture(scope="module", params=VIEWS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """The store of a view, and one of files that hold the same."""
    folder = tmp_path_factory.mktemp("view")
    gridref.build(written(folder), folder / "c.gridref", "time")
    store = gridref.open_store(folder / "c.gridref", **VIEWS[request.param])
    for key in store.space.keys(""):
        path = Path(folder, "copy", key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.reader.read(store.space.resolve(key)))
    return store, LocalStore(folder / "copy", read_only=True)


async def _all(found: Any) -> list[str]:
    return sorted([key async for key in found])


async def test_keys_are_listed(pair: Pair) -> None:
    ours, theirs = pair
    keys = await _all(ours.list())
    assert len(keys) >= 7
    assert keys == await _all(theirs.list())
    for prefix in ("", "tas", "tas/", "tas/c", "t", "nothing"):
        assert await _all(ours.list_dir(prefix)) == await _all(theirs.list_dir(prefix)), prefix
    for prefix in ("", "tas/", "tas/c/", "nothing/"):
        assert await _all(ours.list_prefix(prefix)) == await _all(theirs.list_prefix(prefix))
        assert await ours.is_empty(prefix) == await theirs.is_empty(prefix)
        assert await ours.getsize_prefix(prefix) == await theirs.getsize_prefix(prefix)


async def test_values_are_given(pair: Pair) -> None:
    ours, theirs = pair
    keys = [*await _all(ours.list()), "tas/c/99", "nothing/zarr.json"]
    for key in keys:
        assert await ours.exists(key) == await theirs.exists(key), key
        for request in RANGES:
            got, expected = [await store.get(key, PROTOTYPE, request) for store in pair]
            assert (got is None) == (expected is None)
            assert got is None or got.to_bytes() == expected.to_bytes(), (key, request)
            at_once = ours.get_sync(key, byte_range=request)
            assert (None if at_once is None else at_once.to_bytes()) == (
                None if expected is None else expected.to_bytes()
            )
    keys = await _all(ours.list())
    asked = [(key, request) for key in keys for request in RANGES]
    parts, expected = [await s.get_partial_values(PROTOTYPE, asked) for s in pair]
    assert [part and part.to_bytes() for part in parts] == [
        part and part.to_bytes() for part in expected
    ]
    for key in keys:
        assert await ours.getsize(key) == await theirs.getsize(key)
    with pytest.raises(FileNotFoundError):
        await ours.getsize("nothing")


async def test_the_same_again(pair: Pair) -> None:
    ours, _ = pair
    again = pickle.loads(pickle.dumps(ours))
    assert again == ours
    assert await _all(again.list()) == await _all(ours.list())
    assert again.get_sync("tas/zarr.json").to_bytes() == ours.get_sync("tas/zarr.json").to_bytes()
    assert ours.read_only
    with pytest.raises(ReadOnlyError):
        await ours.set("tas/c/0/0/0", PROTOTYPE.buffer.from_bytes(b""))


def test_arrays_are_those_of_the_copy(pair: Pair) -> None:
    ours, theirs = (zarr.open_group(store, mode="r") for store in pair)
    assert sorted(ours.array_keys()) == sorted(theirs.array_keys()) == ["tas", "time", "x"]
    folder = theirs.store.root.parent
    expected = xr.concat([xr.open_dataset(folder / f"{number}.nc") for number in (0, 1)], "time")
    for name, array in ours.arrays():
        np.testing.assert_array_equal(array[...], expected[name])
        # The direct view's chunks are read by gridref in this process, and not copied by key.
        if pair[0].space.options.view is not View.DIRECT:
            np.testing.assert_array_equal(theirs[name][...], expected[name])
