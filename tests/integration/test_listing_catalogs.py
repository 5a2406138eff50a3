"""What a catalog answers about its chunks, sources and values, in Python and by command."""

from __future__ import annotations

import io
import json
import shutil
from itertools import product
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import xarray as xr
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import gridref
from gridref.api.catalog import write_catalog
from gridref.errors import CatalogVersionError, InvalidRequestError, ReadError, SourceChangedError
from gridref.faces.cli import app
from tests.command import run_command
from tests.integration.archives import built, files_in, month, unnoticed, write_months
from tests.integration.test_cli import run
from tools.fuzz.catalog_attack import sign

LENGTHS = [31, 28, 30]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three months; the second has chunks that were never written, the third has no `pr`."""
    folder = tmp_path_factory.mktemp("asking")
    files = write_months(folder, lengths=LENGTHS, chunks=[(10, 7, 9), (5, 13, 17)])
    with h5py.File(files[1], "r+") as file:
        tas = file["tas"]
        holes = file.create_dataset(
            "holes", tas.shape, "f4", chunks=(14, 13, 17), fillvalue=np.float32(-1)
        )
        holes[14:] = tas[14:]
        holes.attrs["_FillValue"] = np.float32(-1)
        for axis, name in enumerate(("time", "lat", "lon")):
            holes.dims[axis].attach_scale(file[name])
    with h5py.File(files[2], "r+") as file:
        del file["pr"]
    gridref.build(
        sorted(folder.glob("*.nc")),
        folder / "cube.gridref",
        "time",
        combine=gridref.CombineOptions(join="outer"),
    )
    return folder


def expected_chunks(folder: Path, name: str) -> set[tuple[object, ...]]:
    """Place in the array, file, offset and size of every stored chunk, as HDF5 says."""
    found: set[tuple[object, ...]] = set()
    before = 0
    for path, length in zip(sorted(folder.glob("*.nc")), LENGTHS, strict=True):
        with h5py.File(path) as file:
            for number in range(file[name].id.get_num_chunks() if name in file else 0):
                chunk = file[name].id.get_chunk_info(number)
                start = (before + chunk.chunk_offset[0], *chunk.chunk_offset[1:])
                found.add((start, str(path), chunk.byte_offset, chunk.size))
        before += length
    return found


@pytest.mark.parametrize("name", ["tas", "pr", "holes"])
def test_ranges_are_those_that_hdf5_names(folder: Path, name: str) -> None:
    table = gridref.open_catalog(folder / "cube.gridref").chunks(name, state="range")
    listed = {
        (tuple(row["start"]), row["source"], row["offset"], row["length"])
        for row in table.to_pylist()
    }
    assert listed == expected_chunks(folder, name)
    assert listed
    assert table.num_rows == len(listed)


def test_sizes_are_those_of_what_is_stored_and_of_what_it_decodes_to(folder: Path) -> None:
    catalog = gridref.open_catalog(folder / "cube.gridref")
    first = catalog.chunks("tas").slice(0, 1).to_pylist()[0]
    assert first["decoded_bytes"] == 10 * 7 * 9 * 4
    assert first["stored_bytes"] == first["length"]
    assert (first["chunk"], first["block"], first["stop"]) == ([0, 0, 0], [0, 0, 0], [10, 7, 9])
    # The second month's chunks are 5 days long, and go on counting after the first one's 4.
    chunks = [row["chunk"][0] for row in catalog.chunks("tas").to_pylist() if row["block"][0] == 1]
    assert sorted(set(chunks)) == [4, 5, 6, 7, 8, 9]
    assert set(catalog.chunks("lat")["state"].to_pylist()) <= {"range", "inline"}


def test_what_is_missing_is_listed_by_element(folder: Path) -> None:
    """Of `holes` the first two weeks of month 2 were never written; two files do not have it."""
    catalog = gridref.open_catalog(folder / "cube.gridref")
    missing = catalog.chunks("holes", state="missing")
    boxes = [(row["start"][0], row["stop"][0]) for row in missing.to_pylist()]
    assert boxes == [(0, 31), (31, 45), (59, 89)]
    shown = catalog["holes"].read()
    for start, stop in boxes:
        assert (shown[start:stop] == -1).all()
    assert missing["stored_bytes"].to_pylist() == [0, 0, 0]
    assert catalog.chunks("pr", state="missing")["start"].to_pylist() == [[59, 0, 0]]
    assert catalog.chunks("tas", state="missing").num_rows == 0
    assert catalog.chunks(state="pending").num_rows == 0


def test_all_arrays_in_batches_and_some_columns(folder: Path) -> None:
    catalog = gridref.open_catalog(folder / "cube.gridref")
    batches = list(catalog.chunk_batches(columns=["path", "stored_bytes"]))
    together = pa.Table.from_batches(batches).to_pandas().groupby("path", observed=True).sum()
    assert set(together.index) == set(catalog.all_arrays())
    for name in ("tas", "pr", "holes"):
        stored = sum(size for *_, size in expected_chunks(folder, name))  # type: ignore[misc]
        assert together.stored_bytes[name] == stored


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"array": "tsa"}, "no array 'tsa': did you mean 'tas'"),
        ({"array": "tas", "state": "mising"}, "no state 'mising': did you mean 'missing'"),
        ({"array": "tas", "columns": ["ofset"]}, "no column 'ofset': did you mean 'offset'"),
    ],
)
def test_names_that_are_not_known(folder: Path, asked: dict[str, object], message: str) -> None:
    with pytest.raises(gridref.errors.InvalidRequestError, match=message):
        gridref.open_catalog(folder / "cube.gridref").chunks(**asked)  # type: ignore[arg-type]


def test_sources(folder: Path) -> None:
    table = gridref.open_catalog(folder / "cube.gridref").sources()
    files = sorted(folder.glob("*.nc"))
    assert sorted(table["url"].to_pylist()) == [str(path) for path in files]
    sizes = dict(zip(table["url"].to_pylist(), table["size_bytes"].to_pylist(), strict=True))
    assert sizes == {str(path): path.stat().st_size for path in files}


def test_the_command_lists_missing_chunks(folder: Path) -> None:
    done = run(
        "list",
        "cube.gridref",
        "chunks",
        "holes",
        "--state",
        "missing",
        "--format",
        "csv",
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(io.StringIO(done.stdout))
    assert table.start.tolist() == ["0/0/0", "31/0/0", "59/0/0"]
    assert table.stop.tolist() == ["31/13/17", "45/13/17", "89/13/17"]
    shown = run("list", "cube.gridref", "chunks", "holes", "--state", "missing", cwd=folder)
    assert "31/13/17" in shown.stdout
    assert "3 rows" in shown.stdout
    pending = run("list", "cube.gridref", "chunks", "holes", "--state", "pending", cwd=folder)
    assert "0 rows" in pending.stdout
    wrong = run("list", "cube.gridref", "chunks", "hole", cwd=folder)
    assert wrong.returncode == 1
    told = "the catalog has no array 'hole': did you mean 'holes'?"
    assert wrong.stderr == f"error: {told} (see gridref --explain invalid-request)\n"


@pytest.mark.long
def test_the_command_writes_files(folder: Path, tmp_path: Path) -> None:
    rows = gridref.open_catalog(folder / "cube.gridref").chunks()
    readers = {
        "parquet": pq.read_table,
        "arrow": pa.feather.read_table,
        "feather": pa.feather.read_table,
        "csv": lambda path: pa.Table.from_pandas(pd.read_csv(path)),
        "jsonl": lambda path: pa.Table.from_pylist(
            [json.loads(line) for line in path.read_text().splitlines()]
        ),
    }
    for suffix, read in readers.items():
        file = tmp_path / f"chunks.{suffix}"
        done = run("list", "cube.gridref", "chunks", "-o", str(file), cwd=folder)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        table = read(file)
        assert table.column_names == rows.column_names
        for name in ("path", "state", "source", "stored_bytes", "decoded_bytes"):
            got = pd.Series(table[name].to_pylist())
            assert got.equals(pd.Series(rows[name].to_pylist())), (suffix, name)
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "x.xlsx"], "--output x.xlsx ends in none of .parquet, .arrow"),
        (["-o", "no/such/x.csv"], "no/such/x.csv cannot be written: No such file or directory"),
        (["--format", "tabel"], "did you mean 'table'?"),
    ],
)
def test_files_that_cannot_be_written(folder: Path, options: list[str], message: str) -> None:
    done = run("list", "cube.gridref", "chunks", "tas", *options, cwd=folder)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_command_lists_sources_by_size(folder: Path) -> None:
    runner = CliRunner(env={"COLUMNS": "300"})
    done = runner.invoke(app, ["list", str(folder / "cube.gridref"), "sources", "--by-size"])
    assert done.exit_code == 0, done.output
    by_size = sorted(folder.glob("*.nc"), key=lambda path: -path.stat().st_size)
    lines = done.output.splitlines()[1:4]
    assert [line.split()[0] for line in lines] == [str(path) for path in by_size]
    cut = runner.invoke(app, ["list", str(folder / "cube.gridref"), "sources", "--limit", "1"])
    assert "1 row shown, there are more" in cut.output


def drifting(folder: Path) -> list[Path]:
    """Months of which the second is packed otherwise, and in other chunks."""
    files = write_months(folder, lengths=LENGTHS, chunks=[(10, 7, 9), (5, 13, 17), (10, 7, 9)])
    with netCDF4.Dataset(files[1], "r+") as file:
        file["pr"].scale_factor = 0.02
    return files


def test_the_report_of_drift_is_kept(tmp_path: Path) -> None:
    files = drifting(tmp_path)
    planned = gridref.plan(files, "time").report
    gridref.build(files, tmp_path / "cube.gridref", "time")
    catalog = gridref.open_catalog(tmp_path / "cube.gridref")
    kept = catalog.report().to_pylist()
    assert {(row["cause"], row["variable"]) for row in kept} == {
        (drift.cause, drift.variable) for drift in planned
    }
    packing = [row for row in kept if row["cause"] == "packing"]
    assert [(row["n_files"], row["first_file"], row["last_file"]) for row in packing] == [
        (2, str(files[0]), str(files[2])),
        (1, str(files[1]), str(files[1])),
    ]
    write_catalog(catalog, tmp_path / "copy.gridref")
    assert gridref.open_catalog(tmp_path / "copy.gridref").report().to_pylist() == kept
    done = run("list", "cube.gridref", "report", "--format", "jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert list(map(json.loads, done.stdout.splitlines())) == kept


def test_the_report_grows_with_what_is_appended(tmp_path: Path) -> None:
    files = drifting(tmp_path)
    gridref.build([files[0]], tmp_path / "cube.gridref", "time")
    catalog = gridref.open_catalog(tmp_path / "cube.gridref")
    assert catalog.report().num_rows == 0
    after = catalog.append([files[1]])
    for each in (after, gridref.open_catalog(tmp_path / "cube.gridref")):
        packing = [row for row in each.report().to_pylist() if row["cause"] == "packing"]
        assert str(files[1]) in {row["first_file"] for row in packing}
        assert [row["n_files"] for row in packing] == [1]  # those before differ in nothing


@pytest.mark.parametrize("drift", [5, {}, {"cause": 1}, {"cause": "packing", "n_files": "2"}])
def test_a_report_that_is_damaged(folder: Path, tmp_path: Path, drift: object) -> None:
    root = shutil.copytree(folder / "cube.gridref", tmp_path / "cube.gridref") / "gridref.json"
    document = json.loads(root.read_text())
    document["snapshot"]["drifts"] = [drift]
    sign(document)
    root.write_text(json.dumps(document))
    with pytest.raises(gridref.errors.CatalogCorruptError, match=r"description.* is damaged"):
        gridref.open_catalog(tmp_path / "cube.gridref")


N_MONTHS = 8


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


@pytest.fixture(scope="module")
def half_a_year(
    months: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[gridref.Catalog, np.ndarray]:
    """A catalog that knows its values, and these."""
    folder = tmp_path_factory.mktemp("half")
    catalog = built(months[:6], folder / "cube").scan_values(["tas"])
    return catalog, xr.open_dataset(catalog, engine="gridref")["tas"].values


@pytest.mark.parametrize("condition", CONDITIONS)
def test_values_are_nowhere_but_in_what_is_found(
    half_a_year: tuple[gridref.Catalog, np.ndarray], condition: str
) -> None:
    catalog, values = half_a_year
    wanted = np.logical_and.reduce([eval(f"values {part}") for part in condition.split(" and ")])
    found = np.zeros(values.shape, bool)
    for box in catalog.find("tas", condition):
        chosen = tuple(box[dim] for dim in ("time", "lat", "lon"))
        assert not found[chosen].any()
        found[chosen] = True
    assert not (wanted & ~found).any()
    if condition.endswith("1e3"):
        assert np.array_equal(found, wanted)


OPERATORS = [">", ">=", "<", "<=", "=="]


# Writing a catalog takes most of the time, so each one is asked several questions.
@settings(max_examples=settings().max_examples // 4)
@given(
    values=st.lists(st.floats(-1e3, 1e3, width=32) | st.just(np.nan), min_size=3, max_size=30),
    numbers=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=5),
    dtype=st.sampled_from(["f4", "f2"]),
)
@example([0.1, 0.1, 0.1], [0.1], "f2")
@example([0.1, 0.1, 0.1], [1e300], "f4")
def test_nothing_is_passed_over(
    tmp_path_factory: pytest.TempPathFactory, values: list[float], numbers: list[float], dtype: str
) -> None:
    folder = tmp_path_factory.mktemp("values")
    data = np.array(values, dtype)
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("v", data=data, chunks=(3,))
    gridref.build(folder / "a.h5", folder / "cube")
    catalog = gridref.open_catalog(folder / "cube").scan_values()
    (dim,) = catalog["v"].dims
    for number, operator in product([*numbers, *data[:1].tolist()], OPERATORS):
        if np.isnan(number):
            continue
        found = np.zeros(len(data), bool)
        for box in catalog.find("v", f"{operator} {number!r}"):
            found[box[dim]] = True
        with np.errstate(over="ignore"):
            assert not (eval(f"data {operator} number") & ~found).any(), (operator, number)


def test_long_integers_are_compared_as_they_are(tmp_path: Path) -> None:
    values = np.array([2**53, 2**53 + 1, 2**53 + 4, 2**62 + 1, 2**63 - 2, 2**63 - 1])
    path = tmp_path / "a.nc"
    data = xr.Dataset({"v": ("x", values)})
    data.to_netcdf(path, engine="h5netcdf", encoding={"v": {"chunksizes": (1,)}})
    catalog = gridref.build(path, tmp_path / "cube").scan_values()
    shown = xr.open_dataset(catalog, engine="gridref")
    numbers = (2**53, 2**53 + 1, 2**53 + 3, 2**62 + 1, 2**63 - 1, 2**64)
    for number, operator in product(numbers, OPERATORS):
        expected = data.v.where([eval(f"{each} {operator} {number}") for each in values.tolist()])
        xr.testing.assert_identical(shown.gridref.where("v", f"{operator} {number}"), expected)


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
    with unnoticed(path) as file:
        for row in catalog.chunks("v").to_pylist():
            if row["max"] <= 285:
                file.seek(row["offset"])
                file.write(bytes(row["length"]))
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
    other = raw.copy()
    other["v"].attrs = {**raw["v"].attrs, "scale_factor": 10.0}
    xr.testing.assert_identical(shown.gridref.where("v", "> 0.45"), shown.v.where(shown.v > 0.45))
    for dataset, name, message in (
        (raw, "v", "has _FillValue, scale_factor as attributes"),
        (xr.decode_cf(other), "v", "is unpacked by other attributes"),
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
    months: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridref.catalog.commit.MERGED_PARTS", 4)
    catalog = built(months[:1], tmp_path / "cube").scan_values()
    for file in months[1:4]:
        catalog = catalog.append(file)
    row = {row["path"]: row for row in catalog.statistics().to_pylist()}["tas"]
    assert (row["n_known"], row["n_chunks"]) == (6, 24)
    unknown = {"time": slice(5, 20), "lat": slice(0, 4), "lon": slice(0, 6)}
    assert catalog.find("tas", "> 1e6") == [unknown]
    catalog = catalog.scan_values()
    for file in months[4:]:
        catalog = catalog.append(file)
    n_parts = len(catalog.snapshot.parts)
    assert n_parts < 6  # some were written as one
    row = {row["path"]: row for row in catalog.statistics().to_pylist()}["tas"]
    assert row["n_known"] == 24
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
