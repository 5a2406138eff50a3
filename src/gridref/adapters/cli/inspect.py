"""The command ``gridref inspect``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gridref.adapters.cli.options import StorageOptions, parse_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridref.workflows.scanning.inspecting import Inspection

__all__ = ["inspect_command"]

_MAP_CELLS = 60


def inspect_command(
    file: Annotated[str, typer.Argument(help="A file or URL.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    limit: Annotated[int, typer.Option(help="Most arrays that are listed; 0 for all.")] = 20,
    storage_options: StorageOptions = None,
) -> None:
    """Say why a file is slow to scan on a server, and what writing it anew would give.

    Local files are looked at as if they were on a server.

    Examples
    --------
        gridref inspect data/tas_2020.nc

        gridref inspect https://example.org/scene.tif --json
    """
    from gridref.workflows.scanning.inspecting import inspect

    found = inspect(file, storage_options=parse_options(storage_options))
    if as_json:
        typer.echo(json.dumps(found.to_json()))
        return
    console = Console()
    for line in _lines(found):
        console.print(Text(line), soft_wrap=True)
    console.print(_arrays(found, limit or len(found.arrays)))
    _print_advice(console, found)


def _lines(found: Inspection) -> Iterator[str]:
    from gridref.adapters.describing import human_bytes

    size = "" if found.file_bytes is None else f", {human_bytes(found.file_bytes)}"
    yield f"{found.file}: {found.format}{size}"
    yield from (
        f"{what}: {n_requests} requests, {human_bytes(n_bytes)}{_share(n_bytes, found.file_bytes)}"
        for what, n_requests, n_bytes in (
            ("a scan of it", found.n_requests, found.n_bytes),
            ("of one more like it", found.n_requests_alike, found.n_bytes_alike),
        )
    )
    if found.file_bytes:
        yield f"looked at: [{_map(found.metadata, found.file_bytes)}]"
    yield from (f"{name}: {value}" for name, value in found.facts.items())


def _share(n_bytes: int, file_bytes: int | None) -> str:
    return f" ({n_bytes / file_bytes:.1%} of the file)" if file_bytes else ""


def _map(pieces: tuple[tuple[int, int], ...], file_bytes: int) -> str:
    """A file from its first to its last byte, with # where something was looked at."""
    cells = ["."] * _MAP_CELLS
    for start, stop in pieces:
        for cell in range(start * _MAP_CELLS // file_bytes, -(-stop * _MAP_CELLS // file_bytes)):
            cells[cell] = "#"
    return "".join(cells)


def _arrays(found: Inspection, limit: int) -> Table:
    from gridref.adapters.describing import human_bytes

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("array", "chunks", "of shape", "median", "small", "in all", "index"):
        table.add_column(title, justify="left" if title in ("array", "index") else "right")
    ordered = sorted(found.arrays, key=lambda array: -array.n_chunks)
    for array in ordered[:limit]:
        table.add_row(
            array.path,
            str(array.n_chunks),
            "x".join(map(str, array.chunk_shape)) or "scalar",
            human_bytes(array.median_bytes),
            str(array.n_small),
            human_bytes(array.stored_bytes),
            array.index,
        )
    if len(ordered) > limit:
        table.add_row(f"and {len(ordered) - limit} more")
    return table


def _print_advice(console: Console, found: Inspection) -> None:
    if not found.advice:
        console.print("nothing makes it slow")
    for advice in found.advice:
        text = Text.assemble(("slow ", "yellow"), advice.reason)
        console.print(text, soft_wrap=True)
        if advice.command:
            console.print(Text(f"  {advice.command}"), soft_wrap=True)
        if advice.gain:
            console.print(Text(f"  gives {advice.gain}"), soft_wrap=True)
