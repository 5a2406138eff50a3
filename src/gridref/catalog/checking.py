"""Check that a catalog is whole: compare its files with the hashes that it states."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from gridref.catalog.document import ROOT_FILE, Snapshot, is_replaced, read_root
from gridref.catalog.entries import TableEntry
from gridref.catalog.folder import open_folder
from gridref.errors import CatalogCorruptError, Place, ShortReadError, SourceUnavailableError
from gridref.io import SourcePool, absolute_url, catalog_options, describe_source, is_absent

_PIECE_BYTES = 8 * 2**20


def check_catalog(
    url: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    snapshot: str | None = None,
) -> None:
    """Read all of a catalog, and compare sizes and SHA-256 with what it states.

    Opening a catalog checks its root file only; reading its rows, each page's checksum. A catalog
    that is replaced meanwhile is checked again.

    Parameters
    ----------
    url
        Address of the catalog's directory (or of the ``gridref.json`` in it).
    storage_options
        fsspec options, or a mapping of protocol to options.
    snapshot
        Id of a former snapshot, or a tag; by default the current one.

    Raises
    ------
    CatalogCorruptError
        Lists each file that differs, and the blocks that need it.
    CatalogNotFoundError, CatalogVersionError, SourceUnavailableError
        As `open_catalog`.
    """
    storage_options = catalog_options(storage_options)
    folder = open_folder(absolute_url(url).removesuffix(f"/{ROOT_FILE}"), storage_options)
    root = read_root(folder, snapshot)
    found: list[CatalogCorruptError] = []
    for number, part in enumerate(root.snapshot.all_parts):
        for table in part.tables:
            try:
                _check_table(folder.address(table.file), table, storage_options)
            except CatalogCorruptError as error:
                hurt = "; ".join(_blocks_of(root.snapshot, number))
                found.append(CatalogCorruptError(f"{error.reason}. Hurt: {hurt}", error.place))
    if found and is_replaced(folder.url, storage_options, root.snapshot.id):
        check_catalog(url, storage_options, snapshot)
    elif len(found) == 1:
        raise found[0]
    elif found:
        raise CatalogCorruptError(
            f"{len(found)} files are damaged: {' - '.join(map(str, found))}", found[0].place
        )


def _blocks_of(snapshot: Snapshot, part: int) -> Iterator[str]:
    """Arrays whose blocks are in a part, and which of their blocks."""
    for path, entry in snapshot.root.all_arrays().items():
        for segment in snapshot.shared.layouts[entry.layout]:
            if segment.part == part:
                bounds = ", ".join(f"{box.start}:{box.stop}" for box in segment.box)
                yield f"blocks [{bounds}] of {path}"
    for each in snapshot.beside:
        if snapshot.all_parts[part] in [sheet.part for sheet in each.sheets]:
            kind = "overlay" if each in snapshot.overlays else "overview"
            yield f"{kind} {each.id} of {each.array}"


def _check_table(address: str, table: TableEntry, options: Mapping[str, Any] | None) -> None:
    digest = hashlib.sha256()
    try:
        source = describe_source(address, options)
        if source.size_bytes != table.n_bytes:
            raise _corrupt(f"it has {source.size_bytes} bytes instead of {table.n_bytes}", address)
        with SourcePool(options) as pool:
            for start in range(0, table.n_bytes, _PIECE_BYTES):
                length = min(_PIECE_BYTES, table.n_bytes - start)
                digest.update(pool.read(source, start, length))
    except ShortReadError as error:
        raise _corrupt("it is cut", address) from error
    except SourceUnavailableError as error:
        if not is_absent(error):
            raise
        raise _corrupt("it is missing", address) from error
    if digest.hexdigest() != table.sha256:
        raise _corrupt("its SHA-256 is not the one that the catalog states", address)


def _corrupt(reason: str, address: str) -> CatalogCorruptError:
    return CatalogCorruptError(
        f"a file of the catalog is damaged: {reason}. Build the catalog again",
        Place(source=address),
    )
