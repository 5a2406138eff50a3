"""Compare with the figures that are kept: ``make bench-check``, or ``python -m benchmarks._check``.

Jobs run one after the other, each in a process of its own. A line for each row says what is kept
and what is now. Ratios to a peer of the same run, requests and memory are compared; seconds are
only shown. A row that is more than 20 % worse is measured up to twice again, and its best counts,
so that noise passes and a loss does not. On Linux all of it runs on two cores.

``--keep`` writes the figures into ``benchmarks/figures.json`` and into the table of
docs/measurements.md, of one run each. ``--all`` also runs the jobs that take long.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks._figures import Figure

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "benchmarks" / "figures.json"
PAGE = ROOT / "docs" / "measurements.md"

ALLOWED_LOSS = 0.2
MOST_RUNS = 3
N_CORES = 2


@dataclass(frozen=True)
class Job:
    """A function of a benchmark that gives figures; those that take long run when asked for."""

    module: str
    function: str = "figures"
    is_long: bool = False

    @property
    def name(self) -> str:
        return f"{self.module}.{self.function}".removesuffix(".figures")


JOBS = (
    Job("projection"),
    Job("first_use"),
    Job("door", "whole_array"),
    Job("door", "tiny_chunks"),
    Job("door", "codecs"),
    Job("door", "boxes"),
    Job("door", "opening"),
    Job("door", "over_latency"),
    Job("remote_file"),
    Job("scan_many"),
    Job("remote_cogs"),
    Job("hdf5_scan"),
    Job("workers"),
    Job("combine"),
    Job("first_dataset"),
    Job("append"),
    Job("overlay"),
    Job("combine", "million", is_long=True),
    Job("append", "thousand", is_long=True),
    Job("writers", is_long=True),
    Job("billion_chunks", is_long=True),
    Job("serve", is_long=True),
    Job("map_tiles", is_long=True),
    Job("overlay", "writing", is_long=True),
    Job("overviews", is_long=True),
)

type Kept = dict[str, dict[str, Any]]
"""By row: the other fields of its `Figure`, and `date`."""


def measured(job: Job) -> list[Figure]:
    """The figures of a job, measured in a new process."""
    with tempfile.NamedTemporaryFile("r") as answer:
        command = [sys.executable, "-m", "benchmarks._check", "--run", job.name, answer.name]
        said = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
        if said.returncode:
            raise RuntimeError(f"{job.name} failed:\n{said.stdout}{said.stderr}")
        return [Figure(**row) for row in json.load(answer)]


def run(job: Job, answer: Path) -> None:
    """What the new process does."""
    warnings.simplefilter("ignore")
    function = getattr(importlib.import_module(f"benchmarks.{job.module}"), job.function)
    answer.write_text(json.dumps([asdict(figure) for figure in function()]))


def speed_left(figure: Figure, kept: float) -> float:
    """1 if a figure is as good as the kept one, 0.8 if a fifth is lost."""
    better, worse = (kept, figure.now) if figure.more_is_better else (figure.now, kept)
    return worse / better if better else 1.0


def is_lost(figure: Figure, kept: Kept) -> bool:
    before = kept.get(figure.row)
    if before is None or not figure.is_of_any_machine:
        return False
    return speed_left(figure, before["now"]) < 1 - ALLOWED_LOSS


def best_of_runs(measure: Callable[[], list[Figure]], kept: Kept, most_runs: int) -> list[Figure]:
    """The figures of a job; while a row is lost, the better ones of another run."""
    found = measure()
    for _ in range(most_runs - 1):
        if not any(is_lost(figure, kept) for figure in found):
            break
        again = {figure.row: figure for figure in measure()}
        found = [
            max(figure, again[figure.row], key=lambda each: speed_left(each, figure.now))
            for figure in found
        ]
    return found


def line(figure: Figure, kept: Kept) -> str:
    """The row, what is kept of it, what is now, and how much better or worse that is."""
    if figure.row not in kept:
        return f"{figure.row:75} kept        -  now {figure.said:>18}"
    before = kept[figure.row]["now"]
    change = f"{100 * (speed_left(figure, before) - 1):+4.0f} %"
    verdict = "  LOST" if is_lost(figure, kept) else ""
    shown = f"kept {before:8.3g}  now {figure.said:>18}"
    return f"{figure.row:75} {shown}  {change}{verdict}"


def machine() -> str:
    """The kind of this machine. Figures of another kind say little about it."""
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{platform.system()} {platform.machine()}, {n_cores} cores"


def take_two_cores() -> None:
    """Run here, and in processes started from here, on as many cores as was measured with."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:N_CORES])


