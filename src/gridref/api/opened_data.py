"""Open any address as one group: a catalog, a file, or files to be combined."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from gridref.api.building import Job, with_drifts
from gridref.api.opening import open_group
from gridref.api.outcomes import scan_described
from gridref.api.summary import warn_of_left_out
from gridref.catalog import ROOT_FILE
from gridref.catalog.overlays import OverlayPolicy
from gridref.errors import CatalogNotFoundError, InvalidRequestError
from gridref.formats.registry import data_names
from gridref.io import Allow, absolute_url, is_local
from gridref.model.array import VirtualGroup
from gridref.model.scan_report import Fate, ScanReport

type DataAddress = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | VirtualGroup
"""A catalog, a file or several: their addresses, globs or directories; or a group."""


def open_data(
    data: DataAddress,
    storage_options: Mapping[str, Any] | None = None,
    *,
    allow: Allow = None,
    snapshot: str | None = None,
    overlay: OverlayPolicy | None = None,
    job: Job | None = None,
) -> VirtualGroup:
    """Open a catalog, scan a file, or combine files, whichever an address stands for.

    A remote address that is named neither as a catalog nor as a file of data is asked whether it is
    a catalog.

    Parameters
    ----------
    data
        See `DataAddress`.
    storage_options
        Options of fsspec's filesystems.
    allow, snapshot, overlay
        As for `gridref.open_catalog`; `overlay` of an opened catalog, too.

    Raises
    ------
    InvalidRequestError
        For options that are for something else.
    CombineError
        If files do not fit together.
    CatalogError, ScanError, SourceUnavailableError
        If it cannot be opened.
    """
    job = job or Job()

    def catalog(address: str | os.PathLike[str] | VirtualGroup) -> VirtualGroup:
        if job.asked:
            raise InvalidRequestError(
                f"{', '.join(sorted(job.asked))}: these options are for files, and this is a "
                "catalog"
            )
        return open_group(address, storage_options, allow, snapshot, overlay)

    if isinstance(data, VirtualGroup):
        return catalog(data)
    if isinstance(data, str | os.PathLike):
        known = _is_catalog(absolute_url(data))
        if known:
            return catalog(data)
        if known is None:
            try:
                return catalog(data)
            except CatalogNotFoundError:
                pass
    for name, given in (("snapshot", snapshot), ("overlay", overlay)):
        if given is not None:
            raise InvalidRequestError(f"{name}= is for catalogs")
    reading = job.reading(storage_options, allow)
    if isinstance(data, str | os.PathLike) and _is_one_file(data, job):
        group = scan_described(data, reading.scanning)
        warn_of_left_out(ScanReport(group.report.with_fate(Fate.DAMAGED)))
        return group
    files = data if isinstance(data, str | os.PathLike) else list(data)
    return with_drifts(reading.combined(files, None)[1])


def _is_one_file(data: str | os.PathLike[str], job: Job) -> bool:
    """Whether an address is one file, or folder of data, and nothing is said of combining."""
    address = absolute_url(data)
    if job.asked.keys() - {"scan"}:
        return False
    if is_local(address) and os.path.isdir(address):
        return data_names().is_folder(address)
    return not is_local(address) or os.path.exists(address)


def _is_catalog(address: str) -> bool | None:
    """Whether an address is a catalog's; None if that takes asking."""
    bare, query, _ = address.partition("?")
    path = bare.rstrip("/")
    if path.endswith((".gridref", f"/{ROOT_FILE}")):
        return True
    if is_local(address):
        return os.path.isfile(os.path.join(address, ROOT_FILE))
    names = data_names()
    if query or names.is_file(path) or names.is_folder(path) or "*" in path:
        return False
    return None
