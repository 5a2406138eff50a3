"""NetCDF3 files: everything that netCDF4 reads in them, or a refusal."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import tifffile
import xarray as xr
import zarr
from numpy.typing import NDArray

import gridref
from gridref.errors import (
    GridrefError,
    SourceChangedError,
    SourceFormatError,
    UnsupportedFeatureError,
)
from gridref.faces.exports.kerchunk import to_kerchunk
from gridref.model.array import VirtualGroup
from gridref.model.manifest import ChunkManifest, RunManifest
from tests.http_server import Site, serving
from tests.shared_data import shared_files
from tests.work import counted_work

VERSIONS: dict[str, Any] = {
    "CDF-1": "NETCDF3_CLASSIC",
    "CDF-2": "NETCDF3_64BIT_OFFSET",
    "CDF-5": "NETCDF3_64BIT_DATA",
}
CLASSIC_TYPES = ["i1", "S1", "i2", "i4", "f4", "f8"]
TYPES = dict.fromkeys(VERSIONS, CLASSIC_TYPES)
TYPES["CDF-5"] = [*CLASSIC_TYPES, "u1", "u2", "u4", "i8", "u8"]


def numbers(dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    random = np.random.default_rng(5)
    raw = random.integers(0, 256, (int(np.prod(shape)), np.dtype(dtype).itemsize), np.uint8)
    values: NDArray[Any] = raw.view(dtype).reshape(shape)
    return np.where(np.isnan(values), 1, values) if values.dtype.kind == "f" else values


def everything(path: Path, version: str, n_records: int = 5) -> Path:
    """Fixed and record variables of every type, scalars, and attributes of every type."""
    with netCDF4.Dataset(path, "w", format=VERSIONS[version]) as file:
        file.set_auto_maskandscale(False)
        file.createDimension("x", 3)
        file.createDimension("time", None)
        file.createDimension("text", 7)
        file.title = "h\u00e9llo"
        file.empty = ""
        for dtype in TYPES[version]:
            if dtype != "S1":
                file.setncattr(f"one_{dtype}", np.array(7, dtype)[()])
                file.setncattr(f"many_{dtype}", np.array([1, 2, 3], dtype))
            for name, dims in {
                "scalar": (),
                "fixed": ("x", "text"),
                "record": ("time", "x"),
            }.items():
                variable = file.createVariable(f"{name}_{dtype}", dtype, dims)
                variable.set_auto_chartostring(False)
                variable.units = "m"
                shape = tuple(
                    n_records if dim == "time" else file.dimensions[dim].size for dim in dims
                )
                variable[...] = numbers(dtype, shape)
    return path


def assert_as_in_netcdf4(path: Path, group: VirtualGroup, read: Any) -> None:
    """Compare names, dimensions, attributes and bits of values."""
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        assert list(group.arrays) == list(file.variables)
        assert_same_attrs(group.attrs, file)
        for name, variable in file.variables.items():
            array = group.arrays[name]
            assert array.dims == variable.dimensions
            assert_same_attrs(array.attrs, variable)
            expected = np.asarray(variable[...])
            native = expected.astype(expected.dtype.newbyteorder("="))
            values = np.asarray(read(name))
            assert values.dtype == native.dtype
            assert values.shape == native.shape
            assert values.tobytes() == native.tobytes(), name


def assert_same_attrs(attrs: Any, owner: Any) -> None:
    assert list(attrs) == owner.ncattrs()
    for name, value in attrs.items():
        expected = owner.getncattr(name)
        if isinstance(expected, str) and "\N{REPLACEMENT CHARACTER}" in expected:
            continue  # not UTF-8: gridref keeps the bytes as Latin-1
        assert np.asarray(value).dtype == np.asarray(expected).dtype, name
        np.testing.assert_array_equal(value, expected)


# ---- values, against netCDF4 ------------------------------------------------------------


@pytest.mark.long(but=8)
@pytest.mark.parametrize("path", shared_files("formats/netcdf3/*", "not_hdf5/*grids.nc"))
def test_real_files(path: Path) -> None:
    group = gridref.scan(path)
    assert_as_in_netcdf4(path, group, lambda name: group.arrays[name][...])


@pytest.mark.parametrize(
    ("n_records", "view"),
    [(n, view) for n in (1, 5, 40) for view in ("native", "portable")] + [(0, "portable")],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_type_in_both_views(tmp_path: Path, version: str, n_records: int, view: Any) -> None:
    path = everything(tmp_path / "a.nc", version, n_records)
    group = gridref.scan(path)
    assert group.unlimited_dims == {"time"}
    root = zarr.open_group(gridref.open_store(group, view), mode="r")
    assert_as_in_netcdf4(path, group, lambda name: root[name][...])
    for _, array in root.arrays():
        assert {codec.to_dict()["name"] for codec in array.metadata.codecs} == {"bytes"}


def test_fill_values_are_those_of_netcdf(tmp_path: Path) -> None:
    path = everything(tmp_path / "a.nc", "CDF-5")
    with netCDF4.Dataset(path, "a") as file:
        file.createVariable("own", "i2", ("x",), fill_value=-5)
    group = gridref.scan(path)
    for dtype in TYPES["CDF-5"]:
        expected = np.array(netCDF4.default_fillvals[dtype]).astype(dtype)
        assert group.arrays[f"fixed_{dtype}"].fill_value == expected, dtype
        assert "_FillValue" not in group.arrays[f"fixed_{dtype}"].attrs
    assert group.arrays["own"].fill_value == group.arrays["own"].attrs["_FillValue"] == -5


@pytest.mark.parametrize("dtype", ["i1", "S1", "i2", "i4"])
@pytest.mark.parametrize("n_variables", [1, 2])
def test_only_a_single_record_variable_is_not_padded(
    tmp_path: Path, dtype: str, n_variables: int
) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("time", None)
        file.createDimension("x", 3)
        for number in range(n_variables):
            variable = file.createVariable(f"v{number}", dtype, ("time", "x"))
            variable[...] = numbers(dtype, (30, 3))
    group = gridref.scan(path)
    assert_as_in_netcdf4(path, group, lambda name: group.arrays[name][...])
    is_one_run = n_variables == 1
    assert all(
        isinstance(a.manifests[0], ChunkManifest) == is_one_run for a in group.arrays.values()
    )


def test_large_data_is_split(tmp_path: Path) -> None:
    path = everything(tmp_path / "a.nc", "CDF-2", 20)
    group = gridref.scan(path, max_chunk_bytes=8)
    assert group.arrays["record_f4"].encodings[0].chunk_shape == (1, 1)
    assert group.arrays["fixed_f8"].encodings[0].chunk_shape == (1, 1)
    assert_as_in_netcdf4(path, group, lambda name: group.arrays[name][...])


def test_characters_are_shown_as_xarray_shows_them(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("time", None)
        file.createDimension("text", 6)
        names = file.createVariable("name", "S1", ("time", "text"))
        names[...] = netCDF4.stringtochar(np.array([b"one", b"two", b"three"], "S6"))
        names.setncattr("_Encoding", "utf-8")
        file.createVariable("code", "S1", ("time",))[...] = [b"a", b"b", b"c"]
        file.createVariable("t", "f8", ("time",))[...] = [1, 2, 3]
    gridref.build([path], tmp_path / "a.gridref")
    expected = xr.open_dataset(path, engine="netcdf4").load()
    xr.testing.assert_identical(xr.open_dataset(tmp_path / "a.gridref").load(), expected)


# ---- records are runs -------------------------------------------------------------------


def records(path: Path, n_records: int, n_variables: int = 4, first: float = 0) -> Path:
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as file:
        file.createDimension("time", None)
        file.createDimension("x", 5)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "hours since 2020-01-01"
        for number in range(n_variables):
            file.createVariable(f"v{number}", "f4", ("time", "x"))
        time[:] = first + np.arange(n_records)
        for number in range(n_variables):
            values = np.arange(n_records * 5).reshape(-1, 5) + number
            file[f"v{number}"][...] = values
    return path


def test_a_record_costs_no_row_and_no_work(tmp_path: Path) -> None:
    few, many = records(tmp_path / "few.nc", 20), records(tmp_path / "many.nc", 100_000)
    for path in (few, many):
        gridref.scan(path)
    work = []
    for path in (few, many):
        with counted_work() as counted:
            group = gridref.scan(path)
        work.append(counted.n_lines)
        assert {type(a.manifests[0]) for a in group.arrays.values()} == {RunManifest}
    assert work[0] == work[1]
    last = group.arrays["v3"][99_999]
    np.testing.assert_array_equal(last, np.arange(5) + 99_999 * 5 + 3)


def test_one_variable_of_many_is_read_in_runs(tmp_path: Path) -> None:
    path = records(tmp_path / "a.nc", 2000)
    with serving(Site({"/a.nc": path.read_bytes()})) as site:
        group = gridref.scan(f"{site.url}/a.nc")
        assert len(site.requests) == group.report.n_requests == 1
        values = group.arrays["v2"][...]
        assert len(site.requests) == 2
    np.testing.assert_array_equal(values, np.arange(10_000).reshape(-1, 5) + 2)


def test_files_on_a_server_take_one_request_each(tmp_path: Path) -> None:
    files = {f"/{day}.nc": records(tmp_path / f"{day}.nc", 24, first=24 * day) for day in range(5)}
    with serving(Site({name: path.read_bytes() for name, path in files.items()})) as site:
        catalog = tmp_path / "a.gridref"
        gridref.build([f"{site.url}{name}" for name in files], catalog, "time")
        assert len(site.requests) == len(files)
        time = gridref.open_catalog(catalog)["time"][...]
    np.testing.assert_array_equal(time, np.arange(120))


def test_a_catalog_of_many_records_is_small(tmp_path: Path) -> None:
    path = records(tmp_path / "a.nc", 50_000)
    gridref.build([path], tmp_path / "a.gridref")
    n_bytes = sum(file.stat().st_size for file in (tmp_path / "a.gridref").rglob("*"))
    assert n_bytes < 30_000
    assert gridref.open_catalog(tmp_path / "a.gridref").verify().differences == ()


# ---- with other files, and growing ------------------------------------------------------


def test_a_cube_of_netcdf3_and_netcdf4_files_with_other_packing(tmp_path: Path) -> None:
    formats = ["NETCDF3_CLASSIC", "NETCDF4", "NETCDF3_64BIT_DATA", "NETCDF4"]
    paths = []
    for day, version in enumerate(formats):
        t2m = ("time", "x"), 280 + day + np.arange(12.0).reshape(4, 3)
        dataset = xr.Dataset({"t2m": t2m}, {"time": day * 4 + np.arange(4.0), "x": [1.0, 2, 3]})
        dataset.time.attrs["units"] = "hours since 2020-01-01"
        packing = {"dtype": "i2", "scale_factor": 0.25 * (1 + day % 2), "add_offset": 280.0 + day}
        paths.append(tmp_path / f"{day}.nc")
        encoding: Any = {"t2m": {**packing, "_FillValue": -1}}
        dataset.to_netcdf(
            paths[-1], engine="netcdf4", format=version, unlimited_dims=["time"], encoding=encoding
        )
    catalog = tmp_path / "cube.gridref"
    gridref.build(paths[:2], catalog, "time")
    grown = gridref.open_catalog(catalog).append(paths[2:])
    assert grown.verify(all=True).differences == ()
    expected = xr.concat([xr.open_dataset(path) for path in paths], "time", data_vars="minimal")
    xr.testing.assert_equal(xr.open_dataset(catalog).load(), expected.load())
    planned = gridref.plan(paths, "time")
    assert planned.problems == ()


def test_files_on_a_server_are_verified(tmp_path: Path) -> None:
    path = records(tmp_path / "a.nc", 30)
    with serving(Site({"/a.nc": path.read_bytes()})) as site:
        result = gridref.verify(gridref.scan(f"{site.url}/a.nc"), all=True)
    assert (result.ok, result.n_chunks > 30, result.not_compared) == (True, True, ())


def test_scans_in_processes_kept_scans_and_files_that_grew(tmp_path: Path) -> None:
    files = [records(tmp_path / f"{part}.nc", 30, first=30 * part) for part in range(3)]
    catalog = tmp_path / "a.gridref"
    for _ in range(2):
        run = gridref.RunOptions(executor=2, work=tmp_path / "kept")
        gridref.build(files, catalog, "time", run=run, overwrite=True)
        np.testing.assert_array_equal(gridref.open_catalog(catalog)["time"][...], np.arange(90))
    records(files[2], 50, first=60)
    with pytest.raises(SourceChangedError):
        gridref.open_catalog(catalog)["v0"][...]
    grown = gridref.open_catalog(catalog).refresh()
    np.testing.assert_array_equal(grown["time"][...], np.arange(110))
    np.testing.assert_array_equal(grown["v3"][109], np.arange(245, 250) + 3)


def test_a_cube_with_a_tiff_file(tmp_path: Path) -> None:
    image = np.arange(48, dtype="u2").reshape(6, 8)
    tifffile.imwrite(tmp_path / "0.tif", image)
    for number, version in ((1, "NETCDF3_64BIT_DATA"), (2, "NETCDF4")):
        with netCDF4.Dataset(tmp_path / f"{number}.nc", "w", format=version) as file:
            file.createDimension("y", 6)
            file.createDimension("x", 8)
            file.createVariable("image", "u2", ("y", "x"))[...] = image + number
    files = [tmp_path / "0.tif", tmp_path / "1.nc", tmp_path / "2.nc"]
    gridref.build(files, tmp_path / "a.gridref", layout=gridref.Stack("n"), order="given")
    catalog = gridref.open_catalog(tmp_path / "a.gridref")
    np.testing.assert_array_equal(catalog["image"][...], [image, image + 1, image + 2])
    assert catalog.verify(all=True).differences == ()


@pytest.mark.parametrize("target", ["kerchunk", "icechunk"])
def test_exports(tmp_path: Path, target: str) -> None:
    path = everything(tmp_path / "a.nc", "CDF-2", 30)
    group = gridref.scan(path)
    expected = xr.open_dataset(path, engine="netcdf4").load()
    if target == "kerchunk":
        to_kerchunk(group, tmp_path / "a.json")
        opened = xr.open_dataset(str(tmp_path / "a.json"), engine="kerchunk")
    else:
        import icechunk

        gridref.interchange.to_icechunk(group, tmp_path / "a.icechunk")
        storage = icechunk.local_filesystem_storage(str(tmp_path / "a.icechunk"))
        access = icechunk.credentials.Credentials.LocalFileSystemAccess()
        allowed = icechunk.containers_credentials({"file://": access})
        repository = icechunk.Repository.open(storage, authorize_virtual_chunk_access=allowed)
        session = repository.readonly_session("main")
        opened = xr.open_zarr(session.store, consolidated=False)
    xr.testing.assert_equal(opened.load(), expected)


def test_identity_and_checksums_of_runs(tmp_path: Path) -> None:
    path = records(tmp_path / "a.nc", 100)
    catalog = tmp_path / "a.gridref"
    gridref.build([path], catalog, identity="content", checksums=True)
    raw = bytearray(path.read_bytes())
    raw[-3] ^= 1
    np.testing.assert_array_equal(gridref.open_catalog(catalog)["v0"][99], np.arange(5) + 495)
    path.write_bytes(raw)
    with pytest.raises(GridrefError, match=r"a\.nc"):
        gridref.open_catalog(catalog)["v3"][99]


# ---- damaged, cut off and hostile files -------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_files_that_do_not_state_the_number_of_records(tmp_path: Path, version: str) -> None:
    path = everything(tmp_path / "a.nc", version)
    expected = {name: a[...] for name, a in gridref.scan(path).arrays.items()}
    raw = path.read_bytes()
    count = 8 if version == "CDF-5" else 4
    for rest in (b"", b"\1", raw[-1:]):
        path.write_bytes(raw[:4] + b"\xff" * count + raw[4 + count :] + rest)
        found = gridref.scan(path)
        for name, values in expected.items():
            np.testing.assert_array_equal(found.arrays[name][...], values)


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("version", VERSIONS)
def test_cut_off_at_every_byte(tmp_path: Path, version: str, every: int) -> None:
    path = everything(tmp_path / "a.nc", version, 2)
    expected = {name: a[...] for name, a in gridref.scan(path).arrays.items()}
    raw = path.read_bytes()
    n_read = 0
    for n_bytes in range(4, len(raw), every):
        path.write_bytes(raw[:n_bytes])
        try:
            group = gridref.scan(path)
        except SourceFormatError:
            continue
        n_read += 1
        for name, values in expected.items():
            np.testing.assert_array_equal(group.arrays[name][...], values)
    assert n_read < 4  # only padding is cut off


def test_what_is_cut_off_is_named_and_can_be_left_out(tmp_path: Path) -> None:
    path = records(tmp_path / "a.nc", 30)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(SourceFormatError, match="reaches beyond the end of the file at") as caught:
        gridref.scan(path)
    assert caught.value.place.variable == "/v1"
    assert "2 other objects are refused too: /" in caught.value.reason
    report = gridref.scan(path, on_unsupported="skip").report
    skipped = [finding.path for finding in report if finding.fate == "skipped"]
    assert skipped == ["/v1", "/v2", "/v3"]


def classic_header(**changes: bytes) -> bytes:
    """A file of one dimension and one variable, a field of it changed."""
    fields = {
        "magic": b"CDF\1",
        "n_records": struct.pack(">I", 2),
        "dims": struct.pack(">II", 10, 2),
        "dim": struct.pack(">I4sI", 1, b"t", 0) + struct.pack(">I4sI", 1, b"x", 4),
        "attrs": bytes(8),
        "variables": struct.pack(">II", 11, 1),
        "name": struct.pack(">I4s", 1, b"v"),
        "rank": struct.pack(">I", 2),
        "dimids": struct.pack(">II", 0, 1),
        "own_attrs": bytes(8),
        "type": struct.pack(">I", 4),
        "size": struct.pack(">I", 16),
        "begin": struct.pack(">I", 96),
        "data": np.arange(8, dtype=">i4").tobytes(),
    }
    return b"".join((fields | changes).values())


def word(number: int) -> bytes:
    return struct.pack(">I", number)


def dims(*lengths: tuple[bytes, int]) -> bytes:
    return b"".join(word(1) + name + bytes(3) + word(length) for name, length in lengths)


HOSTILE = {
    "no beginning": ({"magic": b"CDF\5"}, "header"),
    "terabytes of records": ({"n_records": word(0x7FFFFFFF)}, "beyond the end"),
    "a huge dimension": ({"dim": dims((b"t", 0), (b"x", 2**32 - 1))}, "beyond the end"),
    "billions of dimensions": ({"dims": word(10) + word(2**32 - 1)}, "header"),
    "billions of attributes": ({"attrs": word(12) + word(2**32 - 1)}, "header"),
    "billions of variables": ({"variables": word(11) + word(2**32 - 1)}, "header"),
    "a long name": ({"name": word(2**32 - 1) + b"v\0\0\0"}, "cut off"),
    "a name that is not UTF-8": ({"name": word(1) + b"\xff\0\0\0"}, "not UTF-8"),
    "no name": ({"name": word(0)}, "empty name"),
    "a list of another kind": ({"dims": word(11) + word(2)}, "list of kind 11"),
    "billions of axes": ({"rank": word(2**32 - 1)}, "4294967295 dimensions of 'v'"),
    "an unknown dimension": ({"dimids": word(0) + word(2)}, "none of 2"),
    "the record dimension last": ({"dimids": word(1) + word(0)}, "not its first"),
    "an unknown type": ({"type": word(7)}, "unknown type 7"),
    "data in the header": ({"begin": word(40)}, "where other data are"),
    "data beyond the end": ({"begin": word(2**32 - 4)}, "beyond the end"),
    "dimensions of one name": ({"dim": dims((b"t", 0), (b"t", 4))}, "two dimensions of one name"),
    "two record dimensions": ({"dim": dims((b"t", 0), (b"x", 0))}, "several record dimensions"),
}  # fmt: skip


def test_the_file_that_is_changed_is_sound(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    path.write_bytes(classic_header())
    group = gridref.scan(path)
    assert_as_in_netcdf4(path, group, lambda name: group.arrays[name][...])


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_headers(tmp_path: Path, case: str) -> None:
    changes, message = HOSTILE[case]
    path = tmp_path / "a.nc"
    path.write_bytes(classic_header(**changes))
    with pytest.raises(SourceFormatError, match=message):
        gridref.scan(path)


def test_a_variable_whose_name_is_a_path_is_refused_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    path.write_bytes(classic_header(name=word(1) + b"/\0\0\0"))
    with pytest.raises(UnsupportedFeatureError, match="a slash, which separates groups"):
        gridref.scan(path)
    assert not gridref.scan(path, on_unsupported="skip").arrays


def test_names_end_at_a_zero_as_in_netcdf4(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    path.write_bytes(classic_header(name=word(4) + b"v\0\0z"))
    group = gridref.scan(path)
    assert_as_in_netcdf4(path, group, lambda name: group.arrays[name][...])


def test_a_header_longer_than_what_is_read_first(tmp_path: Path) -> None:
    path = everything(tmp_path / "a.nc", "CDF-2")
    with netCDF4.Dataset(path, "a") as file:
        file.history = "x" * 100_000
        file.more = np.arange(50_000)
    group = gridref.scan(path)
    assert_as_in_netcdf4(path, group, lambda name: group.arrays[name][...])


def test_compressed_files_are_refused_in_words(tmp_path: Path) -> None:
    path = everything(tmp_path / "a.nc", "CDF-1")
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(SourceFormatError, match="gzip-compressed"):
        gridref.scan(path)


@pytest.mark.parametrize("name", ["a.nc", "a.cdf", "a.nc3"])
def test_found_in_a_directory_by_content(tmp_path: Path, name: str) -> None:
    everything(tmp_path / name, "CDF-2")
    gridref.build([tmp_path], tmp_path / "cube.gridref")
    assert len(gridref.open_catalog(tmp_path / "cube.gridref").all_arrays()) == 18


def test_a_header_has_a_limit(tmp_path: Path, limited: Callable[[str], None]) -> None:
    path = everything(tmp_path / "a.nc", "CDF-2")
    with netCDF4.Dataset(path, "a") as file:
        file.history = "x" * 100_000
    limited("header_bytes=90000")
    with pytest.raises(SourceFormatError, match="more than the limit header_bytes of 90000"):
        gridref.scan(path)


def test_days_of_an_instrument_are_one_cube(shared_data: Path, tmp_path: Path) -> None:
    files = sorted((shared_data / "formats" / "netcdf3").glob("*sgpmetE13*.cdf"))
    assert len(files) == 5
    gridref.build(files, tmp_path / "a.gridref")
    days = [xr.open_dataset(path, engine="netcdf4") for path in files]
    expected = xr.concat(
        days, "time", data_vars="minimal", compat="override", coords="minimal"
    ).load()
    found = xr.open_dataset(tmp_path / "a.gridref").load()
    xr.testing.assert_equal(found["time"], expected["time"])
    xr.testing.assert_equal(found["temp_mean"], expected["temp_mean"])
    assert gridref.open_catalog(tmp_path / "a.gridref").verify().differences == ()
