"""Lay microscopy images out by the wells and fields of a plate, which names of files say.

The result is a tree of groups, as OME-Zarr has them, and one array with dimensions of wells and
fields where all images are alike.

Source: OME-NGFF 0.5, "plate" and "well" (https://ngff.openmicroscopy.org/0.5/).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gridref.api.layout.labels import LabelPattern
from gridref.api.layout.sources import label_values, with_label
from gridref.combine.combining import combine
from gridref.combine.hypercube import Hypercube
from gridref.combine.options import CombineOptions, Read
from gridref.combine.report import Combination, Drift, DriftReport, grouped
from gridref.errors import InvalidRequestError, Place, Problem
from gridref.model.array import VirtualGroup
from gridref.model.ome_zarr import (
    Channel,
    axes_order,
    axis_type,
    image_attributes,
    omero,
    plate_attributes,
    well_attributes,
)
from gridref.model.scan_report import LEFT_OUT, ScanReport

CUBE = "cube"
"""Group of the array that holds all fields of all wells."""
_IMAGE = "image"


@dataclass(frozen=True, eq=False)
class PlateImage:
    """An image, or a plane of one, and where on the plate it was taken.

    Attributes
    ----------
    row, column
        Of the well, like ``"A"`` and ``"1"``.
    group
        What it holds: ``image``, or groups of a pyramid.
    """

    row: str
    column: str
    field: int
    file: str
    group: VirtualGroup

    @property
    def place(self) -> tuple[str, str, int]:
        """Where it was taken, as a key; wells in the order of rows and columns."""
        return self.row, self.column.rjust(3, "0"), self.field


def combine_plate(
    images: Sequence[PlateImage],
    *,
    name: str = "plate",
    dims: Sequence[str] = (),
    read: Read | None = None,
    options: CombineOptions | None = None,
) -> Combination:
    """Lay images out by wells and fields, and report what differed, without raising.

    There is a group ``row/column/field`` for each image, with OME-Zarr's metadata on every level;
    and, where all images are alike, the group ``cube`` with ``image`` along ``well`` and ``field``.
    Problems are fields that occur twice, and images whose axes OME-Zarr cannot describe.

    Parameters
    ----------
    images
        The images; several of one field have labels along `dims`.
    dims
        Dimensions that planes in files of their own are along, like ``c``, ``z`` and ``t``.
    """
    rules = options or CombineOptions()
    by_place: dict[tuple[str, str, int], list[PlateImage]] = {}
    for image in sorted(images, key=lambda image: image.place):
        by_place.setdefault(image.place, []).append(image)
    files = tuple(image.file for image in images)
    fields: list[PlateImage] = []
    problems: list[Problem] = []
    for several in by_place.values():
        done = _one_image(several, dims, read, rules)
        if isinstance(done, PlateImage):
            fields.append(done)
        else:
            problems += done
    if problems:
        return Combination(None, DriftReport((), files), grouped(problems))
    cube = _cube(fields, read, rules)
    groups, drifts = _tree(fields), list[Drift]()
    if cube.group is not None:
        groups[CUBE] = cube.group
    else:
        reason = {cube.problems[0].message: list(range(len(files)))}
        drifts.append(Drift.of("plate", CUBE, reason, LEFT_OUT))
    wells = list(dict.fromkeys((field.row, field.column) for field in fields))
    most = max(sum(field.row == r and field.column == c for field in fields) for r, c in wells)
    attrs = plate_attributes(name, wells, most)
    scans = ScanReport.joined([image.group.report for image in images])
    group = VirtualGroup(groups=groups, attrs=attrs, report=scans)
    return Combination(group, DriftReport(tuple(drifts), files))


def _one_image(
    several: Sequence[PlateImage], dims: Sequence[str], read: Read | None, rules: CombineOptions
) -> PlateImage | list[Problem]:
    """The image of a field, out of its planes; or what is wrong with it."""
    first = several[0]
    where = f"{first.row}/{first.column}/{first.field}"
    group = first.group
    if dims:
        done = combine([i.group for i in several], Hypercube(tuple(dims)), read=read, options=rules)
        if done.group is None:
            return list(done.problems)
        group = done.group
    elif len(several) > 1:
        message = (
            f"field {first.field} of well {first.row}{first.column} is in {len(several)} files;"
            " fields of the pattern tell planes apart, like {c} and {z}"
        )
        return [Problem("overlap", message, where, tuple(i.file for i in several))]
    described = _described(group, where, first.group, dims)
    if described is None:
        message = "it has no image with the axes of OME-Zarr: time, channels, z, y and x"
        return [Problem("dimensions-differ", message, where, (first.file,))]
    return PlateImage(first.row, first.column, first.field, first.file, described)


def _described(
    group: VirtualGroup, name: str, plane: VirtualGroup, dims: Sequence[str]
) -> VirtualGroup | None:
    """The group of an image with OME-Zarr's metadata; None if it cannot be described."""
    ome = group.attrs.get("ome")
    if not dims and isinstance(ome, Mapping) and "multiscales" in ome:
        return group
    levels = {_IMAGE: group.arrays[_IMAGE]} if _IMAGE in group.arrays else {}
    levels |= {
        f"{path}/{_IMAGE}": part.arrays[_IMAGE]
        for path, part in group.groups.items()
        if _IMAGE in part.arrays
    }
    if not levels:
        return None
    finest = next(iter(levels.values()))
    shapes = [array.shape for array in levels.values()]
    attrs = image_attributes(name, list(levels), shapes, finest.dims, _pixel_sizes(plane))
    if attrs is None:
        return None
    for dim, extent in finest.sizes.items():
        if axis_type(dim) == "channel":
            channels = [Channel(f"channel {number}") for number in range(extent)]
            attrs["ome"]["omero"] = omero(channels, finest.dtype)
            break
    return group.with_changes(attrs={**group.attrs, **attrs})


