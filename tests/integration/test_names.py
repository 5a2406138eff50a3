"""Names that mean something to readers, and names of variables that hold labels."""

from __future__ import annotations

import json
import re
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr

import gridref
from gridref.api.catalog import write_catalog
from gridref.errors import (
    CombineError,
    InvalidRequestError,
    NotRepresentableError,
    SourceFormatError,
    UnsupportedFeatureError,
)
from gridref.faces.http import create_app
from tests.attack_doors import DOORS, RAW
from tests.by_name import by_name
from tests.command import run_command
from tests.uvicorn_server import running


def made(path, *names):
    with h5py.File(path, "w") as file:
        for number, name in enumerate(names):
            file[name] = np.arange(3) + number
    return path


@pytest.mark.parametrize("name", ["zarr.json", ".zarray", ".zgroup", ".zattrs"])
def test_names_of_metadata_are_shown_encoded(tmp_path, name):
    catalog = tmp_path / "cube"
    gridref.build(made(tmp_path / "a.h5", name, "other"), catalog)
    shown = name.replace(".", "%2E")
    for view in ("portable", "native", "direct"):
        store = gridref.open_store(catalog, view=view)
        opened = xr.open_zarr(store, chunks=None, **RAW)
        assert opened[shown].values.tolist() == [0, 1, 2]
        assert opened["other"].values.tolist() == [1, 2, 3]
    with running(create_app({"a": str(catalog)})) as url:
        opened = xr.open_zarr(f"{url}/a/portable", chunks=None, **RAW)
        assert len(opened) == 2
        for variable in opened.values():
            first = 1 if variable.name == "other" else 0
            assert variable.values.tolist() == [first, first + 1, first + 2]


@pytest.mark.parametrize("name", ["..", "."])
def test_ways_up_are_refused_by_zarr_views(tmp_path, name):
    catalog = tmp_path / "cube"
    file = made(tmp_path / "a.h5", "x")
    array = gridref.scan(file).arrays["x"]
    write_catalog(gridref.VirtualGroup({name: array}), catalog)
    assert DOORS["own reader"](catalog, name).tolist() == [0, 1, 2]
    for view in ("portable", "native", "direct"):
        with pytest.raises(NotRepresentableError, match="rename it"):
            gridref.open_store(catalog, view=view)


def test_what_netcdf_renamed_is_told_by_the_beginning(tmp_path):
    file = made(tmp_path / "a.nc", "x_nc4_non_coord_y", "_nc4_non_coord__nc4_non_coord_b")
    with netCDF4.Dataset(file) as original:
        assert list(gridref.scan(file).arrays) == list(original.variables)


def test_two_variables_of_one_name_are_refused(tmp_path):
    file = made(tmp_path / "a.nc", "_nc4_non_coord_a", "a")
    with pytest.raises(UnsupportedFeatureError, match="netCDF renames it to a"):
        gridref.scan(file)
    assert gridref.scan(file, on_unsupported="skip").arrays["a"][:].tolist() == [1, 2, 3]


def file_with_scales(path):
    """A scalar scale, one that is longer than its axis, and one of a group above."""
    with h5py.File(path, "w") as file:
        file["image"] = np.arange(12.0).reshape(3, 4)
        file["line"] = np.arange(5)
        file["x"], file["y"], file["x_1"] = 2.5, np.arange(7.0), 1
        for name, axes in {"x": [("image", 1), ("line", 0)], "y": [("image", 0)]}.items():
            file[name].make_scale(name)
            for variable, axis in axes:
                file[variable].dims[axis].attach_scale(file[name])
        file["g/a"], file["g/b"] = np.arange(2), np.arange(3)
        for variable in ("g/a", "g/b"):
            file[variable].dims[0].attach_scale(file["y"])
    return path


def test_dimensions_that_xarray_cannot_hold_have_names_of_their_own(tmp_path):
    file, catalog = file_with_scales(tmp_path / "a.h5"), tmp_path / "cube"
    built = gridref.build(file, catalog)
    told = [f"{f.path}: {f.reason}" for f in built.report if f.fate == "renamed"]
    assert told == [
        "/g/y: named 'y_1' where its length is 3, because it has another length elsewhere",
        "/y: named 'y_1' where its length is 3, because it has another length elsewhere",
        "/x: named 'x_2' where its length is 4, because a scalar has its name",
        "/x: named 'x_3' where its length is 5, because a scalar has its name",
    ]
    stores = {view: gridref.open_store(catalog, view=view) for view in ("native", "portable")}
    opened = [
        xr.open_dataset(file, engine="gridref"),
        xr.open_dataset(catalog, engine="gridref"),
        *(xr.open_zarr(store, consolidated=False) for store in stores.values()),
        gridref.open_virtual_dataset(file, loadable_variables=["image", "line", "x", "y", "x_1"]),
    ]
    with h5py.File(file) as handle:
        for dataset in opened:
            dims = {name: variable.dims for name, variable in dataset.variables.items()}
            named = {"image": ("y_1", "x_2"), "line": ("x_3",), "y": ("y",), "x": (), "x_1": ()}
            assert dims == named
            for name in dims:
                np.testing.assert_array_equal(dataset[name].values, handle[name][()])
    tree = xr.open_datatree(catalog, engine="gridref", group="g")
    assert [tree[name].dims for name in "ab"] == [("y",), ("y_1",)]
    assert gridref.verify(catalog).ok


