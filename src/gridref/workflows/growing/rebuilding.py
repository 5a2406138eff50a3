"""Catalogs that are made of all their files at once: where files come or go, they are built anew.

The files are scanned again, which reads metadata only, and all rows are written. Plates, padded
rows, mosaics of several grids and groups by kind take no catalog for an input of combining; of
mosaics, other rows and files along several dimensions none is taken out again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from gridref.catalog.chunk_listing import list_chunks
from gridref.catalog.commits import Base
from gridref.catalog.growth import written
from gridref.catalog.part_writer import recounted
from gridref.combine import Combination
from gridref.combine.options import Read
from gridref.errors import CombineError, InvalidRequestError, Place
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.secrets import without_signature
from gridref.workflows.building import Job, with_drifts
from gridref.workflows.growing.appending import Grown

__all__ = ["is_made_of_all", "is_rebuilt", "rebuilt", "rebuilt_with"]

Scanned = Sequence[tuple[str, VirtualGroup]]


def is_rebuilt(job: Job) -> bool:
    """Whether the files of a catalog are laid out by rules that need all of them."""
    several = job.layout.mosaic and job.mosaic.grids == "groups"
    return several or job.layout.in_groups or job.layout.layout in ("plate", "padded")


def is_made_of_all(job: Job, group: VirtualGroup) -> bool:
    """Whether more than its place along one dimension says where a file of a catalog lies."""
    several_ways = job.layout.mosaic or job.layout.layout or job.layout.is_cube(group)
    return is_rebuilt(job) or bool(several_ways)


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
        raise _others(base)
    return _anew({**dict(held), **dict(new)}, job, read)[0]


def rebuilt_with(
    base: Base,
    files: Scanned,
    stay: Collection[str],
    was: Scanned | None,
    job: Job,
    read: Read,
) -> Grown:
    """What becomes of a catalog when it is built anew with others in the places of some files.

    Parameters
    ----------
    files
        What it is built of, scanned.
    stay
        Addresses of those that it is built of already.
    was
        Its files as they were, scanned again; None where some are no more what they were.
    job, read
        As for `rebuilt`.

    Raises
    ------
    InvalidRequestError
        If nothing would be left, or the files do not make what the catalog holds. Of files that are
        no more what they were, nobody can tell: then those that stay have to lie as they did.
    CombineError
        With every problem, where files do not fit.
    """
    if not files:
        raise InvalidRequestError("nothing would be left of the catalog")
    if was is not None and not _makes(job.laid_out(was, read), base):
        raise _others(base)
    grown, done = _anew(dict(files), job, read)
    if was is None and not _lie_as_before(done, base, stay):
        raise InvalidRequestError(
            "its files are laid out by all of them, and with some that are not what they were the"
            " others come to lie elsewhere: build it anew with all files",
            Place(source=base.group.info.url),
        )
    return grown


def _anew(files: Mapping[str, VirtualGroup], job: Job, read: Read) -> tuple[Grown, Combination]:
    """A catalog of files, all of whose rows are written."""
    ordered = [(file, files[file]) for file in job.layout.ordered([*files])]
    done = job.laid_out(ordered, read)
    group = with_drifts(done)
    arrays = {path: written(array) for path, array in group.all_arrays().items()}
    return Grown(group, arrays, ends=done.ends), done


def _others(base: Base) -> InvalidRequestError:
    """Why a catalog cannot be built anew."""
    return InvalidRequestError(
        "files like these are laid out by all of them, and those of the catalog do not make"
        " what it holds when they are combined again: build it anew with all files",
        Place(source=base.group.info.url),
    )


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


def _lie_as_before(done: Combination, base: Base, files: Collection[str]) -> bool:
    """Whether the same ranges of some files are the same chunks of the same arrays as before."""
    now, there = done.unwrap().all_arrays(), base.group.all_arrays()
    shapes = {path: array.shape for path, array in there.items()}
    if {path: array.shape for path, array in now.items()} != shapes:
        return False
    names = pa.array({without_signature(file) for file in files})
    return bool(_ranges_of(now, names).equals(_ranges_of(there, names)))


def _ranges_of(arrays: Mapping[str, VirtualArray], files: pa.Array) -> pa.Table:
    """Where ranges of some files lie."""
    in_order = {path: arrays[path] for path in sorted(arrays)}
    columns = ["path", "start", "stop", "source", "offset", "length"]
    table = list_chunks(in_order, "range", columns).read_all()
    for name in ("path", "source"):
        column = table.column(name).cast(pa.string())
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table.filter(pc.is_in(table.column("source"), files))
