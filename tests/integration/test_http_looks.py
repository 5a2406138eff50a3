"""What the server works out of values: looks at planes, compared with numpy."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import httpx
import numpy as np
import pytest
from numcodecs import Zstd

import gridref
from gridref.faces.http import app, create_app
from gridref.faces.web.look import LOOK_BYTES, look_at
from gridref.faces.web.part import Part
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.testing.builders import chunked_array
from tests.slow_reads import Slow, holes
from tests.uvicorn_server import running

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
def served(large: Path) -> Iterator[str]:
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


def test_a_first_look_is_every_so_many_elements(served: str, large: Path) -> None:
    with h5py.File(large) as file:
        whole = file["tas"][1]
    header, values = read(httpx.get(f"{served}/cube/look/tas?time=2023-02-01"))
    rows, columns = (
        range(header[s]["first"], n, header[s]["step"])
        for s, n in (("rows", 1250), ("columns", 5000))
    )
    assert header["shape"] == [len(rows), len(columns)] == [250, 1000]
    np.testing.assert_array_equal(
        values, whole[rows.start :: rows.step, columns.start :: columns.step]
    )
    _, part = read(httpx.get(f"{served}/cube/look/tas?at=1,700:900,4000:4300"))
    np.testing.assert_array_equal(part, whole[700:900, 4000:4300])
    _, steps = read(httpx.get(f"{served}/cube/look/tas?at=1,5::9,7:2000:3"))
    np.testing.assert_array_equal(steps, whole[5::9, 7:2000:3])
    _, turned = read(httpx.get(f"{served}/cube/look/tas?at=:,7,3::5"))
    with h5py.File(large) as file:
        np.testing.assert_array_equal(turned, file["tas"][:, 7, 3::5])


def test_what_travels_is_compressed(served: str, large: Path) -> None:
    stored = large.stat().st_size / 3
    for address in ("look/tas?at=0,:,:", "portable/tas/c/0/0/0?compressed"):
        sizes = {}
        for coding in ("zstd", "gzip", "identity"):
            with httpx.stream(
                "GET", f"{served}/cube/{address}", headers={"Accept-Encoding": coding}
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
    plain = httpx.get(f"{served}/cube/portable/tas/c/0/0/0", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in plain.headers  # only who asks for it makes the server work
    part = httpx.get(
        f"{served}/cube/portable/tas/c/0/0/0?compressed", headers={"Range": "bytes=4-11"}
    )
    assert part.status_code == 206
    assert part.content == plain.content[4:12]


def test_what_is_unchanged_does_not_travel_again(served: str) -> None:
    first = httpx.get(f"{served}/small/look/a")
    again = httpx.get(f"{served}/small/look/a", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert httpx.head(f"{served}/small/look/a").content == b""


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ("look/a?at=1", 400, "has 1 parts, but the dimensions are t, x"),
        ("look/a?at=:,:,:", 400, "has 3 parts"),
        ("look/a?at=1,2", 400, "a look has two dimensions; at= gives ranges along 0"),
        ("look/a?at=99,:", 400, "t has 10 elements, so there is no 99"),
        ("look/a?at=50:60,:", 400, "takes none of the 10 elements of t"),
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
def test_what_cannot_be_meant_is_said(served: str, asked: str, status: int, words: str) -> None:
    response = httpx.get(f"{served}/small/{asked}")
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
def test_labels_that_are_not_there(served: str, asked: str, words: str) -> None:
    response = httpx.get(f"{served}/cube/look/tas?{asked}")
    assert (response.status_code, words in response.text) == (400, True), response.text


def test_labels_choose_as_xarray_does(served: str, large: Path) -> None:
    with h5py.File(large) as file:
        rows = np.flatnonzero((LATITUDES >= 40) & (LATITUDES <= 50))
        expected = file["tas"][2, rows[0] : rows[-1] + 1, 4995:]
    _, values = read(httpx.get(f"{served}/cube/look/tas?time=2023-03-02&lat=50/40&lon=-0.37/-0.06"))
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("chunk", [(1, 65_536), (2048, 2048), (65_536, 64)])
def test_the_cost_of_a_look_is_bounded(chunk: tuple[int, int]) -> None:
    array = holes((65_536, 65_536), chunk)
    look = look_at(Part("a", array, (range(65_536), range(65_536))))
    assert look.n_bytes <= LOOK_BYTES


def test_a_chunk_that_costs_too_much_alone(served: str) -> None:
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


def test_too_many_that_wait_are_sent_away(served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MOST_WAITING", 0)
    response = httpx.get(f"{served}/small/look/a")
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert "ask again" in response.text
