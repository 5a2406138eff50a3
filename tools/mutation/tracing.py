"""Which lines of the package each test reaches, recorded once for each state of the code.

What a run found is kept in ``build/mutation.pickle``: the next one runs only tests of files that
were changed since, or all where the package or a helper of the tests was.
"""

from __future__ import annotations

import gc
import pickle
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

import gridref
from tools.mutation.forks import results_of

__all__ = ["SOURCE", "Reached", "all_codes", "living_codes", "passes", "reached_lines"]

SOURCE = Path(gridref.__file__).parent
_ROOT = Path(__file__).parents[2]
_KEPT = _ROOT / "build" / "mutation.pickle"
_TOOL = 4  # of sys.monitoring: one that no known tool takes

Line = tuple[str, int]
"""File and number."""


@dataclass
class Reached:
    """What one test reaches, its fixtures of wider scope included.

    Attributes
    ----------
    seconds
        How long it takes without those fixtures.
    fixture_seconds
        How long they take; they may serve other tests, too.
    lines
        Lines that it reaches.
    """

    seconds: float = 0
    fixture_seconds: float = 0
    lines: set[Line] = field(default_factory=set)


def reached_lines(items: list[pytest.Item], jobs: int) -> dict[str, Reached]:
    """What each test that passes, or is skipped, reaches without a change; by its identifier."""
    kept = _load()
    known = {item.nodeid: kept[key] for item in items if (key := _key(item)) in kept}
    modules = [[*group] for _, group in groupby(items, key=lambda item: item.path)]
    new = [group for group in modules if any(item.nodeid not in known for item in group)]
    shares = [
        partial(_trace, [item for group in new[n::jobs] for item in group]) for n in range(jobs)
    ]
    found: dict[str, Reached] = dict(results_of(shares))
    keys = {item.nodeid: _key(item) for item in items}
    _save(kept | {keys[name]: reached for name, reached in found.items()})
    return known | found


def _load() -> dict[str, Reached]:
    if not _KEPT.exists():
        return {}
    kept: dict[str, Reached] = pickle.loads(_KEPT.read_bytes())
    return {key: reached for key, reached in kept.items() if key.startswith(_state())}


def _save(kept: dict[str, Reached]) -> None:
    _KEPT.parent.mkdir(exist_ok=True)
    _KEPT.write_bytes(pickle.dumps(kept))


def _key(item: pytest.Item) -> str:
    return f"{_state()} {_digest((item.path,))} {item.nodeid}"


@cache
def _state() -> str:
    """What tells the state of the package and of all that tests share."""
    shared = (path for folder in ("tests", "tools") for path in (_ROOT / folder).rglob("*.py"))
    helpers = (path for path in shared if not path.name.startswith("test_"))
    return _digest((*sorted(SOURCE.rglob("*.py")), *sorted(helpers)))


@cache
def _digest(paths: tuple[Path, ...]) -> str:
    digest = blake2b(digest_size=16)
    for path in paths:
        digest.update(repr((str(path), path.read_bytes())).encode())
    return digest.hexdigest()


class _Tracer:
    """Plugin: the lines that are reached, and those of each fixture of wider scope than a test."""

    def __init__(self) -> None:
        self.lines: set[Line] = set()
        self.fixtures: list[tuple[str, str, float, set[Line]]] = []

    def arrive(self, code: CodeType, line: int) -> object:
        self.lines.add((code.co_filename, line))
        return sys.monitoring.DISABLE

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        outer, self.lines = self.lines, set()
        sys.monitoring.restart_events()
        began = time.monotonic()
        try:
            return (yield)
        finally:
            seconds = time.monotonic() - began
            self.fixtures.append((fixturedef.argname, request.node.nodeid, seconds, self.lines))
            self.lines = outer
            sys.monitoring.restart_events()

    def run(self, item: pytest.Item, following: pytest.Item | None) -> Reached | None:
        self.lines, before = set(), len(self.fixtures)
        sys.monitoring.restart_events()
        began = time.monotonic()
        if not passes(item, following):
            return None
        seconds = time.monotonic() - began - sum(each[2] for each in self.fixtures[before:])
        reached = Reached(seconds, 0, self.lines)
        for name, node, fixture_seconds, lines in self.fixtures:
            if name in getattr(item, "fixturenames", ()) and item.nodeid.startswith(node):
                reached.fixture_seconds += fixture_seconds
                reached.lines |= lines
        return reached


def _trace(items: list[pytest.Item]) -> Iterator[tuple[str, Reached]]:
    monitoring, tracer = sys.monitoring, _Tracer()
    monitoring.use_tool_id(_TOOL, "mutation")
    monitoring.register_callback(_TOOL, monitoring.events.LINE, tracer.arrive)
    for code in {each for whole, _ in living_codes() for each in all_codes(whole)}:
        monitoring.set_local_events(_TOOL, code, monitoring.events.LINE)
    caches = [thing for thing in gc.get_objects() if type(thing) is type(_state)]
    caches = [each for each in caches if str(each.__module__).startswith("gridref")]
    if items:
        items[0].config.pluginmanager.register(tracer)
    for item, following in zip(items, [*items[1:], None], strict=False):
        for each in caches:  # a test whose lines were spared by an earlier one may notice, too
            each.cache_clear()
        reached = tracer.run(item, following)
        if reached is not None:
            yield item.nodeid, reached


def living_codes() -> Iterator[tuple[CodeType, FunctionType]]:
    """Every living function of the package, by its code."""
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType) and thing.__code__.co_filename.startswith(str(SOURCE)):
            yield thing.__code__, thing


def all_codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from all_codes(inner)


class _Reports:
    def __init__(self) -> None:
        self.failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed


def passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    reports = _Reports()
    item.config.pluginmanager.register(reports)
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    item.config.pluginmanager.unregister(reports)
    return not reports.failed
