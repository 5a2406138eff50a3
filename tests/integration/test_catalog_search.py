"""Searching the catalogs of a server: by words, fields, times and boxes, page by page."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

import gridref
from gridref.faces.http import create_app
from gridref.faces.web import front_page as searching
from tests.many_catalogs import BOXES, VARIABLES, Made, made
from tests.uvicorn_server import running

BROWSER = {"Accept": "text/html"}
ALL = made(216)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    groups = {each.name: each.group for each in ALL}
    with running(create_app(groups, access_log=False)) as url:
        while "data-unread" in asked(url, **{"from": "1900"}):
            pass  # each request reads extents for a second
        yield url


def asked(server: str, **query: str) -> str:
    response = httpx.get(server, params={"q": "", **query}, headers=BROWSER)
    assert response.status_code == 200
    return response.text


def names(page: str) -> list[str]:
    return re.findall(r'<th scope="row"><a [^>]*>([^<]+)</a>', page)


def found(server: str, **query: str) -> list[str]:
    """The names on all pages."""
    listed: list[str] = []
    for number in range(1, 99):
        page = asked(server, **query, page=str(number))
        listed += names(page)
        if 'rel="next"' not in page:
            return listed
    raise AssertionError


def expected(accepts: Callable[[Made], bool]) -> list[str]:
    return [each.name for each in ALL if accepts(each)]


SEARCHES: list[tuple[dict[str, str], Callable[[Made], bool]]] = [
    ({}, lambda _: True),
    ({"q": "TAS"}, lambda each: each.variable in ("tas", "tasmax")),
    ({"q": "variable=tas"}, lambda each: each.variable == "tas"),
    ({"q": "standard_name:temperature"}, lambda each: "temperature" in VARIABLES[each.variable]),
    (
        {"q": 'institution="met office" 1980'},
        lambda each: each.institution == "Met Office" and each.decade == 1980,
    ),
    (
        {"q": 'title:"pr of noaa"'},
        lambda each: each.variable == "pr" and each.institution == "NOAA GFDL",
    ),
    ({"q": "tracking_id:0007"}, lambda each: each.name == "cube-0007"),
    ({"q": "name=cube-0011"}, lambda each: each.name == "cube-0011"),
    ({"q": "coordinate=time"}, lambda _: True),
    ({"q": "coordinate=cell_area coordinate=cell"}, lambda _: True),
    ({"q": "standard_name=cell_area"}, lambda _: False),
    ({"q": 'quoted:noaa "lab'}, lambda _: False),
    ({"q": "quoted:noaa"}, lambda each: each.institution == "NOAA GFDL"),
    ({"q": "variable=spatial_ref"}, lambda _: False),
    ({"q": "variable=time"}, lambda _: False),
    ({"q": "no:such"}, lambda _: False),
    ({"from": "1995"}, lambda each: each.decade == 2010),
    ({"to": "1959-12-27"}, lambda each: each.decade == 1950),
    ({"from": "1975", "to": "1980-01"}, lambda each: each.decade == 1980),
    ({"from": "1959-12-30", "to": "1960"}, lambda each: each.decade == 1950),
    ({"from": "1959-12-31", "to": "1960"}, lambda _: False),
    ({"box": "0,40,5,45"}, lambda each: each.box == BOXES[0]),
    ({"box": "170,-20,-170,-10"}, lambda each: each.box == BOXES[1]),
    ({"box": "-5,-5,-4,5"}, lambda each: each.box == BOXES[2]),
    ({"box": "-180,-90,180,90"}, lambda _: True),
    ({"box": "200,-90,220,90"}, lambda _: False),
    (
        {"q": "pr", "from": "2015", "box": "0,40,5,45"},
        lambda each: each.variable == "pr" and each.decade == 2010 and each.box == BOXES[0],
    ),
]


@pytest.mark.parametrize(("query", "accepts"), SEARCHES, ids=[str(query) for query, _ in SEARCHES])
def test_a_search_finds_what_was_made_so(
    server: str, query: dict[str, str], accepts: Callable[[Made], bool]
) -> None:
    assert found(server, **query) == expected(accepts)


def test_facets_count_what_they_lead_to(server: str) -> None:
    page = asked(server, q="tas")
    listed = re.findall(r'<li><a href="([^"]+)">([^<]+)</a> ([\d,]+)</li>', page)
    counts = Counter(each.institution for each in ALL if each.variable in ("tas", "tasmax"))
    assert {text: int(n) for _, text, n in listed if text in counts} == counts
    assert "of a lab" not in page
    assert "said so" not in page
    assert "tracking_id" not in page.partition("<table")[0].replace("_", " ")
    for address, _, n in listed:
        there = httpx.get(f"{server}/{html.unescape(address)}", headers=BROWSER).text
        assert f">{int(n)} of {len(ALL)} catalogs<" in there


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"from": "May 2001"}, "From is a date like 2001, 2001-05 or 2001-05-20"),
        ({"to": "200"}, "To is a date like"),
        ({"box": "1,2,3"}, "A box is west, south, east and north in degrees"),
        ({"box": "0,50,10,40"}, "A box is west"),
        ({"box": "nan,0,1,1"}, "A box is west"),
    ],
)
def test_a_search_that_is_none_is_told_in_words(
    server: str, query: dict[str, str], told: str
) -> None:
    page = asked(server, **query)
    assert f'role="alert">{told}' in page
    assert not names(page)


@pytest.mark.parametrize("page", ["0", "-1", "9999999999", "x", "1e3", "99"])
def test_pages_that_are_not_there_are_empty_or_the_first(server: str, page: str) -> None:
    assert len(names(asked(server, page=page))) in (0, searching.PAGE_ROWS)


def test_extents_are_read_bit_by_bit_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no time to read, all of them are unread; one that cannot be read is counted."""
    import h5py

    with h5py.File(tmp_path / "gone.nc", "w") as file:
        file["time"] = [0.0, 1.0]
        file["time"].attrs["units"] = "days since 2000-01-01"
        file["time"].make_scale("time")
    gone = gridref.scan(tmp_path / "gone.nc")
    (tmp_path / "gone.nc").unlink()
    groups = {each.name: each.group for each in ALL[:5]} | {"gone": gone}
    with running(create_app(groups, access_log=False)) as url:
        monkeypatch.setattr(searching, "READ_SECONDS", 0.0)
        page = asked(url, **{"from": "1900"})
        assert "0 of 6 catalogs; extents of 6 are not read yet" in page
        assert 'data-unread="6"' in page
        monkeypatch.setattr(searching, "READ_SECONDS", 60.0)
        page = asked(url, **{"from": "1900"})
        assert "5 of 6 catalogs; extents of 1 cannot be read" in page
        monkeypatch.setattr(searching, "READ_SECONDS", 0.0)
        assert names(asked(url, **{"from": "1900"})) == [each.name for each in ALL[:5]]


def test_two_thousand_catalogs_are_listed_page_by_page() -> None:
    kinds = {each.name: each.group for each in made(108)}
    many = {f"{name}-{copy}": group for name, group in kinds.items() for copy in range(19)}
    with running(create_app(many, access_log=False)) as url:
        page = asked(url, q="variable=tas institution:noaa")
    assert f">{19 * 9} of {len(many):,} catalogs<" in page
    assert len(page) < 200_000
