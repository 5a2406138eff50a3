"""Granules of differing length, in groups: beams of an altimeter, orbits, volumes of a radar."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import xarray as xr

from tests.archives.archive import Archive, Variable, field_of, write_netcdf

__all__ = ["altimetry", "orbits", "scans", "sweeps", "volumes"]


def altimetry(folder: Path) -> Archive:
    """Beams of an altimeter: each with its own length and times; one beam is missing once."""
    files = []
    beams = ("gt1l", "gt1r", "gt2l")
    taken = ((7, 5, 4), (4, 9, 5), (6, 6, 0))
    for granule, lengths in enumerate(taken, 1):
        variables = {
            "ancillary_data/data_start_utc": Variable(
                ("one",), np.array([f"2019-04-{granule:02d}T00:00:00Z"], "S20")
            ),
            "ancillary_data/start_rgt": Variable(("one",), np.array([270 + granule], "i4")),
        }
        for beam, n in zip(beams, lengths, strict=True):
            if not n:
                continue
            seconds = 86400.0 * granule + np.arange(n)
            epoch = {"units": "seconds since 2018-01-01", "standard_name": "time"}
            path = f"{beam}/land_ice_segments"
            along = ("delta_time",)
            variables |= {
                f"{path}/delta_time": Variable(along, seconds, epoch),
                f"{path}/h_li": Variable(along, field_of(f"{beam}{granule}", n), {}, (4,)),
                f"{path}/segment_id": Variable(along, 1000 * granule + np.arange(n, dtype="i4")),
            }
        path = folder / f"ATL06_201904{granule:02d}093911_0{270 + granule}0303_006_01.nc"
        files.append(write_netcdf(path, variables, {"featureType": "trajectory"}))

    def expected() -> dict[str, xr.Dataset]:
        found = _joined(files, {"ancillary_data": "trajectory"})
        for number, beam in enumerate(beams):
            counts = np.array([lengths[number] for lengths in taken])
            held = [file for file, n in zip(files, counts, strict=True) if n]
            path = f"{beam}/land_ice_segments"
            (own,) = _joined(held, {path: "delta_time"}).values()
            found[path] = own.assign(row_size=("trajectory", counts))
        return found

    return Archive("altimetry", tuple(files), expected)


def orbits(folder: Path) -> Archive:
    """Orbits of a spectrometer: each file counts scan lines from 0, below a time of length 1."""
    files = []
    for orbit, n_lines in enumerate((50, 53, 47, 60)):
        lines, pixels = np.arange(n_lines, dtype="i4"), np.arange(4, dtype="i4")
        day = {"units": "seconds since 2010-01-01", "standard_name": "time"}
        swath = ("time", "scanline", "ground_pixel")
        variables = {
            "PRODUCT/time": Variable(("time",), np.array([86400 * (orbit // 2)], "i4"), day),
            "PRODUCT/scanline": Variable(("scanline",), lines, {"units": "1"}),
            "PRODUCT/ground_pixel": Variable(("ground_pixel",), pixels, {"units": "1"}),
            "PRODUCT/delta_time": Variable(
                ("time", "scanline"), 6000 * orbit + 840 * lines[None], {"units": "milliseconds"}
            ),
            "PRODUCT/time_utc": Variable(
                ("time", "scanline"), np.array([[f"{orbit}T{n}Z" for n in lines]], object)
            ),
            "PRODUCT/pressure_bounds": Variable(("layer",), 1e5 + orbit - 100.0 * np.arange(3)),
            "METADATA/QA_STATISTICS/histogram": Variable(("bin",), 10 * orbit + np.arange(5)),
        }
        for name in ("latitude", "longitude", "nitrogendioxide"):
            values = field_of(f"{name}{orbit}", 1, n_lines, 4)
            variables[f"PRODUCT/{name}"] = Variable(swath, values, {}, (1, 16, 4))
        bounds = field_of(f"bounds{orbit}", 1, n_lines, 4, 4)
        variables["PRODUCT/SUPPORT_DATA/latitude_bounds"] = Variable((*swath, "corner"), bounds)
        date = f"2010010{1 + orbit // 2}T0{orbit}0000"
        files.append(write_netcdf(folder / f"S5P_OFFL_L2__NO2____{date}_2{orbit}.nc", variables))

    def expected() -> dict[str, xr.Dataset]:
        whole = [xr.open_dataset(f, group="PRODUCT", decode_timedelta=True) for f in files]
        tables = xr.concat([ds["pressure_bounds"] for ds in whole], "time")
        opened = [ds.drop_vars("pressure_bounds") for ds in whole]
        lines = xr.concat([ds.isel(time=0, drop=True) for ds in opened], "scanline")
        below = [xr.open_dataset(path, group="PRODUCT/SUPPORT_DATA") for path in files]
        bounds = xr.concat([ds.isel(time=0, drop=True) for ds in below], "scanline")
        sizes = ("time", [ds.sizes["scanline"] for ds in opened])
        times = ("time", np.concatenate([ds["time"].values for ds in opened]))
        product = lines.assign(row_size=sizes, pressure_bounds=tables).assign_coords(time=times)
        return {
            "PRODUCT": product,
            "PRODUCT/SUPPORT_DATA": bounds,
            **_joined(files, {"METADATA/QA_STATISTICS": "time"}),
        }

    return Archive("orbits", tuple(files), expected)


def volumes(folder: Path) -> Archive:
    """Volumes of a weather radar: sweeps are groups, each with its own number of rays."""
    files = []
    for volume, sweeps in enumerate(((36, 35), (34, 36), (36, 36))):
        begin = np.array(f"2024-06-01T00:{5 * volume:02d}:00Z", object)
        variables = {
            "volume_number": Variable((), np.int32(volume)),
            "time_coverage_start": Variable((), begin),
        }
        for sweep, n_rays in enumerate(sweeps):
            angles = (np.arange(n_rays) * (360 / n_rays)).astype("f4")
            seconds = 300.0 * volume + 20 * sweep + np.arange(n_rays) / 4
            at = f"sweep_{sweep}"
            variables |= {
                f"{at}/azimuth": Variable(("azimuth",), angles, {"units": "degrees"}),
                f"{at}/range": Variable(("range",), 250.0 * np.arange(6), {"units": "meters"}),
                f"{at}/time": Variable(
                    ("azimuth",),
                    seconds,
                    {"units": "seconds since 2024-06-01", "standard_name": "time"},
                ),
                f"{at}/DBZH": Variable(
                    ("azimuth", "range"), field_of(f"{volume}{sweep}", n_rays, 6), {}, (12, 6)
                ),
            }
        files.append(write_netcdf(folder / f"volume_20240601_00{5 * volume:02d}00.nc", variables))

    def expected() -> dict[str, xr.Dataset]:
        return _joined(files, {"": "instance", "sweep_0": "azimuth", "sweep_1": "azimuth"})

    return Archive("volumes", tuple(files), expected)


def sweeps(folder: Path) -> Archive:
    """Sweeps of weather radars as ODIM writes them: elevations are attributes of a group."""
    files, data = [], {}
    elevations = (0.5, 1.4, 2.4)
    for volume, sweep in itertools.product((0, 1), (0, 1, 2)):
        path = folder / f"T_PAGZ{41 + sweep}_C_LFPW_202406010{5 * volume:01d}0000.h5"
        data[volume, sweep] = (field_of(f"{volume}{sweep}", 8, 5) / 2).astype("u1")
        with h5py.File(path, "w") as file:
            file.attrs["Conventions"] = "ODIM_H5/V2_2"
            where = file.create_group("dataset1/where")
            where.attrs.update({"elangle": elevations[sweep], "nbins": 5, "nrays": 8})
            moment = file.create_group("dataset1/data1")
            moment.create_group("what").attrs.update({"gain": 0.5, "offset": -32.0})
            moment["data"] = data[volume, sweep]
        files.append(path)

    def expected() -> dict[str, xr.Dataset]:
        times = pd.to_datetime(["2024-06-01T00:00", "2024-06-01T05:00"])
        stored = np.array([[data[volume, sweep] for sweep in (0, 1, 2)] for volume in (0, 1)])
        dims = ("time", "elevation", "phony_dim_0", "phony_dim_1")
        labels = {"time": times, "elevation": list(elevations)}
        return {
            "": xr.Dataset(coords=labels),
            "dataset1/data1": xr.Dataset({"data": (dims, stored)}),
        }

    return Archive("sweeps", tuple(files), expected, pattern="*.h5")


def scans(folder: Path) -> Archive:
    """Volumes of weather radars as ODIM writes them: each sweep has its own number of rays."""
    files, taken = [], ((36, 35, 36), (34, 35, 36), (36, 35, 33))
    for volume, sweeps in enumerate(taken):
        path = folder / f"T_PAZE63_C_LSMA_202406010{volume}0000.h5"
        with h5py.File(path, "w") as file:
            file.attrs["Conventions"] = np.bytes_("ODIM_H5/V2_2")
            file.create_group("what").attrs["object"] = np.bytes_("PVOL")
            for sweep, n_rays in enumerate(sweeps):
                data = (field_of(f"{volume}{sweep}", n_rays, 5 - sweep) / 2).astype("u1")
                file[f"dataset{sweep + 1}/data1/data"] = data
                where = file.create_group(f"dataset{sweep + 1}/where")
                where.attrs.update({"elangle": 0.5 + sweep, "nrays": n_rays, "nbins": 5 - sweep})
        files.append(path)

    def expected() -> dict[str, xr.Dataset]:
        found = {}
        for sweep in range(3):
            path = f"dataset{sweep + 1}/data1"
            own = [xr.open_dataset(f, group=path) for f in files]
            (rows, _) = own[0]["data"].dims
            is_even = len({ds.sizes[rows] for ds in own}) == 1
            found[path] = xr.concat(own, "time" if is_even else rows)
        times = pd.to_datetime([f"2024-06-01T0{volume}:00" for volume in range(3)])
        return {"": xr.Dataset(coords={"time": times}), **found}

    return Archive("scans", tuple(files), expected, pattern="*.h5")


def _joined(files: Sequence[Path], along: Mapping[str, str]) -> dict[str, xr.Dataset]:
    """Groups of all files, each concatenated along a dimension; new ones come first."""
    how = {"data_vars": "all", "coords": "minimal", "compat": "override"}
    return {
        group: xr.concat([xr.open_dataset(f, group=group or None) for f in files], dim, **how)
        for group, dim in along.items()
    }
