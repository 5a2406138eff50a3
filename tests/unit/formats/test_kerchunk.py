"""Kerchunk references as sources."""

import base64
import json

import fsspec
import h5py
import numpy as np
import pytest

import gridref
from gridref.errors import (
    SourceChangedError,
    SourceFormatError,
    SourceNotAllowedError,
    SourceUnavailableError,
    UnsupportedFeatureError,
)
from gridref.io import SourcePool
from gridref.model.manifest import ChunkState
from gridref.serve.reader import Reader
from tests.by_kerchunk import hdf5_references
from tests.http_server import Site, serving

VALUES = np.arange(60, dtype="f4").reshape(10, 6)
ZARRAY = {
    "zarr_format": 2,
    "shape": [4],
    "chunks": [2],
    "dtype": "<i2",
    "compressor": None,
    "filters": None,
    "order": "C",
    "fill_value": 0,
}


def read(array):
    return Reader(SourcePool()).read(array)


def write(folder, document):
    path = folder / "refs.json"
    path.write_text(json.dumps(document))
    return path


def test_what_kerchunk_makes_of_hdf5(tmp_path):
    path = tmp_path / "data.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=VALUES, chunks=(4, 3), compression="gzip", shuffle=True)
        file["g/scalar"] = np.int32(7)
    references = write(tmp_path, hdf5_references(path))
    group = gridref.scan(references)
    np.testing.assert_array_equal(read(group["v"]), VALUES)
    assert read(group["g/scalar"]) == 7
    store = gridref.open_store(group)
    np.testing.assert_array_equal(
        read(gridref.scan(path)["v"]), np.asarray(read(store.space.group["v"]))
    )


@pytest.mark.parametrize("version", [0, 1])
def test_every_kind_of_reference(tmp_path, version):
    (tmp_path / "whole.bin").write_bytes(np.array([1, 2], "<i2").tobytes())
    (tmp_path / "part.bin").write_bytes(b"xx" + np.array([3, 4], "<i2").tobytes() + b"yy")
    text = base64.b64encode(np.array([5, 6], "<i2").tobytes()).decode()
    references = {
        ".zgroup": json.dumps({"zarr_format": 2}) if version else {"zarr_format": 2},
        "v/.zarray": json.dumps({**ZARRAY, "shape": [8]}),
        "v/.zattrs": json.dumps({"_ARRAY_DIMENSIONS": ["x"]}),
        "v/0": ["{{w}}"] if version else ["whole.bin"],
        "v/1": ["part.bin", 2, 4],
        "v/2": f"base64:{text}",
    }
    document = references
    if version:
        document = {"version": 1, "templates": {"w": "whole.bin"}, "refs": references}
    array = gridref.scan(write(tmp_path, document))["v"]
    assert read(array).tolist() == [1, 2, 3, 4, 5, 6, 0, 0]
    assert array.dims == ("x",)
    states = array.manifests[0].state.tolist()
    assert states == [ChunkState.RANGE, ChunkState.RANGE, ChunkState.INLINE, ChunkState.MISSING]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"gen": [{"key": "x"}]}, SourceFormatError, "no dimensions"),
        ({"templates": {"f": "{{c}}"}}, UnsupportedFeatureError, "without its values"),
        ({"version": 7}, SourceFormatError, "version 7"),
        ({"refs": {"v/.zarray": json.dumps(ZARRAY), "v/0": ["a", 1]}}, SourceFormatError, "'v/0'"),
        ({"refs": {"a": "base64:%%"}}, SourceFormatError, "base64"),
    ],
)
def test_what_is_refused(tmp_path, change, error, message):
    document = {
        "version": 1,
        "templates": {"f": "a.bin"},
        "refs": {".zgroup": '{"zarr_format": 2}', "v/0": ["{{f}}", 0, 4]},
    }
    with pytest.raises(error, match=message):
        gridref.scan(write(tmp_path, {**document, **change}))


def test_references_beyond_the_end_are_refused(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"1234")
    document = {"v/.zarray": ZARRAY, ".zgroup": {"zarr_format": 2}, "v/0": ["a.bin", 2, 4]}
    with pytest.raises(SourceFormatError, match="beyond the end"):
        gridref.scan(write(tmp_path, document))


def remote_document(url):
    return {
        ".zgroup": {"zarr_format": 2},
        "v/.zarray": ZARRAY,
        "v/0": [f"{url}/a.bin", 0, 4],
        "v/1": [f"{url}/a.bin", 4, 4],
    }


