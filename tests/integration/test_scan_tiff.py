"""TIFF files beside tifffile and rasterio: real, generated, places, pyramids, microscopy."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import imagecodecs
import numpy as np
import pyproj
import pytest
import rasterio
import rioxarray
import tifffile
import xarray as xr
import zarr
from numpy.typing import NDArray

import gridref
from gridref.api.readable import reader_for
from gridref.api.verify import verify
from gridref.errors import (
    DecodeError,
    GridrefError,
    SourceFormatError,
    SourceUnavailableError,
    UnsupportedFeatureError,
)
from gridref.faces.zarr.store import open_store
from gridref.formats import scan
from gridref.formats.tiff import structure
from gridref.learned import FORMS
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.ome_zarr import image_attributes
from gridref.testing.reference_reader import read_slowly
from tests.http_server import Site, serving
from tests.microscopy_files import restart_jpeg, write_lsm, write_ndpi, write_svs
from tests.shared_data import shared_data_folder, shared_files


def same_as_tifffile(path: Path, *, by_tiles: bool = False) -> VirtualGroup:
    """Compare each image and level."""
    group = scan(str(path))
    checked = 0
    with tifffile.TiffFile(path) as file:
        series = list(file.series)
        for array in group.all_arrays().values():
            if "tiff_series" in array.attrs:
                one, depth = series[array.attrs["tiff_series"]], array.attrs["tiff_level"]
                if by_tiles:
                    expected = zarr.open_array(one.aszarr(level=depth), mode="r")[...]
                else:
                    expected = one.levels[depth].asarray()
                found = read_slowly(array)
                if one.is_pyramidal and found.ndim == 3:
                    found = np.moveaxis(found, 0, -1)  # OME-Zarr has channels in front
                assert found.dtype == expected.dtype
                np.testing.assert_array_equal(found, expected)
                checked += 1
        assert checked == sum(len(one.levels) for one in series)
    return group


pytestmark = [
    pytest.mark.usefixtures("quiet_tifffile"),
    pytest.mark.filterwarnings("ignore:Dataset has no geotransform"),
]

TIFFS = shared_files(
    *(
        f"{folder}/**/*{suffix}"
        for folder, suffix in (
            ("tiff", ".tif"),
            ("tiff", ".tiff"),
            ("tiff", ".dng"),
            ("bad_input", ".tif"),
            ("bad_input", ".tiff"),
            ("families", ".tif"),
            ("ome_tiff", ".tif"),
            ("ome_tiff", ".tiff"),
        )
    )
)
DOCUMENT = Path(__file__).with_name("refused_tiff.md")
ROW = re.compile(r"^\| `([^`]+)` \| (scan|read `[^`]+`|`[^`]+`) \| (.+) \|$")
LARGE = 100_000_000
"""Bytes of an image of which only the overviews are read."""
# Here GDAL shows something else on purpose: one plane of several, or colours converted.
GDAL_DIFFERS = {
    *("multi-channel-time-series", "multi-channel-z-series", "multifile-Z"),
    *("gray.depth", "cielab"),
}


@cache
def documented() -> dict[str, dict[str, str]]:
    """Refusals by file: what is refused, and why."""
    found: dict[str, dict[str, str]] = {}
    for line in DOCUMENT.read_text().splitlines():
        match = ROW.match(line)
        if match and "/" in match[1]:
            found.setdefault(match[1], {})[match[2].replace("`", "")] = match[3]
    return found


def scanned(path: Path) -> VirtualGroup:
    return scan(str(path), on_unsupported="skip")


def images(group: VirtualGroup) -> dict[str, VirtualArray]:
    return {
        path: array for path, array in group.all_arrays().items() if "tiff_series" in array.attrs
    }


def as_laid_out(values: NDArray[Any], axes: str, array: VirtualArray) -> NDArray[Any]:
    """What tifffile gives, with the bands in front where the array has them there."""
    if "band" not in array.dims:
        samples_in_front = "sample" in array.dims[:-1] and axes.endswith("YXS")
        return np.moveaxis(values, -1, array.dims.index("sample")) if samples_in_front else values
    if axes.endswith("YXS"):
        return np.moveaxis(values, -1, -3)
    return values[np.newaxis] if values.ndim == 2 else values


@pytest.mark.long(but=32)
@pytest.mark.parametrize("path", TIFFS)
def test_real_files(path: Path) -> None:
    """As tifffile and GDAL show them, scanned without their pixels; or refused as documented."""
    refused = documented().get(path.relative_to(shared_data_folder()).as_posix(), {})
    if "scan" in refused:
        with pytest.raises(GridrefError) as caught:
            scanned(path)
        assert refused == {"scan": caught.value.reason}
        return
    group = scanned(path)
    found, read = images(group), {}
    refusals = {entry.path: entry.reason for entry in group.report.skipped}
    for name, array in found.items():
        if array.nbytes > LARGE:
            continue
        try:
            read[name] = read_slowly(array)
        except DecodeError as error:
            refusals[f"read /{name}"] = error.reason
    assert refusals == refused
    assert_no_pixels_were_read(path, group)
    assert_equals_tifffile(path, group, read)
    if not any(name in path.name for name in GDAL_DIFFERS):
        assert_equals_gdal(path, found, read)
    assert_placed_as_by_gdal(path, group)
    assert_pyramids_are_described(path, group)


def assert_no_pixels_were_read(path: Path, group: VirtualGroup) -> None:
    """Metadata and offsets only: what is read does not grow with the pixels."""
    rows = sum(array.manifests[0].n_rows for array in images(group).values())
    with tifffile.TiffFile(path) as file:
        n_pages = len(file.pages)
    assert group.report.n_bytes <= (40 << 10) + 16 * rows + (8 << 10) * n_pages


def assert_equals_tifffile(path: Path, group: VirtualGroup, read: dict[str, NDArray[Any]]) -> None:
    if path.parent.name == "companion_multifile":  # tifffile reads no metadata of other files
        planes = [tifffile.imread(each) for each in sorted(path.parent.glob("*.tiff"))]
        (values,) = read.values()
        np.testing.assert_array_equal(values, np.stack(planes))
        return
    found = images(group)
    with tifffile.TiffFile(path) as file:
        series = list(file.series)
        n_levels = sum(len(one.levels) for one in series)
        seen = {(a.attrs["tiff_series"], a.attrs["tiff_level"]) for a in found.values()}
        assert len(seen) + len(group.report.skipped) == n_levels
        for name, values in read.items():
            array = found[name]
            level = series[array.attrs["tiff_series"]].levels[array.attrs["tiff_level"]]
            try:
                expected = as_laid_out(level.asarray(), level.axes, array)
            except (ValueError, RuntimeError):
                continue  # tifffile cannot; GDAL is asked below
            assert values.dtype == expected.dtype
            assert values.shape == expected.shape
            assert np.ascontiguousarray(values).tobytes() == expected.tobytes()


def assert_equals_gdal(
    path: Path, found: dict[str, VirtualArray], read: dict[str, NDArray[Any]]
) -> None:
    """The first image and its overviews, as far as GDAL reads them."""
    for name, stored in read.items():
        array = found[name]
        if array.attrs["tiff_series"]:
            continue
        level = array.attrs["tiff_level"]
        options = {"overview_level": level - 1} if level else {}
        try:
            with rasterio.open(path, **options) as file:
                expected = file.read()
        except rasterio.errors.RasterioError:
            continue
        shown = stored[0] if array.dims[0] == "page" else stored
        shown = np.moveaxis(shown, -1, 0) if array.dims[-1] == "sample" else shown
        shown = shown[np.newaxis] if shown.ndim == 2 else shown
        np.testing.assert_array_equal(shown.astype(expected.dtype), expected)


def assert_placed_as_by_gdal(path: Path, group: VirtualGroup) -> None:
    """Reference system, transform, nodata and names; and pixel centres as in rioxarray."""
    try:
        with rasterio.open(path) as file:
            placed = file.crs is not None
    except rasterio.errors.RasterioError:
        return
    if not placed or "band_data" not in group.arrays:
        return
    with rasterio.open(path) as file:
        dataset = opened(group)
        agrees(dataset, file)
        nodata = dataset.band_data.attrs.get("_FillValue")
        if file.nodata is None:
            assert nodata is None
        else:
            np.testing.assert_equal(float(np.real(nodata)), float(file.nodata))
        names = [name for name in file.descriptions if name]
        if names:
            assert list(np.atleast_1d(dataset.band_data.attrs["long_name"])) == names
    levels = [name for name in group.groups if name.startswith("overview_")]
    for number, name in enumerate(levels):
        with rasterio.open(path, overview_level=number) as file:
            agrees(opened(group, name), file)
    theirs = rioxarray.open_rasterio(path)
    if isinstance(theirs, list) or "x" not in theirs.coords or "x" not in group.arrays:
        return
    for name in ("x", "y", "band"):
        np.testing.assert_allclose(read_slowly(group.arrays[name]), theirs[name].values, rtol=1e-12)


def assert_pyramids_are_described(path: Path, group: VirtualGroup) -> None:
    pyramids = [node for _, node in group.walk() if {"0", "overview_1"} & {*node.groups}]
    if path.name == "haraldk__TwelveMonkeys__BigTIFFSubIFD4.tif":
        pyramids.clear()  # pages beside samples: two axes that are neither time nor space
    described = [node for _, node in group.walk() if "ome" in node.attrs and "image" in node.arrays]
    assert check_tree(group) == len(pyramids) + len(described)


def test_documented_files_exist(shared_data: Path) -> None:
    assert documented()
    for name in documented():
        assert (shared_data / name).is_file()


def test_few_requests(shared_data: Path) -> None:
    path = shared_data / "families/lcmap_cog_2years/lcmap_tiny_cog_2019.tif"
    report = scanned(path).report
    assert report.n_requests == 1
    assert report.n_bytes <= 16 << 10


def values(*shape: int, dtype: str = "uint16") -> NDArray[Any]:
    random = np.random.default_rng(5)
    if np.dtype(dtype).kind == "f":
        return random.normal(size=shape).astype(dtype)
    return random.integers(0, 200, shape).astype(dtype)


@pytest.mark.parametrize("bigtiff", [False, True])
@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize("layout", ["strips", "tiles", "planar"])
def test_plain_images(tmp_path: Path, bigtiff: bool, byteorder: Any, layout: str) -> None:
    """An image of each dtype, all in one file."""
    path = tmp_path / "plain.tif"
    options: dict[str, Any] = {"tile": (16, 32)} if layout == "tiles" else {"rowsperstrip": 7}
    if layout == "planar":
        options |= {"planarconfig": "separate", "photometric": "rgb"}
    else:
        options["compression"] = {"strips": "lzw", "tiles": "zlib"}[layout]
    shape = (3, 50, 70) if layout == "planar" else (50, 70)
    with tifffile.TiffWriter(path, bigtiff=bigtiff, byteorder=byteorder) as file:
        for dtype in ("uint8", "int16", "uint32", "float16", "float32", "float64"):
            if layout != "planar":
                options["predictor"] = 3 if dtype[0] == "f" else 2
            file.write(values(*shape, dtype=dtype), metadata=None, **options)
    assert len(same_as_tifffile(path).groups) == 6


@pytest.mark.parametrize(
    "compression", ["zstd", "lzma", "packbits", "png", "jpegxl", "jpeg", "webp", "jpeg2000", "lerc"]
)
@pytest.mark.parametrize("tile", [None, (32, 48)])
def test_compressions(tmp_path: Path, compression: str, tile: Any) -> None:
    path = tmp_path / "compressed.tif"
    smooth = np.add.outer(np.arange(100), np.arange(90)).astype(np.uint8)
    data = np.stack([smooth, 255 - smooth, smooth // 2], axis=-1)
    tifffile.imwrite(
        path, data, photometric="rgb", compression=compression, tile=tile, metadata=None
    )
    same_as_tifffile(path)


def cut_rows(path: Path, n_rows: int) -> None:
    """Make an image end in the middle of its last strip, which keeps all its rows."""
    with tifffile.TiffFile(path, mode="r+") as file:
        file.pages[0].tags["ImageLength"].overwrite(n_rows)


@pytest.mark.parametrize(
    "compression",
    [None, "lzw", "packbits", "jpeg", "jpeg2000", "jpegxl", "webp", "png", "lerc"],
)
def test_last_strip_with_surplus_rows(tmp_path: Path, compression: Any) -> None:
    path = tmp_path / "surplus.tif"
    smooth = np.add.outer(np.arange(128), np.arange(90)).astype(np.uint8)
    data = np.stack([smooth, 255 - smooth, smooth // 2], axis=-1)
    tifffile.imwrite(
        path, data, photometric="rgb", compression=compression, rowsperstrip=32, metadata=None
    )
    cut_rows(path, 100)
    if compression == "packbits":  # tifffile fails, GDAL does not
        with rasterio.open(path) as file:
            expected = np.moveaxis(file.read(), 0, -1)
        np.testing.assert_array_equal(read_slowly(scan(str(path)).arrays["image"]), expected)
    else:
        same_as_tifffile(path)


@pytest.mark.parametrize("compression", ["CCITTRLE", "CCITTFAX3", "CCITTFAX4", "JPEG"])
def test_surplus_rows_as_gdal_writes_and_reads_them(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "surplus.tif"
    bits = {} if compression == "JPEG" else {"nbits": 1}
    profile = {"driver": "GTiff", "width": 90, "height": 128, "count": 1, "dtype": "uint8"}
    data = values(1, 128, 90, dtype="uint8") % (200 if compression == "JPEG" else 2)
    with rasterio.open(path, "w", compress=compression, blockysize=32, **bits, **profile) as file:
        file.write(data)
    cut_rows(path, 100)
    group = same_as_tifffile(path)
    with rasterio.open(path) as file:
        np.testing.assert_array_equal(read_slowly(group.arrays["image"]), file.read(1))


def test_group_4_that_ends_before_the_declared_rows(tmp_path: Path) -> None:
    """Its end-of-block code says that no more rows follow; readers leave these white."""
    path = tmp_path / "short.tif"
    profile = {"driver": "GTiff", "width": 90, "height": 30, "count": 1, "dtype": "uint8"}
    with rasterio.open(path, "w", compress="CCITTFAX4", blockysize=30, nbits=1, **profile) as file:
        file.write(values(1, 30, 90, dtype="uint8") % 2)
    with tifffile.TiffFile(path, mode="r+") as file:
        for name in ("ImageLength", "RowsPerStrip"):
            file.pages[0].tags[name].overwrite(40)
    group = same_as_tifffile(path)
    with rasterio.open(path) as file:
        np.testing.assert_array_equal(read_slowly(group.arrays["image"]), file.read(1))


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize(
    ("samples", "frame"),
    [
        (1, (16, 32)),
        (1, (16, 16, 2)),
        (1, (16, 8, 4)),
        (1, (8, 32, 2)),
        (1, (8, 64)),
        (3, (16, 96)),
        (3, (16, 48, 2)),
        (3, (8, 64, 3)),
        (1, (16, 16)),
        (1, (16, 64)),
    ],
)
def test_lossless_jpeg_frames_of_another_shape_than_the_tile(
    tmp_path: Path, dtype: str, samples: int, frame: tuple[int, ...]
) -> None:
    """As cameras and converters write DNG."""
    n_samples = math.prod(frame)
    tiles = np.random.default_rng(1).integers(0, 256, (6, n_samples)).astype(dtype)
    shape = (20, 90, samples) if samples > 1 else (20, 90)
    path = tmp_path / "raw.dng"
    tifffile.imwrite(
        path,
        (imagecodecs.jpeg8_encode(tile.reshape(frame), lossless=True) for tile in tiles),
        shape=shape,
        dtype=dtype,
        tile=(16, 32),
        compression="jpeg",
        photometric="rgb" if samples == 3 else "minisblack",
        metadata=None,
    )
    if n_samples == 16 * 32 * samples:
        same_as_tifffile(path)
        return
    with pytest.raises(DecodeError, match="tiff_jpeg"):
        read_slowly(scan(str(path)).arrays["image"])


@pytest.mark.parametrize("n_rows", [48, 37])
def test_lossless_jpeg_frames_of_another_shape_than_the_strip(tmp_path: Path, n_rows: int) -> None:
    path = tmp_path / "strips.tif"
    data = np.random.default_rng(1).integers(0, 1 << 16, (48, 30, 3)).astype("uint16")
    strips = (
        imagecodecs.jpeg8_encode(data[start : start + 16].reshape(16, 45, 2), lossless=True)
        for start in range(0, 48, 16)
    )
    tifffile.imwrite(
        path,
        strips,
        shape=data.shape,
        dtype=data.dtype,
        rowsperstrip=16,
        compression="jpeg",
        photometric="rgb",
        metadata=None,
    )
    cut_rows(path, n_rows)
    same_as_tifffile(path)


@pytest.mark.parametrize("compression", ["zlib", "zstd"])
def test_surplus_rows_that_tifffile_does_not_read_either(tmp_path: Path, compression: Any) -> None:
    path = tmp_path / "surplus.tif"
    tifffile.imwrite(path, values(128, 90), compression=compression, rowsperstrip=32, metadata=None)
    cut_rows(path, 100)
    with pytest.raises(DecodeError):
        read_slowly(scan(str(path)).arrays["image"])
    with pytest.raises((ValueError, RuntimeError)):
        tifffile.imread(path)


def test_pages_become_one_array(tmp_path: Path) -> None:
    path = tmp_path / "pages.tif"
    with tifffile.TiffWriter(path) as writer:
        for _ in range(12):
            writer.write(values(20, 30), compression="zlib", rowsperstrip=8, metadata=None)
    group = same_as_tifffile(path)
    assert group.arrays["image"].dims == ("page", "y", "x")
    assert group.arrays["image"].n_blocks == 1


@pytest.mark.parametrize("shape", [(2, 3, 4, 20, 30), (7, 20, 30), (1, 1, 40)])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_shaped_files(tmp_path: Path, shape: Any, compression: Any) -> None:
    path = tmp_path / "shaped.tif"
    tifffile.imwrite(path, values(*shape), compression=compression)
    same_as_tifffile(path)


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_imagej_hyperstack(tmp_path: Path, compression: Any) -> None:
    path = tmp_path / "stack.tif"
    tifffile.imwrite(
        path,
        values(2, 3, 4, 20, 30),
        imagej=True,
        compression=compression,
        metadata={"axes": "TZCYX", "spacing": 2.5, "unit": "um"},
        resolution=(4.0, 4.0),
    )
    group = same_as_tifffile(path)
    assert group.arrays["image"].dims == ("t", "z", "c", "y", "x")


def write_ome(path: Path, data: NDArray[Any], n_levels: int, **metadata: Any) -> None:
    with tifffile.TiffWriter(path, bigtiff=True, ome=True) as writer:
        options: dict[str, Any] = {"tile": (32, 32), "compression": "zlib"}
        writer.write(data, subifds=n_levels - 1, metadata=metadata, **options)
        for level in range(1, n_levels):
            writer.write(data[..., :: 2**level, :: 2**level], subfiletype=1, **options)


def test_ome_pyramid(tmp_path: Path) -> None:
    path = tmp_path / "pyramid.ome.tif"
    write_ome(
        path,
        values(3, 2, 128, 192),
        3,
        axes="CZYX",
        PhysicalSizeX=0.5,
        PhysicalSizeXUnit="µm",
        PhysicalSizeY=0.25,
        PhysicalSizeYUnit="µm",
        Channel={"Name": ["DAPI", "GFP", "RFP"]},
    )
    group = same_as_tifffile(path)
    assert list(group.groups) == ["0", "1", "2"]
    (entry,) = group.attrs["ome"]["multiscales"]
    assert group.attrs["ome"]["version"] == "0.5"
    assert [axis["name"] for axis in entry["axes"]] == ["c", "z", "y", "x"]
    assert [dataset["path"] for dataset in entry["datasets"]] == ["0/image", "1/image", "2/image"]
    scales = [dataset["coordinateTransformations"][0]["scale"][2:] for dataset in entry["datasets"]]
    assert scales == [[0.25, 0.5], [0.5, 1.0], [1.0, 2.0]]
    tree = xr.open_datatree(open_store(group), engine="zarr", consolidated=False)
    assert tree["2/image"].shape == (3, 2, 32, 48)
    assert tree["1/image"].attrs["channel_names"] == ["DAPI", "GFP", "RFP"]


def write_ome_set(folder: Path, n_files: int = 3, *, root_uuid: bool = True) -> list[Path]:
    """Files of one plane each, all with the same OME-XML."""
    planes = values(n_files, 20, 30)
    names = [f"plane {k}.ome.tif" for k in range(n_files)]
    data = "".join(
        f'<TiffData FirstZ="{k}" IFD="0" PlaneCount="1">'
        f'<UUID FileName="{name}">urn:uuid:{k}</UUID></TiffData>'
        for k, name in enumerate(names)
    )
    for k, name in enumerate(names):
        uuid = f' UUID="urn:uuid:{k}"' if root_uuid else ""
        xml = (
            '<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"'
            f'{uuid}><Image ID="Image:0"><Pixels ID="Pixels:0" Type="uint16"'
            f' DimensionOrder="XYZCT" SizeX="30" SizeY="20" SizeZ="{n_files}" SizeC="1" SizeT="1">'
            f'<Channel ID="Channel:0" SamplesPerPixel="1"/>{data}</Pixels></Image></OME>'
        )
        tifffile.imwrite(folder / name, planes[k], description=xml, metadata=None)
    return [folder / name for name in names]


@pytest.mark.parametrize("root_uuid", [True, False])
@pytest.mark.parametrize("first", [0, 2])
def test_ome_set_of_several_files(tmp_path: Path, first: int, root_uuid: bool) -> None:
    paths = write_ome_set(tmp_path, root_uuid=root_uuid)
    group = same_as_tifffile(paths[first])
    array = group.arrays["image"]
    assert array.dims == ("z", "y", "x")
    entries = array.manifests[0].take(np.arange(3))
    shown = [Path(entries.sources[number].url).name for number in entries.source]
    assert shown == [path.name for path in paths]
    assert all(source.size_bytes for source in entries.sources)


def test_reads_of_all_files_of_a_set_count(tmp_path: Path) -> None:
    paths = write_ome_set(tmp_path)
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(paths[0], alone)
    one = scan(str(alone / paths[0].name), on_unsupported="skip").report
    several = scan(str(paths[0])).report
    assert several.n_requests > 2 * one.n_requests
    assert 2 * one.n_bytes < several.n_bytes < 3 * (20 << 10)


def test_an_ome_set_of_many_files(tmp_path: Path) -> None:
    """More than are kept open at a time."""
    paths = write_ome_set(tmp_path, 80)
    array = scan(str(paths[40])).arrays["image"]
    expected = np.stack([tifffile.imread(path, is_ome=False) for path in paths])
    np.testing.assert_array_equal(read_slowly(array), expected)


@pytest.mark.parametrize("remote", [False, True])
def test_ome_set_with_a_file_missing_is_refused(tmp_path: Path, remote: bool) -> None:
    paths = write_ome_set(tmp_path)
    paths[1].unlink()
    with served(tmp_path) as site, pytest.raises(UnsupportedFeatureError) as caught:
        scan(f"{site.url}/{quote(paths[0].name)}" if remote else str(paths[0]))
    assert "not there: plane 1.ome.tif; on_unsupported='skip' leaves" in str(caught.value)


@pytest.mark.parametrize("harm", ["cut", "endless", "another format"])
def test_ome_set_with_a_broken_file_is_refused(tmp_path: Path, harm: str) -> None:
    paths = write_ome_set(tmp_path)
    content = bytearray(paths[1].read_bytes())
    start = int.from_bytes(content[4:8], "little")
    after = start + 2 + 12 * int.from_bytes(content[start : start + 2], "little")
    if harm == "cut":
        del content[start + 20 :]
    elif harm == "endless":
        content[after : after + 4] = content[4:8]
    else:
        content = bytearray(b"\x89HDF\r\n\x1a\n" + bytes(500))
    paths[1].write_bytes(content)
    with pytest.raises(SourceFormatError) as caught:
        scan(str(paths[0]))
    assert caught.value.place.source == str(paths[1])


@pytest.mark.parametrize("name", ["../plane 1.ome.tif", "/etc/hostname", "http://127.0.0.1/a.tif"])
def test_a_set_does_not_lead_out_of_its_folder(tmp_path: Path, name: str) -> None:
    (path, *_) = write_ome_set(tmp_path)
    with tifffile.TiffFile(path) as file:
        xml = file.pages[0].description.replace("plane 1.ome.tif", name)
        image = file.pages[0].asarray()
    tifffile.imwrite(path, image, description=xml, metadata=None)
    with pytest.raises(UnsupportedFeatureError, match="not there"):
        scan(str(path))


@contextmanager
def served(folder: Path) -> Iterator[Site]:
    """A folder over HTTP; paths are as clients write them."""
    files = {f"/{quote(path.name)}": path.read_bytes() for path in folder.iterdir()}
    with serving(Site(files)) as site:
        yield site


def test_remote_ome_set(tmp_path: Path) -> None:
    paths = write_ome_set(tmp_path)
    with served(tmp_path) as site:
        group = scan(f"{site.url}/{quote(paths[1].name)}")
        assert group.report.n_requests == len(site.requests)
        assert verify(group, all=True).ok
    array = group.arrays["image"]
    entries = array.manifests[0].take(np.arange(3))
    expected = [f"{site.url}/{quote(path.name)}" for path in paths]
    assert [entries.sources[number].url for number in entries.source] == expected


def test_a_set_with_a_forbidden_file_is_not_taken_for_incomplete(tmp_path: Path) -> None:
    paths = write_ome_set(tmp_path)
    with served(tmp_path) as site:
        site.forbidden.add(f"/{quote(paths[1].name)}")
        with pytest.raises(SourceUnavailableError, match="no permission") as caught:
            scan(f"{site.url}/{quote(paths[0].name)}")
    assert str(caught.value.place.source).endswith(quote(paths[1].name))


def test_companion_file(shared_data: Path) -> None:
    folder = shared_data / "ome_tiff/companion_multifile"
    planes = [tifffile.imread(folder / f"multifile-Z{k}.ome.tiff") for k in range(1, 6)]
    array = scan(folder / "multifile.companion.ome").arrays["image"]
    np.testing.assert_array_equal(read_slowly(array), np.stack(planes))
    with served(folder) as site:
        group = scan(f"{site.url}/multifile.companion.ome")
        np.testing.assert_array_equal(reader_for().read(group.arrays["image"]), np.stack(planes))
    assert group.report.n_bytes < 6 * (40 << 10)


def test_companion_file_whose_first_file_is_missing(shared_data: Path, tmp_path: Path) -> None:
    text = (shared_data / "ome_tiff/companion_multifile/multifile.companion.ome").read_text()
    (tmp_path / "a.companion.ome").write_text(text)
    with pytest.raises(SourceUnavailableError, match="first file of the set does not exist"):
        scan(tmp_path / "a.companion.ome")


def test_jpeg_tables_that_differ_between_pages(tmp_path: Path) -> None:
    path = tmp_path / "tables.tif"
    smooth = np.add.outer(np.arange(64), np.arange(64)).astype(np.uint8)
    with tifffile.TiffWriter(path) as writer:
        for _ in range(2):
            writer.write(smooth, compression="jpeg", tile=(32, 32), metadata=None)
    content = path.read_bytes()
    group = same_as_tifffile(path)
    array = group.arrays["image"]
    if array.encodings[0].prefix:
        assert not array.encodings[0].prefix.endswith(b"\xff\xd9")
        assert content.count(array.encodings[0].prefix[2:]) >= 1


def test_rgb_in_jpeg_streams_that_say_otherwise(tmp_path: Path) -> None:
    """The tag decides, as for libtiff; tifffile would convert from YCbCr."""
    path = tmp_path / "rgb.tif"
    smooth = np.add.outer(np.arange(64), np.arange(64)).astype(np.uint8)
    data = np.stack([smooth, 255 - smooth, smooth // 2], axis=-1)
    options: dict[str, Any] = {"compression": "jpeg", "tile": (32, 32), "subsampling": (1, 1)}
    tifffile.imwrite(path, data, photometric="rgb", **options)
    with tifffile.TiffFile(path, mode="r+") as file:
        assert file.pages[0].is_jfif
        file.pages[0].tags["PhotometricInterpretation"].overwrite(2)
    found = read_slowly(scan(str(path)).arrays["image"])
    with rasterio.open(path) as file:
        np.testing.assert_array_equal(np.moveaxis(found, -1, 0), file.read())
    assert (found != tifffile.imread(path)).any()


@pytest.mark.parametrize("whole", [True, False])
def test_old_style_jpeg_whose_only_strip_is_a_stream(tmp_path: Path, whole: bool) -> None:
    path = tmp_path / "thumbnail.tif"
    data = values(24, 32, 3, dtype="uint8")
    tags = [(code, 4, 1, 1, True) for code in (513, 514)]  # JPEGInterchangeFormat and its length
    options = {"photometric": "rgb", "compression": "jpeg", "metadata": None, "extratags": tags}
    tifffile.imwrite(path, data, **options)
    with tifffile.TiffFile(path, mode="r+b") as file:
        page = file.pages.first
        page.tags[513].overwrite(page.dataoffsets[0])
        page.tags[514].overwrite(page.databytecounts[0] - (not whole))
        page.tags["Compression"].overwrite(6)
    if whole:
        same_as_tifffile(path)
    else:
        with pytest.raises(UnsupportedFeatureError, match="compression 6"):
            scan(path)


@pytest.mark.parametrize(
    ("dtype", "nodata"),
    [("int16", -7), ("int16", 32767), ("int8", 127), ("float32", -3.4028234663852886e38)],
)
def test_sparse_tiles_read_as_nodata(tmp_path: Path, dtype: str, nodata: float) -> None:
    path = tmp_path / "sparse.tif"
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        width=64,
        height=64,
        count=1,
        dtype=dtype,
        nodata=nodata,
        crs="EPSG:32632",
        transform=rasterio.Affine(1, 0, 0, 0, -1, 0),
        tiled=True,
        blockxsize=16,
        blockysize=16,
        sparse_ok=True,
    ) as file:
        window = rasterio.windows.Window(16, 16, 16, 16)
        file.write(np.full((1, 16, 16), 3, dtype), window=window)
    group = scan(str(path))
    array = group.arrays["band_data"]
    with rasterio.open(path) as file:
        np.testing.assert_array_equal(read_slowly(array), file.read())
    assert int((array.manifests[0].take(np.arange(16)).state == 0).sum()) == 15
    assert verify(group, all=True).ok


def test_big_endian_integers_of_24_bits_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "24.tif"
    profile = {"driver": "GTiff", "count": 1, "height": 2, "width": 3, "dtype": "uint32"}
    values = np.arange(6, dtype="u4").reshape(1, 2, 3) + 0x10203
    for endianness in ("big", "little"):
        with rasterio.open(path, "w", nbits=24, endianness=endianness, **profile) as file:
            file.write(values)
        if endianness == "big":
            with pytest.raises(UnsupportedFeatureError, match="readers disagree"):
                scan(str(path))
    np.testing.assert_array_equal(read_slowly(scan(str(path)).arrays["image"]), values[0])


@pytest.mark.parametrize("interleave", ["pixel", "band"])
@pytest.mark.parametrize("bands", ["floats", "one mask", "grey and alpha"])
def test_masks_of_lerc_read_as_in_gdal(tmp_path: Path, bands: str, interleave: str) -> None:
    values = np.random.default_rng(0).normal(size=(3, 20, 30)).astype("f4")
    values[0, 5:9, 4:8] = np.nan
    values[1, 2:9, 3:8] = np.nan
    settings = {"interleave": interleave, "compress": "LERC_ZSTD"}
    if bands == "one mask":
        values[:] = values[1]
    elif bands == "grey and alpha":
        alpha = np.where(np.isnan(values[0]), 0, 255)
        values = np.stack([np.full_like(alpha, 7), alpha]).astype("u1")
        settings["alpha"] = "yes"
    path = tmp_path / "masked.tif"
    n_bands, height, width = values.shape
    profile = {"count": n_bands, "height": height, "width": width, "dtype": values.dtype.name}
    with rasterio.open(path, "w", driver="GTiff", **profile, **settings) as file:
        file.write(values)
    with rasterio.open(path) as file:
        expected = file.read()
    found = read_slowly(scan(str(path)).arrays["image"])
    np.testing.assert_array_equal(
        found if interleave == "band" else found.transpose(2, 0, 1), expected
    )


def test_large_uncompressed_images_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "large.tif"
    tifffile.imwrite(path, values(300, 400), metadata=None)
    array = scan(str(path), max_chunk_bytes=64 << 10).arrays["image"]
    assert array.encodings[0].chunk_shape == (81, 400)
    np.testing.assert_array_equal(read_slowly(array), tifffile.imread(path))


def opened(group: VirtualGroup, path: str | None = None) -> xr.Dataset:
    return xr.open_dataset(
        open_store(group), engine="zarr", group=path, consolidated=False, mask_and_scale=False
    )


def agrees(dataset: xr.Dataset, file: Any) -> None:
    assert dataset.band_data.rio.crs == file.crs
    assert tuple(dataset.band_data.rio.transform()) == tuple(file.transform)
    if "x" not in dataset and "x_1" not in dataset and "x_2" not in dataset:
        return
    np.testing.assert_allclose(
        sorted(dataset.band_data.rio.bounds()), sorted(file.bounds), rtol=1e-9
    )


@pytest.mark.parametrize("point", ["Area", "Point"])
@pytest.mark.parametrize(
    "six",
    [(8.5, 3.25, 4e5, 3.25, -8.5, 5e6), (10, 0.5, 4e5, 0, -10, 5e6), (10, 0, 4e5, 0, 10, 5e6)],
    ids=["rotated", "sheared", "south up"],
)
def test_transforms_of_all_kinds(tmp_path: Path, six: tuple[float, ...], point: str) -> None:
    """At each resolution, and through a catalog."""
    path = tmp_path / "place.tif"
    profile = {"driver": "GTiff", "width": 96, "height": 64, "count": 1, "dtype": "uint8"}
    place = rasterio.Affine(*six)
    with rasterio.open(path, "w", crs="EPSG:32632", transform=place, **profile) as file:
        file.update_tags(AREA_OR_POINT=point)
        file.write(np.arange(64 * 96, dtype=np.uint8).reshape(1, 64, 96))
        file.build_overviews([2, 4])
    group = scan(str(path))
    for level in range(3):
        options = {"overview_level": level - 1} if level else {}
        with rasterio.open(path, **options) as file:
            dataset = opened(group, f"overview_{level}" if level else None)
            np.testing.assert_allclose(
                tuple(dataset.rio.transform()), tuple(file.transform), rtol=1e-14
            )
            assert dataset.rio.crs == file.crs
            assert ("x" in group.arrays) == (six[1] == six[3] == 0)
    assert group.arrays["band_data"].attrs["AREA_OR_POINT"] == point


def test_scale_offset_units_and_names(tmp_path: Path) -> None:
    path = tmp_path / "packed.tif"
    profile = {"driver": "GTiff", "width": 8, "height": 4, "dtype": "int16", "nodata": -9}
    transform = rasterio.transform.from_origin(5, 50, 0.5, 0.25)
    with rasterio.open(path, "w", count=2, crs="EPSG:4326", transform=transform, **profile) as file:
        file.write(np.arange(64, dtype=np.int16).reshape(2, 4, 8))
        file.scales, file.offsets, file.units = (0.1, 0.1), (2.0, 2.0), ("K", "K")
        file.descriptions = ("skin", "air")
    array = scan(str(path)).arrays["band_data"]
    assert array.attrs["scale_factor"] == 0.1
    assert array.attrs["add_offset"] == 2.0
    assert list(array.attrs["long_name"]) == ["skin", "air"]
    assert array.attrs["_FillValue"] == np.int16(-9)
    decoded = xr.open_dataset(open_store(scan(str(path))), engine="zarr", consolidated=False)
    np.testing.assert_allclose(decoded.band_data.values[1, 0, 0], 32 * 0.1 + 2.0, rtol=1e-6)
    assert decoded.x.attrs["standard_name"] == "longitude"


def test_scale_and_offset_without_a_georeference(tmp_path: Path) -> None:
    path = tmp_path / "packed.tif"
    profile = {"driver": "GTiff", "width": 8, "height": 4, "dtype": "int16", "nodata": -9}
    with rasterio.open(path, "w", count=1, **profile) as file:
        file.write(np.arange(32, dtype=np.int16).reshape(1, 4, 8))
        file.scales, file.offsets, file.units, file.descriptions = (0.1,), (2.0,), ("K",), ("skin",)
    attrs = scan(str(path)).arrays["image"].attrs
    named = ("scale_factor", "add_offset", "units", "long_name", "_FillValue")
    assert [attrs[name] for name in named] == [0.1, 2.0, "K", "skin", -9]


def test_each_image_of_a_file_has_its_own_nodata(tmp_path: Path) -> None:
    path = tmp_path / "several.tif"
    with tifffile.TiffWriter(path) as file:
        for length, text in ((4, "-9999"), (6, None), (8, "7")):
            tags = [] if text is None else [(42113, 2, 0, text, True)]
            file.write(np.ones((length, 5), "f4"), extratags=tags, metadata=None)
    arrays = scan(str(path)).all_arrays()
    found = [arrays[f"series_{number}/image"].attrs.get("_FillValue") for number in range(3)]
    assert found == [-9999, None, 7]
    for number, nodata in enumerate(found, 1):
        with rasterio.open(f"GTIFF_DIR:{number}:{path}") as file:
            assert file.nodata == nodata


def test_internal_mask_lies_beside_its_image(tmp_path: Path) -> None:
    path = tmp_path / "masked.tif"
    profile = {"driver": "GTiff", "width": 64, "height": 32, "count": 1, "dtype": "uint8"}
    values = np.arange(2048, dtype=np.uint8).reshape(1, 32, 64)
    mask = values[0] % 3 == 0
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
        rasterio.open(
            path, "w", crs="EPSG:32632", transform=rasterio.Affine(1, 0, 0, 0, -1, 0), **profile
        ) as file,
    ):
        file.write(values)
        file.write_mask(mask)
    group = scan(str(path))
    np.testing.assert_array_equal(read_slowly(group.arrays["band_data"]), values)
    np.testing.assert_array_equal(read_slowly(group.arrays["mask"]), mask)


@pytest.mark.parametrize("crs", ["EPSG:3031", "EPSG:2154", "EPSG:27700", "+proj=sinu +R=6371007"])
@pytest.mark.parametrize("spelled_out", [False, True])
def test_reference_systems(tmp_path: Path, crs: str, spelled_out: bool) -> None:
    """As a code, and as keys that spell the system out."""
    path = tmp_path / "crs.tif"
    wanted = rasterio.crs.CRS.from_user_input(crs)
    if spelled_out:
        wanted = rasterio.crs.CRS.from_proj4(wanted.to_proj4())
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        width=2,
        height=2,
        count=1,
        dtype="uint8",
        crs=wanted,
        transform=rasterio.Affine(10, 0, 100, 0, -10, 200),
    ) as file:
        file.write(np.ones((1, 2, 2), np.uint8))
    found = opened(scan(str(path))).rio.crs
    with rasterio.open(path) as file:
        assert found.to_dict() == file.crs.to_dict() or found == file.crs


@pytest.mark.parametrize(
    ("crs", "flavor"),
    [
        ("+proj=geos +lon_0=0 +h=35785831 +ellps=WGS84", "STANDARD"),  # a method without a code
        ("+proj=lcc +lat_1=33 +lat_2=45 +lat_0=39 +lon_0=-96 +R=6370000", "ESRI_PE"),
        ("EPSG:2154", "ESRI_PE"),
        ("+proj=longlat +ellps=clrk80ign +pm=paris", "STANDARD"),
        ("+proj=eqc +lat_ts=30 +lat_0=10 +lon_0=10 +ellps=WGS84", "STANDARD"),
    ],
)
def test_rare_reference_systems(tmp_path: Path, crs: str, flavor: str) -> None:
    path = tmp_path / "crs.tif"
    profile = {"driver": "GTiff", "width": 2, "height": 2, "count": 1, "dtype": "uint8"}
    place = rasterio.Affine(10, 0, 100, 0, -10, 200)
    with rasterio.open(
        path, "w", crs=crs, transform=place, geotiff_keys_flavor=flavor, **profile
    ) as file:
        file.write(np.ones((1, 2, 2), np.uint8))
    wanted = pyproj.CRS(crs)
    found = pyproj.CRS(scan(str(path)).arrays["spatial_ref"].attrs["crs_wkt"])
    assert found.is_geographic == wanted.is_geographic
    greenwich = pyproj.CRS(f"+proj=longlat +R={wanted.ellipsoid.semi_major_metre}")
    places = [
        pyproj.Transformer.from_crs(each, greenwich, always_xy=True).transform(1e2, 2e1)
        for each in (found, wanted)
    ]
    np.testing.assert_allclose(*places, rtol=0, atol=1e-7)


@pytest.mark.parametrize(("crs", "unit"), [("EPSG:4807", "grad"), ("EPSG:4326", "degrees_east")])
def test_units_of_geographic_axes(tmp_path: Path, crs: str, unit: str) -> None:
    path = tmp_path / "axes.tif"
    profile = {"driver": "GTiff", "width": 2, "height": 2, "count": 1, "dtype": "uint8"}
    place = rasterio.Affine(0.1, 0, 1, 0, -0.1, 2)
    with rasterio.open(path, "w", crs=crs, transform=place, **profile) as file:
        file.write(np.ones((1, 2, 2), np.uint8))
    array = scan(str(path)).arrays["x"]
    assert array.attrs["units"] == unit
    assert array.attrs["standard_name"] == "longitude"


def test_a_system_of_no_known_kind_is_not_geographic(tmp_path: Path) -> None:
    path = tmp_path / "local.tif"
    keys = (1, 1, 0, 3, 1024, 0, 1, 32767, 2048, 0, 1, 4326, 3076, 0, 1, 9001)
    tags = [
        (33550, 12, 3, (10.0, 10.0, 0.0), True),
        (33922, 12, 6, (0.0, 0.0, 0.0, 5e5, 5e6, 0.0), True),
        (34735, 3, len(keys), keys, True),
    ]
    tifffile.imwrite(path, np.zeros((3, 4), "u1"), metadata=None, extratags=tags)
    with rasterio.open(path) as file:
        assert file.crs.to_wkt().startswith("LOCAL_CS")
    group = scan(str(path))
    assert "crs_wkt" not in group.arrays["spatial_ref"].attrs
    assert "degrees" not in str(group.arrays["x"].attrs)
    assert any("not understood" in finding.reason for finding in group.report)


ASSET = re.compile(r"^(?!/)(?!.*\.\.)[^/]+(/[^/]+)*$")


def check_ome(image: dict[str, Any], group: zarr.Group) -> None:
    """What OME-NGFF 0.5, "multiscales" and "axes", says with MUST."""
    axes = image["axes"]
    kinds = [axis.get("type") for axis in axes]
    names = [axis["name"] for axis in axes]
    n_space = kinds.count("space")
    others = kinds[: len(kinds) - n_space]
    assert 2 <= len(axes) <= 5
    assert len(set(names)) == len(names)
    assert n_space in (2, 3)
    assert kinds[-n_space:] == ["space"] * n_space
    assert others.count("time") <= 1
    assert len(others) - others.count("time") <= 1
    assert "time" not in others[1:]
    sizes = []
    for level in image["datasets"]:
        array = group[level["path"]]
        assert isinstance(array, zarr.Array)
        assert list(array.metadata.dimension_names or ()) == names
        sizes.append(array.shape)
        (step, *further) = level["coordinateTransformations"]
        assert step["type"] == "scale"
        assert len(step["scale"]) == len(axes)
        assert not further
    assert sizes == sorted(sizes, reverse=True)


def check_layout(attrs: dict[str, Any], group: zarr.Group) -> None:
    """What the convention's schema wants."""
    (convention,) = (c for c in attrs["zarr_conventions"] if c["name"] == "multiscales")
    assert convention["uuid"] == "d35379db-88df-4056-af3a-620245f8e347"
    layout = attrs["multiscales"]["layout"]
    assert layout
    for entry in layout:
        assert ASSET.match(entry["asset"])
        array = group[entry["asset"]]
        assert isinstance(array, zarr.Array)
        source = group[entry.get("derived_from", entry["asset"])]
        assert isinstance(source, zarr.Array)
        ratio = np.array(source.shape) / np.array(array.shape)
        np.testing.assert_allclose(entry["transform"]["scale"], ratio)


