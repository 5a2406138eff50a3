"""Turn the images of a TIFF file into groups of virtual arrays.

`build_group` takes the images of a file and returns a group with names, dimensions, coordinates and
attributes:

- A georeferenced image is ``band_data`` with dimensions ``(band, y, x)`` as in rioxarray. Its
  overviews are in groups ``overview_1``, ... with dimensions ``y_1`` and ``x_1``, because a tree
  that xarray opens may not use one name for two lengths on one path. A transparency mask is
  ``mask``.
- Any other file with one image has the array ``image``. A file with several has a group
  ``series_0``, ... for each.
- A pyramid without georeferencing has a group ``0``, ``1``, ... for each level, with ``image`` in
  it. Its samples come before its rows, as in OME-Zarr.
- Tags of text and GDAL's metadata items are attributes of the root.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gridref.errors import Place, UnsupportedFeatureError
from gridref.formats.georeference import SPATIAL_REF, Georeference, mapped
from gridref.formats.scanner import Findings, located
from gridref.formats.tiff.directory import TEXT_TAGS, Tag
from gridref.formats.tiff.geo import georeference_of
from gridref.formats.tiff.images import (
    BandMetadata,
    Image,
    Level,
    TiffStructure,
    read_gdal_metadata,
)
from gridref.formats.tiff.storage import (
    StoredImage,
    jpeg_prefix,
    locate_image,
    page_codecs,
    raw_codecs,
)
from gridref.learned import FORMS
from gridref.limits import limits
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.blocks import BlockTable
from gridref.model.encoding import Encoding, transpose_codec
from gridref.model.grid import ChunkGrid, chunk_counts
from gridref.model.manifest import ChunkManifest
from gridref.model.ome_zarr import axes_order, axis_type, geo_multiscales, image_attributes, omero
from gridref.model.scan_report import Fate

# One image as a virtual array

_AXIS_NAMES = {
    "X": "x",
    "Y": "y",
    "Z": "z",
    "T": "t",
    "C": "c",
    "S": "sample",
    "I": "page",
    "Q": "q",
    "R": "r",
    "P": "p",
    "M": "mosaic",
    "A": "angle",
    "E": "e",
    "L": "l",
    "H": "h",
    "F": "f",
    "V": "v",
    "W": "w",
    "K": "k",
}
"""Dimension name of each axis letter of tifffile."""


def _band_order(axes: str) -> tuple[int, ...]:
    """Order that puts the samples of a georeferenced image before its rows: band, y, x."""
    letters = list(range(len(axes)))
    if "S" in axes:
        letters.remove(axes.index("S"))
        letters.insert(axes.replace("S", "").index("Y"), axes.index("S"))
    return tuple(letters)


def _channel_order(axes: str) -> tuple[int, ...]:
    """Order that puts the samples before the axes of space, as OME-Zarr puts channels.

    An image with both channels and samples keeps its order.
    """
    letters = list(range(len(axes)))
    if axes.count("S") == 1 and "C" not in axes:
        sample = letters.pop(axes.index("S"))
        others = axes.replace("S", "")
        letters.insert(len(others.rstrip("ZYX")), sample)
    return tuple(letters)


def _image_array(
    level: Level,
    stored: StoredImage,
    dims: Sequence[str],
    attrs: Mapping[str, Any],
    order: tuple[int, ...],
    new_axis: int | None,
) -> VirtualArray:
    encodings, encoding_ids = _encodings(level, stored, order, new_axis)
    shape = _arranged(level.shape, order, new_axis)
    manifest = _reordered(level, stored, order)
    assert level.keyframe.dtype is not None
    dtype = level.keyframe.dtype.newbyteorder("=")
    nodata = level.keyframe.nodata
    fill_value = dtype.type(0 if nodata is None else nodata)
    if len(encodings) == 1:
        return VirtualArray.of_one_block(
            shape,
            dtype,
            encoding=encodings[0],
            manifest=manifest,
            dims=dims,
            attrs=attrs,
            fill_value=fill_value,
        )
    return _of_pages(shape, dims, attrs, fill_value, encodings, encoding_ids, stored, manifest)


def _arranged(
    lengths: Sequence[int], order: tuple[int, ...], new_axis: int | None
) -> tuple[int, ...]:
    arranged = [lengths[axis] for axis in order]
    if new_axis is not None:
        arranged.insert(new_axis, 1)
    return tuple(arranged)


def _encodings(
    level: Level, stored: StoredImage, order: tuple[int, ...], new_axis: int | None
) -> tuple[list[Encoding], list[int]]:
    """The distinct encodings of the pages, and the number of each page's encoding."""
    key = level.keyframe
    assert key.dtype is not None
    x_axis = level.axes.rindex("X") - len(level.axes)
    codecs = raw_codecs(key) if stored.raw else page_codecs(key, x_axis)
    chunk_shape = _arranged(stored.chunk_shape, order, new_axis)
    if order != tuple(range(len(order))):
        codecs = (transpose_codec(_stored_order(order, new_axis)), *codecs)
    prefixes: dict[bytes, int] = {}
    ids = []
    for page in level.pages:
        prefix = b"" if stored.raw else jpeg_prefix(page or key)
        ids.append(prefixes.setdefault(prefix, len(prefixes)))
    dtype = key.dtype.newbyteorder("=")
    return [Encoding(chunk_shape, dtype, codecs, stored.edge, prefix) for prefix in prefixes], ids


