"""From a directory of uneven NetCDF4 files to one cube, by every face, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from numpy.typing import NDArray

import gridref
from gridref.api.catalog import write_catalog
from gridref.errors import CombineError
from tests.integration.archives import assert_same_bits, read_raw, write_months

RAW = {"mask_and_scale": False, "decode_times": False, "concat_characters": False}

DRIFT: dict[str, dict[str, Any]] = {
    "padded": {},
    "codecs": {
        "filters": [
            {"zlib": True, "shuffle": True},
            {},
            {"zlib": True, "shuffle": False, "fletcher32": True},
        ]
    },
    "chunk shapes and codecs": {
        "chunks": [(10, 7, 9), (6, 13, 17), (31, 5, 4), (9, 4, 17)],
        "filters": [{"zlib": True}, {}, {"zlib": True, "complevel": 9}],
    },
}


def by_fsspec(catalog: Path) -> xr.Dataset:
    return xr.open_zarr(f"gridref::file://{catalog}", chunks=None, **RAW)


def by_store(catalog: Path) -> xr.Dataset:
    return xr.open_zarr(gridref.open_store(catalog), chunks=None, **RAW)


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


@pytest.mark.long(but=4)
@pytest.mark.parametrize("face", list(FACES))
def test_24_uneven_months(archive: tuple[list[Path], Path], face: str) -> None:
    files, catalog = archive
    cube = FACES[face](catalog)
    for name in ("time", "lat", "lon", "tas", "pr"):
        assert_same_bits(cube[name].values, read_raw(files, name, "time"))
    random = np.random.default_rng(2)
    expected = read_raw(files, "tas", "time")
    for _ in range(10):
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


@pytest.mark.long(but=2)
def test_decoding_equals_xarrays_own(archive: tuple[list[Path], Path]) -> None:
    files, catalog = archive
    expected = xr.open_mfdataset(files, combine="nested", concat_dim="time", data_vars="minimal")
    for cube in (xr.open_zarr(f"gridref::file://{catalog}"), xr.open_dataset(catalog)):
        xr.testing.assert_identical(cube.load().drop_attrs(), expected.load().drop_attrs())


def family(shared_data: Path, name: str) -> list[Path]:
    return sorted((shared_data / "families" / name).iterdir())


def open_all(catalog: Path, path: str) -> list[NDArray[Any]]:
    """An array's values by every face."""
    parent, _, name = path.rpartition("/")
    group = {"group": parent} if parent else {}
    store = gridref.open_store(catalog)
    address = f"gridref::file://{catalog}"
    return [
        xr.open_zarr(address, chunks=None, **group, **RAW)[name].values,
        xr.open_zarr(store, chunks=None, **group, **RAW)[name].values,
        xr.open_dataset(catalog, engine="gridref", **group, **RAW)[name].values,
    ]


def read_attribute(files: list[Path], name: str, dim: str) -> np.ndarray | None:
    """An attribute of each file for each of its elements along `dim`; None if it is none."""
    parts = []
    for path in files:
        with netCDF4.Dataset(path) as file:
            if name not in file.ncattrs():
                return None
            parts += [file.getncattr(name)] * file.dimensions[dim].size
    return np.asarray(parts)


def check_everything(files: list[Path], catalog: Path, dim: str) -> None:
    """Every variable of the catalog, by every face, and by `gridref.verify`."""
    from_attributes = set()
    for path in gridref.open_catalog(catalog).all_arrays():
        expected = read_attribute(files, path, dim)
        if expected is None:
            expected = read_raw(files, path, dim)
        else:
            from_attributes.add(path)
        for values in open_all(catalog, path):
            assert_same_bits(values, expected)
    result = gridref.verify(catalog, all=True)
    assert result.ok
    assert {name for name, _ in result.not_compared} == from_attributes


@pytest.mark.long
def test_family_siconc(shared_data: Path, tmp_path: Path) -> None:
    files = family(shared_data, "sam0_siconc_uneven")
    gridref.build(files, tmp_path / "cube.gridref", "time")
    check_everything(files, tmp_path / "cube.gridref", "time")


