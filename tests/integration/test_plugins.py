"""Formats and codecs of other packages, installed as users install them."""

from __future__ import annotations

from pathlib import Path

import pytest

import gridref
from gridref.codecs.pipeline import own_codecs
from gridref.errors import SourceFormatError
from gridref.formats.built_in import BUILT_IN
from tests.wheels import install, run_python, unpack

FORMAT = '''
"""Files of bytes: "GRID", a byte for the number of columns, then rows."""

import numpy as np

from gridref.errors import SourceFormatError
from gridref.formats import Location, ScanOptions
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Codec, Encoding
from gridref.model.manifest import ChunkManifest
from gridref.model.scan_report import Fate, Finding, ScanReport


class GridScanner:
    name = "byte grids"
    suffixes = (".grid",)
    markers = ()
    folder_suffixes = ()
    reach = "itself"

    def recognises(self, location: Location) -> bool:
        return location.head.startswith(b"GRID")

    def scan(self, location: Location, options: ScanOptions) -> VirtualGroup:
        file = location.opened
        shape = ((file.size - 5) // location.head[4], location.head[4])
        encoding = Encoding(shape, np.dtype("u1"), (Codec("bytes"), Codec("example.inverted")))
        manifest = ChunkManifest.from_columns([file.source], offset=5, length=file.size - 5)
        array = VirtualArray.of_one_block(
            shape, np.dtype("u1"), encoding=encoding, manifest=manifest, dims=("y", "x")
        )
        report = ScanReport((Finding("/grid", Fate.TAKEN, "", location.url),))
        return VirtualGroup({"grid": array}, report=report)
'''

CODEC = """
from gridref.codecs import BytesCodec, as_u1

INVERTED = BytesCodec(
    decoder=lambda configuration, n_bytes, spec: lambda raw: ~as_u1(raw),
    stored_bytes=lambda configuration, n_bytes, spec: n_bytes,
)
"""

FILES = {"bytegrids/__init__.py": FORMAT, "bytegrids/codec.py": CODEC}
SCANNER = {"grid": "bytegrids:GridScanner"}
ENTRY_POINTS = {
    "gridref.formats": SCANNER,
    "gridref.codecs": {"example.inverted": "bytegrids.codec:INVERTED"},
}

READ = """
import numpy as np, xarray as xr
import gridref
group = gridref.scan("a.grid")
assert group.report.n_requests == 1, group.report
built = gridref.build(".", "all.gridref")
opened = xr.open_dataset(gridref.open_store("all.gridref"), engine="zarr", consolidated=False)
print(opened["grid"].values.tolist())
import sys
from gridref.faces.cli import main
sys.argv[1:] = ["formats"]
main()
"""


def test_a_format_and_a_codec_of_another_package(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.grid").write_bytes(b"GRID\x03" + bytes(255 - n for n in range(6)))
    site = install(tmp_path / "site", "byte-grids", FILES, ENTRY_POINTS)
    done = run_python(["-c", READ], paths=[site], folder=work)
    assert done.returncode == 0, done.stderr
    read, _, listed = done.stdout.partition("\n")
    assert read == "[[0, 1, 2], [3, 4, 5]]"
    assert "byte grids  .grid" in listed
    assert "added by" in listed
    assert "byte-grids" in listed
    with pytest.raises(SourceFormatError):  # this process does not have the package
        gridref.scan(work / "a.grid")


def test_the_error_of_an_unknown_file_names_what_lists_all_formats(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"GRIB")
    site = unpack(tmp_path / "site", "byte-grids", FILES, ENTRY_POINTS)
    code = "import gridref; gridref.scan('a.bin')"
    done = run_python(["-c", code], paths=[site], folder=tmp_path)
    assert (
        "SourceFormatError: the file looks like a GRIB file; `gridref formats` lists" in done.stderr
    )


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named"),
        ("class GridScanner:\n    pass", "it is no gridref.formats.Scanner"),
        ("class GridScanner:\n    def __init__(self, x): ...", "it cannot be called without"),
        ("x = 1", "AttributeError"),
        (FORMAT.replace('(".grid",)', '".grid"'), "suffixes must be a tuple of strings"),
    ],
)
def test_broken_packages_are_named(tmp_path: Path, code: str, problem: str) -> None:
    site = unpack(
        tmp_path / "site", "byte-grids", {"bytegrids.py": code}, {"gridref.formats": SCANNER}, "2.1"
    )
    (tmp_path / "a.grid").write_bytes(b"GRID")
    scan = "import gridref; gridref.scan('a.grid')"
    done = run_python(["-c", scan], paths=[site], folder=tmp_path)
    assert "gridref.errors.InvalidRequestError: gridref.formats 'grid' of the" in done.stderr
    assert "installed package byte-grids 2.1 cannot be used:" in done.stderr
    assert problem in done.stderr
    assert "Update or uninstall the package" in done.stderr


