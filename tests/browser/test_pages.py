"""Pages as people use them: in a real browser, by keyboard too, on a phone, in the dark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import h5py
import numpy as np
import pytest

from gridref.faces.http import create_app
from gridref.faces.web.array_page import GRIDLOOK
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Encoding, bytes_codec
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from tests.browser.visits import Visit
from tests.many_catalogs import made
from tests.uvicorn_server import running

NAMES = ("GridLook", "Neuroglancer")
READY = "document.getElementById('chunk-map').dataset.ready"
LOW = """
    [...document.querySelectorAll("a:not(.skip), button, input, select, summary")]
        .map((each) => each.closest("label:has([type=checkbox])") ?? each)
        .filter((each) => each.getClientRects().length)
        .filter((each) => {
            const { width, height } = each.getBoundingClientRect();
            return height < 44 || (each.matches("button") && width < 44);
        })
        .map((each) => each.outerHTML)
"""
"""What is touched and is not 44 pixels high, or buttons that are not as wide."""
BRIGHT = """
    [...document.querySelectorAll("body *")].flatMap((each) => {
        const { width, height } = each.getBoundingClientRect();
        const style = getComputedStyle(each);
        const colours = [style.backgroundColor, each instanceof SVGPathElement ? style.fill : ""];
        const isOfPicture = each.closest(".picture, .colours, .legend, #sizes");
        return isOfPicture || width * height < 2000 ? [] : colours.filter((colour) => {
            const [red, green, blue, alpha = 1] = (colour.match(/[\\d.]+/g) ?? []).map(Number);
            return alpha > 0 && red + green + blue > 600;
        }).map((colour) => `${colour}: ${each.outerHTML.slice(0, 80)}`);
    })
"""
"""Areas that are bright."""
OPAQUE = """
    (() => {
        const canvas = document.querySelector(".preview");
        const { width, height } = canvas;
        const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
        const row = Math.floor(height / 4) * width;
        return [1, 3, 5].map((sixth) => data[4 * (row + Math.floor((sixth * width) / 6)) + 3] > 0);
    })()
