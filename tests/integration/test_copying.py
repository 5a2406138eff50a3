"""Copies of cubes in Zarr and Icechunk: written once, by threads, processes and clusters."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import h5py
import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr

import gridref
from gridref.api.icechunk_target import SessionSink
from gridref.errors import (
    ChecksumError,
    GridrefError,
    InvalidRequestError,
    MissingPackageError,
    NotRepresentableError,
    ReadError,
)
from gridref.model.array import VirtualArray, VirtualGroup
from tests.command import run_code, run_command
from tests.integration.archives import month
from tests.integration.test_icechunk import kinds
from tests.integration.test_overlays import SERIES, Cube, read_without_warnings
from tests.programs import npm_package, program
from tests.shared_data import shared_files


@pytest.fixture(scope="module")
def cube(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cube")
    for number in range(4):
        month(folder, number)
    gridref.build(str(folder / "*.nc"), folder / "cube.gridref", "time")
    return folder / "cube.gridref"


def same(catalog, copy, **options):
    """Whether xarray sees the same in both."""
    expected = xr.open_dataset(catalog, engine="gridref", chunks=None)
    with zarr.config.set({"array.rectilinear_chunks": True}):
        found = xr.open_zarr(copy, chunks=None, **options).load()
    xr.testing.assert_identical(found, expected.load())
    for name in expected.variables:
        assert found[name].dtype == expected[name].dtype
        bits = [np.asarray(each[name].values).tobytes() for each in (found, expected)]
        assert bits[0] == bits[1]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"chunks": {"time": -1, "lat": 2, "lon": 2}},
        {"chunks": {"time": 7}, "shards": {"time": 14, "lon": -1}},
        {"shards": "none", "codec": "shuffle-zstd"},
        {"codec": "gzip", "memory": "260MB", "n_threads": 1},
        {"grid": "rectilinear", "codec": "none"},
        {"codec": "zstd"},
        {"codec": "blosc-lz4"},
    ],
    ids=str,
)
def test_xarray_sees_the_same_cube(cube, tmp_path, options):
    report = gridref.copy(cube, tmp_path / "copy.zarr", **options)
    same(cube, tmp_path / "copy.zarr")
    same(cube, tmp_path / "copy.zarr", consolidated=False)
    assert not [path for path in (tmp_path / "copy.zarr").iterdir() if path.name[0] == "."]
    tas = report.arrays["tas"]
    assert (tas.n_stored, tas.shape) == (24, (20, 4, 6))
    assert tas.decodes >= 1
    files = [path for path in (tmp_path / "copy.zarr").rglob("*") if path.is_file()]
    assert report.n_objects == sum(path.name != "zarr.json" for path in files)


def test_chunks_and_shards_are_those_that_were_asked_for(cube, tmp_path):
    gridref.copy(
        cube,
        tmp_path / "copy.zarr",
        chunks={"time": 5, "lat": 2, "lon": 3},
        shards={"time": 10, "lat": -1, "lon": 3},
    )
    group = zarr.open_group(tmp_path / "copy.zarr", mode="r")
    assert (group["tas"].chunks, group["tas"].shards) == ((5, 2, 3), (10, 4, 3))
    gridref.copy(cube, tmp_path / "auto.zarr", chunks={"time": -1, "lat": 1})
    auto = zarr.open_group(tmp_path / "auto.zarr", mode="r")["tas"]
    assert (auto.chunks, auto.shards) == ((20, 1, 3), (20, 4, 6))
    same(cube, tmp_path / "auto.zarr")


@pytest.fixture(scope="module")
def uneven(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("uneven")
    start = 0
    for number, n_days in enumerate((31, 28, 31)):
        time = ("time", np.arange(start, start + n_days), {"units": "days since 2000-01-01"})
        values = np.random.default_rng(number).normal(size=(n_days, 600)).astype("f4")
        part = xr.Dataset({"v": (("time", "x"), values)}, {"time": time})
        encoding = {"v": {"chunksizes": (n_days, 400), "zlib": True}}
        part.to_netcdf(folder / f"{number}.nc", engine="h5netcdf", encoding=encoding)
        start += n_days
    gridref.build(str(folder / "*.nc"), folder / "uneven.gridref", "time")
    return folder / "uneven.gridref"


def test_uneven_files_become_regular_or_stay_as_they_are(uneven, tmp_path):
    regular = gridref.copy(uneven, tmp_path / "regular.zarr").arrays["v"]
    same(uneven, tmp_path / "regular.zarr")
    assert regular.chunks == (31, 400)
    kept = gridref.copy(uneven, tmp_path / "kept.zarr", grid="rectilinear").arrays["v"]
    same(uneven, tmp_path / "kept.zarr")
    assert (kept.chunks, kept.shards, kept.n_objects, kept.decodes) == (None, None, 6, 1)
    with zarr.config.set({"array.rectilinear_chunks": True}):
        document = zarr.open_array(tmp_path / "kept.zarr" / "v").metadata.to_dict()
    shapes = document["chunk_grid"]["configuration"]["chunk_shapes"]
    assert np.sum([n if np.ndim(n) == 0 else np.prod(n) for n in shapes[0]]) == 90


@pytest.mark.parametrize("to", ["zarr", "icechunk"])
def test_groups_texts_scalars_and_empty_arrays(tmp_path, to):
    tree = xr.DataTree.from_dict(
        {
            "/": xr.Dataset({"crs": ((), 7)}, attrs={"title": "a tree"}),
            "/deep/er": xr.Dataset(
                {
                    "name": ("x", np.array(["a", "bé", ""], object)),
                    "when": ("x", np.array(["2000-01-01", "NaT", "2001-05-05"], "M8[ns]")),
                    "none": (("x", "empty"), np.zeros((3, 0), "i2")),
                    "flag": ("x", np.array([True, False, True])),
                }
            ),
        }
    )
    tree.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    gridref.build(tmp_path / "tree.nc", tmp_path / "tree.gridref")
    target = tmp_path / "copy"
    gridref.copy(tmp_path / "tree.gridref", target, to=to)
    store = target if to == "zarr" else session(target).store
    found = xr.open_datatree(store, engine="zarr", consolidated=to == "zarr", chunks=None)
    expected = xr.open_datatree(tmp_path / "tree.gridref", engine="gridref")
    xr.testing.assert_identical(found.load(), expected.load())


def test_some_arrays_come_with_their_coordinates(cube, tmp_path):
    report = gridref.open_catalog(cube).copy(tmp_path / "tas.zarr", arrays=["tas"])
    assert set(report.arrays) == {"tas", "time", "lat", "lon"}
    found = xr.open_zarr(tmp_path / "tas.zarr", chunks=None)
    xr.testing.assert_identical(found.load(), xr.open_dataset(cube)[["tas"]].load())
    with pytest.raises(InvalidRequestError, match="did you mean 'tas'"):
        gridref.copy(cube, tmp_path / "other.zarr", arrays=["tass"])
    assert not (tmp_path / "other.zarr").exists()


def test_a_dry_run_says_what_a_copy_does_and_writes_nothing(cube, tmp_path):
    options = {"chunks": {"time": -1}, "memory": "500MB"}
    planned = gridref.copy(cube, tmp_path / "copy.zarr", dry_run=True, **options)
    assert not (tmp_path / "copy.zarr").exists()
    done = gridref.copy(cube, tmp_path / "copy.zarr", **options)
    assert planned.is_dry_run
    assert not done.is_dry_run
    for path, array in done.arrays.items():
        for name in ("chunks", "shards", "n_objects", "n_stored", "n_decoded"):
            assert getattr(planned.arrays[path], name) == getattr(array, name), (path, name)


# What is refused
def test_types_that_zarr_does_not_have_are_refused_before_anything_is_written(tmp_path):
    wide = VirtualArray.from_numpy(np.arange(2, dtype=np.longdouble), ("x",))
    plain = VirtualArray.from_numpy(np.arange(2), ("x",))
    group = VirtualGroup({"plain": plain}, {"deep": VirtualGroup({"wide": wide})})
    with pytest.raises(NotRepresentableError, match=r"1 array; .*\n  - deep/wide: Zarr has no"):
        gridref.copy(group, tmp_path / "copy.zarr")
    assert not (tmp_path / "copy.zarr").exists()
    gridref.copy(group, tmp_path / "copy.zarr", arrays=["plain"])
    assert zarr.open_group(tmp_path / "copy.zarr")["plain"][:].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": "lots"}, "memory='lots' is not a size"),
        ({"memory": "10MB"}, "10MB' is too little: it takes 2[0-9][0-9]MB"),
        ({"memory": "1500kB"}, "1500000B' is too little"),
        ({"codec": "zst"}, "did you mean 'zstd'"),
        ({"chunks": {"tme": 3}}, "no dimension 'tme': did you mean 'time'"),
        ({"chunks": {"time": 0}}, "must be >= 1, or -1"),
        ({"chunks": {"time": 5}, "shards": {"time": 7}}, "not divisible by chunks of 5"),
        ({"shards": "some"}, "shards"),
        ({"grid": "uneven"}, "grid"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(cube, tmp_path, options, message):
    with pytest.raises(InvalidRequestError, match=message):
        gridref.copy(cube, tmp_path / "copy.zarr", **options)
    assert not (tmp_path / "copy.zarr").exists()


def test_a_target_that_holds_something_else_is_left_alone(cube, uneven, tmp_path):
    gridref.copy(cube, tmp_path / "copy.zarr")
    with pytest.raises(InvalidRequestError, match="target is not empty"):
        gridref.copy(cube, tmp_path / "copy.zarr")
    same(cube, tmp_path / "copy.zarr")
    begun = begin(cube, tmp_path / "begun.zarr")
    for catalog, options in ((uneven, {}), (cube, {"codec": "gzip"}), (cube, {"arrays": ["tas"]})):
        with pytest.raises(InvalidRequestError, match="unfinished copy of another source"):
            gridref.copy(catalog, begun, **options)
    assert gridref.copy(cube, begun).n_adopted > 0
    same(cube, begun)


def begin(catalog, target):
    """A copy that ends before the first metadata."""
    gridref.copy(catalog, target.with_suffix(".whole"))
    kill_after(catalog, target, "tas/zarr.json")
    return target


# Copies that are killed
KILLED = """
import os, sys
import gridref
from gridref.api.rewriting import writer

