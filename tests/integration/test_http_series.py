"""Series that the server reads at points and over boxes: compared with h5py, streamed, bounded."""

from __future__ import annotations

import csv
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cftime
import h5py
import httpx
import numpy as np
import pytest

import gridref
from gridref.faces.http import create_app
from gridref.model.array import VirtualArray, VirtualGroup
from tests.slow_reads import Slow, holes
from tests.uvicorn_server import running


@pytest.fixture(scope="module")
def catalog(sample_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("catalogs") / "cube.gridref"
    gridref.build(sorted(sample_data.glob("*.nc")), path, "time")
    return path


@pytest.fixture(scope="module")
def served(catalog: Path) -> Iterator[str]:
    packed = np.array([[1, 2], [-9, 4], [-9, -9]], "i2")
    attrs = {"scale_factor": 0.5, "add_offset": 10.0, "_FillValue": np.int16(-9)}
    group = VirtualGroup(
        {
            "p": VirtualArray.from_numpy(packed, ("t", "x"), attrs),
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
def cube(served: str) -> str:
    return f"{served.split(maxsplit=1)[0]}/cube/series"


@pytest.fixture(scope="module")
def small(served: str) -> str:
    return f"{served.split()[1]}/m/series"


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


def test_a_series_at_a_point(cube: str, whole: Any) -> None:
    values, times, lat, lon = whole
    head, labels, found = lines(httpx.get(f"{cube}/tas?lat={lat[3]}&lon={lon[7]}"))
    assert (head["along"], head["mean_of"], head["units"]) == ("time", 1, "K")
    assert labels == times
    np.testing.assert_array_equal(found.astype("f4"), values[:, 3, 7])
    _, _, by_number = lines(httpx.get(f"{cube}/tas?at=5:90:4,3,7"))
    np.testing.assert_array_equal(by_number.astype("f4"), values[5:90:4, 3, 7])
    _, labels, across = lines(httpx.get(f"{cube}/tas?along=lon&at=9,3,:"))
    np.testing.assert_allclose(labels, lon)
    np.testing.assert_array_equal(across.astype("f4"), values[9, 3])


def test_the_mean_of_a_box(cube: str, whole: Any) -> None:
    values, _, lat, lon = whole
    head, _, found = lines(httpx.get(f"{cube}/tas?lat={lat[2]}/{lat[6]}&lon={lon[4]}/{lon[9]}"))
    assert head["mean_of"] == 30
    np.testing.assert_allclose(found, values[:, 2:7, 4:10].mean((1, 2), "f8"), rtol=1e-12)


def test_packed_and_missing_values(small: str) -> None:
    assert lines(httpx.get(f"{small}/p?at=:,0"))[2].tolist()[:1] == [10.5]
    np.testing.assert_array_equal(lines(httpx.get(f"{small}/p?at=:,0"))[2], [10.5, np.nan, np.nan])
    np.testing.assert_array_equal(lines(httpx.get(f"{small}/p?at=:,:"))[2], [10.75, 12, np.nan])


def test_as_csv(cube: str, whole: Any) -> None:
    values, times, *_ = whole
    response = httpx.get(f"{cube}/tas?at=:,3,7&format=csv")
    assert response.headers["content-type"].startswith("text/csv")
    head, *rows = csv.reader(response.text.splitlines())
    assert head == ["time", "tas"]
    assert [row[0] for row in rows] == times
    np.testing.assert_array_equal(np.array([row[1] for row in rows]).astype("f4"), values[:, 3, 7])
    assert httpx.head(f"{cube}/tas").content == b""


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
def test_what_is_refused_is_said(small: str, asked: str, status: int, words: str) -> None:
    response = httpx.get(f"{small}/{asked}")
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


def test_the_only_range_is_what_it_is_along(cube: str, whole: Any) -> None:
    head, _, found = lines(httpx.get(f"{cube}/tas?at=9,:,7"))
    assert head["along"] == "lat"
    np.testing.assert_array_equal(found.astype("f4"), whole[0][9, :, 7])
