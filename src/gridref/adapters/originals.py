"""Source files read by their original readers, h5py and tifffile, for comparison."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Protocol, cast

import numpy as np
import tifffile
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError, SourceFormatError, UnsupportedFeatureError
from gridref.io import open_for_scan
from gridref.model.array import VirtualArray
from gridref.scan.hdf5 import OriginalFile

__all__ = ["Originals"]

Region = tuple[slice, ...]


class _Original(Protocol):
    def read(self, path: str, array: VirtualArray, region: Region) -> NDArray[Any]: ...

    def close(self) -> None: ...


class _HDF5Original:
    def __init__(self, url: str, storage_options: Mapping[str, Any] | None) -> None:
        with suppress(ImportError):
            import hdf5plugin  # noqa: F401 - importing it gives h5py more filters
        self.file = OriginalFile(url, storage_options)

    def read(self, path: str, array: VirtualArray, region: Region) -> NDArray[Any]:
        try:
            # An ellipsis keeps arrays of no dimensions arrays.
            ahead: Any = (*_reversal(region), ...)
            values: NDArray[Any] = self.file.read(path, _ascending(region))[ahead]
        except (InvalidRequestError, SourceFormatError) as error:
            raise UnsupportedFeatureError(error.reason) from error
        except ValueError as error:  # of another rank: axes were added or dropped
            raise UnsupportedFeatureError("its dataset has another shape") from error
        return values

    def close(self) -> None:
        self.file.close()


class _TIFFOriginal:
    def __init__(self, file: Any) -> None:
        self.stream = file
        self.file = tifffile.TiffFile(file)
        self._image = lru_cache(maxsize=2)(self._load)

    def read(self, path: str, array: VirtualArray, region: Region) -> NDArray[Any]:
        if "tiff_series" not in array.attrs:
            raise UnsupportedFeatureError("it is not an image of the file")
        image = self._image(int(array.attrs["tiff_series"]), int(array.attrs.get("tiff_level", 0)))
        squeezed = [extent for extent in image.shape if extent != 1]
        spans = [entry for entry in region if entry != slice(0, 1, 1)]
        if image.ndim != len(region) and len(squeezed) == len(spans):
            shape = [1 if entry == slice(0, 1, 1) else 0 for entry in region]
            extents = iter(squeezed)
            image = image.reshape([1 if one else next(extents) for one in shape])
        if image.ndim != len(region):
            raise UnsupportedFeatureError(f"its image has shape {image.shape}")
        return image[region]

    def _load(self, series: int, level: int) -> NDArray[Any]:
        try:
            return np.asarray(self.file.series[series].levels[level].asarray())
        except Exception as error:  # whatever decoder tifffile calls
            raise UnsupportedFeatureError(f"tifffile cannot read it: {error}") from error

    def close(self) -> None:
        self.file.close()
        self.stream.close()


class Originals:
    """Opens source files with their original readers, and keeps the last one open.

    Parameters
    ----------
    storage_options
        Options for fsspec.
    """

    def __init__(self, storage_options: Mapping[str, Any] | None = None) -> None:
        self.storage_options = storage_options
        self._open: tuple[str, _Original] | None = None

    def read(self, url: str, path: str, array: VirtualArray, region: Region) -> NDArray[Any]:
        """Stored elements of an array, as its original reader returns them.

        Parameters
        ----------
        url
            The source.
        path
            Path of the array.
        array
            The array; its attributes say which image of a TIFF file it is.
        region
            Elements of the stored array, a slice for each axis.

        Raises
        ------
        UnsupportedFeatureError
            Where the original reader has nothing that could be compared.
        """
        if self._open is None or self._open[0] != url:
            self.close()
            self._open = (url, _open_original(url, self.storage_options))
        return self._open[1].read(path, array, region)

    def close(self) -> None:
        """Close what is open."""
        if self._open is not None:
            self._open[1].close()
            self._open = None


def _open_original(url: str, storage_options: Mapping[str, Any] | None) -> _Original:
    file = cast(Any, open_for_scan(url, storage_options))
    magic = file.read(4)
    file.seek(0)
    if magic[:2] in (b"II", b"MM"):
        return _TIFFOriginal(file)
    file.close()
    try:
        return _HDF5Original(url, storage_options)
    except SourceFormatError as error:
        raise UnsupportedFeatureError(f"h5py cannot open its source: {error.reason}") from error


def _ascending(region: Region) -> Region:
    """The same elements in ascending order: h5py knows no negative steps."""
    return tuple(
        entry if entry.step > 0 else slice(_last(entry), entry.start + 1, -entry.step)
        for entry in region
    )


def _last(entry: slice) -> int:
    stop = -1 if entry.stop is None else entry.stop
    return int(range(entry.start, stop, entry.step)[-1])


def _reversal(region: Region) -> Region:
    return tuple(slice(None, None, 1 if entry.step > 0 else -1) for entry in region)
