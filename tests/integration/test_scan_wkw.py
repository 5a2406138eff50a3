"""WKW datasets: everything that the library ``wkw`` reads in them, or a refusal."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wkw
import xarray as xr
import zarr
from numpy.typing import NDArray

import gridref
from gridref.errors import (
    DecodeError,
    GridrefError,
    NotRepresentableError,
    SourceFormatError,
    UnsupportedFeatureError,
)
from gridref.model.manifest import ChunkManifest
from tests.http_server import Site, serving
from tests.wkw_files import KINDS, TYPES, read_mag, voxels, write_mag, write_properties

DIMS = ("c", "x", "y", "z")
ORIGIN = (0, 0, 0)


def layer(path: Path, *mags: Any, name: str = "color", **more: Any) -> dict[str, Any]:
    """A layer of 27 x 16 x 15 voxels from (16, 0, 0) on, in these magnifications."""
    for mag in mags:
        along = np.array(mag)
        folder = "-".join(map(str, mag)) if len(set(mag)) > 1 else str(mag[0])
        shape = (1, *(-(-np.array([48, 16, 16]) // along // 16) * 16).tolist())
        write_mag(path / name / folder, (ORIGIN, voxels("u2", shape, seed=sum(mag))))
    box = {"topLeft": [16, 0, 0], "width": 27, "height": 16, "depth": 15}
    stated = [{"mag": list(mag), "cubeLength": 16} for mag in mags]
    described = {"name": name, "dataFormat": "wkw", "boundingBox": box, "mags": stated}
    return {**described, "category": "color", "elementClass": "uint16", **more}


# ---- values, against wkw ----------------------------------------------------------------


@pytest.mark.parametrize("view", ["native", "portable"])
@pytest.mark.parametrize("n_channels", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_blocks(tmp_path: Path, kind: str, n_channels: int, view: Any) -> None:
    path = write_mag(tmp_path / "1", (ORIGIN, voxels("u2", (n_channels, 16, 32, 16))), kind=kind)
    group = gridref.scan(path)
    expected = read_mag(path, ORIGIN, (16, 32, 16))
    assert group.arrays["1"].dims == DIMS
    np.testing.assert_array_equal(group.arrays["1"][...], expected)
    if view == "native" and kind != "raw":
        with pytest.raises(NotRepresentableError, match="bytes must be put before"):
            zarr.open_group(gridref.open_store(group, view), mode="r")["1"]
        return
    shown = zarr.open_group(gridref.open_store(group, view), mode="r")["1"]
    np.testing.assert_array_equal(shown[...], expected)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", ["raw", "LZ4"])
def test_every_type(tmp_path: Path, dtype: str, kind: str) -> None:
    path = write_mag(tmp_path / "1", (ORIGIN, voxels(dtype)), kind=kind)
    array = gridref.scan(path).arrays["1"]
    assert array.dtype == np.dtype(dtype)
    expected = read_mag(path, ORIGIN, (16, 16, 16))
    np.testing.assert_array_equal(array[:, 3:14, ::-1, 7], expected[:, 3:14, ::-1, 7])


@pytest.mark.parametrize(("block_length", "file_blocks"), [(1, 1), (1, 8), (8, 1), (2, 4), (16, 2)])
def test_every_shape_of_files(tmp_path: Path, block_length: int, file_blocks: int) -> None:
    length = block_length * file_blocks
    values = voxels("i4", (1, 2 * length, length, length))
    sizes = {"block_length": block_length, "file_blocks": file_blocks}
    path = write_mag(tmp_path / "1", (ORIGIN, values), kind="LZ4", **sizes)
    np.testing.assert_array_equal(gridref.scan(path).arrays["1"][...], values)


def test_a_magnification_is_in_the_folder_that_it_states(tmp_path: Path) -> None:
    """Not in the folder of its layer's name, which may hold former voxels."""
    described = layer(tmp_path, (1, 1, 1), (2, 2, 1))
    write_mag(tmp_path / "moved" / "1", (ORIGIN, voxels("u2", (1, 48, 16, 16), seed=9)))
    described["mags"][0]["path"] = "./moved/1"
    described["mags"][1]["path"] = "./color/2-2-1"
    color = gridref.scan(write_properties(tmp_path, [described]))["color"]
    assert set(color.arrays) == {"1", "2-2-1"}
    expected = read_mag(tmp_path / "moved" / "1", (16, 0, 0), (43, 16, 15))
    np.testing.assert_array_equal(color.arrays["1"][...], expected)
    for path in ("../other/1", "s3://bucket/color/1"):
        described["mags"][0]["path"] = path
        write_properties(tmp_path, [described])
        with pytest.raises(UnsupportedFeatureError, match=r"outside of the dataset, in '.*/1'"):
            gridref.scan(tmp_path)
        kept = gridref.scan(tmp_path, on_unsupported="skip")
        assert set(kept["color"].arrays) == {"2-2-1"}


