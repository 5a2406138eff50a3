"""zarr-python's own conformance suite, on our store over an object space that tests can fill."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import h5py
import numpy as np
import pytest
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import Buffer, cpu, default_buffer_prototype
from zarr.core.sync import sync
from zarr.testing.store import StoreTests
from zarr.testing.utils import assert_bytes_equal

import gridref
from gridref.errors import ReadOnlyError
from gridref.faces.zarr.store import GridrefStore
from gridref.io import SourcePool
from gridref.serve.object_reader import ObjectReader
from gridref.serve.reader import Reader
from tests.conformance.filled_space import FilledSpace

PARITY = "test_get_sync_byte_range_parity"


class FilledStore(GridrefStore):
    """The store under test; only what zarr's tests use to prepare their data writes past it."""

    async def _set_many(self, values: Any) -> None:
        for key, value in values:
            self.space.held[key] = value.to_bytes()


class TestGridrefStore(StoreTests[GridrefStore, cpu.Buffer]):
    store_cls = FilledStore
    buffer_cls = cpu.Buffer

    async def set(self, store: GridrefStore, key: str, value: Buffer) -> None:
        store.space.held[key] = value.to_bytes()

    async def get(self, store: GridrefStore, key: str) -> Buffer:
        return self.buffer_cls.from_bytes(store.space.held[key])

    @pytest.fixture
    def store_kwargs(self) -> dict[str, Any]:
        return {"space": FilledSpace(), "reader": ObjectReader(Reader(SourcePool()))}

    def test_store_repr(self, store: GridrefStore) -> None:
        assert repr(store) == "GridrefStore('')"

    def test_store_supports_writes(self, store: GridrefStore) -> None:
        assert not store.supports_writes
        assert not store.supports_deletes

    def test_store_supports_listing(self, store: GridrefStore) -> None:
        assert store.supports_listing

    # What follows writes through the store in zarr's suite: the same is read here, after the data
    # was put past the store, and every write is refused.

    def test_store_read_only(self, store: GridrefStore) -> None:
        assert store.read_only
        with pytest.raises(AttributeError):
            store.read_only = False

    @pytest.mark.parametrize("read_only", [True, False])
    async def test_store_open_read_only(self, open_kwargs: Any, read_only: bool) -> None:
        if read_only:
            store = await self.store_cls.open(**open_kwargs, read_only=True)
            assert store.read_only
            return
        with pytest.raises(ReadOnlyError):
            await self.store_cls.open(**open_kwargs, read_only=False)

    async def test_with_read_only_store(self, store: GridrefStore) -> None:
        with pytest.raises(ReadOnlyError):
            store.with_read_only(read_only=False)
        reader = store.with_read_only(read_only=True)
        assert reader == store
        for attempt in (reader.set("foo", self.buffer_cls.from_bytes(b"")), reader.delete("foo")):
            with pytest.raises(ValueError, match="read-only mode and does not support writing"):
                await attempt

    async def test_serializable_store(self, store: GridrefStore) -> None:
        again = pickle.loads(pickle.dumps(store))
        assert again == store
        assert again.read_only
        await self.set(store, "foo", self.buffer_cls.from_bytes(b"\x01\x02"))
        observed = await again.get("foo", prototype=default_buffer_prototype())
        assert observed.to_bytes() == b"\x01\x02"

    @pytest.mark.parametrize("key", ["zarr.json", "c/0", "foo/c/0.0", "foo/0/0"])
    @pytest.mark.parametrize("data", [b"\x01\x02\x03\x04", b""])
    async def test_set(self, store: GridrefStore, key: str, data: bytes) -> None:
        with pytest.raises(ReadOnlyError):
            await store.set(key, self.buffer_cls.from_bytes(data))
        assert await store.get(key, default_buffer_prototype()) is None

    async def test_set_not_open(self, store_not_open: GridrefStore) -> None:
        with pytest.raises(ReadOnlyError):
            await store_not_open.set("c/0", self.buffer_cls.from_bytes(b"1"))

    async def test_exists(self, store: GridrefStore) -> None:
        assert not await store.exists("foo")
        await self.set(store, "foo/zarr.json", self.buffer_cls.from_bytes(b"bar"))
        assert await store.exists("foo/zarr.json")
        assert not await store.exists("foo")

    async def test_delete(self, store: GridrefStore) -> None:
        await self.set(store, "foo/zarr.json", self.buffer_cls.from_bytes(b"bar"))
        with pytest.raises(ReadOnlyError):
            await store.delete("foo/zarr.json")
        assert await store.exists("foo/zarr.json")

    async def test_delete_dir(self, store: GridrefStore) -> None:
        await self.set(store, "foo/zarr.json", self.buffer_cls.from_bytes(b"bar"))
        with pytest.raises(ReadOnlyError):
            await store.delete_dir("foo")
        assert await store.exists("foo/zarr.json")

    async def test_delete_nonexistent_key_does_not_raise(self, store: GridrefStore) -> None:
        with pytest.raises(ReadOnlyError):
            await store.delete("nonexistent_key")

    async def test_clear(self, store: GridrefStore) -> None:
        await self.set(store, "key", self.buffer_cls.from_bytes(b"something"))
        with pytest.raises(ReadOnlyError):
            await store.clear()
        assert not await store.is_empty("")

    async def test_set_if_not_exists(self, store: GridrefStore) -> None:
        with pytest.raises(ReadOnlyError):
            await store.set_if_not_exists("k", self.buffer_cls.from_bytes(b"1111"))
        assert not await store.exists("k")

    def test_set_sync(self, store: GridrefStore) -> None:
        with pytest.raises(ReadOnlyError):
            store.set_sync("sync_set", self.buffer_cls.from_bytes(b"1"))

    def test_delete_sync(self, store: GridrefStore) -> None:
        sync(self.set(store, "key", self.buffer_cls.from_bytes(b"1")))
        with pytest.raises(ReadOnlyError):
            store.delete_sync("key")
        assert store.get_sync("key") is not None

    def test_delete_sync_missing(self, store: GridrefStore) -> None:
        with pytest.raises(ReadOnlyError):
            store.delete_sync("nonexistent_sync")

    async def test_delete_sync_visible_to_async_get(self, store: GridrefStore) -> None:
        await self.set(store, "key", self.buffer_cls.from_bytes(b"1"))
        with pytest.raises(ReadOnlyError):
            store.delete_sync("key")
        assert await store.get("key", default_buffer_prototype()) is not None

    @pytest.mark.parametrize("direction", ["set_async_get_sync", "set_sync_get_async"])
    async def test_sync_async_set_get_parity(self, store: GridrefStore, direction: str) -> None:
        await self.set(store, "parity", self.buffer_cls.from_bytes(b"1234"))
        if direction == "set_async_get_sync":
            result = store.get_sync("parity")
        else:
            result = await store.get("parity", prototype=default_buffer_prototype())
        assert result.to_bytes() == b"1234"

    @pytest.mark.parametrize(*getattr(StoreTests, PARITY).pytestmark[0].args)
    async def test_get_sync_byte_range_parity(
        self, store: GridrefStore, byte_range: ByteRequest | None
    ) -> None:
        await self.set(store, "key", self.buffer_cls.from_bytes(b"\x01\x02\x03\x04"))
        sync_result = store.get_sync("key", byte_range=byte_range)
        async_result = await store.get("key", default_buffer_prototype(), byte_range=byte_range)
        assert_bytes_equal(sync_result, async_result)


