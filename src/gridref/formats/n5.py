"""N5 containers, in a folder or on a server: groups, datasets, and pyramids of them.

Every folder is a group; ``attributes.json`` with dimensions makes it a dataset. Servers that list
no folders are asked for the datasets that a pyramid's attributes name, or for ``s0``, ``s1`` and so
on, as pyramids call them. Dimensions are in the order of ``attributes.json``, the fastest one
first, as tensorstore shows them. Each block is a file with a header, which the codec ``n5_default``
checks.

There is no standard for pyramids. Two conventions for their levels and voxel sizes are read:

- the attribute ``multiscales`` of the group, with a ``transform`` for each dataset (COSEM,
  OpenOrganelle). Its axes are in the order of numpy, the slowest one first, unless ``ordering``
  is ``"F"``;
- datasets ``s0``, ``s1`` and so on with ``downsamplingFactors``, which may be on the group, and
  ``pixelResolution`` or ``resolution`` of the group or of ``s0`` (n5-viewer, Paintera,
  BigDataViewer). A coarse voxel covers those that it stands for: its centre is moved by
  ``(factor - 1) / 2`` voxels of ``s0``.

Both become the attribute ``ome`` of OME-Zarr 0.5.

Sources: https://github.com/saalfeldlab/n5 (file-system specification),
https://github.com/janelia-cosem/schemas, https://github.com/saalfeldlab/n5-viewer,
https://github.com/saalfeldlab/paintera, https://ngff.openmicroscopy.org/0.5/.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gridref.errors import (
    Place,
    SourceFormatError,
    SourceUnavailableError,
    UnsupportedFeatureError,
    number_of,
)
from gridref.formats.chunks import StoreFiles, array_name, check_chunk_files, whole_files
from gridref.formats.location import Location
from gridref.formats.metadata import attributes_from_json, dimension_names, json_object
from gridref.formats.scanner import Findings, ScanOptions
from gridref.model.array import VirtualArray, VirtualGroup, path_in
from gridref.model.encoding import Codec, Encoding, blosc_codec, bytes_codec, transpose_codec
from gridref.model.grid import chunk_counts
from gridref.model.ome_zarr import Placement, placed_image_attributes

# Groups


_VERSION = "n5"
_MOST_PROBED = 64


def scan(location: Location, options: ScanOptions) -> VirtualGroup:
    """Describe a container, or a part of one; raises as `gridref.formats.scan` does.

    A container that is one dataset becomes a group with that array, named as the folder.
    """
    files = StoreFiles.at(location, options)
    found = _Scan(files, options)
    attrs = found.attributes("")
    if attrs is not None and is_dataset(attrs):
        group = found.group_of({array_name(files.url): ("", attrs)}, {}, {}, "")
    else:
        group = found.group("", attrs or {})
    if attrs is None and not group.arrays and not group.groups:
        raise SourceFormatError("no attributes.json is there", Place(source=files.url))
    return group.with_changes(report=found.findings.report(options))


class _Scan:
    def __init__(self, files: StoreFiles, options: ScanOptions) -> None:
        self.findings = Findings(files.url)
        self._files = files
        self._n_objects, self._max_objects = 0, options.max_objects

    def group(self, path: str, attrs: Mapping[str, Any]) -> VirtualGroup:
        """Describe a group and all below it."""
        datasets: dict[str, tuple[str, Mapping[str, Any]]] = {}
        groups: dict[str, VirtualGroup] = {}
        for name, below, own in self._members(path, attrs):
            if own is not None and is_dataset(own):
                datasets[name] = (below, own)
            elif not self.findings.is_too_deep(below):
                member = self.group(below, own or {})
                if own is not None or member.arrays or member.groups:
                    groups[name] = member
        return self.group_of(datasets, groups, attrs, path)

    def group_of(
        self,
        datasets: Mapping[str, tuple[str, Mapping[str, Any]]],
        groups: Mapping[str, VirtualGroup],
        attrs: Mapping[str, Any],
        path: str,
    ) -> VirtualGroup:
        """A group of datasets by name, each with its path and attributes."""
        phony: dict[int, list[str]] = {}
        arrays: dict[str, VirtualArray] = {}
        for name, (below, own) in datasets.items():
            with self.findings.taking(f"/{below or name}"):
                shape = shape_of(own)
                dims = dimension_names(axis_names(own, attrs, len(shape)), shape, phony)
                arrays[name] = array_of(self._files, below, own, dims)
        levels = {name: datasets[name][1] for name in arrays}
        shown = {key: value for key, value in attrs.items() if key != _VERSION}
        about = pyramid_attributes(path.rpartition("/")[2], shown, levels, arrays)
        return VirtualGroup(arrays, dict(groups), attributes_from_json({**about, **shown}, None))

    def _members(
        self, path: str, attrs: Mapping[str, Any]
    ) -> Iterator[tuple[str, str, Mapping[str, Any] | None]]:
        """Name, path and attributes of what is in a group."""
        try:
            names = self._files.folders(path)
        except SourceUnavailableError:
            if not self._files.url.startswith(("http://", "https://")):
                raise
            names = []
        if not names and self._files.url.startswith(("http://", "https://")):
            yield from self._asked_for(path, attrs)
            return
        for name in names:
            if name.startswith("."):
                continue
            below = path_in(path, name)
            own = self.attributes(below)
            if own is not None or not name.isdecimal():  # such folders hold blocks
                yield name, below, own

    def _asked_for(
        self, path: str, attrs: Mapping[str, Any]
    ) -> Iterator[tuple[str, str, Mapping[str, Any] | None]]:
        """What is in a group of a server that does not list folders, as far as it has a name."""
        found = False
        stated = named_datasets(attrs)
        for name in stated or (f"s{level}" for level in range(_MOST_PROBED)):
            below = path_in(path, name)
            own = self.attributes(below)
            if own is not None:
                found = True
                yield name, below, own
            elif not stated:
                break
        if not found and not path:
            reason = (
                "the server lists no folders, and attributes.json names no datasets: scan the"
                " attributes.json of a dataset, or list datasets in the attribute multiscales"
            )
            raise SourceFormatError(reason, Place(source=self._files.url))

    def attributes(self, path: str) -> Mapping[str, Any] | None:
        """The attributes of a folder; None if it has none."""
        self._n_objects += 1
        if self._n_objects > self._max_objects:
            reason = f"there are more folders than max_objects, {self._max_objects}"
            raise SourceFormatError(reason, Place(source=self._files.url))
        key = path_in(path, "attributes.json")
        data = self._files.get(key)
        return None if data is None else json_object(data, self._files.address(key))


# Datasets


_DATA_TYPES = frozenset(
    ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"]
)
_BLOSC_NAMES = frozenset({"blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd"})
_OWN = frozenset({"dimensions", "blockSize", "dataType", "compression", "compressionType"})
_MOST_DIMENSIONS = 32
_MOST_BLOCK_BYTES = 2**31
"""The specification's limit."""


