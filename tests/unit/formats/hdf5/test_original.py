"""Processes in which a read below h5py failed end as others do."""

from __future__ import annotations

import subprocess
import sys

import pytest

SETTING = """
import io, sys
import fsspec, h5py, numpy as np
from gridref.errors import SourceUnavailableError
from gridref.formats.hdf5 import original
from gridref.formats.hdf5.original import OriginalFile
from gridref.io import open_for_scan, scan_file

original.WHOLE_BYTES = 0  # that h5py asks for pieces
content = io.BytesIO()
with h5py.File(content, "w") as written:
    written["x"] = np.arange(100_000)
fsspec.filesystem("memory").pipe_file("/a.h5", content.getvalue())

whole = scan_file.RemoteScanFile._read_many

def cut(*arguments):
    raise SourceUnavailableError("the cable was cut")

def cut_the_cable():
    scan_file.RemoteScanFile._read_many = cut

def mend_the_cable():
    scan_file.RemoteScanFile._read_many = whole

kept = []
"""

KEPT = """
cut_the_cable()
try:
    OriginalFile("memory://a.h5").read("x")
except SourceUnavailableError as error:
    kept.append(error)
for closed in (False, True):
    mend_the_cable()
    file = OriginalFile("memory://a.h5")
    cut_the_cable()
    try:
        file.read("x")
    except SourceUnavailableError as error:
        kept.append(error)
    kept.append(file)
    if closed:
        file.close()
"""

BELOW_PLAIN_H5PY = """
mend_the_cable()
file = open_for_scan("memory://a.h5")
cut_the_cable()
try:
    h5py.File(file)
except SourceUnavailableError as error:
    kept.append(file)
"""

COPIED_WITH_TRACEBACKS = """
import tblib.pickling_support  # as dask.distributed does
tblib.pickling_support.install()
"""

UNHANDLED = """
cut_the_cable()
OriginalFile("memory://a.h5").read("x")
"""


def ended(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SETTING + program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("program", "n_kept"),
    [(KEPT + BELOW_PLAIN_H5PY, 6), (COPIED_WITH_TRACEBACKS + BELOW_PLAIN_H5PY, 1)],
    ids=["opening, reading, plain h5py", "tblib"],
)
def test_errors_that_are_kept_until_the_end_do_no_harm(program: str, n_kept: int) -> None:
    done = ended(f"{program}\nassert len(kept) == {n_kept}\n")
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_that_nothing_catches_ends_with_its_message() -> None:
    done = ended(UNHANDLED)
    assert done.returncode == 1
    *_, message, advice = done.stderr.splitlines()
    assert message.endswith("SourceUnavailableError: the cable was cut")
    assert advice == "Cause and remedy: gridref --explain source-unavailable"