catalog, target, name = sys.argv[1:]
put = writer.LocalSink.put

def put_or_die(self, which, parts):
    if which == name:
        os.kill(os.getpid(), 9)
    return put(self, which, parts)

writer.LocalSink.put = put_or_die
gridref.copy(catalog, target)
"""


def kill_after(catalog, target, name):
    """Kill a copy when it is about to write an object."""
    assert run_code(KILLED, catalog, target, name).returncode == -9


KILLED_AT_EACH_MOMENT = """
import os, sys
from pathlib import Path
import gridref, gridref.serve.reader

catalog, folder, step = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
OPTIONS = {"chunks": {"time": 5, "lat": 2}, "shards": {"time": 5, "lat": 2, "lon": 3}}
CALLS = ["link", "unlink", "fsync", "makedirs", "rmdir", "open"]

def copy(target, moments):
    # In a child that dies just before the n-th call that changes something.
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left = [moments]
    def dying(call):
        def made(*args, **options):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), 9)
            return call(*args, **options)
        return made
    for name in CALLS:
        setattr(os, name, dying(getattr(os, name)))
    gridref.copy(catalog, target, **OPTIONS)
    os._exit(0)

gridref.copy(catalog, folder / "none", dry_run=True)  # which imports what the children need
n_killed = moment = 0
while True:
    moment += step
    target = folder / str(moment)
    if copy(target, moment) == 0:
        break
    n_killed += 1
    assert not (target / "zarr.json").exists() or (target / "tas" / "zarr.json").exists()
    if (target / "zarr.json").exists() and not (target / ".gridref-copy.json").exists():
        continue  # all is done, and compared below
    copy(target, 9)  # another kill, a little further; then the copy is finished
    assert copy(target, 10**9) == 0
