"""The table of docs/interchange.md is what the tools do now."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tests.conformance.interchange import TO, in_page, outcome, table


@pytest.mark.long
def test_the_table_is_up_to_date() -> None:
    assert table() == in_page()


@pytest.mark.parametrize("way", [way for way in TO if way != "to CF aggregation"])
def test_references_looked_up_in_several_boxes(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of arrays of more than a million chunks are; here a row of chunks at a time."""
    monkeypatch.setattr("gridref.faces.exports.references.BOX_CHUNKS", 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert outcome("missing chunks, masked", way, tmp_path) == "yes"
