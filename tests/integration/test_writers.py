"""Writers beside each other, killed ones, ones that cannot write: the old or the new is there."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.api.catalog import write_catalog
from gridref.catalog import commit as compaction
from gridref.catalog.folder import LocalFolder, RemoteFolder
from gridref.errors import (
    CatalogConflictError,
    CatalogCorruptError,
    CatalogError,
    InvalidRequestError,
)
from gridref.faces.web.publishing import publish
from tests.command import run_code, run_command
from tests.http_server import Site, serving
from tests.integration.archives import assert_shows, built, files_in, month, write_hdf5
from tests.programs import reachable_folder, unprivileged
from tests.s3_server import BUCKET, s3_bucket
from tests.unit.catalog.test_writing import Killed, kill_after

N_MONTHS = 8


def test_changes_that_do_not_touch_each_other_both_happen(
    months: list[Path], tmp_path: Path
) -> None:
    first = built(months[:4], tmp_path / "cube")
    second = gridref.open_catalog(tmp_path / "cube")
    first.append(months[4])  # each begins with what was there before the other's change
    second.append(months[5])
    first.remove(months[0])
    assert_shows(tmp_path / "cube", months[1:6])


def test_the_same_file_from_two_writers_is_there_once(months: list[Path], tmp_path: Path) -> None:
    one = built(months[:2], tmp_path / "cube").append(months[2])
    other = gridref.open_catalog(tmp_path / "cube")
    one = one.append(months[3])
    late = other.append(months[3])
    assert late.info.snapshot == one.info.snapshot
    assert_shows(tmp_path / "cube", months[:4])


def test_what_there_was_to_do_is_asked_of_the_newest_snapshot(
    months: list[Path], tmp_path: Path
) -> None:
    """In the one that was opened, the file is there, is whole, and has statistics."""
    catalog = built(months[:3], tmp_path / "cube").scan_values(["tas"])
    opened = [gridref.open_catalog(tmp_path / "cube").scan_values(["tas"]) for _ in range(3)]
    catalog = catalog.remove(months[2])
    again = opened[0].append(months[2])
    assert_shows(again, months[:3])
    known = opened[1].scan_values(["tas"]).statistics().to_pylist()
    assert [row["n_known"] == row["n_chunks"] for row in known if row["path"] == "tas"] == [True]
    shutil.copy(months[1], tmp_path / "copy.nc")
    os.replace(tmp_path / "copy.nc", months[1])
    os.utime(months[1])
    again.refresh()
    checked = opened[2].take_checksums()
    assert checked.info.n_checksums == checked.info.n_chunks


def test_a_change_that_does_not_fit_names_the_other(
    months: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = built(months[:3], tmp_path / "cube")
    original = LocalFolder.changing
    meanwhile: list[str] = []

    def changing(self: LocalFolder, *args: Any) -> Any:
        if not meanwhile:
            meanwhile.append("other")
            other = gridref.open_catalog(tmp_path / "cube").remove(months[1])
            meanwhile.append(other.info.snapshot)
        return original(self, *args)

    monkeypatch.setattr(LocalFolder, "changing", changing)
    told = r"remove: .*001\.nc.*not in the catalog"
    with pytest.raises(CatalogConflictError, match=told) as caught:
        catalog.replace(months[1])
    assert meanwhile[1] in str(caught.value)
    monkeypatch.undo()
    assert_shows(tmp_path / "cube", [months[0], months[2]])


def test_writers_in_many_processes(months: list[Path], tmp_path: Path) -> None:
    catalog = tmp_path / "cube"
    built(months[:2], catalog)

    def append_all(files: list[Path]) -> None:
        for file in files:
            done = run_command("append", catalog, file)
            assert done.returncode == 0, done.stderr

    with ThreadPoolExecutor(3) as writers:
        list(writers.map(append_all, [months[2 + i :: 3] for i in range(3)]))
    assert_shows(catalog, months)
    assert len(gridref.open_catalog(catalog).history()) == 7


def test_writers_that_were_overtaken_try_again_one_after_the_other(
    months: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each tries at most once in vain, but for what those that come later overtake."""
    catalog, others = tmp_path / "cube", months[2:]
    built(months[:2], catalog)
    start, tries = threading.Barrier(len(others)), Counter[str]()
    original = LocalFolder.changing

    def changing(self: LocalFolder, *args: Any) -> Any:
        name = threading.current_thread().name
        tries[name] += 1
        if tries[name] == 1:
            start.wait()  # all have prepared their changes
        return original(self, *args)

    monkeypatch.setattr(LocalFolder, "changing", changing)
    with ThreadPoolExecutor(len(others)) as pool:
        list(pool.map(lambda file: gridref.open_catalog(catalog).append(file), others))
    assert tries.total() == 2 * len(others) - 1
    assert_shows(catalog, months)


