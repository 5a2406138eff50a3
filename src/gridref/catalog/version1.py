"""The description of catalogs of format version 1, as a snapshot of one part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gridref.catalog.entries import ArrayRows, GroupEntry, Interned, PartEntry
from gridref.catalog.segments import whole
from gridref.catalog.snapshot import Commit, Snapshot, digest_of
from gridref.model.grid import ChunkGrid

__all__ = ["snapshot_of_version_1"]


def snapshot_of_version_1(document: Mapping[str, Any]) -> Snapshot:
    """Read the JSON form.

    Raises
    ------
    ValueError
        If its content is not that of its digest.
    """
    if _digest(document) != document["digest"]:
        raise ValueError("its content is not that of its digest")
    shared = Interned.from_json({**document, "layouts": []})
    index: dict[str, ArrayRows] = {}
    root = GroupEntry.from_json(_translated(document["root"], "", shared, index))
    part = replace(PartEntry.from_json(document["tables"]), index=index)
    name = document["digest"].removeprefix("sha256:")[:16]
    commit = Commit(name, None, "", "write", "written in format version 1")
    snapshot = Snapshot(
        name, (commit,), root, shared, (part,), (), document["source_urls"], document["extra"]
    )
    vars(snapshot)["digest"] = document["digest"]
    return snapshot


def _digest(document: Mapping[str, Any]) -> str:
    members = ("source_urls", "extra", "axes", "encodings", "root")
    described = {name: document.get(name) for name in members}
    tables = {name: table["sha256"] for name, table in document["tables"].items()}
    return digest_of({**described, "tables": tables})


def _translated(
    group: Mapping[str, Any], prefix: str, shared: Interned, index: dict[str, ArrayRows]
) -> dict[str, Any]:
    """A group in today's form; the rows of its arrays go to `index`."""
    arrays = {}
    for name, array in group["arrays"].items():
        grid = ChunkGrid(tuple(shared.axes[i] for i in array["axes"]))
        arrays[name], index[f"{prefix}{name}"] = _array(array, grid, shared)
    groups = {
        name: _translated(below, f"{prefix}{name}/", shared, index)
        for name, below in group["groups"].items()
    }
    return {**group, "arrays": arrays, "groups": groups}


def _array(
    array: Mapping[str, Any], grid: ChunkGrid, shared: Interned
) -> tuple[dict[str, Any], ArrayRows]:
    counts = dict(array["chunks"])
    blocks, first_chunk, n_chunks = array["blocks"], counts.pop("first_row"), counts.pop("n_rows")
    rest = {name: value for name, value in array.items() if name != "blocks"}
    layout = shared.layout(whole(0, grid.grid_shape))
    today = {**rest, "layout": layout, "chunks": counts, "content": ""}
    rows = {"first_block": blocks["first_row"], "first_chunk": first_chunk, "n_chunks": n_chunks}
    if blocks["n_rows"] != grid.n_chunks or type(n_chunks) is not int:
        raise ValueError(f"{blocks['n_rows']} blocks, {n_chunks} chunks for {grid.grid_shape}")
    return today, ArrayRows.from_json({**rows, "grid_shape": grid.grid_shape, "counts": counts})
