"""JPEG 2000 files and Sentinel-2 products: everything that rasterio reads in them, or a refusal."""

from __future__ import annotations

import struct
import warnings
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import rasterio
import rioxarray
import xarray as xr
import zarr
from rasterio.errors import NotGeoreferencedWarning, RasterioError
from rasterio.transform import Affine, from_origin

import gridref
from gridref.codecs import decode_chunk
from gridref.errors import (
    CombineError,
    DecodeError,
    GridrefError,
    ScanError,
    SourceFormatError,
    UnsupportedFeatureError,
)
from gridref.model.array import VirtualGroup
from gridref.model.scan_report import Fate
from tests.cold_scans import described_group
from tests.http_server import Site, serving
from tests.jp2_files import (
    BANDS_1C,
    BANDS_2A,
    codestream_of,
    image_of,
    read_jp2,
    tile_parts,
    with_parts,
    write_jp2,
    write_product,
)
from tests.shared_data import shared_files

UTM = {"crs": "EPSG:32631", "transform": from_origin(600_000, 4_900_020, 10, 10)}
DIFFER = "components differ in type"
SIGNED_BYTES = "j2k32.j2k"
"""Its elements are signed bytes, which GDAL shows as unsigned ones."""
WITHOUT_BROKEN_TILE = "issue390.jp2"
"""GDAL reads it, with zeros for a tile that OpenJPEG refuses."""


def assert_as_in_rasterio(path: Path, group: VirtualGroup) -> None:
    """Compare the image and its overviews; GDAL lists fewer overviews of odd sizes."""
    np.testing.assert_array_equal(group["band_data"][...], read_jp2(path))
    assert group["band_data"].dtype == read_jp2(path).dtype
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path) as file:
            n_overviews = len(file.overviews(1))
    assert n_overviews <= len(group.groups)
    for number in range(n_overviews):
        own = group[f"overview_{number + 1}/band_data"][...]
        np.testing.assert_array_equal(own, read_jp2(path, overview_level=number))


@pytest.mark.parametrize("path", shared_files("formats/jp2/*"))
def test_real_files(path: Path) -> None:
    try:
        expected = read_jp2(path)
    except RasterioError:
        expected = None
    try:
        group = gridref.scan(path)
        values = group["band_data"][...]
    except (ScanError, DecodeError) as error:
        known = DIFFER in error.reason or path.name.endswith(WITHOUT_BROKEN_TILE)
        assert expected is None or known
        return
    if path.name.endswith(SIGNED_BYTES):
        decoded = imagecodecs.jpeg2k_decode(path.read_bytes(), planar=True)
        np.testing.assert_array_equal(values, decoded)
    elif expected is None:
        data = path.read_bytes()
        decoded = imagecodecs.jpeg2k_decode(data[codestream_of(data) :], planar=True)
        np.testing.assert_array_equal(values, decoded)
    else:
        assert_as_in_rasterio(path, group)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "lossy": {"REVERSIBLE": "NO", "QUALITY": "30"},
    "one tile": {"tile": 256},
    "lengths of tile-parts": {"TLM": "YES"},
    "several tile-parts a tile": {"TILEPARTS": "RESOLUTIONS", "TLM": "YES"},
    "precincts": {"PRECINCTS": "{32,32},{16,16}", "PROGRESSION": "RPCL", "SOP": "YES"},
    "layers": {"QUALITY": "20,50,100", "PLT": "YES", "EPH": "YES", "PROGRESSION": "RLCP"},
    "components apart": {"YCC": "NO", "PROGRESSION": "CPRL"},
    "codestream": {"CODEC": "J2K"},
    "odd tiles": {"tile": 61},
    "many resolutions": {"RESOLUTIONS": 6},
}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("dtype", ["u1", "i2", "u2"])
def test_every_way_of_storing(tmp_path: Path, option: str, dtype: str) -> None:
    image = image_of((3, 151, 200), dtype)
    path = write_jp2(tmp_path / "a.jp2", image, **OPTIONS[option])
    group = gridref.scan(path)
    assert_as_in_rasterio(path, group)
    n_tiles = {"one tile": 1, "odd tiles": 12}.get(option, 12)
    (manifest,) = group["band_data"].manifests
    assert manifest.n_rows == n_tiles
    part = group["band_data"][1:, 50:140, 3:199:7]
    np.testing.assert_array_equal(part, read_jp2(path)[1:, 50:140, 3:199:7])