def is_dataset(attrs: Mapping[str, Any]) -> bool:
    """Whether these are the attributes of a dataset; else they are those of a group."""
    return "dimensions" in attrs and "dataType" in attrs


def array_of(
    files: StoreFiles, path: str, attrs: Mapping[str, Any], dims: Sequence[str]
) -> VirtualArray:
    """Describe a dataset: find the files of its blocks.

    Parameters
    ----------
    path
        Path of the dataset; empty if it is the whole container.
    attrs
        Its ``attributes.json``.
    dims
        Names of its dimensions.
    """
    shape, block_shape = shape_of(attrs), _lengths(attrs, "blockSize", 1)
    if len(block_shape) != len(shape):
        raise SourceFormatError(
            f"blockSize {list(block_shape)} for {number_of(len(shape), 'dimension')}"
        )
    dtype = _dtype(attrs["dataType"])
    if math.prod(block_shape) * dtype.itemsize > _MOST_BLOCK_BYTES:
        raise SourceFormatError(f"blocks of shape {list(block_shape)} are larger than 2 GiB")
    counts = chunk_counts(shape, block_shape)
    check_chunk_files(math.prod(counts))
    head = f"{path}/" if path else ""
    names = (map(str, range(count)) for count in counts)
    keys = [head + "/".join(key) for key in itertools.product(*names)]
    return VirtualArray.of_one_block(
        shape,
        dtype,
        encoding=Encoding(block_shape, dtype, (_block_codec(attrs, dtype, len(shape)),)),
        manifest=whole_files(files, keys, path),
        dims=dims,
        attrs=attributes_from_json({k: v for k, v in attrs.items() if k not in _OWN}, None),
    )