def _stored_order(order: tuple[int, ...], new_axis: int | None) -> tuple[int, ...]:
    """For each axis of a stored chunk, the number of the array's axis."""
    axes = list(order)
    if new_axis is not None:
        axes.insert(new_axis, -1)
    return tuple(int(axis) for axis in np.argsort(axes))


def _reordered(level: Level, stored: StoredImage, order: tuple[int, ...]) -> ChunkManifest:
    """Manifest rows in C order of the array's axes."""
    if order == tuple(range(len(order))):
        return stored.manifest
    grid_shape = chunk_counts(level.shape, stored.chunk_shape)
    moved = [axis for axis in order if grid_shape[axis] > 1]
    if moved == sorted(moved):
        return stored.manifest
    rows = np.arange(stored.manifest.n_rows).reshape(grid_shape).transpose(order).reshape(-1)
    return stored.manifest.take(rows)


def _of_pages(
    shape: tuple[int, ...],
    dims: Sequence[str],
    attrs: Mapping[str, Any],
    fill_value: Any,
    encodings: list[Encoding],
    encoding_ids: list[int],
    stored: StoredImage,
    manifest: ChunkManifest,
) -> VirtualArray:
    """An array of one block a page, for pages that are encoded differently."""
    n_pages = len(encoding_ids)
    leading, n_blocks = 0, 1
    while n_blocks < n_pages:
        n_blocks *= shape[leading]
        leading += 1
    page_shape = (1,) * leading + shape[leading:]
    single = BlockTable.single(page_shape, encodings[0].chunk_shape)
    blocks = BlockTable(
        np.array(encoding_ids, np.int32),
        np.zeros(n_pages, np.int32),
        np.arange(n_pages, dtype=np.int64) * stored.rows_per_page,
        *(
            np.repeat(column, n_pages, axis=0)
            for column in (single.row_stride, single.stored_shape, single.origin, single.step)
        ),
    )
    return VirtualArray(
        ChunkGrid.regular(shape, page_shape),
        encodings[0].dtype,
        fill_value,
        tuple(dims),
        dict(attrs),
        tuple(encodings),
        (manifest,),
        blocks,
    )


# The images of a file as groups

_PALETTE = 3
_MAX_TEXT_CHARACTERS = 4096


