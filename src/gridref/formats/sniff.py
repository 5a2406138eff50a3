"""The first bytes of a file, and what they look like."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gridref.errors import Place
from gridref.io import ScanFile, is_local

__all__ = ["Head", "describe", "read_head"]

_HEAD_BYTES = 2048 + 8

_LOOKS_LIKE = (
    (b"CDF\x01", "a netCDF-3 file"),
    (b"CDF\x02", "a netCDF-3 file with 64-bit offsets"),
    (b"CDF\x05", "a netCDF-3 file with 64-bit data (CDF-5)"),
    (b"\x0e\x03\x13\x01", "an HDF4 file"),
    (b"GRIB", "a GRIB file"),
    (b"PK\x03\x04", "a zip archive (unpack it first)"),
    (b"\x1f\x8b", "gzip-compressed (decompress it first)"),
    (b"BZh", "bzip2-compressed (decompress it first)"),
    (b"\xfd7zXZ", "xz-compressed (decompress it first)"),
    (b"SIMPLE  =", "a FITS file"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"%PDF", "a PDF document"),
    (b"MATLAB 5.0", "a MATLAB file older than version 7.3"),
    (b"version https://git-lfs", "a git-lfs pointer (fetch the file it stands for)"),
)


@dataclass(frozen=True)
class Head:
    """The beginning of a file.

    Attributes
    ----------
    url
        Absolute local path, or URL.
    data
        Its first bytes.
    size_bytes
        Size of the file; None if unknown.
    file
        The file itself, open.
    """

    url: str
    data: bytes
    size_bytes: int | None = None
    file: ScanFile | None = None

    @cached_property
    def later(self) -> tuple[bytes, ...]:
        """The 8 bytes at 4096, 8192 and so on, of local files.

        A format may begin behind a block of the user's own.
        """
        if self.file is None or not is_local(self.url):
            return ()
        starts = [1 << power for power in range(12, (self.file.size - 8).bit_length())]
        starts = [start for start in starts if start + 8 <= self.file.size]
        return tuple(self.file.read_many(starts, [8] * len(starts)))

    @property
    def place(self) -> Place:
        """For errors."""
        return Place(source=self.url)


def read_head(file: ScanFile) -> Head:
    """Read the beginning of a file.

    Raises
    ------
    SourceUnavailableError
        If the file cannot be read.
    """
    return Head(file.name, file.read(_HEAD_BYTES), file.size, file)


def describe(head: Head) -> str:
    """What a file of no known format looks like, in a few words."""
    data = head.data
    if not data:
        return "the file is empty"
    for magic, name in _LOOKS_LIKE:
        if data.startswith(magic):
            return f"the file looks like {name}"
    text = data.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype html", b"<html")):
        return "the file looks like an HTML page (an error message or login form?)"
    if text.startswith((b"<?xml", b"<error")):
        return "the file looks like XML (an object store's error message?)"
    if not data.strip(b"\0"):
        return "the file begins with zeros only (an interrupted download?)"
    if text[:1] in (b"{", b"["):
        return "the file looks like JSON"
    if all(32 <= byte < 127 or byte in b"\t\r\n" for byte in data[:256]):
        return "the file looks like plain text"
    return f"the file begins with unknown bytes {data[:8].hex(' ')}"
