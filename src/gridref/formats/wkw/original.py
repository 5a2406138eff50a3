"""A file of WKW as the library ``wkw`` reads it, which `verify` compares with."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.formats.volume_files import VolumeFiles
from gridref.formats.wkw.header import Header

_KEY = re.compile(r"z(\d+)/y(\d+)/x(\d+)\.wkw")
_HEADER = "header.wkw"


class OriginalFile:
    """The voxels of one file of a magnification that is open in ``wkw``.

    Parameters
    ----------
    path
        Folder of the magnification.
    corner
        Number of the file along x, y and z.

    Raises
    ------
    ImportError
        If the library is not installed.
    wkw.wkw.WKWException
        In its words.
    """

    def __init__(self, path: str, header: Header, corner: tuple[int, ...]) -> None:
        import wkw

        length = header.file_length
        self._dataset: Any = wkw.Dataset.open(path)
        self._start = np.array(corner) * length
        self.shape: tuple[int, ...] = (length, length, length, header.n_channels)

    @classmethod
    def around(cls, files: VolumeFiles) -> OriginalFile | None:
        """The voxels of a file, if it is one of a magnification."""
        for folder, key in files.folders():
            if (match := _KEY.fullmatch(key)) is not None:
                data = files.get(f"{folder}/{_HEADER}")
                if data is None:
                    return None
                z, y, x = map(int, match.groups())
                path = files.local(folder, {_HEADER: data})
                return cls(path, Header.from_bytes(data), (x, y, z))
        return None

    def read(self, region: tuple[slice, ...]) -> NDArray[Any]:
        """Voxels of a box along z, y, x and channels; raises as ``wkw`` does."""
        z, y, x, channels = region
        start = self._start + np.array([x.start, y.start, z.start])
        lengths = [along.stop - along.start for along in (x, y, z)]
        values = self._dataset.read(tuple(start.tolist()), tuple(lengths))
        return np.asarray(values)[channels].T

    def close(self) -> None:
        """Close the magnification."""
        self._dataset.close()
