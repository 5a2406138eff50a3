"""Archives of several dimensions: members by months, forecasts by start and step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr

from tests.archives.archive import Archive, Variable, field_of, write_netcdf

__all__ = ["ensemble", "forecasts"]


def ensemble(folder: Path) -> Archive:
    """Ensemble by months: only the names hold the member, and the last member begins later."""
    files = []
    for member in (2, 1, 3):
        for month, n_days in ((2, 28), (1, 31), (3, 31)):
            if (member, month) == (3, 1):
                continue  # it was started in February
            before = {1: 0, 2: 31, 3: 59}[month]
            variables = {
                "time": Variable(
                    ("time",),
                    (before + np.arange(n_days)).astype("i4"),
                    {"units": "days since 2019-01-01", "calendar": "standard"},
                    (n_days,),
                ),
                "lat": Variable(("lat",), np.linspace(50, 46, 5), {"units": "degrees_north"}),
                "lon": Variable(("lon",), np.linspace(5, 10, 6), {"units": "degrees_east"}),
                "tas": Variable(
                    ("time", "lat", "lon"),
                    field_of(f"tas{member}{month}", n_days, 5, 6),
                    {"_FillValue": np.float32(-9999), "units": "K"},
                    (10, 5, 6),
                ),
            }
            path = folder / f"member{member}" / f"tas_{member}_2019{month:02d}.nc"
            files.append(write_netcdf(path, variables, {"title": "ensemble"}, ["time"]))

    def expected() -> dict[str, xr.Dataset]:
        members = []
        for member in (1, 2, 3):
            own = sorted(path for path in files if path.name.startswith(f"tas_{member}_"))
            months = xr.open_mfdataset(own)
            members.append(months.expand_dims(member=[member], axis=0))
        whole = xr.concat(members, "member", join="outer", data_vars="minimal")
        return {"": whole}

    pattern = "tas_{member:d}_{time:%Y%m}.nc"
    return Archive(
        "ensemble",
        tuple(files),
        expected,
        {"pattern": pattern},
        ("--pattern", pattern),
        "**/*.nc",
    )


def forecasts(folder: Path) -> Archive:
    """Forecasts as cfgrib writes them: a file for each start and step, both scalar coordinates."""
    files, starts, steps = [], (0, 12, 24), (0, 6, 12, 18)
    for start in starts:
        for step in steps[::-1]:
            if (start, step) == (24, 18):
                continue  # the newest run is still being computed
            variables = {
                "time": Variable(
                    (),
                    np.int64(3600 * start),
                    {
                        "units": "seconds since 2022-03-01",
                        "standard_name": "forecast_reference_time",
                    },
                ),
                "step": Variable(
                    (), np.float64(step), {"units": "hours", "standard_name": "forecast_period"}
                ),
                "valid_time": Variable(
                    (),
                    np.int64(3600 * (start + step)),
                    {"units": "seconds since 2022-03-01", "standard_name": "time"},
                ),
                "latitude": Variable(("latitude",), np.linspace(60, 40, 5)),
                "longitude": Variable(("longitude",), np.linspace(0, 20, 5)),
                "t2m": Variable(
                    ("latitude", "longitude"),
                    field_of(f"t2m{start + step}{start}", 5, 5),
                    {
                        "_FillValue": np.float32("nan"),
                        "coordinates": "time step valid_time",
                        "units": "K",
                    },
                    (5, 5),
                ),
            }
            path = folder / f"fc_202203{1 + start // 24:02d}{start % 24:02d}_{step:03d}.nc"
            files.append(write_netcdf(path, variables, {"Conventions": "CF-1.7"}))

    def expected() -> dict[str, xr.Dataset]:
        opened = [xr.open_dataset(path, decode_timedelta=True) for path in files]
        opened = [_repeated(ds).expand_dims(["time", "step"]) for ds in opened]
        return {"": xr.combine_by_coords(opened, join="outer", data_vars="minimal")}

    return Archive("forecasts", tuple(files), expected)


def _repeated(ds: xr.Dataset) -> xr.Dataset:
    """The dataset with its valid time as a variable, which `expand_dims` repeats."""
    return ds.reset_coords("valid_time")
