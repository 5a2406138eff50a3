"""Former snapshots of a catalog."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from dataclasses import replace

from gridref.catalog.document import Root
from gridref.catalog.storage import Folder
from gridref.errors import CatalogCorruptError, CatalogNotFoundError, InvalidRequestError, Place

__all__ = ["root_at", "snapshot_file", "unzipped"]

_MOST_FREE_BYTES, _MOST_RATIO = 64 * 2**20, 100
"""What a compressed description may hold: so many bytes, and so many times its own size."""


def snapshot_file(name: str) -> str:
    """The file of a former snapshot."""
    return f"snapshot-{name}.json.gz"


def unzipped(content: bytes, address: str) -> bytes:
    """What the file of a former snapshot holds.

    Raises
    ------
    CatalogCorruptError
        If it is damaged, or stands for far more than it has bytes.
    """
    most = _MOST_FREE_BYTES + _MOST_RATIO * len(content)
    try:
        with gzip.open(io.BytesIO(content)) as file:
            held = file.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = f"a former snapshot is damaged: {error}"
        raise CatalogCorruptError(reason, Place(source=address)) from error
    if len(held) > most:
        raise CatalogCorruptError(
            f"a former snapshot of {len(content)} bytes says that it holds more than {most}",
            Place(source=address),
        )
    return held


def root_at(folder: Folder, root: Root, snapshot: str) -> Root:
    """The root with another snapshot in place of the current one.

    Parameters
    ----------
    folder, root
        The catalog, and its root file.
    snapshot
        A tag, or the id of a snapshot.

    Raises
    ------
    InvalidRequestError
        If there is none, or not any more.
    """
    name = root.tags.get(snapshot, snapshot)
    if name == root.snapshot.id:
        return root
    place = Place(source=folder.url)
    missing = InvalidRequestError(
        f"no snapshot {snapshot!r}: it was pruned, or never there; gridref history lists them"
        f" (tags: {', '.join(sorted(root.tags)) or 'none'})",
        place,
    )
    if not re.fullmatch(r"[0-9a-f]{16}", name) or name in root.pruned:
        raise missing
    file = snapshot_file(name)
    try:
        content = unzipped(folder.read(file), folder.address(file))
    except CatalogNotFoundError as error:
        raise missing from error
    former = Root.from_bytes(content, folder.address(file))
    return replace(former, tags=root.tags, pruned=root.pruned)
