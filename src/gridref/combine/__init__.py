"""Virtual groups combined into one. Pure: it needs the model only."""

from __future__ import annotations

from gridref.combine.concatenation import (
    BATCH_GROUPS,
    CombinedPart,
    combine,
    combine_part,
    combine_parts,
    combine_stack,
)
from gridref.combine.hypercube import combine_hypercube
from gridref.combine.instances import combine_ragged
from gridref.combine.mosaic import combine_mosaic
from gridref.combine.options import CombineOptions
from gridref.combine.report import (
    Combination,
    Drift,
    DriftCase,
    DriftReport,
    in_groups,
    merged_reports,
)

__all__ = [
    "BATCH_GROUPS",
    "Combination",
    "CombineOptions",
    "CombinedPart",
    "Drift",
    "DriftCase",
    "DriftReport",
    "combine",
    "combine_hypercube",
    "combine_mosaic",
    "combine_part",
    "combine_parts",
    "combine_ragged",
    "combine_stack",
    "in_groups",
    "merged_reports",
]
