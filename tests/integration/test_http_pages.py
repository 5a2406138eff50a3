"""What `gridref serve` answers that is not a key: pages, JSON for programs, and what pages ask."""

from __future__ import annotations

import dataclasses
import html
import re
from pathlib import Path

import httpx
import numpy as np
import pytest

import gridref
from gridref.faces.http import create_app
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.blocks import BlockTable
from gridref.model.grid import ChunkGrid
from gridref.testing.builders import chunked_array
from tests.map_columns import map_columns
from tests.uvicorn_server import BROWSER, running

VALUES = np.arange(20 * 6, dtype="i4").reshape(20, 6)
HOSTILE = "\"><script>alert(1)<'&"


@pytest.fixture(scope="module")
def catalog(sample_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("catalogs") / "cube.gridref"
    gridref.build(sorted(sample_data.glob("*.nc")), path, "time")
    return path


@pytest.fixture(scope="module")
def served(catalog: Path):
    array = chunked_array(VALUES, (5, 3), ("t", HOSTILE), compressed=True, absent=(0,))
    array = array.with_changes(attrs={HOSTILE: HOSTILE, "units": HOSTILE})
    below = VirtualGroup({"ä b": chunked_array(VALUES, (5, 3), ("t", "x"))})
    hostile = VirtualGroup(
        {HOSTILE: array}, {"deep": below}, attrs={"title": HOSTILE, "list": [HOSTILE]}
    )
    apps = create_app([catalog], access_log=False), create_app({"bad": hostile}, access_log=False)
    with running(apps[0]) as cube, running(apps[1]) as bad:
        yield {"cube": cube, "bad": bad}


@pytest.mark.parametrize("path", ["/", "/cube"])
def test_browsers_get_pages_and_programs_what_they_got(served, path):
    url = served["cube"] + path
    for accept in ("*/*", "application/json", None):
        headers = {} if accept is None else {"Accept": accept}
        response = httpx.get(url, headers=headers)
        assert response.headers["content-type"] == "application/json"
        response.json()
    response = httpx.get(url, headers=BROWSER)
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "Accept" in response.headers["vary"]
    assert httpx.head(url, headers=BROWSER).content == b""


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/cub", "There is no catalog 'cub' here: did you mean 'cube'?"),
        ("/cube/portabel/", "The catalog 'cube' has no page 'portabel': did you mean 'portable'?"),
        ("/cube/portable/tass/zarr.json", "has no 'tass': did you mean 'tas'"),
        ("/cube/array/tass", "has no 'tass': did you mean 'tas'"),
        ("/cube/native/tass/c/0/0/0", "has no 'tass': did you mean 'tas'"),
        ("/cube/native/completely/else", "has no 'completely/else'."),
        ("/cube/native/daily_2023-01.nc", "has no 'daily_2023-01.nc'."),
    ],
)
def test_addresses_of_nothing_name_what_is_near(served, path, told):
    found = httpx.get(served["cube"] + path, headers=BROWSER)
    assert found.status_code == 404
    assert found.headers["content-type"] == "text/html; charset=utf-8"
    assert told in html.unescape(found.text)
    program = httpx.get(served["cube"] + path)
    assert (program.status_code, "did you mean" in program.text) == (404, False)


def test_pages_run_nothing_but_own_scripts(served):
    for path in ("/", "/cube", "/cube/array/tas", "/nowhere"):
        response = httpx.get(served["cube"] + path, headers=BROWSER)
        policy = dict(
            rule.strip().partition(" ")[::2]
            for rule in response.headers["content-security-policy"].split(";")
        )
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == "'self'"
        assert policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
        assert "style=" not in response.text
        assert not re.search(r"<script(?![^>]* src=)|\son\w+=", response.text)


def test_whatever_a_catalog_says_is_text(served):
    pages = [
        httpx.get(served["bad"] + path, headers=BROWSER).text
        for path in ("/", "/bad", f"/bad/array/{HOSTILE}", f"/bad/array/{HOSTILE}%23", "/<script>")
    ]
    assert all("<script>" not in page for page in pages)
    assert all("&lt;script&gt;alert(1)" in page for page in pages[:3])


