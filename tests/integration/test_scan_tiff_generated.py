"""Files that tifffile and GDAL write for the test: flavours, pyramids, sets, remote files."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fsspec
import imagecodecs
import numpy as np
import pytest
import tifffile
import xarray as xr
from numpy.typing import NDArray

from gridref.api.readable import reader_for
from gridref.api.verify import verify
from gridref.errors import (
    DecodeError,
    SourceFormatError,
    SourceUnavailableError,
    UnsupportedFeatureError,
)
from gridref.faces.zarr.store import open_store
from gridref.formats.registry import scan
from gridref.testing.reference_reader import read_slowly
from tests.http_server import Site, serving
from tests.integration.tiff_oracle import same_as_tifffile


def values(*shape: int, dtype: str = "uint16") -> NDArray[Any]:
    random = np.random.default_rng(5)
    if np.dtype(dtype).kind == "f":
        return random.normal(size=shape).astype(dtype)
    return random.integers(0, 200, shape).astype(dtype)


@pytest.mark.parametrize("bigtiff", [False, True])
@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32", "float16", "float32", "float64"])
@pytest.mark.parametrize("layout", ["strips", "tiles", "planar"])
def test_plain_images(
    tmp_path: Path, bigtiff: bool, byteorder: Any, dtype: str, layout: str
) -> None:
    path = tmp_path / "plain.tif"
    options: dict[str, Any] = {"tile": (16, 32)} if layout == "tiles" else {"rowsperstrip": 7}
    if layout == "planar":
        options |= {"planarconfig": "separate", "photometric": "rgb"}
    compression = {"strips": "lzw", "tiles": "zlib", "planar": None}[layout]
    predictor = 3 if dtype[0] == "f" else 2
    data = values(3, 50, 70, dtype=dtype) if layout == "planar" else values(50, 70, dtype=dtype)
    tifffile.imwrite(
        path,
        data,
        bigtiff=bigtiff,
        byteorder=byteorder,
        compression=compression,
        predictor=predictor if compression else None,
        metadata=None,
        **options,
    )
    same_as_tifffile(path)


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
        rasterio = pytest.importorskip("rasterio")
        with rasterio.open(path) as file:
            expected = np.moveaxis(file.read(), 0, -1)
        np.testing.assert_array_equal(read_slowly(scan(str(path)).arrays["image"]), expected)
    else:
        same_as_tifffile(path)


@pytest.mark.parametrize("compression", ["CCITTRLE", "CCITTFAX3", "CCITTFAX4", "JPEG"])
def test_surplus_rows_as_gdal_writes_and_reads_them(tmp_path: Path, compression: str) -> None:
    rasterio = pytest.importorskip("rasterio")
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
    rasterio = pytest.importorskip("rasterio")
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
    assert caught.value.reason.endswith("not there: plane 1.ome.tif")


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
    rasterio = pytest.importorskip("rasterio")
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


def test_sparse_tiles_read_as_nodata(tmp_path: Path) -> None:
    rasterio = pytest.importorskip("rasterio")
    path = tmp_path / "sparse.tif"
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        width=64,
        height=64,
        count=1,
        dtype="int16",
        nodata=-7,
        crs="EPSG:32632",
        transform=rasterio.Affine(1, 0, 0, 0, -1, 0),
        tiled=True,
        blockxsize=16,
        blockysize=16,
        sparse_ok=True,
    ) as file:
        window = rasterio.windows.Window(16, 16, 16, 16)
        file.write(np.full((1, 16, 16), 3, np.int16), window=window)
    array = scan(str(path)).arrays["band_data"]
    with rasterio.open(path) as file:
        np.testing.assert_array_equal(read_slowly(array), file.read())
    assert int((array.manifests[0].take(np.arange(16)).state == 0).sum()) == 15


def test_large_uncompressed_images_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "large.tif"
    tifffile.imwrite(path, values(300, 400), metadata=None)
    array = scan(str(path), max_chunk_bytes=64 << 10).arrays["image"]
    assert array.encodings[0].chunk_shape == (81, 400)
    np.testing.assert_array_equal(read_slowly(array), tifffile.imread(path))


def test_remote_files_by_few_requests(tmp_path: Path, shared_data: Path) -> None:
    memory = fsspec.filesystem("memory")
    source = shared_data / "tiff/realistic/cogeotiff__rio-cogeo__image_web_z5_z11.tif"
    memory.pipe_file("/scan_tiff/cog.tif", source.read_bytes())
    report = scan("memory://scan_tiff/cog.tif").report
    assert report.n_requests <= 2
    assert report.n_bytes <= 64 << 10
