"""``gridref serve`` as a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import closing, contextmanager

import h5py
import httpx
import numpy as np
import pytest
import xarray as xr
import zarr

import gridref
from gridref.catalog.commit import write_catalog
from gridref.errors import InvalidRequestError
from gridref.faces.cli.options import parse_lengths, parse_shards
from gridref.model.array import VirtualGroup
from gridref.testing.builders import chunked_array
from tests.command import run_command

VALUES = np.arange(80 * 500, dtype="i4").reshape(80, 500)


@contextmanager
def serving(*arguments):
    """A process that serves at a free port: its address, the process, and what it announced."""
    code = "from gridref.faces.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", *arguments, "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        announced = process.stderr.readline()
        yield announced.removeprefix("Serving on ").partition("/ ")[0], process, announced
    finally:
        process.kill()
        process.wait(20)
        process.stderr.close()


@pytest.mark.long
def test_the_demonstration_is_served(sample_data):
    command = [sys.executable, "-m", "gridref.demo", "--serve", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--data", str(sample_data)], stdout=subprocess.PIPE, text=True
    )
    try:
        address = next(line.split()[1] for line in process.stdout if line.startswith("Open "))
        page = httpx.get(address, headers={"Accept": "text/html"})
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait(20)
        process.stdout.close()
    assert page.status_code == 200
    assert "<h1>tas</h1>" in page.text


@pytest.fixture
def catalog(tmp_path):
    address = tmp_path / "cube.gridref"
    array = chunked_array(VALUES, (20, 100), ("t", "x"), compressed=True)
    write_catalog(VirtualGroup({"a": array}), address)
    return str(address)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("workers", [1, 2])
def test_it_serves_and_stops(catalog, workers):
    arguments = (catalog, "--workers", str(workers), "--shards", "t=40")
    with serving(*arguments) as (url, process, announced):
        assert url != "http://127.0.0.1:0"
        (advised,) = re.findall(r'xr\.open_zarr\("(\S+)"\)', announced)
        with xr.open_zarr(advised.replace("NAME", "cube"), consolidated=False) as shown:
            assert set(shown.variables) == set(gridref.open_catalog(catalog).arrays)
        group = zarr.open_group(f"{url}/cube/portable", mode="r")
        assert group["a"].shards == (40, 500)
        np.testing.assert_array_equal(group["a"][...], VALUES)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=30)
    assert process.returncode in (0, -signal.SIGTERM)
    entries = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert any(entry["path"].endswith("/a/c/0/0") for entry in entries)


def test_a_source_that_is_cut_while_it_is_sent_is_one_line(tmp_path):
    (tmp_path / "raw").mkdir()
    with h5py.File(tmp_path / "raw/a.h5", "w") as file:
        # One chunk: more than the buffers of a connection hold.
        file.create_dataset("v", data=np.arange(2**23), chunks=(2**23,))
    gridref.build(tmp_path / "raw/a.h5", tmp_path / "cube.gridref")
    with serving(str(tmp_path / "cube.gridref")) as (url, process, _):
        with httpx.stream("GET", f"{url}/cube/native/v/c/0") as answer:
            parts = answer.iter_raw()
            assert len(next(parts))
            os.truncate(tmp_path / "raw/a.h5", 2**20)
            with pytest.raises(httpx.TransportError):
                _ = list(parts)
        process.send_signal(signal.SIGINT)
        lines = [line for line in process.stderr if not line.startswith("{")]
    (line,) = lines
    assert line.startswith("error: GET /cube/native/v/c/0: ")


def failing(*arguments):
    """Standard error of a ``gridref serve`` that ends by itself with one line."""
    done = run_command("serve", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


def test_a_bad_catalog_is_one_line(tmp_path):
    assert "none.gridref" in failing(tmp_path / "none.gridref")


@pytest.mark.long
def test_where_it_cannot_listen_nothing_is_announced(catalog):
    for port in ("99999", "-1"):
        assert "a port is a number from 0 to 65535" in failing(catalog, "--port", port)
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        for workers in ("1", "2"):
            text = failing(catalog, "--port", port, "--workers", workers)
            assert f"cannot listen at 127.0.0.1, port {port}" in text
    assert "cannot listen at no.such.host.invalid" in failing(
        catalog, "--host", "no.such.host.invalid"
    )


def test_lengths():
    assert parse_shards("blocks") == "blocks"
    assert parse_shards(None) is None
    assert parse_shards("time=120, lat=60") == {"time": 120, "lat": 60}
    assert parse_lengths("time=-1") == {"time": -1}  # the whole dimension, for copies
    for text in ("time", "time=x", "=3", "time=--1"):
        with pytest.raises(InvalidRequestError):
            parse_lengths(text)
