"""The table of docs/interchange.md is what the tools do now."""

from __future__ import annotations

import pytest

from tests.conformance.interchange import in_page, table


@pytest.mark.long
def test_the_table_is_up_to_date() -> None:
    assert table() == in_page()
