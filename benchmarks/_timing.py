"""Times of calls, and what processes take."""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import psutil

SAMPLED_EVERY = 0.05
"""Seconds between two looks at the memory of a process."""


def best(call: Callable[[], object], n_rounds: int = 5) -> float:
    """Seconds of the quickest of some runs."""
    return best_of({"": call}, n_rounds)[""]


def best_of(calls: Mapping[str, Callable[[], object]], n_rounds: int = 5) -> dict[str, float]:
    """Seconds of the quickest run of each call. They take turns."""
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(n_rounds):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            found[name] = min(found[name], time.perf_counter() - began)
    return found


@dataclass(frozen=True)
class Run:
    """What a process took, with those that it started.

    Attributes
    ----------
    seconds, worked
        Seconds that passed, and that processors worked.
    peak
        Most memory of all its processes at a time, in GB.
    output
        What it printed.
    failure
        Last line of its errors if it failed; else empty.
    """

    seconds: float
    worked: float
    peak: float
    output: str
    failure: str


def run_script(
    script: str,
    *arguments: object,
    python: str = sys.executable,
    most_bytes: int | None = None,
    most_seconds: float = float("inf"),
) -> Run:
    """Run a script in a process of its own, which may take so much memory and time."""
    command = [python, "-c", script, *map(str, arguments)]
    begun, before = time.perf_counter(), _worked_by_children()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = psutil.Popen(command, stdout=output, stderr=errors)
        if most_bytes is not None:
            process.rlimit(psutil.RLIMIT_DATA, (most_bytes, most_bytes))
        peak = 0
        while process.poll() is None:
            peak = max(peak, _resident_bytes(process))
            time.sleep(SAMPLED_EVERY)
            if time.perf_counter() - begun > most_seconds:
                _stop(process)
                errors.write(f"\nstopped after {most_seconds:.0f} s")
        seconds, worked = time.perf_counter() - begun, _worked_by_children() - before
        output.seek(0)
        errors.seek(0)
        lines = errors.read().strip().splitlines() or ["killed"]
        failure = lines[-1][:80] if process.returncode else ""
        return Run(seconds, worked, peak / 1e9, output.read().strip(), failure)


def _stop(process: psutil.Process) -> None:
    """End a process that this one started, and those that it started."""
    with suppress(psutil.Error):
        for each in (*process.children(recursive=True), process):
            with suppress(psutil.Error):
                each.kill()


def _worked_by_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _resident_bytes(process: psutil.Process) -> int:
    n_bytes = 0
    with suppress(psutil.Error):
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.Error):
                n_bytes += each.memory_info().rss
    return n_bytes
