"""Real families of files and kinds of archives: each combines as its owner would, or says why."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.api.readable import reader_for
from gridref.combine import CombineOptions, combine
from gridref.errors import CombineError, UnclearLayoutError
from tests.archives import KINDS, Archive
from tests.archives.forecasts import forecasts
from tests.archives.granules import altimetry, orbits, volumes
from tests.archives.models import cmip, nemo, roms
from tests.archives.observations import goes
from tests.by_name import by_name
from tests.command import run_command

ALONG: dict[str, tuple[str, dict[str, Any]]] = {
    "ascat_l2_subset_uneven": ("NUMROWS", {}),
    "harmony_global_days": ("time", {"overlap": "keep"}),
    "iris_north_america_pair": ("time", {"overlap": "keep"}),
}
"""Families that lie otherwise if nothing is said, see `FOUND`."""
UNFIT = {
    "ascat_l2_empty": ("NUMROWS", {"dimensions-differ"}),
    "kerchunk_air": ("time", {"dimensions-differ"}),
    "lc8_bands_geotrellis": ("member", {"shape-differs"}),
    "wrf_tip_2domains": ("Time", {"shape-differs"}),
    "xclim_ensemble_contiguous_uneven": ("time", {"calendar-differs"}),
    "xclim_qm_tasmax_360_365": ("time", {"calendar-differs"}),
}


def family(shared_data: Path, name: str) -> list[Path]:
    return sorted((shared_data / "families" / name).iterdir())


def opened(path: Path) -> xr.Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xr.open_dataset(path, engine="netcdf4", decode_timedelta=False).load()


def same(found: xr.DataArray, expected: np.ndarray, name: str) -> None:
    values = found.values
    if values.dtype.kind in "SUO" or expected.dtype.kind in "SUO":
        assert values.astype(str).tolist() == expected.astype(str).tolist(), name
        return
    np.testing.assert_array_equal(values, expected, err_msg=name)


def cube_of(files: list[Path], folder: Path, dim: str, options: dict[str, Any]) -> xr.Dataset:
    catalog = folder / "cube.gridref"
    gridref.build(files, catalog, dim, **by_name(**options))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xr.open_zarr(f"gridref::file://{catalog}", chunks=None, decode_timedelta=False)


@pytest.mark.parametrize("name", list(ALONG))
def test_families_along_a_dimension(shared_data: Path, tmp_path: Path, name: str) -> None:
    dim, options = ALONG[name]
    files = family(shared_data, name)
    same_along(cube_of(files, tmp_path, dim, options), files, dim)


def same_along(cube: xr.Dataset, files: list[Path], dim: str) -> None:
    """Every variable is that of the files, one after the other."""
    parts = [opened(path) for path in files]
    for variable in cube.variables:
        first = parts[0][variable]
        if dim in first.dims:
            pieces = [part[variable].values for part in parts]
            same(cube[variable], np.concatenate(pieces, first.dims.index(dim)), str(variable))
        elif dim in cube[variable].dims:
            pieces = [part[variable].expand_dims({dim: part.sizes[dim]}).values for part in parts]
            same(cube[variable], np.concatenate(pieces), str(variable))
        else:
            same(cube[variable], first.values, str(variable))
    assert set(cube.variables) == set(parts[0].variables)


def same_stacked(cube: xr.Dataset, files: list[Path], dim: str) -> None:
    """Every variable is that of the files, beside each other along a new dimension."""
    parts = [opened(path) for path in files]
    stacked = 0
    for variable in parts[0].variables:
        if dim in cube[variable].dims:
            same(cube[variable], np.stack([part[variable].values for part in parts]), str(variable))
            stacked += 1
        else:
            same(cube[variable], parts[0][variable].values, str(variable))
    assert stacked


def same_rasters(catalog: Path, files: list[Path], dim: str) -> None:
    """The pixels are those of the files, beside each other along a new dimension."""
    import tifffile

    arrays = gridref.open_catalog(catalog).arrays
    (raw,) = [array for array in arrays.values() if array.dims[:1] == (dim,) and array.ndim > 1]
    values = reader_for().read(raw)
    for place, path in enumerate(files):
        expected = tifffile.imread(path, key=0)
        if expected.ndim == 2:
            expected = expected[np.newaxis]
        np.testing.assert_array_equal(values[place], expected)


@pytest.mark.parametrize("name", list(UNFIT))
def test_families_that_do_not_fit_say_why(shared_data: Path, name: str) -> None:
    dim, causes = UNFIT[name]
    files = family(shared_data, name)
    result = gridref.plan(files, dim)
    assert result.group is None
    assert {problem.cause for problem in result.problems} >= causes
    for problem in result.problems:
        assert any(str(path) in problem.sources for path in files), problem
    with pytest.raises(CombineError) as caught:
        gridref.concat([gridref.scan(path) for path in files], dim, read=None)
    assert len(caught.value.problems) >= 1


@pytest.mark.long
def test_beams_of_unequal_length_group_by_group(shared_data: Path) -> None:
    """Ragged along several dimensions at once, in 85 groups; some files lack beams."""
    files = family(shared_data, "atl06_beams_uneven")
    scanned = [gridref.scan(path) for path in files]
    dims = sorted({dim for part in scanned for a in part.all_arrays().values() for dim in a.dims})
    reader = reader_for()
    result = combine(
        scanned,
        dims,
        read=reader.read,
        options=CombineOptions(join="outer", variables="minimal", conflicts="skip"),
    )
    assert result.group is not None
    found = result.group.all_arrays()
    originals = [part.all_arrays() for part in scanned]
    compared = 0
    for path, array in found.items():
        pieces = [reader.read(part[path]) for part in originals if path in part]
        if array.ndim != 1 or len(pieces) < len(files):
            continue
        if any(piece.dtype.kind not in "biuf" for piece in pieces):
            continue
        np.testing.assert_array_equal(reader.read(array), np.concatenate(pieces), err_msg=path)
        compared += 1
    assert compared > 50


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("ascat_l2_subset_uneven", "concat_dim='NUMROWS', layout=Ragged()"),
        (
            "atl06_beams_uneven",
            "concat_dim=['delta_time', 'crossing_time', 'sc_orient_time'], layout=Ragged()",
        ),
    ],
)
def test_what_loses_nothing_is_taken_with_nothing_said(
    shared_data: Path, tmp_path: Path, name: str, layout: str
) -> None:
    """Stored values of every array, file by file, are those that netCDF4's library reads."""
    files = family(shared_data, name)
    group = gridref.build(files, tmp_path / "cube.gridref")
    (found,) = [row for row in group.report.drifts if row["cause"] == "layout"]
    assert found["resolution"] == f"laid out by {layout}"
    opened = [netCDF4.Dataset(path) for path in files]
    for file in opened:
        file.set_auto_maskandscale(False)
    read, n_grown = reader_for().read, 0
    for path, array in group.all_arrays().items():
        if path.rpartition("/")[2].startswith("row_size"):
            continue
        pieces = [file[path] for file in opened]
        like = max(pieces, key=lambda piece: piece.ndim)
        values = read(array)
        if array.ndim > like.ndim:
            expected = np.concatenate(
                [
                    _repeated(piece, array.dims[0], file)
                    for piece, file in zip(pieces, opened, strict=True)
                ]
            )
        elif array.shape == like.shape:
            expected = like[...]
        else:
            expected = np.concatenate([piece[...] for piece in pieces])
        if values.dtype.kind == "S":
            values, expected = values.astype(str), expected.astype(str)
        np.testing.assert_array_equal(values, expected, err_msg=path)
        n_grown += array.shape != like.shape
    assert n_grown > 5


