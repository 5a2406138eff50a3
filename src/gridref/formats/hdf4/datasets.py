"""The scientific data sets of HDF4: names, dimensions, types, attributes, places of data.

Since HDF 3.3 a Vgroup (a list of members) of class ``CDF0.0`` lists a Vgroup for each dimension and
each data set. Attributes and lengths of dimensions are Vdata, tables of rows. Data sets before HDF
3.3, which the DFSD interface wrote, have no names. A numeric data group lists their elements:
dimensions and types, data, labels of the dimensions, and texts. Their names are those that the SD
interface makes up.

Source: HDF Specification and Developer's Guide, "Scientific Data Set Tags", "Tag Specifications"
(``DFTAG_VG``, ``DFTAG_VH``, ``DFTAG_VS``, ``DFTAG_NT``). What `read_datasets` makes of them is what
``hdf_read_dims``, ``hdf_read_vars`` and ``hdf_read_attrs`` of the library do. Apart from
annotations, `read_old_datasets` does what ``hdf_read_ndgs`` does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import GridrefError, SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf4.elements import (
    DATA,
    GROUP,
    NUMBER_TYPE,
    TABLE,
    TABLE_ROWS,
    Cursor,
    Elements,
    Key,
    Run,
    logical_bytes,
    text_of,
)

_NAMES, _UNLIMITED, _DIMENSION, _VARIABLE = "CDF0.0", "UDim0.0", "Dim0.0", "Var0.0"
_ATTRIBUTE, _SCALE, _DATA_SET = "Attr0.0", "CoordVar", "SDSVar"
_LENGTHS = "DimVal0.1"
"""Class of the table that holds the length of a dimension; those of ``DimVal0.0`` have it as their
number of rows."""
_INTERNAL = ("Attr0", "DimVal0", "CoordVar", "SDSVar", "RIATTR", "_HDF_")
"""How classes or names of tables begin that hold attributes, lengths and lists of chunks."""
_BIG, _LITTLE = (0, 1), 4
"""Classes of number types: who stores numbers like that."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A scientific data set.

    Attributes
    ----------
    dims, shape
        Names and lengths of its dimensions. A record dimension has the number of records that are
        stored.
    dtype
        Its elements as they are stored.
    data
        The element that holds its data, or their place; None if there are none.
    is_record
        Whether the first dimension is unlimited.
    is_scale
        Whether it labels the dimension of its name.
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    attrs: Mapping[str, Any]
    data: Key | Run | None
    is_record: bool = False
    is_scale: bool = False


@dataclass(frozen=True)
class Contents:
    """All that a file holds.

    Attributes
    ----------
    datasets
        In the order of the file.
    refused
        What makes others impossible to describe, by name.
    groups, tables
        All Vgroups and Vdata by reference number.
    is_old
        Whether there is no list of data sets: those before HDF 3.3 are found by their groups.
    """

    datasets: list[Dataset]
    refused: list[tuple[str, GridrefError]]
    attrs: Mapping[str, Any]
    groups: Mapping[int, Group]
    tables: Mapping[int, Table]
    is_old: bool = False


