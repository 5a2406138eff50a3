"""Labels of tiles in their names: dates and bands as dimensions, or bands as variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gridref.combine.labelled import label_values, with_label
from gridref.errors import InvalidRequestError, Place
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.reshaping import squeeze
from gridref.workflows.layout.labels import LabelPattern

__all__ = ["VARIABLE", "labelled_tiles"]

VARIABLE = "variable"
"""The field of a pattern that names a tile's variable."""
_BAND, _MASK = "band", "mask"


def labelled_tiles(
    scanned: Sequence[tuple[str, VirtualGroup]],
    found: Sequence[Mapping[str, Any]],
    pattern: LabelPattern,
) -> list[VirtualGroup]:
    """Tiles with the labels that a pattern found; these go before coordinates of their own.

    Parameters
    ----------
    scanned
        Addresses and groups.
    found
        Labels of each by field. What the field ``variable`` says becomes the name of its variable.

    Raises
    ------
    InvalidRequestError
        If a tile that is to be one variable holds several.
    """
    groups = [group for _, group in scanned]
    if VARIABLE in pattern.fields:
        groups = [
            _as_variable(group, str(own[VARIABLE]), file)
            for (file, group), own in zip(scanned, found, strict=True)
        ]
    for dim in pattern.fields:
        if dim != VARIABLE:
            values, _ = label_values([own[dim] for own in found])
            attrs = pattern.attrs(dim)
            groups = [with_label(g, dim, v, attrs) for g, v in zip(groups, values, strict=True)]
    return groups


def _as_variable(group: VirtualGroup, name: str, file: str) -> VirtualGroup:
    """A tile whose one variable has that name, without a dimension of one band."""
    held = [
        key for key, array in group.arrays.items() if "grid_mapping" in array.attrs and key != _MASK
    ]
    if len(held) != 1:
        raise InvalidRequestError(
            f"it is to be the variable {name!r}, and holds {', '.join(held) or 'none'}",
            Place(source=file),
        )
    return _renamed(group, {held[0]: name, _MASK: f"{name}_{_MASK}"})


def _renamed(group: VirtualGroup, names: Mapping[str, str]) -> VirtualGroup:
    arrays = {
        names.get(key, key): _without_band(array) if key in names else array
        for key, array in group.arrays.items()
    }
    if not any(_BAND in array.dims and array.ndim > 1 for array in arrays.values()):
        arrays.pop(_BAND, None)
    groups = {key: _renamed(below, names) for key, below in group.groups.items()}
    attrs = dict(group.attrs)
    pyramid = attrs.get("multiscales")
    if isinstance(pyramid, Mapping):
        levels = [_renamed_level(level, names) for level in pyramid.get("layout", [])]
        attrs["multiscales"] = {**pyramid, "layout": levels}
    return group.replace(arrays=arrays, groups=groups, attrs=attrs)


def _renamed_level(level: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The entry of a level, whose arrays have two axes now."""
    changed = dict(level)
    for key in ("asset", "derived_from"):
        path, slash, name = str(level.get(key, "")).rpartition("/")
        if name in names:
            changed[key] = f"{path}{slash}{names[name]}"
    if isinstance(level.get("transform"), Mapping):
        changed["transform"] = {key: list(v)[-2:] for key, v in level["transform"].items()}
    return changed


def _without_band(array: VirtualArray) -> VirtualArray:
    axis = array.dims.index(_BAND) if _BAND in array.dims else -1
    return squeeze(array, (axis,)) if axis >= 0 and array.shape[axis] == 1 else array