def test_variables_that_differ_are_repeated_with_nothing_said(
    shared_data: Path, tmp_path: Path
) -> None:
    files = family(shared_data, "arm_sgpmmcr_uneven")
    gridref.build(files, tmp_path / "found.gridref")
    asked = cube_of(files, tmp_path, "time", {"variables": "different"})
    with xr.open_zarr(f"gridref::file://{tmp_path}/found.gridref", decode_timedelta=False) as found:
        xr.testing.assert_identical(found.load(), asked.load())
    (layout,) = gridref.plan(files).report.of_cause("layout")
    assert layout.cases[0].value == (
        "coordinates differ along time; CalCheckLevel and 6 more differ between files"
    )


def _repeated(piece: Any, dim: str, file: Any) -> np.ndarray:
    """A variable as often as its file has elements of the dimension; once, if it has none."""
    n = len(file.dimensions[dim]) if dim in file.dimensions else 1
    return np.stack([piece[...]] * n)


def groups_of(path: Path) -> dict[str, xr.Dataset]:
    """Groups in memory: netCDF4 may crash where an open file is garbage of another thread."""
    opened = xr.open_groups(path, engine="netcdf4")
    loaded = {name: group.load() for name, group in opened.items()}
    for group in opened.values():
        group.close()
    return loaded


