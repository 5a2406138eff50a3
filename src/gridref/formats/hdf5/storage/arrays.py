"""A dataset -> a virtual array, by its layout and datatype."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.damage import check_element_size
from gridref.formats.hdf5.format.data_layout import (
    CompactLayout,
    DataLayout,
    VirtualLayout,
    data_layout_of,
)
from gridref.formats.hdf5.objects.dtypes import ElementType, Form, element_type
from gridref.formats.hdf5.objects.tree import Address, DatasetNode
from gridref.formats.hdf5.storage.fill import fill_value
from gridref.formats.hdf5.storage.inline import inline_converted, inline_texts
from gridref.formats.hdf5.storage.layouts import Stored, stored_chunks
from gridref.formats.hdf5.storage.ragged import ROW_SIZE, ragged_arrays
from gridref.formats.hdf5.storage.records import inline_records
from gridref.formats.hdf5.storage.vds import virtual_blocks
from gridref.formats.options import ScanOptions
from gridref.model.array import VirtualArray
from gridref.model.enumeration import CF_FLAGS, Enumeration
from gridref.model.joining import concatenate, missing_array, missing_like
from gridref.model.scan_report import Fate

__all__ = ["ScannedArray", "plain_name", "scan_array"]

_RENAMED = "_nc4_non_coord_"
_DATATYPE = 0x03
_MAX_NESTED = 8


@dataclass(frozen=True)
class ScannedArray:
    """An array, and what the report says about it.

    Attributes
    ----------
    array
        The array.
    fate, reason
        For the report.
    row_sizes
        Where the dataset holds variable-length sequences: how many elements of the array each has.
    """

    array: VirtualArray
    fate: Fate = Fate.TAKEN
    reason: str = ""
    row_sizes: VirtualArray | None = None


@dataclass(frozen=True)
class _Content:
    """What a dataset holds, as the one block of an array.

    Attributes
    ----------
    stored
        How its chunks are encoded and where they lie; None if the file holds none of them.
    inlined
        Why its values are kept in the references, if they are.
    """

    stored: Stored | None
    inlined: str = ""


@dataclass(frozen=True)
class _Sources:
    """Sources of a virtual dataset, each described once, and how deep they are nested."""

    arrays: dict[Address, VirtualArray] = field(default_factory=dict)
    depth: int = 0


def scan_array(
    dataset: DatasetNode, dims: tuple[str, ...], sizes: tuple[int, ...], options: ScanOptions
) -> ScannedArray:
    """Describe a dataset.

    Parameters
    ----------
    dataset
        The dataset; not one with a null dataspace.
    dims, sizes
        Names and sizes of its dimensions. Where a size is beyond the extent of the dataset, it
        reads as fill value there.

    Raises
    ------
    UnsupportedFeatureError
        If it cannot be served faithfully.
    SourceFormatError
        If the file is corrupt there.
    """
    element = _element(dataset)
    check_element_size(element.dtype)
    names = dims
    if element.subshape:
        axes = range(len(dims), len(dims) + len(element.subshape))
        names = (*dims, *(f"{dataset.name}_axis_{axis}" for axis in axes))
    if element.form is Form.RAGGED:
        return _ragged(dataset, element, names, sizes + element.subshape, options)
    scanned = _scan(dataset, element, options, _Sources())
    array = _padded(scanned.array, sizes + element.subshape)
    attrs = _with_flags(dataset.attributes.public, element)
    enumeration = _enumeration(dataset, element)
    array = array.replace(dims=names, attrs=attrs, enumeration=enumeration)
    return ScannedArray(array, scanned.fate, scanned.reason)


def _ragged(
    dataset: DatasetNode,
    element: ElementType,
    names: tuple[str, ...],
    sizes: tuple[int, ...],
    options: ScanOptions,
) -> ScannedArray:
    name = plain_name(dataset.name)
    array, row_sizes = ragged_arrays(dataset, name, element, _layout(dataset), options)
    attrs = _with_flags(dataset.attributes.public, element.base or element)
    reason = f"{element.reason}, whose lengths are in {name}{ROW_SIZE}"
    return ScannedArray(
        array.replace(attrs=attrs),
        Fate.INLINED,
        reason,
        _padded(row_sizes, sizes).replace(dims=names),
    )


def plain_name(name: str) -> str:
    """The name of a variable that netCDF4 renamed, as it has the name of a dimension."""
    return name.removeprefix(_RENAMED) or name


def _layout(dataset: DatasetNode) -> DataLayout:
    return data_layout_of(dataset.file.bytes, dataset.messages, dataset.address[1])


def _element(dataset: DatasetNode) -> ElementType:
    element = dataset.file.shared.decoded(dataset.messages, _DATATYPE, element_type)
    if element is None:
        raise SourceFormatError("the dataset has no datatype")
    return element


def _scan(
    dataset: DatasetNode, element: ElementType, options: ScanOptions, sources: _Sources
) -> ScannedArray:
    shape = (dataset.shape or ()) + element.subshape
    layout = _layout(dataset)
    if isinstance(layout, VirtualLayout):
        fill = fill_value(dataset, element)
        return _virtual(dataset, element, layout, fill, options, sources)
    if element.form is Form.MIXED:
        stored, fill = inline_records(dataset, element, layout, options)
        element, content = replace(element, dtype=fill.dtype), _Content(stored, element.reason)
    else:
        fill = fill_value(dataset, element)
        content = _content(dataset, element, layout, options)
    names = [f"axis_{axis}" for axis in range(len(shape))]
    if content.stored is None or 0 in shape:
        array = missing_array(shape, element.dtype, dims=names, fill_value=fill)
    else:
        encoding, manifest = content.stored
        array = VirtualArray.of_one_block(
            shape,
            element.dtype,
            encoding=encoding,
            manifest=manifest,
            dims=names,
            fill_value=fill,
        )
    return ScannedArray(array, Fate.INLINED if content.inlined else Fate.TAKEN, content.inlined)


def _virtual(
    dataset: DatasetNode,
    element: ElementType,
    layout: VirtualLayout,
    fill: Any,
    options: ScanOptions,
    sources: _Sources,
) -> ScannedArray:
    if element.form is not Form.STORED or element.subshape:
        kind = "arrays" if element.form is Form.STORED else element.reason
        raise UnsupportedFeatureError(f"virtual datasets of {kind}")
    if sources.depth >= _MAX_NESTED:
        raise UnsupportedFeatureError(f"virtual datasets are nested more than {_MAX_NESTED} deep")
    below = replace(sources, depth=sources.depth + 1)

    def scan_source(source: DatasetNode) -> VirtualArray:
        known = sources.arrays
        if source.address not in known:
            known[source.address] = _scan(source, _element(source), options, below).array
        return known[source.address]

    array, note = virtual_blocks(dataset, layout, element.dtype, fill, scan_source)
    return ScannedArray(array, reason=note)


def _content(
    dataset: DatasetNode, element: ElementType, layout: DataLayout, options: ScanOptions
) -> _Content:
    if element.form is Form.RAGGED:  # a source of a virtual dataset
        raise UnsupportedFeatureError(f"{element.reason} have no Zarr dtype")
    if 0 in (dataset.shape or ()):
        return _Content(None)
    if element.form is not Form.STORED:
        inline = inline_converted if element.form is Form.CONVERTED else inline_texts
        return _Content(inline(dataset, element, layout, options), element.reason)
    stored = stored_chunks(dataset, element, layout, options)
    return _Content(stored, _why_inlined(layout, stored))


def _why_inlined(layout: DataLayout, stored: Stored | None) -> str:
    if stored is None or not stored[1].inline:
        return ""
    if isinstance(layout, CompactLayout):
        return "compact layout"
    return "external files that no chunking fits"


def _padded(array: VirtualArray, sizes: tuple[int, ...]) -> VirtualArray:
    """The array with missing blocks behind it where dimensions are longer."""
    for axis, size in enumerate(sizes):
        extra = size - array.shape[axis]
        if extra > 0:
            tail = missing_like(array, axis, extra, array.fill_value)
            array = concatenate([array, tail], axis)
    return array


def _enumeration(dataset: DatasetNode, element: ElementType) -> Enumeration | None:
    """The enumeration that the elements are members of, if the file gives it a name."""
    name = dataset.file.type_names.get(element) if element.enum else None
    is_plain = len(dict(element.enum)) == len(element.enum)
    own_flags = not dataset.attributes.public.keys().isdisjoint(CF_FLAGS)
    return Enumeration(name, element.enum, own_flags) if name and is_plain else None


def _with_flags(attrs: dict[str, Any], element: ElementType) -> dict[str, Any]:
    """An enumeration's names, as CF flags."""
    if not element.enum or not attrs.keys().isdisjoint(CF_FLAGS):
        return attrs
    members = sorted(element.enum, key=lambda member: member[1])
    values = np.array([value for _, value in members], element.dtype)
    meanings = " ".join(name.replace(" ", "_") for name, _ in members)
    return {**attrs, **dict(zip(CF_FLAGS, (values, meanings), strict=True))}
