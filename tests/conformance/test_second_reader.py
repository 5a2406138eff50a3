"""The 200 lines of docs/examples/read_catalog.py read what the library writes, or say why not."""

from __future__ import annotations

import ast
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

import gridref
from gridref.api.catalog import write_catalog
from gridref.catalog.document import dumped
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.testing.strategies import arrays_with_values
from tests.conformance.second_reader import SCRIPT, Compared, compare_files, samples, second
from tests.integration.archives import month
from tests.shared_data import missing_reason, shared_data_folder, skip_or_fail

LackingError = second.LackingError


def test_it_is_short_and_needs_numpy_and_pyarrow_alone() -> None:
    text = SCRIPT.read_text(encoding="utf-8")
    assert text.count("\n") <= 200
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import)]
    names = {alias.name.partition(".")[0] for node in nodes for alias in node.names}
    assert names - {*sys.stdlib_module_names} == {"numpy", "pyarrow"}


@given(arrays_with_values())
def test_arrays_of_any_layout_read_as_their_values(
    drawn: tuple[VirtualArray, NDArray[np.int32]],
) -> None:
    array, expected = drawn
    with tempfile.TemporaryDirectory() as folder:
        write_catalog(VirtualGroup({"a": array}), folder)
        np.testing.assert_array_equal(second.Catalog(folder).read("a"), expected)


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    """Months in three parts, the first of them taken out again."""
    files = [month(tmp_path, number) for number in range(4)]
    gridref.build(files[:2], tmp_path / "cube.gridref", "time")
    gridref.open_catalog(tmp_path / "cube.gridref").append(files[2]).append(files[3])
    gridref.open_catalog(tmp_path / "cube.gridref").remove(files[0])
    return tmp_path / "cube.gridref"


def test_a_grown_catalog_reads_as_h5py_reads_its_files(grown: Path) -> None:
    values = []
    for number in (1, 2, 3):
        with h5py.File(grown.parent / f"{number:03}.nc") as file:
            values.append(file["tas"][...])
    catalog = second.Catalog(grown)
    assert len(catalog.parts) > 1
    np.testing.assert_array_equal(catalog.read("tas"), np.concatenate(values))
    done = subprocess.run(
        [sys.executable, SCRIPT, grown, "lat"], capture_output=True, text=True, check=True
    )
    assert "('tas', [])" in done.stdout
    assert "[0. 1. 2. 3.]" in done.stdout


def test_packing_of_each_block_is_undone_as_the_library_does(tmp_path: Path) -> None:
    for number, (scale, offset) in enumerate([(0.1, 5.0), (0.25, None), (None, 1e30)]):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file["time"] = np.arange(3) + 3 * number
            file["time"].make_scale("time")
            stored = np.random.default_rng(number).integers(-99, 99, (3, 50)).astype("i2")
            stored[0, :5] = -99
            packed = file.create_dataset(
                "v", stored.shape, "i2", chunks=(2, 20), shuffle=True, fillvalue=7
            )
            packed[:2] = stored[:2]  # the chunks below are absent
            packed.dims[0].attach_scale(file["time"])
            packed.attrs["_FillValue"] = np.array([-99], "i2")
            for name, value in (("scale_factor", scale), ("add_offset", offset)):
                if value is not None:
                    packed.attrs[name] = np.float32(value)
    gridref.build(str(tmp_path / "*.h5"), tmp_path / "cube.gridref", "time")
    compared = Compared()
    compared.compare(tmp_path / "cube.gridref", "packed")
    assert compared.equal == ["packed: time", "packed: v"]
    snapshot = second.Catalog(tmp_path / "cube.gridref").snapshot
    assert any("unpacking" in encoding for encoding in snapshot["encodings"])