@pytest.mark.parametrize("bits", [1, 5, 12])
def test_elements_of_some_bits(tmp_path: Path, bits: int) -> None:
    image = image_of((1, 70, 90), "u1" if bits <= 8 else "u2") % 2**bits
    path = write_jp2(tmp_path / "a.jp2", image, NBITS=bits)
    assert_as_in_rasterio(path, gridref.scan(path))


def test_tile_parts_apart_from_each_other_are_one_chunk(tmp_path: Path) -> None:
    path = write_jp2(tmp_path / "a.jp2", image_of((2, 151, 200)), TILEPARTS="RESOLUTIONS")
    data = path.read_bytes()
    parts = tile_parts(data)
    by_resolution = sorted(range(len(parts)), key=lambda n: (n % 3, n))
    path.write_bytes(with_parts(data, by_resolution))
    group = gridref.scan(path)
    (manifest,) = group["band_data"].manifests
    assert manifest.n_rows == 1
    assert_as_in_rasterio(path, group)


def test_tiles_in_another_order(tmp_path: Path) -> None:
    path = write_jp2(tmp_path / "a.jp2", image_of((2, 151, 200)))
    data = path.read_bytes()
    path.write_bytes(with_parts(data, [5, 0, 11, *range(1, 5), *range(6, 11)]))
    group = gridref.scan(path)
    assert group["band_data"].manifests[0].n_rows == 12
    assert_as_in_rasterio(path, group)


def test_the_palette_is_beside_the_numbers(shared_data: Path) -> None:
    path = shared_data / "formats/jp2/uclouvain__openjpeg-data__issue104_jpxstream.jp2"
    group = gridref.scan(path)
    with rasterio.open(path) as file:
        expected = [colour[:3] for _, colour in sorted(file.colormap(1).items())]
    assert group["color_map"].dims == ("rgb", "color")
    np.testing.assert_array_equal(group["color_map"][...].T[: len(expected)], expected)


# ---- places -------------------------------------------------------------------------------
PLACES: dict[str, dict[str, Any]] = {
    "UTM": UTM,
    "degrees": {"crs": "EPSG:4326", "transform": from_origin(5, 50, 0.25, 0.5)},
    "northing first": {"crs": "EPSG:3035", "transform": from_origin(4e6, 3e6, 30, 30)},
    "rotated": {"crs": "EPSG:32631", "transform": Affine(10, 2, 600_000, 2, -10, 4_900_020)},
}


@pytest.mark.parametrize("boxes", ["GeoJP2", "GMLJP2"])
@pytest.mark.parametrize("behind", ["NO", "YES"])
@pytest.mark.parametrize("place", PLACES)
def test_places(tmp_path: Path, place: str, boxes: str, behind: str) -> None:
    only = {"GeoJP2": "NO", "GMLJP2": "NO"} | {boxes: "YES"}
    image = image_of((2, 151, 200))
    path = write_jp2(tmp_path / "a.jp2", image, GEOBOXES_AFTER_JP2C=behind, **only, **PLACES[place])
    gridref.build([path], tmp_path / "a.gridref")
    expected = rioxarray.open_rasterio(path)
    assert isinstance(expected, xr.DataArray)
    with xr.open_dataset(tmp_path / "a.gridref", engine="gridref") as own:
        assert own.rio.crs == expected.rio.crs
        assert own.rio.transform().almost_equals(expected.rio.transform(), 1e-9)
        assert own["band_data"].dims == expected.dims
        np.testing.assert_array_equal(own["band"], expected["band"])
        for name in {"x", "y"} & set(own.coords):
            np.testing.assert_allclose(own[name], expected[name], rtol=1e-12)
        assert ("x" in own.coords) == (place != "rotated")
        np.testing.assert_array_equal(own["band_data"], expected)


def gml_of(path: Path, old: str, new: str) -> None:
    """Change the GML of a file, whose length stays."""
    data = path.read_bytes()
    assert data.count(old.encode()) == 1
    path.write_bytes(data.replace(old.encode(), new.ljust(len(old)).encode()))


