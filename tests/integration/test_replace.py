"""Files replaced, removed and refreshed: the catalog is the one that is built of what is there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import xarray as xr

import gridref
from gridref.errors import CombineError, InvalidRequestError, SourceUnavailableError
from tests.by_name import by_name
from tests.command import run_command
from tests.integration.archives import (
    assert_shows,
    built,
    files_in,
    month,
    steps,
    write_hdf5,
    write_tile,
)
from tests.integration.test_ragged_archives import write_drifter


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


@pytest.mark.parametrize("overlap", ["first", "last", "keep"])
@pytest.mark.parametrize("number", range(3))
def test_files_that_overlap_others_stay_in_their_places(
    tmp_path: Path, overlap: str, number: int
) -> None:
    def write(number: int, version: int = 0) -> Path:
        days = np.arange(3.0 * number, 3 * number + 5)
        v = ("time",), days + 1000 * number + 100 * version
        return write_hdf5(tmp_path / f"{number}.h5", {"time": days}, {"v": v})

    files = [write(n) for n in range(3)]
    options = by_name(concat_dim="time", overlap=overlap)
    catalog = gridref.build(files, tmp_path / "cube", **options)
    write(number, 1)
    whole = gridref.build(files, tmp_path / "whole", **options)
    np.testing.assert_array_equal(catalog.refresh()["v"][...], whole["v"][...])


def test_a_file_around_others_is_not_taken_out_with_them(tmp_path: Path) -> None:
    days = [np.arange(10.0), np.arange(3.0, 6)]
    files = [
        write_hdf5(tmp_path / f"{n}.h5", {"time": own}, {"v": (("time",), own + 100 * n)})
        for n, own in enumerate(days)
    ]
    last = by_name(concat_dim="time", overlap="last")
    catalog = gridref.build(files, tmp_path / "cube", **last)
    with pytest.raises(InvalidRequestError, match="it is in several places"):
        catalog.remove(files[0])


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


def tile(folder: Path, number: int, seed: int) -> Path:
    path = folder / f"T{number}.tif"
    write_tile(
        path,
        32 * (number // 2),
        32 * (number % 2),
        (32, 32),
        nodata=0,
        compress="lzw" if seed else "deflate",
    )
    return path


def drifter(folder: Path, number: int, seed: int) -> Path:
    return write_drifter(folder / f"d{number}.nc", number + 10 * seed, 5 + number)


def of_member(folder: Path, number: int, seed: int) -> Path:
    values = np.random.default_rng([number, seed]).random((3, 4))
    dataset = xr.Dataset(
        {"t": (("time", "x"), values)},
        {"time": ("time", np.arange(3), {"units": "days since 2000-01-01"})},
    )
    dataset.to_netcdf(path := folder / f"m{number:02}.nc", engine="h5netcdf")
    return path


def of_kind(folder: Path, number: int, seed: int) -> Path:
    values = np.random.default_rng([number, seed]).random((3, 4))
    dataset = xr.Dataset(
        {f"v{number % 2}": (("time", "x"), values)},
        {"time": ("time", 3 * (number // 2) + np.arange(3.0))},
        {"kind": "ab"[number % 2]},
    )
    dataset.to_netcdf(path := folder / f"k{number}.nc", engine="h5netcdf")
    return path


def field(folder: Path, number: int, seed: int) -> Path:
    path = folder / f"r01c{number // 2 + 1:02}f{number % 2:02}p00-ch1.tiff"
    image = np.random.default_rng([number, seed]).integers(0, 999, (24, 32)).astype("u2")
    tifffile.imwrite(path, image, metadata=None)
    return path


KINDS: dict[str, tuple[Callable[[Path, int, int], Path], dict[str, Any]]] = {
    "tiles": (tile, {"mosaic": True}),
    "several grids": (tile, {"mosaic": True, "grids": "groups"}),
    "rows of differing length": (drifter, {"layout": "ragged"}),
    "padded rows": (drifter, {"layout": "padded"}),
    "members": (of_member, {"pattern": "m{member:d}"}),
    "groups by kind": (of_kind, {"group_by": "kind", "concat_dim": "time"}),
    "a plate": (field, {"layout": "plate", "pattern": "r{row}c{column}f{field}p{z}-ch{c}.tiff"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_files_go_and_come_back_changed(tmp_path: Path, kind: str) -> None:
    write, options = KINDS[kind]
    (folder := tmp_path / "files").mkdir()
    files = [write(folder, number, 0) for number in range(4)]

    def at_once(some: list[Path]) -> str:
        gridref.build(some, tmp_path / "whole", **by_name(overwrite=True, **options))
        return gridref.open_catalog(tmp_path / "whole").info.digest

    gridref.build(files, tmp_path / "cube", **by_name(**options))
    catalog = gridref.open_catalog(tmp_path / "cube")
    less = catalog.remove(files[3])
    assert less.info.digest == at_once(files[:3])
    assert less.history()[0].message == str(files[3])
    assert less.append(files[3]).info.digest == catalog.info.digest
    write(folder, 1, 1)
    changed = gridref.open_catalog(tmp_path / "cube").refresh()
    assert changed.info.digest == at_once(files) != catalog.info.digest
    for path, array in gridref.open_catalog(tmp_path / "whole").all_arrays().items():
        np.testing.assert_array_equal(changed[path][...], array[...])
    with pytest.raises(InvalidRequestError, match="would remove every file"):
        changed.remove(files)
    with pytest.raises(InvalidRequestError, match="it is not in the catalog"):
        changed.remove(tmp_path / "other")
    assert gridref.open_catalog(tmp_path / "cube").info.digest == changed.info.digest


def packed(folder: Path, number: int, scale: float) -> Path:
    """A file of a cube of two members and two years; what all share is in each."""
    labels = {"member": [number % 2], "time": 3.0 * (number // 2) + np.arange(3), "x": np.arange(4)}
    values = np.arange(12, dtype="i2").reshape(1, 3, 4) + number
    attrs = {"scale_factor": scale, "_FillValue": np.int16(-1)}
    storage = {"fillvalue": -1}
    path = folder / f"p{number}.h5"
    return write_hdf5(path, labels, {"v": ([*labels], values, attrs, storage)})


def test_a_cube_of_files_that_are_packed_otherwise(tmp_path: Path) -> None:
    scales = [0.5, 0.25, 0.5, 0.25]
    files = [packed(tmp_path, number, scale) for number, scale in enumerate(scales)]
    options = by_name(concat_dim=["member", "time"], join="outer")
    expected = gridref.build(files, tmp_path / "whole", **options)["v"][...]
    catalog = gridref.build([files[3], files[0]], tmp_path / "cube", **options)
    for file in files[1:3]:  # each one comes where a hole was
        catalog = catalog.append(file)
    np.testing.assert_array_equal(catalog["v"][...], expected)
    digest = catalog.info.digest
    catalog = catalog.relocate(identity="strict")  # which writes all rows, in another order
    assert catalog.remove(files[2]).append(files[2]).info.digest == digest
    for number, scale in enumerate(scales):
        packed(tmp_path, number, 2 * scale)
    np.testing.assert_array_equal(catalog.refresh()["v"][...], 2 * expected)


def test_what_cannot_be_told_is_refused(tmp_path: Path) -> None:
    """A tile that lies elsewhere by now: where the others lay is not known to be right any more."""
    files = [tile(tmp_path, number, 0) for number in range(4)]
    gridref.build(files, tmp_path / "cube", layout=gridref.Mosaic())
    digest = gridref.open_catalog(tmp_path / "cube").info.digest
    write_tile(files[0], 64, 64, (32, 32))
    done = run_command("refresh", tmp_path / "cube")
    assert done.returncode == 1
    assert (
        "the changed files would move the others: build the catalog again from all files"
        in done.stderr
    )
    assert gridref.open_catalog(tmp_path / "cube").info.digest == digest
    other = write_tile(tmp_path / "other.tif", 32, 32, (32, 32))
    grown = gridref.open_catalog(tmp_path / "cube").remove(files[0]).replace(files[3], other)
    assert grown["band_data"].shape == (1, 64, 64)
