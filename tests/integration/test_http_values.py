"""What the server works out of values: looks, series and files, beside other programs."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cftime
import h5py
import httpx
import numpy as np
import pyproj
import pytest
import rasterio
import xarray as xr
from numcodecs import Zstd

import gridref
from gridref.faces.http import app, create_app
from gridref.faces.web.look import LOOK_BYTES, look_at
from gridref.faces.web.part import Part
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Encoding, bytes_codec
from gridref.model.manifest import ChunkManifest
from gridref.serve.reader import Reader
from gridref.testing.builders import chunked_array
from tests.uvicorn_server import running


def holes(shape: tuple[int, int], chunk: tuple[int, int]) -> VirtualArray:
    """An array whose chunks are all missing: what is planned counts them all the same."""
    encoding = Encoding(chunk, np.dtype("f4"), (bytes_codec(np.dtype("f4")),))
    n_chunks = math.prod(-(-n // c) for n, c in zip(shape, chunk, strict=True))
    manifest = ChunkManifest.missing(n_chunks)
    return VirtualArray.of_one_block(
        shape,
        np.dtype("f4"),
        encoding=encoding,
        manifest=manifest,
        dims=("y", "x"),
        fill_value=np.float32(1),
    )


class Slow(Reader):
    """Counts what is read, and takes its time."""

    n_read = 0

    def read(self, array: VirtualArray, selection: Any = None, **options: Any) -> Any:
        self.n_read += 1
        time.sleep(0.02)
        return super().read(array, selection, **options)


LATITUDES = np.linspace(89.9, -89.9, 1250)
LONGITUDES = np.linspace(0, 359.928, 5000)
DAYS = np.array([0, 31, 59])


def field(day: int) -> Any:
    """A smooth picture of 1,250 x 5,000 floats."""
    north, east = np.radians(LATITUDES)[:, None], np.radians(LONGITUDES)[None, :]
    return np.round(280 + 20 * np.cos(2 * north) + 5 * np.sin(3 * east) + day, 0).astype("f4")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with three planes of 25 MB that compress well, and no overviews."""
    path = tmp_path_factory.mktemp("large") / "large.nc"
    with h5py.File(path, "w") as file:
        for name, values, units in (
            ("time", DAYS, "days since 2023-01-01"),
            ("lat", LATITUDES, "degrees_north"),
            ("lon", LONGITUDES, "degrees_east"),
        ):
            file[name] = values
            file[name].attrs["units"] = units
            file[name].make_scale(name)
        tas = file.create_dataset(
            "tas",
            (3, 1250, 5000),
            "f4",
            chunks=(1, 250, 1000),
            compression="gzip",
            compression_opts=1,
            shuffle=True,
        )
        for number, day in enumerate(DAYS):
            tas[number] = field(day)
        for axis, name in enumerate(("time", "lat", "lon")):
            tas.dims[axis].attach_scale(file[name])
    return path


@pytest.fixture(scope="module")
def planes(large: Path) -> Iterator[str]:
    values = np.arange(60, dtype="i4").reshape(10, 6)
    small = VirtualGroup(
        {
            "a": chunked_array(values, (5, 3), ("t", "x"), compressed=True),
            "line": VirtualArray.from_numpy(np.zeros(3), ("x",)),
            "empty": VirtualArray.from_numpy(np.zeros((0, 3)), ("y", "x")),
            "text": VirtualArray.from_numpy(np.array([["a", "b"]]), ("y", "x")),
        }
    )
    with running(
        create_app({"cube": gridref.scan(large), "small": small}, access_log=False)
    ) as url:
        yield url


def read(response: httpx.Response) -> tuple[dict[str, Any], Any]:
    """Header and values of a look."""
    assert response.status_code == 200, response.text
    body = response.content
    n = int.from_bytes(body[:4], "little")
    header = json.loads(body[4 : 4 + n])
    dtype = np.dtype(header["dtype"]).newbyteorder("<")
    planes = np.frombuffer(body[4 + n :], "u1").reshape(dtype.itemsize, -1)
    return header, planes.T.copy().view(dtype).reshape(header["shape"])