@pytest.mark.parametrize("place", ["degrees", "northing first"])
def test_the_order_of_axes_that_a_document_names(tmp_path: Path, place: str) -> None:
    path = write_jp2(tmp_path / "a.jp2", image_of((1, 70, 90)), GeoJP2="NO", **PLACES[place])
    x, y = (f"<gml:axisName>{axis}</gml:axisName>" for axis in "xy")
    own = (
        "<gml:axisName>Easting</gml:axisName><gml:axisName>Northing</gml:axisName>",
        "<gml:axisName>Long</gml:axisName><gml:axisName>Lat</gml:axisName>",
    )[place == "degrees"]
    gml_of(path, f"{x}\n{' ' * 14}{y}", own)
    with rasterio.open(path) as file:
        expected = " ".join(repr(float(number)) for number in file.transform.to_gdal())
    assert gridref.scan(path)["spatial_ref"].attrs["GeoTransform"] == expected


@pytest.mark.parametrize("number", ["nan 1", "1e999 1", "a b", ""])
def test_places_that_are_no_numbers_are_left_out(tmp_path: Path, number: str) -> None:
    path = write_jp2(tmp_path / "a.jp2", image_of((1, 70, 90)), GeoJP2="NO", **UTM)
    gml_of(path, "<gml:pos>600005 4900015<", f"<gml:pos>{number}<".rjust(24))
    assert set(gridref.scan(path).arrays) == {"band", "band_data"}


def test_an_overview_has_the_places_of_its_pixels(tmp_path: Path) -> None:
    path = write_jp2(tmp_path / "a.jp2", image_of((1, 151, 200)), **UTM)
    group = gridref.scan(path)
    with rasterio.open(path, overview_level=0) as file:
        affine = file.transform
    own = group["overview_1/x_1"][...], group["overview_1/y_1"][...]
    np.testing.assert_allclose(own[0], affine.c + (np.arange(100) + 0.5) * affine.a, rtol=1e-12)
    np.testing.assert_allclose(own[1], affine.f + (np.arange(76) + 0.5) * affine.e, rtol=1e-12)
    layout = group.attrs["multiscales"]["layout"]
    assert [level["asset"] for level in layout] == ["band_data", "overview_1/band_data"]


def test_a_damaged_georeference_is_left_out(tmp_path: Path) -> None:
    path = write_jp2(tmp_path / "a.jp2", image_of((1, 70, 90)), GMLJP2="NO", **UTM)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"II*\0", b"II*\1", 1))
    group = gridref.scan(path)
    assert set(group.arrays) == {"band", "band_data"}


# ---- cubes, views, servers ----------------------------------------------------------------
def test_days_are_one_cube_that_is_verified(tmp_path: Path) -> None:
    images = [image_of((2, 151, 200), seed=day) for day in range(3)]
    paths = [
        write_jp2(tmp_path / f"day{day}.jp2", image, COMMENT=f"of day {day}", **UTM)
        for day, image in enumerate(images)
    ]
    gridref.build(paths[:2], tmp_path / "a.gridref", layout=gridref.Labels("day{day:d}.jp2"))
    gridref.open_catalog(tmp_path / "a.gridref").append(paths[2:])
    catalog = gridref.open_catalog(tmp_path / "a.gridref")
    np.testing.assert_array_equal(catalog["band_data"][...], np.stack(images))
    assert len(catalog["band_data"].encodings) == 1
    result = catalog.verify()
    assert result.differences == ()
    assert result.n_arrays == 2


