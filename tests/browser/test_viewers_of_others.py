"""Viewers of others, from their packages, in pages of another origin: they show what files hold."""

from __future__ import annotations

import base64
import contextlib
import functools
import http.server
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import imagecodecs
import netCDF4
import numpy as np
import pytest
import tifffile

import gridref
from gridref.faces.http import create_app
from gridref.faces.web.publishing import publish
from tests.browser.visits import Visit
from tests.http_server import nginx_serving
from tests.programs import WEB, npm_package
from tests.uvicorn_server import running

HERE = Path(__file__).parent / "viewers"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a page that has the viewers of others."""
    for viewer in ("ol", "ome-zarr.js", "maplibre-gl", "@carbonplan/zarr-layer"):
        install(viewer, "npm", "install", "--no-package-lock", "--no-audit", "--no-fund")
    npm_package("esbuild")
    folder = tmp_path_factory.mktemp("others")
    (folder / "index.html").write_text("<!doctype html><link rel=icon href=data:,>"
                                       "<script src=page.js></script>")  # fmt: skip
    bundle = [WEB / "node_modules/.bin/esbuild", "page.js", "--bundle", "--log-level=error"]
    subprocess.run([*bundle, f"--outfile={folder}/page.js"], cwd=HERE, check=True)
    return folder


@pytest.fixture(scope="module")
def others(pages: Path) -> Iterator[str]:
    """The origin of that page."""
    handler = functools.partial(Quiet, directory=str(pages))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server of files that says nothing."""

    def log_message(self, *_: Any) -> None:
        """Not here."""


def install(folder: str, *command: str | Path) -> None:
    """Install a viewer, unless it is there: for a minute or so, so only where that is asked for."""
    if (HERE / "node_modules" / folder).is_dir():
        return
    if not os.environ.get("GRIDREF_VIEWERS"):
        pytest.skip("the viewers of others are not installed: make viewers")
    subprocess.run(command, cwd=HERE, check=True, timeout=600)


@pytest.mark.long
def test_openlayers_reads_the_values(
    others: str, visit: Visit, cube: Path, sample_data: Path
) -> None:
    visit.page.goto(others)
    with running(create_app([cube], access_log=False, allow_origin=[others])) as url:
        where = [f"{url}/cube/portable", "tas", {"time": 40}]
        tile = visit.page.evaluate("(where) => window.tileOf(...where)", where)
    shown = np.array(tile["data"]).reshape(-1, tile["width"], 2)
    with h5py.File(sample_data / "daily_2023-02.nc") as file:
        expected = file["tas"][40 - 31][::-1]  # the north is up
    rows, columns = expected.shape
    np.testing.assert_array_equal(shown[:rows, :columns, 0], expected)
    assert (shown[:rows, :columns, 1] == 1).all()


@pytest.mark.long
def test_ome_zarr_js_draws_the_image(others: str, visit: Visit, tmp_path: Path) -> None:
    image = np.random.default_rng(5).integers(0, 256, (40, 60), np.uint8)
    tifffile.imwrite(tmp_path / "a.ome.tif", image, metadata={"axes": "YX"}, tile=(16, 16))
    visit.page.goto(others)
    app = create_app({"m": gridref.scan(tmp_path / "a.ome.tif")}, allow_origin=[others])
    with running(app) as url:
        drawn = visit.page.evaluate("(url) => window.imageOf(url)", f"{url}/m/portable")
    assert all("404" in problem for problem in visit.problems)  # it looks for Zarr v2 first
    visit.problems.clear()
    shown = imagecodecs.png_decode(base64.b64decode(drawn.partition(",")[2]))
    np.testing.assert_array_equal(shown[..., :3], np.repeat(image[..., np.newaxis], 3, axis=2))


LATITUDES, LONGITUDES = np.arange(-85.5, 90, 9), np.arange(-175.5, 180, 9)
PLACES = [(13.5, 4.5), (15, 5), (85.5, 40.5), (174, -41), (-13.5, 31.5), (-130, -22)]
"""Longitudes and latitudes, some of them beside the middles of cells."""


def write_globe(path: Path) -> Any:
    """Write ``tas`` of 20 days as NetCDF4, compressed and shuffled; gives its values."""
    values = np.random.default_rng(0).uniform(220, 320, (20, 20, 40)).astype("f4")
    with netCDF4.Dataset(path, "w") as file:
        for name, labels, units in (
            ("time", np.arange(20.0), "days since 2000-01-01"),
            ("lat", LATITUDES, "degrees_north"),
            ("lon", LONGITUDES, "degrees_east"),
        ):
            file.createDimension(name, len(labels))
            written = file.createVariable(name, "f8", (name,))
            written.units = units
            written[:] = labels
        options = {"zlib": True, "shuffle": True, "chunksizes": (5, 10, 20)}
        file.createVariable("tas", "f4", ("time", "lat", "lon"), **options)[:] = values
    return values


