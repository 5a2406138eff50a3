"""Use what an extra is for, where no other is installed: check_extras.py EXTRA CATALOG.

``--names`` lists the extras that the installed gridref has for its users.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import metadata
from pathlib import Path

import numpy as np
import zarr

import gridref
from gridref.faces.duckdb import sql
from gridref.faces.picture import ChunkMap

EXTRAS = ("awkward", "dask", "grib", "interchange", "plot", "sparse", "sql", "units", "verify")
NOT_FOR_USERS = {"all", "dev", "docs", "test"}


_GRIB = bytes.fromhex(
    "47524942ffff000200000000000000c500000015010062000004000107d703170c0000000200000048030000"
    "0000060000000006ffffffffffffffffffffffffffffff000000030000000200000000ffffffff01312d0000"
    "000000300098968001312d00009896800098968000000000220400000000030000ff80000000010000000601"
    "00000186a0ffffffffffff00000015050000000600003f8000008015000018000000000606ff000000170700"
    "0000200000400000600000800000a0000037373737"
)
"""A message of edition 2: surface pressure at 2 by 3 points, 1 to 6."""


def _awkward(catalog: str) -> None:
    root = zarr.create_group("ragged.zarr")
    root.create_array("sst", data=np.arange(3.0), dimension_names=["obs"])
    counts = root.create_array("n", data=np.array([2, 1]), dimension_names=["row"])
    counts.attrs["sample_dimension"] = "obs"
    gridref.build(["ragged.zarr"], "ragged.gridref")
    assert gridref.open_catalog("ragged.gridref").awkward("sst").to_list() == [[0, 1], [2]]


def _dask(catalog: str) -> None:
    import distributed
    import xarray as xr

    assert distributed.Client
    xr.open_dataset(catalog, engine="gridref", chunks={}).tas.mean().compute()


def _grib(catalog: str) -> None:
    Path("one.grib2").write_bytes(_GRIB)
    values = gridref.scan("one.grib2")["surface/sp"].read()
    assert values.reshape(-1).tolist() == [1, 2, 3, 4, 5, 6]


def _interchange(catalog: str) -> None:
    group = gridref.open_catalog(catalog)
    assert gridref.interchange.to_virtualizarr(group).sizes["time"] == 31
    from gridref.faces.exports.kerchunk import to_kerchunk

    to_kerchunk(group, "one.parq")
    gridref.interchange.to_icechunk(group, "one.icechunk")


def _plot(catalog: str) -> None:
    array = gridref.open_catalog(catalog).arrays["tas"]
    ChunkMap(array, "tas").save("map.png")


def _sparse(catalog: str) -> None:
    matrix = zarr.create_group("sparse.zarr").create_group("X")
    matrix.attrs.update({"encoding-type": "csr_matrix", "shape": [2, 3]})
    for name, values in {"data": [5, 6], "indices": [2, 0], "indptr": [0, 1, 2]}.items():
        matrix.create_array(name, data=np.array(values))
    gridref.build(["sparse.zarr"], "sparse.gridref")
    found = gridref.open_catalog("sparse.gridref").sparse("X")
    assert found.toarray().tolist() == [[0, 0, 5], [6, 0, 0]]


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
    if name in {f"_{extra}" for extra in EXTRAS}
}

if __name__ == "__main__":
    if sys.argv[1] == "--names":
        extras = set(metadata("gridref").get_all("Provides-Extra") or ()) - NOT_FOR_USERS
        assert extras == set(USES), f"say how to use {extras ^ set(USES)}"
        print("\n".join(sorted(extras)))
    else:
        USES[sys.argv[1]](sys.argv[2])
        print(f"gridref[{sys.argv[1]}]: right")
