"""Observations: geostationary images, swaths, radar sweeps, drifters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr

from tests.archives.archive import Archive, Variable, field_of, write_netcdf

__all__ = ["drifters", "goes", "radar", "swaths"]


def goes(folder: Path) -> Archive:
    """Images of a geostationary satellite: scalar times, whose bounds have no time; packed axes."""
    files = []
    for minute in (10, 0, 5, 20):  # one scan is missing
        packed = np.arange(12, dtype="i2")
        angle = {"scale_factor": 5.6e-5, "units": "rad"}
        counts = np.clip(field_of(f"goes{minute}", 12, 12) * 10, 0, 4095).astype("i2")
        counts[0, :3] = -1
        variables = {
            "t": Variable(
                (),
                np.float64(7.0e8 + 60 * minute),
                {
                    "units": "seconds since 2000-01-01 12:00:00",
                    "standard_name": "time",
                    "bounds": "time_bounds",
                },
            ),
            "time_bounds": Variable(
                ("number_of_time_bounds",), 7.0e8 + 60 * minute + np.array([-150.0, 150.0])
            ),
            "t_star_look": Variable(
                ("num_star_looks",),
                7.0e8 + 60 * minute + np.arange(3.0),
                {"units": "seconds since 2000-01-01 12:00:00"},
            ),
            "x": Variable(("x",), packed, {**angle, "add_offset": -0.1}),
            "y": Variable(("y",), packed, {**angle, "scale_factor": -5.6e-5, "add_offset": 0.1}),
            "CMI": Variable(
                ("y", "x"),
                counts,
                {
                    "_FillValue": np.int16(-1),
                    "_Unsigned": "true",
                    "scale_factor": np.float64(0.25),
                    "add_offset": np.float64(100.0),
                    "coordinates": "t y x",
                    "grid_mapping": "goes_imager_projection",
                },
                (6, 12),
            ),
            "DQF": Variable(
                ("y", "x"),
                (counts < 0).astype("i1"),
                {"_FillValue": np.int8(-1), "_Unsigned": "true"},
                (6, 12),
            ),
            "goes_imager_projection": Variable(
                (),
                np.int32(-2147483647),
                {"grid_mapping_name": "geostationary", "perspective_point_height": 35786023.0},
            ),
        }
        path = folder / f"OR_ABI-L2-CMIPF-M6C13_G16_s2022067{minute:02d}000.nc"
        files.append(write_netcdf(path, variables, {"platform_ID": "G16"}))

    def expected() -> dict[str, xr.Dataset]:
        opened = [xr.open_dataset(path) for path in sorted(files)]
        growing = [ds[["CMI", "DQF", "time_bounds", "t_star_look"]] for ds in opened]
        joined = xr.concat(growing, "t", coords="minimal")
        return {"": joined.assign(goes_imager_projection=opened[0].goes_imager_projection)}

    return Archive("goes", tuple(files), expected)


def swaths(folder: Path) -> Archive:
    """Granules of a polar orbiter: groups, each file with its own number of lines."""
    files = []
    for number, n_lines in ((2, 7), (1, 9), (3, 5)):
        start = 100 * number
        dims = ("number_of_lines", "number_of_pixels")
        lon, lat = np.meshgrid(np.linspace(0, 9, 8), np.linspace(start, start + 5, n_lines))
        seconds = start + np.arange(n_lines) * 0.5
        variables = {
            "geolocation_data/latitude": Variable(dims, lat.astype("f4"), {}, (4, 8)),
            "geolocation_data/longitude": Variable(dims, lon.astype("f4"), {}, (4, 8)),
            "scan_line_attributes/time": Variable(
                dims[:1], seconds, {"units": "seconds since 2023-05-01"}, (4,)
            ),
            "observation_data/M05": Variable(
                dims,
                (field_of(f"M05{number}", n_lines, 8) * 100).astype("u2"),
                {
                    "_FillValue": np.uint16(65535),
                    "scale_factor": np.float64(0.01),
                    "add_offset": np.float64(0.0),
                },
                (4, 8),
            ),
        }
        path = folder / f"VNP02MOD.A2023121.{number:04d}.002.nc"
        files.append(write_netcdf(path, variables, {"Platform": "Suomi-NPP"}))

    def expected() -> dict[str, xr.Dataset]:
        paths = ("geolocation_data", "scan_line_attributes", "observation_data")
        return {
            group: xr.concat(
                [xr.open_dataset(path, group=group) for path in sorted(files)],
                "number_of_lines",
            )
            for group in paths
        }

    return Archive("swaths", tuple(sorted(files)), expected)


def radar(folder: Path) -> Archive:
    """A weather radar: a file for each sweep and volume; sweeps have different ranges."""
    files = []
    angles = {0: (0.5, 20), 1: (1.5, 16)}
    for volume in (1, 0, 2):
        for sweep, (angle, n_range) in angles.items():
            azimuths = np.arange(0.5, 12, 1)
            variables = {
                "time": Variable(
                    (), np.float64(300 * volume), {"units": "seconds since 2024-06-01T00:00:00Z"}
                ),
                "azimuth": Variable(("azimuth",), azimuths, {"units": "degrees"}),
                "range": Variable(
                    ("range",), np.arange(n_range, dtype="f4") * 250, {"units": "meters"}
                ),
                "sweep_fixed_angle": Variable((), np.float64(angle), {"units": "degrees"}),
                "DBZH": Variable(
                    ("azimuth", "range"),
                    (field_of(f"dbzh{volume}{sweep}", 12, n_range) - 250).astype("i1"),
                    {
                        "scale_factor": np.float64(0.5),
                        "add_offset": np.float64(-32.0),
                        "_FillValue": np.int8(-128),
                        "coordinates": "time sweep_fixed_angle",
                    },
                    (12, n_range),
                ),
            }
            path = folder / f"radar_2024060100{5 * volume:02d}_sweep_{sweep}.nc"
            files.append(write_netcdf(path, variables, {"instrument_type": "radar"}))

    def expected() -> dict[str, xr.Dataset]:
        found = {}
        for sweep in angles:
            own = sorted(path for path in files if path.name.endswith(f"sweep_{sweep}.nc"))
            opened = [xr.open_dataset(path) for path in own]
            found[str(sweep)] = xr.concat(
                opened, "time", data_vars=["DBZH"], coords="minimal", compat="override"
            )
        return found

    return Archive("radar", tuple(files), expected)


def drifters(folder: Path) -> Archive:
    """Buoys that drift: one file for each buoy, each with its own length."""
    files = []
    for buoy, n_obs in ((103, 11), (101, 7), (102, 16)):
        variables = {
            "ID": Variable(("traj",), np.array([buoy], "i8")),
            "rowsize": Variable(("traj",), np.array([n_obs], "i4"), {"sample_dimension": "obs"}),
            "time": Variable(
                ("obs",), 6.0 * np.arange(n_obs) + buoy, {"units": "hours since 2015-01-01"}, (5,)
            ),
            "lat": Variable(("obs",), field_of(f"lat{buoy}", n_obs), {}, (5,)),
            "lon": Variable(("obs",), field_of(f"lon{buoy}", n_obs), {}, (5,)),
            "sst": Variable(
                ("obs",),
                field_of(f"sst{buoy}", n_obs),
                {"_FillValue": np.float32(-1e34), "units": "K"},
                (5,),
            ),
        }
        path = folder / f"drifter_{buoy}.nc"
        files.append(write_netcdf(path, variables, {"featureType": "trajectory"}))

    def expected() -> dict[str, xr.Dataset]:
        opened = [xr.open_dataset(path) for path in sorted(files)]
        joined = xr.concat([ds[["time", "lat", "lon", "sst"]] for ds in opened], "obs")
        per_buoy = xr.concat([ds[["ID", "rowsize"]] for ds in opened], "traj")
        return {"": xr.merge([joined, per_buoy])}

    return Archive(
        "drifters", tuple(sorted(files)), expected, {"layout": "ragged"}, ("--layout", "ragged")
    )
