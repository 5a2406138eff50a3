"""Find the files of one OME-TIFF set: scanning any of them gives the whole set.

Source: OME-TIFF specification, "Multi-file OME-TIFF filesets".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gridref.errors import InvalidRequestError, Place
from gridref.model.array import VirtualGroup

Scanned = Sequence[tuple[str, VirtualGroup]]


def one_of_each_set(scanned: Scanned) -> Scanned:
    """The files without those whose set another one before them gives already."""
    first: dict[frozenset[str], str] = {}
    kept = []
    for file, group in scanned:
        files = _set_of(group)
        if files is None or first.setdefault(files, file) == file:
            kept.append((file, group))
    return kept


def refusing_parts_of_sets(
    scanned: Iterable[tuple[str, VirtualGroup]],
) -> Iterator[tuple[str, VirtualGroup]]:
    """The files, as long as each set is there once."""
    first: dict[frozenset[str], str] = {}
    for file, group in scanned:
        files = _set_of(group)
        if files is not None and first.setdefault(files, file) != file:
            raise InvalidRequestError(
                f"it and {first[files]} belong to one OME-TIFF set of {len(files)} files, and "
                "each file stands for the whole set: leave out layout options, or give one file "
                "of each set",
                Place(source=file),
            )
        yield file, group


def _set_of(group: VirtualGroup) -> frozenset[str] | None:
    """The files that the images of a TIFF file are in; None if it is one."""
    files = {
        source.url
        for array in group.all_arrays().values()
        if "tiff_series" in array.attrs
        for manifest in array.manifests
        for source in getattr(manifest, "sources", ())
    }
    return frozenset(files) if len(files) > 1 else None
