"""VirtualiZarr with our scanners, and its datasets as groups: values are those of the files."""

from __future__ import annotations

import base64
import json
import zipfile
from pathlib import Path
from typing import Any

import h5py
import icechunk
import numpy as np
import pytest
import virtualizarr
import xarray as xr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore, S3Store
from virtualizarr.manifests import ManifestArray
from virtualizarr.parsers import HDFParser

import gridref
import gridref.virtualizarr
from gridref.api.catalog import write_catalog
from gridref.errors import InvalidRequestError, NotRepresentableError
from tests.s3_server import BUCKET, Bucket
from tests.shared_data import REAL_NETCDF, shared_files

SAMPLES = Path(__file__).parents[2] / "sample_data"
MONTH = SAMPLES / "daily_2023-01.nc"
REGISTRY = ObjectStoreRegistry({"file://": LocalStore()})

pytestmark = pytest.mark.filterwarnings("ignore:Variable.* have a chunk shape larger")


def through_icechunk(virtual: xr.Dataset, folder: Path = SAMPLES) -> xr.Dataset:
    """What is read back after VirtualiZarr has written a dataset to Icechunk."""
    config, prefix = icechunk.RepositoryConfig.default(), f"file://{folder}/"
    files = icechunk.local_filesystem_store(str(folder))
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, files))
    repository = icechunk.Repository.create(
        icechunk.in_memory_storage(), config, authorize_virtual_chunk_access={prefix: None}
    )
    session = repository.writable_session("main")
    virtual.vz.to_icechunk(session.store)
    session.commit("written")
    return xr.open_zarr(repository.readonly_session("main").store, consolidated=False)


def of_gridref(group: gridref.VirtualGroup, **options: Any) -> xr.Dataset:
    return xr.open_zarr(gridref.open_store(group), **options)


def test_parser_gives_the_manifests_of_virtualizarrs_own() -> None:
    ours = virtualizarr.open_virtual_dataset(
        f"file://{MONTH}", REGISTRY, gridref.virtualizarr.Parser()
    )
    theirs = virtualizarr.open_virtual_dataset(f"file://{MONTH}", REGISTRY, HDFParser())
    xr.testing.assert_identical(ours, theirs)
    for name in ("tas", "pr", "lat_bnds"):
        assert ours[name].data.manifest == theirs[name].data.manifest
        assert ours[name].data.metadata == theirs[name].data.metadata


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    "path",
    shared_files(*REAL_NETCDF),
)
def test_files_are_read_back_from_icechunk(path: Path) -> None:
    virtual = virtualizarr.open_virtual_dataset(
        f"file://{path}", REGISTRY, gridref.virtualizarr.Parser()
    )
    expected = xr.open_dataset(path, engine="netcdf4")
    xr.testing.assert_equal(through_icechunk(virtual, path.parent), expected)


def test_virtualizarr_joins_what_the_parser_scanned() -> None:
    months = [SAMPLES / f"daily_2023-{month:02}.nc" for month in (1, 3)]
    virtual = [
        virtualizarr.open_virtual_dataset(
            f"file://{month}",
            REGISTRY,
            gridref.virtualizarr.Parser(),
            loadable_variables=["time", "time_bnds", "lat", "lon"],
        )[["tas"]].isel(time=slice(0, 27))
        for month in months
    ]
    joined = xr.concat(virtual, "time", coords="minimal", compat="override")
    expected = xr.open_mfdataset(
        months,
        preprocess=lambda d: d[["tas"]].isel(time=slice(0, 27)),
        engine="netcdf4",
        data_vars="minimal",
    )
    xr.testing.assert_equal(through_icechunk(joined)["tas"], expected["tas"])


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_chunks_longer_than_their_dimension(compression: str | None, tmp_path: Path) -> None:
    """As netCDF4 makes them along unlimited dimensions; compressed ones cannot be cut."""
    paths = []
    for number in range(2):
        paths.append(tmp_path / f"{number}.h5")
        with h5py.File(paths[-1], "w") as file:
            for name, shape, chunks in (
                ("line", (7,), (1024,)),
                ("plane", (5, 6), (8, 4)),
                ("one_row", (1, 7), (3, 10)),
                ("columns", (4, 3), (4, 8)),
            ):
                values = np.arange(np.prod(shape), dtype="<f4").reshape(shape) + 100 * number
                dims = (None,) * len(shape)
                file.create_dataset(
                    name, data=values, chunks=chunks, maxshape=dims, compression=compression
                )
    virtual = [gridref.interchange.to_virtualizarr(gridref.scan(path)) for path in paths]
    cut = {"line": (7,), "plane": (5, 4), "one_row": (1, 7), "columns": (4, 8)}
    stored = {"line": (1024,), "plane": (8, 4), "one_row": (3, 10), "columns": (4, 8)}
    for name, chunks in (stored if compression else cut).items():
        assert virtual[0][name].data.metadata.chunks == chunks
    assert not isinstance(virtual[0], xr.DataTree)
    read = through_icechunk(virtual[0], tmp_path)
    with h5py.File(paths[0]) as file:
        for name in cut:
            np.testing.assert_array_equal(read[name], file[name])
    if compression is None:
        names = ["line", "plane"]
        joined = xr.concat([v[names] for v in virtual], "new")  # type: ignore[list-item]
        read = through_icechunk(joined, tmp_path)
        for number, path in enumerate(paths):
            with h5py.File(path) as file:
                for name in names:
                    np.testing.assert_array_equal(read[name][number], file[name])


