"""Describe the levels of a pyramid in the attributes of a group.

Source: the Zarr convention "multiscales" v0.1, which GeoZarr uses
(https://github.com/zarr-conventions/multiscales).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

CONVENTION = {
    "schema_url": (
        "https://raw.githubusercontent.com/zarr-conventions/multiscales/refs/tags/v0.1/schema.json"
    ),
    "spec_url": "https://github.com/zarr-conventions/multiscales/blob/v0.1/README.md",
    "uuid": "d35379db-88df-4056-af3a-620245f8e347",
    "name": "multiscales",
    "description": "Multiscale layout of zarr datasets",
}


def geo_multiscales(
    paths: Sequence[str], shapes: Sequence[tuple[int, ...]], dims: Sequence[str]
) -> dict[str, Any]:
    """Group attributes of a georeferenced pyramid.

    Parameters
    ----------
    paths
        Path of each level's array below the group, the finest first.
    dims
        Dimension names of the finest level.
    """
    layout: list[dict[str, Any]] = []
    for path, shape in zip(paths, shapes, strict=True):
        ratio = [float(fine / coarse) for fine, coarse in zip(shapes[0], shape, strict=True)]
        level: dict[str, Any] = {"asset": path}
        if layout:
            level["derived_from"] = paths[0]
        level["transform"] = {"scale": ratio, "translation": [0.0] * len(ratio)}
        layout.append(level)
    return {"zarr_conventions": [CONVENTION], "multiscales": {"layout": layout}}
