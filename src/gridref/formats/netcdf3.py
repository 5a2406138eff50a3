"""NetCDF3 files: the header, and the variables as virtual arrays.

Everything is big-endian; names and values are padded to 4 bytes. Counts and sizes have 4 bytes, in
CDF-5 8. Sizes of variables that the file states overflow in large files, so they are computed.

A fixed variable is one run of bytes, split into stored chunks. A record variable has a stored chunk
for each record, or several where a record is large. These are as far apart as records are long, so
one `RunManifest` states them all.

Source: NetCDF Classic Format Specification (NetCDF Users Guide, appendix B, with the 64-bit offset
variant), and the CDF-5 File Format Specification of PnetCDF. What the header of a sound file must
fulfil is what ``NC_computeshapes`` and ``NC_check_voffs`` of the netCDF C library ask for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gridref.errors import Place, SourceFormatError, UnsupportedFeatureError
from gridref.formats.chunks import contiguous_chunks, edge_policy, require_inside
from gridref.formats.location import Location
from gridref.formats.metadata import DEFAULT_FILLS, decoded
from gridref.formats.scanner import Findings, ScanOptions
from gridref.io import ScanFile
from gridref.limits import beyond, limits
from gridref.model.array import VirtualArray, VirtualGroup, dims_of
from gridref.model.encoding import bytes_codec, shared_encoding
from gridref.model.joining import missing_array
from gridref.model.manifest import ChunkManifest, Manifest, RunManifest, Source

# Variables as arrays


_MAX_RANK = 32
_MAX_OFFSET = 1 << 62
_FEW_RECORDS = 16
"""So many rows cost less than a manifest of their own."""


def scan(location: Location, options: ScanOptions) -> VirtualGroup:
    """Describe a file; raises as `gridref.formats.scan` does."""
    file = location.opened
    header = read_header(file, location.head, options.max_objects)
    arrays: dict[str, VirtualArray] = {}
    findings = Findings(file.name)
    for variable in header.variables:
        path = f"/{variable.name}"
        with findings.taking(path):
            arrays[variable.name] = array_of(variable, header, file.source, options)
    used = dims_of(arrays.values())
    return VirtualGroup(
        arrays,
        attrs=header.attrs,
        report=findings.report(options),
        unlimited_dims=frozenset(used & {header.record_dim}),
    )


def array_of(
    variable: Variable, header: Header, source: Source, options: ScanOptions
) -> VirtualArray:
    """Describe a variable."""
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


# The header


_DIMENSIONS, _VARIABLES, _ATTRIBUTES = 0x0A, 0x0B, 0x0C
_STREAMING = {4: (1 << 32) - 1, 8: (1 << 64) - 1}
_CODES = ("i1", "S1", ">i2", ">i4", ">f4", ">f8", "u1", ">u2", ">u4", ">i8", ">u8")
_DTYPES = {number: np.dtype(code) for number, code in enumerate(_CODES, 1)}
_CHAR = _DTYPES[2]
_MOST_DIMENSIONS = 1024
"""``NC_MAX_VAR_DIMS``."""
_CLASSIC = 6
"""The last of the types that CDF-1 and CDF-2 have."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable.

    Attributes
    ----------
    dims, shape
        Names and lengths of its dimensions. The length of the record dimension is the number of
        records.
    dtype
        Its elements as they are stored.
    begin, length
        First byte and number of bytes of its data, or of its first record.
    is_record
        Whether the first dimension is the record dimension.
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    attrs: Mapping[str, Any]
    dtype: np.dtype[Any]
    begin: int
    length: int
    is_record: bool


@dataclass(frozen=True)
class Header:
    """All that a header says.

    Attributes
    ----------
    variables
        In the order of the file.
    record_dim
        Name of the record dimension; None if there is none.
    record_bytes
        From the beginning of a record to that of the next one.
    """

    variables: tuple[Variable, ...]
    attrs: Mapping[str, Any]
    record_dim: str | None
    record_bytes: int


def read_header(file: ScanFile, head: bytes, max_variables: int) -> Header:
    """Read the header of a file; `head` is its beginning."""
    cursor = _Cursor(file, head)
    version = cursor.take(4)[3]
    cursor.count_bytes = 8 if version == 5 else 4
    cursor.begin_bytes = 4 if version == 1 else 8
    cursor.last_type = len(_DTYPES) if version == 5 else _CLASSIC
    n_records = cursor.count()
    dims = [(cursor.name(), cursor.count()) for _ in range(cursor.items(_DIMENSIONS))]
    cursor.check_distinct([name for name, _ in dims], "dimensions")
    records = [number for number, (_, length) in enumerate(dims) if length == 0]
    if len(records) > 1:
        raise cursor.error("declares several record dimensions")
    record_dim = None
    for record in records:
        record_dim = dims[record][0]
        dims[record] = (record_dim, n_records)
    attrs = cursor.attributes()
    n_variables = cursor.items(_VARIABLES)
    if n_variables > max_variables:
        raise cursor.error(
            f"declares {n_variables} variables, more than max_objects, {max_variables}"
        )
    variables = [cursor.variable(dims, record_dim) for _ in range(n_variables)]
    cursor.check_distinct([variable.name for variable in variables], "variables")
    record_bytes = _record_bytes(variables)
    _check_places(variables, cursor)
    if n_records == _STREAMING[cursor.count_bytes]:
        n_records = _records_in(file.size, variables, record_bytes)
        variables = [_with_records(variable, n_records) for variable in variables]
    return Header(tuple(variables), attrs, record_dim, record_bytes)


