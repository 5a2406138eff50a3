"""Mutation tests: how many small wrong changes the tests notice.

``python -m tools.mutation --packages model serve --mutants 40 --seed 0`` draws mutants of each
package (see `tools.mutation.mutants`), runs the tests on them, lists what survives, and prints a
table. Mutants that nobody could notice are named, with the reason, in ``equivalent.toml``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import pytest

from tools.mutation.mutants import Mutant, mutants_of
from tools.mutation.runner import Runner, source_of
from tools.mutation.tracing import SOURCE

EQUIVALENT = Path(__file__).with_name("equivalent.toml")
TESTS = [
    "tests/unit/model",
    "tests/unit/serve",
    "tests/unit/combine",
    "tests/unit/codecs",
    *(
        f"tests/property/test_{name}.py"
        for name in (
            "chunk_listing",
            "codecs",
            "combine_drift",
            "combine_operations",
            "direct_view",
            "etags",
            "hypercubes",
            "placing",
            "projections",
            "reader",
            "shards",
            "time_numbers",
        )
    ),
    *(
        f"tests/integration/test_{name}.py"
        for name in (
            "codecs",
            "cubes",
            "direct_view",
            "end_to_end",
            "geo_conventions",
            "joins",
            "special_values",
            "mosaics",
            "ome",
            "open_zarr",
            "ragged_archives",
            "scan_hdf5",
            "scan_tiff",
            "tables",
            "units",
            "virtual_operations",
        )
    ),
]


def main() -> int:
    options = arguments()
    os.environ["HYPOTHESIS_PROFILE"] = "mutation"
    every = [mutant for package in options.packages for mutant in choose(package, options)]
    runner = Runner(lambda: every, options.seconds, options.jobs)
    with tempfile.TemporaryDirectory() as folder:
        quiet = [
            "-q",
            "--no-header",
            "--no-summary",
            "-p",
            "no:cacheprovider",
            "-W",
            "ignore::pytest.PytestWarning",
        ]
        place = [f"--basetemp={folder}/t", "-o", "tmp_path_retention_policy=none"]
        status = pytest.main([*quiet, *place, *options.tests], plugins=[runner])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return int(status)
    return report(runner, options)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", nargs="+", default=["model", "serve", "combine", "codecs"])
    parser.add_argument("--mutants", type=int, default=40, help="of each package")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--least", type=float, default=92, help="percent to be killed of each")
    parser.add_argument("--seconds", type=float, default=60, help="of tests for each mutant")
    parser.add_argument("--jobs", type=int, default=2, help="mutants tried at a time")
    parser.add_argument("--tests", nargs="+", default=TESTS)
    return parser.parse_args()


def choose(package: str, options: argparse.Namespace) -> list[Mutant]:
    """The same for a seed; a change of the code changes the draw only where it changes mutants."""

    def lot(mutant: Mutant) -> bytes:
        name = repr((options.seed, mutant.path, mutant.function, mutant.before, mutant.after))
        return blake2b(name.encode()).digest()

    left_out, counted = known(), costs()
    mutants = [
        each
        for each in all_mutants(package)
        if text_of(each) not in left_out and (each.path, each.function) not in counted
    ]
    return sorted(mutants, key=lot)[: options.mutants]


def all_mutants(package: str) -> Iterator[Mutant]:
    for path in sorted((SOURCE / package).rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        yield from mutants_of(name, source_of(name))


def known() -> set[tuple[str, str, str]]:
    """Path, statement and changed statement of the mutants that nobody could notice."""
    listed = tomllib.loads(EQUIVALENT.read_text())["mutant"]
    return {(each["path"], each["before"], each["after"]) for each in listed}


def costs() -> set[tuple[str, str]]:
    """Path and name of functions that only estimate what something costs."""
    listed = tomllib.loads(EQUIVALENT.read_text())["cost"]
    return {(each["path"], each["function"]) for each in listed}


def text_of(mutant: Mutant) -> tuple[str, str, str]:
    return mutant.path, mutant.before, mutant.after


def report(runner: Runner, options: argparse.Namespace) -> int:
    print(f"\nseed {options.seed}\n{'package':10} {'killed':>7} {'survived':>9} {'%':>7}")
    enough = True
    for package in options.packages:
        mine = [each for each in runner.outcomes if each.mutant.path.startswith(f"{package}/")]
        killed = sum(each.killed_by is not None for each in mine)
        percent = 100 * killed / max(1, len(mine))
        enough &= percent >= options.least
        print(f"{package:10} {killed:7} {len(mine) - killed:9} {percent:7.1f}")
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
