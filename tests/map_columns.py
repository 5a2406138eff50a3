"""The columns of a chunk map, read as `docs/reference/http.md` says."""

from __future__ import annotations

import json
from typing import Any

import numpy as np


def map_columns(body: bytes) -> list[Any]:
    """Header, first elements of rows and of columns, and of each cell bytes, source and state."""
    size = int.from_bytes(body[:4], "little")
    header = json.loads(body[4 : 4 + size])
    n, offset, columns = header["rows"] * header["columns"], 4 + size, []
    for dtype, length in (
        ("<f8", header["rows"]), ("<f8", header["columns"]), ("<u4", n), ("<u4", n), ("u1", n)
    ):  # fmt: skip
        columns.append(np.frombuffer(body, dtype, length, offset))
        offset += columns[-1].nbytes
    assert offset == len(body)
    return [header, *columns]
