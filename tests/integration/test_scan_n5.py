"""N5 containers: everything that tensorstore reads in them, or a refusal."""

from __future__ import annotations

import base64
import json
import re
import struct
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from numpy.typing import NDArray

import gridref
from gridref.codecs import decode_chunk
from gridref.errors import DecodeError, GridrefError, SourceFormatError, UnsupportedFeatureError
from gridref.model.array import VirtualGroup
from gridref.model.encoding import Codec, Encoding
from tests.http_server import Site, serving
from tests.n5_files import (
    COMPRESSIONS,
    TYPES,
    block,
    lz4_stream,
    numbers,
    read_dataset,
    write_attributes,
    write_dataset,
)
from tests.shared_data import shared_files

XYZ = ("x", "y", "z")


def scales(group: VirtualGroup) -> list[tuple[str, list[float], list[float]]]:
    """Path, voxel size and place of each level that ``ome`` lists."""
    (image,) = group.attrs["ome"]["multiscales"]
    listed = []
    for dataset in image["datasets"]:
        scale, translation = dataset["coordinateTransformations"]
        listed.append((dataset["path"], scale["scale"], translation["translation"]))
    return listed


# ---- values, against tensorstore --------------------------------------------------------


@pytest.mark.parametrize("path", shared_files("formats/n5/*/*/attributes.json"))
def test_real_files(path: Path) -> None:
    (array,) = gridref.scan(path.parent).arrays.values()
    np.testing.assert_array_equal(array[...], read_dataset(path.parent))


def test_every_compression_in_both_views(tmp_path: Path) -> None:
    path = tmp_path / "a.n5"
    write_attributes(path, n5="2.0.0")
    for dtype, name in product([*TYPES[:2], *TYPES[-2:]], COMPRESSIONS):
        write_dataset(path / f"{name} {dtype}", numbers(dtype), compression=COMPRESSIONS[name])
    group = gridref.scan(path)
    assert len(group.arrays) == 4 * len(COMPRESSIONS)
    for name, array in group.arrays.items():
        expected = read_dataset(path / name)
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array[...], expected, name)
    for view in ("native", "portable"):
        for name, shown in zarr.open_group(gridref.open_store(group, view), mode="r").arrays():
            names = [codec.to_dict()["name"] for codec in shown.metadata.codecs]
            assert (names == ["n5_default"]) == (view == "native")
            np.testing.assert_array_equal(shown[...], read_dataset(path / name), name)


def test_every_type(tmp_path: Path) -> None:
    path = write_attributes(tmp_path / "a.n5", n5="2.0.0")
    for dtype in TYPES:
        write_dataset(path / dtype, numbers(dtype))
    arrays = gridref.scan(path).arrays
    for dtype in TYPES:
        assert arrays[dtype].dtype == dtype
        expected = read_dataset(path / dtype)[2:9, ::-1, 1]
        np.testing.assert_array_equal(arrays[dtype][2:9, ::-1, 1], expected, dtype)


@pytest.mark.parametrize("shape", [(1,), (17,), (4, 6), (3, 1, 2, 5), (2, 1, 3, 1, 2)])
def test_any_number_of_dimensions(tmp_path: Path, shape: tuple[int, ...]) -> None:
    values = numbers("int16", shape)
    path = write_dataset(tmp_path / "v", values, (2,) * len(shape))
    np.testing.assert_array_equal(gridref.scan(path).arrays["v"][...], read_dataset(path))