def on_map(visit: Visit, address: str, values: Any) -> None:
    """Compare what a map of ``tas`` shows at `PLACES` with the values of one step."""
    step, (low, high) = 12, (220, 320)
    asked = [address, "tas", {"time": {"selected": step, "type": "index"}}, [low, high], PLACES]
    shown = visit.page.evaluate("(asked) => window.onMap(...asked)", asked)
    expected = [
        values[step, abs(LATITUDES - y).argmin(), abs(LONGITUDES - x).argmin()] for x, y in PLACES
    ]
    assert shown["values"] == expected
    greys = 255 * (np.array(expected) - low) / (high - low)
    np.testing.assert_allclose([grey[0] for grey in shown["greys"]], greys, atol=1.5)
    # It looks for Zarr v2 first, and reading what WebGL drew is slow.
    assert all(
        "404" in each or "ReadPixels" in each or "Canvas2D" in each for each in visit.problems
    )
    visit.problems.clear()


@pytest.mark.long
def test_zarr_layer_shows_the_values(others: str, visit: Visit, tmp_path: Path) -> None:
    values = write_globe(tmp_path / "globe.nc")
    visit.page.goto(others)
    app = create_app({"m": gridref.scan(tmp_path / "globe.nc")}, allow_origin=[others])
    with running(app) as url:
        on_map(visit, f"{url}/m/portable", values)


@pytest.mark.long
def test_zarr_layer_reads_what_is_published(pages: Path, visit: Visit, tmp_path: Path) -> None:
    www = tmp_path / "www"
    shutil.copytree(pages, www)
    values = write_globe(www / "globe.nc")
    with nginx_serving(www, tmp_path) as url:
        gridref.build([www / "globe.nc"], tmp_path / "globe.gridref")
        moved = {f"{www}/": f"{url}/"}
        site = f"{url}/site"
        publish(tmp_path / "globe.gridref", www / "site", base_url=site, prefixes=moved)
        visit.page.goto(url)
        on_map(visit, f"{site}/references.json", values)


NEUROGLANCER = """
import sys, neuroglancer
neuroglancer.set_server_bind_address("127.0.0.1", 0)
viewer = neuroglancer.Viewer(token="token")
with viewer.txn() as state:
    state.layers["shown"] = neuroglancer.ImageLayer(source=sys.stdin.readline().strip())
    state.layout = "xy"
print(viewer.get_viewer_url(), flush=True)
sys.stdin.read()
"""
VALUE = """(at) => {
    const [shown] = window.viewer?.layerManager.managedLayers ?? [];
    const value = shown?.layer?.getValueAt?.(Float32Array.from(at, (i) => i + 0.5), {});
    return value === undefined || value === null ? null : String(value);
}"""


@pytest.mark.long
def test_neuroglancer_shows_the_values(visit: Visit, cube: Path, sample_data: Path) -> None:
    app = create_app([cube], access_log=False, allow_origin=["*"])
    with running(app) as url, neuroglancer(f"zarr3://{url}/cube/portable/tas/") as address:
        visit.page.goto(address)
        give_up = time.monotonic() + 30
        while (shown := visit.page.evaluate(VALUE, [1, 13, 17])) is None:
            assert time.monotonic() < give_up, "nothing was drawn"
            visit.page.wait_for_timeout(100)
        other = visit.page.evaluate(VALUE, [0, 3, 5])
        visit.page.goto("about:blank")
    with h5py.File(sample_data / "daily_2023-01.nc") as file:
        assert [float(shown), float(other)] == [file["tas"][1, 13, 17], file["tas"][0, 3, 5]]
    visit.problems.clear()  # it has no icon


@contextlib.contextmanager
def neuroglancer(source: str) -> Iterator[str]:
    """The address of neuroglancer's own server, which shows a source."""
    folder = HERE / "node_modules" / "neuroglancer-python"
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", folder]
    install(folder.name, *pip, "neuroglancer==2.41.2")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", NEUROGLANCER]
    with subprocess.Popen(command, env=environment, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{source}\n")
        process.stdin.flush()
        yield process.stdout.readline().strip()
        process.stdin.close()


@pytest.mark.long
def test_no_viewer_reads_a_server_that_does_not_name_it(
    others: str, browser: Any, served: str
) -> None:
    visit = Visit(browser)
    visit.page.goto(others)
    read = "(url) => fetch(url).then(() => 'read', () => 'refused')"
    told = visit.page.evaluate(read, f"{served}/cube/portable/zarr.json")
    visit.close()
    assert told == "refused"
