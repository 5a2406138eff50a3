"""The chunks of one array, put into an Icechunk session: by reference, or by value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import batched

import icechunk
import numpy as np

from gridref.adapters.icechunk.planning import WritePlan, inline_rows, without
from gridref.adapters.icechunk.references import put_references
from gridref.adapters.icechunk.sessions import put_all
from gridref.serve.presence import keys_present

__all__ = ["put_array"]

N_THREADS = 8
_CHUNKS_AT_A_TIME = 32

type Coords = tuple[int, ...]


def put_array(
    store: icechunk.IcechunkStore,
    plan: WritePlan,
    path: str,
    inline_limit: int,
    offset: Sequence[int] | None = None,
) -> None:
    """Put the chunks of an array whose metadata is there.

    Parameters
    ----------
    store
        A writable session's.
    plan, path
        Which array, and how it is written.
    inline_limit
        Size in bytes of arrays whose small chunks are copied.
    offset
        Added to the coords of the chunks.
    """
    view = plan.space.array_view(path)
    assert view is not None
    offset = offset or (0,) * view.array.ndim
    if path not in plan.references:
        _put_values(store, plan, path, keys_present(view), offset)
        return
    # Icechunk keeps whole seconds, and a file may be younger than its references by less than one.
    written = datetime.now(UTC) + timedelta(seconds=1)
    for placed in plan.references[path]:
        rows = inline_rows(placed, view.array.nbytes, inline_limit)
        if len(rows):
            at = np.unravel_index(rows, placed.counts) if placed.counts else ()
            columns = [(c + first).tolist() for c, first in zip(at, placed.first, strict=True)]
            coords = list(zip(*columns, strict=True)) if columns else [()]
            _put_values(store, plan, path, coords, offset)
        put_references(store, path, without(placed, rows), offset, written)


def _put_values(
    store: icechunk.IcechunkStore,
    plan: WritePlan,
    path: str,
    coords: Iterable[Coords],
    offset: Sequence[int],
) -> None:
    """Read chunks as they are shown, and write them."""
    view = plan.space.array_view(path)
    assert view is not None
    metadata = view.metadata

    def read(at: Coords) -> tuple[str, bytes]:
        held = plan.space.resolve(f"{path}/{metadata.chunk_key(at)}")
        assert held is not None
        key = metadata.chunk_key([k + first for k, first in zip(at, offset, strict=True)])
        return f"{path}/{key}", plan.reader.read(held)

    with ThreadPoolExecutor(N_THREADS) as threads:
        for some in batched(coords, _CHUNKS_AT_A_TIME):
            put_all(store, dict(threads.map(read, some)))
