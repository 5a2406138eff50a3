"""Gridded model output: ERA5-like packed months, CMIP, WRF, ROMS."""

from __future__ import annotations

import calendar
from pathlib import Path

import numpy as np
import xarray as xr

from tests.archives.archive import Archive, Variable, field_of, write_netcdf

__all__ = ["cmip", "era5", "nemo", "roms", "wrf"]


def era5(folder: Path) -> Archive:
    """Reanalysis by months: 6-hourly, of different lengths, each packed to int16 in its own way."""
    files = []
    first = 1051896  # hours from 1900-01-01 to 2020-01-01
    for month in (3, 1, 2):
        n_steps = 4 * calendar.monthrange(2020, month)[1]
        before = sum(4 * calendar.monthrange(2020, other)[1] for other in range(1, month))
        hours = (first + 6 * (before + np.arange(n_steps))).astype("i4")
        variables = {
            "longitude": Variable(("longitude",), np.arange(8, dtype="f4"), _lon()),
            "latitude": Variable(("latitude",), np.arange(6, dtype="f4")[::-1], _lat()),
            "time": Variable(
                ("time",),
                hours,
                {"units": "hours since 1900-01-01 00:00:00.0", "calendar": "gregorian"},
                (n_steps,),
            ),
        }
        for name in ("t2m", "sp"):
            values = field_of(f"{name}{month}", n_steps, 6, 8).astype("f8")
            scale = (values.max() - values.min()) / 65532
            offset = (values.max() + values.min()) / 2
            packed = np.round((values - offset) / scale).astype("i2")
            attrs = {
                "scale_factor": scale,
                "add_offset": offset,
                "_FillValue": np.int16(-32767),
                "missing_value": np.int16(-32767),
                "units": "K",
            }
            dims = ("time", "latitude", "longitude")
            variables[name] = Variable(dims, packed, attrs, (31, 6, 8))
        path = folder / f"era5_2020_{month:02d}.nc"
        files.append(write_netcdf(path, variables, {"Conventions": "CF-1.6"}, ["time"]))
    return Archive("era5", tuple(files), lambda: {"": xr.open_mfdataset(sorted(files))})


def cmip(folder: Path) -> Archive:
    """CMIP: a variable in each file, two periods; each model has its own grid and calendar."""
    grids = {"MPI-ESM": (6, 8, "proleptic_gregorian"), "CESM2": (5, 7, "noleap")}
    files = []
    for model, (n_lat, n_lon, cal) in grids.items():
        for name in ("tas", "pr"):
            for first, last in ((2000, 2001), (2002, 2004)):
                n_months = 12 * (last - first + 1)
                start = 12 * (first - 1850)
                days = (15.5 + 30.4 * (start + np.arange(n_months))).astype("f8")
                bounds = np.stack([days - 15, days + 15], axis=1)
                lats, lons = np.linspace(-80, 80, n_lat), np.arange(n_lon) * 360 / n_lon
                variables = {
                    "time": Variable(
                        ("time",),
                        days,
                        {"units": "days since 1850-01-01", "calendar": cal, "bounds": "time_bnds"},
                        (1,),
                    ),
                    "time_bnds": Variable(("time", "bnds"), bounds, {}, (1, 2)),
                    "lat": Variable(("lat",), lats, _lat()),
                    "lon": Variable(("lon",), lons, _lon()),
                    name: Variable(
                        ("time", "lat", "lon"),
                        field_of(model + name + str(first), n_months, n_lat, n_lon),
                        {"_FillValue": np.float32(1e20), "units": "K" if name == "tas" else "1"},
                        (1, n_lat, n_lon),
                    ),
                }
                span = f"{first}01-{last}12"
                path = folder / f"{name}_Amon_{model}_historical_r1i1p1f1_gn_{span}.nc"
                attrs = {"source_id": model, "variable_id": name, "experiment_id": "historical"}
                files.append(write_netcdf(path, variables, attrs, ["time"]))
    files.sort(key=lambda path: path.name[::-1])

    def expected() -> dict[str, xr.Dataset]:
        return {
            model: xr.open_mfdataset([f for f in sorted(files) if model in f.name])
            for model in grids
        }

    return Archive("cmip", tuple(files), expected)


