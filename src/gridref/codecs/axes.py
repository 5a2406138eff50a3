"""Array -> array codecs that add or drop axes.

``reshape`` is that of zarr-extensions (https://github.com/zarr-developers/zarr-extensions,
``codecs/reshape``), as far as gridref writes it. ``gridref.select`` is our own: the decoded array
is one place along an axis of the encoded one.
"""

from __future__ import annotations

import math

import numpy as np

from gridref.codecs.stage import ArrayCodec, ArrayDecode, ArraySpec, Config

__all__ = ["ARRAY_CODECS"]


def _reshape_stored(config: Config, spec: ArraySpec) -> ArraySpec:
    shape = tuple(
        length_or_axes
        if isinstance(length_or_axes, int)
        else math.prod(spec.shape[axis] for axis in length_or_axes)
        for length_or_axes in config["shape"]
    )
    if math.prod(shape) != spec.size:
        raise ValueError(f"shape {config['shape']} does not hold {spec.size} elements")
    return ArraySpec(shape, spec.dtype)


def _reshape_decoder(config: Config, spec: ArraySpec) -> ArrayDecode:
    return lambda stored: stored.reshape(spec.shape)


def _reshape_problem(config: Config) -> str | None:
    return "a shape of -1 is not supported" if -1 in config["shape"] else None


def _select_stored(config: Config, spec: ArraySpec) -> ArraySpec:
    axis, index, length = config["axis"], config["index"], config["length"]
    if not (0 <= axis <= len(spec.shape) and 0 <= index < length):
        raise ValueError(f"place {index} of {length} along axis {axis} of {spec.shape}")
    return ArraySpec((*spec.shape[:axis], length, *spec.shape[axis:]), spec.dtype)


def _select_decoder(config: Config, spec: ArraySpec) -> ArrayDecode:
    index = (*(slice(None),) * config["axis"], config["index"])
    return lambda stored: np.asarray(stored[index])


ARRAY_CODECS = {
    "reshape": ArrayCodec(
        _reshape_decoder, _reshape_stored, required=("shape",), problem=_reshape_problem
    ),
    "gridref.select": ArrayCodec(
        _select_decoder, _select_stored, required=("axis", "index", "length")
    ),
}
