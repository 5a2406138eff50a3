"""Tables of a catalog: lost and damaged ones, those of many commits, those that stand for much."""

from __future__ import annotations

import hashlib
import json
import resource
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiobotocore.client import AioBaseClient

import gridref
from gridref.api.catalog import write_catalog
from gridref.catalog import tables as table_file
from gridref.errors import CatalogCorruptError, GridrefError
from tests.by_name import by_name
from tests.command import run_code
from tests.integration.archives import assert_shows, built, month, steps
from tests.parquet_bombs import BOMBS, compressed, put
from tests.s3_server import BUCKET, s3_bucket
from tools.fuzz.catalog_attack import sign

TABLES = ["blocks", "checksums", "chunks", "sources", "statistics"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four months in three parts, each with tables of all kinds."""
    folder = tmp_path_factory.mktemp("lost")
    files = [month(folder, number) for number in range(4)]
    gridref.build(files[:2], folder / "cube", "time", checksums=True)
    catalog = gridref.open_catalog(folder / "cube")
    catalog.append(files[2]).append(files[3]).scan_values()
    return folder / "cube"


@pytest.fixture
def table_of(whole: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A copy of the catalog, and there a table of its second part."""
    shutil.copytree(whole, tmp_path / "cube")
    part = gridref.open_catalog(tmp_path / "cube").snapshot.parts[1]
    return lambda kind: tmp_path / "cube" / getattr(part, kind).file


def assert_right(catalog: gridref.VirtualGroup, days: slice) -> None:
    """What numpy made the files of."""
    every = [np.random.default_rng(number).normal(280, 10, (5, 4, 6)) for number in range(4)]
    expected = np.concatenate(every).astype("f4")[days]
    np.testing.assert_array_equal(catalog["tas"][days], expected)
    np.testing.assert_array_equal(catalog["time"][days], np.arange(20)[days])


def assert_rest_is_right(catalog: gridref.VirtualGroup) -> None:
    assert_right(catalog, slice(0, 10))
    assert_right(catalog, slice(15, 20))
    np.testing.assert_array_equal(catalog["area"][...], np.ones((4, 6)))


def remove(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def cut_and_padded(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2].ljust(len(content), b"\0"))


@pytest.mark.parametrize("damage", [remove, cut, cut_and_padded])
@pytest.mark.parametrize("kind", TABLES)
def test_the_rest_is_readable(
    table_of: Callable[[str], Path], kind: str, damage: Callable[[Path], None]
) -> None:
    damaged = table_of(kind)
    damage(damaged)
    catalog = gridref.open_catalog(damaged.parent)
    assert_rest_is_right(catalog)
    if kind == "statistics":
        assert_right(catalog, slice(None))  # values do not need it
        with pytest.raises(CatalogCorruptError, match="statistics-"):
            catalog.find("tas", "> 0")
    else:
        for name in ("tas", "time"):
            with pytest.raises(CatalogCorruptError, match=f"{kind}-"):
                catalog[name][10:15]
    with pytest.raises(
        CatalogCorruptError, match=rf"Hurt: blocks \[2:3, 0:1, 0:1\] of tas.*{kind}-"
    ):
        gridref.verify(damaged.parent)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("kind", TABLES)
def test_a_byte_that_was_changed_never_changes_values(
    table_of: Callable[[str], Path], kind: str
) -> None:
    damaged = table_of(kind)
    content = damaged.read_bytes()
    for place in np.linspace(0, len(content) - 1, 25).astype(int).tolist():
        changed = bytearray(content)
        changed[place] ^= 0xFF
        damaged.write_bytes(changed)
        catalog = gridref.open_catalog(damaged.parent)
        assert_rest_is_right(catalog)
        with suppress(CatalogCorruptError):
            assert_right(catalog, slice(10, 15))
    with pytest.raises(CatalogCorruptError, match=r"SHA-256.*Hurt: "):
        gridref.verify(damaged.parent)


def test_all_damaged_tables_are_told_at_once(table_of: Callable[[str], Path]) -> None:
    for kind in TABLES:
        remove(table_of(kind))
    with pytest.raises(CatalogCorruptError, match="5 files are damaged") as caught:
        gridref.verify(table_of("blocks").parent)
    assert all(f"{kind}-" in str(caught.value) for kind in TABLES)


def test_what_lost_blocks_hold_is_never_made_up(table_of: Callable[[str], Path]) -> None:
    """Neither what is selected virtually, nor what is exported or appended to."""
    lost = table_of("blocks")
    remove(lost)
    catalog = gridref.open_catalog(lost.parent)
    part = catalog["tas"].isel(time=slice(8, 12))
    np.testing.assert_array_equal(part[:2], catalog["tas"][8:10])
    with pytest.raises(CatalogCorruptError, match="blocks-"):
        part[1:3]
    with pytest.raises(GridrefError, match="blocks-"):
        write_catalog(catalog, lost.parent.parent / "copy")
    with pytest.raises(CatalogCorruptError, match="blocks-"):
        catalog.chunks("tas")
    store = gridref.open_store(lost.parent)
    import zarr

    array = zarr.open_group(store, mode="r")["tas"]
    np.testing.assert_array_equal(array[:10], catalog["tas"][:10])
    with pytest.raises(GridrefError, match="blocks-"):
        array[10:15]


@pytest.mark.long
def test_many_commits_leave_few_parts(tmp_path: Path) -> None:
    months = [month(tmp_path, number) for number in range(40)]
    catalog = built(months[:1], tmp_path / "cube")
    most = 0
    for file in months[1:]:
        catalog = catalog.append(file)
        most = max(most, len(catalog.parts))
    assert most < 20
    assert len(gridref.open_catalog(tmp_path / "cube").parts) == len(catalog.parts)
    assert catalog.info.digest == built(months, tmp_path / "whole").info.digest
    assert_shows(tmp_path / "cube", months)
    old = gridref.open_catalog(tmp_path / "cube", snapshot=catalog.history()[25].id)
    assert old["tas"][...].shape[0] == 5 * 15
    catalog.remove(months[3])
    assert_shows(tmp_path / "cube", months[:3] + months[4:])


def test_a_commit_is_five_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three tables, the former snapshot, the root file; also where parts become one."""
    asked: Counter[str] = Counter()
    call = getattr(AioBaseClient, "_make_api_call")  # noqa: B009 - what all requests go through

    def counted(self: Any, operation: str, sent: dict[str, Any]) -> Any:
        asked[operation] += sent.get("Key", "").startswith("cube")
        return call(self, operation, sent)

    monkeypatch.setattr("gridref.catalog.commit.MERGED_PARTS", 4)
    with s3_bucket() as bucket:
        url, options = f"s3://{BUCKET}/cube", {"storage_options": bucket.options}
        files = [steps(tmp_path, [float(number)]) for number in range(8)]
        there = [bucket.put(f"data/{file.name}", file.read_bytes()) for file in files]
        gridref.build(there[:4], url, "time", **by_name(**options))
        catalog = gridref.open_catalog(url, **options).append(there[4])
        monkeypatch.setattr(AioBaseClient, "_make_api_call", counted)
        n_read, n_parts = 0, [len(catalog.parts)]
        for file in there[5:]:
            asked.clear()
            catalog = catalog.append(file)
            n_parts.append(len(catalog.parts))
            n_read += asked.pop("GetObject", 0)
            assert +asked == Counter({"PutObject": 5})
        assert n_parts != sorted(n_parts), "parts became one"
        assert n_read <= 2, "blocks and chunks of what another call wrote"
        assert len(bucket.keys("cube/blocks-")) == 5, "what is merged right away is not written"
        again = gridref.open_catalog(url, **options)
        assert again["v"][...].tolist() == [10.0 * number for number in range(8)]


def test_tables_of_parts_are_opened_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    barrier, real = threading.Barrier(3), table_file.open_for_scan

    def together(address: str, *args: Any, **options: Any) -> Any:
        if "/blocks-" in address:
            barrier.wait(timeout=30)  # breaks where one waits for the other
        return real(address, *args, **options)

    with s3_bucket() as bucket:
        url, options = f"s3://{BUCKET}/cube", {"storage_options": bucket.options}
        files = [steps(tmp_path, [float(number)]) for number in range(3)]
        gridref.build(files[:1], url, "time", **by_name(**options))
        catalog = gridref.open_catalog(url, allow=tmp_path, **options)
        for file in files[1:]:
            catalog = catalog.append(file)
        monkeypatch.setattr(table_file, "open_for_scan", together)
        again = gridref.open_catalog(url, allow=tmp_path, **options)
        assert again["v"][...].tolist() == [0.0, 10.0, 20.0]
        assert not barrier.broken


@pytest.fixture
def catalog(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("v", data=np.arange(12, dtype="<i4"), chunks=(4,))
    gridref.build(str(tmp_path / "a.h5"), str(tmp_path / "cube.gridref"))
    return tmp_path / "cube.gridref"


def exchange(catalog, change, **settings):
    """Write the table of chunks anew, under a right checksum; returns its size."""

    def write(path):
        table = change(pq.read_table(path))
        pq.write_table(table, path, compression="zstd", write_page_checksum=True, **settings)

    return rewrite(catalog, "chunks", write)


def rewrite(catalog, kind, write):
    """Change the file of a table, and say so under a right checksum; returns its size."""
    document = json.loads((catalog / "gridref.json").read_text())
    (part,) = document["snapshot"]["parts"]
    path = catalog / part[kind]["file"]
    write(path)
    content = path.read_bytes()
    part[kind] |= {
        "n_rows": pq.ParquetFile(path).metadata.num_rows,
        "n_bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    sign(document)
    (catalog / "gridref.json").write_text(json.dumps(document))
    return len(content)


def read_elsewhere(addresses):
    """What a process of its own says when it reads catalogs or references, one after the other."""
    code = """
import resource, sys, gridref
from gridref.errors import GridrefError
resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))
for address in sys.argv[1:]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        read = gridref.scan if address.endswith("parq") else gridref.open_catalog
        said = read(address)["v"].read()
    except GridrefError as error:
        said = f"{type(error).__name__} {error}"
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(more // 2**10, said)
"""
    done = run_code(code, *addresses)
    assert done.returncode == 0, done.stdout
    return [line.split(maxsplit=2) for line in done.stdout.splitlines()]


def repeated(n_rows):
    def change(table):
        return table.take(pa.array(np.zeros(n_rows, np.int64)))

    return change


def with_inline(n_bytes, n_rows):
    def change(table):
        table = repeated(n_rows)(table)
        place = table.schema.get_field_index("inline")
        values = pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(n_rows, np.int32)), pa.array([bytes(n_bytes)], pa.large_binary())
        )
        table = table.set_column(place, "inline", values)
        for name, value in (("state", 2), ("length", n_bytes), ("offset_step", 0)):
            place = table.schema.get_field_index(name)
            numbers = pa.array(np.full(n_rows, value), table.schema.field(name).type)
            table = table.set_column(place, table.schema.field(name), numbers)
        return table

    return change


@pytest.mark.parametrize(
    ("change", "settings", "reason"),
    [
        (repeated(3_000_000), {"row_group_size": 3_000_000}, "rows, more than 65536"),
        (
            with_inline(2**20, 5_000),
            {"use_dictionary": ["inline"], "store_schema": False},
            "stands for",
        ),
        (
            with_inline(2**20, 200),
            {
                "use_dictionary": False,
                "column_encoding": {"inline": "DELTA_BYTE_ARRAY"},
                "store_schema": False,
            },
            "stands for",
        ),
    ],
)
def test_few_bytes_do_not_stand_for_much_memory(catalog, change, settings, reason):
    size = exchange(catalog, change, **settings)
    assert size < 200_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CatalogCorruptError, match=reason):
        gridref.open_catalog(catalog)["v"].read()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def test_pages_that_stand_for_gigabytes_are_not_decoded(catalog, tmp_path):
    """Whatever their footer says: 2 kB took 5.6 GB."""
    attacked = [tmp_path / f"{number}.gridref" for number in range(len(BOMBS))]
    for place, (kind, column, bomb) in zip(attacked, BOMBS.values(), strict=True):
        shutil.copytree(catalog, place)
        assert rewrite(place, kind, lambda path: put(path, column, bomb)) < 20_000  # noqa: B023
    for found, place in zip(read_elsewhere(attacked), attacked, strict=True):
        mebibytes, error, text = found
        assert error == "CatalogCorruptError"
        assert "stand for" in text, place
        assert int(mebibytes) < 200


def references(folder, table, **settings):
    """A folder of references in Parquet with one file of rows."""
    metadata = {"v/.zarray": {"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "<i2",
                "compressor": None, "filters": None, "order": "C", "fill_value": 0}}  # fmt: skip
    (folder / "v").mkdir(parents=True)
    document = {"metadata": {".zgroup": {"zarr_format": 2}, **metadata}, "record_size": 10}
    (folder / ".zmetadata").write_text(json.dumps(document))
    pq.write_table(table, folder / "v" / "refs.0.parq", **settings)
    return folder / "v" / "refs.0.parq"


def test_references_that_stand_for_gigabytes_are_not_decoded(tmp_path):
    columns = {"path": ["a.bin"], "offset": [0], "size": [8], "raw": pa.nulls(1, pa.binary())}
    shared = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1_000, np.int32)), [bytes(2**20)])
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(4_000, np.int32)), ["v" * 2**16])
    folders = [tmp_path / f"{number}.parq" for number in range(4)]
    put(references(folders[0], pa.table(columns), compression="zstd"), 1, compressed(2**29))
    references(folders[1], pa.table({"raw": shared}), compression="zstd")
    references(folders[2], pa.table({"path": pa.nulls(3_000_000, pa.string())}))
    settings = {"use_dictionary": False, "column_encoding": {"path": "DELTA_BYTE_ARRAY"}}
    references(folders[3], pa.table({"path": names}), compression="zstd", **settings)
    (tmp_path / "0.parq" / "a.bin").write_bytes(bytes(8))
    first, second, third, fourth = read_elsewhere(folders)
    assert first[1] == third[1] == fourth[1] == "SourceFormatError"
    assert all(int(found[0]) < 200 for found in (first, second, third, fourth))


def test_large_tables_that_are_as_they_should_be_are_read(catalog):
    exchange(catalog, lambda table: table, use_dictionary=["state"], row_group_size=65_536)
    assert gridref.open_catalog(catalog)["v"].read().tolist() == list(range(12))