def _pixel_sizes(group: VirtualGroup) -> dict[str, tuple[float, str]]:
    """Sizes of pixels that an image's own metadata have, by dimension."""
    try:
        image = group.attrs["ome"]["multiscales"][0]
        scale = image["datasets"][0]["coordinateTransformations"][0]["scale"]
        return {
            axis["name"]: (float(step), axis.get("unit", ""))
            for axis, step in zip(image["axes"], scale, strict=True)
        }
    except (KeyError, IndexError, TypeError, ValueError):
        return {}


def _cube(fields: Sequence[PlateImage], read: Read | None, rules: CombineOptions) -> Combination:
    """All images along well and field, as far as they are alike."""
    groups = []
    for field in fields:
        part = field.group if _IMAGE in field.group.arrays else field.group.groups.get("0")
        plain = VirtualGroup() if part is None else part.with_changes(groups={}, attrs={})
        named: Any = f"{field.row}{field.column.rjust(2, '0')}"
        groups.append(with_label(with_label(plain, "well", named), "field", field.field))
    return combine(groups, Hypercube(("well", "field")), read=read, options=rules)


def _tree(fields: Sequence[PlateImage]) -> dict[str, VirtualGroup]:
    """Groups of rows, of wells in them, and of fields in these."""
    wells: dict[str, dict[str, dict[str, VirtualGroup]]] = {}
    for field in fields:
        row = wells.setdefault(field.row, {})
        row.setdefault(field.column, {})[str(field.field)] = field.group
    return {
        row: VirtualGroup(
            groups={
                column: VirtualGroup(groups=images, attrs=well_attributes(list(images)))
                for column, images in columns.items()
            }
        )
        for row, columns in wells.items()
    }


# Wells, fields and channels in names of files

_WELL = re.compile(r"([A-Za-z]{1,2})[-_]?0*(\d{1,3})")
_OPERETTA = re.compile(r"r0*(\d+)c0*(\d+)f0*(\d+)")
_WELL_IN_NAME = re.compile(r"(?:^|[_\-. ])([A-P])[-_]?0*([1-9]\d?)(?=[_\-. ]|$)")
_AXIS_IN_NAME = re.compile(r"(?:^|[_\-. ])[TZC]P?\d+(?=[_\-. ]|$)", re.IGNORECASE)
_CHANNEL_IN_NAME = re.compile(r"[_\-. ](?:w|ch|channel)[-_]?(\d{1,2})(?=[_\-. ]|$)", re.IGNORECASE)
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
        dimensions that planes are along, like ``{c}``. Without a pattern wells like ``B02`` or
        ``r02c03f01`` are looked for, fields like ``_f1`` or ``_s1``, and channels like ``_w1`` or
        ``_ch1`` of images that have none themselves.

    Raises
    ------
    InvalidRequestError
        For names that say no well.
    """
    files = [file for file, _ in scanned]
    found = [_usual(file) for file in files] if pattern is None else pattern.of_names(files)
    fields = _channel_dim(found, scanned) if pattern is None else list(pattern.fields)
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


def _channel_dim(
    found: Sequence[Mapping[str, Any]], scanned: Sequence[tuple[str, VirtualGroup]]
) -> list[str]:
    """The dimension of channels, if they tell files of one field apart, and no image has it."""
    fields = {(own["row"], own["column"], own["field"]) for own in found}
    told = {(own["row"], own["column"], own["field"], own.get("c")) for own in found}
    is_said = all("c" in own for own in found) and len(fields) < len(told)
    held = {dim for _, group in scanned for array in group.arrays.values() for dim in array.dims}
    return ["c"] if is_said and "c" not in held else []


def wells_in_names(files: Sequence[str]) -> list[str]:
    """The wells, like ``A1``, that names in one of the usual forms say; none if one says none.

    A single row C, F or P beside times, slices or channels (``P1_T0``) is no row of a plate: these
    letters count channels, fields and positions, too. Nor is a row P alone.
    """
    try:
        found = [_well(_usual(file), "") for file in files]
    except InvalidRequestError:
        return []
    rows = {row for row, _ in found}
    if rows == {"P"} or (len(rows) == 1 and rows <= {"C", "F"} and _names_axes(files)):
        return []
    return list(dict.fromkeys("".join(well) for well in found))


def _names_axes(files: Sequence[str]) -> bool:
    """Whether names say a time, slice or channel beside what may be the well."""
    names = [_WELL_IN_NAME.sub("", os.path.basename(file), count=1) for file in files]
    return any(_AXIS_IN_NAME.search(name) for name in names)


def _usual(file: str) -> Mapping[str, Any]:
    """Well, field and channel of a name in one of the usual forms."""
    name = os.path.basename(file.rstrip("/"))
    operetta = _OPERETTA.search(name)
    if operetta is not None:
        return {"row": operetta[1], "column": operetta[2], "field": operetta[3]}
    well, field = _WELL_IN_NAME.search(name), _FIELD_IN_NAME.search(name)
    if well is None:
        raise InvalidRequestError(
            "the file name contains no well such as B02 or r02c03f01: give a pattern, like "
            "'{well}_s{field:d}'",
            Place(source=file),
        )
    channel = _CHANNEL_IN_NAME.search(name, well.end())
    said = {"row": well[1], "column": well[2], "field": field[1] if field else 0}
    return said | ({"c": int(channel[1])} if channel else {})


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
