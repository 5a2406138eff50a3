"""Hostile names are shown or refused: a few of those of `tools.fuzz.hostile_names`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.fuzz.hostile_names import DOORS, NAMES, ROLES, try_name

SOME = ("far way up", "return", "escape", "not UTF-8")
QUICK = ("own reader", "stores", "filesystem", "STAC", "virtual")


@pytest.mark.long(but=4)
@pytest.mark.parametrize("role", ROLES)
def test_names_are_shown_or_refused(role: str, tmp_path: Path) -> None:
    found = {}
    for title in SOME:
        (tmp_path / title).mkdir()
        found |= {title: try_name(role, NAMES[title], tmp_path / title, QUICK)}
    assert sum(map(bool, found.values())) > 1
    broke = {title: said for title, said in found.items() if "BROKE" in str(said)}
    assert broke == {}


@pytest.mark.long(but=1)
@pytest.mark.parametrize("role", ["array", "attribute", "dimension"])
@pytest.mark.parametrize("title", ["image", "newline"])
def test_names_at_every_door(role: str, title: str, tmp_path: Path) -> None:
    found = try_name(role, NAMES[title], tmp_path)
    assert found.keys() == {"build", *DOORS}
    assert set(found.values()) == {"shown"}


@pytest.mark.parametrize("title", ["NUL", "300"])
def test_exports_below_names_that_no_path_can_have(title: str, tmp_path: Path) -> None:
    said = try_name("references", NAMES[title], tmp_path, ("exports",))
    assert said["exports"].startswith(("refused: ", "shown"))
