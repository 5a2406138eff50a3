"""The options that name files by a list of them."""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer

from gridref.errors import InvalidRequestError

__all__ = ["FilesFrom", "Match", "all_files"]

FilesFrom = Annotated[
    str | None,
    typer.Option(
        "--files-from",
        metavar="FILE",
        help="Also take the files that are listed: in a text, one a line (- is standard input), in"
        " CSV or Parquet, in the manifest of an S3 Inventory, in STAC items (.json, .parquet).",
        show_default=False,
    ),
]
Match = Annotated[
    str | None,
    typer.Option(
        "--match",
        metavar="GLOB",
        help="Of the files listed, only those like it: '*/2020/*.nc'.",
        show_default=False,
    ),
]


def all_files(
    files: list[str] | None,
    files_from: str | None,
    match: str | None,
    options: dict[str, Any],
) -> list[str]:
    """The files of a command line, and those of a list; empty lines of that are left out.

    With an inventory, there may be none. An asset is that of the list where there is one.

    Raises
    ------
    InvalidRequestError
        If there are none, or the list cannot be read.
    """
    inventory = options.get("inventory")
    listed: list[str] = []
    if files_from is not None:
        asset = options.get("asset") if inventory else options.pop("asset", None)
        listed = _listed(files_from, asset, match, options.get("storage_options"))
    elif match is not None:
        raise InvalidRequestError("--match is of the files of a list: --files-from FILE")
    found = [*(files or []), *listed]
    if not found and inventory is None:
        raise InvalidRequestError("name files, or a list of them: --files-from FILE")
    return found


def _listed(
    listing: str, asset: list[str] | None, match: str | None, storage_options: Any
) -> list[str]:
    from gridref.workflows.layout.inventory import files_from

    try:
        if listing != "-":
            return files_from(listing, asset=asset, match=match, storage_options=storage_options)
        text = sys.stdin.read().removeprefix("\ufeff")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
    except (InvalidRequestError, OSError) as error:
        raise InvalidRequestError(f"--files-from {listing}: {error}") from error
    return [line for line in lines if match is None or fnmatchcase(line, match)]
