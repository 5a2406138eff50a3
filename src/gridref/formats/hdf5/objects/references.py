"""References to objects and regions, as paths.

Source: HDF5 File Format Specification v3, IV.A.2.d "Datatype" (class 7), III.E "Global Heap" for
what a reference to a region points to.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property

from gridref.errors import ScanError
from gridref.formats.hdf5.format.global_heap import GlobalHeap
from gridref.formats.hdf5.format.links import Link, LinkKind, is_group, read_links
from gridref.formats.hdf5.format.object_header import read_header
from gridref.formats.hdf5.format.superblock import Hdf5Bytes

__all__ = ["ObjectPaths"]


class ObjectPaths:
    """Paths of the objects of a file.

    Parameters
    ----------
    file
        The file.
    heap
        Its global heap.
    """

    def __init__(self, file: Hdf5Bytes, heap: GlobalHeap) -> None:
        self._file = file
        self._heap = heap

    def referenced(self, reference: bytes, *, region: bool) -> str:
        """Path of what a stored reference means.

        Returns
        -------
        str
            Empty for a null reference, or one to what is gone.
        """
        width = self._file.offset_bytes
        address = int.from_bytes(reference[:width], "little")
        if region and address:
            try:
                stored = self._heap.object(address, int.from_bytes(reference[width:], "little"))
            except ScanError:
                return ""
            address = int.from_bytes(stored[:width], "little")
        return self._by_address.get(address, "") if address else ""

    @cached_property
    def _by_address(self) -> dict[int, str]:
        """The path by which HDF5 finds each object first: links as they are stored, parents first.

        It finds none behind an object that it cannot read.

        Source: HDF5 Reference Manual, H5Rget_name and H5Ovisit.
        """
        root = self._file.root
        paths = {root: "/"}
        seen = {root}
        pending = [("", self._links(root))]
        with suppress(ScanError):
            while pending:
                parent, links = pending[-1]
                link = next(links, None)
                if link is None:
                    pending.pop()
                    continue
                path = f"{parent}/{link.name.decode('utf-8', 'surrogateescape')}"
                paths.setdefault(link.address, path)
                if link.address not in seen:
                    seen.add(link.address)
                    pending.append((path, self._links(link.address)))
        return paths

    def _links(self, address: int) -> Iterator[Link]:
        """Hard links of a group; none of what is no group."""
        header = read_header(self._file, address)
        links = read_links(self._file, header).stored if is_group(header) else ()
        return (link for link in links if link.kind == LinkKind.HARD)
