"""Twelve kinds of data, each with what a picture of it has to show, by other programs than gridref.

Files are real where the shared data have any. Ocean models, geostationary images, weather radars,
plates and scans of a beamline are made here as their products are built.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import rasterio
import tifffile
from pyproj import Geod
from rasterio.warp import transform
from rasterio.windows import Window

import gridref
from gridref.model.array import VirtualGroup

type Plane = np.ndarray[tuple[int, int], np.dtype[np.float64]]
SEED = 20


@dataclass(frozen=True)
class Reference:
    """What a picture has to show.

    Attributes
    ----------
    values
        Of rows and columns, NaN where there is none; of a series one after the other.
    x, y
        Where the middles of elements are along ticks, or longitudes and latitudes: as `values`, or
        of one dimension. A series has no ``y``.
    is_mercator
        Whether latitudes are those of a Mercator map.
    limits
        Values of black and white; None for those of the viewer's gray, from 2 to 98 %.
    from_above
        Rather than ``x`` and ``y`` for a globe: rows and columns of longitudes and latitudes, and
        the middle of the globe.
    """

    values: Any
    x: Any = None
    y: Any = None
    is_mercator: bool = False
    limits: tuple[float, float] | None = None
    from_above: tuple[Callable[[Any, Any], tuple[Any, Any]], tuple[float, float]] | None = None


@dataclass(frozen=True)
class Kind:
    """A kind of data.

    Attributes
    ----------
    name, title, told
        Of its picture in the gallery.
    path
        Of the array.
    make
        Takes the folder of real files and one for others; gives what is served, and its reference.
    state
        What follows ``#`` in the address.
    """

    name: str
    title: str
    told: str
    path: str
    make: Callable[[Path, Path], tuple[VirtualGroup | str, Reference]]
    state: str = ""


def scanned(path: Path) -> VirtualGroup:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gridref.scan(path)


def read(path: Path, *names: str) -> list[Any]:
    """Variables as netCDF4 decodes them, NaN where they are masked."""
    with netCDF4.Dataset(path) as file:
        return [np.ma.filled(np.ma.asarray(file[name][:], float), np.nan) for name in names]


def hills(shape: tuple[int, int], n: int, seed: int = SEED) -> Plane:
    """A smooth field with hills that are nowhere alike, from 0 to 1."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[: shape[0], : shape[1]] / np.max(shape)
    field = np.zeros(shape)
    for a, b, height, width in random.uniform([0, 0, -1, 0.03], [1, 1, 1, 0.12], (n, 4)):
        away = (x - a * shape[1] / max(shape)) ** 2 + (y - b * shape[0] / max(shape)) ** 2
        field += height * np.exp(-away / width**2)
    return (field - field.min()) / np.ptp(field)


# ---- on earth


def global_model(data: Path, _: Path) -> tuple[VirtualGroup, Reference]:
    (file,) = data.glob("netcdf4/realistic/*CMIP6-test.nc")
    values, latitudes, longitudes = read(file, "tas", "lat", "lon")
    return scanned(file), Reference(values[0], longitudes, latitudes)


def rotated_pole(data: Path, _: Path) -> tuple[VirtualGroup, Reference]:
    (file,) = data.glob("netcdf4/realistic/*hybrid_height.nc")
    values, rows, columns = read(
        file, "air_potential_temperature", "grid_latitude", "grid_longitude"
    )
    with netCDF4.Dataset(file) as opened:
        mapping = opened["rotated_latitude_longitude"]
        pole = np.radians([mapping.grid_north_pole_latitude, mapping.grid_north_pole_longitude])
    # A point of the rotated sphere is turned about the axis across the meridian of the pole.
    x, y = np.radians(np.meshgrid(columns, rows))
    along, across, up = np.cos(y) * np.cos(x), np.cos(y) * np.sin(x), np.sin(y)
    turn = np.pi / 2 - pole[0]
    east = np.arctan2(across, np.cos(turn) * along - np.sin(turn) * up)
    latitudes = np.degrees(np.arcsin(np.sin(turn) * along + np.cos(turn) * up))
    longitudes = np.degrees(east + pole[1]) - 180
    return scanned(file), Reference(values[0], longitudes, latitudes, is_mercator=True)