def test_granules_of_groups_that_come_and_go(shared_data: Path, tmp_path: Path) -> None:
    """Dimensions of length 1 that the root defines; the second file lacks most variables."""
    files = family(shared_data, "tempo_single")
    result = gridref.plan(files, "mirror_step")
    assert {problem.cause for problem in result.problems} == {"variable-missing"}
    options = {"join": "outer", "conflicts": "skip"}
    catalog = tmp_path / "cube.gridref"
    gridref.build(files, catalog, "mirror_step", **by_name(**options))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cube = xr.open_groups(gridref.open_store(catalog), engine="zarr")
        parts = [groups_of(path) for path in files]
    compared = 0
    for path in parts[0]:
        held = [part[path].variables if path in part else {} for part in parts]
        for name in dict.fromkeys(name for variables in held for name in variables):
            pieces = [variables.get(name) for variables in held]
            like = next(piece for piece in pieces if piece is not None)
            if name == "mirror_step":
                assert name not in cube[path].variables  # the second file has no labels
                continue
            if like.dims == ("xtrack",):
                expected = like.values
            else:
                absent = np.full(like.shape, np.nan)
                expected = np.concatenate([absent if p is None else p.values for p in pieces])
                compared += 1
            same(cube[path][name], expected, f"{path}/{name}")
    assert compared == 37
    report = gridref.plan(files, "mirror_step", **by_name(**options)).report
    left_out = [d.variable for d in report if d.resolution == "left out"]
    assert left_out == ["mirror_step"]


def test_days_whose_own_time_is_another_than_in_their_names(shared_data: Path) -> None:
    files = family(shared_data, "harmony_global_days")
    with pytest.raises(UnclearLayoutError, match="2020-01-01 in the file, 2020-01-02 as its label"):
        gridref.plan(files)


def test_one_problem_does_not_hide_others(shared_data: Path) -> None:
    files = family(shared_data, "wrf_tip_2domains")
    result = gridref.plan(files, "Time")
    assert {problem.variable for problem in result.problems} >= {"T2", "XLAT", "XLONG"}


# Every family with nothing said, or with --yes
def along(dim: str) -> Same:
    return lambda catalog, files: same_along(without_groups(catalog), files, dim)


def stacked(dim: str) -> Same:
    return lambda catalog, files: same_stacked(without_groups(catalog), files, dim)


def rasters(catalog: Path, files: list[Path]) -> None:
    same_rasters(catalog, files, "time")


def without_groups(catalog: Path) -> xr.Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xr.open_zarr(f"gridref::file://{catalog}", chunks=None, decode_timedelta=False)


def kinds(names: str) -> Same:
    """A group for each file, by these names, which equals the file with all of its groups."""

    def compare(catalog: Path, files: list[Path]) -> None:
        arrays = gridref.open_catalog(catalog).all_arrays()
        assert {path.partition("/")[0] for path in arrays} == set(names.split())
        for name, path in zip(names.split(), files, strict=True):
            n_held = sum(own.startswith(f"{name}/") for own in arrays)
            n_held -= compared(catalog, name, path)
            assert n_held == 0

    return compare


