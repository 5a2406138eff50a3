"""Read scientific data sets of HDF4: names, dimensions, types, attributes, places of data.

Since HDF 3.3 a Vgroup of class ``CDF0.0`` lists a Vgroup for each dimension and each data set.

Source: HDF Specification and Developer's Guide, "Scientific Data Set Tags"; what `read_datasets`
makes of them is what ``hdf_read_dims``, ``hdf_read_vars`` and ``hdf_read_attrs`` of the library do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gridref.errors import GridrefError, SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf4.elements import (
    DATA,
    GROUP,
    NUMBER_TYPE,
    TABLE,
    TABLE_ROWS,
    Elements,
    Key,
    Run,
)
from gridref.formats.hdf4.special import logical_bytes
from gridref.formats.hdf4.tables import (
    Group,
    Table,
    attribute_value,
    dtype_of,
    read_groups,
    read_rows,
    read_tables,
    rows_dtype,
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
    attrs
        The attributes of the file.
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
        """The Vgroups of some classes among the members of another one.

        Raises
        ------
        SourceFormatError
            If a member is not there.
        """
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
    """Read the descriptions of data sets in a file.

    Raises
    ------
    SourceFormatError
        If Vgroups or Vdata are damaged.
    """
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
