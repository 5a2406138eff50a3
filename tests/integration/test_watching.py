"""Watching appends what comes, survives being killed, and says what does not fit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import gridref
from gridref.api.catalog import Watch
from gridref.errors import CatalogNotFoundError, InvalidRequestError
from tests.command import run_command
from tests.integration.growing import assert_shows, built, month


def watch(cube: Path, files: Any = None, *, storage_options: Any = None, **options: Any) -> Watch:
    return gridref.open_catalog(cube, storage_options=storage_options).watch(files, **options)


N_MONTHS = 8


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
    assert "002.nc: CombineError" in done.stderr
    assert "half.nc: " in done.stderr
    shutil.copy2(months[3], incoming / "half.nc")
    month(incoming, 2)
    done = run_command("watch", cube, incoming, "--once")
    assert (done.returncode, done.stderr) == (0, "")
    assert_shows(cube, months[:4])


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
    assert_shows(cube, months)


def test_bad_calls(months: list[Path], tmp_path: Path) -> None:
    with pytest.raises(CatalogNotFoundError):
        watch(tmp_path / "none", tmp_path, once=True)
    built(months[:1], tmp_path / "cube")
    with pytest.raises(InvalidRequestError, match="nothing to watch"):
        watch(tmp_path / "cube", once=True)
    assert run_command("watch", tmp_path / "none", tmp_path, "--once").returncode == 1
    assert run_command("watch", tmp_path / "none", tmp_path, "--every", "often").returncode == 1
