"""Tables of a catalog that are small and stand for much: refused before they are read."""

import hashlib
import json
import resource

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gridref
from gridref.errors import CatalogCorruptError
from tests.fuzz.catalog_attack import sign


@pytest.fixture
def catalog(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("v", data=np.arange(12, dtype="<i4"), chunks=(4,))
    gridref.build(str(tmp_path / "a.h5"), str(tmp_path / "cube.gridref"))
    return tmp_path / "cube.gridref"


def exchange(catalog, change, **settings):
    """Write the table of chunks anew, under a right checksum; returns its size."""
    document = json.loads((catalog / "gridref.json").read_text())
    (part,) = document["snapshot"]["parts"]
    path = catalog / part["chunks"]["file"]
    table = change(pq.read_table(path))
    pq.write_table(table, path, compression="zstd", write_page_checksum=True, **settings)
    content = path.read_bytes()
    part["chunks"] |= {
        "n_rows": table.num_rows,
        "n_bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    sign(document)
    (catalog / "gridref.json").write_text(json.dumps(document))
    return len(content)


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


def test_large_tables_that_are_as_they_should_be_are_read(catalog):
    exchange(catalog, lambda table: table, use_dictionary=["state"], row_group_size=65_536)
    assert gridref.open_catalog(catalog)["v"].read().tolist() == list(range(12))