def test_files_that_are_absent_hold_zeros(tmp_path: Path) -> None:
    cubes = [((0, 16, 0), voxels("u1")), ((32, 0, 16), voxels("u1", seed=4))]
    path = write_mag(tmp_path / "1", *cubes)
    array = gridref.scan(path).arrays["1"]
    assert array.shape == (1, 48, 32, 32)
    assert array.n_blocks == 12
    (manifest,) = array.manifests
    assert isinstance(manifest, ChunkManifest)
    assert manifest.n_rows == 2 * 64
    np.testing.assert_array_equal(array[...], read_mag(path, ORIGIN, (48, 32, 32)))


def test_an_array_begins_at_the_first_file(tmp_path: Path) -> None:
    path = write_mag(tmp_path / "1", ((160, 32, 0), voxels("u1")))
    array = gridref.scan(path).arrays["1"]
    assert array.attrs["offset"].tolist() == [160, 32, 0]
    np.testing.assert_array_equal(array[...], read_mag(path, (160, 32, 0), (176, 48, 16)))


def test_parts_of_raw_files_that_were_never_written(tmp_path: Path) -> None:
    path = write_mag(tmp_path / "1", ((4, 8, 0), voxels("u1", (1, 4, 4, 8))))
    array = gridref.scan(path).arrays["1"]
    np.testing.assert_array_equal(array[...], read_mag(path, ORIGIN, (16, 16, 16)))


# ---- layers and voxel sizes -------------------------------------------------------------


def test_layers_with_bounding_boxes_and_voxel_sizes(tmp_path: Path) -> None:
    path = tmp_path / "fly"
    mags = [(1, 1, 1), (2, 2, 1), (4, 4, 2)]
    layers = [layer(path, *mags), layer(path, (1, 1, 1), name="segmentation")]
    write_properties(path, layers, scale=[11.0, 11.0, 25.0])
    group = gridref.scan(path)
    assert set(group.groups) == {"color", "segmentation"}
    color = group.groups["color"]
    assert color.attrs["category"] == "color"
    boxes = {"1": ((16, 0, 0), (43, 16, 15)), "2-2-1": ((8, 0, 0), (22, 8, 15))}
    boxes["4-4-2"] = ((4, 0, 0), (11, 4, 8))
    for name, (start, stop) in boxes.items():
        assert color.arrays[name].attrs["offset"].tolist() == list(start)
        expected = read_mag(path / "color" / name, start, stop)
        np.testing.assert_array_equal(color.arrays[name][...], expected, name)
    (image,) = color.attrs["ome"]["multiscales"]
    axes = [(axis["name"], axis["type"], axis.get("unit")) for axis in image["axes"]]
    space = [(dim, "space", "nanometer") for dim in "xyz"]
    assert axes == [("c", "channel", None), *space]
    steps = [each["coordinateTransformations"] for each in image["datasets"]]
    assert [step["scale"] for step, _ in steps] == [
        [1, 11, 11, 25],
        [1, 22, 22, 25],
        [1, 44, 44, 50],
    ]
    # Voxel 0 of magnification 2-2-1 stands for 16 and 17, that of 4-4-2 for 16 to 19 and z 0, 1.
    assert [step["translation"] for _, step in steps] == [
        [0, 16 * 11, 0, 0],
        [0, 16.5 * 11, 0.5 * 11, 0],
        [0, 17.5 * 11, 1.5 * 11, 0.5 * 25],
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"mags": None, "wkwResolutions": [{"resolution": [1, 1, 1]}, {"resolution": [2, 2, 2]}]},
        {"mags": None, "wkwResolutions": [{"resolution": 1}, {"resolution": 2}]},
        {"mags": [{"mag": 1}, {"mag": 2}]},
    ],
)
def test_older_ways_of_naming_magnifications(tmp_path: Path, change: dict[str, Any]) -> None:
    described = layer(tmp_path / "fly", (1, 1, 1), (2, 2, 2)) | change
    described = {key: value for key, value in described.items() if value is not None}
    scale = {"factor": [1, 1, 2], "unit": "micrometer"}
    write_properties(tmp_path / "fly", [described], scale=scale)
    color = gridref.scan(tmp_path / "fly").groups["color"]
    assert list(color.arrays) == ["1", "2"]
    assert color.attrs["ome"]["multiscales"][0]["axes"][1]["unit"] == "micrometer"


