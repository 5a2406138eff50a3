"""What the first call of a process takes: ``python -m benchmarks.first_use``.

A new interpreter each time, as for a person who types a command. The measure is `import numpy` in
one, without which no call can be answered. Modules are compiled before, as those of installed
packages are; the median of some alternating runs counts.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import gridref
from benchmarks._figures import Figure, print_table
from benchmarks.door import slow_server
from benchmarks.workers import small_file

RUNS = 7

IMPORT = "import gridref"
NUMPY = "import numpy"
INFO = "import sys; from gridref.faces.cli import main; sys.exit(main())"
SCAN = "import sys, gridref; gridref.scan(sys.argv[1])"


def seconds_of(programs: dict[str, tuple[str, ...]], folder: Path) -> dict[str, float]:
    """Median seconds of programs and their arguments, each in a process that begins anew."""
    bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    taken: dict[str, list[float]] = {name: [] for name in ("nothing", *programs)}
    for _ in range(RUNS + 1):
        for name, program in {"nothing": ("",), **programs}.items():
            began = time.perf_counter()
            subprocess.run(
                [sys.executable, "-c", *program],
                check=True,
                stdout=subprocess.DEVNULL,
                env={**os.environ, **bytecode},
            )
            taken[name].append(time.perf_counter() - began)
    return {name: statistics.median(found[1:]) for name, found in taken.items()}


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as name, slow_server(Path(name)) as url:
        folder = Path(name)
        file = folder / "small.nc"
        small_file(file, 0)
        gridref.build(str(file), str(folder / "small.gridref"))
        found = seconds_of(
            {
                "import": (IMPORT,),
                "numpy": (NUMPY,),
                "info": (INFO, "info", str(folder / "small.gridref")),
                "local": (SCAN, str(file)),
                "remote": (SCAN, f"{url}/small.nc"),
            },
            folder,
        )
    nothing = found.pop("nothing")
    rows = {
        "import": ("first use: `import gridref`", "<= 0.1 s"),
        "info": ("first use: `gridref info` of a small catalog", "<= 0.4 s"),
        "local": ("first use: scan of a local file", "<= 0.25 s"),
        "remote": ("first use: scan of a remote file, 25 ms a request", "<= 0.45 s"),
    }
    for name, (row, target) in rows.items():
        own = found[name] - nothing
        ratio = own / (found["numpy"] - nothing)
        yield Figure(row, ratio, target, "times as long", f"{own:.2f} s")


if __name__ == "__main__":
    print_table(figures())
