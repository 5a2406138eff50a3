"""Catalogs through the xarray engine: datasets are those of xarray's own engines."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path
from typing import Any, Literal

import dask
import h5py
import hdf5plugin
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr

import gridref
from gridref.api.catalog import write_catalog

FILES = Path("/dev/fd")
STRINGS = np.array(["alpha", "", "ä 日本", "x" * 300], object)


def netcdf_of_strings(path: Path) -> Path:
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 4)
        file.createDimension("y", 2)
        file.createVariable("line", str, ("x",))[:] = STRINGS
        file.createVariable("x", str, ("x",))[:] = np.array(["d", "c", "b", "a"], object)
        file.createVariable("square", str, ("x", "y"))[:] = np.stack([STRINGS, STRINGS], axis=1)
        file.createVariable("scalar", str, ())[...] = "one"
        file.createVariable("number", "f4", ("x",))[:] = np.arange(4)
    return path


@pytest.mark.parametrize("engine", ["netcdf4", "h5netcdf"])
def test_strings_of_variable_length(tmp_path: Path, engine: Any) -> None:
    source = netcdf_of_strings(tmp_path / "a.nc")
    catalog = tmp_path / "a.gridref"
    write_catalog(gridref.scan(source), catalog)
    with xr.open_dataset(source, engine=engine) as expected, xr.open_dataset(catalog) as got:
        xr.testing.assert_identical(got.load(), expected.load())
        for name in expected.variables:
            assert got[name].dtype == expected[name].dtype
            assert got[name].dtype.metadata == expected[name].dtype.metadata
        assert type(got.indexes["x"]) is type(expected.indexes["x"])
        assert got.indexes["x"].dtype == expected.indexes["x"].dtype
        assert got.sel(x="c")["line"].item() == ""
        assert got["line"][2].item() == "ä 日本"


def netcdf_of_layouts(path: Path, n_times: int = 100, first: int = 0) -> Path:
    """Variables of every layout and filter that netCDF4 writes here."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("y", 30)
        file.createVariable("time", "i4", ("time",))[:] = np.arange(first, first + n_times)
        options: dict[str, dict[str, Any]] = {
            "plain": {"chunksizes": (20, 30)},
            "chunked": {"chunksizes": (7, 30)},
            "deflated": {"zlib": True, "complevel": 5, "shuffle": False, "chunksizes": (10, 20)},
            "checked": {"zlib": True, "shuffle": True, "fletcher32": True, "chunksizes": (33, 7)},
        }
        for name, option in options.items():
            variable = file.createVariable(name, "f4", ("time", "y"), **option)
            variable[:] = np.arange(first, first + n_times)[:, np.newaxis] * np.ones(30)
        file.createGroup("inner").createVariable("scalar", "f8", ())[...] = 5
    return path


KEPT = ("zlib", "complevel", "shuffle", "fletcher32", "contiguous", "chunksizes")


def test_encoding_is_that_of_netcdf4(tmp_path: Path) -> None:
    source = netcdf_of_layouts(tmp_path / "a.nc")
    with xr.open_dataset(source, engine="netcdf4") as expected:
        got = xr.open_dataset(gridref.scan(source), engine="gridref")
        assert got.encoding["unlimited_dims"] == expected.encoding["unlimited_dims"] == {"time"}
        for name in expected.variables:
            theirs = {**expected[name].encoding}
            assert theirs.pop("source")
            assert in_words_of_netcdf(got[name]) == theirs


def in_words_of_netcdf(variable: xr.DataArray) -> dict[str, Any]:
    """The encoding without the word for compression that only Zarr has."""
    return {key: value for key, value in variable.encoding.items() if key != "compressors"}


COMPRESSIONS: tuple[dict[str, Any], ...] = (
    {"compression": "szip", "szip_coding": "ec", "szip_pixels_per_block": 16},
    {"compression": "bzip2", "complevel": 3},
    {"compression": "zstd", "complevel": 2},
    *({"compression": f"blosc_{name}", "complevel": 7} for name in ("lz", "lz4", "lz4hc", "zlib")),
    {"compression": "blosc_zstd", "complevel": 3, "blosc_shuffle": 2},
)


