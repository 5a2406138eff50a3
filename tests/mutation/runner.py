"""A pytest plugin that runs the collected tests on mutants, each in a forked process.

The tests are collected once. A first fork runs them unchanged, to see which of them reaches which
line. Then, for each mutant, a fork puts the changed code into the living functions and runs the
tests that reach the changed line, the quickest first, until one fails, or as many seconds of them
have passed as a mutant is given. Nothing is imported or collected again, and as the tests run in
forks only, each begins with empty caches.
"""

from __future__ import annotations

import gc
import itertools
import os
import pickle
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType

import pytest

import gridref
from tests.mutation.mutants import Mutant, mutated_code

__all__ = ["SOURCE", "Outcome", "Runner", "source_of"]

SOURCE = Path(gridref.__file__).parent
_LEAST_SECONDS = 30
_TIMES_AS_LONG = 10
_TOOL = 4  # of sys.monitoring: one that no known tool takes


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
        How many tests were run on it.
    """

    mutant: Mutant
    killed_by: str | None
    n_tests: int


@dataclass
class Reached:
    """What one test reaches."""

    seconds: float = 0
    lines: set[tuple[str, int]] = field(default_factory=set)


class Runner:
    """Plugin: runs mutants in place of tests.

    Parameters
    ----------
    choose
        Gives the mutants.
    most_seconds
        Tests that would begin later on a mutant, by their times without one, are left out.
    """

    def __init__(self, choose: Callable[[], Iterable[Mutant]], most_seconds: float = 60) -> None:
        self.choose = choose
        self.most_seconds = most_seconds
        self.outcomes: list[Outcome] = []
        self.failed = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        say = session.config.pluginmanager.getplugin("terminalreporter").write_line
        session.config.pluginmanager.unregister(name="terminalreporter")
        reached = _reached_lines(session.items)
        broken = [item.nodeid for item in session.items if item.nodeid not in reached]
        for name in broken:
            say(f"left out, fails without a change: {name}")
        items = [item for item in session.items if item.nodeid in reached]
        say(f"{len(items)} tests in {sum(each.seconds for each in reached.values()):.0f} s")
        for mutant in self.choose():
            outcome = _outcome(mutant, items, reached, self.most_seconds)
            if outcome is not None:
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


def _codes() -> Iterator[tuple[CodeType, FunctionType]]:
    """Every living function of the package, by its code."""
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType) and thing.__code__.co_filename.startswith(str(SOURCE)):
            yield thing.__code__, thing


def _all_codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _all_codes(inner)


def _reached_lines(items: list[pytest.Item]) -> dict[str, Reached]:
    """Time and lines of each test that passes, or is skipped, without a change."""
    reading, writing = os.pipe()
    child = _fork()
    if child == 0:
        os.setsid()
        with os.fdopen(writing, "wb") as stream:
            pickle.dump(_run_and_trace(items), stream)
        _wait_for_the_end()
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as stream:
            reached: dict[str, Reached] = pickle.load(stream)
        return reached
    finally:
        _end(child)


def _run_and_trace(items: list[pytest.Item]) -> dict[str, Reached]:
    monitoring = sys.monitoring
    reached: dict[str, Reached] = {}
    lines: set[tuple[str, int]] = set()

    def arrive(code: CodeType, line: int) -> object:
        lines.add((code.co_filename, line))
        return monitoring.DISABLE

    monitoring.use_tool_id(_TOOL, "mutation")
    monitoring.register_callback(_TOOL, monitoring.events.LINE, arrive)
    for code in {each for whole, _ in _codes() for each in _all_codes(whole)}:
        monitoring.set_local_events(_TOOL, code, monitoring.events.LINE)
    for item, following in zip(items, [*items[1:], None], strict=True):
        monitoring.restart_events()
        lines.clear()
        began = time.monotonic()
        if _passes(item, following):
            reached[item.nodeid] = Reached(time.monotonic() - began, set(lines))
    return reached


class _Reports:
    def __init__(self) -> None:
        self.failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed


def _passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    reports = _Reports()
    item.config.pluginmanager.register(reports)
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    item.config.pluginmanager.unregister(reports)
    return not reports.failed


def _outcome(
    mutant: Mutant, items: list[pytest.Item], reached: dict[str, Reached], most_seconds: float
) -> Outcome | None:
    """Run a mutant; None if its code cannot be put in."""
    path = SOURCE / mutant.path
    code = mutated_code(mutant, source_of(mutant.path), str(path))
    changed = [] if code is None else _changed_functions(code, path)
    if not changed:
        return None
    first, last = mutant.lines
    wanted = {(str(path), line) for line in range(first, last + 1)}
    chosen = [item for item in items if not wanted.isdisjoint(reached[item.nodeid].lines)]
    chosen = _quickest(chosen, reached, most_seconds)
    killed_by = _first_failure(changed, chosen, reached) if chosen else None
    return Outcome(mutant, killed_by, len(chosen))


def _quickest(
    items: list[pytest.Item], reached: dict[str, Reached], most_seconds: float
) -> list[pytest.Item]:
    """The quickest first; those that would only begin after so many seconds are left out."""
    items = sorted(items, key=lambda item: reached[item.nodeid].seconds)
    begins = itertools.accumulate((reached[item.nodeid].seconds for item in items), initial=0.0)
    return [item for item, begin in zip(items, begins, strict=False) if begin < most_seconds]


def _changed_functions(mutated: CodeType, path: Path) -> list[Changed]:
    """Living functions and what they become: functions that it made already are changed, too."""
    codes = [*_all_codes(mutated)]
    keys = [(each.co_qualname, each.co_firstlineno) for each in codes]
    # Two lambdas of one line cannot be told apart.
    becomes = {key: each for key, each in zip(keys, codes, strict=True) if keys.count(key) == 1}
    found = []
    for code, function in _codes():
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
    child = _fork()
    if child == 0:
        _be_the_child(changed, items, writing)
    os.close(writing)
    try:
        for item in items:
            allowed = _LEAST_SECONDS + _TIMES_AS_LONG * reached[item.nodeid].seconds
            ready, _, _ = select.select([reading], [], [], allowed)
            if not ready or os.read(reading, 1) != b".":
                return item.nodeid
        return None
    finally:
        os.close(reading)
        _end(child)


def _be_the_child(changed: list[Changed], items: list[pytest.Item], writing: int) -> None:
    """Run the tests, tell of each; never return."""
    try:
        os.setsid()
        for function, code in changed:
            function.__code__ = code
        for item, following in zip(items, [*items[1:], None], strict=True):
            os.write(writing, b"." if _passes(item, following) else b"F")
    finally:
        _wait_for_the_end()


def _fork() -> int:
    with warnings.catch_warnings():
        # Nothing was run in this process, so that threads of libraries are idle.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _wait_for_the_end() -> None:
    """In a child: the parent ends it, and the processes that it started."""
    while True:
        signal.pause()


def _end(child: int) -> None:
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