def check_tree(group: VirtualGroup) -> int:
    """Check all descriptions of pyramids, and that xarray opens the tree; their number."""
    root = zarr.open_group(open_store(group), mode="r")
    n_checked = 0
    for path, node in group.walk():
        here = root[path] if path else root
        assert isinstance(here, zarr.Group)
        attrs = dict(here.attrs)
        if "ome" in node.attrs:
            assert attrs["ome"]["version"] == "0.5"
            for image in attrs["ome"]["multiscales"]:
                check_ome(image, here)
                n_checked += 1
        if "multiscales" in node.attrs:
            check_layout(attrs, here)
            n_checked += 1
    if n_checked:
        tree = xr.open_datatree(open_store(group), engine="zarr", consolidated=False)
        for path, array in group.all_arrays().items():
            assert tree[path].shape == array.shape
    return n_checked


@pytest.mark.parametrize(("suffix", "n_images"), [(".svs", 1), (".ndpi", 2)])
def test_slides(tmp_path: Path, suffix: str, n_images: int) -> None:
    path = tmp_path / f"slide{suffix}"
    image = np.random.default_rng(1).integers(0, 255, (200, 512, 3), np.uint8)
    (write_svs if suffix == ".svs" else write_ndpi)(path, image)
    assert check_tree(scan(str(path))) == n_images