@pytest.mark.parametrize("options", COMPRESSIONS, ids=lambda options: options["compression"])
def test_encoding_has_the_settings_of_each_compression(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        kind = options["compression"].partition("_")[0]
        if not getattr(file, f"has_{kind}_filter")():
            pytest.skip(f"this netCDF library cannot write {kind}")
        file.createDimension("x", 4000)
        variable = file.createVariable("v", "i4", ("x",), chunksizes=(1000,), **options)
        variable[:] = np.arange(4000) // 7
    got = xr.open_dataset(gridref.scan(tmp_path / "a.nc"), engine="gridref")
    with xr.open_dataset(tmp_path / "a.nc", engine="netcdf4") as expected:
        theirs = {**expected["v"].encoding}
        del theirs["source"]
        assert in_words_of_netcdf(got["v"]) == theirs
        xr.testing.assert_identical(got.load(), expected)


def netcdf_of_an_enumeration(path: Path, members: dict[str, int], values: Any) -> Path:
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createEnumType("u1", "other", {"no": 0, "yes": 1})
        clouds = file.createEnumType("u1", "cloud_type", members)
        file.createVariable("clouds", clouds, ("time",), fill_value=255)[:] = values
    return path


CLOUDS = {"clear": 0, "cloudy": 1, "missing": 255}


def test_enumerations_survive_a_cube(tmp_path: Path) -> None:
    files = [netcdf_of_an_enumeration(tmp_path / f"{n}.nc", CLOUDS, [n, 255, 0]) for n in (0, 1)]
    catalog = tmp_path / "c.gridref"
    gridref.build(files, catalog, concat_dim="time")
    cube = xr.open_dataset(catalog)
    cube.to_netcdf(tmp_path / "copy.nc")
    with netCDF4.Dataset(tmp_path / "copy.nc") as copy:
        assert copy["clouds"].datatype.name == "cloud_type"
        assert copy["clouds"].datatype.enum_dict == CLOUDS
        copy.set_auto_mask(False)
        assert copy["clouds"][:].tolist() == [0, 255, 0, 1, 255, 0]


@pytest.mark.parametrize("flags", [{}, {"flag_meanings": "clear cloudy missing"}], ids=["", "own"])
def test_enumerations_are_as_xarray_opens_them(tmp_path: Path, flags: dict[str, Any]) -> None:
    file = netcdf_of_an_enumeration(tmp_path / "a.nc", CLOUDS, [0, 255, 1])
    with netCDF4.Dataset(file, "a") as handle:
        handle["clouds"].setncatts(flags)
    gridref.build([file], tmp_path / "c.gridref", concat_dim="time")
    with xr.open_dataset(file, engine="netcdf4") as expected:
        for source in (gridref.scan(file), tmp_path / "c.gridref"):
            cube = xr.open_dataset(source, engine="gridref")
            xr.testing.assert_identical(cube, expected)
            assert cube.clouds.encoding["dtype"].metadata["enum"] == CLOUDS
    # Zarr has no enumerations: there the names are CF flags.
    zarr = xr.open_zarr(gridref.open_store(tmp_path / "c.gridref"))
    assert zarr.clouds.attrs["flag_meanings"] == "clear cloudy missing"
    assert ("flag_values" in zarr.clouds.attrs) == (not flags)


def test_enumerations_are_united_where_one_has_more_names(tmp_path: Path) -> None:
    files = [
        netcdf_of_an_enumeration(tmp_path / "0.nc", CLOUDS, [0, 1]),
        netcdf_of_an_enumeration(tmp_path / "1.nc", {**CLOUDS, "rain": 2}, [2, 0]),
    ]
    groups = [gridref.scan(file) for file in files]
    assert groups[1]["clouds"].enumeration.members[-2:] == (("missing", 255), ("rain", 2))
    both = gridref.concat(groups, "time", conflicts="skip")
    assert both["clouds"].enumeration.members == groups[1]["clouds"].enumeration.members
    assert both["clouds"].read().tolist() == [0, 1, 2, 0]


def test_encoding_survives_a_cube(tmp_path: Path) -> None:
    files = [netcdf_of_layouts(tmp_path / f"{n}.nc", 40, 40 * n) for n in range(2)]
    catalog = tmp_path / "c.gridref"
    gridref.build(files, catalog, concat_dim="time")
    cube = xr.open_dataset(catalog)
    assert cube.encoding["source"] == str(catalog)
    assert cube["checked"].encoding["source"] == str(catalog)
    assert cube.encoding["unlimited_dims"] == {"time"}
    cube.to_netcdf(tmp_path / "copy.nc")
    with (
        xr.open_dataset(files[0], engine="netcdf4") as one,
        xr.open_dataset(tmp_path / "copy.nc", engine="netcdf4") as copy,
    ):
        xr.testing.assert_equal(copy, cube)
        assert copy.encoding["unlimited_dims"] == {"time"}
        for name in ("chunked", "deflated", "checked"):
            for key in KEPT:
                assert copy[name].encoding[key] == one[name].encoding[key], (name, key)


@pytest.mark.parametrize("chunks", [None, {}])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr_copies_are_compressed_and_equal(
    tmp_path: Path, chunks: Any, zarr_format: Literal[2, 3]
) -> None:
    source = netcdf_of_layouts(tmp_path / "a.nc")
    opened = xr.open_dataset(gridref.scan(source), engine="gridref", chunks=chunks)
    target = tmp_path / "copy.zarr"
    opened.to_zarr(target, zarr_format=zarr_format)
    with xr.open_dataset(source, engine="netcdf4") as expected:
        xr.testing.assert_equal(xr.open_zarr(target), expected)


SHUFFLED = {"cname": "zlib", "clevel": 7, "shuffle": "shuffle", "blocksize": 0}
KEPT_BY_ZARR: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({"compression": "zlib", "complevel": 7}, {"name": "blosc", "configuration": SHUFFLED}),
    (
        {"compression": "zlib", "complevel": 2, "shuffle": False},
        {"name": "gzip", "configuration": {"level": 2}},
    ),
    (
        {"compression": "zstd", "complevel": 15, "shuffle": False},
        {"name": "zstd", "configuration": {"level": 15}},
    ),
    (
        {"compression": "blosc_lz", "complevel": 3, "blosc_shuffle": 0, "shuffle": False},
        {
            "name": "blosc",
            "configuration": {
                "cname": "blosclz",
                "clevel": 3,
                "shuffle": "noshuffle",
                "blocksize": 0,
            },
        },
    ),
    (
        {"compression": "blosc_zstd", "complevel": 3, "blosc_shuffle": 2, "shuffle": False},
        {
            "name": "blosc",
            "configuration": {
                "cname": "zstd",
                "clevel": 3,
                "shuffle": "bitshuffle",
                "blocksize": 0,
            },
        },
    ),
)
SHUFFLE_NUMBERS = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}


