"""Groups in Icechunk repositories, read by Icechunk and xarray, and back: against the files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import icechunk
import numpy as np
import pytest
import virtualizarr
import xarray as xr
import zarr
from icechunk.credentials import Credentials
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore

import gridref
from gridref.api.catalog import write_catalog
from gridref.errors import (
    InvalidRequestError,
    NotRepresentableError,
    ReadOnlyError,
    SourceChangedError,
    SourceFormatError,
    SourceNotAllowedError,
    SourceUnavailableError,
    UnsupportedFeatureError,
)
from tests.command import run_command
from tests.http_server import Site, nginx_serving, serving
from tests.s3_server import BUCKET, Bucket
from tests.shared_data import REAL_NETCDF, shared_files

SAMPLES = Path(__file__).parents[2] / "sample_data"
MONTHS = [SAMPLES / f"daily_2023-{month:02}.nc" for month in (1, 2, 3)]
REGISTRY = ObjectStoreRegistry({"file://": LocalStore()})


def opened(path: Path, **options: Any) -> icechunk.Session:
    """A snapshot, as a user of Icechunk opens it."""
    storage = icechunk.local_filesystem_storage(str(path))
    config = icechunk.Repository.fetch_config(storage)
    containers = {} if config is None else config.virtual_chunk_containers or {}
    access = dict.fromkeys(containers, Credentials.LocalFileSystemAccess())
    repository = icechunk.Repository.open(storage, authorize_virtual_chunk_access=access)
    return repository.readonly_session(**(options or {"branch": "main"}))


def read(session: icechunk.Session, **options: Any) -> xr.Dataset:
    with zarr.config.set({"array.rectilinear_chunks": True}):
        return xr.open_zarr(session.store, consolidated=False, chunks=None, **options).load()


def of_files(files: list[Path]) -> xr.Dataset:
    opened = xr.open_mfdataset(
        files, engine="netcdf4", data_vars="minimal", coords="minimal", compat="override"
    )
    return opened.load()


def kinds(session: icechunk.Session, path: str) -> set[str]:
    """The kinds of the chunks of an array, as Icechunk names them."""
    return {
        str(session.chunk_type(path, coords)).rpartition(".")[2]
        for coords in np.ndindex(*_grid_shape(session, path))
    }


def _grid_shape(session: icechunk.Session, path: str) -> tuple[int, ...]:
    with zarr.config.set({"array.rectilinear_chunks": True}):
        return zarr.open_array(session.store, path=path, mode="r").cdata_shape


def uneven_file(path: Path, length: int, *, zlib: bool) -> Path:
    """A file whose one chunk along ``time`` is as long as it is."""
    values = np.random.default_rng(length).normal(size=(length, 6, 500)).astype("f4")
    dataset = xr.Dataset({"v": (("time", "y", "x"), values)})
    chunked = {"v": {"chunksizes": (length, 3, 500), "zlib": zlib}}
    dataset.to_netcdf(path, engine="h5netcdf", encoding=chunked)
    return path


@pytest.fixture
def uneven(tmp_path: Path) -> list[Path]:
    return [uneven_file(tmp_path / f"{n}.h5", n, zlib=True) for n in (31, 28, 30)]


def along_time(files: list[Path]) -> gridref.VirtualGroup:
    return gridref.concat([gridref.scan(file) for file in files], "time")


def values_of(files: list[Path]) -> np.ndarray[Any, Any]:
    return np.concatenate([h5py.File(file)["v"][...] for file in files])


@pytest.mark.long(but=3)
@pytest.mark.parametrize(
    "path",
    shared_files(*REAL_NETCDF),
)
def test_files_go_there_and_back(path: Path, tmp_path: Path) -> None:
    gridref.interchange.to_icechunk(gridref.scan(path), tmp_path / "a.icechunk")
    expected = xr.open_dataset(path, engine="netcdf4").load()
    xr.testing.assert_equal(read(opened(tmp_path / "a.icechunk")), expected)
    back = gridref.interchange.from_icechunk(tmp_path / "a.icechunk", allow=path.parent)
    xr.testing.assert_equal(xr.open_dataset(back, engine="gridref").load(), expected)
    for name, array in back.arrays.items():
        assert array.attrs.keys() == gridref.scan(path)[name].attrs.keys()


def test_uneven_months_are_referenced_on_a_rectilinear_grid(
    uneven: list[Path], tmp_path: Path
) -> None:
    gridref.interchange.to_icechunk(along_time(uneven), tmp_path / "a.icechunk")
    session = opened(tmp_path / "a.icechunk")
    assert kinds(session, "/v") == {"virtual"}
    with zarr.config.set({"array.rectilinear_chunks": True}):
        array = zarr.open_array(session.store, path="v", mode="r")
        assert array.read_chunk_sizes[0] == (31, 28, 30)
        np.testing.assert_array_equal(array[...], values_of(uneven))
    back = gridref.interchange.from_icechunk(tmp_path / "a.icechunk")
    np.testing.assert_array_equal(back["v"][...], values_of(uneven))


def test_trees_attributes_and_inline_chunks_come_through(tmp_path: Path) -> None:
    tree = xr.DataTree.from_dict(
        {
            "/": xr.Dataset({"a": ("x", [1.5, 2.5])}, {"x": [10, 20]}, {"title": "root"}),
            "/low/er": xr.Dataset(
                {"b": (("y", "x"), np.arange(6).reshape(3, 2)), "s": ((), 7)}, attrs={"n": 3}
            ),
        }
    )
    path = tmp_path / "ü tree #1?%25.nc"
    tree.to_netcdf(path, engine="h5netcdf")
    gridref.interchange.to_icechunk(gridref.scan(path), tmp_path / "a.icechunk", inline_limit=0)
    session = opened(tmp_path / "a.icechunk")
    expected = xr.open_datatree(path, engine="h5netcdf").load()
    got = xr.open_datatree(session.store, engine="zarr", consolidated=False)
    xr.testing.assert_equal(got.load(), expected)
    assert got["low/er"].attrs == {"n": 3}
    assert kinds(session, "/a") == {"virtual"}
    gridref.interchange.to_icechunk(gridref.scan(path), tmp_path / "b.icechunk")
    assert kinds(opened(tmp_path / "b.icechunk"), "/a") == {"inline"}


def test_a_file_that_changed_is_refused_by_icechunk_and_by_us(
    uneven: list[Path], tmp_path: Path
) -> None:
    gridref.interchange.to_icechunk(along_time(uneven), tmp_path / "a.icechunk")
    later = os.stat(uneven[1]).st_mtime + 5
    os.utime(uneven[1], (later, later))
    with zarr.config.set({"array.rectilinear_chunks": True}):
        array = zarr.open_array(opened(tmp_path / "a.icechunk").store, path="v", mode="r")
        np.testing.assert_array_equal(array[:31], values_of(uneven)[:31])
        with pytest.raises(icechunk.IcechunkError, match="has changed"):
            array[31:40]
    with pytest.raises(SourceChangedError, match=r"28\.h5"):
        gridref.interchange.from_icechunk(tmp_path / "a.icechunk")


def test_each_month_is_appended_by_a_commit(tmp_path: Path) -> None:
    path = tmp_path / "a.icechunk"
    first = gridref.interchange.to_icechunk(gridref.scan(MONTHS[0]), path)
    for month in MONTHS[1:]:
        gridref.interchange.to_icechunk(
            gridref.scan(month), path, append_dim="time", message="one more"
        )
    xr.testing.assert_equal(read(opened(path)), of_files(MONTHS))
    xr.testing.assert_equal(read(opened(path, snapshot_id=first)), of_files(MONTHS[:1]))
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(path)))
    messages = [snapshot.message for snapshot in repository.ancestry(branch="main")]
    assert messages[:3] == ["one more", "one more", "written by gridref"]


def test_what_is_appended_keeps_the_references_of_before(
    uneven: list[Path], tmp_path: Path
) -> None:
    path = tmp_path / "a.icechunk"
    gridref.interchange.to_icechunk(gridref.scan(uneven[0]), path)
    for file in uneven[1:]:
        gridref.interchange.to_icechunk(gridref.scan(file), path, append_dim="time")
    session = opened(path)
    assert kinds(session, "/v") == {"virtual"}
    with zarr.config.set({"array.rectilinear_chunks": True}):
        array = zarr.open_array(session.store, path="v", mode="r")
        np.testing.assert_array_equal(array[...], values_of(uneven))


def test_appends_that_do_not_fit_are_refused_by_array(tmp_path: Path) -> None:
    path = tmp_path / "a.icechunk"
    days = np.arange(3.0)
    parts = {
        "a": {"v": ("t", days), "y": ("y", [1, 2])},
        "units": {"v": ("t", days), "y": ("y", [1, 2])},
        "values": {"v": ("t", days), "y": ("y", [1, 3])},
        "less": {"y": ("y", [1, 2])},
        "more": {"v": ("t", days), "w": ("t", days), "y": ("y", [1, 2])},
    }
    for name, variables in parts.items():
        dataset = xr.Dataset(variables)
        dataset["y"].attrs["units"] = "ft" if name == "units" else "m"
        dataset.to_netcdf(tmp_path / f"{name}.nc", engine="h5netcdf")
    gridref.interchange.to_icechunk(gridref.scan(tmp_path / "a.nc"), path)
    before = opened(path).snapshot_id
    for name, reason in {
        "units": "y: its attribute units was 'm', now 'ft'",
        "values": "y: its values differ",
        "more": "w: it is not in the repository",
    }.items():
        with pytest.raises(NotRepresentableError, match=f"(?s)append along t.*{reason}"):
            gridref.interchange.to_icechunk(
                gridref.scan(tmp_path / f"{name}.nc"), path, append_dim="t"
            )
    with pytest.raises(InvalidRequestError, match="no array has a dimension t"):
        gridref.interchange.to_icechunk(gridref.scan(tmp_path / "less.nc"), path, append_dim="t")
    assert opened(path).snapshot_id == before


def test_what_cannot_be_referenced_is_refused_or_decoded_if_asked(
    uneven: list[Path], tmp_path: Path
) -> None:
    other = uneven_file(tmp_path / "other.h5", 29, zlib=False)
    cube = along_time([*uneven, other])
    path = tmp_path / "a.icechunk"
    with pytest.raises(NotRepresentableError, match=r"(?s)materialize=True.*- v: .*encoding"):
        gridref.interchange.to_icechunk(cube, path, inline_limit=0)
    assert not path.exists()
    gridref.interchange.to_icechunk(cube, path, materialize=True, inline_limit=0)
    session = opened(path)
    assert kinds(session, "/v") == {"native"}
    array = zarr.open_array(session.store, path="v", mode="r")
    np.testing.assert_array_equal(array[...], values_of([*uneven, other]))
    back = gridref.interchange.from_icechunk(path)
    np.testing.assert_array_equal(back["v"][...], values_of([*uneven, other]))


def test_single_arrays_are_decoded_if_named(tmp_path: Path) -> None:
    gridref.interchange.to_icechunk(
        gridref.scan(MONTHS[0]), tmp_path / "a.icechunk", materialize=["tas"]
    )
    session = opened(tmp_path / "a.icechunk")
    assert (kinds(session, "/tas"), kinds(session, "/pr")) == ({"native"}, {"virtual", "inline"})
    xr.testing.assert_equal(read(session), of_files(MONTHS[:1]))
    with pytest.raises(InvalidRequestError, match="materialize names tos; there are"):
        gridref.interchange.to_icechunk(
            gridref.scan(MONTHS[0]), tmp_path / "b.icechunk", materialize="tos"
        )


def test_files_that_lie_scattered_over_the_grid(tmp_path: Path) -> None:
    """Every chunk in another file than its neighbours: checksums differ from chunk to chunk."""
    expected = np.arange(24.0).reshape(6, 4)
    files = []
    for row in range(6):
        path = tmp_path / f"{row}.h5"
        with h5py.File(path, "w") as file:
            file.create_dataset("v", data=expected[row : row + 1], chunks=(1, 2))
        os.utime(path, (row * 1000, row * 1000))
        files.append(path)
    rows = gridref.concat([gridref.scan(file) for file in files], "phony_dim_0")
    gridref.interchange.to_icechunk(rows, tmp_path / "a.icechunk", inline_limit=0)
    array = zarr.open_array(opened(tmp_path / "a.icechunk").store, path="v", mode="r")
    np.testing.assert_array_equal(array[...], expected)
    os.utime(files[3], (10**9, 10**9))
    with pytest.raises(icechunk.IcechunkError, match="has changed"):
        array[3]


def test_missing_chunks_read_as_fill_value(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        holes = file.create_dataset("holes", (40, 30), "i2", chunks=(10, 10), fillvalue=-7)
        holes[12:25, 3:18] = 5
        expected = holes[...]
    gridref.interchange.to_icechunk(
        gridref.scan(tmp_path / "a.h5"), tmp_path / "a.icechunk", inline_limit=0
    )
    array = zarr.open_array(opened(tmp_path / "a.icechunk").store, path="holes", mode="r")
    np.testing.assert_array_equal(array[...], expected)
    assert array.nchunks_initialized == 4
    back = gridref.interchange.from_icechunk(tmp_path / "a.icechunk")["holes"]
    np.testing.assert_array_equal(back[...], expected)


def test_what_is_there_is_replaced_only_if_asked(tmp_path: Path) -> None:
    path = tmp_path / "a.icechunk"
    first = gridref.interchange.to_icechunk(gridref.scan(MONTHS[0]), path)
    with pytest.raises(InvalidRequestError, match="replace=True"):
        gridref.interchange.to_icechunk(gridref.scan(MONTHS[1]), path)
    gridref.interchange.to_icechunk(gridref.scan(MONTHS[1]), path, replace=True)
    xr.testing.assert_equal(read(opened(path)), of_files(MONTHS[1:2]))
    xr.testing.assert_equal(read(opened(path, snapshot_id=first)), of_files(MONTHS[:1]))


def test_folders_of_something_else_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.icechunk").mkdir()
    (tmp_path / "a.icechunk" / "thesis.txt").write_text("mine")
    with pytest.raises(InvalidRequestError, match="is not a repository, so nothing was written"):
        gridref.interchange.to_icechunk(gridref.scan(MONTHS[0]), tmp_path / "a.icechunk")
    assert os.listdir(tmp_path / "a.icechunk") == ["thesis.txt"]


def test_sessions_are_written_to_and_left_to_commit() -> None:
    config = icechunk.RepositoryConfig.default()
    prefix = f"file://{SAMPLES}/"
    bare = icechunk.Repository.create(icechunk.in_memory_storage(), config)
    month = gridref.scan(MONTHS[0])
    with pytest.raises(InvalidRequestError, match=rf"no virtual chunk containers for {prefix}"):
        gridref.interchange.to_icechunk(month, bare.writable_session("main"))
    with pytest.raises(ReadOnlyError, match="writable_session"):
        gridref.interchange.to_icechunk(month, bare.readonly_session("main"))
    files = icechunk.local_filesystem_store(str(SAMPLES))
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, files))
    repository = icechunk.Repository.create(
        icechunk.in_memory_storage(),
        config,
        authorize_virtual_chunk_access={prefix: Credentials.LocalFileSystemAccess()},
    )
    session = repository.writable_session("main")
    assert gridref.interchange.to_icechunk(month, session) is None
    assert session.has_uncommitted_changes
    xr.testing.assert_equal(read(session), of_files(MONTHS[:1]))
    again = gridref.interchange.from_icechunk(session)
    np.testing.assert_array_equal(again["tas"][...], month["tas"][...])
    # A repository is given the containers, and the commit.
    assert gridref.interchange.to_icechunk(month, bare, branch="main") == bare.lookup_branch("main")
    assert list(bare.fetch_config(bare.storage).virtual_chunk_containers) == [prefix]


def written_by_xarray(path: Path, dataset: xr.Dataset) -> icechunk.Repository:
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(path)))
    session = repository.writable_session("main")
    dataset.to_zarr(session.store, zarr_format=3, consolidated=False)
    session.commit("native")
    return repository


def test_native_chunks_are_referenced_in_the_repository(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(40, 500))
    dataset = xr.Dataset({"v": (("y", "x"), values)}, {"y": np.arange(40)}, {"title": "native"})
    dataset["v"].encoding = {"chunks": (7, 500)}
    repository = written_by_xarray(tmp_path / "n.icechunk", dataset)
    group = gridref.scan(tmp_path / "n.icechunk")
    xr.testing.assert_identical(xr.open_dataset(group, engine="gridref").load(), dataset)
    write_catalog(group, tmp_path / "n.gridref")
    (source, *_) = group["v"].manifests[0].take(np.arange(1)).sources  # type: ignore[attr-defined]
    assert source.url.startswith(str(tmp_path / "n.icechunk" / "chunks"))
    session = repository.readonly_session("main")
    kept = gridref.interchange.from_icechunk(session)
    np.testing.assert_array_equal(kept["v"][...], values)
    with pytest.raises(UnsupportedFeatureError, match="pass the address"):
        gridref.interchange.from_icechunk(session, max_inline_bytes=1000)
    named = gridref.interchange.from_icechunk(
        session, address=tmp_path / "n.icechunk", max_inline_bytes=1000
    )
    np.testing.assert_array_equal(named["v"][...], values)


def test_a_repository_that_is_one_array_has_its_chunks(tmp_path: Path) -> None:
    path, values = tmp_path / "a.icechunk", np.arange(1, 1201, dtype="i4").reshape(6, 200)
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(path)))
    session = repository.writable_session("main")
    zarr.create_array(session.store, data=values, chunks=(2, 100))
    session.commit("an array at the root")
    for group in (gridref.scan(path), gridref.interchange.from_icechunk(session)):
        (array,) = group.arrays.values()
        np.testing.assert_array_equal(array[...], values)


def test_former_snapshots_and_tags_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.icechunk"
    first = gridref.interchange.to_icechunk(gridref.scan(MONTHS[0]), path)
    assert first is not None
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(path)))
    repository.create_tag("one", first)
    gridref.interchange.to_icechunk(gridref.scan(MONTHS[1]), path, append_dim="time")
    for option in ({"snapshot": first}, {"tag": "one"}):
        assert (
            gridref.interchange.from_icechunk(path, allow=SAMPLES, **option)["tas"].shape[0] == 31
        )
    assert gridref.interchange.from_icechunk(path, allow=SAMPLES)["tas"].shape[0] == 59
    with pytest.raises(SourceUnavailableError, match="two"):
        gridref.interchange.from_icechunk(path, tag="two")


def test_references_of_others_read_only_what_is_allowed(tmp_path: Path) -> None:
    gridref.interchange.to_icechunk(gridref.scan(MONTHS[0]), tmp_path / "a.icechunk")
    with pytest.raises(SourceNotAllowedError, match="allow"):
        gridref.interchange.from_icechunk(tmp_path / "a.icechunk")


def test_files_on_a_web_server_are_checked_by_icechunk(tmp_path: Path) -> None:
    www = tmp_path / "www"
    www.mkdir()
    shutil.copy(MONTHS[0], www / "a.nc")
    before = (www / "a.nc").stat()
    with nginx_serving(www, tmp_path) as url:
        path = tmp_path / "a.icechunk"
        gridref.interchange.to_icechunk(gridref.scan(f"{url}/a.nc"), path)
        access = {f"{url}/": Credentials.HttpAccess()}
        storage = icechunk.local_filesystem_storage(str(path))
        repository = icechunk.Repository.open(storage, authorize_virtual_chunk_access=access)
        session = repository.readonly_session(branch="main")
        xr.testing.assert_equal(read(session), of_files(MONTHS[:1]))
        back = gridref.interchange.from_icechunk(path, allow=url)
        xr.testing.assert_equal(
            xr.open_dataset(back, engine="gridref").load(), of_files(MONTHS[:1])
        )
        # Older by its time, and so not modified since, but another file.
        os.utime(www / "a.nc", ns=(before.st_atime_ns, before.st_mtime_ns - 10**10))
        with pytest.raises(icechunk.IcechunkError, match="has changed"):
            read(session)
        with pytest.raises(SourceChangedError):
            gridref.interchange.from_icechunk(path, allow=url)


def test_files_of_others_redirect_to_allowed_folders_only(tmp_path: Path) -> None:
    values = np.arange(4, dtype="<i4")
    with serving(Site({"/priv/a.bin": values.tobytes()})) as site:
        site.redirects["/pub/a.bin"] = "/priv/a.bin"
        folder = f"{site.url}/pub/"
        config = icechunk.RepositoryConfig.default()
        container = icechunk.VirtualChunkContainer(folder, icechunk.http_store())
        config.set_virtual_chunk_container(container)
        storage = icechunk.local_filesystem_storage(str(tmp_path / "a.icechunk"))
        session = icechunk.Repository.create(storage, config).writable_session("main")
        zarr.create_array(session.store, name="v", data=values, compressors=None)
        session.store.set_virtual_ref("v/c/0", f"{folder}a.bin", offset=0, length=16)
        session.commit("one file")
        with pytest.raises(SourceNotAllowedError, match="priv"):
            gridref.interchange.from_icechunk(tmp_path / "a.icechunk", allow=folder)
        assert {path for _, path, _ in site.requests} == {"/pub/a.bin"}
        back = gridref.interchange.from_icechunk(
            tmp_path / "a.icechunk", allow=[folder, f"{site.url}/priv"]
        )
        assert back["v"].read().tolist() == values.tolist()


def test_damaged_and_absent_repositories_are_errors_of_ours(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailableError, match="nowhere"):
        gridref.interchange.from_icechunk(tmp_path / "nowhere.icechunk")
    gridref.interchange.to_icechunk(gridref.scan(MONTHS[0]), tmp_path / "a.icechunk")
    (tmp_path / "a.icechunk" / "repo").write_bytes(b"ICE garbage")
    with pytest.raises((SourceFormatError, SourceUnavailableError), match=r"a\.icechunk"):
        gridref.scan(tmp_path / "a.icechunk")


def test_virtualizarr_reads_ours_and_we_read_its(tmp_path: Path) -> None:
    gridref.interchange.to_icechunk(
        gridref.scan(MONTHS[0]), tmp_path / "ours.icechunk", inline_limit=0
    )
    session = opened(tmp_path / "ours.icechunk")
    theirs = virtualizarr.parsers.IcechunkParser().parse_session(
        session, REGISTRY, native_chunks_prefix="file:///"
    )
    group = gridref.interchange.from_virtualizarr(theirs)
    np.testing.assert_array_equal(group["tas"][...], gridref.scan(MONTHS[0])["tas"][...])

    virtual = virtualizarr.open_virtual_dataset(
        f"file://{MONTHS[0]}", REGISTRY, virtualizarr.parsers.HDFParser()
    )
    config, prefix = icechunk.RepositoryConfig.default(), f"file://{SAMPLES}/"
    files = icechunk.local_filesystem_store(str(SAMPLES))
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, files))
    storage = icechunk.local_filesystem_storage(str(tmp_path / "theirs.icechunk"))
    repository = icechunk.Repository.create(storage, config)
    repository.save_config()
    session = repository.writable_session("main")
    virtual.vz.to_icechunk(session.store)
    session.commit("by VirtualiZarr")
    back = gridref.interchange.from_icechunk(tmp_path / "theirs.icechunk", allow=SAMPLES)
    expected = of_files(MONTHS[:1])
    xr.testing.assert_equal(xr.open_dataset(back, engine="gridref").load(), expected)


def test_repositories_and_files_on_s3_are_checked_by_etag(bucket: Bucket) -> None:
    url = bucket.put("data/january ü.nc", MONTHS[0].read_bytes())
    address = f"s3://{BUCKET}/cubes/a.icechunk"
    group = gridref.scan(url, storage_options=bucket.options)
    gridref.interchange.to_icechunk(group, address, storage_options=bucket.options)
    back = gridref.interchange.from_icechunk(address, allow="*", storage_options=bucket.options)
    expected = of_files(MONTHS[:1])
    read = xr.open_dataset(back, engine="gridref", storage_options=bucket.options)
    xr.testing.assert_equal(read.load(), expected)
    bucket.put("data/january ü.nc", MONTHS[0].read_bytes()[:-1] + b"\0")
    with pytest.raises(SourceChangedError, match="january"):
        gridref.interchange.from_icechunk(address, allow="*", storage_options=bucket.options)


def test_virtual_datasets_are_written_by_their_accessor(tmp_path: Path) -> None:
    virtual = gridref.open_virtual_dataset(MONTHS[0], loadable_variables=["time"])
    virtual[["tas", "time"]].isel(time=slice(0, 27)).gridref.to_icechunk(tmp_path / "a.icechunk")
    got = read(opened(tmp_path / "a.icechunk"))["tas"]
    expected = of_files(MONTHS[:1])["tas"].isel(time=slice(0, 27))
    xr.testing.assert_equal(
        got.drop_vars(["lat", "lon"], errors="ignore"), expected.drop_vars(["lat", "lon"])
    )


def test_commands_there_and_back(tmp_path: Path) -> None:
    catalogs = []
    for number, month in enumerate(MONTHS):
        catalogs.append(tmp_path / f"{number}.gridref")
        assert run_command("build", month, "-o", catalogs[-1], "-q").returncode == 0
    path = tmp_path / "a.icechunk"
    done = run_command("export", catalogs[0], path)
    assert (done.returncode, done.stderr.count("Error")) == (0, 0), done.stderr
    assert f"{path}: snapshot " in done.stdout
    for catalog in catalogs[1:]:
        assert run_command("export", catalog, path, "--append-dim", "time").returncode == 0
    xr.testing.assert_equal(read(opened(path)), of_files(MONTHS))
    again = run_command("build", path, "-o", tmp_path / "again.gridref", "--allow", SAMPLES, "-q")
    assert again.returncode == 0, again.stderr
    cube = xr.open_dataset(tmp_path / "again.gridref", engine="gridref")
    xr.testing.assert_equal(cube.load(), of_files(MONTHS))
    refused = run_command("export", catalogs[0], tmp_path / "refs.json", "--append-dim", "time")
    assert refused.returncode != 0
    assert "append" in refused.stderr


def test_icechunk_logs_nothing_of_what_we_do(tmp_path: Path) -> None:
    xr.Dataset({"t": ("x", np.arange(3.0))}).to_netcdf(tmp_path / "a.nc")
    code = (
        "import sys, gridref\n"
        "folder = sys.argv[1]\n"
        "gridref.interchange.to_icechunk(gridref.scan(folder + '/a.nc'), folder + '/repo')\n"
        "assert gridref.scan(folder + '/repo').arrays['t'].shape == (3,)\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "ICECHUNK_LOG"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert (done.stdout, done.stderr) == ("", "")
