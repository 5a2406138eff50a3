"""The page of layouts shows what `gridref plan` prints of each kind of archive."""

from __future__ import annotations

import pytest

from tests.archives.page import page
from tests.shared_data import ROOT


@pytest.mark.long
def test_the_page_is_what_the_command_prints() -> None:
    written = (ROOT / "docs" / "layouts.md").read_text(encoding="utf-8")
    assert page(written) == written, "write it anew: python -m tests.archives.page docs/layouts.md"