@dataclass(frozen=True)
class _Context:
    """Settings that all images of a file share."""

    structure: TiffStructure
    georeference: Georeference | None
    bands: BandMetadata
    max_chunk_bytes: int
    findings: Findings

    def describe(
        self,
        path: str,
        level: Level,
        dims: Sequence[str],
        attrs: Mapping[str, Any],
        order: tuple[int, ...] | None = None,
        new_axis: int | None = None,
    ) -> VirtualArray | None:
        """Describe one image, or refuse it.

        Parameters
        ----------
        dims
            Dimension names of the result.
        order
            Axes of the image in the order of the result; None keeps them.
        new_axis
            Place of an inserted axis of length 1 in the result; None inserts none.
        """
        attrs = {"tiff_series": level.series, "tiff_level": level.level, **attrs}
        order = order or tuple(range(len(level.shape)))
        with located(Place(variable=f"/{path}")):
            try:
                if level.problem is not None:
                    raise UnsupportedFeatureError(level.problem)
                stored = locate_image(level, self.structure.sources, self.max_chunk_bytes)
                return _image_array(level, stored, dims, attrs, order, new_axis)
            except UnsupportedFeatureError as error:
                self.findings.refuse(f"/{path}", error)
                return None


def build_group(structure: TiffStructure, max_chunk_bytes: int, findings: Findings) -> VirtualGroup:
    """Build the group of a file, and note the findings about it."""
    context = _Context(
        structure,
        georeference_of(structure.tags),
        read_gdal_metadata(_text(structure.tags.get(Tag.GDAL_METADATA)) or ""),
        max_chunk_bytes,
        findings,
    )
    group = _plain_file(context) if context.georeference is None else _geo_file(context)
    group = group.with_changes(attrs={**_texts(context), **group.attrs})
    for path, array in group.all_arrays().items():
        if "tiff_series" in array.attrs:
            findings.note(f"/{path}", Fate.TAKEN)
    if context.georeference is not None and context.georeference.unknown_crs:
        reason = "the coordinate reference system is not understood: coordinates have no CRS"
        findings.note(f"/{SPATIAL_REF}", Fate.INLINED, reason)
    return group


def _texts(context: _Context) -> dict[str, str]:
    """Attributes of the whole file, with GDAL's names."""
    texts = {
        name: text.strip()
        for code, name in TEXT_TAGS.items()
        if (text := _text(context.structure.tags.get(code))) and len(text) <= _MAX_TEXT_CHARACTERS
    }
    return {**texts, **context.bands.items}


def _plain_file(context: _Context) -> VirtualGroup:
    images = context.structure.images
    if len(images) == 1:
        return _plain_image(context, images[0], "")
    groups = {
        f"series_{number}": _plain_image(context, image, f"series_{number}/")
        for number, image in enumerate(images)
    }
    return VirtualGroup(groups={name: group for name, group in groups.items() if _holds(group)})


def _plain_image(context: _Context, image: Image, prefix: str) -> VirtualGroup:
    if len(image.levels) == 1:
        (level,) = image.levels
        group = _plain_level(context, image, level, f"{prefix}image", _order(image, level))
        if not image.is_microscopy or "image" not in group.arrays:
            return group
        return group.with_changes(attrs=_ome_attributes(image, {"image": group.arrays["image"]}))
    groups = {
        str(level.level): _plain_level(
            context, image, level, f"{prefix}{level.level}/image", _order(image, level)
        )
        for level in image.levels
    }
    groups = {name: group for name, group in groups.items() if group.arrays}
    arrays = {f"{name}/image": group.arrays["image"] for name, group in groups.items()}
    return VirtualGroup(groups=groups, attrs=_ome_attributes(image, arrays))


def _order(image: Image, level: Level) -> tuple[int, ...]:
    """The order of axes: OME-Zarr's for pyramids and OME-TIFF, and that of the file for others."""
    if image.kind != "ome" and len(image.levels) == 1:
        return tuple(range(len(level.axes)))
    order = _channel_order(level.axes)
    if image.kind != "ome":
        return order
    names = _dim_names(level.axes)
    return tuple(order[place] for place in axes_order([names[axis] for axis in order]))


