"""Files and catalogs on an S3 server: scanned, read, noticed when they change, and served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import httpx
import numpy as np
import pytest
import xarray as xr
import zarr

import gridref
from gridref.errors import GridrefError, SourceChangedError, SourceUnavailableError
from gridref.faces.http import create_app
from gridref.io import RetryPolicy, SourcePool, describe_source
from gridref.model.manifest import Source
from gridref.serve.reader import Reader
from tests.http_server import Site, serving
from tests.s3_server import BUCKET, Bucket, s3_bucket
from tests.uvicorn_server import running

LENGTHS = (31, 28)


@pytest.fixture(scope="module")
def server() -> Iterator[Bucket]:
    with s3_bucket() as bucket:
        yield bucket


@pytest.fixture
def bucket(server: Bucket) -> Iterator[Bucket]:
    yield server
    for key in server.keys(""):
        server.client.delete_object(Bucket=BUCKET, Key=key)


def month(number: int, path: Path, *, salt: float = 0) -> xr.Dataset:
    start = sum(LENGTHS[:number])
    values = np.random.default_rng(number).random((LENGTHS[number], 40)).astype("f4") + salt
    dataset = xr.Dataset(
        {"tas": (("time", "x"), values.astype("f4"))},
        coords={"time": np.arange(LENGTHS[number]) + start},
    )
    encoding: dict[str, Any] = {"tas": {"zlib": True, "chunksizes": (1, 40), "shuffle": True}}
    dataset.to_netcdf(path, encoding=encoding, engine="h5netcdf")
    return dataset


@pytest.fixture
def months(bucket: Bucket, tmp_path: Path) -> xr.Dataset:
    parts = []
    for number in range(len(LENGTHS)):
        parts.append(month(number, tmp_path / f"{number}.nc"))
        bucket.put(f"data/{number}.nc", (tmp_path / f"{number}.nc").read_bytes())
    return xr.concat(parts, "time")


def test_long_ranges_come_whole(bucket: Bucket) -> None:
    """A body comes in pieces, of which one read gives the first."""
    content = np.random.default_rng(0).bytes(8 << 20)
    source = describe_source(bucket.put("data/long.bin", content), bucket.options)
    pool = SourcePool(bucket.options)
    for start, length in ((0, 8 << 20), (1, 7 << 20), (65_251, 4096), (12_345, 1 << 20)):
        assert bytes(pool.read(source, start, length)) == content[start : start + length]


def built(bucket: Bucket, output: str | Path) -> str:
    files = f"s3://{BUCKET}/data/*.nc"
    options = bucket.options
    gridref.build(files, output, "time", storage_options=options, overwrite=True)
    return str(output)


def test_what_a_server_says_of_an_object(bucket: Bucket) -> None:
    url = bucket.put("data/a.bin", b"12345")
    source = describe_source(url, bucket.options)
    etag = bucket.client.head_object(Bucket=BUCKET, Key="data/a.bin")["ETag"]
    assert (source.size_bytes, source.etag) == (5, etag)
    pool = SourcePool(bucket.options)
    parts = pool.read_ranges(source, [3, 0], [2, 1])
    assert [bytes(part) for part in parts] == [b"45", b"1"]


def test_every_face_reads_the_same(bucket: Bucket, months: xr.Dataset, tmp_path: Path) -> None:
    catalog = built(bucket, tmp_path / "c.gridref")
    store = gridref.open_store(catalog, storage_options=bucket.options)
    opened = {
        "store": xr.open_zarr(store, consolidated=False, zarr_format=3, chunks=None),
        "engine": xr.open_dataset(catalog, engine="gridref", storage_options=bucket.options),
    }
    for face, dataset in opened.items():
        np.testing.assert_array_equal(dataset["tas"].values, months["tas"].values, face)
        np.testing.assert_array_equal(dataset["time"].values, months["time"].values, face)


def test_a_catalog_lies_on_the_server_too(bucket: Bucket, months: xr.Dataset) -> None:
    catalog = built(bucket, f"s3://{BUCKET}/catalogs/c.gridref")
    assert len(bucket.keys("catalogs/")) == 4
    again = built(bucket, catalog)
    assert len(bucket.keys("catalogs/")) == 8  # with the former snapshot
    store = gridref.open_store(again, storage_options=bucket.options)
    values = zarr.open_group(store, mode="r")["tas"][...]
    np.testing.assert_array_equal(values, months["tas"].values)
    through = xr.open_zarr(
        f"gridref::{catalog}",
        storage_options={"gridref": {"storage_options": bucket.options}, **bucket.options},
        chunks=None,
    )
    np.testing.assert_array_equal(through["tas"].values, months["tas"].values)
    with pytest.raises(GridrefError, match="no catalog there"):
        gridref.open_catalog(f"s3://{BUCKET}/catalogs/none.gridref", storage_options=bucket.options)


def test_an_object_of_the_same_size_but_another_etag_is_an_error(
    bucket: Bucket, months: xr.Dataset, tmp_path: Path
) -> None:
    catalog = built(bucket, tmp_path / "c.gridref")
    held = (tmp_path / "1.nc").read_bytes()
    bucket.put("data/1.nc", held[:-1] + bytes([held[-1] ^ 1]))
    array = gridref.open_catalog(catalog, storage_options=bucket.options).arrays["tas"]
    reader = Reader(SourcePool(bucket.options))
    np.testing.assert_array_equal(reader.read(array, slice(0, 31)), months["tas"].values[:31])
    with pytest.raises(SourceChangedError, match=rf"version was.*file s3://{BUCKET}/data/1\.nc"):
        reader.read(array)


def test_an_object_that_is_gone_is_an_error(
    bucket: Bucket, months: xr.Dataset, tmp_path: Path
) -> None:
    catalog = built(bucket, tmp_path / "c.gridref")
    bucket.client.delete_object(Bucket=BUCKET, Key="data/1.nc")
    store = gridref.open_store(catalog, storage_options=bucket.options)
    with pytest.raises(SourceUnavailableError, match=rf"s3://{BUCKET}/data/1\.nc"):
        zarr.open_group(store, mode="r")["tas"][-1]


def test_scanning_reads_little_of_a_large_file(bucket: Bucket, tmp_path: Path) -> None:
    path = tmp_path / "large.h5"
    values = np.random.default_rng(0).random((64, 256, 256))
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=values, chunks=(1, 256, 256))
    url = bucket.put("data/large.h5", path.read_bytes())
    group = gridref.scan(url, storage_options=bucket.options)
    pool = SourcePool(bucket.options)
    got = Reader(pool).read(group["v"], (5, slice(10, 20), 3))
    np.testing.assert_array_equal(got, values[5, 10:20, 3])
    assert (pool.n_requests, pool.n_bytes) == (1, (9 * 256 + 1) * 8)


def test_a_catalog_on_the_server_is_served(bucket: Bucket, months: xr.Dataset) -> None:
    catalog = built(bucket, f"s3://{BUCKET}/catalogs/c.gridref")
    with running(create_app([catalog], storage_options=bucket.options)) as url:
        for view in ("native", "portable"):
            opened = xr.open_zarr(f"{url}/c/{view}", chunks=None)
            np.testing.assert_array_equal(opened["tas"].values, months["tas"].values)
    bucket.client.delete_object(Bucket=BUCKET, Key="data/0.nc")
    with running(create_app([catalog], storage_options=bucket.options)) as url:
        answer = httpx.get(f"{url}/c/native/tas/c/0/0")
    assert answer.status_code == 502
    assert f"s3://{BUCKET}/data/0.nc" in answer.json()["reason"]


def test_a_catalog_has_options_of_its_own(
    bucket: Bucket, months: xr.Dataset, tmp_path: Path
) -> None:
    nowhere = {"key": "x", "secret": "x", "client_kwargs": {"endpoint_url": "http://127.0.0.1:9"}}
    options = {"catalog": bucket.options["s3"], "s3": nowhere}
    catalog = f"s3://{BUCKET}/own.gridref"
    gridref.build(tmp_path / "*.nc", catalog, "time", storage_options=options)
    assert bucket.keys("own.gridref/")
    cube = gridref.open_catalog(catalog, storage_options=options)
    np.testing.assert_array_equal(cube["tas"][...], months["tas"].values)
    assert gridref.verify(catalog, storage_options=options).ok


@pytest.mark.parametrize("status", [301, 302, 307])
def test_redirects_are_not_followed(status: int) -> None:
    with serving(Site({"/priv/b.h5": b"1234"})) as inner, serving(Site()) as outer:
        outer.redirects["/bucket/a.h5"] = f"{inner.url}/priv/b.h5"
        outer.redirect_status = status
        server = {"endpoint_url": outer.url, "region_name": "us-east-1"}
        options = {"s3": {"key": "test", "secret": "test", "client_kwargs": server}}
        pool = SourcePool(options, identity="skip", retry=RetryPolicy(1))
        with pytest.raises(SourceUnavailableError):
            describe_source("s3://bucket/a.h5", options)
        with pytest.raises(SourceUnavailableError):
            pool.read(Source("s3://bucket/a.h5", 4), 0, 4)
        assert outer.requests
        assert inner.requests == []