print(n_killed)
"""


@pytest.mark.parametrize("step", [29, pytest.param(7, marks=pytest.mark.long)])
def test_a_copy_that_is_killed_at_any_moment_goes_on(cube, tmp_path, step):
    done = run_code(KILLED_AT_EACH_MOMENT, cube, tmp_path, step)
    assert int(done.stdout) >= 60 // step
    whole, *others = sorted(tmp_path.iterdir())
    same(cube, whole)
    for other in others:
        files = [path.relative_to(whole) for path in sorted(whole.rglob("*"))]
        assert [path.relative_to(other) for path in sorted(other.rglob("*"))] == files
        for path in files:
            if (whole / path).is_file():
                assert (other / path).read_bytes() == (whole / path).read_bytes()


def test_nobody_opens_half_a_copy_and_what_is_there_is_not_decoded_again(cube, tmp_path):
    target = tmp_path / "copy.zarr"
    kill_after(cube, target, "zarr.json")
    assert list(target.rglob("c"))
    with pytest.raises((FileNotFoundError, OSError, ValueError)):
        xr.open_zarr(target)
    report = gridref.copy(cube, target)
    assert report.n_adopted == report.n_objects > 0
    assert all(array.n_decoded == 0 for array in report.arrays.values())
    assert report.n_bytes == 0
    same(cube, target)


def test_what_cannot_be_read_ends_the_copy_and_once_it_can_the_copy_goes_on(tmp_path):
    values = np.arange(60, dtype="i4").reshape(6, 10)
    stored = [zlib.compress(row) for row in values]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        v = file.create_dataset("v", (6, 10), "<i4", chunks=(1, 10), compression="gzip")
        for k, chunk in enumerate(stored):
            v.id.write_direct_chunk((k, 0), chunk)
        offset = v.id.get_chunk_info(4).byte_offset
    gridref.build(tmp_path / "a.h5", tmp_path / "a.gridref", identity="size")
    content = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "a.h5").write_bytes(content[:offset] + b"?" + content[offset + 1 :])
    options = {"shards": "none", "chunks": {"phony_dim_0": 1}, "grid": "rectilinear"}
    with pytest.raises(ReadError, match="variable v"):
        gridref.copy(tmp_path / "a.gridref", tmp_path / "a.zarr", **options)
    assert not (tmp_path / "a.zarr" / "zarr.json").exists()
    (tmp_path / "a.h5").write_bytes(content)
    gridref.copy(tmp_path / "a.gridref", tmp_path / "a.zarr", **options)
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "a.zarr")["v"][:], values)


# Memory
SIDE = 1600
PEAK = """
import re, sys
from pathlib import Path
import gridref

