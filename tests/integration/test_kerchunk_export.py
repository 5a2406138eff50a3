"""Kerchunk references written by gridref, read by fsspec and zarr, against h5py."""

from __future__ import annotations

import json
import re
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import h5py
import numpy as np
import pytest
import zarr

import gridref
from gridref.adapters.kerchunk import to_kerchunk
from gridref.errors import NotRepresentableError
from gridref.model.array import VirtualGroup
from gridref.model.indexing import getitem
from gridref.model.zarr_metadata import packed_dtype
from tests.hdf5_oracle import read_original, why_different
from tests.shared_data import shared_files

TEXT = ["", "wet", "dürr", "x" * 400, "\N{SNOWMAN}"]


@contextmanager
def opened(document: Any) -> Iterator[zarr.Group]:
    """The group of a document, as fsspec and zarr read it, through JSON text."""
    filesystem = fsspec.filesystem(
        "reference",
        fo=json.loads(json.dumps(document)),
        asynchronous=True,
        skip_instance_cache=True,
    )
    store = zarr.storage.FsspecStore(filesystem, read_only=True, path="")
    with warnings.catch_warnings(), zarr.config.set({"array.rectilinear_chunks": True}):
        warnings.simplefilter("ignore")  # zarr: types and codecs without a specification
        yield zarr.open_group(store, mode="r")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kerchunk") / "all.h5"
    random = np.random.default_rng(0)
    cube = random.normal(280, 9, (13, 9, 5)).astype("f4")
    with h5py.File(path, "w") as file:
        for name, options in {
            "plain": {},
            "contiguous_chunks": {"chunks": (13, 9, 5)},
            "zlib": {"chunks": (4, 4, 5), "compression": "gzip", "shuffle": True},
            "checked": {"chunks": (4, 4, 5), "compression": "gzip", "fletcher32": True},
            "only_checked": {"chunks": (4, 4, 5), "fletcher32": True},
            "lzf": {"chunks": (4, 4, 5), "compression": "lzf"},
        }.items():
            file.create_dataset(name, data=cube, **options)
        file.create_dataset("big_endian", data=cube.astype(">f8"), chunks=(5, 9, 2))
        holes = file.create_dataset("holes", (20, 6), "i2", chunks=(3, 4), fillvalue=-7)
        holes[4:9, 1] = 5
        file.create_dataset("scalar", data=np.float64(2.5))
        file.create_dataset("fixed", data=np.array([b"a", b"bc", b""], "S4"), chunks=(2,))
        file.create_dataset("text", data=np.array(TEXT, object), dtype=h5py.string_dtype())
        pairs = np.array([(1, 2.5), (3, 4.5)], [("a", "<i4"), ("b", "<f8")])
        file.create_dataset("pairs", data=pairs)
        made = file.create_dataset("masked", (8,), "i4", chunks=(4,), compression="gzip")
        made[:] = np.arange(8)
        made.id.write_direct_chunk((4,), np.arange(4, dtype="<i4").tobytes(), filter_mask=1)
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((6,))
        small = h5py.h5d.create(file.id, b"compact", h5py.h5t.NATIVE_INT32, space, compact)
        small.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(6, dtype="i4"))
        inner = file.create_group("deep/deeper")
        inner.attrs["title"] = "inside"
        inner.create_dataset("values", data=np.arange(7), chunks=(3,))
    return path


def test_every_kind_of_dataset_reads_as_in_h5py(path: Path) -> None:
    document = to_kerchunk(gridref.scan(path))
    with opened(document) as group:
        assert group["deep/deeper"].attrs["title"] == "inside"
        assert_equals_h5py(path, gridref.scan(path), group)
    assert [value for key, value in document["refs"].items() if key.startswith("zlib/c/")]
    for key, value in document["refs"].items():
        if key.startswith(("zlib/c/", "checked/c/", "only_checked/c/", "deep/deeper/values/c/")):
            assert value[0] == str(path)
    assert "holes/c/6/0" not in document["refs"]


def assert_equals_h5py(path: Path, scanned: VirtualGroup, group: zarr.Group) -> None:
    for name, array in scanned.all_arrays().items():
        try:
            expected = read_original(str(path), f"/{name}")
        except gridref.errors.GridrefError:
            continue  # h5py lacks the filter: no oracle
        read = np.asarray(group[name][...], group[name].dtype)
        if array.dtype.kind == "T":
            assert read.astype(object).tolist() == expected.astype(object).tolist(), name
            continue
        if array.dtype.kind == "V":
            read = read.view(packed_dtype(array.dtype))
        window = read[(*(slice(0, n) for n in expected.shape), ...)]  # unlimited dimensions
        assert why_different(window, expected) is None, name


def test_what_references_cannot_say_is_refused_by_name(path: Path) -> None:
    with pytest.raises(NotRepresentableError) as caught:
        to_kerchunk(gridref.scan(path), inline_limit=8)
    message = str(caught.value)
    assert re.search(
        r"^  - masked: single chunks have filters switched off$", message, re.MULTILINE
    )
    assert "zlib" not in message
    cut = getitem(gridref.scan(path).arrays["text"], slice(1, None))  # begins inside of a chunk
    with opened(to_kerchunk(VirtualGroup({"text": cut}))) as group:
        assert group["text"][...].tolist() == TEXT[1:]
    with pytest.raises(NotRepresentableError, match=r"1 array;.*\n  - text: "):
        to_kerchunk(VirtualGroup({"text": cut}), inline_limit=200)


def test_a_file_in_an_archive_is_written_out_or_refused(path: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(path, "all.h5")
    url = f"zip://all.h5::file://{tmp_path}/a.zip"
    scanned = gridref.scan(url)
    with opened(to_kerchunk(scanned)) as group:
        assert_equals_h5py(path, scanned, group)
    with pytest.raises(NotRepresentableError, match=r"(?s)lzf: .*plain: its files lie inside of"):
        to_kerchunk(scanned, inline_limit=500)


@pytest.mark.parametrize("source", shared_files("hdf5/*/*", "netcdf4/*/*"))
def test_real_files_equal_h5py_or_are_refused_by_name(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HDF5_EXTFILE_PREFIX", "${ORIGIN}")
    try:
        scanned = gridref.scan(source, on_unsupported="skip")
    except gridref.errors.GridrefError:
        pytest.skip("not an HDF5 file")
    try:
        document = to_kerchunk(scanned)
    except NotRepresentableError as error:
        refused = set(re.findall(r"^  - (.+?): ", str(error), re.MULTILINE))
        assert refused <= set(scanned.all_arrays())
        scanned = without(scanned, refused)
        document = to_kerchunk(scanned)
    with opened(document) as group:
        assert_equals_h5py(source, scanned, group)


def without(group: VirtualGroup, names: set[str], at: str = "") -> VirtualGroup:
    """A group without some of its arrays."""
    return replace(
        group,
        arrays={k: v for k, v in group.arrays.items() if f"{at}{k}" not in names},
        groups={k: without(v, names, f"{at}{k}/") for k, v in group.groups.items()},
    )
