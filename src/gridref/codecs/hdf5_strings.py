"""Strings of fixed length that HDF5 pads in another way than numpy.

Source: HDF5 file format specification, version 3.0, IV.A.2.d "Datatype Message" (class 3).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.codecs.stage import ArrayCodec, ArrayDecode, ArraySpec, Config

__all__ = ["ARRAY_CODECS"]

_PADDINGS = ("terminated", "spaces")


def _problem(config: Config) -> str | None:
    if config["padding"] in _PADDINGS:
        return None
    return f"padding {config['padding']} is not supported"


def _decoder(config: Config, spec: ArraySpec) -> ArrayDecode:
    is_terminated = config["padding"] == "terminated"
    dtype = spec.dtype
    if dtype.kind != "S":
        raise ValueError(f"strings of {dtype}")

    def decode(stored: NDArray[Any]) -> NDArray[Any]:
        raw = np.ascontiguousarray(stored).reshape(-1).view(np.uint8).reshape(-1, dtype.itemsize)
        if is_terminated:
            kept = np.logical_and.accumulate(raw != 0, axis=1)
        else:
            kept = np.logical_or.accumulate((raw != ord(" "))[:, ::-1], axis=1)[:, ::-1]
        return (raw * kept).reshape(-1).view(dtype).reshape(stored.shape)

    return decode


ARRAY_CODECS = {
    "gridref.hdf5_string": ArrayCodec(_decoder, required=("padding",), problem=_problem),
}
