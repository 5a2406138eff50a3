"""Whether a source is still the file that was scanned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from gridref.errors import Place, SourceChangedError
from gridref.io.checksums import ReadRanges, checksum_of, coverage_of
from gridref.model.manifest import Source

__all__ = ["check_content", "check_identity", "same_version", "source_of_info"]

_ETAG_KEYS = ("ETag", "etag", "e_tag")
_VERSION_KEYS = (
    "generation",
    "VersionId",
    "version_id",
    "Digest",
    "Content-MD5",
    "Last-Modified",
    "LastModified",
    "last_modified",
    "mtime",
    "modified",
    "created",
)


def source_of_info(url: str, info: Mapping[str, Any]) -> Source:
    """What fsspec's ``info`` says of a file.

    The version is the entity tag where there is one. Else it is the first other thing known that
    changes with the file, written as ``name=value``.
    """
    size = info.get("size")
    return Source(url, None if size is None else int(size), None, _version_of(info))


def _version_of(info: Mapping[str, Any]) -> str | None:
    for key in _ETAG_KEYS:
        if info.get(key):
            return str(info[key])
    for key in _VERSION_KEYS:
        value = info.get(key)
        if value:
            text = value.isoformat() if isinstance(value, datetime) else str(value)
            return f"{key}={text}"
    return None


def check_identity(recorded: Source, current: Source) -> None:
    """Compare what was recorded with what is there now, as far as both are known.

    Of a source whose identity is its size, nothing else is compared.

    Raises
    ------
    SourceChangedError
        Saying what changed, and what to do.
    """
    changes = []
    if _differ(recorded.size_bytes, current.size_bytes):
        changes.append(f"its size was {recorded.size_bytes} bytes, now {current.size_bytes}")
    by_version = recorded.told_by != "size"
    if by_version and _differ(recorded.mtime_ns, current.mtime_ns):
        changes.append(
            f"it was last modified {_moment(recorded.mtime_ns)}, now {_moment(current.mtime_ns)}"
        )
    if by_version and _other_etag(recorded, current):
        changes.append(f"its version was {recorded.etag}, now {current.etag}")
    if changes:
        same_size = not _differ(recorded.size_bytes, current.size_bytes)
        raise SourceChangedError(
            f"the file changed since it was scanned: {'; '.join(changes)}. {SCAN_AGAIN}"
            + (_IF_IT_WAS_COPIED if same_size else ""),
            Place(source=recorded.url),
        )


SCAN_AGAIN = "Scan it again (gridref refresh does, for a catalog), or restore the file"
"""What to do about a file that is not what it was."""
_IF_IT_WAS_COPIED = '; if it was copied and is the same, open the catalog with identity="size"'


def same_version(recorded: Source, current: Source) -> bool:
    """Whether size and time of change, or ETag, are known of both, and the same."""
    if recorded.size_bytes != current.size_bytes:
        return False
    if recorded.mtime_ns is not None and current.mtime_ns is not None:
        return recorded.mtime_ns == current.mtime_ns
    return _comparable(recorded.etag, current.etag) and not _other_etag(recorded, current)


def check_content(recorded: Source, current: Source, read: ReadRanges) -> None:
    """Compare a file that may have been moved with the checksum that was recorded.

    Parameters
    ----------
    recorded
        With its checksum.
    current
        What is there now.
    read
        Reads it.

    Raises
    ------
    SourceChangedError
        If its size or its content is another.
    """
    check_identity(replace(recorded, mtime_ns=None, etag=None), current)
    if recorded.size_bytes is None or recorded.checksum is None:
        return
    now = checksum_of(recorded.size_bytes, read, coverage_of(recorded.checksum))
    if now != recorded.checksum:
        raise SourceChangedError(
            f"the file changed since it was scanned: its checksum was {recorded.checksum}, now"
            f" {now}. {SCAN_AGAIN}",
            Place(source=recorded.url),
        )


def _other_etag(recorded: Source, current: Source) -> bool:
    is_known = _comparable(recorded.etag, current.etag)
    return is_known and _strong(recorded.etag) != _strong(current.etag)


def _differ(recorded: int | None, current: int | None) -> bool:
    return recorded is not None and current is not None and recorded != current


def _strong(etag: str | None) -> str:
    """An entity tag without the mark that a proxy's compression puts on it."""
    return (etag or "").removeprefix("W/")


def _comparable(recorded: str | None, current: str | None) -> bool:
    """Whether both are known, and are the same kind of thing."""
    if recorded is None or current is None:
        return False
    kinds = [
        next((key for key in _VERSION_KEYS if version.startswith(f"{key}=")), "ETag")
        for version in (recorded, current)
    ]
    return kinds[0] == kinds[1]


def _moment(nanoseconds: int | None) -> str:
    seconds, rest = divmod(nanoseconds or 0, 10**9)
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{rest:09d} UTC"
