"""Write ``docs/examples/virtual-layouts.json``: layouts of files as test vectors for Zarr's grids.

Each vector is an array that files hold: its values, the stored bytes of its chunks, and, where a
rectilinear grid with `encoded_chunk_shapes` can say it, the metadata and references that do.
``python -m tools.layout_vectors`` writes them anew.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

from gridref.model.array import VirtualArray
from gridref.model.encoding import EdgePolicy
from gridref.model.indexing import isel
from gridref.model.joining import concatenate
from gridref.model.manifest import ChunkState
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly

PATH = Path(__file__).parents[1] / "docs" / "examples" / "virtual-layouts.json"


def layouts() -> dict[str, VirtualArray]:
    """An array of each kind, by what is uneven in it and where that is found."""
    truncated = EdgePolicy.TRUNCATED
    ten, four = (10, 2), (4, 4)
    return {
        "months of 31, 28 and 31 days in chunks of 10, as HDF5 stores them": _joined(
            *(_file(n, 3, ten, 100 * i) for i, n in enumerate((31, 28, 31)))
        ),
        "files whose chunks divide their lengths: an ordinary grid": _joined(
            _file(30, 4, ten, 0), _file(20, 4, ten, 200)
        ),
        "strips of TIFF images: the last strip of each image is stored short": _joined(
            _file(10, 3, (4, 3), 0, edge=truncated), _file(7, 3, (4, 3), 100, edge=truncated)
        ),
        "chunks longer than the data of a file: granules with few samples": _joined(
            _file(5, 1, (16, 1), 0), _file(3, 1, (16, 1), 100)
        ),
        "another chunk length in the second file, along the axis of the files": _joined(
            _file(12, 4, four, 0), _file(12, 4, (6, 4), 100)
        ),
        "a chunk that no file holds, before a padded one": _joined(
            _file(4, 3, (2, 3), 0, absent=[1]), _file(5, 3, (3, 3), 100)
        ),
        "another chunk length in the second file, across the axis of the files": _joined(
            _file(4, 6, (4, 3), 0), _file(4, 6, (4, 2), 100)
        ),
        "other codecs in the second file: it is compressed": _joined(
            _file(4, 3, (2, 3), 0), _file(4, 3, (2, 3), 100, compressed=True)
        ),
        "a file without its first two rows": isel(
            _file(12, 3, (5, 3), 0), {"time": slice(2, None), "x": slice(None)}
        ),
        "rows from north to south, shown from south to north": isel(
            _file(7, 3, (3, 3), 0), {"time": slice(None, None, -1), "x": slice(None)}
        ),
    }


def _joined(*files: VirtualArray) -> VirtualArray:
    return concatenate(files, 0)


def _file(
    n_rows: int, n_columns: int, chunks: tuple[int, int], first: int, **options: Any
) -> VirtualArray:
    values = np.arange(first, first + n_rows * n_columns, dtype="<i2").reshape(n_rows, n_columns)
    return chunked_array(values, chunks, ("time", "x"), fill_value=np.int16(-1), **options)


@dataclass(frozen=True)
class Edges:
    """The chunks along one axis of one block: what they contribute, and what they decode to."""

    shown: tuple[int, ...]
    encoded: tuple[int, ...]


def vector(title: str, array: VirtualArray) -> dict[str, Any]:
    """A layout as JSON."""
    values = read_slowly(array)
    reason, axes = _grid(array)
    described: dict[str, Any] = {
        "title": title,
        "shape": list(array.shape),
        "data_type": array.dtype.name,
        "fill_value": int(array.fill_value),
        "values": values.reshape(-1).tolist(),
        "sources": [base64.b64encode(each.inline).decode() for each in array.manifests],
    }
    if reason:
        return {**described, "not_expressible": reason}
    return {
        **described,
        "codecs": [codec.to_json() for codec in array.encodings[0].codecs],
        "chunk_grid": {
            "name": "rectilinear",
            "configuration": {
                "kind": "inline",
                "chunk_shapes": [[n for each in axis for n in each.shown] for axis in axes],
                "encoded_chunk_shapes": [
                    [n for each in axis for n in each.encoded] for axis in axes
                ],
            },
        },
        "chunks": dict(_references(array, axes)),
    }


def _grid(array: VirtualArray) -> tuple[str, list[list[Edges]]]:
    """Why no grid says how an array is cut, or the edges along each axis, block by block."""
    if len({encoding.codecs for encoding in array.encodings}) > 1:
        return "an array has one codec chain", []
    axes: list[list[Edges | None]] = [[None] * n for n in array.grid.grid_shape]
    for block, coords in enumerate(np.ndindex(*array.grid.grid_shape)):
        shape = array.grid.data_shape(coords)
        encoding = array.encodings[array.blocks.encoding[block]]
        for axis, at in enumerate(coords):
            origin, step = (
                int(getattr(array.blocks, name)[block, axis]) for name in ("origin", "step")
            )
            if step != 1:
                return "the array shows the elements of a chunk in another order", []
            length = encoding.chunk_shape[axis]
            extent = int(array.blocks.stored_shape[block, axis])
            starts = [*range(origin - origin % length, origin + shape[axis], length)]
            if origin % length:
                return "the array shows elements that are not the first ones of their chunk", []
            bounds = [*starts, origin + shape[axis]]
            cut = encoding.edge is EdgePolicy.TRUNCATED
            edges = Edges(
                tuple(b - a for a, b in pairwise(bounds)),
                tuple(min(length, extent - a) if cut else length for a in starts),
            )
            if axes[axis][at] not in (None, edges):
                return "chunks at one place along an axis differ in length", []
            axes[axis][at] = edges
    return "", [[each for each in axis if each] for axis in axes]


def _references(array: VirtualArray, axes: list[list[Edges]]) -> Iterator[tuple[str, Any]]:
    """For each chunk key its source, offset and length; null where no file holds the chunk."""
    places = [
        [(block, chunk) for block, each in enumerate(axis) for chunk in range(len(each.shown))]
        for axis in axes
    ]
    for key in product(*(range(len(axis)) for axis in places)):
        chosen = [axis[k] for axis, k in zip(places, key, strict=True)]
        block = int(np.ravel_multi_index([b for b, _ in chosen], array.grid.grid_shape))
        table = array.blocks
        row = int(table.first_row[block] + np.dot([c for _, c in chosen], table.row_stride[block]))
        number = int(table.manifest[block])
        rows = array.manifests[number].take(np.array([row]))
        name = "/".join(["c", *map(str, key)])
        if rows.state[0] == ChunkState.MISSING:
            yield name, None
            continue
        whole = array.manifests[number]
        yield name, [number, int(whole.offset[row]), int(whole.length[row])]


def text() -> str:
    """What the file holds."""
    return json.dumps([vector(title, array) for title, array in layouts().items()], indent=1) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
