"""Where links lead, as h5py follows them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from gridref import scan
from gridref.errors import SourceFormatError
from gridref.testing.reference_reader import read_slowly
from tools.fuzz.hdf5_mutations import checked_spans, mend


def same_as_h5py(path: Path) -> dict[str, str]:
    """Compare what is found at every link of a file; returns why links lead nowhere."""
    group = scan(path, on_unsupported="skip")
    arrays = {f"/{name}": array for name, array in group.all_arrays().items()}
    reasons = {finding.path: finding.reason for finding in group.report.skipped}
    with h5py.File(path) as file:
        for name, array in arrays.items():
            np.testing.assert_array_equal(read_slowly(array), file[name][()])
        for name, reason in reasons.items():
            if "leads nowhere" in reason:
                with pytest.raises((KeyError, OSError, RuntimeError)):
                    file[name]
        for name in file:
            assert f"/{name}" in reasons or name in group.arrays or name in group.groups
    return reasons


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_soft_links(tmp_path: Path, libver: str) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        file["g/h/x"] = np.arange(3)
        for name, target in {
            "plain": "/g/h/x",
            "relative": "g/h/x",
            "dotted": "/./g//h/./x/",
            "through": "/step/x",
            "step": "/g/h",
            "loop": "/loop",
            "one": "/other",
            "other": "/one",
            "up": "/g/../g/h/x",
            "gone": "/g/none/x",
            "inside": "/g/h/x/y",
        }.items():
            file[name] = h5py.SoftLink(target)
        file["g/h/sibling"] = h5py.SoftLink("x")
        file["g/h/astray"] = h5py.SoftLink("h/x")
    reasons = same_as_h5py(path)
    assert set(reasons) == {"/loop", "/one", "/other", "/up", "/gone", "/inside"} | {
        f"/{parent}/astray" for parent in ("g/h", "step")
    }
    assert "no object /g/none/x" in reasons["/gone"]
    assert "no group" in reasons["/inside"]


def test_chains_of_soft_links(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["l0"] = 1
        for number in range(1, 20):
            file[f"l{number}"] = h5py.SoftLink(f"/l{number - 1}")
    assert set(same_as_h5py(path)) == {"/l17", "/l18", "/l19"}


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that links to others, in a folder that is not the working directory."""
    (tmp_path / "work").mkdir()
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.delenv("HDF5_EXT_PREFIX", raising=False)
    monkeypatch.setenv("GRIDREF_ALLOW", str(tmp_path))
    return tmp_path / "data" / "a.h5"


def write(path: Path, value: int) -> None:
    path.parent.mkdir(exist_ok=True)
    with h5py.File(path, "w") as file:
        file["g/x"] = value
        file["soft"] = h5py.SoftLink("/g/x")


def link(path: Path, *targets: tuple[str, str]) -> None:
    with h5py.File(path, "w") as file:
        for number, target in enumerate(targets):
            file[f"l{number}"] = h5py.ExternalLink(*target)


def test_external_links_beside_the_file_come_before_the_working_directory(
    elsewhere: Path,
) -> None:
    write(elsewhere.parent / "b.h5", 1)
    write(Path("b.h5"), 2)
    write(Path("c.h5"), 3)
    link(
        elsewhere, ("b.h5", "/g/x"), ("c.h5", "g/x"), ("b.h5", "soft"), ("d.h5", "x"), ("b.h5", "y")
    )
    reasons = same_as_h5py(elsewhere)
    assert "there is no file d.h5" in reasons["/l3"]
    assert "there is no object y" in reasons["/l4"]
    arrays = scan(elsewhere).arrays
    assert [int(read_slowly(arrays[f"l{n}"])) for n in range(3)] == [1, 3, 1]


def test_external_links_by_prefix(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = elsewhere.parent.parent
    write(root / "p" / "b.h5", 1)
    write(root / "q" / "c.h5", 2)
    write(elsewhere.parent / "b.h5", 3)
    monkeypatch.setenv("HDF5_EXT_PREFIX", os.pathsep.join([str(root / "p"), str(root / "q")]))
    link(elsewhere, ("b.h5", "/g/x"), ("c.h5", "/g/x"), ("missing.h5", "/x"))
    assert set(same_as_h5py(elsewhere)) == {"/l2"}


def test_external_links_with_absolute_names(elsewhere: Path) -> None:
    root = elsewhere.parent.parent
    write(root / "far" / "b.h5", 1)
    write(elsewhere.parent / "moved.h5", 2)
    link(elsewhere, (str(root / "far/b.h5"), "/g/x"), (str(root / "gone/moved.h5"), "/g/x"))
    assert same_as_h5py(elsewhere) == {}


def test_external_links_behind_a_symbolic_link(elsewhere: Path) -> None:
    write(elsewhere.parent / "b.h5", 1)
    link(elsewhere, ("b.h5", "/g/x"))
    (other := elsewhere.parent.parent / "other").mkdir()
    (other / "a.h5").symlink_to(elsewhere)
    assert same_as_h5py(other / "a.h5") == {}


def test_external_links_to_what_is_no_hdf5_file(elsewhere: Path) -> None:
    (elsewhere.parent / "b.h5").write_bytes(b"not HDF5" * 100)
    write(Path("b.h5"), 1)
    link(elsewhere, ("b.h5", "/g/x"))
    assert "no HDF5 signature" in same_as_h5py(elsewhere)["/l0"]


def test_files_that_link_to_one_another(elsewhere: Path) -> None:
    write(elsewhere.parent / "c.h5", 7)
    with h5py.File(elsewhere.parent / "b.h5", "w") as file:
        file["back"] = h5py.ExternalLink("a.h5", "/")
        file["loop"] = h5py.ExternalLink("a.h5", "/loop")
        file["on"] = h5py.ExternalLink("c.h5", "/g")
    with h5py.File(elsewhere, "w") as file:
        file["x"] = 1
        file["b"] = h5py.ExternalLink("b.h5", "/")
        file["loop"] = h5py.ExternalLink("b.h5", "/loop")
    group = scan(elsewhere)
    assert set(group.all_arrays()) == {"x", "b/on/x"}
    reasons = {finding.path: finding.reason for finding in group.report.skipped}
    assert reasons["/b/back"] == "a link back to a group around it"
    assert "leads nowhere" in reasons["/loop"]
    assert "leads nowhere" in reasons["/b/loop"]


def test_links_of_a_kind_that_a_program_defined(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["own"] = h5py.ExternalLink("b.h5", "/x")
        file["x"] = 1
    data = bytearray(path.read_bytes())
    spans = checked_spans(bytes(data))
    at = data.index(b"\x40", data.index(b"own") - 12)
    assert data[at - 2] == 1, "a link message begins with its version"
    data[at] = 200
    mend(data, spans)
    path.write_bytes(data)
    assert "user-defined kind 200" in same_as_h5py(path)["/own"]


@pytest.mark.parametrize("kind", [h5py.SoftLink, None])
def test_corrupt_objects(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["g/x"] = np.arange(5)
        file["y"] = 1
        address = h5py.h5o.get_info(file["g"].id).addr
        if kind is not None:
            file["link"] = kind("/g/x")
    data = bytearray(path.read_bytes())
    data[address] = 99
    path.write_bytes(data)
    with pytest.raises(SourceFormatError, match="unknown version 99") as raised:
        scan(path)
    assert raised.value.place.variable == "/g"
    group = scan(path, on_unsupported="skip")
    assert set(group.all_arrays()) == {"y"}
    assert kind is None or any(
        finding.path == "/link" and "leads nowhere" in finding.reason for finding in group.report
    )
