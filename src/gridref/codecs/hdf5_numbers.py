"""Elements of HDF5 datatypes that numpy has no dtype for: odd integers and odd floats.

Source: HDF5 file format specification, version 3.0, IV.A.2.d "Datatype Message" (classes 0 and 1).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.codecs.stage import ArrayCodec, ArrayDecode, ArraySpec, Config

__all__ = ["ARRAY_CODECS"]


def _integer_decoder(config: Config, spec: ArraySpec) -> ArrayDecode:
    n_bits = spec.dtype.itemsize * 8
    precision, offset = config["precision"], config["offset"]
    if spec.dtype.kind not in "iu" or not 1 <= precision <= n_bits - offset <= n_bits:
        raise ValueError(f"bits {offset} to {offset + precision} of {spec.dtype}")
    # Shifting to the left end and back drops the other bits and, for signed ones, extends the sign.
    left, right = n_bits - offset - precision, n_bits - precision
    return lambda stored: np.right_shift(np.left_shift(stored, left), right)


def _float_stored(config: Config, spec: ArraySpec) -> ArraySpec:
    return ArraySpec(spec.shape, np.dtype(f"u{config['size']}"))


def _float_problem(config: Config) -> str | None:
    n_bits = 8 * config["size"]
    if config["size"] not in (1, 2, 4, 8):
        return f"floats of {config['size']} bytes are not supported"
    if config["normalization"] not in {"implied", "set"}:
        return f"normalization {config['normalization']} is not supported"
    if config["mantissa_bits"] > 52 or config["exponent_bits"] > 11:
        return "the mantissa or exponent has more bits than float64 has"
    ends = [
        config["sign_position"] + 1,
        config["exponent_position"] + config["exponent_bits"],
        config["mantissa_position"] + config["mantissa_bits"],
    ]
    return None if max(ends) <= n_bits else f"fields do not lie in {n_bits} bits"


def _float_decoder(config: Config, spec: ArraySpec) -> ArrayDecode:
    exponent_bits, mantissa_bits = config["exponent_bits"], config["mantissa_bits"]
    bias = config["exponent_bias"]
    implied = config["normalization"] == "implied"

    def field(stored: NDArray[Any], name: str, n_bits: int) -> NDArray[np.int64]:
        mask = (1 << n_bits) - 1
        values: NDArray[np.int64] = (stored >> config[f"{name}_position"] & mask).astype(np.int64)
        return values

    def decode(stored: NDArray[Any]) -> NDArray[Any]:
        sign = field(stored, "sign", 1)
        exponent = field(stored, "exponent", exponent_bits)
        mantissa = field(stored, "mantissa", mantissa_bits)
        special = exponent == (1 << exponent_bits) - 1
        if implied:
            # The leading one is not stored; exponent 0 means that there is none.
            mantissa = np.where(exponent > 0, mantissa + (1 << mantissa_bits), mantissa)
            power = np.maximum(exponent, 1) - bias - mantissa_bits
            infinite = mantissa == 1 << mantissa_bits
        else:
            power = exponent - bias - (mantissa_bits - 1)
            infinite = mantissa == 0
        with np.errstate(all="ignore"):
            values = np.ldexp(mantissa.astype(np.float64), power)
            values[special] = np.where(infinite[special], np.inf, np.nan)
            signed: NDArray[Any] = np.copysign(values, np.where(sign, -1.0, 1.0))
            return signed.astype(spec.dtype)

    return decode


ARRAY_CODECS = {
    "gridref.hdf5_integer": ArrayCodec(_integer_decoder, required=("precision", "offset")),
    "gridref.hdf5_float": ArrayCodec(
        _float_decoder,
        _float_stored,
        required=(
            "size",
            "sign_position",
            "exponent_position",
            "exponent_bits",
            "exponent_bias",
            "mantissa_position",
            "mantissa_bits",
            "normalization",
        ),
        problem=_float_problem,
    ),
}
