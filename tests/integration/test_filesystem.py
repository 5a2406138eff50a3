"""The fsspec filesystem and catalogs of Intake: methods are right and agree with each other."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import fsspec
import intake
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.api.catalog import write_catalog
from gridref.errors import ReadOnlyError
from gridref.model.array import VirtualArray
from tests.http_server import Site, serving
from tests.integration.archives import write_months
from tests.s3_server import BUCKET, Bucket, s3_bucket


@pytest.fixture(scope="module")
def filesystem(tmp_path_factory: pytest.TempPathFactory) -> fsspec.AbstractFileSystem:
    folder = tmp_path_factory.mktemp("fs")
    files = write_months(folder, lengths=[31, 28])
    gridref.build(files, folder / "cube.gridref", "time")
    return fsspec.filesystem("gridref", fo=str(folder / "cube.gridref"))


def test_chained_url(filesystem: fsspec.AbstractFileSystem) -> None:
    opened, path = fsspec.core.url_to_fs(f"gridref::file://{filesystem.storage_options['fo']}")
    assert path == ""
    assert sorted(opened.ls("", detail=False)) == sorted(filesystem.ls("", detail=False))
    with fsspec.open(f"gridref://zarr.json::file://{filesystem.storage_options['fo']}") as file:
        assert file.read() == filesystem.cat_file("zarr.json")


def test_listing(filesystem: fsspec.AbstractFileSystem) -> None:
    names = filesystem.ls("", detail=False)
    assert set(names) == {"zarr.json", "time", "lat", "lon", "tas", "pr"}
    details = {entry["name"]: entry for entry in filesystem.ls("")}
    assert details["zarr.json"]["type"] == "file"
    assert details["tas"]["type"] == "directory"
    assert set(filesystem.ls("tas", detail=False)) == {"tas/zarr.json", "tas/c"}
    with pytest.raises(FileNotFoundError):
        filesystem.ls("nothing")


@pytest.mark.parametrize(
    "path", ["tas/c/9/9/9", "nothing", "tas/c/00/0/0", "../etc/passwd", "tas/c/-1/0/0"]
)
def test_what_is_not_there(filesystem: fsspec.AbstractFileSystem, path: str) -> None:
    assert not filesystem.exists(path)
    for ask in (filesystem.info, filesystem.cat_file, filesystem.open):
        with pytest.raises(FileNotFoundError):
            ask(path)


def test_writes_are_refused(filesystem: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    attempts = [
        lambda: filesystem.pipe_file("x", b"1"),
        lambda: filesystem.pipe("x", b"1"),
        lambda: filesystem.open("x", "wb"),
        lambda: filesystem.rm("zarr.json"),
        lambda: filesystem.rm_file("zarr.json"),
        lambda: filesystem.mkdir("x"),
        lambda: filesystem.makedirs("x"),
        lambda: filesystem.rmdir("tas"),
        lambda: filesystem.touch("x"),
        lambda: filesystem.mv("zarr.json", "x"),
        lambda: filesystem.cp_file("zarr.json", "x"),
        lambda: filesystem.put_file(str(tmp_path / "x"), "x"),
    ]
    for attempt in attempts:
        with pytest.raises(ReadOnlyError):
            attempt()


def test_a_catalog_that_was_built_anew_is_read_anew(tmp_path: Path) -> None:
    catalog = tmp_path / "cube.gridref"
    address = f"gridref::file://{catalog}"
    first = VirtualArray.from_numpy(np.arange(3), ("x",))
    write_catalog(gridref.VirtualGroup({"x": first}), catalog)
    assert xr.open_zarr(address)["x"].values.tolist() == [0, 1, 2]
    second = VirtualArray.from_numpy(np.arange(5, 9), ("x",))
    write_catalog(gridref.VirtualGroup({"x": second}), catalog)
    assert xr.open_zarr(address)["x"].values.tolist() == [5, 6, 7, 8]


MONTH = Path(__file__).parents[2] / "sample_data" / "daily_2023-01.nc"


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with s3_bucket() as bucket:
        yield bucket


@pytest.mark.parametrize("form", ["by protocol", "flat"])
def test_the_usual_storage_options_reach_catalog_and_sources(
    bucket: Bucket, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    source, catalog = bucket.put("a.nc", MONTH.read_bytes()), f"s3://{BUCKET}/a.gridref"
    gridref.build(source, catalog, storage_options=bucket.options, overwrite=True)
    options = bucket.options if form == "by protocol" else bucket.options["s3"]
    cube = xr.open_zarr(f"gridref::{catalog}", storage_options=options, chunks=None)
    expected = xr.open_dataset(MONTH, engine="netcdf4")
    np.testing.assert_array_equal(cube["tas"], expected["tas"])
    opened, _ = fsspec.core.url_to_fs(f"gridref::{catalog}", **options)
    again = pickle.loads(pickle.dumps(opened))
    chunk = next(path for path in opened.find("tas") if "/c/" in path)
    assert again.cat_file(chunk) == opened.cat_file(chunk)


def test_sources_of_other_protocols_have_their_own_options(bucket: Bucket, tmp_path: Path) -> None:
    source = bucket.put("b.nc", MONTH.read_bytes())
    gridref.build(source, tmp_path / "b.gridref", storage_options=bucket.options)
    url = f"gridref::file://{tmp_path / 'b.gridref'}"
    cube = xr.open_zarr(url, storage_options=bucket.options, chunks=None)
    expected = xr.open_dataset(MONTH, engine="netcdf4")
    np.testing.assert_array_equal(cube["tas"], expected["tas"])
    with serving(Site({"/c.nc": MONTH.read_bytes()})) as site:
        catalog = f"s3://{BUCKET}/c.gridref"
        gridref.build(f"{site.url}/c.nc", catalog, storage_options=bucket.options)
        named = {**bucket.options, "http": {"headers": {"X-Asked-By": "gridref"}}}
        cube = xr.open_zarr(f"gridref::{catalog}", storage_options=named, chunks=None)
        np.testing.assert_array_equal(cube["tas"], expected["tas"])
        assert "gridref" in {headers.get("X-Asked-By") for headers in site.headers}


ENTRIES = """
sources:
  by_engine:
    driver: netcdf
    args:
      urlpath: "{{{{ CATALOG_DIR }}}}/january.gridref"
      xarray_kwargs: {{engine: gridref}}
  by_zarr:
    driver: zarr
    args:
      urlpath: "gridref::file://{folder}/january.gridref"
"""


@pytest.mark.parametrize("entry", ["by_engine", "by_zarr"])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.filterwarnings("ignore")  # of Intake itself
def test_entries_open(entry: str, chunked: bool, tmp_path: Path) -> None:
    gridref.build(MONTH, tmp_path / "january.gridref")
    (tmp_path / "catalog.yaml").write_text(ENTRIES.format(folder=tmp_path))
    source = intake.open_catalog(str(tmp_path / "catalog.yaml"))[entry]
    opened = source.to_dask() if chunked else source.read()
    assert (opened["tas"].chunks is not None) == chunked
    xr.testing.assert_equal(opened.load(), xr.open_dataset(MONTH, engine="netcdf4").load())