def kept_for(machine_kind: str, file: Path) -> tuple[Kept, str]:
    """What is kept for a kind of machine, or else for the first one; and which that is."""
    machines = json.loads(file.read_text()) if file.exists() else {}
    of = machine_kind if machine_kind in machines else next(iter(machines), machine_kind)
    return machines.get(of, {}), of


def keep(figures: Iterable[Figure], machine_kind: str, file: Path) -> None:
    """Replace the kept rows of a kind of machine; rows that were not measured stay."""
    machines = json.loads(file.read_text()) if file.exists() else {}
    date = f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"
    rows = machines.setdefault(machine_kind, {})
    for figure in figures:
        fields = asdict(figure) | {"now": float(f"{figure.now:.3g}"), "date": date}
        rows[fields.pop("row")] = fields
    file.write_text(json.dumps(machines, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def with_figures(page: str, kept: Kept) -> str:
    """A page with tables whose third to fifth column and last one show what is kept."""
    return "".join(_with_figure(text, kept) for text in page.splitlines(keepends=True))


def _with_figure(text: str, kept: Kept) -> str:
    cells = text.split("|")
    row = cells[1].strip() if len(cells) > 7 else ""
    if row not in kept:
        return text
    fields = dict(kept[row])
    date = fields.pop("date")
    figure = Figure(row, **fields)
    shown = [figure.own, figure.said, figure.target]
    return "|".join([*cells[:3], *(f" {cell} " for cell in shown), *cells[6:-2], f" {date} ", "\n"])


def chosen_jobs(names: list[str], with_long: bool) -> Iterator[Job]:
    for job in JOBS:
        if job.name in names or (not names and (with_long or not job.is_long)):
            yield job


def check(jobs: Iterable[Job], kept: Kept, most_runs: int) -> Iterator[list[Figure]]:
    """Measure jobs and print a line for each row; a job that fails is told, and gives no figure."""
    for job in jobs:
        try:
            figures = best_of_runs(lambda job=job: measured(job), kept, most_runs)
        except RuntimeError as error:
            print(f"{job.name:75} FAILED\n{error}", flush=True)
            continue
        for figure in figures:
            print(line(figure, kept), flush=True)
        yield figures


def main(arguments: list[str] | None = None) -> int:
    by_name: Mapping[str, Job] = {job.name: job for job in JOBS}
    parser = argparse.ArgumentParser(prog="python -m benchmarks._check", description=__doc__)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=", ".join(by_name))
    parser.add_argument("--all", action="store_true", help="also jobs that take minutes each")
    parser.add_argument("--keep", action="store_true", help="keep these figures, and show them")
    parser.add_argument("--kept", type=Path, default=KEPT, help="the file of kept figures")
    parser.add_argument("--run", nargs=2, metavar=("JOB", "FILE"), help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.run:
        run(by_name[asked.run[0]], Path(asked.run[1]))
        return 0
    if unknown := set(asked.jobs) - set(by_name):
        parser.error(f"no job {', '.join(sorted(unknown))}; there are {', '.join(by_name)}")
    take_two_cores()
    here = machine()
    kept, of = kept_for(here, asked.kept)
    print(f"{here}, Python {platform.python_version()}")
    if of != here:
        print(f"The kept figures are of another kind of machine: {of}.")
    jobs, lost, n_done = [*chosen_jobs(asked.jobs, asked.all)], list[str](), 0
    for figures in check(jobs, kept, 1 if asked.keep else MOST_RUNS):
        n_done += 1
        lost += [figure.row for figure in figures if is_lost(figure, kept)]
        if asked.keep:
            keep(figures, here, asked.kept)
            if asked.kept == KEPT:
                page = with_figures(PAGE.read_text(encoding="utf-8"), kept_for(here, KEPT)[0])
                PAGE.write_text(page, encoding="utf-8")
    if lost and not asked.keep:
        print(f"More than {ALLOWED_LOSS:.0%} lost: {'; '.join(lost)}", file=sys.stderr)
    return 1 if n_done < len(jobs) or (lost and not asked.keep) else 0


if __name__ == "__main__":
    sys.exit(main())