def test_a_first_look_is_every_so_many_elements(planes: str, large: Path) -> None:
    with h5py.File(large) as file:
        whole = file["tas"][1]
    header, values = read(httpx.get(f"{planes}/cube/look/tas?time=2023-02-01"))
    rows, columns = (
        range(header[s]["first"], n, header[s]["step"])
        for s, n in (("rows", 1250), ("columns", 5000))
    )
    assert header["shape"] == [len(rows), len(columns)] == [250, 1000]
    np.testing.assert_array_equal(
        values, whole[rows.start :: rows.step, columns.start :: columns.step]
    )
    _, part = read(httpx.get(f"{planes}/cube/look/tas?at=1,700:900,4000:4300"))
    np.testing.assert_array_equal(part, whole[700:900, 4000:4300])
    _, steps = read(httpx.get(f"{planes}/cube/look/tas?at=1,5::9,7:2000:3"))
    np.testing.assert_array_equal(steps, whole[5::9, 7:2000:3])
    _, turned = read(httpx.get(f"{planes}/cube/look/tas?at=:,7,3::5"))
    with h5py.File(large) as file:
        np.testing.assert_array_equal(turned, file["tas"][:, 7, 3::5])


def test_what_travels_is_compressed(planes: str, large: Path) -> None:
    stored = large.stat().st_size / 3
    for address in ("look/tas?at=0,:,:", "portable/tas/c/0/0/0?compressed"):
        sizes = {}
        for coding in ("zstd", "gzip", "identity"):
            with httpx.stream(
                "GET", f"{planes}/cube/{address}", headers={"Accept-Encoding": coding}
            ) as response:
                raw = b"".join(response.iter_raw())
                assert response.headers.get("content-encoding", "identity") == coding
                assert response.headers["vary"] == "Accept-Encoding"
                sizes[coding] = len(raw)
                decode = {"zstd": Zstd().decode, "gzip": gzip.decompress, "identity": bytes}
                plain = decode[coding](raw)
                sizes.setdefault("plain", plain)
                assert plain == sizes["plain"]
        assert max(sizes["zstd"], sizes["gzip"]) < min(sizes["identity"] / 8, stored)
    plain = httpx.get(f"{planes}/cube/portable/tas/c/0/0/0", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in plain.headers  # only who asks for it makes the server work
    part = httpx.get(
        f"{planes}/cube/portable/tas/c/0/0/0?compressed", headers={"Range": "bytes=4-11"}
    )
    assert part.status_code == 206
    assert part.content == plain.content[4:12]


def test_what_is_unchanged_does_not_travel_again(planes: str) -> None:
    first = httpx.get(f"{planes}/small/look/a")
    again = httpx.get(f"{planes}/small/look/a", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert httpx.head(f"{planes}/small/look/a").content == b""


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ("look/a?at=1", 400, "has 1 part, but the dimensions are t, x"),
        ("look/a?at=:,:,:", 400, "has 3 parts"),
        ("look/a?at=1,2", 400, "a look has two dimensions; at= gives ranges along 0"),
        ("look/a?at=99,:", 400, "t has 10 elements, so there is no 99"),
        ("look/a?at=50:60,:", 400, "takes no element of t, which has 10"),
        ("look/a?at=-1,:", 400, "write a number, or a range like 10:20"),
        ("look/a?at=::0,:", 400, "a step is 1 or more"),
        (f"look/a?at={'9' * 400},:", 400, "write a number"),
        ("look/a?most=0", 400, "most is a number from 1 to 2048"),
        ("look/a?most=1e9", 400, "most is a number from 1 to 2048"),
        ("look/a?t=3", 400, "dimension t has no labels: give numbers with at="),
        ("look/a?bogus=3", 400, "there is no dimension or option 'bogus'"),
        ("look/line", 400, "a look shows planes of numbers"),
        ("look/text", 400, "a look shows planes of numbers"),
        ("look/empty", 400, "has no elements"),
        ("look/nothing", 404, "nothing is here"),
        ("look/", 404, "nothing is here"),
    ],
)
def test_looks_that_cannot_be_meant_are_refused(
    planes: str, asked: str, status: int, words: str
) -> None:
    response = httpx.get(f"{planes}/small/{asked}")
    assert (response.status_code, words in response.text) == (status, True), response.text


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            "time=2031-01-01",
            "time has no label near '2031-01-01': they are from 2023-01-01 to 2023-03-01",
        ),
        ("time=soon", "'soon' is not a date"),
        ("time=2023-02-31", "not a date of this calendar"),
        ("lat=nan", "is not a number"),
        ("lat=100/200", "lat has no labels in '100/200'"),
    ],
)
def test_labels_that_are_not_there(planes: str, asked: str, words: str) -> None:
    response = httpx.get(f"{planes}/cube/look/tas?{asked}")
    assert (response.status_code, words in response.text) == (400, True), response.text


