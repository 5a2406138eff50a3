"""Cubes opened in this process: zarr hands whole selections to gridref's reader."""

from __future__ import annotations

import asyncio
import json
import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr
from numpy.typing import NDArray
from zarr.core.buffer import BufferPrototype, cpu

import gridref
from gridref.errors import ReadError
from gridref.model.array import VirtualGroup
from gridref.testing.builders import chunked_array
from tests.integration.archives import write_hdf5

pytestmark = pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3")

FUSED = {"codec_pipeline.path": "zarr.core.codec_pipeline.FusedCodecPipeline"}
MONTHS = (31, 28, 31)


class Cube:
    """Three months in files of a day a chunk, shuffled and deflated, as one catalog."""

    def __init__(self, folder: Path) -> None:
        random = np.random.default_rng(3)
        parts, paths = [], []
        for number, n_days in enumerate(MONTHS):
            parts.append(random.normal(size=(n_days, 130, 140)).round(2).astype("f4"))
            paths.append(folder / f"m{number}.nc")
            time = sum(MONTHS[:number]) + np.arange(n_days), {"units": "days since 2001-01-01"}
            labels = {"time": time, "y": np.arange(130.0), "x": np.arange(140.0)}
            storage = {"chunks": (1, 130, 140), "compression": 4, "shuffle": True}
            write_hdf5(paths[-1], labels, {"v": ([*labels], parts[-1], {"units": "K"}, storage)})
        self.paths = paths
        self.values: NDArray[np.float32] = np.concatenate(parts)
        self.catalog = folder / "cube.gridref"
        gridref.build(paths, self.catalog, concat_dim="time")
        self.url = f"gridref::file://{self.catalog}"


@pytest.fixture(scope="module")
def cube(tmp_path_factory: pytest.TempPathFactory) -> Cube:
    """A cube that no test alters."""
    return Cube(tmp_path_factory.mktemp("cube"))


def codec_names(array: zarr.Array[Any]) -> set[str]:
    """Names of all codecs in an array's ``zarr.json``, at any depth."""
    text = json.dumps(array.metadata.to_dict(), default=str)
    return {entry.split('"')[0] for entry in text.split('"name": "')[1:]}


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("chunks", [None, {}, {"time": 7}])
def test_xarray_reads_equal_values(cube: Cube, fused: bool, chunks: Any) -> None:
    with zarr.config.set(FUSED if fused else {}):
        ds = xr.open_zarr(cube.url, chunks=chunks)
        assert np.array_equal(ds["v"].values, cube.values)
        assert np.array_equal(ds["v"].isel(x=slice(90, None, -7)), cube.values[:, :, 90::-7])
        points = {"time": ("p", [88, 3, 3]), "y": ("p", [0, 89, 1]), "x": ("p", [5, 6, 7])}
        indexers = {name: xr.DataArray(at, dims=dim) for name, (dim, at) in points.items()}
        expected = cube.values[[88, 3, 3], [0, 89, 1], [5, 6, 7]]
        assert np.array_equal(ds["v"].isel(indexers), expected)
        assert ds["time"].values[-1] == np.datetime64("2001-03-31")


def test_no_chunk_is_fetched_by_its_key(cube: Cube, monkeypatch: pytest.MonkeyPatch) -> None:
    store = gridref.open_store(cube.catalog)
    asked: list[str] = []
    get, get_sync = type(store).get, type(store).get_sync

    async def noted(self: Any, key: str, *args: Any, **kwargs: Any) -> Any:
        asked.append(key)
        return await get(self, key, *args, **kwargs)

    def noted_sync(self: Any, key: str, *args: Any, **kwargs: Any) -> Any:
        asked.append(key)
        return get_sync(self, key, *args, **kwargs)

    monkeypatch.setattr(type(store), "get", noted)
    monkeypatch.setattr(type(store), "get_sync", noted_sync)
    for config in ({}, FUSED):
        with zarr.config.set(config):
            assert np.array_equal(zarr.open_group(store, mode="r")["v"][3:50], cube.values[3:50])
    assert "zarr.json" in asked
    assert [key for key in asked if "/c/" in key] == []


