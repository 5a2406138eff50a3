"""Where the shared test data lies, and what happens where it does not.

It is looked for in ``GRIDREF_TEST_DATA``, else in ``../shared/data`` beside the checkout. Tests
that need it are skipped with the reason where it is absent, and fail when
``GRIDREF_REQUIRE_DATA=1``, as in CI.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

REAL_NETCDF = (
    "netcdf4/realistic/*",
    "families/ascat_l2_subset_uneven/*084200*",
    "families/ecearth_tas_uneven/*196011*",
    "families/inm_rlds_uneven/*185001*",
    "families/mooring_nrsrot_tz_uneven/*20181213*",
    "families/xclim_ensemble_contiguous_uneven/*CNRM*",
)
"""Patterns of real NetCDF4 files, one of each kind."""


def shared_data_folder() -> Path:
    """The folder where the shared test data is expected; it may not exist."""
    named = os.environ.get("GRIDREF_TEST_DATA")
    return Path(named) if named else ROOT.parent / "shared" / "data"


def missing_reason() -> str | None:
    """Why the shared data cannot be used, or None if it can."""
    folder = shared_data_folder()
    if folder.is_dir():
        return None
    return f"no shared test data at {folder} (set GRIDREF_TEST_DATA)"


def skip_or_fail(reason: str) -> None:
    """Skip the running test, or fail it where the data is required."""
    if os.environ.get("GRIDREF_REQUIRE_DATA") == "1":
        pytest.fail(f"{reason}, and GRIDREF_REQUIRE_DATA=1", pytrace=False)
    pytest.skip(reason)


def shared_files(*patterns: str) -> list[pytest.ParameterSet]:
    """Parameters for every shared file that matches, each with its path as id.

    For use in ``pytest.mark.parametrize``, at collection time. Patterns are relative to the shared
    data, as ``Path.glob`` takes them. Where the data is absent there is a single parameter whose
    test is skipped, or fails if the data is required. A pattern without a match always fails.
    """
    folder = shared_data_folder()
    reason = missing_reason()
    if reason is not None:
        return [_without_data(" ".join(patterns), reason, wrong=False)]
    found: set[Path] = set()
    unmatched = []
    for pattern in patterns:
        matches = {path for path in folder.glob(pattern) if path.is_file()}
        found |= matches
        if not matches:
            unmatched.append(
                _without_data(pattern, f"no file in {folder} matches {pattern}", wrong=True)
            )
    return [
        pytest.param(path, id=path.relative_to(folder).as_posix()) for path in sorted(found)
    ] + unmatched


def shared_hdf5_files(*patterns: str) -> list[pytest.ParameterSet]:
    """Those of `shared_files` that begin as HDF5 files do."""
    import h5py

    files = shared_files(*patterns)
    return [each for each in files if each.marks or h5py.is_hdf5(each.values[0])]


def _without_data(pattern: str, reason: str, *, wrong: bool) -> pytest.ParameterSet:
    mark = pytest.mark.missing_shared_data(reason, wrong=wrong)
    return pytest.param(shared_data_folder() / pattern, id=pattern, marks=mark)