def test_labels_choose_as_xarray_does(planes: str, large: Path) -> None:
    with h5py.File(large) as file:
        rows = np.flatnonzero((LATITUDES >= 40) & (LATITUDES <= 50))
        expected = file["tas"][2, rows[0] : rows[-1] + 1, 4995:]
    _, values = read(httpx.get(f"{planes}/cube/look/tas?time=2023-03-02&lat=50/40&lon=-0.37/-0.06"))
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("chunk", [(1, 65_536), (2048, 2048), (65_536, 64)])
def test_the_cost_of_a_look_is_bounded(chunk: tuple[int, int]) -> None:
    array = holes((65_536, 65_536), chunk)
    look = look_at(Part("a", array, (range(65_536), range(65_536))))
    assert look.n_bytes <= LOOK_BYTES


def test_a_chunk_that_costs_too_much_alone(planes: str) -> None:
    group = VirtualGroup({"a": holes((65_536, 65_536), (65_536, 65_536))})
    with running(create_app({"m": group}, access_log=False)) as url:
        response = httpx.get(f"{url}/m/look/a")
        assert (response.status_code, "one element here is in a chunk of" in response.text) == (
            413,
            True,
        )
        steps = httpx.get(f"{url}/m/look/a?at=::1024,::1024")
        assert (steps.status_code, "leave the steps out" in steps.text) == (413, True)


def test_who_leaves_is_worked_for_no_more_and_others_wait_for_nobody() -> None:
    app = create_app(
        {"m": VirtualGroup({"a": holes((16_384, 16_384), (512, 512))})}, access_log=False
    )
    catalog = app.site.find("m")
    slow = vars(catalog)["looks"] = Slow(catalog.reader.reader.ranges)
    with running(app) as url, httpx.Client(base_url=url) as client:
        look = client.get("/m/look/a?at=64::65,64::65")
        n_bands = slow.n_read
        assert look.status_code == 200
        assert n_bands > 20
        with pytest.raises(httpx.ReadTimeout):
            client.get("/m/look/a?at=63::65,63::65", timeout=0.2)
        begun = time.perf_counter()
        assert client.get("/healthz").text == "ok\n"
        assert time.perf_counter() - begun < 0.5
        time.sleep(0.3)
        n_read = slow.n_read
        time.sleep(0.2)
        assert slow.n_read == n_read < 2 * n_bands
        both = ThreadPoolExecutor(2)
        asked = [both.submit(client.get, "/m/look/a?at=62::65,62::65") for _ in range(2)]
        assert asked[0].result().content == asked[1].result().content
        assert slow.n_read == n_read + n_bands  # one for both


