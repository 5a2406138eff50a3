"""What a scan tells, and how to scan as in a process that has scanned nothing yet."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gridref.cache import LRU
from gridref.errors import GridrefError
from gridref.formats import ScanOptions
from gridref.formats.registry import scan_with
from gridref.learned import LearnedForms
from gridref.model.array import VirtualGroup

__all__ = ["all_caches", "described", "described_group"]

_OPTIONS = ScanOptions(on_unsupported="skip", max_objects=2000)


def described(path: Path) -> str:
    """All that a scan tells of a file but its time of change; or its error."""
    try:
        group = scan_with(path, _OPTIONS)
    except GridrefError as error:
        return f"{type(error).__name__}: {error}"
    return f"{described_group(group)} {list(group.report)}"


def described_group(group: VirtualGroup) -> str:
    """All arrays, groups and references of a group, but when files changed."""
    arrays = group.all_arrays()
    about = [
        (name, a.dtype, a.dims, a.shape, a.fill_value, a.attrs, a.encodings, a.blocks.origin)
        for name, a in arrays.items()
    ]
    rows = [
        vars(manifest.take(np.arange(manifest.n_rows)))
        for array in arrays.values()
        for manifest in array.manifests
    ]
    groups = [(name, each.attrs, each.unlimited_dims) for name, each in group.walk()]
    return re.sub(r"mtime_ns=\d+", "", repr([about, rows, groups]))


def all_caches() -> list[Callable[[], None]]:
    """What empties each cache of gridref's modules that are loaded."""
    modules = [module for name, module in sys.modules.items() if name.startswith("gridref.")]
    kept = [value for module in modules for value in vars(module).values()]
    caches = [value.clear for value in kept if isinstance(value, LRU | LearnedForms)]
    return caches + [value.cache_clear for value in kept if hasattr(value, "cache_clear")]
