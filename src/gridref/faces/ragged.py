"""Read ragged rows of a catalog: as an Awkward Array, or as a sparse matrix of scipy.

A sparse matrix is a group of three arrays, ``data``, ``indices`` and ``indptr``, as in AnnData
(``.h5ad``) and 10x Genomics. Files that the layout `Ragged` laid one after the other are one
matrix: that of each file is below that of the file before (beside it, if its columns are
compressed).

Sources: CF conventions 1.11, section 9.3.3 "Contiguous ragged array representation"; AnnData's
on-disk format, "Sparse arrays"; 10x Genomics, "HDF5 Feature-Barcode Matrix Format";
`scipy.sparse.csr_array` for the three arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError
from gridref.extras import needed_for
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.options import verb
from gridref.typing import Int64Array

if TYPE_CHECKING:
    import awkward as ak
    import scipy.sparse


def row_lengths(held: VirtualGroup, array: VirtualArray) -> Int64Array | None:
    """int64 (rows,), samples of each row along the first dimension of an array.

    A variable of the group counts them whose attribute ``sample_dimension`` names that dimension
    (CF conventions 1.11, section 9.3.3); None if there is none.
    """
    for counts in held.arrays.values():
        if counts.ndim == 1 and counts.attrs.get("sample_dimension") == array.dims[0]:
            lengths: Int64Array = counts.read().astype(np.int64)
            if int(lengths.sum()) == array.shape[0]:
                return lengths
    return None


def span(n_rows: int, rows: slice | None) -> tuple[int, int, slice]:
    """The first row to read, the one behind the last, and what to take of those that are read."""
    chosen = range(n_rows)[slice(None) if rows is None else rows]
    first, last = sorted((chosen[0], chosen[-1])) if chosen else (0, -1)
    return first, last + 1, slice(None, None, chosen.step)


# Awkward Arrays


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
    with needed_for("reading ragged rows"):
        import awkward as ak
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


# Sparse matrices

_WHOLE = (slice(None, None, 1), slice(None))
_PARTS = ("data", "indices", "indptr")
_KINDS: dict[str, Literal["csr", "csc"]] = {
    "csr_matrix": "csr",
    "csc_matrix": "csc",
    "csr": "csr",
    "csc": "csc",
}
"""What ``encoding-type`` says, and ``h5sparse_format`` of AnnData before 0.7."""


@verb()
def sparse(
    group: VirtualGroup,
    path: str = "X",
    *,
    rows: slice | None = None,
    columns: slice | None = None,
) -> scipy.sparse.csr_array | scipy.sparse.csc_array:
    """Read a sparse matrix, or a part of it.

    Of what is compressed, rows of CSR and columns of CSC, only the part is read; along the other
    axis it is cut after reading.

    Parameters
    ----------
    group
        A catalog, or what a scan returned.
    path
        The group with ``data``, ``indices`` and ``indptr``, like ``X`` or ``layers/counts`` of
        AnnData, and ``matrix`` of 10x.
    rows, columns
        What to read, by default all.

    Returns
    -------
    scipy.sparse.csr_array or scipy.sparse.csc_array
        As the file keeps it.

    Raises
    ------
    InvalidRequestError
        If there is no sparse matrix, or its parts contradict each other; a `MissingPackageError` if
        scipy is not installed.
    ReadError
        If a chunk cannot be read.
    """
    with needed_for("reading sparse matrices"):
        import scipy.sparse
    matrix = _Matrix.of(group, path)
    along, across = (rows, columns) if matrix.kind == "csr" else (columns, rows)
    data, indices, indptr, step = matrix.read(along)
    shape = (len(indptr) - 1, matrix.width)
    if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < matrix.width:
        raise InvalidRequestError(f"{path}/indices go beyond {matrix.width}, the width of {path}")
    across = slice(None) if across is None else across
    if matrix.kind == "csr":
        rows_of = scipy.sparse.csr_array((data, indices, indptr), shape=shape)
        return rows_of[step, across] if (step, across) != _WHOLE else rows_of
    columns_of = scipy.sparse.csc_array((data, indices, indptr), shape=shape[::-1])
    return columns_of[across, step] if (step, across) != _WHOLE else columns_of


@dataclass(frozen=True)
class _Matrix:
    """A sparse matrix, by what is compressed: rows of CSR, columns of CSC.

    Attributes
    ----------
    path
        Its group.
    kind
        ``csr`` or ``csc``.
    width
        Its length along the axis that is not compressed.
    data, indices
        Arrays of its elements.
    starts, stops
        int64, first element of each row, and the one behind its last.
    """

    path: str
    kind: Literal["csr", "csc"]
    width: int
    data: VirtualArray
    indices: VirtualArray
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]

    @classmethod
    def of(cls, group: VirtualGroup, path: str) -> _Matrix:
        """The matrix of a group."""
        held = group[path] if path.strip("/") in group else None
        if not isinstance(held, VirtualGroup) or any(part not in held.arrays for part in _PARTS):
            raise InvalidRequestError(
                f"{path!r} is no group with {', '.join(_PARTS)}: the catalog has"
                f" {', '.join(_matrices(group)) or 'none'}"
            )
        kind, shape = _declared(held, path)
        parts = (held.arrays[part] for part in _PARTS)
        data, indices, indptr = parts
        if data.ndim != 1 or data.shape != indices.shape or indptr.ndim != 1:
            raise InvalidRequestError(f"the parts of {path} have other shapes than a sparse matrix")
        starts, stops = _rows(held, path, indptr, data)
        return cls(path, kind, shape[1 if kind == "csr" else 0], data, indices, starts, stops)

    def read(
        self, along: slice | None
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64], slice]:
        """Elements, their indices and row pointers of rows, and the step to take among them."""
        first, stop, step = span(len(self.starts), along)
        starts, stops = self.starts[first:stop], self.stops[first:stop]
        wanted = slice(int(starts[0]), int(stops[-1])) if len(starts) else slice(0, 0)
        indptr = np.append(starts, stops[-1:]) - wanted.start
        indptr = indptr if len(starts) else np.zeros(1, np.int64)
        data, indices = self.data.read((wanted,)), self.indices.read((wanted,))
        return data, indices, indptr, step


def _declared(held: VirtualGroup, path: str) -> tuple[Literal["csr", "csc"], tuple[int, int]]:
    """How a group says that it is compressed, and the shape that it, or its first file, states."""
    attrs = held.attrs
    named = attrs.get("encoding-type", attrs.get("h5sparse_format"))
    shape = attrs.get("shape", attrs.get("h5sparse_shape"))
    if named is None and "shape" in held.arrays:  # 10x: features by cells
        stated = np.unique(held.arrays["shape"].read().reshape(-1, 2)[:, 0])
        if len(stated) != 1:
            raise InvalidRequestError(f"the files of {path} have {stated.tolist()} features")
        return "csc", (int(stated[0]), -1)
    kind, sizes = _KINDS.get(str(named)), np.asarray(shape).reshape(-1)
    if kind is None or sizes.size != 2 or sizes.dtype.kind not in "iu":
        raise InvalidRequestError(
            f"{path} does not say how it is compressed: encoding-type is {named!r}"
        )
    return kind, (int(sizes[0]), int(sizes[1]))


def _rows(
    held: VirtualGroup, path: str, indptr: VirtualArray, data: VirtualArray
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where rows begin and end among all elements, those of each file behind the file before."""
    pointers = indptr.read().astype(np.int64)
    lengths, elements = (
        [array.size] if (found := row_lengths(held, array)) is None else found.tolist()
        for array in (indptr, data)
    )
    if len(lengths) != len(elements):
        raise InvalidRequestError(f"data and indptr of {path} are of unequally many files")
    starts, stops, before = [], [], 0
    for own, n_elements in zip(np.split(pointers, np.cumsum(lengths)[:-1]), elements, strict=True):
        whole = len(own) and own[0] == 0 and own[-1] == n_elements and (np.diff(own) >= 0).all()
        if not whole:
            raise InvalidRequestError(
                f"{path}/indptr does not point to {path}/data: files with sparse matrices are"
                " combined by layout=Ragged()"
            )
        starts.append(own[:-1] + before)
        stops.append(own[1:] + before)
        before += n_elements
    return np.concatenate(starts), np.concatenate(stops)


def _matrices(group: VirtualGroup) -> list[str]:
    """The groups that have the parts of a sparse matrix."""
    return [
        path or "/" for path, held in group.walk() if all(part in held.arrays for part in _PARTS)
    ]
