"""Files of differing length as one archive, beside what netCDF4 reads from each of them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import netCDF4
import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

import gridref
from gridref.errors import CombineError, InvalidRequestError
from tests.by_name import by_name
from tests.command import run_command

LENGTHS = [5, 12, 1, 7]


def write_drifter(path: Path, number: int, length: int, dim: str = "obs") -> Path:
    """A trajectory: positions and temperatures, with what is true of the drifter as scalars."""
    rng = np.random.default_rng(number)
    with netCDF4.Dataset(path, "w") as file:
        file.featureType = "trajectory"
        file.createDimension(dim, length)
        name = "time" if dim == "obs" else dim
        time = file.createVariable(name, "i8", (dim,))
        time.units, time.calendar = "nanoseconds since 1970-01-01", "standard"
        time[:] = 10**18 + number * 10**15 + np.arange(length) * 3_600_000_000_001
        for key, dtype in (("lon", "f8"), ("sst", "f4"), ("flag", "i2")):
            variable = file.createVariable(
                key, dtype, (dim,), zlib=True, chunksizes=(min(4, length),)
            )
            variable.coordinates = "trajectory"
            variable[:] = rng.integers(0, 999, length) / (1 if dtype == "i2" else 7)
        packed = file.createVariable("sal", "i2", (dim,), fill_value=-1)
        packed.set_auto_maskandscale(False)
        packed.scale_factor = 0.001
        packed[:] = rng.integers(0, 999, length)
        file.createVariable("trajectory", "i4", ()).cf_role = "trajectory_id"
        file["trajectory"][...] = 100 + number
        file.createVariable("drogue", "f4", ())[...] = number / 4
    return path


@pytest.fixture
def drifters(tmp_path: Path) -> list[Path]:
    return [write_drifter(tmp_path / f"d{n}.nc", n, length) for n, length in enumerate(LENGTHS)]


def stored(files: Sequence[Path], name: str) -> list[NDArray[Any]]:
    """A variable of all files as stored."""
    parts = []
    for path in files:
        with netCDF4.Dataset(path) as file:
            file.set_auto_maskandscale(False)
            parts.append(np.asarray(file[name][...]))
    return parts


def opened(catalog: Path, **options: Any) -> xr.Dataset:
    return xr.open_dataset(catalog, engine="gridref", **options)


NAMES = ["time", "lon", "sst", "flag", "sal"]


@pytest.mark.parametrize("batch", [2, 1024])
def test_ragged_has_all_samples_and_how_many_each_file_has(
    drifters: list[Path], tmp_path: Path, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", batch)
    gridref.build(drifters, tmp_path / "all.gridref", layout=gridref.Ragged())
    with opened(tmp_path / "all.gridref", decode_cf=False) as shown:
        for name in NAMES:
            expected = np.concatenate(stored(drifters, name))
            assert shown[name].dims == ("obs",)
            assert shown[name].dtype == expected.dtype
            np.testing.assert_array_equal(shown[name], expected)
        np.testing.assert_array_equal(shown.row_size, LENGTHS)
        assert shown.row_size.dims == ("trajectory",)
        assert shown.row_size.attrs["sample_dimension"] == "obs"
        np.testing.assert_array_equal(shown.trajectory, [100, 101, 102, 103])
        np.testing.assert_array_equal(shown.drogue, [0, 0.25, 0.5, 0.75])
    with opened(tmp_path / "all.gridref") as shown:
        row_ends = np.cumsum(shown.row_size.values)
        start, stop = row_ends[0], row_ends[1]
        with xr.open_dataset(drifters[1]) as file:
            for name in NAMES:
                np.testing.assert_array_equal(shown[name][start:stop], file[name])


@pytest.mark.parametrize("batch", [2, 1024])
def test_padded_has_a_row_for_each_file(
    drifters: list[Path], tmp_path: Path, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", batch)
    gridref.build(drifters, tmp_path / "all.gridref", layout=gridref.Ragged(padded=True))
    with opened(tmp_path / "all.gridref") as shown:
        assert shown.sst.dims == ("trajectory", "obs")
        assert shown.sst.shape == (len(LENGTHS), max(LENGTHS))
        for number, (path, length) in enumerate(zip(drifters, LENGTHS, strict=True)):
            with xr.open_dataset(path) as file:
                for name in NAMES:
                    row = shown[name][number]
                    np.testing.assert_array_equal(row[:length], file[name])
                    assert row[length:].isnull().all()
                assert shown.drogue[number] == file.drogue
        assert "sample_dimension" not in shown.row_size.attrs
    with opened(tmp_path / "all.gridref", decode_cf=False) as shown:
        for number, exact in enumerate(stored(drifters, "time")):
            np.testing.assert_array_equal(shown.time[number, : len(exact)], exact)
            assert shown.time.dtype == exact.dtype  # nanoseconds, which floats would round


@pytest.mark.parametrize("layout", ["ragged", "padded"])
def test_samples_with_labels_of_their_own(tmp_path: Path, layout: str) -> None:
    files = [
        write_drifter(tmp_path / f"d{n}.nc", n, length, "time") for n, length in enumerate((3, 9))
    ]
    ragged = gridref.Ragged(padded=layout == "padded")
    gridref.build(files, tmp_path / "all.gridref", layout=ragged)
    with opened(tmp_path / "all.gridref") as shown:
        assert shown.sst.dims == (("time",) if layout == "ragged" else ("trajectory", "obs"))
        assert "time" in shown.sst.coords
        for number, part in enumerate((slice(0, 3), slice(3, 12))):
            with xr.open_dataset(files[number]) as file:
                row = shown.sst[part] if layout == "ragged" else shown.sst[number, : len(file.time)]
                xr.testing.assert_equal(
                    row.drop_vars([*row.coords]),
                    file.sst.drop_vars([*file.sst.coords]).rename(time=row.dims[0]),
                )
                np.testing.assert_array_equal(row.time, file.time)


def write_contiguous(path: Path, seed: int, sizes: Sequence[int]) -> Path:
    """Profiles one after the other, as CF has contiguous ragged arrays."""
    rng = np.random.default_rng(seed)
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("z", None)
        file.createDimension("profile", len(sizes))
        count = file.createVariable("n_levels", "i4", ("profile",))
        count.sample_dimension = "z"
        count[:] = sizes
        file.createVariable("lat", "f4", ("profile",))[:] = rng.normal(size=len(sizes))
        levels = file.createVariable("salt", "f8", ("z",), chunksizes=(5,))
        levels[:] = rng.normal(size=sum(sizes))
    return path


def test_files_that_are_ragged_become_longer_or_rows(tmp_path: Path) -> None:
    sizes = [[3, 0, 8], [6, 2]]
    files = [write_contiguous(tmp_path / f"{n}.nc", n, each) for n, each in enumerate(sizes)]
    salt = np.concatenate(stored(files, "salt"))
    gridref.build(files, tmp_path / "ragged.gridref", layout=gridref.Ragged())
    with opened(tmp_path / "ragged.gridref") as shown:
        np.testing.assert_array_equal(shown.salt, salt)
        np.testing.assert_array_equal(shown.n_levels, [3, 0, 8, 6, 2])
        assert "row_size" not in shown
    gridref.build(files, tmp_path / "padded.gridref", layout=gridref.Ragged(padded=True))
    with opened(tmp_path / "padded.gridref") as shown:
        assert shown.salt.shape == (5, 8)
        counts = shown.n_levels.values
        held = np.arange(8) < counts[:, None]
        np.testing.assert_array_equal(shown.salt.values[held], salt)
        assert np.isnan(shown.salt.values[~held]).all()
        np.testing.assert_array_equal(shown.lat, np.concatenate(stored(files, "lat")))
        assert "sample_dimension" not in shown.n_levels.attrs


def test_counts_that_are_missing_or_wrong(tmp_path: Path) -> None:
    file = write_contiguous(tmp_path / "a.nc", 0, [2, 0, 3])
    (salt,) = stored([file], "salt")
    padded = gridref.Ragged(padded=True)
    with netCDF4.Dataset(file, "a") as dataset:
        dataset["n_levels"].missing_value = np.int32(-9)
        dataset["n_levels"][1] = -9
    gridref.build([file], tmp_path / "cube", "z", layout=padded)
    with opened(tmp_path / "cube") as shown:
        held = np.array([[1, 1, 0], [0, 0, 0], [1, 1, 1]], bool)
        np.testing.assert_array_equal(shown.salt.values[held], salt)
        assert np.isnan(shown.salt.values[~held]).all()
    with netCDF4.Dataset(file, "a") as dataset:
        dataset["n_levels"][1] = 1
    with pytest.raises(InvalidRequestError, match="6 samples along 'z', but it holds 5"):
        gridref.build([file], tmp_path / "other", "z", layout=padded)


def write_swath(path: Path, seed: int, n_lines: int) -> Path:
    rng = np.random.default_rng(seed)
    with netCDF4.Dataset(path, "w") as file:
        group = file.createGroup("science")
        group.createDimension("line", n_lines)
        group.createDimension("pixel", 6)
        group.createDimension("band", 2)
        radiance = group.createVariable(
            "radiance", "f4", ("band", "line", "pixel"), chunksizes=(1, 4, 6), zlib=True
        )
        radiance[:] = rng.normal(size=radiance.shape)
        group.createVariable("wavelength", "f4", ("band",))[:] = [0.6, 0.8]
    return path


@pytest.mark.parametrize("layout", ["ragged", "padded"])
def test_swaths_in_groups(tmp_path: Path, layout: str) -> None:
    files = [write_swath(tmp_path / f"{n}.nc", n, size) for n, size in enumerate((7, 9, 8))]
    ragged = gridref.Ragged("granule", padded=layout == "padded")
    gridref.build(files, tmp_path / "all.gridref", layout=ragged)
    expected = stored(files, "science/radiance")
    with opened(tmp_path / "all.gridref", group="science") as shown:
        np.testing.assert_array_equal(shown.row_size, [7, 9, 8])
        if layout == "ragged":
            assert shown.radiance.dims == ("band", "line", "pixel")
            np.testing.assert_array_equal(shown.radiance, np.concatenate(expected, axis=1))
        else:
            assert shown.radiance.dims == ("granule", "band", "line", "pixel")
            for row, part in zip(shown.radiance.values, expected, strict=True):
                np.testing.assert_array_equal(row[:, : part.shape[1]], part)
                assert np.isnan(row[:, part.shape[1] :]).all()


def write_argo(path: Path, seed: int, n_profiles: int, n_levels: int) -> Path:
    rng = np.random.default_rng(seed)
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("N_PROF", n_profiles)
        file.createDimension("N_LEVELS", n_levels)
        pressure = file.createVariable("PRES", "f4", ("N_PROF", "N_LEVELS"), fill_value=99999)
        pressure[:] = rng.normal(size=pressure.shape)
        file.createVariable("LATITUDE", "f8", ("N_PROF",))[:] = rng.normal(size=n_profiles)
    return path


def test_profiles_side_by_side_in_their_files(tmp_path: Path) -> None:
    shapes = [(1, 5), (3, 4)]
    files = [write_argo(tmp_path / f"{n}.nc", n, *shape) for n, shape in enumerate(shapes)]
    gridref.build(files, tmp_path / "padded.gridref", layout=gridref.Ragged(padded=True))
    with opened(tmp_path / "padded.gridref", decode_cf=False) as shown:
        assert shown.PRES.dims == ("N_PROF", "N_LEVELS")
        expected = np.full((4, 5), 99999, "f4")
        expected[:1], expected[1:, :4] = stored(files, "PRES")
        np.testing.assert_array_equal(shown.PRES, expected)
        np.testing.assert_array_equal(shown.LATITUDE, np.concatenate(stored(files, "LATITUDE")))
    with pytest.raises(CombineError, match=r"holds 3 instances along 'N_PROF', each padded"):
        gridref.build(files, tmp_path / "ragged.gridref", layout=gridref.Ragged())
    alone = [files[0], write_argo(tmp_path / "2.nc", 2, 1, 7)]
    gridref.build(alone, tmp_path / "ragged.gridref", "N_LEVELS", layout=gridref.Ragged("N_PROF"))
    with opened(tmp_path / "ragged.gridref") as shown:
        expected = np.concatenate([part[0] for part in stored(alone, "PRES")])
        np.testing.assert_array_equal(shown.PRES, expected)
        np.testing.assert_array_equal(shown.row_size, [5, 7])


def test_ragged_archives_grow(drifters: list[Path], tmp_path: Path) -> None:
    gridref.build(drifters[:2], tmp_path / "all.gridref", layout=gridref.Ragged())
    gridref.open_catalog(tmp_path / "all.gridref").append(drifters[2:])
    with opened(tmp_path / "all.gridref", decode_cf=False) as shown:
        for name in NAMES:
            np.testing.assert_array_equal(shown[name], np.concatenate(stored(drifters, name)))
        np.testing.assert_array_equal(shown.row_size, LENGTHS)
        np.testing.assert_array_equal(shown.trajectory, [100, 101, 102, 103])
    gridref.build(drifters[:2], tmp_path / "rows.gridref", layout=gridref.Ragged(padded=True))
    grown = gridref.open_catalog(tmp_path / "rows.gridref").append(drifters[2:])
    gridref.build(drifters, tmp_path / "whole.gridref", layout=gridref.Ragged(padded=True))
    assert grown.info.digest == gridref.open_catalog(tmp_path / "whole.gridref").info.digest
    with opened(tmp_path / "rows.gridref", decode_cf=False) as shown:
        for number, values in enumerate(stored(drifters, NAMES[0])):
            np.testing.assert_array_equal(shown[NAMES[0]][number, : len(values)], values)
    later = shutil.copy(drifters[0], tmp_path / "later.nc")
    with pytest.raises(InvalidRequestError, match="at='start' needs files along one dimension"):
        gridref.open_catalog(tmp_path / "all.gridref").append(
            later, at="start", layout=gridref.Ragged(padded=True)
        )
    with pytest.raises(InvalidRequestError, match="gives another result than it holds"):
        gridref.open_catalog(tmp_path / "all.gridref").append(
            later, layout=gridref.Ragged(padded=True)
        )


def test_labels_out_of_names(tmp_path: Path) -> None:
    files = [write_swath(tmp_path / f"orbit_{n}.nc", n, size) for n, size in ((31, 7), (7, 9))]
    with pytest.raises(InvalidRequestError, match=r"name it \(instance='station'\)"):
        gridref.Ragged(labels="orbit_{orbit}.nc")  # they would be left out in silence
    layout = gridref.Ragged(instance="orbit", labels="orbit_{orbit}.nc")
    gridref.build(files, tmp_path / "all.gridref", layout=layout)
    with opened(tmp_path / "all.gridref") as shown:
        np.testing.assert_array_equal(shown.orbit, [7, 31])
    catalog = gridref.open_catalog(tmp_path / "all.gridref")
    assert catalog["orbit"].n_blocks == catalog["science/row_size"].n_blocks == 1
    with opened(tmp_path / "all.gridref", group="science") as shown:
        np.testing.assert_array_equal(shown.row_size, [9, 7])


@pytest.mark.long
def test_commands(drifters: list[Path], tmp_path: Path) -> None:
    planned = run_command("plan", *drifters, "--layout", "padded", "--all")
    assert planned.returncode == 0, planned.stderr
    assert "row_size" in planned.stdout
    built = run_command(
        "build", *drifters, "--layout", "ragged", "-o", tmp_path / "all.gridref", "--verify"
    )
    assert built.returncode == 0, built.stderr
    assert "0 chunks differ" in built.stdout
    with opened(tmp_path / "all.gridref", decode_cf=False) as shown:
        np.testing.assert_array_equal(shown.sst, np.concatenate(stored(drifters, "sst")))
    refused = run_command("build", *drifters, "--layout", "raged", "-o", tmp_path / "no.gridref")
    assert refused.returncode != 0
    assert "did you mean 'ragged'" in refused.stderr


def test_what_does_not_say_what_differs_is_asked_for(tmp_path: Path) -> None:
    files = [write_drifter(tmp_path / f"d{n}.nc", n, 4) for n in range(2)]
    with pytest.raises(InvalidRequestError, match=r"name the dimension .* \(concat_dim='obs'\)"):
        gridref.build(files, tmp_path / "all.gridref", layout=gridref.Ragged())
    gridref.build(files, tmp_path / "all.gridref", "obs", layout=gridref.Ragged())
    with opened(tmp_path / "all.gridref") as shown:
        np.testing.assert_array_equal(shown.row_size, [4, 4])
    with pytest.raises(InvalidRequestError, match="labels of files from a pattern only"):
        gridref.Ragged("drifter", labels=gridref.Labels(sources={"drifter": "attribute:id"}))
    with pytest.raises(InvalidRequestError, match="belong to different layouts"):
        gridref.build(files, tmp_path / "no.gridref", **by_name(layout="ragged", mosaic=True))


def test_a_variable_called_row_size_is_not_covered_up(tmp_path: Path) -> None:
    files = [write_drifter(tmp_path / f"d{n}.nc", n, 4 + n) for n in range(2)]
    with netCDF4.Dataset(files[1], "a") as file:
        file.createVariable("row_size", "i4", ())[...] = 1
    with pytest.raises(CombineError, match=r"row_size: .* that name already .*d1\.nc"):
        gridref.build(files, tmp_path / "all.gridref", layout=gridref.Ragged())


@pytest.mark.parametrize("layout", ["ragged", "padded"])
def test_virtual_datasets_equal_the_catalog(
    drifters: list[Path], tmp_path: Path, layout: Literal["ragged", "padded"]
) -> None:
    ragged = gridref.Ragged("trajectory", padded=layout == "padded")
    gridref.build(drifters, tmp_path / "all.gridref", layout=ragged)
    virtual = gridref.open_virtual_mfdataset(drifters, layout=ragged)
    virtual.gridref.save(tmp_path / "virtual.gridref")
    again = opened(tmp_path / "virtual.gridref", decode_cf=False)
    with opened(tmp_path / "all.gridref", decode_cf=False) as shown, again:
        assert set(virtual.variables) == set(shown.variables)
        for name in [*NAMES, "row_size", "drogue"]:
            assert virtual[name].dims == shown[name].dims
            np.testing.assert_array_equal(again[name], shown[name])
    with pytest.raises(InvalidRequestError, match=r"layout must be Labels\(...\) or Stack"):
        gridref.open_virtual_mfdataset(drifters, layout="plate")  # type: ignore[arg-type]


def test_samples_that_say_their_instance(tmp_path: Path) -> None:
    """CF's indexed ragged arrays."""
    files = []
    for number, index in enumerate(([0, 1, 1, 0], [2, 0, 1])):
        files.append(tmp_path / f"{number}.nc")
        with netCDF4.Dataset(files[-1], "w") as file:
            file.createDimension("obs", None)
            file.createDimension("station", max(index) + 1)
            at = file.createVariable("at", "i4", ("obs",))
            at.instance_dimension = "station"
            at[:] = index
            file.createVariable("lat", "f4", ("station",))[:] = np.arange(max(index) + 1) + number
            file.createVariable("rain", "f8", ("obs",))[:] = np.arange(len(index)) / 7 + number
    gridref.build(files, tmp_path / "all.gridref", layout=gridref.Ragged())
    with opened(tmp_path / "all.gridref", decode_cf=False) as shown:
        np.testing.assert_array_equal(shown["at"], [0, 1, 1, 0, 4, 2, 3])
        np.testing.assert_array_equal(shown.lat, [0, 1, 1, 2, 3])
        np.testing.assert_array_equal(shown.rain, np.concatenate(stored(files, "rain")))
        assert "row_size" not in shown
    with pytest.raises(CombineError, match=r"layout=Ragged\(\) keeps this order .*0\.nc"):
        gridref.build(files, tmp_path / "rows.gridref", layout=gridref.Ragged(padded=True))
