"""A snapshot: a catalog as one commit left it, but for its rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from gridref.catalog.entries import ArrayEntry, GroupEntry, Interned, PartEntry
from gridref.catalog.kept_report import checked_drifts
from gridref.catalog.pending import Pending, checked_pending
from gridref.model.label_ends import ENDS, LabelEnds
from gridref.model.manifest import IDENTITIES, Identity

__all__ = ["Commit", "Pruned", "Snapshot", "SourceUrls", "digest_of", "dumped"]

type SourceUrls = Literal["absolute", "relative"]


@dataclass(frozen=True)
class Commit:
    """An entry of a catalog's history.

    Attributes
    ----------
    id
        The snapshot that it made.
    parent
        The snapshot that it changed; None for the first.
    time
        When, as ISO 8601 in UTC.
    operation
        ``"write"``, ``"append"``, ``"replace"``, ``"remove"``, ``"refresh"``, ``"rollback"``, ...
    message
        What it did, for people.
    restores
        The snapshot that a rollback went back to.
    """

    id: str
    parent: str | None
    time: str
    operation: str
    message: str
    restores: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        return vars(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Commit:
        """Read the JSON form."""
        return cls(**{name: value and str(value) for name, value in document.items()})


@dataclass(frozen=True)
class Snapshot:
    """A catalog as one commit left it. It never changes.

    Attributes
    ----------
    id
        Its name: no other snapshot ever has it.
    log
        The last commits, this one last.
    root
        The tree of groups and arrays.
    shared
        Axes, encodings and layouts.
    parts
        The tables that layouts count into.
    prefixes
        Beginnings of the addresses of sources, which the tables of sources count into.
    source_urls
        Whether URLs of sources are stored relative to the catalog where possible.
    extra
        JSON values of the application's own.
    recipe
        How files were combined: the options that another file is added by; None if not known.
    identity
        What makes a source the file that was scanned.
    drifts
        What differed between the files, as `CatalogReport` shows it.
    pending
        Elements by dimension that were declared ahead, and that no file has held yet.
    ends
        The first two and the last two labels of index coordinates that rise, or fall, all along.
    """

    id: str
    log: tuple[Commit, ...]
    root: GroupEntry
    shared: Interned
    parts: tuple[PartEntry, ...]
    prefixes: tuple[str, ...]
    source_urls: SourceUrls
    extra: Mapping[str, Any]
    recipe: Mapping[str, Any] | None = None
    identity: Identity = "strict"
    drifts: tuple[Mapping[str, Any], ...] = ()
    pending: Pending = field(default_factory=dict)
    ends: LabelEnds = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.identity not in IDENTITIES:
            raise ValueError(f"the identity of sources is {self.identity!r}")

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content: the same however the catalog has grown."""
        axes = [digest_of(axis) for axis in self.shared.to_json()["axes"]]
        # Encodings count by the blocks that have them, in which order ever they are listed.
        arrays = {
            path: {
                **{name: value for name, value in entry.document.items() if name != "encodings"},
                "axes": [axes[i] for i in entry.document["axes"]],
                "content": entry.content,
            }
            for path, entry in self.root.all_arrays().items()
        }
        own: dict[str, Any] = {
            "source_urls": self.source_urls,
            "extra": self.extra,
            "arrays": arrays,
        }
        if self.identity != "strict":
            own["identity"] = self.identity
        if self.pending:
            own["pending"] = self.pending
        return digest_of({**own, "groups": self.root.described()})

    def grid_shape(self, entry: ArrayEntry) -> tuple[int, ...]:
        """Number of blocks of an array along each dimension."""
        return tuple(self.shared.axes[i].n_chunks for i in entry.document["axes"])

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "id": self.id,
            "digest": self.digest,
            "log": [commit.to_json() for commit in self.log],
            "source_urls": self.source_urls,
            "identity": self.identity,
            "prefixes": list(self.prefixes),
            "recipe": self.recipe,
            "drifts": list(self.drifts),
            **({"pending": dict(self.pending)} if self.pending else {}),
            **({"ends": {dim: list(each) for dim, each in self.ends.items()}} if self.ends else {}),
            "extra": self.extra,
            "parts": [part.to_json() for part in self.parts],
            **self.shared.to_json(),
            "root": self.root.to_json(),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Snapshot:
        """Read the JSON form."""
        snapshot = cls(
            str(document["id"]),
            tuple(map(Commit.from_json, document["log"])),
            GroupEntry.from_json(document["root"]),
            Interned.from_json(document),
            tuple(map(PartEntry.from_json, document["parts"])),
            tuple(map(str, document["prefixes"])),
            document["source_urls"],
            document["extra"],
            document["recipe"],
            document["identity"],
            checked_drifts(document.get("drifts", ())),
            checked_pending(document.get("pending", {})),
            _checked_ends(document.get("ends", {})),
        )
        # Stated, as it is part of what the file's checksum covers, and dear to make.
        vars(snapshot)["digest"] = str(document["digest"])
        return snapshot


def _checked_ends(document: Any) -> LabelEnds:
    ends = {str(dim): tuple(labels) for dim, labels in document.items()}
    for labels in ends.values():
        if len(labels) != len(ENDS) or any(type(each) not in (int, float) for each in labels):
            raise ValueError(f"labels at the ends of an index coordinate are {labels!r}")
    return ends


@dataclass(frozen=True)
class Pruned:
    """What pruning removes, or would remove.

    Attributes
    ----------
    snapshots
        Ids of snapshots that can be opened no more.
    files
        Names of files.
    """

    snapshots: tuple[str, ...]
    files: tuple[str, ...]


def digest_of(content: Any) -> str:
    """SHA-256 of the JSON text of a value."""
    return f"sha256:{hashlib.sha256(dumped(content)).hexdigest()}"


def dumped(document: Any) -> bytes:
    """The JSON text of a value, without white space."""
    return json.dumps(document, allow_nan=False, separators=(",", ":"), sort_keys=False).encode()
