"""What of a group becomes references in an Icechunk repository, and what is written decoded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gridref.adapters.icechunk.references import PlacedReferences, placed_references
from gridref.adapters.references import (
    IN_ARCHIVE,
    is_nameable,
    is_small,
    refuse,
    why_not_referenced,
)
from gridref.errors import InvalidRequestError
from gridref.formats.icechunk.access import why_no_location
from gridref.model.array import VirtualGroup
from gridref.serve.conventions import with_conventions
from gridref.serve.names import IN_ZARR, with_shown_names
from gridref.serve.objects import KeySpace, ObjectReader
from gridref.serve.reader import Reader
from gridref.serve.views import View, ViewOptions
from gridref.typing import Int64Array

__all__ = ["Materialize", "WritePlan", "inline_rows", "plan_writing", "without"]

type Materialize = bool | Iterable[str]
"""Whether arrays are written decoded where they cannot be referenced; or paths of those that are
written decoded in any case."""

_NATIVE = ViewOptions(View.NATIVE, grid="rectilinear")
_DECODED = ViewOptions(View.PORTABLE, grid="regular", compressor="zstd")
_ICECHUNK = "Icechunk's virtual references"
_INSTEAD = "write them decoded with materialize=True"

INLINE_CHUNK_BYTES = 512
"""Chunks up to this size are copied out of the files: Icechunk keeps them with its references."""
_MOST_COPIED = 1024
"""Most such chunks of an array."""


@dataclass(frozen=True, eq=False)
class WritePlan:
    """How each array of a group is written.

    Attributes
    ----------
    space
        The group as it is shown in the repository.
    references
        By path, of the arrays whose chunks are referenced.
    reader
        Reads what is written decoded.
    decodable
        Paths of arrays that are small enough to be written decoded unasked, and of those that were
        asked for.
    """

    space: KeySpace
    references: Mapping[str, list[PlacedReferences]]
    reader: ObjectReader
    decodable: frozenset[str]

    @cached_property
    def urls(self) -> list[str]:
        """Addresses of all files that are referenced."""
        return list(
            dict.fromkeys(
                source.url
                for pieces in self.references.values()
                for piece in pieces
                for source in piece.references.sources
            )
        )


def plan_writing(
    group: VirtualGroup, reader: Reader, materialize: Materialize, inline_limit: int
) -> WritePlan:
    """Decide about every array, before anything is written.

    Parameters
    ----------
    group
        What is written.
    reader
        Reads what is written decoded.
    materialize
        See `Materialize`.
    inline_limit
        Largest size in bytes of an array that is written decoded unasked.

    Raises
    ------
    NotRepresentableError
        Naming every array that cannot be referenced, and why.
    InvalidRequestError
        If `materialize` names an array that is not there.
    """
    group = with_conventions(with_shown_names(group, IN_ZARR))
    arrays = group.all_arrays()
    asked = _asked(materialize, arrays)
    reasons = why_not_referenced(group, _NATIVE)
    native = KeySpace(group, _NATIVE)
    references = {}
    for path in arrays.keys() - reasons.keys() - asked:
        view = native.array_view(path)
        assert view is not None
        pieces = list(placed_references(view))
        reason = _why_not_located(pieces)
        if reason is None:
            references[path] = pieces
        else:
            reasons[path] = reason
    decodable = asked | {path for path in arrays if is_small(group, path, inline_limit)}
    if materialize is not True:
        refuse(_ICECHUNK, {p: r for p, r in reasons.items() if p not in decodable}, _INSTEAD)
    space = KeySpace(group, _NATIVE, dict.fromkeys(reasons.keys() | asked, _DECODED))
    readable = frozenset(arrays if materialize is True else decodable)
    return WritePlan(space, references, ObjectReader(reader), readable)


def _asked(materialize: Materialize, arrays: Mapping[str, object]) -> set[str]:
    if isinstance(materialize, bool):
        return set()
    asked = {materialize} if isinstance(materialize, str) else set(materialize)
    unknown = asked - arrays.keys()
    if unknown:
        raise InvalidRequestError(
            f"materialize names {', '.join(sorted(unknown))}; there are {', '.join(sorted(arrays))}"
        )
    return asked


def _why_not_located(pieces: Iterable[PlacedReferences]) -> str | None:
    """Why Icechunk cannot reach the files of an array; None if it can."""
    sources = {source.url: source for piece in pieces for source in piece.references.sources}
    for url, source in sources.items():
        reason = why_no_location(url) if is_nameable(source) else IN_ARCHIVE
        if reason is not None:
            return reason
    return None


def inline_rows(placed: PlacedReferences, n_bytes: int, inline_limit: int) -> Int64Array:
    """The chunks, numbered as in the box, that are written by value: int64 (n,).

    Those that are kept in the manifest, and small ones of small arrays.
    """
    held = placed.references
    rows: Int64Array = np.flatnonzero(held.present & (held.source < 0))
    small = np.flatnonzero(held.present & (held.source >= 0) & (held.length <= INLINE_CHUNK_BYTES))
    if n_bytes <= inline_limit and len(small) <= _MOST_COPIED:
        rows = np.union1d(rows, small)
    return rows


def without(placed: PlacedReferences, rows: Int64Array) -> PlacedReferences:
    """The references without those of some chunks."""
    if not len(rows):
        return placed
    present = placed.references.present.copy()
    present[rows] = False
    return replace(placed, references=replace(placed.references, present=present))
