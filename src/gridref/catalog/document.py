"""Snapshots, ``gridref.json``, and the files of earlier snapshots.

A `Snapshot` describes a catalog as one commit left it. A `Root` is the whole of ``gridref.json``:
the current snapshot, tags and the format version. Both are read from JSON and written to it. The
format is specified in ``docs/catalog-format.md``.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gridref.catalog.entries import ArrayEntry, GroupEntry, Interned, PartEntry
from gridref.catalog.folder import Folder, open_folder
from gridref.catalog.sheet_entries import (
    MOST_OVERLAYS,
    MOST_OVERVIEWS,
    Covering,
    OverlayEntry,
    OverviewEntry,
    check_entries,
)
from gridref.catalog.tables import table_of_rows
from gridref.catalog.values import UNLESS_EMPTY, record_from_json, record_to_json, refusing_damage
from gridref.errors import (
    CatalogCorruptError,
    CatalogNotFoundError,
    CatalogVersionError,
    GridrefError,
    InvalidRequestError,
    Place,
)
from gridref.limits import beyond, limits
from gridref.model.conventions import ENDS, LabelEnds
from gridref.model.manifest import IDENTITIES, Identity
from gridref.model.scan_report import Fate, Finding, ScanReport
from gridref.pickling import Picklable
from gridref.typing import Int64Array

# Elements that were declared ahead and have no file yet

type Ranges = tuple[tuple[int, int], ...]
"""Half-open ranges of elements along a dimension, ascending and apart."""
type Pending = Mapping[str, Ranges]
"""Ranges by dimension."""


def check_pending(pending: Pending) -> None:
    """Refuse ranges that are not ascending and apart."""
    for found in pending.values():
        flat = [number for each in found for number in each]
        if sorted({*flat}) != flat:
            raise ValueError(f"elements that are pending are {found!r}")


def is_pending(dims: Sequence[str], starts: Int64Array, pending: Pending) -> NDArray[np.bool_]:
    """Bool (n,), whether what begins at elements int64 (n, ndim) was declared, as far as they say.

    It still may be in a file.
    """
    found = np.zeros(len(starts), bool)
    for axis, dim in enumerate(dims):
        bounds = np.array(pending.get(dim, ()), np.int64).reshape(-1)
        # Between a start and its stop the number of bounds that are passed is odd.
        found |= np.searchsorted(bounds, starts[:, axis], side="right") % 2 == 1
    return found


# The drift that a catalog keeps: differences between files, and how each was resolved

MOST_VALUES = 20
"""Values that are kept of one drift of one variable; how many there are more is not."""

_DRIFT_SCHEMA = pa.schema(
    [
        pa.field("cause", pa.string(), nullable=False),
        pa.field("variable", pa.string(), nullable=False),
        pa.field("value", pa.string(), nullable=False),
        pa.field("n_files", pa.int64(), nullable=False),
        pa.field("first_file", pa.string()),
        pa.field("last_file", pa.string()),
        pa.field("resolution", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True)
class CatalogReport(ScanReport):
    """What was found when files were scanned; called, the drift that the catalog keeps."""

    def __call__(self) -> pa.Table:
        """What differed between the files, and how it was resolved.

        Returns
        -------
        pyarrow.Table
            One row for each value that a property of a variable has: ``cause``, a short stable name
            like ``"packing"``; ``variable``, its path; ``value``; ``n_files`` that have it, with
            the ``first_file`` and ``last_file`` of them; and ``resolution``, what was done about
            it. When a file is appended that differs, the values of the files before it are not
            listed.
        """
        return table_of_rows(self.drifts, _DRIFT_SCHEMA)

    @classmethod
    def of(cls, report: ScanReport, drifts: Iterable[Mapping[str, Any]]) -> CatalogReport:
        """The report of a scan, with the drift that a catalog keeps.

        Without findings of a scan, there is one for each thing that the drift lists as missing.
        """
        kept = tuple(drifts)
        findings = report.findings or [
            Finding(
                f"/{row['variable']}", Fate(row["cause"]), row["value"], row["first_file"] or ""
            )
            for row in kept
            if row["cause"] in (Fate.SKIPPED, Fate.DAMAGED, Fate.FAILED)
        ]
        return cls(findings, report.n_requests, report.n_bytes, kept, report.lines)


def check_drifts(rows: Iterable[Mapping[str, Any]]) -> None:
    """Refuse rows that have other members."""
    for row in rows:
        kinds = {name: type(value) for name, value in row.items()}
        if not all(_may_be(field, kinds.get(name)) for name, field in _DRIFT_FIELDS.items()):
            raise ValueError(f"a drift is {row!r}")


_DRIFT_FIELDS = {field.name: field for field in _DRIFT_SCHEMA}


def _may_be(field: pa.Field, kind: type | None) -> bool:
    if field.nullable and kind is type(None):
        return True
    return kind is (int if field.type == pa.int64() else str)


def merged_drifts(
    before: Iterable[Mapping[str, Any]], new: Iterable[Mapping[str, Any]]
) -> tuple[Mapping[str, Any], ...]:
    """The rows of two reports, one for each value; they grow with the values, not with files."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    counts: dict[tuple[str, ...], int] = {}
    for row in (*before, *new):
        drift = (row["cause"], row["variable"], row["resolution"])
        known = rows.get((*drift, row["value"]))
        if known is not None:
            known["n_files"] += row["n_files"]
            known["first_file"] = known["first_file"] or row["first_file"]
            known["last_file"] = row["last_file"] or known["last_file"]
        elif counts.setdefault(drift, 0) < MOST_VALUES:
            counts[drift] += 1
            rows[*drift, row["value"]] = dict(row)
    return tuple(rows.values())


