"""Corrupt HDF5 files: an error of ours or the right answer, soon and within bounds."""

from __future__ import annotations

import io
from contextlib import suppress
from functools import cache
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gridref.errors import GridrefError
from gridref.formats.registry import scan
from tests.hdf5_oracle import compare_with_h5py
from tests.work import counted_work

MOST_LINES = 100_000


@cache
def intact(libver: str) -> bytes:
    """A small file with something of everything."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", libver=libver) as file:
        file.attrs["title"] = "fuzz"
        x = file.create_dataset("x", data=np.arange(60).reshape(6, 10), chunks=(4, 3), shuffle=True)
        x.attrs.update({f"attribute{number}": number for number in range(12)})
        time_axis = file.create_dataset("time", data=np.arange(6.0), maxshape=(None,), chunks=(4,))
        time_axis.make_scale("time")
        x.dims[0].attach_scale(time_axis)
        file["g/contiguous"] = np.arange(20, dtype=">i2")
        file["g/text"] = ["a", "bc", "ä"]
        file["g/struct"] = np.zeros(3, [("a", "i4"), ("b", "S3")])
        file["link"] = h5py.SoftLink("/g/contiguous")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "fuzzed.h5"


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    libver=st.sampled_from(["earliest", "latest"]),
    flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=6),
    kept=st.one_of(st.just(1.0), st.floats(0, 1)),
)
def test_corrupt_files(
    scratch: Path, libver: str, flips: list[tuple[float, int]], kept: float
) -> None:
    data = bytearray(intact(libver))
    for place, value in flips:
        data[int(place * len(data))] = value
    scratch.write_bytes(data[: int(kept * len(data))])
    group = None
    with counted_work() as work, suppress(GridrefError):
        group = scan(scratch, on_unsupported="skip")
    assert work.n_lines < MOST_LINES
    if group is None:
        return
    wrong = compare_with_h5py(scratch, group).wrong.values()
    silent = [why for why in wrong if not why.startswith(("cannot be read", "neither taken"))]
    assert silent == []
