"""Export kerchunk references, with Zarr v2 or v3 keys, as JSON or Parquet.

A reference is a byte range of one file, or text. Chunks of files in archives are copied into the
references as they are stored, and small arrays that cannot be referenced are written decoded.

Format: https://fsspec.github.io/kerchunk/spec.html, version 1; Parquet as fsspec's
``LazyReferenceMapper``.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from gridref.api.readable import reader_for
from gridref.catalog.folder import publish_file, write_errors_told
from gridref.errors import InvalidRequestError, Message, NotRepresentableError, Option, Place
from gridref.extras import needed_for
from gridref.faces.exports import zarr2
from gridref.faces.exports.references import (
    IN_ARCHIVE,
    INLINE_LIMIT_BYTES,
    Announce,
    Coords,
    Export,
    Target,
    as_zarr,
    is_nameable,
    refuse,
)
from gridref.formats.kerchunk import as_text
from gridref.formats.scanner import OnUnsupported
from gridref.io import absolute_url, is_local
from gridref.model.array import VirtualGroup
from gridref.options import check_choice
from gridref.serve.reader import Reader
from gridref.serve.views import View, ViewOptions

# Files: one JSON document, or a folder of Parquet files

_PARQUET = (".parq", ".parquet")


def write_references(
    document: Mapping[str, Any], path: str, storage_options: Mapping[str, Any] | None = None
) -> None:
    """Write references, in one step: after a failure, what was there before is there.

    Parameters
    ----------
    path
        Where to write; the suffix decides the form.
    storage_options
        Options of fsspec's filesystem there.

    Raises
    ------
    InvalidRequestError
        For Zarr v3 keys or templates in Parquet, a remote folder of Parquet, or a folder of
        something else; if they cannot be written.
    """
    url = absolute_url(path)
    if not url.endswith(_PARQUET):
        publish_file("references", url, json.dumps(document).encode(), storage_options)
        return
    if "zarr.json" in document["refs"]:
        raise InvalidRequestError(
            Message("references in Parquet need Zarr v2: ", Option("zarr_format", 2))
        )
    if "templates" in document:
        raise InvalidRequestError(
            Message("references in Parquet have no templates: ", Option("templates", False))
        )
    if not is_local(url):
        raise InvalidRequestError(
            "references in Parquet are written to local folders only", Place(source=url)
        )
    with write_errors_told("references", url):
        _write_folder(document["refs"], Path(url))


def _write_folder(refs: Mapping[str, Any], folder: Path) -> None:
    if folder.exists() and not _is_references(folder):
        raise InvalidRequestError(
            f"{folder} exists and holds no references, so nothing was written: choose another "
            "folder"
        )
    draft = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    former = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    try:
        _fill(refs, draft)
        if folder.exists():
            folder.rename(former)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(former, ignore_errors=True)


def _is_references(folder: Path) -> bool:
    document = folder / ".zmetadata"
    return document.is_file() and b'"record_size"' in document.read_bytes()


def _fill(refs: Mapping[str, Any], folder: Path) -> None:
    from fsspec.implementations.reference import LazyReferenceMapper

    mapper = LazyReferenceMapper.create(str(folder))
    with needed_for("writing references in Parquet"):
        # Where a chunk goes depends on its array's document.
        for key in sorted(refs, key=lambda key: not key.rpartition("/")[2].startswith(".z")):
            mapper[key] = refs[key]
        mapper.flush()


# References of a group

_NAME = "kerchunk references"
# What cannot be referenced is copied: see `_chunks`.
_TARGETS = {
    2: Target(_NAME, ViewOptions(View.NATIVE, grid="regular"), why_not=lambda source: None),
    3: Target(_NAME, ViewOptions(View.NATIVE, grid="rectilinear"), why_not=lambda source: None),
}

type Version = Literal[2, 3]

type Reference = str | list[str | int]
"""Text, ``base64:`` text, or address, first byte and number of bytes."""


def to_kerchunk(
    group: VirtualGroup,
    path: str | os.PathLike[str] | None = None,
    *,
    zarr_format: Version = 2,
    reader: Reader | None = None,
    inline_limit: int = INLINE_LIMIT_BYTES,
    inline_threshold: int = 0,
    templates: bool = False,
    on_unsupported: OnUnsupported = "raise",
    storage_options: Mapping[str, Any] | None = None,
    announce: Announce | None = None,
) -> dict[str, Any]:
    """Write a group as kerchunk references.

    Parameters
    ----------
    group
        The group.
    path
        Where to write the references: a folder of Parquet files if it ends in ``.parq`` or
        ``.parquet``, else a JSON document. None writes nothing.
    zarr_format
        Version of the keys. ``xr.open_dataset(path, engine="kerchunk")`` reads version 2. Version 3
        has uneven grids.
    reader
        Reads the arrays that are written into the document.
    inline_limit
        Largest size in bytes of such an array.
    inline_threshold
        Chunks with fewer stored bytes are also written into the document, as they are.
    templates
        Whether to write the address of each file once, as a template. This makes the JSON document
        smaller.
    on_unsupported
        What to do with arrays that references cannot express. ``"raise"``: stop and list them.
        ``"skip"``: leave them out; a warning names each.
    storage_options
        Options of fsspec's filesystems of `path` and the files, or of several by protocol.
    announce
        Called with the arrays that are written by value, as a whole or in part: each path with the
        reason.

    Returns
    -------
    dict
        The document.

    Raises
    ------
    NotRepresentableError
        Lists every array that references cannot express, with the reason.
    InvalidRequestError
        For Zarr v3 keys or templates in Parquet, which has no place for them, or a folder of
        something else at `path`.
    """
    check_choice("on_unsupported", on_unsupported, get_args(OnUnsupported))
    if zarr_format not in _TARGETS:
        raise InvalidRequestError(Message(Option("zarr_format", zarr_format), " must be 2 or 3"))
    reader = reader or reader_for(storage_options)
    shown = as_zarr(group, reader)
    export = Export.of(shown, _TARGETS[zarr_format], reader, inline_limit)
    refs: dict[str, Reference] = {}
    refused, by_value = export.refused, {**export.reasons, **_archived(export)}
    for name in [name for name in export.views if name not in refused]:
        try:
            chunks = _chunks(export, name, inline_limit, inline_threshold)
            keys, why_absent_are_put = _array_keys(export, name, chunks, zarr_format)
            refs |= keys
            if why_absent_are_put:
                by_value[name] = why_absent_are_put
        except NotRepresentableError as error:
            refused[name] = error.reason
    if refused and on_unsupported == "raise":
        instead: Message | str = "write a catalog"
        if zarr_format == 2:
            newer = Export.of(shown, _TARGETS[3], reader, inline_limit)
            if refused.keys().isdisjoint(newer.refused):
                instead = Message("use ", Option("zarr_format", 3), ", or write a catalog")
        refuse(_NAME, refused, instead)
    for name, reason in sorted(refused.items()):
        warnings.warn(f"{name} is left out of the references: {reason}", stacklevel=2)
    if announce is not None:
        announce({name: reason for name, reason in by_value.items() if name not in refused})
    document = {"version": 1, "refs": _group_keys(export, refused, zarr_format) | refs}
    if templates:
        document = with_templates(document)
    if path is not None:
        write_references(document, os.fspath(path), storage_options)
    return document


def _archived(export: Export) -> dict[str, str]:
    """The arrays whose files are in archives: their chunks are copied."""
    return {
        name: IN_ARCHIVE
        for name, boxes in export.boxes.items()
        if not all(is_nameable(source) for box in boxes for source in box.references.sources)
    }


def _chunks(
    export: Export, name: str, inline_limit: int, inline_threshold: int
) -> dict[Coords, Reference]:
    """What each chunk of an array refers to. Chunks that no file holds are not there.

    Raises
    ------
    NotRepresentableError
        If what is written by value turns out to take more than `inline_limit`.
    """
    chunks: dict[Coords, Reference] = {}
    if name not in export.boxes:
        n_bytes = 0
        for at, data in export.values(name):
            chunks[at] = as_text(data)
            n_bytes += len(data)
            if n_bytes > inline_limit:  # texts of any length: only now it is known
                raise NotRepresentableError(export.reasons[name])
        return chunks
    n_archived = 0
    for box in export.boxes[name]:
        held = box.references
        rows = np.flatnonzero(held.present)
        in_archive = np.array([*(not is_nameable(each) for each in held.sources), False])
        source = np.maximum(held.source[rows], -1)  # the last one stands for inline bytes
        offset, length = held.offset[rows], held.length[rows]
        n_archived += int(length[in_archive[source]].sum())
        if n_archived > inline_limit:
            raise NotRepresentableError(IN_ARCHIVE)
        copied = (source < 0) | in_archive[source] | (length < inline_threshold)
        coords = box.coords(rows)
        values = export.values(name, coords[copied])
        urls = [*(each.url for each in held.sources), ""]
        columns = (c.tolist() for c in (coords, copied, source, offset, length))
        for at, is_copied, number, first, n in zip(*columns, strict=True):
            chunks[tuple(at)] = as_text(next(values)[1]) if is_copied else [urls[number], first, n]
    return chunks


def _array_keys(
    export: Export, name: str, chunks: Mapping[Coords, Reference], zarr_format: Version
) -> tuple[dict[str, Reference], str]:
    """The keys of an array, with its name before them, and why absent chunks are among them.

    Raises
    ------
    NotRepresentableError
        If Zarr v2 cannot express the array.
    """
    metadata = export.views[name].metadata
    keys: dict[str, Reference]
    reason = ""
    if zarr_format == 3:
        keys = {"zarr.json": _text(metadata.to_json())}
        keys |= {metadata.chunk_key(at): held for at, held in chunks.items()}
    else:
        try:
            keys = {**zarr2.array_documents(metadata, len(chunks) == metadata.grid.n_chunks)}
        except NotRepresentableError as error:
            # Where its fill value cannot say how absent chunks of a small array read, they are put.
            absent = zarr2.absent_chunk(metadata) if name in export.decodable else None
            if absent is None:
                raise
            reason = error.reason
            keys = {**zarr2.array_documents(metadata, is_complete=True)}
            every = dict.fromkeys(np.ndindex(*metadata.grid.grid_shape), as_text(absent))
            chunks = {**every, **chunks}
        keys |= {zarr2.chunk_key(at): held for at, held in chunks.items()}
    return {f"{name}/{key}": held for key, held in keys.items()}, reason


def _group_keys(
    export: Export, left_out: Mapping[str, str], zarr_format: Version
) -> dict[str, Reference]:
    """The keys of the root and of all groups, which tell of no array that is left out."""
    keys: dict[str, Reference] = {}
    for path, _ in export.space.group.walk():
        head = f"{path}/" if path else ""
        document = export.space.document(path) or {}
        if zarr_format == 3:
            told = document["consolidated_metadata"]["metadata"]
            for name in left_out:
                told.pop(name.removeprefix(head), None)
            keys[f"{head}zarr.json"] = _text(document)
        else:
            documents = zarr2.group_documents(document["attributes"])
            keys |= {f"{head}{key}": text for key, text in documents.items()}
    return keys


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, allow_nan=False, separators=(",", ":"))


def with_templates(document: Mapping[str, Any]) -> dict[str, Any]:
    """References with the address of each file kept once.

    Format: https://fsspec.github.io/kerchunk/spec.html, version 1, "templates".
    """
    names: dict[str, str] = {}

    def named(held: Reference) -> Reference:
        if isinstance(held, str):
            return held
        name = names.setdefault(str(held[0]), f"u{len(names)}")
        return ["{{" + name + "}}", *held[1:]]

    refs = {key: named(held) for key, held in document["refs"].items()}
    templates = {name: url for url, name in names.items()}
    return {**document, "templates": templates, "refs": refs}
