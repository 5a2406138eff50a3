"""Mutated files whose values are compared with the original reader's, in a process of their own.

The HDF5 and netCDF libraries hang or die on some files: then that process is started anew, and
nothing can be said of the file.
"""

from __future__ import annotations

import logging
import multiprocessing
import resource
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from tools.fuzz import fits_target, hdf4_target, hdf5_target, netcdf3_target, tiff_target
from tools.fuzz.timed_scan import WrongDataError

__all__ = ["ComparedAttack"]

_CHECKS = {
    "FITS": fits_target.check,
    "HDF4": hdf4_target.check,
    "HDF5": hdf5_target.check,
    "NetCDF3": netcdf3_target.check,
    "TIFF": tiff_target.check,
}
_PATIENCE_SECONDS = 10
_MAX_ADDRESS_SPACE = 16 << 30
_PROCESSES = multiprocessing.get_context("spawn")


class ComparedAttack:
    """Compares files with their original reader.

    Parameters
    ----------
    kind
        ``"FITS"``, ``"HDF4"``, ``"HDF5"``, ``"NetCDF3"`` or ``"TIFF"``.
    mutant
        Makes the content of a file out of a seed.
    path
        Where the files go.
    """

    def __init__(self, kind: str, mutant: Callable[[int], bytes], path: Path) -> None:
        self._kind = kind
        self._mutant = mutant
        self._path = path
        self._worker: tuple[multiprocessing.process.BaseProcess, Connection] | None = None

    def __call__(self, seed: int) -> str | None:
        """What is read otherwise of a file, if anything is."""
        self._path.write_bytes(self._mutant(seed))
        process, asked = self._worker = self._worker or self._started()
        with suppress(OSError, EOFError):
            asked.send(self._path)
            if asked.poll(_PATIENCE_SECONDS):
                wrong: str | None = asked.recv()
                return wrong
        process.kill()
        process.join()
        self._worker = None
        return None

    def _started(self) -> tuple[multiprocessing.process.BaseProcess, Connection]:
        ours, theirs = _PROCESSES.Pipe()
        process = _PROCESSES.Process(target=_compare_all, args=(self._kind, theirs), daemon=True)
        process.start()
        theirs.close()
        ours.poll(60)
        ours.recv()  # it is ready
        return process, ours


def _compare_all(kind: str, asked: Connection) -> None:
    """Compare one file after the other, until nobody asks any more."""
    import hdf5plugin  # noqa: F401 - gives h5py more filters

    resource.setrlimit(resource.RLIMIT_AS, (_MAX_ADDRESS_SPACE, _MAX_ADDRESS_SPACE))
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    asked.send(None)
    with suppress(EOFError):
        while True:
            path: Path = asked.recv()
            try:
                _CHECKS[kind](path)
            except WrongDataError as error:
                asked.send(str(error)[:400])
            except Exception as error:  # noqa: BLE001 - whatever is raised is the finding
                asked.send(f"{type(error).__name__}: {error}"[:400])
            else:
                asked.send(None)
