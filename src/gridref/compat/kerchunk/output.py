"""Write kerchunk references into a mapping that the caller gives, or into files."""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from typing import Any

from gridref.formats.kerchunk import references_in

__all__ = ["filled", "write_json"]


def filled(out: MutableMapping[str, Any], refs: Mapping[str, Any]) -> MutableMapping[str, Any]:
    """A mapping of the caller's with references in it; a ``LazyReferenceMapper`` has them on disk.

    It wants the documents of arrays before their chunks, and bytes as bytes.
    """
    plain = references_in(refs)
    order = sorted(refs, key=lambda key: not key.rpartition("/")[2].startswith(".z"))
    for key in order:
        held = plain[key]
        out[key] = held if isinstance(held, bytes) else refs[key]
    if hasattr(out, "flush"):
        out.flush()
    return out


def write_json(
    document: Mapping[str, Any], path: str, storage_options: Mapping[str, Any] | None
) -> None:
    """Write a JSON document in one step: after a failure, what was there before is there."""
    from gridref.catalog.folder import open_folder
    from gridref.io import absolute_url

    folder, _, name = absolute_url(path).rpartition("/")
    open_folder(folder, storage_options).publish(name, json.dumps(document).encode())