def test_scalars_of_netcdf_may_have_the_name_of_a_dimension(tmp_path):
    file = tmp_path / "a.nc"
    with netCDF4.Dataset(file, "w") as handle:
        handle.createDimension("t", None)
        handle.createVariable("t", "i4", ())[...] = 7
        handle.createVariable("v", "f4", ("t",))[...] = [1, 2]
    dataset = xr.open_dataset(file, engine="gridref")
    assert dataset.v.dims == ("t_1",)
    assert dataset.encoding["unlimited_dims"] == {"t_1"}
    assert (int(dataset.t), dataset.v.values.tolist()) == (7, [1, 2])


def test_dimensions_of_zarr_groups_have_names_of_their_own(tmp_path):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("v", data=np.arange(3), dimension_names=["x"])
    group.create_array("w", data=np.arange(4), dimension_names=["x"])
    dataset = xr.open_dataset(tmp_path / "a.zarr", engine="gridref")
    assert {name: dataset[name].dims for name in "vw"} == {"v": ("x",), "w": ("x_1",)}


def test_groups_that_are_nested_too_deep_are_refused(tmp_path):
    path = tmp_path / "deep.h5"
    with h5py.File(path, "w") as file:
        file["/".join("g" * 250) + "/v"] = 1
        file["w"] = [1]
    with pytest.raises(UnsupportedFeatureError, match="200 deep"):
        gridref.scan(path)
    left_out = gridref.scan(path, on_unsupported="skip")
    assert list(left_out.all_arrays()) == ["w"]
    assert "200 deep" in left_out.report.skipped[0].reason


@pytest.mark.long(but=1)
@pytest.mark.timeout(20)
@pytest.mark.parametrize("depth", [250, 1500, 3000])
def test_references_that_are_nested_too_deep_are_refused(tmp_path, depth):
    group = json.dumps({"zarr_format": 2})
    refs = {".zgroup": group, **{f"{'g/' * n}.zgroup": group for n in range(1, depth)}}
    path = tmp_path / "refs.json"
    path.write_text(json.dumps({"version": 1, "refs": refs}))
    with pytest.raises(UnsupportedFeatureError, match="200 deep"):
        gridref.scan(path)
    (tmp_path / "z.zarr").mkdir()
    below = {"zarr_format": 3, "node_type": "group"}
    documents = {"/".join("g" * n): below for n in range(1, depth)}
    root = {"zarr_format": 3, "node_type": "group", "attributes": {}}
    root["consolidated_metadata"] = {"kind": "inline", "metadata": documents}
    (tmp_path / "z.zarr" / "zarr.json").write_text(json.dumps(root))
    with pytest.raises((UnsupportedFeatureError, SourceFormatError), match="200 deep"):
        gridref.scan(tmp_path / "z.zarr")


def test_an_array_larger_than_memory_is_an_error_of_ours(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", (0, 2**62), "i8", chunks=(1, 1000), maxshape=(None, None))
        file.create_dataset("w", (2**59,), "i8", chunks=(1000,))
        many = 800_000_000_000_000
        file.create_dataset("x", (many, 0), "u1", chunks=(1000, 1), maxshape=(None, 2))
    group = gridref.scan(path)
    assert group["x"][...].shape == (many, 0)
    assert group["w"][2**58 : 2**58 + 2].tolist() == [0, 0]
    assert group["v"][:, :5].shape == (0, 5)
    for name in ("v", "w"):
        with pytest.raises(InvalidRequestError, match="more than the available memory"):
            group[name][...]


def test_elements_of_very_many_bytes_are_refused(tmp_path):
    array = {"shape": [4], "chunks": [2], "dtype": "<U99999999", "fill_value": 0, "order": "C"}
    array |= {"filters": None, "compressor": None, "zarr_format": 2}
    path = tmp_path / "refs.json"
    refs = {".zgroup": json.dumps({"zarr_format": 2}), "v/.zarray": json.dumps(array)}
    path.write_text(json.dumps({"version": 1, "refs": refs}))
    with pytest.raises(UnsupportedFeatureError, match="elements of 399999996 bytes"):
        gridref.scan(path)


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