def test_a_magnification_in_a_folder_with_its_long_name(tmp_path: Path) -> None:
    described = layer(tmp_path / "fly", (2, 2, 2))
    (tmp_path / "fly" / "color" / "2").rename(tmp_path / "fly" / "color" / "2-2-2")
    write_properties(tmp_path / "fly", [described])
    color = gridref.scan(tmp_path / "fly").groups["color"]
    assert list(color.arrays) == ["2-2-2"]
    assert "ome" not in color.attrs


# ---- servers and series -----------------------------------------------------------------


def test_a_dataset_on_a_server_that_lists_nothing(tmp_path: Path) -> None:
    write_properties(tmp_path / "fly", [layer(tmp_path / "fly", (1, 1, 1))], scale=[1, 1, 1])
    with serving(Site.of_folder(tmp_path / "fly")) as site:
        group = gridref.scan(f"{site.url}/fly/datasource-properties.json")
        array = group["color/1"]
        expected = read_mag(tmp_path / "fly" / "color" / "1", (16, 0, 0), (43, 16, 15))
        np.testing.assert_array_equal(array[...], expected)
        site.requests.clear()
        np.testing.assert_array_equal(array[0, :4, :4, :4], expected[0, :4, :4, :4])
        assert len(site.requests) == 1
        with pytest.raises(SourceFormatError, match="lists no files"):
            gridref.scan(f"{site.url}/fly/color/1/header.wkw")


def test_a_magnification_by_its_header(tmp_path: Path) -> None:
    path = write_mag(tmp_path / "1", (ORIGIN, voxels("u1")))
    (array,) = gridref.scan(path / "header.wkw").arrays.values()
    np.testing.assert_array_equal(array[...], voxels("u1"))


def series(folder: Path, n_volumes: int) -> tuple[list[Path], NDArray[Any]]:
    values = [voxels("u2", seed=number) for number in range(n_volumes)]
    paths = [
        write_mag(folder / f"t{number}" / "1", (ORIGIN, each), kind="LZ4")
        for number, each in enumerate(values)
    ]
    return paths, np.stack(values)


def test_a_series_is_built_appended_and_read(tmp_path: Path) -> None:
    paths, expected = series(tmp_path, 3)
    catalog = str(tmp_path / "series.gridref")
    layout = gridref.Stack("time", gridref.Labels("t{time:d}/1"))
    gridref.build(paths[:2], catalog, layout=layout)
    gridref.open_catalog(catalog).append(paths[2:])
    opened = xr.open_zarr(f"gridref::file://{catalog}")
    assert opened["1"].dims == ("time", *DIMS)
    np.testing.assert_array_equal(opened["1"].values, expected)
    np.testing.assert_array_equal(opened["1"].sel(time=2).values, expected[2])


# ---- what is refused --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "byte", "error", "message"),
    [
        (0, 0, SourceFormatError, "no WKW header"),
        (3, 2, UnsupportedFeatureError, "version 2"),
        (4, 0x4F, UnsupportedFeatureError, "its blocks have"),
        (4, 0xF2, UnsupportedFeatureError, "chunk_rows"),
        (4, 0x12, SourceFormatError, "differs from header.wkw"),
        (5, 0, UnsupportedFeatureError, "blocks of kind 0"),
        (5, 9, UnsupportedFeatureError, "blocks of kind 9"),
        (6, 11, UnsupportedFeatureError, "type 11"),
        (7, 0, SourceFormatError, "voxels of 0 bytes"),
        (7, 3, SourceFormatError, "voxels of 3 bytes"),
    ],
)
def test_headers_that_are_refused(
    tmp_path: Path, at: int, byte: int, error: type[GridrefError], message: str
) -> None:
    path = write_mag(tmp_path / "1", (ORIGIN, voxels("u2")))
    data = bytearray((path / "header.wkw").read_bytes())
    data[at] = byte
    (path / "header.wkw").write_bytes(data)
    with pytest.raises(error, match=re.escape(message)) as caught:
        gridref.scan(path)
    assert caught.value.place.variable == "/1"
    assert not gridref.scan(path, on_unsupported="skip").arrays


