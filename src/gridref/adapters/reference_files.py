"""Kerchunk references in files: one JSON document, or a folder of Parquet files.

Format: https://fsspec.github.io/kerchunk/spec.html; Parquet as fsspec's ``LazyReferenceMapper``.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gridref.catalog.storage import open_folder
from gridref.errors import InvalidRequestError
from gridref.extras import missing_package
from gridref.io import absolute_url, is_local

__all__ = ["write_references"]

_PARQUET = (".parq", ".parquet")


def write_references(
    document: Mapping[str, Any], path: str, storage_options: Mapping[str, Any] | None = None
) -> None:
    """Write references, in one step: after a failure, what was there before is there.

    Parameters
    ----------
    path
        Where to; its suffix says in which form.
    storage_options
        Options of fsspec's filesystem there.

    Raises
    ------
    InvalidRequestError
        For Zarr v3 keys or templates in Parquet, a remote folder of Parquet, or a folder of
        something else.
    """
    url = absolute_url(path)
    if not url.endswith(_PARQUET):
        folder, _, name = url.rpartition("/")
        open_folder(folder, storage_options).publish(name, json.dumps(document).encode())
        return
    if "zarr.json" in document["refs"]:
        raise InvalidRequestError("references in Parquet have keys of Zarr v2 only: zarr_format=2")
    if "templates" in document:
        raise InvalidRequestError("references in Parquet have no templates: templates=False")
    if not is_local(url):
        raise InvalidRequestError(f"references in Parquet are written here, not to {url}")
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