def compared(catalog: Path, name: str, file: Path) -> int:
    """How many variables of a file were compared with those of a group."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        how: dict[str, Any] = {"engine": "netcdf4", "decode_cf": False}
        if file.suffix == ".HDF5":
            how = {"engine": "h5netcdf", "phony_dims": "sort", "decode_cf": False}
        parts = xr.open_groups(file, **how)
        tree = xr.open_groups(catalog, decode_cf=False)
    for path, part in parts.items():
        for variable in part.variables:
            found = tree[f"/{name}{path.rstrip('/')}"][variable]
            if path == "/" and file.suffix != ".HDF5" and "linked" not in file.name:
                assert found.dims == part[variable].dims
            same(found, part[variable].values, f"{path}/{variable}")
    return sum(len(part.variables) for part in parts.values())


def bands(catalog: Path, files: list[Path]) -> None:
    """Each file has a group of its own, with its pixels by their labels."""
    import rasterio

    groups = {path.partition("/")[0] for path in gridref.open_catalog(catalog).all_arrays()}
    assert len(groups) == len(files)
    places = [xr.open_dataset(catalog, group=group) for group in sorted(groups)]
    for path in files:
        with rasterio.open(path) as file:
            rows, columns = np.arange(file.height), np.arange(file.width)
            y = file.xy(rows, np.zeros_like(rows))[1]
            x = file.xy(np.zeros_like(columns), columns)[0]
            fitting = [
                ds
                for ds in places
                if ds["y"].shape == y.shape and np.allclose(ds["y"], y, rtol=1e-12)
                if ds["x"].shape == x.shape and np.allclose(ds["x"], x, rtol=1e-12)
            ]
            values = [ds["band_data"].values for ds in fitting]
            held = file.read(masked=True).astype("f8").filled(np.nan)
        assert any(np.array_equal(held, own, equal_nan=True) for own in values)


Same = Callable[[Path, list[Path]], None]
SEEN = "test_what_loses_nothing_is_taken_with_nothing_said"
FOUND: dict[str, tuple[str, Same | None]] = {
    "acorn_turq_hourly": ("built", along("TIME")),
    "arm_sgpmmcr_uneven": ("built", along("time")),
    "ascat_l2_empty": (
        "built with --yes",
        kinds(
            "213600_metopb_48037_eps_o_250_3202_ovw.l2_subsetted"
            " 231800_metopb_48038_eps_o_250_3202_ovw.l2"
        ),
    ),
    "ascat_l2_subset_uneven": ("built", None),
    "atl06_beams_uneven": ("built", None),
    "ecearth_tas_uneven": ("built", along("time")),
    "gdal_byte_chunk_mismatch": ("built with --yes", stacked("part1")),
    "gpm_2aku_136_137": ("built with --yes", kinds("V05A V04A")),
    "hadgem3_pr_uneven": ("built", along("time")),
    "harmony_global_days": ("refused: names and files disagree", None),
    "inm_rlds_uneven": ("built", along("time")),
    "iris_north_america_pair": ("built", stacked("part1")),
    "kerchunk_air": ("built with --yes", kinds("air air_linked")),
    "lc8_bands_geotrellis": ("built", bands),
    "lcmap_cog_2years": ("built", rasters),
    "mooring_nrsrot_tz_uneven": ("built", along("TIME")),
    "openeo_s2_dates": ("built", rasters),
    "roms_his_4": ("built", along("ocean_time")),
    "sam0_siconc_uneven": ("built", along("time")),
    "tempo_single": (
        "built with --yes",
        kinds(
            "TEMPO_NO2_L2_V03_20240328T154353Z_S008G01"
            " singleton_null_variables-TEMPO_NO2_L2_V01_20240123T231358Z_S013G03"
            "_product_vertical_column_total"
        ),
    ),
    "wrf_tip_2domains": ("built with --yes", kinds("d1 d2")),
    "xclim_ensemble_contiguous_uneven": ("built", None),
    "xclim_qm_tasmax_360_365": ("built with --yes", kinds("CanESM2 HadGEM2-CC")),
}
"""What each family gives with nothing said, or with `--yes`, and how that is compared.