@dataclass(frozen=True)
class _Listing:
    """What the members of the listing Vgroup refer to.

    Attributes
    ----------
    rows
        Rows of the tables that hold attributes and lengths of dimensions.
    lengths
        By name, of all dimensions; None if unlimited.
    """

    elements: Elements
    groups: Mapping[int, Group]
    tables: Mapping[int, Table]
    rows: Mapping[int, bytes]
    lengths: dict[str, int | None] = field(default_factory=dict)

    def of(self, group: Group, *kinds: str) -> list[Group]:
        """The Vgroups of some classes among the members of another one."""
        members = [_there(self.groups, ref) for tag, ref in group.members if tag == GROUP]
        return [member for member in members if member.kind in kinds]

    def tables_of(self, group: Group) -> list[Table]:
        """The Vdata among the members of a Vgroup; raises as `of` does."""
        return [_there(self.tables, ref) for tag, ref in group.members if tag == TABLE]

    def attributes(self, group: Group) -> dict[str, Any]:
        """The attributes of a data set or of the file; the first one of a name counts."""
        attrs: dict[str, Any] = {}
        for table in self.tables_of(group):
            if table.kind == _ATTRIBUTE and table.name not in attrs:
                attrs[table.name] = attribute_value(table, self.rows[table.ref])
        return attrs

    def note_length(self, dimension: Group) -> None:
        """Keep the length of a dimension; the first one of a name counts."""
        if dimension.kind == _UNLIMITED:
            self.lengths.setdefault(dimension.name, None)
            return
        for table in self.tables_of(dimension):
            length = table.n_rows
            if table.kind == _LENGTHS:
                length = int(np.atleast_1d(attribute_value(table, self.rows[table.ref]))[0])
            self.lengths.setdefault(dimension.name, length)

    def dataset(self, group: Group) -> Dataset:
        """Describe a data set."""
        dims = tuple(member.name for member in self.of(group, _DIMENSION, _UNLIMITED))
        lengths = [self.lengths.get(dim, -1) for dim in dims]
        if None in lengths[1:]:
            raise UnsupportedFeatureError("an unlimited dimension is not its first one")
        rest = [length for length in lengths[1:] if length is not None]
        is_record = lengths[:1] == [None]
        members = dict(group.members)
        if NUMBER_TYPE not in members:
            raise SourceFormatError("it has no number type")
        dtype = stored_dtype(self.elements.small((NUMBER_TYPE, members[NUMBER_TYPE])))
        data: Key | None = (DATA, members[DATA]) if DATA in members else None
        if data is not None and not self.elements.where(data).length:
            data = None  # it was created, and never written
        shape = tuple(-1 if length is None else length for length in lengths)
        if is_record:
            row_bytes = math.prod(rest) * dtype.itemsize
            n_bytes = logical_bytes(self.elements, data) if data else 0
            shape = (n_bytes // row_bytes if row_bytes > 0 else 0, *rest)
        if min(shape, default=0) < 0:
            raise SourceFormatError("one of its dimensions has no length")
        kinds = {table.kind for table in self.tables_of(group)}
        is_scale = _SCALE in kinds or (_DATA_SET not in kinds and dims == (group.name,))
        return Dataset(
            group.name, dims, shape, dtype, self.attributes(group), data, is_record, is_scale
        )


def _there[T](known: Mapping[int, T], ref: int) -> T:
    """A Vgroup or Vdata by its number."""
    if ref not in known:
        raise SourceFormatError(f"a part of it, number {ref}, is not in the file")
    return known[ref]


def read_datasets(elements: Elements) -> Contents:
    """Read the descriptions of data sets in a file."""
    elements.keep(
        [
            key
            for key, where in elements.places.items()
            if key[0] == NUMBER_TYPE or (where.is_special and key[0] in (DATA, TABLE_ROWS))
        ]
    )
    groups, tables = read_groups(elements), read_tables(elements)
    listing = next((group for _, group in sorted(groups.items()) if group.kind == _NAMES), None)
    needed = {ref: table for ref, table in tables.items() if table.kind in (_ATTRIBUTE, _LENGTHS)}
    if listing is None:
        return _with_tables(Contents([], [], {}, groups, tables, is_old=True))
    known = _Listing(elements, groups, tables, read_rows(elements, needed))
    lost = [ref for tag, ref in listing.members if tag == GROUP and ref not in groups]
    why = "the list of data sets names it, and it is not in the file"
    datasets: list[Dataset] = []
    refused: list[tuple[str, GridrefError]]
    refused = [(f"Vgroup-{ref}", SourceFormatError(why)) for ref in lost]
    rest = tuple((tag, ref) for tag, ref in listing.members if tag != GROUP or ref not in lost)
    listing = replace(listing, members=rest)
    for dimension in known.of(listing, _DIMENSION, _UNLIMITED):
        with suppress(GridrefError):  # data sets with a dimension without length are refused
            known.note_length(dimension)
    for group in known.of(listing, _VARIABLE):
        try:
            datasets.append(known.dataset(group))
        except GridrefError as error:
            refused.append((group.name, error))
    contents = Contents(datasets, refused, known.attributes(listing), groups, tables)
    return _with_tables(contents)


def _with_tables(contents: Contents) -> Contents:
    """The contents with a data set for each table that is not a part of something else."""
    for ref, table in contents.tables.items():
        is_own = table.kind.startswith(_INTERNAL) or table.name.startswith(_INTERNAL)
        if is_own or not table.fields:
            continue
        name = table.name or f"Vdata-{ref}"
        try:
            dtype = rows_dtype(table)
        except GridrefError as error:
            contents.refused.append((name, error))
            continue
        shape, dims = (table.n_rows, *dtype.shape), (f"{name}_rows", f"{name}_values")
        contents.datasets.append(
            Dataset(
                name,
                dims[: len(shape)],
                shape,
                dtype.base,
                {},
                (TABLE_ROWS, ref) if table.n_rows else None,
            )
        )
    return contents


def stored_dtype(number_type: bytes) -> np.dtype[Any]:
    """The elements of a number type: version, type, bits and class, each a byte."""
    if len(number_type) < 4:
        raise SourceFormatError("its number type is cut off")
    version, code, _, kind = number_type[:4]
    dtype = dtype_of(code)
    if kind == _LITTLE:
        return dtype.newbyteorder("<")
    if version != 1 or kind not in _BIG:
        raise UnsupportedFeatureError(f"numbers are stored as by machine {kind}")
    return dtype


# Data sets before HDF 3.3


_GROUPS = (720, 700)
"""Tags of numeric data groups, and of those before HDF 3.2."""
_DIMENSIONS, _SCALES, _RANGE, _SYSTEM, _CALIBRATION = 701, 703, 707, 708, 731
_TEXTS = {704: "long_name", 705: "units", 706: "format"}
"""Tags of texts: that of the data set, then one for each dimension."""
_CALIBRATED = ("scale_factor", "scale_factor_err", "add_offset", "add_offset_err")


def read_old_datasets(
    elements: Elements,
) -> tuple[list[Dataset], list[tuple[str, GridrefError]]]:
    """The data sets of a file that has no names for them, and why others are refused, by name."""
    found: list[Dataset] = []
    refused: list[tuple[str, GridrefError]] = []
    tag = next((tag for tag in _GROUPS if elements.of_tag(tag)), 0)
    dims = (f"fakeDim{number}" for number in count())
    for group in [key for key in elements.places if key[0] == tag]:
        name = f"Data-Set-{group[1]}"
        try:
            found += _datasets(elements, group, name, dims)
        except GridrefError as error:
            refused.append((name, error))
    return found, refused


def _datasets(elements: Elements, group: Key, name: str, names: Iterator[str]) -> Iterator[Dataset]:
    """The labels of the dimensions of a data set, and the data set."""
    raw = elements.small(group)
    pairs = np.frombuffer(raw, ">u2", len(raw) // 4 * 2).reshape(-1, 2).tolist()
    members: dict[int, Key] = {tag: (tag, ref) for tag, ref in pairs}
    if _DIMENSIONS not in members:
        raise SourceFormatError("it has no dimensions")
    shape, dtypes = _dimensions(elements, members[_DIMENSIONS])
    dims = tuple(next(names) for _ in shape)
    texts = {
        attribute: elements.small(members[tag]).split(b"\0")
        for tag, attribute in _TEXTS.items()
        if tag in members
    }
    yield from _scales(elements, members.get(_SCALES), shape, dtypes[1:], dims, texts)
    attrs: dict[str, Any] = {}
    for tag, key in members.items():
        attrs |= _old_attributes(tag, elements.small(key), dtypes[0]) if tag in _MEANINGS else {}
    attrs |= _text_attributes(texts, 0)
    data = members.get(DATA)
    yield Dataset(name, dims, shape, dtypes[0], attrs, data)


def _dimensions(elements: Elements, key: Key) -> tuple[tuple[int, ...], list[np.dtype[Any]]]:
    """Lengths of the dimensions, and the types of the data and of the labels of each dimension."""
    cursor = Cursor(elements, elements.small(key), elements.places[key].offset)
    rank = cursor.number(2)
    shape = tuple(cursor.number(4) for _ in range(rank))
    types = [(cursor.number(2), cursor.number(2)) for _ in range(rank + 1)]
    return shape, [stored_dtype(elements.small(each)) for each in types]


def _scales(
    elements: Elements,
    key: Key | None,
    shape: tuple[int, ...],
    dtypes: list[np.dtype[Any]],
    dims: tuple[str, ...],
    texts: dict[str, list[bytes]],
) -> Iterator[Dataset]:
    """A data set for each dimension that has labels or texts."""
    rank = len(shape)
    flags = bytes(rank) if key is None else elements.small(key)[:rank].ljust(rank, b"\0")
    offset = 0 if key is None else elements.places[key].offset + rank
    for axis, (dim, length, dtype) in enumerate(zip(dims, shape, dtypes, strict=True)):
        attrs = _text_attributes(texts, axis + 1)
        run = Run(offset, length * dtype.itemsize) if flags[axis] else None
        offset += run.length if run else 0
        if run or attrs:
            yield Dataset(dim, (dim,), (length,), dtype, attrs, run, is_scale=True)


def _text_attributes(texts: dict[str, list[bytes]], place: int) -> dict[str, str]:
    found = {name: words[place] for name, words in texts.items() if place < len(words)}
    return {name: text_of(word) for name, word in found.items() if word}


_MEANINGS = (_RANGE, _SYSTEM, _CALIBRATION)


def _old_attributes(tag: int, raw: bytes, dtype: np.dtype[Any]) -> dict[str, Any]:
    """Attributes of one of the elements of a data set."""
    if tag == _SYSTEM:
        return {"coordsys": text} if (text := text_of(raw)) else {}
    if tag == _RANGE:
        limits = np.frombuffer(raw, dtype, 2).astype(dtype.newbyteorder("="))
        return {"valid_max": limits[0], "valid_min": limits[1]}
    width = 8 if len(raw) == 36 else 4
    factors = np.frombuffer(raw, f">f{width}", 4).astype(f"f{width}")
    number = np.frombuffer(raw, f">i{width // 2}", 1, 4 * width).astype(f"i{width // 2}")
    return {**dict(zip(_CALIBRATED, factors, strict=True)), "calibrated_nt": number[0]}


# Vgroups, Vdata and number types


_CODES = {
    3: "u1",
    4: "S1",
    5: "f4",
    6: "f8",
    20: "i1",
    21: "u1",
    22: "i2",
    23: "u2",
    24: "i4",
    25: "u4",
    26: "i8",
    27: "u8",
}
_IS_LITTLE = 0x4000
"""Set in number types of little-endian numbers."""
_LAST_VERSION = 4
"""``VSET_NEW_VERSION``; the version is 5 bytes before the end."""
_MAX_FIELDS = 256
"""``VSFIELDMAX`` of the library."""


def dtype_of(number_type: int) -> np.dtype[Any]:
    """The elements of a number type as they are stored."""
    code = _CODES.get(number_type & ~_IS_LITTLE)
    if code is None:
        raise UnsupportedFeatureError(f"its number type is {number_type}")
    return np.dtype(f"{'<' if number_type & _IS_LITTLE else '>'}{code}")


@dataclass(frozen=True, slots=True)
class Group:
    """A Vgroup: name, class and members."""

    name: str
    kind: str
    members: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a table: `order` values of a number type in each row, from byte `offset`."""

    name: str
    number_type: int
    order: int
    offset: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Table:
    """A Vdata: name, class, and the layout of its rows.

    Attributes
    ----------
    by_field
        Whether all values of a field come one after the other, not those of a row.
    """

    ref: int
    name: str
    kind: str
    n_rows: int
    row_bytes: int
    by_field: bool
    fields: tuple[Field, ...]


def read_groups(elements: Elements) -> dict[int, Group]:
    """All Vgroups by reference number."""
    refs = elements.of_tag(GROUP)
    parts = elements.read([(GROUP, ref) for ref in refs])
    return {
        ref: _group(_cursor(elements, (GROUP, ref), part))
        for ref, part in zip(refs, parts, strict=True)
    }


def read_tables(elements: Elements) -> dict[int, Table]:
    """The headers of all Vdata by reference number."""
    refs = elements.of_tag(TABLE)
    parts = elements.read([(TABLE, ref) for ref in refs])
    return {
        ref: _table(ref, _cursor(elements, (TABLE, ref), part))
        for ref, part in zip(refs, parts, strict=True)
    }


def read_rows(elements: Elements, tables: Mapping[int, Table]) -> dict[int, bytes]:
    """The rows of tables, by reference number."""
    return dict(zip(tables, elements.read([(TABLE_ROWS, ref) for ref in tables]), strict=True))


def _cursor(elements: Elements, key: Key, data: bytes) -> Cursor:
    cursor = Cursor(elements, data, elements.places[key].offset)
    version = int.from_bytes(data[-5:-3], "big")
    if version > _LAST_VERSION:
        raise cursor.error(f"is of the unknown version {version}")
    return cursor


def _group(cursor: Cursor) -> Group:
    count = cursor.number(2)
    tags, refs = cursor.numbers(count), cursor.numbers(count)
    name, kind = cursor.text(), cursor.text()
    return Group(name, kind, tuple(zip(tags, refs, strict=True)))


def _table(ref: int, cursor: Cursor) -> Table:
    interlace, n_rows, row_bytes, count = (cursor.number(n) for n in (2, 4, 2, 2))
    if count > _MAX_FIELDS:
        raise cursor.error(f"has {count} fields")
    types, sizes, offsets, orders = (cursor.numbers(count) for _ in range(4))
    names = [cursor.text() for _ in range(count)]
    fields = tuple(map(Field, names, types, orders, offsets, sizes))
    return Table(ref, cursor.text(), cursor.text(), n_rows, row_bytes, interlace == 1, fields)


_IMAGE, _IMAGE_TAGS = "RI0.0", (306, 302, 202, 203, 204)
"""Class of images, and tags of those before it: groups, and images of one byte by coding."""


def images_of(elements: Elements, groups: Mapping[int, Group]) -> list[str]:
    """The names of the raster images of a file."""
    named = [group.name for group in groups.values() if group.kind == _IMAGE]
    listed = (elements.of_tag(tag) for tag in _IMAGE_TAGS)
    return named or [f"Raster-Image-{ref}" for ref in next(filter(None, listed), [])]


def rows_dtype(table: Table) -> np.dtype[Any]:
    """A row as an element: the value of its only field, or a compound of all."""
    if table.by_field and len(table.fields) > 1 and table.n_rows > 1:
        raise UnsupportedFeatureError("its values are stored field by field")
    formats = [_field_dtype(field) for field in table.fields]
    ends = [field.offset + each.itemsize for field, each in zip(table.fields, formats, strict=True)]
    names = [field.name for field in table.fields]
    if max(ends, default=0) > table.row_bytes or len(set(names)) < len(names) or not names:
        raise SourceFormatError(f"its fields do not fit rows of {table.row_bytes} bytes")
    if len({each.base.byteorder for each in formats} - {"|"}) > 1:
        raise UnsupportedFeatureError("its fields differ in byte order")
    if len(formats) == 1 and formats[0].itemsize == table.row_bytes:
        return formats[0]
    return np.dtype(
        {
            "names": names,
            "formats": formats,
            "offsets": [field.offset for field in table.fields],
            "itemsize": table.row_bytes,
        }
    )


def _field_dtype(field: Field) -> np.dtype[Any]:
    dtype = dtype_of(field.number_type)
    if dtype.itemsize * field.order != field.n_bytes or field.order < 1:
        raise SourceFormatError(f"field {field.name!r} does not have the size of its type")
    if dtype.kind == "S":
        return np.dtype(f"S{field.order}")
    return np.dtype((dtype, (field.order,))) if field.order > 1 else dtype


def values_of(table: Table, rows: bytes) -> NDArray[Any]:
    """The rows of a table as they are stored, as `rows_dtype` describes them."""
    dtype, n_bytes = rows_dtype(table), table.n_rows * table.row_bytes
    if len(rows) < n_bytes:
        raise SourceFormatError(f"its rows have {len(rows)} of {n_bytes} bytes")
    return np.frombuffer(rows, dtype, table.n_rows)


def attribute_value(table: Table, rows: bytes) -> Any:
    """The value of an attribute: text without zeros at its end, a number, or an array."""
    values = values_of(table, rows)
    if values.dtype.names is not None:
        values = values[values.dtype.names[0]]
    if values.dtype.kind == "S":
        return text_of(values[:1].tobytes().rstrip(b"\0").replace(b"\0", b" "))
    values = values.astype(values.dtype.newbyteorder("=")).reshape(-1)
    return values[0] if values.size == 1 else values