def test_blocks_that_are_cut_padded_and_absent(tmp_path: Path) -> None:
    path = write_dataset(tmp_path / "v", np.zeros((5, 4), "i4"), (3, 2), COMPRESSIONS["raw"])
    values = numbers("int32", (6, 4)) + 1
    (path / "0").mkdir(exist_ok=True)
    (path / "1").mkdir(exist_ok=True)
    (path / "0" / "0").write_bytes(block(values[:3, :2]))
    (path / "0" / "1").write_bytes(block(values[:2, 2:3]))  # cut although it is no end
    (path / "1" / "0").write_bytes(block(values[3:5, :2]))  # cut at the end
    expected = read_dataset(path)
    assert (expected[:3, :2] == values[:3, :2]).all()
    assert expected[2, 2] == expected[4, 3] == 0
    group = gridref.scan(path)
    np.testing.assert_array_equal(group.arrays["v"][...], expected)
    (path / "1" / "1").write_bytes(block(values[3:6, 2:]))  # padded
    group = gridref.scan(path)
    np.testing.assert_array_equal(group.arrays["v"][...], read_dataset(path))
    native = zarr.open_group(gridref.open_store(group, "native"), mode="r")["v"]
    np.testing.assert_array_equal(native[...], read_dataset(path))


def test_containers_before_version_2(tmp_path: Path) -> None:
    path = write_dataset(tmp_path / "v", numbers("uint8"))
    attrs = json.loads((path / "attributes.json").read_text())
    kind = attrs.pop("compression")["type"]
    write_attributes(path, **attrs, compressionType=kind)
    np.testing.assert_array_equal(gridref.scan(path).arrays["v"][...], numbers("uint8"))


# ---- LZ4, which tensorstore does not read -----------------------------------------------

LZ4_JAVA = "TFo0QmxvY2sWDQAAAA0AAAC/fyACYWhiaWNqZGtlbGZtZ0xaNEJsb2NrFgAAAAAAAAAAAAAAAA=="
"""What LZ4BlockOutputStream of lz4-java 1.8.0 makes of 13 bytes."""


def decoded(stream: bytes, n_bytes: int) -> bytes:
    inside = [Codec.of("transpose", order=[0]), Codec("bytes"), Codec("gridref.n5_lz4")]
    codec = Codec.of("n5_default", codecs=[codec.to_json() for codec in inside])
    encoding = Encoding((n_bytes,), np.dtype("u1"), (codec,))
    return decode_chunk(struct.pack(">HHI", 0, 1, n_bytes) + stream, encoding).tobytes()


def test_a_stream_of_lz4_java() -> None:
    expected = bytes(i * 7 % 13 + ord("a") for i in range(13))
    assert decoded(base64.b64decode(LZ4_JAVA), 13) == expected


