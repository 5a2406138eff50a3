"""What the tests of xarray expect of their configuration, and what of them cannot apply."""

from __future__ import annotations

import pytest
import xarray as xr
from xarray.tests.conftest import create_test_datatree, simple_datatree, time_unit, use_dask
from xarray.tests.test_backends_datatree import unaligned_datatree_nc

from tests.conformance.xarray_suite.exceptions import exception_of

__all__ = [
    "create_test_datatree",
    "simple_datatree",
    "time_unit",
    "unaligned_datatree_nc",
    "use_dask",
]

# xarray.tests turns it on for the whole process, and so for the tests of others.
xr.set_options(warn_for_unclosed_files=False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is listed has to fail: the list cannot name what has come to pass."""
    for item in items:
        if "xarray_suite/" in item.nodeid:
            exception = exception_of(item.nodeid)
            if exception is not None:
                mark = pytest.mark.xfail(reason=exception.reason, strict=True, run=exception.run)
                item.add_marker(mark)
