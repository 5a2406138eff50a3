"""The viewer: what it shows is what h5py and tifffile read, drawn as numpy draws it."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tifffile

import gridref
from gridref.faces.http import create_app
from gridref.model.array import VirtualArray, VirtualGroup
from tests.browser.visits import Visit
from tests.programs import WEB, built_viewer, npm_package, program
from tests.uvicorn_server import running

READY = "document.getElementById('viewer')?.dataset.ready"
TOLD = "document.getElementById('viewer-told').textContent"
CELLS = """
    ([rows, columns, width, height]) => {
        const canvas = document.getElementById("viewer-canvas");
        const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
        copy.drawImage(canvas, 0, 0);
        const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
        const found = [];
        for (let row = 0; row < rows; row++) for (let column = 0; column < columns; column++) {
            const x = Math.floor((column + 0.5) * width * devicePixelRatio);
            const y = Math.floor((row + 0.5) * height * devicePixelRatio);
            found.push(...data.subarray(4 * (y * canvas.width + x)).subarray(0, 4));
        }
        return found;
    }
"""


def cells(visit: Visit, shape: tuple[int, int], aspect: float | None) -> Any:
    """The colours in the middle of each cell of the canvas, (rows, columns, RGBA)."""
    box = visit.page.locator("#viewer-canvas").bounding_box()
    width, height = box["width"] / shape[1], box["height"] / shape[0]
    if aspect is not None:
        width = min(width, height / aspect)
        height = width * aspect
    found = visit.page.evaluate(CELLS, [*shape, width, height])
    return np.array(found, np.uint8).reshape(*shape, 4)


def colours_of(name: str) -> Any:
    """256 colours, by matplotlib."""
    from matplotlib import colormaps

    return np.floor(255 * colormaps[name](np.arange(256)) + 0.5).astype(np.uint8)


def rendered(values: Any, name: str = "viridis") -> Any:
    """What the colours should be, from 2 to 98 % of the finite values."""
    finite = values[np.isfinite(values)]
    low, high = np.percentile(finite, [2, 98])
    if low == high:
        low, high = finite.min(), finite.max()
    with np.errstate(invalid="ignore"):
        step = np.clip(np.floor((values - low) / (high - low) * 256), 0, 255)
    shown = colours_of(name)[np.nan_to_num(step).astype(int)]
    return np.where(np.isnan(values)[..., np.newaxis], 0, shown).astype(np.uint8)


def opened(visit: Visit, url: str, state: str = "") -> Any:
    visit.page.goto(f"{url}{state and '#'}{state}")
    visit.wait(READY)
    return visit.page


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", ["tas", "pr"])
def test_the_picture_is_what_numpy_draws(
    visit: Visit, served: str, sample_data: Path, name: str
) -> None:
    opened(visit, f"{served}/cube/array/{name}", "colours=viridis&coasts=0&at0=33")
    with h5py.File(sample_data / "daily_2023-02.nc") as file:
        stored = file[name]
        values = stored[2].astype("f8")
        values[stored[2] == stored.attrs["_FillValue"]] = np.nan
        values = values * stored.attrs.get("scale_factor", 1) + stored.attrs.get("add_offset", 0)
    expected = rendered(values)[::-1]  # the north is up
    assert len(np.unique(expected.reshape(-1, 4), axis=0)) > 50
    np.testing.assert_array_equal(cells(visit, values.shape, 1), expected)


@pytest.mark.long
def test_the_list_of_catalogs_has_a_preview(visit: Visit, served: str, sample_data: Path) -> None:
    visit.page.goto(served)
    visit.page.locator(".preview[data-ready=drawn]").wait_for()
    shown = visit.page.evaluate("""
        () => {
            const canvas = document.querySelector(".preview");
            const { width, height } = canvas;
            const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
            return [width, height, [...data]];
        }
    """)
    with h5py.File(sample_data / "daily_2023-01.nc") as file:
        values = file["tas"][0].astype("f8")
    width, height, data = shown
    assert width / height == pytest.approx(40 / 20, rel=0.02)  # both count in degrees, as many
    pixels = np.array(data).reshape(height, width, 4)
    assert pixels[..., 3].min() == 255
    rows = ((np.arange(20) + 0.5) * height / 20).astype(int)
    columns = ((np.arange(40) + 0.5) * width / 40).astype(int)
    grey = pixels[rows][:, columns][::-1, :, :3].sum(-1)  # thermal: warm is light
    assert np.corrcoef(grey.ravel(), values.ravel())[0, 1] > 0.9


@pytest.mark.long
def test_values_and_their_bytes_by_keyboard(visit: Visit, served: str, sample_data: Path) -> None:
    page = opened(visit, f"{served}/cube/array/tas", "at0=31")
    page.locator("#viewer-canvas").focus()
    for key in ("ArrowUp", *["ArrowUp"] * 13, *["ArrowRight"] * 17):
        page.keyboard.press(key)
    told = visit.wait(f"/bytes/.test({TOLD}) && {TOLD}")
    value, place, name, start, stop = re.fullmatch(
        r"(\S+) K at (.*); (\S+), bytes (\d+) to (\d+)", told
    ).groups()
    with h5py.File(sample_data / "daily_2023-02.nc") as file:
        assert float(value) == pytest.approx(file["tas"][0, 13, 17], rel=1e-6)
        where = f"lat {file['lat'][13]:g}° N, lon {file['lon'][17]:g}° E"
        stored = file["tas"].id.get_chunk_info_by_coord((0, 12, 16))
    assert place == f"time 2023-02-01 12:00, {where}"
    assert name == "daily_2023-02.nc"
    assert (int(start), int(stop)) == (stored.byte_offset, stored.byte_offset + stored.size)


@pytest.mark.long
def test_a_series_through_a_point(visit: Visit, served: str, sample_data: Path) -> None:
    page = opened(visit, f"{served}/cube/array/tas")
    canvas = page.locator("#viewer-canvas")
    box = canvas.bounding_box()
    cell = min(box["width"] / 40, box["height"] / 20)
    canvas.click(position={"x": 10.5 * cell, "y": 4.5 * cell})
    page.locator("#viewer-series summary").click()
    shown = page.locator("#viewer-series td").all_text_contents()
    expected = []
    for path in sorted(sample_data.glob("*.nc")):
        with h5py.File(path) as file:
            expected += file["tas"][:, 19 - 4, 10].tolist()
    assert len(shown) == 200
    values = [float(text.removesuffix(" K")) for text in shown]
    np.testing.assert_allclose(values, expected[:200], rtol=1e-6)
    first = page.locator("#viewer-series th").first.text_content()
    assert first == "2023-01-01 12:00"


@pytest.mark.long
def test_only_the_chunks_that_are_shown_are_asked_for(visit: Visit, cube: Path) -> None:
    app = create_app([cube], access_log=False, chunks={"time": 1, "lat": 10, "lon": 10})
    with running(app) as url:
        page = opened(visit, f"{url}/cube/array/tas", "at0=7")
        asked = lambda: sorted(  # noqa: E731
            url.partition("/tas/c/")[2].removesuffix("?compressed")
            for url in visit.asked
            if "/tas/c/" in url
        )
        first = sorted(f"7/{row}/{column}" for row in range(2) for column in range(4))
        assert asked() == first
        page.locator("input[name=time]").focus()
        page.keyboard.press("ArrowRight")
        visit.wait(f"{READY} == '2'")
        page.wait_for_timeout(100)
        then = [each.replace("7/", f"{day}/", 1) for day in (8, 9, 10, 11) for each in first]
        assert asked() == sorted([*first, *then])  # the next ones ahead
        page.keyboard.press("ArrowLeft")  # what was read is kept
        visit.wait(f"{READY} == '3'")
        page.wait_for_timeout(100)
        assert len(asked()) == 64  # those of days 4 to 6 ahead
        page.goto("about:blank")


@pytest.mark.long
def test_an_address_leads_to_the_same_picture(visit: Visit, served: str) -> None:
    page = opened(visit, f"{served}/cube/array/tas")
    page.locator("select[name=up]").select_option("time")
    visit.wait(f"{READY} == '2'")
    page.locator("select[name=colours]").select_option("gray")
    page.locator("input[name=low]").fill("250")
    page.locator("input[name=low]").press("Enter")
    page.locator("input[name=lat]").focus()
    page.keyboard.press("ArrowRight")
    visit.wait(f"{READY} == '3'")
    state = dict(part.split("=") for part in page.url.partition("#")[2].split("&"))
    assert state.items() >= {"rows": "time", "columns": "lon", "at1": "1", "low": "250"}.items()
    shown = "document.getElementById('viewer-canvas').toDataURL()"
    before = page.evaluate(shown)
    url = page.url
    page.goto("about:blank")
    page.goto(url)
    visit.wait(READY)
    assert page.locator("select[name=up]").input_value() == "0"
    assert page.evaluate(shown) == before


@pytest.mark.long
def test_bands_of_a_tiff_in_their_colours(visit: Visit, tmp_path: Path) -> None:
    image = np.random.default_rng(1).integers(0, 256, (24, 32, 3), "u1")
    tifffile.imwrite(tmp_path / "rgb.tif", image, photometric="rgb", tile=(16, 16))
    group = gridref.scan(tmp_path / "rgb.tif")
    ((name, _),) = [each for each in group.arrays.items() if each[1].ndim == 3]
    with running(create_app({"image": group}, access_log=False)) as url:
        opened(visit, f"{url}/image/array/{name}")
        shown = cells(visit, (24, 32), None)
        visit.page.goto("about:blank")
    np.testing.assert_array_equal(shown[..., :3], image)


@pytest.mark.long
def test_a_closer_look(visit: Visit) -> None:
    values = np.arange(16.0).reshape(4, 4)
    group = VirtualGroup({"a": VirtualArray.from_numpy(values, ("y", "x"))})
    with running(create_app({"m": group}, access_log=False)) as url:
        page = opened(visit, f"{url}/m/array/a")
        canvas = page.locator("#viewer-canvas")
        canvas.focus()
        page.keyboard.press("+")  # the middle half of both sides
        page.wait_for_timeout(50)
        expected = rendered(values)
        np.testing.assert_array_equal(cells(visit, (2, 2), None), expected[1:3, 1:3])
        box = canvas.bounding_box()
        canvas.hover(position={"x": box["width"] / 4, "y": 3 * box["height"] / 4})
        assert page.evaluate(TOLD).startswith("9 at y 2, x 1")
        for _ in range(2):
            page.keyboard.press("ArrowDown")  # to the last row, which comes into sight
        np.testing.assert_array_equal(cells(visit, (2, 2), None)[0], expected[2, 1:3])
        page.keyboard.press("0")
        page.mouse.move(0, 0)
        shown = cells(visit, (4, 4), None)
        np.testing.assert_array_equal(shown, expected)
        page.get_by_label("Zoom into the picture").click()
        np.testing.assert_array_equal(cells(visit, (2, 2), None), expected[1:3, 1:3])
        page.goto("about:blank")


@pytest.mark.long
def test_categories_have_names(visit: Visit) -> None:
    values = np.array([[1, 2, 4], [4, 9, 1]], "i2")
    attrs = {"flag_values": np.array([1, 2, 4], "i2"), "flag_meanings": "land sea ice"}
    array = VirtualArray.from_numpy(values, ("y", "x"), attrs, fill_value=9)
    with running(create_app({"m": VirtualGroup({"kind": array})}, access_log=False)) as url:
        page = opened(visit, f"{url}/m/array/kind")
        legend = page.locator("#viewer-legend li")
        assert legend.all_text_contents() == ["1: land", "2: sea", "4: ice"]
        named = dict(zip((1, 2, 4), legend.locator("rect").all(), strict=True))
        named = {k: each.get_attribute("fill")[4:-1].split(",") for k, each in named.items()}
        shown = cells(visit, (2, 3), None)
        for place, value in np.ndenumerate(values):
            colour = [0, 0, 0, 0] if value == 9 else [*map(int, named[int(value)]), 255]
            assert shown[place].tolist() == colour
        page.locator("#viewer-canvas").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        assert page.evaluate(TOLD).startswith("2 (sea) at y 0, x 1")
        page.goto("about:blank")


@pytest.mark.long
def test_what_is_not_valid_is_no_value(visit: Visit) -> None:
    values = np.array([[0.5, -3, 2], [99, np.nan, 1]])
    attrs = {"valid_range": np.array([0.0, 10.0]), "missing_value": 2.0}
    array = VirtualArray.from_numpy(values, ("y", "x"), attrs, fill_value=7.0)
    with running(create_app({"m": VirtualGroup({"a": array})}, access_log=False)) as url:
        opened(visit, f"{url}/m/array/a")
        shown = cells(visit, (2, 3), None)
        visit.page.goto("about:blank")
    expected = np.where((values >= 0) & (values <= 10) & (values != 2), values, np.nan)
    np.testing.assert_array_equal(shown, rendered(expected))


@pytest.mark.long
@pytest.mark.parametrize(
    ("values", "told"),
    [
        (np.array([3, 2**53, -5]), "from -5 to 9007199254740992"),
        (np.array([True, False, True]), "from 0 to 1"),
        (np.array([1.5, np.nan, 2.5], "f4"), "from 1.5 to 2.5"),
        (np.array([2, 3], "u8"), "from 2 to 3"),
        (np.array([0.25, 0.5], "f2"), "from 0.25 to 0.5"),
    ],
)
def test_arrays_of_one_dimension_are_plots(visit: Visit, values: Any, told: str) -> None:
    group = VirtualGroup({"a": VirtualArray.from_numpy(values, ("x",))})
    with running(create_app({"m": group}, access_log=False)) as url:
        page = opened(visit, f"{url}/m/array/a")
        assert told in page.locator("#viewer figcaption").text_content()
        assert page.locator("#viewer .plot[role=img] canvas").count() == 1
        page.goto("about:blank")


@pytest.mark.long
def test_values_have_all_their_digits(visit: Visit) -> None:
    large = VirtualArray.from_numpy(np.array([[2**53 + 1, -(2**62) - 1]]), ("y", "x"))
    single = VirtualArray.from_numpy(np.array([[0.1, 16777217.0]], "f4"), ("y", "x"))
    double = VirtualArray.from_numpy(np.array([[0.123456789012345]]), ("y", "x"))
    group = VirtualGroup({"l": large, "s": single, "d": double})
    with running(create_app({"m": group}, access_log=False)) as url:
        page = visit.page
        for name, told in {
            "l": [str(2**53 + 1), str(-(2**62) - 1)],
            "s": ["0.1", "16777216"],
            "d": ["0.123456789012345"],
        }.items():
            opened(visit, f"{url}/m/array/{name}")
            page.locator("#viewer-canvas").focus()
            for column, digits in enumerate(told):
                page.keyboard.press("ArrowRight")
                assert page.evaluate(TOLD).startswith(f"{digits} at y 0, x {column}")
        page.goto("about:blank")


@pytest.mark.long
def test_pyramids_of_tiff_files(visit: Visit, tmp_path: Path) -> None:
    image = np.random.default_rng(3).integers(0, 256, (2_500, 2_100), "u1")
    small = 255 - image[::2, ::2]
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        file.write(image, tile=(512, 512), subifds=1)
        file.write(small, tile=(512, 512), subfiletype=1)
    group = gridref.scan(tmp_path / "a.tif")
    with running(create_app({"image": group}, access_log=False)) as url:
        page = opened(visit, f"{url}/image/array/0/image")
        detail = page.locator("select[name=detail]")
        assert detail.locator("option").all_text_contents() == ["2500 × 2100", "1250 × 1050"]
        for picture, level, values in (("2", "1", small), ("3", "0", image)):
            detail.select_option(level)
            page.locator("#viewer-canvas").focus()
            visit.wait(f"{READY} == '{picture}' && location.hash.includes('level={level}')")
            page.keyboard.press("ArrowRight")
            page.keyboard.press("ArrowRight")
            assert page.evaluate(TOLD).startswith(f"{values[0, 1]} at y 0, x 1")
        page.goto("about:blank")


def test_late_answers_about_another_level_are_not_told(visit: Visit) -> None:
    image = np.arange(64, dtype="u1").reshape(8, 8)
    small = 255 - image[::2, ::2]
    below = {"overview_1": VirtualGroup({"b": VirtualArray.from_numpy(small, ("y_1", "x_1"))})}
    group = VirtualGroup({"b": VirtualArray.from_numpy(image, ("y", "x"))}, below)
    with running(create_app({"image": group}, access_log=False)) as url:
        page = opened(visit, f"{url}/image/array/b", "level=1")
        held: list[Any] = []
        # Playwright asks for a function of Python.
        page.route("**/*?at=*", lambda route: held.append(route))  # noqa: PLW0108
        page.locator("#viewer-canvas").focus()
        page.keyboard.press("ArrowRight")
        assert page.evaluate(TOLD).startswith(f"{small[0, 0]} at")
        with page.expect_request("**/*?at=*"):
            pass
        page.locator("select[name=detail]").select_option("0")
        visit.wait(f"{READY} == '2'")
        assert page.evaluate(TOLD) == ""
        page.locator("#viewer-canvas").focus()
        page.keyboard.press("ArrowRight")
        with page.expect_response("**/*?at=*"):
            held[0].continue_()
        page.wait_for_timeout(100)
        assert page.evaluate(TOLD).startswith(f"{image[0, 0]} at")
        page.goto("about:blank")


@pytest.mark.long
def test_overviews_are_shown_first(visit: Visit) -> None:
    image = np.random.default_rng(3).integers(0, 256, (2_500, 2_100), "u1")
    small = image[::50, ::50]
    coarse = VirtualArray.from_numpy(small, ("y_1", "x_1"))
    below = {"overview_1": VirtualGroup({"b": coarse})}
    group = VirtualGroup({"b": VirtualArray.from_numpy(image, ("y", "x"))}, below)
    with running(create_app({"image": group}, access_log=False)) as url:
        opened(visit, f"{url}/image/array/b")
        expected = rendered(small.astype("f8"), "gray")
        np.testing.assert_array_equal(cells(visit, (50, 42), None), expected)
        visit.page.goto("about:blank")


@pytest.mark.long
def test_overviews_beside_the_files_are_shown_first(visit: Visit, tmp_path: Path) -> None:
    image = np.random.default_rng(3).integers(0, 256, (2_500, 2_100), "u1")
    with h5py.File(tmp_path / "image.h5", "w") as file:
        file.create_dataset("b", data=image, chunks=(500, 700))
    gridref.build(tmp_path / "image.h5", tmp_path / "image.gridref")
    catalog = gridref.open_catalog(tmp_path / "image.gridref")
    catalog.overviews("b", factor=50, levels=1, method="nearest")
    with running(create_app([tmp_path / "image.gridref"], access_log=False)) as url:
        page = opened(visit, f"{url}/image/array/b")
        expected = rendered(image[25::50, 25::50].astype("f8"), "gray")
        np.testing.assert_array_equal(cells(visit, (50, 42), None), expected)
        asked = page.evaluate("performance.getEntriesByType('resource').map(({name}) => name)")
        assert [name for name in asked if "/overview_1/b/" in name]
        assert not [name for name in asked if "/look/" in name or "/portable/b/c" in name]
        page.goto("about:blank")


def test_the_lines_for_javascript(served: str, sample_data: Path, tmp_path: Path) -> None:
    import httpx

    npm_package("zarrita")
    node = program("node")
    text = httpx.get(f"{served}/cube/array/tas", headers={"Accept": "text/html"}).text
    block = re.search(r"<code>(import \* as zarr.*?)</code>", text, re.DOTALL)[1]
    script = html.unescape(block) + "\nconsole.log(first);"
    command = [node, "--input-type=module", "-e", script]
    done = subprocess.run(command, cwd=WEB, capture_output=True, text=True, check=True)
    with h5py.File(sample_data / "daily_2023-01.nc") as file:
        assert float(done.stdout) == file["tas"][0, 0, 0]


@pytest.mark.long
def test_names_with_anything_in_them(visit: Visit) -> None:
    names = ["a#b", "ä ö", "100%", "%23", "what?", "a&b=c;d", "'q\"", "+"]
    values = np.array([[5, 6], [7, 8]], "i2")
    arrays = {name: VirtualArray.from_numpy(values + n, ("y", "x")) for n, name in enumerate(names)}
    group = VirtualGroup({}, {"in": VirtualGroup(arrays)})
    with running(create_app({"m": group}, access_log=False)) as url:
        page = visit.page
        page.goto(f"{url}/m")
        links = page.locator(".tree a").evaluate_all("(links) => links.map(({ href }) => href)")
        assert len(links) == len(names)
        for n, link in enumerate(links):
            opened(visit, link)
            expected = rendered(values.astype("f8"), "gray")
            np.testing.assert_array_equal(cells(visit, (2, 2), None), expected)
            page.locator("#viewer-canvas").focus()
            page.keyboard.press("ArrowRight")
            assert page.evaluate(TOLD).startswith(f"{5 + n} at")
        page.goto("about:blank")


@pytest.mark.long
def test_single_values_and_other_planes(visit: Visit) -> None:
    scalar = VirtualArray.from_numpy(np.array(4.5), (), {"units": "m"})
    three = VirtualArray.from_numpy(np.arange(24, dtype="i8").reshape(2, 3, 4), ("a", "b", "c"))
    with running(create_app({"m": VirtualGroup({"s": scalar, "t": three})})) as url:
        page = opened(visit, f"{url}/m/array/s")
        assert page.evaluate(TOLD) == "4.5 m"
        opened(visit, f"{url}/m/array/t", "rows=c&columns=a&at1=2")
        values = np.arange(24.0).reshape(2, 3, 4)[:, 2].T
        expected = rendered(values, "gray")
        np.testing.assert_array_equal(cells(visit, (4, 2), None), expected)
        page.goto("about:blank")


@pytest.mark.long
def test_labels_that_cannot_be_read_are_numbers(
    visit: Visit, sample_data: Path, tmp_path: Path
) -> None:
    file = shutil.copy(sample_data / "daily_2023-01.nc", tmp_path / "gone.nc")
    values = np.arange(31 * 4.0).reshape(31, 4)
    group = VirtualGroup(
        {
            "time": gridref.scan(file).arrays["time"],
            "x": VirtualArray.from_numpy(np.arange(4) * 0.5, ("x",)),
            "a": VirtualArray.from_numpy(values, ("time", "x")),
        }
    )
    Path(file).unlink()
    with running(create_app({"m": group}, access_log=False)) as url:
        page = opened(visit, f"{url}/m/array/a")
        np.testing.assert_array_equal(cells(visit, values.shape, None), rendered(values))
        page.locator("#viewer-canvas").focus()
        for _ in range(2):
            page.keyboard.press("ArrowRight")
        assert page.evaluate(TOLD).startswith("1 at time 0, x 0.5")
        (note,) = page.locator("#viewer .problem").all_text_contents()
        assert "Labels of time" in note
        assert "gone.nc" in note
        page.goto("about:blank")
    assert all("502" in problem for problem in visit.problems)
    visit.problems.clear()


@pytest.mark.long
def test_colours_are_those_of_finite_values(visit: Visit) -> None:
    values = np.full((2, 3, 3), np.nan)
    values[1] = [[1, 2, np.inf], [3, -np.inf, 4], [5, 6, np.nan]]
    group = VirtualGroup({"a": VirtualArray.from_numpy(values, ("t", "y", "x"))})
    with running(create_app({"m": group}, access_log=False)) as url:
        page = opened(visit, f"{url}/m/array/a")
        assert page.locator("#viewer-legend").text_content() == "No values here."
        page.locator("input[name=t]").focus()
        page.keyboard.press("ArrowRight")
        visit.wait(f"{READY} == '2'")
        np.testing.assert_array_equal(cells(visit, (3, 3), None), rendered(values[1]))
        page.goto("about:blank")


@pytest.mark.long
def test_much_is_read_when_asked_for(visit: Visit, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "large.h5", "w") as file:
        file.create_dataset("line", (30_000_000,), "f8", chunks=(1_000_000,))
        file.create_dataset("cube", (3_000, 100, 150), "f4", chunks=(1, 100, 150))
        file.create_dataset("none", (0, 5), "f4")
        file.create_dataset("enormous", (10**6, 10**6), "f4", chunks=(100, 100))
    group = gridref.scan(tmp_path / "large.h5")
    first, *_ = group.arrays["cube"].dims
    app = create_app({"m": group}, access_log=False, chunks={first: 1})
    with running(app) as url:
        page = opened(visit, f"{url}/m/array/line")
        assert page.locator("#viewer button").text_content() == "Show values (reads up to 240 MB)"
        assert not [each for each in visit.asked if "/line/c/" in each]
        page = opened(visit, f"{url}/m/array/cube")
        asked = len(visit.asked)
        page.locator("#viewer-canvas").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        page.locator("#viewer-series button").wait_for()
        assert not [each for each in visit.asked[asked:] if "/cube/c/" in each]
        page = opened(visit, f"{url}/m/array/enormous")
        assert page.locator("select[name=detail] option").count() == 2  # the array, and a look
        page = opened(visit, f"{url}/m/array/enormous", "level=0")
        assert "its chunks take 8 TB" in page.locator("#viewer [role=alert]").text_content()
        page = opened(visit, f"{url}/m/array/none")
        assert re.fullmatch(r"There are no values: \w+ has length 0\.", page.evaluate(TOLD))
        page.goto("about:blank")
    assert all("404" in problem for problem in visit.problems)  # of a missing chunk
    visit.problems.clear()


@pytest.mark.long
def test_a_source_that_is_gone_is_told_in_words(
    browser: Any, of_a_lost_file: str, tmp_path: Path
) -> None:
    visit = Visit(browser)
    page = opened(visit, f"{of_a_lost_file}/one/array/tas")
    text = page.locator("#viewer").text_content()
    assert page.get_by_role("button", name="Try again").is_visible()
    visit.close()
    assert "gone.nc" in text
    assert "chunk (0, 0, 0)" in text
    assert "restore the file" in text
    assert str(tmp_path) not in text
    assert "could not be read" in text


def test_the_viewer_is_small() -> None:
    import gzip

    from gridref.faces.web.frame import asset

    built_viewer()
    files = ("viewer.js", "pages.css", "chunk-map.js", "copy.js", "front.js", "icon.svg", "tree.js")
    assert sum(len(gzip.compress(asset(name).content)) for name in files) < 400_000