def ocean_model(_: Path, folder: Path) -> tuple[VirtualGroup, Reference]:
    """As NEMO writes: a tripolar grid in two-dimensional ``nav_lat`` and ``nav_lon``."""
    rows, columns, joint = 150, 180, 100
    angle = np.radians(np.linspace(73, 433, columns, endpoint=False) + 1)
    south = np.degrees(2 * np.arctan(np.exp(np.linspace(-2.3, 0.45, joint))) - np.pi / 2)
    # North of a parallel, rows are flattened to the line between two poles, seen from above.
    edge = np.tan(np.radians(45 - south[-1] / 2))
    flat = np.linspace(0, 1, rows - joint + 1)[1:, np.newaxis] * 0.97
    across, up = edge * np.cos(angle) * np.ones_like(flat), edge * np.sin(angle) * (1 - flat)
    north = 90 - 2 * np.degrees(np.arctan(np.hypot(across, up)))
    latitudes = np.concatenate([np.repeat(south[:, np.newaxis], columns, 1), north])
    longitudes = np.degrees(
        np.concatenate([np.repeat(angle[np.newaxis], joint, 0), np.arctan2(up, across)])
    )
    longitudes = (longitudes + 180) % 360 - 180
    a, b = np.radians(latitudes), np.radians(longitudes)
    warm = 29 * np.cos(a) ** 2 + 2.5 * np.sin(3 * b + 2 * a) * np.cos(2 * a) - 1
    is_land = np.sin(2.2 * b + 0.7) + 0.8 * np.cos(3.1 * a - 1.3 * b) > 1.05
    values = np.where(is_land, np.nan, warm)
    path = folder / "ORCA2_1d_20200101_grid_T.nc"
    with netCDF4.Dataset(path, "w") as file:
        for name, length in {"time_counter": None, "deptht": 2, "y": rows, "x": columns}.items():
            file.createDimension(name, length)
        for name, made, units in (
            ("nav_lat", latitudes, "degrees_north"),
            ("nav_lon", longitudes, "degrees_east"),
        ):
            file.createVariable(name, "f4", ("y", "x"))[:] = made
            file[name].setncatts({"standard_name": name.replace("nav_", ""), "units": units})
        file["nav_lat"].standard_name, file["nav_lon"].standard_name = "latitude", "longitude"
        file.createVariable("deptht", "f4", ("deptht",))[:] = [0.5, 1.6]
        file["deptht"].setncatts({"units": "m", "positive": "down", "long_name": "Depth"})
        file.createVariable("time_centered", "f8", ("time_counter",))[:] = [43200.0]
        file["time_centered"].units = "seconds since 2020-01-01"
        dims = ("time_counter", "deptht", "y", "x")
        sea = file.createVariable("thetao", "f4", dims, fill_value=1e20, zlib=True)
        sea[:] = np.nan_to_num(np.stack([values, values - 1]), nan=1e20)[np.newaxis]
        sea.setncatts(
            {
                "standard_name": "sea_water_potential_temperature",
                "long_name": "Sea water potential temperature",
                "units": "degC",
                "coordinates": "time_centered nav_lat nav_lon",
            }
        )
    return scanned(path), Reference(values, longitudes, latitudes)


def swath(data: Path, _: Path) -> tuple[VirtualGroup, Reference]:
    file = min(data.glob("families/ascat_l2_subset_uneven/ascat_20150702_084200*"))
    values, latitudes, longitudes = read(file, "wind_speed", "lat", "lon")
    return scanned(file), Reference(values, longitudes, latitudes)


