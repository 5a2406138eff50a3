"""Files replaced, removed and refreshed: the catalog shows what xarray shows of what is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gridref.errors import CombineError, InvalidRequestError, SourceUnavailableError
from tests.command import run_command
from tests.integration.growing import assert_shows, built, files_in, month, steps


@pytest.fixture
def months(tmp_path: Path) -> list[Path]:
    return [month(tmp_path, number) for number in range(4)]


def rewritten(path: Path, **changes: float) -> None:
    """The same days with other values."""
    number = int(path.stem)
    other = month(path.parent, number, name="other", dtype="f4", **changes)
    import xarray as xr

    with xr.open_dataset(other) as dataset:
        changed = dataset.load().assign(tas=dataset.tas + 1)
    encoding = {"tas": {"chunksizes": (5, 2, 6)}}
    changed.to_netcdf(path, engine="h5netcdf", encoding=encoding, unlimited_dims=["time"])
    other.unlink()


@pytest.mark.parametrize("number", range(4))
def test_a_file_that_was_rewritten(months: list[Path], tmp_path: Path, number: int) -> None:
    """The first one holds what the others share: latitudes and areas."""
    catalog = built(months, tmp_path / "cube")
    tables = files_in(tmp_path / "cube")
    rewritten(months[number])
    after = catalog.replace(months[number])
    assert_shows(tmp_path / "cube", months)
    assert tables < files_in(tmp_path / "cube")
    assert after.info.digest == built(months, tmp_path / "whole").info.digest
    assert [str(path) for path in months] == sorted(after.sources()["url"].to_pylist())


def test_another_file_in_the_place_of_one(months: list[Path], tmp_path: Path) -> None:
    catalog = built(months[:3], tmp_path / "cube")
    catalog.replace(months[1], months[3])
    assert_shows(tmp_path / "cube", [months[0], months[2], months[3]])
    shifted = month(tmp_path, 9, shift=0.5)
    with pytest.raises(CombineError, match="lat"):
        catalog.replace(months[0], shifted)
    with pytest.raises(InvalidRequestError, match="not in the catalog"):
        catalog.replace(shifted)
    assert_shows(tmp_path / "cube", [months[0], months[2], months[3]])


@pytest.mark.parametrize("gone", [[0], [1], [3], [1, 2], [0, 3]])
def test_files_left_out(months: list[Path], tmp_path: Path, gone: list[int]) -> None:
    catalog = built(months, tmp_path / "cube")
    after = catalog.remove([months[i] for i in gone])
    left = [months[i] for i in range(4) if i not in gone]
    assert_shows(tmp_path / "cube", left)
    for i in gone:
        months[i].unlink()
    assert after.info.digest == built(left, tmp_path / "whole").info.digest
    assert_shows(tmp_path / "cube", left)
    with pytest.raises(InvalidRequestError, match="would remove every file"):
        after.remove(left)


def test_something_is_left_in_every_calendar(tmp_path: Path) -> None:
    since = {"units": "days since 2000-01-01", "calendar": "360_day"}
    (folder := tmp_path / "files").mkdir()
    files = [steps(folder, [float(n)], **since) for n in range(2)]
    with pytest.raises(InvalidRequestError, match="would remove every file"):
        built(files, tmp_path / "cube").remove(files)


def test_what_has_changed_is_found(months: list[Path], tmp_path: Path) -> None:
    catalog = built(months, tmp_path / "cube")
    assert catalog.refresh().info.snapshot == catalog.info.snapshot
    rewritten(months[2])
    done: list[str] = []
    after = catalog.refresh(progress=lambda n, total: done.append(f"{n}/{total}"))
    assert done == ["1/1"]
    assert_shows(tmp_path / "cube", months)
    months[1].unlink()
    rewritten(months[3])
    with pytest.raises(SourceUnavailableError, match=f"{months[1]} of the catalog is gone"):
        after.refresh()
    left = after.refresh(vanished="skip")
    said = left.history()[0].message
    assert said == f"{months[3]}, without {months[1]}"
    assert_shows(tmp_path / "cube", [months[0], months[2], months[3]])


def test_on_the_command_line(months: list[Path], tmp_path: Path) -> None:
    catalog = tmp_path / "cube"
    built(months, catalog)
    rewritten(months[1])
    done = run_command("refresh", catalog, months[1])
    assert done.returncode == 0, done.stderr
    assert_shows(catalog, months)
    assert run_command("remove", catalog, months[3]).returncode == 0
    assert_shows(catalog, months[:3])
    os.utime(months[0], (2e9, 2e9))
    assert "refresh" in run_command("refresh", catalog).stderr
    assert_shows(catalog, months[:3])
    assert "nothing changed" in run_command("refresh", catalog).stderr


def test_what_a_catalog_says_of_itself_is_what_it_has(months: list[Path], tmp_path: Path) -> None:
    catalog = built(months[:3], tmp_path / "cube")
    for _ in range(2):
        catalog = catalog.replace(months[1], months[3]).replace(months[3], months[1])
    catalog = catalog.remove(months[2])
    whole = built(months[:2], tmp_path / "whole").info
    grown = catalog.info
    assert grown.digest == whole.digest
    assert (grown.n_blocks, grown.n_chunks) == (whole.n_blocks, whole.n_chunks)
    assert grown.n_sources == len(catalog.source_list) == whole.n_sources == 2