def test_too_many_that_wait_are_sent_away(planes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MOST_WAITING", 0)
    response = httpx.get(f"{planes}/small/look/a")
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert "ask again" in response.text


@pytest.fixture(scope="module")
def catalog(sample_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("catalogs") / "cube.gridref"
    gridref.build(sorted(sample_data.glob("*.nc")), path, "time")
    return path


@pytest.fixture(scope="module")
def series_servers(catalog: Path) -> Iterator[str]:
    packed = np.array([[1, 2], [-9, 4], [-9, -9]], "i2")
    attrs = {"scale_factor": 0.5, "add_offset": 10.0, "_FillValue": np.int16(-9)}
    group = VirtualGroup(
        {
            "p": VirtualArray.from_numpy(packed, ("t", "x"), attrs),
            "floats": VirtualArray.from_numpy(
                packed, ("t", "x"), {**attrs, "valid_min": 10.5, "valid_max": 12.0}
            ),
            "signed": VirtualArray.from_numpy(
                np.array([1, 255, 254], "u1"), ("t",), {"_Unsigned": "false", "_FillValue": -1}
            ),
            "ids": VirtualArray.from_numpy(
                np.array([2**53 + 1, -1, -(2**60) - 1]), ("ns",), {"_FillValue": -1}
            ),
            "ns": VirtualArray.from_numpy(
                1_700_000_000_000_000_000 + 10**6 * np.arange(3),
                ("ns",),
                {"units": "nanoseconds since 1970-01-01"},
            ),
            "one": VirtualArray.from_numpy(np.float64(3), ()),
            "text": VirtualArray.from_numpy(np.array(["a", "b"]), ("x",)),
            "wide": holes((2**25, 2**13), (2**12, 2**12)),
        }
    )
    with (
        running(create_app([catalog], access_log=False)) as url,
        running(create_app({"m": group}, access_log=False)) as other,
    ):
        yield f"{url} {other}"


@pytest.fixture(scope="module")
def cube_series(series_servers: str) -> str:
    return f"{series_servers.split(maxsplit=1)[0]}/cube/series"


@pytest.fixture(scope="module")
def small_series(series_servers: str) -> str:
    return f"{series_servers.split()[1]}/m/series"


@pytest.fixture(scope="module")
def whole(sample_data: Path) -> tuple[Any, list[str], Any, Any]:
    """Values, times, latitudes and longitudes, by h5py and cftime."""
    values, times = [], []
    for path in sorted(sample_data.glob("*.nc")):
        with h5py.File(path) as file:
            values.append(file["tas"][:])
            units, calendar = (file["time"].attrs[name] for name in ("units", "calendar"))
            units, calendar = (
                text.decode() if isinstance(text, bytes) else text for text in (units, calendar)
            )
            dates = cftime.num2date(file["time"][:], units, calendar)
            times += [date.isoformat().removesuffix("T00:00:00") for date in dates]
            lat, lon = file["lat"][:], file["lon"][:]
    return np.concatenate(values), times, lat, lon


def lines(response: httpx.Response) -> tuple[dict[str, Any], list[Any], Any]:
    """What a series is, its labels, and its values."""
    assert response.status_code == 200, response.text
    head, *batches, end = map(json.loads, response.text.splitlines())
    assert end == {"done": True}
    starts = [batch["start"] for batch in batches]
    assert starts == np.cumsum([0, *(len(batch["values"]) for batch in batches[:-1])]).tolist()
    labels = [label for batch in batches for label in batch["labels"]]
    values = [np.nan if n is None else n for batch in batches for n in batch["values"]]
    assert len(labels) == len(values) == head["n"]
    return head, labels, np.array(values)


def test_a_series_at_a_point(cube_series: str, whole: Any) -> None:
    values, times, lat, lon = whole
    head, labels, found = lines(httpx.get(f"{cube_series}/tas?lat={lat[3]}&lon={lon[7]}"))
    assert (head["along"], head["mean_of"], head["units"]) == ("time", 1, "K")
    assert labels == times
    np.testing.assert_array_equal(found.astype("f4"), values[:, 3, 7])
    _, _, by_number = lines(httpx.get(f"{cube_series}/tas?at=5:90:4,3,7"))
    np.testing.assert_array_equal(by_number.astype("f4"), values[5:90:4, 3, 7])
    _, labels, across = lines(httpx.get(f"{cube_series}/tas?along=lon&at=9,3,:"))
    np.testing.assert_allclose(labels, lon)
    np.testing.assert_array_equal(across.astype("f4"), values[9, 3])


def test_the_mean_of_a_box(cube_series: str, whole: Any) -> None:
    values, _, lat, lon = whole
    head, _, found = lines(
        httpx.get(f"{cube_series}/tas?lat={lat[2]}/{lat[6]}&lon={lon[4]}/{lon[9]}")
    )
    assert head["mean_of"] == 30
    np.testing.assert_allclose(found, values[:, 2:7, 4:10].mean((1, 2), "f8"), rtol=1e-12)


def test_packed_and_missing_values(small_series: str) -> None:
    assert lines(httpx.get(f"{small_series}/p?at=:,0"))[2].tolist()[:1] == [10.5]
    np.testing.assert_array_equal(
        lines(httpx.get(f"{small_series}/p?at=:,0"))[2], [10.5, np.nan, np.nan]
    )
    for name in ("p", "floats"):  # bounds of unpacked values are none
        got = lines(httpx.get(f"{small_series}/{name}?at=:,:"))[2]
        np.testing.assert_array_equal(got, [10.75, 12, np.nan])
    np.testing.assert_array_equal(lines(httpx.get(f"{small_series}/signed"))[2], [1, np.nan, -2])


def test_long_integers_and_nanoseconds(small_series: str) -> None:
    """As they are: floats hold neither."""
    told = [json.loads(line) for line in httpx.get(f"{small_series}/ids").text.splitlines()]
    assert told[1]["values"] == [2**53 + 1, None, -(2**60) - 1]
    times = [f"2023-11-14T22:13:20{part}" for part in ("", ".001000", ".002000")]
    assert told[1]["labels"] == times
    rows = httpx.get(f"{small_series}/ids?format=csv").text.split()
    assert rows[1:] == [f"{times[0]},{2**53 + 1}", f"{times[1]},", f"{times[2]},{-(2**60) - 1}"]
    chosen = httpx.get(f"{small_series}/ids?ns=2023-11-14T22:13:20.001/2023-11-14T22:13:20.002")
    assert json.loads(chosen.text.splitlines()[0])["n"] == 2


def test_as_csv(cube_series: str, whole: Any) -> None:
    values, times, *_ = whole
    response = httpx.get(f"{cube_series}/tas?at=:,3,7&format=csv")
    assert response.headers["content-type"].startswith("text/csv")
    head, *rows = csv.reader(response.text.splitlines())
    assert head == ["time", "tas"]
    assert [row[0] for row in rows] == times
    np.testing.assert_array_equal(np.array([row[1] for row in rows]).astype("f4"), values[:, 3, 7])
    assert httpx.head(f"{cube_series}/tas").content == b""


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ("p?along=y", 400, "along one of t, x"),
        ("p?format=xlsx", 400, "format is one of ndjson, csv"),
        ("p?at=9,0", 400, "t has 3 elements, so there is no 9"),
        ("one", 400, "is a single value, and no series"),
        ("text", 400, "a series is of numbers"),
        ("wide?along=y", 413, "a series has at most 10000000 elements"),
        ("wide?along=y&at=:9000000,:", 413, "this series needs chunks of"),
        ("wide?along=x&at=:99999999,:9", 413, "a mean is of at most 16777216 elements"),
    ],
)
def test_series_that_cannot_be_meant_are_refused(
    small_series: str, asked: str, status: int, words: str
) -> None:
    response = httpx.get(f"{small_series}/{asked}")
    assert (response.status_code, words in response.text) == (status, True), response.text