def test_filters_that_a_chunk_did_without_are_not_undone(tmp_path: Path) -> None:
    values = np.arange(12, dtype="<i4")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        dataset = file.create_dataset("v", data=values, chunks=(4,), compression=1, shuffle=True)
        dataset.id.write_direct_chunk((4,), values[4:8].tobytes(), filter_mask=0b11)
        shuffled = values[8:].view("u1").reshape(4, 4).T.tobytes()
        dataset.id.write_direct_chunk((8,), shuffled, filter_mask=0b10)
    with h5py.File(tmp_path / "a.h5") as file:
        np.testing.assert_array_equal(file["v"][...], values)
    gridref.build([tmp_path / "a.h5"], tmp_path / "a.gridref")
    np.testing.assert_array_equal(second.Catalog(tmp_path / "a.gridref").read("v"), values)


def test_files_are_read_where_there_are_overlays_and_overviews(grown: Path) -> None:
    before = second.Catalog(grown).read("tas")
    gridref.open_catalog(grown).rechunk("tas", {"time": -1, "lat": 2, "lon": 2})
    gridref.open_catalog(grown).overviews("tas")
    snapshot = second.Catalog(grown).snapshot
    assert snapshot["overlays"]
    assert snapshot["overviews"]
    np.testing.assert_array_equal(second.Catalog(grown).read("tas"), before)


def edited(catalog: Path, **members: Any) -> None:
    """Change members of the file, under a right checksum."""
    document = json.loads((catalog / "gridref.json").read_text())
    del document["checksum"]
    document |= members
    checksum = f"sha256:{second.hashlib.sha256(dumped(document)).hexdigest()}"
    (catalog / "gridref.json").write_bytes(dumped({**document, "checksum": checksum}) + b"\n")


def test_what_it_lacks_is_named(grown: Path, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "text.h5", "w") as file:
        file.create_dataset("lzf", data=np.arange(9), chunks=(4,), compression="lzf")
        file["text"] = ["a", "b"]
    gridref.build([tmp_path / "text.h5"], tmp_path / "text.gridref")
    catalog = second.Catalog(tmp_path / "text.gridref")
    assert catalog.lacks("lzf") == ["gridref.hdf5_lzf"]
    with pytest.raises(LackingError, match=r"lzf needs \['gridref.hdf5_lzf'\]"):
        catalog.read("lzf")
    assert catalog.lacks("text") == ["string", "vlen-utf8"]
    for members in ({"features": ["of tomorrow"]}, {"format_version": 3}):
        edited(grown, **members)
        with pytest.raises(LackingError, match=r"of tomorrow|3"):
            second.Catalog(grown)


def test_files_that_changed_are_refused(grown: Path) -> None:
    file = grown.parent / "001.nc"
    file.touch()
    with pytest.raises(ValueError, match="has changed"):
        second.Catalog(grown).read("tas")


def test_damage_is_an_error_or_changes_nothing(grown: Path) -> None:
    drawn = random.Random(1)
    expected = second.Catalog(grown).read("tas").tobytes()
    n_refused = 0
    for path in sorted(grown.glob("*.parquet")) + [grown / "gridref.json"] * 20:
        content = path.read_bytes()
        place = drawn.randrange(len(content))
        path.write_bytes(
            content[:place]
            + bytes([content[place] ^ 1 << drawn.randrange(8)])
            + content[place + 1 :]
        )
        try:
            assert second.Catalog(grown).read("tas").tobytes() == expected
        except (ValueError, LackingError):
            n_refused += 1
        path.write_bytes(content)
    assert n_refused > 20


def skip_without_data() -> None:
    reason = missing_reason()
    if reason is not None:
        skip_or_fail(reason)


@pytest.mark.parametrize("family", ["gdal_byte_chunk_mismatch", "kerchunk_air", "roms_his_4"])
def test_cubes_of_shared_families_are_equal(family: str, tmp_path: Path) -> None:
    skip_without_data()
    folder = shared_data_folder() / "families" / family
    gridref.build(folder, tmp_path / "cube.gridref", layout="first")
    compared = Compared()
    compared.compare(tmp_path / "cube.gridref", family, most_chunks=300)
    assert not compared.wrong
    assert compared.equal or compared.lacking


def test_shared_files_are_equal() -> None:
    """A few of those that ``python -m tests.conformance.second_reader`` compares."""
    skip_without_data()
    compared = compare_files(samples()[5::40], most_chunks=50)
    assert not compared.wrong
    assert len(compared.equal) > 50
