"""Labels of dimensions that files do not share, with xarray as the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gridref.combine import CombineOptions, combine
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly


@pytest.mark.parametrize("rule", ["inner", "outer", "left", "right"])
@pytest.mark.parametrize("first", [[1, 2, 3], [], [3]])
@pytest.mark.parametrize("second", [[2, 3, 4], [], [9]])
def test_labels_are_joined_as_xarray_joins_them(
    rule: Any, first: list[int], second: list[int]
) -> None:
    import xarray as xr

    parts = [field(first, 0), field(second, 1)]
    done = combine(parts, "t", read=read_slowly, options=CombineOptions(join=rule))
    assert done.group is not None, done.problems
    expected = xr.concat(
        [
            xr.Dataset(
                {"v": (("t", "x"), read_slowly(p.arrays["v"])), "x": read_slowly(p.arrays["x"])}
            )
            for p in parts
        ],
        "t",
        join=rule,
    )
    assert read_slowly(done.group.arrays["x"]).tolist() == expected["x"].values.tolist()
    np.testing.assert_array_equal(decoded(done.group.arrays["v"]), expected["v"].values)


def field(labels: list[int], day: int) -> VirtualGroup:
    x = np.array(labels, "i4")
    values = (10.0 * day + x)[np.newaxis]
    chunk = (1, max(1, len(labels)))
    return VirtualGroup(
        {
            "x": chunked_array(x, chunk[1:], ("x",)),
            "v": chunked_array(values, chunk, ("t", "x"), attrs={"_FillValue": np.nan}),
        }
    )


def decoded(array: VirtualArray) -> Any:
    import xarray as xr

    variable = xr.Variable(array.dims, read_slowly(array), dict(array.attrs))
    return xr.conventions.decode_cf_variable("v", variable).values
