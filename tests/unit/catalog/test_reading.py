from __future__ import annotations

import gzip
import hashlib
import json
import pickle
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gridref.catalog import open_catalog
from gridref.catalog.commit import write_catalog
from gridref.catalog.tables import TableFile
from gridref.errors import (
    CatalogCorruptError,
    CatalogNotFoundError,
    CatalogVersionError,
    InvalidRequestError,
    SourceUnavailableError,
)
from gridref.io import ScanFile, open_for_scan
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.blocks import BlockTable
from gridref.model.encoding import Codec, Encoding
from gridref.model.grid import ChunkGrid
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from tools.fuzz.catalog_attack import sign

ENCODING = Encoding((1,), np.dtype("f4"), (Codec.of("bytes", endian="little"),))


def array_of(manifests: list[ChunkManifest]) -> VirtualArray:
    """One block a manifest."""
    counts = [manifest.n_rows for manifest in manifests]
    ones = np.ones((len(counts), 1), np.int64)
    blocks = BlockTable(
        np.zeros(len(counts), np.int32),
        np.arange(len(counts), dtype=np.int32),
        np.zeros(len(counts), np.int64),
        ones,
        np.array(counts, np.int64).reshape(-1, 1),
        0 * ones,
        ones,
    )
    return VirtualArray(
        ChunkGrid.from_edges([counts]),
        np.dtype("f4"),
        np.float32(0),
        ("x",),
        {},
        (ENCODING,),
        tuple(manifests),
        blocks,
    )


def random_manifest(n_rows: int, seed: int, masks: bool = False) -> ChunkManifest:
    rng = np.random.default_rng(seed)
    state = rng.choice([0, 1, 1, 1, 2], n_rows).astype(np.uint8)
    sources = [Source(f"/data/{seed}-{i}.nc", 2**40, i) for i in range(5)]
    return ChunkManifest.from_columns(
        sources,
        source=rng.integers(0, 5, n_rows),
        offset=np.where(state == 2, rng.integers(0, 900, n_rows), rng.integers(0, 2**39, n_rows)),
        length=rng.integers(0, 100, n_rows),
        state=state,
        filter_mask=rng.integers(0, 3, n_rows) if masks else None,
        inline=rng.bytes(1000),
    )


def assert_rows(found: ChunkManifest, expected: ChunkManifest) -> None:
    assert np.array_equal(found.state, expected.state)
    held = expected.state != ChunkState.MISSING
    assert np.array_equal(found.length[held], expected.length[held])
    ranges = np.flatnonzero(expected.state == ChunkState.RANGE)
    assert np.array_equal(found.offset[ranges], expected.offset[ranges])
    assert [found.sources[i] for i in found.source[ranges].tolist()] == [
        expected.sources[i] for i in expected.source[ranges].tolist()
    ]
    for row in np.flatnonzero(expected.state == ChunkState.INLINE).tolist():
        assert found.inline_bytes(row) == expected.inline_bytes(row)
    masks = [
        np.zeros(held.size) if one.filter_mask is None else one.filter_mask
        for one in (found, expected)
    ]
    assert np.array_equal(masks[0][held], masks[1][held])


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, VirtualGroup]:
    """A catalog of several row groups, which manifests and arrays straddle."""
    manifests = [random_manifest(n, seed) for seed, n in enumerate((100, 90_000, 60_000, 1))]
    group = VirtualGroup(
        {
            "a": array_of(manifests),
            "b": array_of([random_manifest(70_000, 9, masks=True)]),
        }
    )
    path = tmp_path_factory.mktemp("large") / "c.gridref"
    write_catalog(group, path)
    return path, group


def test_rows_of_any_row_groups_in_any_order(large: tuple[Path, VirtualGroup]) -> None:
    path, group = large
    opened = open_catalog(path)
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        everything = ChunkManifest.concatenate(group.arrays[name].manifests)  # type: ignore[arg-type]
        found = opened.arrays[name].manifests[0]
        assert found.n_rows == everything.n_rows
        for n_rows in (1, 5, 3000):
            rows = rng.integers(0, everything.n_rows, n_rows)
            assert_rows(found.take(rows), everything.take(rows))
        every = np.arange(everything.n_rows)
        assert_rows(found.take(every), everything)
    assert not opened.arrays["a"].has_filter_masks
    assert opened.arrays["b"].has_filter_masks
    assert opened.arrays["a"].blocks.first_row.tolist() == [0, 100, 90_100, 150_100]


