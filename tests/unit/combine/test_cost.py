"""What combining costs, in lines run: along one dimension, and along several."""

from __future__ import annotations

import numpy as np

from gridref.combine import Hypercube, combine
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Encoding, bytes_codec
from gridref.model.manifest import ChunkManifest, Source
from tests.work import counted_work

F4 = np.dtype("f4")


def file(member: int, month: int, n_variables: int) -> VirtualGroup:
    source = Source(f"/{member}/{month}.nc", 10**6, 1)
    arrays = {
        f"v{number}": VirtualArray.of_one_block(
            (10, 4, 5),
            F4,
            encoding=Encoding((5, 4, 5), F4, (bytes_codec(F4),)),
            manifest=ChunkManifest.from_columns([source], offset=[0, 400], length=400),
            dims=("time", "y", "x"),
        )
        for number in range(n_variables)
    }
    arrays["time"] = VirtualArray.from_numpy(np.arange(10) + 10 * month, ("time",))
    arrays["member"] = VirtualArray.from_numpy(np.array(member), ())
    return VirtualGroup(arrays)


def test_another_variable_costs_few_lines_a_file() -> None:
    lines = []
    for n_variables in (2, 12):
        files = [file(member, month, n_variables) for member in range(4) for month in range(12)]
        with counted_work() as work:
            done = combine(files, Hypercube(("member", "time")))
        assert done.group is not None
        assert done.group.arrays["v1"].shape == (4, 120, 4, 5)
        lines.append(work.n_lines)
    # It is 122 lines a variable of each file; cutting blocks one by one took 403.
    assert (lines[1] - lines[0]) / (10 * len(files)) < 150


def test_another_file_in_a_row_costs_few_lines() -> None:
    lines = []
    for n_files in (50, 100):
        whole = [file(0, month, 10).arrays for month in range(n_files)]
        files = [
            VirtualGroup({name: array for name, array in arrays.items() if name != "member"})
            for arrays in whole
        ]
        with counted_work() as work:
            done = combine(files, "time")
        assert done.group is not None
        assert done.group.arrays["v1"].shape == (10 * n_files, 4, 5)
        lines.append(work.n_lines)
    assert (lines[1] - lines[0]) / 50 < 300  # it is 257, of eleven variables
