"""What a stranger's file may read: others in its folder, and what is allowed."""

from __future__ import annotations

import os
import shutil
from itertools import product
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

import gridref
from gridref.errors import InvalidRequestError, UnsupportedFeatureError
from tests.command import run_command
from tests.integration.test_scan_tiff import write_ome_set

VALUES = np.arange(12, dtype="<i4")


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a stranger's file, one with a file that it must not read, and another one."""
    for name in ("in", "secret", "work"):
        (tmp_path / name).mkdir()
    for folder in ("in", "secret"):
        with h5py.File(tmp_path / folder / "b.h5", "w") as file:
            file["v"] = VALUES
        (tmp_path / folder / "b.bin").write_bytes(VALUES.tobytes())

    os.symlink(tmp_path / "secret" / "b.h5", tmp_path / "in" / "link.h5")
    os.symlink(tmp_path / "secret" / "b.bin", tmp_path / "in" / "link.bin")
    os.symlink(tmp_path / "secret", tmp_path / "in" / "folder")
    monkeypatch.chdir(tmp_path / "work")
    for variable in ("HDF5_EXT_PREFIX", "HDF5_VDS_PREFIX", "HDF5_EXTFILE_PREFIX"):
        monkeypatch.delenv(variable, raising=False)


def linked(path: Path, name: str) -> Path:
    with h5py.File(path, "w") as file:
        file["v"] = h5py.ExternalLink(name, "/v")
    return path


def virtual(path: Path, name: str) -> Path:
    layout = h5py.VirtualLayout((12,), "<i4")
    layout[:] = h5py.VirtualSource(name, "v", (12,))
    with h5py.File(path, "w", libver="latest") as file:
        file.create_virtual_dataset("v", layout, fillvalue=-1)
    return path


def external(path: Path, name: str) -> Path:
    with h5py.File(path, "w") as file:
        raw = name.replace(".h5", ".bin")
        file.create_dataset("v", (12,), "<i4", external=[(raw, 0, VALUES.nbytes)])
    return path


WAYS = pytest.mark.parametrize("way", [linked, virtual, external])


@WAYS
@pytest.mark.parametrize("name", ["{secret}/b.h5", "../secret/b.h5", "link.h5", "folder/b.h5"])
def test_files_elsewhere_are_refused_unless_allowed(tmp_path, way, name):
    named = name.format(secret=tmp_path / "secret")
    if way is external and not named.startswith("/"):
        named = str(tmp_path / "in" / named)  # HDF5 looks in the working directory
    file = way(tmp_path / "in" / "a.h5", named)
    with pytest.raises(UnsupportedFeatureError, match=r"allow=.*secret") as raised:
        gridref.scan(file)
    assert raised.value.place.variable == "/v"
    with pytest.raises(UnsupportedFeatureError):
        gridref.build(file, tmp_path / "cube")
    left_out = gridref.scan(file, on_unsupported="skip")
    assert not left_out.arrays
    assert "may not read" in left_out.report.skipped[0].reason
    allowed = gridref.scan(file, allow=tmp_path / "secret")
    assert allowed["v"][...].tolist() == VALUES.tolist()


@WAYS
@pytest.mark.parametrize("name", ["b.h5", "./b.h5", "../in/b.h5"])
def test_files_beside_it_are_read(tmp_path, way, name):
    file = way(tmp_path / "in" / "a.h5", name)
    assert gridref.scan(file)["v"][...].tolist() == VALUES.tolist()


def test_folders_of_the_user_s_own_variables_are_allowed(tmp_path, monkeypatch):
    (tmp_path / "in" / "b.h5").unlink()
    file = linked(tmp_path / "in" / "a.h5", "b.h5")
    monkeypatch.setenv("HDF5_EXT_PREFIX", str(tmp_path / "secret"))
    assert gridref.scan(file)["v"][...].tolist() == VALUES.tolist()


def test_what_a_file_beside_it_links_to_is_not_beside_it(tmp_path):
    (tmp_path / "secret" / "c.h5").write_bytes((tmp_path / "secret" / "b.h5").read_bytes())
    linked(tmp_path / "secret" / "d.h5", "c.h5")
    linked(tmp_path / "in" / "b.h5", "../secret/d.h5")
    with pytest.raises(UnsupportedFeatureError, match="may not read"):
        gridref.scan(linked(tmp_path / "in" / "a.h5", "b.h5"))


def test_virtual_sources_that_are_not_there_are_fill_values(tmp_path):
    file = virtual(tmp_path / "in" / "a.h5", str(tmp_path / "secret" / "nothing.h5"))
    assert gridref.scan(file)["v"][...].tolist() == [-1] * 12