def test_a_group_becomes_a_virtual_dataset() -> None:
    virtual = gridref.virtualizarr.to_virtualizarr(gridref.scan(MONTH))
    assert isinstance(virtual, xr.Dataset)
    assert isinstance(virtual["tas"].data, ManifestArray)
    assert isinstance(virtual["time"].data, np.ndarray)
    xr.testing.assert_equal(through_icechunk(virtual), xr.open_dataset(MONTH, engine="netcdf4"))


def test_coordinates_that_only_the_group_lists_stay_coordinates(tmp_path: Path) -> None:
    written = xr.Dataset({"v": ("x", [1.0, 2.0])}, {"area": ("y", [3.0, 4.0])})
    written.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    group = gridref.scan(tmp_path / "a.nc")
    assert group.attrs["coordinates"] == "area"
    virtual = gridref.virtualizarr.to_virtualizarr(group)
    assert set(virtual.coords) == {"area"}
    xr.testing.assert_equal(through_icechunk(virtual, tmp_path), written)


def test_uneven_chunks_are_refused_by_name_and_small_arrays_written_decoded() -> None:
    files = [SAMPLES / f"daily_2023-{month:02}.nc" for month in (1, 2, 3)]
    cube = gridref.concat([gridref.scan(file) for file in files], "time")
    with pytest.raises(NotRepresentableError, match=r"(?s)VirtualiZarr.*- pr: .*- tas: "):
        gridref.virtualizarr.to_virtualizarr(cube, inline_limit=2**10)
    written = gridref.virtualizarr.to_virtualizarr(cube, inline_limit=2**30)
    expected = xr.open_mfdataset(files, engine="netcdf4", data_vars="minimal")
    xr.testing.assert_equal(through_icechunk(written), expected)