def test_writers_wait_for_each_other(months: list[Path], tmp_path: Path) -> None:
    """What one is about to name is not taken for what a dead one has left."""
    catalog = built(months[:2], tmp_path / "cube")
    began, waited = threading.Event(), threading.Event()
    original = LocalFolder.publish

    def slowly(self: LocalFolder, *args: Any) -> None:
        began.set()
        waited.wait(0.5)
        original(self, *args)

    def prune() -> None:
        began.wait()
        gridref.open_catalog(tmp_path / "cube").prune(grace_seconds=0)

    with pytest.MonkeyPatch.context() as monkeypatch, ThreadPoolExecutor() as pool:
        monkeypatch.setattr(LocalFolder, "publish", slowly)
        done = pool.submit(prune)
        catalog.append(months[2])
        done.result()
    assert_shows(tmp_path / "cube", months[:3])
    assert left_in(tmp_path / "cube") == stated(tmp_path / "cube")


CHANGES: dict[str, tuple[Callable[[gridref.Catalog, list[Path]], object], int]] = {
    "append": (lambda catalog, months: catalog.append(months[2]), 3),
    "append and compaction": (lambda catalog, months: catalog.append(months[2]), 3),
    "amend": (lambda catalog, months: catalog.amend().append(months[2]), 3),
    "checksums": (lambda catalog, months: catalog.take_checksums(), 2),
    "prune": (lambda catalog, months: catalog.prune(grace_seconds=-1), 2),
    "rollback": (lambda catalog, months: catalog.rollback(), 1),
}
"""Changes of a catalog of two months, and how many it has then."""


