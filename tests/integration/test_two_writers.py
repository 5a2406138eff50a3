"""Writers beside each other, killed writers, and readers while others write."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import gridref
from gridref.catalog.storage import LocalFolder, RemoteFolder
from gridref.errors import CatalogConflictError
from tests.integration.test_appending import assert_shows, built, month
from tests.s3_server import BUCKET, s3_bucket


@pytest.fixture(scope="module")
def months(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("months")
    return [month(folder, number) for number in range(8)]


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


def test_a_change_that_does_not_fit_names_the_other(
    months: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = built(months[:3], tmp_path / "cube")
    original = LocalFolder.publish_over
    meanwhile: list[str] = []

    def publish_over(self: LocalFolder, name: str, content: bytes, version: str) -> str:
        if not meanwhile:
            meanwhile.append("other")
            other = gridref.open_catalog(tmp_path / "cube").remove(months[1])
            meanwhile.append(other.info.snapshot)
        return original(self, name, content, version)

    monkeypatch.setattr(LocalFolder, "publish_over", publish_over)
    told = r"remove: .*001\.nc.*not in the catalog"
    with pytest.raises(CatalogConflictError, match=told) as caught:
        catalog.replace_file(months[1])
    assert meanwhile[1] in str(caught.value)
    monkeypatch.undo()
    assert_shows(tmp_path / "cube", [months[0], months[2]])


def append_all(catalog: Path, files: list[Path]) -> None:
    for file in files:
        gridref.open_catalog(catalog).append(file)


def test_writers_in_many_processes(months: list[Path], tmp_path: Path) -> None:
    catalog = tmp_path / "cube"
    built(months[:2], catalog)
    context = multiprocessing.get_context("spawn")
    writers = [
        context.Process(target=append_all, args=(catalog, months[2 + i :: 3])) for i in range(3)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
        assert writer.exitcode == 0
    assert_shows(catalog, months)
    assert len(gridref.open_catalog(catalog).history()) == 7


def test_a_commit_that_has_just_ended_is_not_taken_for_one_that_died(
    months: list[Path], tmp_path: Path
) -> None:
    first = built(months[:1], tmp_path / "cube").append(months[1])  # knows a snapshot
    other = gridref.open_catalog(tmp_path / "cube").append(months[2])
    # As the first one sees it that looked while the other one was about to let go of it.
    (tmp_path / "cube" / f".commit-{other.info.snapshot}.lock").touch()
    first.append(months[3])
    assert_shows(tmp_path / "cube", months[:4])


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


WRITE_FOR_EVER = """
import sys, gridref
catalog, *files = sys.argv[1:]
while True:
    opened = gridref.open_catalog(catalog)
    for file in files:
        opened = opened.append(file)
    opened = opened.replace_file(files[0])
    opened.prune(grace_seconds=0)
    opened = opened.remove(files)
"""


def test_killed_at_any_moment_it_is_the_old_or_the_new(months: list[Path], tmp_path: Path) -> None:
    """``make kill`` does this a thousand times."""
    catalog = tmp_path / "cube"
    built(months[:3], catalog)
    seed = int(os.environ.get("KILL_SEED", "0"))
    rng = random.Random(seed)
    expected = {file: gridref.scan(file)["tas"][...] for file in months[:6]}
    for _ in range(int(os.environ.get("N_KILLS", "6"))):
        command = [sys.executable, "-c", WRITE_FOR_EVER, catalog, *months[3:6]]
        writer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(rng.uniform(0.8, 3.0))
        writer.send_signal(signal.SIGKILL)
        _, told = writer.communicate(timeout=60)
        assert writer.returncode == -signal.SIGKILL, told.decode()
        opened = gridref.open_catalog(catalog)
        files = [Path(url) for url in sorted(opened.sources()["url"].to_pylist())]
        assert set(months[:3]) <= set(files)
        assert np.array_equal(opened["tas"][...], np.concatenate([expected[f] for f in files]))
        opened.append(months[6]).remove(months[6])
        left = {path.name for path in catalog.iterdir()}
        gridref.open_catalog(catalog).prune(grace_seconds=0)
        named = {
            table.file
            for part in gridref.open_catalog(catalog).snapshot.parts
            for table in part.tables
        }
        assert not {name for name in left if name.startswith(".commit-")}
        assert {name for name in os.listdir(catalog) if name.endswith(".parquet")} == named


def test_on_an_object_store(months: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("s3fs")
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

        def publish_twice(self: RemoteFolder, name: str, content: bytes, version: str) -> str:
            original(self, name, content, version)
            return original(self, name, content, version)

        monkeypatch.setattr(RemoteFolder, "publish_over", publish_twice)
        third = second.append(months[4])
        monkeypatch.undo()
        assert len(third.history()) == 4
        second.untag("two")
        back = third.rollback(first.info.snapshot)
        assert back.info.digest == first.info.digest
        assert back.prune(grace_seconds=3600).files == ()
        done = back.prune(grace_seconds=-1)
        assert len(done.snapshots) == 4
        again = gridref.open_catalog(url, storage_options=options)
        expected = [gridref.scan(file)["tas"][...] for file in months[:3]]
        assert np.array_equal(again["tas"][...], np.concatenate(expected))
