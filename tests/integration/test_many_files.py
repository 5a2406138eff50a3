"""Many files at a time: what the server sees, what comes out, what becomes of those that fail."""

from __future__ import annotations

import io
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import gridref
from gridref.api.scan import scan_many
from gridref.api.workers import workers
from gridref.errors import (
    FilesFailedError,
    InvalidRequestError,
    SkippedFilesWarning,
    SourceFormatError,
    SourceUnavailableError,
)
from gridref.faces.cli.progress import ScanProgress
from gridref.faces.picture import human_bytes
from tests.by_name import by_name
from tests.command import run_code, run_command
from tests.http_server import Site, serving
from tests.integration.archives import write_hdf5

N_FILES = 12


def content(number: int, folder: Path) -> bytes:
    values = np.arange(12.0).reshape(3, 4) + number
    time = np.arange(number * 3, number * 3 + 3.0)
    return write_hdf5(folder / "one.h5", {"time": time}, {"x": (["time"], values)}).read_bytes()


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("files")
    return {f"/f{number}.h5": content(number, folder) for number in range(N_FILES)}


@pytest.fixture
def site(contents: dict[str, bytes]) -> Iterator[Site]:
    with serving(Site({**contents}, etags={path: f'"{path}"' for path in contents})) as site:
        yield site


def content_of(catalog: Path) -> str:
    """The digest of what a catalog holds, whichever way it was written."""
    return gridref.open_catalog(catalog).info.digest


def urls(site: Site) -> list[str]:
    return [f"{site.url}{path}" for path in site.files]


def test_files_are_in_flight_together(site: Site) -> None:
    site.awaits = 6
    groups = scan_many(urls(site))
    assert site.most_at_once >= 6
    found = [group["x"][0, 0] for group in groups]
    np.testing.assert_array_equal(found, np.arange(N_FILES))  # in the order of the files


def test_no_more_files_are_in_flight_than_asked_for(site: Site) -> None:
    site.awaits, site.delay_seconds = 3, 0.01
    scan_many(urls(site), max_in_flight=3)
    assert site.most_at_once == 3
    site.most_at_once = site.awaits = 0
    scan_many(urls(site), max_in_flight=1)
    assert site.most_at_once == 1


@pytest.mark.parametrize("options", [{"max_in_flight": 1}, {"max_in_flight": 5}, {}])
def test_plan_and_build_are_the_same_however_many_are_in_flight(
    site: Site, tmp_path: Path, options: dict[str, int]
) -> None:
    site.awaits = options.get("max_in_flight", 6)
    assert gridref.plan(urls(site), "time", **by_name(**options)).group is not None
    assert site.most_at_once >= site.awaits
    gridref.build(urls(site), tmp_path / "many", "time", **by_name(**options))
    gridref.build(urls(site), tmp_path / "one", "time", run=gridref.RunOptions(max_in_flight=1))
    assert content_of(tmp_path / "many") == content_of(tmp_path / "one")


@pytest.mark.long
def test_a_server_that_asks_for_pauses_gets_them(site: Site) -> None:
    site.most_a_second = 4
    groups = scan_many(urls(site))
    np.testing.assert_array_equal([group["x"][0, 0] for group in groups], np.arange(N_FILES))
    assert site.n_throttled


def test_throttling_and_resets_give_the_same_catalog(site: Site, tmp_path: Path) -> None:
    gridref.build(urls(site), tmp_path / "calm", "time", run=gridref.RunOptions(max_in_flight=1))
    site.statuses = [503, 503, 429, 500, 503]
    site.cuts_bodies = 3
    gridref.build(urls(site), tmp_path / "stormy", "time")
    assert not site.statuses
    assert not site.cuts_bodies
    assert content_of(tmp_path / "calm") == content_of(tmp_path / "stormy")


def test_processes_find_the_same(site: Site, tmp_path: Path) -> None:
    gridref.build(urls(site), tmp_path / "one", "time")
    gridref.build(urls(site), tmp_path / "two", "time", run=gridref.RunOptions(executor=2))
    assert content_of(tmp_path / "one") == content_of(tmp_path / "two")


def damage(site: Site) -> None:
    site.files["/f3.h5"] = site.files["/f3.h5"][:1000]
    site.files["/f7.h5"] = b"<html>not here</html>"
    site.forbidden.add("/f9.h5")


