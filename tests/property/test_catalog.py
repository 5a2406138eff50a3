"""Whatever group is written, the same group is read."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from pathlib import Path

import fsspec
import pytest
from hypothesis import given

from gridref.catalog import open_catalog
from gridref.catalog.commit import write_catalog
from gridref.model.array import VirtualGroup
from gridref.testing.invariants import assert_same_group
from gridref.testing.strategies import groups
from tests.work import FEWER


@FEWER
@given(groups())
def test_a_local_catalog_holds_the_group(group: VirtualGroup) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        digest = write_catalog(group, folder / "a.gridref")
        opened = open_catalog(folder / "a.gridref")
        assert opened.info.digest == digest
        assert_same_group(opened, group)
        # A catalog of a catalog, in its own place.
        write_catalog(opened, folder / "a.gridref", sources="relative")
        again = open_catalog(folder / "a.gridref")
        assert_same_group(again, group)
        assert len(list((folder / "a.gridref").iterdir())) == 4
    finally:
        shutil.rmtree(folder)


@pytest.mark.long
@FEWER
@given(groups())
def test_a_catalog_on_another_filesystem_holds_the_group(group: VirtualGroup) -> None:
    url = f"memory://catalogs/{uuid.uuid4().hex}"
    try:
        write_catalog(group, url)
        assert_same_group(open_catalog(url), group)
    finally:
        fsspec.filesystem("memory").rm("/catalogs", recursive=True)
