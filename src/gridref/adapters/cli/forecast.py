"""``gridref forecast``: a cube of forecasts along valid times."""

from __future__ import annotations

from typing import Annotated

import typer

from gridref.adapters.cli.options import (
    Allowed,
    Catalog,
    Snapshot,
    StorageOptions,
    parse_options,
)

__all__ = ["forecast_command"]


def forecast_command(
    catalog: Catalog,
    output: Annotated[
        str, typer.Option("--output", "-o", help="Catalog to write; the same one with --name.")
    ],
    after: Annotated[
        str | None,
        typer.Option(help="Leave nearer steps to older runs: 12h.", show_default=False),
    ] = None,
    offset: Annotated[
        str | None, typer.Option(help="What every run says so far ahead: 24h.", show_default=False)
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(help="One run: 2022-03-01T12:00, or latest.", show_default=False),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Keep the cube, and the view as a group of it.", show_default=False),
    ] = None,
    run_dim: Annotated[
        str | None, typer.Option(help="Dimension of the runs.", show_default=False)
    ] = None,
    step_dim: Annotated[
        str | None, typer.Option(help="Dimension of the steps.", show_default=False)
    ] = None,
    snapshot: Snapshot = None,
    storage_options: StorageOptions = None,
    allow: Allowed = None,
) -> None:
    """Show a cube of runs by steps along valid times; nothing is copied.

    By default the best series: for each valid time the newest run that has it.

    Examples
    --------
        gridref forecast cube.gridref --after 12h -o best.gridref

        gridref forecast cube.gridref --run latest --name latest -o cube.gridref
    """
    import gridref
    from gridref.workflows.opening import open_group

    options = parse_options(storage_options)
    cube = open_group(catalog, options, allow or None, snapshot)
    view = gridref.forecast(
        cube,
        after=after,
        offset=offset,
        run=run,
        run_dim=run_dim,
        step_dim=step_dim,
        storage_options=options,
    )
    kept = view if name is None else cube.replace(groups={**cube.groups, name: view})
    gridref.write_catalog(kept, output, storage_options=options)
    n_times = view.arrays["valid_time"].shape[0]
    where = output if name is None else f"group {name} of {output}"
    typer.echo(f"{n_times} valid times in {where}")
