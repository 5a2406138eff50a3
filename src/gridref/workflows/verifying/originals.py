"""Source files read by their original readers, h5py and tifffile, for comparison.

These are imported where a file of theirs is opened: both take long to load.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from gridref.errors import (
    GridrefError,
    InvalidRequestError,
    SourceFormatError,
    UnsupportedFeatureError,
)
from gridref.io import open_for_scan
from gridref.model.array import VirtualArray

__all__ = ["Originals"]

Region = tuple[slice, ...]
Shape = tuple[int, ...]


class _Original(Protocol):
    def read(
        self,
        path: str,
        array: VirtualArray,
        region: Region,
        stored_shape: Shape,
        offset: int | None,
    ) -> NDArray[Any]: ...

    def close(self) -> None: ...


class _HDF5Original:
    def __init__(self, url: str, storage_options: Mapping[str, Any] | None) -> None:
        with suppress(ImportError):
            import hdf5plugin  # noqa: F401 - importing it gives h5py more filters
        from gridref.formats.hdf5.original import OriginalFile

        self.file = OriginalFile(url, storage_options)

    def read(
        self,
        path: str,
        array: VirtualArray,
        region: Region,
        stored_shape: Shape,
        offset: int | None,
    ) -> NDArray[Any]:
        try:
            path, own = self._located(path, region, stored_shape, offset)
            values = self.file.read(path, own)
        except (SourceFormatError, ValueError) as error:
            reason = error.reason if isinstance(error, GridrefError) else str(error)
            raise UnsupportedFeatureError(reason) from error
        return values.reshape([along.stop - along.start for along in region])

    def _located(
        self, path: str, region: Region, stored_shape: Shape, offset: int | None
    ) -> tuple[str, Region]:
        """Dataset and region of a chunk in the file, where references moved it to another array.

        That is so where the file has no dataset like the stored array. Where it has one, a chunk is
        compared with what is at its own place: that it is found there is to be verified.
        """
        own = region
        with suppress(InvalidRequestError):
            shape = self.file.shape_of(path)
            own = _lined_up(region, stored_shape, shape)
            if offset is None or _without_unit_axes(shape) == _without_unit_axes(stored_shape):
                return path, own
        start = tuple(along.start for along in own)
        original = None if offset is None else self.file.element_at(path, start, offset)
        shape = self.file.shape_of(path if original is None else original[0])
        own = _lined_up(region, stored_shape, shape)
        if original is None:
            raise UnsupportedFeatureError("its dataset has another shape")
        name, first = original
        first = (*first, *(along.start for along in own[len(first) :]))
        lengths = [along.stop - along.start for along in own]
        return name, tuple(slice(at, at + n) for at, n in zip(first, lengths, strict=True))

    def close(self) -> None:
        self.file.close()


def _without_unit_axes(shape: Shape) -> Shape:
    return tuple(extent for extent in shape if extent != 1)


def _lined_up(region: Region, stored_shape: Shape, shape: Shape) -> Region:
    """A region along the axes of a dataset: those of length 1 come and go when files are joined."""
    if len(shape) == len(stored_shape):
        return region
    kept = [along for along, extent in zip(region, stored_shape, strict=True) if extent != 1]
    if len(kept) != len(_without_unit_axes(shape)):
        raise ValueError(f"its dataset has {len(shape)} axes, not {len(region)}")
    rest = iter(kept)
    return tuple(slice(0, 1) if extent == 1 else next(rest) for extent in shape)


class _TIFFOriginal:
    def __init__(self, file: Any) -> None:
        import tifffile

        self.stream = file
        try:
            self.file = tifffile.TiffFile(file)
        except Exception as error:  # raw data that begins like a TIFF file
            file.close()
            raise UnsupportedFeatureError(f"tifffile cannot open its source: {error}") from error
        self._image = lru_cache(maxsize=2)(self._load)

    def read(
        self,
        path: str,
        array: VirtualArray,
        region: Region,
        stored_shape: Shape,
        offset: int | None,
    ) -> NDArray[Any]:
        if "tiff_series" not in array.attrs:
            raise UnsupportedFeatureError("it is not an image of the file")
        image = self._image(int(array.attrs["tiff_series"]), int(array.attrs.get("tiff_level", 0)))
        # Axes of length 1 come and go when files are stacked; the others keep their order.
        if _without_unit_axes(image.shape) != _without_unit_axes(stored_shape):
            raise UnsupportedFeatureError(f"its image has shape {image.shape}")
        return image.reshape(stored_shape)[region]

    def _load(self, series: int, level: int) -> NDArray[Any]:
        try:
            image = self.file.series[series]
            if image.levels[level].keyframe.jpegheader is not None:
                # Decoded as one stream, chroma would be smoothed over the edges of its tiles.
                import zarr

                return np.asarray(zarr.open_array(image.aszarr(level=level), mode="r")[...])
            return np.asarray(image.levels[level].asarray())
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

    def read(
        self,
        url: str,
        path: str,
        array: VirtualArray,
        region: Region,
        stored_shape: Shape,
        offset: int | None = None,
    ) -> NDArray[Any]:
        """Stored elements of an array, as its original reader returns them.

        Parameters
        ----------
        array
            The array; its attributes say which image of a TIFF file it is.
        region
            A chunk of the stored array, a slice of step 1 for each axis.
        stored_shape
            Shape of the stored array; it may have axes of length 1 that the file does not.
        offset
            Where the chunk lies in the source, in bytes. It tells which chunk of which dataset it
            is, where several files make up one stored array; None where it lies nowhere.

        Raises
        ------
        UnsupportedFeatureError
            Where the original reader has nothing that could be compared.
        """
        if self._open is None or self._open[0] != url:
            self.close()
            self._open = (url, _open_original(url, self.storage_options))
        return self._open[1].read(path, array, region, stored_shape, offset)

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
