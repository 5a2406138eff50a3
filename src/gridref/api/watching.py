"""Append new files again and again: from a listing, or from a file of events."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

from gridref.api.catalogs import open_catalog
from gridref.api.keeping import Catalog
from gridref.api.results import Watch
from gridref.api.scan import Files
from gridref.errors import GridrefError, InvalidRequestError
from gridref.formats import expand_files
from gridref.io import Allow, absolute_url, is_local
from gridref.options import verb
from gridref.secrets import without_secrets


@verb()
def watch(
    catalog: str | os.PathLike[str],
    files: Files | None = None,
    *,
    events: str | os.PathLike[str] | None = None,
    every_seconds: float = 60.0,
    settle_seconds: float = 0.0,
    once: bool = False,
    on_round: Callable[[Watch], object] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    allow: Allow = None,
) -> Watch:
    """Append new files again and again, until interrupted.

    Its only memory is the catalog. After any interruption, a new call continues.

    Parameters
    ----------
    catalog
        Address of a catalog.
    files
        Paths, URLs, globs or directories to list in each round. They may be empty.
    events
        In place of `files`, a local file to which lines are appended: paths or URLs of files, or
        JSON notifications of S3.
    every_seconds
        Time from the end of a round to the next.
    settle_seconds
        Local files that changed within this time are left for the next round.
    once
        End after one round.
    on_round
        Called after each round.
    storage_options
        Options of fsspec's filesystem of the catalog and of the files, or of several by protocol.
    allow
        As for `gridref.open_catalog`.

    Returns
    -------
    Watch
        What the last round did.

    Raises
    ------
    InvalidRequestError
        Unless one of `files` and `events` is given.
    CatalogError
        If the catalog cannot be opened or written.
    """
    if (files is None) == (events is None):
        raise InvalidRequestError("name files to watch, or a file of events")
    new = _Listing(files, storage_options) if events is None else _Events(Path(events))
    while True:
        opened = open_catalog(catalog, storage_options=storage_options, allow=allow)
        known = {source.url for source in opened.source_list}
        found = [file for file in new() if file not in known and _is_settled(file, settle_seconds)]
        done = _appended(opened, found)
        if on_round is not None:
            on_round(done)
        if once:
            return done
        time.sleep(every_seconds)


@dataclass(frozen=True)
class _Listing:
    """The files that there are now."""

    files: Any
    storage_options: Mapping[str, Any] | None

    def __call__(self) -> Sequence[str]:
        several = isinstance(self.files, list | tuple)
        found: dict[str, None] = {}
        for pattern in self.files if several else [self.files]:
            try:
                found |= dict.fromkeys(expand_files(pattern, self.storage_options))
            except InvalidRequestError:  # nothing is there yet
                continue
        return list(found)


@dataclass
class _Events:
    """The files that were named so far, by whole lines."""

    path: Path
    n_bytes: int = 0
    named: dict[str, None] = field(default_factory=dict)

    def __call__(self) -> Sequence[str]:
        try:
            with self.path.open("rb") as file:
                file.seek(self.n_bytes)
                lines = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return list(self.named)
        except OSError as error:
            raise InvalidRequestError(f"events={str(self.path)!r}: {error.strerror}") from error
        self.n_bytes += len(lines[0]) + len(lines[1])
        for line in lines[0].decode("utf-8", "surrogateescape").splitlines():
            self.named |= dict.fromkeys(map(absolute_url, _named(line.strip())))
        return list(self.named)


def _named(line: str) -> Iterator[str]:
    """Files that a line names."""
    if not line.startswith("{"):
        yield from [line] if line else []
        return
    try:
        for record in json.loads(line).get("Records", []):
            if str(record.get("eventName", "ObjectCreated")).startswith("ObjectCreated"):
                stored = record["s3"]
                yield f"s3://{stored['bucket']['name']}/{unquote_plus(stored['object']['key'])}"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidRequestError(
            f"an event cannot be understood: {without_secrets(line)[:200]!r}"
        ) from error


def _is_settled(file: str, seconds: float) -> bool:
    if not seconds or not is_local(file):
        return True
    try:
        return time.time() - os.stat(file).st_mtime >= seconds
    except OSError:
        return True  # appending it says what is wrong


def _appended(catalog: Catalog, files: Sequence[str]) -> Watch:
    """Append files at once, or one by one where some do not fit."""
    if not files:
        return Watch(catalog.info.snapshot)
    try:
        return Watch(catalog.append(list(files)).info.snapshot, tuple(files))
    except GridrefError as error:
        if len(files) == 1:
            return Watch(catalog.info.snapshot, failed={files[0]: _reason(error)})
    appended: list[str] = []
    failed: dict[str, str] = {}
    for file in files:
        try:
            catalog = catalog.append(file)
            appended.append(file)
        except GridrefError as error:
            failed[file] = _reason(error)
    return Watch(catalog.info.snapshot, tuple(appended), failed)


def _reason(error: GridrefError) -> str:
    return f"{type(error).__name__}: {error}"
