from __future__ import annotations

import warnings

import numpy as np
import pytest
import xarray as xr

from gridref.codecs import unpack
from gridref.model.encoding import Unpacking
from tests.unit.codecs.support import image_like

f4, f8 = np.float32, np.float64

CASES = [
    ("i2", {"scale_factor": f8(0.01), "add_offset": f8(273.15)}, [-32768]),
    ("i2", {"scale_factor": f4(0.01), "add_offset": f4(273.15)}, [-32768]),
    ("i2", {"scale_factor": f4(0.01)}, [-32768]),
    ("i2", {"scale_factor": f8(0.01)}, []),
    ("i2", {"add_offset": f4(5.5)}, []),
    ("u1", {"scale_factor": f4(0.1), "add_offset": f4(-3.3)}, [255]),
    ("i4", {"scale_factor": f4(0.1), "add_offset": f4(-3.3)}, [-999]),
    ("i8", {"scale_factor": f8(1e-9)}, [-(2**62) - 1]),
    ("f4", {"scale_factor": f4(0.1), "add_offset": f4(-3.3)}, [f4(1e20)]),
    ("f4", {"scale_factor": f8(0.1), "add_offset": f8(-3.3)}, [f4(1e20)]),
    ("f8", {"scale_factor": f8(1e300)}, [1e20]),
    ("i1", {"scale_factor": f4(0.5), "_Unsigned": "true"}, [-1]),
    ("u1", {"scale_factor": f4(0.5), "_Unsigned": "false"}, []),
    ("i2", {}, [-32768]),
    ("i4", {}, [-999]),
    ("f4", {}, [f4(-999.9)]),
    ("f4", {}, [f8(1e20)]),
]


@pytest.mark.parametrize(("dtype", "attributes", "fills"), CASES, ids=str)
@pytest.mark.filterwarnings("ignore")
def test_values_are_those_of_xarray(dtype, attributes, fills):
    stored = image_like((20, 30), dtype)
    stored[3, 4:9] = np.array(fills or [1]).astype(dtype)[0]
    stored[0, 0] = np.iinfo(dtype).max if np.dtype(dtype).kind in "iu" else 3e30
    described = dict(attributes)
    if fills:
        fill = fills[0]
        described["_FillValue"] = (
            fill if isinstance(fill, np.floating) else np.dtype(dtype).type(fill)
        )
    wanted = xr.conventions.decode_cf_variable("v", xr.Variable(("y", "x"), stored, described))
    scale, offset = attributes.get("scale_factor"), attributes.get("add_offset")
    unsigned = attributes.get("_Unsigned")
    unpacking = Unpacking(
        None if scale is None else float(scale),
        None if offset is None else float(offset),
        tuple(np.array(fill).item() for fill in fills),
        None if unsigned is None else unsigned == "true",
        wanted.dtype.name,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = unpack(stored, unpacking)
    assert found.dtype == wanted.dtype
    assert found.tobytes() == wanted.values.tobytes()


def test_several_fill_values_and_nan():
    stored = np.array([1, 2, 3, 4], "i2")
    found = unpack(stored, Unpacking(fill_values=(2, 4, float("nan")), dtype="float32"))
    np.testing.assert_array_equal(found, np.array([1, np.nan, 3, np.nan], "f4"))


def test_the_stored_values_stay_as_they_are():
    stored = np.array([1.0, 2.0])
    found = unpack(stored, Unpacking(scale=2.0))
    assert stored.tolist() == [1, 2]
    assert found.tolist() == [2, 4]


@pytest.mark.parametrize("fill", [np.inf, -np.inf, np.nan, 0.5, 1e30, -300, 256])
def test_a_fill_value_that_cannot_be_stored_hides_nothing(fill: float) -> None:
    stored = np.array([-1, 0, 1, 127], "i1")
    found = unpack(stored, Unpacking(2.0, None, (fill,), unsigned=True))
    np.testing.assert_array_equal(found, [510.0, 0.0, 2.0, 254.0])


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2"])
@pytest.mark.parametrize("fill", [-129, -128, -1, 0, 0.5, 127, 128, 255, 256])
def test_fill_values_of_either_sign_hide_what_they_name(fill: float, dtype: str) -> None:
    stored = np.arange(256 ** np.dtype(dtype).itemsize).astype(dtype)
    shown = stored.view(dtype.translate(str.maketrans("iu", "ui")))
    found = unpack(stored, Unpacking(2.0, None, (fill,), unsigned=dtype.startswith("i")))
    np.testing.assert_array_equal(np.isnan(found), (stored == fill) | (shown == fill))


def test_factors_that_the_precision_cannot_hold_lose_nothing() -> None:
    stored = np.arange(1000, dtype="i2")
    found = unpack(stored, Unpacking(0.1, 0.7, dtype="float32"))
    scaled = (stored * 0.1).astype("f4")
    np.testing.assert_array_equal(found, (scaled.astype("f8") + 0.7).astype("f4"))