def test_names_with_anything_in_them_have_pages(served):
    page = httpx.get(served["bad"] + "/bad", headers=BROWSER).text
    links = re.findall(r'href="([^"]*/array/[^"]*)"', page)
    assert len(links) == 2
    for link in links:
        found = httpx.get(str(httpx.URL(served["bad"] + "/bad").join(link)), headers=BROWSER)
        assert found.status_code == 200


def test_trees_of_any_depth_have_a_page():
    group = VirtualGroup({"a": chunked_array(VALUES, (5, 3), ("t", "x"))})
    for _ in range(200):
        group = VirtualGroup({}, {"g": group})
    with running(create_app({"deep": group}, access_log=False)) as url:
        page = httpx.get(f"{url}/deep", headers=BROWSER)
        assert page.status_code == 200
        assert f"/array/{'g/' * 200}a" in page.text


def test_more_chunks_than_memory_has_room_for():
    blocks = BlockTable.single((2**50,), (1,))
    blocks = dataclasses.replace(blocks, row_stride=np.zeros_like(blocks.row_stride))
    one = VirtualArray.from_numpy(np.zeros(1, "u1"), ("x",))
    array = one.with_changes(grid=ChunkGrid.regular((2**50,), (2**50,)), blocks=blocks)
    with running(create_app({"m": VirtualGroup({"a": array})}, access_log=False)) as url:
        page = httpx.get(f"{url}/m/array/a", headers=BROWSER)
        assert page.status_code == 200
        assert str(2**50) in page.text
        assert "more than" in httpx.get(f"{url}/m/chunks/a").text
        assert httpx.get(f"{url}/m/sizes/a").json()["left_out"] == 2**50 - 2**21
        assert httpx.get(f"{url}/m/place/a?at=12345678901").json()["state"] == "inline"


def test_arrays_that_zarr_cannot_show_have_a_page():
    array = VirtualArray.from_numpy(np.zeros(3, np.longdouble), ("x",))
    with running(create_app({"m": VirtualGroup({"a": array})}, access_log=False)) as url:
        assert "not shown as Zarr" in httpx.get(f"{url}/m", headers=BROWSER).text
        page = httpx.get(f"{url}/m/array/a", headers=BROWSER)
        assert page.status_code == 200
        assert "Zarr cannot show them" in page.text


@pytest.mark.parametrize(
    "values",
    [
        np.array([1 + 2j], "c8"),
        np.array([b"ab", b"c"]),
        np.zeros(2, [("a", "i4"), ("b", "f8")]),
    ],
    ids=["complex", "bytes", "compound"],
)
def test_values_that_the_viewer_does_not_show_are_told(values):
    group = VirtualGroup({"a": VirtualArray.from_numpy(values, ("x",))})
    with running(create_app({"m": group}, access_log=False)) as url:
        page = httpx.get(f"{url}/m/array/a", headers=BROWSER).text
    assert "The viewer shows numbers and texts" in page
    assert 'id="viewer"' not in page


def test_no_page_says_where_files_lie(served, catalog, sample_data):
    for path in ("/", "/cube", "/cube/array/tas", "/cube/place/tas?at=0,0,0", "/cube/extent"):
        text = httpx.get(served["cube"] + path, headers=BROWSER).text
        assert str(sample_data) not in text
        assert str(catalog.parent) not in text
    assert "daily_2023-01.nc" in httpx.get(served["cube"] + "/cube", headers=BROWSER).text


def test_extents_come_from_the_coordinates(served):
    assert httpx.get(served["cube"] + "/cube/extent").json() == [
        {"name": "time", "first": "2023-01-01T12:00:00", "last": "2024-02-29T12:00:00"},
        {"name": "lat", "first": "85.5° S", "last": "85.5° N"},
        {"name": "lon", "first": "4.5° E", "last": "355.5° E"},
    ]


def chunk_map(url: str):
    return map_columns(httpx.get(url).content)