def _ome_attributes(image: Image, levels: Mapping[str, VirtualArray]) -> dict[str, Any]:
    """The attributes of an image in OME-Zarr; none if OME-Zarr cannot describe it."""
    if not levels:
        return {}
    finest = next(iter(levels.values()))
    shapes = [array.shape for array in levels.values()]
    sizes = {_AXIS_NAMES.get(axis, ""): size for axis, size in image.pixel_sizes.items()}
    attrs = image_attributes(image.name, list(levels), shapes, finest.dims, sizes)
    n_channels = math.prod(
        extent
        for dim, extent in zip(finest.dims, finest.shape, strict=True)
        if axis_type(dim) == "channel"
    )
    channels = image.pixels.channels
    if attrs is not None and len(channels) == n_channels:
        attrs["ome"]["omero"] = omero(channels, finest.dtype, image.pixels.bits)
    return attrs or {}


def _plain_level(
    context: _Context, image: Image, level: Level, path: str, order: Sequence[int]
) -> VirtualGroup:
    """One resolution of an image, its axes in some order, with coordinates and color map."""
    names = _dim_names(level.axes)
    dims = tuple(names[axis] for axis in order)
    attrs = _band_attributes(context, image.levels[0])
    if image.name:
        attrs["long_name"] = image.name
    if image.channel_names:
        attrs["channel_names"] = list(image.channel_names)
    array = context.describe(path, level, dims, attrs, tuple(order))
    if array is None:
        return VirtualGroup()
    arrays = {"image": array, **_color_map(context, level)}
    finest = image.levels[0]
    for axis, dim, length in zip(level.axes, names, level.shape, strict=True):
        if axis in image.pixel_sizes and length <= limits().coordinates:
            step, unit = image.pixel_sizes[axis]
            step *= finest.shape[finest.axes.index(axis)] / length
            arrays[dim] = VirtualArray.from_numpy(
                (np.arange(length) + 0.5) * step, (dim,), {"units": unit} if unit else {}
            )
    return VirtualGroup(arrays)


def _dim_names(axes: str) -> tuple[str, ...]:
    """Dimension names; a repeated letter gets a number after its name."""
    names: list[str] = []
    for axis in axes:
        name = _AXIS_NAMES.get(axis, f"axis_{axis.lower()}")
        names.append(name if name not in names else f"{name}_{len(names)}")
    return tuple(names)


def _geo_file(context: _Context) -> VirtualGroup:
    """A georeferenced file: its first series at the root, masks beside it, others in groups."""
    assert context.georeference is not None
    first, *others = context.structure.images
    masks = [image for image in others if image.levels[0].keyframe.is_mask]
    kind = {"AREA_OR_POINT": context.georeference.area_or_point}
    attrs = mapped({**kind, **_band_attributes(context, first.levels[0])})
    nodes = [_geo_level(context, first, level, masks, attrs) for level in first.levels]
    root, *overviews = nodes
    groups = {f"overview_{number}": node for number, node in enumerate(overviews, 1) if node.arrays}
    for image in others:
        if image not in masks or not _fits(image.levels[0], first.levels[0]):
            name = f"series_{image.levels[0].series}"
            node = _plain_image(context, image, f"{name}/")
            if _holds(node):
                groups[name] = node
    pyramid = [("", root), *((f"{name}/", node) for name, node in groups.items())]
    paths = [f"{path}band_data" for path, node in pyramid if "band_data" in node.arrays]
    about: dict[str, Any] = {}
    if len(paths) > 1 and "band_data" in root.arrays:
        shapes = [
            node.arrays["band_data"].shape for _, node in pyramid if "band_data" in node.arrays
        ]
        about.update(geo_multiscales(paths, shapes, root.arrays["band_data"].dims))
    return VirtualGroup(root.arrays, groups, about)


def _fits(level: Level, other: Level) -> bool:
    """Whether two images have the same rows and columns."""
    return all(_length(level, axis) == _length(other, axis) for axis in "YX")


def _length(level: Level, axis: str) -> int:
    return level.shape[level.axes.index(axis)] if axis in level.axes else 1


