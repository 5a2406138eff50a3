from __future__ import annotations

import errno
import gc
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from gridref.api.verify import verify
from gridref.catalog import open_catalog
from gridref.catalog.commit import write_catalog
from gridref.catalog.examining import check_catalog
from gridref.catalog.folder import Journal, LocalFolder
from gridref.errors import (
    CatalogCorruptError,
    CatalogError,
    CatalogNotFoundError,
    CatalogVersionError,
    GridrefError,
    InvalidRequestError,
)
from gridref.io import LocalFiles
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.blocks import BlockTable
from gridref.model.encoding import Codec, Encoding
from gridref.model.grid import ChunkGrid
from gridref.model.manifest import ChunkManifest, Source


def group_of(value: float, n: int = 4, source: str = "/data/a.nc") -> VirtualGroup:
    """One inline array, and one whose chunks lie in a file."""
    array = VirtualArray.of_one_block(
        (n, 10),
        np.dtype("f4"),
        encoding=Encoding((1, 10), np.dtype("f4"), (Codec.of("bytes", endian="little"),)),
        manifest=ChunkManifest.from_columns(
            [Source(source, 10**6, 5)], offset=100 + 40 * np.arange(n), length=40
        ),
        dims=("t", "x"),
    )
    return VirtualGroup(
        {"value": VirtualArray.from_numpy(np.array([value]), ("x",)), "far": array},
        attrs={"title": f"value {value}"},
    )


def value_in(group: VirtualGroup) -> float:
    manifest = group.arrays["value"].manifests[0].take(np.array([0]))
    assert group.attrs["title"] == f"value {float(np.frombuffer(manifest.inline, 'f8')[0])}"
    assert group.arrays["far"].manifests[0].take(np.array([3])).offset.tolist() == [220]
    assert group.arrays["far"].blocks.first_row.tolist() == [0]
    return float(np.frombuffer(manifest.inline, "f8")[0])


def test_gaps_in_compounds_do_not_reach_the_catalog(tmp_path: Path) -> None:
    nested = np.dtype({"names": ["a", "b"], "formats": ["u1", "<f8"], "offsets": [0, 8]})
    dtype = np.dtype({"names": ["i", "n"], "formats": ["<i2", (nested, (2,))], "offsets": [0, 8]})
    digests = set()
    for byte in range(8):
        dirty = np.full(dtype.itemsize, byte, "u1").view(dtype)[0]  # gaps hold what memory held
        dirty["i"], dirty["n"]["a"], dirty["n"]["b"] = 1, 2, 3.0
        array = VirtualArray.of_one_block(
            (4,),
            dtype,
            encoding=Encoding((4,), dtype, (Codec.of("bytes", endian="little"),)),
            manifest=ChunkManifest.from_columns([Source("/a.h5")], offset=0, length=160),
            dims=("x",),
            fill_value=dirty,
        )
        group = VirtualGroup({"a": array}, attrs={"of": np.array([dirty])})
        digests.add(write_catalog(group, tmp_path / f"{byte}.gridref"))
    assert len(digests) == 1
    assert open_catalog(tmp_path / "0.gridref").arrays["a"].fill_value == dirty


def test_a_catalog_is_replaced_and_leaves_nothing_behind(tmp_path: Path) -> None:
    first = write_catalog(group_of(1.0), tmp_path / "c")
    assert write_catalog(group_of(1.0), tmp_path / "c") == first
    assert write_catalog(group_of(2.0), tmp_path / "c") != first
    assert value_in(open_catalog(tmp_path / "c")) == 2.0
    assert len(list((tmp_path / "c").iterdir())) == 4
    assert value_in(open_catalog(tmp_path / "c" / "gridref.json")) == 2.0


def test_a_catalog_that_is_replaced_while_it_is_opened_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_catalog(group_of(1.0), tmp_path / "c")
    before = (tmp_path / "c" / "gridref.json").read_bytes()
    former = open_catalog(tmp_path / "c").info.snapshot
    write_catalog(group_of(2.0), tmp_path / "c")
    current = open_catalog(tmp_path / "c").info.snapshot
    read, answers = LocalFolder.read, [before]

    def read_early(self: LocalFolder, file: str) -> bytes:
        """What was there just before the other process replaced it, once."""
        return answers.pop() if file == "gridref.json" and answers else read(self, file)

    monkeypatch.setattr(LocalFolder, "read", read_early)
    assert value_in(open_catalog(tmp_path / "c", snapshot=current)) == 2.0
    answers.append(before)
    check_catalog(tmp_path / "c")  # the tables that it names are gone
    with pytest.raises(InvalidRequestError, match="no snapshot"):
        open_catalog(tmp_path / "c", snapshot=former)


