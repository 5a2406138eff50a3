"""The test vectors of docs/virtual-layouts.md hold: decoded by what they say alone."""

from __future__ import annotations

import base64
import json
import zlib
from itertools import product
from typing import Any

import numpy as np
import pytest
import zarr
from numpy.typing import NDArray

from tests.shared_data import ROOT
from tools.layout_vectors import PATH, text

VECTORS = json.loads(PATH.read_text(encoding="utf-8"))
EXPRESSIBLE = [each for each in VECTORS if "not_expressible" not in each]
PAGE = (ROOT / "docs" / "virtual-layouts.md").read_text(encoding="utf-8")


def test_they_are_what_the_tool_writes() -> None:
    assert PATH.read_text(encoding="utf-8") == text(), "run python -m tools.layout_vectors"


def test_the_page_lists_them() -> None:
    for each in VECTORS:
        said = f"no: {each['not_expressible']}" if "not_expressible" in each else "yes"
        assert f"| {each['title']} | {said} |" in PAGE


def decoded(vector: dict[str, Any]) -> NDArray[Any]:
    """The array, by its metadata and references: each chunk decodes to its encoded shape."""
    grid = vector["chunk_grid"]["configuration"]
    dtype = np.dtype(vector["data_type"])
    values = np.full(vector["shape"], vector["fill_value"], dtype)
    assert [sum(edges) for edges in grid["chunk_shapes"]] == vector["shape"]
    for key in product(*(range(len(edges)) for edges in grid["chunk_shapes"])):
        place = vector["chunks"]["/".join(["c", *map(str, key)])]
        if place is None:
            continue
        source, offset, length = place
        raw = base64.b64decode(vector["sources"][source])[offset : offset + length]
        for codec in vector["codecs"][1:]:
            assert codec["name"] == "numcodecs.zlib"
            raw = zlib.decompress(raw)
        edges = grid["chunk_shapes"], grid["encoded_chunk_shapes"]
        shown, encoded = ([axis[k] for axis, k in zip(e, key, strict=True)] for e in edges)
        starts = [sum(axis[:k]) for axis, k in zip(grid["chunk_shapes"], key, strict=True)]
        chunk = np.frombuffer(raw, dtype.newbyteorder("<")).reshape(encoded)
        box = tuple(slice(a, a + n) for a, n in zip(starts, shown, strict=True))
        values[box] = chunk[tuple(slice(n) for n in shown)]
    return values


@pytest.mark.parametrize("vector", EXPRESSIBLE, ids=lambda each: each["title"])
def test_values_are_those_of_the_vector(vector: dict[str, Any]) -> None:
    assert decoded(vector).reshape(-1).tolist() == vector["values"]


@pytest.mark.parametrize("vector", EXPRESSIBLE, ids=lambda each: each["title"])
def test_zarr_reads_those_that_need_no_encoded_shapes(vector: dict[str, Any]) -> None:
    """And no others: what the proposal adds is what they need."""
    grid = vector["chunk_grid"]["configuration"]
    needed = grid.pop("encoded_chunk_shapes")
    store = {
        "zarr.json": json.dumps({
            "zarr_format": 3,
            "node_type": "array",
            **{name: vector[name] for name in ("shape", "data_type", "fill_value", "codecs")},
            "chunk_grid": vector["chunk_grid"],
            "chunk_key_encoding": {"name": "default"},
        }).encode()
    }  # fmt: skip
    for key, place in vector["chunks"].items():
        if place is not None:
            source, offset, length = place
            raw = base64.b64decode(vector["sources"][source])
            store[key] = raw[offset : offset + length]
    buffers = {name: zarr.core.buffer.cpu.Buffer.from_bytes(raw) for name, raw in store.items()}
    with zarr.config.set({"array.rectilinear_chunks": True}):
        array = zarr.open_array(zarr.storage.MemoryStore(buffers), mode="r")
        if needed == grid["chunk_shapes"]:
            assert array[...].reshape(-1).tolist() == vector["values"]
        else:
            with pytest.raises(Exception, match="reshape"):
                array[...]
    grid["encoded_chunk_shapes"] = needed
