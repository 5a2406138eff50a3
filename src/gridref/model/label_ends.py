"""Labels at the ends of index coordinates: they say where further files go, and no others need to.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ENDS", "LabelEnds", "label_ends"]

type LabelEnds = Mapping[str, tuple[float, ...]]
"""By index coordinate labels as they are stored, at `ENDS`."""
ENDS = [0, 1, -2, -1]
"""The elements of which labels are kept."""


def label_ends(labels: NDArray[Any]) -> tuple[float, ...] | None:
    """Those at `ENDS` of all labels, if they are numbers that rise, or fall, all along."""
    if labels.dtype.kind not in "iuf" or labels.size < len(ENDS) or not np.isfinite(labels).all():
        return None
    later, earlier = labels[1:], labels[:-1]
    if not ((later > earlier).all() or (later < earlier).all()):
        return None
    return tuple(labels[ENDS].tolist())
