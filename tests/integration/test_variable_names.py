"""Variables that become one along a dimension, whose labels are in their names."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.errors import CombineError, InvalidRequestError
from tests.by_name import by_name
from tests.command import run_command

PERCENTILES = (10, 50, 90)
LABELS = {"percentile": "name:{variable}_p{percentile:d}"}


def month(first: int) -> xr.Dataset:
    """Percentiles of two variables, each packed in its own way, in no order, and a plain one."""
    times = ("time", np.arange(first, first + 3), {"units": "days since 2001-01-01"})
    ds = xr.Dataset(coords={"time": times, "x": [0.5, 1.5]})
    for percentile in (90, 10, 50):
        values = percentile * 10 + first + np.arange(6.0).reshape(3, 2)
        ds[f"t2m_p{percentile}"] = ("time", "x"), values, {"units": "K"}
        ds[f"wind_speed_p{percentile}"] = ("time", "x"), (values / 4).astype("f4")
        packed = {"dtype": "i2", "scale_factor": 0.5, "add_offset": float(percentile)}
        packed["_FillValue"] = -1
        ds[f"t2m_p{percentile}"].encoding = packed
    ds["t2m_pmax"] = ("time", "x"), np.full((3, 2), first, "i4")
    return ds


def joined(ds: xr.Dataset) -> xr.Dataset:
    """What xarray makes of the same variables."""
    along = xr.Variable("percentile", list(PERCENTILES))
    for name in ("t2m", "wind_speed"):
        parts = [ds[f"{name}_p{p}"].rename(name) for p in PERCENTILES]
        ds = ds.assign({name: xr.concat(parts, along)})
        ds = ds.drop_vars([f"{name}_p{p}" for p in PERCENTILES])
    return ds


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("percentiles")
    for number in range(3):
        month(3 * number).to_netcdf(folder / f"m{number}.nc", unlimited_dims=["time"])
    return folder


def expected(n_files: int) -> xr.Dataset:
    months = [joined(month(3 * number)) for number in range(n_files)]
    return xr.concat(months, "time", data_vars="minimal")


def assert_same(ds: xr.Dataset, wanted: xr.Dataset) -> None:
    assert set(ds.variables) == set(wanted.variables)
    for name in wanted.variables:
        assert set(ds[name].dims) == set(wanted[name].dims)
        values = ds[name].transpose(*wanted[name].dims).values
        np.testing.assert_array_equal(values, wanted[name].values)


def shown(catalog: Path) -> xr.Dataset:
    return xr.open_zarr(gridref.open_store(catalog), chunks=None).load()


def decoded(ds: xr.Dataset) -> xr.Dataset:
    return xr.decode_cf(ds)


@pytest.mark.parametrize("options", [{}, {"concat_dim": "time"}])
def test_variables_become_one_along_a_dimension(
    archive: Path, tmp_path: Path, options: dict[str, str]
) -> None:
    files = sorted(archive.glob("*.nc"))
    gridref.build(files, tmp_path / "all.gridref", **by_name(labels=LABELS, **options))
    assert_same(shown(tmp_path / "all.gridref"), decoded(expected(3)))


def test_one_file_needs_no_more(archive: Path, tmp_path: Path) -> None:
    gridref.build(
        archive / "m0.nc", tmp_path / "one.gridref", layout=gridref.Labels(sources=LABELS)
    )
    assert_same(shown(tmp_path / "one.gridref"), decoded(expected(1)))


def test_the_command_builds_and_appends_by_the_options_that_are_kept(
    archive: Path, tmp_path: Path
) -> None:
    catalog = tmp_path / "grown.gridref"
    said = ("--labels", f"percentile={LABELS['percentile']}")
    done = run_command("build", archive / "m0.nc", archive / "m1.nc", "-o", catalog, *said)
    assert done.returncode == 0, done.stderr
    assert_same(shown(catalog), decoded(expected(2)))
    done = run_command("append", catalog, archive / "m2.nc")
    assert done.returncode == 0, done.stderr
    assert_same(shown(catalog), decoded(expected(3)))


def test_a_virtual_dataset_has_them_too(archive: Path) -> None:
    layout = gridref.Labels(sources=LABELS)
    ds = gridref.open_virtual_mfdataset(sorted(archive.glob("*.nc")), layout=layout)
    assert dict(ds["t2m"].sizes) == {"percentile": 3, "time": 9, "x": 2}
    np.testing.assert_array_equal(ds["percentile"].values, PERCENTILES)
    notes = {drift.variable for drift in ds.encoding["drift"].of_cause("names")}
    assert notes == {"t2m_pmax"}


def test_a_plan_lists_names_that_nearly_match_and_drift_among_variables(archive: Path) -> None:
    report = gridref.plan(
        sorted(archive.glob("*.nc")), "time", layout=gridref.Labels(sources=LABELS)
    ).report
    (near,) = report.of_cause("names")
    assert near.variable == "t2m_pmax"
    assert near.cases[0].ranges == ((0, 2),)
    packing = [drift for drift in report.of_cause("packing") if drift.variable == "t2m"]
    assert packing[0].cases[0].value.startswith("percentile 10: ")


def test_several_dimensions_one_after_the_other(tmp_path: Path) -> None:
    names = {f"t_m{m}_p{p}": ("x", np.array([m, p])) for m in (1, 2) for p in (5, 95)}
    xr.Dataset(names).to_netcdf(tmp_path / "a.nc")
    labels = {**LABELS, "member": "name:{variable}_m{member:d}"}
    gridref.build(tmp_path / "a.nc", tmp_path / "a.gridref", layout=gridref.Labels(sources=labels))
    t = shown(tmp_path / "a.gridref")["t"].transpose("member", "percentile", "x")
    np.testing.assert_array_equal(t, [[[m, p] for p in (5, 95)] for m in (1, 2)])
    np.testing.assert_array_equal(t["member"], [1, 2])


def test_bands_are_called_by_the_text_around_their_label(tmp_path: Path) -> None:
    bands = {name: ("x", np.array([n])) for n, name in enumerate(("B8A", "B02", "B03"))}
    xr.Dataset(bands | {"flag": 7}).to_netcdf(tmp_path / "a.nc")
    gridref.build(
        tmp_path / "a.nc",
        tmp_path / "a.gridref",
        layout=gridref.Labels(sources={"band": "name:B{band}"}),
    )
    ds = shown(tmp_path / "a.gridref")
    assert ds["band"].values.tolist() == ["02", "03", "8A"]
    assert ds["B"].values.tolist() == [[1], [2], [0]]
    assert int(ds["flag"]) == 7


P = "{variable}_p{p:d}"
X, Y = ("x", np.zeros(2)), ("y", np.zeros(3))


@pytest.mark.parametrize(
    ("variables", "pattern", "told"),
    [
        ({"t_p10": X, "t_p010": X}, P, "'t_p10' and 't_p010' both are 't' of p 10"),
        ({"t_p10": X, "t_p20": Y}, P, "'t_p10' has (x: 2) and 't_p20' has (y: 3)"),
        ({"t_p10": X, "t": X}, P, "'t_p10' would become part of 't'"),
        ({"t_10": X}, P, f"no variable is called like {P!r}: there are"),
        ({"t_p10": X, "p": X}, P, "a dimension or variable 'p' already"),
        ({"t_p10": X}, "{variable}_{other}", "a pattern with the field {p}"),
        ({"t_p10": X}, "{p}", "no field for the joint name of the variables"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(
    tmp_path: Path, variables: dict[str, tuple[str, np.ndarray]], pattern: str, told: str
) -> None:
    xr.Dataset(variables).to_netcdf(tmp_path / "a.nc")
    with pytest.raises(InvalidRequestError, match=re.escape(told)):
        gridref.plan(tmp_path / "a.nc", layout=gridref.Labels(sources={"p": f"name:{pattern}"}))


def test_a_variable_that_lacks_a_label_goes_by_the_join(tmp_path: Path) -> None:
    xr.Dataset({"t_p1": X, "t_p2": X, "u_p1": X}).to_netcdf(tmp_path / "a.nc")
    labels = {"p": "name:{variable}_p{p:d}"}
    with pytest.raises(CombineError, match=r"a\.nc \(p 2\)"):
        gridref.plan(tmp_path / "a.nc", layout=gridref.Labels(sources=labels)).unwrap()
    gridref.build(
        tmp_path / "a.nc",
        tmp_path / "a.gridref",
        layout=gridref.Labels(sources=labels),
        combine=gridref.CombineOptions(join="outer"),
    )
    u = shown(tmp_path / "a.gridref")["u"]
    np.testing.assert_array_equal(u, [[0, 0], [np.nan, np.nan]])
