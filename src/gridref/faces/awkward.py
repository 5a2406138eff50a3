"""Ragged rows of a catalog as an Awkward Array.

Source: CF conventions 1.11, section 9.3.3 "Contiguous ragged array representation".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from gridref.errors import InvalidRequestError
from gridref.extras import missing_package
from gridref.faces.ragged_rows import row_lengths, span
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.options import verb
from gridref.typing import Int64Array

if TYPE_CHECKING:
    import awkward as ak


@verb()
def awkward(group: VirtualGroup, path: str, *, rows: slice | None = None) -> ak.Array:
    """Read a variable with ragged rows, or some of these.

    Only the samples of the rows are read.

    Parameters
    ----------
    group
        A catalog, or what a scan returned.
    path
        A variable whose first dimension holds samples, like ``sst`` or ``profiles/temperature``.
    rows
        What to read, by default all rows.

    Returns
    -------
    awkward.Array
        A list for each row, of values as xarray decodes them: scaled, missing ones as NaN, times as
        ``datetime64``.

    Raises
    ------
    InvalidRequestError
        If there is no such variable, or nothing counts the samples of its rows; a
        `MissingPackageError` if awkward is not installed.
    ReadError
        If a chunk cannot be read.
    """
    try:
        import awkward as ak
    except ImportError as error:
        raise missing_package("reading ragged rows", error) from error
    array = group.all_arrays().get(path.strip("/"))
    if array is None or array.ndim == 0:
        raise InvalidRequestError(f"there is no variable {path!r} with samples")
    parent, _, name = path.strip("/").rpartition("/")
    counts = _counts(group, parent, path, array)
    stops = np.cumsum(counts)
    first, stop, step = span(len(counts), rows)
    own = counts[first:stop]
    start = int(stops[first] - counts[first]) if len(own) else 0
    dataset = xr.open_dataset(group, engine="gridref", group=parent or None)  # type: ignore[arg-type]
    samples = dataset[name].isel({array.dims[0]: slice(start, start + int(own.sum()))}).values
    listed = ak.unflatten(ak.from_numpy(samples), own)
    return listed[step]


def _counts(group: VirtualGroup, parent: str, path: str, array: VirtualArray) -> Int64Array:
    """Samples of each row of a variable, from its group or one above it."""
    above = [parent.rsplit("/", n)[0] for n in range(parent.count("/") + 1)] if parent else []
    for own in (*above, ""):
        held = group[own] if own else group
        found = row_lengths(held, array) if isinstance(held, VirtualGroup) else None
        if found is not None:
            return found
    raise InvalidRequestError(
        f"nothing counts the samples of {path!r} along {array.dims[0]!r}: a variable with the"
        f" attribute sample_dimension = {array.dims[0]!r}, as layout=Ragged() makes it"
    )
