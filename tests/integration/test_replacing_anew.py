"""Files replaced and removed in catalogs that are made of all their files at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import xarray as xr

import gridref
from gridref.errors import InvalidRequestError
from tests.by_name import by_name
from tests.command import run_command
from tests.integration.test_ragged_archives import write_drifter
from tests.raster_tiles import write_tile


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
