"""`gridref doctor`: each step, on servers that fail at it, and what to do then."""

from __future__ import annotations

import json
import shutil
from importlib.metadata import version
from pathlib import Path

import h5py
import numpy as np
import pytest

import gridref
from gridref.api.doctor import Step, examined, extras
from gridref.faces.cli.look import print_installed
from tests.command import run_command
from tests.http_server import Site, serving
from tests.s3_server import s3_bucket


def data_file(path: Path, **options: object) -> Path:
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=np.arange(40) + 7, chunks=(10,), **options)
    return path


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    return data_file(tmp_path / "a.h5").read_bytes()


def last(url: object, **options: object) -> Step:
    """The last step of an examination; all before it went well."""
    *before, step = examined(str(url), options or None)
    assert all(each.ok for each in before)
    return step


HTTP = [
    "name",
    "connection",
    "file",
    "ranges",
    "identity",
    "format",
    "metadata",
    "codecs",
    "chunks",
]


def test_what_can_be_read(content: bytes, tmp_path: Path) -> None:
    site = Site({"/a.h5": content}, {"/a.h5": '"1"'})
    with serving(site):
        steps = list(examined(f"{site.url}/a.h5"))
    assert [step.name for step in steps] == HTTP
    assert all(step.ok for step in steps)
    told = {step.name: step.text for step in steps}
    assert told["file"].startswith(f"{len(content)} bytes")
    assert "ETag" in told["identity"]
    assert told["format"] == "HDF5/NetCDF4"
    assert told["chunks"] == "an element of v was read: 7"
    local = [step.name for step in examined(tmp_path / "a.h5")]
    assert local == ["file", "identity", "format", "metadata", "codecs", "chunks"]


def test_of_a_folder_the_first_file_is_examined(tmp_path: Path) -> None:
    for name in ("b.h5", "a.h5"):
        data_file(tmp_path / name)
    steps = list(examined(tmp_path))
    assert all(step.ok for step in steps)
    assert steps[0].text == (f"2 in the folder; what follows is of the first: {tmp_path / 'a.h5'}")
    assert [step.name for step in steps[1:]] == ["file", *HTTP[4:]]


def test_servers_that_fail_and_what_helps(content: bytes) -> None:
    site = Site({"/a.h5": content})
    with serving(site):
        site.ignores_ranges = True
        step = last(f"{site.url}/a.h5")
        assert (step.name, step.ok) == ("ranges", False)
        assert "Copy the file to a place that serves them" in step.text
        site.ignores_ranges = False
        assert last(f"{site.url}/a.h5").ok
        step = last(f"{site.url}/none.h5")
        assert (step.name, step.ok) == ("file", False)
        assert "does not exist" in step.text
        for status in (401, 403):
            site.refuses = lambda headers, path, status=status: (
                None if headers.get("X-Key") == "right" else status
            )
            step = last(f"{site.url}/a.h5?token=S3cr3tX")
            assert (step.name, step.ok) == ("file", False)
            assert "the credentials in storage_options" in step.text
            assert "S3cr3tX" not in step.text
            assert last(f"{site.url}/a.h5", http={"headers": {"X-Key": "right"}}).ok
        port = site.url.rpartition(":")[2]
    step = last(f"http://127.0.0.1:{port}/a.h5")
    assert (step.name, step.ok) == ("connection", False)
    assert f"no server answers at 127.0.0.1, port {port}" in step.text
    step = last("http://no-such-server.invalid/a.h5")
    assert (step.name, step.ok) == ("name", False)
    assert "no-such-server.invalid" in step.text


