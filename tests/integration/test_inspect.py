"""What ``gridref info`` says of files, against servers, and against files written as it says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import rasterio
from typer.testing import CliRunner

from gridref.api.inspect import Inspection, inspect
from gridref.errors import GridrefError, SourceFormatError
from gridref.faces.cli import app
from tests.http_server import Site, serving

SCATTERED = [
    "hdf5/realistic/fsspec__kerchunk__NEONDSTowerTemperatureData.hdf5",
    "families/iris_north_america_pair/A1B_north_america.nc",
]
STRIPS = "tiff/realistic/rasterio__rasterio__RGB.byte.tif"


def command_with(inspection: Inspection, words: str) -> str:
    return next(each.command for each in inspection.advice if words in each.command)


def repacked(path: Path, copy: Path, **options: Any) -> Path:
    """What h5repack writes, by the library that it uses."""
    with h5py.File(path) as source, h5py.File(copy, "w", **options) as target:
        for name in source:
            source.copy(source[name], target, name=name)
    return copy


@pytest.mark.parametrize("name", SCATTERED)
def test_pages_as_advised_take_as_few_requests_as_promised(
    shared_data: Path, tmp_path: Path, name: str
) -> None:
    found = inspect(shared_data / name)
    assert found.n_requests_alike > 3
    assert len(found.metadata) > 3
    page = int(re.findall(r"-G (\d+)", command_with(found, "-S PAGE"))[0])
    copy = repacked(shared_data / name, tmp_path / "a.h5", fs_strategy="page", fs_page_size=page)
    after = inspect(copy)
    assert after.n_requests_alike <= 3
    assert after.facts["file space strategy"] == "page"
    assert after.facts["file space page bytes"] == page
    assert not [each for each in after.advice if "PAGE" in each.command]


@pytest.mark.parametrize("name", [*SCATTERED, STRIPS])
def test_local_files_are_counted_as_a_server_counts(shared_data: Path, name: str) -> None:
    path = shared_data / name
    site = Site({"/a": path.read_bytes()}, {"/a": '"1"'})
    local = inspect(path)
    with serving(site):
        remote = inspect(f"{site.url}/a")
        n_sent = len(site.requests)
    assert (remote.n_requests, remote.n_bytes) == (local.n_requests, local.n_bytes)
    assert (remote.n_requests_alike, remote.metadata) == (local.n_requests_alike, local.metadata)
    assert n_sent >= remote.n_requests + remote.n_requests_alike
    assert remote.arrays == local.arrays
    assert remote.advice == local.advice


def test_cogs_as_advised_take_one_request(shared_data: Path, tmp_path: Path) -> None:
    found = inspect(shared_data / STRIPS)
    assert found.n_requests == 2
    assert "-of COG" in found.advice[0].command
    assert found.facts["first directory at byte"] > 1_000_000
    with rasterio.open(shared_data / STRIPS) as source:
        profile = {"driver": "COG", "overviews": "NONE", "blocksize": 256}
        names = ("width", "height", "count", "dtype", "crs", "transform")
        kept = {key: source.profile[key] for key in names}
        with rasterio.open(tmp_path / "cog.tif", "w", **kept, **profile) as target:
            target.write(source.read())
    after = inspect(tmp_path / "cog.tif")
    assert after.n_requests == after.n_requests_alike == 1
    assert after.facts["says it is a COG"]
    assert not after.advice


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"libver": "latest"},
        {"userblock_size": 1024},
        {"libver": ("v110", "v110"), "fs_strategy": "page", "fs_page_size": 8192},
        {"libver": ("v110", "v110"), "fs_strategy": "aggregate"},
    ],
)
def test_facts_are_those_of_the_library(tmp_path: Path, options: dict[str, Any]) -> None:
    with h5py.File(tmp_path / "a.h5", "w", **options) as file:
        file.create_dataset("v", data=np.arange(100.0), chunks=(10,))
        properties = file.id.get_create_plist()
        version = properties.get_version()[0]
        strategy = properties.get_file_space_strategy()[0]
        page_bytes = properties.get_file_space_page_size()
        user_bytes = properties.get_userblock()
    found = inspect(tmp_path / "a.h5")
    assert found.facts["superblock version"] == version
    assert found.facts["user block bytes"] == user_bytes
    names = {h5py.h5f.FSPACE_STRATEGY_PAGE: "page", h5py.h5f.FSPACE_STRATEGY_AGGR: "aggr"}
    told = found.facts["file space strategy"]
    assert told == names.get(strategy, "not said")
    assert found.facts["file space page bytes"] == (page_bytes if strategy in names else None)
    assert found.arrays[0].n_chunks == 10
    assert found.arrays[0].index == ("fixed array" if options.get("libver") else "btree v1")


def test_chunks_as_advised_are_few(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(4000, 16, 16))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("v", data=values, chunks=(1, 16, 16))
    found = inspect(tmp_path / "a.h5")
    assert [array.n_small for array in found.arrays] == [4000]
    chunk = re.findall(r"v:CHUNK=(\d+)x(\d+)x(\d+)", command_with(found, "CHUNK"))[0]
    with h5py.File(tmp_path / "b.h5", "w", libver="latest") as file:
        file.create_dataset("v", data=values, chunks=tuple(map(int, chunk)))
        n_chunks = file["v"].id.get_num_chunks()
    after = inspect(tmp_path / "b.h5")
    assert after.arrays[0].n_chunks == n_chunks <= 4
    assert not after.advice


def test_on_the_command_line(shared_data: Path) -> None:
    path = str(shared_data / SCATTERED[0])
    shown = CliRunner().invoke(app, ["info", path])
    assert shown.exit_code == 0
    for words in ("of one more like it", "h5repack -S PAGE", "superblock version: 0", "[#"):
        assert words in shown.output
    document = json.loads(CliRunner().invoke(app, ["info", path, "--json"]).output)
    found = inspect(path)
    assert document["n_requests"] == found.n_requests
    assert document["arrays"][0]["path"] == found.arrays[0].path
    assert document["advice"][0]["command"] == found.advice[0].command


def test_stores_and_bad_files(shared_data: Path, tmp_path: Path) -> None:
    import zarr

    zarr.create_group(tmp_path / "s.zarr").create_array("x", data=np.arange(6.0), chunks=(2,))
    found = inspect(tmp_path / "s.zarr")
    assert found.file_bytes is None
    assert [array.n_chunks for array in found.arrays] == [3]
    data = (shared_data / SCATTERED[0]).read_bytes()
    (tmp_path / "cut.h5").write_bytes(data[: len(data) // 2])
    with pytest.raises(SourceFormatError, match="truncated"):
        inspect(tmp_path / "cut.h5")


def test_files_that_are_no_good_end_in_errors_of_ours(shared_data: Path) -> None:
    n_refused = 0
    for path in sorted((shared_data / "bad_input").glob("*/*")):
        try:
            inspect(path)
        except GridrefError:
            n_refused += 1
    assert n_refused > 10
