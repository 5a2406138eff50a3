"""What is readable of a catalog of which a table is lost, cut or damaged: all that needs it not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import gridref
from gridref.api.catalog import write_catalog
from gridref.errors import CatalogCorruptError, GridrefError
from tests.integration.growing import month

TABLES = ["blocks", "checksums", "chunks", "sources", "statistics"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four months in three parts, each with tables of all kinds."""
    folder = tmp_path_factory.mktemp("lost")
    files = [month(folder, number) for number in range(4)]
    gridref.build(files[:2], folder / "cube", "time", checksums=True)
    catalog = gridref.open_catalog(folder / "cube")
    catalog.append(files[2]).append(files[3]).scan_values()
    return folder / "cube"


@pytest.fixture
def table_of(whole: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A copy of the catalog, and there a table of its second part."""
    shutil.copytree(whole, tmp_path / "cube")
    part = gridref.open_catalog(tmp_path / "cube").snapshot.parts[1]
    return lambda kind: tmp_path / "cube" / getattr(part, kind).file


def assert_right(catalog: gridref.VirtualGroup, days: slice) -> None:
    """What numpy made the files of."""
    every = [np.random.default_rng(number).normal(280, 10, (5, 4, 6)) for number in range(4)]
    expected = np.concatenate(every).astype("f4")[days]
    np.testing.assert_array_equal(catalog["tas"][days], expected)
    np.testing.assert_array_equal(catalog["time"][days], np.arange(20)[days])


def assert_rest_is_right(catalog: gridref.VirtualGroup) -> None:
    assert_right(catalog, slice(0, 10))
    assert_right(catalog, slice(15, 20))
    np.testing.assert_array_equal(catalog["area"][...], np.ones((4, 6)))


def remove(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def cut_and_padded(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2].ljust(len(content), b"\0"))


@pytest.mark.parametrize("damage", [remove, cut, cut_and_padded])
@pytest.mark.parametrize("kind", TABLES)
def test_the_rest_is_readable(
    table_of: Callable[[str], Path], kind: str, damage: Callable[[Path], None]
) -> None:
    damaged = table_of(kind)
    damage(damaged)
    catalog = gridref.open_catalog(damaged.parent)
    assert_rest_is_right(catalog)
    if kind == "statistics":
        assert_right(catalog, slice(None))  # values do not need it
        with pytest.raises(CatalogCorruptError, match="statistics-"):
            catalog.find("tas", "> 0")
    else:
        for name in ("tas", "time"):
            with pytest.raises(CatalogCorruptError, match=f"{kind}-"):
                catalog[name][10:15]
    with pytest.raises(
        CatalogCorruptError, match=rf"Hurt: blocks \[2:3, 0:1, 0:1\] of tas.*{kind}-"
    ):
        gridref.verify(damaged.parent)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("kind", TABLES)
def test_a_byte_that_was_changed_never_changes_values(
    table_of: Callable[[str], Path], kind: str
) -> None:
    damaged = table_of(kind)
    content = damaged.read_bytes()
    for place in np.linspace(0, len(content) - 1, 25).astype(int).tolist():
        changed = bytearray(content)
        changed[place] ^= 0xFF
        damaged.write_bytes(changed)
        catalog = gridref.open_catalog(damaged.parent)
        assert_rest_is_right(catalog)
        with suppress(CatalogCorruptError):
            assert_right(catalog, slice(10, 15))
    with pytest.raises(CatalogCorruptError, match=r"SHA-256.*Hurt: "):
        gridref.verify(damaged.parent)


def test_all_damaged_tables_are_told_at_once(table_of: Callable[[str], Path]) -> None:
    for kind in TABLES:
        remove(table_of(kind))
    with pytest.raises(CatalogCorruptError, match="5 files are damaged") as caught:
        gridref.verify(table_of("blocks").parent)
    assert all(f"{kind}-" in str(caught.value) for kind in TABLES)


def test_what_lost_blocks_hold_is_never_made_up(table_of: Callable[[str], Path]) -> None:
    """Neither what is selected virtually, nor what is exported or appended to."""
    lost = table_of("blocks")
    remove(lost)
    catalog = gridref.open_catalog(lost.parent)
    part = catalog["tas"].isel(time=slice(8, 12))
    np.testing.assert_array_equal(part[:2], catalog["tas"][8:10])
    with pytest.raises(CatalogCorruptError, match="blocks-"):
        part[1:3]
    with pytest.raises(GridrefError, match="blocks-"):
        write_catalog(catalog, lost.parent.parent / "copy")
    with pytest.raises(CatalogCorruptError, match="blocks-"):
        catalog.chunks("tas")
    store = gridref.open_store(lost.parent)
    import zarr

    array = zarr.open_group(store, mode="r")["tas"]
    np.testing.assert_array_equal(array[:10], catalog["tas"][:10])
    with pytest.raises(GridrefError, match="blocks-"):
        array[10:15]
