"""Random hypercubes with holes, orders and drift equal what xarray makes of the same files."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from gridref.combine import CombineOptions, Hypercube, combine
from gridref.errors import CombineError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly
from tests.work import FEWER

DIMS = ("run", "time", "y")
REFERRING = {"coordinates": "area"}


@st.composite
def cuts(draw: st.DrawFn, extent: int) -> list[tuple[int, int]]:
    """Where an axis is cut into files."""
    inner = (
        sorted(draw(st.sets(st.integers(1, max(1, extent - 1)), max_size=3))) if extent > 1 else []
    )
    edges = [0, *inner, extent]
    return list(itertools.pairwise(edges))


@st.composite
def cubes(draw: st.DrawFn) -> tuple[list[xr.Dataset], xr.Dataset]:
    """Files as datasets in any order, each row of members cut in its own way; and all of them."""
    shape = tuple(draw(st.integers(1, 5)) for _ in DIMS)
    labels = [np.sort(draw(st.permutations(range(20)))[:n]) for n in shape]
    if draw(st.booleans()):
        labels[2] = labels[2][::-1]
    values = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    whole = xr.Dataset(
        {"t": (DIMS, values), "area": (("y",), labels[2] * 2.0)},
        dict(zip(DIMS, labels, strict=True)),
    )
    files = [
        whole.isel(run=slice(run, run + 1), time=slice(*time), y=slice(*y))
        for run in range(shape[0])
        for time in draw(cuts(shape[1]))
        for y in draw(cuts(shape[2]))
    ]
    kept = draw(st.lists(st.sampled_from(range(len(files))), min_size=1, unique=True))
    return [files[number] for number in kept], whole


def group_of(ds: xr.Dataset, *, scalar_run: bool, chunk: int, shift: int = 0) -> VirtualGroup:
    """What a scanner gives of a file: chunks of values, and a run that may be a scalar.

    Times count from another day in files of another shift.
    """
    t = ds["t"]
    dims = DIMS[1:] if scalar_run else DIMS
    values = t.values[0] if scalar_run else t.values
    arrays = {
        "t": chunked_array(
            np.ascontiguousarray(values), (chunk,) * len(dims), dims, attrs=REFERRING
        ),
        "area": VirtualArray.from_numpy(ds["area"].values, ("y",)),
    }
    for dim in DIMS:
        own = ds[dim].values - (shift if dim == "time" else 0)
        is_scalar = dim == "run" and scalar_run
        attrs = {"units": f"days since 2001-01-{1 + shift:02d}"} if dim == "time" else {}
        arrays[dim] = VirtualArray.from_numpy(
            own[0] if is_scalar else own, () if is_scalar else (dim,), attrs
        )
    return VirtualGroup(arrays)


def combined(
    files: list[xr.Dataset],
    *,
    scalar_run: bool,
    chunk: int,
    shifts: Sequence[int] = (0,),
    **rules: Any,
) -> xr.Dataset:
    groups = [
        group_of(ds, scalar_run=scalar_run, chunk=chunk, shift=shift)
        for ds, shift in zip(files, itertools.cycle(shifts), strict=False)
    ]
    group = combine(
        groups, Hypercube(tuple(DIMS)), read=read_slowly, options=CombineOptions(**rules)
    ).unwrap()
    ds = xr.Dataset({n: (a.dims, read_slowly(a)) for n, a in group.arrays.items()})
    day = group.arrays["time"].attrs["units"].rpartition("-")[2]
    return ds.assign(time=ds["time"] + int(day) - 1)


@FEWER
@given(cubes(), st.booleans(), st.integers(1, 3), st.lists(st.integers(0, 9), min_size=1))
def test_files_in_any_order_with_holes_are_as_xarray_reindexes_them(
    cube: tuple[list[xr.Dataset], xr.Dataset], scalar_run: bool, chunk: int, shifts: list[int]
) -> None:
    files, _ = cube
    doubles = [
        ds.assign(t=ds["t"].astype("f8")) if shift % 2 else ds
        for ds, shift in zip(files, itertools.cycle(shifts), strict=False)
    ]
    got = combined(doubles, scalar_run=scalar_run, chunk=chunk, shifts=shifts)
    index = {dim: got[dim].values for dim in DIMS}
    for dim, labels in index.items():
        assert set(labels.tolist()) == {n for ds in files for n in ds[dim].values.tolist()}
    expected = files[0]["t"].reindex(index)
    for ds in files[1:]:
        expected = expected.combine_first(ds["t"]).reindex(index)
    np.testing.assert_array_equal(got["t"].values, expected.values)
    np.testing.assert_array_equal(got["area"].values, index["y"] * 2.0)


@FEWER
@given(cubes())
def test_complete_ones_are_as_combine_by_coords_makes_them(
    cube: tuple[list[xr.Dataset], xr.Dataset],
) -> None:
    _, whole = cube
    n_times, n_rows = whole.sizes["time"], whole.sizes["y"]
    files = [
        whole.isel(run=[run], time=slice(*time), y=slice(*y))
        for y in ((0, n_rows // 2 or 1), (n_rows // 2 or 1, n_rows))
        for run in reversed(range(whole.sizes["run"]))
        for time in ((0, n_times // 2 or 1), (n_times // 2 or 1, n_times))
    ]
    files = [ds for ds in files if ds["t"].size]
    expected = xr.combine_by_coords(files, data_vars="minimal", compat="no_conflicts", join="outer")
    got = combined(files, scalar_run=False, chunk=2)
    falls = n_rows > 1 and whole["y"].values[0] > whole["y"].values[1]
    if falls and all(ds.sizes["y"] == 1 for ds in files):
        expected = expected.sortby("y")
    elif falls:
        expected = expected.sortby("y", ascending=False)
    xr.testing.assert_equal(got.set_coords(DIMS)["t"], expected["t"].transpose(*DIMS))


@FEWER
@given(cubes(), st.sampled_from(["raise", "first", "last"]))
def test_labels_in_two_files_are_an_overlap(
    cube: tuple[list[xr.Dataset], xr.Dataset], rule: str
) -> None:
    files, _ = cube
    again = files[0].assign(t=-files[0]["t"] - 1)
    if rule == "raise":
        with pytest.raises(
            CombineError, match=r"overlap='first' or overlap='last' shows one of them"
        ):
            combined([*files, again], scalar_run=True, chunk=2)
        return
    got = combined([*files, again], scalar_run=True, chunk=2, overlap=rule)
    shown = files[0] if rule == "first" else again
    held = got.set_coords(DIMS)["t"]
    xr.testing.assert_equal(held.sel({dim: shown[dim] for dim in DIMS}), shown["t"])


def test_files_without_labels_are_named() -> None:
    group = VirtualGroup({"t": VirtualArray.from_numpy(np.arange(3.0), ("time",))})
    done = combine([group, group], Hypercube(("run", "time")))
    assert done.group is None
    assert "no labels that place it along 'time'" in " ".join(p.message for p in done.problems)
