"""Summaries of `gridref verify`: written, published, and checked elsewhere."""

from __future__ import annotations

import hashlib
import json
import shutil
from importlib.metadata import version
from pathlib import Path
from subprocess import CompletedProcess

import h5py
import numpy as np
import pytest

import gridref
from tests.command import run_command
from tests.http_server import Site, serving


@pytest.fixture
def cube(tmp_path: Path) -> Path:
    for number in range(3):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file.create_dataset("v", data=np.arange(40) + 100 * number, chunks=(10,))
    gridref.build(tmp_path / "[01].h5", tmp_path / "cube.gridref", "phony_dim_0")
    return tmp_path / "cube.gridref"


def verify(cube: Path, *options: object) -> CompletedProcess[str]:
    return run_command("verify", cube, "--quiet", *options)


def written(cube: Path, *options: object) -> Path:
    done = verify(cube, "--summary", cube.parent / "s.json", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.replace("\n", "").endswith("s.json")
    return cube.parent / "s.json"


def test_a_summary_says_what_was_compared(cube: Path) -> None:
    document = json.loads(written(cube, "--all").read_text())
    info = gridref.open_catalog(cube).info
    result = gridref.verify(cube, all=True)
    assert document["catalog"] == {
        "digest": info.digest, "snapshot": info.snapshot,
        "n_sources": 2, "n_blocks": info.n_blocks, "n_chunks": 8,
    }  # fmt: skip
    compared = document["compared"]
    assert (compared["all"], compared["n_chunks"], compared["n_values"]) == (True, 8, 80)
    assert compared["n_arrays"] == result.n_arrays
    assert compared["not_compared"] == [list(each) for each in result.not_compared]
    assert document["versions"]["h5py"] == version("h5py")
    assert document["versions"]["gridref"] == version("gridref")
    own = document.pop("digest")
    plain = json.dumps(document, sort_keys=True, separators=(",", ":"))
    assert own == f"sha256:{hashlib.sha256(plain.encode()).hexdigest()}"


def test_a_mirror_is_checked(cube: Path, tmp_path: Path) -> None:
    summary = written(cube, "--all")
    mirror = tmp_path / "mirror.gridref"
    shutil.copytree(cube, mirror)
    for options in ((), ("--all",)):
        done = verify(mirror, "--against", summary, *options)
        assert done.returncode == 0, done.stderr
        assert gridref.open_catalog(cube).info.digest in done.stdout.replace("\n", "")
    with serving(Site({"/s.json": summary.read_bytes()}, {"/s.json": '"1"'})) as site:
        done = verify(mirror, "--against", f"{site.url}/s.json")
        assert done.returncode == 0, done.stderr


def test_another_catalog_is_refused(cube: Path, tmp_path: Path) -> None:
    summary = written(cube)
    gridref.open_catalog(cube).append(tmp_path / "2.h5")
    done = verify(cube, "--against", summary)
    told = " ".join(done.stdout.split())
    assert done.returncode == 1
    assert "differs digest: sha256:" in told
    assert "differs files: 3 here, 2 in the summary" in told
    assert "differs stored chunks: 12 here, 8 in the summary" in told


def test_values_are_compared_again(cube: Path, tmp_path: Path) -> None:
    summary = written(cube)
    path = tmp_path / "1.h5"
    status = path.stat()
    with h5py.File(path) as file:
        offset = file["v"].id.get_chunk_info(0).byte_offset
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)
    assert path.stat().st_size == status.st_size
    done = verify(cube, "--against", summary)
    assert done.returncode == 1
    assert "changed" in done.stderr


def test_counts_of_the_same_catalog(cube: Path) -> None:
    summary = written(cube, "--all")
    document = json.loads(summary.read_text())
    document["compared"]["n_values"] += 1
    rest = {name: value for name, value in document.items() if name != "digest"}
    plain = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    rest["digest"] = f"sha256:{hashlib.sha256(plain.encode()).hexdigest()}"
    summary.write_text(json.dumps(rest))
    done = verify(cube, "--against", summary, "--all")
    assert done.returncode == 1
    assert "values compared: 80 here, 81 in the summary" in " ".join(done.stdout.split())


def test_what_is_no_summary_is_refused(cube: Path, tmp_path: Path) -> None:
    summary = written(cube)
    changed = summary.read_text().replace('"n_chunks": 8', '"n_chunks": 9', 1)
    cases = {"changed.json": (changed, "was changed after it was written")}
    cases |= {
        f"{number}.json": (text, "write one with gridref verify CATALOG --summary FILE")
        for number, text in enumerate(("[]", "[" * 100_000))
    }
    for name, (text, words) in cases.items():
        (tmp_path / name).write_text(text)
        done = verify(cube, "--against", tmp_path / name)
        assert done.returncode == 1
        assert words in " ".join(done.stderr.split()), name
    done = verify(cube, "--summary", tmp_path / "x.json", "--checksums")
    assert done.returncode == 1
    assert "record them first" in " ".join(done.stderr.split())
    assert verify(cube, "--checksums").returncode == 0
    written(cube)  # as that message says
