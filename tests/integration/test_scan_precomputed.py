"""Neuroglancer precomputed volumes: what tensorstore reads in them, or a refusal."""

from __future__ import annotations

import gzip
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import xarray as xr
import zarr
from numpy.typing import NDArray

import gridref
from gridref.codecs import decode_chunk
from gridref.errors import (
    DecodeError,
    GridrefError,
    SourceChangedError,
    SourceFormatError,
    SourceUnavailableError,
    UnsupportedFeatureError,
)
from gridref.formats.precomputed import DATA_TYPES
from gridref.model.array import VirtualGroup
from tests.http_server import Site, serving
from tests.precomputed_files import ENCODINGS, sharding, volume_values, voxels, write_volume
from tests.s3_server import BUCKET, s3_bucket

SHAPE = (2, 9, 13, 20)
"""Of a volume of chunks of 8: cut along each axis."""


def values_of(group: VirtualGroup, path: str = "0/image", view: Any = "portable") -> NDArray[Any]:
    root = zarr.open_group(gridref.open_store(group, view), mode="r")
    return np.asarray(root[path][...])  # type: ignore[index]


def change_info(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Change the description of a volume, and leave its chunks as they are."""
    info = json.loads((folder / "info").read_text())
    change(info)
    (folder / "info").write_text(json.dumps(info))
    return folder


def site_of(folder: Path) -> Site:
    files = {
        f"/v/{path.relative_to(folder)}": path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    return Site(files, etags={name: f'"{hash(data)}"' for name, data in files.items()})


# ---- values, against tensorstore ----------------------------------------------------------

COMBINATIONS = [
    *(("raw", dtype, n) for dtype in sorted(DATA_TYPES) for n in (1, 3)),
    *(("png", dtype, n) for dtype in ("uint8", "uint16") for n in (1, 2, 3, 4)),
    *(("jpeg", "uint8", n) for n in (1, 3)),
    *(("compressed_segmentation", dtype, n) for dtype in ("uint32", "uint64") for n in (1, 3)),
]


@pytest.mark.parametrize(("encoding", "dtype", "n_channels"), COMBINATIONS)
def test_every_encoding(tmp_path: Path, encoding: str, dtype: str, n_channels: int) -> None:
    values = voxels(dtype, (n_channels, *SHAPE[1:]))
    volume = write_volume(tmp_path / "v", values, offset=(-3, 5, 700), encoding=ENCODINGS[encoding])
    group = gridref.scan(volume)
    shown = values_of(group)
    expected = volume_values(volume)
    assert shown.dtype == expected.dtype
    np.testing.assert_array_equal(shown, expected)
    if encoding != "jpeg":
        np.testing.assert_array_equal(shown, values)


@pytest.mark.parametrize("n_channels", [1, 3, 4])
def test_jpeg_xl(tmp_path: Path, n_channels: int) -> None:
    values = voxels("uint8", (n_channels, 8, 8, 8))
    volume = write_volume(tmp_path / "v", values)
    change_info(volume, lambda info: info["scales"][0].update(encoding="jxl"))
    pixels = np.moveaxis(values, 0, -1).reshape(64, 8, n_channels)
    image = imagecodecs.jpegxl_encode(np.ascontiguousarray(np.squeeze(pixels)), lossless=True)
    (volume / "4_4_40/0-8_0-8_0-8").write_bytes(image)
    np.testing.assert_array_equal(values_of(gridref.scan(volume)), values)


BLOCK = (8, 8, 8)


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
@pytest.mark.parametrize(
    ("n_values", "block"),
    [
        *((n, BLOCK) for n in (1, 2, 3, 16, 17, 256, 257, 5000)),
        *((257, block) for block in ((3, 5, 64), (64, 64, 64), (1, 1, 1))),
    ],
)
def test_compressed_segmentations_of_every_width(
    tmp_path: Path, n_values: int, block: tuple[int, ...], dtype: str
) -> None:
    random = np.random.default_rng(1)
    values = random.integers(0, 2**31, n_values)[random.integers(0, n_values, (1, 19, 17, 33))]
    encoding = {
        "encoding": "compressed_segmentation",
        "compressed_segmentation_block_size": block,
    }
    volume = write_volume(
        tmp_path / "v", values.astype(dtype), chunk=(16, 16, 16), encoding=encoding
    )
    np.testing.assert_array_equal(values_of(gridref.scan(volume)), values)


@pytest.mark.parametrize("view", ["native", "portable"])
def test_chunks_of_raw_volumes_are_plain_zarr(tmp_path: Path, view: Any) -> None:
    values = voxels("uint16", SHAPE)
    group = gridref.scan(write_volume(tmp_path / "v", values))
    with zarr.config.set({"array.rectilinear_chunks": True}):
        array = zarr.open_group(gridref.open_store(group, view), mode="r")["0/image"]
        assert isinstance(array, zarr.Array)
        assert [codec.to_dict()["name"] for codec in array.metadata.codecs] == ["bytes"]
        np.testing.assert_array_equal(array[...], values)


def test_scales_are_described_as_ome_zarr(tmp_path: Path) -> None:
    values = voxels("uint8", (1, 9, 13, 20))
    volume = write_volume(tmp_path / "v", values, values[:, :, ::2, ::2].copy(), offset=(1, -2, 3))
    change_info(volume, lambda info: info.update(mesh="mesh"))
    group = gridref.scan(volume)
    assert [*group.groups] == ["0", "1"]
    for number in (0, 1):
        shown = values_of(group, f"{number}/image")
        np.testing.assert_array_equal(shown, volume_values(volume, number))
    assert group.attrs["mesh"] == "mesh"
    (multiscale,) = group.attrs["ome"]["multiscales"]
    assert [axis["name"] for axis in multiscale["axes"]] == ["channel", "z", "y", "x"]
    scale, translation = multiscale["datasets"][1]["coordinateTransformations"]
    assert multiscale["datasets"][1]["path"] == "1/image"
    assert scale["scale"] == [1, 40, 8, 8]
    assert translation["translation"] == [0, 140, -12, 12]
    array = group.groups["1"].arrays["image"]
    assert array.attrs["key"] == "8_8_40"
    assert [*array.attrs["resolution"]] == [8, 8, 40]
    np.testing.assert_array_equal(group.groups["1"].arrays["x"].read(), 12 + 8 * np.arange(10))
    assert group.groups["1"].arrays["x"].attrs == {"units": "nm"}


def test_segmentations_have_the_name(tmp_path: Path) -> None:
    values = voxels("uint64", (1, 8, 8, 8))
    volume = write_volume(tmp_path / "v", values, kind="segmentation")
    np.testing.assert_array_equal(values_of(gridref.scan(volume), "0/segmentation"), values)


def test_the_first_of_several_chunk_sizes_is_read(tmp_path: Path) -> None:
    values = voxels("uint8", (1, 8, 8, 8))
    volume = write_volume(tmp_path / "v", values)
    change_info(
        volume, lambda info: info["scales"][0].update(chunk_sizes=[[8, 8, 8], [512, 1, 512]])
    )
    np.testing.assert_array_equal(values_of(gridref.scan(volume)), values)


# ---- chunks that are there, or not --------------------------------------------------------


def test_absent_chunks_are_zero(tmp_path: Path) -> None:
    values = voxels("uint16", SHAPE) | 1
    volume = write_volume(tmp_path / "v", values)
    (volume / "4_4_40/8-16_0-8_0-8").unlink()
    (volume / "4_4_40/notes").write_text("not a chunk")
    (volume / "4_4_40/0-8_0-8_0-9").write_text("the end is wrong")
    shown = values_of(gridref.scan(volume))
    np.testing.assert_array_equal(shown, volume_values(volume))
    assert (shown == 0).sum() == 2 * 8 * 8 * 8


@pytest.mark.parametrize("present", [0, 1])
def test_chunk_files_may_be_compressed(tmp_path: Path, present: int) -> None:
    values = voxels("uint16", SHAPE)
    volume = write_volume(tmp_path / "v", values)
    for number, path in enumerate(sorted((volume / "4_4_40").iterdir())):
        if number >= present:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    for view in ("portable", "direct"):
        np.testing.assert_array_equal(values_of(gridref.scan(volume), view=view), values)


def test_files_in_other_compressions_are_not_absent_chunks(tmp_path: Path) -> None:
    volume = write_volume(tmp_path / "v", voxels("uint16", SHAPE))
    path = volume / "4_4_40/8-16_0-8_0-8"
    path.rename(f"{path}.br")
    with pytest.raises(UnsupportedFeatureError, match=r"chunk file '8-16_0-8_0-8.br' is not read"):
        gridref.scan(volume)


@pytest.mark.parametrize("name", ENCODINGS)
def test_cut_chunks_are_refused(tmp_path: Path, name: str) -> None:
    dtype = "uint32" if name == "compressed_segmentation" else "uint8"
    values = voxels(dtype, (1, 8, 8, 8), n_values=9)
    volume = write_volume(tmp_path / "v", values, encoding=ENCODINGS[name])
    expected = volume_values(volume)
    (encoding,) = gridref.scan(volume).groups["0"].arrays["image"].encodings
    content = (volume / "4_4_40/0-8_0-8_0-8").read_bytes()
    n_refused = 0
    for n_bytes in range(len(content)):
        try:
            shown = decode_chunk(content[:n_bytes], encoding)
        except DecodeError:
            n_refused += 1
        else:
            np.testing.assert_array_equal(shown, expected, f"{n_bytes} bytes")
    assert n_refused > len(content) - 16  # what ends an image may be cut off


def test_a_chunk_that_vanishes_is_an_error(tmp_path: Path) -> None:
    volume = write_volume(tmp_path / "v", voxels("uint8", SHAPE))
    group = gridref.scan(volume)
    (volume / "4_4_40/8-16_0-8_0-8").unlink()
    with pytest.raises(SourceUnavailableError, match="8-16_0-8_0-8"):
        group["0"]["image"].read()


# ---- shards -------------------------------------------------------------------------------

PARAMETERS = [
    {"hash": hash_name, "preshift_bits": preshift, "minishard_bits": minishard, "shard_bits": shard}
    for hash_name in ("identity", "murmurhash3_x86_128")
    for preshift, minishard, shard in ((0, 0, 0), (1, 2, 3), (9, 3, 1), (0, 0, 5), (3, 1, 0))
]


@pytest.mark.long(but=8)
@pytest.mark.parametrize(("index", "data"), [("raw", "gzip"), ("gzip", "raw")])
@pytest.mark.parametrize("parameters", PARAMETERS)
def test_shards(tmp_path: Path, parameters: dict[str, Any], index: str, data: str) -> None:
    values = voxels("uint16", (2, 15, 21, 27))
    own = sharding(**parameters, minishard_index_encoding=index, data_encoding=data)
    volume = write_volume(tmp_path / "v", values, chunk=(4, 4, 4), sharding=own)
    array = gridref.scan(volume)["0"]["image"]
    np.testing.assert_array_equal(array.read(), values)
    np.testing.assert_array_equal(array.read(x=slice(3, 9), z=7), values[:, 7, :, 3:9])


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_shards_of_every_encoding(tmp_path: Path, encoding: str) -> None:
    values = voxels("uint32" if encoding == "compressed_segmentation" else "uint8", (1, 9, 13, 20))
    volume = write_volume(tmp_path / "v", values, encoding=ENCODINGS[encoding], sharding=sharding())
    np.testing.assert_array_equal(values_of(gridref.scan(volume)), volume_values(volume))


def test_absent_shards_and_chunks_are_zero(tmp_path: Path) -> None:
    values = np.zeros((1, 30, 30, 30), "uint8")
    values[:, :8, :8, 3:5] = 1  # tensorstore writes no chunks of zeros
    values[:, 20:, 20:, 20:] = 2
    volume = write_volume(tmp_path / "v", values, chunk=(4, 4, 4), sharding=sharding(shard_bits=5))
    assert 0 < len(list((volume / "4_4_40").iterdir())) < 32
    np.testing.assert_array_equal(gridref.scan(volume)["0"]["image"].read(), values)


def test_volumes_without_shards_are_zero(tmp_path: Path) -> None:
    values = np.zeros((1, 30, 30, 30), "uint8")
    volume = write_volume(tmp_path / "v", values, chunk=(4, 4, 4), sharding=sharding())
    np.testing.assert_array_equal(gridref.scan(volume)["0"]["image"].read(), values)
    gridref.build([volume], tmp_path / "c.gridref")
    shown = gridref.open_catalog(tmp_path / "c.gridref")["0"]["image"]
    np.testing.assert_array_equal(shown.read(), values)


def test_shards_become_a_catalog(tmp_path: Path) -> None:
    values = voxels("uint16", (1, 15, 21, 27))
    volume = write_volume(tmp_path / "v", values, chunk=(4, 4, 4), sharding=sharding())
    gridref.build([volume], tmp_path / "c.gridref", identity="content")
    shown = gridref.open_catalog(tmp_path / "c.gridref")["0"]["image"]
    np.testing.assert_array_equal(shown.read(), values)
    for view in ("native", "portable", "direct"):
        with zarr.config.set({"array.rectilinear_chunks": True}):
            np.testing.assert_array_equal(values_of(gridref.scan(volume), view=view), values)


def test_sharded_slabs_become_one_volume(tmp_path: Path) -> None:
    values = voxels("uint16", (1, 16, 13, 20))
    slabs = [
        write_volume(
            tmp_path / f"v{start}",
            values[:, start : start + 8],
            offset=(0, 0, start),
            sharding=sharding(),
        )
        for start in (0, 8)
    ]
    gridref.build(slabs, tmp_path / "c.gridref", concat_dim="z")
    shown = gridref.open_catalog(tmp_path / "c.gridref")["0"]["image"]
    np.testing.assert_array_equal(shown.read(), values)


def test_scans_of_shards_go_to_other_processes(tmp_path: Path) -> None:
    values = voxels("uint16", (1, 15, 21, 27))
    volume = write_volume(tmp_path / "v", values, chunk=(4, 4, 4), sharding=sharding())
    group = gridref.scan(volume)
    group["0"]["image"].read()
    again = pickle.loads(pickle.dumps(group))
    np.testing.assert_array_equal(again["0"]["image"].read(), values)


def test_a_shard_that_changed_is_an_error(tmp_path: Path) -> None:
    values = voxels("uint16", (1, 15, 21, 27))
    volume = write_volume(tmp_path / "v", values, sharding=sharding(shard_bits=0))
    group = gridref.scan(volume)
    path = volume / "4_4_40/0.shard"
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(SourceChangedError):
        group["0"]["image"].read()


def test_a_scan_reads_no_index(tmp_path: Path) -> None:
    values = voxels("uint16", (1, 15, 21, 27))
    own = sharding(shard_bits=1, minishard_bits=3, minishard_index_encoding="raw")
    volume = write_volume(tmp_path / "v", values, chunk=(4, 4, 4), sharding=own)
    with serving(site_of(volume)) as site:
        group = gridref.scan(f"{site.url}/v/info")
        of_shards = [wanted for _, path, wanted in site.requests if path.endswith(".shard")]
        assert of_shards
        assert {*of_shards} <= {None, "bytes=0-0", "bytes=1-1"}
        site.requests.clear()
        shown = group["0"]["image"].read(x=slice(0, 9), y=slice(0, 9), z=slice(0, 9))
        np.testing.assert_array_equal(shown, values[:, :9, :9, :9])
        # Of each shard its index, those of its minishards, and the chunks, which lie together.
        assert len(site.requests) == 2 * 3
        site.requests.clear()
        group["0"]["image"].read(x=slice(0, 5), y=slice(0, 5), z=slice(0, 5))
        assert len(site.requests) <= 2


def test_shards_of_the_old_form_are_refused(tmp_path: Path) -> None:
    values = voxels("uint16", (1, 15, 21, 27))
    volume = write_volume(tmp_path / "v", values, sharding=sharding(shard_bits=0))
    path = volume / "4_4_40/0.shard"
    for suffix in (".index", ".data"):
        path.with_suffix(suffix).write_bytes(path.read_bytes())
    path.unlink()
    with serving(site_of(volume)) as site:
        for address in (volume, f"{site.url}/v/info"):
            with pytest.raises(UnsupportedFeatureError, match="of the old form"):
                gridref.scan(address)


@pytest.mark.parametrize("encoding", ["raw", "gzip"])
def test_cut_shards_are_refused(tmp_path: Path, encoding: str) -> None:
    values = voxels("uint8", (1, 4, 4, 8))
    own = sharding(
        shard_bits=0, preshift_bits=0, minishard_bits=1, minishard_index_encoding=encoding
    )
    volume = write_volume(tmp_path / "v", values, chunk=(4, 4, 4), sharding=own)
    path = volume / "4_4_40/0.shard"
    content = path.read_bytes()
    for n_bytes in range(len(content)):
        path.write_bytes(content[:n_bytes])
        with pytest.raises(GridrefError, match="shard"):
            gridref.scan(volume)["0"]["image"].read()


@pytest.mark.parametrize(
    ("word", "value", "reason"),
    [
        (0, 2**40, "index of a shard points outside"),
        (1, 0, "index of a shard points outside"),
        ("ids", 2**63, "lists a chunk that cannot be in it"),
        ("same ids", 0, "lists a chunk twice"),
        ("gaps", 2**64 - 8, "points outside of its shard"),
        ("sizes", 2**64 - 1, "points outside of its shard"),
        ("length", 8, "index of a minishard has"),
    ],
)
def test_damaged_indexes(tmp_path: Path, word: Any, value: int, reason: str) -> None:
    values = voxels("uint16", (1, 8, 8, 8))
    own = sharding(shard_bits=1, preshift_bits=0, minishard_bits=1, minishard_index_encoding="raw")
    volume = write_volume(tmp_path / "v", values, chunk=(4, 4, 4), sharding=own)
    path = volume / "4_4_40/0.shard"
    words = np.frombuffer(path.read_bytes(), "<u8", (path.stat().st_size // 8)).copy()
    start, stop = (words[:2] // 8 + 4).tolist()
    n = (stop - start) // 3
    if word == "length":
        words[1] -= value
    else:
        index = {"ids": start, "same ids": start + 1, "gaps": start + n, "sizes": start + 2 * n}
        words[index.get(word, word)] = value
    path.write_bytes(words.tobytes() + path.read_bytes()[8 * len(words) :])
    with pytest.raises(SourceFormatError, match=reason):
        gridref.scan(volume)["0"]["image"].read()


def test_an_index_that_expands_without_end_is_refused(tmp_path: Path) -> None:
    values = voxels("uint16", (1, 8, 8, 8))
    own = sharding(shard_bits=0, minishard_bits=0)
    volume = write_volume(tmp_path / "v", values, chunk=(4, 4, 4), sharding=own)
    bomb = gzip.compress(bytes(24 * 10**6))
    (volume / "4_4_40/0.shard").write_bytes(struct.pack("<QQ", 0, len(bomb)) + bomb)
    with pytest.raises(SourceFormatError, match="decompresses to more than 192 bytes"):
        gridref.scan(volume)["0"]["image"].read()


# ---- servers ------------------------------------------------------------------------------


def test_on_a_web_server_each_chunk_is_asked_for(tmp_path: Path) -> None:
    values = voxels("uint16", SHAPE) | 1
    volume = write_volume(tmp_path / "v", values)
    (volume / "4_4_40/8-16_0-8_0-8").unlink()
    with serving(site_of(volume)) as site:
        group = gridref.scan(f"{site.url}/v/info")
        np.testing.assert_array_equal(values_of(group), volume_values(volume))
        n_asked = sum("_" in path for _, path, _ in site.requests)
        catalog = gridref.build([f"{site.url}/v/info"], tmp_path / "c.gridref")
        site.requests.clear()
        shown = catalog["0"]["image"].read(x=slice(0, 8))
        np.testing.assert_array_equal(shown, values[..., :8])
        assert len(site.requests) == 4
    assert n_asked >= 12


def test_failing_requests_are_not_absent_chunks(tmp_path: Path) -> None:
    volume = write_volume(tmp_path / "v", voxels("uint8", SHAPE))
    with serving(site_of(volume)) as site:
        site.forbidden.add("/v/4_4_40/8-16_0-8_0-8")
        with pytest.raises(SourceUnavailableError, match="8-16_0-8_0-8"):
            gridref.scan(f"{site.url}/v/info")


def test_compressed_files_on_a_web_server_are_found(tmp_path: Path) -> None:
    values = voxels("uint8", (1, 8, 8, 8))
    volume = write_volume(tmp_path / "v", values)
    path = volume / "4_4_40/0-8_0-8_0-8"
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    with serving(site_of(volume)) as site:
        np.testing.assert_array_equal(values_of(gridref.scan(f"{site.url}/v/info")), values)


def test_object_stores_are_listed(tmp_path: Path) -> None:
    values = voxels("uint16", SHAPE) | 1
    volume = write_volume(tmp_path / "v", values)
    (volume / "4_4_40/8-16_0-8_0-8").unlink()
    with s3_bucket() as bucket:
        for path in volume.rglob("*"):
            if path.is_file():
                bucket.put(f"v.precomputed/{path.relative_to(volume)}", path.read_bytes())
        for name in ("v.precomputed", "v.precomputed/info"):
            group = gridref.scan(f"s3://{BUCKET}/{name}", storage_options=bucket.options)
            assert group.report.n_requests < 5
            np.testing.assert_array_equal(group["0"]["image"].read(), volume_values(volume))


# ---- cubes --------------------------------------------------------------------------------


def test_slabs_become_one_volume(tmp_path: Path) -> None:
    values = voxels("uint16", (1, 24, 13, 20))
    slabs = [
        write_volume(tmp_path / f"v{start}", values[:, start : start + 8], offset=(0, 0, start))
        for start in (0, 8, 16)
    ]
    gridref.build(slabs[:2], tmp_path / "c.gridref", concat_dim="z")
    gridref.open_catalog(tmp_path / "c.gridref").append(slabs[2:])
    with xr.open_zarr(f"gridref::file://{tmp_path}/c.gridref", group="0") as opened:
        np.testing.assert_array_equal(opened["image"].values, values)
        np.testing.assert_array_equal(opened["z"], 40 * (np.arange(24) + 0.5))


def test_kept_scans_are_not_used_for_other_chunks(tmp_path: Path) -> None:
    volume = write_volume(tmp_path / "v", voxels("uint8", SHAPE) | 1)
    work = str(tmp_path / "work")
    for n_missing in (0, 1):
        catalog = gridref.build(
            [volume / "info"], tmp_path / f"c{n_missing}.gridref", run=gridref.RunOptions(work=work)
        )
        shown = catalog["0"]["image"].read()
        assert (shown == 0).sum() == n_missing * 2 * 8 * 8 * 8
        (volume / "4_4_40/8-16_0-8_0-8").unlink(missing_ok=True)


# ---- refusals -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"encoding": "compresso"}, "encoding 'compresso' is not decoded"),
        ({"encoding": "jpeg"}, "jpeg has no uint16"),
        ({"encoding": None}, "the encoding is None"),
        ({"key": "../elsewhere"}, "in another folder"),
        ({"key": "http://127.0.0.1/v"}, "in another folder"),
        ({"key": ""}, "key of a scale"),
        ({"chunk_sizes": [[8, 0, 8]]}, "chunk_sizes is 0, not an integer"),
        ({"chunk_sizes": []}, "chunk_sizes"),
        ({"chunk_sizes": [[2**40, 8, 8]], "size": [2**40, 8, 8]}, "decoded_bytes"),
        ({"size": [8, 8]}, "not three integers"),
        ({"size": [8, 8, 1.5]}, "size is 1.5"),
        ({"size": [2**40, 8, 8]}, "chunk_rows"),
        ({"size": [2**29, 8, 8]}, "sparse_chunk_rows"),
        ({"voxel_offset": "0"}, "voxel_offset"),
        ({"resolution": [4, 4, -40]}, "resolution"),
        ({"resolution": [4, 4, 10**400]}, "resolution"),
        ({"sharding": {"@type": "other"}}, "sharding is of type 'other'"),
    ],
)
def test_scales_that_are_refused(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    values = voxels("uint16", SHAPE)
    volume = write_volume(tmp_path / "v", values, values[:, :, ::2, ::2].copy())
    change_info(volume, lambda info: info["scales"][0].update(change))
    with pytest.raises((SourceFormatError, UnsupportedFeatureError), match=reason) as refusal:
        gridref.scan(volume)
    assert refusal.value.place.variable == "/0/image"
    group = gridref.scan(volume, on_unsupported="skip")
    np.testing.assert_array_equal(values_of(group, "1/image"), values[:, :, ::2, ::2])
    assert [finding.path for finding in group.report if finding.reason] == ["/0/image"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"data_type": "complex64"}, "complex64"),
        ({"num_channels": 0}, "num_channels is 0"),
        ({"num_channels": True}, "num_channels is True"),
        ({"scales": []}, "no scales"),
        ({"scales": {}}, "no scales"),
        ({"@type": "neuroglancer_legacy_mesh"}, "no volume but 'neuroglancer_legacy_mesh'"),
    ],
)
def test_volumes_that_are_refused(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    volume = write_volume(tmp_path / "v", voxels("uint16", SHAPE))
    change_info(volume, lambda info: info.update(change))
    with pytest.raises((SourceFormatError, UnsupportedFeatureError), match=reason):
        gridref.scan(volume)


def test_a_cut_info_is_refused(tmp_path: Path) -> None:
    volume = write_volume(tmp_path / "v", voxels("uint16", (1, 8, 8, 8)))
    content = (volume / "info").read_bytes()
    for n_bytes in range(len(content)):
        (volume / "info").write_bytes(content[:n_bytes])
        with pytest.raises(GridrefError):
            gridref.scan(volume)
