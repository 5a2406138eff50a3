"""Files of microscopes and slide scanners, written as those do, against tifffile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import xarray as xr
from numpy.typing import NDArray

import gridref
from gridref.errors import UnsupportedFeatureError
from gridref.faces.zarr.store import open_store
from gridref.formats import scan
from gridref.testing.reference_reader import read_slowly
from tests.http_server import Site, serving
from tests.integration.tiff_oracle import same_as_tifffile
from tests.microscopy_files import restart_jpeg, write_lsm, write_ndpi, write_svs

pytestmark = pytest.mark.usefixtures("quiet_tifffile")


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
