"""Every door shows a former snapshot that it is asked for, while the catalog goes on growing."""

from __future__ import annotations

import json
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
from gridref.errors import CatalogError, InvalidRequestError
from gridref.faces.http import create_app
from tests.command import run_command
from tests.integration.growing import built
from tests.uvicorn_server import running

N_MONTHS = 3


@pytest.fixture
def grown(months: list[Path], tmp_path: Path) -> gridref.Catalog:
    """Two months, tagged as ``two``, and a third."""
    return built(months[:2], tmp_path / "cube.gridref").tag("two").append(months[2])


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
def test_doors_show_former_snapshots(grown: gridref.Catalog, months: list[Path], door: str) -> None:
    url = grown.info.url
    for snapshot in ("two", grown.history()[1].id):
        shown = DOORS[door](url, snapshot)
        assert np.array_equal(shown["tas"].values, files_of(months[:2]))
    assert np.array_equal(DOORS[door](url, grown.info.snapshot)["tas"].values, files_of(months))
    with pytest.raises(InvalidRequestError, match="no snapshot 'three'"):
        DOORS[door](url, "three")


@pytest.mark.parametrize("door", ["store", "store, decoded on the way", "address", "engine"])
def test_pickles_read_what_they_were_made_of(
    grown: gridref.Catalog, months: list[Path], door: str
) -> None:
    pickled = pickle.dumps(DOORS[door](grown.info.url, "two"))
    grown.tag("two").rollback("two")
    assert np.array_equal(pickle.loads(pickled)["tas"].values, files_of(months[:2]))


def test_pickles_of_a_store_outlive_appends(months: list[Path], tmp_path: Path) -> None:
    catalog = built(months[:2], tmp_path / "cube.gridref")
    pickled = pickle.dumps(gridref.open_store(catalog.info.url))
    catalog.append(months[2])
    read = zarr.open_group(pickle.loads(pickled), mode="r")["tas"]
    assert np.array_equal(read[...], files_of(months[:2]))
    shutil.rmtree(tmp_path / "cube.gridref")
    gridref.build(months, tmp_path / "cube.gridref", "time")  # a new history
    with pytest.raises(CatalogError, match="rebuilt after"):
        pickle.loads(pickled)


def test_what_is_open_has_its_snapshot(grown: gridref.Catalog) -> None:
    with pytest.raises(InvalidRequestError, match="snapshot= is for the address of a catalog"):
        gridref.open_store(grown, snapshot="two")


def test_a_server_shows_snapshots_by_tag_and_id(grown: gridref.Catalog, months: list[Path]) -> None:
    def shape(path: str) -> Any:
        answer = httpx.get(f"{url}{path}")
        return answer.json()["shape"][0] if answer.status_code == 200 else answer.status_code

    with running(create_app([grown.info.url], reload_seconds=0.05)) as url:
        first = grown.history()[1].id
        for name in ("two", first):
            read = xr.open_zarr(f"{url}/cube@{name}/portable", consolidated=False)
            assert np.array_equal(read["tas"].values, files_of(months[:2]))
            assert shape(f"/cube/native/tas/zarr.json?snapshot={name}") == 10
        assert shape("/cube/portable/tas/zarr.json") == 15
        assert shape("/cube@three/portable/tas/zarr.json") == 409  # absent would read as fill
        assert shape("/cube/portable/tas/zarr.json?snapshot=three") == 409
        assert shape("/other/portable/tas/zarr.json?snapshot=two") == 404
        assert 'href="/cube@two/portable/tas/"' in httpx.get(f"{url}/cube@two/portable/").text
        grown.tag("two", grown.info.snapshot)
        deadline = time.monotonic() + 20
        while shape("/cube@two/portable/tas/zarr.json") == 10 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert shape("/cube@two/portable/tas/zarr.json") == 15
        assert shape(f"/cube@{first}/portable/tas/zarr.json") == 10


@pytest.mark.long
def test_commands_read_former_snapshots(
    grown: gridref.Catalog, months: list[Path], tmp_path: Path
) -> None:
    url = grown.info.url

    def lines(*command: str) -> list[str]:
        done = run_command(*command)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert len(lines("list", url, "sources", "--format", "jsonl", "--snapshot", "two")) == 2
    listed = lines("list", url, "chunks", "tas", "--format", "jsonl", "--snapshot", "two")
    assert {json.loads(line)["source"] for line in listed} == {str(file) for file in months[:2]}
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
    assert (changes.returncode, months[2].name in changes.stdout) == (1, True)
    assert run_command("diff", url).returncode == 2
    assert run_command("diff", url, "--snapshot", "none").returncode == 2
