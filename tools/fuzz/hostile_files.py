"""Files that are hostile on purpose: through every door, or refused, in bounded time and memory.

What is read equals h5py, where h5py reads it without ending its process.
"""

from __future__ import annotations

import json
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import gridref
from gridref.errors import GridrefError
from tests.attack_doors import DOORS, is_told_by_http

__all__ = ["try_file", "try_files"]

SECONDS = 10
"""Of each step, apart from starting processes."""
MOST_BYTES = 2**30
MOST_AT_DOORS = 3
"""Arrays of a file that go through all doors."""
LARGE_BYTES = 2**24
"""Of arrays of which only the own reader reads a corner."""
_H5PY = """
import h5py, pickle, sys
with h5py.File(sys.argv[1]) as file:
    read = {}
    for name in sys.argv[2:]:
        try:
            read[name] = file[name][...]
        except Exception:
            pass
sys.stdout.buffer.write(pickle.dumps(read))
"""


def try_files(paths: Iterable[Path]) -> dict[str, tuple[list[str], int]]:
    """What broke of each file, and how many arrays were read of it, in other processes."""
    remaining, outcomes = list(map(str, paths)), {}
    while remaining:
        command = [sys.executable, "-m", __name__, *remaining]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        outcomes |= {name: (broke, n_arrays) for name, broke, n_arrays in lines}
        remaining = remaining[len(lines) :]
        if done.returncode:
            ended = f"the process ended with {done.returncode}: {done.stderr[-200:]}"
            outcomes[remaining.pop(0)] = ([ended], 0)
    return outcomes


def try_file(path: Path, doors: Iterable[str] = DOORS) -> tuple[list[str], int]:
    """Scan a file, build a catalog of it, and read all of it through doors."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        found = _read(path, Path(folder), list(doors))
    broke = found["broke"]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if grown * 1024 > MOST_BYTES:
        broke.append(f"{grown // 1024} MiB of memory")
    for name, original in _originals(path, list(found["read"])).items():
        if not _equal(found["read"][name], original):
            broke.append(f"{name}: other values than h5py")
    return broke, len(found["read"])


def _read(path: Path, folder: Path, doors: list[str]) -> dict[str, Any]:
    began, found = time.monotonic(), {"broke": [], "read": {}}
    warnings.simplefilter("ignore")
    catalog = folder / "a.gridref"
    try:
        group = gridref.build(
            str(path),
            str(catalog),
            scan=gridref.ScanOptions(on_unsupported="skip", max_objects=2000),
        )
    except GridrefError:
        return found
    except Exception as error:  # noqa: BLE001 - whatever is raised is the finding
        return {"broke": [f"building: {type(error).__name__}: {error}"[:300]], "read": {}}
    if time.monotonic() - began > SECONDS:
        found["broke"].append("building took too long")
    for number, (name, array) in enumerate(group.arrays.items()):
        if array.nbytes > LARGE_BYTES:
            corner = tuple(slice(0, 3) for _ in array.shape)
            _try(found, name, "corner", lambda a=array, c=corner: np.asarray(a[c]))
            found["read"].pop(name, None)
            continue
        for door in doors if number < MOST_AT_DOORS else doors[:1]:
            _try(found, name, door, lambda d=door, n=name: np.asarray(DOORS[d](catalog, n)))
    return found


def _try(found: dict[str, Any], name: str, door: str, read: Callable[[], Any]) -> None:
    began = time.monotonic()
    try:
        values = read()
        if not _equal(found["read"].setdefault(name, values), values):
            found["broke"].append(f"{name}, {door}: other values than through the first door")
    except Exception as error:  # noqa: BLE001 - judged here
        if not isinstance(error, GridrefError) and not is_told_by_http(error):
            found["broke"].append(f"{name}, {door}: {type(error).__name__}: {error}"[:300])
    if time.monotonic() - began > SECONDS:
        found["broke"].append(f"{name}, {door}: took too long")


def _originals(path: Path, names: list[str]) -> dict[str, Any]:
    """What h5py reads, if it does not hang or crash."""
    if not names:
        return {}
    command = [sys.executable, "-c", _H5PY, str(path), *names]
    try:
        done = subprocess.run(command, capture_output=True, timeout=30, check=False)
    except subprocess.TimeoutExpired:
        return {}
    return {} if done.returncode else pickle.loads(done.stdout)


def _equal(one: Any, other: Any) -> bool:
    if other.dtype.kind == "O" and all(isinstance(row, np.ndarray) for row in other.flat):
        other = np.concatenate([*other.flat, other[:0].astype(one.dtype)])  # ours are CF's ragged
    if one.shape != other.shape:
        return False
    if one.dtype.kind in "OTSUV" or other.dtype.kind in "OTSUV":
        return True  # texts and compounds have forms of their own at each door
    return one.astype(other.dtype).tobytes() == other.tobytes()


def main() -> None:
    """Try the files that are named, and print a line of JSON for each; hanging ends the process."""
    for name in sys.argv[1:]:
        signal.alarm(12 * SECONDS)
        print(json.dumps([name, *try_file(Path(name))]), flush=True)


if __name__ == "__main__":
    main()
