"""Catalogs whose layout takes no catalog for an input: with more files they are built anew.

Plates, padded rows, mosaics of several grids and groups by kind are made of all their files at
once. Their files are scanned again, which reads metadata only, and all rows are written.
"""

from __future__ import annotations

from collections.abc import Sequence

from gridref.catalog.commits import Base
from gridref.catalog.growth import written
from gridref.catalog.part_writer import recounted
from gridref.combine import Combination
from gridref.combine.options import Read
from gridref.errors import CombineError, InvalidRequestError, Place
from gridref.model.array import VirtualGroup
from gridref.workflows.building import Job, with_drifts
from gridref.workflows.growing.appending import Grown

__all__ = ["is_rebuilt", "rebuilt"]

Scanned = Sequence[tuple[str, VirtualGroup]]


def is_rebuilt(job: Job) -> bool:
    """Whether the files of a catalog are laid out by rules that need all of them."""
    several = job.layout.mosaic and job.mosaic.grids == "groups"
    return several or job.layout.in_groups or job.layout.layout in ("plate", "padded")


def rebuilt(base: Base, held: Scanned, new: Scanned, job: Job, read: Read) -> Grown:
    """What becomes of a catalog when it is built anew of its files and more of them.

    Parameters
    ----------
    base
        The catalog.
    held, new
        Its files, scanned again, and those that are added.
    job
        How they are combined.
    read
        Reads all values of an array.

    Raises
    ------
    InvalidRequestError
        If its files alone do not make what the catalog holds: it was not built of them so.
    CombineError
        With every problem, where files do not fit.
    """
    if not _makes(job.laid_out(held, read), base):
        raise InvalidRequestError(
            "files like these are laid out by all of them, and those of the catalog do not make"
            " what it holds when they are combined again: build it anew with all files",
            Place(source=base.group.info.url),
        )
    every = {**dict(held), **dict(new)}
    ordered = [(file, every[file]) for file in job.layout.ordered([*every])]
    done = job.laid_out(ordered, read)
    group = with_drifts(done)
    arrays = {path: written(array) for path, array in group.all_arrays().items()}
    return Grown(group, arrays, ends=done.ends)


def _makes(done: Combination, base: Base) -> bool:
    """Whether files make the arrays of a catalog, row by row."""
    try:
        arrays = done.unwrap().all_arrays()
    except CombineError:
        return False
    snapshot, there = base.root.snapshot, base.group.all_arrays()
    if arrays.keys() != there.keys():
        return False
    entries = snapshot.root.all_arrays()
    rows = recounted(base.folder, arrays, snapshot.source_urls)
    return all(
        rows[path].content == entries[path].content
        and array.grid.axes == there[path].grid.axes
        and array.dtype == there[path].dtype
        for path, array in arrays.items()
    )