def shape_of(attrs: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape of a dataset, checked."""
    return _lengths(attrs, "dimensions", 0)


def _lengths(attrs: Mapping[str, Any], name: str, least: int) -> tuple[int, ...]:
    lengths = attrs.get(name)
    if not isinstance(lengths, list) or not 0 < len(lengths) <= _MOST_DIMENSIONS:
        raise SourceFormatError(f"{name} is {str(lengths)[:100]}, expected a list of lengths")
    if not all(type(length) is int and least <= length < 2**63 for length in lengths):
        raise SourceFormatError(f"{name} is {str(lengths)[:100]}, expected whole numbers")
    return tuple(lengths)


def _dtype(name: Any) -> np.dtype[Any]:
    if name not in _DATA_TYPES:
        raise UnsupportedFeatureError(f"the data type {str(name)[:100]!r} is not read")
    dtype: np.dtype[Any] = np.dtype(name)
    return dtype


def _block_codec(attrs: Mapping[str, Any], dtype: np.dtype[Any], ndim: int) -> Codec:
    inside = [
        transpose_codec(tuple(range(ndim))[::-1]),
        bytes_codec(dtype, big_endian=True),
        *_compressors(attrs, dtype),
    ]
    return Codec.of("n5_default", codecs=[codec.to_json() for codec in inside])


def _compressors(attrs: Mapping[str, Any], dtype: np.dtype[Any]) -> list[Codec]:
    """The compressor of blocks; before version 2 of N5 only its name was stated."""
    settings = attrs.get("compression", {"type": attrs.get("compressionType", "gzip")})
    kind = settings.get("type") if isinstance(settings, Mapping) else settings
    if kind == "raw":
        return []
    if kind == "gzip" and isinstance(settings, Mapping) and settings.get("useZlib") is True:
        return [Codec("numcodecs.zlib")]
    if kind == "blosc" and isinstance(settings, Mapping):
        return [_blosc(settings, dtype)]
    plain = {
        "gzip": Codec.of("gzip", level=6),
        "bzip2": Codec.of("numcodecs.bz2"),
        "xz": Codec.of("numcodecs.lzma"),
        "zstd": Codec.of("zstd", level=3, checksum=False),
        "lz4": Codec("gridref.n5_lz4"),
    }
    if kind not in plain:
        raise UnsupportedFeatureError(f"the compression {str(kind)[:100]!r} is not read")
    return [plain[kind]]


def _blosc(settings: Mapping[str, Any], dtype: np.dtype[Any]) -> Codec:
    """Blosc says in each block how it is compressed: these settings are for other readers."""
    stated: Any = map(settings.get, ("cname", "clevel", "shuffle"))
    name, level, shuffle = stated
    return blosc_codec(
        name if name in _BLOSC_NAMES else "blosclz",
        level if level in range(10) else 5,
        shuffle if shuffle in (0, 1, 2) else 0,
        dtype.itemsize,
    )


# Pyramids


type Numbers = tuple[float, ...]

_SPACE = ("x", "y", "z")
_SIZES = ("pixelResolution", "resolution")
_FACTORS = ("downsamplingFactors", "scales")


@dataclass(frozen=True)
class _Placed:
    """Where a level is: its axes, voxel size, centre of the first voxel, and unit of each axis."""

    axes: tuple[str, ...]
    scale: Numbers
    translation: Numbers
    units: tuple[str, ...]


# What attributes say


def _numbers(value: Any, n: int | None = None) -> Numbers | None:
    """Finite numbers of a list, so many; None if there are none."""
    if not isinstance(value, list) or not value or n not in (None, len(value)):
        return None
    if not all(type(each) in (int, float) and math.isfinite(each) for each in value):
        return None
    return tuple(map(float, value))


def _texts(value: Any, n: int) -> tuple[str, ...] | None:
    if isinstance(value, list) and len(value) == n and all(isinstance(v, str) for v in value):
        return tuple(value)
    return None


def _size(attrs: Mapping[str, Any], n: int) -> tuple[Numbers, tuple[str, ...]] | None:
    """Size of a voxel, and its units."""
    for name in _SIZES:
        value: Any = attrs.get(name)
        unit: Any = attrs.get("units")
        if isinstance(value, Mapping):
            value, unit = value.get("dimensions"), value.get("unit")
        size = _numbers(value, n)
        if size is not None and min(size) > 0:
            units = _texts(unit, n) or ((unit if isinstance(unit, str) else "",) * n)
            return size, units
    return None


def _transform(value: Any) -> _Placed | None:
    """A transform of COSEM, in the order of the dataset's dimensions."""
    if not isinstance(value, Mapping):
        return None
    scale = _numbers(value.get("scale"))
    if scale is None or min(scale) <= 0:
        return None
    n = len(scale)
    axes, units = _texts(value.get("axes"), n), _texts(value.get("units"), n)
    translation = _numbers(value.get("translate"), n)
    if axes is None or units is None or translation is None or len(set(axes)) < n:
        return None
    order = 1 if value.get("ordering") == "F" else -1
    return _Placed(axes[::order], scale[::order], translation[::order], units[::order])


def _multiscales(attrs: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = attrs.get("multiscales")
    entries = listed if isinstance(listed, list) else []
    return [entry for entry in entries if isinstance(entry, Mapping) and _paths(entry)]


def _paths(entry: Mapping[str, Any]) -> list[str]:
    """Paths of the datasets that an entry of ``multiscales`` lists."""
    datasets = entry.get("datasets")
    if not isinstance(datasets, list) or not all(isinstance(each, Mapping) for each in datasets):
        return []
    paths = [each.get("path") for each in datasets]
    return [path for path in paths if isinstance(path, str)] if all(paths) else []


def named_datasets(attrs: Mapping[str, Any]) -> list[str]:
    """Names of datasets in a group that its attributes state."""
    listed = [path for entry in _multiscales(attrs) for path in _paths(entry)]
    names = [path for path in listed if path and "/" not in path and path not in (".", "..")]
    if names:
        return list(dict.fromkeys(names))
    factors = _listed_factors(attrs)
    nested = bool(factors) and all(isinstance(each, list) for each in factors)
    return [f"s{level}" for level in range(len(factors))] if nested else []


def _listed_factors(attrs: Mapping[str, Any]) -> list[Any]:
    """Downsampling factors of all levels, as attributes of a group list them."""
    lists = (attrs[name] for name in _FACTORS if isinstance(attrs.get(name), list))
    return next(lists, [])


def axis_names(
    attrs: Mapping[str, Any], above: Mapping[str, Any], ndim: int
) -> tuple[str, ...] | None:
    """Names of a dataset's dimensions, from its attributes and those of its group.

    Writers of voxel sizes mean x, y and z, in this order. None if nothing says what they are.
    """
    axes = _texts(attrs.get("axes"), ndim)
    if axes is not None and len(set(axes)) == ndim and all(axes):
        return axes
    placed = _transform(attrs.get("transform"))
    if placed is not None and len(placed.axes) == ndim:
        return placed.axes
    sized = any(name in each for name in (*_SIZES, *_FACTORS) for each in (attrs, above))
    return _SPACE if sized and ndim == len(_SPACE) else None


# Levels


def pyramid_attributes(
    name: str,
    attrs: Mapping[str, Any],
    levels: Mapping[str, Mapping[str, Any]],
    arrays: Mapping[str, VirtualArray],
) -> dict[str, Any]:
    """The attributes of OME-Zarr for a group.

    Parameters
    ----------
    levels
        Attributes of its datasets.
    arrays
        The datasets.

    Returns
    -------
    dict
        Empty if they are no pyramid, or if nothing says how large their voxels are.
    """
    if "ome" in attrs:
        return {}
    images = []
    for entry in _multiscales(attrs):
        named = {str(each["path"]): _transform(each.get("transform")) for each in entry["datasets"]}
        images += _image(str(entry.get("name") or name), named, arrays)
    if not images:
        images = _image(name, _by_factors(attrs, levels, arrays), arrays)
    return {"ome": {"version": "0.5", "multiscales": images}} if images else {}


def _by_factors(
    attrs: Mapping[str, Any],
    levels: Mapping[str, Mapping[str, Any]],
    arrays: Mapping[str, VirtualArray],
) -> dict[str, _Placed | None]:
    """The places of ``s0``, ``s1`` and so on; none if their sizes contradict each other."""
    names = list(itertools.takewhile(levels.__contains__, map("s{}".format, itertools.count())))
    if not names:
        return {}
    n = arrays["s0"].ndim
    stated = _size(attrs, n) or _size(levels["s0"], n)
    offset = _numbers(attrs.get("offset"), n) or (0.0,) * n
    if stated is None:
        return {}
    size, units = stated
    listed = _listed_factors(attrs)
    placed: dict[str, _Placed | None] = {}
    for number, name in enumerate(names):
        above = listed[number] if len(listed) == len(names) else None
        factors = _numbers(levels[name].get("downsamplingFactors"), n) or _numbers(above, n)
        if factors is None and number == 0:
            factors = (1.0,) * n
        if factors is None or min(factors) <= 0:
            return {}
        scale = tuple(map(float.__mul__, size, factors))
        own = _size(levels[name], n)
        if own is not None and own[0] not in (size, scale):
            return {}
        moved = [o + s * (f - 1) / 2 for o, s, f in zip(offset, size, factors, strict=True)]
        placed[name] = _Placed(arrays[name].dims, scale, tuple(moved), units)
    return placed


def _image(
    name: str, placed: Mapping[str, _Placed | None], arrays: Mapping[str, VirtualArray]
) -> list[dict[str, Any]]:
    """An entry of OME-Zarr's ``multiscales``; none if it cannot describe the levels."""
    if not placed or not all(path in arrays for path in placed):
        return []
    shapes = [arrays[path].shape for path in placed]
    first = next(iter(placed.values()))
    if first is None or any(len(shape) != len(first.axes) or 0 in shape for shape in shapes):
        return []
    levels = {}
    for path, level in placed.items():
        if level is None or level.units != first.units or len(level.axes) != len(first.axes):
            return []
        levels[path] = Placement(level.scale, level.translation)
    units = dict(zip(first.axes, first.units, strict=True))
    made = placed_image_attributes(name, levels, first.axes, units)
    return [] if made is None else [*made["ome"]["multiscales"]]
