"""``gridref serve`` as a process of its own."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, contextmanager

import httpx
import numpy as np
import pytest
import zarr

from gridref.adapters.cli.serve import parse_lengths, parse_shards
from gridref.catalog import write_catalog
from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualGroup
from gridref.testing.builders import chunked_array

VALUES = np.arange(80 * 500, dtype="i4").reshape(80, 500)


@contextmanager
def serving(*arguments):
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    code = "from gridref.adapters.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", *arguments, "--port", str(port)],
        stderr=subprocess.PIPE,
        text=True,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        give_up = time.monotonic() + 60
        while True:
            try:
                httpx.get(f"{url}/healthz")
                break
            except httpx.TransportError:
                assert process.poll() is None, process.stderr.read()
                assert time.monotonic() < give_up
                time.sleep(0.1)
        yield url, process
    finally:
        process.kill()
        process.wait(20)
        process.stderr.close()


@pytest.fixture
def catalog(tmp_path):
    address = tmp_path / "cube.gridref"
    array = chunked_array(VALUES, (20, 100), ("t", "x"), compressed=True)
    write_catalog(VirtualGroup({"a": array}), address)
    return str(address)


@pytest.mark.parametrize("workers", [1, 2])
def test_it_serves_and_stops(catalog, workers):
    with serving(catalog, "--workers", str(workers), "--shards", "t=40") as (url, process):
        group = zarr.open_group(f"{url}/cube/portable", mode="r")
        assert group["a"].shards == (40, 500)
        np.testing.assert_array_equal(group["a"][...], VALUES)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=30)
    assert process.returncode in (0, -signal.SIGTERM)
    entries = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert any(entry["path"].endswith("/a/c/0/0") for entry in entries)


def test_a_bad_catalog_is_one_line(tmp_path):
    code = "from gridref.adapters.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", str(tmp_path / "none.gridref")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "none.gridref" in done.stderr
    assert "Traceback" not in done.stderr


def test_lengths():
    assert parse_shards("blocks") == "blocks"
    assert parse_shards(None) is None
    assert parse_shards("time=120, lat=60") == {"time": 120, "lat": 60}
    for text in ("time", "time=x", "=3", "time=-1"):
        with pytest.raises(InvalidRequestError):
            parse_lengths(text)
