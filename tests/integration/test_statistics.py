"""What is known of the values of chunks is what xarray shows, and leads to where values lie."""

from __future__ import annotations

import json
import os
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pyarrow as pa
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import gridref
from gridref.errors import (
    CatalogVersionError,
    InvalidRequestError,
    ReadError,
    SourceChangedError,
)
from tests.command import run_command
from tests.integration.growing import built, files_in, month

N_MONTHS = 20


def shown_by_xarray(files: list[Path]) -> xr.Dataset:
    return xr.open_mfdataset(
        files, engine="netcdf4", decode_times=False, data_vars="minimal", coords="minimal",
        compat="override", join="exact", combine="nested", concat_dim="time",
    )  # fmt: skip


def assert_known(catalog: gridref.Catalog, path: str, shown: xr.Dataset) -> None:
    """Every chunk's statistics are those of what xarray's netCDF4 engine shows there."""
    values = shown[path].values
    for row in catalog.chunks(path).to_pylist():
        chunk = values[tuple(map(slice, row["start"], row["stop"]))]
        valid = chunk[~np.isnan(chunk)] if chunk.dtype.kind == "f" else chunk.reshape(-1)
        assert row["n_valid"] == valid.size
        assert row["min"] == (float(valid.min()) if valid.size else None)
        assert row["max"] == (float(valid.max()) if valid.size else None)


