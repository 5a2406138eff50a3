"""Every client reads what it can, bit for bit, and nothing wrong; the table of it is up to date."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.core.buffer import cpu

import gridref
from gridref.serve.pages import LiteralSegment
from tests.conformance.cases import all_cases
from tests.conformance.client_table import PAGE, render, run, without_versions
from tests.conformance.clients import all_clients
from tests.programs import npm_package, program


@pytest.mark.long
def test_clients_read_what_they_can_and_nothing_wrong(tmp_path: Path) -> None:
    # One test: several would read everything again in every process that runs tests.
    program("node")
    npm_package("zarrita")
    results = run(tmp_path)
    cells = {
        (results.rows[number].label, name): cell for (number, name), cell in results.cells.items()
    }
    assert not {place for place, cell in cells.items() if cell.startswith("WRONG")}
    with all_clients() as clients:
        known = {client.name: client for client in clients}
    assert not {
        (results.rows[number].label, name): results.reasons[number, name]
        for (number, name), cell in results.cells.items()
        if cell == "refuses" and known[name].should_read(results.rows[number].document)
    }
    for name in {name for _, name in results.cells}:
        for case in {row.case.name for row in results.rows} - {"strings"}:
            of_case = [n for n, row in enumerate(results.rows) if row.case.name == case]
            assert "yes" in [results.cells[n, name] for n in of_case], (name, case)
    trace = results.traces["zarr-python"]
    assert len(trace) == 2  # a shard costs an index and a chunk
    assert "bytes=-" in trace[0]
    page = PAGE.read_text(encoding="utf-8")
    assert without_versions(page) == without_versions(render(results)), "run `make clients`"


def test_icechunk_reads_the_native_view(tmp_path: Path) -> None:
    """Every chunk of a native view is one byte range, as icechunk's virtual references are."""
    icechunk = pytest.importorskip("icechunk")
    access = icechunk.credentials.LocalFileSystemAccess
    for case in all_cases(tmp_path):
        space = gridref.open_store(case.group, grid="rectilinear").space
        if space.array_view(case.path).view != "native":
            continue
        prefix = f"file://{tmp_path}/"
        config = icechunk.RepositoryConfig.default()
        container = icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(prefix))
        config.set_virtual_chunk_container(container)
        repository = icechunk.Repository.create(
            icechunk.in_memory_storage(),
            config=config,
            authorize_virtual_chunk_access={prefix: access},
            spec_version=2,
        )
        session = repository.writable_session("main")
        store = session.store
        for key in space.keys(""):
            (segment,) = space.resolve(key).segments
            if isinstance(segment, LiteralSegment):
                value = cpu.Buffer.from_bytes(segment.data)
                asyncio.run(store.set(key, value))
            else:
                url = f"file://{segment.source.url}"
                store.set_virtual_ref(key, url, offset=segment.offset, length=segment.n_bytes)
        with zarr.config.set({"array.rectilinear_chunks": True}):
            values = zarr.open_group(store, mode="r")[case.path][...]
        assert np.asarray(values).tolist() == case.values.tolist(), case.name