@pytest.mark.parametrize("n_bytes", [1, 49, 50, 51, 1000])
def test_lz4_in_parts(n_bytes: int) -> None:
    data = bytes(i // 7 % 13 for i in range(n_bytes))
    stream = lz4_stream(data)
    assert decoded(stream, n_bytes) == data
    for cut in range(len(stream)):
        if cut != len(stream) - 21:  # without the last part, which holds nothing
            with pytest.raises(DecodeError):
                decoded(stream[:cut], n_bytes)
    for wrong in (stream + b"\0", lz4_stream(data + b"\0"), b"LZ4Blocx" + stream[8:]):
        with pytest.raises(DecodeError):
            decoded(wrong, n_bytes)


def test_a_dataset_of_lz4(tmp_path: Path) -> None:
    values = numbers("uint16", (6, 4))
    path = write_dataset(tmp_path / "v", values, (6, 4), COMPRESSIONS["raw"])
    raw = (path / "0" / "0").read_bytes()
    (path / "0" / "0").write_bytes(raw[:12] + lz4_stream(raw[12:]))
    attrs = json.loads((path / "attributes.json").read_text())
    write_attributes(path, **{**attrs, "compression": {"type": "lz4", "blockSize": 65536}})
    group = gridref.scan(path)
    np.testing.assert_array_equal(group.arrays["v"][...], values)
    shown = zarr.open_group(gridref.open_store(group), mode="r")["v"]
    np.testing.assert_array_equal(shown[...], values)


# ---- groups, names and voxel sizes ------------------------------------------------------


def test_groups_and_attributes(tmp_path: Path) -> None:
    path = write_attributes(tmp_path / "a.n5", n5="4.0.0", sample="fly", sizes=[1, 2])
    write_dataset(path / "em" / "raw", numbers("uint8"), axes=["x", "y", "t"], level=[0.5, 2.0])
    write_dataset(path / "em" / "labels" / "1", numbers("uint64", (4, 4)), (2, 2))
    (path / "nothing").mkdir()
    (path / ".hidden").mkdir()
    group = gridref.scan(path)
    assert set(group.all_arrays()) == {"em/raw", "em/labels/1"}
    assert set(group.groups) == {"em"}
    assert group.attrs["sample"] == "fly"
    assert list(group.attrs["sizes"]) == [1, 2]
    assert "n5" not in group.attrs
    raw = group["em/raw"]
    assert raw.dims == ("x", "y", "t")
    assert list(raw.attrs["level"]) == [0.5, 2.0]
    assert not {"dimensions", "blockSize", "dataType", "compression"} & set(raw.attrs)
    np.testing.assert_array_equal(group["em/labels/1"][...], read_dataset(path / "em/labels/1"))
    (single,) = gridref.scan(path / "em" / "raw").arrays.values()
    np.testing.assert_array_equal(single[...], raw[...])


def test_dimensions_are_in_the_order_of_tensorstore(tmp_path: Path) -> None:
    path = write_dataset(tmp_path / "v", numbers("uint8", (2, 3, 4)), (2, 3, 4))
    array = gridref.scan(path).arrays["v"]
    assert array.shape == read_dataset(path).shape == (2, 3, 4)
    assert array.dims == ("phony_dim_0", "phony_dim_1", "phony_dim_2")


def pyramid(path: Path, shapes: list[tuple[int, ...]], **each: list[Any]) -> Path:
    for number, shape in enumerate(shapes):
        attrs = {name: values[number] for name, values in each.items() if values[number]}
        write_dataset(path / f"s{number}", numbers("uint8", shape, number), **attrs)
    return path


def test_a_pyramid_of_paintera(tmp_path: Path) -> None:
    """Voxel size and offset on the group, factors on the levels."""
    path = tmp_path / "a.n5"
    write_attributes(path / "v", resolution=[4, 4, 40], offset=[8, 0, 0], multiScale=True)
    factors = [None, [2, 2, 1], [4, 4, 2]]
    pyramid(path / "v", [(10, 8, 6), (5, 4, 6), (3, 2, 3)], downsamplingFactors=factors)
    group = gridref.scan(path).groups["v"]
    assert scales(group) == [
        ("s0", [4, 4, 40], [8, 0, 0]),
        ("s1", [8, 8, 40], [10, 2, 0]),
        ("s2", [16, 16, 80], [14, 6, 20]),
    ]
    assert group.arrays["s0"].dims == XYZ
    (image,) = group.attrs["ome"]["multiscales"]
    assert [axis["name"] for axis in image["axes"]] == list(XYZ)


@pytest.mark.parametrize("on", ["group", "s0"])
def test_a_pyramid_of_n5_viewer(tmp_path: Path, on: str) -> None:
    """Factors on the group, voxel size with a unit on the group or the finest level."""
    size = {"dimensions": [0.097, 0.097, 0.18], "unit": "um"}
    stated = {"pixelResolution": size} if on == "group" else {}
    write_attributes(tmp_path / "c0", scales=[[1, 1, 1], [2, 2, 2]], **stated)
    sizes = [None if on == "group" else size, None]
    pyramid(tmp_path / "c0", [(10, 8, 6), (5, 4, 3)], pixelResolution=sizes)
    group = gridref.scan(tmp_path / "c0")
    assert scales(group)[1] == ("s1", [0.194, 0.194, 0.36], [0.0485, 0.0485, 0.09])
    (image,) = group.attrs["ome"]["multiscales"]
    assert {axis["unit"] for axis in image["axes"]} == {"micrometer"}


def test_a_pyramid_of_cosem(tmp_path: Path) -> None:
    """Transforms in the order of numpy, as on OpenOrganelle."""

    def transform(scale: list[float], translate: list[float]) -> Any:
        axes = ["z", "y", "x"]
        return {"axes": axes, "scale": scale, "translate": translate, "units": ["nm"] * 3}

    transforms = [transform([6, 4, 4], [0, 0, 0]), transform([12, 8, 8], [3, 2, 2])]
    datasets = [{"path": f"s{n}", "transform": each} for n, each in enumerate(transforms)]
    write_attributes(tmp_path / "em", multiscales=[{"name": "fibsem", "datasets": datasets}])
    pyramid(tmp_path / "em", [(10, 8, 6), (5, 4, 3)], transform=transforms)
    group = gridref.scan(tmp_path / "em")
    assert scales(group) == [("s0", [4, 4, 6], [0, 0, 0]), ("s1", [8, 8, 12], [2, 2, 3])]
    assert group.arrays["s0"].dims == XYZ
    (image,) = group.attrs["ome"]["multiscales"]
    assert image["name"] == "fibsem"
    assert {axis["unit"] for axis in image["axes"]} == {"nanometer"}


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"resolution": [4, 4]},
        {"resolution": [4, 4, 0]},
        {"resolution": [4, 4, "wide"]},
        {"resolution": {"dimensions": None}},
        {"multiscales": [{"datasets": [{"path": "s0"}, {"path": 7}]}], "resolution": "4"},
        {"multiscales": {"datasets": 5}},
        {"multiscales": [None, {"datasets": [{"path": "s9", "transform": {"scale": [1, 1, 1]}}]}]},
        {"scales": 3, "resolution": [4, 4, 4]},
        {"scales": [[1, 1, 1]], "resolution": [4, 4, 4]},
    ],
)
def test_what_is_no_pyramid_says_no_voxel_sizes(tmp_path: Path, attrs: dict[str, Any]) -> None:
    write_attributes(tmp_path / "v", **attrs)
    pyramid(tmp_path / "v", [(10, 8, 6), (5, 4, 3)])
    group = gridref.scan(tmp_path / "v")
    assert "ome" not in group.attrs
    assert set(group.arrays) == {"s0", "s1"}


