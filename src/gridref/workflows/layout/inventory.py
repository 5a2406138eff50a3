"""Tables that list files and say labels of each, and listings that are nothing but that."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Self

from gridref.errors import GridrefError, InvalidRequestError, Place
from gridref.io import absolute_url, beside, options_for
from gridref.workflows.layout.layouts import Layout
from gridref.workflows.layout.listings import is_table, read_lines, read_listing

__all__ = ["Inventory", "files_from", "with_inventory"]

_FILE_COLUMNS = ("path", "file", "uri", "url", "href", "filename", "location", "assets")
"""Columns that may hold addresses, where the table does not say which does."""


@dataclass(frozen=True, eq=False)
class Inventory:
    """Files, and what a table says of each.

    Attributes
    ----------
    name
        The table, for messages.
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
                f"inventory={name!r} has no column of addresses, like {', '.join(_FILE_COLUMNS)}:"
                f" there are {', '.join(held)}"
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
                f"inventory={self.name!r} has no column {column!r}: there are"
                f" {', '.join(self.columns)}"
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
        what = "says nothing of it there" if address in values else "does not list it"
        raise InvalidRequestError(f"inventory={name!r} {what}", Place(source=file))
    return values[address]


def _addresses(value: Any, name: str, asset: Sequence[str]) -> dict[str, str]:
    """An address, or those of the assets of a STAC item, by the keys of these."""
    if not isinstance(value, Mapping):
        return {"": str(value)}
    assets = {key: held["href"] for key, held in value.items() if _has_address(held)}
    chosen = asset or (["data"] if "data" in assets else [*assets] if len(assets) == 1 else [])
    missing = [key for key in chosen if key not in assets]
    if missing or not chosen:
        what = f"without the asset {missing[0]!r}" if missing else "of several assets: say which"
        raise InvalidRequestError(
            f"inventory={name!r} has items {what}, asset=...; there are {', '.join(assets)}"
        )
    return {key: str(assets[key]) for key in chosen}


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
    layout: Layout, files: Any, storage_options: Mapping[str, Any] | None
) -> tuple[Layout, Any]:
    """The layout with labels out of its inventory, and the files: those listed if there are none.

    Labels are those of ``column:NAME``, and of columns that are called like dimensions.
    """
    if layout.inventory is None:
        return layout, files
    table = Inventory.of(layout.inventory, storage_options, layout.asset)
    chosen = [] if isinstance(files, str | os.PathLike) else list(files)
    asked = {} if callable(layout.labels) else dict(layout.labels or {})
    sources: dict[str, Any] = {
        dim: f"column:{dim}" for dim in layout.dims if dim in table.columns and dim not in asked
    }
    for dim, source in {**sources, **asked}.items():
        kind, _, column = source.partition(":") if isinstance(source, str) else ("", "", "")
        sources[dim] = table.label(column) if kind == "column" else source
    labels = layout.labels if callable(layout.labels) else sources or None
    known = files if isinstance(files, str | os.PathLike) else chosen or list(table.files)
    return replace(layout, labels=labels), known


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