catalog, target, memory, *chunks = sys.argv[1:]
lengths = dict(zip(("phony_dim_0", "phony_dim_1", "phony_dim_2"), map(int, chunks)))
report = gridref.copy(catalog, target, chunks=lengths, memory=memory)
(line,) = re.findall(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())
print(int(line) * 1024, report.peak_bytes, report.arrays["v"].decodes)
"""


@pytest.fixture(scope="module")
def maps(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("maps")
    random = np.random.default_rng(0)
    # Half of each map is noise: what is written is not much smaller than what is read.
    noisy = [random.integers(0, 2**16, (SIDE, SIDE), "<u2") for _ in range(3)]
    stored = [zlib.compress(values, 1) for values in noisy]
    with h5py.File(folder / "maps.h5", "w") as file:
        shape = (120, SIDE, SIDE)
        v = file.create_dataset("v", shape, "<u2", chunks=(1, SIDE, SIDE), compression="gzip")
        for k in range(len(v)):
            v.id.write_direct_chunk((k, 0, 0), stored[k % 3])
    gridref.build(folder / "maps.h5", folder / "maps.gridref")
    return folder / "maps.gridref"


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize(
    ("memory", "chunks"),
    [(350, (1, SIDE, SIDE)), (600, (60, 160, 160)), (450, (120, 100, 100))],
)
def test_memory_stays_below_the_bound(maps, tmp_path, memory, chunks):
    command = [sys.executable, "-c", PEAK, maps, tmp_path / "copy.zarr", f"{memory}MB", *chunks]
    done = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
    peak, planned, decodes = map(float, done.stdout.split())
    assert decodes < 2
    assert peak < memory * 10**6
    assert planned <= memory * 10**6 < 120 * SIDE * SIDE * 2
    copied = zarr.open_group(tmp_path / "copy.zarr")["v"]
    expected = [h5py.File(maps.parent / "maps.h5")["v"][k] for k in (0, 1, 2)]
    for k in (0, 77, 119):
        np.testing.assert_array_equal(copied[k], expected[k % 3])


# Other doors
def test_the_command_copies_and_reports(cube, tmp_path):
    target = tmp_path / "copy.zarr"
    planned = run_command("copy", cube, target, "--chunks", "time=-1,lat=2", "--dry-run")
    assert planned.returncode == 0
    assert (
        "tas: chunks 20x2x3, shards 20x4x6, 24 stored chunks, each decoded once" in planned.stdout
    )
    assert "decoded once" in planned.stdout
    assert "nothing was written" in planned.stdout
    assert not target.exists()
    done = run_command("copy", cube, target, "--chunks", "time=-1,lat=2", "--codec", "zstd")
    assert (done.returncode, done.stderr) == (0, "")
    assert "arrays 5, objects 5" in done.stdout
    same(cube, target)
    again = run_command("copy", cube, target)
    assert again.returncode == 1
    assert "remove it, or copy to another address" in again.stderr
    wrong = run_command("copy", cube, tmp_path / "b.zarr", "--memory", "9MB")
    assert "--memory 9MB is too little" in wrong.stderr


def test_copies_to_a_remote_filesystem(cube):
    import fsspec

    memory = fsspec.filesystem("memory")
    try:
        gridref.copy(cube, "memory://copies/cube.zarr", chunks={"time": 5})
        same(cube, "memory://copies/cube.zarr")
        assert not [key for key in memory.find("/copies") if ".gridref" in key]
        with pytest.raises(InvalidRequestError, match="target is not empty"):
            gridref.copy(cube, "memory://copies/cube.zarr")
    finally:
        memory.rm("/copies", recursive=True)


@pytest.fixture
def two_passes(tmp_path, monkeypatch) -> Path:
    """Where intermediate files go by default; everything is written through them."""
    monkeypatch.setattr("gridref.api.rewriting.plan._WORTH_A_PASS", 0.5)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return tmp_path / "temporary"


def left(folder):
    """Files that are left in a folder, at any depth."""
    return [path for path in folder.rglob("*") if path.is_file() or "spill-" in path.parent.name]


def test_intermediate_files_are_removed(cube, tmp_path, two_passes):
    report = gridref.copy(cube, tmp_path / "copy.zarr", chunks={"time": -1, "lat": 2})
    assert report.arrays["tas"].has_two_passes
    same(cube, tmp_path / "copy.zarr")
    assert not list((tmp_path / "copy.zarr").glob(".*"))
    gridref.copy(cube, tmp_path / "other.zarr", spill=tmp_path / "spill")
    same(cube, tmp_path / "other.zarr")
    assert not left(tmp_path / "spill")
    assert not left(two_passes)


def test_without_room_for_intermediate_files_the_advice_helps(
    cube, tmp_path, two_passes, monkeypatch
):
    usage, small = shutil.disk_usage, tmp_path / "small"
    monkeypatch.setattr(
        shutil,
        "disk_usage",
        lambda path: usage(path)._replace(free=0 if str(small) in str(path) else 10**9),
    )
    chunks = {"time": -1, "lat": 2}
    with pytest.raises(InvalidRequestError, match=r"make room, name another folder \(spill="):
        gridref.copy(cube, tmp_path / "copy.zarr", chunks=chunks, spill=small)
    gridref.copy(cube, tmp_path / "copy.zarr", chunks=chunks, spill=tmp_path / "large")
    same(cube, tmp_path / "copy.zarr")
    monkeypatch.undo()  # with enough memory there is one pass
    gridref.copy(cube, tmp_path / "more.zarr", chunks=chunks, spill=small, memory="2GB")
    same(cube, tmp_path / "more.zarr")


def test_intermediate_files_for_a_remote_target_lie_in_a_folder_of_this_user(cube, two_passes):
    import fsspec

    memory = fsspec.filesystem("memory")
    try:
        gridref.copy(cube, "memory://passes/cube.zarr")
        same(cube, "memory://passes/cube.zarr")
        assert not left(two_passes)
        (folder,) = two_passes.iterdir()
        folder.chmod(0o777)  # as if somebody else could write there
        with pytest.raises(InvalidRequestError, match="belongs to another user"):
            gridref.copy(cube, "memory://passes/again.zarr")
    finally:
        memory.rm("/passes", recursive=True)


def test_intermediate_files_that_a_failing_machine_left_damaged_are_written_anew(
    cube, tmp_path, two_passes, monkeypatch
):
    linked = os.link

    def stopped(draft, path):
        if "copy.zarr/tas/" in path:
            raise RuntimeError("stopped")
        linked(draft, path)

    copied = partial(
        gridref.copy, cube, tmp_path / "copy.zarr", chunks={"time": -1}, spill=tmp_path / "spill"
    )
    with monkeypatch.context() as patch:
        patch.setattr("os.link", stopped)
        with pytest.raises(RuntimeError, match="stopped"):
            copied()
    damaged = max(tmp_path.glob("spill/**/c.*"), key=lambda path: path.stat().st_size)
    content = bytearray(damaged.read_bytes())
    content[0] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(ChecksumError, match=r"the same call goes on \[file .*spill"):
        copied()
    copied()
    same(cube, tmp_path / "copy.zarr")


@pytest.mark.parametrize("target", ["copy.zarr", "other.zarr"])
def test_a_copy_begins_anew_where_an_array_of_a_killed_one_is_gone(
    cube, tmp_path, two_passes, monkeypatch, target
):
    copied = partial(gridref.copy, cube, chunks={"time": -1}, spill=tmp_path / "spill")
    killed = Mock(side_effect=RuntimeError("killed"))
    with monkeypatch.context() as patch:
        patch.setattr("gridref.api.copy_targets.Target.keep", killed)
        with pytest.raises(RuntimeError, match="killed"):
            copied(tmp_path / "copy.zarr")
    assert [path for path in tmp_path.glob("spill/*/*/*") if path.name == "all-written"]
    shutil.rmtree(tmp_path / "copy.zarr")
    copied(tmp_path / target)
    same(cube, tmp_path / target)


def test_overlays_are_written_through_intermediate_files(cube, tmp_path, two_passes):
    shutil.copytree(cube.parent, tmp_path / "archive")
    gridref.build(str(tmp_path / "archive" / "*.nc"), tmp_path / "cube.gridref", "time")
    chunks = {"time": -1, "lat": 2, "lon": 2}
    catalog = gridref.open_catalog(tmp_path / "cube.gridref").rechunk("tas", chunks)
    assert "decoded once, into intermediate files" in catalog.report.lines[-1]
    assert not left(two_passes)
    assert len(catalog["tas"].overlays) == 1
    expected = gridref.open_catalog(cube)["tas"][...]
    np.testing.assert_array_equal(catalog["tas"][...], expected)
    assert gridref.verify(tmp_path / "cube.gridref", all=True).ok


def test_sources_of_servers_are_read_by_more_threads(tmp_path):
    import fsspec

    path = month(tmp_path, 3)
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/remote/003.nc", path.read_bytes())
    try:
        gridref.build("memory://remote/003.nc", tmp_path / "remote.gridref")
        gridref.copy(tmp_path / "remote.gridref", tmp_path / "copy.zarr", chunks={"time": -1})
        same(tmp_path / "remote.gridref", tmp_path / "copy.zarr")
    finally:
        memory.rm("/remote", recursive=True)


@pytest.mark.long
def test_copies_to_s3(cube):
    from tests.s3_server import s3_bucket

    with s3_bucket() as bucket:
        options = {"storage_options": bucket.options}
        gridref.copy(cube, "s3://archive/cube.zarr", **options)
        assert "cube.zarr/zarr.json" in bucket.keys("cube.zarr")
        assert not [key for key in bucket.keys("cube.zarr") if ".gridref" in key]
        same(cube, "s3://archive/cube.zarr", storage_options=bucket.options["s3"])


@pytest.mark.parametrize("codec", ["blosc", "blosc-lz4", "zstd", "gzip", "none"])
def test_tensorstore_reads_shards_of_each_plain_codec(cube, tmp_path, codec):
    tensorstore = pytest.importorskip("tensorstore")
    gridref.copy(cube, tmp_path / "copy.zarr", codec=codec, chunks={"time": 6, "lat": 3})
    for name in ("tas", "area", "time"):
        spec = {"driver": "zarr3", "kvstore": f"file://{tmp_path}/copy.zarr/{name}/"}
        found = tensorstore.open(spec, read=True).result().read().result()
        assert found.tobytes() == gridref.open_catalog(cube)[name][...].tobytes()


@pytest.mark.long
def test_every_client_reads_a_copy(tmp_path):
    """Each client in a process of its own, over HTTP from a plain file server."""
    from tests.conformance.cases import all_cases
    from tests.conformance.clients import all_clients

    program("node")
    npm_package("zarrita")
    (tmp_path / "sources").mkdir()
    cases = all_cases(tmp_path / "sources")
    for case in cases:
        gridref.copy(case.group, tmp_path / f"{case.name}.zarr")
        gridref.copy(case.group, tmp_path / f"{case.name}-plain.zarr", shards="none", codec="zstd")
    handler = partial(_Quiet, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, all_clients() as clients:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        n_read = dict.fromkeys((client.name for client in clients), 0)
        for case in cases:
            for name in (f"{case.name}.zarr", f"{case.name}-plain.zarr"):
                document = json.loads((tmp_path / name / case.path / "zarr.json").read_text())
                for client in clients:
                    if not client.should_read(document):
                        continue
                    url = f"http://127.0.0.1:{server.server_port}/{name}"
                    url = url if client.needs_server else f"file://{tmp_path / name}"
                    found = client.read(url, case.path, None, None)
                    expected = np.asarray(case.values)
                    if expected.dtype.kind == "O":
                        assert found.astype(object).tolist() == expected.tolist()
                    else:
                        assert found.reshape(expected.shape).tobytes() == (
                            expected.astype(found.dtype.newbyteorder("=")).tobytes()
                        ), (client.name, name)
                    n_read[client.name] += 1
        server.shutdown()
    assert min(n_read.values()) >= 3, n_read


class _Quiet(SimpleHTTPRequestHandler):
    """A file server with byte ranges that says nothing."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_line):
        """Say nothing."""

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = Path(self.translate_path(self.path))
        if path.is_dir():
            SimpleHTTPRequestHandler.do_GET(self)  # lists it
            return
        if not path.is_file():
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        content, stated = path.read_bytes(), self.headers.get("Range")
        low, high = 0, len(content)
        if stated:
            first, _, last = stated.removeprefix("bytes=").partition("-")
            low = int(first) if first else max(0, len(content) - int(last))
            high = min(int(last) + 1, len(content)) if first and last else len(content)
        self.send_response(206 if stated else 200)
        if stated:
            self.send_header("Content-Range", f"bytes {low}-{high - 1}/{len(content)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(high - low))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content[low:high])


def test_single_elements_of_every_kind(tmp_path):
    values = {
        "fixed": np.array(b"ab", "S5"),
        "number": np.array(1.5, ">f4"),
        "compound": np.array((1, 2.5), [("n", "<i2"), ("x", "<f8")]),
    }
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, value in values.items():
            file[name] = value
        file["text"] = "äbc"
    gridref.copy(gridref.scan(tmp_path / "a.h5"), tmp_path / "a.zarr")
    copied = zarr.open_group(tmp_path / "a.zarr", mode="r")
    for name, value in values.items():
        found = np.asarray(copied[name][...], copied[name].dtype)
        assert found.tobytes() == value.astype(found.dtype).tobytes()
    assert str(copied["text"][...]) == "äbc"


@pytest.mark.long(but=4)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "path",
    [
        path
        for pattern in ("hdf5/features/*.*5", "netcdf4/features/*.nc", "formats/netcdf3/*.nc")
        for path in shared_files(pattern)
    ][::4],
)
def test_real_files(path, tmp_path):
    try:
        group = gridref.scan(path, on_unsupported="skip")
    except GridrefError:
        return
    gridref.copy(group, tmp_path / "a.zarr")
    copied = zarr.open_group(tmp_path / "a.zarr", mode="r")
    for name, array in group.all_arrays().items():
        expected, found = np.asarray(array[...]), np.asarray(copied[name][...])
        assert found.shape == expected.shape
        if expected.dtype.kind == "T":
            assert expected.astype(object).tolist() == found.astype(object).tolist()
        elif found.dtype.names:  # members may lie at other places
            for member in found.dtype.names:
                assert found[member].tobytes() == expected[member].tobytes()
        else:
            assert found.tobytes() == expected.astype(found.dtype).tobytes()


