"""Source files read by their original readers, h5py and tifffile, for comparison."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Protocol, cast

import h5py
import numpy as np
import tifffile
from numpy.typing import NDArray

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.io import open_for_scan
from gridref.model.array import VirtualArray

__all__ = ["Originals"]

Region = tuple[slice, ...]


class _Original(Protocol):
    def read(self, path: str, array: VirtualArray, region: Region) -> NDArray[Any]: ...

    def close(self) -> None: ...


class _HDF5Original:
    def __init__(self, file: Any) -> None:
        with suppress(ImportError):
            import hdf5plugin  # noqa: F401 - importing it gives h5py more filters
        self.file = h5py.File(file, "r")

    def read(self, path: str, array: VirtualArray, region: Region) -> NDArray[Any]:
        dataset = self.file.get(path)
        if not isinstance(dataset, h5py.Dataset):
            raise UnsupportedFeatureError("it has no dataset of this name")
        if dataset.ndim != len(region):
            raise UnsupportedFeatureError(f"its dataset has shape {dataset.shape}")
        if h5py.check_ref_dtype(dataset.dtype) is not None:
            raise UnsupportedFeatureError("references are shown as paths")
        try:
            return np.asarray(dataset[_ascending(region)])[_reversal(region)]
        except (OSError, TypeError, ValueError) as error:
            raise UnsupportedFeatureError(f"h5py cannot read it: {error}") from error

    def close(self) -> None:
        self.file.close()


class _TIFFOriginal:
    def __init__(self, file: Any) -> None:
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


class Originals:
    """Opens source files with their original readers, and keeps the last one open.

    Parameters
    ----------
    storage_options
        Options for fsspec.
    """

    def __init__(self, storage_options: Mapping[str, Any] | None = None) -> None:
        self.storage_options = storage_options
        self._open: tuple[str, _Original, Any] | None = None

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
            file = cast(Any, open_for_scan(url, self.storage_options))
            self._open = (url, _open_original(file, url), file)
        return self._open[1].read(path, array, region)

    def close(self) -> None:
        """Close what is open."""
        if self._open is not None:
            _, original, file = self._open
            original.close()
            file.close()
            self._open = None


def _open_original(file: Any, url: str) -> _Original:
    magic = file.read(4)
    file.seek(0)
    if magic[:2] in (b"II", b"MM"):
        return _TIFFOriginal(file)
    try:
        return _HDF5Original(file)
    except OSError as error:
        raise SourceFormatError(f"h5py cannot open {url}: {error}") from error


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