def test_files_that_fail(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "notes.txt").write_text("nothing to scan here")
    step = last(tmp_path / "notes.txt")
    assert (step.name, step.ok) == ("format", False)
    assert "looks like plain text" in step.text
    (tmp_path / "cut.h5").write_bytes(content[: len(content) // 2])
    step = last(tmp_path / "cut.h5")
    assert (step.name, step.ok) == ("metadata", False)
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_chunk((10,))
    settings.set_filter(32024, h5py.h5z.FLAG_OPTIONAL, ())  # SZ3, which nothing decodes
    with h5py.File(tmp_path / "odd.h5", "w") as file:
        space = h5py.h5s.create_simple((40,))
        h5py.h5d.create(file.id, b"odd", h5py.h5t.NATIVE_INT32, space, settings)
        file["even"] = np.arange(3)
    step = last(tmp_path / "odd.h5")
    assert (step.name, step.ok) == ("codecs", False)
    assert "SZ3" in step.text
    assert "gridref build --on-unsupported skip" in step.text
    done = run_command(
        "build", tmp_path / "odd.h5", "-o", tmp_path / "odd.gridref", "--on-unsupported", "skip"
    )
    assert done.returncode == 0, done.stderr
    assert gridref.open_catalog(tmp_path / "odd.gridref")["even"].read().tolist() == [0, 1, 2]
    step = last(tmp_path / "none.h5")
    assert (step.name, step.ok) == ("file", False)
    step = last("nosuchprotocol://x/a.h5")
    assert not step.ok
    assert "nosuchprotocol" in step.text


def test_catalogs(tmp_path: Path, content: bytes) -> None:
    catalog = tmp_path / "cube.gridref"
    gridref.build(tmp_path / "a.h5", catalog)
    names = [step.name for step in examined(catalog)]
    assert names == ["catalog", "sources", "chunks"]
    assert last(catalog).text == "an element of v was read: 7"
    (tmp_path / "a.h5").rename(tmp_path / "b.h5")
    step = last(catalog)
    assert (step.name, step.ok) == ("sources", False)
    (tmp_path / "b.h5").rename(tmp_path / "a.h5")
    next(catalog.glob("*.parquet")).write_bytes(b"damaged")
    step = last(catalog)
    assert (step.name, step.ok) == ("catalog", False)
    shutil.rmtree(catalog)
    step = last(catalog)
    assert (step.name, step.ok) == ("catalog", False)


def test_s3(content: bytes) -> None:
    with s3_bucket() as bucket:
        url = bucket.put("a.h5", content)
        steps = list(examined(url, bucket.options))
        assert [step.name for step in steps] == HTTP
        assert all(step.ok for step in steps)
    assert "no server answers at 127.0.0.1, port " in last(url, **bucket.options).text
    held = {**bucket.options["s3"], "client_kwargs": {}}
    step = last(url, s3={**held, "endpoint_url": "http://no-such-server.invalid"})
    assert (step.name, step.ok) == ("name", False)
    assert "no-such-server.invalid" in step.text
    step = last(url, profile="no-such-profile")
    assert (step.name, step.ok) == ("name", False)
    assert "no-such-profile" in step.text


def test_the_command(tmp_path: Path, content: bytes) -> None:
    path, text = tmp_path / "a.h5", tmp_path / "notes.txt"
    text.write_text("nothing to scan here")
    done = run_command("doctor", path)
    assert (done.returncode, done.stdout.count("\n  ok ")) == (0, 6)
    done = run_command("doctor", path, text, "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert list(found) == [str(path), str(text)]
    assert [step["ok"] for step in found[str(text)]] == [True, True, False]


def test_what_is_installed() -> None:
    found = json.loads(run_command("doctor", "--json").stdout)
    assert found["gridref"] == version("gridref")
    assert found["extras"] == extras()
    assert found["extras"]["grib"]
    shown = run_command("doctor").stdout
    assert f"gridref {version('gridref')}" in shown
    for extra, packages in extras().items():
        advice = f"pip install 'gridref[{extra}]'"
        assert (advice in shown) == (None in packages.values())


def test_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    packages = {"grib": {"gribberish": None, "eccodes": "2.50"}, "sql": {"duckdb": "2.0"}}
    print_installed({"gridref": "0.1"}, packages, as_json=False)
    grib, sql = capsys.readouterr().out.splitlines()[1:]
    assert grib.endswith("eccodes 2.50; missing gribberish: pip install 'gridref[grib]'")
    assert sql.endswith("duckdb 2.0")
