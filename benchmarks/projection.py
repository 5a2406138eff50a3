"""Projecting a selection on 1,000,000 chunks of one axis: ``python -m benchmarks.projection``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks._figures import Figure
from benchmarks._timing import best, best_of
from gridref.model.grid import GridAxis
from gridref.model.projection import Progression, project_indices, project_slice

N_CHUNKS = 1_000_000


def figures() -> Iterator[Figure]:
    """Against the two steps that numpy can do of it: sort the indices, and find their chunks."""
    random = np.random.default_rng(0)
    edges = random.integers(1, 20, N_CHUNKS)
    axis = GridAxis.from_edges(edges)
    ends = np.cumsum(edges)
    indices = random.integers(0, axis.extent, 100_000)
    seconds = best_of(
        {
            "gridref": lambda: project_indices(axis, indices),
            "numpy": lambda: np.searchsorted(ends, np.sort(indices), "right"),
        }
    )
    what = "project 100,000 random indices on 1,000,000 uneven chunks"
    own = f"{1000 * seconds['gridref']:.1f} ms"
    yield Figure(what, seconds["numpy"] / seconds["gridref"], own=own)


def main() -> None:
    random = np.random.default_rng(0)
    axes = {
        "equal": GridAxis.uniform(10 * N_CHUNKS, 10),
        "uneven": GridAxis.from_edges(random.integers(1, 20, N_CHUNKS)),
    }
    print(f"{'edges':8} {'selection':24} {'pieces':>9} {'ms':>8} {'ns per piece':>13}")
    for name, axis in axes.items():
        axis.locate(0)
        slices = {
            "all": slice(None),
            "every 3rd": slice(None, None, 3),
            "every 1000th": slice(None, None, 1000),
            "100 in the middle": slice(axis.extent // 2, axis.extent // 2 + 100),
        }
        for what, selection in slices.items():
            normal = Progression.from_slice(selection, axis.extent)
            pieces = len(project_slice(axis, normal))
            ms = 1000 * best(lambda axis=axis, normal=normal: project_slice(axis, normal))
            print(f"{name:8} {what:24} {pieces:9} {ms:8.2f} {1e6 * ms / pieces:13.1f}")
        indices = random.integers(0, axis.extent, 100_000)
        pieces = len(project_indices(axis, indices))
        ms = 1000 * best(lambda axis=axis, indices=indices: project_indices(axis, indices))
        print(
            f"{name:8} {'100,000 random indices':24} {pieces:9} {ms:8.2f} {1e6 * ms / pieces:13.1f}"
        )


if __name__ == "__main__":
    main()
