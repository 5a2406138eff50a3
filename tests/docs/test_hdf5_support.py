"""docs/formats/hdf5.md says what the code does."""

from __future__ import annotations

import re

from gridref.formats.hdf5.filters import FILTERS
from tests.hdf5_support import ROWS, is_documented


def test_filters_are_those_of_the_code() -> None:
    listed = {
        int(row[0]): (row[1], row[2].strip("`")) for row in ROWS if re.fullmatch(r"\d+", row[0])
    }
    values = (0, 0, 4, 0, 5, 1, 1)
    assert listed == {number: (name, make(values).name) for number, (name, make) in FILTERS.items()}


def test_reasons_match_with_their_varying_parts() -> None:
    assert is_documented("filter 32024 (SZ3) cannot be decoded")
    assert is_documented("variable-length sequences of references to objects have no Zarr dtype")
    assert not is_documented("something else")
