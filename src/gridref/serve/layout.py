"""Where stored chunks lie in an array, for showing it to people."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.model.array import VirtualArray
from gridref.serve.plan import plan_read

__all__ = ["stored_edges"]


def stored_edges(array: VirtualArray, axis: int) -> NDArray[np.int64]:
    """Lengths of what the array shows of each stored chunk along an axis.

    Where blocks are cut differently beside each other, those at the start of the other axes count.
    """
    selection: list[Any] = [slice(0, 1)] * array.ndim
    selection[axis] = slice(None)
    plan = plan_read(array, tuple(selection))
    counts = [cross.axes[axis].pieces.count for cross in plan.crosses]
    return np.concatenate(counts) if counts else np.zeros(0, np.int64)
