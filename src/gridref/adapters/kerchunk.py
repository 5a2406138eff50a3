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
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from gridref.adapters.references import (
    IN_ARCHIVE,
    INLINE_LIMIT_BYTES,
    PORTABLE,
    byte_range_of,
    is_small,
    refuse,
    why_not_referenced,
)
from gridref.model.array import VirtualGroup
from gridref.serve.objects import KeySpace, LiteralSegment, ObjectReader
from gridref.serve.protocols import ObjectSpace
from gridref.serve.reader import Reader
from gridref.serve.views import View, ViewOptions
from gridref.workflows.opening import reader_for

__all__ = ["to_kerchunk"]

_NATIVE = ViewOptions(View.NATIVE, grid="rectilinear")

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
    reasons = why_not_referenced(group, _NATIVE)
    refused = {name for name in reasons if not is_small(group, name, inline_limit)}
    space = KeySpace(group, _NATIVE, dict.fromkeys(reasons, PORTABLE))
    objects = ObjectReader(reader or reader_for())
    refs, written = _references(space, objects, refused, inline_limit)
    refused |= {name for name, n_bytes in written.items() if n_bytes > inline_limit}
    refuse("kerchunk references", {name: reasons.get(name, IN_ARCHIVE) for name in refused})
    document = {"version": 1, "refs": refs}
    if path is not None:
        Path(os.fspath(path)).write_text(json.dumps(document), encoding="utf-8")
    return document


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
        byte_range = byte_range_of(segment)
        if held.variable is None:
            refs[key] = reader.read(held).decode()
        elif byte_range is not None:
            refs[key] = list(byte_range)
        elif held.variable not in left_out and written[held.variable] <= inline_limit:
            data = reader.read(held)
            refs[key] = "base64:" + base64.b64encode(data).decode()
            if not isinstance(segment, LiteralSegment):
                written[held.variable] += len(data)
    return refs, written
