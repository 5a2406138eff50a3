"""Real files in a folder each: `gridref build FOLDER --yes` finds how they lie."""

from __future__ import annotations

from pathlib import Path

import pytest

import gridref
from gridref.errors import UnclearLayoutError
from tests.shared_data import shared_files

FAMILIES = {file.values[0].parent: file for file in shared_files("families/*/*")}
"""A file of each family, by its folder."""
CONTRADICTED = "harmony_global_days"
"""Names of files say another day than the times in them."""
EMPTY = "ascat_20211220_231800_metopb_48038_eps_o_250_3202_ovw.l2.nc4"
"""Its dimensions have no elements: nothing of it is in a catalog."""


@pytest.mark.long(but=3)
@pytest.mark.parametrize("file", FAMILIES.values())
def test_a_family_builds_with_yes_and_its_values_and_labels_are_those_of_the_files(
    file: Path, tmp_path: Path
) -> None:
    folder = file.parent
    catalog = tmp_path / "cube.gridref"
    if folder.name == CONTRADICTED:
        with pytest.raises(UnclearLayoutError, match="disagrees with their names") as caught:
            gridref.build(folder, catalog, layout="first")
        assert len(caught.value.choices) == 3
        gridref.build(folder, catalog, **caught.value.choices[0])
    else:
        gridref.build(folder, catalog, layout="first")
    used = {Path(source.url) for source in gridref.open_catalog(catalog).source_list}
    assert used == {path for path in folder.iterdir() if EMPTY not in path.name}
    assert gridref.verify(catalog).ok
