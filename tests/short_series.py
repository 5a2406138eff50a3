"""Files of one short variable along one dimension, for tests of combining."""

from __future__ import annotations

from typing import Any

import numpy as np

from gridref.combine import CombineOptions, combine
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly


def series(labels: Any, values: Any = None, **attrs: Any) -> VirtualGroup:
    """A file with labels `x` and a variable `v`, which has the attributes."""
    places = np.asarray(labels)
    data = np.arange(len(places), dtype="i2") if values is None else np.asarray(values)
    return VirtualGroup({"x": column(places), "v": column(data, **attrs)})


def column(values: np.ndarray, **attrs: Any) -> VirtualArray:
    """Values along `x` in one chunk."""
    chunks = [max(1, n) for n in values.shape]
    return chunked_array(values, chunks, ("x",), attrs=attrs)


def combined(*groups: VirtualGroup, **options: Any) -> Any:
    """The files along `x`, with the options of `CombineOptions`."""
    return combine(list(groups), "x", read=read_slowly, options=CombineOptions(**options))
