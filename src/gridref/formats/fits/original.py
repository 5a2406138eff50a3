"""Read images of a FITS file with astropy, for `verify`."""

from __future__ import annotations

import warnings
from bisect import bisect_right
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import UnsupportedFeatureError
from gridref.extras import missing_package
from gridref.io import ScanFile


class OriginalImages:
    """A file that is open in astropy.

    Parameters
    ----------
    file
        The file, which is closed with this.

    Raises
    ------
    UnsupportedFeatureError
        If astropy cannot open it.
    """

    def __init__(self, file: ScanFile) -> None:
        try:
            from astropy.io import fits
        except ImportError as error:
            raise missing_package("comparing with FITS files", error) from error
        self._file = file
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._hdus = fits.open(
                    file, mode="readonly", memmap=False, do_not_scale_image_data=True
                )
                self._starts = [hdu.fileinfo()["datLoc"] for hdu in self._hdus]
        except Exception as error:
            raise UnsupportedFeatureError(f"astropy cannot open its source: {error}") from error

    def number_at(self, offset: int | None) -> int:
        """The number of the HDU whose data hold a byte."""
        number = -1 if offset is None else bisect_right(self._starts, offset) - 1
        if number < 0:
            raise UnsupportedFeatureError("it is in no HDU of its source")
        return number

    def shape(self, number: int) -> tuple[int, ...]:
        """Shape of an image."""
        return tuple(self._hdus[number].shape)

    def read(self, number: int, region: tuple[slice, ...]) -> NDArray[Any]:
        """Elements of an image; unsigned ones by FITS' convention."""
        hdu = self._hdus[number]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                values = np.asarray(hdu.section[region])
        except Exception as error:
            raise UnsupportedFeatureError(f"astropy cannot read it: {error}") from error
        values = values.astype(values.dtype.newbyteorder("="))
        zero = hdu.header.get("BZERO", 0)
        if values.dtype.kind == "f" or hdu.header.get("BSCALE", 1) != 1:
            return values
        if zero == -128 and values.dtype == np.uint8:
            return (values ^ np.uint8(0x80)).view(np.int8)
        top = 1 << 8 * values.dtype.itemsize - 1
        if zero != top or values.dtype.kind == "u":
            return values
        unsigned = values.view(f"u{values.dtype.itemsize}")
        flipped: NDArray[Any] = unsigned ^ unsigned.dtype.type(top)
        return flipped

    def close(self) -> None:
        """Close the file."""
        self._hdus.close()
        self._file.close()