SMALL = {"chunks": {"time": -1, "lat": 2, "lon": 2}}


def repository(path: Path) -> icechunk.Repository:
    return icechunk.Repository.open(icechunk.local_filesystem_storage(str(path)))


def session(path: Path) -> icechunk.Session:
    return repository(path).readonly_session(branch="main")


@pytest.mark.parametrize(
    "options",
    [
        {},
        SMALL,
        {"shards": "none", "codec": "shuffle-zstd"},
        {"grid": "rectilinear", "codec": "none"},
    ],
    ids=str,
)
def test_xarray_sees_the_same_cube_without_the_files(
    cube: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    target = tmp_path / "copy.icechunk"
    report = gridref.copy(cube, target, **options)
    same(cube, session(target).store, consolidated=False)
    found = kinds(session(target), "/tas")
    assert "native" in found
    assert "virtual" not in found
    assert repository(target).list_branches() == {"main"}
    assert report.n_objects == sum(array.n_objects for array in report.arrays.values()) > 0
    said = [each.message for each in repository(target).ancestry(branch="main")]
    assert said[::-1][1:3] == ["gridref copy: begun", f"gridref copy: {next(iter(report.arrays))}"]


def test_a_copy_that_is_interrupted_goes_on_behind_its_last_array(
    cube: Path, tmp_path: Path
) -> None:
    target = tmp_path / "copy.icechunk"
    n_steps = sum(1 for _ in gridref.copy(cube, target, dry_run=True, **SMALL).arrays)

    def interrupt(done: int, of: int) -> None:
        if done == n_steps:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gridref.copy(cube, target, progress=interrupt, **SMALL)
    assert len(repository(target).list_branches()) == 2
    with pytest.raises(InvalidRequestError, match="unfinished copy of another source"):
        gridref.copy(cube, target)
    report = gridref.copy(cube, target, **SMALL)
    assert report.n_adopted > 0
    same(cube, session(target).store, consolidated=False)
    assert repository(target).list_branches() == {"main"}


def test_a_large_array_is_committed_now_and_then(
    cube: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By several threads that write meanwhile; what was committed is not written again."""
    target = tmp_path / "copy.icechunk"
    options: dict[str, Any] = {"shards": "none", "chunks": {"time": 1}, "n_threads": 4}
    monkeypatch.setattr("gridref.api.icechunk_target.COMMIT_SECONDS", 0)
    put = SessionSink.put
    names: list[str] = []

    def interrupted(self: SessionSink, name: str, parts: Any) -> bool:
        names.append(name)
        if sum(name.startswith("tas/c/") for name in names) > 10:
            raise KeyboardInterrupt
        return put(self, name, parts)

    monkeypatch.setattr(SessionSink, "put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gridref.copy(cube, target, **options)
    monkeypatch.setattr(SessionSink, "put", put)
    report = gridref.copy(cube, target, **options)
    assert 0 < report.arrays["tas"].n_adopted <= 10
    same(cube, session(target).store, consolidated=False)


def test_what_is_there_is_left_alone(cube: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.icechunk"
    gridref.copy(cube, target)
    before = repository(target).lookup_branch("main")
    with pytest.raises(InvalidRequestError, match="target is not empty"):
        gridref.copy(cube, target, **SMALL)
    assert repository(target).lookup_branch("main") == before
    shutil.copytree(cube, tmp_path / "other.icechunk")
    with pytest.raises(InvalidRequestError, match="target is not empty"):
        gridref.copy(cube, tmp_path / "other.icechunk")
    assert gridref.open_catalog(tmp_path / "other.icechunk")["tas"].size


def test_somebody_who_writes_meanwhile_is_not_overwritten(cube: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.icechunk"

    def write(done: int, of: int) -> None:
        if done == of:
            other = repository(target).writable_session("main")
            xr.Dataset({"mine": 1}).to_zarr(other.store, consolidated=False)
            other.commit("mine")

    with pytest.raises(InvalidRequestError, match="the copy was put on the branch gridref-copy-"):
        gridref.copy(cube, target, progress=write)
    assert list(xr.open_zarr(session(target).store, consolidated=False)) == ["mine"]


def test_the_command_takes_a_repository(cube: Path, tmp_path: Path) -> None:
    target = tmp_path / "repository"
    done = run_command("copy", str(cube), str(target), "--to", "icechunk", "--quiet")
    assert done.returncode == 0, done.stderr
    same(cube, session(target).store, consolidated=False)


def test_without_icechunk_the_extra_is_named(
    cube: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "icechunk", None)
    monkeypatch.delitem(sys.modules, "gridref.api.icechunk_target", raising=False)
    with pytest.raises(MissingPackageError, match=r"pip install 'gridref\[interchange\]'"):
        gridref.copy(cube, tmp_path / "copy.icechunk")


MAPS: dict[str, Any] = {"chunks": {"time": 2}, "shards": {"time": 4}}
"""Six shards, each of which can be written by itself."""


@pytest.fixture
def cube_in_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cube:
    """A cube that is written in several units, although it is small."""
    monkeypatch.setattr("gridref.api.rewriting.plan._UNIT_BYTES", 1)
    return Cube(tmp_path)


@pytest.fixture
def units_in_two_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is written through intermediate files."""
    monkeypatch.setattr("gridref.api.rewriting.plan._WORTH_A_PASS", 0.5)


def processes_of(client: Any) -> set[int]:
    return set(client.run(os.getpid).values())


def test_workers_of_dask_copy_a_cube(cube_in_units: Cube, tmp_path: Path, cluster: Any) -> None:
    done: list[int] = []
    report = gridref.copy(
        cube_in_units.url,
        tmp_path / "copy.zarr",
        **MAPS,
        executor=cluster.scheduler_address,
        progress=lambda number, of: done.append(number / of),
    )
    same(cube_in_units.url, tmp_path / "copy.zarr")
    tas = report.arrays["tas"]
    assert (tas.n_objects, tas.n_adopted, tas.n_decoded) == (6, 0, 24)
    assert len(done) == 6 + 6 + 1 + 1  # objects of tas, time, lat and lon
    assert done[-1] == 1
    assert not [path for path in (tmp_path / "copy.zarr").iterdir() if path.name[0] == "."]


def test_intermediate_files_are_where_all_workers_reach_them(
    cube_in_units: Cube, tmp_path: Path, cluster: Any, units_in_two_passes: None
) -> None:
    report = gridref.copy(cube_in_units.url, tmp_path / "copy.zarr", executor=cluster, **MAPS)
    same(cube_in_units.url, tmp_path / "copy.zarr")
    assert report.arrays["tas"].has_two_passes
    assert not [path for path in (tmp_path / "copy.zarr").iterdir() if path.name[0] == "."]


def test_workers_of_dask_write_an_overlay(cube_in_units: Cube, cluster: Any) -> None:
    with cluster.get_client() as client:
        catalog = cube_in_units.open().rechunk(
            "tas", SERIES, shards={"time": 24, "lat": 5, "lon": 5}, executor=client
        )
    assert "in 9 shards" in catalog.report.lines[0]
    np.testing.assert_array_equal(
        read_without_warnings(cube_in_units.open(overlay=0)), cube_in_units.values
    )
    assert cube_in_units.open().verify(all=True).ok


def test_a_worker_that_dies_is_no_loss(cube_in_units: Cube, tmp_path: Path, cluster: Any) -> None:
    with cluster.get_client() as client:
        alive = processes_of(client)

        def kill(done: int, of: int) -> None:
            if len(alive) == 2:
                with suppress(ProcessLookupError):
                    os.kill(alive.pop(), signal.SIGKILL)

        gridref.copy(
            cube_in_units.url, tmp_path / "copy.zarr", executor=client, progress=kill, **MAPS
        )
        assert len(alive) == 1
    same(cube_in_units.url, tmp_path / "copy.zarr")


def test_processes_by_commands(cube_in_units: Cube, tmp_path: Path) -> None:
    done = run_command(
        "rechunk", cube_in_units.url, "tas", "--chunks", "time=-1,lat=5,lon=5", "--executor", "2"
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(
        read_without_warnings(cube_in_units.open(overlay=0)), cube_in_units.values
    )


def test_repositories_are_written_by_workers(
    cube_in_units: Cube, tmp_path: Path, cluster: Any
) -> None:
    target, options = tmp_path / "copy.icechunk", {"chunks": SERIES, "shards": "none"}

    def interrupt(done: int, of: int) -> None:
        if done == of:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gridref.copy(cube_in_units.url, target, executor=cluster, progress=interrupt, **options)
    report = gridref.copy(cube_in_units.url, target, executor=cluster, **options)
    assert 0 < report.n_adopted < report.n_objects  # arrays that were whole are committed
    assert report.arrays["tas"].n_objects == 9
    same(cube_in_units.url, session(target).store, consolidated=False)


def test_repositories_are_written_by_processes_and_threads(
    cube_in_units: Cube, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(2) as threads:
        for name, executor in {"processes": 2, "threads": threads}.items():
            target = tmp_path / f"{name}.icechunk"
            gridref.copy(
                cube_in_units.url, target, executor=executor, spill=tmp_path / name, **MAPS
            )
            same(cube_in_units.url, session(target).store, consolidated=False)