def test_counts_are_known_without_reading_rows(large: tuple[Path, VirtualGroup]) -> None:
    path, group = large
    info = open_catalog(path).info
    assert (info.n_blocks, info.n_chunks) == (5, 220_101)
    for name, array in open_catalog(path).arrays.items():
        rows = ChunkManifest.concatenate(group.arrays[name].manifests)  # type: ignore[arg-type]
        (manifest,) = array.manifests
        states = np.bincount(rows.state, minlength=3).tolist()
        counts = manifest.counts  # type: ignore[attr-defined]
        assert [counts.n_missing, counts.n_ranges, counts.n_inline] == states
        assert manifest.stored_bytes == rows.stored_bytes  # type: ignore[attr-defined]


def test_only_what_is_needed_is_read(
    large: tuple[Path, VirtualGroup], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[tuple[str, Any]] = []
    original = TableFile.read_row_group

    def read(self: TableFile, number: int, columns: Any) -> Any:
        reads.append((Path(self.address).name.partition("-")[0], number))
        return original(self, number, columns)

    monkeypatch.setattr(TableFile, "read_row_group", read)
    opened = open_catalog(large[0])
    assert list(opened.arrays) == ["a", "b"]
    array = opened.arrays["a"]
    assert (array.shape, array.n_blocks) == ((150_101,), 4)
    assert not array.has_filter_masks
    renamed = replace(array.with_changes(attrs={"units": "K"}), dims=("y",))
    assert (renamed.dims, renamed.shape, len(repr(renamed)) > 0) == (("y",), (150_101,), True)
    assert reads == []
    assert array.blocks.origin.shape == (4, 1)
    assert renamed.blocks is array.blocks
    assert len(renamed.blocks) == renamed.blocks.n_blocks == 4
    assert reads == [("blocks", 0)]
    reads.clear()
    array.manifests[0].take(np.array([100_000]))
    array.manifests[0].take(np.array([100_001]))
    assert ("chunks", 1) in reads
    assert reads.count(("chunks", 1)) <= 2
    assert ("chunks", 0) not in reads


def test_threads_share_a_catalog(large: tuple[Path, VirtualGroup]) -> None:
    path, group = large
    opened = open_catalog(path)
    everything = ChunkManifest.concatenate(group.arrays["a"].manifests)  # type: ignore[arg-type]
    wrong: list[BaseException] = []

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for _ in range(10):
                rows = rng.integers(0, everything.n_rows, 20)
                assert_rows(opened.arrays["a"].manifests[0].take(rows), everything.take(rows))
                assert len(opened.arrays["a"].blocks.encoding) == 4
        except BaseException as error:  # noqa: BLE001
            wrong.append(error)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_threads_load_rows_once(
    large: tuple[Path, VirtualGroup], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_catalog(large[0])
    reads: list[tuple[str, int]] = []
    original = TableFile.read_row_group

    def read(self: TableFile, number: int, columns: Any) -> Any:
        reads.append((Path(self.address).name.partition("-")[0], number))
        time.sleep(0.1)
        return original(self, number, columns)

    monkeypatch.setattr(TableFile, "read_row_group", read)
    array = opened.arrays["a"]
    together = threading.Barrier(6)

    def ask() -> None:
        together.wait()
        array.manifests[0].take(array.blocks.first_row[:1])

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reads.count(("blocks", 0)) == 1
    assert reads.count(("chunks", 0)) <= 2  # numbers and, where a row is inline, payloads


def test_a_catalog_can_be_pickled(large: tuple[Path, VirtualGroup]) -> None:
    path, group = large
    opened = open_catalog(path)
    for used in (False, True):
        if used:
            assert len(opened.arrays["b"].blocks) == 1
            opened.arrays["b"].manifests[0].take(np.array([5]))
        copy = pickle.loads(pickle.dumps(opened))
        rows = np.array([7, 69_999])
        assert_rows(
            copy.arrays["b"].manifests[0].take(rows), group.arrays["b"].manifests[0].take(rows)
        )
        assert copy.arrays["b"].blocks.stored_shape.tolist() == [[70_000]]


def test_rows_that_are_not_there_are_refused(large: tuple[Path, VirtualGroup]) -> None:
    manifest = open_catalog(large[0]).arrays["a"].manifests[0]
    for row in (-1, 150_101):
        with pytest.raises(InvalidRequestError, match="of a manifest of 150101"):
            manifest.take(np.array([0, row]))
    assert manifest.take(np.zeros(0, np.int64)).n_rows == 0


def test_inline_bytes_are_kept_in_small_row_groups(tmp_path: Path) -> None:
    chunks = [bytes([i]) * 2**20 for i in range(20)]
    write_catalog(
        VirtualGroup({"v": array_of([ChunkManifest.from_inline(chunks)])}), tmp_path / "c"
    )
    opened = open_catalog(tmp_path / "c")
    manifest = opened.arrays["v"].manifests[0]
    assert len(manifest.part.chunks.table.row_group_starts) == 6  # type: ignore[attr-defined]
    found = manifest.take(np.array([19, 3, 4]))
    assert [found.inline_bytes(i) for i in range(3)] == [chunks[19], chunks[3], chunks[4]]


def test_many_small_blocks_take_seconds_at_most(tmp_path: Path) -> None:
    source = (Source("/data/a.nc", 2**40),)
    one = np.ones(1, np.int64)
    state = one.astype(np.uint8)
    manifests = [
        ChunkManifest(source, np.zeros(1, np.int32), one * 100 * i, one * 90, state)
        for i in range(20_000)
    ]
    group = VirtualGroup({"v": array_of(manifests)})
    write_catalog(group, tmp_path / "c")
    found = open_catalog(tmp_path / "c").arrays["v"]
    assert found.blocks.first_row.tolist() == list(range(20_000))
    assert found.manifests[0].take(np.array([19_999])).offset.tolist() == [1_999_900]


def small(tmp_path: Path) -> Path:
    manifest = ChunkManifest.from_columns(
        [Source("/data/a.nc")], offset=np.arange(3000) ** 2 * 7, length=np.arange(3000) % 97
    )
    path = tmp_path / "c"
    write_catalog(VirtualGroup({"v": array_of([manifest])}), path)
    return path


def use(path: Path | str) -> None:
    opened = open_catalog(path)
    opened.arrays["v"].blocks.take(np.array([0]))
    opened.arrays["v"].manifests[0].take(np.array([2999, 0]))


@pytest.mark.parametrize("table", ["sources", "blocks", "chunks"])
@pytest.mark.parametrize("harm", ["cut", "same-size", "missing", "other", "empty"])
def test_a_damaged_table_is_named(tmp_path: Path, table: str, harm: str) -> None:
    path = small(tmp_path)
    (file,) = path.glob(f"{table}-*.parquet")
    content = file.read_bytes()
    if harm == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif harm == "same-size":
        file.write_bytes(content[: len(content) // 2] + bytes(len(content) - len(content) // 2))
    elif harm == "missing":
        file.unlink()
    elif harm == "empty":
        file.write_bytes(b"")
    else:
        (other,) = path.glob("chunks-*" if table != "chunks" else "blocks-*")
        shutil.copy(other, file)
    with pytest.raises(CatalogCorruptError, match=r"again") as caught:
        use(path)
    assert caught.value.place.source == str(file)


def test_every_flipped_byte_of_the_chunk_table_is_noticed_or_harmless(tmp_path: Path) -> None:
    path = small(tmp_path)
    (file,) = path.glob("chunks-*.parquet")
    content = file.read_bytes()
    expected = open_catalog(path).arrays["v"].manifests[0].take(np.arange(3000))
    n_noticed = 0
    for position in range(0, len(content), 41):
        file.write_bytes(
            content[:position] + bytes([content[position] ^ 0x55]) + content[position + 1 :]
        )
        try:
            found = open_catalog(path).arrays["v"].manifests[0].take(np.arange(3000))
        except CatalogCorruptError:
            n_noticed += 1
        else:
            assert_rows(found, expected)
    assert n_noticed > 10


@pytest.mark.parametrize("version", [0, 1, 3, "1", None])
def test_an_unknown_version_names_the_known_ones(tmp_path: Path, version: object) -> None:
    path = small(tmp_path)
    changed(path, lambda document: document.update(format_version=version))
    with pytest.raises(CatalogVersionError, match=r"knows version 2\."):
        open_catalog(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"a": 1}', b"\xff\xfe", b"null"])
def test_a_damaged_root_file(tmp_path: Path, content: bytes) -> None:
    path = small(tmp_path)
    (path / "gridref.json").write_bytes(content)
    with pytest.raises(CatalogCorruptError) as caught:
        open_catalog(path)
    assert caught.value.place.source == str(path / "gridref.json")


def test_a_layout_of_another_rank_is_refused_before_blocks_are_read(tmp_path: Path) -> None:
    path = small(tmp_path / "a.gridref")

    def change(document: Any) -> None:
        document["snapshot"]["layouts"][0][0].update(start=[0, 0], shape=[1, 1])

    changed(path, change)
    with pytest.raises(CatalogCorruptError, match="another rank"):
        open_catalog(path).arrays["v"]


def test_members_that_contradict_each_other(tmp_path: Path) -> None:
    def array(document: Any) -> Any:
        return document["root"]["arrays"]["v"]

    def chunks(document: Any) -> Any:
        return document["parts"][0]["chunks"]

    def segment(document: Any) -> Any:
        return document["layouts"][0][0]

    changes: list[Callable[[Any], Any]] = [
        lambda document: document.pop("parts"),
        lambda document: document["parts"][0].pop("chunks"),
        lambda document: chunks(document).update(n_rows=2999),
        lambda document: chunks(document).update(file="../x.parquet"),
        lambda document: document["parts"].clear(),
        lambda document: document["layouts"].clear(),
        lambda document: segment(document).update(part=1),
        lambda document: segment(document).update(first=[1]),
        lambda document: segment(document).update(start=[1]),
        lambda document: segment(document).update(shape=[2]),
        lambda document: segment(document).update(shape=[1, 1]),
        lambda document: segment(document).update(shape=[1.0]),
        lambda document: document["axes"].clear(),
        lambda document: document["axes"][0].update(extent=-1),
        lambda document: document["encodings"].clear(),
        lambda document: document["encodings"][0].update(congiguration={}),
        lambda document: document["encodings"][0]["codecs"][0].update(congiguration={}),
        lambda document: chunks(document).update(n_rows="3000"),
        lambda document: array(document)["chunks"].update(n_ranges=-1),
        lambda document: array(document).update(layout=-1),
        lambda document: document["prefixes"].clear(),
        lambda document: array(document).update(data_type="float1"),
        lambda document: array(document).update(dimension_names=[]),
        lambda document: array(document).update(shape=[2999]),
        lambda document: array(document)["attributes"].update(a={"$numpy": {"dtype": "<f4"}}),
        lambda document: document["root"].update(arrays=[]),
    ]
    for number, change in enumerate(changes):
        path = small(tmp_path / str(number))
        changed(path, lambda document, change=change: change(document["snapshot"]))
        with pytest.raises(CatalogCorruptError):
            use(path)


def test_members_that_are_not_listed_are_passed_over(tmp_path: Path) -> None:
    """As the page of the format promises; encodings are the exception."""
    path = small(tmp_path)

    def change(document: Any) -> None:
        snapshot = document["snapshot"]
        part, array = snapshot["parts"][0], snapshot["root"]["arrays"]["v"]
        for record in (snapshot, snapshot["log"][0], part, part["chunks"], array["chunks"]):
            record["of_tomorrow"] = {"a": 1}

    changed(path, change)
    use(path)


def test_no_catalog(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("")
    for url in (tmp_path, tmp_path / "nowhere", tmp_path / "a.txt", "memory://nowhere/c"):
        with pytest.raises(CatalogNotFoundError, match="no catalog there") as caught:
            open_catalog(url)
        assert caught.value.place.source == str(url)


def test_an_unknown_feature_is_an_error(tmp_path: Path) -> None:
    path = small(tmp_path)
    for features in (["time-travel"], [1], {}, "x"):
        changed(path, lambda document, features=features: document.update(features=features))
        with pytest.raises(CatalogVersionError, match="features that this gridref does not know"):
            open_catalog(path)


@pytest.mark.parametrize("place", ["local", "memory"])
def test_a_catalog_that_was_replaced_while_open_says_so(tmp_path: Path, place: str) -> None:
    url = str(tmp_path / "c") if place == "local" else "memory://replaced/c"
    group = VirtualGroup({"v": array_of([manifest()])})
    write_catalog(group, url)
    opened = open_catalog(url)
    pickled = pickle.dumps(opened)
    write_catalog(group, url)
    for former in (opened, pickle.loads(pickled)):
        with pytest.raises(CatalogCorruptError, match=r"was replaced, .*: open it again"):
            former.arrays["v"].manifests[0].take(np.array([0]))
    again = open_catalog(url)
    filesystem, folder = fsspec.core.url_to_fs(url)
    filesystem.rm([each for each in filesystem.ls(folder, detail=False) if "chunks-" in each])
    with pytest.raises(CatalogCorruptError, match="is missing: build the catalog again"):
        again.arrays["v"].manifests[0].take(np.array([0]))


def test_an_unreachable_server_is_not_an_absent_catalog() -> None:
    with pytest.raises(SourceUnavailableError):
        open_catalog("http://127.0.0.1:9/c")


def test_a_catalog_in_memory_reads_lazily(
    large: tuple[Path, VirtualGroup], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = []

    def open_noted(*args: Any, **options: Any) -> ScanFile:
        files.append(open_for_scan(*args, **options))
        return files[-1]

    monkeypatch.setattr("gridref.catalog.tables.open_for_scan", open_noted)
    filesystem = fsspec.filesystem("memory")
    for file in large[0].iterdir():
        filesystem.pipe_file(f"/lazy/{file.name}", file.read_bytes())
    opened = open_catalog("memory://lazy")
    manifest = opened.arrays["a"].manifests[0]
    manifest.take(np.array([100_000]))
    (chunks,) = (file for file in files if "chunks" in file.name)
    assert 0 < chunks.n_bytes < chunks.size / 2
    filesystem.rm("/lazy", recursive=True)


@pytest.mark.parametrize("name", ["", "/", "a/b", "../x", "/etc"])
@pytest.mark.parametrize("members", ["arrays", "groups"])
def test_names_that_are_no_names_are_refused(tmp_path, name, members):
    write_catalog(
        VirtualGroup({"v": array_of([manifest()])}, {"g": VirtualGroup()}), tmp_path / "c"
    )

    def rename(document):
        held = document["snapshot"]["root"][members]
        held[name] = held.pop(next(iter(held)))

    changed(tmp_path / "c", rename)
    with pytest.raises(CatalogCorruptError, match="cannot be the name"):
        open_catalog(tmp_path / "c")
    with pytest.raises(InvalidRequestError, match="cannot be the name"):
        write_catalog(VirtualGroup(groups={name: VirtualGroup()}), tmp_path / "d")


@pytest.mark.parametrize("depth", [201, 800, 100_000])
def test_groups_that_are_nested_very_deep_are_refused(tmp_path, depth):
    write_catalog(VirtualGroup(), tmp_path / "c")
    path = tmp_path / "c" / "gridref.json"
    document = json.loads(path.read_text())
    del document["checksum"]
    group = '{"node_type":"group","attributes":{},"arrays":{},"groups":{"g":'
    text = json.dumps(document, separators=(",", ":")).replace(
        '"groups":{}', f'"groups":{{"g":{group * (depth - 1)}{group[:-4]}}}{"}}" * depth}', 1
    )
    digest = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(f'{text[:-1]},"checksum":"sha256:{digest}"}}')
    with pytest.raises(CatalogCorruptError, match=r"200 deep|recursion|nested"):
        open_catalog(tmp_path / "c")


def changed(catalog: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the description of a catalog, and sign it anew."""
    path = catalog / "gridref.json"
    document = json.loads(path.read_text())
    change(document)
    sign(document)
    path.write_text(json.dumps(document))


def rewritten(
    catalog: Path, prefix: str, change: Callable[[pa.Table], pa.Table], **options
) -> None:
    """Write a table of a catalog anew, and say so in its description."""
    (file,) = catalog.glob(f"{prefix}-*")
    metadata = pq.read_metadata(file).metadata or {}
    table = change(pq.read_table(file))
    pq.write_table(
        table.replace_schema_metadata(
            {key: value for key, value in metadata.items() if not key.startswith(b"ARROW")}
        ),
        file,
        store_schema=False,
        **options,
    )

    def restate(document):
        entry = document["snapshot"]["parts"][0][prefix]
        entry["n_bytes"], entry["n_rows"] = file.stat().st_size, table.num_rows

    changed(catalog, restate)


def test_few_bytes_of_addresses_that_stand_for_very_many_are_refused(tmp_path, limited):
    limited("expanded_bytes=100000,expanded_times=100")
    write_catalog(VirtualGroup({"v": array_of([manifest()])}), tmp_path / "c")

    def blown_up(table: pa.Table) -> pa.Table:
        rows = {name: table.column(name).to_pylist() * 4096 for name in table.column_names}
        rows["path"] = pa.array(["x" * 4_000] * 4096, pa.large_string())
        return pa.table(
            rows, schema=table.schema.set(1, pa.field("path", pa.large_string(), False))
        )

    rewritten(
        tmp_path / "c",
        "sources",
        blown_up,
        use_dictionary=False,
        column_encoding={"path": "DELTA_BYTE_ARRAY"},
        compression="zstd",
        row_group_size=4096,
    )
    (file,) = (tmp_path / "c").glob("sources-*")
    assert file.stat().st_size < 40_000
    with pytest.raises(CatalogCorruptError, match="row group 0 stands for"):
        open_catalog(tmp_path / "c").arrays["v"].manifests[0].take(np.arange(1))


@pytest.mark.parametrize(
    ("table", "column", "values"),
    [
        ("sources", "path", pa.array([None], pa.string())),
        ("sources", "path", pa.array([1], pa.int64())),
        ("sources", "etag", pa.array([[1, 2]], pa.list_(pa.int64()))),
        ("chunks", "length", pa.array([None], pa.int64())),
        ("chunks", "length", pa.array([1.5], pa.float64())),
        ("chunks", "state", pa.array(["x"], pa.string())),
        ("blocks", "origin", pa.array([1], pa.int64())),
    ],
)
def test_columns_of_other_kinds_are_refused(tmp_path, table, column, values):
    write_catalog(VirtualGroup({"v": array_of([manifest()])}), tmp_path / "c")
    rewritten(
        tmp_path / "c",
        table,
        lambda rows: rows.set_column(
            rows.column_names.index(column), pa.field(column, values.type), values
        ),
    )
    array = open_catalog(tmp_path / "c").arrays["v"]
    with pytest.raises(CatalogCorruptError, match=f"column {column}"):
        array.manifests[array.blocks.manifest[0]].take(np.arange(1))


def test_a_former_snapshot_that_stands_for_very_much_is_refused(tmp_path, limited):
    limited("expanded_bytes=100000")
    write_catalog(VirtualGroup(), tmp_path / "c")
    bomb = gzip.compress(b" " * 4_000_000, 9)
    assert len(bomb) < 10_000
    (tmp_path / "c" / f"snapshot-{'0' * 16}.json.gz").write_bytes(bomb)
    with pytest.raises(CatalogCorruptError, match="holds more than"):
        open_catalog(tmp_path / "c", snapshot="0" * 16)


def manifest() -> ChunkManifest:
    """One chunk in a file."""
    return ChunkManifest.from_columns([Source("/data/a.bin", 100)], offset=[0], length=[4])
