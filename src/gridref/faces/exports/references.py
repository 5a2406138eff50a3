"""Check what references of byte ranges can express, for any export that writes them."""

from __future__ import annotations

from collections.abc import Mapping

from gridref.errors import Message, NotRepresentableError
from gridref.io import is_local
from gridref.model.array import VirtualGroup
from gridref.model.manifest import Source
from gridref.serve.segments import Segment, SourceSegment
from gridref.serve.views import View, ViewOptions, show, why_not_zarr

INLINE_LIMIT_BYTES = 2**20
"""Largest array that is written into the references where they cannot point to its chunks."""

PORTABLE = ViewOptions(View.PORTABLE)
"""How the arrays that are written into the references are shown."""

IN_ARCHIVE = "its files are inside an archive, and a reference cannot name a part of that"


def why_not_referenced(group: VirtualGroup, native: ViewOptions) -> dict[str, str]:
    """The arrays whose stored chunks cannot be shown as they are, by path, and why not.

    Parameters
    ----------
    group
        The group.
    native
        The native view that the references are to show.
    """
    reasons = {}
    for name, array in group.all_arrays().items():
        try:
            reason = show(array, native).why_needs_gridref
        except NotRepresentableError as error:
            reason = error.reason
        if reason:
            reasons[name] = reason
    return reasons


def is_small(group: VirtualGroup, name: str, inline_limit: int) -> bool:
    """Whether an array can be written out, decoded, as far as is known before reading it."""
    array = group.all_arrays()[name]
    return array.nbytes <= inline_limit and why_not_zarr(array) is None


def is_nameable(source: Source) -> bool:
    """Whether other programs find a source by its address alone."""
    return "::" not in source.url or is_local(source.url)


def byte_range_of(segment: Segment) -> tuple[str, int, int] | None:
    """Address, first byte and number of bytes that a segment is in one file, if it is that."""
    if not isinstance(segment, SourceSegment) or not is_nameable(segment.source):
        return None
    return segment.source.url, segment.offset, segment.n_bytes


def refuse(references: str, reasons: Mapping[str, str], instead: str = "write a catalog") -> None:
    """Raise if there is anything that the references cannot express.

    Raises
    ------
    NotRepresentableError
        Naming every array, and why.
    """
    if reasons:
        lines = "\n".join(f"  - {name}: {reason}" for name, reason in sorted(reasons.items()))
        raise NotRepresentableError(
            Message(
                f"{references} cannot express {len(reasons)}"
                f" array{'s' if len(reasons) > 1 else ''}; ",
                instead,
                f" instead:\n{lines}",
            )
        )