def wrf(folder: Path) -> Archive:
    """WRF: a file for each day, times as text, no coordinate along time, staggered grids."""
    files = []
    for day in (2, 1, 3):
        n_steps = 4 if day < 3 else 3
        text = [f"2021-07-{day:02d}_{6 * step:02d}:00:00" for step in range(n_steps)]
        south, west = 5, 6
        mass = ("Time", "south_north", "west_east")
        lats = np.broadcast_to(np.linspace(30, 34, south)[:, None], (south, west))
        lons = np.broadcast_to(np.linspace(10, 15, west), (south, west))

        def steps(values: np.ndarray, n_steps: int = n_steps) -> np.ndarray:
            return np.broadcast_to(values.astype("f4"), (n_steps, *values.shape))

        minutes = ((day - 1) * 1440 + 360 * np.arange(n_steps)).astype("f4")
        variables = {
            "Times": Variable(
                ("Time", "DateStrLen"), np.array(text, "S19").view("S1").reshape(n_steps, 19)
            ),
            "XTIME": Variable(
                ("Time",), minutes, {"units": "minutes since 2021-07-01 00:00:00"}, (1,)
            ),
            "XLAT": Variable(mass, steps(lats), {"units": "degree_north"}, (1, south, west)),
            "XLONG": Variable(mass, steps(lons), {"units": "degree_east"}, (1, south, west)),
            "T2": Variable(
                mass,
                field_of(f"T2{day}", n_steps, south, west),
                {"coordinates": "XLONG XLAT XTIME", "units": "K", "stagger": ""},
                (1, south, west),
            ),
            "U": Variable(
                ("Time", "bottom_top", "south_north", "west_east_stag"),
                field_of(f"U{day}", n_steps, 3, south, west + 1),
                {"units": "m s-1", "stagger": "X"},
                (1, 3, south, west + 1),
            ),
            "V": Variable(
                ("Time", "bottom_top", "south_north_stag", "west_east"),
                field_of(f"V{day}", n_steps, 3, south + 1, west),
                {"units": "m s-1", "stagger": "Y"},
                (1, 3, south + 1, west),
            ),
        }
        path = folder / f"wrfout_d01_2021-07-{day:02d}_00:00:00.nc"
        files.append(write_netcdf(path, variables, {"TITLE": "OUTPUT FROM WRF"}, ["Time"]))

    def expected() -> dict[str, xr.Dataset]:
        opened = [xr.open_dataset(path) for path in sorted(files)]
        return {"": xr.concat(opened, "Time", data_vars="minimal")}

    return Archive("wrf", tuple(sorted(files)), expected)


def roms(folder: Path) -> Archive:
    """Ocean history files: rho, u and v points, terrain-following levels; parameters differ."""
    files = []
    for number in (3, 1, 2):
        n_steps, n_s, eta, xi = (2 if number == 3 else 4), 3, 6, 7
        seconds = 10800.0 * (4 * (number - 1) + np.arange(n_steps))
        points = {"rho": (eta, xi), "u": (eta, xi - 1), "v": (eta - 1, xi)}
        variables = {
            "ocean_time": Variable(
                ("ocean_time",), seconds, {"units": "seconds since 2006-01-01 00:00:00"}, (512,)
            ),
            "s_rho": Variable(("s_rho",), np.linspace(-0.9, -0.1, n_s), {"positive": "up"}),
            "theta_s": Variable((), np.float64(6.5)),
            "ntimes": Variable((), np.int32(n_steps * 60)),
            "Tnudg": Variable(("tracer",), np.array([number, 2.0])),
        }
        for point, (n_eta, n_xi) in points.items():
            dims = (f"eta_{point}", f"xi_{point}")
            lon, lat = np.meshgrid(np.linspace(-75, -70, n_xi), np.linspace(35, 40, n_eta))
            variables[f"lon_{point}"] = Variable(dims, lon, {"units": "degree_east"})
            variables[f"lat_{point}"] = Variable(dims, lat, {"units": "degree_north"})
        for name, point in (("temp", "rho"), ("u", "u"), ("v", "v")):
            n_eta, n_xi = points[point]
            variables[name] = Variable(
                ("ocean_time", "s_rho", f"eta_{point}", f"xi_{point}"),
                field_of(f"{name}{number}", n_steps, n_s, n_eta, n_xi),
                {
                    "time": "ocean_time",
                    "coordinates": f"lon_{point} lat_{point} s_rho ocean_time",
                    "_FillValue": np.float32(1e37),
                },
                (1, n_s, n_eta, n_xi),
            )
        path = folder / f"ocean_his_{number:04d}.nc"
        files.append(write_netcdf(path, variables, {"type": "ROMS history"}, ["ocean_time"]))

    def expected() -> dict[str, xr.Dataset]:
        opened = [xr.open_dataset(path) for path in sorted(files)]
        how = {"data_vars": "different", "coords": "minimal"}
        return {"": xr.concat(opened, "ocean_time", **how)}

    return Archive("roms", tuple(files), expected)


def nemo(folder: Path) -> Archive:
    """Ocean model output by months: the record dimension starts again in each file."""
    files = []
    for month in (3, 1, 2):
        days = 31.0 * (month - 1) + np.array([5.0, 20.0])
        lon, lat = np.meshgrid(np.linspace(-30, 0, 6), np.linspace(40, 60, 5))
        time = {"units": "seconds since 1900-01-01", "calendar": "gregorian"}
        variables = {
            "nav_lat": Variable(("y", "x"), lat.astype("f4")),
            "nav_lon": Variable(("y", "x"), lon.astype("f4")),
            "time_counter": Variable(("time_counter",), np.array([0.0, 3600.0]), time),
            "time_centered": Variable(("time_counter",), 86400 * days, time),
            "tos": Variable(
                ("time_counter", "y", "x"),
                field_of(f"tos{month}", 2, 5, 6),
                {"coordinates": "time_centered nav_lat nav_lon", "_FillValue": np.float32(1e20)},
            ),
        }
        path = folder / f"ORCA_1m_2001{month:02d}_grid_T.nc"
        files.append(write_netcdf(path, variables, {}, ["time_counter"]))

    def expected() -> dict[str, xr.Dataset]:
        opened = [xr.open_dataset(path) for path in sorted(files)]
        how = {"data_vars": "minimal", "coords": "minimal", "compat": "override"}
        return {"": xr.concat(opened, "time_counter", **how)}

    return Archive("nemo", tuple(files), expected)


def _lat() -> dict[str, str]:
    return {"units": "degrees_north", "standard_name": "latitude"}


def _lon() -> dict[str, str]:
    return {"units": "degrees_east", "standard_name": "longitude"}
