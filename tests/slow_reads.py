"""Large arrays without files, and a reader that takes its time: what servers work out of them."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from gridref.model.array import VirtualArray
from gridref.model.encoding import Encoding, bytes_codec
from gridref.model.manifest import ChunkManifest
from gridref.serve.reader import Reader


def holes(shape: tuple[int, int], chunk: tuple[int, int]) -> VirtualArray:
    """An array whose chunks are all missing: what is planned counts them all the same."""
    encoding = Encoding(chunk, np.dtype("f4"), (bytes_codec(np.dtype("f4")),))
    n_chunks = math.prod(-(-n // c) for n, c in zip(shape, chunk, strict=True))
    manifest = ChunkManifest.missing(n_chunks)
    return VirtualArray.of_one_block(
        shape,
        np.dtype("f4"),
        encoding=encoding,
        manifest=manifest,
        dims=("y", "x"),
        fill_value=np.float32(1),
    )


class Slow(Reader):
    """Counts what is read, and takes its time."""

    n_read = 0

    def read(self, array: VirtualArray, selection: Any = None, **options: Any) -> Any:
        self.n_read += 1
        time.sleep(0.02)
        return super().read(array, selection, **options)