@pytest.mark.parametrize("axes", ["TCZYX", "CYX", "TYX", "ZYXS", "TYXS", "YX"])
def test_ome_tiff_pyramids(tmp_path: Path, axes: str) -> None:
    path = tmp_path / "pyramid.ome.tif"
    lengths = {"T": 2, "C": 2, "Z": 3, "Y": 96, "X": 128, "S": 3}
    data = np.zeros([lengths[axis] for axis in axes], np.uint8)
    rgb = {"photometric": "rgb"} if "S" in axes else {"photometric": "minisblack"}
    step = (..., slice(None, None, 2), slice(None, None, 2), *[slice(None)] * ("S" in axes))
    options: dict[str, Any] = {"tile": (32, 32), **rgb}
    with tifffile.TiffWriter(path, ome=True) as writer:
        writer.write(data, subifds=1, metadata={"axes": axes}, **options)
        writer.write(np.ascontiguousarray(data[step]), subfiletype=1, **options)
    assert check_tree(scan(str(path))) == 1


@pytest.mark.parametrize(
    "dims",
    [("c", "t", "y", "x"), ("c", "sample", "y", "x"), ("y", "x", "sample"), ("t", "q", "c", "y")],
)
def test_what_ome_zarr_does_not_know_is_not_described(dims: tuple[str, ...]) -> None:
    assert image_attributes("", ["0/image"], [(4,) * len(dims)], dims, {}) is None


