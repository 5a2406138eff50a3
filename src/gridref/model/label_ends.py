"""The first and last labels of an index coordinate, which decide where further files go. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

type LabelEnds = Mapping[str, tuple[float, ...]]
"""By index coordinate labels as they are stored, at `ENDS`."""
ENDS = [0, 1, -2, -1]
"""The elements whose labels are kept."""


def label_ends(labels: NDArray[Any]) -> tuple[float, ...] | None:
    """The labels at `ENDS`, if all labels are strictly increasing or decreasing numbers."""
    if labels.dtype.kind not in "iuf" or labels.size < len(ENDS) or not np.isfinite(labels).all():
        return None
    later, earlier = labels[1:], labels[:-1]
    if not ((later > earlier).all() or (later < earlier).all()):
        return None
    return tuple(labels[ENDS].tolist())
