"""Catalogs published as files, and searched on a server."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import h5py
import httpx
import numpy as np
import pystac
import pytest
import xarray as xr

import gridref
from gridref.errors import InvalidRequestError, SourceUnavailableError
from gridref.faces.cli.options import spelled
from gridref.faces.http import create_app
from gridref.faces.web import front_page as searching
from gridref.faces.web.publishing import publish
from tests.by_name import by_name
from tests.command import run_command, run_script
from tests.http_server import nginx_serving
from tests.many_catalogs import BOXES, VARIABLES, Made, made
from tests.shared_data import ROOT
from tests.uvicorn_server import BROWSER, running
from tools.fuzz.hostile_files import try_files

JANUARY = ROOT / "sample_data" / "daily_2023-01.nc"


@contextmanager
def served_months(parent: Path) -> Iterator[tuple[Path, str]]:
    """A folder that nginx serves, with two months in `data/`, and its address."""
    folder = parent / "www"
    (folder / "data").mkdir(parents=True)
    for month in ("01", "02"):
        shutil.copy(ROOT / "sample_data" / f"daily_2023-{month}.nc", folder / "data")
    with nginx_serving(folder, parent) as url:
        yield folder, url


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    with served_months(tmp_path) as place:
        yield place


@pytest.fixture(scope="module")
def months_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """Such a folder with a published site, of which no test alters anything."""
    with served_months(tmp_path_factory.mktemp("months")) as place:
        published(*place)
        yield place


def published(folder: Path, url: str, files: str = "*.nc", **options) -> Path:
    """The site of a catalog that was built of local files."""
    catalog = folder.parent / "months.gridref"
    again = {"concat_dim": "time", "overwrite": True}
    gridref.build(str(folder / "data" / files), catalog, **by_name(**{**again, **options}))
    moved = {f"{folder}/data/": f"{url}/data/"}
    publish(catalog, folder / "site", base_url=f"{url}/site", prefixes=moved)
    return folder / "site"


def expected(path: Path, name: str) -> np.ndarray:
    with h5py.File(path) as file:
        return file[name][...]


def crawled(start: str) -> dict[str, httpx.Response]:
    """Every address that a page and those below it lead to, with the answer."""
    seen: dict[str, httpx.Response] = {}
    waiting = [start]
    while waiting:
        address = waiting.pop()
        if address in seen:
            continue
        seen[address] = answer = httpx.get(address)
        if answer.headers.get("content-type", "").startswith("text/html"):
            found = re.findall(r'(?:href|src|data-from|data-sizes)="([^"]*)"', answer.text)
            waiting += [urldefrag(urljoin(address, each))[0] for each in found]
    return seen


def test_every_link_of_the_pages_holds(months_site: tuple[Path, str]) -> None:
    _, url = months_site
    answers = crawled(f"{url}/site/index.html")
    assert {each.status_code for each in answers.values()} == {200}
    assert all(address.startswith(f"{url}/site/") for address in answers)
    pages = {address.removeprefix(f"{url}/site/") for address in answers}
    assert {
        *("index.html", "array/tas.html", "extent.json", "assets/pages.css"),
        *("item.json", "references.json"),
    } <= pages
    array_page = answers[f"{url}/site/array/tas.html"].text
    assert "<svg" in array_page
    assert "(time: 59, lat: 20, lon: 40) float32" in array_page
    assert "maps/tas/sizes.json" in pages


def test_nothing_tells_where_files_were(place: tuple[Path, str]) -> None:
    folder, url = place
    with xr.open_dataset(ROOT / "sample_data" / "daily_2023-03.nc") as month:
        units = {"time": {"units": "hours since 1990-01-01", "dtype": "i4"}}
        month.drop_vars("time_bnds").load().to_netcdf(
            folder / "data" / "daily_2023-03.nc", encoding=units
        )
    site = published(folder, url, checksums=True, join="outer")
    assert gridref.open_catalog(site / "months.gridref").report().num_rows > 0
    files = [path for path in site.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert not [path for path in files if str(folder).encode() in path.read_bytes()]


def test_the_lines_of_the_page_open_the_cube_elsewhere(
    months_site: tuple[Path, str], tmp_path: Path
) -> None:
    folder, url = months_site
    page = httpx.get(f"{url}/site/array/tas.html").text
    code = html.unescape(re.findall(r"<pre[^>]*><code>(.*?)</code></pre>", page, re.DOTALL)[0])
    code += "\nimport numpy as np\nnp.save('tas.npy', cube.tas.values)\n"
    (tmp_path / "code.py").write_text(code)
    stranger = {**os.environ, "GRIDREF_STATE": str(tmp_path / "elsewhere")}
    done = run_script(str(tmp_path / "code.py"), cwd=tmp_path, env=stranger, seconds=60)
    assert done.returncode == 0, done.stdout
    got = np.load(tmp_path / "tas.npy")
    months = [folder / "data" / f"daily_2023-{month}.nc" for month in ("01", "02")]
    np.testing.assert_array_equal(got, np.concatenate([expected(m, "tas") for m in months]))
    asked = (folder.parent / "access.log").read_text()
    assert asked.count(" 206 ") > 0


def test_kerchunk_references_read_the_sources(place: tuple[Path, str]) -> None:
    folder, url = place
    published(folder, url, "*01.nc", concat_dim=None)
    references = json.loads(httpx.get(f"{url}/site/references.json").text)
    assert {each[0] for each in references["refs"].values() if isinstance(each, list)} == {
        f"{url}/data/daily_2023-01.nc"
    }
    with xr.open_dataset(f"{url}/site/references.json", engine="kerchunk") as cube:
        np.testing.assert_array_equal(cube.tas.values, expected(JANUARY, "tas"))
    assert "by kerchunk" in httpx.get(f"{url}/site/index.html").text


def test_the_stac_item_leads_to_the_catalog(months_site: tuple[Path, str]) -> None:
    folder, url = months_site
    item = pystac.Item.from_file(str(folder / "site" / "item.json"))
    assert item.id == "months"
    assert {name: asset.href for name, asset in item.assets.items()} == {
        "references": f"{url}/site/references.json",
        "catalog": f"{url}/site/months.gridref",
    }
    assert item.properties["start_datetime"] == "2023-01-01T12:00:00Z"


def test_what_references_cannot_say_is_told(place: tuple[Path, str]) -> None:
    folder, url = place
    for number in range(2):
        with h5py.File(folder / "data" / f"uneven_{number}.nc", "w") as file:
            values = np.random.default_rng(number).random((5 + number, 300, 300))
            file.create_dataset("v", data=values, chunks=(2, 300, 300))
    site = published(folder, url, "uneven_*.nc", concat_dim="phony_dim_0")
    assert not (site / "references.json").exists()
    page = (site / "index.html").read_text()
    assert "No kerchunk references: " in page
    assert "No STAC Item: " in page


def test_it_is_published_again_over_itself_and_over_nothing_else(place: tuple[Path, str]) -> None:
    folder, url = place
    published(folder, url)
    assert published(folder, url, "*01.nc", concat_dim=None).joinpath("references.json").exists()
    (folder / "other").mkdir()
    (folder / "other" / "thesis.txt").write_text("")
    with pytest.raises(InvalidRequestError, match="holds no earlier publication"):
        publish(folder.parent / "months.gridref", folder / "other", base_url=url)


def test_sources_that_nobody_reads_are_refused(
    place: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder, url = place
    gridref.build(str(folder / "data" / "*.nc"), "months.gridref", "time")
    with pytest.raises(InvalidRequestError, match=r"2 of 2 sources .*prefixes=\{old: new}") as told:
        publish("months.gridref", folder / "site", base_url=url)
    assert "(--from OLD --to NEW)" in spelled(told.value.reason)
    with pytest.raises(InvalidRequestError, match="http or https address"):
        publish("months.gridref", folder / "site", base_url="s3://bucket")
    wrong = {f"{folder}/data/": f"{url}/nowhere/"}
    with pytest.raises(SourceUnavailableError, match="nowhere"):
        publish("months.gridref", folder / "site", base_url=url, prefixes=wrong)
    assert not (folder / "site").exists()


def test_names_and_attributes_are_escaped(place: tuple[Path, str]) -> None:
    folder, url = place
    nasty = "<script>alert(1)</script>"
    with h5py.File(folder / "data" / "nasty.nc", "w") as file:
        file.create_group("a b").create_dataset("x?#1", data=np.arange(5.0), chunks=(2,))
        file.attrs["title"] = nasty
    published(folder, url, "nasty.nc", concat_dim=None)
    answers = crawled(f"{url}/site/index.html")
    assert {each.status_code for each in answers.values()} == {200}
    assert len([address for address in answers if "/array/" in address]) == 1
    pages = [each.text for address, each in answers.items() if address.endswith(".html")]
    assert len(pages) == 2
    assert not [page for page in pages if nasty in page]


def test_the_command(place: tuple[Path, str]) -> None:
    folder, url = place
    gridref.build(str(folder / "data" / "*.nc"), folder / "months.gridref", "time")
    where = ["--base-url", f"{url}/out", "--from", f"{folder}/data/", "--to", f"{url}/data/"]
    done = run_command("publish", "months.gridref", "out", *where, cwd=folder)
    assert done.returncode == 0, done.stderr
    written = [p for p in (folder / "out").rglob("*") if p.is_file()]
    own = [p for p in written if "months.gridref" not in p.parts[-2:-1]]
    assert done.stdout.startswith(f"out: {len(own)} files and the catalog")
    assert httpx.get(f"{url}/out/index.html").status_code == 200


def test_files_with_anything_in_their_names(place: tuple[Path, str]) -> None:
    folder, url = place
    name = "ä #1 50%?.nc"
    shutil.copy(JANUARY, folder / "data" / name)
    catalog = folder.parent / "odd.gridref"
    gridref.build([folder / "data" / name], catalog)
    moved = {f"{folder}/data/": f"{url}/data/"}
    publish(catalog, folder / "site", base_url=f"{url}/site", prefixes=moved)
    shown = gridref.open_catalog(f"{url}/site/odd.gridref", allow=[f"{url}/data/"])
    (source,) = shown.source_list
    assert source.url == f"{url}/data/%C3%A4%20%231%2050%25%3F.nc"
    np.testing.assert_array_equal(shown["tas"][...], expected(JANUARY, "tas"))
    back = gridref.open_catalog(
        f"{url}/site/odd.gridref", prefixes={f"{url}/data": str(folder / "data")}
    )
    assert back.source_list[0].url.endswith(f"/data/{name}")


def test_what_nobody_decodes_is_left_out_or_told(place: tuple[Path, str]) -> None:
    folder, url = place
    with h5py.File(folder / "data" / "odd.h5", "w") as file:
        file["compound"] = np.zeros(300_000, [("a", "i4"), ("b", "f8")])
        file["time"] = np.arange(3.0)
        file["time"].attrs["units"] = "bananas since yesterday"
        file["time"].make_scale()
    site = published(folder, url, "odd.h5", concat_dim=None)
    assert "gridref serve gives programs them" in (site / "array/compound.html").read_text()
    assert "xarray does not decode it: unable to decode time units" in html.unescape(
        (site / "index.html").read_text()
    )


@pytest.fixture
def files(shared_data: Path) -> list[Path]:
    found = (shared_data / "cve").iterdir()
    return sorted(p for p in found if p.suffix in ("", ".h5") and p.name != "COPYING")


def test_some_published_hostile_files(files: list[Path]) -> None:
    outcomes = try_files(files[::40])
    assert {name: broke for name, (broke, _) in outcomes.items() if broke} == {}


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_published_hostile_files(files: list[Path]) -> None:
    assert len(files) > 130
    outcomes = try_files(files)
    assert {name: broke for name, (broke, _) in outcomes.items() if broke} == {}
    assert sum(n_arrays for _, n_arrays in outcomes.values()) > 10


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


def expected_of_search(accepts: Callable[[Made], bool]) -> list[str]:
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
    assert found(server, **query) == expected_of_search(accepts)


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
