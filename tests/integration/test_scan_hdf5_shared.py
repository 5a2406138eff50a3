"""Every dataset of every real file: equal to h5py, or refused for a documented reason."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from gridref.api.verify import verify
from gridref.errors import GridrefError, SourceFormatError, UnsupportedFeatureError
from gridref.formats.registry import scan
from tests.hdf5_oracle import compare_with_h5py, differences_from_xarray
from tests.hdf5_support import is_documented
from tests.shared_data import shared_files

hdf5plugin = pytest.importorskip("hdf5plugin", reason="reads the files' filters for h5py")

GOOD = ("hdf5/**/*", "netcdf4/**/*", "families/**/*")
BAD = ("bad_input/**/*", "not_hdf5/**/*")
NOT_HDF5 = {".tif", ".tiff", ".bin", ".dat"}


@pytest.fixture(autouse=True)
def external_files_lie_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HDF5_EXTFILE_PREFIX", "${ORIGIN}")


@pytest.mark.long(but=24)
@pytest.mark.parametrize("path", shared_files(*GOOD))
def test_equals_h5py_or_is_refused(path: Path) -> None:
    if path.suffix in NOT_HDF5:
        pytest.skip("no HDF5 file")
    group = scan(path, on_unsupported="skip")
    result = compare_with_h5py(path, group)
    assert result.wrong == {}
    undocumented = {
        name: reason for name, reason in result.refused.items() if not is_documented(reason)
    }
    assert undocumented == {}


@pytest.mark.long(but=16)
@pytest.mark.parametrize("path", shared_files("netcdf4/**/*", "families/**/*", "hdf5/features/*"))
def test_names_and_attributes_equal_xarray(path: Path) -> None:
    if path.suffix in NOT_HDF5:
        pytest.skip("no HDF5 file")
    group = scan(path, on_unsupported="skip")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, problems = differences_from_xarray(path, group)
    assert problems == []


@pytest.mark.parametrize("path", shared_files(*BAD))
def test_bad_input_is_an_error_or_right(path: Path) -> None:
    error: GridrefError | None = None
    try:
        group = scan(path, on_unsupported="skip")
    except GridrefError as raised:
        error = raised
    if error is not None:
        assert path.name in str(error)
    elif path.read_bytes().startswith(b"CDF"):
        assert verify(group, all=True).differences == ()
    elif path.suffix not in NOT_HDF5:
        assert compare_with_h5py(path, group).wrong == {}


def test_refusals_are_raised_with_every_name(shared_data: Path) -> None:
    path = shared_data / "hdf5/features/silx-kit__hdf5plugin__sz3.h5"
    with pytest.raises(UnsupportedFeatureError) as caught:
        scan(path)
    message = str(caught.value)
    assert "other objects are refused too" in message
    assert "on_unsupported='skip'" in message


def test_not_a_netcdf4_file(shared_data: Path) -> None:
    with pytest.raises(SourceFormatError, match=r"README\.md"):
        scan(shared_data / "README.md")
