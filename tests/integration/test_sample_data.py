"""The committed sample files are what their script writes, and as uneven as they should be."""

from __future__ import annotations

import calendar
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import tifffile

from gridref import demo
from tests.command import run_script

# What the libraries leave behind about themselves, or about places in one file.
LIBRARY_ATTRIBUTES = {"_NCProperties", "DIMENSION_LIST", "REFERENCE_LIST"}


def write(script: Path, folder: Path) -> Path:
    folder.mkdir()
    done = run_script(str(script), folder, cwd=folder, env=os.environ, seconds=60)
    assert done.returncode == 0, done.stdout
    return folder


@pytest.fixture(scope="module")
def rewritten(sample_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(
        sample_data / "make_sample_data.py", tmp_path_factory.mktemp("sample_data") / "again"
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.nc"))


def attributes(node: h5py.Group | h5py.Dataset) -> dict[str, object]:
    return {
        name: np.asarray(value).tolist()
        for name, value in node.attrs.items()
        if name not in LIBRARY_ATTRIBUTES
    }


def test_a_rerun_writes_the_same_bytes(sample_data: Path, rewritten: Path, tmp_path: Path):
    (again := tmp_path / "again").mkdir()
    script = sample_data / "make_sample_data.py"
    subprocess.run([sys.executable, script, again], check=True)  # its hashes are others
    assert names(again) == names(rewritten)
    for name in names(again):
        assert (again / name).read_bytes() == (rewritten / name).read_bytes(), name


def test_the_committed_files_are_what_the_script_writes(sample_data: Path, rewritten: Path):
    # Contents, not bytes: other library versions lay files out and compress differently.
    assert names(sample_data) == names(rewritten)
    for name in names(rewritten):
        with h5py.File(sample_data / name) as committed, h5py.File(rewritten / name) as fresh:
            assert attributes(committed) == attributes(fresh)
            assert set(committed) == set(fresh)
            for variable, expected in fresh.items():
                actual = committed[variable]
                assert attributes(actual) == attributes(expected), (name, variable)
                assert (actual.dtype, actual.chunks, actual.compression, actual.shuffle) == (
                    expected.dtype,
                    expected.chunks,
                    expected.compression,
                    expected.shuffle,
                )
                np.testing.assert_array_equal(actual[...], expected[...], f"{name} {variable}")


def test_months_are_uneven_and_no_chunk_divides_them(sample_data: Path):
    lengths = []
    for name in names(sample_data):
        year, month = int(name[6:10]), int(name[11:13])
        with h5py.File(sample_data / name) as file:
            for variable in ("tas", "pr"):
                n_days = file[variable].shape[0]
                assert n_days == calendar.monthrange(year, month)[1]
                assert n_days % file[variable].chunks[0]
            lengths.append(n_days)
    assert len(lengths) == 14
    assert set(lengths) == {28, 29, 30, 31}


def test_the_folder_stays_small(sample_data: Path):
    assert sum(path.stat().st_size for path in sample_data.rglob("*") if path.is_file()) < 2_000_000


def test_the_tiles_are_what_their_script_writes(sample_data: Path, tmp_path: Path) -> None:
    fresh = write(sample_data / "make_sample_tiles.py", tmp_path / "tiles")
    written = sorted(path.name for path in fresh.glob("*.tif"))
    assert written == sorted(path.name for path in sample_data.glob("*.tif"))
    assert len(written) == 2
    for name in written:
        expected = tifffile.imread(fresh / name)
        assert np.array_equal(tifffile.imread(sample_data / name), expected), name


def test_the_installed_package_hands_them_out(
    sample_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["gridref.demo", "--files", str(tmp_path / "new" / "files")])
    assert demo.main() == 0
    given = {path.name: path.read_bytes() for path in (tmp_path / "new" / "files").iterdir()}
    assert given == {
        path.name: path.read_bytes()
        for path in sample_data.iterdir() if path.suffix in (".nc", ".tif")
    }  # fmt: skip
    assert f"{len(given)} files" in capsys.readouterr().out
