"""Whether a source is still the file that was scanned."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from gridref.errors import Place, SourceChangedError
from gridref.model.manifest import Source

__all__ = ["check_identity", "source_of_info"]

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

    Raises
    ------
    SourceChangedError
        Saying what changed, and what to do.
    """
    changes = []
    if _differ(recorded.size_bytes, current.size_bytes):
        changes.append(f"its size was {recorded.size_bytes} bytes, now {current.size_bytes}")
    if _differ(recorded.mtime_ns, current.mtime_ns):
        changes.append(
            f"it was last modified {_moment(recorded.mtime_ns)}, now {_moment(current.mtime_ns)}"
        )
    if _comparable(recorded.etag, current.etag) and _strong(recorded.etag) != _strong(current.etag):
        changes.append(f"its version was {recorded.etag}, now {current.etag}")
    if changes:
        raise SourceChangedError(
            f"the file changed since it was scanned: {'; '.join(changes)}. Scan it again to rebuild"
            " the catalog, or restore the file",
            Place(source=recorded.url),
        )


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
