"""Tables of a catalog that are small and stand for much: refused before they are read."""

import hashlib
import json
import resource
import shutil
import subprocess
import sys

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gridref
from gridref.errors import CatalogCorruptError
from tests.parquet_bombs import BOMBS, compressed, put
from tools.fuzz.catalog_attack import sign


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
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, addresses)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
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
