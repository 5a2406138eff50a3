"""Convert gridref's groups to VirtualiZarr's manifests, and back.

A `ManifestArray` is one regular chunk grid with one chain of codecs, so only what the native view
shows on a regular grid can be said. Small arrays that it does not show are written into the
manifest, decoded.

Source: VirtualiZarr's documentation, "Custom parsers" and "Data structures" (2.8).
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from zarr.core.metadata.v3 import ArrayV3Metadata
from zarr.storage import MemoryStore

from gridref.api.readable import Sources, readable, reader_for
from gridref.api.scan import scan
from gridref.errors import InvalidRequestError
from gridref.extras import needed_for
from gridref.faces.exports.references import (
    INLINE_LIMIT_BYTES,
    Coords,
    Export,
    Target,
)
from gridref.faces.zarr.store import open_store
from gridref.formats import ScanOptions
from gridref.formats.kerchunk import Reference, parse_references, scan_references
from gridref.formats.parsers import references_of_manifests
from gridref.io.address import options_of_store, uri_of
from gridref.model.array import VirtualGroup, path_in
from gridref.model.conventions import MEANING_ATTRIBUTES, listed_coordinates
from gridref.model.grid import ChunkGrid
from gridref.model.zarr_metadata import ArrayMetadata
from gridref.options import option_values
from gridref.serve.views import View, ViewOptions

with needed_for("gridref.virtualizarr"):
    from virtualizarr.manifests import (
        ChunkManifest,
        ManifestArray,
        ManifestGroup,
        ManifestStore,
    )
    from virtualizarr.xarray import replace_virtual_with_loadable_vars

__all__ = ["Parser", "from_virtualizarr", "to_virtualizarr"]

_TARGET = Target("VirtualiZarr's manifests", ViewOptions(View.NATIVE, grid="regular"))
_INLINED, _MISSING = "__inlined__", ""
"""What VirtualiZarr writes in place of addresses."""

_CF_ENCODING = frozenset((*MEANING_ATTRIBUTES, "dtype"))
"""Encoding that says what stored values mean."""


class Parser:
    """Scans files for VirtualiZarr's ``open_virtual_dataset(url, registry, parser)``.

    Parameters
    ----------
    inline_limit
        Largest size in bytes, decoded, of an array that is written into the manifest where its
        chunks cannot be referenced.
    **options
        Fields of `ScanOptions`, like ``storage_options`` and ``on_unsupported``.

    Notes
    -----
    Metadata is read by gridref. Where no `storage_options` are given, it takes over endpoint,
    region and credentials of an ``S3Store`` that the registry holds for the address.
    """

    def __init__(self, *, inline_limit: int = INLINE_LIMIT_BYTES, **options: Any) -> None:
        self.inline_limit = inline_limit
        self.options = ScanOptions(**options)

    def __call__(self, url: str, registry: Any) -> ManifestStore:
        """The manifests of a file.

        Raises
        ------
        ScanError
            As `gridref.scan` does.
        NotRepresentableError
            Naming every array that manifests cannot express, and why.
        """
        options = option_values(self.options)
        if self.options.storage_options is None:
            options = {**options, "storage_options": _storage_options(url, registry)}
        group = scan(url, **options)
        manifests = _manifest_group(group, self.inline_limit, options["storage_options"])
        return ManifestStore(manifests, registry=registry)


def to_virtualizarr(
    group: VirtualGroup,
    *,
    loadable_variables: Iterable[Hashable] | None = None,
    inline_limit: int = INLINE_LIMIT_BYTES,
    storage_options: Mapping[str, Any] | None = None,
) -> xr.Dataset | xr.DataTree:
    """A group as a virtual dataset of VirtualiZarr.

    Parameters
    ----------
    group
        What was scanned, combined or opened.
    loadable_variables
        Names of variables to load; by default coordinates of their dimensions.
    inline_limit
        Largest size in bytes, decoded, of an array that is written into its manifest where its
        chunks cannot be referenced.
    storage_options
        Options of the sources' filesystems, to load variables and arrays that are written decoded.

    Returns
    -------
    xarray.Dataset or xarray.DataTree
        Of `ManifestArray`; a tree where there are groups in the group.

    Raises
    ------
    NotRepresentableError
        Naming every array that manifests cannot express, and why.

    Examples
    --------
    >>> virtual = to_virtualizarr(gridref.open_catalog("cube.gridref"))  # doctest: +SKIP
    >>> virtual.vz.to_icechunk(session.store)  # doctest: +SKIP
    """
    store = open_store(group, storage_options=storage_options)
    manifests = _manifest_group(group, inline_limit, storage_options).to_virtual_datasets()
    names = None if loadable_variables is None else list(loadable_variables)
    datasets = {
        path: replace_virtual_with_loadable_vars(
            virtual, xr.open_zarr(store, group=path, consolidated=False, chunks=None), names
        )
        for path, virtual in manifests.items()
    }
    return xr.DataTree.from_dict(datasets) if group.groups else datasets[""]


def from_virtualizarr(
    virtual: xr.Dataset | xr.DataTree | ManifestStore | ManifestGroup, **options: Any
) -> VirtualGroup:
    """The group that VirtualiZarr's manifests stand for.

    Parameters
    ----------
    virtual
        A virtual dataset or tree, or what a parser of VirtualiZarr returns. Loaded variables are
        kept in the group by value.
    **options
        Fields of `ScanOptions`.

    Raises
    ------
    InvalidRequestError
        If it holds no manifests, or a loaded variable of more than `max_inline_bytes`.
    SourceFormatError
        If a manifest contradicts its metadata, or reaches beyond the end of a file.
    UnsupportedFeatureError
        For data types and codecs that gridref does not know.
    """
    scanned = ScanOptions(**{"allow": "*", **options})
    references: dict[str, bytes | Reference] = {}
    if isinstance(virtual, ManifestStore):
        virtual = _root_of(virtual)
    if isinstance(virtual, ManifestGroup):
        references = references_of_manifests(virtual)
    else:
        for path, dataset in _datasets(virtual).items():
            head = f"{path}/" if path else ""
            _check_loaded(dataset, head, scanned.max_inline_bytes)
            references |= {f"{head}{key}": held for key, held in _references(dataset).items()}
    group = scan_references("virtualizarr", references, scanned)
    return readable(group, Sources(scanned.storage_options))


def _storage_options(url: str, registry: Any) -> dict[str, Any] | None:
    """Options of s3fs that say what the registry's store for an address does."""
    if not url.startswith("s3://"):
        return None
    store, _ = registry.resolve(url)
    return options_of_store(store)


