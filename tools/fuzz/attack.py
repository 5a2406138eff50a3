"""Attacks on all that gridref trusts, for so many minutes: ``make attack MINUTES=10 SEED=1``.

All attacks get as much time. Prints what was tried, what held and what broke, and ends with status
1 if anything did. The same seed tries the same, as far as it comes in the time.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

import gridref
from gridref.errors import GridrefError
from gridref.io import RetryPolicy, SourcePool, describe_source
from tests.attack_doors import DOORS, is_told_by_http
from tests.http_server import RANGE_FAULTS, Site, serving
from tools.fuzz.catalog_attack import ATTACKS, attack, make_catalog, read_all
from tools.fuzz.client_attack import client_attack
from tools.fuzz.document_attack import document_attacks
from tools.fuzz.member_attack import MemberAttack
from tools.fuzz.process_attack import ForkAttack, KillAttack
from tools.fuzz.reference_attack import attack_references, make_references
from tools.fuzz.scanner_attack import scanner_attacks
from tools.fuzz.source_attack import ServedSourceAttack, SourceAttack

SECONDS = 30
"""Longest time of an attempt, its making included; steps have limits of their own."""

MOST_MIB = 300
"""Most memory that an attempt may take beyond what the process took before."""

_TOLD_EVERY = 120
"""Seconds after which is said how many attempts there were so far."""

_MEMORY = Path("/dev/shm")
"""A folder that is no disk, where there is one: attempts write a file each."""

type Try = Callable[[int], str | None]
"""One attempt with a seed: what broke, if anything did."""


def catalog_attacks(folder: Path) -> dict[str, Try]:
    """Changed catalogs through the own reader."""
    catalog = make_catalog(folder)
    expected = read_all(catalog)

    def of(kind: str) -> Try:
        return lambda seed: attack(catalog, kind, seed, folder, expected)

    return {f"catalog: {kind}": of(kind) for kind in ATTACKS}


def server_attacks(folder: Path, site: Site) -> dict[str, Try]:
    """Wrong answers to ranges: through every door, and to single reads."""
    content = (folder / "0.nc").read_bytes()
    site.files, site.etags = {"/0.nc": content}, {"/0.nc": '"v1"'}
    catalog = folder / "remote.gridref"
    gridref.build([f"{site.url}/0.nc"], catalog)
    source, pool = describe_source(f"{site.url}/0.nc"), SourcePool(retry=RetryPolicy(2, 0.001))
    expected = DOORS["own reader"](catalog, "a")
    doors = list(itertools.product(DOORS.values(), RANGE_FAULTS))

    def at_a_door(seed: int) -> str | None:
        door, fault = doors[seed % len(doors)]
        site.fault = fault
        try:
            found = door(catalog, "a")
        except Exception as error:  # noqa: BLE001 - judged here
            return None if _is_ours(error) else f"{type(error).__name__}: {error}"[:200]
        finally:
            site.fault = None
        return None if np.array_equal(found, expected) else f"other values after {fault}"

    def of_a_range(seed: int) -> str | None:
        rng = np.random.default_rng(seed)
        start = int(rng.integers(0, len(content) - 1))
        length = int(rng.integers(1, len(content) - start + 1))
        site.fault = RANGE_FAULTS[int(rng.integers(len(RANGE_FAULTS)))]
        try:
            found = bytes(pool.read(source, start, length))
        except GridrefError:
            return None
        except Exception as error:  # noqa: BLE001 - whatever is raised is the finding
            return f"{type(error).__name__}: {error}"[:200]
        finally:
            site.fault = None
        return None if found == content[start : start + length] else "other bytes"

    return {"server: faults at doors": at_a_door, "server: faulted ranges": of_a_range}


def reference_attacks(folder: Path) -> dict[str, Try]:
    """Hostile references through the own reader."""
    folder.mkdir()
    references = make_references(folder)
    return {"references: anything": lambda seed: attack_references(references, folder, seed)}


def _is_ours(error: Exception) -> bool:
    return isinstance(error, GridrefError) or is_told_by_http(error)


class EndlessError(BaseException):
    """An attempt that does not end: no exception that anything but the attack may catch."""


def _in_time(attempt: Try, number: int) -> str | None:
    """What broke in an attempt; one that never ends does not keep the others from being tried."""

    def stop(*_: object) -> None:
        raise EndlessError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(4 * SECONDS)
    try:
        return attempt(number)
    except EndlessError:
        return "it did not end"
    finally:
        signal.alarm(0)


class Peak:
    """The most memory that this process took, watched for attempts that raise it by much."""

    def __init__(self) -> None:
        self._before = peak_mib()

    def risen(self) -> str | None:
        """What to say if it has risen by more than it may since the last call."""
        before, self._before = self._before, peak_mib()
        rise = self._before - before
        return f"it took {rise:.0f} MiB more" if rise > MOST_MIB else None


def peak_mib() -> float:
    """The most memory that this process took so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def run(
    attacks: dict[str, Try], minutes: float, seed: int
) -> dict[str, tuple[Counter[str | None], float]]:
    """Try all attacks until the time is over, each for as long; outcomes, and the longest one."""
    end, told = time.monotonic() + 60 * minutes, time.monotonic()
    found = {name: Counter[str | None]() for name in attacks}
    spent, longest = dict.fromkeys(attacks, 0.0), dict.fromkeys(attacks, 0.0)
    peak = Peak()
    while time.monotonic() < end:
        name = min(attacks, key=lambda name: spent[name])
        number = seed * 100_000_000 + found[name].total()
        began = time.monotonic()
        broke = _in_time(attacks[name], number)
        took = time.monotonic() - began
        if broke is None and took > SECONDS:
            broke = f"it took {took:.0f} s"
        broke = broke or peak.risen()
        spent[name] += took
        longest[name] = max(longest[name], took)
        found[name][broke] += 1
        if broke is not None:
            print(f"BROKE {name}, attempt {number}: {broke}", flush=True)
        if time.monotonic() > told + _TOLD_EVERY:
            told = time.monotonic()
            print(", ".join(f"{name} {found[name].total()}" for name in attacks), flush=True)
    return {name: (found[name], longest[name]) for name in attacks}


