"""Catalogs that grow are what building at once makes: by appending, declared ahead, watched."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cftime
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.api.catalog import Watch, write_catalog
from gridref.api.places import claimed
from gridref.api.readable import reader_for
from gridref.errors import (
    BlockPendingError,
    CatalogNotFoundError,
    CombineError,
    InvalidRequestError,
    SourceChangedError,
    SourceUnavailableError,
    UnclearLayoutError,
)
from gridref.model.array import VirtualArray
from tests.by_name import by_name
from tests.command import run_command
from tests.integration.archives import assert_shows, built, files_in, month, steps, write_hdf5
from tests.integration.test_mosaics import write_tile

N_MONTHS = 12


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (range(11), [11]),
        (range(1, 12), [0]),
        ([0, 1, 2, 6, 7, 8, 9, 10, 11], [3, 4, 5]),
        ([4, 5, 8], [0, 1, 2, 3, 6, 7, 9, 10, 11]),
        ([0], list(range(1, 12))),
    ],
    ids=["end", "front", "middle", "everywhere", "one file"],
)
def test_files_go_where_their_labels_say(
    months: list[Path], tmp_path: Path, before: list[int], after: list[int]
) -> None:
    whole = built(months, tmp_path / "whole")
    catalog = tmp_path / "cube.gridref"
    opened = built([months[i] for i in before], catalog)
    tables = files_in(catalog)
    grown = opened.append([months[i] for i in after])
    assert tables < files_in(catalog), "the tables that were there are not written again"
    assert grown.info.digest == whole.info.digest == gridref.open_catalog(catalog).info.digest
    assert_shows(catalog, months)
    assert_shows(tmp_path / "whole", months)
    assert opened["tas"].shape[0] == 5 * len(before)
    values = opened["tas"][...]  # the old snapshot goes on showing what it did
    assert np.array_equal(values[:5], grown["tas"][5 * before[0] : 5 * before[0] + 5])


def test_one_by_one_in_any_order_is_the_same(months: list[Path], tmp_path: Path) -> None:
    """Before, after and between, with and without knowing the labels at the ends."""
    whole = built(months, tmp_path / "whole")
    catalog = built(months[4:7], tmp_path / "cube")
    for number in (7, 3, 8, 1, 2, 9, 0, 11, 10):
        catalog = gridref.open_catalog(tmp_path / "cube").append(months[number])
    assert catalog.info.digest == whole.info.digest
    catalog = catalog.remove(months[11]).append(months[11]).replace(months[0])
    assert catalog.info.digest == whole.info.digest
    assert_shows(tmp_path / "cube", months)


def days(catalog: gridref.Catalog) -> list[str]:
    times = xr.open_dataset(catalog, engine="gridref")["time"].values
    return [str(time)[8:10] for time in times]


@pytest.mark.parametrize(("falls", "batch"), [(False, 1024), (True, 1024), (False, 3)])
def test_files_that_are_there_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, falls: bool, batch: int
) -> None:
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", batch)
    since = {"units": "days since 2000-01-01"}
    sign = -1 if falls else 1
    (old := tmp_path / "old").mkdir()
    (new := tmp_path / "new").mkdir()

    def two(n: int) -> list[float]:  # so that each file says whether labels rise or fall
        return [10.0 + sign * n, 10.0 + sign * (n + 0.5)]

    files = [steps(old, two(n), **since) for n in range(4)]
    catalog = built(files, tmp_path / "cube")
    old.rename(tmp_path / "tape")
    for n in (4, 5, 6, -1, 7, -2):
        catalog = gridref.open_catalog(tmp_path / "cube").append(steps(new, two(n), **since))
    with pytest.raises(SourceUnavailableError):  # it may go between them: all are looked at
        catalog.append(steps(new, [11.7], **since))
    (tmp_path / "tape").rename(old)
    expected = [label for n in range(-2, 8) for label in two(n)]
    assert catalog["time"][...].tolist() == expected
    assert catalog["v"][...].tolist() == [10 * label for label in expected]


def test_a_new_dimension_without_labels_grows(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.nc" for number in range(3)]
    for number, file in enumerate(files):
        xr.Dataset({"t": ("x", np.array([number, 7]))}, {"x": [5, 6]}).to_netcdf(file)
    gridref.build(files[:2], tmp_path / "c.gridref", "run")
    gridref.open_catalog(tmp_path / "c.gridref").append(files[2])
    with xr.open_dataset(tmp_path / "c.gridref", engine="gridref") as shown:
        assert shown["t"].dims == ("run", "x")
        assert shown["t"].values.tolist() == [[0, 7], [1, 7], [2, 7]]


def test_labels_that_are_stored_otherwise_are_looked_at(tmp_path: Path) -> None:
    (folder := tmp_path / "files").mkdir()
    files = [steps(folder, [float(n)], units="days since 2000-01-01") for n in range(4)]
    catalog = built(files, tmp_path / "cube")
    for first, units in ((4, "days since 2000-01-01"), (0, "days since 2000-01-06"),
                         (6, "days since 2000-01-01"), (-1, "days since 2000-01-01")):  # fmt: skip
        catalog = catalog.append(steps(folder, [float(first)], units=units))
    assert days(catalog) == ["31", "01", "02", "03", "04", "05", "06", "07"]
    grown = catalog.append(steps(folder, [8.0, 7.0], units="days since 2000-01-01"))
    assert days(grown)[-2:] == ["09", "08"]  # as they come in the file
    assert days(grown.append(steps(folder, [9.0], units="days since 2000-01-01")))[-1] == "10"


def test_what_is_there_is_not_scanned_again(
    months: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = built(months[:3], tmp_path / "cube")
    scanned: list[str] = []
    grown = catalog.append(
        months[:5], progress=lambda done, total: scanned.append(f"{done}/{total}")
    )
    assert scanned == ["1/2", "2/2"]
    assert [finding.source for finding in grown.report.skipped] == list(map(str, months[:3]))
    again = grown.append(months[:5])
    assert again.info.snapshot == grown.info.snapshot
    assert len(again.report.skipped) == 5


def test_files_that_do_not_fit_are_told_all_at_once_and_nothing_is_written(
    months: list[Path], tmp_path: Path
) -> None:
    catalog = built(months[:3], tmp_path / "cube")
    before = {path: path.read_bytes() for path in (tmp_path / "cube").iterdir()}
    bad = [
        month(tmp_path, 20, name="shifted", shift=0.5),
        month(tmp_path, 2, name="overlapping"),
    ]
    with pytest.raises(CombineError) as caught:
        catalog.append(bad)
    told = str(caught.value)
    assert "lat" in told
    assert "labels occur more than once" in told
    after = {path: path.read_bytes() for path in (tmp_path / "cube").iterdir()}
    assert {p: c for p, c in after.items() if p.suffix != ".lock"} == before


def test_labels_that_overlap_follow_the_rule(months: list[Path], tmp_path: Path) -> None:
    catalog = built(months[:3], tmp_path / "cube")
    other = month(tmp_path, 2, name="other", dtype="f8")
    grown = catalog.append(other, combine=gridref.CombineOptions(overlap="last", lossy=True))
    with xr.open_dataset(other) as expected:
        assert np.array_equal(grown["tas"][10:], expected.tas.values)
    assert grown["tas"].shape == (15, 4, 6)


def test_labels_inside_a_file_overlap_too(tmp_path: Path) -> None:
    for name, times in {"a": range(10), "b": [10, 5, 12]}.items():
        xr.Dataset({"v": ("time", [*times])}, {"time": [*times]}).to_netcdf(tmp_path / f"{name}.nc")
    catalog = gridref.build([tmp_path / "a.nc"], tmp_path / "cube", "time")
    with pytest.raises(CombineError, match="labels occur more than once: 5;"):
        catalog.append(tmp_path / "b.nc")


def test_index_variables_count_from_where_their_files_are(tmp_path: Path) -> None:
    files = []
    for number in range(4):
        times = 2 * number + np.arange(2)
        dataset = xr.Dataset({"index": ("time", [1, 0])}, {"time": times})
        dataset.to_netcdf(tmp_path / f"{number}.nc")
        files.append(tmp_path / f"{number}.nc")
    rules = gridref.CombineOptions(index_variables={"index": "time"})
    catalog = gridref.build(files, tmp_path / "cube", "time", combine=rules)
    pairs = [1, 0, 3, 2, 5, 4, 7, 6]
    assert catalog["index"][:].tolist() == pairs
    catalog = catalog.remove([files[0], files[2]])
    assert catalog["index"][:].tolist() == pairs[:4]
    catalog = catalog.append([files[2]])
    assert catalog["index"][:].tolist() == pairs[:6]
    assert catalog.append([files[0]])["index"][:].tolist() == pairs


def test_a_changed_file_is_not_passed_over(tmp_path: Path) -> None:
    files = [month(tmp_path, number) for number in range(2)]
    catalog = built(files, tmp_path / "cube")
    month(tmp_path, 1, shift=1)
    with pytest.raises(SourceChangedError, match="refresh"):
        catalog.append(files)


def test_variables_that_only_some_files_have(months: list[Path], tmp_path: Path) -> None:
    more = month(tmp_path, 12)
    with xr.open_dataset(more) as dataset:
        dataset.load().assign(pr=dataset.tas * 2).to_netcdf(tmp_path / "more.nc", engine="h5netcdf")
    files = [*months[:2], tmp_path / "more.nc"]
    gridref.build(files, tmp_path / "whole", "time", combine=gridref.CombineOptions(join="outer"))
    gridref.build(
        months[:2], tmp_path / "cube", "time", combine=gridref.CombineOptions(join="outer")
    )
    catalog = gridref.open_catalog(tmp_path / "cube")
    with pytest.raises(CombineError, match="pr"):
        catalog.append(tmp_path / "more.nc", combine=gridref.CombineOptions(join="exact"))
    grown = catalog.append(tmp_path / "more.nc")
    assert grown.info.digest == gridref.open_catalog(tmp_path / "whole").info.digest
    assert np.isnan(grown["pr"][:10]).all()
    assert np.array_equal(grown["pr"][10:], grown["tas"][10:] * 2)


def test_catalogs_that_do_not_say_how_they_were_built_name_the_dimension(
    months: list[Path], tmp_path: Path
) -> None:
    pair = gridref.concat([gridref.scan(file) for file in months[:2]], "time")
    write_catalog(pair, tmp_path / "two")
    two = gridref.open_catalog(tmp_path / "two")
    with pytest.raises(InvalidRequestError, match="name the dimension"):
        two.append(months[2])
    grown = two.append(months[2], concat_dim="time")
    assert grown.append(months[3]).info.digest == built(months[:4], tmp_path / "four").info.digest


@pytest.mark.parametrize("named", [{}, {"concat_dim": "time"}], ids=["found", "named"])
def test_catalogs_of_one_file_grow(
    months: list[Path], tmp_path: Path, named: dict[str, str]
) -> None:
    write_catalog(gridref.scan(months[0]), tmp_path / "one")
    grown = gridref.open_catalog(tmp_path / "one").append(months[1], **named)
    assert grown.append(months[2]).info.digest == built(months[:3], tmp_path / "three").info.digest


def test_in_several_dimensions(tmp_path: Path, months: list[Path]) -> None:
    with xr.open_mfdataset(
        months[:2], data_vars="minimal", coords="minimal", compat="override"
    ) as one:
        whole = one.load()
    for name, part in (("w", slice(0, 3)), ("e", slice(3, 6))):
        whole.isel(lon=part).to_netcdf(tmp_path / f"{name}.nc", engine="h5netcdf")
    catalog = tmp_path / "cube"
    gridref.build([tmp_path / "w.nc"], catalog, "time")
    gridref.open_catalog(catalog).append(tmp_path / "e.nc", concat_dim="lon")
    with xr.open_dataset(catalog, engine="gridref") as shown:
        xr.testing.assert_identical(shown.load().tas, whole.tas)


def test_the_command_appends_what_fits(months: list[Path], tmp_path: Path) -> None:
    catalog = tmp_path / "cube.gridref"
    assert run_command("build", *months[:2], "--concat-dim", "time", "-o", catalog).returncode == 0
    done = run_command("append", catalog, *months[1:4])
    assert done.returncode == 0, done.stderr
    assert "it is already in the catalog" in done.stderr
    assert_shows(catalog, months[:4])
    bad = run_command("append", catalog, month(tmp_path, 9, shift=0.5))
    assert bad.returncode == 1
    assert "lat" in bad.stderr
    assert_shows(catalog, months[:4])


def test_what_begins_to_differ_is_repeated_for_what_was_there(tmp_path: Path) -> None:
    files = []
    for number, n in enumerate((4, 3, 2)):
        ds = xr.Dataset(
            {
                "tas": ("time", np.arange(n) + 10.0 * number),
                "n_times": ((), np.int32(n)),
                "weights": ("weight", [float(n), 1.0]),
            },
            {"time": ("time", np.arange(n) + 10 * number, {"units": "days since 2000-01-01"})},
        )
        files.append(tmp_path / f"{number}.nc")
        ds.to_netcdf(files[-1], unlimited_dims=["time"])
    catalog = tmp_path / "cube.gridref"
    options = gridref.CombineOptions(variables="different")
    gridref.build(files[:1], catalog, "time", combine=options)
    for path in files[1:]:
        gridref.open_catalog(catalog).append(path)
    opened = [xr.open_dataset(path) for path in files]
    expected = xr.concat(opened, "time", data_vars="all", coords="minimal", compat="equals")
    with xr.open_dataset(catalog) as found:
        xr.testing.assert_equal(found.load(), expected)


DAYS = {"units": "days since 2001-01-01", "calendar": "standard"}


def dataset_of_days(first: int, n: int = 2, **coords: object) -> xr.Dataset:
    values = np.arange(first, first + n)[:, None] + np.arange(3) / 10
    times = ("time", np.arange(first, first + n), DAYS)
    return xr.Dataset({"t": (("time", "x"), values)}, {"time": times, "x": [0, 1, 2], **coords})


def in_parts(folder: Path) -> list[Path]:
    for first in (0, 2, 4):
        dataset_of_days(first).to_netcdf(folder / f"part{first}.nc")
    return sorted(folder.iterdir())


def backwards(folder: Path) -> list[Path]:
    return in_parts(folder)[::-1]


def scalars(folder: Path) -> list[Path]:
    for day in range(3):
        ds = dataset_of_days(day, 1).isel(time=0)
        ds["time"].attrs["standard_name"] = "time"
        ds.to_netcdf(folder / f"one{day}.nc")
    return sorted(folder.iterdir())


def dates(folder: Path) -> list[Path]:
    for day in range(3):
        dataset_of_days(day, 1).isel(time=0, drop=True).to_netcdf(folder / f"t_2001010{day + 1}.nc")
    return sorted(folder.iterdir())


def records(folder: Path) -> list[Path]:
    for first in range(3):
        ds = dataset_of_days(first).drop_vars("time")
        ds.to_netcdf(folder / f"run{first}.nc", unlimited_dims=["time"])
    return sorted(folder.iterdir())


def members(folder: Path) -> list[Path]:
    for member in (1, 2, 3):
        (dataset_of_days(0) * member).to_netcdf(folder / f"r{member}.nc")
    return sorted(folder.iterdir())


@pytest.mark.parametrize("kind", [in_parts, backwards, scalars, dates, records, members])
@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "together"])
def test_files_are_added_as_they_would_be_built(
    kind: Callable[[Path], list[Path]], at_once: bool, tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    first, *later = kind(tmp_path / "files")
    gridref.build(first, tmp_path / "cube.gridref")
    for files in [later] if at_once else [[file] for file in later]:
        gridref.open_catalog(tmp_path / "cube.gridref").append(files)
    gridref.build([first, *later], tmp_path / "whole.gridref")
    with (
        xr.open_dataset(tmp_path / "cube.gridref") as grown,
        xr.open_dataset(tmp_path / "whole.gridref") as whole,
        xr.open_mfdataset(
            sorted([first, *later]), combine="nested", concat_dim="n", join="outer"
        ) as parts,
    ):
        xr.testing.assert_identical(grown.load(), whole.load())
        if kind in (scalars, dates, members):
            assert grown["t"].shape == parts["t"].shape
            np.testing.assert_array_equal(grown["t"].values, parts["t"].values)
        else:
            expected = [xr.open_dataset(file)["t"].values for file in sorted([first, *later])]
            np.testing.assert_array_equal(grown["t"].values, np.concatenate(expected))
    one, other = (gridref.open_catalog(tmp_path / f"{name}.gridref") for name in ("cube", "whole"))
    assert one.info.digest == other.info.digest


def test_several_answers_are_listed_and_asked_for(tmp_path: Path) -> None:
    for day in ("010203", "010204"):
        dataset_of_days(0, 1).isel(time=0, drop=True).to_netcdf(tmp_path / f"run_{day}.nc")
    first, second = sorted(tmp_path.iterdir())
    catalog = tmp_path / "cube.gridref"
    gridref.build(first, catalog)
    with pytest.raises(UnclearLayoutError, match="fit several layouts") as error:
        gridref.open_catalog(catalog).append(second)
    assert gridref.open_catalog(catalog).arrays["t"].shape == (3,)
    grown = gridref.open_catalog(catalog).append(second, **error.value.choices[0])
    assert grown.arrays["t"].shape == (2, 3)


def test_what_does_not_fit_is_a_problem_and_nothing_is_written(tmp_path: Path) -> None:
    first, second, _ = in_parts(tmp_path)
    xr.open_dataset(second).load().assign_coords(x=[0, 1, 5]).to_netcdf(tmp_path / "other.nc")
    catalog = tmp_path / "cube.gridref"
    before = gridref.build(first, catalog)
    with pytest.raises(CombineError):
        gridref.open_catalog(catalog).append(tmp_path / "other.nc")
    assert gridref.open_catalog(catalog).arrays["t"].shape == before.arrays["t"].shape


def four_days(folder: Path, name: str, first: int, dtype: str = "f4", **attrs: Any) -> str:
    """A file of four days in two chunks."""
    values = np.random.default_rng(first).random((4, 4)) * 100
    time = np.arange(first, first + 4.0), {"units": "days since 2000-01-01"}
    storage = {"chunks": (2, 4), "compression": "gzip"}
    v = ("time", "x"), values.astype(dtype), attrs, storage
    return str(write_hdf5(folder / f"{name}.h5", {"time": time, "x": np.arange(4.0)}, {"v": v}))


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


def assert_shows_values(
    catalog: gridref.Catalog, files: Sequence[str], decode: bool = False
) -> None:
    """What xarray shows of the files in their order, unpacked one by one if need be."""
    opened = [xr.open_dataset(file, engine="h5netcdf", mask_and_scale=decode) for file in files]
    expected = np.concatenate([dataset.v.values for dataset in opened])
    np.testing.assert_array_equal(catalog["v"][...], expected)
    assert catalog["v"].dtype == expected.dtype


def test_files_that_widen_the_dtype(tmp_path: Path) -> None:
    files = [four_days(tmp_path, f"a{n}", 4 * n) for n in range(3)]
    files += [four_days(tmp_path, "b", 12, "f8"), four_days(tmp_path, "c", 16)]
    catalog = grown(tmp_path, files[:3], files[3:], concat_dim="time")
    # Two chunks of v and one of time for each file; x is in the first part.
    assert rows_written(catalog) == [10, 3, 3]
    assert_shows_values(catalog, files)


def test_files_that_are_packed_otherwise(tmp_path: Path) -> None:
    files = [
        four_days(tmp_path, "a", 0, "i2", scale_factor=0.5),
        four_days(tmp_path, "b", 4, "i2", scale_factor=0.25, _FillValue=np.int16(7)),
        four_days(tmp_path, "c", 8, "i2", scale_factor=0.125),
    ]
    catalog = grown(tmp_path, files[:1], files[1:], concat_dim="time")
    assert rows_written(catalog) == [4, 3, 3]
    assert_shows_values(catalog, files, decode=True)


def two_days(folder: Path, first: int, dtype: str, fill: int, n_chunk: int = 2) -> str:
    """A file whose values are days, and whose fill value is HDF5's, no attribute."""
    days = np.arange(first, first + 2.0)
    storage = {"chunks": (n_chunk,), "fillvalue": fill}
    v = ("time",), days.astype(dtype), {}, storage
    path = folder / f"{first}_{dtype[1:]}.h5"
    return str(write_hdf5(path, {"time": days}, {"v": v}))