def test_values_come_as_they_are_read_and_no_more_when_nobody_waits() -> None:
    group = VirtualGroup({"a": holes((4096, 4096), (4, 4096 * 512))})
    app = create_app({"m": group}, access_log=False)
    catalog = app.site.find("m")
    slow = vars(catalog)["looks"] = Slow(catalog.reader.reader.ranges)
    with running(app) as url:
        with httpx.stream("GET", f"{url}/m/series/a?at=:,7") as response:
            came = response.iter_lines()
            head = json.loads(next(came))
            assert json.loads(next(came))["start"] == 0
            assert slow.n_read < 20  # of 1,024 rows of chunks
        assert head["n"] == 4096
        time.sleep(0.2)
        n_read = slow.n_read
        time.sleep(0.2)
        assert slow.n_read == n_read < 100


def test_a_source_that_is_gone_is_told_at_the_end(sample_data: Path, tmp_path: Path) -> None:
    paths = []
    for path in sorted(sample_data.glob("*.nc"))[:2]:
        (tmp_path / path.name).write_bytes(path.read_bytes())
        paths.append(tmp_path / path.name)
    gridref.build(paths, tmp_path / "two.gridref", "time")
    with running(create_app([tmp_path / "two.gridref"], access_log=False)) as url:
        paths[1].unlink()
        response = httpx.get(f"{url}/two/series/tas?along=lat&at=40,:,7")
    head, end = map(json.loads, response.text.splitlines())
    assert head["array"] == "tas"
    assert paths[1].name in end["error"]
    assert str(tmp_path) not in response.text


def test_an_overlay_is_read_where_it_is_faster(catalog: Path, tmp_path: Path, whole: Any) -> None:
    copy = shutil.copytree(catalog, tmp_path / "cube.gridref")
    gridref.open_catalog(copy).rechunk("tas", {"time": -1, "lat": 5, "lon": 5})
    with running(create_app([copy], access_log=False)) as url:
        head, _, found = lines(httpx.get(f"{url}/cube/series/tas?at=:,3,7"))
    np.testing.assert_array_equal(found.astype("f4"), whole[0][:, 3, 7])
    assert head["chunk_bytes"] == whole[0].shape[0] * 5 * 5 * 4