def geostationary(_: Path, folder: Path) -> tuple[VirtualGroup, Reference]:
    """As the Advanced Baseline Imager of GOES-East is distributed: packed, with scan angles."""
    n, step = 542, 0.00056
    angles = (np.arange(n) - (n - 1) / 2) * step
    height, major, minor = 35786023.0, 6378137.0, 6356752.31414
    # From angles to places: GOES-R Product Definition and User's Guide, volume 3, 5.1.2.8.1.
    x, y = np.meshgrid(angles, -angles)
    above, ratio = height + major, (major / minor) ** 2
    a = np.sin(x) ** 2 + np.cos(x) ** 2 * (np.cos(y) ** 2 + ratio * np.sin(y) ** 2)
    b = -2 * above * np.cos(x) * np.cos(y)
    with np.errstate(invalid="ignore"):
        far = (-b - np.sqrt(b**2 - 4 * a * (above**2 - major**2))) / (2 * a)
    east, north = -far * np.sin(x), far * np.cos(x) * np.sin(y)
    down = far * np.cos(x) * np.cos(y)
    latitudes = np.arctan(ratio * north / np.hypot(above - down, east))
    longitudes = np.radians(-75) - np.arctan2(east, above - down)
    waves = np.sin(7 * longitudes + 3 * latitudes) * np.cos(5 * latitudes - longitudes)
    values = 288 - 55 * np.sin(latitudes) ** 2 - 14 * waves + 8 * hills((n, n), 40)
    path = folder / "OR_ABI-L2-CMIPF-M6C13_G16.nc"
    with netCDF4.Dataset(path, "w") as file:
        for name, sign in (("y", -1), ("x", 1)):
            file.createDimension(name, n)
            axis = file.createVariable(name, "i2", (name,))
            axis.setncatts({"scale_factor": sign * step, "add_offset": sign * angles[0]})
            axis.setncatts({"units": "rad", "standard_name": f"projection_{name}_coordinate"})
            axis[:] = sign * angles
        file.createVariable("goes_imager_projection", "i4").setncatts(
            {
                "grid_mapping_name": "geostationary",
                "perspective_point_height": height,
                "semi_major_axis": major,
                "semi_minor_axis": minor,
                "latitude_of_projection_origin": 0.0,
                "longitude_of_projection_origin": -75.0,
                "sweep_angle_axis": "x",
            }
        )
        shown = file.createVariable("CMI", "i2", ("y", "x"), fill_value=-1, zlib=True)
        shown.setncatts({"scale_factor": 0.0614533, "add_offset": 89.62, "units": "K"})
        shown.setncatts({"valid_range": np.array([0, 4095], "i2"), "_Unsigned": "true"})
        shown.setncatts({"long_name": "ABI Cloud and Moisture Imagery brightness temperature"})
        shown.setncatts({"standard_name": "toa_brightness_temperature"})
        shown.grid_mapping = "goes_imager_projection"
        shown[:] = np.ma.array(np.nan_to_num(values), mask=np.isnan(values))

    def seen(longitude: Any, latitude: Any) -> tuple[Any, Any]:
        """Rows and columns of places (5.1.2.8.2 there)."""
        c = np.arctan(np.tan(np.radians(latitude)) / ratio)
        r = minor / np.sqrt(1 - (1 - 1 / ratio) * np.cos(c) ** 2)
        turn = np.radians(longitude + 75)
        sx, sy = above - r * np.cos(c) * np.cos(turn), -r * np.cos(c) * np.sin(turn)
        sz = r * np.sin(c)
        across = np.arcsin(-sy / np.sqrt(sx**2 + sy**2 + sz**2))
        across[above * (above - sx) < sy**2 + ratio * sz**2] = np.nan  # behind the horizon
        return (angles[-1] - np.arctan(sz / sx) + 0 * across) / step, (across - angles[0]) / step

    return scanned(path), Reference(values, from_above=(seen, (-75.0, 0.0)))


def utm_mosaic(data: Path, folder: Path) -> tuple[str, Reference]:
    """A Landsat scene, cut into six tiles that are put together again."""
    with rasterio.open(data / "tiff/realistic/rasterio__rasterio__RGB.byte.tif") as whole:
        bands = whole.read()
        rows, columns = np.mgrid[: whole.height, : whole.width] + 0.5
        x, y = whole.transform * (columns.ravel(), rows.ravel())
        place = transform(whole.crs, "EPSG:4326", x, y)
        for top in range(0, whole.height, 360):
            for left in range(0, whole.width, 264):
                window = Window(
                    left, top, min(264, whole.width - left), min(360, whole.height - top)
                )
                profile = whole.profile | {"width": window.width, "height": window.height}
                profile |= {"transform": whole.window_transform(window)}
                with rasterio.open(folder / f"tile_{top}_{left}.tif", "w", **profile) as tile:
                    tile.write(whole.read(window=window))
    gridref.build(
        sorted(folder.glob("tile_*.tif")), folder / "utm.gridref", layout=gridref.Mosaic()
    )
    longitudes, latitudes = (np.reshape(each, rows.shape) for each in place)
    values = np.where((bands == 0).all(0), np.nan, bands.mean(0) / 255)
    return str(folder / "utm.gridref"), Reference(
        values, longitudes, latitudes, is_mercator=True, limits=(0, 1)
    )


# ---- plain pictures and series


def microscopy(data: Path, _: Path) -> tuple[VirtualGroup, Reference]:
    file = data / "ome_tiff/singles/multi-channel-time-series.ome.tif"
    image = tifffile.imread(file)[3].astype(float)  # (time, channel, y, x)
    low, high = (
        np.percentile(image, share, (1, 2))[:, np.newaxis, np.newaxis] for share in (0.1, 99.9)
    )
    values = np.clip((image - low) / (high - low), 0, 1).mean(0)
    return scanned(file), Reference(values, *map(np.arange, values.shape[::-1]), limits=(0, 1))


