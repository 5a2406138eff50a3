"""Built of references, catalogs hold what these say; ``gridref verify`` reads exports back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.errors import SourceFormatError
from gridref.faces.exports.kerchunk import to_kerchunk
from tests.command import run_command

SAMPLES = Path(__file__).parents[2] / "sample_data"
MONTH = SAMPLES / "daily_2023-01.nc"


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", ["refs.json", "templates.json", "refs.parq", "cube.icechunk"])
def test_an_export_comes_back_and_is_verified(name: str, tmp_path: Path) -> None:
    catalog, output, again = (tmp_path / part for part in ("a.gridref", name, "again.gridref"))
    gridref.build(MONTH, catalog)
    options = ["--templates"] if name == "templates.json" else []
    told = run_command("export", catalog, output, *options)
    assert told.returncode == 0, told.stderr
    told = run_command("build", output, "-o", again, "--allow", SAMPLES, "--verify")
    assert told.returncode == 0, told.stderr
    assert "0 chunks differ" in told.stdout
    expected = xr.open_dataset(MONTH, engine="netcdf4").compute()
    xr.testing.assert_equal(xr.open_dataset(again, engine="gridref").compute(), expected)
    checked = run_command("verify", output, "--allow", SAMPLES, "--all")
    assert checked.returncode == 0, checked.stderr
    n_chunks = gridref.verify(catalog, all=True).n_chunks
    assert gridref.verify(output, all=True, allow=str(SAMPLES)).n_chunks >= n_chunks - 8


def test_generated_references_are_imported(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["a"] = np.arange(12, dtype="<i4")
        start = file["a"].id.get_offset()
    zarray = {"zarr_format": 2, "shape": [12], "chunks": [4], "dtype": "<i4", "order": "C",
              "compressor": None, "filters": None, "fill_value": None}  # fmt: skip
    document = {
        "version": 1,
        "templates": {"f": str(tmp_path / "{{c}}.h5")},
        "gen": [
            {
                "key": "a/{{i}}",
                "url": "{{f(c='a')}}",
                "offset": "{{" + f"{start} + i * 16" + "}}",
                "length": "16",
                "dimensions": {"i": {"stop": 3}},
            }
        ],
        "refs": {
            ".zgroup": '{"zarr_format": 2}',
            "a/.zarray": json.dumps(zarray),
            "a/.zattrs": '{"_ARRAY_DIMENSIONS": ["x"]}',
        },
    }
    (tmp_path / "refs.json").write_text(json.dumps(document))
    told = run_command("build", tmp_path / "refs.json", "-o", tmp_path / "a.gridref", "--verify")
    assert told.returncode == 0, told.stderr
    assert "1 arrays, 3 chunks, 12 values compared: 0 chunks differ" in told.stdout
    assert gridref.open_catalog(tmp_path / "a.gridref")["a"][...].tolist() == list(range(12))


def test_a_wrong_reference_is_found_by_verify(tmp_path: Path) -> None:
    document = to_kerchunk(gridref.scan(MONTH))
    refs = document["refs"]
    refs["tas/0.0.0"], refs["tas/1.0.0"] = refs["tas/1.0.0"], refs["tas/0.0.0"]
    (tmp_path / "refs.json").write_text(json.dumps(document))
    told = run_command("verify", tmp_path / "refs.json", "--allow", SAMPLES, "--all")
    assert told.returncode == 1
    assert "2 chunks differ" in told.stdout
    assert "tas" in told.stdout


def test_references_that_leave_their_folder_need_permission(tmp_path: Path) -> None:
    to_kerchunk(gridref.scan(MONTH), tmp_path / "refs.json")
    told = run_command("build", tmp_path / "refs.json", "-o", tmp_path / "a.gridref")
    assert told.returncode == 1
    assert f"--allow {SAMPLES}" in told.stderr.replace("\n", "")
    assert not (tmp_path / "a.gridref").exists()


def changed(refs: dict[str, Any], key: str, **changes: Any) -> None:
    refs[key] = json.dumps({**json.loads(refs[key]), **changes})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: d.update(version=2), r"version 2.*refs\.json"),
        (lambda d: changed(d["refs"], "tas/.zarray", zarr_format=3), r"zarr_format 3.*tas"),
        (
            lambda d: d["refs"]["tas/1.0.0"].__setitem__(1, 1 << 40),
            r"beyond.*/tas, chunk \(1, 0, 0\)",
        ),
        (lambda d: d["refs"].update({"tas/1.0.0": ["x", -1, 5]}), r"tas/1\.0\.0"),
        (
            lambda d: d["refs"].update({"tas/1.0.0": ["gone.nc", 0, 5]}),
            r"gone\.nc,.*/tas, chunk \(1, 0, 0\)",
        ),
        (lambda d: changed(d["refs"], "tas/.zarray", chunks=[0, 0]), r"tas"),
    ],
)
def test_bad_references_are_refused_by_array_and_chunk(
    damage: Any, message: str, tmp_path: Path
) -> None:
    document = to_kerchunk(gridref.scan(MONTH))
    damage(document)
    (tmp_path / "refs.json").write_text(json.dumps(document))
    with pytest.raises(gridref.errors.GridrefError, match=f"(?s){message}"):
        gridref.scan(tmp_path / "refs.json", allow="*")


def test_references_to_a_file_that_changed_since_name_array_and_chunk(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    path.write_bytes(MONTH.read_bytes())
    to_kerchunk(gridref.scan(path), tmp_path / "refs.json")
    path.write_bytes(MONTH.read_bytes()[:6000])  # before it is imported: it is too short
    with pytest.raises(SourceFormatError, match=r"(?s)beyond the end.*a\.nc"):
        gridref.build(tmp_path / "refs.json", tmp_path / "cube.gridref")
    path.write_bytes(MONTH.read_bytes())
    gridref.build(tmp_path / "refs.json", tmp_path / "cube.gridref")
    path.write_bytes(MONTH.read_bytes() + b"more")
    with pytest.raises(gridref.errors.SourceChangedError, match=r"tas.*a\.nc|a\.nc.*tas"):
        gridref.open_catalog(tmp_path / "cube.gridref")["tas"][...]
