"""Tests of xarray that cannot apply to us, each with the reason: ``exceptions.toml``."""

from __future__ import annotations

import fnmatch
import tomllib
from dataclasses import dataclass
from pathlib import Path

__all__ = ["EXCEPTIONS", "ExpectedFailure", "exception_of", "suite_and_test"]


@dataclass(frozen=True)
class ExpectedFailure:
    """Tests by patterns of ``Class::test[parameters]``, why they fail, and whether they are run."""

    tests: tuple[str, ...]
    reason: str
    run: bool = True

    def matches(self, test: str) -> bool:
        return any(_matches(test, pattern) for pattern in self.tests)


def _matches(test: str, pattern: str) -> bool:
    """Only ``*`` has a meaning: brackets hold the parameters of a test."""
    return fnmatch.fnmatchcase(test, pattern.replace("[", "[[]"))


def _listed() -> tuple[ExpectedFailure, ...]:
    text = Path(__file__).with_name("exceptions.toml").read_text(encoding="utf-8")
    return tuple(
        ExpectedFailure(
            tuple(entry["tests"]), " ".join(entry["reason"].split()), entry.get("run", True)
        )
        for entry in tomllib.loads(text)["exceptions"]
    )


EXCEPTIONS = _listed()


def suite_and_test(nodeid: str) -> str:
    """``Class::test[parameters]`` of a test's id."""
    return nodeid.partition("::")[2]


def exception_of(nodeid: str) -> ExpectedFailure | None:
    """What is listed for a test; None if it has to pass."""
    test = suite_and_test(nodeid)
    found = [exception for exception in EXCEPTIONS if exception.matches(test)]
    assert len(found) < 2, f"{test} is listed {len(found)} times"
    return found[0] if found else None
