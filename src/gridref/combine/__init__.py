"""Virtual groups combined into one. Values of labels are read by a function of the caller."""

from __future__ import annotations

from gridref.combine.combining import (
    BATCH_GROUPS,
    CombinedPart,
    combine,
    combine_part,
    combine_parts,
)
from gridref.combine.hypercube import Hypercube
from gridref.combine.instances import combine_ragged
from gridref.combine.mosaic import combine_mosaic
from gridref.combine.options import CombineOptions
from gridref.combine.placement import Along
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
    "Along",
    "Combination",
    "CombineOptions",
    "CombinedPart",
    "Drift",
    "DriftCase",
    "DriftReport",
    "Hypercube",
    "combine",
    "combine_mosaic",
    "combine_part",
    "combine_parts",
    "combine_ragged",
    "in_groups",
    "merged_reports",
]