async def test_what_is_at_hand_needs_no_thread(tmp_path, monkeypatch):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=np.arange(40, dtype="i4"), chunks=(10,))
    store = gridref.open_store(gridref.scan(path), "native")
    stored = [store.reader.read(store.space.resolve(f"v/c/{k}")) for k in range(4)]
    threads = []
    original = asyncio.to_thread

    async def counted(*arguments, **options):
        threads.append(arguments)
        return await original(*arguments, **options)

    monkeypatch.setattr(asyncio, "to_thread", counted)
    asked = [None, RangeByteRequest(3, 9), RangeByteRequest(30, 99), OffsetByteRequest(5)]
    for k, data in enumerate(stored):
        for request in (*asked, SuffixByteRequest(7), SuffixByteRequest(99)):
            cut = {
                RangeByteRequest: lambda r, d: d[r.start : r.end],
                OffsetByteRequest: lambda r, d: d[r.offset :],
                SuffixByteRequest: lambda r, d: d[-r.suffix :],
                type(None): lambda r, d: d,
            }[type(request)](request, data)
            got = await store.get(f"v/c/{k}", byte_range=request)
            assert got.to_bytes() == cut
    assert not threads
    monkeypatch.setattr("os.preadv", lambda *_: -1)
    assert (await store.get("v/c/1")).to_bytes() == stored[1]
    assert len(threads) == 1
    assert await store.get("v/c/9") is None
