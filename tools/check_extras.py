"""Use what an extra is for, where no other is installed: check_extras.py EXTRA CATALOG.

``--names`` lists the extras that the installed gridref has for its users.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import metadata

import gridref
from gridref.faces.duckdb import sql
from gridref.faces.picture import ChunkMap

NOT_FOR_USERS = {"all", "dev", "docs", "test"}


def _dask(catalog: str) -> None:
    import distributed
    import xarray as xr

    assert distributed.Client
    xr.open_dataset(catalog, engine="gridref", chunks={}).tas.mean().compute()


def _interchange(catalog: str) -> None:
    group = gridref.open_catalog(catalog)
    assert gridref.interchange.to_virtualizarr(group).sizes["time"] == 31
    from gridref.faces.exports.kerchunk import to_kerchunk

    to_kerchunk(group, "one.parq")
    gridref.interchange.to_icechunk(group, "one.icechunk")


def _plot(catalog: str) -> None:
    array = gridref.open_catalog(catalog).arrays["tas"]
    ChunkMap(array, "tas").save("map.png")


def _sql(catalog: str) -> None:
    assert sql(catalog, "SELECT count(*) AS n FROM chunks") is not None


def _units(catalog: str) -> None:
    from gridref.api.units import converter

    assert converter()("degC", "K") == (1.0, 273.15)


def _verify(catalog: str) -> None:
    assert gridref.verify(catalog, all=True).n_chunks


USES: dict[str, Callable[[str], None]] = {
    name.removeprefix("_"): use
    for name, use in list(globals().items())
    if name in {"_dask", "_interchange", "_plot", "_sql", "_units", "_verify"}
}

if __name__ == "__main__":
    if sys.argv[1] == "--names":
        extras = set(metadata("gridref").get_all("Provides-Extra") or ()) - NOT_FOR_USERS
        assert extras == set(USES), f"say how to use {extras ^ set(USES)}"
        print("\n".join(sorted(extras)))
    else:
        USES[sys.argv[1]](sys.argv[2])
        print(f"gridref[{sys.argv[1]}]: right")
