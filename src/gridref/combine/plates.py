"""Combine images of the wells and fields of a plate.

`combine_plate` lays the images out as a tree of groups, as OME-Zarr has them, or as one array with
dimensions of wells and fields.

Source: OME-NGFF 0.5, "plate" and "well" (https://ngff.openmicroscopy.org/0.5/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gridref.combine.combining import combine
from gridref.combine.hypercube import Hypercube
from gridref.combine.labelled import with_label
from gridref.combine.options import CombineOptions, Read
from gridref.combine.report import Combination, Drift, DriftReport, grouped
from gridref.errors import Problem
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.ome_zarr import (
    Channel,
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
    field
        Which field of the well.
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

    Parameters
    ----------
    images
        The images; several of one field have labels along `dims`.
    dims
        Dimensions that planes in files of their own are along, like ``c``, ``z`` and ``t``.
    read, options
        As for `gridref.combine.combine`.

    Returns
    -------
    Combination
        A group ``row/column/field`` for each image, with OME-Zarr's metadata on every level; and,
        where all images are alike, the group ``cube`` with ``image`` along ``well`` and ``field``.
        Problems are fields that occur twice, and images whose axes OME-Zarr cannot describe.
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
    groups = _tree(fields)
    report = DriftReport(_cube_drifts(cube, len(files)), files)
    if cube.group is not None:
        groups[CUBE] = cube.group
    wells = list(dict.fromkeys((field.row, field.column) for field in fields))
    most = max(sum(field.row == r and field.column == c for field in fields) for r, c in wells)
    attrs = plate_attributes(name, wells, most)
    scans = ScanReport.joined([image.group.report for image in images])
    return Combination(VirtualGroup(groups=groups, attrs=attrs, report=scans), report)


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
    channels = _channels(group, finest)
    if channels:
        attrs["ome"]["omero"] = omero(channels, finest.dtype)
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


def _channels(group: VirtualGroup, image: VirtualArray) -> list[Channel]:
    """Channels by their number; none where an image has no axis of channels."""
    lengths = [
        extent
        for dim, extent in zip(image.dims, image.shape, strict=True)
        if axis_type(dim) == "channel"
    ]
    return [Channel(f"channel {number}") for number in range(lengths[0])] if lengths else []


def _cube(fields: Sequence[PlateImage], read: Read | None, rules: CombineOptions) -> Combination:
    """All images along well and field, as far as they are alike."""
    groups = []
    for field in fields:
        part = field.group if _IMAGE in field.group.arrays else field.group.groups.get("0")
        plain = VirtualGroup() if part is None else part.with_changes(groups={}, attrs={})
        named: Any = f"{field.row}{field.column.rjust(2, '0')}"
        groups.append(with_label(with_label(plain, "well", named), "field", field.field))
    return combine(groups, Hypercube(("well", "field")), read=read, options=rules)


def _cube_drifts(cube: Combination, n_files: int) -> tuple[Drift, ...]:
    if cube.group is not None:
        return ()
    reason = cube.problems[0].message
    return (Drift.of("plate", CUBE, {reason: list(range(n_files))}, LEFT_OUT),)


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