def test_all_failures_come_at_once(site: Site, tmp_path: Path) -> None:
    damage(site)
    with pytest.raises(FilesFailedError, match="3 files cannot be scanned") as raised:
        gridref.build(urls(site), tmp_path / "c", "time")
    kinds = [type(error) for error in raised.value.failures]
    assert kinds == [SourceFormatError, SourceFormatError, SourceUnavailableError]
    assert all(f"/f{number}.h5" in str(raised.value) for number in (3, 7, 9))
    assert "on_error='skip' leaves them out" in str(raised.value)
    assert not (tmp_path / "c").exists()


def test_files_that_fail_for_one_reason_are_one_line(site: Site, tmp_path: Path) -> None:
    for number in range(1, 10):
        site.files[f"/f{number}.h5"] = site.files[f"/f{number}.h5"][: 1000 + number]
    site.files["/f11.h5"] = b"<html>not here</html>"
    with pytest.raises(FilesFailedError) as raised:
        gridref.build(urls(site), tmp_path / "c", "time")
    assert len(raised.value.failures) == 10
    _, truncated, page = str(raised.value).splitlines()
    assert "/f1.h5" in truncated
    assert truncated.endswith("] and 8 more files")
    assert "/f11.h5" in page
    run = gridref.RunOptions(on_error="skip")
    with pytest.warns(SkippedFilesWarning, match=r"/f1\.h5 and 8 more: the file is truncated"):
        group = gridref.build(urls(site), tmp_path / "c", "time", run=run)
    counted = f"10 files left out (gridref list {tmp_path / 'c'} report lists them)"
    assert group.report.lines[-1] == counted
    listed = run_command("list", tmp_path / "c", "report").stdout
    assert all(f"f{number}.h5" in listed for number in (*range(1, 10), 11))


def test_one_failure_is_raised_as_it_is(site: Site) -> None:
    """With the remedy, where there is one: not for a file alone, nor in calls that have no such."""
    site.files["/f3.h5"] = site.files["/f3.h5"][:1000]
    remedy = "on_error='skip' leaves it out of 12 files"
    with pytest.raises(SourceFormatError, match=rf"{remedy}.*/f3\.h5"):
        scan_many(urls(site))
    alone = urls(site)[3:4]
    for call in (scan_many, gridref.open_virtual_mfdataset):
        with pytest.raises(SourceFormatError) as raised:
            call(alone if call is scan_many else urls(site))
        assert "on_error" not in str(raised.value)


@pytest.mark.parametrize("n_processes", [1, 2])
def test_what_is_skipped_is_said(site: Site, tmp_path: Path, n_processes: int) -> None:
    damage(site)
    with pytest.warns(SkippedFilesWarning, match="HTML page") as warned:
        group = gridref.build(
            urls(site),
            tmp_path / "c",
            "time",
            run=gridref.RunOptions(on_error="skip", executor=n_processes),
        )
    assert warned[0].filename == __file__
    assert [finding.source for finding in group.report.failed] == [
        f"{site.url}/f{number}.h5" for number in (3, 7, 9)
    ]
    left = [number for number in range(N_FILES) if number not in (3, 7, 9)]
    np.testing.assert_array_equal(gridref.open_catalog(tmp_path / "c")["x"][::3, 0], left)
    with pytest.warns(SkippedFilesWarning):
        assert (
            len(gridref.plan(urls(site), "time", run=gridref.RunOptions(on_error="skip")).failed)
            == 3
        )
    with pytest.warns(SkippedFilesWarning):
        assert len(scan_many(urls(site), on_error="skip")) == 9


def test_too_many_failures_end_the_job_early(site: Site) -> None:
    site.forbidden.update(site.files)
    with pytest.raises(FilesFailedError, match="max_errors=2") as raised:
        scan_many(urls(site), on_error="skip", max_errors=2, max_in_flight=1)
    assert len(raised.value.failures) == 2
    assert {path for _, path, _ in site.requests} == {"/f0.h5", "/f1.h5"}


def test_nothing_left_is_an_error(site: Site) -> None:
    site.forbidden.update(site.files)
    with pytest.raises(FilesFailedError, match="of 12 files"):
        gridref.plan(urls(site), "time", run=gridref.RunOptions(on_error="skip"))


@pytest.mark.parametrize("name", ["max_in_flight", "executor", "max_errors"])
def test_numbers_that_cannot_be_meant_are_refused(name: str, site: Site) -> None:
    with pytest.raises(InvalidRequestError, match=f"{name}=0 must be >= 1"):
        scan_many(urls(site), **{name: 0})


