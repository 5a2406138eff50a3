"""Write the sample files: 14 months of daily fields, one NetCDF4 file a month.

Usage: ``python make_sample_data.py [FOLDER]`` (default: beside this script). The same library
versions write the same bytes on every run: no clock and no unseeded numbers go in.

The weather is made up: a seasonal cycle, and waves that travel along the latitudes.
"""

from __future__ import annotations

import calendar
import datetime as dt
import random
import sys
from pathlib import Path

import netCDF4
import numpy as np
from numpy.typing import NDArray

type Field = NDArray[np.float64]

FIRST_MONTH = (2023, 1)
N_MONTHS = 14
EPOCH = dt.date(2023, 1, 1)
# 9 days divide no month, and 12 x 16 cells not the grid: every kind of partial chunk occurs.
FIELD_CHUNK = (9, 12, 16)
TIME_CHUNK = 32  # longer than any month
LATITUDE_BOUNDS = np.linspace(-90.0, 90.0, 21)
LONGITUDE_BOUNDS = np.linspace(0.0, 360.0, 41)
MISSING = np.int16(-32768)
PRECIPITATION_SCALE, PRECIPITATION_OFFSET = 0.01, 300.0  # packs 0 to 627 mm a day


def months() -> list[tuple[int, int]]:
    """The (year, month) of every file."""
    year, month = FIRST_MONTH
    return [(year + (month - 1 + i) // 12, (month - 1 + i) % 12 + 1) for i in range(N_MONTHS)]


def centres(bounds: Field) -> Field:
    """Cell centres from the edges between cells."""
    return (bounds[:-1] + bounds[1:]) / 2


def waves(days: Field, latitude: Field, longitude: Field, seed: int, n_waves: int = 10) -> Field:
    """Sum of waves that travel along the latitudes, about -1 to 1, shape (day, lat, lon)."""
    numbers = random.Random(seed)  # the standard library's stream is the same everywhere
    day, north, east = np.meshgrid(days, np.radians(latitude), np.radians(longitude), indexing="ij")
    total = np.zeros(day.shape)
    for _ in range(n_waves):
        wavenumber = numbers.randint(1, 5)
        period_days = numbers.uniform(6.0, 40.0)
        tilt = numbers.uniform(-3.0, 3.0)
        phase = numbers.uniform(0.0, 2 * np.pi)
        total += np.sin(
            wavenumber * east - 2 * np.pi * day / period_days + tilt * north * 2 + phase
        )
    return total / n_waves**0.5


def temperature(days: Field, latitude: Field, longitude: Field) -> NDArray[np.float32]:
    """Air temperature in K, in steps of 1/16 K so that it compresses well."""
    season = np.cos(2 * np.pi * (days - 196) / 365.25)[:, None, None]  # 1 in mid-July
    north = np.radians(latitude)[None, :, None]
    weather = 4 * np.cos(north) * waves(days, latitude, longitude, seed=1)
    kelvin = 245 + 55 * np.cos(north) ** 2 + 15 * np.sin(north) * season + weather
    return (np.round(kelvin * 16) / 16).astype(np.float32)


def precipitation(days: Field, latitude: Field, longitude: Field) -> NDArray[np.int16]:
    """Precipitation packed as int16, with the gaps of a satellite's swath missing."""
    season = np.cos(2 * np.pi * (days - 196) / 365.25)[:, None, None]
    rain_belt = np.exp(-(((latitude[None, :, None] - 8 * season) / 14) ** 2))
    storm_tracks = np.exp(-(((np.abs(latitude[None, :, None]) - 48) / 12) ** 2))
    wet = np.clip(0.25 + waves(days, latitude, longitude, seed=2), 0, None)
    amount = (14 * rain_belt + 7 * storm_tracks + 0.5) * wet
    packed = np.round((np.round(amount, 1) - PRECIPITATION_OFFSET) / PRECIPITATION_SCALE)
    lag = longitude[None, None, :] - 0.8 * latitude[None, :, None] + 47 * days[:, None, None]
    return np.where(lag % 360 < 20, MISSING, packed).astype(np.int16)


def write_coordinates(file: netCDF4.Dataset, days: Field) -> None:
    """Write dimensions, coordinates and their bounds."""
    file.createDimension("time", None)
    file.createDimension("lat", len(LATITUDE_BOUNDS) - 1)
    file.createDimension("lon", len(LONGITUDE_BOUNDS) - 1)
    file.createDimension("bnds", 2)

    time = file.createVariable("time", "f8", ("time",), chunksizes=(TIME_CHUNK,))
    time.setncatts(
        {
            "standard_name": "time",
            "long_name": "time",
            "units": f"days since {EPOCH}",
            "calendar": "standard",
            "axis": "T",
            "bounds": "time_bnds",
        }
    )
    time[:] = days
    time_bounds = file.createVariable(
        "time_bnds", "f8", ("time", "bnds"), chunksizes=(TIME_CHUNK, 2)
    )
    time_bounds[:] = np.stack([days - 0.5, days + 0.5], axis=1)

    for name, axis, units, long_name, bounds in (
        ("lat", "Y", "degrees_north", "latitude", LATITUDE_BOUNDS),
        ("lon", "X", "degrees_east", "longitude", LONGITUDE_BOUNDS),
    ):
        coordinate = file.createVariable(name, "f8", (name,))
        coordinate.setncatts(
            {
                "standard_name": long_name,
                "long_name": long_name,
                "units": units,
                "axis": axis,
                "bounds": f"{name}_bnds",
            }
        )
        coordinate[:] = centres(bounds)
        file.createVariable(f"{name}_bnds", "f8", (name, "bnds"))[:] = np.stack(
            [bounds[:-1], bounds[1:]], axis=1
        )


def write_fields(file: netCDF4.Dataset, days: Field) -> None:
    """Write the two variables."""
    latitude, longitude = centres(LATITUDE_BOUNDS), centres(LONGITUDE_BOUNDS)
    dimensions = ("time", "lat", "lon")
    compression = {"zlib": True, "complevel": 6, "shuffle": True, "chunksizes": FIELD_CHUNK}

    tas = file.createVariable("tas", "f4", dimensions, fill_value=np.float32(1e20), **compression)
    tas.setncatts(
        {
            "standard_name": "air_temperature",
            "long_name": "Near-Surface Air Temperature",
            "units": "K",
            "cell_methods": "time: mean",
            "missing_value": np.float32(1e20),
        }
    )
    tas[:] = temperature(days, latitude, longitude)

    pr = file.createVariable("pr", "i2", dimensions, fill_value=MISSING, **compression)
    pr.setncatts(
        {
            "standard_name": "precipitation_flux",
            "long_name": "Precipitation",
            "units": "kg m-2 day-1",
            "cell_methods": "time: mean",
            "scale_factor": PRECIPITATION_SCALE,
            "add_offset": PRECIPITATION_OFFSET,
        }
    )
    pr.set_auto_maskandscale(False)  # the values are packed already
    pr[:] = precipitation(days, latitude, longitude)


def write_month(path: Path, year: int, month: int) -> None:
    """Write the file of one month."""
    n_days = calendar.monthrange(year, month)[1]
    first_day = (dt.date(year, month, 1) - EPOCH).days
    days = np.arange(first_day, first_day + n_days) + 0.5
    with netCDF4.Dataset(path, "w", format="NETCDF4") as file:
        file.setncatts(
            {
                "Conventions": "CF-1.10",
                "title": "Daily near-surface temperature and precipitation, made up",
                "institution": "gridref sample data",
                "source": "make_sample_data.py: a seasonal cycle and travelling waves",
                "frequency": "day",
                "license": "Apache-2.0",
            }
        )
        write_coordinates(file, days)
        write_fields(file, days)


def write_all(folder: Path) -> list[Path]:
    """Write every file into `folder` and return their paths."""
    paths = []
    for year, month in months():
        path = folder / f"daily_{year}-{month:02}.nc"
        write_month(path, year, month)
        paths.append(path)
    return paths


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for written in write_all(target):
        print(written)
