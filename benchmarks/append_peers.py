"""What adding a file costs others: Icechunk by VirtualiZarr, and kerchunk's Parquet written anew.

The same files as `benchmarks.append`, one by one, each scanned by the peer itself. Said are times
and processor times of one file more.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._peers import local_registry

__all__ = ["peers"]


def peers(files: list[str]) -> dict[str, float]:
    """Add files one after the other, the first one untimed, and tell what it cost.

    Gives the median seconds of each peer.
    """
    medians = {}
    for name, start in (("icechunk", into_icechunk), ("kerchunk", into_parquet)):
        with tempfile.TemporaryDirectory() as folder:
            add = start(Path(folder), files[0])
            wall, busy = zip(*(measured(add, file) for file in files[1:]), strict=True)
        halves = [np.median(half) for half in np.array_split(busy, 2)]
        print(
            f"{name}: {len(busy)} files more, p50 {np.median(wall):.3f} s; of the processor p50"
            f" {np.median(busy):.3f} s, in the first half {halves[0]:.3f} s, in the last"
            f" {halves[1]:.3f} s",
            flush=True,
        )
        medians[name] = float(np.median(wall))
    return medians


def measured(add: Callable[[str], None], file: str) -> tuple[float, float]:
    began, began_cpu = time.perf_counter(), time.process_time()
    add(file)
    return time.perf_counter() - began, time.process_time() - began_cpu


def into_icechunk(folder: Path, first: str) -> Callable[[str], None]:
    """A commit for each file."""
    import icechunk
    from virtualizarr import open_virtual_dataset
    from virtualizarr.parsers import HDFParser

    config = icechunk.RepositoryConfig.default()
    store = icechunk.local_filesystem_store(str(Path(first).parent))
    container = icechunk.VirtualChunkContainer(f"file://{Path(first).parent}/", store)
    config.set_virtual_chunk_container(container)
    storage = icechunk.local_filesystem_storage(str(folder / "repository"))
    repository = icechunk.Repository.create(storage, config=config)
    registry = local_registry()

    def add(file: str, **options: Any) -> None:
        session = repository.writable_session("main")
        shown = open_virtual_dataset(
            f"file://{file}", registry, parser=HDFParser(), loadable_variables=[]
        )
        with shown:
            shown.vz.to_icechunk(session.store, **options)
        session.commit(file)

    add(first)
    return lambda file: add(file, append_dim="time")


def into_parquet(folder: Path, first: str) -> Callable[[str], None]:
    """All references combined and written anew for each file; each file is scanned once."""
    from kerchunk.combine import MultiZarrToZarr
    from kerchunk.df import refs_to_dataframe
    from kerchunk.hdf import SingleHdf5ToZarr

    known = [SingleHdf5ToZarr(first).translate()]
    written = iter(range(10**9))

    def add(file: str) -> None:
        known.append(SingleHdf5ToZarr(file).translate())
        whole = MultiZarrToZarr(known, concat_dims=["time"]).translate()
        refs_to_dataframe(whole, str(folder / f"{next(written)}.parq"))

    return add


def queries(catalog: Any) -> Iterator[str]:
    """Times of questions to a catalog, in words."""
    path = next(iter(catalog.all_arrays()))
    asked: dict[str, Callable[[], Any]] = {
        "sources()": catalog.sources,
        "chunks() of one array": lambda: catalog.chunks(path),
        "chunks() of all": catalog.chunks,
        "missing chunks of all": lambda: catalog.chunks(state="missing"),
        "history()": catalog.history,
    }
    for question, ask in asked.items():
        wall, busy = measured(lambda _, ask=ask: ask(), "")
        yield f"{question}: {wall:.3f} s, of the processor {busy:.3f} s"