def test_the_only_range_is_what_it_is_along(cube_series: str, whole: Any) -> None:
    head, _, found = lines(httpx.get(f"{cube_series}/tas?at=9,:,7"))
    assert head["along"] == "lat"
    np.testing.assert_array_equal(found.astype("f4"), whole[0][9, :, 7])


LAT, LON = np.arange(-29.5, 30), np.arange(0.25, 40, 0.5)
NORTH = 40 + np.cumsum(np.linspace(0.000995, 0.001005, 1000))  # steps alike, places half a step off
LCC = pyproj.CRS.from_cf(
    {
        "grid_mapping_name": "lambert_conformal_conic",
        "standard_parallel": [25.0, 25.0],
        "longitude_of_central_meridian": 265.0,
        "latitude_of_projection_origin": 25.0,
        "earth_radius": 6371229.0,
    }
)


def model() -> xr.Dataset:
    """Packed numbers on ascending latitudes, with bounds, texts, and coordinates of all kinds."""
    stored = np.random.default_rng(1).integers(-3000, 3000, (5, len(LAT), len(LON)), "i2")
    stored[:, :3] = -9999
    dims = ("time", "lat", "lon")
    packing = {"scale_factor": 0.01, "add_offset": 273.15, "_FillValue": np.int16(-9999)}
    told = {"units": "K", "long_name": "air temperature", "grid_mapping": "crs"}
    edges = np.stack([LAT - 0.5, LAT + 0.5], 1)
    north = {"units": "degrees_north", "standard_name": "latitude", "bounds": "lat_bnds"}
    bands = xr.DataArray(np.arange(5 * 6 * 4.0).reshape(5, 6, 4), dims=("band", "lat", "x"))
    return xr.Dataset(
        {
            "tas": (dims, stored, {**told, **packing, "coordinates": "height name area"}),
            "crs": ((), 0, {"crs_wkt": pyproj.CRS.from_epsg(4258).to_wkt()}),
            "lat_bnds": (("lat", "b"), edges),
            "height": ((), 2.0, {"units": "m"}),
            "area": (("lat", "lon"), np.outer(np.cos(np.radians(LAT)), np.ones(len(LON)))),
            "name": ("time", np.array(["a", "bcd", "ü", "", "e"], object)),
            "wet": (("lat", "lon"), stored[0] > 0),
            "halved": (("lat", "lon"), stored[0].astype("f2")),
            "alone": bands[:, 0],
            "stretched": (("north", "lon"), np.zeros((len(NORTH), len(LON)))),
        },
        {
            "north": ("north", NORTH, {"units": "degrees_north"}),
            "time": ("time", [0, 31, 59, 90, 120], {"units": "days since 2023-01-01"}),
            "lat": ("lat", LAT, north),
            "lon": ("lon", LON.astype("f4"), {"units": "degrees_east"}),
        },
        {"title": "a test", "levels": [1, 2], "Conventions": "CF-1.11"},
    )


def projected() -> xr.Dataset:
    """Kilometres of a Lambert projection without a code; rows run north."""
    attrs = {"grid_mapping": "lcc", "units": "mm", "_FillValue": np.float32(-1)}
    rain = np.arange(3 * 300 * 400, dtype="f4")
    return xr.Dataset(
        {
            "rain": (("member", "y", "x"), rain.reshape(3, 300, 400), attrs),
            "turned": (("x", "y", "member"), rain.reshape(3, 300, 400).T, attrs),
            "lcc": ((), 0, LCC.to_cf()),
        },
        {
            name: (name, 3.0 * np.arange(n), {"units": "km", "standard_name": known})
            for name, n, known in (
                ("y", 300, "projection_y_coordinate"),
                ("x", 400, "projection_x_coordinate"),
            )
        },
    )


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("files")
    options = {"zlib": True, "chunksizes": (1, 20, 30)}
    own = {"engine": "h5netcdf", "invalid_netcdf": True}  # numbers of two bytes
    model().to_netcdf(folder / "model.nc", encoding={"tas": options}, **own)
    options = {"zlib": True, "chunksizes": (1, 90, 90)}
    projected().to_netcdf(folder / "projected.nc", encoding={"rain": options})
    group = VirtualGroup(
        {
            "large": holes((2**20, 2**20), (2**12, 2**12)),
            "spin": VirtualArray.from_numpy(np.zeros((3, 3), "c8"), ("y", "x")),
            "one": VirtualArray.from_numpy(np.float32(3), ()),
            "long": VirtualArray.from_numpy(
                np.zeros((2, 2), "i8"), ("lat", "lon"), {"_FillValue": np.int64(2**53 + 1)}
            ),
            "lat": VirtualArray.from_numpy(np.arange(2.0), ("lat",), {"units": "degrees_north"}),
            "lon": VirtualArray.from_numpy(np.arange(2.0), ("lon",), {"units": "degrees_east"}),
        },
        attrs={"nested": {"a": [1, None]}, "flag": True},
    )
    scanned = {name: gridref.scan(folder / f"{name}.nc") for name in ("model", "projected")}
    with running(create_app({**scanned, "m": group}, access_log=False)) as url:
        yield url


