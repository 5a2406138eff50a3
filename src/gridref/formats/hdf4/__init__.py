"""HDF4 files: scientific data sets, small tables, and grids and swaths of HDF-EOS2.

Data sets become arrays under their names. Data that are whole are one run of bytes. Linked blocks
that hold whole rows become blocks of the array. Compressed data are one chunk. What is in pieces
that no chunk can name is kept inline, if it is small.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import (
    GridrefError,
    Message,
    SourceFormatError,
    SourceUnavailableError,
    UnsupportedFeatureError,
)
from gridref.formats.chunks import (
    check_chunks,
    contiguous_chunks,
    edge_policy,
    require_inside,
    scattered_chunks,
)
from gridref.formats.hdf4.datasets import (
    Contents,
    Dataset,
    Table,
    images_of,
    read_datasets,
    read_old_datasets,
    values_of,
)
from gridref.formats.hdf4.elements import (
    CHUNK,
    CHUNKED,
    COMPRESSION,
    EXTERNAL,
    TABLE_ROWS,
    Compression,
    Cursor,
    Elements,
    ExternalData,
    Key,
    Run,
    chunks_of,
    compressed_chunks,
    compression_of,
    external_data,
)
from gridref.formats.hdf4.eos import Structures
from gridref.formats.location import Location, only_allowed
from gridref.formats.metadata import DEFAULT_FILLS
from gridref.formats.scanner import Findings, ScanOptions
from gridref.io import beside, describe_source, policy_for
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Codec, EdgePolicy, bytes_codec, element_bytes, shared_encoding
from gridref.model.grid import chunk_counts
from gridref.model.joining import concatenate, missing_array
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.model.scan_report import Fate


def scan(location: Location, options: ScanOptions) -> VirtualGroup:
    """Describe a file; raises as `gridref.formats.scan` does."""
    file = location.opened
    elements = Elements(file, location.head, options.max_objects)
    contents = read_datasets(elements)
    if contents.is_old:
        datasets, refused = read_old_datasets(elements)
        contents.datasets[:0], contents.refused[:0] = datasets, refused
    return _Scan(file.name, Stored(elements, contents.tables, options)).group(contents)


class _Scan:
    """Describes what a file holds, and notes what became of each object."""

    def __init__(self, url: str, stored: Stored) -> None:
        self._stored = stored
        self._findings = Findings(url)

    def group(self, contents: Contents) -> VirtualGroup:
        """All data sets; grids and swaths are groups, where there are several."""
        structures = Structures(contents.attrs)
        arrays: dict[str, dict[str, VirtualArray]] = {"": {}}
        unlimited = defaultdict[str, set[str]](set)
        for name, error in contents.refused:
            self._findings.refuse(f"/{name}", error)
        for name in images_of(self._stored.elements, contents.groups):
            self._findings.note(f"/{name}", Fate.SKIPPED, "raster images are not read")
        for group, name, dataset in with_distinct_names(map(structures.placed, contents.datasets)):
            array = self._array(f"/{group}/{name}" if group else f"/{name}", dataset)
            if array is not None:
                arrays.setdefault(group, {})[name] = array
                unlimited[group] |= {*dataset.dims[:1]} if dataset.is_record else set()
        report = self._findings.report(self._stored.options)
        for group, coordinates in structures.coordinates():
            if group in arrays:
                arrays[group] = {**coordinates, **arrays[group]}
        groups = {
            group: VirtualGroup(own, unlimited_dims=frozenset(unlimited[group]))
            for group, own in arrays.items()
        }
        root = groups.pop("")
        return root.with_changes(groups=groups, attrs=contents.attrs, report=report)

    def _array(self, path: str, dataset: Dataset) -> VirtualArray | None:
        if dataset.is_scale and dataset.data is None:
            self._findings.note(path, Fate.NAMED, "a dimension with attributes and no labels")
            return None
        try:
            if "/" in dataset.name or not dataset.name:
                raise UnsupportedFeatureError("its name is empty or has a slash")
            array = array_of(dataset, self._stored)
        except GridrefError as error:
            self._findings.refuse(path, error)
            return None
        inline = any(isinstance(each, ChunkManifest) and each.inline for each in array.manifests)
        self._findings.note(path, Fate.INLINED if inline else Fate.TAKEN)
        if not path.endswith(dataset.name):
            self._findings.note(
                path, Fate.RENAMED, f"another data set is named {dataset.name!r}, too"
            )
        return array


def with_distinct_names(
    datasets: Iterable[tuple[str, Dataset]],
) -> Iterator[tuple[str, str, Dataset]]:
    """Groups, names and data sets; of several with one name the later ones are numbered.

    Dimensions without labels do not take the name of a data set.
    """
    placed = sorted(datasets, key=lambda each: each[1].is_scale and each[1].data is None)
    taken = {(group, dataset.name) for group, dataset in placed}
    used = set[tuple[str, str]]()
    for group, dataset in placed:
        name = dataset.name
        if (group, name) in used:
            numbered = (f"{dataset.name}_{n}" for n in count(1))
            name = next(new for new in numbered if (group, new) not in taken)
        taken.add((group, name))
        used.add((group, name))
        yield group, name, dataset


# Where the data of a data set are


_MAX_BYTES = 1 << 62


def fill_of(dataset: Dataset) -> Any:
    """What elements read as that were never written, and the absent ones of a cube."""
    dtype = dataset.dtype.newbyteorder("=")
    if dtype.names is not None or (dtype.itemsize > 1 and dtype.kind == "S"):
        return np.zeros((), dtype)[()]  # rows of tables have none
    stated = dataset.attrs.get("_FillValue")
    if isinstance(stated, np.generic) and stated.dtype == dtype:
        return stated
    if dtype.kind == "S" and isinstance(stated, str) and len(stated) <= 1:
        return np.bytes_(stated.encode("latin-1", "replace"))
    signed = np.dtype(dtype.str.replace("u", "i"))  # fills of unsigned numbers are the same bits
    return np.array(DEFAULT_FILLS[signed], signed).view(dtype)[()]


def array_of(dataset: Dataset, stored: Stored) -> VirtualArray:
    """Describe a data set."""
    if math.prod(dataset.shape) * dataset.dtype.itemsize > _MAX_BYTES:
        raise SourceFormatError(f"it is declared to have shape {dataset.shape}")
    if dataset.data is None or 0 in dataset.shape:
        return _missing(dataset)
    return stored.array(dataset, dataset.data)


@dataclass(frozen=True)
class Stored:
    """The data of a file's data sets.

    Attributes
    ----------
    tables
        Its Vdata. Some of them list chunks.
    """

    elements: Elements
    tables: Mapping[int, Table]
    options: ScanOptions

    @property
    def _source(self) -> Source:
        return self.elements.file.source

    def array(self, dataset: Dataset, key: Key | Run) -> VirtualArray:
        """The array of an element that holds data, or of their place."""
        if isinstance(key, Run):
            return self._of_runs(dataset, [key], self._source)
        kind, header = self.elements.special(key) or (None, None)
        if header is None or kind not in (COMPRESSION, CHUNKED, EXTERNAL):
            return self._of_runs(dataset, self.elements.runs(key), self._source)
        if kind == COMPRESSION:
            return self._compressed(dataset, compression_of(header))
        if kind == CHUNKED:
            return self._chunked(dataset, header)
        data = external_data(header)
        run = Run(data.offset, min(data.n_bytes, _n_bytes(dataset)))
        return self._of_runs(dataset, [run], self._external(data))

    def _external(self, data: ExternalData) -> Source:
        """The file with external data, which must be in the folder of this one or allowed."""
        address = beside(self._source.url, data.name)
        policy = policy_for(self._source.url, self.options.allow)
        try:
            with only_allowed(policy, address):
                return describe_source(address, self.options.storage_options, policy)
        except SourceUnavailableError as error:
            reason = Message(f"the external file {data.name}: ", error.reason)
            raise UnsupportedFeatureError(reason) from error

    def _of_runs(self, dataset: Dataset, runs: Sequence[Run], source: Source) -> VirtualArray:
        """The array of data that are not compressed."""
        n_bytes = _n_bytes(dataset)
        held = sum(run.length for run in runs)
        if held < n_bytes:
            raise SourceFormatError(f"{held} of its {n_bytes} bytes are stored")
        row_bytes = n_bytes // (dataset.shape[0] if dataset.shape else 1)
        ends = np.cumsum([run.length for run in runs])[:-1].clip(max=n_bytes)
        if len(runs) == 1:
            return self._of_run(dataset, dataset.shape, runs[0], source)
        if (ends % row_bytes).any() or min(run.offset for run in runs) < 0:
            return self._whole(dataset, (), runs)
        rows = [*(ends // row_bytes).tolist(), dataset.shape[0]]
        lengths = [rows[0], *(after - before for before, after in pairwise(rows))]
        parts = [
            self._of_run(dataset, (length, *dataset.shape[1:]), run, source)
            for length, run in zip(lengths, runs, strict=True)
            if length > 0
        ]
        return concatenate(parts, 0, alike=True)

    def _of_run(
        self, dataset: Dataset, shape: tuple[int, ...], run: Run, source: Source
    ) -> VirtualArray:
        chunk_shape, manifest = contiguous_chunks(
            shape, dataset.dtype.itemsize, source, run.offset, self.options.max_chunk_bytes
        )
        return _array(dataset, shape, chunk_shape, manifest, (), edge_policy(shape, chunk_shape))

    def _compressed(self, dataset: Dataset, compression: Compression) -> VirtualArray:
        n_bytes = _n_bytes(dataset)
        if compression.n_bytes == 0:
            return _missing(dataset)  # it was prepared, and never written
        if compression.n_bytes != n_bytes:
            raise UnsupportedFeatureError(
                f"{compression.n_bytes} bytes are compressed, but its shape takes {n_bytes}"
            )
        runs = self.elements.runs(compression.data)
        if len(runs) != 1:
            return self._whole(dataset, compression.codecs, runs)
        offset, length = runs[0]
        require_inside(self._source, offset, offset + length)
        manifest = ChunkManifest.from_columns([self._source], offset=[offset], length=[length])
        return _array(dataset, dataset.shape, dataset.shape, manifest, compression.codecs)

    def _whole(
        self, dataset: Dataset, codecs: tuple[Codec, ...], runs: Sequence[Run]
    ) -> VirtualArray:
        """The array of data in pieces, as one inline chunk."""
        raw = self._joined(runs)[: None if codecs else _n_bytes(dataset)]
        manifest = ChunkManifest.from_inline([raw], [self._source])
        return _array(dataset, dataset.shape, dataset.shape, manifest, codecs)

    def _joined(self, runs: Sequence[Run], already: int = 0) -> bytes:
        """The bytes of pieces, where so many are kept already."""
        n_bytes, most = already + sum(run.length for run in runs), self.options.max_inline_bytes
        if n_bytes > most:
            raise UnsupportedFeatureError(
                f"{n_bytes} of its bytes are in linked blocks that no chunks fit, and at most"
                f" max_inline_bytes, {most}, are kept in references"
            )
        return self.elements.joined(runs)

    def _chunked(self, dataset: Dataset, header: Cursor) -> VirtualArray:
        chunks = chunks_of(header)
        start = 1 if dataset.is_record else 0
        if chunks.shape[start:] != dataset.shape[start:] or len(chunks.shape) != len(dataset.shape):
            raise SourceFormatError(f"its chunks are of an array of shape {chunks.shape}")
        counts = chunk_counts(dataset.shape, chunks.chunk_shape)
        places, keys = self._chunk_table(chunks.table, counts)
        chunk_bytes = math.prod(chunks.chunk_shape) * dataset.dtype.itemsize
        codecs: tuple[Codec, ...] = ()
        if chunks.is_compressed and keys:
            keys, codecs = compressed_chunks(self.elements, keys, chunk_bytes)
        manifest = self._manifest(places, keys, math.prod(counts))
        if not codecs and (manifest.length[places] != chunk_bytes).any():
            raise SourceFormatError(f"its chunks are not of {chunk_bytes} bytes")
        return _array(
            dataset, dataset.shape, chunks.chunk_shape, manifest, codecs, fill=chunks.fill
        )

    def _manifest(self, places: NDArray[Any], keys: list[Key], n_chunks: int) -> ChunkManifest:
        """The chunks that elements hold, by their places in C order; the others are missing."""
        rows: list[tuple[int, int, int]] = []
        inline = bytearray()
        for key in keys:
            runs = self.elements.runs(key) or [Run(0, 0)]
            if len(runs) == 1:
                rows.append((*runs[0], ChunkState.RANGE))
            else:
                raw = self._joined(runs, len(inline))
                rows.append((len(inline), len(raw), ChunkState.INLINE))
                inline += raw
        offset, length, state = np.array(rows, np.int64).reshape(-1, 3).T
        stops = (offset + length)[state == ChunkState.RANGE]
        require_inside(self._source, 0, int(stops.max(initial=0)))
        columns = {"offset": offset, "length": length, "state": state}
        return scattered_chunks(n_chunks, places, [self._source], bytes(inline), **columns)

    def _chunk_table(self, ref: int, counts: tuple[int, ...]) -> tuple[NDArray[Any], list[Key]]:
        """Places of stored chunks in the grid, in C order, and their elements."""
        n_chunks, table = math.prod(counts), self.tables.get(ref)
        if table is None or [field.order for field in table.fields] != [len(counts), 1, 1]:
            raise SourceFormatError("the table of its chunks is missing, or none")
        check_chunks(n_chunks, table.n_rows)
        (rows,) = self.elements.read([(TABLE_ROWS, ref)])
        listed = values_of(table, rows)
        origin, tag, number = (listed[field.name] for field in table.fields)
        there = tag == CHUNK
        coords = origin[there].astype(np.int64).reshape(-1, len(counts))
        # Chunks behind the last record may be listed; elsewhere there is none outside of the grid.
        inside = ((coords >= 0) & (coords < counts)).all(axis=1)
        places = np.ravel_multi_index(tuple(coords[inside].T), counts)
        if len(np.unique(places)) < len(places):
            raise SourceFormatError("the table of its chunks lists one twice")
        keys: list[Key] = [(CHUNK, ref) for ref in number[there][inside].tolist()]
        return places, keys


def is_big_endian(dtype: np.dtype[Any]) -> bool:
    """Whether elements, or the members of a compound, are big-endian."""
    if dtype.names is not None:
        return any(is_big_endian(dtype[name].base) for name in dtype.names)
    return dtype.byteorder == ">"


def _missing(dataset: Dataset) -> VirtualArray:
    """The array of a data set without data."""
    return missing_array(
        dataset.shape,
        dataset.dtype.newbyteorder("="),
        dims=dataset.dims,
        fill_value=fill_of(dataset),
        attrs=dataset.attrs,
    )


def _n_bytes(dataset: Dataset) -> int:
    return math.prod(dataset.shape) * dataset.dtype.itemsize


def _array(
    dataset: Dataset,
    shape: tuple[int, ...],
    chunk_shape: tuple[int, ...],
    manifest: ChunkManifest,
    codecs: tuple[Codec, ...] = (),
    edge: EdgePolicy = EdgePolicy.PADDED,
    fill: bytes = b"",
) -> VirtualArray:
    """The array of a data set, or of some rows of it; `fill` is what its missing chunks hold."""
    stored, dtype = dataset.dtype, dataset.dtype.newbyteorder("=")
    fill_value, own_fill = fill_of(dataset), None
    if len(fill) == dtype.itemsize:
        own_fill = np.frombuffer(fill, stored).astype(dtype).tobytes()
        own_fill = None if own_fill == element_bytes(fill_value, dtype) else own_fill
    chain = (bytes_codec(dtype, big_endian=is_big_endian(stored)), *codecs)
    encoding = shared_encoding(chunk_shape, dtype, chain, edge, b"", own_fill)
    return VirtualArray.of_one_block(
        shape,
        dtype,
        encoding=encoding,
        manifest=manifest,
        dims=dataset.dims,
        attrs=dataset.attrs,
        fill_value=fill_value,
    )