@pytest.mark.parametrize(
    ("options", "expected"), KEPT_BY_ZARR, ids=[str(n) for n in range(len(KEPT_BY_ZARR))]
)
def test_copies_keep_the_compression_whatever_they_are(
    tmp_path: Path, options: dict[str, Any], expected: dict[str, Any]
) -> None:
    """Zarr of both formats, and netCDF by both engines, from one dataset of packed numbers."""
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        kind = options["compression"].partition("_")[0]
        if not getattr(file, f"has_{kind}_filter", lambda: True)():
            pytest.skip(f"this netCDF library cannot write {kind}")
        file.createDimension("x", 4000)
        variable = file.createVariable(
            "v", "i2", ("x",), chunksizes=(1000,), fill_value=-1, **options
        )
        variable.scale_factor = 0.5
        variable[:] = np.arange(4000) // 7 * 0.5
    opened = xr.open_dataset(gridref.scan(tmp_path / "a.nc"), engine="gridref")
    formats: tuple[Literal[2, 3], ...] = (2, 3)
    for zarr_format in formats:
        opened.to_zarr(tmp_path / f"{zarr_format}.zarr", zarr_format=zarr_format)
        copy = xr.open_zarr(tmp_path / f"{zarr_format}.zarr")
        xr.testing.assert_identical(copy.load(), opened.load())
    opened.to_zarr(tmp_path / "own.zarr", encoding={"v": {"compressors": None}}, zarr_format=3)
    settings = expected["configuration"]
    (codec,) = zarr.open_array(tmp_path / "3.zarr" / "v").compressors
    theirs = codec.to_dict()
    assert theirs["name"] == expected["name"]
    assert {key: theirs["configuration"][key] for key in settings} == settings
    (codec,) = zarr.open_array(tmp_path / "2.zarr" / "v").compressors
    if "shuffle" in settings:
        settings = {**settings, "shuffle": SHUFFLE_NUMBERS[settings["shuffle"]]}
    assert {key: codec.get_config()[key] for key in settings} == settings
    assert zarr.open_array(tmp_path / "own.zarr" / "v").compressors == ()
    # xarray 2026 writes no Blosc (nor does it from its own engines), and h5netcdf deflate only.
    engines = {"zlib": ("netcdf4", "h5netcdf"), "zstd": ("netcdf4",)}
    for engine in engines.get(kind, ()):
        opened.to_netcdf(tmp_path / "b.nc", engine=engine)
        with (
            xr.open_dataset(tmp_path / "a.nc", engine="netcdf4") as one,
            xr.open_dataset(tmp_path / "b.nc", engine="netcdf4") as other,
        ):
            for key in ("zlib", "zstd", "complevel", "shuffle", "chunksizes"):
                assert other["v"].encoding[key] == one["v"].encoding[key], (engine, key)


