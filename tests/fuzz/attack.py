"""Attacks on all that gridref trusts, for so many minutes: ``make attack MINUTES=10 SEED=1``.

Prints what was tried, what held and what broke, and ends with status 1 if anything did.
"""

from __future__ import annotations

import argparse
import itertools
import logging
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
from tests.fuzz.catalog_attack import ATTACKS, attack, make_catalog
from tests.fuzz.reference_attack import attack_references, make_references
from tests.http_server import RANGE_FAULTS, Site, serving

type Try = Callable[[int], str | None]
"""One attempt with a seed: what broke, if anything did."""


def catalog_attacks(folder: Path) -> dict[str, Try]:
    """Changed catalogs through the own reader."""
    catalog = make_catalog(folder)

    def of(kind: str) -> Try:
        return lambda seed: attack(catalog, kind, seed, folder)

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


def run(attacks: dict[str, Try], minutes: float, seed: int) -> dict[str, Counter[str | None]]:
    """Try all attacks in turn until the time is over."""
    end, found = time.monotonic() + 60 * minutes, {name: Counter[str | None]() for name in attacks}
    for number in itertools.count(seed * 1_000_000):
        for name, attempt in attacks.items():
            broke = attempt(number)
            found[name][broke] += 1
            if broke is not None:
                print(f"BROKE {name}, attempt {number}: {broke}")
        if time.monotonic() > end:
            return found
    raise AssertionError("counting has no end")


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name, serving(Site()) as site:
        folder = Path(name)
        attacks = {
            **catalog_attacks(folder),
            **reference_attacks(folder / "references"),
            **server_attacks(folder, site),
        }
        found = run(attacks, arguments.minutes, arguments.seed)
    print(f"{'attack':32} {'tried':>8} {'held':>8} {'broke':>8}")
    for title, counts in found.items():
        tried, held = counts.total(), counts[None]
        print(f"{title:32} {tried:8} {held:8} {tried - held:8}")
    return int(any(set(counts) - {None} for counts in found.values()))


if __name__ == "__main__":
    sys.exit(main())