def test_values_of_chunks_are_recorded(months: list[Path], tmp_path: Path) -> None:
    before = built(months[:3], tmp_path / "cube")
    assert before.chunks("tas", columns=["n_valid"]).column(0).null_count == 18
    calls: list[tuple[int, int]] = []
    after = before.scan_values(progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (calls[-1][1], calls[-1][1])
    assert after.info.digest == before.info.digest
    assert after.history()[0].operation == "statistics"
    for catalog in (after, gridref.open_catalog(tmp_path / "cube")):
        with shown_by_xarray(months[:3]) as shown:
            for path in ("tas", "time"):
                assert_known(catalog, path, shown)
    summed = {row["path"]: row for row in after.statistics().to_pylist()}
    assert summed["tas"]["n_known"] == summed["tas"]["n_chunks"] == 18
    assert summed["tas"]["n_valid"] == 360
    again = after.scan_values()
    assert again.info.snapshot == after.info.snapshot  # there was nothing to look at


def test_packed_values_and_missing_ones(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "packed.nc", "w") as file:
        file.createDimension("x", 8)
        packed = file.createVariable("v", "i2", ("x",), fill_value=-1, chunksizes=(2,))
        packed.setncatts({"scale_factor": np.float32(-0.1), "add_offset": np.float32(7)})
        packed.set_auto_maskandscale(False)
        packed[:] = [5, 9, -1, -1, 3, -1, 0, 300]
        big = file.createVariable("big", "i8", ("x",), chunksizes=(4,))
        big[:] = 2**53 + np.arange(8)
        file.createVariable("text", "S1", ("x",))[:] = b"a"
    gridref.build(tmp_path / "packed.nc", tmp_path / "cube")
    catalog = gridref.open_catalog(tmp_path / "cube").scan_values()
    with xr.open_dataset(tmp_path / "packed.nc", engine="netcdf4") as shown:
        assert_known(catalog, "v", shown)
    low, high = catalog.chunks("big").to_pylist()
    assert (low["min"], low["max"]) == (2.0**53, 2.0**53 + 4)  # 2**53 + 3 is no float64
    assert high["max"] >= 2**53 + 7
    assert catalog.chunks("text", columns=["n_valid"]).column(0).null_count == 1
    assert catalog.find("v", "< -20") == [{"x": slice(6, 8)}]


CONDITIONS = ["> 305", ">= 305", "< 255", "== 280", "> 270 and < 271", "<= 1e3", "> 1e3"]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_values_are_nowhere_but_in_what_is_found(
    months: list[Path], tmp_path: Path, condition: str
) -> None:
    catalog = built(months[:6], tmp_path / "cube").scan_values(["tas"])
    values = xr.open_dataset(catalog, engine="gridref")["tas"].values
    wanted = np.logical_and.reduce([eval(f"values {part}") for part in condition.split(" and ")])
    found = np.zeros(values.shape, bool)
    for box in catalog.find("tas", condition):
        chosen = tuple(box[dim] for dim in ("time", "lat", "lon"))
        assert not found[chosen].any()
        found[chosen] = True
    assert not (wanted & ~found).any()
    if condition.endswith("1e3"):
        assert np.array_equal(found, wanted)


@given(
    values=st.lists(st.floats(-1e3, 1e3, width=32) | st.just(np.nan), min_size=3, max_size=30),
    number=st.floats(-1e3, 1e3),
    operator=st.sampled_from([">", ">=", "<", "<=", "=="]),
)
def test_nothing_is_passed_over(
    tmp_path_factory: pytest.TempPathFactory, values: list[float], number: float, operator: str
) -> None:
    folder = tmp_path_factory.mktemp("values")
    data = np.array(values, "f4")
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("v", data=data, chunks=(3,))
    gridref.build(folder / "a.h5", folder / "cube")
    catalog = gridref.open_catalog(folder / "cube").scan_values()
    (dim,) = catalog["v"].dims
    found = np.zeros(len(data), bool)
    for box in catalog.find("v", f"{operator} {number!r}"):
        found[box[dim]] = True
    assert not (eval(f"data {operator} number") & ~found).any()


def test_xarray_reads_only_what_may_hold_such_values(tmp_path: Path) -> None:
    """Other chunks are made unreadable: whoever reads one ends in an error."""
    rng = np.random.default_rng(1)
    path = tmp_path / "a.nc"
    values = rng.normal(280, 5, (12, 8)).astype("f4")
    values[values > 285] = 285
    values[5, 3:7], values[9, 0], values[0, 0] = 300, 290, np.nan
    data = xr.DataArray(values, dims=("y", "x"), attrs={"units": "K"})
    data.assign_coords(y=np.arange(12)).to_dataset(name="v").to_netcdf(
        path, engine="h5netcdf", encoding={"v": {"chunksizes": (3, 4), "zlib": True}}
    )
    gridref.build(path, tmp_path / "cube")
    catalog = gridref.open_catalog(tmp_path / "cube").scan_values()
    whole = xr.open_dataset(path, engine="netcdf4").load()
    before = path.stat()
    with path.open("r+b") as file:
        for row in catalog.chunks("v").to_pylist():
            if row["max"] <= 285:
                file.seek(row["offset"])
                file.write(bytes(row["length"]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    dataset = xr.open_dataset(catalog, engine="gridref")
    pieces = (slice(None), slice(4, 11), slice(None, None, -1), slice(11, 4, -2), [9, 2, 4])
    for y in pieces:
        shown, expected = dataset.isel(y=y), whole.v.isel(y=y)
        found = shown.gridref.where("v", "> 285")
        xr.testing.assert_identical(found, expected.where(expected > 285))
        assert found.notnull().any()
        both = shown.gridref.where("v", "> 285 and <= 290")
        xr.testing.assert_identical(both, expected.where((expected > 285) & (expected <= 290)))
    assert dataset.isel(y=slice(0, 0)).gridref.where("v", "> 285").equals(whole.v[:0])
    with pytest.raises(ReadError):
        dataset["v"].load()


def test_where_asks_for_what_is_known(tmp_path: Path) -> None:
    packed = {"dtype": "i2", "scale_factor": 0.1, "_FillValue": -1, "chunksizes": (4,)}
    data = {"v": ("x", np.arange(8) / 10), "t": ("x", np.arange(8).astype("M8[ns]"))}
    xr.Dataset(data).to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding={"v": packed})
    gridref.build(tmp_path / "a.nc", tmp_path / "cube")
    catalog = gridref.open_catalog(tmp_path / "cube").scan_values()
    raw = xr.open_dataset(catalog, engine="gridref", mask_and_scale=False)
    shown = xr.open_dataset(catalog, engine="gridref")
    xr.testing.assert_identical(shown.gridref.where("v", "> 0.45"), shown.v.where(shown.v > 0.45))
    for dataset, name, message in (
        (raw, "v", "has _FillValue, scale_factor as attributes"),
        (shown, "t", "is shown as datetime64"),
        (shown.copy().compute(), "v", "is loaded, not virtual"),
    ):
        with pytest.raises(InvalidRequestError, match=message):
            dataset.gridref.where(name, "> 1")


def test_bad_questions(months: list[Path], tmp_path: Path) -> None:
    catalog = built(months[:1], tmp_path / "cube")
    with pytest.raises(InvalidRequestError, match="no statistics of its values"):
        catalog.find("tas", "> 3")
    for condition in ("3", "> x", "> nan", "", "> 3 and", "!= 3"):
        with pytest.raises(InvalidRequestError, match="a condition is written like"):
            catalog.find("tas", condition)
    with pytest.raises(InvalidRequestError, match="did you mean 'tas'"):
        catalog.find("tss", "> 3")
    with pytest.raises(InvalidRequestError, match="did you mean 'tas'"):
        catalog.scan_values(["tss"])


def test_what_is_recorded_outlives_appends_and_compaction(
    months: list[Path], tmp_path: Path
) -> None:
    catalog = built(months[:1], tmp_path / "cube").scan_values()
    for file in months[1:10]:
        catalog = catalog.append(file)
    row = {row["path"]: row for row in catalog.statistics().to_pylist()}["tas"]
    assert (row["n_known"], row["n_chunks"]) == (6, 60)
    unknown = {"time": slice(5, 50), "lat": slice(0, 4), "lon": slice(0, 6)}
    assert catalog.find("tas", "> 1e6") == [unknown]
    catalog = catalog.scan_values()
    for file in months[10:]:
        catalog = catalog.append(file)
    n_parts = len(catalog.snapshot.parts)
    assert n_parts < 16  # some were written as one
    row = {row["path"]: row for row in catalog.statistics().to_pylist()}["tas"]
    assert row["n_known"] == 60
    catalog = catalog.scan_values(["tas"]).scan_values()
    with shown_by_xarray(months) as shown:
        assert_known(catalog, "tas", shown)
    catalog.prune(grace_seconds=0)
    stated = {table.file for part in catalog.snapshot.parts for table in part.tables}
    assert files_in(tmp_path / "cube") == stated
    assert gridref.open_catalog(tmp_path / "cube").find("tas", "> 1e6") == []


def test_a_changed_file_is_not_looked_at(tmp_path: Path) -> None:
    file = month(tmp_path, 0)
    catalog = built([file], tmp_path / "cube")
    month(tmp_path, 0, shift=1)
    names = files_in(tmp_path / "cube")
    with pytest.raises(SourceChangedError):
        catalog.scan_values()
    assert files_in(tmp_path / "cube") == names
    assert gridref.open_catalog(tmp_path / "cube").info.snapshot == catalog.info.snapshot


def test_readers_that_do_not_know_of_statistics_refuse(
    months: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(months[:1], tmp_path / "cube").scan_values()
    document = json.loads((tmp_path / "cube" / "gridref.json").read_text())
    assert document["features"] == ["chunk-statistics"]
    monkeypatch.setattr("gridref.catalog.document.KNOWN_FEATURES", frozenset())
    with pytest.raises(CatalogVersionError, match="'chunk-statistics'"):
        gridref.open_catalog(tmp_path / "cube")


def test_on_the_command_line(months: list[Path], tmp_path: Path) -> None:
    built(months[:2], tmp_path / "cube")
    scanned = run_command(
        "list", tmp_path / "cube", "statistics", "tas", "--scan-values", "-o", tmp_path / "tas.csv"
    )
    assert scanned.returncode == 0, scanned.stderr
    listed = run_command(
        "list", tmp_path / "cube", "statistics", "--format", "jsonl"
    ).stdout.splitlines()
    known = {row["path"]: row["n_known"] for row in map(json.loads, listed)}
    assert known == {"tas": 12, "time": 0, "lat": 0, "lon": 0, "area": 0}
    query = "SELECT count(*) AS n FROM chunks WHERE path = 'tas' AND max > 300"
    answer = run_command("list", tmp_path / "cube", "--sql", query, "--format", "jsonl")
    with shown_by_xarray(months[:2]) as shown:
        assert (json.loads(answer.stdout)["n"] == 0) == bool(shown["tas"].max() <= 300)
    refused = run_command(
        "list", tmp_path / "cube", "statistics", "--scan-values", "--snapshot", "v1"
    )
    assert refused.returncode == 2


def test_tables_of_statistics_are_plain_parquet(months: list[Path], tmp_path: Path) -> None:
    catalog = built(months[:1], tmp_path / "cube").scan_values()
    (part,) = catalog.snapshot.parts
    assert part.statistics is not None
    table = pa.parquet.read_table(tmp_path / "cube" / part.statistics.file)
    assert table.column_names == ["n_valid", "min", "max"]
    assert table.num_rows == part.chunks.n_rows
