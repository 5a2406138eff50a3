"""Sparse matrices of a catalog as scipy's: groups of AnnData (``.h5ad``) and of 10x Genomics.

A matrix is a group of three arrays: ``data``, ``indices`` and ``indptr``. Files that the layout
`Ragged` laid one after the other are one matrix: that of each file is below that of the file before
(beside it, if its columns are compressed).

Sources: AnnData's on-disk format, "Sparse arrays"; 10x Genomics, "HDF5 Feature-Barcode Matrix
Format"; `scipy.sparse.csr_array` for the three arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError
from gridref.extras import missing_package
from gridref.faces.ragged_rows import row_lengths, span
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.options import verb

if TYPE_CHECKING:
    import scipy.sparse

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
    try:
        import scipy.sparse
    except ImportError as error:
        raise missing_package("reading sparse matrices", error) from error
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
