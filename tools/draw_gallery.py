"""Draw docs/gallery.md, pictures of real data in the viewer: python tools/draw_gallery.py docs.

Needs Chromium, playwright, pillow, the viewer (make assets) and the files of ``GRIDREF_TEST_DATA``.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import gridref
from gridref.faces.http import create_app
from gridref.model.array import VirtualArray, VirtualGroup

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
PHONE = {"width": 390, "height": 760}
VISITORS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 860, "height": 760}},
    "dark": {"viewport": {"width": 860, "height": 760}, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "device_scale_factor": 2, "has_touch": True},
}
HEIGHT = 430
"""Of a picture, whose three parts are light, dark and a phone."""


@dataclass(frozen=True)
class Shown:
    """One kind of data.

    Attributes
    ----------
    name, title
        Of the picture's file, and above the picture.
    pattern
        The file below the test data; empty for what `geostationary` makes.
    path, state
        The array, and what follows ``#`` in the address. Without an array it is the list of
        catalogs, and what it is searched for.
    told
        What there is to see.
    """

    name: str
    title: str
    pattern: str
    path: str
    state: str
    told: str


GALLERY = (
    Shown(
        "global-model",
        "A global climate model",
        "netcdf4/realistic/*CMIP6-test.nc",
        "tas",
        "",
        (
            "Near-surface air temperature of CMIP6, as it is opened. The colours suit a "
            "temperature, dates are of its calendar."
        ),
    ),
    Shown(
        "globe",
        "The same as a globe",
        "netcdf4/realistic/*CMIP6-test.nc",
        "tas",
        "view=globe&centre=20,15",
        "*View: globe*; dragging turns it.",
    ),
    Shown(
        "regional-model",
        "A regional weather model",
        "families/wrf_tip_2domains/wrf_tip_d1.nc",
        "T2",
        "",
        (
            "WRF over Tibet: a Lambert grid with two-dimensional `XLAT` and `XLONG`, whose "
            "first row is the southernmost."
        ),
    ),
    Shown(
        "rotated-pole",
        "A rotated pole",
        "netcdf4/realistic/*hybrid_height.nc",
        "air_potential_temperature",
        "",
        (
            "Potential temperature of a model of the Met Office on a grid with a rotated "
            "pole, drawn where it is."
        ),
    ),
    Shown(
        "ocean-radar",
        "Currents by radar",
        "families/acorn_turq_hourly/*T000000Z*.nc",
        "UCUR",
        "",
        ("Eastward velocity off Western Australia on a curvilinear grid: colours lie about zero."),
    ),
    Shown(
        "swath",
        "A swath",
        "families/ascat_l2_subset_uneven/ascat_20150702_084200*",
        "wind_speed",
        "",
        "Wind speed by ASCAT, where the satellite saw it.",
    ),
    Shown(
        "geostationary",
        "A geostationary image",
        "",
        "CMI",
        "",
        (
            "Computed values on the grid of GOES-East, with scan angles as coordinates: a "
            "globe, as from the satellite."
        ),
    ),
    Shown(
        "utm",
        "A scene in UTM",
        "tiff/realistic/rasterio__rasterio__RGB.byte.tif",
        "band_data",
        "",
        "Landsat over the Bahamas, GeoTIFF: bands as red, green and blue, north up.",
    ),
    Shown(
        "land",
        "Land in an equal-area projection",
        "families/lcmap_cog_2years/lcmap_tiny_cog_2019.tif",
        "band_data",
        "colours=YlGn&low=0&high=8",
        (
            "Land cover by LCMAP, a cloud-optimized GeoTIFF with overviews, in the Albers "
            "projection."
        ),
    ),
    Shown(
        "grib",
        "A GRIB message",
        "formats/grib/ecmwf__cfgrib__regular_ll_sfc.grib",
        "surface/skt",
        "",
        "Skin temperature of ECMWF on a grid of 5 degrees.",
    ),
    Shown(
        "cloud-radar",
        "Profiles over time",
        "families/arm_sgpmmcr_uneven/sgpmmcrC1.b1.1.cdf",
        "Reflectivity",
        "",
        (
            "A vertically pointing cloud radar (ARM): time and range have nothing in "
            "common, the picture fills its place."
        ),
    ),
    Shown(
        "microscopy",
        "Microscopy",
        "ome_tiff/singles/multi-channel-time-series.ome.tif",
        "image",
        "at0=3",
        ("OME-TIFF: pixels are square, channels are composed in their colours, time has a slider."),
    ),
    Shown(
        "series",
        "A series",
        "families/mooring_nrsrot_tz_uneven/*1812-SBE39-23*",
        "TEMP",
        "",
        "Temperature of a mooring off Rottnest Island, with its dates.",
    ),
    Shown(
        "catalogs",
        "A list of catalogs",
        "",
        "",
        "",
        "All of these on one server, which is searched by words, times and boxes.",
    ),
)


def geostationary() -> VirtualGroup:
    """Waves of brightness temperature on the grid of GOES-East."""
    from pyproj import Proj

    height = 35786023.0
    angles = np.linspace(-0.1518, 0.1518, 600)
    seen = Proj(f"+proj=geos +h={height} +lon_0=-75 +sweep=x +ellps=GRS80")
    x, y = np.meshgrid(angles * height, -angles * height)
    longitude, latitude = (
        np.radians(np.where(np.isfinite(a), a, np.nan)) for a in seen(x, y, inverse=True)
    )
    waves = 6 * np.sin(9 * longitude + 4 * latitude) * np.cos(5 * latitude)
    values = 295 - 60 * np.sin(latitude) ** 2 + waves
    mapping = {
        "grid_mapping_name": "geostationary",
        "perspective_point_height": height,
        "semi_major_axis": 6378137.0,
        "semi_minor_axis": 6356752.31414,
        "longitude_of_projection_origin": -75.0,
        "latitude_of_projection_origin": 0.0,
        "sweep_angle_axis": "x",
    }
    attrs = {
        "grid_mapping": "projection",
        "long_name": "Brightness temperature",
        "standard_name": "toa_brightness_temperature",
        "units": "K",
    }
    make = VirtualArray.from_numpy
    return VirtualGroup(
        {
            "x": make(angles, ("x",), {"units": "rad", "standard_name": "projection_x_coordinate"}),
            "y": make(
                -angles, ("y",), {"units": "rad", "standard_name": "projection_y_coordinate"}
            ),
            "projection": make(np.array(0), (), mapping),
            "CMI": make(values.astype("f4"), ("y", "x"), attrs),
        }
    )


def page() -> str:
    """The text of the page."""
    head = (
        "# Gallery\n\nData as the [viewer](pages.md#the-viewer) shows them, on a light and a dark"
        " page and on a phone. Nothing was chosen but what the text says.\n\nThe files are those of"
        " the tests, out of public repositories, but for the geostationary one;"
        " `make gallery` draws the pictures anew."
    )
    parts = [head]
    for each in GALLERY:
        picture = f"![{each.title}: light, dark, phone](images/gallery/{each.name}.jpg)"
        parts.append(f"## {each.title}\n\n{each.told}\n\n{picture}")
    return "\n\n".join(parts) + "\n"


def draw(folder: Path) -> None:
    """Take all pictures, and write the page."""
    from playwright.sync_api import sync_playwright

    from tests.uvicorn_server import running

    data = Path(os.environ["GRIDREF_TEST_DATA"])
    groups = {each.name: _group(data, each) for each in GALLERY if each.path}
    (folder / "images" / "gallery").mkdir(parents=True, exist_ok=True)
    app = create_app(groups, access_log=False)
    with running(app) as url, sync_playwright() as playwright, tempfile.TemporaryDirectory() as t:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox"])
        for each in GALLERY:
            taken = []
            for visitor, options in VISITORS.items():
                tab = browser.new_context(**options).new_page()
                address = f"{each.name}/array/{each.path}#" if each.path else "?"
                tab.goto(f"{url}/{address}{each.state}")
                tab.locator(":is(#viewer, .preview)[data-ready]").first.wait_for()
                tab.wait_for_timeout(400)
                taken.append(Path(t) / f"{visitor}.png")
                tab.screenshot(path=taken[-1])
                tab.context.close()
            _beside(taken, folder / "images" / "gallery" / f"{each.name}.jpg")
        browser.close()
    (folder / "gallery.md").write_text(page())


def _group(data: Path, shown: Shown) -> VirtualGroup:
    if not shown.pattern:
        return geostationary()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gridref.scan(min(data.glob(shown.pattern)))


def _beside(pictures: list[Path], path: Path) -> None:
    from PIL import Image

    parts = []
    for picture in pictures:
        with Image.open(picture) as shown:
            whole = shown.convert("RGB")
            parts.append(
                whole.resize(
                    (whole.width * HEIGHT // whole.height, HEIGHT), Image.Resampling.LANCZOS
                )
            )
    joined = Image.new("RGB", (sum(part.width for part in parts), HEIGHT))
    left = 0
    for part in parts:
        joined.paste(part, (left, 0))
        left += part.width
    joined.save(path, quality=80, optimize=True)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
