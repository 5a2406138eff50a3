from __future__ import annotations

import errno
import os
import pickle
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from gridref.errors import (
    InvalidRequestError,
    ShortReadError,
    SourceChangedError,
    SourceUnavailableError,
)
from gridref.io import (
    Merging,
    RetryPolicy,
    SourcePool,
    describe_source,
    open_for_scan,
    read_file,
)
from gridref.model.manifest import Source
from tests.programs import reachable_folder, unprivileged

DATA = np.random.default_rng(1).bytes(50_000)


@pytest.fixture(params=["local", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        path = tmp_path / "a b#1.bin"
        path.write_bytes(DATA)
        return str(path)
    fsspec.filesystem("memory").pipe_file("/pool/a.bin", DATA)
    return "memory://pool/a.bin"


def rewrite(url: str, content: bytes) -> None:
    if url.startswith("memory:"):
        fsspec.filesystem("memory").pipe_file("/pool/a.bin", content)
    else:
        Path(url).write_bytes(content)


def test_ranges_in_any_order(url: str) -> None:
    rng = np.random.default_rng(2)
    offsets, lengths = rng.integers(0, 49_000, 300), rng.integers(0, 1000, 300)
    with SourcePool(local_merging=Merging(0, 1)) as pool:
        parts = pool.read_ranges(describe_source(url), offsets, lengths)
    assert [bytes(part) for part in parts] == [
        DATA[a : a + n] for a, n in zip(offsets, lengths, strict=True)
    ]


def test_near_ranges_are_one_request(url: str) -> None:
    pool = SourcePool()
    parts = pool.read_ranges(describe_source(url), [0, 200, 100], [50, 50, 50])
    assert [bytes(part) for part in parts] == [DATA[:50], DATA[200:250], DATA[100:150]]
    assert (pool.n_requests, pool.n_bytes) == (1, 250)


def test_nothing_and_empty_ranges_cost_nothing(url: str) -> None:
    pool = SourcePool()
    assert pool.read_ranges(Source(url), [], []) == []
    assert pool.read_ranges(Source(url), [5, 9], [0, 0]) == [b"", b""]
    assert pool.n_requests == 0


def test_a_pool_can_be_pickled(url: str) -> None:
    pool = pickle.loads(pickle.dumps(SourcePool({"anon": True}, identity="skip")))
    assert bytes(pool.read(replace(describe_source(url), size_bytes=1), 3, 4)) == DATA[3:7]


@pytest.mark.parametrize("identity", ["check", "skip"])
@pytest.mark.parametrize("known", [True, False])
def test_a_range_beyond_the_end_is_named(url: str, identity: str, known: bool) -> None:
    source = describe_source(url) if known else Source(url)
    pool = SourcePool(identity=identity)  # type: ignore[arg-type]
    with pytest.raises(ShortReadError) as caught:
        pool.read_ranges(source, [0, 49_990], [10, 20])
    place = caught.value.place
    assert (place.source, place.start, place.stop) == (url, 49_990, 50_010)


def test_a_changed_file_is_an_error(url: str) -> None:
    source = describe_source(url)
    rewrite(url, DATA[:40_000])
    with pytest.raises(SourceChangedError, match=r"size was 50000 bytes, now 40000.*Scan it again"):
        SourcePool().read(source, 0, 10)
    assert bytes(SourcePool(identity="skip").read(source, 0, 10)) == DATA[:10]
    with pytest.raises(ShortReadError, match="0 of 10 bytes arrived"):
        SourcePool(identity="skip").read(source, 45_000, 10)


def test_a_file_of_the_same_size_but_a_later_version_is_an_error(url: str) -> None:
    source = describe_source(url)
    rewrite(url, DATA[::-1])
    if not url.startswith("memory:"):
        os.utime(url, ns=(0, (source.mtime_ns or 0) + 1))
    with pytest.raises(SourceChangedError, match=r"last modified|version was"):
        SourcePool().read(source, 0, 10)


def test_a_local_file_that_changes_while_it_is_open_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(DATA)
    source, pool = describe_source(path), SourcePool()
    pool.read(source, 0, 10)
    path.write_bytes(DATA[:100])
    with pytest.raises(SourceChangedError):
        pool.read(source, 0, 10)


def test_a_replaced_file_that_was_scanned_anew_is_read(tmp_path: Path) -> None:
    path, new = tmp_path / "a.bin", tmp_path / "b.bin"
    path.write_bytes(DATA)
    pool = SourcePool()
    pool.read(describe_source(path), 0, 10)
    new.write_bytes(b"0123456789")
    new.replace(path)
    assert bytes(pool.read(describe_source(path), 2, 3)) == b"234"


@pytest.mark.parametrize("missing", ["/nowhere/a.nc", "memory://nowhere/a.nc"])
def test_a_missing_file_is_unavailable(missing: str) -> None:
    for identity in ("check", "skip"):
        pool = SourcePool(identity=identity)  # type: ignore[arg-type]
        with pytest.raises(SourceUnavailableError, match="does not exist") as caught:
            pool.read(Source(missing, 10), 0, 5)
        assert caught.value.place.source == missing
    assert not isinstance(caught.value, FileNotFoundError | KeyError)


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailableError, match="a directory"):
        SourcePool().read(Source(str(tmp_path)), 0, 5)


def test_a_file_without_permission() -> None:
    with reachable_folder() as folder:
        path = folder / "a.bin"
        path.write_bytes(DATA)
        path.chmod(0)
        with unprivileged(), pytest.raises(SourceUnavailableError, match="permission"):
            SourcePool().read(Source(str(path)), 0, 5)


def test_few_files_stay_open(tmp_path: Path) -> None:
    sources = []
    for i in range(20):
        path = tmp_path / f"{i}.bin"
        path.write_bytes(bytes([i]) * 100)
        sources.append(describe_source(path))
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    pool = SourcePool(max_open_files=3)
    for i, source in enumerate(sources * 2):
        assert bytes(pool.read(source, 10, 5)) == bytes([i % 20]) * 5
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) <= before + 3
    pool.close()
    assert bytes(pool.read(sources[4], 0, 1)) == b"\x04"


