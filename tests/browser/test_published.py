"""The viewer on published pages: it reads the sources themselves, behind a real nginx."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
import tifffile

import gridref
from gridref.faces.web.publishing import publish
from tests.browser.test_viewer import CELLS, READY, TOLD, cells, opened, rendered
from tests.browser.visits import Visit
from tests.http_server import nginx_serving


@pytest.fixture
def place(tmp_path: Path, sample_data: Path) -> Iterator[tuple[Path, str]]:
    """A folder that nginx serves, with nine months in `data/`, and its address."""
    folder = tmp_path / "www"
    (folder / "data").mkdir(parents=True)
    for month in sample_data.glob("daily_2023-0*.nc"):
        shutil.copy(month, folder / "data")
    with nginx_serving(folder, tmp_path) as url:
        yield folder, url


def published(place: tuple[Path, str], files: str) -> str:
    """The address of the site of some files."""
    folder, url = place
    catalog = folder.parent / "months.gridref"
    gridref.build(str(folder / "data" / files), catalog, "time")
    moved = {f"{folder}/data/": f"{url}/data/"}
    publish(catalog, folder / "site", base_url=f"{url}/site", prefixes=moved)
    return f"{url}/site"


def test_pictures_are_read_from_the_files(place: tuple[Path, str], visit: Visit) -> None:
    site = published(place, "*01.nc")
    asked = []
    visit.page.on("request", lambda r: asked.append((r.url, r.headers.get("range"))))
    page = opened(visit, f"{site}/array/tas.html", "colours=viridis&coasts=0&at0=12")
    with h5py.File(place[0] / "data" / "daily_2023-01.nc") as file:
        values = file["tas"][12].astype("f8")
        stored = [
            file["tas"].id.get_chunk_info_by_coord((9, row, column))
            for row in (0, 12)
            for column in (0, 16, 32)
        ]
    expected = rendered(values)[::-1]
    np.testing.assert_array_equal(cells(visit, values.shape, 1), expected)
    ranges = {f"bytes={s.byte_offset}-{s.byte_offset + s.size - 1}" for s in stored}
    shown = {r for url, r in asked if url.endswith("daily_2023-01.nc")}
    assert ranges <= shown
    assert len(shown - ranges) <= 3  # of the coordinates
    page.locator("#viewer-canvas").focus()
    page.keyboard.press("ArrowRight")
    first = stored[0]
    where = f"bytes {first.byte_offset} to {first.byte_offset + first.size}"
    visit.wait(f"{TOLD}.endsWith('; daily_2023-01.nc, {where}')")


@pytest.mark.long
def test_a_series_says_how_much_of_the_files_it_reads(
    place: tuple[Path, str], visit: Visit
) -> None:
    site = published(place, "*.nc")
    read = []
    visit.page.on("request", lambda r: read.append((r.url, r.headers.get("range"))))
    page = opened(visit, f"{site}/array/tas.html", "point=0,3,4&plot=1")
    page.locator("#viewer-series .plot canvas").wait_for()
    travelled = 0
    for path in sorted((place[0] / "data").glob("*.nc")):
        with h5py.File(path) as file:
            days = range(0, len(file["tas"]), file["tas"].chunks[0])
            found = [file["tas"].id.get_chunk_info_by_coord((day, 0, 0)) for day in days]
        ranges = {f"bytes={c.byte_offset}-{c.byte_offset + c.size - 1}" for c in found}
        assert ranges <= {wanted for url, wanted in read if url.endswith(path.name)}
        travelled += sum(chunk.size for chunk in found)
    told = page.locator("#viewer-series figcaption").text_content()
    assert f"({travelled / 1000:.0f} kB of the files)" in told


@pytest.mark.long
def test_months_of_uneven_chunks_are_shown(place: tuple[Path, str], visit: Visit) -> None:
    site = published(place, "*.nc")
    page = opened(visit, f"{site}/array/pr.html", "colours=viridis&low=0&coasts=0&at0=33")
    with h5py.File(place[0] / "data" / "daily_2023-02.nc") as file:
        stored = file["pr"]
        values = stored[2].astype("f8")
        values[stored[2] == stored.attrs["_FillValue"]] = np.nan
        values = values * stored.attrs["scale_factor"] + stored.attrs["add_offset"]
    expected = rendered(values)[::-1]
    np.testing.assert_array_equal(cells(visit, values.shape, 1), expected)
    page.locator("#viewer-canvas").focus()
    page.keyboard.press("ArrowRight")
    visit.wait(f"/at time 2023-02-03 12:00, .*; daily_2023-02.nc, bytes/.test({TOLD})")


VALUES = (np.arange(40 * 61) * 7919 // 64 % 256).reshape(40, 61).astype("f4")
VALUES[:20, :10] = 0
VALUES[20, 20] = 255
"""Values that colours can tell, with runs and without; chunks overhang the edges."""
BLOSC = {"blosclz": 1, "lz4": 2, "lz4hc": 0, "zlib": 1, "zstd": 2}
"""Its formats, with how they are shuffled."""
STORED = [(0, 1), (2, 8), (3, 0), (5, 4)]
"""Chunks of ``sparse`` that are in the file."""
MISSING, RANGE = (176, 184, 187, 255), (34, 113, 178, 255)
"""Their colours on the map."""


@pytest.fixture(scope="module")
def in_many_codecs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a site whose arrays, named by their codecs, hold `VALUES`."""
    import hdf5plugin

    filters = {
        "zlib": {"compression": "gzip", "shuffle": True, "fletcher32": True},
        "zstd": hdf5plugin.Zstd(),
        "lz4": hdf5plugin.LZ4(nbytes=512),
        "bitshuffle": hdf5plugin.Bitshuffle(cname="none"),
        "bitshuffle-lz4": hdf5plugin.Bitshuffle(nelems=64),
        "bitshuffle-zstd": hdf5plugin.Bitshuffle(cname="zstd"),
        **{
            f"blosc-{name}": hdf5plugin.Blosc(cname=name, shuffle=shuffle)
            for name, shuffle in BLOSC.items()
        },
        "lzf": {"compression": "lzf"},
        "plain": {},
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("codecs")
    (folder / "www").mkdir()
    with h5py.File(folder / "www/codecs.h5", "w") as file:
        for name, options in filters.items():
            chunks = {} if name == "plain" else {"chunks": (24, 31)}
            file.create_dataset(name, data=VALUES, **chunks, **options)
        big = np.tile(VALUES, (3, 2000)).astype("i8")
        file.create_dataset("large", data=big, chunks=(24, 200), compression="lzf")
        sparse = file.create_dataset("sparse", (60, 90), "f4", chunks=(10, 10), compression="gzip")
        for row, column in STORED:
            sparse[10 * row, 10 * column] = 1
    with nginx_serving(folder / "www", folder) as url:
        gridref.build([folder / "www/codecs.h5"], folder / "codecs.gridref")
        moved = {f"{folder}/www/": f"{url}/"}
        site = folder / "www/site"
        publish(folder / "codecs.gridref", site, base_url=f"{url}/site", prefixes=moved)
        yield f"{url}/site"


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    ["zlib", "zstd", "lz4", "bitshuffle", "bitshuffle-lz4", "bitshuffle-zstd", "lzf", "plain"]
    + [f"blosc-{name}" for name in BLOSC],
)
def test_codecs_are_decoded_in_the_browser(in_many_codecs: str, visit: Visit, name: str) -> None:
    opened(visit, f"{in_many_codecs}/array/{name}.html")
    shown = cells(visit, VALUES.shape, None)
    np.testing.assert_array_equal(shown, rendered(VALUES.astype("f8")))