def test_small_files_in_an_archive_are_written_decoded(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(MONTH, "month.nc")
    group = gridref.scan(f"zip://month.nc::{tmp_path}/a.zip")
    with pytest.raises(NotRepresentableError, match=r"(?s)VirtualiZarr.*tas: .*inside an archive"):
        gridref.virtualizarr.to_virtualizarr(group, inline_limit=group["tas"].nbytes - 1)
    written = gridref.virtualizarr.to_virtualizarr(group)
    xr.testing.assert_equal(through_icechunk(written), xr.open_dataset(MONTH, engine="netcdf4"))


def test_trees_go_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "tree with a space.nc"
    tree = xr.DataTree.from_dict(
        {
            "/": xr.Dataset({"a": ("x", [1.5, 2.5])}, {"x": [10, 20]}),
            "/low/er": xr.Dataset({"b": (("y", "x"), np.arange(6).reshape(3, 2))}),
        }
    )
    tree.to_netcdf(path, engine="h5netcdf")
    virtual = gridref.virtualizarr.to_virtualizarr(gridref.scan(path))
    assert isinstance(virtual, xr.DataTree)
    back = gridref.virtualizarr.from_virtualizarr(virtual)
    expected = xr.open_datatree(path, engine="h5netcdf")
    xr.testing.assert_equal(
        xr.open_datatree(gridref.open_store(back), engine="zarr"),
        expected,
    )


@pytest.mark.parametrize("loadable", [[], None, ["pr", "time_bnds"]])
def test_virtual_datasets_become_groups(loadable: list[str] | None, tmp_path: Path) -> None:
    virtual = virtualizarr.open_virtual_dataset(
        f"file://{MONTH}", REGISTRY, HDFParser(), loadable_variables=loadable
    )
    group = gridref.virtualizarr.from_virtualizarr(virtual)
    write_catalog(group, tmp_path / "cube.gridref")
    read = xr.open_dataset(tmp_path / "cube.gridref", engine="gridref")
    xr.testing.assert_equal(read.compute(), xr.open_dataset(MONTH, engine="netcdf4"))


def test_loaded_variables_keep_the_sign_that_they_were_decoded_with() -> None:
    loaded = xr.Dataset({"v": ("x", np.array([1, 200, np.nan], "f4"))})
    loaded["v"].encoding = {"dtype": "i1", "_Unsigned": "true", "_FillValue": np.int8(-1)}
    group = gridref.virtualizarr.from_virtualizarr(loaded)
    np.testing.assert_array_equal(of_gridref(group)["v"], loaded["v"])


def test_large_loaded_variables_are_not_kept_unsaid() -> None:
    """Nor read, where they are lazy."""
    virtual = virtualizarr.open_virtual_dataset(
        f"file://{MONTH}", REGISTRY, HDFParser(), loadable_variables=["time", "tas"]
    )
    n_bytes = virtual["tas"].nbytes
    with pytest.raises(InvalidRequestError, match=f"variable tas is loaded.* {n_bytes} bytes"):
        gridref.interchange.from_virtualizarr(virtual, max_inline_bytes=n_bytes - 1)
    group = gridref.interchange.from_virtualizarr(virtual, max_inline_bytes=n_bytes)
    np.testing.assert_array_equal(of_gridref(group)["tas"], virtual["tas"])


def test_what_parsers_return_becomes_a_group() -> None:
    store = HDFParser()(f"file://{MONTH}", REGISTRY)
    group = gridref.virtualizarr.from_virtualizarr(store)
    expected = xr.open_dataset(MONTH, engine="netcdf4", mask_and_scale=False)
    read = of_gridref(group, mask_and_scale=False)
    xr.testing.assert_equal(read, expected)
    assert read["tas"].attrs == expected["tas"].attrs


def test_files_with_no_scanner_of_ours_come_through_a_parser(tmp_path: Path) -> None:
    path = tmp_path / "classic.nc"
    written = xr.Dataset({"a": (("t", "x"), np.arange(12, dtype="f8").reshape(3, 4))})
    written.to_netcdf(path, format="NETCDF3_CLASSIC", engine="netcdf4")
    store = virtualizarr.parsers.NetCDF3Parser()(f"file://{path}", REGISTRY)
    xr.testing.assert_equal(
        of_gridref(gridref.virtualizarr.from_virtualizarr(store)).compute(), written
    )


def test_chunks_that_references_hold_by_value_come_through_each(tmp_path: Path) -> None:
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [6],
        "data_type": "int16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0,
        "dimension_names": ["x"],
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    }
    values = np.arange(6, dtype="<i2")
    chunks = [base64.b64encode(values[k : k + 2].tobytes()).decode() for k in (0, 2, 4)]
    references = {
        "zarr.json": '{"zarr_format": 3, "node_type": "group", "attributes": {}}',
        "a/zarr.json": json.dumps(document),
        **{f"a/c/{k}": f"base64:{chunk}" for k, chunk in enumerate(chunks)},
    }
    path = tmp_path / "refs.json"
    path.write_text(json.dumps({"version": 1, "refs": references}))
    virtual = gridref.virtualizarr.to_virtualizarr(gridref.scan(path), loadable_variables=[])
    assert isinstance(virtual, xr.Dataset)
    np.testing.assert_array_equal(through_icechunk(virtual)["a"], values)


def test_something_else_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="virtual dataset or tree"):
        gridref.virtualizarr.from_virtualizarr("cube.gridref")  # type: ignore[arg-type]


def test_parser_takes_over_the_registrys_access_to_s3(bucket: Bucket) -> None:
    url = bucket.put("january.nc", MONTH.read_bytes())
    client = bucket.options["s3"]["client_kwargs"]
    store = S3Store(
        BUCKET,
        endpoint=client["endpoint_url"],
        region=client["region_name"],
        access_key_id="test",
        secret_access_key="test",
        client_options={"allow_http": True},
    )
    registry = ObjectStoreRegistry({f"s3://{BUCKET}": store})
    virtual = virtualizarr.open_virtual_dataset(
        url, registry, gridref.virtualizarr.Parser(), loadable_variables=["tas", "time"]
    )
    expected = xr.open_dataset(MONTH, engine="netcdf4")
    xr.testing.assert_equal(virtual["tas"].variable.compute(), expected["tas"].variable)


def test_arrays_written_by_value_are_read_with_the_options(bucket: Bucket, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset("masked", (8,), "i4", chunks=(4,), compression="gzip")
        made[:] = np.arange(8)
        made.id.write_direct_chunk((4,), np.arange(4, dtype="<i4").tobytes(), filter_mask=1)
    expected = [0, 1, 2, 3, 0, 1, 2, 3]
    url = bucket.put("masked.h5", (tmp_path / "a.h5").read_bytes())
    parser = gridref.virtualizarr.Parser(storage_options=bucket.options)
    registry = ObjectStoreRegistry({f"s3://{BUCKET}": LocalStore()})
    virtual = virtualizarr.open_virtual_dataset(url, registry, parser, loadable_variables=[])
    np.testing.assert_array_equal(through_icechunk(virtual)["masked"], expected)
    group = gridref.scan(url, storage_options=bucket.options)
    virtual = gridref.virtualizarr.to_virtualizarr(
        group, loadable_variables=[], storage_options=bucket.options
    )
    np.testing.assert_array_equal(through_icechunk(virtual)["masked"], expected)
