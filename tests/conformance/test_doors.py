"""Every array through every door: equal in every bit, or refused for a reason that is listed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.conformance.door_table import PAGE, Results, render, run
from tests.conformance.doors import DOORS
from tests.shared_data import missing_reason, skip_or_fail


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    if (reason := missing_reason()) is not None:
        skip_or_fail(reason)
    folder: Path = tmp_path_factory.mktemp("doors")
    return run(folder)


def test_no_door_gives_anything_else(results: Results) -> None:
    assert not results.wrong


def test_every_array_is_equal_or_refused(results: Results) -> None:
    refused: Counter[str] = Counter()
    for (door, _), number in results.refused.items():
        refused[door] += number
    for door in DOORS:
        assert results.tried[door.name] > 400
        assert results.equal[door.name] + refused[door.name] == results.tried[door.name]


def test_the_page_is_up_to_date(results: Results) -> None:
    assert PAGE.read_text(encoding="utf-8") == render(results), "run `make doors`"