def test_encodings_that_become_equal_keep_their_places(tmp_path: Path) -> None:
    later = [(40, "<i4", 0), (60, "<i4", 7), (30, "<i4", 7), (70, "<i4", 0), (20, "<i4", 0)]
    catalog = gridref.build(two_days(tmp_path, 50, "<i4", 7), tmp_path / "cube", "time")
    for first, dtype, fill in [*later, (80, ">i4", 0), (90, "<i4", 3)]:
        catalog = catalog.append(two_days(tmp_path, first, dtype, fill))
        np.testing.assert_array_equal(catalog["v"][...], catalog["time"][...])


def test_what_files_that_are_gone_were_stored_as_is_of_no_account(tmp_path: Path) -> None:
    files = [two_days(tmp_path, 10, "<i2", -32767), two_days(tmp_path, 20, "<i2", -32767, 1)]
    catalog = gridref.build(files, tmp_path / "cube", "time")
    catalog = catalog.replace(files[0], two_days(tmp_path, 10, "<i4", -(2**31) + 1))
    catalog = catalog.append(two_days(tmp_path, 0, "<i2", -32767))
    np.testing.assert_array_equal(catalog["v"][...], catalog["time"][...])


@pytest.mark.parametrize(("overlap", "n_rows"), [("first", 2), ("keep", 3), ("last", 4)])
def test_labels_that_overlap(tmp_path: Path, overlap: str, n_rows: int) -> None:
    files = [four_days(tmp_path, f"a{n}", 4 * n) for n in range(3)]
    other = four_days(tmp_path, "b", 10)
    catalog = grown(tmp_path, files, [other], concat_dim="time", overlap=overlap)
    # A block of before that comes to show less of its rows is written again.
    assert rows_written(catalog) == [10, n_rows]
    with xr.open_dataset(other) as dataset:
        shown = dataset.v.values
    at = {"first": slice(12, 14), "keep": slice(12, 16), "last": slice(10, 14)}[overlap]
    mine = shown[2:] if overlap == "first" else shown
    np.testing.assert_array_equal(catalog["v"][at], mine)


