"""Test step by step whether an address can be read, and list what is installed.

`examined` tests an address as a scan and a read use it. Each step says what it found; the first
that fails ends the examination, with the error of the call that failed.
"""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from gridref.catalog import CatalogGroup, open_catalog
from gridref.catalog.document import ROOT_FILE
from gridref.catalog.examining import check_catalog
from gridref.errors import (
    GridrefError,
    InvalidRequestError,
    Place,
    SourceUnavailableError,
    UnsupportedFeatureError,
    number_of,
)
from gridref.extras import packages_of_extras, version_of
from gridref.formats import expand_files, scan
from gridref.formats.location import open_location
from gridref.formats.registry import data_names, scanner_of
from gridref.io import (
    SourcePool,
    absolute_url,
    describe_source,
    is_local,
    naming_near_paths,
    open_filesystem,
)
from gridref.io.faults import shown, unavailable
from gridref.io.remote import RemoteFiles
from gridref.model.array import VirtualGroup
from gridref.model.manifest import Source
from gridref.model.source_policy import split_http
from gridref.secrets import shown_address

_CONNECT_SECONDS = 10.0
_PORTS = {"http": 80, "https": 443}
_S3 = ("s3://", "s3a://")


@dataclass(frozen=True)
class Step:
    """One step of an examination.

    Attributes
    ----------
    text
        What was found; if it does not work, also what to do.
    """

    name: str
    ok: bool
    text: str


def installed() -> dict[str, str]:
    """The versions of gridref, Python and the platform."""
    return {
        "gridref": version("gridref"),
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
    }


def extras() -> dict[str, dict[str, str | None]]:
    """The versions of the packages of each extra; None for those that are not installed."""
    return {
        extra: {package: version_of(package) for package in packages}
        for extra, packages in packages_of_extras().items()
    }


