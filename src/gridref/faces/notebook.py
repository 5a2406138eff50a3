"""HTML of bounded size for notebooks: arrays, groups, catalogs and reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from gridref.api.catalog import Verification
from gridref.catalog import CatalogGroup
from gridref.combine import Combination
from gridref.combine.report import DriftReport
from gridref.errors import number_of, some_of
from gridref.faces.picture import ChunkMap, grid_in_words, shortened, sizes_in_words
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.scan_report import Fate, Finding, ScanReport
from gridref.secrets import shown_address

MAX_BYTES = 28_000
"""Most bytes of HTML: every notebook that shows it keeps it."""
MAX_TABLE_BYTES = 5_000
"""Most bytes of one table."""
MAX_CELL = 300
"""Most characters of a cell of a table."""


def html_of(shown: Any) -> str:
    """HTML of an object that a notebook shows."""
    match shown:
        case VirtualArray():
            return _array(shown)
        case CatalogGroup():
            return _group(shown, _table(_about_catalog(shown)))
        case VirtualGroup():
            return _group(shown)
        case Combination():
            return _combination(shown)
        case DriftReport():
            files = _counted({"file": len(shown.files), "drift": len(shown)})
            return _paragraph(files) + _table(_drift_rows(shown.rows()), _DRIFT_TITLES)
        case ScanReport():
            return _scan_report(shown)
        case Verification():
            return _verification(shown)
    raise AssertionError(type(shown))


def _array(array: VirtualArray) -> str:
    about = list(zip(("blocks", "stored chunks", "codecs"), grid_in_words(array), strict=True))
    head = f"<p><code>{escape(shortened(repr(array)))}</code></p>\n{_table(about)}"
    return f"{head}\n{ChunkMap(array).to_svg()}" if array.ndim and array.size else head


def _group(group: VirtualGroup, about: str = "", room: int = MAX_BYTES) -> str:
    """Its arrays, each folding open to its chunk map.

    Where maps take too much room, further arrays have a line only, and the last ones are counted.
    """
    parts = [f"<p><code>{escape(shortened(repr(group)))}</code></p>{about}"]
    arrays = group.all_arrays()
    room -= _n_bytes(parts[0])
    for n_shown, (path, array) in enumerate(arrays.items()):
        part = _member(path, array, room)
        room -= _n_bytes(part) + 1
        if room < 0:
            parts.append(f"<p>and {len(arrays) - n_shown} more</p>")
            break
        parts.append(part)
    return "\n".join(parts)


def _member(path: str, array: VirtualArray, room: int) -> str:
    """An array of a group: a line, which folds open where there is much room."""
    title = f"<b>{escape(shortened(path))}</b> {escape(shortened(sizes_in_words(array)))}"
    if room > MAX_BYTES // 4:
        folded = f"<details><summary>{title}</summary>{_array(array)}</details>"
        if _n_bytes(folded) < room - MAX_BYTES // 8:
            return folded
    return f"<p>{title}</p>"


def _about_catalog(group: CatalogGroup) -> list[tuple[str, ...]]:
    info = group.info
    tags = [name for name, snapshot in info.tags.items() if snapshot == info.snapshot]
    return [
        ("catalog", shown_address(info.url)),
        ("snapshot", ", ".join([info.snapshot, *tags])),
        (
            "holds",
            f"{number_of(info.n_chunks, 'stored chunk')} of {number_of(info.n_sources, 'source')}",
        ),
        ("written by", info.created_by),
    ]


def _combination(combination: Combination) -> str:
    problems = [
        (problem.cause, problem.variable or "/", problem.message, some_of(problem.sources))
        for problem in combination.problems
    ]
    parts = [
        _paragraph(combination.summary),
        _part("Problems", problems, ("cause", "variable", "problem", "files")),
        _part("Left out", _finding_rows(combination.failed), _FINDING_TITLES),
        _part("Drift", _drift_rows(combination.report.rows()), _DRIFT_TITLES),
    ]
    if combination.group is not None:
        parts.append(_group(combination.group, room=MAX_BYTES - sum(map(_n_bytes, parts))))
    return "".join(parts)


def _scan_report(report: ScanReport) -> str:
    fates = [finding.fate.value for finding in report.findings]
    counts = [f"{fates.count(fate)} {fate}" for fate in dict.fromkeys(fates)]
    left_out = [*report.failed, *report.skipped]
    return "".join(
        [
            _paragraph(", ".join(counts) or "nothing was scanned"),
            _part("Left out", _finding_rows(left_out), _FINDING_TITLES),
            _part("Renamed", _finding_rows(report.with_fate(Fate.RENAMED)), _FINDING_TITLES),
            _part("Drift", _drift_rows(report.drifts), _DRIFT_TITLES),
        ]
    )


def _verification(result: Verification) -> str:
    compared = {"array": result.n_arrays, "chunk": result.n_chunks, "value": result.n_values}
    compared["label"] = result.n_labels
    n_labels = sum(each.is_label for each in result.differences)
    n_files = sum(each.is_file for each in result.differences)
    n_chunks = len(result.differences) - n_labels - n_files
    differing = f"{number_of(n_chunks, 'chunk')} and {number_of(n_labels, 'label')} differ"
    if n_files:
        differing += f"; {number_of(n_files, 'file')} cannot be read"
    differences = [
        (
            each.place.variable or "/",
            "" if each.place.chunk is None else str(each.place.chunk),
            each.message,
            shown_address(each.place.source or ""),
        )
        for each in result.differences
    ]
    return "".join(
        [
            _paragraph(f"{_counted(compared)} compared: {differing}"),
            _part("Differences", differences, ("array", "chunk", "difference", "file")),
            _part("Not compared", result.not_compared, ("array", "reason")),
        ]
    )


_DRIFT_TITLES = ("drift", "variable", "value", "files", "from", "to", "resolved")
_FINDING_TITLES = ("file", "object", "reason")


def _drift_rows(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    names = ("cause", "variable", "value", "n_files", "first_file", "last_file", "resolution")
    return [tuple("" if row[name] is None else str(row[name]) for name in names) for row in rows]


def _finding_rows(findings: Iterable[Finding]) -> list[tuple[str, ...]]:
    return [(each.source, each.path, each.reason) for each in findings]


def _part(title: str, rows: Sequence[tuple[str, ...]], titles: Sequence[str]) -> str:
    """A table that folds away, or nothing if it has no rows."""
    if not rows:
        return ""
    summary = f"<summary>{title} ({len(rows)})</summary>"
    return f'<details open="">{summary}{_table(rows, titles)}</details>\n'


def _table(rows: Sequence[tuple[str, ...]], titles: Sequence[str] = ()) -> str:
    """A table; what does not fit is counted. Without titles, the first column is one."""
    lines = [_row(titles, "th")] if titles else []
    room = MAX_TABLE_BYTES
    for n_shown, row in enumerate(rows):
        line = _row(row, "td") if titles else _row(row[:1], "th", _row(row[1:], "td", wrap=False))
        room -= _n_bytes(line)
        if room < 0:
            lines.append(_row((f"and {len(rows) - n_shown} more",), "td"))
            break
        lines.append(line)
    return f"<table>{''.join(lines)}</table>"


def _row(cells: Iterable[str], tag: str, more: str = "", *, wrap: bool = True) -> str:
    shown = (escape(shortened(cell, MAX_CELL)) for cell in cells)
    inner = "".join(f'<{tag} style="text-align:left">{text}</{tag}>' for text in shown) + more
    return f"<tr>{inner}</tr>" if wrap else inner


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(number_of(n, name) for name, n in counts.items())


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>\n"


def _n_bytes(text: str) -> int:
    return len(text.encode(errors="replace"))
