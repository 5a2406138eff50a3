"""Which value of a file means that there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gridref.combine.rules.gaps import no_data_of
from gridref.model.array import VirtualArray
from gridref.testing.builders import chunked_array


def labelled(code: str, **attrs: Any) -> VirtualArray:
    return chunked_array(np.zeros(3, code), (3,), ("x",), attrs=attrs)


@pytest.mark.parametrize(
    ("code", "attrs", "expected"),
    [
        ("i2", {}, None),
        ("i2", {"_FillValue": np.int16(-9)}, np.int16(-9)),
        ("i2", {"_FillValue": np.array([-9], "i2")}, np.int16(-9)),
        ("i2", {"missing_value": np.int16(7)}, np.int16(7)),
        ("i2", {"missing_value": np.array([7, 8], "i2")}, np.int16(7)),
        ("i2", {"_FillValue": np.int16(1), "missing_value": np.int16(7)}, np.int16(1)),
        ("f4", {"_FillValue": np.float32(1e20)}, np.float32(1e20)),
        ("S3", {}, b""),
        ("?", {}, None),
    ],
    ids=str,
)
def test_what_says_no_data(code: str, attrs: dict[str, Any], expected: Any) -> None:
    found = no_data_of(labelled(code, **attrs))
    assert found == expected
    assert type(found) is type(expected) or code == "S3"


@pytest.mark.parametrize("code", ["f4", "f8"])
def test_floats_say_nan(code: str) -> None:
    found = no_data_of(labelled(code))
    assert np.isnan(found)
    assert found.dtype == code