def test_sizes_that_contradict_each_other_are_not_told(tmp_path: Path) -> None:
    write_attributes(tmp_path / "v", resolution=[4, 4, 4])
    sizes, factors = [None, [9, 9, 9]], [None, [2, 2, 2]]
    shapes: list[tuple[int, ...]] = [(10, 8, 6), (5, 4, 3)]
    pyramid(tmp_path / "v", shapes, resolution=sizes, downsamplingFactors=factors)
    assert "ome" not in gridref.scan(tmp_path / "v").attrs


# ---- servers ----------------------------------------------------------------------------


@pytest.mark.parametrize("stated", ["multiscales", "scales", "nothing"])
def test_a_server_that_lists_nothing(tmp_path: Path, stated: str) -> None:
    attrs: dict[str, Any] = {
        "multiscales": {"multiscales": [{"datasets": [{"path": "s0"}, {"path": "s1"}]}]},
        "scales": {"scales": [[1, 1, 1], [2, 2, 2]]},
        "nothing": {"n5": "2.0.0"},
    }[stated]
    write_attributes(tmp_path / "a.n5", **attrs)
    pyramid(tmp_path / "a.n5", [(10, 8, 6), (5, 4, 3)])
    with serving(Site.of_folder(tmp_path / "a.n5")) as site:
        group = gridref.scan(f"{site.url}/a.n5")
        assert set(group.arrays) == {"s0", "s1"}
        for name, array in group.arrays.items():
            np.testing.assert_array_equal(array[...], read_dataset(tmp_path / "a.n5" / name))


def test_a_server_that_lists_nothing_and_no_names(tmp_path: Path) -> None:
    write_attributes(tmp_path / "a.n5", n5="2.0.0")
    write_dataset(tmp_path / "a.n5" / "somewhere", numbers("uint8"))
    with (
        serving(Site.of_folder(tmp_path / "a.n5")) as site,
        pytest.raises(SourceFormatError, match="lists no folders") as caught,
    ):
        gridref.scan(f"{site.url}/a.n5")
    assert "attributes.json of a dataset" in str(caught.value)


