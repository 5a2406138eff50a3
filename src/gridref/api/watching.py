"""Find the files that a watched catalog lacks: by a listing, or by a file of events."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

from gridref.errors import InvalidRequestError, Message, Option
from gridref.formats import expand_files
from gridref.io import absolute_url, is_local
from gridref.secrets import without_secrets


@dataclass(frozen=True)
class Listing:
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
class Events:
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


def is_settled(file: str, seconds: float) -> bool:
    """Whether a local file has not changed for some time."""
    if not seconds or not is_local(file):
        return True
    try:
        return time.time() - os.stat(file).st_mtime >= seconds
    except OSError:
        return True  # appending it says what is wrong
