"""What elements that a dataset does not hold read as."""

from __future__ import annotations

from typing import Any

import numpy as np
from h5py import h5d

from gridref.model.array import zero_of
from gridref.scan.hdf5.dtypes import ElementType, Form
from gridref.scan.hdf5.tree import DatasetNode

__all__ = ["fill_value"]


def fill_value(dataset: DatasetNode, element: ElementType) -> Any:
    """The fill value of the creation properties as a scalar of the element's dtype, else zero."""
    creation = dataset.creation
    if element.form not in (Form.STORED, Form.CONVERTED):
        return zero_of(element.dtype)
    if creation.fill_value_defined() != h5d.FILL_VALUE_USER_DEFINED:
        return zero_of(element.dtype)
    if creation.get_fill_time() == h5d.FILL_TIME_NEVER:
        return zero_of(element.dtype)
    value = np.zeros((), dataset.did.dtype.base)
    creation.get_fill_value(value)
    return value.astype(element.dtype)[()]
