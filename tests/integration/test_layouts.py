"""Files built with no option: how they lie beside each other, and their kinds, are worked out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import gridref
from gridref.api.layout.names import name_parts
from gridref.errors import CombineError, InvalidRequestError, UnclearLayoutError
from gridref.faces.cli import app
from gridref.faces.cli.options import spelled
from tests.by_name import by_name

DAYS = {"units": "days since 2001-01-01", "calendar": "standard"}


def days(first: int, n: int = 2, name: str = "t", factor: float = 1.0) -> xr.Dataset:
    values = (np.arange(first, first + n)[:, None] + np.arange(3) / 10) * factor
    times = ("time", np.arange(first, first + n), DAYS)
    return xr.Dataset({name: (("time", "x"), values)}, {"time": times, "x": [0, 1, 2]})


def built(folder: Path, **options: Any) -> tuple[xr.Dataset, str]:
    """What building all files of a folder gives, and how it says that they were laid out."""
    catalog = folder / "cube.gridref"
    group = gridref.build(folder / "*.nc", catalog, **by_name(overwrite=True, **options))
    (layout,) = [drift for drift in group.report.drifts if drift["cause"] == "layout"]
    with xr.open_dataset(catalog, decode_times=False, decode_timedelta=False) as ds:
        return ds.load(), layout["resolution"]


def test_along_a_coordinate(tmp_path: Path) -> None:
    for first in (0, 2, 4):
        days(first).to_netcdf(tmp_path / f"part{first}.nc")
    ds, layout = built(tmp_path)
    assert layout == "laid out by concat_dim='time'"
    xr.testing.assert_equal(ds, days(0, 6))
    days(6).to_netcdf(tmp_path / "late.nc")
    gridref.open_catalog(tmp_path / "cube.gridref").append(tmp_path / "late.nc")
    with xr.open_dataset(tmp_path / "cube.gridref", decode_times=False) as grown:
        xr.testing.assert_equal(grown.load(), days(0, 8))


def test_along_a_coordinate_whose_order_is_not_that_of_the_names(tmp_path: Path) -> None:
    for name, first in (("a", 4), ("b", 0), ("c", 2)):
        days(first).to_netcdf(tmp_path / f"{name}.nc")
    ds, layout = built(tmp_path)
    assert layout == "laid out by concat_dim='time', layout='by_coords'"
    xr.testing.assert_equal(ds, days(0, 6))


def test_one_variable_a_file(tmp_path: Path) -> None:
    for name, factor in (("pr", 1), ("tas", -1)):
        for first in (0, 2):
            days(first, name=name, factor=factor).to_netcdf(tmp_path / f"{name}_{first}.nc")
    ds, _ = built(tmp_path)
    xr.testing.assert_equal(ds, xr.merge([days(0, 4, "pr"), days(0, 4, "tas", -1)]))


def test_variables_alone(tmp_path: Path) -> None:
    for name in ("pr", "tas"):
        days(0, name=name).to_netcdf(tmp_path / f"{name}.nc")
    ds, layout = built(tmp_path)
    assert layout == "laid out by layout='by_coords'"
    xr.testing.assert_equal(ds, xr.merge([days(0, 2, "pr"), days(0, 2, "tas")]))


@pytest.mark.parametrize(
    ("name", "attribute", "dim", "labels"),
    [
        ("t_member{:02d}_{}.nc", None, "member", [1, 2, 3]),
        ("r{}/t_{}.nc", None, "member", [1, 2, 3]),
        ("x{}_{}.nc", "realization_index", "member", [1, 2, 3]),
    ],
)
def test_members_by_times(
    tmp_path: Path, name: str, attribute: str | None, dim: str, labels: list[int]
) -> None:
    for member in (1, 2, 3):
        for first in (0, 2):
            ds = days(first, factor=member)
            path = tmp_path / name.format(member, first)
            path.parent.mkdir(exist_ok=True)
            ds.assign_attrs({attribute: member} if attribute else {}).to_netcdf(path)
    catalog = tmp_path / "cube.gridref"
    gridref.build(sorted(tmp_path.rglob("*.nc")), catalog)
    expected = np.stack([days(0, 4, factor=member)["t"].values for member in (1, 2, 3)])
    with xr.open_dataset(catalog, decode_times=False) as ds:
        assert ds["t"].dims == (dim, "time", "x")
        np.testing.assert_array_equal(ds["t"].values, expected)
        np.testing.assert_array_equal(ds[dim].values, labels)


def test_dates_in_names(tmp_path: Path) -> None:
    for month in (1, 2, 3):
        ds = xr.Dataset({"t": ("x", np.arange(3.0) + month)})
        ds.to_netcdf(tmp_path / f"mean_2001{month:02d}_v1.nc")
    ds, layout = built(tmp_path)
    assert layout == "laid out by layout=Stack('time', labels='mean_{time:%Y%m}_v1.nc')"
    np.testing.assert_array_equal(ds["t"].values, np.add.outer([1, 2, 3], np.arange(3.0)))
    assert ds["time"].attrs["units"] == "seconds since 1970-01-01"
    assert ds["time"].values[0] == 978307200


@pytest.mark.parametrize("word", ["t", "x"])
def test_numbers_behind_the_name_of_a_variable_or_dimension(tmp_path: Path, word: str) -> None:
    for number in (1, 2):
        xr.Dataset({"t": ("x", np.arange(3.0) + number)}).to_netcdf(tmp_path / f"{word}{number}.nc")
    ds, _ = built(tmp_path)
    assert ds["t"].dims == ("part1", "x")
    np.testing.assert_array_equal(ds["t"].values, np.add.outer([1, 2], np.arange(3.0)))


def days_that_say_the_first(folder: Path, *, scalar: bool = False) -> list[Path]:
    """Three daily files with dates in their names, whose own time is that of the first."""
    files = [folder / f"day_2001-01-0{day}.nc" for day in (1, 2, 3)]
    for number, path in enumerate(files):
        ds = days(0, 1).assign(t=(("time", "x"), [[number, number + 1, number + 2]]))
        (ds.isel(time=0) if scalar else ds).to_netcdf(path)
    return files


@pytest.mark.parametrize("scalar", [False, True])
@pytest.mark.parametrize("yes", [False, True])
def test_names_that_disagree_with_the_time_in_the_files(
    tmp_path: Path, scalar: bool, yes: bool
) -> None:
    files = days_that_say_the_first(tmp_path, scalar=scalar)
    with pytest.raises(UnclearLayoutError) as caught:
        gridref.build(files, tmp_path / "cube.gridref", layout="first")
    text = str(caught.value)
    assert "'time' in 3 files disagrees with their names" in text
    assert "day_2001-01-02.nc: 2001-01-01 in the file, 2001-01-02 as its label" in text
    assert not (tmp_path / "cube.gridref").exists()
    expected = np.add.outer([0, 1, 2], np.arange(3))
    found = {}
    for number, options in enumerate(caught.value.choices):
        assert ", ".join(f"{key}={value!r}" for key, value in options.items()) in text
        catalog = tmp_path / f"{number}.gridref"
        gridref.build(files, catalog, **options)
        with xr.open_dataset(catalog) as ds:
            np.testing.assert_array_equal(ds["t"].values.reshape(3, 3), expected)
            found |= {
                (ds["t"].dims[0], name): [str(label)[:10] for label in ds[name].values.reshape(-1)]
                for name in ("time", "time_in_name")
                if name in ds
            }
    named = ["2001-01-01", "2001-01-02", "2001-01-03"]
    assert found.pop(("time_in_name", "time_in_name")) == named
    assert found.pop(("time_in_name", "time")) == named[:1]
    assert found.pop(("time", "time")) == named
    assert not found
    (drift,) = gridref.plan(files, **caught.value.choices[-1]).report.of_cause("label-replaced")
    assert [case.value for case in drift.cases] == [
        f"2001-01-01 in the file, {label} as its label" for label in named[1:]
    ]


def test_names_that_disagree_with_some_of_the_times(tmp_path: Path) -> None:
    for name, first in (("01", 0), ("02", 0), ("03", 1)):
        days(first, 1).to_netcdf(tmp_path / f"day_200101{name}.nc")
    with pytest.raises(UnclearLayoutError, match="2001-01-02 in the file, 2001-01-03 as its label"):
        built(tmp_path, yes=True)
    for number, name in enumerate(("01", "02", "03")):  # other days, that tell the files apart
        days(number + 7, 1).to_netcdf(tmp_path / f"day_200101{name}.nc")
    ds, layout = built(tmp_path)
    assert layout == "laid out by concat_dim='time'"
    assert ds["time"].values.tolist() == [7, 8, 9]


def test_the_time_in_the_files_is_kept_where_it_is_asked_for(tmp_path: Path) -> None:
    files = days_that_say_the_first(tmp_path)
    options = {"concat_dim": "time", "combine": gridref.CombineOptions(overlap="keep")}
    with pytest.raises(UnclearLayoutError) as caught:
        gridref.plan(files)
    assert options in caught.value.choices
    gridref.build(files, tmp_path / "cube.gridref", **options)
    with xr.open_dataset(tmp_path / "cube.gridref", decode_times=False) as ds:
        assert ds["time"].values.tolist() == [0, 0, 0]
        assert ds["t"].values[:, 0].tolist() == [0, 1, 2]


def test_someone_at_a_terminal_is_asked_for_the_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = days_that_say_the_first(tmp_path)
    arguments = ["build", *map(str, files), "-o", str(tmp_path / "cube.gridref")]
    done = CliRunner().invoke(app, arguments, input="3\n")
    assert done.exit_code == 1
    monkeypatch.setattr("gridref.faces.cli.make.is_interactive", lambda: True)
    done = CliRunner().invoke(app, arguments, input="7\n3\n")
    assert done.exit_code == 0, done.output
    assert "1: --concat-dim time --overlap keep" in done.output
    with xr.open_dataset(tmp_path / "cube.gridref") as ds:
        assert [str(label)[:10] for label in ds["time"].values] == [
            "2001-01-01",
            "2001-01-02",
            "2001-01-03",
        ]


def test_scalar_coordinates(tmp_path: Path) -> None:
    for number, first in enumerate((3, 1, 2)):
        ds = xr.Dataset({"t": ("x", np.arange(3.0) + first)}, {"time": ((), first, DAYS)})
        ds.to_netcdf(tmp_path / f"scan{number}.nc")
    ds, layout = built(tmp_path)
    assert "concat_dim=['time']" in layout
    np.testing.assert_array_equal(ds["t"].values, np.add.outer([1, 2, 3], np.arange(3.0)))


def test_an_unlimited_dimension_without_labels(tmp_path: Path) -> None:
    for number in range(3):
        ds = xr.Dataset({"t": (("Time", "x"), np.full((2, 3), number))})
        ds.to_netcdf(tmp_path / f"wrf {'abc'[number]}.nc", unlimited_dims=["Time"])
    ds, layout = built(tmp_path)
    assert layout == "laid out by concat_dim='Time'"
    np.testing.assert_array_equal(ds["t"].values[:, 0], [0, 0, 1, 1, 2, 2])


def test_several_layouts_are_listed_with_what_each_gives(tmp_path: Path) -> None:
    for number, day in enumerate(("010203", "010204", "010201")):
        ds = xr.Dataset({"t": ("x", np.arange(3.0) + number)})
        ds.to_netcdf(tmp_path / f"run_{day}.nc")
    with pytest.raises(InvalidRequestError) as caught:
        built(tmp_path)
    text = str(caught.value)
    assert "3 files fit several layouts" in text
    assert "layout=Stack('time', labels='run_{time:%y%m%d}.nc')" in text
    assert "layout=Stack('time', labels='run_{time:%d%m%y}.nc')" in text
    assert text.count("t (time: 3, x: 3)") == 2
    ds, layout = built(tmp_path, yes=True)
    assert layout == "laid out by layout=Stack('time', labels='run_{time:%y%m%d}.nc')"
    assert ds["t"].values[:, 0].tolist() == [2, 0, 1]
    arguments = ["build", str(tmp_path / "*.nc"), "-o", str(tmp_path / "x.gridref")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    told = spelled(done.exception.message)
    assert "--stack time --pattern run_{time:%d%m%y}.nc" in told
    assert CliRunner().invoke(app, [*arguments, "--yes"]).exit_code == 0


def test_files_of_differing_length_are_ragged_or_padded(tmp_path: Path) -> None:
    for number, n in enumerate((3, 5)):
        xr.Dataset({"t": ("obs", np.arange(n) + 10.0 * number)}).to_netcdf(tmp_path / f"{n}.nc")
    with pytest.raises(UnclearLayoutError, match=r"Ragged\(\).*\n.*Ragged\(padded=True\)") as error:
        built(tmp_path)
    layouts = [choice["layout"] for choice in error.value.choices]
    assert layouts == [
        gridref.Ragged(),
        gridref.Ragged(padded=True),
    ]  # no Stack, which has problems
    ds, layout = built(tmp_path, yes=True)
    assert layout == "laid out by layout=Ragged()"
    assert ds["t"].values.tolist() == [0, 1, 2, 10, 11, 12, 13, 14]


def test_members_that_begin_and_end_differently(tmp_path: Path) -> None:
    for member, first, n in ((1, 0, 6), (2, 2, 6), (3, 3, 2)):
        ds = days(first, n, factor=member)
        units = {"units": f"days since 2001-01-0{member}", "calendar": "standard"}
        ds["time"] = ("time", ds["time"].values - (member - 1), units)
        ds.to_netcdf(tmp_path / f"r{member}.nc")
    ds, _ = built(tmp_path)
    assert ds["t"].dims == ("member", "time", "x")
    assert ds["time"].values.tolist() == list(range(8))
    expected = np.full((3, 8, 3), np.nan)
    for member, first, n in ((1, 0, 6), (2, 2, 6), (3, 3, 2)):
        expected[member - 1, first : first + n] = days(first, n, factor=member)["t"]
    np.testing.assert_array_equal(ds["t"].values, expected)


def test_labels_that_are_the_same_in_float32(tmp_path: Path) -> None:
    x = np.array([0.1, 0.2, 0.3])
    for number, labels in enumerate((x, x.astype("f4"), x)):
        days(2 * number).assign_coords(x=labels).to_netcdf(tmp_path / f"{number}.nc")
    with pytest.raises(CombineError, match="the same if rounded to float32") as error:
        gridref.build(tmp_path / "*.nc", tmp_path / "cube.gridref", "time")
    (problem,) = error.value.problems
    assert problem.variable == "x"
    ds, layout = built(tmp_path)
    xr.testing.assert_equal(ds, days(0, 6).assign_coords(x=x))
    assert layout == "laid out by concat_dim='time', combine=CombineOptions('override')"
    planned = CliRunner().invoke(app, ["plan", str(tmp_path / "*.nc")])
    assert "--join override:" in planned.output
    options = by_name(join="override", overwrite=True)
    catalog = gridref.build(tmp_path / "*.nc", tmp_path / "cube.gridref", "time", **options)
    np.testing.assert_array_equal(catalog["x"][:], x)


def test_times_that_differ_by_less_than_floats_hold(tmp_path: Path) -> None:
    for number in range(2):
        times = np.arange(5) + 5 * number
        units = {"units": "microseconds since 2000-01-01"}
        ds = xr.Dataset({"t": ("time", times * 1.5)}, {"time": ("time", times, units)})
        ds.to_netcdf(tmp_path / f"f{number}.nc")
    ds, layout = built(tmp_path)
    assert layout == "laid out by concat_dim='time'"
    np.testing.assert_array_equal(ds["time"], np.arange(10))


def test_labels_of_text(tmp_path: Path) -> None:
    names = np.array(["a", "station with a long name", "b", "c"], dtype=object)
    for number, part in enumerate((slice(2), slice(2, 4))):
        ds = xr.Dataset({"t": ("x", np.arange(4.0)[part])}, {"x": names[part]})
        ds.to_netcdf(tmp_path / f"part{number}.nc")
    ds, layout = built(tmp_path)
    assert "part1" not in layout
    assert dict(zip(ds["x"].values, ds["t"].values, strict=True)) == {
        name: float(number) for number, name in enumerate(names)
    }
    for path in tmp_path.glob("*.nc"):
        path.unlink()
    every = days(0, 4).assign_coords(x=names[:3])
    every.isel(time=slice(2)).to_netcdf(tmp_path / "0.nc")
    every.isel(time=slice(2, 4), x=slice(1, 3)).to_netcdf(tmp_path / "1.nc")
    catalog = tmp_path / "cube.gridref"
    with pytest.raises(CombineError, match="join='outer' places each file by them"):
        gridref.build(tmp_path / "*.nc", catalog, "time", overwrite=True)
    options = by_name(join="outer", overwrite=True)
    gridref.build(tmp_path / "*.nc", catalog, "time", **options)
    with xr.open_dataset(catalog, decode_times=False) as opened:
        ds = opened.load()
    expected = every["t"].where((every["time"] < 2) | (every["x"] != "a"))
    xr.testing.assert_equal(ds["t"].sel(x=names[:3]).astype(float), expected)


def test_a_file_without_labels_overlaps_none(tmp_path: Path) -> None:
    for name, first, n in (("f0", 0, 2), ("f1", 9, 0), ("f2", 2, 2)):
        days(first, n).to_netcdf(tmp_path / f"{name}.nc")
    xr.testing.assert_equal(built(tmp_path)[0], days(0, 4))


COPIES = {"f2.nc": (2, 2), "f2 (1).nc": (2, 2), "f3.nc": (4, 2)}
NUMBERED = {"f2.nc": (2, 2), "f3.nc": (4, 2), "f4.nc": (2, 2)}
ENDS = {"f2.nc": (1, 3), "f3.nc": (3, 3)}


@pytest.mark.parametrize(
    ("later", "said"),
    [
        (COPIES, "f2 (1).nc and f2.nc have the same labels along time. If a file is a copy"),
        (NUMBERED, "f2.nc and f4.nc have the same labels along time. If a file is a copy"),
        (ENDS, "f1.nc and f2.nc have some of the same labels along time"),
    ],
)
def test_files_that_repeat_labels_of_others_are_asked_for(
    tmp_path: Path, later: dict[str, tuple[int, int]], said: str
) -> None:
    for name, part in {"f1.nc": (0, 2), **later}.items():
        days(*part).to_netcdf(tmp_path / name)
    with pytest.raises(UnclearLayoutError) as error:
        built(tmp_path)
    assert said in str(error.value)
    numbered, *rest = error.value.choices
    catalog = gridref.build(tmp_path / "*.nc", tmp_path / "numbered.gridref", **numbered)
    assert catalog.arrays["t"].dims == ("part1", "time", "x")
    assert [choice["combine"].overlap for choice in rest] == ["first", "last"]
    for choice in rest:
        gridref.build(tmp_path / "*.nc", tmp_path / "cube.gridref", overwrite=True, **choice)
        with xr.open_dataset(tmp_path / "cube.gridref", decode_times=False) as ds:
            xr.testing.assert_equal(ds.load(), days(0, 6))
    xr.testing.assert_equal(built(tmp_path, overlap="last")[0], days(0, 6))


def test_a_copy_under_a_name_of_another_form_is_a_problem(tmp_path: Path) -> None:
    for name, first in (("f_01", 0), ("f_03", 2), ("f_03_copy", 2), ("f_05", 4)):
        days(first).to_netcdf(tmp_path / f"{name}.nc")
    with pytest.raises(CombineError, match="if one is a copy of another, leave it out") as error:
        built(tmp_path)
    (problem,) = error.value.problems
    *_, copy = problem.sources
    Path(copy).unlink()
    xr.testing.assert_equal(built(tmp_path)[0], days(0, 6))


def test_files_that_nothing_tells_apart(tmp_path: Path) -> None:
    for folder in ("x", "y/z"):
        (tmp_path / folder).mkdir(parents=True)
        days(0).to_netcdf(tmp_path / folder / "same.nc")
    with pytest.raises(InvalidRequestError, match="coordinates, names and attributes do not say"):
        gridref.plan(tmp_path / "**" / "*.nc")


def test_names_that_are_alike_only_at_their_ends_are_labels_if_asked_for(tmp_path: Path) -> None:
    for number, name in enumerate(("run_first", "run_second_try")):
        days(0, factor=number + 1).to_netcdf(tmp_path / f"{name}.nc")
    with pytest.raises(UnclearLayoutError, match="their layout is not clear") as error:
        built(tmp_path)
    assert [choice["layout"] for choice in error.value.choices] == [
        gridref.Stack("part1", "run_{part1:s}.nc")
    ]
    ds, _ = built(tmp_path, yes=True)
    assert ds["part1"].values.tolist() == ["first", "second_try"]
    expected = np.stack([days(0, factor=k)["t"] for k in (1, 2)])
    np.testing.assert_array_equal(ds["t"].values, expected)


@pytest.mark.parametrize(
    ("names", "fields"),
    [
        (["a_20010101.nc", "a_20010201.nc"], [("time", "%Y%m%d")]),
        (["a_200101.nc", "a_200102.nc"], [("time", "%Y%m")]),
        (["a.2001-01-01.nc", "a.2001-01-02.nc"], [("time", "%Y-%m-%d")]),
        (["x_2023-06-01Z.tif", "x_2023-07-01Z.tif"], [("time", "%Y-%m-%d")]),
        (["x_20230601T1201Z.tif", "x_20230602T1201Z.tif"], [("time", "%Y%m%dT%H%M")]),
        (["s20230601.nc", "s20230602.nc"], [("time", "%Y%m%d")]),
        (["ens01.nc", "ens02.nc"], [("member", "d")]),
        (["lev500_x.nc", "lev1000_x.nc"], [("lev", "d")]),
        (["a_MPI-ESM_x.nc", "a_CESM2_x.nc"], [("part1", "")]),
        (["a_10122010.nc", "a_11122010.nc"], [("time", "%d%m%Y")]),
        (["a_20012001.nc", "a_20011220.nc"], [("part1", "d")]),
        (["a_010203.nc", "a_010204.nc"], [("time", "%y%m%d"), ("time", "%d%m%y")]),
        (["orbit00120_b.nc", "orbit00121_b.nc"], [("orbit", "d")]),
        (["2020_01_01_7f_x.nc", "2020_01_02_32_x.nc"], [("time", "%Y_%m_%d"), ("part2", "")]),
        (["a.2020.01.nc", "a.2019.12.nc"], [("time", "%Y.%m")]),
        (["x_2020_1301.nc", "x_2020_1401.nc"], [("part1", "d")]),
        (["r_sweep_0.nc", "r_sweep_1.nc"], [("sweep", "d")]),
        (["ens_01_x.nc", "ens_02_x.nc"], [("member", "d")]),
        (["tas_1_x.nc", "tas_2_x.nc"], [("part1", "d")]),
        (
            ["z_00-2022010100003600-boo-hd5", "z_01-2022010100013600-boo-hd5"],
            [("part1", "d"), ("time", "%Y%m%d%H%M%S%f")],
        ),
        (["x_200001-200112.nc", "x_200201-200312.nc"], [("part1", "")]),
        (["x_CESM2-1_y.nc", "x_MPI-2_y.nc"], [("part1", "")]),
    ],
)
def test_parts_of_names(names: list[str], fields: list[tuple[str, str]]) -> None:
    parts = name_parts([f"/data/{name}" for name in names])
    assert parts is not None
    assert [(field.name, field.kind) for field in parts.fields] == fields


def test_names_that_are_not_cut_alike_have_no_parts() -> None:
    assert name_parts(["/d/a_1.nc", "/d/a_1_2.nc"]) is None


@pytest.mark.parametrize(
    ("names", "values"),
    [
        (["a_B02.tif", "a_B8A.tif"], ("B02", "B8A")),
        (["a_B02.tif", "a_B03.tif"], ("B02", "B03")),
        (["LC08_1_SR_B4.tif", "LC08_1_SR_B5.tif"], ("B4", "B5")),
        (["s1_vv.tif", "s1_vh.tif"], ("vv", "vh")),
        (["a_B02.tif", "a_cloud.tif"], None),
        (["a_B02_VV.tif", "a_B03_VH.tif"], None),
    ],
)
def test_bands_in_names(names: list[str], values: tuple[str, ...] | None) -> None:
    parts = name_parts([f"/data/{name}" for name in names])
    assert parts is not None
    found = parts.bands("variable")
    assert (None if found is None else found.values) == values


def grids(tmp_path: Path, *names: str) -> list[Path]:
    """Files whose grids and values are told by the letter behind their last underscore."""
    files = []
    for number, name in enumerate(names):
        n = 3 + ord(name[-1]) % 4
        ds = xr.Dataset({"t": ("x", np.arange(n) + 10.0 * number)}, {"x": np.arange(n)})
        ds.assign_coords(time=((), number, DAYS)).to_netcdf(tmp_path / f"{name}.nc")
        files.append(tmp_path / f"{name}.nc")
    return files


def test_kinds_of_files_on_grids_of_their_own_are_groups(tmp_path: Path) -> None:
    files = grids(tmp_path, "s_1_a", "s_2_b", "s_3_a", "s_4_b")
    group = gridref.build(files, tmp_path / "cube.gridref")
    assert {path: array.shape for path, array in group.all_arrays().items() if path[2:] == "t"} == {
        "a/t": (2, 4),
        "b/t": (2, 5),
    }
    assert group["b/t"][...].tolist() == [[10, 11, 12, 13, 14], [30, 31, 32, 33, 34]]
    (layout, *_) = [row for row in group.report.drifts if row["cause"] == "layout"]
    assert layout["resolution"] == "laid out by layout=Groups('part2', labels='s_{_}_{part2}.nc')"


def test_kinds_that_nothing_names_are_numbered_if_asked_for(tmp_path: Path) -> None:
    files = grids(tmp_path, "s_1a", "s_2b", "s_3a", "s_4b")
    with pytest.raises(UnclearLayoutError, match=r"2 kinds: kind1 \(2\), kind2 \(2\)") as error:
        gridref.build(files, tmp_path / "cube.gridref")
    assert [choice["layout"] for choice in error.value.choices] == [gridref.Groups("kind")]
    group = gridref.build(files, tmp_path / "cube.gridref", layout="first")
    assert group["kind1/t"][...].tolist() == [[0, 1, 2, 3], [20, 21, 22, 23]]
    assert group["kind2/t"][...].tolist() == [[10, 11, 12, 13, 14], [30, 31, 32, 33, 34]]


def test_kinds_that_several_parts_name_are_listed(tmp_path: Path) -> None:
    files = grids(tmp_path, "s_p_1_a", "s_q_2_b", "s_r_3_a", "s_q_4_b", "s_p_5_a")
    with pytest.raises(InvalidRequestError) as caught:
        gridref.build(files, tmp_path / "cube.gridref")
    assert "layout=Groups('part1'" in str(caught.value)
    assert "layout=Groups('part3'" in str(caught.value)


MONTHS = [15.5, 45.0, 74.5, 105.0]


def file_of_kind(path: Path, name: str, times: Any, **attrs: Any) -> xr.Dataset:
    values = np.add.outer(np.asarray(times, "f8"), np.arange(2.0))
    dims = {"time": ("time", np.asarray(times, "f8"), DAYS), "x": [0, 1]}
    ds = xr.Dataset({name: (("time", "x"), values)}, dims, attrs)
    ds.to_netcdf(path)
    return ds


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Two variables of days and one of months, in two files each; and one without times."""
    for name in ("tas", "pr"):
        file_of_kind(tmp_path / f"{name}_day_1.nc", name, range(30), table="day")
        file_of_kind(tmp_path / f"{name}_day_2.nc", name, range(30, 60), table="day")
    file_of_kind(tmp_path / "tos_mon_1.nc", "tos", MONTHS[:2], table="mon")
    file_of_kind(tmp_path / "tos_mon_2.nc", "tos", MONTHS[2:], table="mon")
    return tmp_path


