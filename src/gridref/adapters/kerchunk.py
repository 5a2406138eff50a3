"""Kerchunk references of a group: one JSON document with Zarr v3 keys.

A reference is a byte range of one file, so only what the native view shows can be expressed. Small
arrays that it does not show are written into the document, decoded.

Format: https://fsspec.github.io/kerchunk/spec.html, version 1.
"""

from __future__ import annotations

import base64
import json
import os
from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from gridref.errors import NotRepresentableError
from gridref.io import is_local
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.serve.objects import (
    KeySpace,
    LiteralSegment,
    ObjectReader,
    Segment,
    SourceSegment,
)
from gridref.serve.protocols import ObjectSpace
from gridref.serve.reader import Reader
from gridref.serve.views import View, ViewOptions, show, why_not_zarr
from gridref.workflows.opening import reader_for

__all__ = ["INLINE_LIMIT_BYTES", "to_kerchunk"]

INLINE_LIMIT_BYTES = 2**20
"""Largest array that is written into the references where they cannot point to its chunks."""

_NATIVE = ViewOptions(View.NATIVE, grid="rectilinear")
_PORTABLE = ViewOptions(View.PORTABLE)

_IN_ARCHIVE = "its files lie inside of an archive, of which a reference cannot name a part"

type Reference = str | list[str | int]
"""Text, ``base64:`` text, or address, first byte and number of bytes."""


def to_kerchunk(
    group: VirtualGroup,
    path: str | os.PathLike[str] | None = None,
    *,
    reader: Reader | None = None,
    inline_limit: int = INLINE_LIMIT_BYTES,
) -> dict[str, Any]:
    """Write a group as kerchunk references.

    Parameters
    ----------
    group
        The group.
    path
        Where the JSON goes; None writes nothing.
    reader
        Reads the arrays that are written into the document.
    inline_limit
        Largest size in bytes of such an array.

    Returns
    -------
    dict
        The document.

    Raises
    ------
    NotRepresentableError
        Naming every array that references cannot express, and why.
    """
    reasons = {
        name: reason
        for name, array in group.all_arrays().items()
        if (reason := _why_not_referenced(array)) is not None
    }
    refused = {name for name in reasons if not _is_small(group, name, inline_limit)}
    space = KeySpace(group, _NATIVE, dict.fromkeys(reasons, _PORTABLE))
    objects = ObjectReader(reader or reader_for())
    refs, written = _references(space, objects, refused, inline_limit)
    refused |= {name for name, n_bytes in written.items() if n_bytes > inline_limit}
    _refuse({name: reasons.get(name, _IN_ARCHIVE) for name in sorted(refused)})
    document = {"version": 1, "refs": refs}
    if path is not None:
        Path(os.fspath(path)).write_text(json.dumps(document), encoding="utf-8")
    return document


def _why_not_referenced(array: VirtualArray) -> str | None:
    """Why stored chunks cannot be shown as they are; None where they can."""
    try:
        return show(array, _NATIVE).why_needs_gridref or None
    except NotRepresentableError as error:
        return error.reason


def _is_small(group: VirtualGroup, name: str, inline_limit: int) -> bool:
    """Whether an array can be written out, decoded, as far as is known before reading it."""
    array = group.all_arrays()[name]
    return array.nbytes <= inline_limit and why_not_zarr(array) is None


def _references(
    space: ObjectSpace, reader: ObjectReader, left_out: AbstractSet[str], inline_limit: int
) -> tuple[dict[str, Reference], Counter[str]]:
    """What each key refers to, and the bytes written out in place of references, by array.

    Chunks that no file holds have no key, and read as the fill value. Of an array that turns out to
    take more than `inline_limit`, no more is read.
    """
    refs: dict[str, Reference] = {}
    written: Counter[str] = Counter()
    for key in space.keys(""):
        held = space.resolve(key)
        assert held is not None
        (segment,) = held.segments
        byte_range = _byte_range(segment)
        if held.variable is None:
            refs[key] = reader.read(held).decode()
        elif byte_range is not None:
            refs[key] = byte_range
        elif held.variable not in left_out and written[held.variable] <= inline_limit:
            data = reader.read(held)
            refs[key] = "base64:" + base64.b64encode(data).decode()
            if not isinstance(segment, LiteralSegment):
                written[held.variable] += len(data)
    return refs, written


def _byte_range(segment: Segment) -> Reference | None:
    """The byte range of one file that a segment is, if it is one."""
    if not isinstance(segment, SourceSegment):
        return None
    url = segment.source.url
    in_archive = "::" in url and not is_local(url)
    return None if in_archive else [url, segment.offset, segment.n_bytes]


def _refuse(reasons: Mapping[str, str]) -> None:
    if reasons:
        lines = "\n".join(f"  - {name}: {reason}" for name, reason in reasons.items())
        raise NotRepresentableError(
            f"kerchunk references cannot express {len(reasons)}"
            f" array{'s' if len(reasons) > 1 else ''}; write a catalog instead:\n{lines}"
        )
