"""Changes of a catalog that cannot be written, parts that are lost, clocks that are wrong."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

import gridref
from gridref.catalog.folder import RemoteFolder
from gridref.errors import CatalogError, InvalidRequestError
from gridref.faces.web.publishing import publish
from tests.command import run_command
from tests.http_server import Site, serving
from tests.integration.growing import assert_shows, built, files_in, month
from tests.s3_server import BUCKET, s3_bucket
from tests.unprivileged import reachable_folder, unprivileged

N_MONTHS = 5


CHANGES = {
    "append": ["append", "CATALOG", "003.nc"],
    "replace": ["refresh", "CATALOG", "001.nc", "--by", "003.nc"],
    "remove": ["remove", "CATALOG", "001.nc"],
    "declare": ["append", "CATALOG", "--declare", "time=2000-02-01/2000-03-01"],
    "tag": ["tag", "CATALOG", "v1"],
    "rollback": ["rollback", "CATALOG"],
    "stats": ["list", "CATALOG", "statistics", "--scan-values"],
}


def assert_refused_on_a_full_disk(*words: object) -> None:
    """Run a command that may write no file of more than 100 bytes, as on a disk without room."""

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    command = [sys.executable, "-B", "-m", "gridref", *map(str, words)]
    # Not into a pipe's file: what is told is told in any case.
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, preexec_fn=full
    )
    assert done.returncode == 1
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long(but=1)
@pytest.mark.parametrize("change", CHANGES)
def test_a_full_disk(months: list[Path], tmp_path: Path, change: str) -> None:
    cube = tmp_path / "cube"
    built(months[:2], cube).append(months[2])
    before = files_in(cube)
    words = [str(cube) if word == "CATALOG" else word for word in CHANGES[change]]
    words = [str(months[0].parent / word) if word.endswith(".nc") else word for word in words]
    assert_refused_on_a_full_disk(*words)
    assert files_in(cube) == before
    assert_shows(cube, months[:3])
    gridref.open_catalog(cube).append(months[4])


def test_a_full_disk_leaves_no_folder_of_a_first_build(months: list[Path], tmp_path: Path) -> None:
    there = sorted(tmp_path.iterdir())
    words = ["build", *months[:2], "--concat-dim", "time", "-o", tmp_path / "new/cube"]
    assert_refused_on_a_full_disk(*words)
    assert sorted(tmp_path.iterdir()) == there


def all_files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("export", "refs.json"),
        ("export", "refs.parq"),
        ("export", "aggregation.nc"),
        ("stac", "item.json"),
        ("draw", "tas.svg"),
    ],
)
def test_a_full_disk_leaves_what_was_exported(
    months: list[Path], tmp_path: Path, command: str, output: str
) -> None:
    cube, exports = tmp_path / "cube", tmp_path / "exports"
    built(months[:2], cube)
    exports.mkdir()
    words = {
        "export": ["export", cube, exports / output],
        "stac": ["export", cube, exports / output, "--to", "stac"],
        "draw": ["info", cube, "tas", "-o", exports / output],
    }[command]
    assert_refused_on_a_full_disk(*words)
    assert all_files(exports) == {}
    assert run_command(*words).returncode == 0
    before = all_files(exports)
    assert before
    assert_refused_on_a_full_disk(*words)
    assert all_files(exports) == before


@pytest.mark.long
def test_a_full_disk_leaves_the_published_site(months: list[Path], tmp_path: Path) -> None:
    cube, site = tmp_path / "cube", tmp_path / "site"
    built(months[:2], cube)
    with serving(Site({f"/{path.name}": path.read_bytes() for path in months})) as server:
        places = ("--from", months[0].parent, "--to", server.url)
        words = ("publish", cube, site, "--base-url", "https://example.org/site", *places)
        assert_refused_on_a_full_disk(*words)
        assert all_files(site) == {}
        assert run_command(*words).returncode == 0
        before = all_files(site)
        gridref.open_catalog(cube).append(months[2])
        assert_refused_on_a_full_disk(*words)
        assert all_files(site) == before
        assert run_command(*words).returncode == 0


def test_names_that_are_too_long_for_a_file_system(tmp_path: Path) -> None:
    name, exports = "x" * 300, tmp_path / "exports"
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file[name] = [1]
    gridref.build(tmp_path / "a.h5", tmp_path / "cube")
    exports.mkdir()
    done = run_command("export", tmp_path / "cube", exports / "refs.parq")
    assert "references cannot be written: File name too long" in done.stderr
    assert all_files(exports) == {}
    with serving(Site({"/a.h5": (tmp_path / "a.h5").read_bytes()})) as server:
        options = {"base_url": "https://example.org", "prefixes": {f"{tmp_path}/": server.url}}
        with pytest.raises(InvalidRequestError, match="site cannot be written: File name too long"):
            publish(tmp_path / "cube", tmp_path / "site", **options)
    assert all_files(tmp_path / "site") == {}


def test_a_folder_that_may_not_be_written() -> None:
    with reachable_folder() as folder:
        months = [month(folder, number) for number in range(3)]
        cube = folder / "cube"
        catalog = built(months[:2], cube)
        before = {path.name: path.read_bytes() for path in cube.iterdir()}
        cube.chmod(0o555)
        with unprivileged():
            assert np.array_equal(gridref.open_catalog(cube)["time"][...], np.arange(10))
            changes: list[Callable[[], object]] = [
                lambda: catalog.append(months[2]),
                lambda: catalog.remove(months[0]),
                lambda: catalog.tag("v1"),
                catalog.scan_values,
            ]
            for change in changes:
                with pytest.raises(CatalogError, match="cannot be written: Permission denied"):
                    change()
        assert {path.name: path.read_bytes() for path in cube.iterdir()} == before
        assert_shows(cube, months[:2])


@pytest.mark.parametrize("skew", [-7 * 86400.0, 7 * 86400.0])
def test_clocks_that_are_wrong_let_prune_remove_nothing_that_is_needed(
    months: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skew: float
) -> None:
    """Ages are by the clock of where files lie; whatever they say, live snapshots stay."""
    with s3_bucket() as bucket:
        url, options = f"s3://{BUCKET}/cube.gridref", bucket.options
        gridref.build(months[:2], url, "time", storage_options=options)
        catalog = gridref.open_catalog(url, storage_options=options).tag("two")
        catalog = catalog.append(months[2]).append(months[3])
        import time

        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + skew)  # this machine's clock is wrong
        assert catalog.prune().files == ()  # nothing is a day old where it lies
        monkeypatch.setattr(RemoteFolder, "age", lambda self, name: 1e9 + skew)
        catalog.prune()
        monkeypatch.undo()
        for snapshot, n in (("two", 2), (None, 4)):
            opened = gridref.open_catalog(url, storage_options=options, snapshot=snapshot)
            expected = np.concatenate([gridref.scan(f)["tas"][...] for f in months[:n]])
            assert np.array_equal(opened["tas"][...], expected)


def small_file(path: Path, number: int) -> Path:
    with h5py.File(path, "w", libver="latest") as file:
        file["time"] = [float(number)]
        file["time"].make_scale("time")
        file.create_dataset("v", data=np.full((1, 3), number, "f4"), chunks=(1, 3))
        file["v"].dims[0].attach_scale(file["time"])
    return path


def test_what_is_written_does_not_grow_with_the_catalog(tmp_path: Path) -> None:
    """An append to a catalog of very many files writes a small part of it."""
    days = [small_file(tmp_path / f"{number:03}.h5", number) for number in range(201)]
    written = []
    for n_files in (1, 200):
        cube = tmp_path / f"cube{n_files}"
        catalog = built(days[:n_files], cube)
        before = {path.name for path in cube.iterdir()}
        catalog.append(days[200])
        new = [path for path in cube.iterdir() if path.name not in before]
        written.append(
            sum(path.stat().st_size for path in new) + (cube / "gridref.json").stat().st_size
        )
    assert written[1] < written[0] * 1.5
