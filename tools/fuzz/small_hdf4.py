"""Small HDF4 files with something of everything, as seeds of mutations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pyhdf.SD import SD, SDC

from tests.hdf4_files import modis_tile, set_chunks, set_nbit, write_old, write_structures

__all__ = ["hdf4_files"]

PACKED: dict[str, Callable[[Any], object]] = {
    "runs": lambda dataset: dataset.setcompress(SDC.COMP_RLE),
    "codes": lambda dataset: dataset.setcompress(SDC.COMP_SKPHUFF, 2),
    "bits": lambda dataset: set_nbit(dataset, (5, 4, 1, 1)),
    "chunks of bits": lambda dataset: set_nbit(dataset, (9, 8, 0, 0), (3, 4)),
}
"""Compressions that only HDF4 has."""


def hdf4_files(folder: Path) -> list[bytes]:
    """Files with every layout, records in linked blocks, scales, attributes, a grid, old ones."""
    path = folder / "seed.hdf"
    seeds = []
    kinds = (("plain", "deflated"), ("chunks", "holes"), ("records", "more"), tuple(PACKED))
    for names in kinds:
        file = SD(str(path), SDC.WRITE | SDC.CREATE | SDC.TRUNC)
        file.title = "a title"
        for name in names:
            shape = (SDC.UNLIMITED if name in ("records", "more") else 4, 6)
            dataset = file.create(name, SDC.INT16, shape)
            dataset.setfillvalue(-5)
            dataset.dim(1).setname("x")
            if name == "deflated":
                dataset.setcompress(SDC.COMP_DEFLATE, 6)
            elif name in PACKED:
                PACKED[name](dataset)
            elif name in ("chunks", "holes"):
                set_chunks(dataset, (3, 4), deflate=6 * (name == "holes"))
            values = np.arange(24, dtype="i2").reshape(4, 6)
            if shape[0] == SDC.UNLIMITED:
                continue
            dataset[: 2 if name == "holes" else 4] = values[: 2 if name == "holes" else 4]
            dataset.dim(1).setscale(SDC.FLOAT32, [1, 2, 3, 4, 5, 6])
            dataset.endaccess()
        if names[0] == "records":
            for record in range(70):
                for number in range(2):
                    dataset = file.select(number)
                    dataset[record] = np.arange(6, dtype="i2") + record
                    dataset.endaccess()
        file.end()
        seeds.append(path.read_bytes())
    grid = {"fields": {"v": (("YDim", "XDim"), np.ones((3, 3), "i2"))}, **modis_tile(18, 4)}
    write_structures(path, {"grid": grid})
    seeds.append(path.read_bytes())
    path.unlink()
    return [*seeds, write_old(path, [np.ones((3, 4), "i2"), np.ones(5, "f4")]).read_bytes()]