@pytest.mark.parametrize(
    ("entry", "end"), [(0, 0), (0, 2**40), (5, 2**63), (5, 20), (63, 2**40), (2, 528)]
)
def test_jump_tables_that_are_refused(tmp_path: Path, entry: int, end: int) -> None:
    path = write_mag(tmp_path / "1", (ORIGIN, voxels("u2")), kind="LZ4")
    file = path / "z0" / "y0" / "x0.wkw"
    data = bytearray(file.read_bytes())
    struct.pack_into("<Q", data, 16 + 8 * entry, end)
    file.write_bytes(data)
    with pytest.raises(SourceFormatError, match="jump table") as caught:
        gridref.scan(path)
    assert caught.value.place.source == str(file)


def test_a_block_that_is_not_what_the_header_says(tmp_path: Path) -> None:
    path = write_mag(tmp_path / "1", (ORIGIN, voxels("u2")), kind="LZ4")
    file = path / "z0" / "y0" / "x0.wkw"
    data = bytearray(file.read_bytes())
    data[528 : 528 + 4] = b"\xff\xff\xff\xff"
    file.write_bytes(data)
    with pytest.raises(wkw.wkw.WKWException):
        read_mag(path, ORIGIN, (4, 4, 4))
    with pytest.raises(DecodeError, match="lz4"):
        gridref.scan(path).arrays["1"][...]


@pytest.mark.parametrize("kind", ["raw", "LZ4"])
def test_a_file_cut_at_every_byte(tmp_path: Path, kind: str) -> None:
    values = voxels("u1", (1, 4, 4, 4))
    path = write_mag(tmp_path / "1", (ORIGIN, values), kind=kind, block_length=2, file_blocks=2)
    for file in (path / "z0" / "y0" / "x0.wkw", path / "header.wkw"):
        whole = file.read_bytes()
        for n_bytes in range(len(whole)):
            file.write_bytes(whole[:n_bytes])
            with pytest.raises(GridrefError):
                gridref.scan(path)
        file.write_bytes(whole)
    np.testing.assert_array_equal(gridref.scan(path).arrays["1"][...], values)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"dataFormat": "zarr3"}, UnsupportedFeatureError, "format zarr3"),
        ({"mags": None}, SourceFormatError, "lists no magnifications"),
        ({"mags": [{"mag": [1, 0, 1]}]}, SourceFormatError, "is no magnification"),
        ({"mags": [{"mag": [8, 8, 8]}]}, SourceFormatError, "no header.wkw"),
        ({"boundingBox": {"topLeft": [0, 0]}}, SourceFormatError, "bounding box"),
        ({"name": "a/b"}, UnsupportedFeatureError, "cannot be the name"),
        ({"name": ".."}, UnsupportedFeatureError, "cannot be the name"),
    ],
)
def test_layers_that_are_refused(
    tmp_path: Path, change: dict[str, Any], error: type[GridrefError], message: str
) -> None:
    path = tmp_path / "fly"
    good = layer(path, (1, 1, 1), name="good")
    write_properties(path, [layer(path, (1, 1, 1)) | change, good])
    with pytest.raises(error, match=re.escape(message)):
        gridref.scan(path)
    group = gridref.scan(path, on_unsupported="skip")
    assert "good/1" in group.all_arrays()
    assert not any(name.startswith(("color/", "a/")) for name in group.all_arrays())


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"dataLayers": 5}', '{"dataLayers": [], "scale": [1, -1, 1]}']
)
def test_properties_that_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "datasource-properties.json").write_text(text)
    with pytest.raises(SourceFormatError, match=r"layers|metadata"):
        gridref.scan(tmp_path)


def test_a_box_of_too_many_files(tmp_path: Path) -> None:
    described = layer(tmp_path / "fly", (1, 1, 1))
    described["boundingBox"] |= {"width": 2**39}
    write_properties(tmp_path / "fly", [described])
    with pytest.raises(UnsupportedFeatureError, match="virtual_blocks"):
        gridref.scan(tmp_path / "fly")
