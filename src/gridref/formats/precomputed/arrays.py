"""A neuroglancer precomputed volume as a virtual group: a group with an array for each scale.

Groups ``0``, ``1``, ... are the scales in the order of ``info``, as OME-Zarr names the levels of an
image; the root describes them by its ``multiscales``. Elements are stored with x varying fastest
and channels slowest, so arrays have the dimensions channel, z, y, x, and bytes stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gridref.errors import Place, ScanError, SourceFormatError, UnsupportedFeatureError
from gridref.formats.chunk_files import StoreFiles
from gridref.formats.contiguous import edge_policy
from gridref.formats.findings import Findings
from gridref.formats.options import ScanOptions
from gridref.formats.precomputed.chunks import chunk_files
from gridref.formats.precomputed.info import Scale, Volume, read_info
from gridref.formats.precomputed.shards import shard_manifest
from gridref.limits import limits
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Codec, bytes_codec, shared_encoding
from gridref.model.manifest import Manifest
from gridref.model.ome_zarr import Placement, placed_image_attributes
from gridref.model.scan_report import Fate

_DIMS = ("channel", "z", "y", "x")
_UNIT = "nm"
_CODECS: dict[str, tuple[str, tuple[str, ...], tuple[int, ...]]] = {
    "jpeg": ("gridref.precomputed_jpeg", ("uint8",), (1, 3)),
    "png": ("gridref.precomputed_png", ("uint8", "uint16"), (1, 2, 3, 4)),
    "jxl": ("gridref.precomputed_jpegxl", ("uint8",), (1, 3, 4)),
    "compressed_segmentation": ("gridref.compressed_segmentation", ("uint32", "uint64"), ()),
}
"""Codec, data types and numbers of channels of each encoding; any number where none is given."""


def scan_volume(files: StoreFiles, info: bytes | None, options: ScanOptions) -> VirtualGroup:
    """Describe a volume, whose `info` may have been read; raises as `gridref.formats.scan` does."""
    place = Place(source=files.address("info"))
    data = files.get("info") if info is None else info
    if data is None:
        raise SourceFormatError("there is no file info", place)
    try:
        volume = read_info(data)
    except ScanError as error:
        error.located(place)
        raise
    findings = Findings(files.url)
    groups: dict[str, VirtualGroup] = {}
    for number, scale in enumerate(volume.scales):
        path = f"/{number}/{volume.kind}"
        with findings.refusing(path):
            if isinstance(scale, ScanError):
                raise scale
            groups[str(number)] = _scale_group(files, volume, scale)
            findings.note(path, Fate.TAKEN)
    name = files.url.rpartition("/")[2]
    attrs = {**volume.attrs, **_multiscales(name, volume, groups)}
    return VirtualGroup(groups=groups, attrs=attrs, report=findings.report(options))


def _scale_group(files: StoreFiles, volume: Volume, scale: Scale) -> VirtualGroup:
    """The array of a scale, with the places of voxels along its axes."""
    arrays = {volume.kind: _array(files, volume, scale)}
    axes = zip(_DIMS[1:], scale.shape, scale.offset, scale.resolution, strict=True)
    for dim, length, offset, size in axes:
        if length <= limits().coordinates:
            places = (np.arange(length) + (offset + 0.5)) * size
            arrays[dim] = VirtualArray.from_numpy(places, (dim,), {"units": _UNIT})
    return VirtualGroup(arrays)


def _array(files: StoreFiles, volume: Volume, scale: Scale) -> VirtualArray:
    """Describe a scale: find its chunks.

    Raises
    ------
    UnsupportedFeatureError
        For encodings that are not decoded, or too many chunks.
    """
    codecs = _codecs(volume, scale)
    manifest: Manifest
    if scale.sharding is None:
        manifest, has_gzip = chunk_files(files, scale)
    else:
        manifest, has_gzip = (
            shard_manifest(files, scale, scale.sharding),
            scale.sharding.has_gzip_data,
        )
    if has_gzip:
        codecs = (*codecs, Codec.of("gzip", level=1))
    shape = (volume.n_channels, *scale.shape)
    chunk_shape = (volume.n_channels, *scale.chunk_shape)
    return VirtualArray.of_one_block(
        shape,
        volume.dtype,
        encoding=shared_encoding(
            chunk_shape, volume.dtype, codecs, edge_policy(shape, chunk_shape)
        ),
        manifest=manifest,
        dims=_DIMS,
        attrs={"key": scale.key, "resolution": np.array(scale.resolution[::-1])},
    )


def _codecs(volume: Volume, scale: Scale) -> tuple[Codec, ...]:
    """The codec of an encoding, which arranges voxels as they are in memory."""
    if scale.encoding == "raw":
        return (bytes_codec(volume.dtype),)
    if scale.encoding not in _CODECS:
        raise UnsupportedFeatureError(f"the encoding {scale.encoding[:100]!r} is not decoded")
    name, dtypes, channels = _CODECS[scale.encoding]
    if volume.dtype.name not in dtypes or volume.n_channels not in (
        channels or [volume.n_channels]
    ):
        raise UnsupportedFeatureError(
            f"the encoding {scale.encoding} has no {volume.dtype} of {volume.n_channels} channels"
        )
    if scale.block_shape is not None:
        return (Codec.of(name, block_shape=list(scale.block_shape)),)
    return (Codec(name),)


def _multiscales(name: str, volume: Volume, groups: Mapping[str, VirtualGroup]) -> dict[str, Any]:
    """The attributes of OME-Zarr, with the places and sizes of voxels that ``info`` states."""
    levels = {}
    for key in groups:
        scale = volume.scales[int(key)]
        assert isinstance(scale, Scale)
        first = [
            (offset + 0.5) * size
            for offset, size in zip(scale.offset, scale.resolution, strict=True)
        ]
        levels[f"{key}/{volume.kind}"] = Placement([1.0, *scale.resolution], [0.0, *first])
    if not levels:
        return {}
    return placed_image_attributes(name, levels, _DIMS, dict.fromkeys(_DIMS[1:], _UNIT)) or {}