def test_labels_that_repeat_in_the_catalog_alone_were_accepted(tmp_path: Path) -> None:
    files = [four_days(tmp_path, f"a{n}", 4 * n) for n in (0, 1, 3)]
    over = four_days(tmp_path, "b", 2)
    gridref.build(files[:2], tmp_path / "cube")
    catalog = gridref.open_catalog(tmp_path / "cube")
    with pytest.raises(CombineError, match="more than once"):
        catalog.append(over)
    catalog = catalog.append(over, combine=gridref.CombineOptions(overlap="keep"))
    catalog = catalog.append(files[2])
    assert_shows_values(catalog, [*files[:2], over, files[2]])
    assert len(set(catalog.report().column("cause").to_pylist())) == 2  # layout and overlap
    with pytest.raises(CombineError, match="more than once"):
        catalog.append(four_days(tmp_path, "c", 13))
    with pytest.raises(InvalidRequestError, match="in the catalog repeat"):
        catalog.declare("time", [np.datetime64("2001-01-01", "ns")])


def told(catalog: gridref.Catalog, cause: str) -> list[tuple[str, int]]:
    """Values that the report of a catalog lists for a cause, with their numbers of files."""
    rows = catalog.report().to_pylist()
    return [(row["value"], row["n_files"]) for row in rows if row["cause"] == cause]


