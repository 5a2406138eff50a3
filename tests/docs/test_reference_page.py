"""The reference of the site names everything; that the site builds is seen by `make site`."""

from __future__ import annotations

import re
from pkgutil import resolve_name

import gridref
from tests.shared_data import ROOT

PYTHON = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
NAMES = re.findall(r"^::: ([\w.]+)$", PYTHON, re.MULTILINE)


def test_every_public_name_is_in_the_reference_once() -> None:
    public = {*gridref.__all__, "copy", "create_app"} - {"__version__", "errors"}
    assert {f"gridref.{name}" for name in public} <= set(NAMES)
    assert len(NAMES) == len(set(NAMES))


def test_the_reference_names_nothing_that_is_not_there() -> None:
    for name in NAMES:
        module, _, member = name.rpartition(".")
        assert resolve_name(f"{module}:{member}").__doc__
