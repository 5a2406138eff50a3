from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from gridref.catalog.values import dtype_from_json, dtype_to_json

INNER = {"names": ["b", "a"], "formats": ["f8", ("i2", (3,))], "offsets": [8, 0], "itemsize": 24}


@pytest.mark.parametrize(
    "dtype",
    [
        np.longdouble,
        "S0",
        "V0",
        "M8[25s]",
        [("a", "i2", (3,))],
        {"names": ["a", "b"], "formats": ["i1", "f8"], "offsets": [0, 8]},
        INNER,
        {"names": ["x", "y"], "formats": ["i4", "i2"], "offsets": [0, 2]},
        {"names": ["n"], "formats": [INNER], "offsets": [4], "itemsize": 40},
    ],
    ids=str,
)
def test_dtypes_come_back(dtype: Any) -> None:
    document = json.loads(json.dumps(dtype_to_json(np.dtype(dtype))))
    assert dtype_from_json(document) == np.dtype(dtype)