@pytest.mark.parametrize("name", ["tas", "time", "time_bnds", "lat"])
def test_the_chunk_map_is_what_the_catalog_lists(served, catalog, name):
    listed = gridref.open_catalog(catalog).chunks(name).to_pylist()
    axes = sorted(
        sorted(
            range(len(listed[0]["chunk"])), key=lambda axis: -max(c["chunk"][axis] for c in listed)
        )[:2]
    )
    shown = [c for c in listed if all(at == 0 or i in axes for i, at in enumerate(c["chunk"]))]
    header, rows, columns, stored, source, _ = chunk_map(f"{served['cube']}/cube/chunks/{name}")
    assert header["rows"] * header["columns"] == len(shown)
    starts = [rows, columns][-len(axes) :]
    for chunk in shown:
        place = [chunk["chunk"][axis] for axis in axes]
        at = place[-1] + (place[0] * header["columns"] if len(axes) == 2 else 0)
        assert stored[at] == chunk["stored_bytes"]
        assert (source[at] != 2**32 - 1) == (chunk["state"] == "range")
        assert [s[p] for s, p in zip(starts, place, strict=True)] == [
            chunk["start"][axis] for axis in axes
        ]


def test_missing_chunks_are_missing_on_the_map(served):
    *_, state = chunk_map(f"{served['bad']}/bad/chunks/{HOSTILE}")
    assert state.reshape(4, 2)[0, 0] == 0
    assert (state == 0).sum() == 1


def test_where_an_element_is_stored(served, catalog):
    for chunk in gridref.open_catalog(catalog).chunks("tas").to_pylist()[::29]:
        at = ",".join(str(stop - 1) for stop in chunk["stop"])
        told = httpx.get(f"{served['cube']}/cube/place/tas?at={at}").json()
        assert told["source"] == chunk["source"].rpartition("/")[2]
        assert (told["offset"], told["length"]) == (chunk["offset"], chunk["length"])


@pytest.mark.parametrize(
    "path",
    ["chunks/tas?at=9", "chunks/tas?at=0,0", "chunks/tas?at=x", "place/tas?at=1", "place/tas",
     "place/tas?at=0,0,40", "place/tas?at=-1,0,0", "place/tas?at=99999999999999999999,0,0"],
)  # fmt: skip
def test_what_is_not_there_is_refused(served, path):
    assert httpx.get(f"{served['cube']}/cube/{path}").status_code == 400


@pytest.mark.parametrize(
    "path",
    ["/cube/array/x", "/cube/chunks/", "/cube/other/tas", "/.assets/..%2Fpages.py", "/.assets/x"],
)
def test_other_addresses_have_nothing(served, path):
    assert httpx.get(served["cube"] + path).status_code == 404
    assert httpx.get(served["cube"] + path, headers=BROWSER).status_code == 404


def test_assets_are_kept_by_browsers(served):
    page = httpx.get(served["cube"], headers=BROWSER)
    for link in re.findall(r'(?:href|src)="(\.assets/[^"]*)"', page.text):
        response = httpx.get(f"{served['cube']}/{link}")
        assert response.status_code == 200
        assert "immutable" in response.headers["cache-control"]
        packed = httpx.get(f"{served['cube']}/{link}", headers={"Accept-Encoding": "gzip"})
        assert packed.content == response.content


def test_sources_are_named_below_a_folder_that_tells_nothing():
    from gridref.faces.web.catalog_page import SourceNames

    names = SourceNames(["/srv/data/", "/", "/home/", "s3://bucket/era5/", "https://h/"])
    assert names.name("/srv/data/a/b.nc") == "a/b.nc"
    assert names.name("/home/somebody/b.nc") == "b.nc"
    assert names.name("zip://b.nc::/srv/data/a.zip") == "b.nc::a.zip"
    assert names.name("s3://bucket/era5/1.nc") == "1.nc"
    assert names.name("https://h/x/1.nc?sig=secret") == "x/1.nc"
    assert names.name("https://user:word@h/1.nc") == "1.nc"
