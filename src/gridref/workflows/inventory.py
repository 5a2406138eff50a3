"""Tables that list files and say labels of each: CSV, intake-esm, Parquet, data frames."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from gridref.errors import InvalidRequestError, Place
from gridref.io import absolute_url, beside, options_for
from gridref.workflows.layout import Layout

__all__ = ["Inventory", "with_inventory"]

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
    def of(cls, table: Any, storage_options: Mapping[str, Any] | None) -> Self:
        """Read a table.

        Parameters
        ----------
        table
            A data frame; or the address of a CSV file, of the JSON document of an intake-esm
            collection (ESM collection specification, version 0.1), or of a Parquet file like
            stac-geoparquet's. Relative addresses in it are relative to its folder.
        storage_options
            As for `gridref.build`.

        Raises
        ------
        InvalidRequestError
            If it cannot be read, or has no column of addresses.
        """
        if not isinstance(table, str | os.PathLike):
            return cls._of_frame(table, "the table", "", None)
        url = absolute_url(table)
        try:
            frame, column = _frame(url, options_for(url, storage_options))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidRequestError(f"inventory= cannot be read: {error}", Place(url)) from error
        return cls._of_frame(frame, url, url, column)

    @classmethod
    def _of_frame(cls, frame: Any, name: str, url: str, column: str | None) -> Self:
        held = list(map(str, frame.columns))
        column = column or next((known for known in _FILE_COLUMNS if known in held), None)
        if column not in held:
            raise InvalidRequestError(
                f"inventory={name!r} has no column of addresses, like {', '.join(_FILE_COLUMNS)}:"
                f" there are {', '.join(held)}"
            )
        texts = [_address(value, name) for value in frame[column]]
        files = tuple(absolute_url(beside(url, text) if url else text) for text in texts)
        others = {other: list(frame[other]) for other in held if other != column}
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


def _listed(values: Mapping[str, Any], name: str, file: str) -> Any:
    address = absolute_url(file)
    if address not in values or values[address] is None:
        what = "says nothing of it there" if address in values else "does not list it"
        raise InvalidRequestError(f"inventory={name!r} {what}", Place(source=file))
    return values[address]


def _frame(url: str, options: Mapping[str, Any] | None) -> tuple[Any, str | None]:
    """A data frame, and its column of addresses where a document says it."""
    import fsspec
    import pandas as pd

    given = dict(options or {})
    if url.endswith(".json"):
        with fsspec.open(url, "rb", **given) as file:
            document = json.load(file)
        column = str(document["assets"]["column_name"])
        if "catalog_dict" in document:
            return pd.DataFrame(document["catalog_dict"]), column
        return _frame(beside(url, document["catalog_file"]), options)[0], column
    compression = "gzip" if url.endswith(".gz") else None
    with fsspec.open(url, "rb", compression=compression, **given) as file:
        if url.endswith("parquet"):
            return pd.read_parquet(file), None
        return pd.read_csv(file, dtype=str, keep_default_na=False), None


def _address(value: Any, name: str) -> str:
    """An address, or that of the one asset of a STAC item."""
    if not isinstance(value, Mapping):
        return str(value)
    assets = {key: asset for key, asset in value.items() if isinstance(asset, Mapping)}
    chosen = assets.get("data") or (next(iter(assets.values())) if len(assets) == 1 else None)
    if chosen is None or "href" not in chosen:
        raise InvalidRequestError(
            f"inventory={name!r} has items of several assets, none of them 'data': give a table"
            " with a column of addresses"
        )
    return str(chosen["href"])


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
    table = Inventory.of(layout.inventory, storage_options)
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