@pytest.mark.parametrize("layout", [gridref.Stack("member"), None])
def test_a_member_of_an_ensemble_does_not_differ_from_the_others(
    tmp_path: Path, layout: gridref.Stack | None
) -> None:
    for member in range(4):
        values = xr.DataArray(np.full((2, 3), member), dims=("time", "x"))
        if member == 3:
            values = values.transpose()
        dataset = xr.Dataset({"tas": values}, {"realization": member, "time": [0, 1]})
        dataset.to_netcdf(tmp_path / f"{member}.nc")
    files = [tmp_path / f"{member}.nc" for member in range(4)]
    whole = gridref.build(files[:3], tmp_path / "whole.gridref", layout=layout)
    cube = gridref.build(files[:2], tmp_path / "cube.gridref", layout=layout)
    grown = cube.append(files[2])
    told = [{**row, "n_files": 0} for row in whole.report().to_pylist() if row["cause"] != "layout"]
    kept = [{**row, "n_files": 0} for row in grown.report().to_pylist() if row["cause"] != "layout"]
    assert kept == told
    assert ("repeated" in {row["cause"] for row in kept}) == (layout is not None)
    turned = grown.append(files[3]).report().to_pylist()
    assert ("dimensions", "tas") in {(row["cause"], row["variable"]) for row in turned}


