"""The reference of the site names everything; that the site builds is seen by `make site`."""

from __future__ import annotations

import re

import gridref
from tests.shared_data import ROOT

PYTHON = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")


def test_every_public_name_is_in_the_reference() -> None:
    named = set(re.findall(r"^::: gridref\.(\w+)$", PYTHON, re.MULTILINE))
    assert set(gridref.__all__) - {"__version__", "errors"} <= named
    assert all(hasattr(gridref, name) for name in named - {"faces", "catalog"})
