"""Processes that end or divide at any moment: writers that are killed, readers that fork."""

from __future__ import annotations

import gc
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import h5py
import numpy as np

import gridref
from gridref.errors import GridrefError
from tests.attack_doors import DOORS
from tools.fuzz.catalog_attack import make_catalog

__all__ = ["ForkAttack", "KillAttack"]

SECONDS = 30
"""After which a child that hangs is ended."""


class KillAttack:
    """Kills a writer that appends a file: the catalog is then the old or the new one, whole."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.catalog = folder, make_catalog(folder)
        self.file = folder / "2.nc"
        shutil.copy(folder / "1.nc", self.file)
        with h5py.File(self.file, "r+") as file:
            file["time"][...] += 10
        self.old = DOORS["own reader"](self.catalog, "a")
        copy = self._copy("whole")
        gridref.open_catalog(copy).append(self.file)
        self.new = DOORS["own reader"](copy, "a")

    def __call__(self, seed: int) -> str | None:
        """One attempt: what broke, if anything did."""
        copy = self._copy("killed")
        code = "import gridref, sys; gridref.open_catalog(sys.argv[1]).append(sys.argv[2])"
        writer = subprocess.Popen(
            [sys.executable, "-c", code, copy, self.file],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(random.Random(seed).uniform(0, 3))
        writer.kill()
        writer.wait()
        try:
            found = DOORS["own reader"](copy, "a")
            grown = gridref.open_catalog(copy).append(self.file)["a"][...]
        except Exception as error:  # noqa: BLE001 - whatever is raised is the finding
            return f"{type(error).__name__}: {error}"[:200]
        if not any(np.array_equal(found, each) for each in (self.old, self.new)):
            return "neither the old catalog nor the new one"
        return None if np.array_equal(grown, self.new) else "it cannot be appended to any more"

    def _copy(self, name: str) -> Path:
        copy = self.folder / f"{name}.gridref"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.catalog, copy)
        return copy


class ForkAttack:
    """Forks after a read through a door: the child reads the same, in time."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.catalog = make_catalog(folder)
        self.doors = [name for name in DOORS if "HTTP" not in name]

    def __call__(self, seed: int) -> str | None:
        """One attempt: what broke, if anything did."""
        door = DOORS[self.doors[seed % len(self.doors)]]
        expected = door(self.catalog, "a")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            signal.alarm(SECONDS)
            same = False
            try:
                gc.collect()  # closes what the parent has open, where it can
                same = np.array_equal(door(self.catalog, "a"), expected)
            except GridrefError:
                pass
            finally:
                os._exit(0 if same else 1)
        status = os.waitpid(child, 0)[1]
        return None if status == 0 else f"a forked reader ended with {status}"
