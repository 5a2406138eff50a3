"""Scan files with VirtualiZarr's parsers and kerchunk's scanners.

`scan_with_parser` runs the parser of the other package on a file, takes the references that it
finds, and returns a virtual group. `references_of_manifests` turns the manifests of VirtualiZarr
into references.

Sources: VirtualiZarr's documentation, "Data structures" and "Custom parsers" (2.8); the scanners of
kerchunk (0.2.10).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from gridref.errors import (
    GridrefError,
    InvalidRequestError,
    Place,
    SourceFormatError,
    SourceUnavailableError,
)
from gridref.extras import missing_package
from gridref.formats.kerchunk import Reference, references_in, scan_references
from gridref.formats.scanner import ScanOptions
from gridref.io.address import registry_for, uri_of
from gridref.model.array import VirtualGroup
from gridref.model.grid import chunk_counts

# VirtualiZarr's manifests as references

_DOCUMENT = "zarr.json"


def references_of_manifests(group: Any) -> dict[str, bytes | Reference]:
    """The content of each Zarr v3 key of a ``ManifestGroup``, groups below it included.

    Raises
    ------
    SourceFormatError
        If a manifest has more or fewer chunks than its array.
    """
    return dict(_references_of_group(group, ""))


def _references_of_group(group: Any, head: str) -> Iterator[tuple[str, bytes | Reference]]:
    yield f"{head}{_DOCUMENT}", _document(group.metadata)
    for name, array in group.arrays.items():
        yield from _array(array, f"{head}{name}/")
    for name, below in group.groups.items():
        yield from _references_of_group(below, f"{head}{name}/")


def _array(array: Any, head: str) -> Iterator[tuple[str, bytes | Reference]]:
    metadata, manifest = array.metadata, array.manifest
    yield f"{head}{_DOCUMENT}", _document(metadata)
    expected = chunk_counts(metadata.shape, metadata.chunks)
    if manifest.dict() and tuple(manifest.shape_chunk_grid) != expected:
        raise SourceFormatError(
            f"its manifest has {manifest.shape_chunk_grid} chunks, its array {expected}",
            Place(variable=head.rstrip("/")),
        )
    for key, entry in manifest.dict().items():
        coords = tuple(map(int, key.split("."))) if metadata.shape else ()
        data = entry.get("data")
        held = Reference(entry["path"], entry["offset"], entry["length"]) if data is None else data
        yield f"{head}{metadata.encode_chunk_key(coords)}", held


def _document(metadata: Any) -> bytes:
    from zarr.buffer import default_buffer_prototype

    buffers = metadata.to_buffer_dict(default_buffer_prototype())
    document: bytes = buffers[_DOCUMENT].to_bytes()
    return document


# Files scanned by a parser of VirtualiZarr or a scanner of kerchunk

type References = Mapping[str, bytes | Reference]


def scan_with_parser(address: str, options: ScanOptions) -> VirtualGroup:
    """Describe a file by the references that another tool's parser finds in it.

    Parameters
    ----------
    address
        Absolute local path, or URL.
    options
        How it is scanned. Their `parser` is a parser of VirtualiZarr, called with a URL and a
        registry of object stores; a scanner of kerchunk, which has a method ``translate``; or text
        that names one, ``"module:name"``.

    Returns
    -------
    VirtualGroup
        If kerchunk's scanner finds several sets of references, like the messages of a GRIB file,
        it has a numbered group for each.

    Raises
    ------
    InvalidRequestError
        If there is no such parser, or it returns something else.
    SourceFormatError
        If the parser fails, or its references contradict each other or the file.
    UnsupportedFeatureError
        For data types and codecs that gridref does not know.
    SourceUnavailableError
        If the file does not exist or cannot be read.
    """
    parser = _named(options.parser) if isinstance(options.parser, str) else options.parser
    place = Place(source=address)
    try:
        found = _called(parser, address, options)
    except GridrefError:
        raise
    except ImportError as error:
        raise missing_package(f"the parser {_name(parser)}", error) from error
    except OSError as error:
        raise SourceUnavailableError(f"{_name(parser)}: {error}", place) from error
    except Exception as error:  # whatever a foreign parser does with a file that it cannot read
        told = f"{type(error).__name__}: {str(error).partition('\n')[0]}"
        if type(error).__module__.startswith("obstore"):
            raise SourceUnavailableError(f"{_name(parser)}: {told}", place) from error
        raise SourceFormatError(f"{_name(parser)} cannot parse it: {told}", place) from error
    try:
        return _group(found, parser, address, options)
    except GridrefError as error:
        raise error.located(place) from error.__cause__


def _named(text: str) -> Any:
    """The parser of a name like ``virtualizarr.parsers:NetCDF3Parser``; classes are called."""
    module, separator, name = text.partition(":")
    if not separator:
        raise InvalidRequestError(f"a parser is named as module:name, got {text!r}")
    try:
        found = getattr(import_module(module), name)
    except ImportError as error:
        raise missing_package(f"the parser {text}", error) from error
    except AttributeError as error:
        raise InvalidRequestError(f"the module {module} has no parser {name}") from error
    return found() if isinstance(found, type) and not _is_kerchunks(found) else found


def _is_kerchunks(parser: Any) -> bool:
    """Whether this is a scanner of kerchunk, perhaps with settings in a `functools.partial`."""
    return hasattr(getattr(parser, "func", parser), "translate")


def _name(parser: Any) -> str:
    named = getattr(parser, "func", parser)
    return str(getattr(named, "__name__", type(named).__name__))


def _called(parser: Any, address: str, options: ScanOptions) -> Any:
    if not callable(parser):
        raise InvalidRequestError(f"a parser is called with a URL, got {parser!r}")
    if _is_kerchunks(parser):
        return parser(address, storage_options=options.storage_options or {}).translate()
    registry = registry_for(address, options.storage_options)
    return parser(uri_of(address), registry)


def _group(found: Any, parser: Any, address: str, options: ScanOptions) -> VirtualGroup:
    if isinstance(found, Sequence) and len(found) == 1:
        return _group(found[0], parser, address, options)
    if isinstance(found, Sequence) and not isinstance(found, str):
        groups = {str(n): _group(one, parser, address, options) for n, one in enumerate(found)}
        reports = [group.report for group in groups.values()]
        report = replace(reports[0], findings=tuple(f for r in reports for f in r.findings))
        return VirtualGroup({}, groups, report=report)
    return scan_references(address, _references(found, parser), options)


def _references(found: Any, parser: Any) -> References:
    if isinstance(found, Mapping) and not hasattr(found, "metadata"):
        return references_in(found)
    manifests = getattr(found, "_group", found)  # for which a ManifestStore has no public name
    if not hasattr(manifests, "arrays"):
        raise InvalidRequestError(
            f"a parser returns a ManifestStore or references, {_name(parser)} returned"
            f" {type(found).__name__}"
        )
    return references_of_manifests(manifests)
