"""From a directory of uneven NetCDF4 files to one cube, by every face, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gridref
import numpy as np
import pytest
import xarray as xr
import zarr
from gridref.errors import CombineError
from numpy.typing import NDArray

from tests.integration.archives import assert_same_bits, read_raw, write_months
from tests.shared_data import shared_data_folder

RAW = {"mask_and_scale": False, "decode_times": False}

DRIFT: dict[str, dict[str, Any]] = {
    "padded": {},
    "chunk shapes": {"chunks": [(10, 7, 9), (6, 13, 17), (31, 5, 4)]},
    "codecs": {
        "filters": [
            {"zlib": True, "shuffle": True},
            {},
            {"zlib": True, "shuffle": False, "fletcher32": True},
        ]
    },
    "both": {
        "chunks": [(10, 7, 9), (9, 4, 17)],
        "filters": [{"zlib": True}, {}, {"zlib": True, "complevel": 9}],
    },
}


def by_fsspec(catalog: Path) -> xr.Dataset:
    return xr.open_zarr(f"gridref::file://{catalog}", **RAW)


def by_store(catalog: Path) -> xr.Dataset:
    return xr.open_zarr(gridref.open_store(catalog), **RAW)


def by_engine(catalog: Path) -> xr.Dataset:
    return xr.open_dataset(catalog, engine="gridref", **RAW)


FACES: Mapping[str, Callable[[Path], xr.Dataset]] = {
    "fsspec": by_fsspec,
    "store": by_store,
    "engine": by_engine,
}


@pytest.fixture(scope="module", params=list(DRIFT))
def archive(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[Path], Path]:
    folder = tmp_path_factory.mktemp("archive")
    files = write_months(folder, **DRIFT[request.param])
    catalog = folder / "cube.gridref"
    gridref.build(files, catalog, "time")
    return files, catalog


@pytest.mark.parametrize("face", list(FACES))
def test_24_uneven_months(archive: tuple[list[Path], Path], face: str) -> None:
    files, catalog = archive
    cube = FACES[face](catalog)
    for name in ("time", "lat", "lon", "tas", "pr"):
        assert_same_bits(cube[name].values, read_raw(files, name, "time"))
    random = np.random.default_rng(2)
    expected = read_raw(files, "tas", "time")
    for _ in range(25):
        part = random_selection(random, expected.shape)
        assert_same_bits(cube["tas"][part].values, expected[part])


def random_selection(random: np.random.Generator, shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(
        slice(*sorted(random.integers(0, extent + 1, 2).tolist()), int(random.integers(1, 9)))
        for extent in shape
    )


def test_orthogonal_and_reversed_selections(archive: tuple[list[Path], Path]) -> None:
    files, catalog = archive
    expected = read_raw(files, "pr", "time")
    for face in FACES.values():
        cube = face(catalog)
        rows = [700, 3, 3, 59, 60]
        got = cube["pr"].isel(time=rows, lat=[12, 0], lon=slice(None, None, -2)).values
        assert_same_bits(got, expected[rows][:, [12, 0]][:, :, ::-2])
        assert_same_bits(cube["pr"].isel(time=-1, lon=5).values, expected[-1, :, 5])


def test_with_the_rectilinear_flag(archive: tuple[list[Path], Path]) -> None:
    files, catalog = archive
    with zarr.config.set({"array.rectilinear_chunks": True}):
        cube = xr.open_zarr(f"gridref::file://{catalog}", **RAW)
        assert_same_bits(cube["tas"].values, read_raw(files, "tas", "time"))


def test_fused_pipeline(archive: tuple[list[Path], Path]) -> None:
    files, catalog = archive
    pipeline = "zarr.core.codec_pipeline.FusedCodecPipeline"
    with zarr.config.set({"codec_pipeline.path": pipeline}):
        group = zarr.open_group(gridref.open_store(catalog), mode="r")
        assert_same_bits(np.asarray(group["tas"][...]), read_raw(files, "tas", "time"))


def test_dask_chunks_follow_the_blocks(archive: tuple[list[Path], Path]) -> None:
    files, catalog = archive
    cube = xr.open_dataset(catalog, engine="gridref", chunks={}, **RAW)
    assert cube["tas"].chunks is not None
    assert cube["tas"].chunks[0][:3] == (31, 28, 31)
    expected = read_raw(files, "tas", "time")
    assert_same_bits(cube["tas"].compute().values, expected)


def test_decoding_equals_xarrays_own(archive: tuple[list[Path], Path]) -> None:
    files, catalog = archive
    expected = xr.open_mfdataset(files, combine="nested", concat_dim="time", data_vars="minimal")
    for cube in (xr.open_zarr(f"gridref::file://{catalog}"), xr.open_dataset(catalog)):
        xr.testing.assert_identical(cube.load().drop_attrs(), expected.load().drop_attrs())


FAMILIES: dict[str, str] = {
    "gpm_2aku_136_137": "phony_dim_1",
    "xclim_qm_tasmax_360_365": "time",
    "sam0_siconc_uneven": "time",
    "xclim_ensemble_contiguous_uneven": "time",
    "gdal_byte_chunk_mismatch": "time",
}


def family_files(name: str) -> list[Path]:
    folder = shared_data_folder() / "families" / name
    return sorted(path for path in folder.iterdir() if path.suffix in (".nc", ".nc4", ".h5"))


def all_variables(group: gridref.VirtualGroup) -> Mapping[str, NDArray[Any]]:
    return {path: array for path, array in group.all_arrays().items()}


def test_disagreement_lists_every_problem(tmp_path: Path) -> None:
    files = write_months(tmp_path, lengths=[5, 6])
    import netCDF4

    with netCDF4.Dataset(files[1], "a") as file:
        file["lat"][:] = np.arange(13)
        file["lon"][:] = np.arange(17)
    with pytest.raises(CombineError) as caught:
        gridref.build(files, tmp_path / "cube.gridref", "time")
    assert {problem.variable for problem in caught.value.problems} >= {"lat", "lon"}
    assert str(files[1]) in str(caught.value)
