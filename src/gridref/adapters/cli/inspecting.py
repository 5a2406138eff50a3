"""Numbers about a virtual group, for people."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gridref.adapters.cli.spelling import as_on_the_command_line
from gridref.adapters.describing import human_bytes
from gridref.errors import NotRepresentableError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.manifest import ChunkState, Source
from gridref.model.scan_report import ScanReport
from gridref.serve.views import ViewOptions, show

__all__ = [
    "decoded_because",
    "layout_found",
    "skipped_summary",
    "source_summary",
    "unsharded_because",
]


def source_summary(group: VirtualGroup) -> list[str]:
    """What the arrays hold and where their chunks lie, as lines of text. Reads the manifests."""
    sources: dict[Source, None] = {}
    counts = np.zeros(len(ChunkState), np.int64)
    stored = decoded = 0
    for array in group.all_arrays().values():
        decoded += array.nbytes
        for manifest in dict.fromkeys(array.manifests):
            rows = manifest.take(np.arange(manifest.n_rows))
            sources.update(dict.fromkeys(rows.sources))
            counts += np.bincount(rows.state, minlength=len(ChunkState))
            stored += rows.stored_bytes
    sizes = [source.size_bytes for source in sources if source.size_bytes is not None]
    states = ", ".join(f"{counts[state]} {state.name.lower()}" for state in ChunkState)
    lines = [
        f"{counts.sum()} stored chunks: {states}",
        f"{human_bytes(stored)} stored, {human_bytes(decoded)} decoded",
        f"{len(sources)} sources, {human_bytes(sum(sizes))}",
    ]
    urls = sorted(source.url for source in sources)
    shown = urls if len(urls) <= 4 else [*urls[:2], "…", urls[-1]]
    return lines + [f"  {url}" for url in shown]


def skipped_summary(report: ScanReport) -> list[str]:
    """What a scan left out, alike findings of several files in one line; of whole files these."""
    files: dict[tuple[str, str], list[str]] = {}
    for finding in report.skipped:
        files.setdefault((finding.path, finding.reason), []).append(finding.source)
    lines = []
    for (path, reason), sources in files.items():
        named = sources[0] + (f" and {len(sources) - 1} more" if len(sources) > 1 else "")
        lines.append(f"{named}: {reason}" if path == "/" else f"{path}: {reason} [{named}]")
    return lines


def layout_found(report: ScanReport) -> list[str]:
    """How files were laid out for which no layout was asked, as commands spell it."""
    return [
        as_on_the_command_line(f"{drift['resolution']} ({drift['value']})")
        for drift in report.drifts
        if drift["cause"] == "layout"
    ]


def decoded_because(group: VirtualGroup, options: ViewOptions) -> dict[str, str]:
    """Why arrays are not shown in the native view: their paths by reason."""
    return _paths_by(group, lambda array: _shown(array, options)[0])


def unsharded_because(group: VirtualGroup, options: ViewOptions) -> dict[str, str]:
    """Why arrays are shown without the shards that were asked for: their paths by reason."""
    return _paths_by(group, lambda array: _shown(array, options)[1])


def _shown(array: VirtualArray, options: ViewOptions) -> tuple[str, str]:
    """Why an array is not native, and why it has no shards; empty where there is no reason."""
    try:
        shown = show(array, options)
    except NotRepresentableError as error:
        return error.reason, ""
    return shown.reason, shown.shard_reason


def _paths_by(group: VirtualGroup, reason_of: Callable[[VirtualArray], str]) -> dict[str, str]:
    paths: dict[str, list[str]] = {}
    for path, array in group.all_arrays().items():
        reason = reason_of(array)
        if reason:
            paths.setdefault(reason, []).append(path)
    return {reason: ", ".join(affected) for reason, affected in paths.items()}
