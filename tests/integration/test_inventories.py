"""Tables that list files and say their labels: CSV, intake-esm, Parquet, data frames."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from typer.testing import CliRunner

import gridref
from gridref.errors import InvalidRequestError
from gridref.faces.cli import app
from tests.by_name import by_name


@pytest.fixture
def archive(tmp_path: Path) -> tuple[Path, pd.DataFrame]:
    """Files whose names say nothing, and the table of what they are."""
    rows = []
    for number, (model, member) in enumerate((m, r) for m in ("x", "y") for r in (3, 1)):
        name = f"{'dbca'[number]}.nc"
        xr.Dataset({"t": ("i", np.arange(3.0) + 10 * number)}).to_netcdf(tmp_path / name)
        start = pd.Timestamp("2001-01-01") + pd.Timedelta(days=number)
        rows.append({"path": name, "model": model, "member": member, "start": start})
    return tmp_path, pd.DataFrame(rows)


EXPECTED = np.add.outer([[10.0, 0.0], [30.0, 20.0]], np.arange(3.0))


def check(catalog: Path) -> None:
    with xr.open_dataset(catalog) as ds:
        assert ds["t"].dims == ("model", "member", "i")
        np.testing.assert_array_equal(ds["t"].values, EXPECTED)
        assert ds["model"].values.tolist() == ["x", "y"]
        assert ds["member"].values.tolist() == [1, 3]


def written(folder: Path, table: pd.DataFrame, kind: str) -> Path:
    if kind == "parquet":
        table.to_parquet(folder / "table.parquet")
        return folder / "table.parquet"
    if kind == "items":
        items = table.assign(assets=[{"data": {"href": path}} for path in table["path"]])
        items.drop(columns="path").to_parquet(folder / "items.parquet")
        return folder / "items.parquet"
    table.to_csv(folder / "table.csv.gz", index=False)
    if kind == "csv":
        return folder / "table.csv.gz"
    document = {"catalog_file": "table.csv.gz", "assets": {"column_name": "path"}}
    (folder / "collection.json").write_text(json.dumps(document))
    return folder / "collection.json"


@pytest.mark.parametrize("kind", ["csv", "parquet", "items", "intake"])
def test_columns_are_labels(archive: tuple[Path, pd.DataFrame], kind: str) -> None:
    folder, table = archive
    inventory = written(folder, table, kind)
    gridref.build(
        [], folder / "cube.gridref", ["model", "member"], layout=gridref.Labels(inventory=inventory)
    )
    check(folder / "cube.gridref")


def test_a_column_labels_stacked_files(archive: tuple[Path, pd.DataFrame]) -> None:
    folder, table = archive
    inventory = written(folder, table, "csv")
    layout = gridref.Stack("start", gridref.Labels(inventory=inventory))
    gridref.build([folder / f"{name}.nc" for name in "db"], folder / "cube.gridref", layout=layout)
    grown = gridref.open_catalog(folder / "cube.gridref").append([folder / "a.nc", folder / "c.nc"])
    assert grown["t"].shape == (4, 3)
    with xr.open_dataset(folder / "cube.gridref") as ds:
        for name, start in zip(table["path"], table["start"], strict=True):
            with xr.open_dataset(folder / name) as own:
                np.testing.assert_array_equal(ds["t"].sel(start=start), own["t"])


def test_files_that_are_listed_later_are_added(archive: tuple[Path, pd.DataFrame]) -> None:
    folder, table = archive
    inventory = written(folder, table, "csv")
    gridref.build(
        [folder / name for name in table["path"][:3]],
        folder / "cube.gridref",
        ["model", "member"],
        layout=gridref.Labels(inventory=inventory),
    )
    gridref.open_catalog(folder / "cube.gridref").append(folder / table["path"][3])
    check(folder / "cube.gridref")


def test_data_frames_and_columns_of_other_names(archive: tuple[Path, pd.DataFrame]) -> None:
    folder, table = archive
    table["path"] = [str(folder / name) for name in table["path"]]
    labels = {"model": "column:model", "member": "column:member"}
    gridref.build(
        folder / "*.nc",
        folder / "cube.gridref",
        layout=gridref.Labels(sources=labels, inventory=table),
    )
    check(folder / "cube.gridref")
    group = gridref.build(
        [],
        folder / "times.gridref",
        layout=gridref.Labels(sources={"time": "column:start"}, inventory=table),
    )
    assert group.arrays["t"].dims == ("time", "i")
    with xr.open_dataset(folder / "times.gridref") as ds:
        expected = table["start"].to_numpy("M8[ns]")
        np.testing.assert_array_equal(ds["time"].values.astype("M8[ns]"), expected)


def test_on_the_command_line(archive: tuple[Path, pd.DataFrame]) -> None:
    folder, table = archive
    inventory = str(written(folder, table, "csv"))
    arguments = ["--inventory", inventory, "--labels", "model=column:model,member=column:member"]
    done = CliRunner().invoke(app, ["build", *arguments, "-o", str(folder / "cube.gridref")])
    assert done.exit_code == 0, (done.output, done.exception)
    check(folder / "cube.gridref")


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"labels": {"run": "column:run"}}, "no column 'run': there are model, member"),
        ({"model": ["x", "", "y", "y"]}, {"labels": {"model": "column:model"}}, "has no value"),
        ({"path": ["d.nc", "b.nc", "c.nc", "q.nc"]}, {"labels": {"model": "column:model"}},
         "does not list it"),
    ],
)  # fmt: skip
def test_what_tables_lack_is_told(
    archive: tuple[Path, pd.DataFrame], change: dict[str, Any], options: Any, message: str
) -> None:
    folder, table = archive
    inventory = written(folder, table.assign(**change), "csv")
    with pytest.raises(InvalidRequestError, match=message):
        gridref.plan(folder / "*.nc", **by_name(inventory=inventory, **options))


def test_tables_without_addresses_and_labels_without_tables(
    archive: tuple[Path, pd.DataFrame],
) -> None:
    folder, table = archive
    with pytest.raises(InvalidRequestError, match="no column of addresses"):
        gridref.plan([], layout=gridref.Labels(inventory=table.drop(columns="path")))
    with pytest.raises(InvalidRequestError, match="cannot be read"):
        gridref.plan([], layout=gridref.Labels(inventory=folder / "nothing.csv"))
    with pytest.raises(InvalidRequestError, match="inventory="):
        gridref.plan(folder / "*.nc", layout=gridref.Labels(sources={"model": "column:model"}))
