"""The marker ``long``: tests that ``make test`` leaves out and ``make test-all`` runs.

``@pytest.mark.long(but=4)`` on a parametrised test leaves four of its cases, evenly spaced, to
``make test``. So a large product of parameters is sampled each time, and whole where time allows.

With ``-m long`` a module is imported only if its text has the marker, or if it is named.
``-m long --and-tests-of=FILE`` runs also the tests that a file lists, one a line.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

__all__ = ["has_no_long_test", "mark_long"]


def has_no_long_test(path: Path, config: pytest.Config) -> bool:
    """Whether only long tests are run, and a module that is not named itself has none."""
    if config.option.markexpr != "long" or path.suffix != ".py":
        return False
    named = [*config.args, *(test.partition("::")[0] for test in listed(config))]
    return path.name not in {Path(argument).name for argument in named} and not _is_marked(path)


@cache
def listed(config: pytest.Config) -> frozenset[str]:
    """The tests that the file of ``--and-tests-of`` lists."""
    file = config.option.and_tests_of
    return frozenset(Path(file).read_text(encoding="utf-8").splitlines() if file else ())


@cache
def _is_marked(path: Path) -> bool:
    return "mark.long" in path.read_text(encoding="utf-8")


def mark_long(items: list[pytest.Item], config: pytest.Config) -> None:
    """Take the marker off the cases that ``but`` leaves to ``make test``; mark the listed tests.

    Raises
    ------
    pytest.UsageError
        If a test has the marker from another module, and ``-m long`` would miss it; if a listed
        test does not exist.
    """
    for item in items:
        if item.get_closest_marker("long") and not _is_marked(item.path):
            raise pytest.UsageError(f"{item.path} has long tests: write mark.long in it")
    cases: dict[str, list[tuple[pytest.Item, pytest.Mark]]] = defaultdict(list)
    for item in items:
        for mark in item.own_markers:
            if mark.name == "long" and "but" in mark.kwargs:
                cases[item.nodeid.partition("[")[0]].append((item, mark))
    for group in cases.values():
        n_quick = min(group[0][1].kwargs["but"], len(group))
        for n in range(n_quick):
            item, mark = group[n * len(group) // n_quick]
            item.own_markers.remove(mark)
    by_name = {item.nodeid: item for item in items if item.nodeid in listed(config)}
    for item in by_name.values():
        item.add_marker("long")
    if absent := listed(config) - by_name.keys():
        raise pytest.UsageError(
            f"{config.option.and_tests_of} lists tests that are not there: {sorted(absent)}"
        )
