"""``gridref rechunk``, and overlays in ``gridref info``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import gridref
from tests.command import run_command
from tests.integration.test_overlays import Cube


@pytest.fixture
def cube(tmp_path: Path) -> Cube:
    return Cube(tmp_path)


def test_write_list_update_and_drop(cube: Cube) -> None:
    done = run_command("rechunk", cube.url, "tas", "--chunks", "time=-1,lat=5,lon=5")
    assert done.returncode == 0, done.stderr
    assert "tas: 24x12x14 in chunks of 24x5x5: 0.0154 MB in 1 shard, each" in done.stderr
    shown = run_command("info", cube.url).stdout
    assert "tas: overlay 0, chunks allx5x5, 100 % covered" in shown
    assert "tas: overlay 0, chunks allx5x5" in run_command("info", cube.url, "tas").stdout
    appended = run_command("append", cube.url, cube.write(6, np.ones((4, 12, 14), "f4")))
    assert "tas: overlay 0, chunks allx5x5, 85.7 % covered" in appended.stderr
    assert "85.7 % covered" in run_command("info", cube.url).stdout
    updated = run_command("rechunk", cube.url, "tas", "--update")
    assert "tas: 4x12x14 in chunks of 4x5x5" in updated.stderr
    (listed,) = json.loads(run_command("info", cube.url, "--json").stdout)["overlays"]
    assert (listed["covered"], listed["n_sheets"]) == (1, 2)
    dropped = run_command("rechunk", cube.url, "tas", "--drop", "0")
    assert dropped.returncode == 0
    assert "overlay" not in run_command("info", cube.url).stdout
    pruned = run_command("prune", cube.url, "--grace", "0s")
    assert "2 folders of overlays" in pruned.stdout
    assert not cube.objects()


def test_costs_of_a_selection(cube: Cube) -> None:
    run_command("rechunk", cube.url, "tas", "--chunks", "time=-1,lat=5,lon=5")
    shown = run_command("info", cube.url, "tas", "--select", "time=:,lat=7,lon=9").stdout
    files, overlay = shown.splitlines()[1:]
    assert files.split()[:3] == ["files", "24", "6"]
    assert overlay.split()[:4] == ["overlay", "0", "1", "1"]
    assert overlay.rstrip().endswith("chosen")
    rows = json.loads(run_command("info", cube.url, "tas", "--select", "time=3", "--json").stdout)
    assert [row["chosen"] for row in rows] == [True, False]


def test_a_part_by_labels(cube: Cube) -> None:
    done = run_command(
        "rechunk",
        cube.url,
        "tas",
        "--chunks",
        "time=-1",
        "--where",
        "lat=3:6",
        "--where",
        "time=4/",
    )
    assert done.returncode == 0, done.stderr
    (info,) = gridref.open_catalog(cube.url).overlays()
    assert info.where == {"lat": (3, 6), "time": (4, None)}
    assert "lat 3 to 6" in run_command("info", cube.url).stdout


def test_watching_keeps_overlays_and_overviews_up_to_date(cube: Cube) -> None:
    catalog = gridref.open_catalog(cube.url).rechunk("tas", {"time": -1, "lat": 5, "lon": 5})
    catalog.overviews("tas", levels=1, method="max", codec="zstd")
    arrived = cube.write(6, np.ones((4, 12, 14), "f4"))
    done = run_command("watch", cube.url, arrived, "--once", "--rechunk")
    assert done.returncode == 0, done.stderr
    after = gridref.open_catalog(cube.url)
    (info,) = after.overlays()
    assert (info.covered, info.n_sheets) == (1, 2)
    (levels,) = after.list_overviews()
    assert (levels.is_shown, levels.method, levels.n_levels) == (True, "max", 1)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["tas"], 2, "nothing to do: give one of --chunks LENGTHS, --update or --drop N"),
        (["tas", "--update", "--drop", "0"], 2, "nothing to do"),
        (["tas", "--update"], 1, "no overlay to bring up to date; --chunks ... writes one"),
        (["pr", "--chunks", "time=-1"], 1, "no array 'pr'"),
        (["tas", "--chunks", "time=-1", "--where", "lat"], 1, "labels are written like lat=40:60"),
        (["tas", "--chunks", "time=-1", "--memory", "1MB"], 1, "--memory 1MB is too little"),
    ],
)
def test_what_cannot_be_done(cube: Cube, arguments: list[str], status: int, said: str) -> None:
    done = run_command("rechunk", cube.url, *arguments)
    assert done.returncode == status
    assert said in done.stderr.replace("\n", " ")


def test_positions_that_are_none(cube: Cube) -> None:
    done = run_command("info", cube.url, "tas", "--select", "lat=north")
    assert "positions are written like lat=7" in done.stderr
    assert "name it after the catalog" in run_command("info", cube.url, "--select", "lat=7").stderr
