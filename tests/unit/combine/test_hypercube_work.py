"""What laying files out along several dimensions costs, in lines run."""

from __future__ import annotations

import numpy as np

from gridref.combine import combine_hypercube
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
        files = [file(member, month, n_variables) for member in range(4) for month in range(50)]
        with counted_work() as work:
            done = combine_hypercube(files, ["member", "time"])
        assert done.group is not None
        assert done.group.arrays["v1"].shape == (4, 500, 4, 5)
        lines.append(work.n_lines)
    # It is 122 lines a variable of each file; cutting blocks one by one took 403.
    assert (lines[1] - lines[0]) / (10 * len(files)) < 150
