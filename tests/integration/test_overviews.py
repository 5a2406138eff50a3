"""Overviews: coarser levels of an array, made once, and shown only while they are true."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import dask.base
import h5py
import httpx
import numpy as np
import pytest
import rasterio
import xarray as xr
import zarr
from numpy.typing import NDArray
from typer.testing import CliRunner

import gridref
import gridref.api.sheets as module
from gridref.api.catalog import write_catalog
from gridref.catalog.document import digest_of
from gridref.errors import InvalidRequestError, ReadError, SourceNotAllowedError
from gridref.faces.cli.app import app
from gridref.faces.http.app import create_app
from gridref.faces.picture import bytes_in_objects
from tests.command import run_command
from tests.integration.archives import write_hdf5
from tests.uvicorn_server import BROWSER, rows_of, running

SHAPE = (101, 83)


def write(path: Path, first: int, values: NDArray[Any], **attrs: Any) -> str:
    """Write a file of images, one chunk each."""
    n_images, n_rows, n_columns = values.shape
    labels = {"time": first + np.arange(n_images), "y": np.arange(n_rows) * -2.0}
    labels["x"] = np.arange(n_columns) * 2
    storage = {"chunks": (1, n_rows, n_columns), "compression": "gzip"}
    return str(write_hdf5(path, labels, {"tas": ([*labels], values, attrs, storage)}))


class Images:
    """Files of two images each, and a catalog of the first two files."""

    def __init__(self, folder: Path, values: NDArray[Any], **attrs: Any) -> None:
        self.values, self.url = values, str(folder / "cube.gridref")
        self.files = [
            write(folder / f"f{n}.h5", 2 * n, values[2 * n : 2 * n + 2], **attrs)
            for n in range(len(values) // 2)
        ]
        gridref.build(self.files[:2], self.url, "time")

    def open(self, **options: Any) -> gridref.Catalog:
        return gridref.open_catalog(self.url, **options)

    def objects(self) -> list[Path]:
        return sorted(Path(self.url).glob("overlays/*/*/*/c.*"))


def floats() -> NDArray[Any]:
    values = np.random.default_rng(0).normal(size=(6, *SHAPE)).astype("f4")
    values[values > 1.5] = np.nan
    values[0, :9, :9] = np.nan
    return values


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return Images(tmp_path, floats())


def windows(image: NDArray[Any], size: int) -> Any:
    """The elements of each window of an image, as rows of lists."""
    rows, columns = (range(0, extent, size) for extent in image.shape)
    return [[image[y : y + size, x : x + size].ravel() for x in columns] for y in rows]


def each_window(
    images: NDArray[Any], size: int, made: Callable[[NDArray[Any]], Any]
) -> NDArray[Any]:
    found = [[[made(w) for w in row] for row in windows(each, size)] for each in images]
    return np.array(found, object)  # as numbers of any length


def check_means(catalog: Any, values: NDArray[Any]) -> None:
    dims = ("time", "y", "x")
    full = xr.Dataset(
        {"tas": (dims, values.astype("f8"))},
        coords={"y": np.arange(SHAPE[0]) * -2.0, "x": np.arange(SHAPE[1]) * 2.0},
    )
    for level in (1, 2, 3):
        expected = full.coarsen(y=2**level, x=2**level, boundary="pad").mean()
        got = catalog[f"overview_{level}/tas"][...]
        np.testing.assert_allclose(got, expected["tas"].values.astype("f4"), rtol=3e-7)
        for dim in ("y", "x"):
            labels = catalog[f"overview_{level}/{dim}_{level}"][...]
            np.testing.assert_array_equal(labels, expected[dim].values)


def test_means_are_those_of_xarray(images: Images) -> None:
    catalog = images.open().overviews("tas", levels=3)
    assert "each stored chunk decoded once" in catalog.report.lines[0]
    for shown in (catalog, images.open()):
        check_means(shown, images.values[:4])
    opened = xr.open_dataset(images.url, engine="gridref", group="overview_2")
    assert "time: " not in opened["tas"].attrs["cell_methods"]
    assert opened["tas"].attrs["cell_methods"] == "y_2: x_2: mean"
    np.testing.assert_array_equal(opened["tas"].values, catalog["overview_2/tas"][...])
    assert xr.open_datatree(images.url, engine="gridref")["overview_3"].sizes["y_3"] == 13
    direct = xr.open_zarr(f"gridref::file://{images.url}", group="overview_1")
    np.testing.assert_array_equal(direct["tas"].values, catalog["overview_1/tas"][...])
    (layout,) = [each["layout"] for each in [catalog.attrs["multiscales"]]]
    assert [each["asset"] for each in layout[:2]] == ["tas", "overview_1/tas"]
    assert layout[2]["transform"]["scale"] == [1.0, 4.0, 4.0]
    assert gridref.verify(images.url, all=True).ok


@pytest.mark.parametrize("dtype", ["u1", "i2", "i8", "u8"])
def test_means_of_integers_are_exact_and_halves_go_to_even(tmp_path: Path, dtype: str) -> None:
    info = np.iinfo(dtype)
    values = np.random.default_rng(1).integers(
        info.min, info.max, (4, 21, 18), dtype, endpoint=True
    )
    values[0, :2, :2], values[0, 2:6, :4] = [[3, 4], [4, 3]], info.max
    missing = info.max
    images = Images(tmp_path, values, _FillValue=values.dtype.type(missing))
    catalog = images.open().overviews("tas", levels=3)

    def mean(window: NDArray[Any]) -> int:
        held = [int(each) for each in window if each != missing]
        return round(Fraction(sum(held), len(held))) if held else int(missing)

    for level in (1, 2, 3):
        expected = each_window(values, 2**level, mean)
        got = catalog[f"overview_{level}/tas"][...]
        assert got.dtype == values.dtype
        np.testing.assert_array_equal(got, expected.astype(dtype))


def test_other_methods(tmp_path: Path) -> None:
    values = np.random.default_rng(2).integers(0, 5, (4, 22, 19)).astype("i2")
    images = Images(tmp_path, values, _FillValue=np.int16(0))

    def mode(window: NDArray[Any]) -> int:
        counts = np.bincount(window[window != 0], minlength=1)
        return int(counts.argmax())

    def extreme(choose: Any) -> Callable[[NDArray[Any]], int]:
        return lambda window: choose(window[window != 0]) if window.any() else 0

    expected = {"mode": mode, "min": extreme(np.min), "max": extreme(np.max)}
    for method, made in expected.items():
        catalog = images.open().overviews("tas", factor=3, levels=2, method=method)
        for level in (1, 2):
            got = catalog[f"overview_{level}/tas"][...]
            np.testing.assert_array_equal(got, each_window(values, 3**level, made).astype("i2"))
        assert gridref.verify(images.url, all=True).ok
    catalog = images.open().overviews("tas", levels=2, method="nearest")
    np.testing.assert_array_equal(catalog["overview_2/tas"][0, :5, :4], values[0, 2:20:4, 2:16:4])


def test_bounds_of_unsigned_numbers_are_unsigned(tmp_path: Path) -> None:
    values = np.random.default_rng(3).integers(0, 255, (2, 22, 19)).astype("u1")
    images = Images(tmp_path, values.view("i1"), _Unsigned="true", valid_range=np.int8([0, -2]))
    got = images.open().overviews("tas", levels=1, method="max")["overview_1/tas"][...]
    np.testing.assert_array_equal(got.view("u1"), each_window(values, 2, np.max))


def test_means_are_those_of_gdal(tmp_path: Path) -> None:
    values = np.random.default_rng(3).random((2, 64, 48)).astype("f4")
    path = tmp_path / "image.tif"
    profile = {"driver": "GTiff", "width": 48, "height": 64, "count": 2, "dtype": "float32"}
    transform = rasterio.transform.from_origin(1000, 2000, 10, 10)
    with rasterio.open(path, "w", crs="EPSG:32632", transform=transform, **profile) as file:
        file.write(values)
    gridref.build([str(path)], str(tmp_path / "image.gridref"))
    catalog: Any = gridref.open_catalog(tmp_path / "image.gridref").overviews("band_data", levels=2)
    with rasterio.open(path) as file:
        for level in (1, 2):
            shape = (2, 64 >> level, 48 >> level)
            average = rasterio.enums.Resampling.average
            expected = file.read(out_shape=shape, resampling=average)
            got = catalog[f"overview_{level}/band_data"][...]
            np.testing.assert_allclose(got, expected, rtol=1e-6)
            mapping = catalog[f"overview_{level}/spatial_ref"].attrs["GeoTransform"]
            size = 10.0 * 2**level
            assert [float(n) for n in mapping.split()] == [1000, size, 0, 2000, 0, -size]


def test_levels_are_never_stale(images: Images, tmp_path: Path) -> None:
    images.open().overviews("tas", levels=3)
    catalog = images.open().append(images.files[2])
    assert "overview_1" not in catalog
    assert "overview_1" not in images.open()
    said = CliRunner().invoke(app, ["info", images.url]).output
    assert "out of date and not shown: the same gridref overviews" in said
    assert CliRunner().invoke(app, ["overviews", images.url, "tas", "--levels", "3"]).exit_code == 0
    check_means(images.open(), images.values)
    changed = images.values.copy()
    changed[2:4] += 1
    write(Path(images.files[1]), 2, changed[2:4])
    assert "overview_1" not in images.open().refresh()
    check_means(images.open().overviews("tas", levels=3), changed)
    whole = images.open().info.snapshot
    catalog = images.open().remove(images.files[0]).overviews("tas", levels=3)
    assert catalog.report.lines == ("tas: nothing is missing",)  # all others are as they were
    check_means(catalog, changed[2:])
    check_means(images.open().rollback(whole), changed)


def test_a_call_that_was_killed_goes_on(images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(module, "finished", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            images.open().overviews("tas", levels=3)
    assert "overview_1" not in images.open()
    before = {path: path.stat().st_mtime_ns for path in images.objects()}
    check_means(images.open().overviews("tas", levels=3), images.values[:4])
    assert before.items() <= {p: p.stat().st_mtime_ns for p in images.objects()}.items()


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_damaged_objects_are_errors(images: Images, damage: str) -> None:
    images.open().overviews("tas", levels=1)
    (path,) = [each for each in images.objects() if "c.0.0.0" in each.name]
    content = bytearray(path.read_bytes())
    content[20] ^= 255
    path.unlink()
    if damage == "changed":
        path.write_bytes(content)
    with pytest.raises(ReadError):
        images.open()["overview_1/tas"][...]  # type: ignore[index]
    np.testing.assert_array_equal(images.open()["tas"][...], images.values[:4])  # type: ignore[index]
    assert not gridref.verify(images.url, all=True).ok


def test_levels_elsewhere_are_read_if_they_are_allowed(
    images: Images, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    images.open().overviews("tas", levels=1, to=elsewhere)
    monkeypatch.setenv("GRIDREF_STATE", str(elsewhere / "of-somebody-else"))
    with pytest.raises(SourceNotAllowedError):
        images.open(allow=[*images.files])["overview_1/tas"][...]  # type: ignore[index]
    images.open(allow=[*images.files, str(elsewhere)])["overview_1/tas"][...]  # type: ignore[index]


@pytest.mark.parametrize(
    "change", [{"n_levels": 99}, {"factors": [1, 0, 2]}, {"array": "nothing"}, {"coverage": [{}]}]
)
def test_entries_that_contradict_themselves_are_refused(
    images: Images, change: dict[str, Any]
) -> None:
    images.open().overviews("tas", levels=1)
    path = Path(images.url) / "gridref.json"
    document = json.loads(path.read_text())
    document["snapshot"]["overviews"][-1].update(change)
    rest = {name: value for name, value in document.items() if name != "checksum"}
    document["checksum"] = digest_of(rest)
    path.write_text(json.dumps(document))
    with pytest.raises(gridref.errors.CatalogCorruptError):
        images.open()


def test_levels_are_no_arrays_of_the_catalog(images: Images, tmp_path: Path) -> None:
    before = images.open()
    catalog = before.overviews("tas", levels=1)
    assert catalog.info.digest == before.info.digest
    assert dask.base.tokenize(catalog) != dask.base.tokenize(before)
    assert {*catalog.chunks()["path"].to_pylist()} == {"tas", "time", "y", "x"}
    write_catalog(catalog, tmp_path / "other.gridref")
    assert "overview_1" not in gridref.open_catalog(tmp_path / "other.gridref")
    assert "overview_1" not in images.open(overlay="none")
    gridref.copy(images.url, tmp_path / "copy.zarr")
    copied = zarr.open_group(tmp_path / "copy.zarr", mode="r")["overview_1/tas"]
    np.testing.assert_array_equal(copied[...], catalog["overview_1/tas"][...])  # type: ignore[index]
    assert "overview_1" not in catalog.drop_overviews("tas")
    images.open().prune(keep=1, grace_seconds=0)
    assert not (Path(images.url) / "overlays").exists()


def test_what_cannot_be(images: Images, tmp_path: Path) -> None:
    catalog = images.open()
    for options, said in (
        ({"factor": 1}, "none of 2 to 64"),
        ({"levels": 9}, "is not possible for 101 by 83"),
        ({"method": "median"}, "median"),
    ):
        with pytest.raises(InvalidRequestError, match=said):
            catalog.overviews("tas", **options)  # type: ignore[arg-type]
    folder = tmp_path / "classes"
    folder.mkdir()
    classes = Images(folder, np.ones((4, 9, 9), "u1"), flag_values=np.arange(3, dtype="u1"))
    with pytest.raises(InvalidRequestError, match="categories have no mean"):
        classes.open().overviews("tas")
    assert classes.open().overviews("tas", method="mode")["overview_1/tas"][0, 0, 0] == 1  # type: ignore[index]
    turned = xr.Dataset(
        {"tas": (("lat", "lon", "time"), np.ones((9, 8, 7)))},
        {
            "lat": ("lat", np.arange(9.0), {"units": "degrees_north"}),
            "lon": ("lon", np.arange(8.0), {"units": "degrees_east"}),
        },
    )
    turned.to_netcdf(tmp_path / "turned.nc")
    gridref.build(str(tmp_path / "turned.nc"), str(tmp_path / "turned.gridref"))
    with pytest.raises(InvalidRequestError, match="lon and time, are not rows and columns"):
        gridref.open_catalog(tmp_path / "turned.gridref").overviews("tas")
    with h5py.File(tmp_path / "two.h5", "w") as file:
        for name in ("a", "b"):
            file[name] = np.arange(64.0).reshape(8, 8)
            file[name].dims[0].label, file[name].dims[1].label = "y", "x"
    gridref.build(str(tmp_path / "two.h5"), str(tmp_path / "two.gridref"))
    two = gridref.open_catalog(tmp_path / "two.gridref").overviews("a", factor=4, levels=1)
    with pytest.raises(InvalidRequestError, match="give factor=4"):
        two.overviews("b", levels=1)
    two = two.overviews("b", factor=4, levels=1)
    assert two["overview_1/b"][...].tolist() == [[13.5, 17.5], [45.5, 49.5]]  # type: ignore[index]


def test_a_dry_run_writes_nothing(images: Images) -> None:
    before = images.open()
    report = before.overviews("tas", levels=2, dry_run=True).report
    assert report.lines[0] == "tas: mean, 2 levels: 4x51x42, 4x26x21"
    assert report.lines[1].startswith("4 stored chunks, each decoded once; at most ")
    options = ["--levels", "2", "--dry-run"]
    done = CliRunner().invoke(app, ["overviews", images.url, "tas", *options])
    assert (done.exit_code, report.lines[0] in done.output) == (0, True)
    assert not images.objects()
    assert images.open().info.snapshot == before.info.snapshot
    images.open().overviews("tas", levels=2)
    report = images.open().overviews("tas", levels=2, dry_run=True).report
    assert report.lines == ("tas: nothing is missing",)


PEAK = """
import re, sys
from pathlib import Path
import gridref

