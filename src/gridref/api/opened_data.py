"""Open any address as one group: a catalog, a file, or files to be combined."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from gridref.api.building import Job, with_drifts
from gridref.api.layout.ways import flat_options
from gridref.api.opening import open_group
from gridref.api.outcomes import scan_described
from gridref.api.summary import warn_of_left_out
from gridref.catalog import ROOT_FILE
from gridref.errors import CatalogNotFoundError, InvalidRequestError
from gridref.formats import ScanOptions
from gridref.formats.registry import data_names
from gridref.io import absolute_url, is_local
from gridref.model.array import VirtualGroup
from gridref.model.scan_report import Fate, ScanReport
from gridref.options import check_names, options_of

type DataAddress = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | VirtualGroup
"""A catalog, a file or several: their addresses, globs or directories; or a group."""

_CATALOGS = ("allow", "snapshot")
_FILES = ("concat_dim", "order", "layout", "combine", "scan", "run")


def open_data(
    data: DataAddress, storage_options: Mapping[str, Any] | None = None, **options: Any
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
    **options
        ``allow`` and ``snapshot``, as for `gridref.open_catalog`; for files, what `gridref.build`
        takes.

    Raises
    ------
    InvalidRequestError
        For options that are for something else.
    CombineError
        If files do not fit together.
    CatalogError, ScanError, SourceUnavailableError
        If it cannot be opened.
    """
    given = {name: value for name, value in options.items() if value is not None}
    check_names("opening data", given, (*_CATALOGS, *_FILES))
    if isinstance(data, VirtualGroup):
        return _catalog(data, storage_options, given)
    if isinstance(data, str | os.PathLike):
        known = _is_catalog(absolute_url(data))
        if known:
            return _catalog(data, storage_options, given)
        if known is None:
            try:
                return _catalog(data, storage_options, given)
            except CatalogNotFoundError:
                pass
    if "snapshot" in given:
        raise InvalidRequestError("snapshot= is for catalogs")
    asked = flat_options(**{name: given[name] for name in _FILES if name in given})
    asked |= {"allow": given["allow"]} if "allow" in given else {}
    if isinstance(data, str | os.PathLike) and _is_one_file(data, asked):
        group = scan_described(data, ScanOptions(**{**asked, "storage_options": storage_options}))
        warn_of_left_out(ScanReport(group.report.with_fate(Fate.DAMAGED)))
        return group
    files = data if isinstance(data, str | os.PathLike) else list(data)
    _, done = Job.of({**asked, "storage_options": storage_options}).run(files, None)
    return with_drifts(done)


def _catalog(
    data: str | os.PathLike[str] | VirtualGroup,
    storage_options: Mapping[str, Any] | None,
    given: dict[str, Any],
) -> VirtualGroup:
    others = given.keys() - {*_CATALOGS}
    if others:
        raise InvalidRequestError(f"{', '.join(sorted(others))}: for files, not for a catalog")
    return open_group(data, storage_options, given.get("allow"), given.get("snapshot"))


def _is_one_file(data: str | os.PathLike[str], asked: Mapping[str, Any]) -> bool:
    """Whether an address is one file, or folder of data, and nothing is said of combining."""
    address = absolute_url(data)
    if options_of(ScanOptions, asked).keys() != asked.keys():
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