def test_a_dataset_by_its_attributes(tmp_path: Path) -> None:
    write_attributes(tmp_path / "a", n5="2.0.0")
    path = write_dataset(tmp_path / "a" / "em" / "raw", numbers("uint8"))
    with serving(Site.of_folder(tmp_path / "a")) as site:
        for address in (f"{site.url}/a/em/raw/attributes.json", path / "attributes.json"):
            group = gridref.scan(address)
            assert list(group.arrays) == ["raw"]
            np.testing.assert_array_equal(group.arrays["raw"][...], numbers("uint8"))


def test_a_server_that_lists_folders(tmp_path: Path) -> None:
    write_attributes(tmp_path / "a.n5", n5="2.0.0")
    write_dataset(tmp_path / "a.n5" / "somewhere", numbers("uint8"))
    site = Site.of_folder(tmp_path / "a.n5")
    site.files["/a.n5"] = b'<html><a href="somewhere/">somewhere/</a></html>'
    site.files["/a.n5/"] = site.files["/a.n5"]
    with serving(site):
        group = gridref.scan(f"{site.url}/a.n5")
        np.testing.assert_array_equal(group.arrays["somewhere"][...], numbers("uint8"))


def test_one_request_for_each_block_that_is_read(tmp_path: Path) -> None:
    write_attributes(tmp_path / "a.n5", n5="2.0.0")
    values = numbers("uint8") + np.uint8(1)
    write_dataset(tmp_path / "a.n5" / "s0", values)
    with serving(Site.of_folder(tmp_path / "a.n5")) as site:
        array = gridref.scan(f"{site.url}/a.n5").arrays["s0"]
        site.requests.clear()
        np.testing.assert_array_equal(array[:5, 0, 0], values[:5, 0, 0])
        assert sorted(path for _, path, _ in site.requests) == [
            "/a.n5/s0/0/0/0",
            "/a.n5/s0/1/0/0",
        ]


# ---- series of volumes ------------------------------------------------------------------


def series(folder: Path, n_volumes: int) -> tuple[list[Path], NDArray[Any]]:
    volumes = [numbers("uint16", seed=n) for n in range(n_volumes)]
    paths = []
    for number, values in enumerate(volumes):
        path = write_attributes(folder / f"t{number}.n5", n5="2.0.0")
        compression = COMPRESSIONS["gzip"] | {"level": number % 9 + 1}
        write_dataset(path / "v", values, compression=compression, axes=list(XYZ))
        paths.append(path)
    return paths, np.stack(volumes)


def test_a_series_is_built_appended_and_read(tmp_path: Path) -> None:
    paths, expected = series(tmp_path, 4)
    catalog = str(tmp_path / "series.gridref")
    layout = gridref.Stack("time", gridref.Labels("t{time:d}.n5"))
    gridref.build(paths[:3], catalog, layout=layout)
    gridref.open_catalog(catalog).append(paths[3:])
    opened = xr.open_zarr(f"gridref::file://{catalog}")
    assert opened["v"].dims == ("time", *XYZ)
    np.testing.assert_array_equal(opened["v"].values, expected)
    np.testing.assert_array_equal(opened["v"].sel(time=3).values, expected[3])


def test_volumes_lie_along_an_axis(tmp_path: Path) -> None:
    paths, volumes = series(tmp_path, 3)
    catalog = str(tmp_path / "long.gridref")
    gridref.build(paths[:2], catalog, concat_dim="z")
    gridref.open_catalog(catalog).append(paths[2:])
    expected = np.concatenate(list(volumes), axis=2)
    np.testing.assert_array_equal(gridref.open_catalog(catalog).arrays["v"][...], expected)