def test_signed_bytes_are_not_compared(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "formats/jp2/uclouvain__openjpeg-data__j2k32.j2k"
    gridref.build([path], tmp_path / "a.gridref")
    result = gridref.open_catalog(tmp_path / "a.gridref").verify()
    assert result.differences == ()
    assert ("band_data", "rasterio shows its signed bytes as unsigned ones") in result.not_compared


def test_images_on_a_server_are_verified(tmp_path: Path) -> None:
    path = write_jp2(tmp_path / "a.jp2", image_of((2, 151, 200)), **UTM)
    with serving(Site({"/a.jp2": path.read_bytes()})) as site:
        gridref.build([f"{site.url}/a.jp2"], tmp_path / "a.gridref")
        result = gridref.open_catalog(tmp_path / "a.gridref").verify()
    assert result.differences == ()
    assert result.n_arrays == 2


@pytest.mark.parametrize("view", ["native", "portable"])
def test_views(tmp_path: Path, view: Any) -> None:
    image = image_of((2, 151, 200))
    group = gridref.scan(write_jp2(tmp_path / "a.jp2", image, **UTM))
    root = zarr.open_group(gridref.open_store(group, view), mode="r")
    np.testing.assert_array_equal(root["band_data"][...], image)
    np.testing.assert_array_equal(
        root["overview_1/band_data"][...], read_jp2(tmp_path / "a.jp2", overview_level=0)
    )


@pytest.mark.parametrize(("lengths", "n_requests"), [("YES", 1), ("NO", 64)])
def test_requests(tmp_path: Path, lengths: str, n_requests: int) -> None:
    """TLM says where tiles are; without it, each says where the next one is."""
    image = np.random.default_rng(0).integers(0, 4000, (1, 2048, 2048), "u2")
    path = write_jp2(tmp_path / "a.jp2", image, 256, TLM=lengths, **UTM)
    with serving(Site({"/a.jp2": path.read_bytes()})) as site:
        group = gridref.scan(f"{site.url}/a.jp2")
        assert len(site.requests) <= n_requests
        before = len(site.requests)
        part = group["band_data"][0, 300:400, 600:700]
        assert len(site.requests) == before + 1
    np.testing.assert_array_equal(part, image[0, 300:400, 600:700])


# ---- damaged and hostile files ------------------------------------------------------------
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("option", ["plain", "one tile", "codestream", "lengths of tile-parts"])
def test_files_that_are_cut_off(tmp_path: Path, option: str, every: int) -> None:
    image = image_of((1, 20, 40))
    path = write_jp2(tmp_path / "a.jp2", image, **{"tile": 32, **UTM, **OPTIONS[option]})
    data = path.read_bytes()
    for n_bytes in range(0, len(data), every):
        path.write_bytes(data[:n_bytes])
        try:
            values = gridref.scan(path)["band_data"][...]
        except GridrefError:
            continue
        np.testing.assert_array_equal(values, image)
        assert option == "one tile"  # OpenJPEG reads it where EOC alone is missing
        assert n_bytes >= len(data) - 2


def patched(path: Path, marker: int, at: int, field: bytes) -> Path:
    """Change bytes of a segment of the main header."""
    data = bytearray(path.read_bytes())
    start = data.index(struct.pack(">H", marker), codestream_of(bytes(data))) + 4 + at
    data[start : start + len(field)] = field
    path.write_bytes(data)
    return path


HOSTILE = {
    "many tiles": (0xFF51, 18, struct.pack(">II", 1, 1), "30200 tiles in"),
    "a large image": (0xFF51, 2, struct.pack(">II", 2**31, 2**31), "tiles in"),
    "no image": (0xFF51, 2, struct.pack(">II", 0, 0), "its image is empty"),
    "many components": (0xFF51, 34, struct.pack(">H", 9999), "9999 components"),
    "many bits": (0xFF51, 36, b"\x26", "differ in type"),
    "many resolutions": (0xFF52, 5, b"\x40", "64 levels"),
    "large code-blocks": (0xFF52, 6, b"\x08\x08", "4096 elements"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_headers(tmp_path: Path, what: str) -> None:
    path = write_jp2(tmp_path / "a.jp2", image_of((2, 151, 200)))
    marker, at, field, reason = HOSTILE[what]
    with pytest.raises((SourceFormatError, UnsupportedFeatureError), match=reason):
        gridref.scan(patched(path, marker, at, field))


def test_many_packets_are_refused_before_decoding(tmp_path: Path) -> None:
    """Precincts of a pixel and many layers: OpenJPEG would take memory for each packet."""
    path = write_jp2(tmp_path / "a.jp2", np.zeros((1, 512, 512), "u2"), 256, PRECINCTS="{64,64}")
    patched(path, 0xFF52, 2, struct.pack(">H", 60_000))
    array = gridref.scan(patched(path, 0xFF52, 10, b"\x11\x11\x11"))["band_data"]
    with pytest.raises(DecodeError, match=r"packets in \d+ bytes"):
        array[...]


def test_large_chunks_are_refused(tmp_path: Path) -> None:
    path = write_jp2(tmp_path / "a.jp2", image_of((1, 151, 200)), 256)
    size = struct.pack(">8I", 2**15, 2**15, 0, 0, 2**15, 2**15, 0, 0)
    with pytest.raises(UnsupportedFeatureError, match="decoded_bytes"):
        gridref.scan(patched(path, 0xFF51, 2, size))


def test_tiny_code_blocks_of_a_large_image_are_refused_before_decoding(tmp_path: Path) -> None:
    path = write_jp2(tmp_path / "a.jp2", image_of((1, 151, 200)), 256)
    size = struct.pack(">8I", 2**14, 2**14, 0, 0, 2**14, 2**14, 0, 0)
    patched(path, 0xFF51, 2, size)
    array = gridref.scan(patched(path, 0xFF52, 6, b"\0\0"))["band_data"]
    with pytest.raises(DecodeError, match="limit decoded_bytes"):
        array[...]


def test_bytes_that_are_no_tile_do_not_decode(tmp_path: Path) -> None:
    path = write_jp2(tmp_path / "a.jp2", image_of((1, 151, 200)))
    data, array = path.read_bytes(), gridref.scan(path)["band_data"]
    (encoding,) = array.encodings
    tiles = [data[start:stop] for _, start, stop in tile_parts(data)]
    assert decode_chunk(tiles[0], encoding).shape == (1, 64, 64)
    for chunk in (tiles[0] + tiles[1], tiles[0][:-1], b"", tiles[0] + b"\0" * 20):
        with pytest.raises(DecodeError, match=r"gridref\.jpeg2000"):
            decode_chunk(chunk, encoding)


def test_lengths_that_are_wrong_are_not_believed(tmp_path: Path) -> None:
    image = image_of((1, 151, 200))
    path = write_jp2(tmp_path / "a.jp2", image, TLM="YES")
    data = bytearray(path.read_bytes())
    at = data.index(b"\xff\x55") + 6
    first, second = data[at : at + 6], data[at + 6 : at + 12]
    data[at : at + 12] = second + first
    path.write_bytes(data)
    np.testing.assert_array_equal(gridref.scan(path)["band_data"][...], image)


def test_a_missing_tile_is_an_error(tmp_path: Path) -> None:
    path = write_jp2(tmp_path / "a.jp2", image_of((1, 151, 200)))
    path.write_bytes(with_parts(path.read_bytes(), [*range(5), *range(6, 12)]))
    with pytest.raises(SourceFormatError, match="lacks tile 5 of 12"):
        gridref.scan(path)


FEW = {10: ("B02", "TCI"), 20: ("B02", "SCL"), 60: ("B01",)}


def image(product: Path, resolution: str, band: str) -> Path:
    """The file of a band."""
    found = product.glob(f"GRANULE/*/IMG_DATA/R{resolution}/*_{band}_{resolution}.jp2")
    return next(iter([*found, *product.glob(f"GRANULE/*/IMG_DATA/*_{band}.jp2")]))


@pytest.mark.parametrize(("level", "bands"), [("2A", BANDS_2A), ("1C", BANDS_1C)])
def test_a_product(tmp_path: Path, level: str, bands: dict[int, tuple[str, ...]]) -> None:
    product = write_product(tmp_path, level)
    group = gridref.scan(product)
    metadata = gridref.scan(product / f"MTD_MSIL{level}.xml")
    assert described_group(metadata) == described_group(group)
    assert group.attrs["PROCESSING_LEVEL"] == f"Level-{level}"
    assert group.attrs["SPECIAL_VALUE_NODATA"] == "0"
    assert group.attrs["BOA_ADD_OFFSET_B02"] == "-1000"
    assert group.attrs["BOA_ADD_OFFSET_B8A"] == "-900"
    moment = np.timedelta64(int(group["time"][...]), "us") + np.datetime64(0, "s")
    assert moment == np.datetime64("2023-06-01T10:50:31.024")
    own = {"x", "y", "band", "spatial_ref"}
    found = {name: tuple(set(part.arrays) - own) for name, part in group.groups.items()}
    assert {name: {*names} for name, names in found.items()} == {
        f"{resolution}m": {*names} for resolution, names in bands.items()
    }
    for resolution, names in found.items():
        for name in names:
            path = image(product, resolution, name)
            expected = read_jp2(path)
            single = len(expected) == 1
            array = group[f"{resolution}/{name}"]
            assert array.dims == (("y", "x") if single else ("band", "y", "x"))
            np.testing.assert_array_equal(array[...], expected[0] if single else expected)
        with rasterio.open(path) as file:
            n_overviews = len(file.overviews(1))
        assert len(group[resolution].groups) == n_overviews
        for number in range(n_overviews):
            expected = read_jp2(path, overview_level=number)
            coarse = group[f"{resolution}/overview_{number + 1}/{name}"][...]
            np.testing.assert_array_equal(coarse, expected if coarse.ndim == 3 else expected[0])


def test_metadata_of_a_product_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    product = write_product(tmp_path, bands=FEW)
    metadata = product / "MTD_MSIL2A.xml"
    metadata.write_bytes(b"\xef\xbb\xbf" + metadata.read_bytes())
    assert (
        {*gridref.scan(metadata).groups} == {*gridref.scan(product).groups} == {"10m", "20m", "60m"}
    )


def test_products_that_list_their_images_otherwise_are_refused(tmp_path: Path) -> None:
    """As before December 2016."""
    metadata = write_product(tmp_path, bands=FEW) / "MTD_MSIL2A.xml"
    metadata.write_text(metadata.read_text().replace("IMAGE_FILE", "IMAGE_ID"))
    with pytest.raises(UnsupportedFeatureError, match="names no image"):
        gridref.scan(metadata)


def test_each_resolution_has_its_places(tmp_path: Path) -> None:
    product = write_product(tmp_path, bands=FEW)
    gridref.build([product], tmp_path / "a.gridref")
    for resolution, band in (("10m", "B02"), ("20m", "SCL"), ("60m", "B01")):
        expected = rioxarray.open_rasterio(image(product, resolution, band))
        assert isinstance(expected, xr.DataArray)
        with xr.open_dataset(tmp_path / "a.gridref", engine="gridref", group=resolution) as own:
            assert own.rio.crs == expected.rio.crs
            assert own.rio.transform() == expected.rio.transform()
            np.testing.assert_array_equal(own["x"], expected["x"])
            np.testing.assert_array_equal(own["y"], expected["y"])


def test_products_are_one_cube_over_time(tmp_path: Path) -> None:
    dates = ("20230606", "20230601", "20230611")
    products = [write_product(tmp_path, date=date, bands=FEW) for date in dates]
    gridref.build(products[:2], tmp_path / "a.gridref")
    gridref.open_catalog(tmp_path / "a.gridref").append(products[2:])
    catalog = gridref.open_catalog(tmp_path / "a.gridref")
    with xr.open_datatree(tmp_path / "a.gridref", engine="gridref") as tree:
        days = np.array([f"{date[:4]}-{date[4:6]}-{date[6:]}" for date in sorted(dates)])
        found = tree["time"].values.astype("datetime64[D]")
        np.testing.assert_array_equal(found, days.astype("datetime64[D]"))
        for resolution, band in (("10m", "TCI"), ("20m", "B02"), ("60m", "B01")):
            images = [read_jp2(image(product, resolution, band)) for product in sorted(products)]
            expected = np.stack([each if len(each) > 1 else each[0] for each in images])
            np.testing.assert_array_equal(tree[f"{resolution}/{band}"], expected)
    result = catalog.verify()
    assert result.differences == ()
    assert result.n_arrays >= sum(map(len, FEW.values()))


def test_tiles_and_dates_are_a_mosaic_of_images(tmp_path: Path) -> None:
    bands = {10: ("B02",), 20: ("B02", "B05")}
    tiles = {"31UFS": 600_000, "31UGS": 602_400}
    for date in ("20230601", "20230606"):
        for tile, x in tiles.items():
            write_product(tmp_path, date=date, tile=tile, bands=bands, corner=(x, 5e6), metres=2400)
    gridref.build(
        sorted(tmp_path.glob("*.SAFE/GRANULE/*/IMG_DATA/*/*.jp2")),
        tmp_path / "a.gridref",
        layout=gridref.Mosaic("T{_}_{time:%Y%m%dT%H%M%S}_{variable}_{_}m.jp2", grids="groups"),
    )
    catalog = gridref.open_catalog(tmp_path / "a.gridref")
    for resolution, band in (("10", "B02"), ("20", "B02"), ("20", "B05")):
        for number, date in enumerate(("20230601", "20230606")):
            paths = [
                next(tmp_path.rglob(f"T{tile}_{date}*_{band}_{resolution}m.jp2")) for tile in tiles
            ]
            expected = np.concatenate([read_jp2(path)[0] for path in paths], axis=1)
            np.testing.assert_array_equal(catalog[f"{resolution}/{band}"][number], expected)


def test_folders_of_tiles_that_overlap_are_refused(tmp_path: Path) -> None:
    few = {10: ("B02",), 20: ("B02",)}
    products = [
        write_product(tmp_path, tile=tile, bands=few, corner=(x, 5e6), metres=2400)
        for tile, x in {"31UFS": 600_000, "31UGS": 602_160}.items()
    ]
    with pytest.raises(CombineError, match=r"10m/x.*: its labels differ"):
        gridref.build(products, tmp_path / "a.gridref")
    with pytest.raises(CombineError, match=r"its groups have \(10m, 20m\): give the files"):
        gridref.build(products, tmp_path / "a.gridref", layout=gridref.Mosaic())


def test_a_product_on_a_server(tmp_path: Path) -> None:
    product = write_product(tmp_path, bands=FEW)
    with serving(Site.of_folder(product)) as site:
        group = gridref.scan(f"{site.url}/{product.name}")
        assert len(site.requests) == group.report.n_requests
        values = group["20m/SCL"][...]
    np.testing.assert_array_equal(values, read_jp2(image(product, "20m", "SCL"))[0])


def test_images_that_are_not_there_are_reported(tmp_path: Path) -> None:
    product = write_product(tmp_path, bands=FEW)
    image(product, "20m", "B02").unlink()
    group = gridref.scan(product)
    assert "B02" not in group["20m"].arrays
    (skipped,) = [finding for finding in group.report if finding.fate is Fate.SKIPPED]
    assert skipped.path.endswith("_B02_20m")
    assert skipped.reason == "the file is not there"


def test_an_image_on_another_grid_is_refused(tmp_path: Path) -> None:
    product = write_product(tmp_path, bands=FEW)
    with rasterio.open(image(product, "20m", "B02")) as file:
        place = {"crs": file.crs, "transform": file.transform * file.transform.translation(1, 0)}
    write_jp2(image(product, "20m", "SCL"), image_of((1, 120, 120), "u1"), **place)
    with pytest.raises(UnsupportedFeatureError, match="on another grid"):
        gridref.scan(product)
    assert {"B02"} <= set(gridref.scan(product, on_unsupported="skip")["20m"].arrays)


@pytest.mark.parametrize("name", ["../T_B02_10m", "/etc/T_B02_10m", "http://host/T_B02_10m", "a"])
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    product = write_product(tmp_path, bands={60: ("B01",)})
    document = product / "MTD_MSIL2A.xml"
    text = document.read_text()
    start, stop = text.index("<IMAGE_FILE>") + 12, text.index("</IMAGE_FILE>")
    document.write_text(text[:start] + name + text[stop:])
    with pytest.raises(UnsupportedFeatureError, match="leads elsewhere"):
        gridref.scan(product)


@pytest.mark.parametrize(
    ("damage", "encoding", "reason"),
    [
        ("<!DOCTYPE a []>", "utf-8", "document type"),
        ("<!DOCTYPE a []>", "utf-16", "document type"),
        ("<a>", "utf-8", "not XML"),
        ("", "utf-7", "not XML"),
    ],
)
def test_damaged_metadata(tmp_path: Path, damage: str, encoding: str, reason: str) -> None:
    product = write_product(tmp_path, bands={60: ("B01",)})
    document = product / "MTD_MSIL2A.xml"
    head, rest = document.read_text().replace("UTF-8", encoding).split("?>", 1)
    document.write_text(f"{head}?>{damage}{rest}", encoding=encoding)
    with pytest.raises(SourceFormatError, match=reason):
        gridref.scan(product)
