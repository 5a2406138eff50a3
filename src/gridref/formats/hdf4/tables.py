"""Read Vgroups and Vdata of HDF4 (lists of members, and tables of rows), and number types.

Source: HDF Specification and Developer's Guide, "Tag Specifications": ``DFTAG_VG``, ``DFTAG_VH``,
``DFTAG_VS``, ``DFTAG_NT``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf4.elements import GROUP, TABLE, TABLE_ROWS, Cursor, Elements, Key, text_of

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
_LITTLE = 0x4000
"""Set in number types of little-endian numbers."""
_LAST_VERSION = 4
"""``VSET_NEW_VERSION``; the version is 5 bytes before the end."""
_MAX_FIELDS = 256
"""``VSFIELDMAX`` of the library."""


def dtype_of(number_type: int) -> np.dtype[Any]:
    """The elements of a number type as they are stored.

    Raises
    ------
    UnsupportedFeatureError
        If it is unknown, or the byte order depends on the machine that wrote it.
    """
    code = _CODES.get(number_type & ~_LITTLE)
    if code is None:
        raise UnsupportedFeatureError(f"its number type is {number_type}")
    return np.dtype(f"{'<' if number_type & _LITTLE else '>'}{code}")


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


def rows_dtype(table: Table) -> np.dtype[Any]:
    """A row as an element: the value of its only field, or a compound of all.

    Raises
    ------
    UnsupportedFeatureError
        If values are stored field by field, or in two byte orders.
    SourceFormatError
        If fields do not fit the rows.
    """
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
    """The value of an attribute: text without zeros at its end, a number, or an array.

    Raises
    ------
    GridrefError
        If the table cannot be one.
    """
    values = values_of(table, rows)
    if values.dtype.names is not None:
        values = values[values.dtype.names[0]]
    if values.dtype.kind == "S":
        return text_of(values[:1].tobytes().rstrip(b"\0").replace(b"\0", b" "))
    values = values.astype(values.dtype.newbyteorder("=")).reshape(-1)
    return values[0] if values.size == 1 else values
