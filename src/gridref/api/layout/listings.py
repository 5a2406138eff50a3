"""Read tables and documents that list files, with the labels that they hold."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Self
from urllib.parse import unquote_plus

from gridref.api.layout.layouts import Labels, Layout
from gridref.errors import (
    GridrefError,
    InvalidRequestError,
    Message,
    Option,
    Place,
    SourceChangedError,
    some_of,
)
from gridref.formats.registry import data_names
from gridref.io import absolute_url, beside, options_for
from gridref.limits import beyond, limits
from gridref.options import given_options

# Formats: CSV, Parquet, intake-esm, STAC items, S3 Inventory

_ARN = "arn:aws:s3:::"
_OBJECT_STORES = ("s3://", "s3a://")


def is_table(url: str) -> bool:
    """Whether a listing is a table or a document, and no text of one address a line."""
    return (
        url.partition("?")[0].lower().endswith((".csv", ".csv.gz", ".json", ".geojson", "parquet"))
    )


def read_lines(url: str, options: Mapping[str, Any] | None) -> list[str]:
    """The lines of a text that are not empty."""
    content = _as_utf8(_read(url, options)).removeprefix(codecs.BOM_UTF8)
    found = []
    text = io.TextIOWrapper(io.BytesIO(content), "utf-8", "surrogateescape", newline=None)
    for number, line in enumerate(text, 1):
        if "\0" in line:
            raise ValueError(f"line {number} holds a NUL: it is no text in UTF-8")
        if line := line.strip():
            found.append(line)
    return found


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
    content = _as_utf8(_read(url, options))
    return pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False), None


def _as_utf8(content: bytes) -> bytes:
    """A text whose byte order mark says UTF-16 or UTF-32, as PowerShell writes it, in UTF-8."""
    marks = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    mark = next((mark for mark in marks if content.startswith(mark)), None)
    if mark is None:
        return content
    return content.decode("utf-16" if len(mark) == 2 else "utf-32").encode()


def _read(url: str, options: Mapping[str, Any] | None) -> bytes:
    import fsspec

    most = limits().listing_bytes
    compression = "gzip" if url.partition("?")[0].endswith(".gz") else None
    with fsspec.open(url, "rb", compression=compression, **dict(options or {})) as file:
        content = bytes(file.read(most + 1))
    if len(content) > most:
        raise ValueError(beyond("listing_bytes", f"it has {len(content)} bytes or more"))
    return content


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
        _check_columns(document["catalog_dict"])
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
    _check_columns(rows)
    return pd.DataFrame(rows, columns=None if rows else ["id", "collection", "assets"])


def _check_columns(rows: Any) -> None:
    names = {name for row in rows if isinstance(row, Mapping) for name in row}
    if len(names) > limits().listing_columns:
        raise ValueError(beyond("listing_columns", f"it has {len(names)} names of properties"))


def _s3_inventory(manifest: Mapping[str, Any], url: str, options: Mapping[str, Any] | None) -> Any:
    """The objects that an S3 Inventory lists.

    Source: Amazon S3 User Guide, "Amazon S3 Inventory list" and "Locating your inventory list":
    CSV files have no header and keys encoded as in URLs; each file comes with an MD5 checksum.
    """
    import pandas as pd

    form = manifest["fileFormat"]
    if form not in ("CSV", "Parquet"):
        raise ValueError(f"the inventory has the format {form}; only CSV and Parquet can be read")
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
    """A file of an inventory: where it was delivered, or beside the manifest of a copied one."""
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


# Inventories: files with labels, and plain listings of files

_FILE_COLUMNS = ("path", "file", "uri", "url", "href", "filename", "location", "assets")
"""Columns that may hold addresses, where the table does not say which does."""

_SHOWN = 50
"""Most keys of assets that an error lists."""


@dataclass(frozen=True, eq=False)
class Inventory:
    """Files, and what a table says of each.

    Attributes
    ----------
    files
        Absolute addresses.
    columns
        The other columns by name, a value for each file.
    """

    name: str
    files: tuple[str, ...]
    columns: Mapping[str, Sequence[Any]]

    @classmethod
    def of(
        cls,
        table: Any,
        storage_options: Mapping[str, Any] | None,
        asset: str | Sequence[str] | None = None,
    ) -> Self:
        """Read a table.

        Parameters
        ----------
        table
            A data frame, or the address of what `read_listing` reads. Relative addresses in it are
            relative to its folder.
        storage_options
            As for `gridref.build`.
        asset
            Keys of the assets that are taken of each STAC item.

        Raises
        ------
        InvalidRequestError
            If it cannot be read, or has no column of addresses.
        """
        keys = [asset] if isinstance(asset, str) else list(asset or ())
        if not isinstance(table, str | os.PathLike):
            return cls._of_frame(table, "the table", "", None, keys)
        url = absolute_url(table)
        with _refusing_listing(url):
            frame, column = read_listing(url, options_for(url, storage_options))
            return cls._of_frame(frame, url, url, column, keys)

    @classmethod
    def _of_frame(
        cls, frame: Any, name: str, url: str, column: str | None, asset: Sequence[str]
    ) -> Self:
        held = list(map(str, frame.columns))
        column = column or next((known for known in _FILE_COLUMNS if known in held), None)
        if column not in held:
            raise InvalidRequestError(
                Message(
                    Option("inventory", name),
                    f" has no column of addresses, like {', '.join(_FILE_COLUMNS)}: there "
                    f"are {', '.join(held)}",
                )
            )
        found = [_addresses(value, name, asset) for value in frame[column]]
        texts = [text for row in found for text in row.values()]
        files = tuple(absolute_url(beside(url, text) if url else text) for text in texts)
        others: dict[str, list[Any]] = {
            other: [value for value, row in zip(frame[other], found, strict=True) for _ in row]
            for other in held
            if other != column
        }
        if any(key for row in found for key in row):
            others.setdefault("asset", [key for row in found for key in row])
        return cls(name, files, others)

    def label(self, column: str) -> Callable[[str], Any]:
        """A function that gives a file's value in a column.

        Raises
        ------
        InvalidRequestError
            If there is no such column; by the function, for a file that is not listed.
        """
        if column not in self.columns:
            raise InvalidRequestError(
                Message(
                    Option("inventory", self.name),
                    f" has no column {column!r}: there are {', '.join(self.columns)}",
                )
            )
        values = dict(zip(self.files, map(_plain, self.columns[column]), strict=True))
        return partial(_listed, values, self.name)


@contextmanager
def _refusing_listing(url: str) -> Iterator[None]:
    """Make whatever is raised while a listing is read and taken apart an error of ours.

    It is a document of a stranger, or of another program: anything may stand anywhere.
    """
    try:
        yield
    except GridrefError:
        raise
    except Exception as error:
        told = f"it has no {error}" if isinstance(error, KeyError) else error
        raise InvalidRequestError(f"the listing cannot be read: {told}", Place(url)) from error


def _listed(values: Mapping[str, Any], name: str, file: str) -> Any:
    address = absolute_url(file)
    if address not in values or values[address] is None:
        what = "has no value for it" if address in values else "does not list it"
        raise InvalidRequestError(
            Message(Option("inventory", name), f" {what}"), Place(source=file)
        )
    return values[address]


def _addresses(value: Any, name: str, asset: Sequence[str]) -> dict[str, str]:
    """An address, or those of the assets of a STAC item, by the keys of these."""
    if not isinstance(value, Mapping):
        return {"": _address(value, name)}
    assets = {key: held["href"] for key, held in value.items() if _has_address(held)}
    chosen = asset or (["data"] if "data" in assets else [*assets] if len(assets) == 1 else [])
    missing = [key for key in chosen if key not in assets]
    if missing or not chosen:
        what = f"without the asset {missing[0]!r}" if missing else "of several assets: say which"
        raise InvalidRequestError(
            Message(
                Option("inventory", name),
                f" has items {what}, ",
                Option("asset"),
                f"; there are {some_of([*assets], _SHOWN)}",
            )
        )
    return {key: _address(assets[key], name) for key in chosen}


def _address(value: Any, name: str) -> str:
    if not isinstance(value, str | os.PathLike) or not str(value) or "\0" in str(value):
        shown = repr(value)[:100]
        raise InvalidRequestError(
            Message(Option("inventory", name), f" has a row without an address: {shown}")
        )
    return str(value)


def _has_address(asset: Any) -> bool:
    return isinstance(asset, Mapping) and asset.get("href") is not None


def _plain(value: Any) -> Any:
    """A value as Python's or numpy's own; None where there is none."""
    if hasattr(value, "to_datetime64"):
        value = value.tz_convert(None) if getattr(value, "tzinfo", None) is not None else value
        return value.to_datetime64()
    if value is None or value != value or value == "":
        return None
    return value.item() if hasattr(value, "item") else value


def with_inventory(
    layout: Layout, dims: Sequence[str], files: Any, storage_options: Mapping[str, Any] | None
) -> tuple[Layout, Any]:
    """The layout with labels out of its inventory, and the files: those listed if there are none.

    Labels are those of ``column:NAME``, and of columns that are called like dimensions.
    """
    labels = layout.sought
    if labels.inventory is None:
        return layout, files
    table = Inventory.of(labels.inventory, storage_options, labels.asset)
    chosen = [] if isinstance(files, str | os.PathLike) else list(files)
    known = files if isinstance(files, str | os.PathLike) else chosen or list(table.files)
    given = {
        name: own
        for name, own in given_options(labels).items()
        if name not in ("inventory", "asset")
    }
    if callable(labels.sources):
        return layout.with_labels(Labels(**given)), known
    asked = dict(labels.sources or {})
    sources: dict[str, Any] = {
        dim: f"column:{dim}"
        for dim in layout.listed_dims(dims)
        if dim in table.columns and dim not in asked
    }
    for dim, source in {**sources, **asked}.items():
        kind, _, column = source.partition(":") if isinstance(source, str) else ("", "", "")
        sources[dim] = table.label(column) if kind == "column" else source
    return layout.with_labels(Labels(**{**given, "sources": sources or None})), known


def files_from(
    listing: Any,
    *,
    asset: str | Sequence[str] | None = None,
    match: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> list[str]:
    """The files that a listing names, for any call that takes files.

    Parameters
    ----------
    listing
        A text of one address a line; a CSV or Parquet table (stac-geoparquet too) or a data frame
        with a column of addresses; or a JSON document: the manifest of an S3 Inventory, a STAC item
        collection, an intake-esm collection. Of an S3 Inventory the data files are taken that are
        there now, by their suffix: no former versions and no deleted objects.
    asset
        Keys of the assets that are taken of each STAC item; by default ``"data"``, or the only one.
    match
        Only addresses like this: ``"*/2020/*.nc"``.
    storage_options
        Options of fsspec's filesystem of the listing, or of several by protocol.

    Returns
    -------
    list of str
        In the order of the listing, each once.

    Raises
    ------
    InvalidRequestError
        If it cannot be read, lists a part only, or no file at all.
    SourceChangedError
        If a file of an S3 Inventory is not the one that its manifest describes.
    """
    if isinstance(listing, str | os.PathLike) and not is_table(url := absolute_url(listing)):
        with _refusing_listing(url):
            found = read_lines(url, options_for(url, storage_options))
    else:
        found = list(Inventory.of(listing, storage_options, asset).files)
    chosen = [file for file in dict.fromkeys(found) if match is None or fnmatchcase(file, match)]
    if not chosen:
        what = f", of {len(found)}, is like {match}" if match and found else " is listed"
        raise InvalidRequestError(f"no file{what} in {listing}")
    return chosen