# Snapshots: a catalog as one commit left it, without its rows

_IDS = re.compile(r"[0-9a-f]{16}")
"""Names of snapshots."""

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

    Raises
    ------
    ValueError
        If a snapshot is not called as they are: files are named after them.
    """

    id: str
    parent: str | None
    time: str
    operation: str
    message: str
    restores: str | None = None

    def __post_init__(self) -> None:
        for name in (self.id, self.parent, self.restores):
            if name is not None and not _IDS.fullmatch(name):
                raise ValueError(f"a snapshot is called {name!r}")


@dataclass(frozen=True)
class Snapshot(Picklable):
    """A catalog as one commit left it. It never changes.

    Attributes
    ----------
    id
        Its name: no other snapshot ever has it.
    log
        The last commits, this one last.
    source_urls
        Whether URLs of sources are stored relative to the catalog where possible.
    identity
        What makes a source the file that was scanned.
    prefixes
        Beginnings of the addresses of sources, which the tables of sources count into.
    recipe
        How files were combined: the options that another file is added by; None if not known.
    drifts
        What differed between the files, as `CatalogReport` shows it.
    pending
        Elements by dimension that were declared ahead, and that no file has held yet.
    ends
        The first two and the last two labels of index coordinates that rise, or fall, all along.
    overlays
        Other layouts of elements of its arrays. They are no part of its digest.
    overviews
        Its arrays at coarser levels. They are no part of its digest either.
    extra
        JSON values of the application's own.
    parts
        The tables that layouts count into.
    shared
        Axes, encodings and layouts.
    root
        The tree of groups and arrays.
    """

    id: str
    log: tuple[Commit, ...]
    source_urls: SourceUrls = "absolute"
    identity: Identity = "strict"
    prefixes: tuple[str, ...] = ()
    recipe: Mapping[str, Any] | None = None
    drifts: tuple[Mapping[str, Any], ...] = ()
    pending: Pending = field(default_factory=dict, metadata=UNLESS_EMPTY)
    ends: LabelEnds = field(default_factory=dict, metadata=UNLESS_EMPTY)
    overlays: tuple[OverlayEntry, ...] = field(default=(), metadata=UNLESS_EMPTY)
    overviews: tuple[OverviewEntry, ...] = field(default=(), metadata=UNLESS_EMPTY)
    extra: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[PartEntry, ...] = ()
    shared: Interned = field(default_factory=Interned)
    root: GroupEntry = field(default_factory=GroupEntry)

    def __post_init__(self) -> None:
        if self.identity not in IDENTITIES:
            raise ValueError(f"the identity of sources is {self.identity!r}")
        if not self.log or self.log[-1].id != self.id:
            raise ValueError(f"the last commit in the log is not of the snapshot {self.id!r}")

    @property
    def beside(self) -> tuple[Covering[Any], ...]:
        """What was written beside its files: overlays and overviews."""
        return *self.overlays, *self.overviews

    @property
    def all_parts(self) -> tuple[PartEntry, ...]:
        """The parts of its arrays, and of the sheets that are beside them."""
        sheets = [sheet for each in self.beside for sheet in each.sheets]
        return *self.parts, *(sheet.part for sheet in sheets if sheet.part is not None)

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
        document = {"id": self.id, "digest": self.digest, **record_to_json(self)}
        root, shared = document.pop("root"), document.pop("shared")
        return {**document, **shared, "root": root}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Snapshot:
        snapshot = record_from_json(cls, {**document, "shared": document})
        check_drifts(snapshot.drifts)
        check_pending(snapshot.pending)
        _check_ends(snapshot.ends)
        arrays = snapshot.root.all_arrays()
        snapshot.shared.check_numbers(arrays.values())
        check_entries(snapshot.overlays, arrays, MOST_OVERLAYS)
        check_entries(snapshot.overviews, arrays, MOST_OVERVIEWS)
        if len({each.array for each in snapshot.overviews}) < len(snapshot.overviews):
            raise ValueError("two overviews of one array")
        # Stated, as it is part of what the file's checksum covers, and dear to make.
        vars(snapshot)["digest"] = str(document["digest"])
        return snapshot


def _check_ends(ends: LabelEnds) -> None:
    for labels in ends.values():
        if len(labels) != len(ENDS) or any(type(each) not in (int, float) for each in labels):
            raise ValueError(f"labels at the ends of an index coordinate are {labels!r}")


@dataclass(frozen=True)
class Pruned:
    """What pruning removes, or would remove.

    Attributes
    ----------
    snapshots
        Ids of snapshots that can be opened no more.
    sheets
        Folders of overlays in the catalog's, which no snapshot names.
    """

    snapshots: tuple[str, ...]
    files: tuple[str, ...]
    sheets: tuple[str, ...] = ()


def digest_of(content: Any) -> str:
    """SHA-256 of the JSON text of a value."""
    return f"sha256:{hashlib.sha256(dumped(content)).hexdigest()}"


def dumped(document: Any) -> bytes:
    """The JSON text of a value, without white space."""
    return json.dumps(document, allow_nan=False, separators=(",", ":"), sort_keys=False).encode()


# ``gridref.json`` (see ``docs/catalog-format.md``)

ROOT_FILE = "gridref.json"
FORMAT_NAME = "gridref-catalog"
FORMAT_VERSION = 2
"""The version of the format that is read and written."""
CHECKSUMS = "chunk-checksums"
"""The feature that parts have tables of checksums, which readers compare chunks with."""
STATISTICS = "chunk-statistics"
"""The feature that parts have tables of statistics, which writers keep or leave out."""
_FEATURE_OF = {"checksums": CHECKSUMS, "statistics": STATISTICS}
"""Features by the table of a part that needs them."""
PENDING = "pending"
"""The feature that elements were declared ahead, which strict readers refuse to fill in."""
OVERLAYS = "overlays"
"""The feature that arrays have overlays, whose coverage writers keep true."""
OVERVIEWS = "overviews"
"""The feature that arrays have overviews, whose coverage writers keep true."""
KNOWN_FEATURES = frozenset({*_FEATURE_OF.values(), PENDING, OVERLAYS, OVERVIEWS})
"""Features that a catalog may name as needed for reading it."""


@dataclass(frozen=True)
class Root:
    """The whole of ``gridref.json``, or of the file of a snapshot.

    Attributes
    ----------
    snapshot
        The current snapshot.
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
    format_version: int = FORMAT_VERSION
    pruned: tuple[str, ...] = ()

    @property
    def features(self) -> list[str]:
        """What a reader has to know of."""
        tables = {_FEATURE_OF[name] for part in self.snapshot.parts for name in part.optional}
        own: dict[str, Any] = {
            PENDING: self.snapshot.pending,
            OVERLAYS: self.snapshot.overlays,
            OVERVIEWS: self.snapshot.overviews,
        }
        return sorted(tables | {feature for feature, held in own.items() if held})

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
            return cls._from_json(document)

    @classmethod
    def _from_json(cls, document: Mapping[str, Any]) -> Root:
        rest = {name: value for name, value in document.items() if name != "checksum"}
        if document["checksum"] != digest_of(rest):
            raise ValueError("its content does not match its checksum")
        return cls(
            Snapshot.from_json(document["snapshot"]),
            {str(tag): str(name) for tag, name in document["tags"].items()},
            str(document["created_by"]),
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
            f'the file does not describe a catalog: its "format" is not "{FORMAT_NAME}"', place
        )
    version = document.get("format_version")
    if type(version) is not int or version != FORMAT_VERSION:
        raise CatalogVersionError(
            f"catalog of format version {version!r}, written by {document.get('created_by')!r};"
            f" this gridref knows version {FORMAT_VERSION}. Install the gridref that wrote it, or"
            " rebuild",
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


# Files of former snapshots


def snapshot_file(name: str) -> str:
    """The file of a former snapshot."""
    return f"snapshot-{name}.json.gz"


def unzipped(content: bytes, address: str) -> bytes:
    """What the file of a former snapshot holds.

    Raises
    ------
    CatalogCorruptError
        If it is damaged, or stands for far more than it has bytes.
    """
    most = limits().text_of(len(content))
    try:
        with gzip.open(io.BytesIO(content)) as file:
            held = file.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = f"a former snapshot is damaged: {error}"
        raise CatalogCorruptError(reason, Place(source=address)) from error
    if len(held) > most:
        raise CatalogCorruptError(
            beyond(
                "expanded_text_times",
                f"a former snapshot of {len(content)} bytes states that it holds more than {most}",
            ),
            Place(source=address),
        )
    return held


def root_at(folder: Folder, root: Root, snapshot: str) -> Root:
    """The root with another snapshot in place of the current one.

    Parameters
    ----------
    folder, root
        The catalog, and its root file.
    snapshot
        A tag, or the id of a snapshot.

    Raises
    ------
    InvalidRequestError
        If there is none, or not any more.
    """
    name = root.tags.get(snapshot, snapshot)
    if name == root.snapshot.id:
        return root
    place = Place(source=folder.url)
    missing = InvalidRequestError(
        f"there is no snapshot {snapshot!r}: it was pruned or never existed; gridref list CATALOG "
        f"history lists all snapshots (tags: {', '.join(sorted(root.tags)) or 'none'})",
        place,
    )
    if not _IDS.fullmatch(name) or name in root.pruned:
        raise missing
    file = snapshot_file(name)
    try:
        content = unzipped(folder.read(file), folder.address(file))
    except CatalogNotFoundError as error:
        raise missing from error
    former = Root.from_bytes(content, folder.address(file))
    return replace(former, tags=root.tags, pruned=root.pruned)


def read_root(folder: Folder, snapshot: str | None = None) -> Root:
    """The root of a catalog, with another snapshot in place of the current one if one is named.

    If the catalog was replaced between the reading of its two files, both are read again.

    Raises
    ------
    InvalidRequestError
        If there is no such snapshot, or not any more.
    """
    content = folder.read(ROOT_FILE)
    while True:
        root = Root.from_bytes(content, folder.address(ROOT_FILE))
        try:
            return root if snapshot is None else root_at(folder, root, snapshot)
        except InvalidRequestError:
            before, content = content, folder.read(ROOT_FILE)
            if content == before:
                raise


def is_replaced(url: str, storage_options: Mapping[str, Any] | None, snapshot: str) -> bool:
    """Whether a catalog no longer has a snapshot: the catalog was replaced, or the snapshot pruned.

    False where the catalog cannot be read.
    """
    try:
        read_root(open_folder(url, storage_options), snapshot)
    except InvalidRequestError:
        return True
    except GridrefError:
        return False
    return False
