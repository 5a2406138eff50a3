"""Turn kerchunk references, in JSON or Parquet, into a virtual group.

The references are read as the keys of a Zarr store. The chunks of its arrays then point into the
files that the references name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gridref.errors import GridrefError, Place, SourceFormatError, SourceUnavailableError
from gridref.formats.chunk_files import StoreFiles
from gridref.formats.kerchunk.parquet import ParquetReferences, metadata_of
from gridref.formats.kerchunk.references import Reference, parse_references
from gridref.formats.options import ScanOptions
from gridref.formats.zarr.hierarchy import folders_of, scan_files
from gridref.io import (
    ScanFile,
    SourcePool,
    absolute_url,
    describe_source,
    is_absent,
    is_local,
    policy_for,
    real_path,
)
from gridref.io.ahead import in_threads
from gridref.io.remote import RemoteFiles
from gridref.model.array import VirtualGroup
from gridref.model.manifest import Source
from gridref.model.source_policy import common_folders


def scan_reference_file(file: ScanFile, options: ScanOptions) -> VirtualGroup:
    """Describe the arrays of the references in a JSON file.

    Raises
    ------
    SourceFormatError
        If the file is not JSON with references.
    UnsupportedFeatureError
        For templates that are more than arithmetic and names, and as for Zarr stores.
    """
    try:
        references = parse_references(file.read_many([0], [file.size])[0])
    except GridrefError as error:
        raise error.located(Place(source=file.name)) from error.__cause__
    return scan_references(file.name, references, options)


def scan_references(
    url: str, references: Mapping[str, bytes | Reference], options: ScanOptions
) -> VirtualGroup:
    """Describe the arrays of references.

    Parameters
    ----------
    url
        Their own address: relative addresses in them are relative to its folder.
    references
        The content of each Zarr key.
    Raises as `scan_reference_file` does.
    """
    return scan_files(_ReferencedFiles(url, references, options), options)


def scan_reference_folder(address: str, options: ScanOptions) -> VirtualGroup:
    """Describe the arrays of the references in a folder of Parquet files.

    Raises as `scan_reference_file` does.
    """
    files = StoreFiles(address, options.storage_options, options.allow)
    references = ParquetReferences(files, metadata_of(files))
    return scan_references(address, references, options)


class _ReferencedFiles:
    """Keys whose bytes are elsewhere."""

    def __init__(
        self,
        url: str,
        references: Mapping[str, bytes | Reference],
        options: ScanOptions,
    ) -> None:
        self.url = absolute_url(url)
        self._policy = policy_for(self.url, options.allow)
        storage_options = options.storage_options
        self.pool = SourcePool(storage_options, identity="skip")
        self._references = references
        self._remote = RemoteFiles(storage_options)
        self._sources: dict[str, Source] = {}
        self._reachable = True
        self._reader = StoreFiles(self.url, storage_options)
        self._folders = folders_of(references)

    def address(self, key: str) -> str:
        return f"{self.url}#{key}"

    def get(self, key: str) -> bytes | None:
        held = self._references.get(key)
        if held is None or isinstance(held, bytes):
            return held
        source, offset, length = self._located(held)
        return bytes(self.pool.read(source, offset, length))

    def folders(self, key: str) -> list[str]:
        return list(self._folders.get(key, ()))

    def ranges(
        self, keys: Sequence[str], below: str
    ) -> Iterable[tuple[str, Source | bytes, int, int]]:
        references = {key: held for key in keys if (held := self._references.get(key)) is not None}
        first_keys: dict[str, str] = {}
        for key, held in references.items():
            if isinstance(held, Reference):
                first_keys.setdefault(held.url, key)
        self._describe_remote(first_keys)
        for key, held in references.items():
            if isinstance(held, bytes):
                yield key, held, 0, len(held)
                continue
            try:
                located = self._located(held)
            except GridrefError as error:
                raise error.located(_place_of(key)) from error.__cause__
            yield (key, *located)

    def read_each(self, sources: Sequence[Source], starts: Any, lengths: Any) -> list[bytes]:
        return self._reader.read_each(sources, starts, lengths)

    def _located(self, reference: Reference) -> tuple[Source, int, int]:
        source = self._source(reference)
        length = reference.length
        if length is None:
            length = (source.size_bytes or 0) - reference.offset
        if source.size_bytes is not None and reference.offset + length > source.size_bytes:
            raise SourceFormatError(
                f"a reference reaches beyond the end of its file ({source.size_bytes} bytes)",
                Place(source.url, start=reference.offset, stop=reference.offset + length),
            )
        return source, reference.offset, length

    def _source(self, reference: Reference) -> Source:
        """The current file of a reference; a remote one may be known by its address only."""
        known = self._sources.get(reference.url)
        if known is not None and (reference.length is not None or known.size_bytes is not None):
            return known
        url = self._full_url(reference.url)
        if is_local(url) or reference.length is None:
            local = is_local(url)
            known = (
                describe_source(url, policy=self._policy)
                if local
                else self._remote.describe(url, self._policy)
            )
        else:
            known = known or Source(url, policy=self._policy)
        return self._sources.setdefault(reference.url, known)

    def _full_url(self, url: str) -> str:
        """Address of a file; relative ones are beside the references."""
        if "://" not in url and not os.path.isabs(url):
            url = f"{self.url.rpartition('/')[0]}/{url}"
        address = absolute_url(url)
        if not self._policy.allows(real_path(address)):
            replace(self._policy, needed=self._all_folders()).require(real_path(address))
        return address

    def _all_folders(self) -> tuple[str, ...]:
        """The folders of all files that are not in the folder of the references."""
        urls = {held.url for held in self._references.values() if isinstance(held, Reference)}
        return common_folders(url for url in sorted(urls) if "://" in url or os.path.isabs(url))

    def _is_local(self, url: str, key: str) -> bool:
        try:
            return is_local(self._full_url(url))
        except GridrefError as error:
            raise error.located(_place_of(key)) from error.__cause__

    def _describe_remote(self, first_keys: Mapping[str, str]) -> None:
        """Request size and version of remote files, given with a key of each, once for each file.

        References can be scanned without access to their files. After the first file that cannot be
        reached, files are known by their addresses only.
        """
        new = [url for url in first_keys if url not in self._sources]
        remote = [url for url in new if not self._is_local(url, first_keys[url])]

        def describe(url: str) -> Source | None:
            if not self._reachable:
                return None
            try:
                return self._remote.describe(self._full_url(url), self._policy)
            except SourceUnavailableError as error:
                if is_absent(error):
                    raise error.located(_place_of(first_keys[url])) from error.__cause__
                self._reachable = False
                return None

        for url, source in zip(remote, in_threads(describe, remote), strict=True):
            self._sources[url] = source or Source(self._full_url(url), policy=self._policy)


def _place_of(key: str) -> Place:
    """Array and chunk of a key, as Zarr v2 (``a/1.0``) and v3 (``a/c/1/0``) write them."""
    head, _, last = key.rpartition("/")
    array, separator, coords = f"/{key}".rpartition("/c/")
    path, numbers = (array, coords.split("/")) if separator else (f"/{head}", last.split("."))
    chunk = tuple(map(int, numbers)) if all(number.isdecimal() for number in numbers) else None
    return Place(variable=path, chunk=chunk)