@pytest.mark.long(but=1)
@pytest.mark.parametrize("change", CHANGES)
def test_killed_at_each_step_it_is_the_old_or_the_new(
    months: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """And the next writer removes what was left over."""
    if change == "append and compaction":
        monkeypatch.setattr(compaction, "MERGED_PARTS", 3)
    change_it, n_after = CHANGES[change]
    original, catalog = tmp_path / "original", tmp_path / "cube"
    before = built(months[:1], original).append(months[1]).info.snapshot
    opened = [xr.open_dataset(file, engine="netcdf4") for file in months[:3]]
    expected = np.concatenate([each["tas"].values for each in opened])
    seen: list[str] = []
    for step in range(1, 300):
        shutil.copytree(original, catalog)
        writer = gridref.open_catalog(catalog)
        is_killed = True
        with pytest.MonkeyPatch.context() as mortal, suppress(Killed):
            kill_after(step, mortal)
            change_it(writer, months)
            is_killed = False
        now = gridref.open_catalog(catalog)
        seen.append(now.info.snapshot)
        n_files = 2 if seen[-1] == before else n_after
        assert np.array_equal(now["tas"][...], expected[: 5 * n_files])
        now.tag("next")
        assert left_in(catalog) == stated(catalog)
        assert now.info.digest == gridref.open_catalog(catalog).info.digest
        shutil.rmtree(catalog)
        if not is_killed:
            break
    assert not is_killed
    assert seen[0] == before
    assert (seen[-1] == before) == (change == "prune")


def test_a_journal_of_a_stranger_removes_nothing_but_tables(
    months: list[Path], tmp_path: Path
) -> None:
    cube = tmp_path / "cube"
    catalog = built(months[:2], cube)
    note = tmp_path / "note.txt"
    version = hashlib.sha256((cube / "gridref.json").read_bytes()).hexdigest()
    for held in (["../note.txt", "gridref.json", str(note), 3, None], "gridref.json", {"a": 1}, 5):
        note.write_text("kept")
        journal = json.dumps({"before": version, "new": held})
        (cube / ".gridref.json.lock").write_text(f"{journal}\n[1]\n")
        catalog.tag("one")
        catalog.untag("one")
        assert note.read_text() == "kept"
    (cube / ".gridref.json.lock").unlink()
    (cube / ".gridref.json.lock").symlink_to(note)
    with pytest.raises(CatalogError, match="cannot be written"):
        catalog.append(months[2])
    assert note.read_text() == "kept"
    assert_shows(cube, months[:2])


def test_a_reader_sees_one_snapshot_however_long_it_reads(
    months: list[Path], tmp_path: Path
) -> None:
    reader = built(months[:4], tmp_path / "cube")
    expected = np.concatenate([gridref.scan(file)["tas"][...] for file in months[:4]])
    writer = gridref.open_catalog(tmp_path / "cube")
    for number, file in enumerate(months[4:8]):
        assert np.array_equal(
            reader["tas"][5 * number : 5 * number + 5], expected[5 * number :][:5]
        )
        writer = writer.append(file).remove(months[number])
    assert np.array_equal(reader["tas"][...], expected)
    again = gridref.open_catalog(reader.info.url, snapshot=reader.info.snapshot)
    assert np.array_equal(again["tas"][...], expected)


OPERATIONS = ("append", "append and compaction", "replace", "prune", "remove")


def write_for_ever(catalog: Path, files: list[Path], begun: Any) -> None:
    """All kinds of changes, one after the other; `begun` counts them, by kind."""
    compaction.MERGED_PARTS = 4  # in this process only; else it takes 16 commits
    opened = gridref.open_catalog(catalog)
    while True:
        for file in files:
            begun[len(opened.snapshot.parts) % 4 == 3] += 1
            opened = opened.append(file)
        begun[2] += 1
        opened = opened.replace(files[0])
        begun[3] += 1
        opened.prune(keep=2, grace_seconds=0)
        begun[4] += 1
        opened = opened.remove(files)


def killed_during(writer: Any, begun: Any, rng: random.Random) -> str:
    """Kill a process at any moment of any of its first operations; gives which one that was."""
    wanted, before, took = rng.randint(1, 7), [0] * len(OPERATIONS), 0.0
    for _ in range(wanted):
        since = time.perf_counter()
        while list(begun) == before:
            assert writer.is_alive()
            time.sleep(0.0005)
        took, now = time.perf_counter() - since, list(begun)
        before, last = now, [n > m for n, m in zip(now, before, strict=True)].index(True)
    time.sleep(rng.uniform(0, took))
    writer.kill()
    writer.join(60)
    assert writer.exitcode == -signal.SIGKILL
    return OPERATIONS[last]


def stated(catalog: Path) -> set[str]:
    """The files that the current snapshot and the former ones that are kept speak of."""
    opened = gridref.open_catalog(catalog)
    snapshots = {opened.info.snapshot: opened.snapshot}
    for commit in opened.history():
        with suppress(InvalidRequestError):  # it was pruned
            former = gridref.open_catalog(catalog, snapshot=commit.id)
            snapshots[commit.id] = former.snapshot
    parts = [part for each in snapshots.values() for part in each.parts]
    files = {f"snapshot-{name}.json.gz" for name in snapshots if name != opened.info.snapshot}
    return {"gridref.json", *files, *(table.file for part in parts for table in part.tables)}


def left_in(catalog: Path) -> set[str]:
    """The files of a catalog, but for the lock."""
    return {path.name for path in catalog.iterdir()} - {".gridref.json.lock"}


@pytest.mark.long
def test_killed_at_any_moment_it_is_the_old_or_the_new(months: list[Path], tmp_path: Path) -> None:
    """``make kill`` does this a thousand times."""
    catalog = tmp_path / "cube"
    built(months[:3], catalog).append(months[6]).remove(months[6])
    context = multiprocessing.get_context("forkserver")
    heavy = ("dask.", "gridref.", "pint.", "scipy.")
    loaded = [name for name in sys.modules if name.startswith(heavy)]
    context.set_forkserver_preload(loaded)  # so that what is killed is no import
    rng = random.Random(int(os.environ.get("KILL_SEED", "0")))
    expected = {file: gridref.scan(file)["tas"][...] for file in months[:6]}
    killed = Counter[str]()
    for _ in range(int(os.environ.get("N_KILLS", "8"))):
        begun = context.RawArray("i", len(OPERATIONS))
        writer = context.Process(target=write_for_ever, args=(catalog, months[3:6], begun))
        writer.start()
        killed[killed_during(writer, begun, rng)] += 1
        opened = gridref.open_catalog(catalog)
        files = [Path(url) for url in sorted(opened.sources()["url"].to_pylist())]
        assert set(months[:3]) <= set(files)
        assert np.array_equal(opened["tas"][...], np.concatenate([expected[f] for f in files]))
        opened.append(months[6]).remove(months[6])
        assert left_in(catalog) == stated(catalog)
    print(f"killed during {dict(killed)}")


def replace_for_ever(whole: Path, catalog: Path) -> None:
    group = gridref.open_catalog(whole)
    while True:
        write_catalog(group, catalog)


@pytest.mark.long
def test_readers_beside_killed_builders_never_miss_a_table(
    months: list[Path], tmp_path: Path
) -> None:
    whole, catalog = tmp_path / "whole", tmp_path / "cube"
    expected = built(months[:2], whole)["tas"][...]
    write_catalog(gridref.open_catalog(whole), catalog)
    context = multiprocessing.get_context("spawn")
    for _ in range(2):
        before = gridref.open_catalog(catalog).info.snapshot
        builder = context.Process(target=replace_for_ever, args=(whole, catalog))
        builder.start()
        while gridref.open_catalog(catalog).info.snapshot == before:
            assert builder.is_alive()
        for _ in range(50):
            try:
                assert np.array_equal(gridref.open_catalog(catalog)["tas"][...], expected)
            except CatalogCorruptError as error:
                assert "was replaced" in str(error)  # noqa: PT017 - most reads end well
        builder.kill()
        builder.join(60)
        assert_shows(catalog, months[:2])


def test_a_reader_of_a_pruned_snapshot_is_told_so(months: list[Path], tmp_path: Path) -> None:
    reader = built(months[:2], tmp_path / "cube")
    gridref.build(months[:2], tmp_path / "cube", "time", overwrite=True)
    gridref.open_catalog(tmp_path / "cube").prune(keep=1, grace_seconds=-1)
    with pytest.raises(CatalogCorruptError, match=r"snapshot pruned, .*: open it again"):
        reader["tas"][...]


APPENDING = """
import json, sys, gridref
url, options, files = json.loads(sys.argv[1])
catalog = gridref.open_catalog(url, storage_options=options, allow="*")
for file in files:  # each begins with what it saw before the other host's commits
    catalog = catalog.append(file)
    print(catalog.info.snapshot)
"""


@pytest.mark.long
def test_two_hosts_append_to_one_catalog_on_an_object_store(
    months: list[Path], tmp_path: Path
) -> None:
    """As two hosts: processes with homes, caches and temporary folders of their own."""
    with s3_bucket() as bucket:
        url, options = f"s3://{BUCKET}/cube.gridref", bucket.options
        gridref.build(months[:2], url, "time", storage_options=options)
        hosts = []
        for number in range(2):
            home = tmp_path / f"host{number}"
            home.mkdir()
            own = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "TMPDIR"), str(home))
            given = json.dumps([url, options, list(map(str, months[2 + number :: 2]))])
            command = [sys.executable, "-c", APPENDING, given]
            pipe = subprocess.PIPE
            hosts.append(subprocess.Popen(command, stdout=pipe, text=True, env=os.environ | own))
        done = [host.communicate(timeout=300)[0].split() for host in hosts]
        assert [host.returncode for host in hosts] == [0, 0]
        catalog = gridref.open_catalog(url, storage_options=options)
        assert {*done[0], *done[1]} < {commit.id for commit in catalog.history()}
        assert len(catalog.history()) == 7
        expected = np.concatenate([gridref.scan(file)["tas"][...] for file in months])
        assert np.array_equal(catalog["tas"][...], expected)


