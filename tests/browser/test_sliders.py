"""Sliders: steps, play, what is asked for ahead and given up, and errors that are tried again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gridref.faces.http import create_app
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Encoding, bytes_codec
from gridref.model.manifest import ChunkManifest, Source
from tests.browser.test_viewer import READY, TOLD, opened
from tests.browser.visits import Visit
from tests.uvicorn_server import running

DRAGGED = """
    (async () => {
        const place = document.getElementById("viewer");
        const slider = document.querySelector("input[name=t]");
        const before = Number(place.dataset.ready);
        for (let i = 0; i < 40; i++) {
            slider.value = Number(slider.value) + 132;
            slider.dispatchEvent(new Event("input"));
            await new Promise((go) => setTimeout(go, 16));
        }
        return Number(place.dataset.ready) - before;
    })()
"""
AT = "document.querySelector('.slide .at').textContent"


@pytest.fixture(scope="module")
def steps() -> Iterator[str]:
    """The address of an array of 12 planes, each a chunk, filled with its number."""
    values = np.broadcast_to(np.arange(12.0)[:, None, None], (12, 4, 5)).copy()
    group = VirtualGroup({"a": VirtualArray.from_numpy(values, ("t", "y", "x"))})
    app = create_app({"m": group}, access_log=False, chunks={"t": 1}, compressor="zstd")
    with running(app) as url:
        yield f"{url}/m/array/a"


def asked(visit: Visit) -> list[int]:
    return [int(url.split("/c/")[1].split("/")[0]) for url in visit.asked if "/a/c/" in url]


@pytest.mark.long
def test_steps_and_what_comes_next(visit: Visit, steps: str) -> None:
    page = opened(visit, steps)
    assert asked(visit) == [0]
    page.get_by_label("Next t").click()
    visit.wait(f"{READY} == '2'")
    page.wait_for_timeout(100)
    assert asked(visit) == [0, 1, 2, 3, 4]  # the next ones ahead
    page.get_by_label("Next t").click()
    visit.wait(f"{READY} == '3'")
    page.locator("#viewer-canvas").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate(TOLD).startswith("2 at t 2")
    page.get_by_label("Previous t").click()
    visit.wait(f"{READY} == '4' && {AT} == '1'")


@pytest.mark.long
def test_play_goes_round_until_it_is_stopped(visit: Visit, steps: str) -> None:
    page = opened(visit, steps, "at0=10")
    play = page.get_by_label("Play t")
    play.click()
    assert play.get_attribute("aria-pressed") == "true"
    visit.wait(f"{AT} == '1'")
    play.click()
    page.wait_for_timeout(300)
    shown = page.evaluate(AT)
    page.wait_for_timeout(300)
    assert page.evaluate(AT) == shown
    assert f"at0={shown}" in page.url


def test_what_is_passed_over_is_given_up(visit: Visit, steps: str) -> None:
    page = opened(visit, steps)
    held: list[Any] = []
    # Playwright asks for a function of Python.
    page.route("**/a/c/5/**", lambda route: held.append(route))  # noqa: PLW0108
    slider = page.locator("input[name=t]")
    with page.expect_event("requestfailed", lambda request: "/a/c/5/" in request.url):
        slider.fill("5")
        page.wait_for_timeout(50)
        slider.fill("9")
    visit.wait(f"{READY} == '2'")
    page.locator("#viewer-canvas").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate(TOLD).startswith("9 at t 9")
    page.unroute("**/a/c/5/**")
    slider.fill("5")  # what was given up is asked for anew
    visit.wait(f"{READY} == '3' && {TOLD}.startsWith('5 at t 5')")
    assert len(held) == 1


@pytest.mark.long
def test_a_few_steps_are_read_at_once_and_the_last_one_is_shown(visit: Visit, steps: str) -> None:
    page = opened(visit, steps)
    held: list[Any] = []
    # Playwright asks for a function of Python.
    page.route(re.compile(r"/a/c/(3|5|7|9)/"), lambda route: held.append(route))  # noqa: PLW0108
    slider = page.locator("input[name=t]")
    for step in ("3", "5", "7", "9"):
        slider.fill(step)
        page.wait_for_timeout(30)
    assert asked(visit)[1:] == [3, 5, 7]  # so many at once
    with page.expect_event("requestfailed", lambda request: "/a/c/3/" in request.url):
        pass  # the oldest one is given up for the newest
    page.wait_for_timeout(50)
    assert asked(visit)[1:] == [3, 5, 7, 9]
    with page.expect_event("requestfailed", lambda request: "/a/c/5/" in request.url):
        held[2].continue_()
    visit.wait(f"{READY} == '2'")  # 7, while 9 is on its way
    held[3].continue_()
    visit.wait(f"{READY} == '3'")
    page.locator("#viewer-canvas").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate(TOLD).startswith("9 at t 9")


@pytest.mark.long
def test_what_was_passed_over_is_not_told_to_have_failed(visit: Visit, steps: str) -> None:
    page = opened(visit, steps)
    held: list[Any] = []
    page.route(re.compile(r"/a/c/(4|8)/"), lambda route: held.append(route))  # noqa: PLW0108
    slider = page.locator("input[name=t]")
    for step in ("4", "8"):
        slider.fill(step)
        page.wait_for_timeout(30)
    held[0].abort()
    page.wait_for_timeout(50)
    assert page.evaluate(READY) == "1"
    assert page.evaluate(TOLD) == ""
    held[1].continue_()
    visit.wait(f"{READY} == '2'")
    assert all("ERR_FAILED" in problem for problem in visit.problems)
    visit.problems.clear()


@pytest.mark.long
def test_dragging_over_ten_thousand_steps_shows_them(visit: Visit, tmp_path: Path) -> None:
    """As many chunks, of which a hundred differ."""
    planes = np.random.default_rng(5).normal(size=(100, 20, 30)).astype("<f4")
    path = tmp_path / "planes.bin"
    path.write_bytes(planes.tobytes())
    status = path.stat()
    manifest = ChunkManifest.from_columns(
        [Source(str(path), status.st_size, status.st_mtime_ns)],
        offset=np.arange(10_000) % 100 * planes[0].nbytes,
        length=planes[0].nbytes,
    )
    encoding = Encoding((1, 20, 30), planes.dtype, (bytes_codec(planes.dtype),))
    array = VirtualArray.of_one_block(
        (10_000, 20, 30), planes.dtype, encoding=encoding, manifest=manifest, dims=("t", "y", "x")
    )
    with running(create_app({"m": VirtualGroup({"a": array})}, access_log=False)) as url:
        page = opened(visit, f"{url}/m/array/a")
        assert page.evaluate(DRAGGED) > 4  # of 40 in 0.6 s; without load, 38
        page.locator("#viewer-canvas").focus()
        page.keyboard.press("ArrowRight")
        told = visit.wait(f"{TOLD}.includes(' at t 5280, y 0, x 0') && {TOLD}")
        assert np.float32(told.split()[0]) == planes[5_280 % 100, 0, 0]
        page.goto("about:blank")


@pytest.mark.long
def test_an_error_is_tried_again(visit: Visit, steps: str) -> None:
    page = opened(visit, steps)
    page.route("**/a/c/3/**", lambda route: route.abort())
    page.locator("input[name=t]").fill("3")
    visit.wait(f"{READY} == 'failed'")
    told = page.evaluate(TOLD)
    assert "the server does not answer" in told
    assert "fetch" not in told
    page.unroute("**/a/c/3/**")
    page.get_by_role("button", name="Try again").click()
    visit.wait(f"{READY} == '2'")
    assert page.evaluate(TOLD) == ""
    assert not visit.violations()
    visit.problems.clear()  # the browser's own words about what was refused


@pytest.mark.long
def test_chunks_that_are_none_are_told_in_words(visit: Visit, steps: str) -> None:
    page = opened(visit, steps)
    page.route("**/a/c/3/**", lambda route: route.fulfill(body=b"cut"))
    page.locator("input[name=t]").fill("3")
    visit.wait(f"{READY} == 'failed'")
    told = page.evaluate(TOLD)
    assert "what the server sent cannot be decoded" in told
    assert "Error" not in told
    page.route("**/a/c/4/**", lambda route: route.abort())
    page.unroute("**/a/c/3/**")
    page.get_by_label("Next t").click()
    visit.wait(f"{TOLD}.includes('the server does not answer')")
    page.unroute("**/a/c/4/**")
    page.get_by_role("button", name="Try again").click()
    visit.wait(f"{READY} == '2'")
    assert all("ERR_FAILED" in problem for problem in visit.problems)
    visit.problems.clear()


@pytest.mark.long
def test_a_series_that_failed_is_tried_again(visit: Visit, steps: str) -> None:
    page = opened(visit, steps)
    page.route("**/a/c/7/**", lambda route: route.abort())
    page.locator("#viewer-canvas").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    visit.wait(f"{TOLD}.includes('the server does not answer')")
    page.unroute("**/a/c/7/**")
    page.get_by_role("button", name="Try again").click()
    page.locator("#viewer-series .plot canvas").wait_for()
    assert page.evaluate(READY) == "1"
    assert "not answer" not in page.evaluate(TOLD)
    assert all("ERR_FAILED" in problem for problem in visit.problems)
    visit.problems.clear()
