"""What is tried with every mutated TIFF file: an error of ours, or what tifffile reads."""

from __future__ import annotations

import logging
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from gridref.errors import GridrefError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.testing.reference_reader import read_slowly
from tools.fuzz.timed_scan import WrongDataError, scan_in_time

MAX_COMPARED_ELEMENTS = 1 << 17
MAX_COMPARED_IMAGES = 20


def check(path: Path, *, max_seconds: float = 10) -> str:
    """Scan a file, and compare the small images with tifffile where that can read them.

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
    compare(path, group)
    return "scanned"


def compare(path: Path, group: VirtualGroup) -> None:
    """Compare the images that do not declare too many elements to be read at all."""
    images = {
        name: array
        for name, array in group.all_arrays().items()
        if "tiff_series" in array.attrs and _is_small(array)
    }
    for name, array in list(images.items())[:MAX_COMPARED_IMAGES]:
        try:
            found = read_slowly(array)
        except GridrefError:
            continue
        expected = _by_tifffile(path, array)
        if expected is None:
            continue
        if found.dtype != expected.dtype or found.size != expected.size:
            raise WrongDataError(f"{name}: {found.dtype} {found.shape}, not {expected.shape}")
        if found.tobytes() != _as_laid_out(expected, array).tobytes():
            raise WrongDataError(f"{name}: values differ")


def _is_small(array: VirtualArray) -> bool:
    n_stored = max((math.prod(entry.chunk_shape) for entry in array.encodings), default=1)
    return max(array.size, n_stored) <= MAX_COMPARED_ELEMENTS


def _by_tifffile(path: Path, array: VirtualArray) -> NDArray[Any] | None:
    """An image as tifffile reads it.

    None where it fails, or notes an error and goes on, or where it converts colours that libtiff
    and gridref leave alone: RGB in JPEG streams that say they are YCbCr.
    """
    noted = _Noted()
    logger = logging.getLogger("tifffile")
    logger.addHandler(noted)
    propagates, logger.propagate = logger.propagate, False
    try:
        with warnings.catch_warnings(), tifffile.TiffFile(path) as file:
            warnings.simplefilter("ignore")
            series = file.series[array.attrs["tiff_series"]]
            level = series.levels[array.attrs["tiff_level"]]
            if level.keyframe.photometric == 2 and level.keyframe.is_jfif:
                return None
            image = level.asarray()
    except Exception:  # noqa: BLE001 (whatever a broken file makes of its assumptions)
        return None
    finally:
        logger.propagate = propagates
        logger.removeHandler(noted)
    return None if noted.errors else np.asarray(image)


class _Noted(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.errors.append(record.getMessage())


def _as_laid_out(values: NDArray[Any], array: VirtualArray) -> NDArray[Any]:
    """What tifffile gives, with its axes in the order of the array's."""
    head = array.encodings[0].codecs[0]
    order = head.configuration["order"] if head.name == "transpose" else range(array.ndim)
    stored = values.reshape([array.shape[axis] for axis in order])
    return np.ascontiguousarray(stored.transpose(np.argsort(order)))