GRID = {"crs": "EPSG:32632", "transform": rasterio.Affine(20, 0, 600000, 0, -20, 5000040)}


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Each test begins without files that were seen before."""
    FORMS.clear()
    yield
    FORMS.clear()


def values_of(seed: int, bands: int = 1, *, empty_tiles: bool = False) -> Any:
    values = np.random.default_rng(seed).integers(1, 200, (bands, 300, 350)).astype("u2")
    if empty_tiles:
        values[:, 128 * (seed % 2) : 128 * (seed % 2) + 128] = 0
    return values


def write(path: Path, values: Any, **options: Any) -> Path:
    settings = {"driver": "COG", "compress": "deflate", "blocksize": 128, "nodata": 0, **GRID}
    settings.update(options)
    masked = settings.pop("masked", False)
    count, height, width = values.shape
    with rasterio.open(
        path, "w", count=count, height=height, width=width, dtype=values.dtype, **settings
    ) as file:
        file.write(values)
        if masked:
            file.write_mask(values[0] > 100)
    return path


def described(group: VirtualGroup) -> Any:
    """All that a group says of a file, without its name."""
    return [
        (path, array.dims, array.shape, str(array.dtype), array.encodings, str(array.attrs),
         [[column.tolist() for column in (rows.offset, rows.length, rows.state, rows.source)]
          + [[source.size_bytes for source in rows.sources], rows.inline]
          for rows in array.manifests])
        for path, array in group.all_arrays().items()
    ], str(group.attrs), [finding._replace(source="") for finding in group.report]  # fmt: skip


def scanned_alone(path: Path) -> Any:
    FORMS.clear()
    return described(gridref.scan(path))


KINDS: dict[str, dict[str, Any]] = {
    "deflate": {},
    "LZW, predictor": {"compress": "lzw", "predictor": 2},
    "sparse": {"sparse_ok": True},
    "several bands": {"bands": 3},
    "bands apart": {"bands": 3, "driver": "GTiff", "tiled": True, "interleave": "band"},
    "strips": {"driver": "GTiff"},
    "BigTIFF": {"bigtiff": "yes"},
    "one tile": {"driver": "GTiff", "tiled": True, "blockxsize": 352, "blockysize": 352},
    "big-endian": {"driver": "GTiff", "endianness": "big"},
    "JPEG": {"compress": "jpeg", "dtype": "u1", "bands": 3, "nodata": None},
    "mask": {"masked": True, "nodata": None},
    "no georeference": {"driver": "GTiff", "crs": None, "transform": None},
}


@pytest.mark.parametrize("kind", KINDS)
def test_siblings_are_described_by_the_first(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = dict(KINDS[kind])
    bands, dtype = options.pop("bands", 1), options.pop("dtype", "u2")
    paths, alone = [], []
    for seed in range(3):
        values = values_of(seed, bands, empty_tiles=kind == "sparse").astype(dtype)
        paths.append(write(tmp_path / f"{seed}.tif", values, **options))
        alone.append(scanned_alone(paths[-1]))
    assert len({str(each) for each in alone}) == 3
    FORMS.clear()
    first = gridref.scan(paths[0])
    monkeypatch.setattr(structure, "read_plain_structure", None)  # nobody else reads their tags
    found = [described(first), *(described(gridref.scan(path)) for path in paths[1:])]
    assert found == alone
    name = "image" if kind == "no georeference" else "band_data"
    for path in paths:
        with rasterio.open(path) as file:
            np.testing.assert_array_equal(
                gridref.scan(path)[name][...].reshape(file.count, 300, 350), file.read()
            )


@pytest.mark.parametrize(
    "other",
    [
        {"transform": rasterio.Affine(20, 0, 600020, 0, -20, 5000040)},
        {"crs": "EPSG:32633"},
        {"nodata": 1},
        {"blocksize": 256},
        {"compress": "lzw"},
    ],
    ids=["place", "crs", "nodata", "blocks", "compression"],
)
def test_what_differs_in_more_is_no_sibling(other: dict[str, Any], tmp_path: Path) -> None:
    values = values_of(0)
    one = write(tmp_path / "one.tif", values)
    two = write(tmp_path / "two.tif", values, **other)
    alone = scanned_alone(two)
    FORMS.clear()
    assert described(gridref.scan(one)) != alone
    assert described(gridref.scan(two)) == alone


def test_uncompressed_images_show_where_they_lie_in_more_than_offsets(tmp_path: Path) -> None:
    """One run of elements is split into chunks of its own."""
    paths = [
        write(tmp_path / f"{seed}.tif", values_of(seed), driver="GTiff", compress=None)
        for seed in range(2)
    ]
    alone = [scanned_alone(path) for path in paths]
    FORMS.clear()
    assert [described(gridref.scan(path)) for path in paths] == alone


def test_a_damaged_sibling_is_refused_as_if_it_were_alone(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{seed}.tif", values_of(seed)) for seed in range(2)]
    data = paths[1].read_bytes()
    paths[1].write_bytes(data[: len(data) // 2])
    for _ in range(2):
        with pytest.raises(SourceFormatError, match=r"lie behind the end of the file.*1\.tif"):
            gridref.scan(paths[1])
        gridref.scan(paths[0])


def planes(*shape: int, dtype: str) -> NDArray[Any]:
    return np.random.default_rng(3).integers(0, 250, shape).astype(dtype)


def slide() -> NDArray[np.uint8]:
    """Blocks of colour whose edges lie inside of tiles."""
    colours = np.random.default_rng(4).integers(0, 255, (20, 43, 3), np.uint8)
    return np.repeat(np.repeat(colours, 10, axis=0), 12, axis=1)[:, :512]


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("n_channels", [1, 2, 3])
@pytest.mark.parametrize("compression", [1, 5])
def test_lsm(tmp_path: Path, dtype: str, n_channels: int, compression: int) -> None:
    path = tmp_path / "stack.lsm"
    data = planes(2, 3, n_channels, 20, 30, dtype=dtype)
    thumbnails = write_lsm(path, data, scan_type=6, compression=compression)
    group = same_as_tifffile(path)
    image = group.groups["series_0"].arrays["image"]
    shown = data if n_channels > 1 else data[:, :, 0]
    assert image.dims == (("t", "z", "c", "y", "x") if n_channels > 1 else ("t", "z", "y", "x"))
    np.testing.assert_array_equal(read_slowly(image), shown)
    reduced = group.groups["series_1"].arrays["image"]
    assert reduced.dims == ("t", "z", "sample", "y", "x")
    np.testing.assert_array_equal(read_slowly(reduced), thumbnails)
    if n_channels > 1:
        assert image.attrs["channel_names"] == [f"Ch{n + 1}" for n in range(n_channels)]
    np.testing.assert_allclose(
        read_slowly(group.groups["series_0"].arrays["x"]), 0.2 * (np.arange(30) + 0.5)
    )


@pytest.mark.parametrize(
    ("scan_type", "shape", "dims"),
    [(0, (1, 4, 1, 20, 30), ("z", "y", "x")), (3, (4, 1, 2, 20, 30), ("t", "c", "y", "x"))],
)
def test_lsm_of_fewer_dimensions(
    tmp_path: Path, scan_type: int, shape: tuple[int, ...], dims: tuple[str, ...]
) -> None:
    path = tmp_path / "stack.lsm"
    data = planes(*shape, dtype="uint8")
    write_lsm(path, data, scan_type=scan_type)
    image = same_as_tifffile(path).groups["series_0"].arrays["image"]
    assert image.dims == dims
    np.testing.assert_array_equal(read_slowly(image), data.squeeze())


@pytest.mark.parametrize("compression", [1, 5])
@pytest.mark.parametrize("n_channels", [1, 2])
def test_lsm_of_more_than_4_gib(tmp_path: Path, n_channels: int, compression: int) -> None:
    """Offsets of 32 bits start again from 0 there."""
    path = tmp_path / "large.lsm"
    data = planes(2, 3, n_channels, 20, 30, dtype="uint16")
    thumbnails = write_lsm(path, data, scan_type=6, compression=compression, beyond=True)
    group = scan(str(path))
    shown = data if n_channels > 1 else data[:, :, 0]
    image, reduced = (group.groups[f"series_{n}"].arrays["image"] for n in range(2))
    np.testing.assert_array_equal(read_slowly(image), shown)
    np.testing.assert_array_equal(read_slowly(reduced), thumbnails)
    assert int(image.manifests[0].take(np.arange(6)).offset.max()) > 1 << 32
    assert group.report.n_bytes < 64 << 10


@pytest.mark.parametrize(
    ("compression", "photometric"),
    [
        ("jpeg", "rgb"),
        ("jpeg", "ycbcr"),
        ("APERIO_JP2000_RGB", "rgb"),
        ("APERIO_JP2000_YCBC", "rgb"),
    ],
)
def test_svs(tmp_path: Path, compression: str, photometric: str) -> None:
    path = tmp_path / "slide.svs"
    write_svs(path, slide(), compression=compression, photometric=photometric)
    group = same_as_tifffile(path)
    pyramid = group.groups["series_0"]
    assert list(pyramid.groups) == ["0", "1", "2"]
    names = [group.groups[f"series_{n}"].arrays["image"].attrs["long_name"] for n in range(1, 4)]
    assert names == ["Thumbnail", "Label", "Macro"]
    (entry,) = pyramid.attrs["ome"]["multiscales"]
    assert entry["axes"][0] == {"name": "sample", "type": "channel"}
    scales = [level["coordinateTransformations"][0]["scale"][1] for level in entry["datasets"]]
    np.testing.assert_allclose(scales, [0.499, 0.998, 1.996])
    assert "Date = 12/29/09" in group.attrs["TIFFTAG_IMAGEDESCRIPTION"]
    tree = xr.open_datatree(open_store(group), engine="zarr", consolidated=False)
    assert tree["series_0/2/image"].sizes == {"sample": 3, "y": 50, "x": 128}


def test_svs_by_date(tmp_path: Path) -> None:
    """A stack by what a scanner writes into its description."""
    for number in range(2):
        write_svs(tmp_path / f"slide_{number}.svs", slide())
    content = (tmp_path / "slide_0.svs").read_bytes()
    (tmp_path / "slide_0.svs").write_bytes(content.replace(b"12/29/09", b"12/30/09"))
    group = gridref.build(
        str(tmp_path / "*.svs"),
        tmp_path / "slides.gridref",
        layout=gridref.Stack(
            "time", gridref.Labels("Date = {time:%m/%d/%y}", of="TIFFTAG_IMAGEDESCRIPTION")
        ),
    )
    days = read_slowly(group.arrays["time"]).astype("datetime64[s]").astype("datetime64[D]")
    assert days.astype(str).tolist() == ["2009-12-29", "2009-12-30"]
    assert group.groups["series_0"].groups["0"].arrays["image"].shape == (2, 3, 200, 512)


@pytest.mark.parametrize("subsampling", [(1, 1), (2, 1), (2, 2)])
def test_ndpi(tmp_path: Path, subsampling: tuple[int, int]) -> None:
    """Each restart interval is a tile."""
    path = tmp_path / "slide.ndpi"
    write_ndpi(path, slide(), subsampling=subsampling)
    group = same_as_tifffile(path, by_tiles=True)
    if subsampling == (1, 1):
        same_as_tifffile(path)
    pyramid = group.groups["series_0"]
    images = [pyramid.groups[str(n)].arrays["image"] for n in range(3)]
    assert [image.shape[1:] for image in images] == [(200, 512), (100, 256), (50, 128)]
    assert {image.encodings[0].chunk_shape for image in images} == {(3, 8 * subsampling[1], 64)}
    names = [group.groups[f"series_{n}"].arrays["image"].attrs["long_name"] for n in (1, 2)]
    assert names == ["Macro", "Map"]
    assert gridref.verify(group, all=True).ok


def test_chroma_of_ndpi_tiles_is_smoothed_inside_of_them_only(tmp_path: Path) -> None:
    """Decoding the stream in one piece, as tifffile does where it can, mixes neighbours."""
    path = tmp_path / "slide.ndpi"
    write_ndpi(path, slide(), subsampling=(2, 1))
    image = scan(str(path)).groups["series_0"].groups["0"].arrays["image"]
    with tifffile.TiffFile(path) as file:
        whole = file.series[0].levels[0].asarray()
    differing = np.flatnonzero((read_slowly(image) != np.moveaxis(whole, -1, 0)).any(axis=(0, 1)))
    assert differing.size
    assert set(differing % 64) <= {0, 63}


def test_ndpi_without_starts_of_intervals(tmp_path: Path) -> None:
    path = tmp_path / "slide.ndpi"
    write_ndpi(path, slide(), subsampling=(2, 2), with_starts=False)
    image = same_as_tifffile(path).groups["series_0"].groups["0"].arrays["image"]
    assert image.encodings[0].chunk_shape == (3, 200, 512)


def test_ndpi_under_another_name(tmp_path: Path) -> None:
    """Below 4 GiB the high halves of offsets are not needed."""
    path = tmp_path / "slide.tif"
    write_ndpi(path, slide())
    same_as_tifffile(path)


def test_ndpi_of_more_than_4_gib(tmp_path: Path) -> None:
    path = tmp_path / "large.ndpi"
    write_ndpi(path, slide(), beyond=True)
    group = same_as_tifffile(path)
    image = group.groups["series_0"].groups["0"].arrays["image"]
    small = tmp_path / "small.ndpi"
    write_ndpi(small, slide())
    expected = scan(str(small)).groups["series_0"].groups["0"].arrays["image"]
    np.testing.assert_array_equal(read_slowly(image), read_slowly(expected))
    assert int(image.manifests[0].take(np.arange(8)).offset.min()) > 1 << 32
    assert group.report.n_bytes < 64 << 10


def test_remote_ndpi(tmp_path: Path) -> None:
    """The name tells the format, also in front of a query."""
    path = tmp_path / "slide.ndpi"
    write_ndpi(path, slide())
    with serving(Site({"/slide.ndpi": path.read_bytes()})) as site:
        group = scan(f"{site.url}/slide.ndpi?signature=a.b")
        assert gridref.verify(group, all=True).ok
    assert group.groups["series_0"].groups["0"].arrays["image"].encodings[0].chunk_shape[1] == 8


def test_a_jpeg_strip_larger_than_jpeg_allows(tmp_path: Path) -> None:
    path = tmp_path / "huge.ndpi"
    write_ndpi(path, slide(), with_starts=False)
    with tifffile.TiffFile(path, mode="r+") as file:
        for tag, length in (("ImageWidth", 70000), ("ImageLength", 90000), ("RowsPerStrip", 90000)):
            file.pages[0].tags[tag].overwrite(length)
    with pytest.raises(UnsupportedFeatureError, match="90000 by 70000 pixels, more than one"):
        scan(str(path))


def test_restart_intervals_are_real() -> None:
    """The builder's stream is one that a decoder takes as a whole."""
    import imagecodecs

    image = np.add.outer(np.arange(40), np.arange(128)).astype(np.uint8)
    rgb = np.stack([image, 255 - image, image // 2], axis=-1)
    decoded = imagecodecs.jpeg8_decode(restart_jpeg(rgb, 64).stream)
    assert np.abs(decoded.astype(int) - rgb).max() < 12