def examined(
    address: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> Iterator[Step]:
    """Test an address: that of a file, a folder of data, or a catalog.

    Parameters
    ----------
    address
        Local path or fsspec URL.
    storage_options
        Options of fsspec's filesystem, or of several by protocol.
    """
    patient = _Patient(absolute_url(address), storage_options)
    for name, test in patient.tests():
        try:
            text = test()
        except GridrefError as error:
            yield Step(name, False, str(error))
            return
        if text:
            yield Step(name, True, text)


type Test = tuple[str, Callable[[], str]]


@dataclass
class _Patient:
    """An address, and what is known of it so far."""

    url: str
    storage_options: Mapping[str, Any] | None
    source: Source | None = None
    group: VirtualGroup = field(default_factory=lambda: VirtualGroup({}))

    def tests(self) -> Iterator[Test]:
        """What to test, in order; each test gives a text, or an empty one if it does not apply."""
        if self.url.startswith(("http://", "https://", *_S3)):
            yield "name", self._name
            yield "connection", self._connection
        yield "catalog", self._catalog
        if isinstance(self.group, CatalogGroup):
            yield "sources", self._sources
        else:
            yield "files", self._files
            is_folder = os.path.isdir(self.url) if is_local(self.url) else None
            if not (self._is_data_folder() if is_folder is None else is_folder):
                yield "file", self._file
                yield "ranges", self._ranges
                yield "identity", self._identity
            yield "format", self._format
            yield "metadata", self._metadata
            yield "codecs", self._codecs
        yield "chunks", self._chunks

    def _server(self) -> tuple[str, int]:
        address = self._endpoint() if self.url.startswith(_S3) else self.url
        try:
            parts = split_http(address)
        except ValueError as error:
            raise InvalidRequestError(f"no address: {error}", Place(self.url)) from error
        return parts.hostname or "", parts.port or _PORTS[parts.scheme]

    def _endpoint(self) -> str:
        """The server of S3 that options, environment or profile name."""
        filesystem, _ = open_filesystem(self.url, self.storage_options)
        try:
            return str(filesystem.s3.meta.endpoint_url)
        except Exception as error:  # noqa: BLE001 - becomes one of ours
            raise unavailable(self.url, error) from shown(error, self.url)

    def _name(self) -> str:
        host, port = self._server()
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # the latter for names that no server can have
            why = getattr(error, "strerror", None) or error
            raise SourceUnavailableError(
                f"cannot find the server {host} ({why}): check the spelling, "
                "and that this machine can reach a name server",
                Place(self.url),
            ) from error
        return f"{host} is {found[0][4][0]}"

    def _connection(self) -> str:
        host, port = self._server()
        try:
            socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
        except OSError as error:
            raise SourceUnavailableError(
                f"no server answers at {host}, port {port} ({error.strerror or error}): check the "
                "port, the server and firewalls",
                Place(self.url),
            ) from error
        return f"a server answers at port {port}"

    def _catalog(self) -> str:
        """Open the address as a catalog, if it is called one."""
        is_there = is_local(self.url) and os.path.isfile(os.path.join(self.url, ROOT_FILE))
        if not is_there and not self.url.rstrip("/").endswith((".gridref", f"/{ROOT_FILE}")):
            return ""
        check_catalog(self.url, self.storage_options)
        group = self.group = open_catalog(self.url, self.storage_options)
        return (
            f"{number_of(len(group.all_arrays()), 'array')},"
            f" {number_of(group.info.n_sources, 'file')}; its files are whole"
        )

    def _sources(self) -> str:
        assert isinstance(self.group, CatalogGroup)
        first = next(iter(self.group.source_list), None)
        if first is None:
            return "none"
        describe_source(first.url, self.storage_options, first.policy)
        return f"the first can be reached: {shown_address(first.url)}"

    def _files(self) -> str:
        """Go on with the first file of a local folder that is not one piece of data itself."""
        if not is_local(self.url) or not os.path.isdir(self.url) or self._is_data_folder():
            return ""
        files = expand_files(self.url)
        self.url = files[0]
        return f"{len(files)} in the folder; what follows is of the first: {self.url}"

    def _is_data_folder(self) -> bool:
        return data_names().is_folder(self.url)

    def _file(self) -> str:
        with naming_near_paths(self.url):
            self.source = describe_source(self.url, self.storage_options)
        size = self.source.size_bytes
        return f"{'unknown size' if size is None else number_of(size, 'byte')}; it may be read"

    def _ranges(self) -> str:
        size = (self.source and self.source.size_bytes) or 0
        if is_local(self.url) or size < 2:
            return ""
        RemoteFiles(self.storage_options).fetch(self.url, [size - 1], [size])
        return "the server sends the range of bytes that is asked for"

    def _identity(self) -> str:
        assert self.source is not None
        if self.source.etag is not None:
            return "the server gives an ETag: changes of the file are noticed"
        if self.source.mtime_ns is not None:
            return "the file has a time of change: changes are noticed"
        return "neither ETag nor time of change: changes that keep the size are not noticed"

    def _format(self) -> str:
        with open_location(self.url, self.storage_options, data_names()) as location:
            return scanner_of(location).name

    def _metadata(self) -> str:
        self.group = scan(self.url, self.storage_options, on_unsupported="skip")
        report = self.group.report
        arrays = number_of(len(self.group.all_arrays()), "array")
        return f"{arrays}, by {number_of(report.n_requests, 'request')}"

    def _codecs(self) -> str:
        left_out = self.group.report.skipped
        if left_out:
            first = left_out[0]
            raise UnsupportedFeatureError(
                f"{number_of(len(left_out), 'object')} cannot be read. The first is {first.path}: "
                f"{first.reason}. gridref build --on-unsupported skip leaves them out",
                Place(self.url),
            )
        return "all are known"

    def _chunks(self) -> str:
        arrays = self.group.all_arrays()
        if not arrays:
            return "there are no arrays"
        path, array = max(arrays.items(), key=lambda item: item[1].size)
        from gridref.serve.reader import Reader

        reader = Reader(SourcePool(self.storage_options))
        value = reader.read(array, (0,) * len(array.shape) if array.size else ...)
        return f"an element of {path} was read: {value}" if array.size else f"{path} is empty"