def _manifest_group(
    group: VirtualGroup, inline_limit: int, storage_options: Mapping[str, Any] | None
) -> ManifestGroup:
    export = Export.of(group, _TARGET, reader_for(storage_options), inline_limit)
    export.refuse()
    return _manifests_below(export, group, "")


def _manifests_below(export: Export, group: VirtualGroup, path: str) -> ManifestGroup:
    document = export.space.document(path) or {}
    # VirtualiZarr looks in the group for what arrays list.
    listed = listed_coordinates(group.arrays.values(), group.attrs) & group.arrays.keys()
    return ManifestGroup(
        {name: _manifest_array(export, path_in(path, name)) for name in group.arrays},
        {
            name: _manifests_below(export, below, path_in(path, name))
            for name, below in group.groups.items()
        },
        {**document.get("attributes", {}), "coordinates": " ".join(sorted(listed))},
    )


def _manifest_array(export: Export, path: str) -> ManifestArray:
    view = export.views[path]
    chunk_shape = _without_overhang(view.metadata)
    is_plain = [codec.name for codec in view.metadata.codecs] == ["bytes"]
    most = math.prod(chunk_shape) * view.metadata.dtype.itemsize if is_plain else None
    grid_shape = view.chunk_grid.grid_shape
    paths = np.full(math.prod(grid_shape), _MISSING, np.dtypes.StringDType())
    offsets, lengths = np.zeros((2, len(paths)), np.uint64)
    copied = [np.zeros((0, len(grid_shape)), np.int64)]
    begin = 0
    for box in export.boxes.get(path, ()):
        held = box.references
        in_file = held.present & (held.source >= 0)
        urls = np.array([*(uri_of(source.url) for source in held.sources), _MISSING], paths.dtype)
        rows = np.s_[begin : begin + len(in_file)]
        paths[rows] = urls[np.where(in_file, held.source, -1)]
        offsets[rows] = held.offset
        lengths[rows] = held.length if most is None else np.minimum(held.length, most)
        copied.append(box.coords(np.flatnonzero(held.present & ~in_file)))
        begin += len(in_file)
    by_value = np.concatenate(copied) if path in export.boxes else None
    inlined = {coords: data[:most] for coords, data in export.values(path, by_value)}
    for coords, data in inlined.items():
        row = np.ravel_multi_index(coords, grid_shape) if coords else 0
        paths[row], offsets[row], lengths[row] = _INLINED, 0, len(data)
    grid = ChunkGrid.regular(view.array.shape, chunk_shape).to_json()
    return ManifestArray(
        ArrayV3Metadata.from_dict({**view.metadata.to_json(), "chunk_grid": grid}),
        ChunkManifest.from_arrays(
            paths=paths.reshape(grid_shape),
            offsets=offsets.reshape(grid_shape),
            lengths=lengths.reshape(grid_shape),
            validate_paths=False,
            inlined=inlined,
        ),
    )