def test_gaps_that_are_filled_are_reported_no_more(tmp_path: Path) -> None:
    files = [four_days(tmp_path, f"a{n}", 4 * n) for n in range(8)]
    gridref.build([files[0], files[3], files[5], files[7]], tmp_path / "cube")
    catalog = gridref.open_catalog(tmp_path / "cube")

    def days(first: int, last: int) -> str:
        return f"nothing between 2000-01-{first:02} and 2000-01-{last:02}"

    assert told(catalog, "gap") == [(days(4, 13), 2), (days(16, 21), 2), (days(24, 29), 2)]
    catalog = catalog.append(files[4])
    assert told(catalog, "gap") == [(days(4, 13), 2), (days(24, 29), 2)]
    catalog = catalog.append(files[1])  # a part of the first one is left
    assert told(catalog, "gap") == [(days(24, 29), 2), (days(8, 13), 1)]
    catalog = catalog.append([files[2], files[6]])
    assert told(catalog, "gap") == []


def test_holes_that_are_filled_are_reported_no_more(
    tmp_path: Path, run_of_member: Callable[..., str]
) -> None:
    files = [run_of_member(member, 3 * n) for member in (1, 2, 3) for n in range(3)]
    options = by_name(concat_dim=["member", "time"], pattern="m{member:d}_{_}.nc")
    gridref.build(files[:4], tmp_path / "cube", **options)
    catalog = gridref.open_catalog(tmp_path / "cube")
    assert len(told(catalog, "hole")) > 0
    catalog = catalog.append(files[4])
    ((left, n_files),) = set(told(catalog, "hole"))
    assert (left.startswith("nothing for (member 2, "), n_files) == (True, 1)
    catalog = catalog.append(files[5:])
    assert told(catalog, "hole") == []


def test_what_is_known_of_values_is_forgotten_where_they_are_decoded_otherwise(
    tmp_path: Path,
) -> None:
    files = [four_days(tmp_path, "a", 0, "i2", scale_factor=0.1)]
    gridref.build(files, tmp_path / "cube", "time")
    catalog = gridref.open_catalog(tmp_path / "cube").scan_values()
    assert catalog.chunks("v")["n_valid"].null_count == 0
    alike = catalog.append(four_days(tmp_path, "b", 4, "i2", scale_factor=0.1))
    assert alike.chunks("v")["n_valid"].null_count == 2
    other = alike.append(four_days(tmp_path, "c", 8, "i2", scale_factor=np.float32(0.1)))
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
    gridref.build(files[:4] + files[5:], tmp_path / "holed", layout=gridref.Mosaic())
    told = run_command("info", tmp_path / "holed").stdout
    assert "blocks in no file: 1 (they read as the fill value)" in told
    rows = [line.split("┃")[1:4] for line in told.splitlines() if line.startswith("┃")]
    dotted = [["·" in cell for cell in row] for row in rows]
    assert dotted == [[False] * 3] * 2 + [[False, True, False]] * 2 + [[False] * 3] * 2
    catalog = grown(tmp_path, files[:4] + files[5:], files[4:5], mosaic=True)
    assert_merged(catalog, files)
    assert "in no file" not in run_command("info", tmp_path / "cube").stdout
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
def run_of_member(tmp_path: Path) -> Callable[..., str]:
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


def test_members_and_times_of_one_member(tmp_path: Path, run_of_member: Callable[..., str]) -> None:
    files = [run_of_member(member, first) for member in (1, 2) for first in (0, 3)]
    later = [
        run_of_member(1, 6),
        run_of_member(3, 3),
        run_of_member(0, 0),
        run_of_member(2, 6, "f8"),
    ]
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
    odd = np.concatenate([[0.0], 2 * np.arange(300.0) + 1])
    write_hdf5(tmp_path / "odd.h5", {"time": odd}, {"v": (["time"], odd)})
    catalog = gridref.open_catalog(tmp_path / "cube").append(
        tmp_path / "odd.h5", concat_dim="time", combine=gridref.CombineOptions(overlap="first")
    )
    np.testing.assert_array_equal(catalog["v"][...], np.arange(600.0))
    assert max(map(len, catalog.snapshot.shared.layouts)) == 1


ALL_DAYS = np.datetime64("2000-01-01") + np.arange(60)


