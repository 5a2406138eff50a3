"""Virtual groups combined into one. Pure: it needs the model only."""

from __future__ import annotations

from gridref.combine.folding import (
    BATCH_GROUPS,
    CombinedPart,
    combine,
    combine_part,
    combine_parts,
    merged_reports,
)
from gridref.combine.hypercube import combine_hypercube
from gridref.combine.labelled import combine_stack
from gridref.combine.mosaic import combine_mosaic
from gridref.combine.options import CombineOptions, MosaicOptions
from gridref.combine.report import Combination, Drift, DriftCase, DriftReport
from gridref.combine.sampling import combine_ragged

__all__ = [
    "BATCH_GROUPS",
    "Combination",
    "CombineOptions",
    "CombinedPart",
    "Drift",
    "DriftCase",
    "DriftReport",
    "MosaicOptions",
    "combine",
    "combine_hypercube",
    "combine_mosaic",
    "combine_part",
    "combine_parts",
    "combine_ragged",
    "combine_stack",
    "merged_reports",
]
