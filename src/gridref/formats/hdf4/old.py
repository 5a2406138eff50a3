"""Data sets of HDF4 files before HDF 3.3, which the DFSD interface wrote: they have no names.

A numeric data group lists the elements of a data set: dimensions and types, data, labels of the
dimensions, and texts. Names are those that the SD interface makes up.

Source: HDF Specification and Developer's Guide, "Scientific Data Set Tags". Apart from annotations,
`read_old_datasets` does what ``hdf_read_ndgs`` of the library does.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np

from gridref.errors import GridrefError, SourceFormatError
from gridref.formats.hdf4.datasets import Dataset, stored_dtype
from gridref.formats.hdf4.elements import DATA, Cursor, Elements, Key, Run, text_of

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
        attrs |= _attributes(tag, elements.small(key), dtypes[0]) if tag in _MEANINGS else {}
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


def _attributes(tag: int, raw: bytes, dtype: np.dtype[Any]) -> dict[str, Any]:
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