def test_the_command_tells_what_it_left_out(site: Site, tmp_path: Path) -> None:
    damage(site)
    catalog = str(tmp_path / "c")
    line = ["build", *urls(site), "--concat-dim", "time", "-o", catalog, "--on-error"]
    done = run_command(*line, "skip")
    assert done.returncode == 1, done.stderr
    lines = [text for text in done.stderr.splitlines() if text.startswith("left out ")]
    assert [line.partition(": ")[0].rpartition("/")[2] for line in lines] == [
        "f3.h5",
        "f7.h5",
        "f9.h5",
    ]
    assert gridref.open_catalog(catalog)["x"].shape == (27, 4)
    done = run_command(*line, "raise", "--overwrite")
    assert done.returncode == 1
    assert "3 files cannot be scanned" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("n_processes", [1, 2])
def test_the_progress_bar_shows_what_the_server_counted(site: Site, n_processes: int) -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=160, color_system=None)
    with ScanProgress(console, quiet=False) as progress:
        scan_many(urls(site), progress=progress, executor=n_processes)
        n_bytes = sum(map(len, site.files.values()))
    last = shown.getvalue()
    assert last.index("listing files") < last.index("combining files")
    assert f"{N_FILES}/{N_FILES}" in last
    assert f"{len(site.requests)} requests, {human_bytes(n_bytes)}" in last
    assert "files/s" in last


def test_the_progress_bar_says_when_the_catalog_is_written(site: Site, tmp_path: Path) -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=160, color_system=None)
    said: list[str] = []

    def show(done: int, total: int) -> None:
        progress(done, total)
        said.append(progress.what)

    with ScanProgress(console, quiet=False) as progress:
        gridref.build(urls(site), tmp_path / "c.gridref", "time", progress=show)
    assert said == ["reading files"] * (N_FILES - 1) + ["combining files", "writing"]
    assert "writing" in shown.getvalue()


@pytest.mark.long(but=1)
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_interrupt_ends_the_command_and_leaves_nothing(
    site: Site, tmp_path: Path, jobs: str
) -> None:
    site.statuses = [503] * 10_000
    catalog = tmp_path / "c"
    line = ["build", *urls(site), "--concat-dim", "time", "-o", str(catalog), "--jobs", jobs]
    command = str(Path(sys.executable).with_name("gridref"))
    process = subprocess.Popen(
        [command, *line], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while len(site.requests) < 2 and process.poll() is None:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes of the job
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert said.strip().splitlines()[-1] == (
        "interrupted: run the same command again to go on (--work FOLDER keeps what was scanned)"
    )
    assert "Traceback" not in said
    assert not catalog.exists()
    while is_there(process.pid):  # no worker lives on: a test that hangs here has failed
        time.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_interrupts_are_held_back_in_processes_from_their_first_moment() -> None:
    before = set(multiprocessing.active_children())
    with workers(1):
        (process,) = set(multiprocessing.active_children()) - before
        status = Path(f"/proc/{process.pid}/status").read_text()
        held = int(re.search(r"SigBlk:\s*(\w+)", status)[1], 16)
        assert held & 1 << signal.SIGINT - 1
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def is_there(process_group: int) -> bool:
    try:
        os.killpg(process_group, 0)
    except ProcessLookupError:
        return False
    return True


def test_processes_see_the_environment_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("first", "second"):
        monkeypatch.setenv("GRIDREF_TESTED", value)
        with workers(1) as (_, pool):
            assert pool.submit(os.getenv, "GRIDREF_TESTED").result() == value


FEW_DESCRIPTORS = """
import resource, sys
import gridref
resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))
folder = sys.argv[1]
gridref.build(f"{folder}/*.nc", f"{folder}/cube.gridref", "time")
print(*gridref.open_catalog(f"{folder}/cube.gridref")["v"][...].tolist())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other limits elsewhere")
def test_more_files_than_descriptors(tmp_path: Path) -> None:
    for number in range(60):
        write_hdf5(tmp_path / f"{number:02}.nc", {"time": [number]}, {"v": (["time"], [number])})
    done = run_code(FEW_DESCRIPTORS, tmp_path)
    assert done.stdout.split() == [str(number) for number in range(60)], done.stdout
