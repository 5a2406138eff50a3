"""gridref as a parser of VirtualiZarr, and its datasets written by an accessor."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import icechunk
import netCDF4
import numpy as np
import pytest
import virtualizarr
import xarray as xr
from kerchunk.netCDF3 import NetCDF3ToZarr
from scipy.io import netcdf_file
from virtualizarr.parsers import (
    DMRPPParser,
    FITSParser,
    HDFParser,
    KerchunkJSONParser,
    NetCDF3Parser,
    ZarrParser,
)

import gridref
from gridref.api.scan import scan_many
from gridref.errors import (
    InvalidRequestError,
    MissingPackageError,
    SourceFormatError,
    SourceNotAllowedError,
    SourceUnavailableError,
    UnsupportedFeatureError,
)
from gridref.faces.exports.kerchunk import to_kerchunk
from tests.command import run_command
from tests.s3_server import Bucket
from tests.shared_data import shared_files

MONTH = Path(__file__).parents[2] / "sample_data" / "daily_2023-01.nc"
HEIGHTS = np.arange(24, dtype="f4").reshape(4, 6)


def classic(path: Path, day: int = 0, version: Any = "NETCDF3_64BIT_OFFSET") -> Path:
    """A NetCDF3 file with a record dimension."""
    with netCDF4.Dataset(path, "w", format=version) as file:
        file.createDimension("time", None)
        file.createDimension("x", 5)
        file.createVariable("time", "i4", ("time",))[:] = [day, day + 1]
        file["time"].units = "days since 2020-01-01"
        file.createVariable("a", "f8", ("time", "x"))[:] = np.arange(10).reshape(2, 5) + day
        file.createVariable("b", "i2", ("x",))[:] = [-3, -2, -1, 0, 1]
        file["a"].setncattr("scale_factor", 0.5)
    return path


def opened(group: gridref.VirtualGroup, **options: Any) -> xr.Dataset:
    return xr.open_zarr(gridref.open_store(group), **options).compute()


@pytest.mark.parametrize(
    "parser",
    [
        NetCDF3Parser(),
        NetCDF3ToZarr,
        "virtualizarr.parsers:NetCDF3Parser",
        "kerchunk.netCDF3:NetCDF3ToZarr",
    ],
)
def test_netcdf3_reads_as_in_netcdf4(parser: Any, tmp_path: Path) -> None:
    path = classic(tmp_path / "classic.nc")
    expected = xr.open_dataset(path, engine="netcdf4").compute()
    xr.testing.assert_equal(opened(gridref.scan(path, parser=parser)), expected)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("path", shared_files("formats/netcdf3/*sgp*", "not_hdf5/*grids.nc"))
def test_real_netcdf3_files_read_as_in_scipy(path: Path) -> None:
    group = gridref.scan(path, parser="virtualizarr.parsers:NetCDF3Parser")
    with netcdf_file(path, mmap=False) as file:
        for name, variable in file.variables.items():
            values = variable[...] if variable.shape else variable.getValue()
            np.testing.assert_array_equal(group[name][...], values)


def test_many_files_are_built_with_a_parser(tmp_path: Path) -> None:
    files = [classic(tmp_path / f"{day}.nc", day) for day in (0, 2, 4)]
    catalog = tmp_path / "cube.gridref"
    gridref.build(
        files,
        catalog,
        "time",
        scan=gridref.ScanOptions(parser=NetCDF3Parser()),
        run=gridref.RunOptions(executor=2),
    )
    expected = xr.open_mfdataset(files, engine="netcdf4", data_vars="minimal").compute()
    xr.testing.assert_equal(xr.open_dataset(catalog, engine="gridref").compute(), expected)
    groups = scan_many(files, parser=NetCDF3Parser(), work=tmp_path / "kept")
    assert [group["a"][0, 0] for group in groups] == [0, 2, 4]


def test_the_command_takes_a_parser_by_name(tmp_path: Path) -> None:
    files = [str(classic(tmp_path / f"{day}.nc", day)) for day in (0, 2)]
    catalog = str(tmp_path / "cube.gridref")
    named = ["--parser", "virtualizarr.parsers:NetCDF3Parser"]
    done = run_command("build", *files, "-o", catalog, "--concat-dim", "time", *named)
    assert done.returncode == 0, done.stderr
    expected = xr.open_mfdataset(files, engine="netcdf4", data_vars="minimal").compute()
    xr.testing.assert_equal(xr.open_dataset(catalog, engine="gridref").compute(), expected)


@pytest.mark.parametrize("parser", [FITSParser(), "kerchunk.fits:FitsToZarr"])
@pytest.mark.parametrize("bscale", [None, 0.25])
def test_fits_reads_as_in_astropy(parser: Any, bscale: float | None, tmp_path: Path) -> None:
    fits = pytest.importorskip("astropy.io.fits")
    path = tmp_path / "image.fits"
    hdu = fits.ImageHDU(HEIGHTS if bscale is None else HEIGHTS.astype("i2"), name="sky")
    fits.HDUList([fits.PrimaryHDU(), hdu]).writeto(path)
    if bscale is not None:
        with fits.open(path, mode="update", do_not_scale_image_data=True) as file:
            file[1].header["BSCALE"], file[1].header["BZERO"] = bscale, 3.0
    if bscale is not None and isinstance(parser, str):
        # Its references say that the unscaled numbers come out of the filter that scales them.
        with pytest.raises(UnsupportedFeatureError, match="fixedscaleoffset of <f8 stands behind"):
            gridref.scan(path, parser=parser)
        return
    (array,) = gridref.scan(path, parser=parser).arrays.values()
    with fits.open(path) as file:
        np.testing.assert_array_equal(array[...], file[1].data)


def grib(path: Path, levels: tuple[int, ...]) -> Path:
    pytest.importorskip("cfgrib", exc_type=ImportError)
    eccodes = pytest.importorskip("eccodes", exc_type=ImportError)
    with path.open("wb") as file:
        for level in levels:
            message = eccodes.codes_grib_new_from_samples("regular_ll_pl_grib2")
            eccodes.codes_set(message, "level", level)
            n_values = eccodes.codes_get_size(message, "values")
            eccodes.codes_set_values(message, np.linspace(level, level + 50, n_values))
            eccodes.codes_write(message, file)
            eccodes.codes_release(message)
    return path


@pytest.mark.parametrize("levels", [(500,), (500, 850)])
def test_grib_reads_as_in_eccodes(levels: tuple[int, ...], tmp_path: Path) -> None:
    path = grib(tmp_path / "pressure.grib2", levels)
    group = gridref.scan(path, parser="kerchunk.grib2:GribToZarr")
    messages = [group] if len(levels) == 1 else [group.groups[str(n)] for n in range(len(levels))]
    eccodes = pytest.importorskip("eccodes", exc_type=ImportError)
    with path.open("rb") as file:
        for message, level in zip(messages, levels, strict=True):
            stored = eccodes.codes_grib_new_from_file(file)
            expected = eccodes.codes_get_values(stored).reshape(message["t"].shape)
            np.testing.assert_array_equal(message["t"][...], expected)
            assert message["isobaricInhPa"][...] == level
            latitudes = np.unique(eccodes.codes_get_array(stored, "latitudes"))[::-1]
            np.testing.assert_array_equal(message["latitude"][...], latitudes)
            eccodes.codes_release(stored)


def test_grib_messages_are_stacked(tmp_path: Path) -> None:
    group = gridref.scan(grib(tmp_path / "p.grib2", (500, 850)), parser="kerchunk.grib2:GribToZarr")
    cube = gridref.concat(group.groups.values(), "isobaricInhPa")
    assert cube["isobaricInhPa"][...].tolist() == [500, 850]
    np.testing.assert_array_equal(cube["t"][1], group.groups["1"]["t"][...])


def test_settings_of_a_kerchunk_scanner(tmp_path: Path) -> None:
    path = grib(tmp_path / "p.grib2", (500, 850))
    from kerchunk.grib2 import GribToZarr

    only = functools.partial(GribToZarr, filter={"level": 850})
    assert gridref.scan(path, parser=only)["isobaricInhPa"][...] == 850


@pytest.mark.parametrize("parser", [HDFParser(), KerchunkJSONParser(), ZarrParser()])
def test_other_parsers_read_what_our_scanners_do(parser: Any, tmp_path: Path) -> None:
    path = MONTH
    if isinstance(parser, ZarrParser):
        pytest.importorskip("arro3.core")  # which it lists with
        path = tmp_path / "a.zarr"
        xr.open_dataset(MONTH, engine="netcdf4").to_zarr(path, zarr_format=3, consolidated=False)
    elif isinstance(parser, KerchunkJSONParser):
        path = tmp_path / "refs.json"
        to_kerchunk(gridref.scan(MONTH), path)
    # VirtualiZarr's parser of references does not take the fill value for that of _FillValue.
    raw = isinstance(parser, KerchunkJSONParser)
    expected = xr.open_dataset(MONTH, engine="netcdf4", mask_and_scale=not raw).compute()
    group = gridref.scan(path, parser=parser, allow="*")
    xr.testing.assert_equal(opened(group, mask_and_scale=not raw), expected)


def test_references_of_a_parser_need_permission_to_leave_their_folder(tmp_path: Path) -> None:
    to_kerchunk(gridref.scan(MONTH), tmp_path / "refs.json")
    with pytest.raises(SourceNotAllowedError, match="daily_2023-01"):
        gridref.scan(tmp_path / "refs.json", parser=KerchunkJSONParser())


def test_dmrpp_reads_as_in_h5py(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=np.arange(12, dtype="<f4"), chunks=(4,), compression="gzip")
        chunks = [file["a"].id.get_chunk_info(n) for n in range(3)]
    (tmp_path / "a.h5.dmrpp").write_text(
        f"""<?xml version="1.0" encoding="ISO-8859-1"?>