@pytest.mark.long
def test_the_chunk_map_is_drawn_from_files(in_many_codecs: str, visit: Visit) -> None:
    visit.page.goto(f"{in_many_codecs}/array/sparse.html")
    visit.page.locator("#chunk-map").scroll_into_view_if_needed()
    visit.wait("document.getElementById('chunk-map').dataset.ready == '54'")
    visit.page.evaluate("new Promise(requestAnimationFrame)")
    box = visit.page.locator("#chunk-map").bounding_box()
    scale = min(box["width"] / 9, box["height"] / 6, 40)
    found = visit.page.evaluate(CELLS.replace("viewer-canvas", "chunk-map"), [6, 9, scale, scale])
    shown = np.array(found).reshape(6, 9, 4)
    listed = gridref.open_catalog(f"{in_many_codecs}/codecs.gridref").chunks("sparse").to_pylist()
    for chunk in listed:
        colour = MISSING if chunk["state"] == "missing" else RANGE
        assert shown[tuple(chunk["chunk"])].tolist() == list(colour)
    assert {tuple(each["chunk"]) for each in listed if each["state"] == "range"} == set(STORED)
    visit.page.locator("#sizes table").wait_for()
    counts = visit.page.locator("#sizes caption").text_content()
    assert counts.startswith(f"{54 - len(STORED)} missing, {len(STORED)} range; ")
    visit.page.locator("#chunk-map").focus()
    visit.page.keyboard.press("ArrowRight")
    told = "document.getElementById('chunk-told').textContent"
    visit.wait(f"/^Chunk .* 0, .* 1: byte range of a source, .* stored$/.test({told})")
    assert not visit.barriers()