def show(found: dict[str, tuple[Counter[str | None], float]]) -> None:
    """Print the table of what was tried."""
    print(f"{'attack':32} {'tried':>8} {'held':>8} {'broke':>8} {'longest':>9}")
    for title, (counts, longest) in found.items():
        tried, held = counts.total(), counts[None]
        print(f"{title:32} {tried:8} {held:8} {tried - held:8} {longest:7.1f} s")
    print(f"most memory of the process: {peak_mib():.0f} MiB")
    print(f"processor time: {time.process_time() / 60:.1f} minutes")


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="attacks whose names have this in them")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    with (
        tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as name,
        serving(Site()) as site,
        serving(Site()) as sources,
        client_attack(Path(name, "clients")) as clients,
    ):
        folder = Path(name)
        attacks = {
            **catalog_attacks(folder),
            "catalog: members of many kinds": MemberAttack(folder / "members"),
            **reference_attacks(folder / "references"),
            **server_attacks(folder, site),
            **scanner_attacks(folder / "scanners"),
            **document_attacks(folder / "documents"),
            "sources: changed": SourceAttack(folder / "changed", checksums=False),
            "sources: changed in secret": SourceAttack(folder / "secret", checksums=True),
            "sources: changed on a server": ServedSourceAttack(folder / "served", sources),
            "clients: strange requests": clients,
            "writers: killed": KillAttack(folder / "killed"),
            "readers: forked": ForkAttack(folder / "forked"),
        }
        chosen = {title: attack for title, attack in attacks.items() if arguments.only in title}
        found = run(chosen, arguments.minutes, arguments.seed)
    show(found)
    return int(any(set(counts) - {None} for counts, _ in found.values()))


if __name__ == "__main__":
    sys.exit(main())