def groups(catalog: Path) -> dict[str, xr.Dataset]:
    tree = xr.open_datatree(catalog, decode_times=False)
    return {name: node.to_dataset().load() for name, node in tree.children.items()}


def test_times_of_different_spacing_are_a_problem_with_two_ways_out(archive: Path) -> None:
    with pytest.raises(CombineError, match=r"daily in 4 files.*monthly in 2 files") as caught:
        gridref.build(archive / "*.nc", archive / "cube.gridref")
    assert "layout=Groups(frequency=True) puts each into a group, join='outer'" in str(caught.value)
    gridref.build(
        archive / "*.nc",
        archive / "cube.gridref",
        combine=gridref.CombineOptions(join="outer"),
        layout="by_coords",
    )
    with xr.open_dataset(archive / "cube.gridref", decode_times=False) as ds:
        assert ds["tas"].sizes == {"time": 63, "x": 2}
        np.testing.assert_array_equal(ds["tos"].sel(time=MONTHS)[:, 0], MONTHS)
        assert int(ds["tos"].notnull().sum()) == 8


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"split": "frequency"}, {"daily", "monthly"}),
        ({"group_by": "table"}, {"day", "mon"}),
        ({"group_by": "kind", "pattern": "_{kind:s}_{_:d}.nc"}, {"day", "mon"}),
    ],
)
def test_a_group_for_each_kind(archive: Path, options: dict[str, str], names: set[str]) -> None:
    catalog = archive / "cube.gridref"
    group = gridref.build(archive / "*.nc", catalog, **by_name(**options))
    found = groups(catalog)
    assert set(found) == names
    daily, monthly = found[min(names)], found[max(names)]
    assert set(daily.data_vars) == {"tas", "pr"}
    with xr.open_mfdataset(sorted(archive.glob("*_day_*.nc")), decode_times=False) as expected:
        xr.testing.assert_equal(daily, expected.load())
    np.testing.assert_array_equal(monthly["tos"][:, 1], np.array(MONTHS) + 1)
    assert {drift["variable"].partition("/")[0] for drift in group.report.drifts} <= names
    later = file_after(archive)
    grown = gridref.open_catalog(catalog).append(later)
    gridref.build(archive / "*.nc", archive / "whole.gridref", **by_name(**options))
    assert grown.info.digest == gridref.open_catalog(archive / "whole.gridref").info.digest
    np.testing.assert_array_equal(grown[max(names)]["tos"][-2:, 1], [136.5, 167.0])