@pytest.mark.long(but=1)
@WAYS
def test_the_command_line(tmp_path, way):
    file = way(tmp_path / "in" / "a.h5", str(tmp_path / "secret" / "b.h5"))
    build = ["build", file, "-o", tmp_path / "cube"]
    refused = run_command(*build)
    assert refused.returncode
    assert "--allow" in refused.stderr + refused.stdout
    assert run_command(*build, "--allow", tmp_path / "secret").returncode == 0
    environment = {**os.environ, "GRIDREF_STATE": str(tmp_path / "of another user")}
    for table in (["chunks"], ["sources"], ["statistics", "--scan-values"], ["--sql", "FROM v"]):
        allowed = ("--allow", tmp_path / "secret", "--allow", tmp_path / "in")
        called = run_command("list", tmp_path / "cube", *table, *allowed, env=environment)
        assert called.returncode == 0, called.stderr


def test_a_name_with_a_nul_is_no_name(tmp_path):
    with pytest.raises(gridref.errors.GridrefError):
        gridref.scan("a\0b.h5")
    with pytest.raises((InvalidRequestError, gridref.errors.ReadError)):
        gridref.open_catalog(tmp_path / "a\0b")


@pytest.mark.parametrize(
    ("zarr_format", "shards", "link"),
    [
        *product((2, 3), (None,), ("a chunk", "an array", "metadata", "a group")),
        (3, (6,), "a chunk"),
    ],
)
def test_links_out_of_a_zarr_folder_are_refused_unless_allowed(tmp_path, zarr_format, shards, link):
    root = zarr.open_group(tmp_path / "in" / "a.zarr", mode="w", zarr_format=zarr_format)
    for name in ("own", "g/v"):
        root.create_array(name, data=VALUES, chunks=(3,), shards=shards)
    shutil.copytree(tmp_path / "in" / "a.zarr", tmp_path / "secret" / "a.zarr")
    metadata = "zarr.json" if zarr_format == 3 else ".zarray"
    first = "c/0" if zarr_format == 3 else "0"
    named = {"a chunk": f"g/v/{first}", "an array": "g/v", "metadata": f"g/v/{metadata}"}
    moved = tmp_path / "in" / "a.zarr" / named.get(link, "g")
    shutil.rmtree(moved) if moved.is_dir() else moved.unlink()
    moved.symlink_to(tmp_path / "secret" / "a.zarr" / named.get(link, "g"))
    store = tmp_path / "in" / "a.zarr"
    with pytest.raises(UnsupportedFeatureError, match=r"allow=.*secret"):
        gridref.scan(store)
    with pytest.raises(UnsupportedFeatureError, match=r"allow=.*secret"):
        gridref.build(store, tmp_path / "cube")
    left_out = gridref.scan(store, on_unsupported="skip")
    assert [*left_out.all_arrays()] == ["own"]
    assert left_out["own"].read().tolist() == VALUES.tolist()
    assert [finding.fate.value for finding in left_out.report.findings].count("skipped") == 1
    for allow in (tmp_path / "secret", "*"):
        gridref.build(store, tmp_path / f"cube{allow}".replace("/", ""), allow=allow)
        assert gridref.scan(store, allow=allow)["g/v"].read().tolist() == VALUES.tolist()


def test_a_zarr_folder_is_a_link_and_links_to_its_neighbours(tmp_path):
    for name in ("a.zarr", "b.zarr"):
        zarr.create_array(tmp_path / "secret" / name, data=VALUES, chunks=(3,))
    chunk = tmp_path / "secret" / "a.zarr" / "c" / "1"
    chunk.unlink()
    chunk.symlink_to("../../b.zarr/c/1")
    (tmp_path / "in" / "linked.zarr").symlink_to(tmp_path / "secret" / "a.zarr")
    group = gridref.scan(tmp_path / "in" / "linked.zarr")
    assert group["linked"].read().tolist() == VALUES.tolist()


def test_files_of_an_image_that_are_links_to_elsewhere_are_refused(tmp_path):
    first, second, _ = write_ome_set(tmp_path / "in")
    assert gridref.scan(first)["image"].shape == (3, 20, 30)
    second.rename(tmp_path / "secret" / second.name)
    second.symlink_to(tmp_path / "secret" / second.name)
    with pytest.raises(UnsupportedFeatureError, match=r"may not read.*allow=.*secret"):
        gridref.scan(first)
    assert gridref.scan(first, allow=tmp_path / "secret")["image"].shape == (3, 20, 30)
