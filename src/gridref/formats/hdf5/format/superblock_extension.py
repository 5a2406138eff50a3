"""What newer files say about themselves beside the superblock.

Source: HDF5 File Format Specification v3, II.C "Superblock Extension", IV.A.2.u "Driver Info", and
HDF5 1.10 on, "Metadata Cache Image".
"""

from __future__ import annotations

from gridref.errors import UnsupportedFeatureError
from gridref.formats.hdf5.format.object_header import read_header
from gridref.formats.hdf5.format.superblock import Hdf5Bytes, check_driver

__all__ = ["check_extension"]

_DRIVER, _CACHE_IMAGE = 0x14, 0x18


def check_extension(file: Hdf5Bytes) -> None:
    """Raise if a file has an extension that says it must be read in another way.

    Raises
    ------
    SourceFormatError
        If the extension is corrupt.
    UnsupportedFeatureError
        If the file is one of several parts, or keeps an image of the library's cache, in which
        metadata may be newer than in its place.
    """
    if file.extension is None:
        return
    header = read_header(file, file.extension)
    driver = header.first(_DRIVER)
    if driver is not None:
        check_driver(driver.data[1:9])
    image = header.first(_CACHE_IMAGE)
    if image is not None:
        raise UnsupportedFeatureError(
            "the file keeps an image of HDF5's metadata cache; write it again with h5repack",
            file.place(image.address, len(image.data)),
        )
