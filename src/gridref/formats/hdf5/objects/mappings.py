"""Mappings of a virtual dataset, and how large they make it.

Sources: HDF5 File Format Specification v3, III.E "Global Heap" and IV.A.2.i for the block of
mappings, whose version 1 is that of HDF5 2.0; "HDF5 Virtual Dataset", RFC-2014-05-10; HDF5
Reference Manual, H5Pset_virtual, H5Pset_virtual_view and H5Pset_virtual_printf_gap, of which the
defaults hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.format.checksum import lookup3
from gridref.formats.hdf5.format.data_layout import VirtualLayout, data_layout_of
from gridref.formats.hdf5.format.dataspace import Dataspace, read_dataspace
from gridref.formats.hdf5.format.object_header import ObjectHeader
from gridref.formats.hdf5.format.selections import AxisHyperslab, Selection, read_selection
from gridref.formats.hdf5.format.superblock import FieldCursor
from gridref.formats.hdf5.objects.files import OpenFile
from gridref.formats.hdf5.objects.paths import Location, Nowhere, find_object
from gridref.formats.hdf5.objects.related import virtual_file

__all__ = [
    "MAX_NUMBERED",
    "Mapping",
    "dataset_extents",
    "find_source",
    "is_virtual",
    "read_mappings",
]

MAX_NUMBERED = 100_000
"""Most sources of one mapping whose names are numbered."""

_DATASPACE, _LAYOUT = 0x01, 0x08
_VIRTUAL_LAYOUT = b"\3"
_CHECKSUM_BYTES = 4
_SHARED_FILE, _SHARED_NAME, _SAME_FILE = 0x01, 0x02, 0x04


@dataclass(frozen=True)
class Mapping:
    """One mapping: what it takes from which dataset, and where that lies in the virtual dataset.

    Attributes
    ----------
    file_name, dataset_name
        The source; `.` is the file of the virtual dataset.
    source, virtual
        Elements of the source, and of the virtual dataset.
    """

    file_name: str
    dataset_name: str
    source: Selection
    virtual: Selection

    @property
    def is_numbered(self) -> bool:
        """Whether its names stand for many, one a block."""
        return any("%b" in name.replace("%%", "") for name in (self.file_name, self.dataset_name))

    @property
    def plain(self) -> Mapping:
        """The mapping with the names that it means."""
        return replace(
            self,
            file_name=self.file_name.replace("%%", "%"),
            dataset_name=self.dataset_name.replace("%%", "%"),
        )

    def numbered(self) -> Iterator[Mapping]:
        """One mapping for each block of numbered names."""
        axis, slabs = self.virtual.unlimited_axis, self.virtual.slabs
        if axis is None or slabs is None:
            raise UnsupportedFeatureError("a numbered mapping has not one endless dimension")
        for number in range(MAX_NUMBERED):
            block = (*slabs[:axis], slabs[axis].run(number), *slabs[axis + 1 :])
            yield Mapping(
                _numbered(self.file_name, number),
                _numbered(self.dataset_name, number),
                self.source,
                Selection(slabs=block),
            )


def _numbered(name: str, number: int) -> str:
    return "%".join(part.replace("%b", str(number)) for part in name.split("%%"))


def read_mappings(file: OpenFile, layout: VirtualLayout) -> tuple[Mapping, ...]:
    """The mappings of a virtual dataset.

    Raises
    ------
    SourceFormatError
        If they are corrupt.
    UnsupportedFeatureError
        If they are of an unknown version.
    """
    if layout.heap_address is None:
        return ()
    block = file.heap.object(layout.heap_address, layout.heap_index)
    place = file.bytes.place(layout.heap_address)
    body, stored = block[:-_CHECKSUM_BYTES], block[-_CHECKSUM_BYTES:]
    cursor = FieldCursor(body, "the block of mappings", place)
    version, n_mappings = cursor.take(1), cursor.take(file.bytes.length_bytes)
    if version not in (0, 1):
        raise UnsupportedFeatureError(
            f"the mappings of a virtual dataset have the unknown version {version}", place
        )
    if lookup3(body) != int.from_bytes(stored, "little"):
        raise cursor.error("has a wrong checksum")
    mappings: list[Mapping] = []
    for _ in range(n_mappings):
        flags = cursor.take(1) if version else 0
        mappings.append(_mapping(cursor, flags, mappings, file.bytes.length_bytes))
    return tuple(mappings)


def _mapping(cursor: FieldCursor, flags: int, earlier: list[Mapping], width: int) -> Mapping:
    if flags & ~(_SHARED_FILE | _SHARED_NAME | _SAME_FILE):
        raise UnsupportedFeatureError(
            f"a mapping of a virtual dataset has the unknown flags {flags:#x}", cursor.place
        )
    if flags & _SAME_FILE:
        file_name = "."
    elif flags & _SHARED_FILE:
        file_name = _earlier(cursor, earlier, width).file_name
    else:
        file_name = _name(cursor)
    shared = flags & _SHARED_NAME
    name = _earlier(cursor, earlier, width).dataset_name if shared else _name(cursor)
    return Mapping(file_name, name, read_selection(cursor), read_selection(cursor))


def _earlier(cursor: FieldCursor, earlier: list[Mapping], width: int) -> Mapping:
    number = cursor.take(width)
    if number >= len(earlier):
        raise cursor.error(f"refers to mapping {number} before it is there")
    return earlier[number]


def _name(cursor: FieldCursor) -> str:
    end = cursor.data.find(b"\0", cursor.position)
    if end < 0:
        raise cursor.error("has a name without an end")
    return cursor.take_bytes(end + 1 - cursor.position)[:-1].decode("utf-8", "surrogateescape")


def find_source(file: OpenFile, mapping: Mapping) -> Location | None:
    """The source dataset of a mapping; None if it, or its file, does not exist.

    Raises
    ------
    SourceFormatError
        If a file on the way is corrupt.
    """
    if mapping.file_name != ".":
        source = virtual_file(file.source.url, mapping.file_name, file.options, file.policy)
        if source is None:
            return None
        file = file.linked(source.url)
    target = find_object(file, mapping.dataset_name.encode("utf-8", "surrogateescape"))
    return None if isinstance(target, Nowhere) else target


def dataset_extents(file: OpenFile, header: ObjectHeader) -> Dataspace:
    """Extents of a dataset: of a virtual one, those that its sources now give it.

    Raises
    ------
    SourceFormatError
        If the file, or a source, is corrupt.
    UnsupportedFeatureError
        If an endless mapping means nothing.
    """
    space = _stored_extents(file, header)
    if not space.shape or not is_virtual(header):
        return space
    layout = data_layout_of(file.bytes, header.messages, header.address)
    mappings = read_mappings(file, layout) if isinstance(layout, VirtualLayout) else ()
    return replace(space, shape=_grown(file, space.shape, mappings))


def _stored_extents(file: OpenFile, header: ObjectHeader) -> Dataspace:
    message = header.first(_DATASPACE)
    if message is None:
        raise SourceFormatError("the dataset has no dataspace", file.bytes.place(header.address))
    return read_dataspace(file.shared.resolved(message).data, file.bytes.length_bytes)


def is_virtual(header: ObjectHeader) -> bool:
    """Whether a dataset is virtual."""
    message = header.first(_LAYOUT)
    return message is not None and message.data[1:2] == _VIRTUAL_LAYOUT


def _grown(
    file: OpenFile, shape: tuple[int, ...], mappings: tuple[Mapping, ...]
) -> tuple[int, ...]:
    """Extents up to the last available element of endless mappings, as HDF5 computes them."""
    grown: dict[int, int] = {}
    least = [0] * len(shape)
    for mapping in mappings:
        slabs = mapping.virtual.slabs
        if slabs is None:
            return shape  # it is refused later
        endless = mapping.virtual.unlimited_axis
        for axis, slab in enumerate(slabs[: len(shape)]):
            if axis != endless:
                least[axis] = max(least[axis], slab.extent_of(slab.count * slab.block))
        if endless is not None and endless < len(shape):
            if mapping.is_numbered:
                extent = _numbered_extent(file, mapping, slabs[endless])
            else:
                extent = _endless_extent(file, mapping.plain, slabs[endless])
            grown[endless] = max(grown.get(endless, 0), extent)
    return tuple(
        max(grown[axis], least[axis]) if axis in grown else extent
        for axis, extent in enumerate(shape)
    )


def _numbered_extent(file: OpenFile, mapping: Mapping, slab: AxisHyperslab) -> int:
    extent = 0
    for number, block in enumerate(mapping.numbered()):
        if find_source(file, block) is None:
            break
        extent = slab.run(number).extent_of(slab.block)
    return extent


def _endless_extent(file: OpenFile, mapping: Mapping, slab: AxisHyperslab) -> int:
    source, axis = find_source(file, mapping), mapping.source.unlimited_axis
    if source is None:
        return 0
    # HDF5 takes the extents of a source as they are stored, even if it is virtual itself.
    shape = _stored_extents(source.file, source.file.header(source.address)).shape
    if axis is None or mapping.source.slabs is None or shape is None or axis >= len(shape):
        raise UnsupportedFeatureError(
            "an endless mapping of a virtual dataset has a source without an endless dimension"
        )
    return slab.extent_of(mapping.source.slabs[axis].n_elements(shape[axis]))
