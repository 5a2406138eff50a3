"""Large arrays without overviews: the viewer shows all of them, by looks that the server takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import gridref
from gridref.faces.http import create_app
from gridref.model.array import VirtualArray, VirtualGroup
from tests.browser.test_viewer import READY, TOLD, opened
from tests.browser.visits import Visit
from tests.uvicorn_server import running

ROWS, COLUMNS = 1200, 5000
TRAVELLED = """
    performance.getEntriesByType("resource")
        .filter((each) => /[/](look|native|portable)[/]/.test(each.name))
        .reduce((sum, each) => sum + each.encodedBodySize, 0)
"""


def field() -> Any:
    rows, columns = np.ogrid[:ROWS, :COLUMNS]
    return (rows // 40 + (columns // 100) / 64).astype("f4")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the same picture of 24 MB compressed and plain, on latitudes and longitudes."""
    path = tmp_path_factory.mktemp("files") / "large.nc"
    with h5py.File(path, "w") as file:
        file["lat"], file["lon"] = (
            np.linspace(59.975, 0.025, ROWS),
            np.linspace(0.025, 249.975, COLUMNS),
        )
        for name, units in (("lat", "degrees_north"), ("lon", "degrees_east")):
            file[name].attrs["units"] = units
            file[name].make_scale(name)
        for name, chunks in (("height", (300, 1000)), ("plain", None)):
            made = file.create_dataset(
                name,
                data=field(),
                chunks=chunks,
                **({"compression": "gzip", "shuffle": True} if chunks else {}),
            )
            made.dims[0].attach_scale(file["lat"])
            made.dims[1].attach_scale(file["lon"])
    return path


@pytest.fixture(scope="module")
def served(files: Path) -> Iterator[str]:
    values = np.arange(3000.0)[:, None] + np.arange(10)
    bare = VirtualGroup({"a": VirtualArray.from_numpy(values, ("y", "x"))})
    with running(create_app({"m": gridref.scan(files), "bare": bare}, access_log=False)) as url:
        yield url


def test_all_of_a_large_array_is_shown(visit: Visit, served: str, files: Path) -> None:
    page = opened(visit, f"{served}/m/array/height")
    shown = page.evaluate(
        "JSON.parse(document.getElementById('viewer').dataset.levels).map(({shape}) => shape)"
    )
    assert shown == [[ROWS, COLUMNS], [240, 1000]]
    assert page.evaluate(TRAVELLED) < files.stat().st_size / 20
    canvas = page.locator("#viewer-canvas")
    canvas.focus()
    page.keyboard.press("ArrowRight")
    visit.wait(f"{TOLD}.includes('bytes')")
    told = page.evaluate(TOLD)
    assert told.startswith("0 at lat 59.875° N, lon 0.125° E; large.nc, bytes"), told
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] - 3, "y": box["height"] / 2})
    assert "lon 249.375° E" in page.evaluate(TOLD)
    with h5py.File(files) as file:
        expected = file["height"][602, 4987]
    assert float(page.evaluate(TOLD).split()[0]) == expected
    page.locator("select[name=detail]").select_option("0")
    visit.wait(f"{READY} == '2'")  # a window, which sliders move
    assert page.locator("input[name='from lon']").count() == 1


def test_chunks_travel_compressed(visit: Visit, served: str, files: Path) -> None:
    for name in ("height", "plain"):
        page = opened(visit, f"{served}/m/array/{name}", "level=0")
        assert page.evaluate(TRAVELLED) < 24e6 / 15
        kinds = {url.split("/m/")[1].split("/")[0] for url in visit.asked if f"/{name}/c/" in url}
        assert kinds == {"native" if name == "height" else "portable"}
        page.goto("about:blank")


@pytest.mark.long
def test_elements_without_labels_keep_their_numbers(visit: Visit, served: str) -> None:
    page = opened(visit, f"{served}/bare/array/a")
    page.locator("#viewer-canvas").focus()
    page.keyboard.press("ArrowDown")
    told = page.evaluate(TOLD)
    row = int(told.split(" at y ")[1].split(",")[0])
    assert row % 3 == 1
    assert float(told.split()[0]) == row + int(told.split(", x ")[1].split(";")[0])


def test_a_long_series_is_read_by_the_server(visit: Visit, tmp_path: Path) -> None:
    values = np.random.default_rng(1).normal(size=(4000, 8, 64)).astype("f4").round(3)
    values[7] = np.nan
    with h5py.File(tmp_path / "long.nc", "w") as file:
        file.create_dataset("a", data=values, chunks=(1, 8, 64))
    app = create_app({"m": gridref.scan(tmp_path / "long.nc")}, access_log=False)
    with running(app) as url:
        page = opened(visit, f"{url}/m/array/a")
        visit.asked.clear()
        page.locator("#viewer-canvas").focus()
        for key in ("ArrowRight", "Enter"):
            page.keyboard.press(key)
        page.locator("#viewer-series button").first.wait_for()
        row, column = (
            int(part.split()[1]) for part in page.evaluate(TOLD).split(";")[0].split(", ")[-2:]
        )
        page.locator("#viewer-series summary").click()
        shown = page.locator("#viewer-series td").all_text_contents()
        asked = [url.split("/m/")[1].split("/")[0] for url in visit.asked if "/m/" in url]
        page.goto("about:blank")
    expected = values[: len(shown), row, column]
    assert len(shown) == 200
    found = [np.nan if text == "no value" else float(text) for text in shown]
    np.testing.assert_array_equal(np.array(found, "f4"), expected)
    assert asked.count("series") == 1
    assert not {"portable", "native"} & set(asked)
