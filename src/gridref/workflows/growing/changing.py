"""Files of a catalog replaced and removed: which elements are theirs, and what follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from gridref.catalog.commits import Base
from gridref.catalog.group import CatalogGroup
from gridref.combine.options import Read
from gridref.errors import InvalidRequestError, Place
from gridref.model.array import VirtualGroup
from gridref.workflows.building import Job
from gridref.workflows.growing.appending import Grown, combined, with_dim
from gridref.workflows.growing.places import arranged

__all__ = ["changed"]

Elements = tuple[int, int]


def changed(
    base: Base,
    files: Mapping[str, VirtualGroup | None],
    spare: Callable[[], VirtualGroup | None],
    job: Job,
    read: Read,
) -> Grown:
    """What becomes of a catalog with others in the places of some of its files.

    Parameters
    ----------
    files
        By address of a file what is there instead; None for nothing.
    spare
        Gives a file of the catalog that stays: variables without the dimension are taken from it
        where they lay in a file that goes, and what comes instead has to fit it.
    read
        Reads all values of an array.

    Raises
    ------
    InvalidRequestError
        If a file is not one of those that the catalog is laid of, or nothing would be left.
    CombineError
        With every problem, where what comes instead does not fit.
    """
    dim = job.layout.stack or job.layout.concat_dim
    if not isinstance(dim, str):
        raise InvalidRequestError(
            "files are replaced and removed along the dimension that they were laid along, and the"
            " catalog does not say which: name it (concat_dim='time')"
        )
    elements, constants = _uses(base.group, dim, list(files))
    ordered = sorted(files, key=lambda file: (files[file] is None, elements[file]))
    new = with_dim([(f, group) for f in ordered if (group := files[f])], dim, job, read)
    without = [elements[file] for file in ordered]
    laid = arranged(base.group, new, dim, "label", read, base.root.snapshot.ends, without)
    if not laid.inputs:
        raise InvalidRequestError("nothing would be left of the catalog")
    shown: VirtualGroup = base.group
    if constants:
        stays = spare()
        shown = _with_constants(shown, constants, [*([stays] if stays else []), *new])
    return combined(base, shown, laid, dim, job, read)


def _uses(
    group: CatalogGroup, dim: str, files: Sequence[str]
) -> tuple[dict[str, Elements], list[str]]:
    """Elements along the dimension that lie in files, and arrays without it that lie there too."""
    found: dict[str, set[Elements]] = {file: set() for file in files}
    constants: list[str] = []
    for path, array in group.all_arrays().items():
        rows = group.chunks(path, columns=["source", "start", "stop"])
        sources = rows.column("source").cast("string")
        for file in files:
            mine = rows.filter(pc.fill_null(pc.equal(sources, file), False))
            if not len(mine):
                continue
            if dim not in array.dims:
                constants.append(path)
                continue
            axis = array.dims.index(dim)
            starts, stops = (
                np.asarray(pc.list_element(mine.column(name), axis)) for name in ("start", "stop")
            )
            edges = array.grid.axes[axis].edges()
            found[file].add(_whole_blocks(edges, int(starts.min()), int(stops.max())))
    for file, elements in found.items():
        if len(elements) != 1:
            reason = "it lies in several places" if elements else "it is not in the catalog"
            raise InvalidRequestError(
                f"{reason}, so that it cannot be replaced or removed", Place(source=file)
            )
    return {file: next(iter(elements)) for file, elements in found.items()}, constants


def _whole_blocks(edges: NDArray[np.int64], start: int, stop: int) -> Elements:
    """The elements of the blocks that hold some: a file may lack its first or last chunks."""
    stops = np.cumsum(edges)
    first = int(np.searchsorted(stops, start, side="right"))
    last = int(np.searchsorted(stops, stop - 1, side="right"))
    return int(stops[first] - edges[first]), int(stops[last])


def _with_constants(
    group: VirtualGroup, constants: Sequence[str], givers: Sequence[VirtualGroup]
) -> VirtualGroup:
    """The group with arrays of the first giver that has them in place of those that go."""
    missing = [path for path in constants if not any(path in giver for giver in givers)]
    if missing:
        raise InvalidRequestError(
            f"{', '.join(missing)}: only a file that goes holds it. Build the catalog again"
        )

    def changed(node: VirtualGroup, prefix: str) -> VirtualGroup:
        arrays = {
            name: next(g.all_arrays()[f"{prefix}{name}"] for g in givers if f"{prefix}{name}" in g)
            if f"{prefix}{name}" in constants
            else array
            for name, array in node.arrays.items()
        }
        groups = {name: changed(below, f"{prefix}{name}/") for name, below in node.groups.items()}
        return VirtualGroup(arrays, groups, node.attrs, unlimited_dims=node.unlimited_dims)

    return changed(group, "")