# ---- what is refused --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"dataType": "object"}, UnsupportedFeatureError, "data type 'object'"),
        ({"compression": {"type": "jpeg"}}, UnsupportedFeatureError, "compression 'jpeg'"),
        ({"compression": {}}, UnsupportedFeatureError, "compression 'None'"),
        ({"compression": 3}, UnsupportedFeatureError, "compression '3'"),
        ({"blockSize": [4, 3]}, SourceFormatError, "blockSize"),
        ({"blockSize": [4, 3, 0]}, SourceFormatError, "blockSize"),
        ({"blockSize": [4096, 4096, 4096]}, SourceFormatError, "2 GiB"),
        ({"dimensions": []}, SourceFormatError, "dimensions"),
        ({"dimensions": [10, 7, -5]}, SourceFormatError, "dimensions"),
        ({"dimensions": [10, 7, 5.5]}, SourceFormatError, "dimensions"),
        ({"dimensions": [10, 7, True]}, SourceFormatError, "dimensions"),
        ({"dimensions": [10, 7, 2**62]}, UnsupportedFeatureError, "chunk_files"),
        ({"dimensions": "10"}, SourceFormatError, "dimensions"),
    ],
)
def test_attributes_that_are_refused(
    tmp_path: Path, change: dict[str, Any], error: type[GridrefError], message: str
) -> None:
    path = write_attributes(tmp_path / "a.n5", n5="2.0.0")
    write_dataset(path / "good", numbers("uint8"))
    write_dataset(path / "bad", numbers("uint8"))
    attrs = json.loads((path / "bad" / "attributes.json").read_text())
    write_attributes(path / "bad", **{**attrs, **change})
    with pytest.raises(error, match=re.escape(message)) as caught:
        gridref.scan(path)
    assert caught.value.place.variable == "/bad"
    assert set(gridref.scan(path, on_unsupported="skip").arrays) == {"good"}


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (block(numbers("int32", (3, 2)), mode=1), "mode varlength"),
        (block(numbers("int32", (3, 2)), mode=2), "mode object"),
        (block(numbers("int32", (3, 2)), mode=9), "mode 9"),
        (block(numbers("int32", (6,))), "rank 1, expected 2"),
        (block(numbers("int32", (3, 3))), "larger than (3, 2)"),
        (block(numbers("int32", (3, 2)), shape=(2, 2)), "24 bytes, expected 16"),
        (block(numbers("int32", (2, 2)), shape=(3, 2)), "16 bytes, expected 24"),
    ],
)
def test_blocks_that_are_refused(tmp_path: Path, stored: bytes, message: str) -> None:
    values = numbers("int32", (3, 2)) + 1
    path = write_dataset(tmp_path / "v", values, (3, 2), COMPRESSIONS["raw"])
    (path / "0" / "0").write_bytes(stored)
    with pytest.raises(ValueError, match=r"N5|chunk|data"):
        read_dataset(path)
    with pytest.raises(DecodeError, match=re.escape(message)):
        gridref.scan(path).arrays["v"][...]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_block_cut_at_every_byte(tmp_path: Path, compression: str) -> None:
    values = numbers("int32", (3, 2)) + 1
    path = write_dataset(tmp_path / "v", values, (3, 2), COMPRESSIONS[compression])
    whole = (path / "0" / "0").read_bytes()
    for n_bytes in range(len(whole)):
        (path / "0" / "0").write_bytes(whole[:n_bytes])
        with pytest.raises(GridrefError):
            gridref.scan(path).arrays["v"][...]


def test_attributes_cut_at_every_byte(tmp_path: Path) -> None:
    path = write_dataset(tmp_path / "v", numbers("int32"))
    whole = (path / "attributes.json").read_bytes().rstrip()
    for n_bytes in range(len(whole)):
        (path / "attributes.json").write_bytes(whole[:n_bytes])
        with pytest.raises(GridrefError):
            gridref.scan(path)


def test_too_many_folders(tmp_path: Path) -> None:
    path = write_attributes(tmp_path / "a.n5", n5="2.0.0")
    for number in range(5):
        write_dataset(path / f"v{number}", numbers("uint8"))
    assert len(gridref.scan(path, max_objects=6).arrays) == 5
    with pytest.raises(SourceFormatError, match="max_objects, 5"):
        gridref.scan(path, max_objects=5)
