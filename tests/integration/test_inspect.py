"""What ``gridref info`` and ``gridref doctor`` say of files and servers."""

from __future__ import annotations

import json
import re
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import rasterio
from typer.testing import CliRunner

import gridref
from gridref.api.doctor import Step, examined, extras
from gridref.api.inspect import Inspection, inspect
from gridref.errors import GridrefError, SourceFormatError
from gridref.faces.cli import app
from gridref.faces.cli.look import print_installed
from tests.command import run_command
from tests.http_server import Site, serving
from tests.s3_server import s3_bucket

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
    assert told == names.get(strategy, "not stated in the file")
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
    for words in (
        "scanning one more file like it",
        "h5repack -S PAGE",
        "superblock version: 0",
        "[#",
    ):
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


def data_file(path: Path, **options: object) -> Path:
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=np.arange(40) + 7, chunks=(10,), **options)
    return path


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    return data_file(tmp_path / "a.h5").read_bytes()


def last(url: object, **options: object) -> Step:
    """The last step of an examination; all before it went well."""
    *before, step = examined(str(url), options or None)
    assert all(each.ok for each in before)
    return step


HTTP = [
    "name",
    "connection",
    "file",
    "ranges",
    "identity",
    "format",
    "metadata",
    "codecs",
    "chunks",
]


def test_what_can_be_read(content: bytes, tmp_path: Path) -> None:
    site = Site({"/a.h5": content}, {"/a.h5": '"1"'})
    with serving(site):
        steps = list(examined(f"{site.url}/a.h5"))
    assert [step.name for step in steps] == HTTP
    assert all(step.ok for step in steps)
    told = {step.name: step.text for step in steps}
    assert told["file"].startswith(f"{len(content)} bytes")
    assert "ETag" in told["identity"]
    assert told["format"] == "HDF5/NetCDF4"
    assert told["chunks"] == "an element of v was read: 7"
    local = [step.name for step in examined(tmp_path / "a.h5")]
    assert local == ["file", "identity", "format", "metadata", "codecs", "chunks"]


def test_of_a_folder_the_first_file_is_examined(tmp_path: Path) -> None:
    for name in ("b.h5", "a.h5"):
        data_file(tmp_path / name)
    steps = list(examined(tmp_path))
    assert all(step.ok for step in steps)
    assert steps[0].text == (f"2 in the folder; what follows is of the first: {tmp_path / 'a.h5'}")
    assert [step.name for step in steps[1:]] == ["file", *HTTP[4:]]


def test_servers_that_fail_and_what_helps(content: bytes) -> None:
    site = Site({"/a.h5": content})
    with serving(site):
        site.ignores_ranges = True
        step = last(f"{site.url}/a.h5")
        assert (step.name, step.ok) == ("ranges", False)
        assert "Copy the file to a place that serves them" in step.text
        site.ignores_ranges = False
        assert last(f"{site.url}/a.h5").ok
        step = last(f"{site.url}/none.h5")
        assert (step.name, step.ok) == ("file", False)
        assert "does not exist" in step.text
        for status in (401, 403):
            site.refuses = lambda headers, path, status=status: (
                None if headers.get("X-Key") == "right" else status
            )
            step = last(f"{site.url}/a.h5?token=S3cr3tX")
            assert (step.name, step.ok) == ("file", False)
            assert "the credentials in storage_options" in step.text
            assert "S3cr3tX" not in step.text
            assert last(f"{site.url}/a.h5", http={"headers": {"X-Key": "right"}}).ok
        port = site.url.rpartition(":")[2]
    step = last(f"http://127.0.0.1:{port}/a.h5")
    assert (step.name, step.ok) == ("connection", False)
    assert f"no server answers at 127.0.0.1, port {port}" in step.text
    step = last("http://no-such-server.invalid/a.h5")
    assert (step.name, step.ok) == ("name", False)
    assert "no-such-server.invalid" in step.text
    for server in (f"{'x' * 80}.org", "127.0.0.1:99999", "[::1"):
        step = last(f"http://{server}/a.h5")
        assert (step.name, step.ok) == ("name", False)


