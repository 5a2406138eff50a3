"""What is tried with every mutated HDF5 file: an error of ours, or what h5py reads."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

import h5py

from gridref.model.array import VirtualGroup
from tests.hdf5_oracle import Comparison, compare
from tools.fuzz.timed_scan import WrongDataError, scan_in_time

MAX_COMPARED_ELEMENTS = 1 << 14
MAX_COMPARED_DATASETS = 40
_EXPECTED = ("cannot be read", "neither taken")


def check(path: Path, *, max_seconds: float = 10, compared: bool = True) -> str:
    """Scan a file, and compare the small datasets with h5py.

    Parameters
    ----------
    path
        The file.
    max_seconds
        Longest time that the scan may take.
    compared
        Whether to compare; the HDF5 library hangs or dies on some files that the scan gets over.

    Returns
    -------
    str
        ``"error"`` or ``"scanned"``.

    Raises
    ------
    WrongDataError
        If any value differs, or the scan took too long.
    """
    group = scan_in_time(path, max_seconds)
    if group is None:
        return "error"
    if not compared:
        return "scanned"
    wrong = {
        name: why
        for name, why in compare_small(path, group).wrong.items()
        if not why.startswith(_EXPECTED)
    }
    if wrong:
        raise WrongDataError(repr(wrong))
    return "scanned"


def compare_small(path: Path, group: VirtualGroup) -> Comparison:
    """Compare the datasets that do not declare too many elements to be read at all."""
    result = Comparison()
    # HDF5 does not open all that can be read, and sometimes fails to close what was corrupt.
    with contextlib.suppress(RuntimeError, OSError), h5py.File(path) as file:
        for name, array in list(group.all_arrays().items())[:MAX_COMPARED_DATASETS]:
            n_stored = max((math.prod(e.chunk_shape) for e in array.encodings), default=1)
            if max(array.size, n_stored) <= MAX_COMPARED_ELEMENTS:
                compare(file, f"/{name}", array, result)
    return result
