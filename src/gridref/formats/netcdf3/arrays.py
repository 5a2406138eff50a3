"""Turn a NetCDF3 file into a virtual group.

A fixed variable is one run of bytes, split into stored chunks. A record variable has a stored chunk
for each record, or several where a record is large. These are as far apart as records are long, so
one `RunManifest` states them all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.contiguous import contiguous_chunks, edge_policy, require_inside
from gridref.formats.findings import Findings
from gridref.formats.netcdf import DEFAULT_FILLS
from gridref.formats.netcdf3.header import Header, Variable, read_header
from gridref.formats.options import ScanOptions
from gridref.io import ScanFile
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import bytes_codec, shared_encoding
from gridref.model.joining import missing_array
from gridref.model.manifest import ChunkManifest, Manifest, RunManifest, Source
from gridref.model.scan_report import Fate

_MAX_RANK = 32
_MAX_OFFSET = 1 << 62
_FEW_RECORDS = 16
"""So many rows cost less than a manifest of their own."""


def scan_netcdf3(file: ScanFile, head: bytes, options: ScanOptions) -> VirtualGroup:
    """Describe a file; `head` is its beginning; raises as `gridref.formats.scan` does."""
    header = read_header(file, head, options.max_objects)
    arrays: dict[str, VirtualArray] = {}
    findings = Findings(file.name)
    for variable in header.variables:
        path = f"/{variable.name}"
        with findings.refusing(path):
            arrays[variable.name] = array_of(variable, header, file.source, options)
            findings.note(path, Fate.TAKEN)
    used = {dim for array in arrays.values() for dim in array.dims}
    return VirtualGroup(
        arrays,
        attrs=header.attrs,
        report=findings.report(options),
        unlimited_dims=frozenset(used & {header.record_dim}),
    )


def array_of(
    variable: Variable, header: Header, source: Source, options: ScanOptions
) -> VirtualArray:
    """Describe a variable.

    Raises
    ------
    UnsupportedFeatureError
        If it has too many dimensions, or a name that would be a path.
    SourceFormatError
        If its data reaches beyond the end of the file.
    """
    if "/" in variable.name:
        raise UnsupportedFeatureError("its name has a slash, which separates groups")
    if len(variable.shape) > _MAX_RANK:
        raise UnsupportedFeatureError(f"it has {len(variable.shape)} dimensions")
    if variable.length > _MAX_OFFSET:
        raise SourceFormatError(f"it is declared to have {variable.length} bytes")
    dtype = variable.dtype.newbyteorder("=")
    fill = _fill_value(variable)
    if variable.is_record and variable.shape[0] == 0:
        return missing_array(
            variable.shape, dtype, dims=variable.dims, fill_value=fill, attrs=variable.attrs
        )
    chunk_shape, manifest = _chunks(variable, header.record_bytes, source, options.max_chunk_bytes)
    encoding = shared_encoding(
        chunk_shape,
        dtype,
        (bytes_codec(dtype, big_endian=True),),
        edge_policy(variable.shape, chunk_shape),
    )
    return VirtualArray.of_one_block(
        variable.shape,
        dtype,
        encoding=encoding,
        manifest=manifest,
        dims=variable.dims,
        attrs=variable.attrs,
        fill_value=fill,
    )


def _fill_value(variable: Variable) -> Any:
    """What absent elements of a cube read as; masking follows the attribute alone."""
    dtype = variable.dtype.newbyteorder("=")
    stated = variable.attrs.get("_FillValue")
    if isinstance(stated, np.generic) and stated.dtype == dtype:
        return stated
    if isinstance(stated, bytes) and len(stated) == 1 and dtype.kind == "S":
        return np.bytes_(stated)
    return DEFAULT_FILLS[dtype]


def _chunks(
    variable: Variable, record_bytes: int, source: Source, max_chunk_bytes: int
) -> tuple[tuple[int, ...], Manifest]:
    """Chunk shape and chunks of a variable, whose records are `record_bytes` apart."""
    itemsize, begin, length = variable.dtype.itemsize, variable.begin, variable.length
    if not variable.is_record or record_bytes == length:  # one run of bytes
        return contiguous_chunks(variable.shape, itemsize, source, begin, max_chunk_bytes)
    n_records, shape = variable.shape[0], variable.shape[1:]
    require_inside(source, begin, begin + (n_records - 1) * record_bytes + length)
    if length <= max_chunk_bytes:
        run = RunManifest((source,), begin, record_bytes, length, n_records)
        few = n_records <= _FEW_RECORDS
        return (1, *shape), run.take(np.arange(n_records)) if few else run
    inner, first = contiguous_chunks(shape, itemsize, source, begin, max_chunk_bytes)
    later = np.arange(n_records)[:, np.newaxis] * record_bytes
    offset = (first.offset + later).reshape(-1)
    return (1, *inner), ChunkManifest.from_columns(
        first.sources, offset=offset, length=np.tile(first.length, n_records)
    )