def plate(_: Path, folder: Path) -> tuple[str, Reference]:
    """Cells in wells of a plate, a file for each field with three named channels."""
    shape = (240, 320)
    fields = {}
    for number, well in enumerate(("A01", "A02", "B01", "B02")):
        random = np.random.default_rng(SEED + number)
        y, x = np.mgrid[: shape[0], : shape[1]]
        planes = np.zeros((3, *shape))
        for a, b, size in random.uniform([8, 8, 7], [232, 312, 12], (34, 3)):
            turn, long = random.uniform(0, np.pi), random.uniform(1.3, 2.1)
            u = (x - b) * np.cos(turn) + (y - a) * np.sin(turn)
            v = (y - a) * np.cos(turn) - (x - b) * np.sin(turn)
            planes[0] += np.exp(-(((u**2 + v**2) / size**2) ** 2))
            away = np.sqrt((u / long) ** 2 + v**2) / size
            planes[1] += np.exp(-((away - 1.5) ** 2) / 0.25) * random.uniform(0.4, 1)
            planes[2] += np.exp(-((away / 2.4) ** 4)) * random.uniform(0.2, 0.7)
        noise = random.normal(0, 1, planes.shape)
        image = np.clip(300 + 9000 * planes + 150 * noise, 0, 65535).astype("u2")
        fields[well] = image
        tifffile.imwrite(
            folder / f"plate_{well}_s0.ome.tif",
            image,
            ome=True,
            photometric="minisblack",
            metadata={
                "axes": "CYX",
                "PhysicalSizeX": 0.65,
                "PhysicalSizeY": 0.65,
                "Channel": {
                    "Name": ["DAPI", "Actin", "Tubulin"],
                    "Color": [65535, -16776961, 16711935],
                },
            },
        )
    gridref.build(sorted(folder.glob("plate_*")), folder / "plate.gridref", layout=gridref.Plate())
    image = fields["A02"].astype(float)
    low, high = (np.percentile(image, share, (1, 2), keepdims=True) for share in (0.1, 99.9))
    colours = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]])
    values = (np.clip((image - low) / (high - low), 0, 1).T @ colours).mean(-1).T
    x, y = (0.65 * np.arange(n) for n in values.shape[::-1])
    return str(folder / "plate.gridref"), Reference(values, x, y, limits=(0, 1))


def nexus(_: Path, folder: Path) -> tuple[VirtualGroup, Reference]:
    """A fluorescence map as a beamline writes it: NXdata with a signal and its axes."""
    values = hills((60, 90), 45, 5) * 4_000
    x, y, energy = np.linspace(-1.5, 3, 90), np.linspace(2, 5, 60), np.array([7.1, 7.2, 7.3])
    path = folder / "i18-4711.nxs"
    with h5py.File(path, "w") as file:
        entry = file.create_group("entry")
        entry.attrs["NX_class"] = "NXentry"
        data = entry.create_group("xmap")
        data.attrs.update({"NX_class": "NXdata", "signal": "counts"})
        data.attrs["axes"] = np.array(["energy", "sample_y", "sample_x"], "S")
        stack = np.stack([values * (1 - 0.3 * k) for k in range(3)]).astype("f4")
        data.create_dataset("counts", data=stack, chunks=(1, 60, 90), compression="gzip")
        data["counts"].attrs["long_name"] = "Fe K fluorescence"
        for name, made, units in (
            ("energy", energy, "keV"),
            ("sample_y", y, "mm"),
            ("sample_x", x, "mm"),
        ):
            data.create_dataset(name, data=made).attrs["units"] = units
    return scanned(path), Reference(values, x, y)


