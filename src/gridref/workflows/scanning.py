"""Files described: one of them, or many, several at a time."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from gridref.errors import InvalidRequestError
from gridref.formats import ScanOptions, expand_files
from gridref.formats import scan as scan_file
from gridref.model.array import VirtualGroup
from gridref.options import verb
from gridref.workflows.reading import Sources, readable

__all__ = ["Address", "Files", "Progress", "scan", "scan_each", "scan_many"]

Address = str | os.PathLike[str]
"""A local path, or a URL that fsspec opens."""
Files = Address | Iterable[Address]
"""Paths, URLs, globs or directories."""
Progress = Callable[[int, int], None]
"""Called with how much is done, and of how much."""

FILES_PER_WORKER = 16
"""Starting another process pays off from about so many files on."""


@verb(ScanOptions, renamed={"url": "file"}, positional=("storage_options", "on_unsupported"))
def scan(
    file: Address, *, storage_options: Mapping[str, Any] | None = None, **options: Any
) -> VirtualGroup:
    """Describe a file: where its arrays' chunks lie, without copying them.

    Parameters
    ----------
    file
        A local path or any URL that fsspec opens.
    storage_options
        Options of fsspec's filesystem of a remote file, or of several by protocol:
        ``{"s3": {"anon": True}}``.
    **options
        Fields of `ScanOptions`, like ``on_unsupported="skip"``.

    Returns
    -------
    VirtualGroup
        With a ``report`` of every object found: taken, inlined, or skipped and why.

    Raises
    ------
    SourceFormatError
        If the file is of no known format, is truncated or corrupt.
    UnsupportedFeatureError
        If an object cannot be served faithfully.
    SourceUnavailableError
        If the file is not there or cannot be read.
    """
    return readable(scan_file(file, storage_options, **options), Sources(storage_options))


@verb(ScanOptions, renamed={"urls": "files"})
def scan_many(
    files: Files,
    *,
    storage_options: Mapping[str, Any] | None = None,
    n_processes: int | None = 1,
    progress: Progress | None = None,
    **options: Any,
) -> list[VirtualGroup]:
    """Describe files, one group each, in their order.

    Parameters
    ----------
    files
        Paths, URLs, globs or directories.
    storage_options
        Options of fsspec's filesystem of remote files, or of several by protocol:
        ``{"s3": {"anon": True}}``.
    n_processes
        Processes that scan; None takes one for each core, if there are files enough. More than one
        need a main module that can be imported, as ever with `multiprocessing`.
    progress
        Called with the number of files scanned, and of all files.
    **options
        Fields of `ScanOptions`, like ``on_unsupported="skip"``.

    Raises
    ------
    InvalidRequestError
        If a path or pattern matches nothing.
    ScanError, SourceUnavailableError
        As `scan` raises them.
    """
    addresses = expand_files(files, storage_options)
    settings = ScanOptions(storage_options=storage_options, **options)
    scanned = scan_each(addresses, settings, n_processes=n_processes, progress=progress)
    sources = Sources(storage_options)
    return [readable(group, sources) for group in scanned]


def scan_each(
    addresses: Sequence[str],
    options: ScanOptions,
    *,
    n_processes: int | None = 1,
    progress: Progress | None = None,
) -> Iterator[VirtualGroup]:
    """Scan files one after the other, or in several processes; see `scan_many`."""
    if n_processes is None:
        n_processes = min(os.cpu_count() or 1, len(addresses) // FILES_PER_WORKER)
    elif n_processes < 1:
        raise InvalidRequestError(f"n_processes must be >= 1, got {n_processes}")
    with _mapped(partial(_scan, options=options), addresses, n_processes) as results:
        for number, group in enumerate(results, start=1):
            if progress is not None:
                progress(number, len(addresses))
            yield group


def _scan(address: str, options: ScanOptions) -> VirtualGroup:
    return scan_file(address, **vars(options))


@contextmanager
def _mapped(
    scan_one: Callable[[str], VirtualGroup], addresses: Sequence[str], n_processes: int
) -> Iterator[Iterable[VirtualGroup]]:
    if n_processes < 2:
        yield map(scan_one, addresses)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(n_processes, mp_context=context) as pool:
        try:
            yield pool.map(scan_one, addresses, chunksize=4)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