def _padded(n_bytes: int) -> int:
    return -(-n_bytes // 4) * 4


def _record_bytes(variables: list[Variable]) -> int:
    """A single variable of bytes, characters or shorts is not padded."""
    lengths = [variable.length for variable in variables if variable.is_record]
    return lengths[0] if len(lengths) == 1 else sum(map(_padded, lengths))


def _check_places(variables: list[Variable], cursor: _Cursor) -> None:
    """Refuse data inside the header, in another order than the variables, or that overlap."""
    free = cursor.position
    for variable in sorted(variables, key=lambda variable: variable.is_record):
        if variable.begin < free:
            raise cursor.error(f"puts {variable.name!r} where other data are")
        free = variable.begin + _padded(variable.length)


def _records_in(n_bytes: int, variables: list[Variable], record_bytes: int) -> int:
    """The number of whole records in a file that does not state it; the last may lack padding."""
    own = [variable for variable in variables if variable.is_record]
    if not own:
        return 0
    data_bytes = own[-1].begin + own[-1].length - own[0].begin
    rest = n_bytes - own[0].begin - data_bytes
    return rest // record_bytes + 1 if rest >= 0 else 0


def _with_records(variable: Variable, n_records: int) -> Variable:
    if not variable.is_record:
        return variable
    return replace(variable, shape=(n_records, *variable.shape[1:]))


class _Cursor:
    """Takes a header apart. It reads more of the file where the bytes at hand are not enough."""

    count_bytes = begin_bytes = 4
    last_type = _CLASSIC

    def __init__(self, file: ScanFile, head: bytes) -> None:
        self.file = file
        self.data = head
        self.position = 0

    def error(self, reason: str) -> SourceFormatError:
        place = Place(source=self.file.name, start=0, stop=min(self.position, self.file.size))
        return SourceFormatError(f"the NetCDF3 header {reason}", place)

    def take(self, n_bytes: int) -> bytes:
        start, stop = self.position, self.position + n_bytes
        if stop > len(self.data):
            self._read_on(stop)
        self.position = stop
        return self.data[start:stop]

    def _read_on(self, stop: int) -> None:
        if stop > self.file.size:
            raise self.error(f"is cut off: it goes on to byte {stop} of {self.file.size}")
        if stop > limits().header_bytes:
            raise self.error(beyond("header_bytes", f"goes on to byte {stop}"))
        have = len(self.data)
        more = min(max(stop, 2 * have), self.file.size) - have
        self.data += self.file.read_many([have], [more])[0]

    def number(self, n_bytes: int) -> int:
        start, stop = self.position, self.position + n_bytes
        if stop > len(self.data):  # as `take` does; half of the time goes here
            self._read_on(stop)
        self.position = stop
        return int.from_bytes(self.data[start:stop], "big")

    def count(self) -> int:
        """A number of things, a length, or the number of a dimension."""
        return self.number(self.count_bytes)

    def items(self, tag: int) -> int:
        found, n_items = self.number(4), self.count()
        if found != tag and (found or n_items):
            raise self.error(f"has a list of kind {found} where one of kind {tag} belongs")
        return n_items

    def padded(self, n_bytes: int) -> bytes:
        """The next bytes, whose padding is skipped."""
        return self.take(_padded(n_bytes))[:n_bytes]

    def name(self) -> str:
        raw = self.padded(self.count()).partition(b"\0")[0]
        try:
            name = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.error(f"has a name that is not UTF-8: {raw[:100]!r}") from error
        if not name:
            raise self.error("has an empty name")
        return name

    def dtype(self) -> np.dtype[Any]:
        number = self.number(4)
        if not 1 <= number <= self.last_type:
            raise self.error(f"has the unknown type {number}")
        return _DTYPES[number]

    def attributes(self) -> dict[str, Any]:
        """Attributes as netCDF4 returns them."""
        attrs: dict[str, Any] = {}
        n_attributes = self.items(_ATTRIBUTES)
        for _ in range(n_attributes):
            name = self.name()
            dtype = self.dtype()
            raw = self.padded(self.count() * dtype.itemsize)
            attrs[name] = _text(name, raw) if dtype is _CHAR else _numbers(raw, dtype)
        if len(attrs) < n_attributes:
            raise self.error("has two attributes of one name")
        return attrs

    def variable(self, dims: list[tuple[str, int]], record_dim: str | None) -> Variable:
        """A variable, by names and lengths of all dimensions."""
        name = self.name()
        rank = self.count()
        if rank > _MOST_DIMENSIONS:
            raise self.error(f"has {rank} dimensions of {name!r}")
        numbers = [self.count() for _ in range(rank)]
        if any(number >= len(dims) for number in numbers):
            raise self.error(f"has a dimension of {name!r} that is none of {len(dims)}")
        names = tuple(dims[number][0] for number in numbers)
        if record_dim in names[1:]:
            raise self.error(f"has a record dimension of {name!r} that is not its first")
        attrs, dtype = self.attributes(), self.dtype()
        self.count()  # its size
        begin = self.number(self.begin_bytes)
        shape = tuple(dims[number][1] for number in numbers)
        is_record = names[:1] == (record_dim,)
        length = math.prod(shape[is_record:]) * dtype.itemsize
        return Variable(name, names, shape, attrs, dtype, begin, length, is_record)

    def check_distinct(self, names: list[str], what: str) -> None:
        if len(set(names)) < len(names):
            raise self.error(f"has two {what} of one name")


def _text(name: str, raw: bytes) -> str | bytes:
    """Text without zeros; the fill value of characters is left one."""
    if name == "_FillValue":
        return raw
    return decoded(raw.replace(b"\0", b""))


def _numbers(raw: bytes, dtype: np.dtype[Any]) -> Any:
    """A scalar or an array in the byte order of this machine."""
    values = np.frombuffer(raw, dtype).astype(dtype.newbyteorder("="))
    return values[0] if values.size == 1 else values