def pending_days(catalog: gridref.Catalog) -> list[int]:
    rows = catalog.chunks("tas", state="pending").to_pylist()
    return sorted(day for row in rows for day in range(row["start"][0], row["stop"][0]))


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_files_come_in_any_order(months: list[Path], tmp_path: Path, seed: int) -> None:
    order = list(range(12))
    random.Random(seed).shuffle(order)
    catalog = built([months[order[0]]], tmp_path / "cube").declare("time", ALL_DAYS)
    assert catalog.history()[0].operation == "declare"
    come = {order[0]}
    for number in order[1:]:
        shown = xr.open_dataset(tmp_path / "cube", engine="gridref")
        assert np.array_equal(shown["time"].values, ALL_DAYS)
        for each in range(12):
            days = slice(5 * each, 5 * each + 5)
            if each in come:
                with xr.open_dataset(months[each], engine="netcdf4") as file:
                    assert np.array_equal(shown["tas"][days], file["tas"])
            else:
                assert np.isnan(catalog["tas"][days]).all()
        expected = [day for day in range(60) if day // 5 not in come]
        assert (
            pending_days(catalog)
            == pending_days(gridref.open_catalog(tmp_path / "cube"))
            == expected
        )
        catalog = catalog.append(months[number])
        come.add(number)
    assert pending_days(catalog) == []
    assert_shows(tmp_path / "cube", months)
    whole = built(months, tmp_path / "whole")
    assert catalog.info.digest == whole.info.digest
    assert json.loads((tmp_path / "cube" / "gridref.json").read_text())["features"] == []


def test_strict_readers_raise(months: list[Path], tmp_path: Path) -> None:
    built(months[3:4], tmp_path / "cube").declare("time", ALL_DAYS[:30])
    strict = gridref.open_catalog(tmp_path / "cube", pending="raise")
    with xr.open_dataset(months[3], engine="netcdf4") as file:
        assert np.array_equal(strict["tas"][15:20], file["tas"])
        for shown in (
            xr.open_dataset(strict, engine="gridref"),
            xr.open_dataset(pickle.loads(pickle.dumps(strict)), engine="gridref"),
            xr.open_zarr(gridref.open_store(strict)),
            xr.open_zarr(gridref.open_store(strict, "portable", chunks={"time": 5})),
        ):
            assert np.array_equal(shown["time"].values, ALL_DAYS[:30])
            assert np.array_equal(shown["tas"][15:20].values, file["tas"].values)
            for days in (slice(0, 1), slice(14, 20), slice(None)):
                with pytest.raises(BlockPendingError, match=r"declared ahead.*tas"):
                    shown["tas"][days].load()
    with pytest.raises(InvalidRequestError, match="pending"):
        gridref.open_catalog(tmp_path / "cube", pending="no")  # type: ignore[arg-type]


@pytest.mark.parametrize("is_stated", [True, False])
@pytest.mark.parametrize("starts", [(0, 4), (4, 0)])
def test_pending_stays_pending_whatever_fill_value_it_read_as(
    starts: tuple[int, int], is_stated: bool, tmp_path: Path
) -> None:
    def write(first: int, fill: int) -> Path:
        time = np.arange(first, first + 4.0), {"units": "days since 2000-01-01"}
        attrs = {"_FillValue": np.int16(fill)} if is_stated else {}
        v = ("time",), np.arange(4, dtype="i2"), attrs, {"fillvalue": fill}
        return write_hdf5(tmp_path / f"{first}.h5", {"time": time}, {"v": v})

    days = np.datetime64("2000-01-01") + np.arange(20)
    catalog = gridref.build(write(starts[0], -1), tmp_path / "cube", "time").declare("time", days)
    catalog.append(write(starts[1], -2))
    strict = gridref.open_catalog(tmp_path / "cube", pending="raise")
    np.testing.assert_array_equal(strict["v"][:8], [*range(4)] * 2)
    with pytest.raises(BlockPendingError):
        strict["v"][8:]


def test_pending_is_not_missing(months: list[Path], tmp_path: Path) -> None:
    other = tmp_path / "other.nc"
    with xr.open_dataset(months[1], decode_times=False) as file:
        file.drop_vars("tas").to_netcdf(other, engine="h5netcdf")
    gridref.build(
        [months[0], other], tmp_path / "cube", "time", combine=gridref.CombineOptions(join="outer")
    )
    catalog = gridref.open_catalog(tmp_path / "cube").declare("time", ALL_DAYS[:15])
    assert pending_days(catalog) == [10, 11, 12, 13, 14]
    missing = catalog.chunks("tas", state="missing")
    assert [row[0] for row in missing["start"].to_pylist()] == [5]
    listed = run_command(
        "list", tmp_path / "cube", "chunks", "tas", "--state", "pending", "--format", "jsonl"
    )
    assert len(listed.stdout.splitlines()) == 5
    strict = gridref.open_catalog(tmp_path / "cube", pending="raise")
    assert np.isnan(strict["tas"][5:10]).all()


def test_more_can_be_declared_and_what_was_not_declared_can_come(
    months: list[Path], tmp_path: Path
) -> None:
    catalog = built(months[2:3], tmp_path / "cube").declare("time", ALL_DAYS[10:20])
    assert catalog.declare("time", ALL_DAYS[10:20]).info.snapshot == catalog.info.snapshot
    catalog = catalog.append(months[0])  # in front
    catalog = catalog.append(months[11])  # behind
    assert pending_days(catalog) == [10, 11, 12, 13, 14]
    catalog = catalog.declare("time", ALL_DAYS[::-1][:40])  # where nothing is, in any order
    assert catalog["tas"].shape[0] == 55
    catalog = catalog.remove(months[0]).rollback()
    for number in (3, 10, 9, 8, 7, 6, 5, 4):
        catalog = catalog.append(months[number])
    assert pending_days(catalog) == []
    assert_shows(tmp_path / "cube", [months[0], *months[2:]])


def test_what_is_pending_outlives_other_changes(months: list[Path], tmp_path: Path) -> None:
    catalog = built(months[:2], tmp_path / "cube").declare("time", ALL_DAYS[10:25])
    for number in range(6, 12):
        catalog = catalog.append(months[number])
    catalog = catalog.remove(months[0])
    assert pending_days(catalog) == list(range(5, 20))
    later = catalog.append([months[3], months[2]])
    assert pending_days(later) == list(range(15, 20))
    assert pending_days(later.rollback()) == list(range(5, 20))
    with xr.open_dataset(later, engine="gridref") as shown:
        assert np.array_equal(shown["time"].values, ALL_DAYS[[*range(5, 25), *range(30, 60)]])


def test_files_that_do_not_fit_leave_what_is_pending(months: list[Path], tmp_path: Path) -> None:
    catalog = built(months[:1], tmp_path / "cube").declare("time", ALL_DAYS[:20])
    folder = tmp_path / "bad"
    folder.mkdir()
    with pytest.raises(CombineError, match="lat"):
        catalog.append(month(folder, 2, shift=1))
    assert pending_days(gridref.open_catalog(tmp_path / "cube")) == list(range(5, 20))
    astride = folder / "astride.nc"  # a day that is there, and four that are pending
    with xr.open_dataset(months[1], decode_times=False) as file:
        file.load().assign_coords(time=("time", np.arange(5) + 4, file.time.attrs)).to_netcdf(
            astride, engine="h5netcdf"
        )
    with pytest.raises(InvalidRequestError, match="do not fit in one piece"):
        catalog.append(astride)


def test_labels_that_cannot_be_kept(months: list[Path], tmp_path: Path) -> None:
    catalog = built(months[:1], tmp_path / "cube")
    with pytest.raises(InvalidRequestError, match="are not the same as int64"):
        catalog.declare("time", np.array(["2000-02-01T12:00"], "M8[s]"))
    with pytest.raises(InvalidRequestError, match="grows along 'time', not 'lat'"):
        catalog.declare("lat", [7.0])
    with pytest.raises(InvalidRequestError, match=r"do not fit the type|are not the same"):
        catalog.declare("time", ["tomorrow"])


def test_calendars_and_falling_labels(tmp_path: Path) -> None:
    def write(name: str, days: list[int]) -> Path:
        attrs = {"units": "days since 2001-01-01", "calendar": "360_day"}
        dataset = xr.Dataset(
            {"v": (("time", "x"), np.array(days, "f8")[:, None] + np.zeros(2))},
            coords={"time": ("time", np.array(days, "i4"), attrs)},
        )
        dataset.to_netcdf(tmp_path / name, engine="h5netcdf")
        return tmp_path / name

    catalog = built([write("a.nc", [9, 8]), write("b.nc", [7, 6])], tmp_path / "cube")
    labels = [cftime.Datetime360Day(2001, 1, 1 + day) for day in (1, 2, 3, 10, 11)]
    catalog = catalog.declare("time", labels)
    assert catalog["time"][...].tolist() == [11, 10, 9, 8, 7, 6, 3, 2, 1]
    catalog = catalog.append(write("c.nc", [3, 2])).append(write("d.nc", [11, 10]))
    assert catalog["v"][:, 0].tolist()[:-1] == [11, 10, 9, 8, 7, 6, 3, 2]
    rows = catalog.chunks("v", state="pending").to_pylist()
    assert [row["start"][0] for row in rows] == [8]


def test_on_the_command_line(months: list[Path], tmp_path: Path) -> None:
    cube = tmp_path / "cube"
    built(months[:1], cube)
    done = run_command("append", cube, "--declare", "time=2000-01-01/2000-01-20", "--step", "1D")
    assert done.returncode == 0, done.stderr
    assert pending_days(gridref.open_catalog(cube)) == list(range(5, 20))
    assert run_command("append", cube, months[3]).returncode == 0
    assert pending_days(gridref.open_catalog(cube)) == list(range(5, 15))
    refused = run_command("append", cube, "--declare", "time=2000-01-20/2000-01-01", "--step", "1D")
    assert (refused.returncode, "no labels" in refused.stderr) == (1, True)


def test_labels_of_a_stranger_that_repeat_are_all_claimed() -> None:
    times = VirtualArray.from_numpy(np.array([3, 5, 5, 7]), ("time",))
    file = VirtualArray.from_numpy(np.array([5, 9]), ("time",))
    groups = [gridref.VirtualGroup({"time": array}) for array in (times, file)]
    read = reader_for().read
    assert claimed(groups[0], groups[1:], "time", [(1, 2), (2, 4)], read) == [(1, 3)]


def watch(cube: Path, files: Any = None, *, storage_options: Any = None, **options: Any) -> Watch:
    return gridref.open_catalog(cube, storage_options=storage_options).watch(files, **options)


@pytest.fixture
def incoming(tmp_path: Path) -> Path:
    folder = tmp_path / "incoming"
    folder.mkdir()
    return folder


def test_what_is_new_is_appended(months: list[Path], incoming: Path, tmp_path: Path) -> None:
    cube = tmp_path / "cube"
    built(months[:1], cube)
    assert watch(cube, incoming, once=True).appended == ()  # nothing is there yet
    come = [shutil.copy2(file, incoming) for file in months[1:3]]
    assert sorted(watch(cube, incoming, once=True).appended) == list(map(str, come))
    before = gridref.open_catalog(cube).info.snapshot
    assert watch(cube, f"{incoming}/*.nc", once=True).snapshot == before
    assert_shows(cube, months[:3])


def test_folders_are_appended_once(months: list[Path], incoming: Path, tmp_path: Path) -> None:
    for file in months[:3]:
        with xr.open_dataset(file, decode_times=False) as ds:
            ds.drop_encoding().to_zarr(tmp_path / f"{file.stem}.zarr", consolidated=False)
    first, *others = sorted(tmp_path.glob("*.zarr"))
    gridref.build([first], tmp_path / "cube", "time", layout="nested")
    come = [str(shutil.copytree(folder, incoming / folder.name)) for folder in others]
    assert sorted(watch(tmp_path / "cube", incoming, once=True).appended) == come
    assert watch(tmp_path / "cube", incoming, once=True).appended == ()
    cube = gridref.open_catalog(tmp_path / "cube")
    assert cube.append(come).info.snapshot == cube.info.snapshot


def test_files_that_do_not_fit_are_told_and_tried_again(
    months: list[Path], incoming: Path, tmp_path: Path
) -> None:
    cube = tmp_path / "cube"
    built(months[:1], cube)
    shutil.copy2(months[1], incoming)
    month(incoming, 2, shift=1)
    (incoming / "half.nc").write_bytes(months[3].read_bytes()[:5000])  # is still being written
    done = run_command("watch", cube, incoming, "--once")
    assert done.returncode == 1
    assert done.stdout == f"appended {incoming / months[1].name}\n"
    assert "002.nc: 1 problem in combining:" in done.stderr
    assert "(see gridref --explain combine)" in done.stderr
    assert "half.nc: " in done.stderr
    shutil.copy2(months[3], incoming / "half.nc")
    month(incoming, 2)
    done = run_command("watch", cube, incoming, "--once")
    assert (done.returncode, done.stderr) == (0, "")
    assert_shows(cube, months[:4])


def test_what_watching_advises_can_be_given(
    months: list[Path], incoming: Path, tmp_path: Path
) -> None:
    cube = tmp_path / "cube"
    built(months[:1], cube)
    with xr.open_dataset(months[1], decode_times=False) as ds:
        ds.assign(other=ds.tas).to_netcdf(incoming / "1.nc")
    done = run_command("watch", cube, incoming, "--once")
    assert done.returncode == 1
    assert "--join outer" in done.stderr
    with pytest.raises(TypeError, match="overlaps"):
        watch(cube, incoming, once=True, overlaps="first")
    done = run_command("watch", cube, incoming, "--once", "--join", "outer", "--allow", "*")
    assert (done.returncode, done.stderr) == (0, "")
    shown = xr.open_dataset(f"gridref::{cube}", engine="zarr")
    assert shown.other.notnull().sum() == ds.tas.size


def test_files_that_are_written_to_are_left(
    months: list[Path], incoming: Path, tmp_path: Path
) -> None:
    built(months[:1], tmp_path / "cube")
    shutil.copy(months[1], incoming)
    young = watch(tmp_path / "cube", incoming, once=True, settle_seconds=3600)
    assert young.appended == ()
    os.utime(incoming / months[1].name, (1e9, 1e9))
    old = watch(tmp_path / "cube", incoming, once=True, settle_seconds=3600)
    assert len(old.appended) == 1


def test_events(months: list[Path], tmp_path: Path) -> None:
    cube, events = tmp_path / "cube", tmp_path / "events.txt"
    built(months[:1], cube)
    assert watch(cube, events=events, once=True).appended == ()
    events.write_text(f"{months[1]}\n\n{months[2]}\n{str(months[3])[:-5]}")  # a line is not whole
    assert len(watch(cube, events=events, once=True).appended) == 2
    events.write_text(f"{months[1]}\n{months[2]}\n{months[3]}\n")
    assert watch(cube, events=events, once=True).appended == (str(months[3]),)
    record = {"s3": {"bucket": {"name": "b"}, "object": {"key": "a+run%2B1/x.nc"}}}
    removed = {**record, "eventName": "ObjectRemoved:Delete"}
    events.write_text(json.dumps({"Records": [record, removed]}) + "\n")
    at_once = {"retries": {"total_max_attempts": 1}}
    s3 = {"endpoint_url": "http://127.0.0.1:9", "anon": True, "config_kwargs": at_once}
    options = {"s3": s3}
    failed = watch(cube, events=events, once=True, storage_options=options).failed
    assert list(failed) == ["s3://b/a run+1/x.nc"]
    events.write_text("{no json}\n")
    with pytest.raises(InvalidRequestError, match="cannot read this event"):
        watch(cube, events=events, once=True)
    assert_shows(cube, months[:4])


@pytest.mark.parametrize("is_longer", [False, True])
def test_events_go_on_in_a_file_that_was_rotated(
    months: list[Path], tmp_path: Path, is_longer: bool
) -> None:
    built(months[:1], tmp_path / "cube")
    events = tmp_path / "events.txt"
    events.write_text(f"{months[0]}\n{months[1]}\n")

    def rotate(done: Watch) -> None:
        assert len(done.appended) == 1
        if done.appended == (str(months[2]),):
            raise KeyboardInterrupt
        if is_longer:
            events.rename(tmp_path / "events.1")
        events.write_text(f"{months[2]}\n" * (1 + 3 * is_longer))

    with pytest.raises(KeyboardInterrupt):
        watch(tmp_path / "cube", events=events, every_seconds=0, on_round=rotate)


@pytest.mark.long
def test_it_goes_on_after_it_was_killed(months: list[Path], incoming: Path, tmp_path: Path) -> None:
    cube = tmp_path / "cube"
    built(months[:1], cube)
    command = [
        sys.executable,
        "-m",
        "gridref",
        "watch",
        str(cube),
        str(incoming),
        "--every",
        "0.1s",
    ]
    deadline = time.monotonic() + 90
    for number in range(1, 8):
        if number % 3 == 1:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        shutil.copy2(months[number], incoming / "draft")
        os.replace(incoming / "draft", incoming / months[number].name)
        if number % 3 == 0 or number == 7:
            assert process.stdout is not None
            process.stdout.readline()  # the moment after a commit, or while the next one is made
            process.send_signal(signal.SIGKILL if number == 3 else signal.SIGINT)
            process.wait(30)
            process.stdout.close()
            assert process.returncode == (-9 if number == 3 else 130)
        assert time.monotonic() < deadline
    assert run_command("watch", cube, incoming, "--once").returncode == 0
    assert_shows(cube, months[:8])


def test_bad_calls(months: list[Path], tmp_path: Path) -> None:
    with pytest.raises(CatalogNotFoundError):
        watch(tmp_path / "none", tmp_path, once=True)
    built(months[:1], tmp_path / "cube")
    with pytest.raises(InvalidRequestError, match="nothing to watch"):
        watch(tmp_path / "cube", once=True)
    assert run_command("watch", tmp_path / "none", tmp_path, "--once").returncode == 1
    assert run_command("watch", tmp_path / "none", tmp_path, "--every", "often").returncode == 1
