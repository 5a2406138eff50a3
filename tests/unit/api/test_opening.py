"""Options of views, as users write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zarr

import gridref
from gridref.errors import InvalidRequestError
from gridref.testing.builders import chunked_array


@pytest.fixture
def group() -> gridref.VirtualGroup:
    return gridref.VirtualGroup({"v": chunked_array(np.arange(100.0), (7,), ("x",))})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"view": "pretty"}, "view='pretty' is none of 'auto', 'native', 'portable'"),
        ({"compressor": "rar"}, "compressor must be one of"),
        ({"chunks": {"y": 3}}, "no array has a dimension y; there are x"),
        ({"shards": {"z": 3}}, "no array has a dimension z"),
        ({"shards": "huge"}, "shards"),
    ],
)
def test_bad_options(group: gridref.VirtualGroup, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        gridref.open_store(group, **options)


def test_rectilinear_follows_zarrs_flag(group: gridref.VirtualGroup) -> None:
    parts = [chunked_array(np.zeros(n), (n,), ("x",)) for n in (2000, 3000)]
    uneven = gridref.VirtualGroup({"v": gridref.concat(parts, "x")})

    def grid() -> str:
        store = gridref.open_store(uneven, "portable")
        return str(store.space.document("v")["chunk_grid"]["name"])

    with zarr.config.set({"array.rectilinear_chunks": False}):
        assert grid() == "regular"
    with zarr.config.set({"array.rectilinear_chunks": True}):
        assert grid() == "rectilinear"
        store = gridref.open_store(uneven, "portable", grid="regular")
        assert store.space.document("v")["chunk_grid"]["name"] == "regular"
