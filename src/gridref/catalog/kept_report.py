"""The drift report that a catalog keeps: differences between files, and how each was resolved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from gridref.catalog.tables import table_of_rows
from gridref.model.scan_report import Fate, Finding, ScanReport

MOST_VALUES = 20
"""Values that are kept of one drift of one variable; how many there are more is not."""

_SCHEMA = pa.schema(
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
            it. Files that were in the catalog before, when a file was appended that differs, are
            not counted.
        """
        return table_of_rows(self.drifts, _SCHEMA)

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


def checked_drifts(rows: Iterable[Any]) -> tuple[Mapping[str, Any], ...]:
    """Rows as a catalog has them."""
    kept = tuple(rows)
    for row in kept:
        kinds = {name: type(value) for name, value in row.items()}
        if not all(_may_be(field, kinds.get(name)) for name, field in _FIELDS.items()):
            raise ValueError(f"a drift is {row!r}")
    return kept


_FIELDS = {field.name: field for field in _SCHEMA}


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
