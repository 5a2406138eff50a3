"""Documents and tables that list files: CSV, Parquet, intake-esm, STAC items, S3 Inventory."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_plus

from gridref.errors import InvalidRequestError, Place, SourceChangedError
from gridref.formats.registry import data_names
from gridref.io import beside

__all__ = ["is_table", "read_lines", "read_listing"]

_ARN = "arn:aws:s3:::"
_OBJECT_STORES = ("s3://", "s3a://")


def is_table(url: str) -> bool:
    """Whether a listing is a table or a document, and no text of one address a line."""
    return (
        url.partition("?")[0].lower().endswith((".csv", ".csv.gz", ".json", ".geojson", "parquet"))
    )


def read_lines(url: str, options: Mapping[str, Any] | None) -> list[str]:
    """The lines of a text that are not empty."""
    text = _read(url, options).removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")
    return [line.strip() for line in text.splitlines() if line.strip()]


def read_listing(url: str, options: Mapping[str, Any] | None) -> tuple[Any, str | None]:
    """A data frame with a row for each file, and its column of addresses where that is known.

    Parameters
    ----------
    url
        A CSV or Parquet file, or a JSON document: an intake-esm collection (ESM collection
        specification, version 0.1), a STAC item or item collection (STAC 1.0 and 1.1), or the
        manifest of an S3 Inventory.
    options
        fsspec options.

    Raises
    ------
    InvalidRequestError
        If it is something else, or lists a part only.
    SourceChangedError
        If a file of an S3 Inventory is not the one that its manifest describes.
    """
    import pandas as pd

    name = url.partition("?")[0].lower()
    if name.endswith("json"):
        return _of_document(json.loads(_read(url, options)), url, options)
    if name.endswith("parquet"):
        frame = pd.read_parquet(io.BytesIO(_read(url, options)))
        if {"bucket", "key"} <= {*map(str, frame.columns)}:
            return _objects(frame), "path"
        return frame, None
    return pd.read_csv(io.BytesIO(_read(url, options)), dtype=str, keep_default_na=False), None


def _read(url: str, options: Mapping[str, Any] | None) -> bytes:
    import fsspec

    compression = "gzip" if url.partition("?")[0].endswith(".gz") else None
    with fsspec.open(url, "rb", compression=compression, **dict(options or {})) as file:
        return bytes(file.read())


def _of_document(document: Any, url: str, options: Mapping[str, Any] | None) -> tuple[Any, str]:
    import pandas as pd

    if not isinstance(document, dict):
        raise ValueError("the document is no JSON object")
    if "fileSchema" in document:
        return _s3_inventory(document, url, options), "path"
    if document.get("type") in ("Feature", "FeatureCollection"):
        return _stac_items(document), "assets"
    column = str(document["assets"]["column_name"])
    if "catalog_dict" in document:
        return pd.DataFrame(document["catalog_dict"]), column
    return read_listing(beside(url, document["catalog_file"]), options)[0], column


def _stac_items(document: Mapping[str, Any]) -> Any:
    """A row for each item: its id, collection and properties, and its assets."""
    import pandas as pd

    if any(link.get("rel") == "next" for link in document.get("links", ())):
        raise ValueError(
            "it is one page of several: save all items of the search, as pystac-client's"
            " search.item_collection().save_object() does"
        )
    items = document["features"] if document["type"] == "FeatureCollection" else [document]
    if not all(isinstance(item["assets"], Mapping) for item in items):
        raise ValueError("an item has assets that are none")
    rows = [
        {
            "id": item["id"],
            "collection": item.get("collection"),
            **item.get("properties", {}),
            "assets": item["assets"],
        }
        for item in items
    ]
    return pd.DataFrame(rows, columns=None if rows else ["id", "collection", "assets"])


def _s3_inventory(manifest: Mapping[str, Any], url: str, options: Mapping[str, Any] | None) -> Any:
    """The objects that an S3 Inventory lists.

    Source: Amazon S3 User Guide, "Amazon S3 Inventory list" and "Locating your inventory list":
    CSV files have no header and keys encoded as in URLs; each file comes with an MD5 checksum.
    """
    import pandas as pd

    form = manifest["fileFormat"]
    if form not in ("CSV", "Parquet"):
        raise ValueError(f"the inventory is of the format {form}; CSV and Parquet can be read")
    parts = []
    for entry in manifest["files"]:
        data = _inventory_file(manifest, entry, url, options)
        if form == "Parquet":
            parts.append(pd.read_parquet(io.BytesIO(data)))
            continue
        names = [_snake(name) for name in manifest["fileSchema"].split(",")]
        text = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
        part = pd.read_csv(
            io.BytesIO(text), header=None, names=names, dtype=str, keep_default_na=False
        )
        parts.append(part.assign(key=[unquote_plus(key) for key in part["key"]]))
    return _objects(pd.concat(parts, ignore_index=True))


def _snake(name: str) -> str:
    """``LastModifiedDate`` as Parquet files of inventories have it: ``last_modified_date``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip()).lower()


def _inventory_file(
    manifest: Mapping[str, Any],
    entry: Mapping[str, Any],
    url: str,
    options: Mapping[str, Any] | None,
) -> bytes:
    """A file of an inventory where it was delivered; of one that was copied, beside its manifest.

    Raises
    ------
    SourceChangedError
        If it is another one than the manifest says.
    """
    import fsspec

    key, name = entry["key"], entry["key"].rpartition("/")[2]
    if url.startswith(_OBJECT_STORES):
        places = [f"s3://{manifest['destinationBucket'].removeprefix(_ARN)}/{key}"]
    else:
        folder = url.rpartition("/")[0]
        places = [beside(folder, f"data/{name}"), beside(url, f"data/{name}"), beside(url, name)]
    for place in places:
        try:
            with fsspec.open(place, "rb", **dict(options or {})) as file:
                data = bytes(file.read())
        except FileNotFoundError:
            continue
        digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if digest != entry.get("MD5checksum", digest):
            raise SourceChangedError(
                "the file is not the one that the manifest of the inventory describes: its MD5"
                f" checksum is {digest}",
                Place(place),
            )
        return data
    raise InvalidRequestError(
        f"a file of the inventory is not there: looked for {', '.join(places)}", Place(url)
    )


def _objects(frame: Any) -> Any:
    """The data files among objects, each as it is now: no former versions, no deleted ones."""
    names = data_names()
    former, deleted = _says(frame, "is_latest", "false"), _says(frame, "is_delete_marker", "true")
    addresses = [f"s3://{bucket}/{key}" for bucket, key in frame[["bucket", "key"]].to_numpy()]
    kept = [
        not (old or gone) and not address.endswith("/") and names.is_file(address)
        for old, gone, address in zip(former, deleted, addresses, strict=True)
    ]
    return frame.drop(columns=["bucket", "key"]).assign(path=addresses)[kept]


def _says(frame: Any, column: str, word: str) -> list[bool]:
    """Where a column of truths, which may be texts or not there, says a word."""
    if column not in frame.columns:
        return [False] * len(frame)
    return [str(value).lower() == word for value in frame[column]]
