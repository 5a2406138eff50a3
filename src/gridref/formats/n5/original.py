"""A dataset of N5 as tensorstore reads it, which `verify` compares with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import ScanError
from gridref.formats.json_metadata import json_object
from gridref.formats.n5.arrays import is_dataset
from gridref.formats.volume_files import VolumeFiles

_ATTRIBUTES = "attributes.json"


class OriginalDataset:
    """A dataset that is open in tensorstore.

    Parameters
    ----------
    path
        Its folder.

    Raises
    ------
    ImportError
        If tensorstore is not installed.
    ValueError
        In the words of tensorstore.
    """

    def __init__(self, path: str) -> None:
        import tensorstore

        spec = {"driver": "n5", "kvstore": {"driver": "file", "path": f"{path}/"}}
        self._store: Any = tensorstore.open(spec, read=True).result()
        self.shape = tuple(self._store.shape)

    @classmethod
    def around(cls, files: VolumeFiles) -> OriginalDataset | None:
        """The dataset that a block belongs to; None if the file is none of a dataset."""
        for folder, key in files.folders():
            if not key.replace("/", "").isdecimal():
                return None
            data = files.get(f"{folder}/{_ATTRIBUTES}")
            if data is not None:
                return cls(files.local(folder, {_ATTRIBUTES: data})) if _is_of(data) else None
        return None

    def read(self, region: tuple[slice, ...]) -> NDArray[Any]:
        """Elements; raises as tensorstore does."""
        return np.asarray(self._store[region].read().result())


def _is_of(data: bytes) -> bool:
    try:
        return is_dataset(json_object(data, _ATTRIBUTES))
    except ScanError:
        return False
