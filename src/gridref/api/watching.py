"""Append the files that a catalog lacks, as they arrive: what a round of `Catalog.watch` does.

A round lists files, or reads the names that events have added to a file, and appends those that the
catalog does not have.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

from gridref.api.catalog import Catalog, Watch, open_catalog
from gridref.api.keeper import Keeper
from gridref.api.scan import Files
from gridref.errors import GridrefError, InvalidRequestError, Message, Option
from gridref.formats import expand_files
from gridref.io import absolute_url, is_local
from gridref.secrets import without_secrets


@dataclass(frozen=True, eq=False)
class Watching:
    """Appends the files that a catalog lacks, round by round: see `Catalog.watch`.

    Raises
    ------
    InvalidRequestError
        Unless one of `files` and `events` is given.
    """

    keeper: Keeper
    files: Files | None
    events: str | os.PathLike[str] | None
    settle_seconds: float
    rechunk: bool
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        if (self.files is None) == (self.events is None):
            raise InvalidRequestError("nothing to watch: name files, or give a file of events")

    @cached_property
    def _named(self) -> Callable[[], Sequence[str]]:
        """The files that there are now, by a list or by events."""
        if self.events is not None:
            return _Events(Path(self.events))
        return partial(_listed, self.files, self.keeper.storage_options)

    def one_round(self) -> Watch:
        """Append what the catalog lacks as it is now."""
        catalog = self._opened()
        named = self._named()
        known = {*catalog.holding(named)}
        found = [
            file for file in named if file not in known and _is_settled(file, self.settle_seconds)
        ]
        done = _appended(catalog, found, self.options)
        return _rechunked(self._opened(), done) if self.rechunk and done.appended else done

    def _opened(self) -> Catalog:
        keeper = self.keeper
        return open_catalog(keeper.url, storage_options=keeper.storage_options, allow=keeper.allow)


def _listed(files: Any, storage_options: Mapping[str, Any] | None) -> Sequence[str]:
    """The files that there are now."""
    found: dict[str, None] = {}
    for pattern in files if isinstance(files, list | tuple) else [files]:
        with suppress(InvalidRequestError):  # nothing is there yet
            found |= dict.fromkeys(expand_files(pattern, storage_options))
    return list(found)


@dataclass
class _Events:
    """The files that were named so far, by whole lines."""

    path: Path
    file: tuple[int, int] = (0, 0)
    n_bytes: int = 0
    named: dict[str, None] = field(default_factory=dict)

    def __call__(self) -> Sequence[str]:
        try:
            with self.path.open("rb") as file:
                stat = os.fstat(file.fileno())
                if stat.st_size < self.n_bytes or (stat.st_dev, stat.st_ino) != self.file:
                    self.n_bytes = 0  # it was rotated
                self.file = stat.st_dev, stat.st_ino
                file.seek(self.n_bytes)
                lines = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return list(self.named)
        except OSError as error:
            raise InvalidRequestError(
                Message(Option("events", str(self.path)), f": {error.strerror}")
            ) from error
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
            f"cannot read this event: {without_secrets(line)[:200]!r}"
        ) from error


def _is_settled(file: str, seconds: float) -> bool:
    """Whether a local file has not changed for some time."""
    if not seconds or not is_local(file):
        return True
    try:
        return time.time() - os.stat(file).st_mtime >= seconds
    except OSError:
        return True  # appending it says what is wrong


def _appended(catalog: Catalog, files: Sequence[str], options: Mapping[str, Any]) -> Watch:
    """Append files at once, or one by one where some do not fit."""
    if not files:
        return Watch(catalog.info.snapshot)
    try:
        return Watch(catalog.append(list(files), **options).info.snapshot, tuple(files))
    except GridrefError as error:
        if len(files) == 1:
            return Watch(catalog.info.snapshot, failed={files[0]: error.explained})
    appended: list[str] = []
    failed: dict[str, str] = {}
    for file in files:
        try:
            catalog = catalog.append(file, **options)
            appended.append(file)
        except GridrefError as error:
            failed[file] = error.explained
    return Watch(catalog.info.snapshot, tuple(appended), failed)


def _rechunked(catalog: Catalog, done: Watch) -> Watch:
    """Write what the overlays and overviews of a catalog lack after files were appended."""
    from gridref.api.overlays import out_of_date

    failed = dict(done.failed)
    for array in dict.fromkeys(info.array for info in catalog.overlays()):
        try:
            catalog = catalog.rechunk(array)
        except GridrefError as error:
            failed[f"overlays of {array}"] = error.explained
    for info, entry in out_of_date(catalog):
        try:
            catalog = catalog.overviews(
                info.array,
                factor=info.factor,
                levels=info.n_levels,
                method=info.method,
                codec=entry.codec,
            )
        except GridrefError as error:
            failed[f"overviews of {info.array}"] = error.explained
    return replace(done, snapshot=catalog.info.snapshot, failed=failed)
