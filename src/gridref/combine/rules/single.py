"""Treat variables that lack the dimension along which inputs are combined.

They are put along a new dimension, repeated along it, or kept once. What is kept once has to be
equal in all files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gridref.combine.boxes import Boxes, Cells, Runs
from gridref.combine.columns import Column, Notes
from gridref.combine.rules.packing import Packing, unpack_all
from gridref.combine.values import Values, content_key, same_values
from gridref.model.array import VirtualArray
from gridref.model.ome_zarr import axis_type
from gridref.model.reference_systems import referred_names
from gridref.model.reshaping import broadcast_axis, expand_dims


def stack_columns(columns: Mapping[str, Column], dim: str, notes: Notes) -> dict[str, Column]:
    """Give data variables a new leading dimension of length 1.

    Coordinates and what other variables refer to stay as they are; a scalar of the dimension's own
    name becomes its coordinate.
    """
    referred = referred_names(column.first for column in columns.values())
    result = {}
    for name, column in columns.items():
        array = column.first
        is_label = name == dim and array.ndim == 0
        is_index = array.dims == (name,)
        kept = is_index or name in referred or array.ndim == 0
        if name in notes.options.repeated:
            kept = is_index or notes.options.repeated[name] != "all"
        elif notes.options.variables == "all":
            kept = is_index
        if is_label or not kept:
            stacked = [expand_dims(own, 0, dim) for own in column.arrays]
            result[name] = column.with_arrays(stacked)
        else:
            result[name] = column
    return result


def stacked_attributes(attrs: Mapping[str, Any], dim: str) -> dict[str, Any]:
    """Attributes of a group whose data variables got a new leading dimension.

    Pyramids count the axes of their arrays: OME-NGFF 0.5, "multiscales", and the Zarr convention
    "multiscales" v1 (https://github.com/zarr-conventions/multiscales). What OME-NGFF cannot
    describe then, with more axes or in another order than it knows, is left out.
    """
    result = dict(attrs)
    pyramid = result.get("multiscales")
    if isinstance(pyramid, Mapping) and isinstance(pyramid.get("layout"), list):
        layout = [
            {**level, "transform": _with_leading_axis(level["transform"])}
            if isinstance(level, Mapping) and isinstance(level.get("transform"), Mapping)
            else level
            for level in pyramid["layout"]
        ]
        result["multiscales"] = {**pyramid, "layout": layout}
    if isinstance(result.get("ome"), Mapping) and "multiscales" in result["ome"]:
        try:
            images = [_stacked_image(image, dim) for image in result["ome"]["multiscales"]]
        except (AttributeError, KeyError, TypeError):  # no OME-Zarr after all
            images = [None]
        if None in images:
            del result["ome"]
        else:
            result["ome"] = {**result["ome"], "multiscales": images}
            if axis_type(dim) == "channel":
                result["ome"].pop("omero", None)
    return result


def _stacked_image(image: Mapping[str, Any], dim: str) -> dict[str, Any] | None:
    """An entry of OME-NGFF's ``multiscales`` with a new leading axis; None if there may be none."""
    kinds = [axis.get("type") for axis in image["axes"]]
    others = [kind for kind in kinds if kind != "space"]
    kind = axis_type(dim)
    if "time" in others or (others and kind != "time") or (kind == "space" and len(kinds) > 2):
        return None
    axis = {"name": dim} | ({"type": kind} if kind else {})
    datasets = [
        {
            **level,
            "coordinateTransformations": [
                _with_leading_axis(step) for step in level["coordinateTransformations"]
            ],
        }
        for level in image["datasets"]
    ]
    return {**image, "axes": [axis, *image["axes"]], "datasets": datasets}


def _with_leading_axis(transformation: Mapping[str, Any]) -> dict[str, Any]:
    """A transformation that leaves a new leading axis as it is."""
    neutral = {"scale": 1.0, "translation": 0.0}
    return {
        name: [neutral[name], *value] if name in neutral else value
        for name, value in transformation.items()
    }


def repeated_along(column: Column, dim: str, lengths: Mapping[int, int], axis: int = 0) -> Column:
    """Repeat the arrays that lack a dimension along it, as long as it is in their file."""
    arrays = list(column.arrays)
    for position, file in enumerate(column.files):
        array = arrays[position]
        if dim not in array.dims:
            at = min(axis, array.ndim)
            arrays[position] = broadcast_axis(expand_dims(array, at, dim), at, lengths.get(file, 1))
    return column.with_arrays(arrays)


def static_array(column: Column, values: Values, notes: Notes) -> list[int] | None:
    """Files in which a variable without the dimension has other values than in the first.

    Values that are packed differently are compared unpacked. Where values cannot be had, metadata
    decide.

    Returns
    -------
    list of int or None
        None where the variables cannot be compared, which is noted as a problem.
    """
    kinds = {kind.array.dtype.kind for kind in column.kinds}
    numbers = set("biufc")
    if len(kinds) > 1 and not kinds <= numbers:
        cases = column.cases(lambda kind: str(kind.array.dtype))
        notes.conflict("dtype-differs", column.path, "dtypes", cases, "they cannot be compared")
        return None
    compared = column
    if kinds <= set("biuf") and len({Packing.of(kind.array) for kind in column.kinds}) > 1:
        compared = unpack_all(column)
        cases = column.cases(lambda kind: str(Packing.of(kind.array)))
        notes.drift(
            "packing", column.path, cases, "values are compared unpacked; the first is kept"
        )
    if not values.available(compared.first):
        return []
    return [
        file
        for file, array in zip(compared.files, compared.arrays, strict=True)
        if not _same(compared.first, array, values)
    ]


def contradicting_files(
    column: Column, wide: Column, runs: Mapping[str, Runs], values: Values
) -> list[int]:
    """Files that hold other values of a variable than the first ones at the same places.

    Parameters
    ----------
    column
        The variable; its values are available.
    wide
        The same, repeated along the dimensions that it lacks.
    """
    boxes = Boxes.of(wide.files, runs)
    files, spans = boxes.held(wide)
    if not Cells.of(spans, files, boxes.extents).clashes:
        return []
    dtypes = {kind.array.dtype for kind in column.kinds}
    if len(dtypes) > 1 and any(dtype.kind not in "biufc" for dtype in dtypes):
        return list(column.files[1:])
    shown = np.zeros(boxes.shape(wide), np.result_type(*dtypes))
    held = np.zeros(shown.shape, bool)
    found: dict[int, None] = {}
    corners = zip(boxes.position.tolist(), boxes.corners(wide).tolist(), strict=True)
    for box, (position, corner) in enumerate(corners):
        array, whole = column.arrays[position], wide.arrays[position]
        lacking = [axis for axis, dim in enumerate(whole.dims) if dim not in array.dims]
        every = np.broadcast_to(np.expand_dims(values.of(array), tuple(lacking)), whole.shape)
        cut = boxes.cut(wide, box)
        own = every[tuple(cut.get(axis, slice(None)) for axis in range(whole.ndim))]
        at = tuple(slice(start, start + n) for start, n in zip(corner, own.shape, strict=True))
        known = held[at]
        if not same_values(own[known].astype(shown.dtype), shown[at][known]):
            found[column.files[position]] = None
        shown[at][~known] = own[~known]
        held[at] = True
    return [*found]


def _same(first: VirtualArray, other: VirtualArray, values: Values) -> bool:
    if other is first or not values.available(other) or _is_under_other_metadata(first, other):
        return True
    key = content_key(first)
    if key is not None and key == content_key(other):
        return True
    return same_values(values.of(first), values.of(other))


def _is_under_other_metadata(first: VirtualArray, other: VirtualArray) -> bool:
    """Whether two arrays show the same stored chunks in the same way."""
    if [*map(id, first.manifests)] != [*map(id, other.manifests)]:
        return False
    return (first.encodings, first.shape, *_windows(first)) == (
        other.encodings,
        other.shape,
        *_windows(other),
    )


def _windows(array: VirtualArray) -> list[bytes]:
    return [getattr(array.blocks, name).tobytes() for name in ("first_row", "origin", "step")]