def test_a_copy_of_shuffled_zstd_shuffles(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        filters = dict(hdf5plugin.Zstd(clevel=15))
        file.create_dataset("v", data=np.arange(9000), chunks=(900,), shuffle=True, **filters)
    opened = xr.open_dataset(gridref.scan(tmp_path / "a.h5"), engine="gridref")
    opened.to_zarr(tmp_path / "a.zarr", zarr_format=3)
    (codec,) = zarr.open_array(tmp_path / "a.zarr" / "v").compressors
    settings = codec.to_dict()["configuration"]
    assert (settings["cname"], settings["clevel"], settings["shuffle"]) == ("zstd", 9, "shuffle")
    assert settings["typesize"] == 8


def test_chunks_of_dask_follow_the_stored_ones(tmp_path: Path) -> None:
    source = tmp_path / "a.nc"
    shape = (2100, 500)
    with netCDF4.Dataset(source, "w") as file:
        file.createDimension("y", shape[0])
        file.createDimension("x", shape[1])
        file.createVariable("v", "f8", ("y", "x"), chunksizes=(70, 500), zlib=True)[:] = np.ones(
            shape
        )
    group = gridref.scan(source)
    with xr.open_dataset(source, engine="netcdf4", chunks={}) as expected:
        assert xr.open_dataset(group, engine="gridref", chunks={}).chunks == expected.chunks
    with dask.config.set({"array.chunk-size": "1MiB"}):
        lengths = xr.open_dataset(group, engine="gridref", chunks="auto")["v"].chunks[0]
    assert all(length % 70 == 0 for length in lengths)
    assert len(lengths) < 30


def test_values_are_loaded_beside_other_work(tmp_path: Path) -> None:
    source = netcdf_of_layouts(tmp_path / "a.nc")
    opened = xr.open_dataset(gridref.scan(source), engine="gridref")
    loaded = asyncio.run(opened.isel(y=[3, 1]).load_async())
    with xr.open_dataset(source, engine="netcdf4") as expected:
        xr.testing.assert_identical(loaded, expected.isel(y=[3, 1]))


def test_groups(tmp_path: Path) -> None:
    source = netcdf_of_layouts(tmp_path / "a.nc")
    group = gridref.scan(source)
    for opener in (xr.open_dataset, xr.open_datatree):
        with pytest.raises(OSError, match="no group 'nowhere'; there are inner"):
            opener(group, engine="gridref", group="nowhere")
        with pytest.raises(gridref.errors.InvalidRequestError, match="must be a string or None"):
            opener(group, engine="gridref", group=("inner",))
    with xr.open_datatree(group, engine="gridref") as tree:
        assert tree["inner/scalar"].item() == 5
    with xr.open_datatree(group, engine="gridref", group="inner") as tree:
        assert tree["scalar"].item() == 5


def test_closing_closes_the_source_files(tmp_path: Path) -> None:
    source = netcdf_of_layouts(tmp_path / "a.nc")
    group = gridref.scan(source)
    gc.collect()  # of what the scan had open
    for opener in (xr.open_dataset, xr.open_datatree):
        opened = opener(group, engine="gridref")
        first = float(opened["checked"][3, 4])
        assert is_open(source)
        opened.close()
        assert not is_open(source)
        assert float(opened["checked"][4, 4]) == first + 1


def is_open(path: Path) -> bool:
    """Whether this process holds the file open."""
    return any(
        os.path.samestat(path.stat(), (FILES / name).stat())
        for name in os.listdir(FILES)
        if (FILES / name).exists()
    )