def test_too_many_open_files_are_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.bin").write_bytes(b"12345")

    def full(path: str, *_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    monkeypatch.setattr("gridref.io.local.os.open", full)
    for read in (open_for_scan, read_file, lambda path: SourcePool().read(Source(path), 0, 5)):
        with pytest.raises(SourceUnavailableError, match=r"ulimit -n.*a\.bin"):
            read(str(tmp_path / "a.bin"))


def test_many_threads_share_few_open_files(tmp_path: Path) -> None:
    sources = []
    for i in range(8):
        path = tmp_path / f"{i}.bin"
        path.write_bytes(bytes([i]) * 1000)
        sources.append(describe_source(path))
    pool = SourcePool(max_open_files=2)
    wrong: list[object] = []

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for i in rng.integers(0, 8, 300).tolist():
            try:
                part = bytes(pool.read(sources[i], int(rng.integers(0, 900)), 50))
            except Exception as error:  # noqa: BLE001
                wrong.append(error)
            else:
                if part != bytes([i]) * 50:
                    wrong.append((i, part))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_unknown_protocols_and_options_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="nosuch"):
        SourcePool().read(Source("nosuch://a/b"), 0, 1)
    with pytest.raises(InvalidRequestError, match="identity"):
        SourcePool(identity="maybe")  # type: ignore[arg-type]


class Flaky(fsspec.AbstractFileSystem):  # type: ignore[misc]
    protocol = "flaky"
    cachable = False
    failures: tuple[BaseException, ...] = ()

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.left = list(self.failures)

    def info(self, path: str, **options: object) -> dict[str, object]:
        return {"name": path, "size": len(DATA), "type": "file"}

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **options: object
    ) -> bytes:
        if self.left:
            raise self.left.pop(0)
        return DATA[start:end]


@pytest.fixture
def flaky(monkeypatch: pytest.MonkeyPatch) -> type[Flaky]:
    fsspec.register_implementation("flaky", Flaky, clobber=True)
    monkeypatch.setattr(Flaky, "failures", ())
    return Flaky


