"""Load the references to combine, as groups; write references into mappings and files."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import fsspec

from gridref.api.readable import Sources, readable
from gridref.catalog.folder import open_folder
from gridref.errors import GridrefError, InvalidRequestError, Place, SourceFormatError
from gridref.formats import ScanOptions
from gridref.formats.chunks import StoreFiles
from gridref.formats.kerchunk import (
    METADATA_FILE,
    ParquetReferences,
    Reference,
    as_text,
    metadata_of,
    references_in,
    scan_references,
)
from gridref.io import DataNames, absolute_url, expand_urls
from gridref.io.address import naming_near_paths
from gridref.io.faults import shown, unavailable
from gridref.model.array import VirtualGroup

_CONSOLIDATED = ".zmetadata"
"""A copy of all documents: `preprocess` may have changed the originals."""
_FOLDERS = DataNames(markers=(METADATA_FILE,), folder_suffixes=(".parq", ".parquet"))
"""Folders of references in Parquet."""


@dataclass(frozen=True, eq=False)
class Input:
    """One set of references.

    Attributes
    ----------
    file
        The address that a pattern is looked for in; None where references came as a mapping.
    """

    name: str
    file: str | None
    group: VirtualGroup


@dataclass(frozen=True)
class Opening:
    """How references, and the files that they name, are read.

    Attributes
    ----------
    target_options
        fsspec options of the references.
    protocol
        Of addresses without one.
    remote_options
        fsspec options of the files.
    preprocess
        Changes the keys of an input, a mapping, before it is looked at.
    """

    target_options: Mapping[str, Any]
    protocol: str | None
    remote_options: Mapping[str, Any]
    preprocess: Callable[[dict[str, Any]], Any] | None

    @property
    def sources(self) -> Sources:
        """What reads the files."""
        return Sources(self.remote_options)

    def group_of(self, document: Mapping[str, Any], name: str) -> VirtualGroup:
        """The group of a set of references.

        Raises
        ------
        SourceFormatError, UnsupportedFeatureError
            Naming the input, if they are not as they should be.
        """
        try:
            held = references_in(_plain(document))
            if self.preprocess is not None:
                refs = {key: _as_json(value) for key, value in held.items()}
                self.preprocess(refs)
                held = references_in(refs)
            refs = {key: self._addressed(v) for key, v in held.items() if key != _CONSOLIDATED}
            options = ScanOptions(allow="*", storage_options=self.remote_options)
            return readable(scan_references(name, refs, options), self.sources)
        except GridrefError as error:
            raise error.located(Place(source=name)) from error.__cause__

    def _addressed(self, held: bytes | Reference) -> bytes | Reference:
        if isinstance(held, bytes) or "://" in held.url or self.protocol in (None, "file"):
            return held
        return Reference(f"{self.protocol}://{held.url}", held.offset, held.length)


def load_inputs(path: Any, indicts: Sequence[Any] | None, opening: Opening) -> Iterator[Input]:
    """The inputs in their order.

    Parameters
    ----------
    path
        Addresses of references, globs among them, or references; with `indicts` the addresses that
        patterns are looked for in.
    indicts
        References.
    opening
        How they are read.

    Raises
    ------
    InvalidRequestError
        For another number of addresses than of references, or a glob that matches no file.
    SourceUnavailableError
        If references cannot be read.
    """
    paths = [path] if isinstance(path, str | os.PathLike | Mapping) else list(path)
    if indicts is None:
        expanded = (_expanded(one, opening.target_options) for one in paths)
        paths = list(itertools.chain.from_iterable(expanded))
    documents: list[Any] = paths if indicts is None else list(indicts)
    if len(paths) != len(documents):
        raise InvalidRequestError(f"{len(paths)} addresses for {len(documents)} sets of references")
    for number, (one, given) in enumerate(zip(paths, documents, strict=True)):
        document = given
        if isinstance(given, str | os.PathLike):
            document = _loaded(os.fspath(given), opening.target_options)
        file = _file_of(one)
        name = file or f"input {number + 1}"
        yield Input(name, file, opening.group_of(document, name))


def _file_of(path: Any) -> str | None:
    """The address of an input; kerchunk's scanners say it in a template."""
    if not isinstance(path, Mapping):
        return str(path)
    url = (path.get("templates") or {}).get("u")
    return None if url is None else str(url)


def _expanded(path: Any, options: Mapping[str, Any]) -> list[Any]:
    """The addresses that a glob stands for; anything else as it is."""
    is_glob = isinstance(path, str | os.PathLike) and re.search(r"[*?\[]", os.fspath(path))
    return [*expand_urls(path, options, _FOLDERS)] if is_glob else [path]


def _loaded(url: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    if url.rstrip("/").endswith(_FOLDERS.folder_suffixes):
        files = StoreFiles(url, options, allow="*")
        every = ParquetReferences(files, metadata_of(files)).with_chunks()
        return {key: _as_entry(held) for key, held in every}
    try:
        with fsspec.open(url, "rb", **options) as file:
            document: Mapping[str, Any] = json.load(file)
    except ValueError as error:
        raise SourceFormatError(f"not JSON: {error}", Place(source=url)) from error
    except Exception as error:  # noqa: BLE001 - becomes one of ours
        with naming_near_paths(url):
            raise unavailable(url, error) from shown(error, url)
    return document


def _plain(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """References as a plain mapping, those of a ``LazyReferenceMapper`` read from disk."""
    if isinstance(document, dict):
        return document
    read = {key: document[key] for key in document}
    return {
        key: [held[0], *map(int, held[1:])] if isinstance(held, list) else held
        for key, held in read.items()
    }


def _as_entry(held: bytes | Reference) -> Any:
    """What references hold, with bytes as bytes."""
    if isinstance(held, bytes):
        return held
    return [held.url] if held.length is None else [held.url, held.offset, held.length]


def _as_json(held: bytes | Reference) -> Any:
    """What references hold as it stands in JSON."""
    if isinstance(held, Reference):
        return _as_entry(held)
    try:
        return held.decode("ascii")
    except UnicodeDecodeError:
        return as_text(held)


def filled(out: MutableMapping[str, Any], refs: Mapping[str, Any]) -> MutableMapping[str, Any]:
    """A mapping of the caller's with references in it; a ``LazyReferenceMapper`` has them on disk.

    It wants the documents of arrays before their chunks, and bytes as bytes.
    """
    plain = references_in(refs)
    order = sorted(refs, key=lambda key: not key.rpartition("/")[2].startswith(".z"))
    for key in order:
        held = plain[key]
        out[key] = held if isinstance(held, bytes) else refs[key]
    if hasattr(out, "flush"):
        out.flush()
    return out


def write_json(
    document: Mapping[str, Any], path: str, storage_options: Mapping[str, Any] | None
) -> None:
    """Write a JSON document in one step: after a failure, what was there before is there."""
    folder, _, name = absolute_url(path).rpartition("/")
    open_folder(folder, storage_options).publish(name, json.dumps(document).encode())