gridref.open_catalog(sys.argv[1]).overviews("b", levels=4, memory=int(sys.argv[2]))
print(*re.findall(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text()))
"""


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_memory_stays_below_the_bound(tmp_path: Path) -> None:
    side, tile, memory = 16_000, 500, 450 * 10**6
    values = np.random.default_rng(0).integers(0, 2**16, (tile, tile), "<u2")
    with h5py.File(tmp_path / "image.h5", "w") as file:
        b = file.create_dataset("b", (side, side), "<u2", chunks=(tile, tile))
        for row, column in np.ndindex(side // tile, side // tile):
            b.id.write_direct_chunk((row * tile, column * tile), values.tobytes())
    gridref.build(tmp_path / "image.h5", tmp_path / "image.gridref")
    command = [sys.executable, "-c", PEAK, str(tmp_path / "image.gridref"), str(memory)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert 1024 * int(done.stdout) < memory < 2 * side * side
    level = gridref.open_catalog(tmp_path / "image.gridref")["overview_2/b"][:125, :125]
    means = values.reshape(125, 4, 125, 4).mean((1, 3))
    np.testing.assert_array_equal(level, np.rint(means))


def test_overviews_are_listed_with_their_size_and_whether_they_are_shown(tmp_path: Path) -> None:
    images = Images(tmp_path, floats())
    catalog = images.open().overviews("tas", levels=2)
    (found,) = catalog.list_overviews()
    assert (found.array, found.method, found.factor, found.n_levels) == ("tas", "mean", 2, 2)
    shards = [*Path(images.url, "overlays").glob("*/*/*/c.*.*.*")]  # those of labels are c.0
    assert (found.n_objects, found.to) == (len(shards), str(shards[0].parents[3]))
    assert 0 < found.n_bytes < sum(each.stat().st_size for each in shards)
    size = bytes_in_objects(found.n_bytes, found.n_objects)
    for is_shown, said in ((True, "yes"), (False, "no: files changed")):
        (listed,) = json.loads(run_command("info", images.url, "--json").stdout)["overviews"]
        assert (listed["array"], listed["is_shown"]) == ("tas", is_shown)
        shown = run_command("info", images.url, "tas").stdout
        assert f"tas: overview, mean, 2 levels by 2, {size}" in shown
        assert ("out of date and not shown" in shown) is not is_shown
        with running(create_app([images.url])) as address:
            for path in ("cube", "cube/array/tas"):
                page = httpx.get(f"{address}/{path}", headers=BROWSER).text
                assert rows_of(page, "Overviews") == [["tas", "mean, 2 levels by 2", said, size]]
            page = httpx.get(f"{address}/cube/array/y", headers=BROWSER).text
            assert rows_of(page, "Overviews") == []
        images.open().append(images.files[2])