def asked(url: str, **query: str) -> bytes:
    response = httpx.get(url, params=query)
    assert response.status_code == 200, response.text
    assert int(response.headers["content-length"]) == len(response.content)
    return response.content


@pytest.mark.parametrize(
    ("name", "at", "part"),
    [
        ("tas", "1:4,10:50:3,7", {"time": slice(1, 4), "lat": slice(10, 50, 3), "lon": 7}),
        ("tas", "2,:,5:6", {"time": 2, "lon": slice(5, 6)}),
        ("wet", "0:9,:", {"lat": slice(0, 9)}),
        ("halved", ":,:", {}),
        ("name", "1:", {"time": slice(1, None)}),
        ("lat_bnds", "4,:", {"lat": 4}),
        ("crs", None, {}),
    ],
)
@pytest.mark.parametrize("is_decoded", [True, False])
def test_netcdf_is_the_selection(
    models: str, name: str, at: str | None, part: Any, is_decoded: bool
) -> None:
    body = asked(f"{models}/model/download/{name}", **({} if at is None else {"at": at}))
    cube = xr.open_zarr(f"{models}/model/portable", consolidated=False, decode_cf=is_decoded)
    for engine in ("h5netcdf", "netcdf4"):
        with tempfile.NamedTemporaryFile(suffix=".nc") as kept:
            kept.write(body)
            kept.flush()
            with xr.open_dataset(kept.name, engine=engine, decode_cf=is_decoded) as file:
                found = file.load()
        names = [each for each in found.variables if each in cube.variables]
        assert set(names) == set(found.variables)
        expected = cube[[*names]].isel(part).load()
        if not is_decoded:  # the file lists all coordinates, among them those of one element
            for each in (found, expected):
                each[name].attrs.pop("coordinates", None)
                each[name].attrs.pop("dtype", None)
            expected = expected.reset_coords(drop=False)
            found = found.reset_coords(drop=False)
            np.testing.assert_array_equal(found[name], expected[name])
            continue
        if name in set(expected.coords) - set(expected.dims):
            expected = expected.reset_coords(name)
        for text in [each for each in found.variables if found[each].dtype.kind == "U"]:
            expected[text] = expected[text].astype(found[text].dtype)
        xr.testing.assert_identical(found, expected)
        if name == "tas":
            assert set(names) >= {"time", "lat", "lon", "height", "name", "area", "lat_bnds", "crs"}


@contextmanager
def raster(url: str, **query: str) -> Iterator[Any]:
    """The GeoTIFF file that the server sends, as rasterio opens it."""
    # GDAL reads the bytes of the memory file where they lie: it must outlive the open file.
    with (
        rasterio.MemoryFile(asked(url, format="geotiff", **query)) as memory,
        memory.open() as file,
    ):
        yield file


def test_geotiff_is_the_window_with_north_up(models: str) -> None:
    with raster(f"{models}/projected/download/rain", at="0:3:2,10:290,20:390") as file:
        expected = projected()["rain"][::2, 10:290, 20:390]
        np.testing.assert_array_equal(file.read(), expected[:, ::-1])
        # Edges are half a cell of three kilometres beyond the first column, and the last row.
        assert np.allclose(
            file.transform.to_gdal(), (58_500, 3000, 0, 868_500, 0, -3000), atol=1e-6
        )
        kept = pyproj.CRS.from_wkt(file.crs.to_wkt())
        there = pyproj.Transformer.from_crs(kept, LCC, always_xy=True)
        assert np.allclose(there.transform(60_000, 867_000), (60_000, 867_000), atol=1)
        assert (file.nodata, file.descriptions) == (-1, ("member 0", "member 2"))
        assert set(file.units) == {"mm"}
        turned = {"at": "20:390,10:290,0:3:2"}
        with raster(f"{models}/projected/download/turned", **turned) as other:
            np.testing.assert_array_equal(other.read(), file.read())
            assert (other.transform, other.descriptions) == (file.transform, file.descriptions)


