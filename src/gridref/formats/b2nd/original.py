"""An array as the library ``blosc2`` reads it, which `verify` compares with."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.formats.volume_files import VolumeFiles
from gridref.io import ScanFile

_FRAME = "chunks.b2frame"
_FIRST = "00000000.chunk"
_CHUNK = re.compile(r"[0-9A-F]{8}\.chunk")


class OriginalArray:
    """An array that is open in ``blosc2``, which raises errors of its own and of Python."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.shape = tuple(array.shape)

    @classmethod
    def of_frame(cls, file: ScanFile) -> OriginalArray:
        """The array of a contiguous frame; raises ImportError if ``blosc2`` is not installed."""
        import blosc2

        if file.is_remote:
            (data,) = file.read_many([0], [file.size])
            return cls(blosc2.ndarray_from_cframe(bytes(data), copy=True))
        return cls(blosc2.open(file.name, mode="r"))

    @classmethod
    def around(cls, files: VolumeFiles) -> OriginalArray | None:
        """The array that a chunk of a sparse frame belongs to; None if the file is none."""
        if _CHUNK.fullmatch(files.name) is None:
            return None
        folder = files.url.rpartition("/")[0]
        data = files.get(f"{folder}/{_FRAME}")
        if data is None:
            return None
        import blosc2

        # It looks at the first chunk for the sizes of all.
        first = files.get(f"{folder}/{_FIRST}")
        copied = {_FRAME: data} if first is None else {_FRAME: data, _FIRST: first}
        return cls(blosc2.open(files.local(folder, copied), mode="r"))

    def read(self, region: tuple[slice, ...]) -> NDArray[Any]:
        """Elements."""
        values = np.asarray(self._array[region])
        return values.astype(values.dtype.newbyteorder("="), copy=False)