The beams and swaths are compared by `SEEN`, the ensemble by a test of its own.
"""


def test_every_family_is_in_the_table(shared_data: Path) -> None:
    assert {path.name for path in (shared_data / "families").iterdir()} == FOUND.keys()


@pytest.mark.long(but=3)
@pytest.mark.parametrize("name", [name for name, (_, same) in FOUND.items() if same is not None])
def test_families_build_with_nothing_said_or_with_yes(
    shared_data: Path, tmp_path: Path, name: str
) -> None:
    outcome, compare = FOUND[name]
    files, catalog = family(shared_data, name), tmp_path / "cube.gridref"
    if outcome == "built":
        gridref.build(files, catalog)
    else:
        with pytest.raises(UnclearLayoutError) as asked:
            gridref.build(files, catalog)
        assert asked.value.choices
        gridref.build(files, catalog, layout="first")
    assert compare is not None
    compare(catalog, files)


def test_models_of_other_calendars_are_groups(shared_data: Path, tmp_path: Path) -> None:
    files = family(shared_data, "xclim_ensemble_contiguous_uneven")
    gridref.build(files, tmp_path / "cube.gridref")
    tree = xr.open_groups(tmp_path / "cube.gridref")
    models = ["ACCESS1-0", "BNU-ESM", "CCSM4", "CNRM-CM5"]
    assert sorted(tree) == ["/", *(f"/{model}" for model in models)]
    for path in files:
        (model,) = [model for model in models if f"_{model}_" in path.name]
        found = tree[f"/{model}"]
        if model == "CCSM4":
            found = found.sel(member=int(path.name.partition("i1p1")[0][-1]))
        for variable, expected in opened(path).variables.items():
            np.testing.assert_array_equal(found[variable].values, expected.values)


Kind = Callable[[Path], Archive]
ArchiveOf = Callable[[Kind], Archive]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("archives")


@pytest.fixture(scope="module")
def archive_of(folder: Path) -> ArchiveOf:
    """The archive of a kind, in a folder of its name, which no test changes."""
    return cache(lambda kind: kind(made(folder / kind.__name__)))


@every_kind
def test_python_builds_it_in_one_call(kind: Kind, archive_of: ArchiveOf, tmp_path: Path) -> None:
    archive = archive_of(kind)
    catalog = tmp_path / "cube.gridref"
    assert len(archive.options) <= 1 >= sum(flag.startswith("--") for flag in archive.flags)
    gridref.build(list(archive.files), catalog, **by_name(**archive.options))
    assert_as_expected(archive, catalog)


@pytest.mark.long(but=2)
@every_kind
def test_the_command_builds_it_in_one_line(
    kind: Kind, archive_of: ArchiveOf, folder: Path, tmp_path: Path
) -> None:
    archive = archive_of(kind)
    catalog = tmp_path / "cube.gridref"
    files = str(folder / kind.__name__ / archive.pattern)
    done = run_command("build", files, "-o", catalog, "--yes", *archive.flags)
    assert done.returncode == 0, done.stderr
    assert_as_expected(archive, catalog)


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def assert_as_expected(archive: Archive, catalog: Path) -> None:
    """Every variable equals what other programs make of the files, in values, dims and order."""
    for group, expected in archive.expected().items():
        store = gridref.open_store(catalog)
        found = xr.open_zarr(store, group=group or None, decode_timedelta=True)
        assert set(expected.variables) <= set(found.variables), found
        for name, variable in expected.variables.items():
            assert found[name].dims == variable.dims, name
            xr.testing.assert_equal(found[name].variable.load(), variable.load())


def test_bounds_of_the_same_times_have_to_be_equal(tmp_path: Path) -> None:
    archive = cmip(made(tmp_path / "files"))
    (broken,) = [path for path in archive.files if path.name.startswith("pr_Amon_CESM2")][:1]
    with netCDF4.Dataset(broken, "r+") as file:
        file["time_bnds"][5, 1] += 1
    with pytest.raises(gridref.errors.CombineError) as error:
        gridref.build(
            list(archive.files), tmp_path / "cube.gridref", layout=gridref.Groups("source_id")
        )
    (problem,) = error.value.problems
    assert (problem.cause, problem.variable) == ("overlap", "CESM2/time_bnds")
    assert str(broken) in problem.sources
    assert not (tmp_path / "cube.gridref").exists()


def test_single_values_that_differ_are_shown_at_each_label(
    archive_of: ArchiveOf, tmp_path: Path
) -> None:
    archive = archive_of(forecasts)
    group = gridref.build(list(archive.files), tmp_path / "cube.gridref")
    assert group.arrays["valid_time"].dims == ("time", "step")
    assert "repeated" in {
        row["cause"] for row in gridref.open_catalog(tmp_path / "cube.gridref").report().to_pylist()
    }
    dims = {"concat_dim": ["time", "step"], "compat": "override"}
    first = gridref.build(list(archive.files), tmp_path / "first.gridref", **by_name(**dims))
    assert first.arrays["valid_time"].shape == ()


def test_advice_that_loses_nothing_is_taken_and_told(archive_of: ArchiveOf) -> None:
    archive = archive_of(altimetry)
    by_time = gridref.plan(list(archive.files), "delta_time")
    assert {problem.variable for problem in by_time.problems} == {
        "ancillary_data/data_start_utc",
        "ancillary_data/start_rgt",
    }
    assert all("layout=Ragged() keeps one value" in own.message for own in by_time.problems)
    (layout,) = gridref.plan(list(archive.files)).report.of_cause("layout")
    assert layout.resolution == "laid out by concat_dim='delta_time', layout=Ragged()"
    assert layout.cases[0].value == (
        "coordinates differ along delta_time; ancillary_data/data_start_utc and 1 more differ"
        " between files"
    )


def test_advice_that_loses_nothing_can_be_asked_for(archive_of: ArchiveOf, tmp_path: Path) -> None:
    files = list(archive_of(goes).files)
    catalog = tmp_path / "cube.gridref"
    with pytest.raises(gridref.errors.UnclearLayoutError, match="time_bounds differs") as asked:
        gridref.build(files, catalog, resolve="ask")
    (choice,) = asked.value.choices
    gridref.build(files, catalog, **choice)
    taken = gridref.build(files, tmp_path / "first.gridref", layout="first", resolve="ask")
    found = gridref.build(files, tmp_path / "found.gridref", resolve="lossless")
    shapes = {path: array.sizes_text for path, array in taken.all_arrays().items()}
    assert shapes == {path: own.sizes_text for path, own in found.all_arrays().items()}
    assert shapes == {
        path: own.sizes_text for path, own in gridref.open_catalog(catalog).all_arrays().items()
    }
    with pytest.raises(gridref.errors.InvalidRequestError, match="'lossless', 'ask'"):
        gridref.plan(files, resolve="no")


def test_what_differs_beside_sweeps_is_kept_by_file(archive_of: ArchiveOf, tmp_path: Path) -> None:
    files = list(archive_of(volumes).files)
    problems = gridref.plan(files, "azimuth", **by_name(overlap="keep")).problems
    assert {(problem.cause, problem.variable) for problem in problems} == {
        ("values-differ", "volume_number"),
        ("values-differ", "time_coverage_start"),
    }
    group = gridref.build(
        files, tmp_path / "cube.gridref", "azimuth", layout=gridref.Ragged(instance="volume")
    )
    assert group.arrays["volume_number"].dims == ("volume",)
    assert group["volume_number"][...].tolist() == [0, 1, 2]


def test_a_rule_that_was_asked_for_is_kept_in_a_layout_that_is_found(archive_of: ArchiveOf) -> None:
    archive = archive_of(goes)
    options = gridref.CombineOptions(variables="minimal")
    done = gridref.plan(list(archive.files), combine=options)
    assert {problem.variable for problem in done.problems} == {"time_bounds"}


@pytest.mark.parametrize("kind", [goes, nemo, roms, altimetry, orbits, volumes])
def test_files_are_added_by_the_advice_that_was_taken(
    kind: Kind, archive_of: ArchiveOf, tmp_path: Path
) -> None:
    archive = archive_of(kind)
    *first, last = sorted(archive.files)
    catalog = tmp_path / "cube.gridref"
    gridref.build(first, catalog)
    gridref.open_catalog(catalog).append(last)
    assert_as_expected(archive, catalog)


def test_times_that_are_no_coordinate_do_not_order_files_of_the_same_labels(tmp_path: Path) -> None:
    days = {"units": "days since 2001-01-01"}
    for number in range(3):
        written = ("time", [100.0 + number, 100.5 + number], days)
        ds = xr.Dataset({"t": ("time", [1.0, 2.0]), "written": written}, {"time": [0, 1]})
        ds["time"].attrs = days
        ds.to_netcdf(tmp_path / f"{'abc'[number]}.nc", unlimited_dims=["time"])
    done = gridref.plan(sorted(tmp_path.iterdir()))
    assert [layout.resolution for layout in done.report.of_cause("layout")] == [
        "laid out by layout=Stack('part1', labels='{part1}.nc')"
    ]
