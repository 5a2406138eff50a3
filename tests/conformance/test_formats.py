"""gridref's own formats pass the suite that other formats must pass."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, override

import fsspec
import h5py
import icechunk
import netCDF4
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tifffile
import zarr
from astropy.io import fits
from numpy.typing import NDArray

import gridref
from gridref.errors import InvalidRequestError
from gridref.formats.built_in import (
    B2NDScanner,
    DMRppScanner,
    FITSScanner,
    GRIBScanner,
    HDF4Scanner,
    HDF5Scanner,
    IcechunkScanner,
    JPEG2000Scanner,
    KerchunkScanner,
    N5Scanner,
    NetCDF3Scanner,
    PrecomputedScanner,
    SAFEScanner,
    TIFFScanner,
    WKWScanner,
    ZarrScanner,
)
from gridref.testing.formats import Sample, ScannerTests
from tests.b2nd_files import write_array
from tests.dmrpp_files import write_dmrpp
from tests.grib_files import field, write_grib
from tests.hdf4_files import write_datasets
from tests.jp2_files import read_jp2, write_jp2, write_product
from tests.n5_files import write_attributes, write_dataset
from tests.precomputed_files import write_volume
from tests.wkw_files import voxels, write_mag

VALUES = np.random.default_rng(3).integers(0, 30_000, (50, 70)).astype("<i4")
VOXELS = VALUES.reshape(2, 10, 7, 25)


@contextmanager
def copied(folder: Path) -> Iterator[str]:
    """The address of a copy of a folder, on a filesystem that is not local."""
    filesystem = fsspec.filesystem("memory")
    root = f"/gridref_testing/{os.getpid()}"
    filesystem.put(str(folder), f"{root}/{folder.name}", recursive=True)
    try:
        yield f"memory:/{root}/{folder.name}"
    finally:
        filesystem.rm(root, recursive=True)


class TestHDF5(ScannerTests):
    scanner = HDF5Scanner()

    @override
    def write_sample(self, folder: Path) -> Sample:
        with h5py.File(folder / "a.h5", "w", libver="latest") as file:
            group = file.create_group("model")
            group.create_dataset(
                "t", data=VALUES, chunks=(16, 20), compression=4, shuffle=True, fletcher32=True
            )
            file["plain"] = VALUES[0].astype("f8")
            file["none"] = h5py.Empty("f4")
        return Sample(folder / "a.h5", {"model/t": VALUES, "plain": VALUES[0].astype("f8")})


class TestHDF5OfOldVersions(ScannerTests):
    scanner = HDF5Scanner()

    @override
    def write_sample(self, folder: Path) -> Sample:
        with h5py.File(folder / "a.nc", "w", libver="earliest", userblock_size=512) as file:
            file.create_dataset("t", data=VALUES.astype(">f4"), chunks=(16, 20), compression="lzf")
        return Sample(folder / "a.nc", {"t": VALUES.astype("<f4")})


class TestTIFF(ScannerTests):
    scanner = TIFFScanner()

    @override
    def write_sample(self, folder: Path) -> Sample:
        image = VALUES.astype("u2")
        tifffile.imwrite(folder / "a.tif", image, tile=(16, 32), compression="zlib", predictor=2)
        return Sample(folder / "a.tif", {"image": image})


class TestOMESet(ScannerTests):
    scanner = TIFFScanner()

    @override
    def write_sample(self, folder: Path) -> Sample:
        planes = np.stack([VALUES, VALUES[::-1]]).astype("u2")
        names = ["one.ome.tif", "two.ome.tif"]
        held = "".join(
            f'<TiffData FirstT="{n}" IFD="0" PlaneCount="1">'
            f'<UUID FileName="{name}">urn:uuid:{n}</UUID></TiffData>'
            for n, name in enumerate(names)
        )
        for number, name in enumerate(names):
            xml = (
                '<?xml version="1.0" encoding="UTF-8"?><OME'
                ' xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"'
                f' UUID="urn:uuid:{number}"><Image ID="Image:0"><Pixels ID="Pixels:0"'
                ' DimensionOrder="XYZCT" Type="uint16" SizeX="70" SizeY="50" SizeZ="1" SizeC="1"'
                f' SizeT="2">{held}</Pixels></Image></OME>'
            )
            tifffile.imwrite(folder / name, planes[number], description=xml, metadata=None)
        return Sample(folder / "one.ome.tif", {"image": planes})


class TestNetCDF3(ScannerTests):
    scanner = NetCDF3Scanner()

    @override
    def write_sample(self, folder: Path) -> Sample:
        with netCDF4.Dataset(folder / "a.nc", "w", format="NETCDF3_64BIT_OFFSET") as file:
            file.createDimension("time", None)
            file.createDimension("x", 70)
            file.createVariable("t", "i4", ("time", "x"))[...] = VALUES
            file.createVariable("u", "f4", ("time", "x"))[...] = VALUES + 1
            file.createVariable("x", "f8", ("x",))[...] = VALUES[0]
        return Sample(
            folder / "a.nc",
            {"t": VALUES, "u": (VALUES + 1).astype("f4"), "x": VALUES[0].astype("f8")},
        )


class TestHDF4(ScannerTests):
    scanner = HDF4Scanner()

    @override
    def write_sample(self, folder: Path) -> Sample:
        values = {"t": VALUES.astype("i4"), "u": (VALUES + 1).astype("f4")}
        return Sample(write_datasets(folder / "a.hdf", values, ("y", "x")), dict(values))


class TestDMRpp(ScannerTests):
    scanner = DMRppScanner()

    @override
    def write_sample(self, folder: Path) -> Sample:
        with h5py.File(folder / "a.h5", "w") as file:
            group = file.create_group("model")
            group.create_dataset("t", data=VALUES, chunks=(16, 20), compression=4, shuffle=True)
            file["plain"] = VALUES[0].astype("f8")
        document = write_dmrpp(folder / "a.h5")
        return Sample(document, {"model/t": VALUES, "plain": VALUES[0].astype("f8")})


class TestGRIB(ScannerTests):
    scanner = GRIBScanner()

    @override
    def write_sample(self, folder: Path) -> Sample:
        one, other = field(5, 7, shortName="sp"), field(5, 7, shortName="sp", step=6)
        for number, each in enumerate((one, other)):  # what 16 bits hold exactly
            each["values"] = VALUES[number : number + 5, :7] % 256
            each["keys"] |= {"packingType": "grid_ieee"}
        write_grib(folder / "a.grib2", one, other)
        both = np.stack([one["values"], other["values"]])[np.newaxis]
        return Sample(folder / "a.grib2", {"surface/sp": both.astype("f4")})


class TestB2ND(ScannerTests):
    scanner = B2NDScanner()

    @override
    def write_sample(self, folder: Path) -> Sample:
        return Sample(write_array(folder / "a.b2nd", VALUES, (16, 20), (7, 9)), {"a": VALUES})


class TestSparseB2ND(ScannerTests):
    scanner = B2NDScanner()

    @override
    def write_sample(self, folder: Path) -> Sample:
        path = write_array(folder / "a.b2nd", VALUES, (16, 20), (7, 9), sparse=True)
        return Sample(path, {"a": VALUES})

    @override
    def test_values_of_a_remote_copy(self, sample: Sample) -> None:
        """A remote sparse frame is named by its header."""
        with copied(sample.path) as address:
            group = gridref.scan(f"{address}/chunks.b2frame")
            np.testing.assert_array_equal(group.arrays["a"][...], VALUES)


class TestN5(ScannerTests):
    scanner = N5Scanner()

    @override
    def write_sample(self, folder: Path) -> Sample:
        write_attributes(folder / "a.n5", n5="2.0.0")
        write_dataset(folder / "a.n5" / "model" / "t", VALUES, (16, 20))
        write_dataset(folder / "a.n5" / "plain", VALUES[0].astype("f8"), (70,), {"type": "raw"})
        return Sample(folder / "a.n5", {"model/t": VALUES, "plain": VALUES[0].astype("f8")})


class TestJPEG2000(ScannerTests):
    scanner = JPEG2000Scanner()

    @override
    def write_sample(self, folder: Path) -> Sample:
        image = np.stack([VALUES, VALUES[::-1]]).astype("u2")
        return Sample(write_jp2(folder / "a.jp2", image, 32), {"band_data": image})


class TestPrecomputed(ScannerTests):
    scanner = PrecomputedScanner()

    @override
    def write_sample(self, folder: Path) -> Sample:
        volume = write_volume(folder / "a.precomputed", VOXELS, VOXELS[:, ::2].copy())
        return Sample(volume, {"0/image": VOXELS, "1/image": VOXELS[:, ::2]})


class TestPrecomputedInfo(ScannerTests):
    scanner = PrecomputedScanner()

    @override
    def write_sample(self, folder: Path) -> Sample:
        return Sample(write_volume(folder, VOXELS) / "info", {"0/image": VOXELS})


class TestWKW(ScannerTests):
    scanner = WKWScanner()

    @override
    def write_sample(self, folder: Path) -> Sample:
        values = voxels("u2", (2, 16, 32, 16))
        write_mag(folder / "1", ((0, 0, 0), values), kind="LZ4")
        return Sample(folder / "1", {"1": values})

    @override
    def test_values_of_a_remote_copy(self, sample: Sample) -> None:
        """A remote magnification is named by its header."""
        with copied(sample.path) as address:
            group = gridref.scan(f"{address}/header.wkw")
            np.testing.assert_array_equal(group.arrays["1"][...], sample.arrays["1"])


class TestFITS(ScannerTests):
    scanner = FITSScanner()

    @override
    def write_sample(self, folder: Path) -> Sample:
        tiles = fits.CompImageHDU(VALUES.astype("i2"), name="tiles", tile_shape=(16, 16))
        floats = fits.CompImageHDU(VALUES.astype("f4"), name="floats")
        plain = fits.PrimaryHDU(VALUES.astype("u2"))
        fits.HDUList([plain, tiles, floats]).writeto(folder / "a.fits")
        with fits.open(folder / "a.fits") as hdus:
            values = {"TILES": VALUES.astype("i2"), "FLOATS": np.array(hdus[2].data, "f4")}
        return Sample(folder / "a.fits", {"PRIMARY": VALUES.astype("u2"), **values})


class TestSAFE(ScannerTests):
    scanner = SAFEScanner()

    @override
    def write_sample(self, folder: Path) -> Sample:
        product = write_product(folder, bands={10: ("B02", "TCI"), 20: ("B05",)}, metres=1000)
        images = {path.stem.split("_")[-2]: read_jp2(path) for path in product.rglob("*.jp2")}
        bands = {"10m/B02": images["B02"][0], "10m/TCI": images["TCI"], "20m/B05": images["B05"][0]}
        return Sample(product, bands)


class TestZarr(ScannerTests):
    scanner = ZarrScanner()

    @override
    def write_sample(self, folder: Path) -> Sample:
        root = zarr.create_group(folder / "a.zarr")
        root.create_array("plain", data=VALUES, chunks=(16, 20))
        root.create_array("model/sharded", data=VALUES, chunks=(5, 7), shards=(25, 35))
        return Sample(folder / "a.zarr", {"plain": VALUES, "model/sharded": VALUES})


class TestZarrV2(ScannerTests):
    scanner = ZarrScanner()

    @override
    def write_sample(self, folder: Path) -> Sample:
        root = zarr.create_group(folder / "a.zarr", zarr_format=2)
        root.create_array("t", data=VALUES, chunks=(16, 20))
        return Sample(folder / "a.zarr", {"t": VALUES})


def array_document(values: NDArray[Any]) -> dict[str, Any]:
    return {
        "zarr_format": 2,
        "shape": values.shape,
        "chunks": values.shape,
        "dtype": values.dtype.str,
        "order": "C",
        "compressor": None,
        "filters": None,
        "fill_value": None,
    }


class TestKerchunkJSON(ScannerTests):
    scanner = KerchunkScanner()

    @override
    def write_sample(self, folder: Path) -> Sample:
        (folder / "data.bin").write_bytes(b"head" + VALUES.tobytes())
        references = {
            ".zgroup": '{"zarr_format": 2}',
            "t/.zarray": json.dumps(array_document(VALUES)),
            "t/0.0": ["data.bin", 4, VALUES.nbytes],
        }
        (folder / "a.json").write_text(json.dumps({"version": 1, "refs": references}))
        return Sample(folder / "a.json", {"t": VALUES})


class TestKerchunkParquet(ScannerTests):
    scanner = KerchunkScanner()

    @override
    def write_sample(self, folder: Path) -> Sample:
        (folder / "data.bin").write_bytes(b"head" + VALUES.tobytes())
        table = folder / "a.parq"
        (table / "t").mkdir(parents=True)
        metadata = {".zgroup": {"zarr_format": 2}, "t/.zarray": array_document(VALUES)}
        (table / ".zmetadata").write_text(json.dumps({"metadata": metadata, "record_size": 10}))
        columns = {
            "path": ["data.bin"],
            "offset": [4],
            "size": [VALUES.nbytes],
            "raw": pa.array([None], pa.binary()),
        }
        pq.write_table(pa.table(columns), table / "t" / "refs.0.parq")
        return Sample(table, {"t": VALUES})


class TestIcechunk(ScannerTests):
    scanner = IcechunkScanner()

    @override
    def write_sample(self, folder: Path) -> Sample:
        storage = icechunk.local_filesystem_storage(str(folder / "a.icechunk"))
        session = icechunk.Repository.create(storage).writable_session("main")
        group = zarr.create_group(session.store)
        group.create_array("model/t", data=VALUES, chunks=(16, 20))
        group.create_array("few", data=VALUES[0, :5])
        session.commit("sample")
        return Sample(folder / "a.icechunk", {"model/t": VALUES, "few": VALUES[0, :5]})

    @override
    def test_values_of_a_remote_copy(self, sample: Sample) -> None:
        """Icechunk's own client reads repositories, and knows no filesystems of fsspec."""
        with pytest.raises(InvalidRequestError, match="no Icechunk repositories on memory"):
            gridref.scan("memory://a.icechunk")
