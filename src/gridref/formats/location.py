"""The target of a scan: an open file, or a folder.

`open_location` takes an address and returns a `Location` that each scanner can examine. `describe`
says what a file that no scanner knows looks like. `remote_sidecar` finds a file that describes
another one beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gridref.errors import (
    GridrefError,
    Message,
    Place,
    SourceNotAllowedError,
    UnsupportedFeatureError,
)
from gridref.io import DataNames, ScanFile, absolute_url, is_local, open_for_scan, real_path
from gridref.io.remote import RemoteFiles
from gridref.learned import FORMS
from gridref.limits import limits
from gridref.model.source_policy import SourcePolicy
from gridref.secrets import shown_address

_HEAD_BYTES = 16 << 10

_LOOKS_LIKE = (
    (b"\xcd\xf3\x00\x01", "a file of NASA's CDF, which is not netCDF"),
    (b"GRIB", "a GRIB file"),
    (b"PK\x03\x04", "a zip archive (unpack it first)"),
    (b"\x1f\x8b", "gzip-compressed (decompress it first)"),
    (b"BZh", "bzip2-compressed (decompress it first)"),
    (b"\xfd7zXZ", "xz-compressed (decompress it first)"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"%PDF", "a PDF document"),
    (b"MATLAB 5.0", "a MATLAB file older than version 7.3"),
    (b"version https://git-lfs", "a git-lfs pointer (fetch the file it stands for)"),
)


@dataclass(frozen=True)
class Location:
    """A file or folder to scan.

    A file is opened once, for recognising and for scanning, and all reads are counted.

    Attributes
    ----------
    url
        Absolute local path, or URL; without a slash at the end.
    file
        The open file, which `open_location` closes; None for a folder.
    """

    url: str
    file: ScanFile | None = field(default=None, compare=False)

    @property
    def is_folder(self) -> bool:
        """Whether this is a folder. A remote address is one only if it is named as one."""
        return self.file is None

    @property
    def opened(self) -> ScanFile:
        """The open file, for scanners that recognise files only."""
        if self.file is None:
            raise TypeError(f"{self.url} is a folder")
        return self.file

    @property
    def folder(self) -> str:
        """The folder; of a file that stands for the folder around it, that one."""
        return self.url if self.is_folder else self.url.rpartition("/")[0]

    @property
    def name(self) -> str:
        """The last part of the address, without a URL's query."""
        path = self.url if is_local(self.url) else self.url.partition("?")[0]
        return path.rstrip("/").rpartition("/")[2]

    @cached_property
    def head(self) -> bytes:
        """The first 16 KiB of a file, or all of a smaller one; of a folder none."""
        if self.file is None or self.file.size == 0:
            return b""
        return self.file.read_many([0], [min(_HEAD_BYTES, self.file.size)])[0]

    @cached_property
    def later(self) -> tuple[bytes, ...]:
        """The 8 bytes at 4096, 8192 and so on, of local files.

        A format may begin behind a block of the user's own.
        """
        if self.file is None or self.file.is_remote:
            return ()
        starts = [1 << power for power in range(12, (self.file.size - 8).bit_length())]
        starts = [start for start in starts if start + 8 <= self.file.size]
        return tuple(self.file.read_many(starts, [8] * len(starts)))

    @property
    def place(self) -> Place:
        """For errors."""
        return Place(source=self.url)


@contextmanager
def open_location(
    url: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    names: DataNames | None = None,
    first_bytes: int = 0,
) -> Iterator[Location]:
    """Open an address; a file stays open until the end of the ``with`` block.

    Parameters
    ----------
    url
        Local path or fsspec URL.
    storage_options
        fsspec options.
    names
        Names of folders of data, because no request finds out whether an address is a folder.
    first_bytes
        How much of a remote file to read first.

    Raises
    ------
    SourceUnavailableError
        If it does not exist or cannot be read.
    """
    address = absolute_url(url)
    if os.path.isdir(address) if is_local(address) else names and names.is_folder(address):
        yield Location(address.rstrip("/") or address)
        return
    with open_for_scan(address, storage_options, first_bytes=first_bytes) as file:
        yield Location(address, file)


@contextmanager
def only_allowed(policy: SourcePolicy, address: str) -> Iterator[None]:
    """Refuse another file that a file names, where its policy does not allow it or a redirect."""
    try:
        policy.require(real_path(address))
        yield
    except SourceNotAllowedError as error:
        reason = Message(f"it is in another file, {shown_address(address)}: ", error.reason)
        raise UnsupportedFeatureError(reason) from error


def describe(location: Location) -> str:
    """What a file of no known format looks like, in a few words."""
    if location.is_folder:
        return "the folder contains no data that gridref recognises"
    data = location.head
    if not data:
        return "the file is empty"
    for magic, name in _LOOKS_LIKE:
        if data.startswith(magic):
            return Message("the file looks like ", name)
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


def remote_sidecar(
    url: str, suffixes: Sequence[str], storage_options: Mapping[str, Any] | None
) -> tuple[str, bytes] | None:
    """The first of some files beside a remote one that is there, unless it is beyond the limit.

    Nothing promises them. So a folder is asked for each name once, and only for the name that it
    had: files in a folder without any cost no further request.

    Parameters
    ----------
    url
        The remote file. Local files, and addresses with a query, have no sidecars.
    suffixes
        Ends of names: ``"+.idx"`` is put behind the file's name, ``".index"`` in place of its
        suffix.

    Returns
    -------
    tuple or None
        Address and content.
    """
    if is_local(url) or "?" in url or "::" in url:
        return None
    folder, _, name = url.rpartition("/")
    key = remote_sidecar, folder, tuple(suffixes)
    known: str | None = FORMS.get(key)
    for suffix in suffixes if known is None else filter(None, [known]):
        own = f"{name}{suffix[1:]}" if suffix[0] == "+" else f"{name.rpartition('.')[0]}{suffix}"
        address = f"{folder}/{own}"
        most = limits().companion_bytes
        try:
            content = RemoteFiles(storage_options).fetch(address, [0], [most + 1])[0]
        except GridrefError:
            continue
        if 0 < len(content) <= most:
            FORMS.put(key, suffix, 1000)
            return address, content
    if known is None:
        FORMS.put(key, "", 1000)
    return None