def test_a_broken_package_does_not_keep_other_files_closed(tmp_path: Path) -> None:
    site = unpack(
        tmp_path / "site", "byte-grids", {"bytegrids.py": "1 / 0"}, {"gridref.formats": SCANNER}
    )
    code = (
        "import h5py, gridref\n"
        "with h5py.File('a.h5', 'w') as file: file['x'] = 1.0\n"
        "print(list(gridref.scan('a.h5').arrays))"
    )
    done = run_python(["-c", code], paths=[site], folder=tmp_path)
    assert done.stdout.strip() == "['x']", done.stderr


@pytest.mark.long
@pytest.mark.parametrize("name", ["grid", "hdf5"])
def test_names_claimed_twice(tmp_path: Path, name: str) -> None:
    points = {"gridref.formats": {name: "bytegrids:GridScanner"}}
    sites = [unpack(tmp_path / "one", "byte-grids", FILES, points)]
    if name == "grid":
        sites.append(unpack(tmp_path / "two", "more-grids", {"more.py": ""}, points, "3.0"))
    (tmp_path / "a.grid").write_bytes(b"GRID")
    code = "import gridref; gridref.scan('a.grid')"
    done = run_python(["-c", code], paths=sites, folder=tmp_path)
    owner = "gridref itself" if name == "hdf5" else "the installed package byte-grids 1.0"
    assert f"{owner} has that name, too" in done.stderr
    named = "byte-grids 1.0" if name == "hdf5" else "more-grids 3.0"
    assert f"'{name}' of the installed package {named}" in done.stderr


@pytest.mark.long
def test_a_broken_codec_is_named(tmp_path: Path) -> None:
    points = {"gridref.codecs": {"example.inverted": "bytegrids:GridScanner"}}
    site = unpack(tmp_path / "site", "byte-grids", FILES, points)
    code = (
        "from gridref.codecs import why_not\n"
        "from gridref.model.encoding import Codec\n"
        "why_not(Codec('example.inverted'))"
    )
    done = run_python(["-c", code], paths=[site], folder=tmp_path)
    assert "InvalidRequestError: gridref.codecs 'example.inverted' of the" in done.stderr
    assert "byte-grids 1.0 cannot be used: it is no ArrayCodec" in done.stderr


def test_formats_are_found_without_metadata(tmp_path: Path) -> None:
    """As in a frozen application, or with the source alone on the path."""
    code = (
        "import importlib.metadata as m, sys\n"
        "m.entry_points = lambda **only: m.EntryPoints(())\n"
        "import h5py, gridref\n"
        "with h5py.File('a.h5', 'w') as file: file['x'] = 1.0\n"
        "print(list(gridref.scan('a.h5').arrays))"
    )
    done = run_python(["-c", code], paths=[], folder=tmp_path)
    assert done.stdout.strip() == "['x']", done.stderr


def test_our_metadata_lists_our_formats() -> None:
    import tomllib

    project = Path(__file__).parents[2] / "pyproject.toml"
    listed = tomllib.loads(project.read_text())["project"]["entry-points"]["gridref.formats"]
    own = {name: type(scanner) for name, scanner in BUILT_IN.items()}
    assert listed == {name: f"{own[name].__module__}:{own[name].__name__}" for name in own}
    assert len(own_codecs()) > 20
