"""The reference of the site names everything; that the site builds is seen by `make site`."""

from __future__ import annotations

import inspect
import re

import pytest

import gridref
from tests.shared_data import ROOT

PYTHON = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")


def test_every_public_name_is_in_the_reference() -> None:
    named = set(re.findall(r"^::: gridref\.(\w+)$", PYTHON, re.MULTILINE))
    assert set(gridref.__all__) - {"__version__", "errors"} <= named
    assert all(hasattr(gridref, name) for name in named - {"faces", "catalog"})


@pytest.mark.parametrize("name", sorted({*gridref.__all__} - {"__version__", "errors"}))
def test_public_names_and_methods_are_documented(name: str) -> None:
    public = getattr(gridref, name)
    members = vars(public).items() if inspect.isclass(public) else ()
    undocumented = [
        member
        for member, value in members
        if not member.startswith("_")
        and (inspect.isfunction(value) or isinstance(value, property | classmethod))
        and not inspect.getdoc(getattr(public, member))
    ]
    assert inspect.getdoc(public)
    assert not undocumented
