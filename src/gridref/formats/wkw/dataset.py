"""A WEBKNOSSOS dataset as a virtual group: a group for each layer, an array for each magnification.

``datasource-properties.json`` names the layers, their bounding boxes in voxels of magnification 1,
their magnifications, and the size of a voxel. Without it, what is scanned is one magnification.
Voxels of a magnification are placed at the centre of those that they stand for.

Source: https://docs.webknossos.org/webknossos/data/concepts.html and the files that the library
``webknossos`` writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from gridref.errors import Place, SourceFormatError, UnsupportedFeatureError
from gridref.formats.chunk_files import StoreFiles
from gridref.formats.findings import Findings
from gridref.formats.options import ScanOptions
from gridref.formats.wkw.arrays import DIMS, Box, Corner, array_of
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.ome_zarr import Placement, placed_image_attributes
from gridref.model.scan_report import Fate

_PROPERTIES = "datasource-properties.json"
_UNITS = "nanometer"
"""Where no unit is stated."""


def scan_dataset(files: StoreFiles, options: ScanOptions) -> VirtualGroup:
    """Describe a dataset, or one magnification; raises as `gridref.formats.scan` does."""
    findings = Findings(files.url)
    data = files.get(_PROPERTIES)
    if data is None:
        name = files.url.rpartition("/")[2] or "array"
        arrays: dict[str, VirtualArray] = {}
        with findings.refusing(f"/{name}"):
            arrays[name], _ = array_of(files, "", None, {})
            findings.note(f"/{name}", Fate.TAKEN)
        return VirtualGroup(arrays, report=findings.report(options))
    try:
        properties = json.loads(data)
        layers = list(properties["dataLayers"])
        voxel = _voxel(properties.get("scale"))
        name = str((properties.get("id") or {}).get("name", ""))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        place = Place(source=files.address(_PROPERTIES))
        raise SourceFormatError(f"it describes no layers: {error!r}", place) from error
    groups: dict[str, VirtualGroup] = {}
    for layer in layers:
        label = str(layer.get("name")) if isinstance(layer, Mapping) else str(layer)[:100]
        with findings.refusing(f"/{label}"):
            if label in ("", ".", "..") or "/" in label:
                raise UnsupportedFeatureError(f"{label[:100]!r} cannot be the name of a group")
            groups[label] = _layer(files, label, layer, voxel, findings)
    attrs = {"name": name} if name else {}
    return VirtualGroup({}, groups, attrs, report=findings.report(options))


def _voxel(scale: Any) -> tuple[Any, str] | None:
    """Size of a voxel of magnification 1, and its unit."""
    unit = _UNITS
    if isinstance(scale, Mapping):
        scale, unit = scale.get("factor"), str(scale.get("unit", _UNITS))
    if scale is None:
        return None
    size = np.array(scale, float)
    if size.shape != (3,) or not (np.isfinite(size) & (size > 0)).all():
        raise ValueError("scale is no size of a voxel")
    return size, unit


def _layer(
    files: StoreFiles,
    name: str,
    layer: Any,
    voxel: tuple[Any, str] | None,
    findings: Findings,
) -> VirtualGroup:
    """A layer; a magnification that is refused is noted, and left out."""
    if not isinstance(layer, Mapping):
        raise SourceFormatError("it is no description of a layer")
    form = layer.get("dataFormat", "wkw")
    if form != "wkw":
        raise UnsupportedFeatureError(
            f"the layer is in the format {str(form)[:100]}: scan its folder"
        )
    mags = layer.get("mags", layer.get("wkwResolutions"))
    if not isinstance(mags, list):
        raise SourceFormatError("it lists no magnifications")
    arrays: dict[str, VirtualArray] = {}
    boxes: dict[str, tuple[Corner, Box]] = {}
    for each in mags:
        mag = _magnification(each)
        folder = _folder(files, name, mag, each)
        with findings.refusing(f"/{name}/{folder}"):
            box = _box(layer.get("boundingBox"), mag)
            arrays[folder], box = array_of(files, f"{name}/{folder}", box, {"mag": np.array(mag)})
            boxes[folder] = mag, box
            findings.note(f"/{name}/{folder}", Fate.TAKEN)
    attrs = {key: layer[key] for key in ("category", "elementClass") if key in layer}
    return VirtualGroup(arrays, {}, {**attrs, **_image(name, boxes, voxel)})


def _magnification(entry: Any) -> Corner:
    stated = entry.get("mag", entry.get("resolution")) if isinstance(entry, Mapping) else entry
    along = [stated] * 3 if isinstance(stated, int) else stated
    if not isinstance(along, list) or len(along) != 3:
        raise SourceFormatError(f"{str(entry)[:100]} is no magnification")
    if not all(type(n) is int and 0 < n < 2**31 for n in along):
        raise SourceFormatError(f"{str(entry)[:100]} is no magnification")
    return along[0], along[1], along[2]


def _folder(files: StoreFiles, layer: str, mag: Corner, entry: Any) -> str:
    """Name of the folder of a magnification: ``2``, or ``2-2-1``."""
    long = "-".join(map(str, mag))
    if len(set(mag)) > 1:
        return long
    short = str(mag[0])
    is_long = files.get(f"{layer}/{short}/header.wkw") is None
    return long if is_long and files.get(f"{layer}/{long}/header.wkw") is not None else short


def _box(bounds: Any, mag: Corner) -> Box | None:
    """The bounding box of a layer in voxels of a magnification; None if none is stated."""
    if bounds is None:
        return None
    try:
        first = [bounds["topLeft"][axis] for axis in range(3)]
        size = [bounds[name] for name in ("width", "height", "depth")]
    except (IndexError, KeyError, TypeError) as error:
        raise SourceFormatError(f"its bounding box is {str(bounds)[:200]}") from error
    if not all(type(n) is int and 0 <= n < 2**40 for n in (*first, *size)) or 0 in size:
        raise SourceFormatError(f"its bounding box is {str(bounds)[:200]}")
    start = [low // m for low, m in zip(first, mag, strict=True)]
    stop = [-(-(low + n) // m) for low, n, m in zip(first, size, mag, strict=True)]
    return Box((start[0], start[1], start[2]), (stop[0], stop[1], stop[2]))


def _image(
    name: str,
    boxes: Mapping[str, tuple[Corner, Box]],
    voxel: tuple[Any, str] | None,
) -> dict[str, Any]:
    """The attribute ``ome`` of a layer; nothing if it has no arrays, or voxels no size."""
    if voxel is None or not boxes:
        return {}
    size, unit = voxel
    levels = {}
    for path, (mag, box) in boxes.items():
        centre = np.array(box.start) * mag + (np.array(mag) - 1) / 2
        levels[path] = Placement([1.0, *(size * mag).tolist()], [0.0, *(size * centre).tolist()])
    return placed_image_attributes(name, levels, DIMS, dict.fromkeys(DIMS[1:], unit)) or {}
