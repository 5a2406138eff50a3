"""Compressions that only HDF4 has: run lengths, n-bit, skipping Huffman, and its framing of szip.

Sources: HDF Specification and Developer's Guide, "Compression"; ``crle.c``, ``cnbit.c``,
``cskphuff.c`` and ``cszip.c`` of the library.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gridref.codecs.hdf5 import szip_decoded
from gridref.codecs.stage import (
    AnyCodec,
    ArraySpec,
    BytesCodec,
    BytesDecode,
    Config,
    Raw,
    as_bytes,
    as_u1,
    most_bytes,
)
from gridref.limits import beyond, limits

_IS_RUN, _LEAST_RUN, _LEAST_MIX = 0x80, 3, 1
_N_SYMBOLS, _ROOT = 256, 0
_ELEMENTS_AT_ONCE = 1 << 16
_FRAMED = 0x10000
"""Bit of szip's options that HDF 4.2r1 and later set: a flag and the size are before the data."""
_FRAME_BYTES = 5


def _rle_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    """A count with the high bit and a byte to repeat, or a count and so many bytes."""
    size = most_bytes(decoded_bytes)

    def decode(raw: Raw) -> Raw:
        data, at, decoded = as_bytes(raw), 0, bytearray()
        while at + 1 < len(data) and len(decoded) < size:
            control = data[at]
            count = control & (_IS_RUN - 1)
            if control & _IS_RUN:
                decoded += data[at + 1 : at + 2] * (count + _LEAST_RUN)
                at += 2
            else:
                stop = at + 1 + count + _LEAST_MIX
                decoded += data[at + 1 : stop]
                at = stop
        return bytes(decoded[:size])

    return decode


def _nbit_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    """Some bits of each element, one after the other, the highest first."""
    element, n_bits = 8 * config["element_bytes"], config["n_bits"]
    above = element - 1 - config["start_bit"]
    sign, ones = config["sign_extended"], config["fill_ones"]
    size = most_bytes(decoded_bytes)

    def some(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
        n_elements = 8 * packed.size // n_bits
        bits = np.unpackbits(packed, count=n_elements * n_bits).reshape(-1, n_bits)
        whole = np.full((n_elements, element), int(ones), np.uint8)
        whole[:, above : above + n_bits] = bits
        if sign:
            whole[:, :above] = bits[:, :1]
        return np.packbits(whole)

    def decode(raw: Raw) -> Raw:
        n_elements = 8 * size // element
        data = as_u1(raw)[: -(-n_elements * n_bits // 8)]
        step = _ELEMENTS_AT_ONCE * n_bits // 8
        parts = [some(data[at : at + step]) for at in range(0, len(data), step)]
        return np.concatenate(parts)[:size] if parts else b""

    return decode


def _nbit_problem(config: Config) -> str | None:
    start, n_bits = config["start_bit"], config["n_bits"]
    if not 1 <= n_bits <= start + 1 <= 8 * config["element_bytes"] <= 64:
        return f"{n_bits} bits from bit {start} on are not in elements of its size"
    return None


class _Tree:
    """A tree of codes, in which the last symbol moves up: a semi-splay tree."""

    def __init__(self) -> None:
        self.up = [node >> 1 for node in range(2 * _N_SYMBOLS)]
        self.below = [[2 * node, 2 * node + 1] for node in range(_N_SYMBOLS)]

    def splay(self, leaf: int) -> None:
        """Exchange each second node on the way up with its parent's sister."""
        up, below, node = self.up, self.below, leaf
        while node != _ROOT and (parent := up[node]) != _ROOT:
            above = up[parent]
            which = below[above][0] == parent
            sister = below[above][which]
            below[above][which] = node
            below[parent][below[parent][0] != node] = sister
            up[node], up[sister] = above, parent
            node = above


def _huffman_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    """Codes of bytes, with a tree for each byte of an element."""
    size, skip = most_bytes(decoded_bytes), config["skip"]

    def decode(raw: Raw) -> Raw:
        if size > limits().huffman_bytes:
            raise ValueError(beyond("huffman_bytes", f"skipping Huffman of {size} bytes"))
        trees, decoded = [_Tree() for _ in range(skip)], bytearray()
        tree, node = trees[0], _ROOT
        for bit in np.unpackbits(as_u1(raw)).tolist():
            node = tree.below[node][bit]
            if node >= _N_SYMBOLS:
                decoded.append(node - _N_SYMBOLS)
                if len(decoded) == size:
                    break
                tree.splay(node)
                tree, node = trees[len(decoded) % skip], _ROOT
        return bytes(decoded)

    return decode


def _huffman_problem(config: Config) -> str | None:
    skip = config["skip"]
    return None if 1 <= skip <= 64 else f"elements of {skip} bytes"


def _szip_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    """A flag and the size, or nothing, before the output of szlib."""
    options, block, bits, scanline = config["parameters"]
    size = most_bytes(decoded_bytes)

    def decode(raw: Raw) -> Raw:
        data = as_bytes(raw)
        if options & _FRAMED:
            stop = _FRAME_BYTES + int.from_bytes(data[1:_FRAME_BYTES], "big")
            if len(data) < max(stop, _FRAME_BYTES):
                raise ValueError(f"{len(data)} bytes are stored of {stop}")
            if data[0] == 1:
                return data[_FRAME_BYTES:stop]
            data = data[_FRAME_BYTES:stop]
        return szip_decoded(data, size, options & ~_FRAMED, block, bits, scanline)

    return decode


CODECS: dict[str, AnyCodec] = {
    "gridref.hdf4_rle": BytesCodec(_rle_decoder),
    "gridref.hdf4_nbit": BytesCodec(
        _nbit_decoder,
        required=("element_bytes", "start_bit", "n_bits", "sign_extended", "fill_ones"),
        problem=_nbit_problem,
    ),
    "gridref.hdf4_skphuff": BytesCodec(
        _huffman_decoder, required=("skip",), problem=_huffman_problem
    ),
    "gridref.hdf4_szip": BytesCodec(_szip_decoder, required=("parameters",)),
}
