"""Sparse matrices of AnnData and 10x, against h5py and scipy."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.sparse

import gridref
from gridref.errors import InvalidRequestError
from gridref.faces.ragged import sparse
from tests.http_server import Site, serving

N_GENES = 23
SLICES = [
    None,
    slice(0, 0),
    slice(3, 9),
    slice(-5, None),
    slice(8, 2, -2),
    slice(None, None, -1),
    slice(1, 100, 3),
]


def random_matrix(kind: str, n_cells: int, seed: int = 0) -> Any:
    return scipy.sparse.random(n_cells, N_GENES, 0.2, format=kind, random_state=seed, dtype="f4")


def write_parts(group: h5py.Group, matrix: Any) -> None:
    for name in ("data", "indices", "indptr"):
        values = getattr(matrix, name)
        chunks = (min(16, len(values)),) if len(values) else None
        group.create_dataset(
            name, data=values, chunks=chunks, compression="gzip" if chunks else None
        )


def write_h5ad(path: Path, matrix: Any, name: str = "X") -> Path:
    """As AnnData writes it (encoding-version 0.1.0)."""
    with h5py.File(path, "w") as file:
        file.attrs["encoding-type"] = "anndata"
        group = file.create_group(name)
        group.attrs["encoding-type"] = f"{matrix.format}_matrix"
        group.attrs["encoding-version"] = "0.1.0"
        group.attrs["shape"] = np.array(matrix.shape)
        write_parts(group, matrix)
        obs = file.create_group("obs")
        obs["_index"] = np.array([f"{path.stem}-{n}" for n in range(matrix.shape[0])], "S8")
        file.create_group("var")["_index"] = np.array([f"g{n}" for n in range(N_GENES)], "S4")
    return path


def opened(files: list[Path], catalog: Path, **options: Any) -> gridref.Catalog:
    gridref.build([str(path) for path in files], catalog, **options)
    return gridref.open_catalog(catalog)


def assert_same(found: Any, expected: Any) -> None:
    assert found.format == expected.format
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found.toarray(), expected.toarray())


@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_parts_of_a_matrix(tmp_path: Path, kind: str) -> None:
    matrix = random_matrix(kind, 17)
    catalog = opened([write_h5ad(tmp_path / "a.h5ad", matrix)], tmp_path / "a.gridref")
    assert_same(catalog.sparse("X"), matrix)
    assert isinstance(catalog.sparse(), scipy.sparse.sparray)
    for rows, columns in itertools.product(SLICES, SLICES):
        expected = matrix.toarray()[rows or slice(None), columns or slice(None)]
        found = catalog.sparse("X", rows=rows, columns=columns)
        np.testing.assert_array_equal(found.toarray(), expected, f"{rows}, {columns}")


def test_other_names_and_what_a_scan_returned(tmp_path: Path) -> None:
    matrix = random_matrix("csr", 9)
    path = write_h5ad(tmp_path / "a.h5ad", matrix, "layers/counts")
    assert_same(sparse(gridref.scan(path), "layers/counts"), matrix)
    with h5py.File(path, "a") as file:  # as AnnData before 0.7
        attrs = file["layers/counts"].attrs
        del attrs["encoding-type"]
        attrs["h5sparse_format"], attrs["h5sparse_shape"] = "csr", attrs.pop("shape")
    assert_same(sparse(gridref.scan(path), "layers/counts"), matrix)


@pytest.mark.parametrize("one_is_empty", [False, True])
def test_files_lie_along_cells(tmp_path: Path, one_is_empty: bool) -> None:
    matrices = [random_matrix("csr", 5 + n, n) for n in range(4)]
    if one_is_empty:
        matrices[1] = scipy.sparse.csr_matrix((4, N_GENES), dtype="f4")
    files = [write_h5ad(tmp_path / f"{n}.h5ad", matrix) for n, matrix in enumerate(matrices)]
    catalog = opened(files, tmp_path / "a.gridref", layout=gridref.Ragged())
    whole = scipy.sparse.vstack(matrices, "csr")
    assert_same(catalog.sparse("X"), whole)
    assert_same(catalog.sparse("X", rows=slice(4, 13)), whole[4:13])
    assert catalog["obs/_index"].shape == (whole.shape[0],)


def test_cells_of_10x(tmp_path: Path) -> None:
    """Features by cells, compressed by cells; files lie along cells, too."""
    matrices = [random_matrix("csr", 6 + n, n).T.tocsc() for n in range(3)]
    files = []
    for number, matrix in enumerate(matrices):
        files.append(tmp_path / f"{number}.h5")
        with h5py.File(files[-1], "w") as file:
            group = file.create_group("matrix")
            write_parts(group, matrix)
            group["shape"] = np.array(matrix.shape, "i4")
            group["barcodes"] = np.array([f"{number}-{n}" for n in range(matrix.shape[1])], "S8")
    catalog = opened(files, tmp_path / "a.gridref", layout=gridref.Ragged())
    whole = scipy.sparse.hstack(matrices, "csc")
    assert_same(catalog.sparse("matrix"), whole)
    assert_same(catalog.sparse("matrix", columns=slice(5, 9)), whole[:, 5:9])


def test_the_rest_is_not_read(tmp_path: Path) -> None:
    matrix = scipy.sparse.random(4000, N_GENES, 0.5, format="csr", random_state=1)
    path = write_h5ad(tmp_path / "a.h5ad", matrix)
    with serving(Site({"/a.h5ad": path.read_bytes()})) as site:
        gridref.build([f"{site.url}/a.h5ad"], tmp_path / "a.gridref")
        catalog = gridref.open_catalog(tmp_path / "a.gridref")
        n_before = len(site.requests)
        found = catalog.sparse("X", rows=slice(2000, 2010))
        ranges = [str(asked).removeprefix("bytes=") for *_, asked in site.requests[n_before:]]
        ends = [tuple(map(int, each.split("-"))) for each in ranges]
        assert sum(stop - start for start, stop in ends) < path.stat().st_size // 5
    assert_same(found, matrix[2000:2010])


def test_what_is_no_matrix(tmp_path: Path) -> None:
    matrix = random_matrix("csr", 9)
    path = write_h5ad(tmp_path / "a.h5ad", matrix)
    with pytest.raises(InvalidRequestError, match=r"'Y' is no group with data.*has X"):
        sparse(gridref.scan(path), "Y")
    with pytest.raises(InvalidRequestError, match="is no group with data"):
        sparse(gridref.scan(path), "obs")
    changes: list[tuple[str, Any, str]] = [
        ("indptr", -1, "indptr does not point to"),
        ("indices", N_GENES, "indices go beyond 23"),
    ]
    for name, value, message in changes:
        damaged = write_h5ad(tmp_path / "b.h5ad", matrix)
        with h5py.File(damaged, "a") as file:
            file[f"X/{name}"][3] = value
        with pytest.raises(InvalidRequestError, match=message):
            sparse(gridref.scan(damaged), "X")
    with h5py.File(path, "a") as file:
        file["X"].attrs["encoding-type"] = "coo"
    with pytest.raises(InvalidRequestError, match="does not say how it is compressed"):
        sparse(gridref.scan(path), "X")
