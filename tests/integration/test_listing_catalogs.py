"""What a catalog answers about its chunks and sources, in Python and on the command line."""

from __future__ import annotations

import io
import json
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import gridref
from gridref.api.catalog import write_catalog
from gridref.faces.cli import app
from tests.integration.archives import write_months
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
    assert "1 rows shown, there are more" in cut.output


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
        assert [row["n_files"] for row in packing] == [0, 1]  # those before are not counted


@pytest.mark.parametrize("drift", [5, {}, {"cause": 1}, {"cause": "packing", "n_files": "2"}])
def test_a_report_that_is_damaged(tmp_path: Path, drift: object) -> None:
    files = write_months(tmp_path, lengths=[5])
    gridref.build(files, tmp_path / "cube.gridref")
    root = tmp_path / "cube.gridref" / "gridref.json"
    document = json.loads(root.read_text())
    document["snapshot"]["drifts"] = [drift]
    sign(document)
    root.write_text(json.dumps(document))
    with pytest.raises(gridref.errors.CatalogCorruptError, match=r"description.* is damaged"):
        gridref.open_catalog(tmp_path / "cube.gridref")
