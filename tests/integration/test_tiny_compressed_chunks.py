"""Many small compressed chunks, which are decoded together: values and errors are those of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest

import gridref
from gridref.codecs import pipeline
from gridref.errors import DecodeError
from gridref.serve import reader as module

SHAPE, CHUNKS = (3, 95, 128), (1, 10, 15)


def filled(path: Path, values: Any, **options: Any) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=values, chunks=CHUNKS, **options)


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "i2", "u1", "c16"])
@pytest.mark.parametrize(
    "options",
    [
        {"compression": "gzip"},
        {"compression": "gzip", "shuffle": True},
        {"compression": "gzip", "shuffle": True, "fletcher32": True},
        {"shuffle": True},
        {"fletcher32": True},
        {"compression": "lzf", "shuffle": True},
        {**hdf5plugin.Zstd(), "shuffle": True},
        {**hdf5plugin.Blosc()},
    ],
    ids=[
        "gzip",
        "shuffle",
        "fletcher32",
        "shuffle-alone",
        "fletcher32-alone",
        "lzf",
        "zstd",
        "blosc",
    ],
)
def test_values_are_those_of_h5py(
    tmp_path: Path, options: Any, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = (np.arange(np.prod(SHAPE)).reshape(SHAPE) // 7 % 101 // 9).astype(dtype)
    filled(tmp_path / "a.h5", values, **options)
    gridref.build(str(tmp_path / "a.h5"), str(tmp_path / "a.gridref"))
    n_together = []
    deliver = module.deliver_stacked
    monkeypatch.setattr(
        module,
        "deliver_stacked",
        lambda task, *others: (n_together.append(len(task.members)), deliver(task, *others))[1],
    )
    array = gridref.open_catalog(tmp_path / "a.gridref")["v"]
    for part in (np.s_[:], np.s_[1], np.s_[:, 3:88, 20:], np.s_[2, ::2, ::-1], np.s_[1:, 40]):
        np.testing.assert_array_equal(array[part], values[part])
    assert sum(n_together) > 3 * 9 * 8  # all but those at the edges, at least once


def test_the_damaged_chunk_is_named_and_others_are_read(tmp_path: Path) -> None:
    values = np.random.default_rng(3).random(SHAPE).astype("f4")
    filled(tmp_path / "a.h5", values, compression="gzip", shuffle=True)
    with h5py.File(tmp_path / "a.h5") as file:
        info = file["v"].id.get_chunk_info_by_coord((1, 20, 30))
    content = bytearray((tmp_path / "a.h5").read_bytes())
    content[info.byte_offset + 5 : info.byte_offset + 40] = bytes(35)
    (tmp_path / "a.h5").write_bytes(content)
    gridref.build(str(tmp_path / "a.h5"), str(tmp_path / "a.gridref"))
    array = gridref.open_catalog(tmp_path / "a.gridref")["v"]
    with pytest.raises(DecodeError) as caught:
        array[...]
    assert caught.value.place.chunk == (1, 2, 2)
    assert (caught.value.place.start, caught.value.place.stop) == (
        info.byte_offset,
        info.byte_offset + info.size,
    )
    np.testing.assert_array_equal(array[2], values[2])


def test_chunks_whose_filters_were_left_out_are_decoded_alone(tmp_path: Path) -> None:
    values = np.random.default_rng(3).random(SHAPE).astype("f4")
    filled(tmp_path / "a.h5", values, compression="gzip")
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["v"].id.write_direct_chunk((0, 10, 15), values[0, 10:20, 15:30].tobytes(), 1)
    gridref.build(str(tmp_path / "a.h5"), str(tmp_path / "a.gridref"))
    found = gridref.open_catalog(tmp_path / "a.gridref")["v"][...]
    np.testing.assert_array_equal(found, values)


def test_chunks_of_another_size_are_refused() -> None:
    encoding = pipeline.Encoding((4,), np.dtype("f4"), (pipeline.bytes_codec(np.dtype("f4")),))
    with pytest.raises(DecodeError):
        pipeline.decode_together([bytes(16), bytes(15)], encoding, (4,))