def file_after(folder: Path) -> Path:
    file_of_kind(folder / "tos_mon_3.nc", "tos", [135.5, 166.0], table="mon")
    return folder / "tos_mon_3.nc"


def test_on_the_command_line(archive: Path) -> None:
    catalog = archive / "cube.gridref"
    arguments = [str(archive / "*.nc"), "--split", "frequency"]
    done = CliRunner().invoke(app, ["build", *arguments, "-o", str(catalog)])
    assert done.exit_code == 0, done.output
    assert set(groups(catalog)) == {"daily", "monthly"}
    done = CliRunner().invoke(app, ["plan", *arguments], env={"COLUMNS": "160"})
    assert "monthly" in done.output


def test_files_that_do_not_say_their_kind_are_named(archive: Path) -> None:
    file_of_kind(archive / "zz_one_day.nc", "zz", [3.0])
    with pytest.raises(InvalidRequestError, match=r"a single time.*Groups") as caught:
        gridref.plan(archive / "*.nc", layout=gridref.Groups(frequency=True))
    assert "zz_one_day.nc" in str(caught.value)
    with pytest.raises(InvalidRequestError, match="no field of the pattern and no attribute"):
        gridref.plan(archive / "*.nc", layout=gridref.Groups("table"))


def test_what_the_scan_left_out_is_listed_by_the_catalog(archive: Path) -> None:
    for path in archive.glob("*.nc"):
        with h5py.File(path, "a") as opened:
            opened.create_dataset("odd", (3,), np.dtype([("x", h5py.vlen_dtype("i4"))]))
    catalog = archive / "cube.gridref"
    options: dict[str, Any] = {"split": "frequency", "on_unsupported": "skip"}
    group = gridref.build(archive / "*.nc", catalog, **by_name(**options))
    assert [finding.path for finding in group.report.skipped] == ["/odd"] * 6
    kept = gridref.open_catalog(catalog)
    assert [finding.path for finding in kept.report.skipped] == ["/odd"]
    (row,) = [row for row in kept.report().to_pylist() if row["cause"] == "skipped"]
    assert (row["variable"], row["n_files"], row["resolution"]) == ("odd", 6, "left out")
    shown = CliRunner().invoke(app, ["info", str(catalog)], env={"COLUMNS": "300"})
    assert "left out odd:" in shown.output
    assert "and 5 more" in shown.output
    later = file_after(archive)
    with h5py.File(later, "a") as opened:
        opened.create_dataset("odd", (3,), np.dtype([("x", h5py.vlen_dtype("i4"))]))
    grown = kept.append(later)
    (row,) = [row for row in grown.report().to_pylist() if row["cause"] == "skipped"]
    assert (row["n_files"], row["last_file"]) == (7, str(later))