"""
VISITORS: dict[str, dict[str, Any]] = {
    "light": {},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 640}, "has_touch": True},
}


@pytest.fixture(scope="module", params=VISITORS)
def visitor(browser: Any, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """A tab of somebody."""
    visit = Visit(browser, **VISITORS[request.param])
    yield visit
    visit.close()


def see_map(visit: Visit, url: str) -> None:
    """Go where the chunk map of a page is."""
    visit.page.goto(url)
    visit.page.locator("#chunk-map").scroll_into_view_if_needed()
    visit.wait(READY)


def test_from_the_list_to_an_array_by_keyboard(visit: Visit, served: str) -> None:
    page = visit.page
    page.goto(served)
    assert page.title() == "gridref"
    page.get_by_text("2023-01-01T12:00:00 … 2024-02-29T12:00:00").wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.get_by_role("link", name="cube").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/cube")
    assert page.get_by_role("heading", level=1).text_content() == "cube"
    assert page.get_by_text("14 files of").count() == 1
    page.get_by_role("link", name="tas", exact=True).focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/cube/array/tas")
    assert page.get_by_role("heading", level=1).text_content() == "tas"
    assert page.get_by_role("navigation").get_by_role("link").all_text_contents() == [
        "Catalogs",
        "cube",
    ]


@pytest.mark.long
def test_the_chunk_map_tells_where_a_chunk_lies(
    visit: Visit, served: str, sample_data: Path
) -> None:
    page = visit.page
    see_map(visit, f"{served}/cube/array/tas")
    page.locator("#chunk-map").focus()
    for _ in range(3 * 4 + 2):  # chunks of 4 in January, by 3 along the longitudes
        page.keyboard.press("ArrowRight")
    told = page.locator("#chunk-told")
    visit.wait("/bytes/.test(document.getElementById('chunk-told').textContent)")
    name, start, stop = re.search(r"; (\S+), bytes (\d+) to (\d+)", told.text_content()).groups()
    with h5py.File(sample_data / name) as file:
        stored = file["tas"].id.get_chunk_info_by_coord((0, 0, 32))
    assert name == "daily_2023-02.nc"
    assert (int(start), int(stop)) == (stored.byte_offset, stored.byte_offset + stored.size)


@pytest.mark.long
def test_the_chunk_map_does_not_wait_for_the_chunks_of_the_picture(
    visit: Visit, served: str
) -> None:
    session = visit.page.context.new_cdp_session(visit.page)
    session.send("Network.enable")
    priority: dict[str, set[str]] = {"chunks": set(), "portable": set()}

    def note(event: Any) -> None:
        kind = event["request"]["url"].split("/")[4:5]
        if kind and kind[0] in priority:
            priority[kind[0]].add(event["request"]["initialPriority"])

    session.on("Network.requestWillBeSent", note)
    see_map(visit, f"{served}/cube/array/tas")
    visit.settle()
    session.detach()
    assert priority == {"chunks": {"High"}, "portable": {"Low"}}


@pytest.mark.long
def test_sizes_are_those_of_the_files(visit: Visit, served: str, sample_data: Path) -> None:
    page = visit.page
    see_map(visit, f"{served}/cube/array/tas")
    page.locator("#sizes table").wait_for()
    sizes = []
    for path in sample_data.glob("*.nc"):
        with h5py.File(path) as file:
            stored = file["tas"].id
            sizes += [stored.get_chunk_info(i).size for i in range(stored.get_num_chunks())]
    _, counts = np.unique(np.frexp(sizes)[1], return_counts=True)
    shown = page.locator("#sizes tbody tr td:nth-of-type(1)").all_text_contents()
    assert shown == [str(count) for count in counts]
    assert f"{len(sizes)} range" in page.locator("#sizes caption").text_content()


@pytest.mark.long
def test_what_is_hidden_from_the_map_has_a_slider(visit: Visit, served: str) -> None:
    page = visit.page
    see_map(visit, f"{served}/cube/array/tas")
    slider = page.get_by_label("lat: chunk")
    with page.expect_response(re.compile(r"/chunks/tas\?at=1$")):
        slider.focus()
        page.keyboard.press("ArrowRight")


@pytest.mark.long
def test_the_address_holds_what_the_chunk_map_shows(visit: Visit, served: str) -> None:
    page = visit.page
    see_map(visit, f"{served}/cube/array/tas")
    page.locator("#colours").select_option("size")
    slider = page.get_by_label("lat: chunk")
    slider.focus()
    page.keyboard.press("ArrowRight")
    visit.wait("location.hash.includes('map-at=1')")
    page.locator("#chunk-map").focus()
    for key in ("+", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    visit.wait("/bytes/.test(document.getElementById('chunk-told').textContent)")
    told = page.locator("#chunk-told").text_content()
    page.mouse.move(0, 0)
    drawn = "document.getElementById('chunk-map').toDataURL()"
    page.wait_for_timeout(100)
    url, before = page.url, page.evaluate(drawn)
    page.goto("about:blank")
    see_map(visit, url)
    visit.wait("/bytes/.test(document.getElementById('chunk-told').textContent)")
    assert page.locator("#chunk-told").text_content() == told
    assert page.locator("#colours").input_value() == "size"
    assert slider.input_value() == "1"
    page.wait_for_timeout(100)
    page.evaluate("document.activeElement.blur()")
    assert page.evaluate(drawn) == before
    assert "colours=" in url  # the viewer's part stays, too
    assert page.url == url
    page.evaluate("location.hash = location.hash.replace('map-at=1', 'map-at=0')")
    visit.wait("document.querySelector('.hidden-axis').value === '0'")


@pytest.mark.long
def test_links_open_the_array_in_other_viewers(visit: Visit, served: str) -> None:
    page = visit.page
    here = served.replace("127.0.0.1", "localhost")  # as this browser reaches it
    page.goto(f"{here}/cube/array/tas")
    links = {name: page.get_by_role("link", name=f"Open in {name}") for name in NAMES}
    assert links["GridLook"].get_attribute("href") == f"{GRIDLOOK}/#{here}/cube/portable"
    state = unquote(links["Neuroglancer"].evaluate("link => link.hash")).removeprefix("#!")
    (layer,) = json.loads(state)["layers"]
    assert layer["source"] == f"{here}/cube/portable/tas/|zarr3:"
    assert links["GridLook"].get_attribute("rel") == "noopener noreferrer"
    page.goto(f"{here}/cube/array/time")
    assert page.get_by_role("link", name="Open in").count() == 0
    assert all(url.startswith(here) for url in visit.asked)


@pytest.mark.long
def test_lines_to_copy(browser: Any, served: str, sample_data: Path) -> None:
    visit = Visit(browser, permissions=["clipboard-read", "clipboard-write"])
    page = visit.page
    page.goto(f"{served}/cube/array/tas")
    page.get_by_role("button", name="Copy Python").click()
    page.get_by_text("Copied").wait_for()
    lines = page.evaluate("navigator.clipboard.readText()")
    visit.close()
    names: dict[str, Any] = {}
    exec(lines, names)
    expected = []
    for path in sorted(sample_data.glob("*.nc")):
        with h5py.File(path) as file:
            expected.append(file["tas"][()])
    np.testing.assert_array_equal(names["array"].values, np.concatenate(expected))
    assert not visit.problems


@pytest.mark.long
@pytest.mark.parametrize("path", ["/", "/cube", "/cube/array/tas", "/nowhere"])
def test_everybody_gets_in(visitor: Visit, served: str, path: str) -> None:
    visitor.begin()
    visitor.page.goto(f"{served}{path}")
    visitor.settle()
    assert not visitor.barriers()
    assert not visitor.violations()
    assert not visitor.page.evaluate("document.documentElement.scrollWidth > innerWidth")
    width, is_dark = visitor.page.evaluate(
        "[innerWidth, matchMedia('(prefers-color-scheme: dark)').matches]"
    )
    if width < 600:
        assert not visitor.page.evaluate(LOW)
    if is_dark:
        assert not visitor.page.evaluate(BRIGHT)
    assert [each for each in visitor.problems if "404" not in each] == []


@pytest.mark.long
def test_a_server_of_two_thousand_catalogs(visit: Visit) -> None:
    """Searched as it is typed; the address leads to the same results, page and all."""
    kinds = {each.name: each.group for each in made(108)}
    many = {f"{name}-{copy}": group for name, group in kinds.items() for copy in range(19)}
    with running(create_app(many, access_log=False)) as url:
        page = visit.page
        page.goto(url)
        rows = page.locator("#catalogs tbody tr")
        assert rows.count() == 50
        assert page.locator("#found").text_content() == f"{len(many):,} catalogs"
        height = page.evaluate("document.querySelector('#catalogs tbody tr').offsetHeight")
        assert height <= 48  # one line a catalog
        page.get_by_label("Find").fill("variable=tas")
        visit.wait("document.getElementById('found').textContent.startsWith('513 of')")
        page.get_by_label("from").fill("1995")
        visit.wait("document.getElementById('found').textContent.startsWith('171 of')")
        page.locator(".facets summary", has_text="institution").click()
        page.get_by_role("link", name="NOAA GFDL").click()
        page.wait_for_url("**/?q=*NOAA*&from=1995")
        assert page.locator("#found").text_content() == f"57 of {len(many):,} catalogs"
        page.get_by_role("link", name="Next").click()
        page.wait_for_url("**&page=2")
        assert rows.count() == 7
        assert page.get_by_label("from").input_value() == "1995"
        visit.wait("document.querySelector('.preview').dataset.ready === 'drawn'")
        opaque = page.evaluate(OPAQUE)
        assert opaque == [True, False, False]  # what is missing has no colour
        assert not visit.barriers()
        page.get_by_role("link", name="cube-").first.click()
        page.wait_for_url("**/cube-*")
        page.goto("about:blank")
    asked = [url for url in visit.asked if url.endswith("/extent")]
    assert 0 < len(asked) < 200  # of what is in sight only


@pytest.mark.long
def test_a_tree_of_many_arrays_folds_and_is_filtered(visit: Visit) -> None:
    make = VirtualArray.from_numpy
    kinds = ("wind", "humidity", "ozone")
    groups = {
        f"level_{number}": VirtualGroup(
            {
                f"{kind}_{member}": make(np.zeros(1), ("x",), {"long_name": f"{kind} aloft"})
                for kind in kinds
                for member in range(5)
            }
        )
        for number in range(30)
    }
    catalog = VirtualGroup({"height": make(np.zeros(1), ("x",))}, groups)
    with running(create_app({"model": catalog}, access_log=False)) as url:
        page = visit.page
        page.goto(f"{url}/model")
        shown = lambda: page.locator("#tree li:visible").count()  # noqa: E731
        assert page.locator("#filtered").text_content() == "451 arrays"
        assert shown() == 1  # groups are folded
        page.locator("#tree summary").nth(7).click()
        assert shown() == 16
        assert page.url.endswith("#open=level_7")
        page.get_by_label("Find").fill("ozone level_3")
        assert page.locator("#filtered").text_content() == "5 of 451 arrays"
        assert shown() == 5
        url_there = page.url
        assert not visit.barriers()
        page.goto("about:blank")
        page.goto(url_there)
        assert shown() == 5
        page.get_by_label("Find").fill("")
        assert shown() == 16
        page.get_by_role("link", name="ozone_4").click()
        page.wait_for_url("**/model/array/level_7/ozone_4")
        page.go_back()
        visit.wait("document.getElementById('filtered')?.textContent")
        assert shown() == 16
        page.goto("about:blank")


@pytest.mark.long
def test_a_million_chunks(visit: Visit, tmp_path: Path) -> None:
    n = 1_000_000
    random = np.random.default_rng(9)
    state = np.where(random.random(n) < 0.1, ChunkState.MISSING, ChunkState.RANGE)
    length = np.where(state == ChunkState.MISSING, 0, random.integers(1, 5_000, n))
    offset = np.cumsum(length) - length
    path = tmp_path / "million.bin"
    with path.open("wb") as file:
        file.truncate(int(length.sum()))
    status = path.stat()
    manifest = ChunkManifest.from_columns(
        [Source(str(path), status.st_size, status.st_mtime_ns)],
        offset=offset,
        length=length,
        state=state,
    )
    encoding = Encoding((1, 1), np.dtype("u1"), (bytes_codec(np.dtype("u1")),))
    array = VirtualArray.of_one_block(
        (1_000, 1_000), np.dtype("u1"), encoding=encoding, manifest=manifest, dims=("y", "x")
    )
    held = np.flatnonzero(state != ChunkState.MISSING)
    _, counts = np.unique(np.floor(np.log2(length[held])), return_counts=True)
    element = int(held[held >= 1_001][0])
    row, column = divmod(element, 1_000)
    with running(create_app({"m": VirtualGroup({"a": array})}, access_log=False)) as url:
        page = visit.page
        see_map(visit, f"{url}/m/array/a")
        assert page.evaluate(READY) == str(n)
        page.locator("#sizes table").wait_for()
        sizes = page.locator("#sizes tbody td:nth-of-type(1)").all_text_contents()
        assert sizes == [str(count) for count in counts]
        caption = page.locator("#sizes caption").text_content()
        assert caption.startswith(f"{n - len(held)} missing, {len(held)} range; ")
        assert not [each for each in visit.asked if "/sizes/" in each]  # counted from the map
        page.locator("#chunk-map").focus()
        for _ in range(row):
            page.keyboard.press("ArrowDown")
        for _ in range(column):
            page.keyboard.press("ArrowRight")
        told = f"Chunk y {row}, x {column}: byte range of a source, "
        visit.wait(f"document.getElementById('chunk-told').textContent.startsWith('{told}')")
        start = int(offset[element])
        page.get_by_text(f"; million.bin, bytes {start} to {start + length[element]}").wait_for()
        assert str(tmp_path) not in page.content()
        page.goto("about:blank")


@pytest.mark.long
def test_nothing_that_a_catalog_says_runs(visit: Visit) -> None:
    bad = "\"><img src=x onerror=window.ran=1><'"
    attrs = {
        bad: bad, "units": bad, "long_name": bad, "flag_meanings": f"{bad} {bad}",
        "flag_values": np.array([0, 1]), "title": bad,
    }  # fmt: skip
    array = VirtualArray.from_numpy(np.eye(2, dtype="i4"), (bad, "x"), attrs)
    label = VirtualArray.from_numpy(np.arange(2.0), (bad,), {"units": f"{bad} since 2000-01-01"})
    group = VirtualGroup({bad: label, "a": array}, {f"g{bad}": VirtualGroup()}, attrs=attrs)
    with running(create_app({"bad": group}, access_log=False)) as url:
        page = visit.page
        for path in ("/", "/bad", "/bad/array/a"):
            page.goto(url + path)
            visit.settle()
            assert page.locator("img").count() == 0
            assert page.evaluate("window.ran") is None
        page.locator("#viewer-canvas").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        page.locator("#viewer-series .plot canvas").wait_for()
        visit.wait("document.getElementById('viewer-told').textContent.endsWith('; inline')")
        assert page.locator("img").count() == 0
        assert page.evaluate("window.ran") is None
        page.goto("about:blank")


@pytest.mark.long
def test_a_source_that_fails_is_told_in_words(
    browser: Any, of_a_lost_file: str, tmp_path: Path
) -> None:
    visit = Visit(browser)
    visit.page.goto(of_a_lost_file)
    visit.page.get_by_text("not read:").wait_for()
    text = visit.page.locator(".extent").text_content()
    visit.close()
    assert "gone.nc" in text
    assert str(tmp_path) not in text


@pytest.mark.long
@pytest.mark.parametrize("path", ["/", "/cube", "/cube/array/tas"])
def test_without_javascript_a_page_says_what_it_needs(browser: Any, served: str, path: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{served}{path}")
    assert "JavaScript" in page.locator("main").text_content() or path == "/cube"
    for dead in ("#viewer", ".copy", "#chunk-map", "#search", "#filter", "#sizes"):
        assert page.locator(f"{dead}:visible").count() == 0
    for there in {
        "/": ("#catalogs a",),
        "/cube": ("#tree a", "noscript a[href$=extent]", "table"),
        "/cube/array/tas": ("table", ".drawing svg", ".snippet pre"),
    }[path]:
        assert page.locator(f"{there}:visible").count() > 0
    context.close()


def pinched(session: Any, box: Any, first: float, last: float) -> None:
    """Two fingers move from so far apart to so far, about the middle of a box."""
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    apart = np.linspace(first, last, 8)
    for step, far in enumerate(apart):
        points = [{"x": x + sign * far / 2, "y": y, "id": id_} for id_, sign in ((0, -1), (1, 1))]
        kind = "touchMove" if step else "touchStart"
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


@pytest.mark.long
def test_two_fingers_draw_nearer(browser: Any, served: str) -> None:
    visit = Visit(browser, **VISITORS["phone"])
    page = visit.page
    page.goto(f"{served}/cube/array/tas")
    visit.wait("document.getElementById('viewer')?.dataset.ready")
    assert page.locator("#viewer-canvas").bounding_box()["y"] < 300  # the picture first
    assert not page.locator(".panel details").evaluate("each => each.open")
    session = page.context.new_cdp_session(page)
    pinched(session, page.locator("#viewer-canvas").bounding_box(), 40, 160)
    zoom = visit.wait("new URLSearchParams(location.hash.slice(1)).get('zoom')")
    assert 3 < float(zoom) < 5
    canvas = page.locator("#chunk-map")
    canvas.scroll_into_view_if_needed()
    visit.wait(READY)
    pinched(session, canvas.bounding_box(), 40, 160)
    look = visit.wait("new URLSearchParams(location.hash.slice(1)).get('map-look')")
    assert 3 < float(look.split(",")[0]) < 5
    assert page.evaluate("visualViewport.scale") == 1  # the page is as it was
    assert not visit.problems
    visit.close()


@pytest.mark.long
def test_a_server_that_is_away_is_told_by_all_parts_of_a_page(visit: Visit, served: str) -> None:
    page = visit.page
    away = re.compile(r"/(extent|chunks/|sizes/|portable/tas/c/)")
    page.route(away, lambda route: route.abort())
    page.goto(f"{served}/cube")
    words = "the server does not answer: is it still running, and this device online?"
    assert words in page.locator(".extent", has_text="not read").text_content()
    page.unroute(away)
    page.get_by_role("button", name="Try again").click()
    page.get_by_text("2023-01-01T12:00:00 … 2024-02-29T12:00:00").wait_for()
    page.route(away, lambda route: route.abort())
    page.goto(f"{served}/cube/array/tas")
    page.locator("#chunk-map").scroll_into_view_if_needed()
    for place in ("#viewer-told", "#chunk-told"):
        visit.wait(f"document.querySelector('{place}')?.textContent.includes('{words}')")
    assert not visit.barriers()
    page.unroute(away)
    page.locator("#chunk-told button").click()
    visit.wait(READY)
    page.locator("#sizes table").wait_for()
    page.locator("#viewer-told button").click()
    visit.wait("document.getElementById('viewer').dataset.ready === '1'")
    assert all("ERR_FAILED" in problem for problem in visit.problems)
    visit.problems.clear()
