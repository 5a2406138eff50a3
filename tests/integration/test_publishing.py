"""A published catalog behind a real nginx: all links hold, and values are those of the files."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
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
from gridref.faces.web.publishing import publish
from tests.by_name import by_name
from tests.nginx_server import nginx_serving
from tests.shared_data import ROOT

JANUARY = ROOT / "sample_data" / "daily_2023-01.nc"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder that nginx serves, with two months in `data/`, and its address."""
    folder = tmp_path / "www"
    (folder / "data").mkdir(parents=True)
    for month in ("01", "02"):
        shutil.copy(ROOT / "sample_data" / f"daily_2023-{month}.nc", folder / "data")
    with nginx_serving(folder, tmp_path) as url:
        yield folder, url


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


def test_every_link_of_the_pages_holds(place: tuple[Path, str]) -> None:
    folder, url = place
    published(folder, url)
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
    place: tuple[Path, str], tmp_path: Path
) -> None:
    folder, url = place
    published(folder, url)
    page = httpx.get(f"{url}/site/array/tas.html").text
    code = html.unescape(re.findall(r"<pre[^>]*><code>(.*?)</code></pre>", page, re.DOTALL)[0])
    code += "\nimport numpy as np\nnp.save('tas.npy', cube.tas.values)\n"
    stranger = {**os.environ, "GRIDREF_STATE": str(tmp_path / "elsewhere")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=stranger,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    got = np.load(tmp_path / "tas.npy")
    months = [folder / "data" / f"daily_2023-{month}.nc" for month in ("01", "02")]
    np.testing.assert_array_equal(got, np.concatenate([expected(m, "tas") for m in months]))
    asked = (tmp_path / "access.log").read_text()
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


def test_the_stac_item_leads_to_the_catalog(place: tuple[Path, str]) -> None:
    folder, url = place
    site = published(folder, url)
    item = pystac.Item.from_file(str(site / "item.json"))
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
    with pytest.raises(InvalidRequestError, match=r"2 of 2 sources .*--from and --to"):
        publish("months.gridref", folder / "site", base_url=url)
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
    command = [str(Path(sys.executable).with_name("gridref")), "publish", "months.gridref", "out"]
    where = ["--from", f"{folder}/data/", "--to", f"{url}/data/"]
    done = subprocess.run(
        [*command, "--base-url", f"{url}/out", *where],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
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
