"""Tests that every format must pass: subclass `ScannerTests` in a test module, and run pytest.

Needs pytest, which gridref itself does not depend on.
"""

from __future__ import annotations

import os
import sys
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import fsspec
import numpy as np
import zarr
from numpy.typing import NDArray

import gridref
from gridref.api.catalog import write_catalog
from gridref.errors import GridrefError, SourceUnavailableError
from gridref.formats import Scanner, expand_files
from gridref.formats.location import open_location
from gridref.formats.registry import data_names, scanner_of
from gridref.formats.scanner import Reach

try:
    import pytest
except ModuleNotFoundError as error:
    message = "gridref.testing.formats needs pytest: pip install gridref[test]"
    raise ModuleNotFoundError(message, name=error.name) from None

__all__ = ["Sample", "ScannerTests"]

FOREIGN = {
    "empty": b"",
    "one byte": b"\0",
    "zeros": bytes(5000),
    "text": b"station;date;value\n" * 100,
    "page": b"<!doctype html><html><body>Sign in</body></html>",
    "json": b'{"name": "no data"}',
    "grib": b"GRIB" + bytes(range(256)) * 10,
    "png": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 10,
}
"""Files that are of none of the formats."""

N_DAMAGED = 100


@dataclass(frozen=True)
class Sample:
    """A file or folder of a format, written without gridref.

    Attributes
    ----------
    path
        Where it is. Whatever else it needs lies in the same folder.
    arrays
        Elements of each array, by the array's path in the group that a scan gives.
    """

    path: Path
    arrays: Mapping[str, NDArray[Any]]


