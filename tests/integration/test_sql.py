"""Catalogs asked in SQL, and their tables opened by other tools as they lie."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import xarray as xr

import gridref
from gridref.api.catalog import write_catalog
from gridref.errors import ReadError
from gridref.faces.duckdb import ValueTable, sql
from tests.integration.archives import write_months
from tests.integration.test_cli import run

duckdb = pytest.importorskip("duckdb")
polars = pytest.importorskip("polars")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sql")
    gridref.build(write_months(folder, lengths=[31, 28]), folder / "cube.gridref", "time")
    return folder


def test_answers_are_those_of_the_listing(folder: Path) -> None:
    catalog = gridref.open_catalog(folder / "cube.gridref")
    listed = catalog.chunks().to_pandas()
    expected = listed.groupby("path", observed=True)[["stored_bytes", "decoded_bytes"]].sum()
    answer = sql(
        folder / "cube.gridref",
        "SELECT path, sum(stored_bytes)::BIGINT AS s, sum(decoded_bytes)::BIGINT AS d"
        " FROM chunks GROUP BY path",
    ).to_pylist()
    assert {row["path"]: (row["s"], row["d"]) for row in answer} == {
        path: tuple(row) for path, row in zip(expected.index, expected.to_numpy(), strict=True)
    }
    sizes = sql(catalog, "SELECT url, size_bytes FROM sources").to_pylist()
    assert {row["url"]: row["size_bytes"] for row in sizes} == {
        str(path): path.stat().st_size for path in folder.glob("*.nc")
    }
    shapes = sql(catalog, "SELECT path, shape FROM arrays WHERE len(shape) = 3").to_pylist()
    assert shapes == [{"path": name, "shape": [59, 13, 17]} for name in ("tas", "pr")]


def test_a_table_is_read_as_often_as_a_query_names_it(folder: Path) -> None:
    catalog = gridref.open_catalog(folder / "cube.gridref")
    n_rows = catalog.chunks("tas").num_rows
    query = (
        "SELECT count(*) AS n FROM chunks a JOIN chunks b USING (path, chunk)"
        " WHERE path = 'tas' AND a.source IN (SELECT source FROM chunks)"
    )
    assert sql(catalog, query).to_pylist() == [{"n": n_rows}]


def test_labels_are_decoded(folder: Path, tmp_path: Path) -> None:
    first = sql(folder / "cube.gridref", "SELECT * FROM time WHERE index IN (0, 58) ORDER BY index")
    assert first["value"].to_pylist() == [pd.Timestamp("2001-01-01"), pd.Timestamp("2001-02-28")]
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("time", 2)
        time = file.createVariable("time", "i4", ("time",))
        time.setncatts({"units": "days since 2001-02-29", "calendar": "360_day"})
        time[:] = [0, 1]
        group = file.createGroup("station")
        group.createDimension("obs", 3)
        group.createVariable("height", "f4", ("obs",))[:] = [1, 2, 3]
    gridref.build(tmp_path / "a.nc", tmp_path / "a.gridref")
    days = sql(tmp_path / "a.gridref", "SELECT value FROM time")
    assert days["value"].to_pylist() == ["2001-02-29 00:00:00", "2001-02-30 00:00:00"]
    heights = sql(tmp_path / "a.gridref", 'SELECT sum(value) AS s FROM "station/height"')
    assert heights["s"].to_pylist() == [6.0]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELEC 1", "syntax error"),
        ("SELECT sorce FROM chunks", "not found in FROM clause! Candidate bindings"),
        ("FROM chunk", 'Table with name chunk does not exist! Did you mean "chunks"'),
        ("FROM hidden", "Table with name hidden does not exist"),
        ("SELECT error('stop here') FROM chunks", "stop here"),
    ],
)
def test_queries_that_are_refused(folder: Path, query: str, message: str) -> None:
    hidden = pd.DataFrame({"a": [1]})  # variables of Python are no tables
    with pytest.raises(gridref.errors.InvalidRequestError) as raised:
        sql(folder / "cube.gridref", query)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(hidden) == 1


def test_a_damaged_table_is_damage_and_no_wrong_query(folder: Path, tmp_path: Path) -> None:
    catalog = tmp_path / "cube.gridref"
    write_catalog(gridref.open_catalog(folder / "cube.gridref"), catalog)
    (table,) = catalog.glob("chunks*.parquet")
    raw = bytearray(table.read_bytes())
    raw[4:400] = bytes(396)
    table.write_bytes(raw)
    with pytest.raises(gridref.errors.CatalogCorruptError, match=table.name):
        sql(catalog, "SELECT count(*) FROM chunks")


def test_arrays_that_differ_in_capitals_are_not_taken_for_each_other(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 2)
        for name in ("tt", "TT", "u"):
            file.createVariable(name, "f4", ("x",))[:] = [1, 2]
    gridref.build(tmp_path / "a.nc", tmp_path / "a.gridref")
    assert sql(tmp_path / "a.gridref", "SELECT max(value) AS m FROM u")["m"][0].as_py() == 2
    with pytest.raises(gridref.errors.InvalidRequestError, match="several arrays are named 'TT'"):
        sql(tmp_path / "a.gridref", "FROM tt")


def test_without_duckdb(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(gridref.errors.MissingPackageError, match=r"asking in SQL.*duckdb"):
        sql(folder / "cube.gridref", "SELECT 1")


def test_the_command(folder: Path, tmp_path: Path) -> None:
    query = "SELECT state, count(*) AS n FROM chunks WHERE path = 'tas' GROUP BY state"
    n_rows = gridref.open_catalog(folder / "cube.gridref").chunks("tas").num_rows
    done = run("list", "cube.gridref", "--sql", query, "--format", "csv", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f'"state","n"\n"range",{n_rows}\n'
    file = tmp_path / "answer.parquet"
    done = run("list", "cube.gridref", "--sql", query, "-o", str(file), cwd=folder)
    assert done.returncode == 0, done.stderr
    assert pq.read_table(file)["n"].to_pylist() == [n_rows]
    wrong = run("list", "cube.gridref", "--sql", "FROM chunk", cwd=folder)
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("error: DuckDB refuses the query: Catalog Error")
    assert wrong.stderr.count("\n") == 1


def test_tables_open_as_they_lie(folder: Path) -> None:
    """Parquet of a catalog uses delta encodings and zstd, which every reader has to know."""
    tables = sorted((folder / "cube.gridref").glob("*.parquet"))
    assert len(tables) >= 3
    for table in tables:
        expected = pq.read_table(table)
        for frame in (
            duckdb.sql(f"FROM '{table}'").to_arrow_table(),
            polars.read_parquet(table).to_arrow(),
        ):
            assert frame.column_names == expected.column_names
            assert frame.to_pylist() == expected.to_pylist()
        opened = pd.read_parquet(table)
        assert list(opened.columns) == expected.column_names
        for name in expected.column_names:
            got = [v.tolist() if isinstance(v, np.ndarray) else v for v in opened[name]]
            want = expected[name].to_pylist()
            assert [None if np.ndim(v) == 0 and pd.isna(v) else v for v in got] == want


# Values


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> tuple[xr.Dataset, gridref.Catalog]:
    """Packed temperatures of two files with missing ones, and a variable in a group."""
    folder = tmp_path_factory.mktemp("values")
    random = np.random.default_rng(0)
    for part in range(2):
        tas = 280 + random.integers(-90, 90, (20, 6, 8)) / 10
        tas[3, 2], tas[:, 5, 7] = np.nan, np.nan
        times = pd.date_range("2024-01-01", periods=20) + pd.Timedelta(days=20 * part)
        coords = {"time": times, "lat": np.linspace(50, -50, 6), "kind": list("abcdefgh")}
        mean = np.where(np.arange(20) == 7, np.nan, np.arange(20.0))
        variables = {"tas": (("time", "lat", "kind"), tas), "mean": ("time", mean)}
        written = xr.Dataset(variables, coords)
        packing = {"dtype": "i2", "scale_factor": 0.1, "add_offset": 280.0, "_FillValue": -999}
        encoding: Any = {"tas": {**packing, "chunksizes": (5, 3, 8)}}
        written.to_netcdf(folder / f"{part}.nc", encoding=encoding)
        plain = xr.Dataset({"count": (("time", "x"), np.arange(60).reshape(20, 3))})
        plain.to_netcdf(folder / f"{part}.nc", group="own", mode="a")
    files = [str(folder / f"{part}.nc") for part in range(2)]
    gridref.build(files, folder / "cube.gridref", "time")
    return xr.open_mfdataset(files).load(), gridref.open_catalog(folder / "cube.gridref")


CONDITIONS = [
    "",
    "WHERE time BETWEEN '2024-01-15' AND '2024-01-25' AND lat > 20",
    "WHERE lat IN (50, -50) AND kind >= 'g'",
    "WHERE value > 285 OR lat < -20",
    "WHERE NOT (time < '2024-02-01') AND value IS NOT NULL",
    "WHERE value IS NULL",
    "WHERE time > '2030-01-01'",
    "WHERE abs(lat) < 20 AND kind = 'c'",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_values_are_those_of_xarray(
    values: tuple[xr.Dataset, gridref.Catalog], condition: str
) -> None:
    ds, catalog = values
    frame = ds.tas.to_dataframe(name="value").reset_index()
    frame["value"] = frame["value"].astype("f8")
    query = f"SELECT * FROM {{}} {condition} ORDER BY time, lat, kind"
    with duckdb.connect() as connection:
        connection.register("frame", frame)
        expected = connection.sql(query.format("frame")).to_df()
    found = catalog.sql(query.format("tas")).to_pandas()
    assert len(found) == len(expected)
    for name in ("time", "lat", "kind", "value"):
        own, other = found[name].to_numpy(), expected[name].to_numpy()
        assert (own == other).all() if own.dtype.kind != "f" else np.array_equal(own, other, True)


def test_a_range_of_labels_reads_only_its_chunks(
    values: tuple[xr.Dataset, gridref.Catalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, catalog = values
    read: list[Any] = []
    whole = ValueTable.batches

    def batches(table: ValueTable, wanted: Any) -> Any:
        read.extend(places.tolist() for places in wanted)
        return whole(table, wanted)

    monkeypatch.setattr(ValueTable, "batches", batches)
    conditions = "time >= '2024-02-05' AND lat < 0 AND kind BETWEEN 'b' AND 'c'"
    (row,) = catalog.sql(f"SELECT count(*) AS n FROM tas WHERE {conditions}").to_pylist()
    assert row["n"] == 5 * 3 * 2
    assert read == [[35, 36, 37, 38, 39], [3, 4, 5], [1, 2]]


def test_values_of_groups_and_aggregates(values: tuple[xr.Dataset, gridref.Catalog]) -> None:
    ds, catalog = values
    query = 'SELECT count(*) AS n, sum(value)::BIGINT AS s FROM "own/count"'
    (row,) = catalog.sql(query).to_pylist()
    assert row == {"n": 120, "s": 2 * sum(range(60))}
    (row,) = catalog.sql("SELECT avg(value) AS mean, count(value) AS n FROM tas").to_pylist()
    assert row["n"] == int(ds.tas.count())
    assert row["mean"] == pytest.approx(float(ds.tas.astype("f8").mean()))


def test_durations_label_values_and_half_floats_are_values(tmp_path: Path) -> None:
    steps = np.array([1, 2, 3], "m8[h]").astype("m8[ns]")
    ds = xr.Dataset({"v": (("step", "y"), np.arange(12.0).reshape(3, 4))}, {"step": steps})
    ds.to_netcdf(tmp_path / "a.nc")
    with h5py.File(tmp_path / "a.nc", "a") as file:
        file.create_dataset("half", data=np.arange(4, dtype="f2").reshape(2, 2))
    catalog = gridref.build([tmp_path / "a.nc"], tmp_path / "a.gridref")
    query = "SELECT sum(value) AS s FROM v WHERE y = 2 AND step > INTERVAL '90 minutes'"
    assert catalog.sql(query).to_pylist() == [{"s": 16.0}]
    assert catalog.sql("SELECT max(value) AS m FROM half").to_pylist() == [{"m": 3.0}]


def test_texts_of_bytes_are_texts(tmp_path: Path) -> None:
    names = np.array([b"Kiel", "Łódź".encode()])
    ds = xr.Dataset({"v": (("name", "y"), np.eye(2)), "own": (("y", "name"), [names, names])})
    ds.assign_coords(name=names).to_netcdf(tmp_path / "a.nc")
    catalog = gridref.build([tmp_path / "a.nc"], tmp_path / "a.gridref")
    for query in (
        "SELECT DISTINCT name FROM v WHERE name = 'Łódź'",
        "SELECT DISTINCT value AS name FROM own WHERE name = 'Łódź'",
        "SELECT value AS name FROM name WHERE value = 'Łódź'",
    ):
        assert catalog.sql(query).to_pylist() == [{"name": "Łódź"}]


def test_missing_texts_are_null(tmp_path: Path) -> None:
    texts = np.array([["NA", "nan"], ["b", "NA"]], object)
    attrs = {"missing_value": "NA"}
    held = {"wide": (("x", "y"), texts, attrs), "long": ("x", texts[0], attrs)}
    xr.Dataset(held).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    catalog = gridref.build(tmp_path / "a.nc", tmp_path / "a.gridref")
    for name, expected in (("wide", [None, "nan", "b", None]), ("long", [None, "nan"])):
        assert catalog.sql(f"SELECT value FROM {name}")["value"].to_pylist() == expected


def test_values_of_a_file_that_is_gone(tmp_path: Path) -> None:
    xr.Dataset({"v": (("y", "x"), np.ones((3, 4)))}).to_netcdf(tmp_path / "a.nc")
    gridref.build([tmp_path / "a.nc"], tmp_path / "a.gridref")
    (tmp_path / "a.nc").unlink()
    catalog = gridref.open_catalog(tmp_path / "a.gridref")
    assert catalog.sql("SELECT path FROM arrays WHERE path = 'v'").num_rows == 1
    with pytest.raises(ReadError):
        catalog.sql("SELECT sum(value) FROM v")


def test_missing_values_of_one_dimension_are_null(
    values: tuple[xr.Dataset, gridref.Catalog],
) -> None:
    ds, catalog = values
    query = "SELECT count(*) AS n, count(value) AS known, avg(value) AS mean FROM mean"
    (row,) = catalog.sql(query).to_pylist()
    assert row == {"n": 40, "known": 38, "mean": pytest.approx(float(ds["mean"].mean()))}
    both = catalog.sql("SELECT t.value AS label, tas.time FROM time t, tas LIMIT 1")
    assert both.schema.field("label").type == both.schema.field("time").type