@pytest.mark.parametrize(
    ("name", "variables"),
    [
        ("xclim_qm_tasmax_360_365", {"tasmax", "time_vectors"}),
        ("xclim_ensemble_contiguous_uneven", {"tg_mean"}),
    ],
)
def test_families_of_several_calendars(
    shared_data: Path, tmp_path: Path, name: str, variables: set[str]
) -> None:
    files = family(shared_data, name)
    with pytest.raises(CombineError, match="calendars differ"):
        gridref.build(files, tmp_path / "cube.gridref", "time")
    gridref.build(
        files, tmp_path / "cube.gridref", "time", combine=gridref.CombineOptions(conflicts="skip")
    )
    assert set(gridref.open_catalog(tmp_path / "cube.gridref").arrays) >= variables
    check_everything(files, tmp_path / "cube.gridref", "time")


def test_family_of_padded_partial_chunks_inside(shared_data: Path, tmp_path: Path) -> None:
    """136 and 137 scans in chunks of 30 and 32; dimensions have no names of their own."""
    files = family(shared_data, "gpm_2aku_136_137")
    scanned = [gridref.scan(path).all_arrays() for path in files]
    shared = [
        path
        for path in scanned[1]
        if path in scanned[0]
        and path != "AlgorithmRuntimeInfo"
        and len({arrays[path].dtype for arrays in scanned}) == 1
    ]
    assert "NS/SLV/zFactorCorrected" in shared
    names = ("nscan", "nray", "nbin")
    joined = {
        path.replace("/", "_"): gridref.concat(
            [
                arrays[path].with_changes(dims=names[: arrays[path].ndim], attrs={})
                for arrays in scanned
            ],
            "nscan",
        )
        for path in shared
    }
    catalog = tmp_path / "cube.gridref"
    write_catalog(gridref.VirtualGroup(joined), catalog)
    for path in shared:
        expected = np.concatenate([read_hdf5(file, path) for file in files])
        for values in open_all(catalog, path.replace("/", "_")):
            assert_same_bits(values, expected)


def read_hdf5(path: Path, name: str) -> NDArray[Any]:
    with h5py.File(path) as file:
        return np.asarray(file[name][...])


def test_family_of_chunk_shapes(shared_data: Path, tmp_path: Path) -> None:
    files = family(shared_data, "gdal_byte_chunk_mismatch")
    catalog = tmp_path / "cube.gridref"
    gridref.build(files, catalog, "version")
    expected = np.stack([read_raw([path], "Band1", "version") for path in files])
    for values in open_all(catalog, "Band1"):
        assert_same_bits(values, expected)
    along_y = [gridref.scan(path).arrays["Band1"] for path in files]
    write_catalog(
        gridref.VirtualGroup({"Band1": gridref.concat(along_y, "y")}), tmp_path / "y.gridref"
    )
    for values in open_all(tmp_path / "y.gridref", "Band1"):
        assert_same_bits(values, read_raw(files, "Band1", "y"))


def test_disagreement_lists_every_problem(tmp_path: Path) -> None:
    files = write_months(tmp_path, lengths=[5, 6])
    import netCDF4

    with netCDF4.Dataset(files[1], "a") as file:
        file["lat"][:] = np.arange(13)
        file["lon"][:] = np.arange(17)
    with pytest.raises(CombineError) as caught:
        gridref.build(files, tmp_path / "cube.gridref", "time")
    assert {problem.variable for problem in caught.value.problems} >= {"lat", "lon"}
    assert files[1].name in str(caught.value)
    assert f"all files are in {tmp_path}/" in str(caught.value)


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    ("name", "dim"),
    [("acorn_turq_hourly", "TIME"), ("hadgem3_pr_uneven", "time"), ("roms_his_4", "ocean_time")],
)
def test_families_in_any_order_lie_by_their_labels(
    shared_data: Path, tmp_path: Path, name: str, dim: str
) -> None:
    files = family(shared_data, name)
    gridref.build(files, tmp_path / "sorted.gridref", dim)
    gridref.build([*files[1::2], *files[::2]][::-1], tmp_path / "mixed.gridref", dim)
    with (
        xr.open_dataset(tmp_path / "sorted.gridref") as expected,
        xr.open_dataset(tmp_path / "mixed.gridref") as found,
    ):
        assert expected.indexes[dim].is_monotonic_increasing
        xr.testing.assert_equal(found.load(), expected.load())
    assert gridref.verify(tmp_path / "mixed.gridref", all=True).ok
