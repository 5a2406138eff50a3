"""``gridref draw``: the chunk map of an array, in the terminal or as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gridref.adapters.cli.options import Allowed, Catalog, StorageOptions, parse_options
from gridref.errors import InvalidRequestError
from gridref.options import check_names

if TYPE_CHECKING:
    from gridref.model.array import VirtualArray, VirtualGroup

__all__ = ["draw_command"]


def draw_command(
    catalog: Catalog,
    array: Annotated[
        str | None,
        typer.Argument(
            help="Path of an array; without it, the largest that has several blocks.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="Write a picture: .svg; or .png, .pdf by matplotlib (pip install 'gridref[plot]')."
            " Without it, the map is drawn on the screen.",
            show_default=False,
        ),
    ] = None,
    width: Annotated[int, typer.Option(help="Width of the map in a picture, in pixels.")] = 720,
    snapshot: Annotated[
        str | None, typer.Option(help="Id of a former snapshot, or a tag.", show_default=False)
    ] = None,
    storage_options: StorageOptions = None,
    allow: Allowed = None,
) -> None:
    """Draw where an array's blocks and stored chunks lie.

    Examples
    --------
        gridref draw cube.gridref tas

        gridref draw cube.gridref tas -o map.svg
    """
    from gridref.workflows.catalogs import open_catalog

    options = parse_options(storage_options)
    group = open_catalog(catalog, storage_options=options, allow=allow or None, snapshot=snapshot)
    path, drawn = _array_to_draw(group, array)
    if output is not None:
        from gridref.adapters.picture import ChunkMap

        ChunkMap(drawn, path, width).save(output)
        return
    from gridref.adapters.cli.drawing import draw_grid

    console = Console()
    console.print(draw_grid(drawn, path, min(console.width, 100)))


def _array_to_draw(group: VirtualGroup, path: str | None) -> tuple[str, VirtualArray]:
    """The array of a path; without one, the one of most dimensions and bytes among uneven ones.

    Raises
    ------
    InvalidRequestError
        If there is none.
    """
    arrays = group.all_arrays()
    if path is None:
        chosen = {name: each for name, each in arrays.items() if each.n_blocks > 1} or arrays
        if not chosen:
            raise InvalidRequestError("nothing to draw: there are no arrays")
        return max(chosen.items(), key=lambda item: (item[1].ndim, item[1].nbytes))
    name = path.strip("/")
    check_names("the catalog", [name], arrays, kind="array")
    return name, arrays[name]
