"""Align dimensions whose names, order or direction differ, and treat variables that lack one.

All inputs get the names, order and direction of the first one. Lengths that disagree are problems.
Variables that lack the dimension along which inputs are combined are put along a new one, repeated
along it, or kept once. What is kept once has to be equal in all files.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gridref.combine.boxes import Boxes, Cells, Runs
from gridref.combine.columns import Column, Kind, Notes
from gridref.combine.options import CombineOptions, Read
from gridref.combine.rules.packing import Packing, unpack_all
from gridref.combine.values import Values, same_chunks, same_values
from gridref.errors import Message, Option
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.conventions import referred_names
from gridref.model.grid import region_of
from gridref.model.indexing import flip
from gridref.model.ome_zarr import axis_type
from gridref.model.reshaping import broadcast_axis, expand_dims, transpose

_PHONY = re.compile(r"^phony_dim_\d+$")


def align_dimensions(column: Column, growing: Collection[str], notes: Notes) -> Column | None:
    """Bring the dimensions of all files into the first file's order, under its names.

    Dimensions that only have the made-up names of netCDF tools are matched by place. A file in
    which a growing dimension is missing keeps what it has. None where dimensions do not fit, which
    is noted as a problem.
    """
    wanted = max((kind.array.dims for kind in column.kinds), key=len)
    if wanted != column.first.dims and set(wanted) - set(column.first.dims) - set(growing):
        wanted = column.first.dims
    if all(kind.array.dims == wanted for kind in column.kinds):
        return column
    bad = [kind for kind in column.kinds if _new_dims(kind.array.dims, wanted, growing) is None]
    cases = column.cases(lambda kind: str(kind.array.dims))
    if bad:
        notes.conflict(
            "dimensions-differ",
            column.path,
            "dimensions",
            cases,
            "rename or select them alike before combining",
        )
        return None

    def change(kind: Kind, array: VirtualArray) -> VirtualArray:
        names = _new_dims(array.dims, wanted, growing)
        assert names is not None
        array = array if names == array.dims else array.with_changes(dims=names)
        order = sorted(range(array.ndim), key=lambda axis: wanted.index(array.dims[axis]))
        return transpose(array, order)

    held = (kind.array.dims for kind in column.kinds)
    if any(dims != tuple(dim for dim in wanted if dim in dims) for dims in held):
        notes.drift("dimensions", column.path, cases, f"shown as {wanted}")
    return column.map_kinds(change)


def _new_dims(
    dims: tuple[str, ...], wanted: tuple[str, ...], growing: Collection[str]
) -> tuple[str, ...] | None:
    """Names under which the dimensions fit the wanted ones; None where they do not.

    Made-up names are matched by place only. They were given by length, so they, and names that an
    axis of such an array took by its length, say nothing about the order of axes.
    """
    if len(dims) == len(wanted):
        others = [pair for pair in zip(dims, wanted, strict=True) if pair[0] != pair[1]]
        made_up = [_PHONY.match(name) is not None for pair in others for name in pair]
        if all(made_up):
            return wanted
        return dims if set(dims) == set(wanted) and not any(made_up) else None
    lacking = set(wanted) - set(dims)
    fits = set(dims) <= set(wanted) and lacking <= set(growing)
    return dims if fits else None


def shared_lengths(
    groups: Sequence[VirtualGroup], growing: Collection[str]
) -> dict[str, dict[int, int]]:
    """Length in every file of the growing dimensions that all groups of a file share.

    Arrays do not say which group defines their dimensions. One that has the same length in all
    groups of every file is taken for one dimension; others, and those with made-up names, are
    looked at group by group.
    """
    if not any(group.groups for group in groups):
        return {}
    lengths: dict[str, dict[int, int]] = {dim: {} for dim in growing if not _PHONY.match(dim)}
    for file, group in enumerate(groups):
        for array in group.all_arrays().values():
            for dim, extent in array.sizes.items():
                if dim in lengths and lengths[dim].setdefault(file, extent) != extent:
                    del lengths[dim]
    return lengths


def lengths_along(
    columns: Mapping[str, Column], growing: Collection[str], known: Mapping[str, Mapping[int, int]]
) -> dict[str, dict[int, int]]:
    """Length of every growing dimension in every file that has it.

    Parameters
    ----------
    columns
        The variables of a group.
    known
        What the groups above say.
    """
    lengths: dict[str, dict[int, int]] = {dim: {} for dim in growing}
    for dim, lengths_found in lengths.items():
        for column in columns.values():
            if all(file in lengths_found for file in column.files):
                continue
            for file, array in zip(column.files, column.arrays, strict=True):
                if dim in array.dims:
                    lengths_found.setdefault(file, array.shape[array.dims.index(dim)])
    return {dim: {**known.get(dim, {}), **own} for dim, own in lengths.items()}


def find_flips(
    columns: Mapping[str, Column], growing: Collection[str], values: Values, notes: Notes
) -> dict[str, dict[int, int]]:
    """Files in which an index coordinate runs the other way round than in the first file.

    With the number of its labels.
    """
    flips: dict[str, dict[int, int]] = {}
    for name, column in columns.items():
        array = column.first
        if not array.is_index(name) or name in growing or array.shape[0] < 2:
            continue
        if array.dtype.kind not in "iuf" or not values.available(array):
            continue
        reversed_files = _reversed_files(column, values)
        if reversed_files:
            flips[name] = dict.fromkeys(reversed_files, array.shape[0])
            cases = {
                "as the first": [file for file in column.files if file not in reversed_files],
                "reversed": sorted(reversed_files),
            }
            notes.drift("direction", column.path, cases, "flipped to the first file's")
    return flips


def _reversed_files(column: Column, values: Values) -> set[int]:
    first = column.first
    reversed_files = set()
    for file, array in zip(column.files, column.arrays, strict=True):
        if array.shape != first.shape or not values.available(array) or same_chunks(first, array):
            continue
        if not values.available(first):
            return set()
        own, known = values.of(array), values.of(first)
        if not same_values(own, known) and same_values(own[::-1], known):
            reversed_files.add(file)
    return reversed_files


def flip_files(column: Column, flips: Mapping[str, Mapping[int, int]]) -> Column:
    """Flip the arrays of the files concerned along the dimensions concerned."""
    concerned = [dim for dim in column.first.dims if dim in flips]
    if not concerned:
        return column
    arrays = list(column.arrays)
    for position, file in enumerate(column.files):
        for dim in concerned:
            if file in flips[dim] and dim in arrays[position].dims:
                axis = arrays[position].dims.index(dim)
                # Another length is another dimension, of a group below.
                if arrays[position].shape[axis] == flips[dim][file]:
                    arrays[position] = flip(arrays[position], axis)
    return column.with_arrays(arrays)


def extents_agree(column: Column, growing: Sequence[str], notes: Notes) -> bool:
    """Whether extents of the other dimensions agree; a problem is noted where they do not."""
    if len({kind.array.dims for kind in column.kinds}) == 1:
        kept = [axis for axis, dim in enumerate(column.first.dims) if dim not in growing]
        grids = [array.grid for array in column.arrays]
        distinct = dict(zip(map(id, grids), grids, strict=True))  # alike files mostly share one
        if len({tuple(grid.shape[axis] for axis in kept) for grid in distinct.values()}) == 1:
            return True
    all_sizes = [
        {dim: n for dim, n in array.sizes.items() if dim not in growing} for array in column.arrays
    ]
    first = all_sizes[0]
    if all(list(sizes.items()) == list(first.items()) for sizes in all_sizes):
        return True
    differing = [dim for dim in first if any(sizes.get(dim) != first[dim] for sizes in all_sizes)]
    cases: dict[str, list[int]] = {}
    for file, sizes in zip(column.files, all_sizes, strict=True):
        shown = {dim: sizes.get(dim) for dim in differing} if differing else sizes
        text = ", ".join(f"{dim} {n}" if len(shown) > 1 else f"{n}" for dim, n in shown.items())
        cases.setdefault(text, []).append(file)
    by_label = Message(
        "if all files have labels there, ",
        Option("join", "outer"),
        " places each file by them; ",
    )
    notes.conflict(
        "shape-differs",
        column.path,
        f"sizes along {' and '.join(map(repr, differing))}" if differing else "sizes",
        cases,
        Message(
            by_label if notes.options.join == "exact" else "",
            "if they are swaths, profiles or the like, ",
            Option("layout", "ragged", "layout=Ragged()"),
            " keeps all samples; otherwise combine only files of equal sizes",
        ),
    )
    return False


# Index variables of ragged arrays, which count along a dimension that grows (CF conventions,
# 9.3.4). Row sizes (9.3.3) need no change


def shift_indices(
    columns: Mapping[str, Column],
    lengths: Mapping[str, Mapping[int, int]],
    notes: Notes,
    values: Values,
) -> dict[str, Column]:
    """Shift index variables by the length of what they point into, in the files before."""
    result = dict(columns)
    for name, column in columns.items():
        dim = counts_along(column, notes)
        if dim not in lengths:
            continue
        if not all(values.available(array) for array in column.arrays):
            message = f"it counts along {dim!r} and has to be shifted, but nothing can read it"
            notes.problem("index-shift", column.path, message, column.files)
            continue
        result[name] = _shifted(column, lengths[dim], values)
        notes.drift(
            "index-shift", column.path, {f"counts along {dim}": list(column.files)}, "shifted"
        )
    return result


def counts_along(column: Column, notes: Notes) -> str:
    """The dimension whose elements an index variable counts; empty for other variables."""
    return counted_dim(column.name, column.first, notes.options)


def counted_dim(name: str, array: VirtualArray, rules: CombineOptions) -> str:
    """The same of a variable of one input."""
    dim = rules.index_variables.get(name) or array.attrs.get("instance_dimension")
    return dim if isinstance(dim, str) and array.dtype.kind in "iu" else ""


def refuse_moved(columns: Iterable[Column], dim: str, notes: Notes) -> None:
    """Note index variables that are not laid file after file: their shift is unknown."""
    for column in columns:
        message = (
            f"it counts along {dim!r}, whose elements are left out or put in another order by their"
            " labels: give files in the order of their labels, without repeats"
        )
        notes.problem("index-shift", column.path, message, column.files)


def _shifted(column: Column, lengths: Mapping[int, int], values: Values) -> Column:
    starts: dict[int, int] = {}
    total = 0
    for file in range(max([*lengths, *column.files]) + 1):
        starts[file] = total
        total += lengths.get(file, 0)
    fills = {fill for kind in column.kinds for fill in Packing.of(kind.array).fills}
    none = -1 if any(0 <= fill < total for fill in fills) else None
    parts = zip(column.files, column.arrays, strict=True)
    arrays = [moved_index(array, starts[file], total, values.of, none) for file, array in parts]
    return column.with_arrays(arrays)


def moved_index(
    array: VirtualArray, by: int, total: int, read: Read, none: int | None = None
) -> VirtualArray:
    """An index variable whose elements are so much further; negative ones and fill values stay.

    Parameters
    ----------
    total
        How many elements there are to point to.
    none
        What takes the place of elements that point to nothing, where a fill value of the files
        would become one that does.
    """
    data = read(array).astype(np.int64)
    valid = data >= 0
    for fill in Packing.of(array).fills:
        valid &= data != fill
    shifted = np.where(valid, data + by, data if none is None else none)
    dtype, attrs = array.dtype, array.attrs
    if none is not None:
        attrs = {k: v for k, v in attrs.items() if k not in ("_FillValue", "missing_value")}
        attrs["_FillValue"] = np.int64(none)
    if none is not None or total > np.iinfo(dtype).max:
        dtype = np.dtype(np.int64)
    return VirtualArray.from_numpy(shifted.astype(dtype), array.dims, attrs)


# Variables that lack the dimension along which inputs are combined


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
        is_index = array.is_index(name)
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
        at = region_of(corner, own.shape)
        known = held[at]
        if not same_values(own[known].astype(shown.dtype), shown[at][known]):
            found[column.files[position]] = None
        shown[at][~known] = own[~known]
        held[at] = True
    return [*found]


def _same(first: VirtualArray, other: VirtualArray, values: Values) -> bool:
    if not values.available(other) or same_chunks(first, other):
        return True
    return same_values(values.of(first), values.of(other))