def test_on_an_object_store(months: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_bucket() as bucket:
        url, options = f"s3://{BUCKET}/cube.gridref", bucket.options
        gridref.build(months[:2], url, "time", storage_options=options)
        first = gridref.open_catalog(url, storage_options=options)
        second = gridref.open_catalog(url, storage_options=options)
        second = second.tag("two")
        first = first.append(months[2])
        second = second.append(months[3])  # its conditional put is refused, and done again
        assert second["tas"].shape[0] == 20
        # A put whose answer was lost, and that was sent again, is not taken for another's.
        original = RemoteFolder.publish_over

        def publish_twice(self: RemoteFolder, *args: Any) -> str:
            original(self, *args)
            return original(self, *args)

        monkeypatch.setattr(RemoteFolder, "publish_over", publish_twice)
        third = second.append(months[4])
        monkeypatch.undo()
        assert len(third.history()) == 4

        # Nor is one that another writer has gone on from meanwhile.
        def publish_and_be_followed(self: RemoteFolder, *args: Any) -> str:
            original(self, *args)
            monkeypatch.undo()
            gridref.open_catalog(url, storage_options=options).append(months[6])
            return original(self, *args)

        monkeypatch.setattr(RemoteFolder, "publish_over", publish_and_be_followed)
        fourth = third.append(months[5])
        assert len(fourth.history()) == 6
        expected = [gridref.scan(file)["tas"][...] for file in months[:7]]
        assert np.array_equal(fourth["tas"][...], np.concatenate(expected))
        second.untag("two")
        back = third.rollback(first.info.snapshot)
        assert back.info.digest == first.info.digest
        assert back.prune(grace_seconds=3600).files == ()
        done = back.prune(grace_seconds=-1)
        assert len(done.snapshots) == 6
        again = gridref.open_catalog(url, storage_options=options)
        expected = [gridref.scan(file)["tas"][...] for file in months[:3]]
        assert np.array_equal(again["tas"][...], np.concatenate(expected))


COMMANDS = {
    "append": ["append", "CATALOG", "003.nc"],
    "replace": ["refresh", "CATALOG", "001.nc", "--by", "003.nc"],
    "remove": ["remove", "CATALOG", "001.nc"],
    "declare": ["append", "CATALOG", "--declare", "time=2000-02-01/2000-03-01"],
    "tag": ["tag", "CATALOG", "v1"],
    "rollback": ["rollback", "CATALOG"],
    "stats": ["list", "CATALOG", "statistics", "--scan-values"],
}


ON_A_FULL_DISK = """
import contextlib, io, resource, sys
from gridref.faces.cli import main

sys.dont_write_bytecode = True  # they would be cut, too
told, (_, most) = io.StringIO(), resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, most))
try:
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        main()
finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    print(told.getvalue())
"""


def assert_refused_on_a_full_disk(*words: object) -> None:
    """Run a command that may write no file of more than 100 bytes, as on a disk without room."""
    done = run_code(ON_A_FULL_DISK, *words)
    assert done.returncode == 1
    assert "cannot be written" in done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.long(but=3)
@pytest.mark.parametrize("change", COMMANDS)
def test_a_full_disk(months: list[Path], tmp_path: Path, change: str) -> None:
    cube = tmp_path / "cube"
    built(months[:2], cube).append(months[2])
    before = files_in(cube)
    words = [str(cube) if word == "CATALOG" else word for word in COMMANDS[change]]
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
    values = np.full((1, 3), number, "f4")
    array = (["time"], values, {}, {"chunks": (1, 3)})
    return write_hdf5(path, {"time": [float(number)]}, {"v": array}, libver="latest")


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
