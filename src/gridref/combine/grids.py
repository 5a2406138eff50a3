"""Sort georeferenced inputs by pixel grid: reference system, resolution and origin.

Nothing is resampled. The inputs of each grid become a mosaic in a group of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from gridref.combine.georeference import Misfit, Raster, misfit
from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualGroup
from gridref.model.reference_systems import authority_code


def by_grid(
    groups: Iterable[VirtualGroup],
    place: Callable[[VirtualGroup], Raster | Misfit],
    tolerance: float,
) -> dict[str, list[VirtualGroup]]:
    """Group inputs by pixel grid, under a distinct name for each grid.

    Parameters
    ----------
    place
        Gives the position of an input. Inputs without a position stay with the first grid.
    tolerance
        How far, in pixels, an input may be off the grid of the first one on it.

    Returns
    -------
    dict
        The only name is empty where all are on one grid.
    """
    firsts: list[Raster] = []
    parts: list[list[VirtualGroup]] = []
    unplaced: list[VirtualGroup] = []
    for group in groups:
        raster = place(group)
        if isinstance(raster, Misfit):
            unplaced.append(group)
            continue
        number = next(
            (k for k, first in enumerate(firsts) if misfit(first, raster, tolerance) is None), None
        )
        if number is None:
            number = len(firsts)
            firsts.append(raster)
            parts.append([])
        parts[number].append(group)
    if not parts and not unplaced:
        raise InvalidRequestError("nothing to combine: no inputs")
    if not parts:
        return {"": unplaced}
    parts[0].extend(unplaced)
    return dict(zip(_names(firsts), parts, strict=True))


def _names(firsts: Sequence[Raster]) -> list[str]:
    """Names of grids: by reference system and by resolution, where there are several of them."""
    if len(firsts) == 1:
        return [""]
    systems = list(dict.fromkeys(raster.crs for raster in firsts))
    steps = {(raster.dx, raster.dy) for raster in firsts}
    names: list[str] = []
    seen: Counter[str] = Counter()
    for raster in firsts:
        words = [_system(raster.crs, systems)] if len(systems) > 1 else []
        words += [f"{abs(raster.dx):g}"] if len(steps) > 1 else []
        name = "_".join(words or ["grid"])
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return names


def _system(wkt: str, systems: Sequence[str]) -> str:
    code = authority_code(wkt)
    return "_".join(code).lower() if code else f"crs_{systems.index(wkt) + 1}"
