"""Sliders: steps, play, what is asked for ahead and given up, and errors that are tried again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gridref.faces.http import create_app
from gridref.model.array import VirtualArray, VirtualGroup
from tests.browser.test_viewer import READY, TOLD, opened
from tests.browser.visits import Visit
from tests.uvicorn_server import running

AT = "document.querySelector('.slide .at').textContent"


@pytest.fixture(scope="module")
def steps() -> Iterator[str]:
    """The address of an array of 12 planes, each a chunk, filled with its number."""
    values = np.broadcast_to(np.arange(12.0)[:, None, None], (12, 4, 5)).copy()
    group = VirtualGroup({"a": VirtualArray.from_numpy(values, ("t", "y", "x"))})
    with running(create_app({"m": group}, access_log=False, chunks={"t": 1})) as url:
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
    assert asked(visit) == [0, 1, 2]  # the next one ahead
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
