"""A server process uses the memory of its buffers again."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import os, resource, sys
from concurrent.futures import ThreadPoolExecutor
from gridref.faces.http.server import keep_freed_memory
if sys.argv[1] == "kept" and not keep_freed_memory():
    sys.exit("no glibc")
zeros = os.open("/dev/zero", os.O_RDONLY)
def use(_):
    for _ in range(5):
        held = [os.read(zeros, 2**20) for _ in range(8)]
        del held
with ThreadPoolExecutor(4) as threads:
    list(threads.map(use, range(4)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    list(threads.map(use, range(8)))
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(how: str) -> int:
    command = [sys.executable, "-c", CODE, how]
    found = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    if "no glibc" in found.stderr:
        pytest.skip("the allocator is not glibc's")
    assert found.returncode == 0, found.stderr
    return int(found.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is Linux's")
def test_large_buffers_are_not_faulted_in_anew() -> None:
    """Threads fill 320 MiB in turn: few of its pages are new."""
    kept = page_faults("kept")
    assert kept < 8_000
    assert kept * 4 < page_faults("given back")
