"""Numbers about a virtual group, for people."""

from __future__ import annotations

import numpy as np

from gridref.adapters.drawing import human_bytes
from gridref.model.array import VirtualGroup
from gridref.model.manifest import ChunkState, Source

__all__ = ["source_summary"]


def source_summary(group: VirtualGroup) -> list[str]:
    """What the arrays hold and where their chunks lie, as lines of text. Reads the manifests."""
    sources: dict[Source, None] = {}
    counts = np.zeros(len(ChunkState), np.int64)
    stored = decoded = 0
    for array in group.all_arrays().values():
        decoded += array.nbytes
        for manifest in dict.fromkeys(array.manifests):
            rows = manifest.take(np.arange(manifest.n_rows))
            sources.update(dict.fromkeys(rows.sources))
            counts += np.bincount(rows.state, minlength=len(ChunkState))
            stored += rows.stored_bytes
    sizes = [source.size_bytes for source in sources if source.size_bytes is not None]
    states = ", ".join(f"{counts[state]} {state.name.lower()}" for state in ChunkState)
    lines = [
        f"{counts.sum()} stored chunks: {states}",
        f"{human_bytes(stored)} stored, {human_bytes(decoded)} decoded",
        f"{len(sources)} sources, {human_bytes(sum(sizes))}",
    ]
    urls = sorted(source.url for source in sources)
    shown = urls if len(urls) <= 4 else [*urls[:2], "…", urls[-1]]
    return lines + [f"  {url}" for url in shown]