def test_files_that_fail(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "notes.txt").write_text("nothing to scan here")
    step = last(tmp_path / "notes.txt")
    assert (step.name, step.ok) == ("format", False)
    assert "looks like plain text" in step.text
    (tmp_path / "cut.h5").write_bytes(content[: len(content) // 2])
    step = last(tmp_path / "cut.h5")
    assert (step.name, step.ok) == ("metadata", False)
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_chunk((10,))
    settings.set_filter(32024, h5py.h5z.FLAG_OPTIONAL, ())  # SZ3, which nothing decodes
    with h5py.File(tmp_path / "odd.h5", "w") as file:
        space = h5py.h5s.create_simple((40,))
        h5py.h5d.create(file.id, b"odd", h5py.h5t.NATIVE_INT32, space, settings)
        file["even"] = np.arange(3)
    step = last(tmp_path / "odd.h5")
    assert (step.name, step.ok) == ("codecs", False)
    assert "SZ3" in step.text
    assert "gridref build --on-unsupported skip" in step.text
    done = run_command(
        "build", tmp_path / "odd.h5", "-o", tmp_path / "odd.gridref", "--on-unsupported", "skip"
    )
    assert done.returncode == 0, done.stderr
    assert gridref.open_catalog(tmp_path / "odd.gridref")["even"].read().tolist() == [0, 1, 2]
    step = last(tmp_path / "none.h5")
    assert (step.name, step.ok) == ("file", False)
    step = last("nosuchprotocol://x/a.h5")
    assert not step.ok
    assert "nosuchprotocol" in step.text


def test_catalogs(tmp_path: Path, content: bytes) -> None:
    catalog = tmp_path / "cube.gridref"
    gridref.build(tmp_path / "a.h5", catalog)
    names = [step.name for step in examined(catalog)]
    assert names == ["catalog", "sources", "chunks"]
    assert last(catalog).text == "an element of v was read: 7"
    (tmp_path / "a.h5").rename(tmp_path / "b.h5")
    step = last(catalog)
    assert (step.name, step.ok) == ("sources", False)
    (tmp_path / "b.h5").rename(tmp_path / "a.h5")
    next(catalog.glob("*.parquet")).write_bytes(b"damaged")
    step = last(catalog)
    assert (step.name, step.ok) == ("catalog", False)
    shutil.rmtree(catalog)
    step = last(catalog)
    assert (step.name, step.ok) == ("catalog", False)


def test_s3(content: bytes) -> None:
    with s3_bucket() as bucket:
        url = bucket.put("a.h5", content)
        steps = list(examined(url, bucket.options))
        assert [step.name for step in steps] == HTTP
        assert all(step.ok for step in steps)
    assert "no server answers at 127.0.0.1, port " in last(url, **bucket.options).text
    held = {**bucket.options["s3"], "client_kwargs": {}}
    step = last(url, s3={**held, "endpoint_url": "http://no-such-server.invalid"})
    assert (step.name, step.ok) == ("name", False)
    assert "no-such-server.invalid" in step.text
    for server in (f"{'x' * 80}.org", "127.0.0.1:99999", "[::1"):
        step = last(f"http://{server}/a.h5")
        assert (step.name, step.ok) == ("name", False)
    step = last(url, profile="no-such-profile")
    assert (step.name, step.ok) == ("name", False)
    assert "no-such-profile" in step.text


def test_the_command(tmp_path: Path, content: bytes) -> None:
    path, text = tmp_path / "a.h5", tmp_path / "notes.txt"
    text.write_text("nothing to scan here")
    done = run_command("doctor", path)
    assert (done.returncode, done.stdout.count("\n  ok ")) == (0, 6)
    done = run_command("doctor", path, text, "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert list(found) == [str(path), str(text)]
    assert [step["ok"] for step in found[str(text)]] == [True, True, False]


def test_what_is_installed() -> None:
    found = json.loads(run_command("doctor", "--json").stdout)
    assert found["gridref"] == version("gridref")
    assert found["extras"] == extras()
    assert found["extras"]["grib"]
    shown = run_command("doctor").stdout
    assert f"gridref {version('gridref')}" in shown
    for extra, packages in extras().items():
        advice = f"pip install 'gridref[{extra}]'"
        assert (advice in shown) == (None in packages.values())


def test_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    packages = {"grib": {"gribberish": None, "eccodes": "2.50"}, "sql": {"duckdb": "2.0"}}
    print_installed({"gridref": "0.1"}, packages, as_json=False)
    grib, sql = capsys.readouterr().out.splitlines()[1:]
    assert grib.endswith("eccodes 2.50; missing gribberish: pip install 'gridref[grib]'")
    assert sql.endswith("duckdb 2.0")