def _without_overhang(metadata: ArrayMetadata) -> Coords:
    """The chunk shape, of uncompressed chunks without what lies behind the end of the array.

    VirtualiZarr does not concatenate chunks that are longer than their dimension, as HDF5 has them
    along unlimited ones. What is cut off is the end of a chunk's bytes where the axes before are of
    length 1.
    """
    lengths = list(metadata.grid.to_json()["configuration"]["chunk_shape"])
    if [codec.name for codec in metadata.codecs] == ["bytes"]:
        for axis, extent in enumerate(metadata.grid.shape):
            lengths[axis] = min(lengths[axis], max(1, extent))
            if lengths[axis] > 1:
                break
    return tuple(lengths)


def _root_of(store: ManifestStore) -> ManifestGroup:
    """The group of a store, which has no public name there."""
    root: ManifestGroup = store._group  # noqa: SLF001
    return root


def _datasets(virtual: xr.Dataset | xr.DataTree) -> dict[str, xr.Dataset]:
    """The datasets of a hierarchy by path."""
    if isinstance(virtual, xr.Dataset):
        return {"": virtual}
    if not isinstance(virtual, xr.DataTree):
        raise InvalidRequestError(f"a virtual dataset or tree is wanted, got {type(virtual)}")
    return {
        path.removeprefix("."): node.to_dataset(inherit=False)
        for path, node in virtual.subtree_with_keys
    }


def _loaded(dataset: xr.Dataset) -> list[Hashable]:
    """The variables without a manifest; what is lazy is not read to find out."""
    held = {name: getattr(v, "_data", None) for name, v in dataset.variables.items()}
    return [name for name, data in held.items() if not isinstance(data, ManifestArray)]


def _check_loaded(dataset: xr.Dataset, head: str, max_bytes: int) -> None:
    """Check that loaded variables are small: their values are kept."""
    for name in _loaded(dataset):
        n_bytes = dataset.variables[name].nbytes
        if n_bytes > max_bytes:
            raise InvalidRequestError(
                f"its variable {head}{name} is loaded, the group would keep its {n_bytes} bytes:"
                " open it virtual, without it in loadable_variables, or allow them:"
                f" max_inline_bytes={n_bytes}"
            )


def _references(dataset: xr.Dataset) -> dict[str, bytes | Reference]:
    """What each Zarr key of a dataset holds: references, and loaded variables by value."""
    loaded = _loaded(dataset)
    stand_ins = {
        name: (dataset[name].dims, np.zeros(dataset[name].shape, np.int8)) for name in loaded
    }
    document = dataset.assign(stand_ins).vz.to_kerchunk(format="dict", zarr_format=3)
    references = parse_references(json.dumps(document).encode())
    for key, value in _written({name: dataset.variables[name] for name in loaded}).items():
        if key != "zarr.json":  # that of the group
            references[key] = value
    return references


def _written(loaded: Mapping[Hashable, xr.Variable]) -> dict[str, bytes]:
    """The Zarr keys of loaded variables: as xarray writes them, whatever they were read from."""
    plain = {name: variable.to_base_variable() for name, variable in loaded.items()}
    for variable in plain.values():
        variable.encoding = {k: v for k, v in variable.encoding.items() if k in _CF_ENCODING}
    keys: dict[str, Any] = {}
    xr.Dataset(plain).to_zarr(MemoryStore(keys), zarr_format=3, consolidated=False)
    return {key: buffer.to_bytes() for key, buffer in keys.items()}