def test_remote_files_are_described_once_and_a_change_is_noticed(tmp_path):
    content = np.array([1, 2, 3, 4], "<i2").tobytes()
    site = Site({"/a.bin": content}, {"/a.bin": '"one"'})
    with serving(site) as running:
        group = gridref.scan(write(tmp_path, remote_document(running.url)), allow=running.url)
        # The second one finds out whether the server ignores ranges.
        assert [asked for *_, asked in site.requests] == ["bytes=0-0", "bytes=1-1"]
        (source,) = group["v"].manifests[0].sources
        assert (source.size_bytes, source.etag) == (8, '"one"')
        assert read(group["v"]).tolist() == [1, 2, 3, 4]
        site.etags["/a.bin"] = '"two"'
        with pytest.raises(SourceChangedError, match="version was"):
            read(group["v"])
        del site.files["/a.bin"]
        with pytest.raises(SourceUnavailableError):
            gridref.scan(write(tmp_path, remote_document(running.url)), allow=running.url)


def test_files_out_of_reach_are_known_by_address(tmp_path):
    with serving(Site()) as gone:
        url = gone.url
    group = gridref.scan(write(tmp_path, remote_document(url)), allow=[url])
    (source,) = group["v"].manifests[0].sources
    assert (source.url, source.size_bytes, source.etag) == (f"{url}/a.bin", None, None)
    document = {**remote_document(url), "v/1": [f"{url}/a.bin", 2**70, 4]}
    with pytest.raises(SourceFormatError, match="beyond the end"):
        gridref.scan(write(tmp_path, document), allow=[url])


def test_names_are_relative_to_the_references_anywhere():
    memory = fsspec.filesystem("memory")
    memory.pipe("refs/a.bin", np.array([1, 2], "<i2").tobytes())
    memory.pipe("refs/deep/b.bin", np.array([3, 4], "<i2").tobytes())
    document = {"v/.zarray": ZARRAY, ".zgroup": {"zarr_format": 2}}
    document |= {"v/0": ["../a.bin"], "v/1": ["./b.bin", 0, 4]}
    memory.pipe("refs/deep/refs.json", json.dumps(document).encode())
    array = gridref.scan("memory://refs/deep/refs.json", allow="memory://refs/")["v"]
    assert read(array).tolist() == [1, 2, 3, 4]
    document |= {"v/1": ["memory://else/b.bin", 0, 4]}
    memory.pipe("refs/deep/refs.json", json.dumps(document).encode())
    with pytest.raises(
        SourceNotAllowedError, match=r"allow=\['memory://refs/', 'memory://else/'\]"
    ):
        gridref.scan("memory://refs/deep/refs.json")


GEN = {"key": "v/{{i}}", "url": "a.bin", "dimensions": {"i": {"stop": 600_000}}}


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (
            {
                "refs": {},
                "gen": [
                    {**GEN, "dimensions": {"i": {"stop": 3}}},
                    {**GEN, "dimensions": {"i": {"stop": 10**6}}},
                ],
            },
            "gen stands for 1000003",
        ),
        (
            {"refs": {"v/0": ["{{u}}" * 2]}, "templates": {"u": "y" * 40_000}},
            "rendered_characters",
        ),
        (
            {"refs": {}, "gen": [{**GEN, "url": "{{u}}{{i}}"}], "templates": {"u": "y" * 60_000}},
            "the limit generated_bytes",
        ),
    ],
)
def test_few_bytes_do_not_stand_for_very_many_references(tmp_path, document, reason):
    with pytest.raises(UnsupportedFeatureError, match=reason):
        gridref.scan(write(tmp_path, {"version": 1, **document}))


@pytest.mark.parametrize(
    "changes",
    [
        {"fill_value": [1, 2]},
        {"fill_value": {}},
        {"shape": [1] * 65, "chunks": [1] * 65},
        {"dtype": "|V4", "fill_value": [1, 2]},
        {"fill_value": 0.5},
        {"shape": [4.5]},
        {"chunks": [-2]},
        {"order": "f"},
        {"dimension_separator": "_"},
    ],
)
def test_metadata_that_no_array_has_is_refused_by_the_scan(tmp_path, changes):
    with pytest.raises((SourceFormatError, UnsupportedFeatureError)):
        read(gridref.scan(write(tmp_path, {"v/.zarray": {**ZARRAY, **changes}}))["v"])


def test_real_references(shared_data):
    folder = shared_data / "kerchunk_refs"
    group = gridref.scan(folder / "gdal/kerchunk_json/json_ref_v0_min/ref.json")
    path = folder / "gdal/kerchunk_json/json_ref_v0_min/0.bin"
    assert read(group["x"]).tobytes() == path.read_bytes()
    with pytest.raises(SourceFormatError, match="list of"):
        gridref.scan(folder / "kerchunk_grib/hrrr.wrfsfcf.subset.json")
