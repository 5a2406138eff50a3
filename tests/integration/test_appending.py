"""Catalogs that grow show what xarray shows of all files, and are what building at once makes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.api.catalog import write_catalog
from gridref.errors import (
    CombineError,
    InvalidRequestError,
    SourceChangedError,
    SourceUnavailableError,
)
from tests.command import run_command
from tests.integration.growing import assert_shows, built, files_in, month, steps

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


def test_one_after_the_other_is_the_same_as_all_at_once(months: list[Path], tmp_path: Path) -> None:
    whole = built(months, tmp_path / "whole")
    catalog = built(months[:1], tmp_path / "cube")
    for file in months[1:]:
        catalog = catalog.append(file)
    assert catalog.info.digest == whole.info.digest
    assert_shows(tmp_path / "cube", months)
    assert catalog.chunks("tas").drop(["source"]).equals(whole.chunks("tas").drop(["source"]))


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


def test_drift_is_resolved_as_in_build(months: list[Path], tmp_path: Path) -> None:
    wider = month(tmp_path, 3, name="wider", dtype="f8")
    whole = built([*months[:3], wider], tmp_path / "whole")
    grown = built(months[:3], tmp_path / "cube").append(wider)
    assert grown.info.digest == whole.info.digest
    assert grown["tas"].dtype == np.float64
    assert_shows(tmp_path / "cube", [*months[:3], wider])


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


def test_on_the_command_line(months: list[Path], tmp_path: Path) -> None:
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
