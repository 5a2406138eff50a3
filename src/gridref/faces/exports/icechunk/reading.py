"""Read Icechunk sessions and repositories as groups."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import icechunk

from gridref.api.readable import Sources, readable
from gridref.formats.icechunk import open_session, scan_session
from gridref.formats.options import ScanOptions
from gridref.model.array import VirtualGroup
from gridref.options import options_of, verb


@verb(ScanOptions)
def from_icechunk(
    session: icechunk.Session | str | os.PathLike[str],
    *,
    address: str | os.PathLike[str] | None = None,
    branch: str | None = None,
    tag: str | None = None,
    snapshot: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> VirtualGroup:
    """The arrays of an Icechunk repository, virtual and native ones, as a group.

    Parameters
    ----------
    session
        A session of Icechunk, or the address of a repository.
    address
        Where a session's repository is: its native chunks are referenced there. Without, they
        are read and kept in the group, up to ``max_inline_bytes`` an array.
    branch, tag, snapshot
        The version to read of a repository at an address; by default the branch ``main``.
    storage_options
        Options of fsspec's filesystems of the repository and of files, or of several by protocol.
    **options
        Fields of `ScanOptions`. References of a repository at an address may name files below
        ``allow`` only, and beside it; those of a session, which was opened already, all.

    Raises
    ------
    SourceFormatError, SourceUnavailableError
        If there is no such repository or snapshot, it is damaged or cannot be read.
    SourceChangedError
        If a file changed since it was referenced.
    SourceNotAllowedError
        If references name files that they may not read.
    UnsupportedFeatureError
        For what cannot be read faithfully, and native chunks of an unknown address.

    Examples
    --------
    >>> gridref.interchange.from_icechunk("cube.icechunk")  # doctest: +SKIP
    """
    given = {**options_of(ScanOptions, options), "storage_options": storage_options}
    if isinstance(session, icechunk.Session):
        where = None if address is None else os.fspath(address)
        group = scan_session(session, where, ScanOptions(**{"allow": "*", **given}))
    else:
        where = os.fspath(session)
        opened = open_session(
            where, branch=branch, tag=tag, snapshot=snapshot, storage_options=storage_options
        )
        group = scan_session(opened, where, ScanOptions(**given))
    return readable(group, Sources(storage_options))
