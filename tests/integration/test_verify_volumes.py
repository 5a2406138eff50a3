"""Volumes are compared with tensorstore, wkw and blosc2, also on servers, with their labels."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

import gridref
from gridref.errors import MissingPackageError
from gridref.model.array import VirtualArray, VirtualGroup
from tests import b2nd_files, n5_files, precomputed_files, wkw_files


def write_n5(folder: Path) -> Path:
    path = n5_files.write_attributes(folder / "a.n5", n5="2.0.0")
    n5_files.write_dataset(path / "em" / "raw", n5_files.numbers("uint16"))
    return path


def write_wkw(folder: Path) -> Path:
    voxels = wkw_files.voxels("u2", (3, 32, 16, 16))
    return wkw_files.write_mag(folder / "1", ((16, 0, 32), voxels), kind="LZ4")


def write_b2nd(folder: Path) -> Path:
    return b2nd_files.write_array(folder / "a.b2nd", b2nd_files.numbers(">i2"))


def write_sparse(folder: Path) -> Path:
    return b2nd_files.write_array(folder / "a.b2nd", b2nd_files.numbers(), sparse=True)


def write_precomputed(folder: Path, **options: Any) -> Path:
    values = precomputed_files.voxels("u2", (2, 13, 18, 21))
    coarse = np.ascontiguousarray(values[:, :, ::2, ::2])
    return precomputed_files.write_volume(
        folder / "a.precomputed", values, coarse, offset=(5, 0, 40), **options
    )


def write_shards(folder: Path) -> Path:
    return write_precomputed(folder, sharding=precomputed_files.sharding())


WRITERS: dict[str, tuple[Callable[[Path], Path], int, str]] = {
    "N5": (write_n5, 9, "tensorstore"),
    "WKW": (write_wkw, 128, "wkw"),
    "b2nd": (write_b2nd, 6, "blosc2"),
    "sparse b2nd": (write_sparse, 6, "blosc2"),
    "precomputed": (write_precomputed, 26, "tensorstore"),
    "precomputed in shards": (write_shards, 26, "tensorstore"),
}
"""What writes a volume, how many chunks it has, and what reads it."""


@pytest.mark.parametrize("kind", WRITERS)
def test_every_chunk_is_as_its_library_reads_it(tmp_path: Path, kind: str) -> None:
    write, n_chunks, _ = WRITERS[kind]
    result = gridref.verify(gridref.scan(write(tmp_path)), all=True)
    assert (result.ok, result.n_chunks, result.not_compared) == (True, n_chunks, ())


@pytest.mark.parametrize("kind", WRITERS)
def test_volumes_on_servers_are_compared(tmp_path: Path, kind: str) -> None:
    write, n_chunks, _ = WRITERS[kind]
    path = write(tmp_path)
    url = f"memory://verify/{kind.replace(' ', '-')}/{path.name}"
    fsspec.filesystem("memory").put(str(path), url, recursive=True)
    address = {"WKW": "/header.wkw", "sparse b2nd": "/chunks.b2frame"}.get(kind, "")
    result = gridref.verify(gridref.scan(url + address), all=True)
    assert (result.ok, result.n_chunks, result.not_compared) == (True, n_chunks, ())


@pytest.mark.parametrize("kind", WRITERS)
def test_chunks_in_each_others_place_are_found(tmp_path: Path, kind: str) -> None:
    group = gridref.scan(WRITERS[kind][0](tmp_path))
    array = next(a for a in group.all_arrays().values() if a.ndim > 1)
    backwards = np.arange(array.manifests[0].n_rows)[::-1]
    wrong = array.with_changes(manifests=(array.manifests[0].take(backwards),))
    assert gridref.verify(VirtualGroup({"v": array}), all=True).ok
    assert not gridref.verify(VirtualGroup({"v": wrong}), all=True).ok


@pytest.mark.parametrize("kind", WRITERS)
def test_volumes_along_a_new_dimension_are_compared(tmp_path: Path, kind: str) -> None:
    write, n_chunks, _ = WRITERS[kind]
    folders = [tmp_path / f"t{number}" for number in range(2)]
    paths = []
    for folder in folders:
        folder.mkdir()
        paths.append(write(folder))
    labels = gridref.Labels(f"t{{time:d}}/{paths[0].name}")
    gridref.build(paths, tmp_path / "a.gridref", layout=gridref.Stack("time", labels))
    result = gridref.verify(tmp_path / "a.gridref", all=True)
    assert (result.ok, result.n_chunks) == (True, 2 * n_chunks)
    assert {path for path, _ in result.not_compared} == {"time"}


@pytest.mark.parametrize("kind", WRITERS)
def test_what_is_to_be_installed_is_named(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, _, package = WRITERS[kind]
    group = gridref.scan(write(tmp_path))
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=f"comparing with .*{package}"):
        gridref.verify(group)


@pytest.mark.parametrize("write", [write_precomputed, write_shards])
def test_places_of_voxels_are_labels(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    scale = gridref.scan(write(tmp_path)).groups["1"]
    assert gridref.verify(scale, all=True).n_labels > 0
    y = scale.arrays["y"]
    moved = VirtualArray.from_numpy(y[...] + 4, y.dims, y.attrs)
    result = gridref.verify(scale.with_changes(arrays={**scale.arrays, "y": moved}), all=True)
    assert {(each.is_label, each.place.variable) for each in result.differences} == {(True, "y")}


def test_chunks_that_no_file_holds_are_listed(tmp_path: Path) -> None:
    values = np.zeros((12,), "u1")
    values[:6] = 7
    path = n5_files.write_dataset(tmp_path / "v", values, (3,))
    result = gridref.verify(gridref.scan(path), all=True)
    assert (result.ok, result.n_chunks) == (True, 2)
    ((name, reason),) = result.not_compared
    assert (name, reason.startswith("no file holds some of its chunks")) == ("v", True)


def test_a_sample_of_a_sparse_array_has_chunks_that_are_there(tmp_path: Path) -> None:
    values = np.zeros((2_000,), "u1")
    values[[100, 1_234]] = 7  # in two files
    path = n5_files.write_dataset(tmp_path / "v", values, (2,))
    result = gridref.verify(gridref.scan(path))
    assert (result.ok, result.n_chunks) == (True, 2)


def test_files_that_are_named_like_chunks_are_none(tmp_path: Path) -> None:
    """A file of HDF5 in a folder of another format's names is compared with h5py."""
    import h5py

    with h5py.File(tmp_path / "0", "w") as file:
        file["v"] = np.arange(5)
    (tmp_path / "attributes.json").write_text("{}")
    result = gridref.verify(gridref.scan(tmp_path / "0"), all=True)
    assert (result.ok, result.n_chunks) == (True, 1)
