"""What `gridref verify` says."""

from __future__ import annotations

from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from gridref.adapters.cli.progress import ScanProgress

__all__ = ["print_verification"]


def print_verification(
    catalog: str,
    *,
    everything: bool = False,
    checksums: bool = False,
    options: dict[str, Any] | None = None,
    quiet: bool = False,
    allow: list[str] | None = None,
    snapshot: str | None = None,
    max_in_flight: int = 64,
) -> None:
    """Compare a catalog, or an export, with the original readers, and say what differs.

    Raises
    ------
    typer.Exit
        With status 1 for any difference.
    """
    from gridref.workflows.verifying.arrays import verify as verify_catalog

    console = Console()

    def announce(n_chunks: int, n_bytes: int) -> None:
        size = f"{n_bytes / 1e6:.1f} MB"
        console.print(f"{n_chunks} stored chunks to compare: {size}, read twice", style="dim")

    with ScanProgress(Console(stderr=True), quiet, unit="chunks") as progress:
        result = verify_catalog(
            catalog,
            everything=everything,
            checksums=checksums,
            storage_options=options,
            allow=allow or None,
            snapshot=snapshot,
            max_in_flight=max_in_flight,
            progress=progress,
            announce=announce,
        )
    for difference in result.differences[:20]:
        console.print(Text.assemble(("differs ", "bold red"), str(difference)))
    for path, reason in result.not_compared:
        console.print(Text.assemble(("not compared ", "yellow"), f"{path}: {reason}"))
    console.print(
        f"{result.n_arrays} arrays, {result.n_chunks} chunks, {result.n_values} values compared:"
        f" {len(result.differences)} chunks differ"
    )
    if checksums and not result.differences:
        console.print(f"{result.n_checksums} stored chunks now have checksums")
    if result.differences:
        raise typer.Exit(1)