def radar(_: Path, folder: Path) -> tuple[VirtualGroup, Reference]:
    """A sweep as ODIM_H5 has it: packed, a ray for each degree, bins of 500 m."""
    rows, columns = 360, 240
    place, elevation, size = (47.0, 3.1), 0.6, 500.0
    field = 130 * hills((rows, columns), 60, 11) - 45
    is_dry = field < 5
    values = np.where(is_dry, np.nan, field)
    values[140:152, 60:] = np.nan  # behind a mountain
    packed = np.where(is_dry, 0, np.rint((field + 32) / 0.5))
    packed[140:152, 60:] = 255
    path = folder / "T_PAGZ35_C_LFPW_20240601120000.h5"
    with h5py.File(path, "w") as file:
        file.attrs["Conventions"] = np.bytes_("ODIM_H5/V2_4")
        file.create_group("what").attrs.update({"object": np.bytes_("SCAN")})
        file.create_group("where").attrs.update({"lat": place[0], "lon": place[1], "height": 170.0})
        where = {"elangle": elevation, "nbins": columns, "nrays": rows, "a1gate": 0}
        file.create_group("dataset1/where").attrs.update(where | {"rstart": 0.0, "rscale": size})
        what = {"gain": 0.5, "offset": -32.0, "nodata": 255.0, "undetect": 0.0}
        file.create_group("dataset1/data1/what").attrs.update(
            what | {"quantity": np.bytes_("DBZH")}
        )
        file.create_dataset("dataset1/data1/data", data=packed.astype("u1"), compression="gzip")
    azimuths, far = np.meshgrid(
        np.arange(rows) + 0.5, (np.arange(columns) + 0.5) * size, indexing="ij"
    )
    ground = far * np.cos(np.radians(elevation))
    starts = np.full(far.shape, place[1]), np.full(far.shape, place[0])
    longitudes, latitudes, _ = Geod(ellps="WGS84").fwd(*starts, azimuths, ground)
    return scanned(path), Reference(values, longitudes, latitudes, is_mercator=True)


def time_series(data: Path, _: Path) -> tuple[VirtualGroup, Reference]:
    file = min(data.glob("families/mooring_nrsrot_tz_uneven/*1812-SBE39-23*"))
    values, days = read(file, "TEMP", "TIME")
    return scanned(file), Reference(values, days)


def ragged(data: Path, folder: Path) -> tuple[str, Reference]:
    """Granules of a laser altimeter, each as long as its pass."""
    files = sorted(data.glob("families/atl06_beams_uneven/*.h5"))
    heights = []
    for file in files:
        with h5py.File(file) as opened:
            stored = opened["gt1l/land_ice_segments/h_li"]
            kept = stored[:].astype(float)
            heights.append(np.where(stored[:] == stored.attrs["_FillValue"], np.nan, kept))
    gridref.build(
        files,
        folder / "ragged.gridref",
        layout=gridref.Ragged(),
        combine=gridref.CombineOptions(join="outer"),
    )
    values = np.concatenate(heights)
    return str(folder / "ragged.gridref"), Reference(values, np.arange(len(values)))


KINDS = (
    Kind(
        "global-model",
        "A global climate model",
        "Near-surface air temperature of CMIP6, as it is opened. The colours suit a temperature.",
        "tas",
        global_model,
    ),
    Kind(
        "ocean-model",
        "An ocean model",
        "A tripolar grid in the structure of NEMO's files, with computed values.",
        "thetao",
        ocean_model,
    ),
    Kind(
        "rotated-pole",
        "A regional model with a rotated pole",
        "Potential temperature by the Met Office's model, drawn where it is on earth.",
        "air_potential_temperature",
        rotated_pole,
    ),
    Kind(
        "swath", "A swath", "Wind speed by ASCAT, where the satellite saw it.", "wind_speed", swath
    ),
    Kind(
        "geostationary",
        "A geostationary image",
        "Computed values in the structure of GOES-East's files: a globe, as from the satellite.",
        "CMI",
        geostationary,
    ),
    Kind(
        "utm-mosaic",
        "A mosaic in UTM",
        "A Landsat scene over the Bahamas in six GeoTIFF files: red, green and blue, north up.",
        "band_data",
        utm_mosaic,
    ),
    Kind(
        "radar",
        "A weather radar",
        "Computed reflectivity in the structure of ODIM_H5: unpacked, masked, around the radar.",
        "dataset1/data1/data",
        radar,
    ),
    Kind(
        "microscopy",
        "Microscopy",
        "A test pattern of OME-TIFF: channels in their colours, time has a slider.",
        "image",
        microscopy,
        "at0=3",
    ),
    Kind(
        "plate",
        "A plate",
        "A field of a plate of drawn cells: channels by name, and a scale bar.",
        "A/2/0/image",
        plate,
    ),
    Kind(
        "nexus",
        "A scan at a beamline",
        "Computed values in the structure of NeXus: NXdata names the axes.",
        "entry/xmap/counts",
        nexus,
    ),
    Kind(
        "series",
        "A time series",
        "Temperature of a mooring off Rottnest Island, with its dates.",
        "TEMP",
        time_series,
    ),
    Kind(
        "ragged",
        "Files of differing length",
        "Heights by ICESat-2: four passes one after the other, by number.",
        "gt1l/land_ice_segments/h_li",
        ragged,
    ),
)
