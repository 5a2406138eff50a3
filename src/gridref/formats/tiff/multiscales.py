"""Pyramids: metadata that says which arrays show the same image at which resolution.

Sources: OME-NGFF 0.5, "multiscales" (https://ngff.openmicroscopy.org/0.5/); the Zarr convention
"multiscales" v1, which GeoZarr builds on (https://github.com/zarr-conventions/multiscales).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["geo_multiscales", "ome_multiscales"]

_CONVENTION = {
    "schema_url": (
        "https://raw.githubusercontent.com/zarr-conventions/multiscales/refs/tags/v1/schema.json"
    ),
    "spec_url": "https://github.com/zarr-conventions/multiscales/blob/v1/README.md",
    "uuid": "d35379db-88df-4056-af3a-620245f8e347",
    "name": "multiscales",
    "description": "Multiscale layout of zarr datasets",
}

_AXIS_TYPES = {
    "t": "time",
    "c": "channel",
    "sample": "channel",
    "z": "space",
    "y": "space",
    "x": "space",
}


def geo_multiscales(
    paths: Sequence[str], shapes: Sequence[tuple[int, ...]], dims: Sequence[str]
) -> dict[str, Any]:
    """Group attributes of a georeferenced pyramid.

    Parameters
    ----------
    paths
        Path of each level's array below the group, the finest first.
    shapes
        Shape of each level.
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
    return {"zarr_conventions": [_CONVENTION], "multiscales": {"layout": layout}}


def ome_multiscales(
    name: str,
    paths: Sequence[str],
    shapes: Sequence[tuple[int, ...]],
    dims: Sequence[str],
    pixel_sizes: Mapping[str, tuple[float, str]],
) -> dict[str, Any] | None:
    """Group attributes of a microscopy image, as OME-Zarr 0.5 has them.

    Parameters
    ----------
    name
        Name of the image.
    paths, shapes, dims
        As for `geo_multiscales`.
    pixel_sizes
        Physical size of a pixel and its unit by dimension name.

    Returns
    -------
    dict or None
        None if the axes are not such that OME-Zarr can describe them: at most one of time, then at
        most one more, then two or three of space.
    """
    kinds = [_AXIS_TYPES.get(dim, "") for dim in dims]
    space = kinds.count("space")
    others = [kind for kind in kinds if kind != "space"]
    if space not in (2, 3) or kinds[-space:] != ["space"] * space:
        return None
    if len(others) > 2 or "time" in others[1:] or (len(others) == 2 and others[0] != "time"):
        return None
    axes = []
    for dim, kind in zip(dims, kinds, strict=True):
        axis = {"name": dim} | ({"type": kind} if kind else {})
        if dim in pixel_sizes and pixel_sizes[dim][1]:
            axis["unit"] = pixel_sizes[dim][1]
        axes.append(axis)
    base = [pixel_sizes.get(dim, (1.0, ""))[0] for dim in dims]
    datasets = [
        {
            "path": path,
            "coordinateTransformations": [
                {
                    "type": "scale",
                    "scale": [
                        size * fine / coarse
                        for size, fine, coarse in zip(base, shapes[0], shape, strict=True)
                    ],
                }
            ],
        }
        for path, shape in zip(paths, shapes, strict=True)
    ]
    multiscale = {"name": name or "image", "axes": axes, "datasets": datasets}
    return {"ome": {"version": "0.5", "multiscales": [multiscale]}}
