"""Parts of many commits become one, and the content stays what it is."""

from __future__ import annotations

from pathlib import Path

import gridref
from tests.integration.test_appending import assert_shows, built, month


def test_many_commits_leave_few_parts(tmp_path: Path) -> None:
    months = [month(tmp_path, number) for number in range(40)]
    catalog = built(months[:1], tmp_path / "cube")
    most = 0
    for file in months[1:]:
        catalog = catalog.append(file)
        most = max(most, len(catalog.parts))
    assert most < 20
    assert len(gridref.open_catalog(tmp_path / "cube").parts) == len(catalog.parts)
    assert catalog.info.digest == built(months, tmp_path / "whole").info.digest
    assert_shows(tmp_path / "cube", months)
    old = gridref.open_catalog(tmp_path / "cube", snapshot=catalog.history()[25].id)
    assert old["tas"][...].shape[0] == 5 * 15
    catalog.remove(months[3])
    assert_shows(tmp_path / "cube", months[:3] + months[4:])
