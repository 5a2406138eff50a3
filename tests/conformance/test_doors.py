"""Every array through every door: equal in every bit, or refused for a reason that is listed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.conformance.door_table import PAGE, render, run
from tests.conformance.doors import DOORS
from tests.shared_data import missing_reason, skip_or_fail


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_array_is_equal_or_refused_for_a_listed_reason(tmp_path: Path) -> None:
    # One test: several would read everything again in every process that runs tests.
    if (reason := missing_reason()) is not None:
        skip_or_fail(reason)
    results = run(tmp_path)
    assert not results.wrong
    refused: Counter[str] = Counter()
    for (door, _), number in results.refused.items():
        refused[door] += number
    for door in DOORS:
        assert results.tried[door.name] > 300
        assert results.equal[door.name] + refused[door.name] == results.tried[door.name]
    assert PAGE.read_text(encoding="utf-8") == render(results), "run `make doors`"