def mixed(folder: Path, *, named: bool) -> dict[str, list[Path]]:
    """Files of four kinds by kind: grids of their own, three variables, `t` in two of them."""
    rng, kinds = np.random.default_rng(7), {}
    sizes = {"ocean": ("t", 5, 4), "ice": ("conc", 4, 3), "air": ("t", 2, 6), "land": ("m", 1, 2)}
    for name, (variable, n_files, n) in sizes.items():
        kinds[name] = []
        for number in range(n_files):
            values = rng.random((2, n, n)).astype("f4")
            times = np.arange(2.0) + 2 * number
            coords = {"time": ("time", times, DAYS), "y": np.arange(n), "x": np.arange(n)}
            ds = xr.Dataset({variable: (("time", "y", "x"), values)}, coords)
            word = name if named else "out"
            path = folder / f"{word}_{number}{len(kinds)}.nc"
            ds.to_netcdf(path)
            kinds[name].append(path)
    return kinds


@pytest.mark.parametrize(
    "options", [{}, {"group_by": "kind"}, {"yes": True}], ids=["nothing said", "kind", "yes"]
)
def test_a_mixed_folder_becomes_a_group_for_each_kind(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    kinds = mixed(tmp_path, named=True)
    gridref.build(tmp_path / "*.nc", tmp_path / "cube.gridref", **by_name(**options))
    found = groups(tmp_path / "cube.gridref")
    assert found.keys() == kinds.keys()
    for name, files in kinds.items():
        with xr.open_mfdataset(files, decode_times=False) as expected:
            xr.testing.assert_equal(found[name], expected.load())


def test_kinds_of_a_folder_are_counted_before_they_are_taken(tmp_path: Path) -> None:
    kinds = mixed(tmp_path, named=False)
    done = CliRunner().invoke(app, ["build", f"{tmp_path}/*.nc", "-o", f"{tmp_path}/c.gridref"])
    assert done.exit_code == 1
    told = str(done.exception)
    assert "12 files, and they do not fit together" in told
    assert "4 kinds: kind1 (5), kind2 (4), kind3 (2), kind4 (1)" in told
    gridref.build(tmp_path / "*.nc", tmp_path / "cube.gridref", layout="first")
    found = groups(tmp_path / "cube.gridref")
    for number, files in enumerate(kinds.values(), 1):
        with xr.open_mfdataset(files, decode_times=False) as expected:
            xr.testing.assert_equal(found[f"kind{number}"], expected.load())


def test_sizes_that_differ_are_all_that_is_wrong_with_a_stack(tmp_path: Path) -> None:
    for n in (3, 4):
        xr.Dataset({"t": ("x", np.arange(n))}).to_netcdf(tmp_path / f"{n}.nc")
    with pytest.raises(CombineError) as caught:
        gridref.build(tmp_path / "*.nc", tmp_path / "cube.gridref", layout=gridref.Stack("time"))
    assert [problem.cause for problem in caught.value.problems] == ["shape-differs"]


def test_yes_reaches_the_layouts_within_each_kind(tmp_path: Path) -> None:
    ocean = [tmp_path / f"ocean_{number}.nc" for number in range(2)]
    for number, path in enumerate(ocean):
        file_of_kind(path, "tos", np.arange(2.0) + 2 * number)
    words = ["first", "second_try", "third"]
    for number, word in enumerate(words):
        ds = xr.Dataset({"m": (("y", "x"), np.full((3, 4), number))}, {"x": np.arange(4)})
        ds.to_netcdf(tmp_path / f"run_{word}.nc")  # what only their names tell is a guess
    catalog = tmp_path / "cube.gridref"
    with pytest.raises(UnclearLayoutError, match=r"2 kinds: m \(3\), tos \(2\)") as caught:
        gridref.build(tmp_path / "*.nc", catalog)
    with pytest.raises(CombineError, match="'time' because some of its files do not have it"):
        gridref.build(tmp_path / "*.nc", catalog, "time", **by_name(variables="different"))
    done = gridref.build(tmp_path / "*.nc", catalog, layout="first")
    (told,) = [line for line in done.report.lines if line.startswith("the variables are in groups")]
    assert (
        told.partition("(")[2] == "m, tos): xarray opens one with group='m', all with open_groups"
    )
    with xr.open_dataset(catalog, group="m") as ds:
        assert set(ds.data_vars) == {"m"}
    found = groups(catalog)
    with xr.open_mfdataset(ocean, decode_times=False) as expected:
        xr.testing.assert_equal(found["tos"], expected.load())
    np.testing.assert_array_equal(found["m"]["part1"], words)
    np.testing.assert_array_equal(found["m"]["m"][:, 0, 0], range(3))
    (asked,) = caught.value.choices
    gridref.build(tmp_path / "*.nc", tmp_path / "asked.gridref", **asked)
    digests = [gridref.open_catalog(each).info.digest for each in tmp_path.glob("*.gridref")]
    assert len(set(digests)) == 1