def test_copies_keep_the_codecs_and_chunks_of_the_source(cube: Cube, tmp_path: Path) -> None:
    ds = xr.open_zarr(cube.url)
    kept = {"bytes", "numcodecs.shuffle", "numcodecs.zlib"}
    day = xr.open_zarr(cube.url, chunks=None).isel(time=4)
    chosen = ds.isel(y=slice(0, 20))
    for number, (part, expected) in enumerate(
        [
            (ds, cube.values),
            (xr.open_zarr(cube.url, chunks={}), cube.values),
            (xr.open_zarr(cube.url, chunks=None), cube.values),
            (ds.copy(deep=True), cube.values),
            (ds.isel(time=slice(0, 10)), cube.values[:10]),
            (ds.isel(time=4), cube.values[4]),
            (day, cube.values[4]),
            (chosen, cube.values[:, :20]),
            (ds.isel(time=slice(5, 50)).load(), cube.values[5:50]),
        ]
    ):
        target = tmp_path / f"copy{number}.zarr"
        part.to_zarr(target)
        written = zarr.open_group(target, mode="r")["v"]
        names = codec_names(written)
        assert kept <= names
        assert not [name for name in names if name.startswith("gridref")]
        assert np.array_equal(xr.open_zarr(target)["v"].values, expected)
        if expected.shape[-2:] == (130, 140) and expected.ndim == 3:
            assert written.chunks == (1, 130, 140)


def test_regions_and_appending(cube: Cube, tmp_path: Path) -> None:
    target = tmp_path / "copy.zarr"
    ds = xr.open_zarr(cube.url, chunks=None)
    ds.to_zarr(target, compute=True)
    twice = ds.assign(v=ds["v"] * 2)[["v"]].isel(time=slice(10, 20)).drop_vars(["time", "y", "x"])
    twice.to_zarr(target, region={"time": slice(10, 20)}, mode="r+")
    ds.isel(time=slice(0, 5)).to_zarr(target, append_dim="time")
    expected = np.concatenate([cube.values, cube.values[:5]])
    expected[10:20] *= 2
    assert np.array_equal(xr.open_zarr(target)["v"].values, expected)
    assert not [n for n in codec_names(zarr.open_group(target)["v"]) if n.startswith("gridref")]


@pytest.mark.parametrize("engine", ["netcdf4", "h5netcdf"])
def test_netcdf_copies(cube: Cube, tmp_path: Path, engine: Any) -> None:
    xr.open_zarr(cube.url).to_netcdf(tmp_path / "copy.nc", engine=engine)
    with xr.open_dataset(tmp_path / "copy.nc", engine=engine) as copied:
        assert np.array_equal(copied["v"].values, cube.values)
        assert copied["time"].values[0] == np.datetime64("2001-01-01")


def test_zarr_copies_of_an_array(cube: Cube, tmp_path: Path) -> None:
    source = zarr.open_group(gridref.open_store(cube.catalog), mode="r")["v"]
    copied = zarr.from_array(tmp_path / "copy.zarr", data=source)
    assert np.array_equal(copied[...], cube.values)
    reopened = zarr.open_array(tmp_path / "copy.zarr", mode="r")
    assert np.array_equal(reopened[...], cube.values)
    assert not [name for name in codec_names(reopened) if name.startswith("gridref")]


def test_big_endian_converted_and_missing_parts(tmp_path: Path) -> None:
    plain = chunked_array(np.arange(6, dtype="i2"), (2,), ("t",), fill_value=np.int16(-1))
    absent = chunked_array(
        np.arange(6, dtype="i2"), (2,), ("t",), fill_value=np.int16(-1), absent=[1], big_endian=True
    )
    group = VirtualGroup({"v": gridref.concat([plain, absent], "t")})
    ds = xr.open_zarr(gridref.open_store(group), chunks=None)
    expected = [0, 1, 2, 3, 4, 5, 0, 1, -1, -1, 4, 5]
    assert ds["v"].values.tolist() == expected
    ds.to_zarr(tmp_path / "copy.zarr")
    assert xr.open_zarr(tmp_path / "copy.zarr")["v"].values.tolist() == expected


def test_strings_scalars_empty_and_compound_arrays(tmp_path: Path) -> None:
    path = tmp_path / "odd.h5"
    records = np.zeros(5, [("a", "i2"), ("b", "f8")])
    records["b"] = np.arange(5)
    with h5py.File(path, "w") as file:
        file["scalar"] = np.float32(2.5)
        file["empty"] = np.zeros((0, 3), "i4")
        file["records"] = records
        file.create_dataset("words", data=["a", "", "ö"], dtype=h5py.string_dtype())
        file["fixed"] = np.array([b"ab", b"c"])
        file.create_dataset("never", (4, 4), "i2", chunks=(2, 2), fillvalue=7)
    shown = zarr.open_group(gridref.open_store(gridref.scan(path), "direct"), mode="r")
    assert shown["scalar"][()] == 2.5
    assert shown["empty"][...].shape == (0, 3)
    assert np.array_equal(shown["records"][1:4], records[1:4])
    assert shown["words"][...].tolist() == ["a", "", "ö"]
    assert shown["fixed"][...].tolist() == [b"ab", b"c"]
    assert (shown["never"][1:3] == 7).all()


