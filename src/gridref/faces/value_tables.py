"""Show a variable as a table for DuckDB: a row for each element, read only if a query needs it.

DuckDB asks a dataset of pyarrow for a scan, and hands it the columns and the filter of the query.
`ValueTable` finds by the filter which labels of each dimension may be wanted. The rest is not read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, override

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
import xarray as xr
from numpy.typing import NDArray

from gridref.errors import GridrefError
from gridref.formats.chunks import split_contiguous
from gridref.model.array import VirtualGroup
from gridref.typing import Int64Array

_MOST_PIECES = 1024
"""Most pieces into which the labels of a dimension are cut. A filter keeps some of them."""
_BATCH_ROWS = 1 << 20


class ValueTable(pyarrow.dataset.InMemoryDataset):
    """A variable as a table, with a column for each dimension, and its values.

    Parameters
    ----------
    group, path
        The variable, which xarray decodes; missing values are null.

    Attributes
    ----------
    error
        What ended the reading; DuckDB passes on its text only.
    """

    def __init__(self, group: VirtualGroup, path: str) -> None:
        parent, _, name = path.rpartition("/")
        shown: Any = group
        opened = xr.open_dataset(shown, engine="gridref", group=parent or None)
        self._values = opened[name].variable
        self._labels = {
            str(dim): _as_arrow(opened[dim].values if dim in opened.coords else np.arange(length))
            for dim, length in opened[name].sizes.items()
        }
        self.error: GridrefError | None = None
        value = "value" if "value" not in self._labels else "value_"
        none = _as_arrow(self._values[(slice(0, 0),) * self._values.ndim].values.reshape(-1))
        columns = {**self._labels, value: none}
        fields = [(name, column.type) for name, column in columns.items()]
        super().__init__(pa.schema(fields).empty_table())

    @override
    def scanner(
        self,
        columns: Any = None,
        filter: Any = None,
        **_: Any,
    ) -> pyarrow.dataset.Scanner:
        """Scan the rows that may fulfil a filter, and give those that do."""
        wanted = [self._places(name, labels, filter) for name, labels in self._labels.items()]
        batches = pa.RecordBatchReader.from_batches(self.schema, self._noting(wanted))
        return pyarrow.dataset.Scanner.from_batches(batches, columns=columns, filter=filter)

    def _noting(self, wanted: list[Int64Array]) -> Iterator[pa.RecordBatch]:
        try:
            yield from self.batches(wanted)
        except GridrefError as error:
            self.error = error
            raise

    def batches(self, wanted: list[Int64Array]) -> Iterator[pa.RecordBatch]:
        """Read the elements at some places of each dimension, in C order within each batch."""
        lengths = split_contiguous([len(places) for places in wanted], 1, _BATCH_ROWS)
        parts = [
            [places[start : start + length] for start in range(0, len(places), length)]
            for places, length in zip(wanted, lengths, strict=True)
        ]
        for box in itertools.product(*parts):
            values = self._values.isel(dict(zip(self._values.dims, box, strict=True))).values
            grid = np.indices(values.shape, np.int64).reshape(values.ndim, -1)
            labels = [
                column.take(pa.array(places[at]))
                for column, places, at in zip(self._labels.values(), box, grid, strict=True)
            ]
            yield pa.record_batch([*labels, _as_arrow(values.reshape(-1))], schema=self.schema)

    def _places(self, name: str, labels: pa.Array, condition: Any) -> Int64Array:
        """The places along a dimension whose labels may fulfil a filter, alone by this column.

        pyarrow leaves out files of a dataset that cannot hold what a filter asks for. Here, pieces
        of a column stand for files.
        """
        everything = np.arange(len(labels))
        if condition is None or not len(labels):
            return everything
        pieces = np.array_split(everything, min(len(labels), _MOST_PIECES))
        column = pyarrow.dataset.field(name)
        held = []
        for piece in pieces:
            bounds = pa.compute.min_max(labels.take(pa.array(piece)), skip_nulls=False)
            low, high = bounds["min"], bounds["max"]
            known = low.is_valid and high.is_valid
            held.append(
                (column >= low) & (column <= high) if known else pyarrow.dataset.scalar(True)
            )
        files = pyarrow.dataset.FileSystemDataset.from_paths(
            [str(number) for number in range(len(pieces))],
            schema=self.schema,
            format=pyarrow.dataset.IpcFileFormat(),
            filesystem=pyarrow.fs.LocalFileSystem(),
            partitions=held,
        )
        kept = [int(fragment.path) for fragment in files.get_fragments(filter=condition)]
        return np.concatenate([pieces[number] for number in sorted(kept)] or [everything[:0]])


def _as_arrow(values: NDArray[Any]) -> pa.Array:
    """A column; dates of other calendars, and texts, are texts."""
    if values.dtype.kind not in "biufmM":
        return pa.array([str(value) for value in values.tolist()], pa.string())
    column = pa.array(values, from_pandas=True)
    if column.type == pa.timestamp("ns"):  # DuckDB hands on conditions of microseconds only
        with suppress(pa.ArrowInvalid):
            return column.cast(pa.timestamp("us"))
    return column
