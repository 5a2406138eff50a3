"""A pytest plugin that runs the collected tests on mutants, each in a forked process.

The tests are collected once. `tools.mutation.tracing` tells which of them reaches which line. Then,
for each mutant, a fork puts the changed code into the living functions and runs the tests that
reach the changed line, the quickest and those that noticed a change of this module before first,
until one fails, or as many seconds of them have passed as a mutant is given. Nothing is imported or
collected again, and as the tests run in forks only, each begins with empty caches.
"""

from __future__ import annotations

import gc
import itertools
import math
import os
import select
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from tools.mutation.forks import end, fork, results_of, wait_for_the_end
from tools.mutation.mutants import Mutant, mutated_code
from tools.mutation.tracing import (
    SOURCE,
    Reached,
    all_codes,
    living_codes,
    passes,
    reached_lines,
)

__all__ = ["Outcome", "Runner", "source_of"]

_LEAST_SECONDS = 20
_TIMES_AS_LONG = 10


Changed = tuple[FunctionType, CodeType]
"""A living function, and the code that it gets."""


@cache
def source_of(path: str) -> str:
    """Text of a module as it was when first asked for: files may be edited under a run."""
    return (SOURCE / path).read_text()


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant.

    Attributes
    ----------
    mutant
        The mutant.
    killed_by
        Identifier of the first test that failed; None for a survivor.
    n_tests
        How many tests were run on it at most.
    """

    mutant: Mutant
    killed_by: str | None
    n_tests: int


class Runner:
    """Plugin: runs mutants in place of tests.

    Parameters
    ----------
    choose
        Gives the mutants.
    most_seconds
        Tests that would begin later on a mutant, by their times without one, are left out.
    jobs
        How many mutants are tried at a time.
    """

    def __init__(
        self, choose: Callable[[], Iterable[Mutant]], most_seconds: float = 60, jobs: int = 1
    ) -> None:
        self.choose = choose
        self.most_seconds = most_seconds
        self.jobs = jobs
        self.outcomes: list[Outcome] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        session.config.pluginmanager.unregister(name="terminalreporter")
        say = partial(print, flush=True)
        gc.unfreeze()  # tests/conftest.py freezes, and what is frozen is not among living functions
        reached = reached_lines(session.items, self.jobs)
        broken = [item.nodeid for item in session.items if item.nodeid not in reached]
        for name in broken:
            say(f"left out, fails without a change: {name}")
        items = [item for item in session.items if item.nodeid in reached]
        say(f"{len(items)} tests in {sum(reached[i.nodeid].seconds for i in items):.0f} s")
        mutants = [*self.choose()]
        shares = [
            partial(_outcomes, mutants[n :: self.jobs], items, reached, self.most_seconds)
            for n in range(self.jobs)
        ]
        for outcome in results_of(shares):
            self.outcomes.append(outcome)
            say(_line(outcome))
        return True


def _line(outcome: Outcome) -> str:
    mutant = outcome.mutant
    place = f"{mutant.path}:{mutant.lines[0]}"
    if outcome.killed_by is not None:
        return f"killed    {place}  by {outcome.killed_by}"
    changed = f"    - {mutant.before}\n    + {mutant.after}".replace("\n", "\n      ")
    return f"SURVIVED  {place} in {mutant.function}, {outcome.n_tests} tests\n{changed}"


def _outcomes(
    mutants: list[Mutant],
    items: list[pytest.Item],
    reached: dict[str, Reached],
    most_seconds: float,
) -> Iterator[Outcome]:
    """What becomes of the mutants whose code can be put in."""
    killers = Counter[tuple[str, str]]()
    for mutant in mutants:
        path = SOURCE / mutant.path
        code = mutated_code(mutant, source_of(mutant.path), str(path))
        changed = [] if code is None else _changed_functions(code, path)
        if not changed:
            continue
        first, last = mutant.lines
        wanted = {(str(path), line) for line in range(first, last + 1)}
        chosen = [item for item in items if not wanted.isdisjoint(reached[item.nodeid].lines)]
        kills = {name: n for (module, name), n in killers.items() if module == mutant.path}
        chosen = _in_order(chosen, reached, kills, most_seconds)
        killed_by = _first_failure(changed, chosen, reached) if chosen else None
        if killed_by is not None:
            killers[mutant.path, killed_by] += 1
        yield Outcome(mutant, killed_by, len(chosen))


def _in_order(
    items: list[pytest.Item],
    reached: dict[str, Reached],
    kills: dict[str, int],
    most_seconds: float,
) -> list[pytest.Item]:
    """Those that killed and the quickest first; what would only begin after so long is left out.

    Tests of one file that take about as long stay together, as they share fixtures.
    """

    def rank(item: pytest.Item) -> tuple[int, str, float]:
        found = reached[item.nodeid]
        seconds = found.seconds + found.fixture_seconds
        weight = seconds / (1 + 4 * kills.get(item.nodeid, 0))
        return round(math.log(max(weight, 0.005), 4)), str(item.path), seconds

    items = sorted(items, key=rank)
    begins = itertools.accumulate((reached[item.nodeid].seconds for item in items), initial=0.0)
    return [item for item, begin in zip(items, begins, strict=False) if begin < most_seconds]


def _changed_functions(mutated: CodeType, path: Path) -> list[Changed]:
    """Living functions and what they become: functions that it made already are changed, too."""
    codes = [*all_codes(mutated)]
    keys = [(each.co_qualname, each.co_firstlineno) for each in codes]
    # Two lambdas of one line cannot be told apart.
    becomes = {key: each for key, each in zip(keys, codes, strict=True) if keys.count(key) == 1}
    found = []
    for code, function in living_codes():
        new = becomes.get((code.co_qualname, code.co_firstlineno))
        if new is None or code.co_filename != str(path):
            continue
        if new.co_freevars == code.co_freevars:
            found.append((function, new))
    return found


def _first_failure(
    changed: list[Changed],
    items: list[pytest.Item],
    reached: dict[str, Reached],
) -> str | None:
    """The first test that fails, or takes far longer than without the change."""
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        _be_the_child(changed, items, writing)
    os.close(writing)
    try:
        for item in items:
            found = reached[item.nodeid]
            allowed = _LEAST_SECONDS + _TIMES_AS_LONG * (found.seconds + found.fixture_seconds)
            ready, _, _ = select.select([reading], [], [], allowed)
            if not ready or os.read(reading, 1) != b".":
                return item.nodeid
        return None
    finally:
        os.close(reading)
        end(child)


def _be_the_child(changed: list[Changed], items: list[pytest.Item], writing: int) -> None:
    """Run the tests, tell of each; never return."""
    try:
        for function, code in changed:
            function.__code__ = code
        for item, following in zip(items, [*items[1:], None], strict=True):
            os.write(writing, b"." if passes(item, following) else b"F")
    finally:
        wait_for_the_end()