def test_pickles_of_stores_arrays_and_datasets(cube: Cube) -> None:
    array = zarr.open_group(gridref.open_store(cube.catalog), mode="r")["v"]
    ds = xr.open_zarr(cube.url, chunks=None)
    for again in (array, ds["v"], ds.chunk()["v"]):
        assert np.array_equal(
            np.asarray(pickle.loads(pickle.dumps(again))[40:60]), cube.values[40:60]
        )


def test_a_running_event_loop_and_load_async(cube: Cube) -> None:
    async def read() -> NDArray[Any]:
        ds = xr.open_zarr(cube.url, chunks=None)
        loaded = await ds[["v"]].isel(time=slice(0, 3)).load_async()
        return np.concatenate([loaded["v"].values, ds["v"][3:].values])

    assert np.array_equal(asyncio.run(read()), cube.values)


def test_buffers_of_another_kind_are_honoured(cube: Cube) -> None:
    """As those of GPUs are: what is read goes through the kind of buffer that was asked for."""
    made: list[tuple[int, ...]] = []

    class Marked(cpu.NDBuffer):
        @classmethod
        def from_numpy_array(cls, array_like: Any) -> Any:
            made.append(array_like.shape)
            return super().from_numpy_array(array_like)

    array = zarr.open_group(gridref.open_store(cube.catalog), mode="r")["v"]
    prototype = BufferPrototype(buffer=cpu.Buffer, nd_buffer=Marked)
    assert np.array_equal(
        array.get_basic_selection(slice(3, 9), prototype=prototype), cube.values[3:9]
    )
    assert made == [(6, 130, 140)]


def test_a_store_that_wraps_ours(cube: Cube) -> None:
    inner = gridref.open_store(cube.catalog)
    wrapped = zarr.storage.LoggingStore(inner, log_level="CRITICAL")
    shown = zarr.open_group(wrapped, mode="r")["v"]
    assert np.array_equal(shown[2:5], cube.values[2:5])
    assert not [key for key in wrapped.counter if "get_partial" in key]


def test_the_direct_view_stays_in_the_process(cube: Cube, tmp_path: Path) -> None:
    """Keys copied as files, and views asked for by name, hold nothing that only gridref reads."""
    import fsspec

    filesystem = fsspec.filesystem("gridref", fo=str(cube.catalog))
    filesystem.get("", str(tmp_path / "files"), recursive=True)
    assert np.array_equal(zarr.open_group(tmp_path / "files", mode="r")["v"][...], cube.values)
    with h5py.File(cube.paths[0]) as file:
        first = file["v"][...]
    single = f"gridref::file://{tmp_path / 'single.gridref'}"
    gridref.build(cube.paths[0], tmp_path / "single.gridref")
    for view in ("native", "portable"):
        ds = xr.open_zarr(single, storage_options={"view": view})
        assert np.array_equal(ds["v"].values, first)
        assert ds["v"].encoding["serializer"].to_dict()["name"] == "bytes"
    shards = gridref.open_store(cube.catalog, shards="auto", chunks={"time": 1})
    assert zarr.open_group(shards, mode="r")["v"].shards is not None


def test_a_failed_read_says_which_chunk(tmp_path: Path) -> None:
    cube = Cube(tmp_path)
    ds = xr.open_zarr(cube.url, chunks=None)
    with h5py.File(cube.paths[1], "a") as file:
        file["v"].attrs["late"] = 1
    with pytest.raises(ReadError, match="changed since it was scanned") as raised:
        ds["v"].isel(time=40).load()
    assert "m1.nc" in str(raised.value)
    assert "'v'" in str(raised.value) or "v" in str(raised.value.place)


def test_zarrs_pipeline_set_for_all_arrays(cube: Cube) -> None:
    """It knows none of our stores; zarr-python then takes its own pipeline."""
    pytest.importorskip("zarrs")
    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
        for source in (gridref.open_store(cube.catalog), cube.url):
            ds = xr.open_zarr(source, chunks=None)
            assert np.array_equal(ds["v"][7:60, ::3].values, cube.values[7:60, ::3])