@pytest.mark.long
def test_what_browsers_cannot_read_is_said(in_many_codecs: str, visit: Visit) -> None:
    visit.page.goto(f"{in_many_codecs}/array/large.html")
    assert visit.page.get_by_text("gridref.hdf5_lzf is not among those").count() == 1
    assert visit.page.get_by_text("gridref serve shows them").count() == 1
    assert visit.page.evaluate(READY) is None
    inline = "const s = document.createElement('script'); s.text = 'window.ran = 1';"
    visit.page.evaluate(f"{inline} document.head.append(s)")
    assert visit.page.evaluate("window.ran") is None  # the page's own policy
    assert visit.page.evaluate("window.violations.splice(0).length") == 1
    visit.problems.clear()
    assert not visit.barriers()


@pytest.mark.long
def test_a_source_that_is_gone_is_said(place: tuple[Path, str], visit: Visit) -> None:
    site = published(place, "*01.nc")
    (place[0] / "data" / "daily_2023-01.nc").unlink()
    visit.page.goto(f"{site}/array/tas.html")
    visit.wait(f"{READY} == 'failed'")
    assert "daily_2023-01.nc" in visit.page.locator("#viewer").text_content()
    visit.problems.clear()  # of the browser itself: status 404


JPEG = {
    "grey": {"photometric": "minisblack"},
    "rgb": {"photometric": "rgb"},
    "ycbcr": {"photometric": "ycbcr", "subsampling": (1, 1)},
    "subsampled": {"photometric": "ycbcr", "subsampling": (2, 2)},
}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder that nginx serves, with images, and the address of their sites."""
    y, x = np.mgrid[:80, :100]
    smooth = np.stack([2 * x + y // 4, 255 - 3 * y, (x * y) // 32], -1).astype("u1")
    noise = np.random.default_rng(2).integers(0, 256, smooth.shape, "u1")
    folder = tmp_path_factory.mktemp("images")
    www = folder / "www"
    www.mkdir()
    for name, options in JPEG.items():
        shown = smooth[..., 0] if name == "grey" else smooth
        tifffile.imwrite(www / f"{name}.tif", shown, compression="jpeg", tile=(32, 48), **options)
    others = {
        "strips": {"compression": "jpeg", "rowsperstrip": 32, "photometric": "rgb"},
        "predictor": {"compression": "deflate", "predictor": True, "tile": (32, 48)},
    }
    for name, options in others.items():
        tifffile.imwrite(www / f"{name}.tif", noise, **options)
    with nginx_serving(www, folder) as url:
        for file in www.glob("*.tif"):
            gridref.build([file], folder / f"{file.stem}.gridref")
            publish(
                folder / f"{file.stem}.gridref",
                www / file.stem,
                base_url=f"{url}/{file.stem}",
                prefixes={f"{www}/": f"{url}/"},
            )
        yield www, url


@pytest.mark.long
@pytest.mark.parametrize("name", [*JPEG, "strips", "predictor"])
def test_images_are_decoded_in_the_browser(
    images: tuple[Path, str], visit: Visit, name: str
) -> None:
    www, url = images
    page = opened(visit, f"{url}/{name}/array/image.html")
    values = tifffile.imread(www / f"{name}.tif")
    if values.ndim == 2:
        expected = rendered(values.astype("f8"), "gray")
        np.testing.assert_array_equal(cells(visit, values.shape, None), expected)
    else:
        shown = cells(visit, values.shape[:2], None)[..., :3]
        np.testing.assert_array_equal(shown, values)
    assert page.get_by_text("Your browser decodes the JPEG").count() == (name != "predictor")


def _other_bytes(content: bytes) -> bytes:
    return content.replace(b"\x78\x9c", b"\x78\x9d")  # other headers of zlib, size unchanged


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_other_bytes, "changed since it was scanned (ETag, Last-Modified)"),
        (lambda content: content + b"more", "changed since it was scanned (size, ETag"),
        (lambda content: content[:-100], "changed since it was scanned (size, ETag"),
    ],
)
def test_a_file_that_changed_is_not_shown(
    place: tuple[Path, str], visit: Visit, change: Callable[[bytes], bytes], told: str
) -> None:
    folder, url = place
    gridref.build(f"{url}/data/daily_2023-01.nc", folder.parent / "remote.gridref")
    site = f"{url}/remote"
    publish(folder.parent / "remote.gridref", folder / "remote", base_url=site)
    file = folder / "data" / "daily_2023-01.nc"
    content, before = file.read_bytes(), file.stat()
    file.write_bytes(change(content))
    later = before.st_mtime_ns + 10 * 10**9  # servers tell times of change in whole seconds
    os.utime(file, ns=(later, later))
    visit.page.goto(f"{site}/array/tas.html")
    visit.wait(f"{READY} == 'failed'")
    assert told in visit.page.locator("#viewer").text_content()
    visit.page.goto("about:blank")  # other requests of the page may still be under way
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    visit.problems.clear()
    opened(visit, f"{site}/array/tas.html", "coasts=0")
