"""A scale of a neuroglancer precomputed volume in tensorstore, which `verify` compares with."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.formats.volume_files import VolumeFiles

_INFO = "info"
_NAME = re.compile(r"-?\d+-\d+_-?\d+-\d+_-?\d+-\d+(\.gz)?|[0-9a-f]+\.shard")


class OriginalScale:
    """A scale that is open in tensorstore, with the axes channel, z, y and x.

    Parameters
    ----------
    path
        Folder of the volume.
    number
        Number of the scale in its ``info``.

    Raises
    ------
    ImportError
        If tensorstore is not installed.
    ValueError
        In the words of tensorstore.
    """

    def __init__(self, path: str, number: int) -> None:
        import tensorstore

        spec = {
            "driver": "neuroglancer_precomputed",
            "kvstore": {"driver": "file", "path": f"{path}/"},
            "scale_index": number,
        }
        self._store: Any = tensorstore.open(spec, read=True).result().T
        self._origin = self._store.origin
        self.shape = tuple(self._store.shape)

    @classmethod
    def around(cls, files: VolumeFiles) -> OriginalScale | None:
        """The scale that a chunk file or a shard belongs to; None if it belongs to none."""
        if _NAME.fullmatch(files.name) is None:
            return None
        for folder, key in files.folders():
            data = files.get(f"{folder}/{_INFO}")
            if data is not None:
                number = _number_of(key.rpartition("/")[0], data)
                return None if number is None else cls(files.local(folder, {_INFO: data}), number)
        return None

    def read(self, region: tuple[slice, ...]) -> NDArray[Any]:
        """Voxels; raises as tensorstore does."""
        return np.asarray(self._store.translate_to[0][region].read().result())

    def centres(self, axis: int) -> NDArray[np.float64] | None:
        """Places of voxels' centres along z, y or x; None along channels."""
        unit = self._store.dimension_units[axis]
        if unit is None or unit.base_unit != "nm":
            return None
        numbers = self._origin[axis] + np.arange(self.shape[axis]) + 0.5
        places: NDArray[np.float64] = numbers * unit.multiplier
        return places


def _number_of(key: str, info: bytes) -> int | None:
    """Number of the scale whose chunks are in a folder."""
    try:
        keys = [scale["key"].strip("/") for scale in json.loads(info)["scales"]]
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return keys.index(key) if key in keys else None
