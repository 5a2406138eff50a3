"""Snapshots are listed, opened through every door, named, gone back to, amended and pruned."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import httpx
import numpy as np
import pytest
import xarray as xr
import zarr

import gridref
from gridref.errors import (
    CatalogConflictError,
    CatalogCorruptError,
    CatalogError,
    InvalidRequestError,
)
from gridref.faces.http import create_app
from tests.command import run_command
from tests.integration.archives import assert_shows, built
from tests.uvicorn_server import running

N_MONTHS = 6


@pytest.fixture
def grown(months: list[Path], tmp_path: Path) -> gridref.Catalog:
    """A catalog of one month, to which four were added one by one."""
    catalog = built(months[:1], tmp_path / "cube")
    for file in months[1:5]:
        catalog = catalog.append(file)
    return catalog


def age(folder: Path) -> None:
    """Make all files look old."""
    for path in folder.iterdir():
        os.utime(path, (1e9, 1e9))


def test_every_snapshot_opens_as_it_was(grown: gridref.Catalog, months: list[Path]) -> None:
    commits = grown.history()
    assert [commit.operation for commit in commits] == ["append"] * 4 + ["write"]
    assert [commit.parent for commit in commits] == [*(c.id for c in commits[1:]), None]
    for number, commit in enumerate(reversed(commits)):
        opened = gridref.open_catalog(grown.info.url, snapshot=commit.id)
        assert opened.info.snapshot == commit.id
        expected = [gridref.scan(file)["tas"][...] for file in months[: number + 1]]
        assert np.array_equal(opened["tas"][...], np.concatenate(expected))
    with pytest.raises(InvalidRequestError, match="no snapshot 'nothing'"):
        gridref.open_catalog(grown.info.url, snapshot="nothing")


def test_a_long_history_is_listed_whole(months: list[Path], tmp_path: Path) -> None:
    catalog = built(months[:1], tmp_path / "cube").append(months[1])
    for _ in range(35):
        catalog = catalog.rollback()
        catalog = catalog.rollback(catalog.history()[-2].id)
    commits = catalog.history()
    assert len(commits) == len({commit.id for commit in commits}) == 72


def test_rolling_back(grown: gridref.Catalog, months: list[Path]) -> None:
    url, commits = grown.info.url, grown.history()
    one = grown.rollback()
    assert_shows(url, months[:4])
    two = one.rollback()
    assert_shows(url, months[:3])
    assert two.info.digest == gridref.open_catalog(url, snapshot=commits[2].id).info.digest
    again = two.append(months[5])
    assert_shows(url, [*months[:3], months[5]])
    back = again.rollback(grown.info.snapshot)
    assert back.info.digest == grown.info.digest
    assert back.history()[0].restores == grown.info.snapshot
    first = back.rollback(back.history()[-1].id)
    with pytest.raises(InvalidRequestError, match="no snapshot before"):
        first.rollback()


def test_tags(grown: gridref.Catalog, months: list[Path]) -> None:
    url = grown.info.url
    grown.tag("published", grown.history()[3].id)
    assert gridref.open_catalog(url, snapshot="published")["tas"].shape[0] == 10
    assert grown.append(months[5]).info.tags == {"published": grown.history()[-2].id}
    moved = gridref.open_catalog(url).tag("published")
    assert gridref.open_catalog(url, snapshot="published").info.snapshot == moved.info.snapshot
    assert moved.untag("published").info.tags == {}
    for bad in ("", "a b", "../x", moved.info.snapshot):
        with pytest.raises(InvalidRequestError, match="a tag may have"):
            moved.tag(bad)


def test_pruning_removes_what_nothing_needs(grown: gridref.Catalog, months: list[Path]) -> None:
    url, folder = grown.info.url, Path(grown.info.url)
    commits = grown.history()
    reader = gridref.open_catalog(url)
    grown.tag("kept", commits[2].id)
    back = gridref.open_catalog(url).rollback(commits[3].id)
    assert back.prune().files == (), "nothing lately written goes"
    age(folder)
    before = {path.name for path in folder.iterdir()}
    plan = back.prune(dry_run=True)
    assert {path.name for path in folder.iterdir()} == before
    done = back.prune()
    assert done == plan
    assert set(done.snapshots) == {commits[0].id, commits[1].id, commits[3].id, commits[4].id}
    left = {path.name for path in folder.iterdir()}
    assert before - left == set(done.files)
    assert {f"chunks-{commits[0].id}.parquet", f"chunks-{commits[1].id}.parquet"} <= before - left
    assert_shows(url, months[:2])
    kept = gridref.open_catalog(url, snapshot="kept")
    assert kept["tas"][...].shape[0] == 15
    with pytest.raises(InvalidRequestError, match="pruned"):
        gridref.open_catalog(url, snapshot=commits[0].id)
    assert gridref.open_catalog(url).history()[0].id == back.info.snapshot
    opened_before = reader["tas"]
    with pytest.raises(CatalogCorruptError, match="open it again"):
        opened_before[20:]


def test_what_others_are_writing_stays(grown: gridref.Catalog) -> None:
    folder = Path(grown.info.url)
    orphan = folder / "chunks-00000000000000aa.parquet"
    orphan.write_bytes(b"x")
    assert grown.prune().files == ()
    age(folder)
    assert orphan.name in grown.prune(keep=100).files
    assert not orphan.exists()


def test_on_the_command_line(grown: gridref.Catalog, months: list[Path]) -> None:
    url = grown.info.url
    listed = run_command("list", url, "history", "--format", "jsonl")
    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [row["snapshot"] for row in rows] == [commit.id for commit in grown.history()]
    assert run_command("tag", url, "v1").returncode == 0
    rows = run_command("list", url, "history", "--format", "csv").stdout.splitlines()
    assert [row.endswith('"v1"') for row in rows[1:]] == [True, *[False] * (len(rows) - 2)]
    back = run_command("rollback", url)
    assert back.returncode == 0, back.stderr
    assert_shows(url, months[:4])
    assert run_command("rollback", url, "--to", "v1").returncode == 0
    assert_shows(url, months[:5])
    assert "no tag" in run_command("tag", url, "v1", "--delete").stdout
    assert "there are none" in run_command("tag", url, "v1", "--delete").stderr
    age(Path(url))
    dry = run_command("prune", url, "--dry-run", "--grace", "1h")
    done = run_command("prune", url, "--grace", "1h")
    assert dry.stdout.replace("would remove", "removed") == done.stdout
    assert_shows(url, months[:5])
    assert "grace" in run_command("prune", url, "--grace", "soon").stderr
    shown = run_command("info", url, "--snapshot", gridref.open_catalog(url).info.snapshot)
    assert shown.returncode == 0, shown.stderr


def test_the_last_snapshot_is_amended(months: list[Path], tmp_path: Path) -> None:
    catalog = built(months[:2], tmp_path / "cube").append(months[3])
    first, wrong = catalog.history()[1].id, catalog.info.snapshot
    reader = gridref.open_catalog(tmp_path / "cube")
    catalog = catalog.amend().replace(months[3], months[2])
    assert [commit.operation for commit in catalog.history()] == ["replace", "write"]
    assert catalog.history()[0].parent == first
    assert_shows(tmp_path / "cube", months[:3])
    assert reader["tas"].shape[0] == 15
    assert np.isfinite(reader["tas"][10:]).all()  # what was opened goes on showing what it did
    with pytest.raises(InvalidRequestError, match="no snapshot"):
        gridref.open_catalog(tmp_path / "cube", snapshot=wrong)
    catalog = catalog.amend().append(months[4]).append(months[5])  # the second one amends nothing
    assert [commit.operation for commit in catalog.history()] == ["append", "append", "write"]
    catalog.prune(grace_seconds=0)
    assert_shows(tmp_path / "cube", [*months[:3], *months[4:6]])
    done = run_command("append", tmp_path / "cube", months[3], "--amend")
    assert done.returncode == 0, done.stderr
    assert_shows(tmp_path / "cube", months[:6])
    with pytest.raises(InvalidRequestError, match="pruned"):
        gridref.open_catalog(tmp_path / "cube").rollback()


def test_what_is_tagged_or_no_more_the_last_is_not_amended(
    months: list[Path], tmp_path: Path
) -> None:
    catalog = built(months[:2], tmp_path / "cube")
    with pytest.raises(InvalidRequestError, match="tagged 'v1'"):
        catalog.tag("v1").amend()
    catalog = catalog.untag("v1")
    mine = catalog.amend()
    catalog.append(months[2])
    with pytest.raises(CatalogConflictError, match="cannot amend snapshot"):
        mine.append(months[3])
    assert_shows(tmp_path / "cube", months[:3])
    late = gridref.open_catalog(tmp_path / "cube").amend()
    gridref.open_catalog(tmp_path / "cube").tag("v2")
    with pytest.raises(CatalogConflictError, match="tagged by now"):
        late.append(months[3])
    assert_shows(gridref.open_catalog(tmp_path / "cube", snapshot="v2"), months[:3])


@pytest.fixture
def three(months: list[Path]) -> list[Path]:
    return months[:3]


@pytest.fixture
def three_months(three: list[Path], tmp_path: Path) -> gridref.Catalog:
    """Two months, tagged as ``two``, and a third."""
    return built(three[:2], tmp_path / "cube.gridref").tag("two").append(three[2])


def files_of(months: list[Path]) -> Any:
    return np.concatenate(
        [xr.open_dataset(file, engine="netcdf4")["tas"].values for file in months]
    )


DOORS: dict[str, Callable[[str, str], xr.Dataset]] = {
    "engine": lambda url, snapshot: xr.open_dataset(url, engine="gridref", snapshot=snapshot),
    "engine, dask": lambda url, snapshot: xr.open_dataset(
        url, engine="gridref", snapshot=snapshot, chunks={}
    ),
    "tree": lambda url, snapshot: xr.open_datatree(
        url, engine="gridref", snapshot=snapshot
    ).to_dataset(),
    "store": lambda url, snapshot: xr.open_zarr(gridref.open_store(url, snapshot=snapshot)),
    "store, decoded on the way": lambda url, snapshot: xr.open_zarr(
        gridref.open_store(url, "portable", snapshot=snapshot)
    ),
    "address": lambda url, snapshot: xr.open_zarr(
        f"gridref::file://{url}", storage_options={"gridref": {"snapshot": snapshot}}
    ),
}


@pytest.mark.parametrize("door", DOORS)
def test_doors_show_former_snapshots(
    three_months: gridref.Catalog, three: list[Path], door: str
) -> None:
    url = three_months.info.url
    for snapshot in ("two", three_months.history()[1].id):
        shown = DOORS[door](url, snapshot)
        assert np.array_equal(shown["tas"].values, files_of(three[:2]))
    assert np.array_equal(
        DOORS[door](url, three_months.info.snapshot)["tas"].values, files_of(three)
    )
    with pytest.raises(InvalidRequestError, match="no snapshot 'three'"):
        DOORS[door](url, "three")


@pytest.mark.parametrize("door", ["store", "store, decoded on the way", "address", "engine"])
def test_pickles_read_what_they_were_made_of(
    three_months: gridref.Catalog, three: list[Path], door: str
) -> None:
    pickled = pickle.dumps(DOORS[door](three_months.info.url, "two"))
    three_months.tag("two").rollback("two")
    assert np.array_equal(pickle.loads(pickled)["tas"].values, files_of(three[:2]))


def test_pickles_of_a_store_outlive_appends(three: list[Path], tmp_path: Path) -> None:
    catalog = built(three[:2], tmp_path / "cube.gridref")
    pickled = pickle.dumps(gridref.open_store(catalog.info.url))
    catalog.append(three[2])
    read = zarr.open_group(pickle.loads(pickled), mode="r")["tas"]
    assert np.array_equal(read[...], files_of(three[:2]))
    shutil.rmtree(tmp_path / "cube.gridref")
    gridref.build(three, tmp_path / "cube.gridref", "time")  # a new history
    with pytest.raises(CatalogError, match="rebuilt after"):
        pickle.loads(pickled)


def test_what_is_open_has_its_snapshot(three_months: gridref.Catalog) -> None:
    with pytest.raises(InvalidRequestError, match="snapshot= is for the address of a catalog"):
        gridref.open_store(three_months, snapshot="two")


def test_a_server_shows_snapshots_by_tag_and_id(
    three_months: gridref.Catalog, three: list[Path]
) -> None:
    def shape(path: str) -> Any:
        answer = httpx.get(f"{url}{path}")
        return answer.json()["shape"][0] if answer.status_code == 200 else answer.status_code

    with running(create_app([three_months.info.url], reload_seconds=0.05)) as url:
        first = three_months.history()[1].id
        for name in ("two", first):
            read = xr.open_zarr(f"{url}/cube@{name}/portable", consolidated=False)
            assert np.array_equal(read["tas"].values, files_of(three[:2]))
            assert shape(f"/cube/native/tas/zarr.json?snapshot={name}") == 10
        assert shape("/cube/portable/tas/zarr.json") == 15
        assert shape("/cube@three/portable/tas/zarr.json") == 409  # absent would read as fill
        assert shape("/cube/portable/tas/zarr.json?snapshot=three") == 409
        assert shape("/other/portable/tas/zarr.json?snapshot=two") == 404
        assert 'href="/cube@two/portable/tas/"' in httpx.get(f"{url}/cube@two/portable/").text
        three_months.tag("two", three_months.info.snapshot)
        deadline = time.monotonic() + 20
        while shape("/cube@two/portable/tas/zarr.json") == 10 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert shape("/cube@two/portable/tas/zarr.json") == 15
        assert shape(f"/cube@{first}/portable/tas/zarr.json") == 10


@pytest.mark.long
def test_commands_read_former_snapshots(
    three_months: gridref.Catalog, three: list[Path], tmp_path: Path
) -> None:
    url = three_months.info.url

    def lines(*command: str) -> list[str]:
        done = run_command(*command)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert len(lines("list", url, "sources", "--format", "jsonl", "--snapshot", "two")) == 2
    listed = lines("list", url, "chunks", "tas", "--format", "jsonl", "--snapshot", "two")
    assert {json.loads(line)["source"] for line in listed} == {str(file) for file in three[:2]}
    query = "SELECT count(*) AS n FROM sources"
    assert lines("list", url, "--sql", query, "--format", "jsonl", "--snapshot", "two") == [
        '{"n": 2}'
    ]
    assert "0 chunks differ" in lines("verify", url, "--snapshot", "two")[-1]
    references = tmp_path / "two.json"
    lines("export", url, str(references), "--snapshot", "two")
    mapper = fsspec.filesystem("reference", fo=str(references)).get_mapper("")
    assert xr.open_zarr(mapper, consolidated=False, zarr_format=2)["tas"].shape[0] == 10
    changes = run_command("diff", url, "--snapshot", "two")
    assert (changes.returncode, three[2].name in changes.stdout) == (1, True)
    assert run_command("diff", url).returncode == 2
    assert run_command("diff", url, "--snapshot", "none").returncode == 2
