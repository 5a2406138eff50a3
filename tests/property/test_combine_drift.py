"""Random archives with random drift: the cube, read by zarr and decoded by xarray, is the truth."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import gridref
from gridref.api.readable import reader_for
from gridref.combine import CombineOptions, combine
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import EdgePolicy
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly
from tests.work import FEWER

READER = reader_for()
UNITS = [
    "days since 2000-01-01",
    "days since 2000-01-01 06:00",
    "hours since 1999-12-31",
    "seconds since 1970-01-01",
    "days since 2000-1-1 00:00:00",
]
N_LAT = 4

stored = st.fixed_dictionaries(
    {
        "edge": st.sampled_from(EdgePolicy),
        "big_endian": st.booleans(),
        "compressed": st.booleans(),
    }
)


@st.composite
def packings(draw: st.DrawFn) -> tuple[np.dtype[Any], dict[str, Any]]:
    """A stored dtype and packing attributes."""
    dtype = np.dtype(draw(st.sampled_from(["i2", "i2", "i4", "u1", "f4", "f8"])))
    attrs: dict[str, Any] = {}
    number = np.float32 if draw(st.booleans()) else np.float64
    if draw(st.booleans()) and dtype.kind != "f":
        attrs["scale_factor"] = number(draw(st.sampled_from([0.01, 0.5, 2.0])))
        if draw(st.booleans()):
            attrs["add_offset"] = number(draw(st.sampled_from([0.0, 273.15, -40.0])))
    if draw(st.booleans()):
        attrs["_FillValue"] = dtype.type(draw(st.sampled_from([0, 7, 99])))
    if draw(st.booleans()) and "_FillValue" not in attrs:
        attrs["missing_value"] = dtype.type(draw(st.sampled_from([3, 99])))
    return dtype, attrs


@st.composite
def archives(draw: st.DrawFn) -> list[VirtualGroup]:
    """Files of a time series, each in its own way."""
    n_files = draw(st.integers(1, 4))
    kinds = draw(st.lists(packings(), min_size=1, max_size=2))
    units = draw(st.lists(st.sampled_from(UNITS), min_size=1, max_size=2))
    lat = np.linspace(-60, 60, N_LAT)
    groups = []
    for number in range(n_files):
        n_steps = draw(st.integers(0 if number else 1, 5))
        dtype, attrs = draw(st.sampled_from(kinds))
        values = np.array(
            draw(st.lists(st.integers(0, 9), min_size=n_steps * N_LAT, max_size=n_steps * N_LAT))
        ).astype(dtype)
        values = values.reshape(n_steps, N_LAT)
        flipped, turned = draw(st.booleans()), draw(st.booleans())
        times = (np.arange(n_steps) + 1000 * number + draw(st.integers(0, 9))).astype(
            draw(st.sampled_from(["i4", "i8", "f8"]))
        )
        arrays = {
            "time": chunked_array(
                times,
                (3,),
                ("time",),
                attrs={"units": draw(st.sampled_from(units)), "calendar": "standard"},
                **draw(stored),
            ),
            "lat": chunked_array(lat[::-1] if flipped else lat, (N_LAT,), ("lat",)),
        }
        shown = values[:, ::-1] if flipped else values
        if number == 0 or draw(st.integers(0, 4)):
            arrays["v"] = chunked_array(
                shown.T if turned else shown,
                (draw(st.integers(1, 5)), draw(st.integers(1, 5))),
                ("lat", "time") if turned else ("time", "lat"),
                attrs={**attrs, "units": "K"},
                fill_value=attrs.get("_FillValue"),
                **draw(stored),
            )
        groups.append(VirtualGroup(arrays))
    return groups


def decoded(array: VirtualArray, flip_to: np.ndarray | None) -> np.ndarray:
    raw = xr.Variable(array.dims, read_slowly(array), dict(array.attrs))
    variable = xr.conventions.decode_cf_variable("v", raw)
    if flip_to is None:
        return variable.values
    lat = read_slowly(flip_to) if isinstance(flip_to, VirtualArray) else flip_to
    variable = variable.transpose("time", "lat")
    return variable.values[:, ::-1] if lat[0] > lat[-1] else variable.values


@FEWER
@given(archives())
def test_cubes_of_drifting_archives(groups: list[VirtualGroup]) -> None:
    options = CombineOptions(join="outer", overlap="keep", lossy=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = combine(groups, "time", read=READER.read, options=options)
        assert result.problems == ()
        assert result.group is not None
        cube = xr.open_zarr(gridref.open_store(result.group), chunks=None).load()
        first_lat = read_slowly(groups[0].arrays["lat"])
        np.testing.assert_array_equal(cube.lat.values, first_lat)
        parts = []
        for group in groups:
            n_steps = group.arrays["time"].shape[0]
            if "v" in group.arrays:
                parts.append(decoded(group.arrays["v"], read_slowly(group.arrays["lat"])))
            else:
                parts.append(np.full((n_steps, N_LAT), np.nan, "f4"))
        expected = np.concatenate(parts)
        if first_lat[0] > first_lat[-1]:
            expected = expected[:, ::-1]
        times = np.concatenate([decoded(group.arrays["time"], None) for group in groups])
    found = cube.v.transpose("time", "lat").values
    assert len(found) == len(expected)
    # Attributes in JSON have no float32: where values stay packed, xarray decodes to float64.
    single = "scale_factor" in cube.v.encoding and expected.dtype != found.dtype
    compare = np.testing.assert_allclose if single else np.testing.assert_array_equal
    compare(found, expected, **({"rtol": 1e-6} if single else {}))
    np.testing.assert_array_equal(cube.time.values, times)


@st.composite
def gridded(draw: st.DrawFn) -> tuple[list[VirtualGroup], str, str]:
    """Files on grids of their own with times that repeat, a join and a rule for overlaps."""
    groups = []
    for number in range(draw(st.integers(1, 4))):
        lat = np.array(draw(st.lists(st.integers(0, 6), min_size=1, max_size=5, unique=True)))
        first, n_steps = draw(st.integers(0, 6)), draw(st.integers(1, 4))
        dtype, attrs = draw(packings())
        values = np.arange(n_steps * len(lat)).reshape(n_steps, len(lat)) % 9 + number
        arrays = {
            "time": chunked_array(np.arange(first, first + n_steps), (2,), ("time",)),
            "lat": chunked_array(lat.astype("f8"), (2,), ("lat",)),
            "v": chunked_array(
                values.astype(dtype),
                (draw(st.integers(1, 5)), draw(st.integers(1, 5))),
                ("time", "lat"),
                attrs=attrs,
                fill_value=attrs.get("_FillValue"),
                **draw(stored),
            ),
        }
        groups.append(VirtualGroup(arrays))
    joins = st.sampled_from(["outer", "inner", "left", "right"])
    return groups, draw(joins), draw(st.sampled_from(["first", "last", "keep"]))


def opened(group: VirtualGroup) -> xr.Dataset:
    """What xarray makes of one file."""
    arrays = group.arrays.items()
    raw = {name: (a.dims, read_slowly(a), dict(a.attrs)) for name, a in arrays}
    return xr.decode_cf(xr.Dataset(raw))


@FEWER
@given(gridded())
def test_cubes_of_archives_on_other_grids_that_overlap(
    archive: tuple[list[VirtualGroup], str, str],
) -> None:
    groups, join, overlap = archive
    options = CombineOptions(join=join, overlap=overlap, lossy=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = combine(groups, "time", read=READER.read, options=options)
        assert result.problems == ()
        assert result.group is not None
        cube = xr.open_zarr(gridref.open_store(result.group), chunks=None).load()
        parts = [opened(group) for group in groups]
        # Labels of the first file the other way round are turned to it, whatever the join.
        first = parts[0].lat.values
        is_turned = [np.array_equal(part.lat.values[::-1], first) for part in parts]
        parts = [
            part[{"lat": slice(None, None, -1 if turned else 1)}]
            for part, turned in zip(parts, is_turned, strict=True)
        ]
        how: dict[str, Any] = {"data_vars": "minimal", "coords": "minimal", "compat": "override"}
        expected = xr.concat(parts, "time", join=join, **how)
    if not expected.get_index("time").is_unique and overlap != "keep":
        expected = expected.drop_duplicates("time", keep=overlap).sortby("time")
    np.testing.assert_array_equal(cube.lat.values, expected.lat.values)
    np.testing.assert_array_equal(cube.time.values, expected.time.values)
    single = "scale_factor" in cube.v.encoding and expected.v.dtype != cube.v.dtype
    compare = np.testing.assert_allclose if single else np.testing.assert_array_equal
    compare(cube.v.values, expected.v.values, **({"rtol": 1e-6} if single else {}))
