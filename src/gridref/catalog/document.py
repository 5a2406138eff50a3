"""``gridref.json`` and the files of snapshots. Specified in ``docs/catalog-format.md``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gridref.catalog.damage import refusing_damage
from gridref.catalog.snapshot import Snapshot, digest_of, dumped
from gridref.catalog.version1 import snapshot_of_version_1
from gridref.errors import CatalogCorruptError, CatalogVersionError, Place

__all__ = ["FORMAT_NAME", "FORMAT_VERSIONS", "ROOT_FILE", "Root"]

ROOT_FILE = "gridref.json"
FORMAT_NAME = "gridref-catalog"
FORMAT_VERSIONS = (1, 2)
"""Format versions that can be read; the last one is written."""
CHECKSUMS = "chunk-checksums"
"""The feature that parts have tables of checksums, which readers compare chunks with."""
STATISTICS = "chunk-statistics"
"""The feature that parts have tables of statistics, which writers keep or leave out."""
_FEATURE_OF = {"checksums": CHECKSUMS, "statistics": STATISTICS}
"""Features by the table of a part that needs them."""
PENDING = "pending"
"""The feature that elements were declared ahead, which strict readers refuse to fill in."""
KNOWN_FEATURES = frozenset({*_FEATURE_OF.values(), PENDING})
"""Features that a catalog may name as needed for reading it."""


@dataclass(frozen=True)
class Root:
    """The whole of ``gridref.json``, or of the file of a snapshot.

    Attributes
    ----------
    snapshot
        The current snapshot.
    tags
        Snapshots that have a name.
    created_by
        Name and version of the writer.
    format_version
        Version of the format that it is written in.
    pruned
        Snapshots that are being removed: they can be gone back to no more.
    """

    snapshot: Snapshot
    tags: Mapping[str, str]
    created_by: str
    format_version: int = FORMAT_VERSIONS[-1]
    pruned: tuple[str, ...] = ()

    @property
    def features(self) -> list[str]:
        """What a reader has to know of."""
        tables = {_FEATURE_OF[name] for part in self.snapshot.parts for name in part.optional}
        return sorted(tables | ({PENDING} if self.snapshot.pending else set()))

    def to_bytes(self) -> bytes:
        """The bytes of ``gridref.json``."""
        document = {
            "format": FORMAT_NAME,
            "format_version": self.format_version,
            "features": self.features,
            "created_by": self.created_by,
            "tags": dict(self.tags),
            "pruned": list(self.pruned),
            "snapshot": self.snapshot.to_json(),
        }
        return dumped({**document, "checksum": digest_of(document)}) + b"\n"

    @classmethod
    def from_bytes(cls, content: bytes, address: str) -> Root:
        """Read the file.

        Raises
        ------
        CatalogVersionError
            For a format version or a feature that is not known.
        CatalogCorruptError
            For anything else that is wrong.
        """
        place = Place(source=address)
        document = _parse(content, place)
        with refusing_damage("the catalog's description", place):
            if document["format_version"] == 1:
                return cls(snapshot_of_version_1(document), {}, document["created_by"], 1)
            return cls._from_json(document)

    @classmethod
    def _from_json(cls, document: Mapping[str, Any]) -> Root:
        rest = {name: value for name, value in document.items() if name != "checksum"}
        if document["checksum"] != digest_of(rest):
            raise ValueError("its content is not that of its checksum")
        return cls(
            Snapshot.from_json(document["snapshot"]),
            {str(tag): str(name) for tag, name in document["tags"].items()},
            document["created_by"],
            document["format_version"],
            tuple(map(str, document["pruned"])),
        )


def _parse(content: bytes, place: Place) -> dict[str, Any]:
    """The JSON object, of a known format version."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError, MemoryError) as error:
        raise CatalogCorruptError(
            f"the catalog's description is not JSON, or cut ({error}): build the catalog again",
            place,
        ) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT_NAME:
        raise CatalogCorruptError(
            f'not the description of a catalog: its "format" is not "{FORMAT_NAME}"', place
        )
    version = document.get("format_version")
    if type(version) is not int or version not in FORMAT_VERSIONS:
        known = ", ".join(map(str, FORMAT_VERSIONS))
        raise CatalogVersionError(
            f"catalog of format version {version!r}, written by {document.get('created_by')!r};"
            f" this gridref knows version {known}. Install the gridref that wrote it, or rebuild",
            place,
        )
    _check_features(document, place)
    return document


def _check_features(document: Mapping[str, Any], place: Place) -> None:
    """Refuse a catalog that needs what this version does not know: no guess is made."""
    features = document.get("features", [])
    if not isinstance(features, list) or not KNOWN_FEATURES.issuperset(map(str, features)):
        raise CatalogVersionError(
            f"catalog with features that this gridref does not know, {features!r}, written by"
            f" {document.get('created_by')!r}. Install the gridref that wrote it, or rebuild",
            place,
        )
