"""Labels of GRIB fields are compared with those that eccodes gives to each message."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gridref
from gridref.model.array import VirtualArray, VirtualGroup
from tests.grib_files import field, message, write_grib

LEVELS = (1000, 850, 500)


@pytest.fixture(scope="module")
def cube(tmp_path_factory: pytest.TempPathFactory) -> VirtualGroup:
    """Two members of an ensemble, with three levels and two steps."""
    keys = {"typeOfLevel": "isobaricInhPa", "dataDate": 20240229, "dataTime": 1800}
    member = {"productDefinitionTemplateNumber": 1, "numberOfForecastsInEnsemble": 2}
    fields = [
        field(
            seed=number,
            **keys,
            **member,
            perturbationNumber=number,
            shortName="t",
            level=level,
            step=step,
        )
        for number in (1, 2)
        for step in (0, 6)
        for level in LEVELS
    ]
    path = write_grib(tmp_path_factory.mktemp("grib") / "a.grib2", *fields)
    return gridref.scan(path).groups["isobaricInhPa"]


LABELS = {"number", "time", "step", "valid_time", "isobaricInhPa", "latitude", "longitude"}


def changed(group: VirtualGroup, **by: float) -> VirtualGroup:
    """The group with other numbers as labels."""
    arrays = dict(group.arrays)
    for name, more in by.items():
        label = arrays[name]
        values = label[...] + np.asarray(more).astype(label.dtype)
        arrays[name] = VirtualArray.from_numpy(values, label.dims, label.attrs, label.fill_value)
    return group.with_changes(arrays=arrays)


def test_right_labels_pass(cube: VirtualGroup) -> None:
    result = gridref.verify(changed(cube, longitude=-360), all=True)  # a whole turn
    assert result.ok
    assert result.n_chunks == 12
    # Those of dimensions once, valid times by time and step: 2 + 1 + 2 + 3 + 2 + 3 + 4.
    assert result.n_labels == 17
    assert {path for path, _ in result.not_compared} == {"spatial_ref"}


def test_wrong_labels_are_found(cube: VirtualGroup) -> None:
    result = gridref.verify(changed(cube, **dict.fromkeys(LABELS, 3)), all=True)
    assert {each.place.variable for each in result.differences} == LABELS
    assert all(each.is_label for each in result.differences)


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    "sample",
    [
        *("reduced_gg_sfc_grib2", "rotated_ll_sfc_grib1", "polar_stereographic_sfc_grib2"),
        *("regular_gg_pl_grib1", "regular_ll_sfc_grib1"),
    ],
)
def test_places_on_every_kind_of_grid(tmp_path: Path, sample: str) -> None:
    spaced = {"DxInMetres": 60_000, "DyInMetres": 50_000, "scanningMode": 64}
    path = write_grib(
        tmp_path / "a.grib", message(sample=sample, **(spaced if "polar" in sample else {}))
    )
    (group,) = gridref.scan(path).groups.values()
    n_places = group.arrays["latitude"].size + group.arrays["longitude"].size
    result = gridref.verify(group, all=True)
    assert result.ok
    assert result.n_labels > n_places
    found = gridref.verify(changed(group, latitude=0.01, longitude=0.01), all=True).differences
    assert {each.place.variable for each in found} == {"latitude", "longitude"}


@pytest.mark.long(but=1)
@pytest.mark.parametrize("mode", range(0, 256, 32))
def test_places_in_every_order_of_points(tmp_path: Path, mode: int) -> None:
    one = field(shortName="sp")
    ends = one["keys"]
    for bit, axis in ((128, "longitude"), (64, "latitude")):
        first, last = (f"{axis}Of{end}GridPointInDegrees" for end in ("First", "Last"))
        if mode & bit:
            ends[first], ends[last] = ends[last], ends[first]
    ends["scanningMode"] = mode
    (group,) = gridref.scan(write_grib(tmp_path / "a.grib2", one)).groups.values()
    result = gridref.verify(group, all=True)
    assert (result.ok, result.n_labels) == (True, 3 + 3 + 4)


def test_places_that_eccodes_gets_wrong_are_not_compared(tmp_path: Path) -> None:
    """It ignores the scanning mode of polar stereographic grids, which wgrib2 follows."""
    spaced = {"DxInMetres": 60_000, "DyInMetres": 50_000, "scanningMode": 0}
    path = write_grib(
        tmp_path / "a.grib", message(sample="polar_stereographic_sfc_grib2", **spaced)
    )
    (group,) = gridref.scan(path).groups.values()
    result = gridref.verify(group, all=True)
    assert result.ok
    assert {"latitude", "longitude"} <= {path for path, _ in result.not_compared}