def _geo_level(
    context: _Context, image: Image, level: Level, masks: list[Image], attrs: Mapping[str, Any]
) -> VirtualGroup:
    """One resolution of a georeferenced image, with its coordinates and mask."""
    assert context.georeference is not None
    suffix = f"_{level.level}" if level.level else ""
    prefix = f"overview_{level.level}/" if level.level else ""
    y, x = f"y{suffix}", f"x{suffix}"
    order = _band_order(level.axes)
    axes = "".join(level.axes[axis] for axis in order)
    single = "S" not in axes and len(axes) == 2
    names = {"Y": y, "X": x, "S": "band"}
    dims = [names.get(axis, _AXIS_NAMES.get(axis, axis.lower())) for axis in axes]
    dims = ["band", *dims] if single else dims
    n_bands = _length(level, "S")
    new_axis = 0 if single else None
    array = context.describe(f"{prefix}band_data", level, dims, attrs, order, new_axis)
    if array is None:
        return VirtualGroup()
    n_rows, n_columns = _length(level, "Y"), _length(level, "X")
    finest = image.levels[0]
    georeference = context.georeference.scaled(
        _length(finest, "X") / n_columns, _length(finest, "Y") / n_rows
    )
    arrays = {"band_data": array, **georeference.coordinates(n_rows, n_columns, y, x)}
    arrays.update(_color_map(context, level))
    if "band" in dims:
        arrays["band"] = _band_numbers(n_bands)
    for mask in masks:
        for candidate in mask.levels:
            if _fits(candidate, level) and candidate.axes == "YX":
                shown = context.describe(f"{prefix}mask", candidate, (y, x), mapped({}))
                if shown is not None:
                    arrays["mask"] = shown
    return VirtualGroup(arrays)


@FORMS.keeps(lambda numbers, _: 2000 + numbers.nbytes)
def _band_numbers(n_bands: int) -> VirtualArray:
    """Bands count from 1."""
    return VirtualArray.from_numpy(np.arange(1, n_bands + 1), ("band",))


def _band_attributes(context: _Context, level: Level) -> dict[str, Any]:
    """Nodata, scale and offset, names and units of the bands."""
    n_bands = _length(level, "S")
    has_bands = "S" in level.axes or len(level.axes) == 2
    bands, nodata = context.bands, level.keyframe.nodata
    attrs: dict[str, Any] = {}
    if nodata is not None and not isinstance(nodata, np.bool_):
        attrs["_FillValue"] = nodata
    if level.series or (context.georeference is None and len(level.pages) > 1):
        return attrs  # the metadata are those of the first page
    for name, values, default in (
        ("scale", bands.scales, 1.0),
        ("offset", bands.offsets, 0.0),
    ):
        listed = [values.get(band, default) for band in range(n_bands)]
        if len(set(listed)) > 1:
            attrs[f"{name}s"] = np.array(listed)
        elif listed and listed[0] != default:
            attrs[{"scale": "scale_factor", "offset": "add_offset"}[name]] = listed[0]
    for name, texts in (("long_name", bands.descriptions), ("units", bands.units)):
        if texts and has_bands:
            names = [texts.get(band, "") for band in range(n_bands)]
            attrs[name] = names[0] if len(set(names)) == 1 and n_bands == 1 else names
    return attrs


def _color_map(context: _Context, level: Level) -> dict[str, VirtualArray]:
    """The palette of the first image, if it has one (TIFF 6.0, Section 5)."""
    values = context.structure.tags.get(Tag.COLOR_MAP)
    if values is None or level.keyframe.photometric != _PALETTE or level.series or level.level:
        return {}
    colors = np.asarray(values).reshape(-1)
    if colors.dtype != np.uint16 or not colors.size or colors.size % 3:
        return {}
    return {"color_map": VirtualArray.from_numpy(colors.reshape(3, -1), ("rgb", "color"))}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _holds(group: VirtualGroup) -> bool:
    return bool(group.arrays or group.groups)