FAST = RetryPolicy(n_attempts=3, first_delay=0)


def test_transient_errors_are_tried_again(flaky: type[Flaky]) -> None:
    flaky.failures = (ConnectionResetError("reset"), TimeoutError("slow"))
    parts = SourcePool(retry=FAST, remote_merging=Merging(0, 1)).read_ranges(
        Source("flaky://x", len(DATA)), [5, 100], [3, 4]
    )
    assert [bytes(part) for part in parts] == [DATA[5:8], DATA[100:104]]


def test_retries_end(flaky: type[Flaky]) -> None:
    flaky.failures = (ConnectionResetError("reset"),) * 9
    with pytest.raises(SourceUnavailableError, match="ConnectionResetError: reset") as caught:
        SourcePool(retry=FAST).read(Source("flaky://x"), 5, 3)
    assert (caught.value.place.start, caught.value.place.stop) == (5, 8)


def test_lasting_errors_are_not_tried_again(flaky: type[Flaky]) -> None:
    flaky.failures = (PermissionError("no"), ValueError("never seen"))
    with pytest.raises(SourceUnavailableError, match="permission"):
        SourcePool(retry=RetryPolicy(first_delay=60)).read(Source("flaky://x"), 5, 3)


def test_what_lies_in_memory_is_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(DATA)
    source = describe_source(str(path))
    pool = SourcePool()
    assert pool.at_hand(source, 100, 50) is None  # the file would have to be opened
    pool.read(source, 0, 10)
    assert bytes(pool.at_hand(source, 100, 50) or b"") == DATA[100:150]
    assert (pool.n_requests, pool.n_bytes) == (2, 60)
    assert pool.at_hand(source, 49_990, 20) is None
    assert pool.at_hand(source, 5, 0) is None
    assert pool.at_hand(Source("memory://pool/a.bin"), 0, 10) is None

    def not_cached(*_: object) -> int:
        raise BlockingIOError

    with monkeypatch.context() as patch:
        patch.setattr("os.preadv", not_cached)
        assert pool.at_hand(source, 100, 50) is None
    assert bytes(pool.read(source, 100, 50)) == DATA[100:150]
    path.write_bytes(b"other")
    assert pool.at_hand(source, 0, 2) is None
    with pytest.raises(SourceChangedError):
        pool.read(source, 0, 2)


@pytest.mark.parametrize("how", ["one", "several", "into a buffer"])
@pytest.mark.parametrize(
    ("n_times", "later_ns", "changed"),
    [
        (99, 1, "last modified"),
        (99, 0, "changes while it is read"),
        (1, 0, None),  # all of it as it is now
    ],
    ids=["later", "with its old time", "once"],
)
def test_a_file_that_is_rewritten_while_it_is_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    n_times: int,
    later_ns: int,
    changed: str | None,
) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(1000))
    source, pool = describe_source(path), SourcePool(local_merging=Merging(0, 1))
    assert source.mtime_ns is not None
    stated, left = source.mtime_ns + later_ns, [n_times]

    def rewriting(read: Any) -> Any:
        def read_and_rewrite(*arguments: Any) -> Any:
            found = read(*arguments)
            if left[0]:
                left[0] -= 1
                time.sleep(0.02)  # beyond the clock's grain
                path.write_bytes(b"1" * 1000)
                os.utime(path, ns=(stated, stated))
            return found

        return read_and_rewrite

    for name in ("pread", "preadv"):
        monkeypatch.setattr(os, name, rewriting(getattr(os, name)))
    buffer = bytearray(20)
    reads = {
        "one": lambda: bytes(pool.read(source, 10, 20)),
        "several": lambda: bytes(pool.read_ranges(source, [10, 500], [20, 20])[0]),
        "into a buffer": lambda: pool.read_into(source, 10, memoryview(buffer)) and bytes(buffer),
    }
    if changed is None:
        assert reads[how]() == b"1" * 20
    else:
        with pytest.raises(SourceChangedError, match=changed):
            reads[how]()