class ScannerTests:
    """Tests of one scanner, on a sample that the subclass writes."""

    scanner: Scanner
    """The scanner. It is installed, so that gridref finds it."""

    @abstractmethod
    def write_sample(self, folder: Path) -> Sample:
        """Write a file or folder of the format into an empty folder, with another program."""

    @pytest.fixture
    def sample(self, tmp_path: Path) -> Sample:
        """A sample in a folder of its own."""
        folder = tmp_path / "sample"
        folder.mkdir()
        return self.write_sample(folder)

    def test_declares_itself(self, sample: Sample) -> None:
        """The declaration is complete, and fits the sample's name."""
        scanner = self.scanner
        assert isinstance(scanner, Scanner)
        assert scanner.name.strip()
        assert scanner.reach in get_args(Reach.__value__)
        for suffix in (*scanner.suffixes, *scanner.folder_suffixes):
            assert suffix.startswith(".")
            assert suffix == suffix.lower()
        if sample.path.is_dir():
            assert any((sample.path / marker).is_file() for marker in scanner.markers)

    def test_recognises_its_own(self, sample: Sample) -> None:
        """The sample is recognised, by this scanner before all others."""
        with open_location(sample.path, names=data_names()) as location:
            assert self.scanner.recognises(location)
            assert type(scanner_of(location)) is type(self.scanner)

    def test_recognises_nothing_else(self, tmp_path: Path) -> None:
        """Files of other formats and folders without data are not recognised."""
        for name, content in FOREIGN.items():
            (tmp_path / name).write_bytes(content)
        (tmp_path / "folder").mkdir()
        for path in tmp_path.iterdir():
            with open_location(path, names=data_names()) as location:
                assert not self.scanner.recognises(location), path.name

    def test_is_found_in_a_directory(self, sample: Sample) -> None:
        """A directory stands for the sample in it, if the format has suffixes or markers."""
        if sample.path.is_dir() or self.scanner.suffixes:
            assert str(sample.path) in expand_files(sample.path.parent)
        else:
            pytest.skip("files of the format are not told by their names")

    def test_values(self, sample: Sample) -> None:
        """Every element is what the other program wrote, straight from the scan."""
        assert_shows(gridref.scan(sample.path), sample)

    def test_values_from_a_catalog(self, sample: Sample, tmp_path: Path) -> None:
        """The same after the group went through a catalog."""
        catalog = str(tmp_path / "catalog.gridref")
        write_catalog(gridref.scan(sample.path), catalog)
        assert_shows(gridref.open_catalog(catalog), sample)

    def test_values_of_a_remote_copy(self, sample: Sample) -> None:
        """The same from a filesystem that knows URLs only."""
        filesystem = fsspec.filesystem("memory")
        folder = f"/gridref_testing/{os.getpid()}"
        filesystem.put(str(sample.path.parent), folder, recursive=True)
        try:
            group = gridref.scan(f"memory:/{folder}/{sample.path.name}")
            assert group.report.n_requests > 0
            assert_shows(group, sample)
        finally:
            filesystem.rm(folder, recursive=True)

    def test_report(self, sample: Sample) -> None:
        """All arrays are reported, and what was read is counted; twice the same."""
        report = gridref.scan(sample.path).report
        assert {f"/{path}" for path in sample.arrays} <= {finding.path for finding in report}
        assert report.n_requests > 0
        assert report.n_bytes > 0
        assert gridref.scan(sample.path).report == report

    def test_opens_what_it_may_once(self, sample: Sample) -> None:
        """A scan opens the file once, and others only as far as the scanner declares."""
        gridref.scan(sample.path)  # imports open files, too
        scans = []
        for _ in range(3):
            with opened_files() as opened:
                gridref.scan(sample.path)
            scans.append(Counter(opened))
        # What other threads of this process open meanwhile, they do not open in each of the scans.
        opened_each_time = scans[0] & scans[1] & scans[2]
        if sample.path.is_file():
            assert opened_each_time[str(sample.path)] == 1
        home = sample.path.parent if self.scanner.reach == "folder" else sample.path
        if self.scanner.reach != "anywhere":
            elsewhere = [each for each in opened_each_time if not Path(each).is_relative_to(home)]
            assert not elsewhere

    def test_a_file_that_is_not_there(self, sample: Sample) -> None:
        """The error names it."""
        lost = sample.path.with_name(f"lost{sample.path.suffix}")
        with pytest.raises(SourceUnavailableError, match="lost"):
            gridref.scan(lost)

    def test_a_cut_file_is_refused_or_whole(self, sample: Sample) -> None:
        """A file that ends too early gives an error of gridref's, never other values."""
        content = whole_file(sample)
        for n_bytes in sorted({*np.linspace(0, len(content) - 1, 25, dtype=int).tolist(), 1, 5}):
            sample.path.write_bytes(content[:n_bytes])
            try:
                group = gridref.scan(sample.path)
                shown = {path: values_of(group, path) for path in sample.arrays}
            except GridrefError:
                continue
            for path, values in shown.items():
                np.testing.assert_array_equal(values, sample.arrays[path], f"{n_bytes} bytes")

    def test_a_damaged_file_gives_errors_of_gridref(self, sample: Sample) -> None:
        """Whatever the bytes are: a scan ends, with a group or with an error of gridref's."""
        content = whole_file(sample)
        random = np.random.default_rng(1)
        for _ in range(N_DAMAGED):
            damaged = np.frombuffer(content, np.uint8).copy()
            positions = random.integers(0, min(len(content), 4096), random.integers(1, 9))
            damaged[positions] = random.integers(0, 256, len(positions))
            sample.path.write_bytes(damaged.tobytes())
            problem = ""
            try:
                gridref.scan(sample.path)
            except GridrefError as error:
                problem = str(error)
            assert not problem or str(sample.path) in problem, "the error does not name the file"


def whole_file(sample: Sample) -> bytes:
    """The content of a sample that is one file; skips the test otherwise."""
    if sample.path.is_dir():
        pytest.skip("the sample is a folder")
    return sample.path.read_bytes()


def values_of(group: gridref.VirtualGroup, path: str) -> NDArray[Any]:
    """All elements of an array, as zarr reads them through the store."""
    root = zarr.open_group(gridref.open_store(group, "portable"), mode="r", zarr_format=3)
    return np.asarray(root[path][...])  # type: ignore[index]


def assert_shows(group: gridref.VirtualGroup, sample: Sample) -> None:
    """Check that a group shows the elements of a sample, and all of its files the same way."""
    for path, expected in sample.arrays.items():
        values = values_of(group, path)
        assert values.dtype == expected.dtype.newbyteorder("="), path
        np.testing.assert_array_equal(values, expected, path)


_listeners: list[list[str]] = []


def _note_opened(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _listeners and isinstance(arguments[0], str | bytes | os.PathLike):
        for listener in _listeners:
            listener.append(os.path.abspath(os.fsdecode(arguments[0])))


@contextmanager
def opened_files() -> Iterator[list[str]]:
    """The local files that this process opens inside of the ``with`` block, by whatever means."""
    if not getattr(opened_files, "hooked", False):
        sys.addaudithook(_note_opened)  # hooks stay for ever
        opened_files.hooked = True  # type: ignore[attr-defined]
    opened: list[str] = []
    _listeners.append(opened)
    try:
        yield opened
    finally:
        _listeners.remove(opened)