def test_geotiff_of_packed_numbers_on_latitudes(models: str) -> None:
    with raster(f"{models}/model/download/tas", at="1,:,4:60") as file:
        with xr.open_zarr(f"{models}/model/portable", consolidated=False) as cube:
            expected = cube["tas"][1, ::-1, 4:60].load()
        read = file.read(1, masked=True)
        values = read * file.scales[0] + file.offsets[0]
        np.testing.assert_array_equal(read.mask, expected.isnull())
        np.testing.assert_allclose(values.filled(np.nan), expected, rtol=1e-5)
        assert file.crs.to_epsg() == 4258
        assert np.allclose(file.transform.to_gdal(), (2, 0.5, 0, 30, 0, -1))
        assert file.tags()["long_name"] == "air temperature"


@pytest.mark.parametrize(
    ("path", "query", "status", "said"),
    [
        ("m/download/large", {}, 413, "ask for a smaller part"),
        ("m/download/spin", {}, 400, "NetCDF has no type for values that are complex64"),
        ("m/download/spin", {"format": "geotiff"}, 400, "values are complex64"),
        ("m/download/one", {"format": "geotiff"}, 400, "it has no rows and columns"),
        ("m/download/long", {"format": "geotiff"}, 400, "would round 9007199254740993"),
        ("m/download/one", {"format": "grib"}, 400, "format is one of netcdf, geotiff"),
        ("m/download/none", {}, 404, "nothing is here"),
        ("model/download/alone", {"format": "geotiff"}, 400, "NetCDF holds any array"),
        ("model/download/stretched", {"format": "geotiff"}, 400, "north are not evenly spaced"),
        ("model/download/tas", {"format": "geotiff", "at": "1,2,:"}, 400, "it needs a range"),
        ("model/download/tas", {"at": "9,:,:"}, 400, "9"),
    ],
)
def test_files_that_cannot_be_made_are_refused(
    models: str, path: str, query: dict[str, str], status: int, said: str
) -> None:
    response = httpx.get(f"{models}/{path}", params=query)
    assert (response.status_code, said in response.text) == (status, True), response.text


FILLS = [np.nan, 1e20, 0.5, 40_000, "x", -1]
"""Of which only the last one is an integer of 16 bits."""


def test_fill_values_that_no_element_equals_mask_none(tmp_path: Path) -> None:
    values = np.array([[0, 1], [-1, -32768]], "i2")
    arrays = {
        str(n): VirtualArray.from_numpy(values, ("y", "x"), {"_FillValue": fill})
        for n, fill in enumerate(FILLS)
    }
    signed = {"_FillValue": 255, "_Unsigned": "true"}
    arrays["signed"] = VirtualArray.from_numpy(values.astype("i1"), ("y", "x"), signed)
    group = VirtualGroup(arrays)
    gridref.interchange.to_cf_aggregation(group, tmp_path / "a.nc")
    exported = xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf")
    with running(create_app({"m": group}, access_log=False)) as url:
        for name in arrays:
            expected = np.where(values == -1, np.nan, values) if name == "5" else values
            if name == "signed":
                expected = [[0, 1], [np.nan, 0]]
            content = httpx.get(f"{url}/m/download/{name}").content
            with xr.open_dataset(io.BytesIO(content), engine="h5netcdf") as made:
                np.testing.assert_array_equal(made[name], expected)
            np.testing.assert_array_equal(exported[name], expected)


def test_browsers_keep_the_file_under_the_name_of_the_array(models: str) -> None:
    head = httpx.head(f"{models}/model/download/tas", params={"format": "geotiff", "at": "1,:,:"})
    assert (head.status_code, head.headers["content-type"]) == (200, "image/tiff")
    assert head.headers["content-disposition"] == "attachment; filename*=UTF-8''tas.tif"


def test_nothing_is_left_of_files_that_nobody_fetches(
    models: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with httpx.stream("GET", f"{models}/projected/download/rain") as response:
        assert next(response.iter_raw(1000))
    for _ in range(100):
        if not [*tmp_path.iterdir()]:
            break
        time.sleep(0.05)
    assert not [*tmp_path.iterdir()]
