"""A folder that holds a format's marker is data if a format recognises what is in it."""

from __future__ import annotations

from pathlib import Path

import h5py
import pytest

from gridref.formats.registry import expand_files

STRAYS = {
    "info": [b"read me", b'{"title": "our data"}'],
    "attributes.json": [b"[]", b'{"title": "our data"}'],
    "repo": [b"https://example.org"],
}


@pytest.mark.parametrize("name", STRAYS)
def test_markers_that_no_format_recognises_are_stray_files(tmp_path: Path, name: str) -> None:
    (tmp_path / "2024").mkdir()
    with h5py.File(tmp_path / "2024" / "a.h5", "w") as file:
        file["v"] = [1, 2]
    for content in STRAYS[name]:
        (tmp_path / name).write_bytes(content)
        assert expand_files(tmp_path) == [str(tmp_path / "2024" / "a.h5")]


@pytest.mark.parametrize(
    "files",
    [
        {"info": b'{"scales": []}'},
        {"attributes.json": b'{"n5": "2.0.0"}'},
        {"attributes.json": b'{"sample": "fly"}', "s0/attributes.json": b"{}"},
        {"header.wkw": b"WKW"},
        {"zarr.json": b"{}"},
    ],
)
def test_marked_folders_that_a_format_recognises_are_data(
    tmp_path: Path, files: dict[str, bytes]
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert expand_files(tmp_path) == [str(tmp_path)]
