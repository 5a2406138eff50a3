"""Wells and fields of a plate, out of the names of files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gridref.combine import Combination, CombineOptions
from gridref.combine.labelled import label_values, with_label
from gridref.combine.options import Read
from gridref.combine.plates import PlateImage, combine_plate
from gridref.errors import InvalidRequestError, Place
from gridref.model.array import VirtualGroup
from gridref.model.ome_zarr import axes_order
from gridref.workflows.layout.labels import LabelPattern

__all__ = ["combine_plate_files", "wells_in_names"]

_WELL = re.compile(r"([A-Za-z]{1,2})[-_]?0*(\d{1,3})")
_OPERETTA = re.compile(r"r0*(\d+)c0*(\d+)f0*(\d+)")
_WELL_IN_NAME = re.compile(r"(?:^|[_\-. ])([A-P])[-_]?0*(\d{1,2})(?=[_\-. ]|$)")
_FIELD_IN_NAME = re.compile(r"(?:^|[_\-. ])(?:field|site|f|s)[-_]?(\d+)", re.IGNORECASE)


def combine_plate_files(
    scanned: Sequence[tuple[str, VirtualGroup]],
    pattern: LabelPattern | None,
    read: Read,
    rules: CombineOptions,
) -> Combination:
    """Lay the images of files out by the wells and fields that their names say.

    Parameters
    ----------
    scanned
        Addresses and groups.
    pattern
        What to find in names: ``{well}`` (``B02``), or ``{row}`` and ``{column}``; ``{field}``; and
        dimensions that planes lie along, like ``{c}``. Without a pattern wells like ``B02`` or
        ``r02c03f01`` are looked for, and fields like ``_f1`` or ``_s1``.

    Raises
    ------
    InvalidRequestError
        For names that say no well.
    """
    files = [file for file, _ in scanned]
    found = [_usual(file) for file in files] if pattern is None else pattern.of_names(files)
    fields = [] if pattern is None else list(pattern.fields)
    planes = [name for name in fields if name not in ("well", "row", "column", "field")]
    dims = [planes[place] for place in axes_order(planes)]
    groups = [group for _, group in scanned]
    for dim in dims:
        values, _ = label_values([own[dim] for own in found])
        groups = [with_label(g, dim, value) for g, value in zip(groups, values, strict=True)]
    images = [
        PlateImage(*_well(own, file), int(own.get("field", 0)), file, group)
        for own, file, group in zip(found, files, groups, strict=True)
    ]
    name = os.path.basename(os.path.dirname(files[0].rstrip("/"))) or "plate"
    return combine_plate(images, name=name, dims=dims, read=read, options=rules)


def wells_in_names(files: Sequence[str]) -> list[str]:
    """The wells, like ``A1``, that names in one of the usual forms say; none if one says none."""
    try:
        found = [_usual(file) for file in files]
    except InvalidRequestError:
        return []
    return list(dict.fromkeys("".join(_well(own, "")) for own in found))


def _usual(file: str) -> Mapping[str, Any]:
    """Well and field of a name in one of the usual forms."""
    name = os.path.basename(file.rstrip("/"))
    operetta = _OPERETTA.search(name)
    if operetta is not None:
        return {"row": operetta[1], "column": operetta[2], "field": operetta[3]}
    well, field = _WELL_IN_NAME.search(name), _FIELD_IN_NAME.search(name)
    if well is None:
        raise InvalidRequestError(
            "the name says no well like B02 or r02c03f01: give a pattern, like '{well}_s{field:d}'",
            Place(source=file),
        )
    return {"row": well[1], "column": well[2], "field": field[1] if field else 0}


def _well(labels: Mapping[str, Any], file: str) -> tuple[str, str]:
    """Row and column; rows that are numbers become letters."""
    if "well" in labels:
        parts = _WELL.fullmatch(str(labels["well"]))
        if parts is None:
            message = f"{labels['well']!r} is no well like B02"
            raise InvalidRequestError(message, Place(source=file))
        return parts[1].upper(), parts[2]
    if not {"row", "column"} <= labels.keys():
        raise InvalidRequestError("a pattern of plates has {well}, or {row} and {column}")
    row = str(labels["row"])
    return _letters(int(row)) if row.isdecimal() else row.upper(), str(labels["column"]).lstrip("0")


def _letters(number: int) -> str:
    """Rows by number from 1: A to Z, AA and so on."""
    number -= 1
    tens, ones = divmod(number, 26)
    return (chr(64 + tens) if tens else "") + chr(65 + ones)
