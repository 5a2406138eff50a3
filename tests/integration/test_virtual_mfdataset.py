"""`open_virtual_mfdataset` beside `xarray.open_mfdataset`, on the same files and options."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.errors import CombineError, InvalidRequestError

FILES = 3


def write(folder: Path, kind: str) -> list[Path]:
    """Files of two days each; what has no time is the same, or differs, in the data or coords."""
    paths = []
    for number in range(FILES):
        ds = xr.Dataset(
            {
                "t": (("time", "lat"), 10.0 * number + np.arange(6.0).reshape(2, 3)),
                "mask": (("lat",), np.array([1, 2, 3], "i4") + (number if kind == "data" else 0)),
                "name": (("lat",), np.array(["a", "b", "c"], object)),
                "scalar": ((), 4.0 + (number if kind == "data" else 0)),
            },
            {
                "time": np.arange(2.0) + 2 * number,
                "lat": [1.0, 2, 3],
                "height": (("lat",), [5.0, 6, 7 + (number if kind == "coords" else 0)]),
                "level": ((), 9.0),
                "step": (("time",), np.arange(2) + 10 * number),
            },
        )
        paths.append(folder / f"{kind}{number}.nc")
        ds.to_netcdf(paths[-1])
    return paths


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mfdataset")


def outcome(call: Any) -> xr.Dataset | None:
    """What a call returns; None where it says that the files do not fit."""
    try:
        result = call()
    except (xr.MergeError, xr.AlignmentError, ValueError):
        return None
    assert isinstance(result, xr.Dataset)
    return result


RULES: list[Any] = ["minimal", "different", "all"]
CASES = list(product(["data", "coords"], [*RULES, ["mask", "scalar"]], [*RULES, ["height"]]))


@pytest.mark.long(but=24)
@pytest.mark.parametrize(("kind", "data_vars", "coords"), CASES)
@pytest.mark.parametrize("how", ["by_coords", "nested", "new"])
def test_it_does_what_xarray_does(
    folder: Path, tmp_path: Path, kind: str, data_vars: Any, coords: Any, how: str
) -> None:
    files = write(folder, kind)
    options: dict[str, Any] = {
        "data_vars": data_vars,
        "coords": coords,
        "join": "exact",
        "compat": "equals",
        "combine": "by_coords" if how == "by_coords" else "nested",
    }
    if how != "by_coords":
        options["concat_dim"] = "time" if how == "nested" else "run"

    def first_days(ds: xr.Dataset) -> xr.Dataset:
        return ds.isel(time=0, drop=True).drop_vars(["step"], errors="ignore")

    if how == "new":
        options["preprocess"] = first_days
    wanted = outcome(lambda: xr.open_mfdataset(files, **options).load())
    found = outcome(lambda: gridref.open_virtual_mfdataset(files, **options))
    assert (found is None) == (wanted is None)
    if found is None or wanted is None:
        return
    found.gridref.save(tmp_path / "cube.gridref")
    shown = xr.open_dataset(tmp_path / "cube.gridref", engine="gridref").load()
    assert set(shown.coords) == set(wanted.coords)
    xr.testing.assert_equal(shown.drop_vars("run", errors="ignore"), wanted.transpose(*shown.dims))


@pytest.mark.parametrize("rule", ["minimal", "different", "all"])
def test_labels_are_joined_and_never_repeated(tmp_path: Path, rule: Any) -> None:
    for number in range(2):
        xr.Dataset(
            {"t": (("time", "lat"), np.ones((1, 2)))}, {"time": [number], "lat": [1.0, 2 + number]}
        ).to_netcdf(tmp_path / f"{number}.nc")
    files = [tmp_path / "0.nc", tmp_path / "1.nc"]
    call: dict[str, Any] = {"concat_dim": "time", "combine": "nested", "join": "exact"}
    for error in (CombineError, xr.MergeError, xr.AlignmentError, ValueError):
        with pytest.raises(error, match="lat"):
            gridref.open_virtual_mfdataset(files, data_vars=rule, coords=rule, **call)
    with pytest.raises(xr.AlignmentError):
        xr.open_mfdataset(files, data_vars=rule, coords="minimal", compat="equals", **call)


def test_lists_name_variables(folder: Path) -> None:
    files = write(folder, "same")
    with pytest.raises(InvalidRequestError, match="data_vars has no variable 'maks'"):
        gridref.open_virtual_mfdataset(files, data_vars=["maks"])
    with pytest.raises(InvalidRequestError, match="coords has no variable 'mask'"):
        gridref.open_virtual_mfdataset(files, coords=["mask"])
    with pytest.raises(InvalidRequestError, match="is none of"):
        gridref.open_virtual_mfdataset(files, data_vars="some")
    tree = gridref.open_virtual_datatree(files, "time", data_vars=["mask"])
    assert tree.mask.dims == ("time", "lat")
    assert tree.scalar.dims == ()


def test_a_level_of_one_list_needs_no_dimension(folder: Path) -> None:
    files = write(folder, "same")
    found = gridref.open_virtual_mfdataset([files], [None, "time"], combine="nested")
    assert found.identical(gridref.open_virtual_mfdataset(files, "time", combine="nested"))
    with pytest.raises(InvalidRequestError, match="concat_dim for each level"):
        gridref.open_virtual_mfdataset(files, [None], combine="nested")


@pytest.mark.parametrize(
    "labels", [gridref.Labels("{lat:d}.nc"), gridref.Labels(sources={"lat": "attribute:lat"})]
)
def test_files_in_the_order_given_have_no_labels(folder: Path, labels: Any) -> None:
    files = write(folder, "same")
    with pytest.raises(InvalidRequestError, match=r"leave out layout=Labels\("):
        gridref.open_virtual_mfdataset(files, "time", combine="nested", layout=labels)
