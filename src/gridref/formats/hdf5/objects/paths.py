"""From a path to an object, through links of all kinds.

Source: HDF5 Reference Manual, H5Lcreate_soft, H5Lcreate_external, H5Pset_nlinks.
"""

from __future__ import annotations

from dataclasses import dataclass

from gridref.formats.hdf5.format.links import Link, LinkKind, is_group
from gridref.formats.hdf5.objects.files import OpenFile

__all__ = ["Location", "Nowhere", "find_object", "follow_link"]

_MAX_HOPS = 16  # as in HDF5


@dataclass(frozen=True, slots=True)
class Location:
    """Where an object lies: the file, and the address of its header there."""

    file: OpenFile
    address: int


@dataclass(frozen=True, slots=True)
class Nowhere:
    """Why a link or a path leads to no object."""

    reason: str


def find_object(file: OpenFile, path: bytes) -> Location | Nowhere:
    """What a path from the root of a file leads to.

    Raises
    ------
    SourceFormatError
        If a group or a file on the way is corrupt.
    SourceUnavailableError
        If the file behind an external link cannot be read, though it may be there.
    """
    return _Search().path(Location(file, file.bytes.root), path)


def follow_link(group: Location, link: Link) -> Location | Nowhere:
    """What a link in a group leads to; raises as `find_object` does."""
    return _Search().link(group, link)


class _Search:
    """One search; soft and external links are followed up to a limit."""

    def __init__(self) -> None:
        self.n_left = _MAX_HOPS

    def link(self, group: Location, link: Link) -> Location | Nowhere:
        if link.kind == LinkKind.HARD:
            return Location(group.file, link.address)
        self.n_left -= 1
        if self.n_left < 0:
            return Nowhere(f"more than {_MAX_HOPS} links follow one another")
        if link.kind == LinkKind.SOFT:
            return self.path(group, link.target)
        if link.kind == LinkKind.EXTERNAL:
            file = group.file.external(link.file_name)
            if file is None:
                return Nowhere(f"there is no file {_text(link.file_name)}")
            return self.path(Location(file, file.bytes.root), link.target)
        return Nowhere(f"a link of the user-defined kind {link.kind}")

    def path(self, start: Location, path: bytes) -> Location | Nowhere:
        here = Location(start.file, start.file.bytes.root) if path.startswith(b"/") else start
        for name in path.split(b"/"):
            if name in (b"", b"."):
                continue
            if not is_group(here.file.header(here.address)):
                return Nowhere(f"{_text(path)} leads through what is no group")
            link = here.file.members(here.address).get(name)
            if link is None:
                return Nowhere(f"there is no object {_text(path)}")
            target = self.link(here, link)
            if isinstance(target, Nowhere):
                return target
            here = target
        return here


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