def test_what_crashes_left_behind_is_removed_once_it_is_old(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    write_catalog(group_of(1.0), folder)
    names = [
        "chunks-00ff00ff00ff00ff.parquet",
        "blocks-00ff00ff00ff00ff.parquet",
        ".gridref.json.77.tmp",
        "notes.txt",
    ]
    for name in names:
        (folder / name).write_bytes(b"x")
    write_catalog(group_of(1.0), folder)
    assert {path.name for path in folder.iterdir()} >= set(names)
    for name in names[1:]:
        os.utime(folder / name, (0, 0))
    write_catalog(group_of(2.0), folder)
    left = {path.name for path in folder.iterdir()}
    assert left & set(names) == {"chunks-00ff00ff00ff00ff.parquet", "notes.txt"}
    assert value_in(open_catalog(folder)) == 2.0


def test_what_crashes_left_behind_on_object_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem = fsspec.filesystem("memory")
    write_catalog(group_of(1.0), "memory://left/c")
    filesystem.pipe_file("/left/c/chunks-00ff00ff00ff00ff.parquet", b"x")
    write_catalog(group_of(1.0), "memory://left/c")
    assert filesystem.exists("/left/c/chunks-00ff00ff00ff00ff.parquet")
    monkeypatch.setattr("gridref.catalog.commit.LEFT_OVER_SECONDS", -1)
    write_catalog(group_of(2.0), "memory://left/c")
    assert not filesystem.exists("/left/c/chunks-00ff00ff00ff00ff.parquet")
    assert value_in(open_catalog("memory://left/c")) == 2.0


@pytest.mark.parametrize("table", ["chunks", "blocks", "sources"])
@pytest.mark.parametrize("place", ["local", "memory"])
def test_every_byte_is_compared_with_the_hashes(tmp_path: Path, place: str, table: str) -> None:
    url = str(tmp_path / "c") if place == "local" else f"memory://check/{table}"
    filesystem, folder = fsspec.core.url_to_fs(url)
    write_catalog(group_of(1.0), url)
    check_catalog(url)
    (path,) = (name for name in filesystem.ls(folder, detail=False) if f"/{table}-" in name)
    content = bytearray(filesystem.cat_file(path))
    content[len(content) // 2] ^= 1
    filesystem.pipe_file(path, bytes(content))
    with pytest.raises(CatalogCorruptError, match=rf"SHA-256.*{table}-"):
        check_catalog(url)
    filesystem.pipe_file(path, bytes(content[:-1]))
    with pytest.raises(CatalogCorruptError, match="bytes instead of"):
        check_catalog(url)
    filesystem.rm_file(path)
    with pytest.raises(CatalogCorruptError, match="it is missing"):
        check_catalog(url)


def test_the_root_file_is_compared_with_its_digest(tmp_path: Path) -> None:
    write_catalog(group_of(1.0), tmp_path / "c")
    root = tmp_path / "c" / "gridref.json"
    root.write_text(root.read_text().replace("value 1.0", "value 7.0"))
    with pytest.raises(CatalogCorruptError, match="checksum"):
        open_catalog(tmp_path / "c")
    with pytest.raises(CatalogCorruptError, match="checksum"):
        check_catalog(tmp_path / "c")
    with pytest.raises(CatalogCorruptError, match="checksum"):
        verify(tmp_path / "c")


def test_a_plain_zarr_reader_finds_nothing(tmp_path: Path) -> None:
    import zarr

    write_catalog(group_of(1.0), tmp_path / "c")
    with pytest.raises(FileNotFoundError):
        zarr.open(tmp_path / "c", mode="r")


@pytest.mark.parametrize("place", ["local", "memory"])
def test_what_is_not_a_catalog_is_not_overwritten(tmp_path: Path, place: str) -> None:
    if place == "local":
        url = str(tmp_path)
        (tmp_path / "thesis.txt").write_text("years of work")
    else:
        url = "memory://not-a-catalog"
        fsspec.filesystem("memory").pipe_file("/not-a-catalog/thesis.txt", b"years of work")
    with pytest.raises(InvalidRequestError, match=r"not empty.*thesis\.txt"):
        write_catalog(group_of(1.0), url)
    with pytest.raises(CatalogNotFoundError):
        open_catalog(url)


def test_a_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    path.write_text("data")
    for place in (path, path / "below"):
        with pytest.raises(GridrefError):
            write_catalog(group_of(1.0), place)
    assert path.read_text() == "data"


def test_a_catalog_that_is_not_understood_is_not_overwritten(tmp_path: Path) -> None:
    root = tmp_path / "gridref.json"
    root.write_text('{"format": "gridref-catalog", "format_version": 99}')
    with pytest.raises(CatalogVersionError, match="99"):
        write_catalog(group_of(1.0), tmp_path)
    root.write_text("{")
    with pytest.raises(CatalogCorruptError):
        write_catalog(group_of(1.0), tmp_path)
    assert root.read_text() == "{"


def test_bad_arguments(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="sources"):
        write_catalog(group_of(1.0), tmp_path / "c", sources="somewhere")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="strict JSON"):
        write_catalog(group_of(1.0), tmp_path / "c", extra={"a": float("nan")})
    bad = VirtualGroup({"v": group_of(1.0).arrays["value"].with_changes(attrs={"a": object()})})
    with pytest.raises(InvalidRequestError, match=r"attribute 'a'.*object.*variable v"):
        write_catalog(bad, tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_a_refused_catalog_leaves_folders_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk: folders that were made for it go, those that were there stay."""

    def full(self: LocalFolder, name: str, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(LocalFolder, "publish", full)
    (tmp_path / "empty").mkdir()
    (tmp_path / "used").mkdir()
    (tmp_path / "used/note.txt").touch()
    for place in ("new", "empty", "empty/a/b", "used/a"):
        with pytest.raises(CatalogError, match="No space left"):
            write_catalog(group_of(1.0), tmp_path / place)
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == ["empty", "used", "used/note.txt"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": [3]}, "a source that its manifest does not have"),
        ({"length": [-1]}, "negative"),
        ({"offset": [-1]}, "negative"),
        ({"state": [7]}, "state 7"),
        ({"state": [2], "offset": [1]}, "inline"),
    ],
)
def test_a_manifest_that_contradicts_itself(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    columns = {"source": [0], "offset": [0], "length": [5], "state": [1], **changes}
    manifest = ChunkManifest.from_columns([Source("/a")], inline=b"12345", **columns)
    array = group_of(1.0).arrays["value"].with_changes(manifests=(manifest,))
    with pytest.raises(InvalidRequestError, match=message):
        write_catalog(VirtualGroup({"v": array}), tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_a_block_beyond_its_manifest_is_refused(tmp_path: Path) -> None:
    array = group_of(1.0).arrays["far"]
    short = array.with_changes(manifests=(array.manifests[0].take(np.array([0, 1])),))
    with pytest.raises(InvalidRequestError, match=r"rows 0-4 of a manifest of 2.*variable far"):
        write_catalog(VirtualGroup({"far": short}), tmp_path / "c")


def test_extra_is_kept(tmp_path: Path) -> None:
    write_catalog(group_of(1.0), tmp_path / "c", extra={"view": "native", "list": [1, None]})
    assert open_catalog(tmp_path / "c").info.extra == {"view": "native", "list": [1, None]}


@pytest.mark.parametrize(
    ("folder", "source", "stored"),
    [
        ("{}/cat/c.gridref", "{}/data/a.nc", "../../data/a.nc"),
        ("{}/c.gridref", "{}/c.gridref/a.nc", "a.nc"),
        ("{}/c.gridref", "s3://bucket/a.nc", "s3://bucket/a.nc"),
        ("memory://rel/c", "memory://rel/d/a.nc", "../d/a.nc"),
        ("memory://rel/c", "memory://other/a.nc", "memory://other/a.nc"),
        ("memory://rel/c", "memory://rel/d//a.nc", "memory://rel/d//a.nc"),
    ],
)
def test_relative_sources(tmp_path: Path, folder: str, source: str, stored: str) -> None:
    import pyarrow.parquet as pq

    folder, source = folder.format(tmp_path), source.format(tmp_path)
    write_catalog(group_of(1.0, source=source), folder, sources="relative")
    opened = open_catalog(folder)
    assert [entry.url for entry in opened.source_list] == [source]
    if not folder.startswith("memory:"):
        (table,) = Path(folder).glob("sources-*.parquet")
        (prefix,) = json.loads((Path(folder) / "gridref.json").read_text())["snapshot"]["prefixes"]
        paths = pq.read_table(table).column("path").to_pylist()
        assert [prefix + path for path in paths] == [stored]


def test_a_catalog_moves_together_with_its_data(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    write_catalog(group_of(1.0, source=f"{before}/a.nc"), before / "c", sources="relative")
    before.rename(after)
    assert open_catalog(after / "c").source_list == (Source(f"{after}/a.nc", 10**6, 5),)


def test_only_rows_and_sources_in_use_are_kept(tmp_path: Path) -> None:
    manifest = ChunkManifest.from_columns(
        [Source("/unused"), Source("/a"), Source("/b")],
        source=np.repeat([0, 1, 2], 10),
        offset=np.arange(30),
        length=1,
    )
    ones = np.ones((3, 1), np.int64)
    blocks = BlockTable(
        np.zeros(3, np.int32),
        np.zeros(3, np.int32),
        np.array([10, 22, 12]),
        ones,
        5 * ones,
        np.array([[2], [0], [1]]),
        ones,
    )
    array = VirtualArray(
        ChunkGrid.from_edges([[3, 2, 3]]),
        np.dtype("u1"),
        np.uint8(0),
        ("x",),
        {},
        (Encoding((1,), np.dtype("u1"), (Codec("bytes"),)),),
        (manifest,),
        blocks,
    )
    write_catalog(VirtualGroup({"v": array}), tmp_path / "c")
    opened = open_catalog(tmp_path / "c")
    assert opened.source_list == (Source("/a"), Source("/b"))
    found = opened.arrays["v"]
    # Rows 12-15 serve the first and the last block, rows 22-24 the second.
    assert found.manifests[0].n_rows == 6
    assert found.blocks.first_row.tolist() == [-2, 4, 0]
    assert found.manifests[0].take(np.arange(6)).offset.tolist() == [12, 13, 14, 15, 22, 23]


def test_a_failed_write_leaves_the_old_catalog_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_catalog(group_of(1.0), tmp_path / "c")
    before = sorted(path.name for path in (tmp_path / "c").iterdir())

    def fail(self: LocalFolder, name: str, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LocalFolder, "publish", fail)
    with pytest.raises(CatalogError, match="cannot be written: No space"):
        write_catalog(group_of(2.0), tmp_path / "c")
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == before
    assert value_in(open_catalog(tmp_path / "c")) == 1.0


class Killed(BaseException):
    """Stands for the end of the process: from then on nothing reaches the disk."""


def kill_after(n_steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let everything that changes the disk raise from the `n_steps`-th time on."""
    done = 0

    def alive() -> bool:
        nonlocal done
        done += 1
        return done < n_steps

    def mortal(action: Any) -> Any:
        def act(*arguments: Any, **options: Any) -> Any:
            if not alive():
                raise Killed
            return action(*arguments, **options)

        return act

    def write(self: Any, content: bytes) -> int:
        if not alive():
            # Only what was not written before can be cut.
            if done == n_steps:
                self._file.write(content[: len(content) // 2])
            raise Killed
        return int(self._file.write(content))

    for name in ("fsync", "replace", "unlink", "makedirs", "truncate"):
        monkeypatch.setattr(f"gridref.catalog.folder.os.{name}", mortal(getattr(os, name)))
    monkeypatch.setattr("gridref.catalog.folder._DurableFile.write", write)
    monkeypatch.setattr(Journal, "add", mortal(Journal.add))


@pytest.mark.parametrize("before", [None, 1.0])
def test_a_crash_at_any_moment_leaves_the_old_catalog_or_none(
    tmp_path: Path, before: float | None
) -> None:
    found: list[float | None] = []
    if before is not None:
        write_catalog(group_of(before), tmp_path / "before")
    for step in range(1, 200):
        folder = tmp_path / str(step)
        if before is not None:
            shutil.copytree(tmp_path / "before", folder)
        with pytest.MonkeyPatch.context() as monkeypatch:
            kill_after(step, monkeypatch)
            try:
                write_catalog(group_of(2.0), folder)
            except Killed:
                survived = False
            else:
                survived = True
        try:
            found.append(value_in(open_catalog(folder)))
        except CatalogNotFoundError:
            found.append(None)
        if step % 15 == 0:
            # What is left behind does not stand in the way of the next attempt.
            write_catalog(group_of(3.0), folder)
            assert value_in(open_catalog(folder)) == 3.0
        if survived:
            break
    n_before = found.count(before)
    assert found == [before] * n_before + [2.0] * (len(found) - n_before)
    assert n_before > 10
    assert len(found) - n_before >= (1 if before is None else 4)


def interrupt_at(step: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let what changes the disk raise once, before it is done or after; counts both."""
    done = [0]

    def interrupted(action: Any) -> Any:
        def act(*arguments: Any, **options: Any) -> Any:
            done[0] += 1
            if done[0] == step:
                raise KeyboardInterrupt
            result = action(*arguments, **options)
            done[0] += 1
            if done[0] == step:
                raise KeyboardInterrupt
            return result

        return act

    for name in ("fsync", "replace", "makedirs"):
        monkeypatch.setattr(f"gridref.catalog.folder.os.{name}", interrupted(getattr(os, name)))
    return done


@pytest.mark.parametrize("before", [None, 1.0])
def test_an_interrupt_at_any_moment_leaves_the_old_catalog_or_the_new(
    tmp_path: Path, before: float | None
) -> None:
    found: list[float | None] = []
    if before is not None:
        write_catalog(group_of(before), tmp_path / "before")
    for step in range(1, 200):
        folder = tmp_path / str(step)
        if before is not None:
            shutil.copytree(tmp_path / "before", folder)
        with pytest.MonkeyPatch.context() as monkeypatch:
            done = interrupt_at(step, monkeypatch)
            with suppress(KeyboardInterrupt):
                write_catalog(group_of(2.0), folder)
        if done[0] < step:
            break
        try:
            opened = open_catalog(folder)
        except CatalogNotFoundError:
            found.append(None)
            assert not folder.exists()
        else:
            found.append(value_in(opened))
            check_catalog(folder)
    assert found.count(before) > 10
    assert found.count(2.0) == len(found) - found.count(before) == 3  # replaced, and synchronized


def test_a_killed_process_leaves_the_old_catalog(tmp_path: Path) -> None:
    write_catalog(group_of(1.0), tmp_path / "c")
    script = f"""
import os
from gridref.catalog.commit import write_catalog
from gridref.catalog import folder as storage
from gridref.model.array import VirtualGroup
storage.os.replace = lambda *arguments: os._exit(9)
write_catalog(VirtualGroup(attrs={{"title": "new"}}), {str(tmp_path / "c")!r})
"""
    finished = subprocess.run([sys.executable, "-c", script], check=False, timeout=100)
    assert finished.returncode == 9
    assert value_in(open_catalog(tmp_path / "c")) == 1.0


def test_the_root_file_is_strict_json_in_ascii(tmp_path: Path) -> None:
    odd = VirtualGroup(attrs={"a": float("inf"), "b": "é \udc80", "c": np.float32("nan")})
    write_catalog(odd, tmp_path / "c")
    text = (tmp_path / "c" / "gridref.json").read_text("ascii")

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    document = json.loads(text, parse_constant=refuse)
    assert document["format"] == "gridref-catalog"
    assert document["snapshot"]["root"]["attributes"]["a"] == {"$float": "inf"}


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="Linux lists open files there")
def test_tables_are_not_open_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def n_open() -> int:
        held = [Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
        return sum(tmp_path in each.resolve().parents for each in held)

    monkeypatch.setattr("gridref.catalog.tables._files", LocalFiles(max_open_files=3))
    write_catalog(group_of(1.0), tmp_path / "0")
    for number in range(1, 9):
        shutil.copytree(tmp_path / "0", tmp_path / str(number))
    opened = [open_catalog(tmp_path / str(number)) for number in (*range(9), 0)]
    for _ in range(2):
        for each in opened:
            assert each.parts[0].chunks.table.read_rows(0, 5).num_rows == 5
            assert each.source_list
    assert n_open() == 3
    del opened, each
    gc.collect()
    assert not n_open()
