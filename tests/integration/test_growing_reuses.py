"""What combining as a whole leaves as it is, is not written again: drift, overlaps, tiles."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.api.catalog import write_catalog
from gridref.errors import CombineError
from gridref.model.array import VirtualArray
from tests.by_name import by_name
from tests.integration.test_mosaics import write_tile


def days(folder: Path, name: str, first: int, dtype: str = "f4", **attrs: Any) -> str:
    """A file of four days in two chunks."""
    values = np.random.default_rng(first).random((4, 4)) * 100
    with h5py.File(folder / f"{name}.h5", "w") as file:
        file["time"] = np.arange(first, first + 4.0)
        file["time"].make_scale("time")
        file["time"].attrs["units"] = "days since 2000-01-01"
        file["x"] = np.arange(4.0)
        file["x"].make_scale("x")
        v = file.create_dataset("v", data=values.astype(dtype), chunks=(2, 4), compression="gzip")
        v.dims[0].attach_scale(file["time"])
        v.dims[1].attach_scale(file["x"])
        v.attrs.update(attrs)
    return str(folder / f"{name}.h5")


def grown(
    folder: Path, first: Sequence[str], rest: Sequence[str], **options: Any
) -> gridref.Catalog:
    """A catalog that has grown by one file after the other, as if it were built at once."""
    gridref.build(list(first), folder / "cube", **by_name(**options))
    gridref.build([*first, *rest], folder / "whole", **by_name(**options))
    catalog = gridref.open_catalog(folder / "cube")
    tables = [path for path in (folder / "cube").iterdir() if path.suffix == ".parquet"]
    for file in rest:
        catalog = catalog.append(file)
    whole = gridref.open_catalog(folder / "whole")
    assert catalog.info.digest == whole.info.digest
    assert not gridref.open_catalog(folder / "cube").diff(folder / "whole")
    for path, array in whole.all_arrays().items():
        assert catalog[path].dtype == array.dtype
        np.testing.assert_array_equal(catalog[path][...], array[...])
    assert all(path.exists() for path in tables)
    assert {path.name for path in tables} <= stated(catalog)
    return catalog


def stated(catalog: gridref.Catalog) -> set[str]:
    return {table.file for part in catalog.snapshot.parts for table in part.tables}


def rows_written(catalog: gridref.Catalog) -> list[int]:
    """Chunk rows of each part."""
    return [part.chunks.n_rows for part in catalog.snapshot.parts]


def assert_shows(catalog: gridref.Catalog, files: Sequence[str], decode: bool = False) -> None:
    """What xarray shows of the files in their order, unpacked one by one if need be."""
    opened = [xr.open_dataset(file, engine="h5netcdf", mask_and_scale=decode) for file in files]
    expected = np.concatenate([dataset.v.values for dataset in opened])
    np.testing.assert_array_equal(catalog["v"][...], expected)
    assert catalog["v"].dtype == expected.dtype


def test_files_that_widen_the_dtype(tmp_path: Path) -> None:
    files = [days(tmp_path, f"a{n}", 4 * n) for n in range(3)]
    files += [days(tmp_path, "b", 12, "f8"), days(tmp_path, "c", 16)]
    catalog = grown(tmp_path, files[:3], files[3:], concat_dim="time")
    # Two chunks of v and one of time for each file; x is in the first part.
    assert rows_written(catalog) == [10, 3, 3]
    assert_shows(catalog, files)


def test_files_that_are_packed_otherwise(tmp_path: Path) -> None:
    files = [
        days(tmp_path, "a", 0, "i2", scale_factor=0.5),
        days(tmp_path, "b", 4, "i2", scale_factor=0.25, _FillValue=np.int16(7)),
        days(tmp_path, "c", 8, "i2", scale_factor=0.125),
    ]
    catalog = grown(tmp_path, files[:1], files[1:], concat_dim="time")
    assert rows_written(catalog) == [4, 3, 3]
    assert_shows(catalog, files, decode=True)


@pytest.mark.parametrize(("overlap", "n_rows"), [("first", 2), ("keep", 3), ("last", 4)])
def test_labels_that_overlap(tmp_path: Path, overlap: str, n_rows: int) -> None:
    files = [days(tmp_path, f"a{n}", 4 * n) for n in range(3)]
    other = days(tmp_path, "b", 10)
    catalog = grown(tmp_path, files, [other], concat_dim="time", overlap=overlap)
    # A block of before that comes to show less of its rows is written again.
    assert rows_written(catalog) == [10, n_rows]
    with xr.open_dataset(other) as dataset:
        shown = dataset.v.values
    at = {"first": slice(12, 14), "keep": slice(12, 16), "last": slice(10, 14)}[overlap]
    mine = shown[2:] if overlap == "first" else shown
    np.testing.assert_array_equal(catalog["v"][at], mine)


def test_what_is_known_of_values_is_forgotten_where_they_are_decoded_otherwise(
    tmp_path: Path,
) -> None:
    files = [days(tmp_path, "a", 0, "i2", scale_factor=0.1)]
    gridref.build(files, tmp_path / "cube", "time")
    catalog = gridref.open_catalog(tmp_path / "cube").scan_values()
    assert catalog.chunks("v")["n_valid"].null_count == 0
    alike = catalog.append(days(tmp_path, "b", 4, "i2", scale_factor=0.1))
    assert alike.chunks("v")["n_valid"].null_count == 2
    other = alike.append(days(tmp_path, "c", 8, "i2", scale_factor=np.float32(0.1)))
    assert other.chunks("v")["n_valid"].null_count == 6
    low, high = other["v"][...].min(), other["v"][...].max()
    listed = other.scan_values().statistics().to_pylist()
    (mine,) = [row for row in listed if row["path"] == "v"]
    assert (mine["min"], mine["max"]) == (low, high)


def tiles(folder: Path, places: Sequence[tuple[int, int]], **profile: Any) -> list[str]:
    return [
        write_tile(folder / f"t{row}_{column}.tif", row, column, (32, 32), nodata=0, **profile)
        for row, column in places
    ]


SQUARE = [(row, column) for row in (32, 64) for column in (0, 32)]


@pytest.mark.parametrize(
    ("later", "profile"),
    [
        ([(32, 64), (64, 64)], {}),
        ([(0, 0)], {}),
        ([(32, 128)], {}),
        ([(96, 32)], {"dtype": "int32"}),
    ],
    ids=["a column, which leaves a hole", "in front", "far away", "of a wider dtype"],
)
def test_tiles_beside_others(
    tmp_path: Path, later: list[tuple[int, int]], profile: dict[str, Any]
) -> None:
    files, more = tiles(tmp_path, SQUARE), tiles(tmp_path, later, **profile)
    catalog = grown(tmp_path, files, more, mosaic=True)
    # Four chunks a tile; spatial_ref is of the first one, and x and y are made anew.
    assert rows_written(catalog) == [16 + 4] + [4 + 2] * len(more)


def test_tiles_that_cut_others(tmp_path: Path) -> None:
    files = tiles(tmp_path, SQUARE)
    over = write_tile(tmp_path / "over.tif", 70, 40, (32, 32), nodata=0)
    catalog = grown(tmp_path, files, [over], mosaic=True, overlap="last")
    assert_merged(catalog, [over, *files])
    for name in ("cube", "whole"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
    with pytest.raises(CombineError, match="pixels"):
        grown(tmp_path, files, [over], mosaic=True)


def assert_merged(catalog: gridref.Catalog, files: Sequence[str]) -> None:
    """What rasterio makes of tiles, the first one above."""
    import rasterio.merge

    expected, _ = rasterio.merge.merge(list(files))
    np.testing.assert_array_equal(catalog["band_data"][...], expected)


def test_a_hole_in_a_mosaic_is_filled(tmp_path: Path) -> None:
    files = tiles(tmp_path, [(row, column) for row in (0, 32, 64) for column in (0, 32, 64)])
    catalog = grown(tmp_path, files[:4] + files[5:], files[4:5], mosaic=True)
    assert_merged(catalog, files)
    again = write_tile(tmp_path / "again.tif", 32, 32, (32, 32), nodata=0)
    with pytest.raises(CombineError, match="32 by 32 pixels"):
        catalog.append(again)


def test_tiles_of_new_dates_and_of_dates_that_are_there(tmp_path: Path) -> None:
    def tile(number: int, date: str) -> str:
        path = tmp_path / f"T{number}_{date}.tif"
        return write_tile(path, 0, 32 * number, (32, 32), nodata=0)

    files = [tile(number, date) for number in range(2) for date in ("20230105", "20230110")]
    later = [tile(0, "20230115"), tile(2, "20230110"), tile(1, "20230107"), tile(1, "20230115")]
    options = {"mosaic": True, "stack": "time", "pattern": "T{_}_{time:%Y%m%d}"}
    catalog = grown(tmp_path, files, later, **options)
    # Four chunks of the tile, and x, y and time.
    assert all(n <= 4 + 3 for n in rows_written(catalog)[1:])
    with pytest.raises(CombineError, match="overlap="):
        catalog.append(write_tile(tmp_path / "T1b_20230110.tif", 0, 32, (32, 32), nodata=0))


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    def of_member(member: int, first: int, dtype: str = "f4") -> str:
        values = np.random.default_rng([member, first]).random((3, 4)).astype(dtype)
        dataset = xr.Dataset(
            {"t": (("time", "x"), values), "area": (("x",), np.arange(4.0))},
            {"time": ("time", np.arange(first, first + 3), {"units": "days since 2000-01-01"})},
        )
        path = tmp_path / f"m{member:02}_{first:03}.nc"
        dataset.to_netcdf(path, engine="h5netcdf")
        return str(path)

    return of_member


def test_members_and_times_of_one_member(tmp_path: Path, run: Callable[..., str]) -> None:
    files = [run(member, first) for member in (1, 2) for first in (0, 3)]
    later = [run(1, 6), run(3, 3), run(0, 0), run(2, 6, "f8")]
    catalog = grown(tmp_path, files, later, pattern="m{member:d}")
    assert catalog["t"].shape == (4, 9, 4)
    # One chunk of t, area, member, and two of time where a file cuts it.
    assert all(n <= 4 for n in rows_written(catalog)[1:])
    for file in [*files, *later]:
        with xr.open_dataset(file, decode_times=False) as dataset:
            at = {"member": int(Path(file).name[1:3]), "time": dataset.time.values}
            with xr.open_dataset(tmp_path / "cube", engine="gridref", decode_times=False) as shown:
                np.testing.assert_array_equal(shown.t.sel(at), dataset.t)


def test_labels_of_a_stack(tmp_path: Path) -> None:
    files = []
    for number, dtype in enumerate(["f4", "f4", "f4", "f8", "f4"]):
        files.append(str(tmp_path / f"s{number}.nc"))
        values = (np.arange(4) + number).astype(dtype)
        xr.Dataset({"t": (("x",), values)}).to_netcdf(files[-1], engine="h5netcdf")
    catalog = grown(tmp_path, files[1:3], [*files[3:], files[0]], stack="run", pattern="s{run:d}")
    assert rows_written(catalog) == [3, 2, 2, 2]  # a chunk, and all labels in one
    np.testing.assert_array_equal(catalog["t"][...], np.arange(5)[:, None] + np.arange(4.0))


def test_many_pieces_are_written_as_a_whole(tmp_path: Path) -> None:
    """Labels between all others: reading would go through very many boxes."""

    def labelled(times: np.ndarray) -> gridref.VirtualGroup:
        array = VirtualArray.from_numpy(times.astype("f8"), ("time",))
        return gridref.VirtualGroup({"time": array, "v": array})

    even = gridref.concat([labelled(2 * np.array([n])) for n in range(300)], "time")
    write_catalog(even, tmp_path / "cube")
    with h5py.File(tmp_path / "odd.h5", "w") as file:
        file["time"] = np.concatenate([[0.0], 2 * np.arange(300.0) + 1])
        file["time"].make_scale("time")
        file["v"] = file["time"][...]
        file["v"].dims[0].attach_scale(file["time"])
    catalog = gridref.open_catalog(tmp_path / "cube").append(
        tmp_path / "odd.h5", concat_dim="time", combine=gridref.CombineOptions(overlap="first")
    )
    np.testing.assert_array_equal(catalog["v"][...], np.arange(600.0))
    assert max(map(len, catalog.snapshot.shared.layouts)) == 1


def test_on_the_command_line(tmp_path: Path, run: Callable[..., str]) -> None:
    files = [run(member, 0) for member in (1, 2)]
    gridref.build(files, tmp_path / "cube.gridref", layout=gridref.Labels("m{member:d}"))
    before = stated(gridref.open_catalog(tmp_path / "cube.gridref"))
    command = [sys.executable, "-m", "gridref", "append", str(tmp_path / "cube.gridref"), run(3, 0)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    catalog = gridref.open_catalog(tmp_path / "cube.gridref")
    assert before < stated(catalog)
    assert rows_written(catalog)[1] == 3  # t, area and member
