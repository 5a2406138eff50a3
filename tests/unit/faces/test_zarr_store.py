"""Which stores are equal: those that show the same in the same way."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import gridref
from gridref.api.catalog import write_catalog
from gridref.model.array import VirtualGroup
from gridref.testing.builders import chunked_array


def group(first: int = 0) -> VirtualGroup:
    values = np.arange(first, first + 6, dtype="i4")
    return VirtualGroup({"a": chunked_array(values, (2,), ("t",))})


@pytest.fixture
def catalogs(tmp_path: Path) -> list[str]:
    paths = [str(tmp_path / name) for name in ("a.gridref", "b.gridref")]
    for number, path in enumerate(paths):
        write_catalog(group(number), path)
    return paths


def test_the_same_catalog_in_the_same_view_is_equal(catalogs: list[str]) -> None:
    one, again = (gridref.open_store(catalogs[0], "portable") for _ in range(2))
    assert one == again
    assert one == pickle.loads(pickle.dumps(one))


def test_other_catalogs_and_views_are_not(catalogs: list[str]) -> None:
    one = gridref.open_store(catalogs[0], "portable")
    assert one != gridref.open_store(catalogs[1], "portable")
    assert one != gridref.open_store(catalogs[0], "native")
    assert one != gridref.open_store(catalogs[0], "portable", compressor="gzip")
    assert one != gridref.open_store(catalogs[0], "portable", chunks={"t": 3})
    assert one != catalogs[0]
    assert one != 5


def test_groups_in_memory_are_equal_to_themselves_only() -> None:
    held = group()
    one = gridref.open_store(held)
    assert one == one
    assert one != gridref.open_store(group(1))
