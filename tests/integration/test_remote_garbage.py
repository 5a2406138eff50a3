"""Garbage collection on fsspec's thread while h5py waits for that thread's bytes.

The case runs in a process of its own: what fails here hangs.
"""

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np

_PROGRAM = """
import gc, sys
from pathlib import Path
import fsspec.asyn, h5py
from gridref.formats.hdf5 import original
from tests.http_server import Site, serving

class Circle:
    def __init__(self, space):
        self.itself, self.space = self, space

def litter():
    Circle(spaces.pop())
    loop.call_later(0.0005, litter)

path = Path(sys.argv[1])
original.WHOLE_BYTES = 0  # h5py reads the file piece by piece, as it reads a large one
spaces = [h5py.h5s.create_simple((3,)) for _ in range(20_000)]
gc.set_threshold(1)
with serving(Site({"/a.nc": path.read_bytes()}, {"/a.nc": '"v1"'})) as site:
    loop = fsspec.asyn.get_loop()
    loop.call_soon_threadsafe(litter)
    original.OriginalFile(f"{site.url}/a.nc").read("v3")
assert gc.isenabled()
print(len(spaces))
"""


def test_garbage_on_the_thread_that_reads_blocks_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with h5py.File(path, "w") as file:
        for number in range(20):
            file.create_dataset(f"v{number}", data=np.zeros((40, 50)), chunks=(20, 25))
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(path)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 19_990, "no garbage was made while reading"
