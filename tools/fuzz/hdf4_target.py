"""What is compared of a mutated HDF4 file: all that a scan takes, with pyhdf."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from pyhdf.error import HDF4Error
from pyhdf.SD import SD

from gridref.errors import GridrefError
from gridref.io import SourcePool
from gridref.model.array import VirtualArray
from gridref.model.scan_report import Fate
from gridref.serve.reader import Reader
from tools.fuzz.timed_scan import WrongDataError, scan_in_time

__all__ = ["check"]

_SECONDS = 20
_MOST_ELEMENTS = 1 << 14
_DIFFERS = 3


def check(path: Path) -> None:
    """Scan a file, and compare shapes and values with those of pyhdf.

    The HDF library errs on sound files after some damaged ones, so that what differs is compared
    again in a new process.

    Raises
    ------
    WrongDataError
        If anything differs.
    """
    try:
        _check(path)
    except WrongDataError:
        again = [sys.executable, "-m", "tools.fuzz.hdf4_target", str(path)]
        if subprocess.run(again, capture_output=True, check=False).returncode == _DIFFERS:
            raise


def _check(path: Path) -> None:
    group = scan_in_time(path, _SECONDS)
    if group is None or not path.read_bytes().startswith(b"\x0e\x03\x13\x01"):
        return
    arrays = {
        name.rpartition("/")[2]: array
        for name, array in group.all_arrays().items()
        if array.dims[0:1] != (f"{name}_rows",)  # a table, which is no data set for pyhdf
    }
    if not arrays or any(finding.fate is Fate.RENAMED for finding in group.report):
        return
    try:
        file = SD(str(path))
    except (HDF4Error, ValueError, IndexError):
        return  # the library gives up a file for one damaged part
    try:
        with SourcePool() as pool:
            for number in range(file.info()[0]):
                dataset = file.select(number)
                name, _, shape, *_ = dataset.info()
                array = arrays.get(name)
                if array is not None and name not in ("x", "y", "spatial_ref"):
                    shape = tuple(shape) if isinstance(shape, list) else (shape,)
                    _compare(array, shape, dataset, Reader(pool), name)
                dataset.endaccess()
    finally:
        file.end()


def _compare(
    array: VirtualArray, shape: tuple[int, ...], dataset: Any, reader: Reader, name: str
) -> None:
    if array.shape != shape:
        raise WrongDataError(f"pyhdf has another shape of {name}: {shape}, not {array.shape}")
    if 0 in shape or math.prod(shape) > _MOST_ELEMENTS:
        return
    try:
        expected = np.asarray(dataset.get())
    except (HDF4Error, ValueError, IndexError):
        return
    try:
        values = reader.read(array, (...,))
    except GridrefError:
        return
    if values.dtype != expected.dtype or values.tobytes() != expected.tobytes():
        raise WrongDataError(f"pyhdf has other values of {name}")


if __name__ == "__main__":
    try:
        _check(Path(sys.argv[1]))
    except WrongDataError:
        sys.exit(_DIFFERS)