<Dataset xmlns="http://xml.opendap.org/ns/DAP/4.0#"
    xmlns:dmrpp="http://xml.opendap.org/dap/dmrpp/1.0.0#" dapVersion="4.0" dmrVersion="1.0"
    name="a.h5" dmrpp:href="{path.as_uri()}" dmrpp:version="3.21">
  <Dimension name="x" size="12"/>
  <Float32 name="a"><Dim name="/x"/>
    <dmrpp:chunks compressionType="deflate" deflateLevel="4" byteOrder="LE">
      <dmrpp:chunkDimensionSizes>4</dmrpp:chunkDimensionSizes>
      {
            "".join(
                f'<dmrpp:chunk offset="{c.byte_offset}" nBytes="{c.size}"'
                f' chunkPositionInArray="[{c.chunk_offset[0]}]"/>'
                for c in chunks
            )
        }
    </dmrpp:chunks>
  </Float32>
</Dataset>"""
    )
    group = gridref.scan(tmp_path / "a.h5.dmrpp", parser=DMRPPParser())
    np.testing.assert_array_equal(group["a"][...], np.arange(12))


def test_tiff_reads_as_in_tifffile(tmp_path: Path) -> None:
    virtual_tiff = pytest.importorskip("virtual_tiff")
    import tifffile

    image = np.arange(64 * 48, dtype="u2").reshape(64, 48)
    tifffile.imwrite(tmp_path / "a.tif", image, tile=(16, 16), compression="zlib")
    group = gridref.scan(tmp_path / "a.tif", parser=virtual_tiff.VirtualTIFF(ifd=0))
    np.testing.assert_array_equal(group["0"][...], image)


def test_parsers_read_s3_with_our_storage_options(bucket: Bucket, tmp_path: Path) -> None:
    url = bucket.put("classic.nc", classic(tmp_path / "a.nc").read_bytes())
    group = gridref.scan(url, parser=NetCDF3Parser(), storage_options=bucket.options)
    np.testing.assert_array_equal(group["b"][...], [-3, -2, -1, 0, 1])


def test_a_source_that_changed_is_an_error(tmp_path: Path) -> None:
    path = classic(tmp_path / "a.nc")
    group = gridref.scan(path, parser=NetCDF3Parser())
    classic(path, 7)
    with pytest.raises(gridref.errors.SourceChangedError, match=r"a\.nc"):
        group["a"][...]


def test_what_parsers_cannot_do_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "no.nc"
    path.write_bytes(b"CDF\x01" + b"\xff" * 30)
    with pytest.raises(SourceFormatError, match=r"NetCDF3Parser cannot parse it.*no\.nc"):
        gridref.scan(path, parser=NetCDF3Parser())
    with pytest.raises(SourceUnavailableError, match=r"gone\.nc"):
        gridref.scan(tmp_path / "gone.nc", parser=NetCDF3Parser())
    with pytest.raises(InvalidRequestError, match="obstore"):
        gridref.scan("memory://a.nc", parser=NetCDF3Parser())


@pytest.mark.parametrize(
    ("parser", "error", "message"),
    [
        ("NetCDF3Parser", InvalidRequestError, "module:name"),
        ("virtualizarr.parsers:NetCDF9Parser", InvalidRequestError, "no parser NetCDF9Parser"),
        ("no_such_module:Parser", MissingPackageError, "no_such_module"),
        (lambda url, registry: 3, InvalidRequestError, "returned int"),
        (5, InvalidRequestError, "called with a URL"),
        (
            lambda url, registry: {".zgroup": json.dumps({"zarr_format": 2}), "a/.zarray": "{}"},
            SourceFormatError,
            "zarr_format",
        ),
    ],
)
def test_what_is_no_parser_is_refused(parser: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        gridref.scan(MONTH, parser=parser)


def test_codecs_that_nobody_here_knows_are_refused_by_name(tmp_path: Path) -> None:
    fits = pytest.importorskip("astropy.io.fits")
    column = fits.Column("name", "A8", array=["one", "two"], ascii=True)
    fits.HDUList([fits.PrimaryHDU(), fits.TableHDU.from_columns([column])]).writeto(
        tmp_path / "table.fits"
    )
    with pytest.raises(UnsupportedFeatureError, match=r"FITSAscii.*table\.fits"):
        gridref.scan(tmp_path / "table.fits", parser="kerchunk.fits:FitsToZarr")


pytestmark = pytest.mark.filterwarnings("ignore:Attempting to write an entirely non-virtual")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    values = np.arange(60.0).reshape(6, 10)
    dataset = xr.Dataset(
        {"plain": (("t", "x"), values), "packed": (("t", "x"), values)}, {"t": np.arange(6)}
    )
    packing = {"dtype": "i2", "scale_factor": 0.5, "add_offset": 1.0, "_FillValue": -1}
    dataset.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding={"packed": packing})
    return tmp_path / "a.nc"


def icechunk_store() -> Any:
    repository = icechunk.Repository.create(icechunk.in_memory_storage())
    return repository.writable_session("main").store


WRITERS: dict[str, Callable[[Any, Path], Any]] = {
    "dict": lambda ds, folder: ds.vz.to_kerchunk(),
    "Zarr v3": lambda ds, folder: ds.vz.to_kerchunk(zarr_format=3),
    "JSON": lambda ds, folder: ds.vz.to_kerchunk(folder / "refs.json", format="json"),
    "Parquet": lambda ds, folder: ds.vz.to_kerchunk(folder / "refs.parq", format="parquet"),
    "icechunk": lambda ds, folder: ds.vz.to_icechunk(icechunk_store()),
    "icechunk tree": lambda ds, folder: xr.DataTree(ds).vz.to_icechunk(icechunk_store()),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_its_writers_never_take_packed_numbers_for_values(
    path: Path, tmp_path: Path, writer: str
) -> None:
    dataset = gridref.open_virtual_dataset(path)[["packed"]]
    with pytest.raises(InvalidRequestError, match=r"ds\.gridref\.save\(path\)"):
        WRITERS[writer](dataset, tmp_path)
    assert not (tmp_path / "refs.json").exists()


def test_what_the_docs_propose_is_written(path: Path) -> None:
    dataset = gridref.open_virtual_dataset(path)
    references = gridref.interchange.to_virtualizarr(dataset.gridref.to_group()).vz.to_kerchunk()
    assert references["refs"]["plain/0.0"][0].endswith("a.nc")


@pytest.mark.parametrize("writer", ["dict", "Zarr v3", "JSON", "icechunk", "icechunk tree"])
def test_loaded_variables_are_written(path: Path, tmp_path: Path, writer: str) -> None:
    names = ["plain", "packed", "t"]
    dataset = gridref.open_virtual_dataset(path, loadable_variables=names)
    WRITERS[writer](dataset, tmp_path)


@pytest.mark.parametrize("from_catalog", [False, True])
def test_paths_are_renamed(path: Path, from_catalog: bool) -> None:
    opened = path
    if from_catalog:
        gridref.build([path], opened := path.with_name("a.gridref"))
    dataset = gridref.open_virtual_dataset(opened)
    asked = []
    moved = shutil.move(path, path.with_name("moved.nc"))

    def new(old: str) -> str:
        asked.append(old)
        return old.replace("/a.nc", "/moved.nc")

    renamed = dataset.gridref.rename_paths(new)
    assert set(asked) == {path.as_uri()}
    np.testing.assert_array_equal(np.asarray(renamed["plain"].data), np.arange(60.0).reshape(6, 10))
    references = renamed.gridref.to_kerchunk()["refs"]
    assert {held[0] for held in references.values() if isinstance(held, list)} == {str(moved)}
    everywhere = dataset.gridref.rename_paths(str(moved))
    np.testing.assert_array_equal(everywhere["plain"].data, renamed["plain"].data)
    assert not isinstance(dataset["plain"].data, virtualizarr.manifests.ManifestArray)


def test_paths_of_what_the_engine_opened_are_not_renamed_unnoticed(path: Path) -> None:
    with xr.open_dataset(path, engine="gridref") as opened:
        with pytest.raises(InvalidRequestError, match="open_virtual_dataset, not in"):
            opened.gridref.rename_paths(str(path))
        opened.compute().gridref.rename_paths(str(path))


def test_copies_by_xarray_are_not_refused(path: Path, tmp_path: Path) -> None:
    dataset = gridref.open_virtual_dataset(path)[["plain"]]
    dataset.to_zarr(tmp_path / "copy.zarr", zarr_format=3, consolidated=False)
    with xr.open_zarr(tmp_path / "copy.zarr", consolidated=False) as copy:
        np.testing.assert_array_equal(copy.plain.values, np.arange(60.0).reshape(6, 10))
