"""Export kerchunk references, with Zarr v2 or v3 keys, as JSON or Parquet.

A reference is a byte range of one file, so only what the native view shows can be expressed. Small
arrays that it does not show are written into the references, decoded.

Format: https://fsspec.github.io/kerchunk/spec.html, version 1; Parquet as fsspec's
``LazyReferenceMapper``.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, get_args

from gridref.api.opening import reader_for
from gridref.catalog.folder import publish_file, write_errors_told
from gridref.errors import InvalidRequestError, Message, Option, Place
from gridref.extras import missing_package
from gridref.faces.exports.references import (
    IN_ARCHIVE,
    INLINE_LIMIT_BYTES,
    PORTABLE,
    byte_range_of,
    is_small,
    refuse,
    why_not_referenced,
)
from gridref.faces.exports.zarr2 import as_version_2, with_absent_chunks
from gridref.formats.kerchunk.references import as_text
from gridref.formats.options import OnUnsupported
from gridref.io import absolute_url, is_local
from gridref.model.array import VirtualGroup
from gridref.options import check_choice
from gridref.serve.conventions import with_conventions
from gridref.serve.names import IN_ZARR, with_shown_names
from gridref.serve.object_reader import ObjectReader
from gridref.serve.objects import KeySpace, ObjectSpace
from gridref.serve.reader import Reader
from gridref.serve.segments import LiteralSegment, VirtualObject
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
            Message("references in Parquet have keys of Zarr v2 only: ", Option("zarr_format", 2))
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
        raise InvalidRequestError(f"{folder} is there, and holds no references: it is left alone")
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
    try:
        # Where a chunk goes depends on its array's document.
        for key in sorted(refs, key=lambda key: not key.rpartition("/")[2].startswith(".z")):
            mapper[key] = refs[key]
        mapper.flush()
    except ImportError as error:
        raise missing_package("writing references in Parquet", error) from error


# References of a group

_NATIVE = {
    2: ViewOptions(View.NATIVE, grid="regular"),
    3: ViewOptions(View.NATIVE, grid="rectilinear"),
}
_INSTEAD = {
    2: Message("use ", Option("zarr_format", 3), ", or write a catalog"),
    3: "write a catalog",
}

_N_THREADS = 16

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
    if zarr_format not in _NATIVE:
        raise InvalidRequestError(f"zarr_format must be 2 or 3, got {zarr_format!r}")
    native = _NATIVE[zarr_format]
    group = with_conventions(with_shown_names(group, IN_ZARR))
    reasons = why_not_referenced(group, native)
    refused = {name for name in reasons if not is_small(group, name, inline_limit)}
    space = KeySpace(group, native, dict.fromkeys(reasons, PORTABLE))
    objects = ObjectReader(reader or reader_for(storage_options))
    refs, written = _references(space, objects, refused, inline_limit, inline_threshold)
    refused |= {name for name, n_bytes in written.items() if n_bytes > inline_limit}
    told = {name: reasons.get(name, IN_ARCHIVE) for name in refused}
    if zarr_format == 2:
        refs, unsaid = _as_version_2(refs, group, inline_limit)
        told = {**unsaid, **told}
    if on_unsupported == "raise":
        refuse("kerchunk references", told, _INSTEAD[zarr_format])
    document = {"version": 1, "refs": _without(refs, told)}
    if templates:
        document = with_templates(document)
    if path is not None:
        write_references(document, os.fspath(path), storage_options)
    return document


def _as_version_2(
    refs: dict[str, Reference], group: VirtualGroup, inline_limit: int
) -> tuple[dict[str, Reference], dict[str, str]]:
    """The keys as they are in Zarr v2, and why it cannot express some arrays.

    Where its fill value cannot say how absent chunks of a small array read, they are written.
    """
    said, unsaid = as_version_2(refs)
    small = [name for name in unsaid if is_small(group, name, inline_limit)]
    return as_version_2(with_absent_chunks(refs, small)) if small else (said, unsaid)


def _without(refs: dict[str, Reference], left_out: Mapping[str, str]) -> dict[str, Reference]:
    """The keys of all arrays but some; a warning gives the reason for each of these."""
    for name, reason in sorted(left_out.items()):
        warnings.warn(f"{name} is left out of the references: {reason}", stacklevel=3)
    if not left_out:
        return refs
    heads = tuple(f"{name}/" for name in left_out)
    return {key: held for key, held in refs.items() if not key.startswith(heads)}


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


def _references(
    space: ObjectSpace,
    reader: ObjectReader,
    left_out: AbstractSet[str],
    inline_limit: int,
    inline_threshold: int,
) -> tuple[dict[str, Reference], Counter[str]]:
    """What each key refers to, and the bytes written out in place of references, by array.

    Chunks that no file holds have no key, and read as the fill value. Of an array that turns out to
    take more than `inline_limit`, no more is read.
    """
    refs: dict[str, Reference] = {}
    written: Counter[str] = Counter()
    small: dict[str, VirtualObject] = {}
    for key in space.keys(""):
        held = space.resolve(key)
        assert held is not None
        (segment,) = held.segments
        byte_range = byte_range_of(segment)
        if held.variable is None:
            refs[key] = reader.read(held).decode()
        elif byte_range is not None:
            refs[key] = list(byte_range)
            if byte_range[2] < inline_threshold:
                small[key] = held
        elif held.variable not in left_out and written[held.variable] <= inline_limit:
            data = reader.read(held)
            refs[key] = as_text(data)
            if not isinstance(segment, LiteralSegment):
                written[held.variable] += len(data)
    with ThreadPoolExecutor(_N_THREADS) as threads:
        refs |= zip(small, map(as_text, threads.map(reader.read, small.values())), strict=True)
    return refs, written
