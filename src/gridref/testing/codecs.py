"""Tests that every codec must pass: subclass `CodecTests` in a test module, and run pytest.

Needs pytest, which gridref itself does not depend on.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.codecs import codec_named, decode_chunk, why_not
from gridref.errors import DecodeError
from gridref.model.encoding import Codec, Encoding

try:
    import pytest
except ModuleNotFoundError as error:
    message = "gridref.testing.codecs needs pytest: pip install gridref[test]"
    raise ModuleNotFoundError(message, name=error.name) from None

__all__ = ["CodecTests"]


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A dtype in native byte order; numpy's strings have none."""
    return dtype if dtype.kind == "T" else dtype.newbyteorder("=")


class CodecTests:
    """Tests of one codec in a chain, on chunks that the subclass encodes with another program."""

    codec: Codec
    """The codec."""
    chain: Sequence[Codec]
    """The whole chain that `encode` carries out, in the order of encoding, with the codec in it."""
    detects_cuts = True
    """Whether stored bytes that end too early are always noticed."""

    @abstractmethod
    def encode(self, values: NDArray[Any]) -> bytes:
        """The stored bytes of a chunk, made without gridref."""

    def chunks(self) -> Sequence[NDArray[Any]]:
        """Chunks that are encoded; override for codecs of other dtypes and shapes."""
        random = np.random.default_rng(0)
        return [
            random.integers(0, 1000, (4, 6)).astype("<i4"),
            random.random((3, 5, 2)),
            np.zeros((7,), "<u2"),
            np.array([[255]], "u1"),
        ]

    def decode(
        self, stored: Any, chunk: NDArray[Any], memory: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """Decode stored bytes to the shape and dtype of a chunk, by gridref."""
        encoding = Encoding(chunk.shape, chunk.dtype, tuple(self.chain))
        return decode_chunk(stored, encoding, out=memory)

    def test_is_known(self) -> None:
        """The codec is found by its name, and nothing hinders decoding it."""
        assert codec_named(self.codec.name) is not None
        assert self.codec in self.chain
        for codec in self.chain:
            assert why_not(codec) is None

    def test_values(self) -> None:
        """Every element is what was encoded."""
        for chunk in self.chunks():
            decoded = self.decode(self.encode(chunk), chunk)
            assert decoded.dtype == _native(chunk.dtype)
            np.testing.assert_array_equal(decoded, chunk)

    def test_memory_of_the_caller(self) -> None:
        """Decoding into memory that is there gives the same elements, and the same errors."""
        random = np.random.default_rng(1)
        for chunk in self.chunks():
            stored = self.encode(chunk)
            junk = bytearray(stored)
            junk[random.integers(0, len(junk))] ^= 1 << random.integers(0, 8)
            for data in (stored, stored[:-1], bytes(junk)):
                memory = np.empty(chunk.shape, _native(chunk.dtype))
                try:
                    decoded = self.decode(data, chunk)
                except DecodeError as error:
                    with pytest.raises(DecodeError, match=re.escape(str(error))):
                        self.decode(data, chunk, memory)
                else:
                    np.testing.assert_array_equal(self.decode(data, chunk, memory), decoded)

    def test_any_buffer_and_none_is_changed(self) -> None:
        """Bytes come in any form, read-only too, and stay as they are."""
        for chunk in self.chunks():
            stored = self.encode(chunk)
            writable = bytearray(stored)
            for form in (stored, memoryview(stored), memoryview(writable)):
                np.testing.assert_array_equal(self.decode(form, chunk), chunk)
            assert writable == stored

    def test_threads(self) -> None:
        """Threads decode at the same time."""
        chunk = self.chunks()[0]
        stored = self.encode(chunk)
        with ThreadPoolExecutor(8) as threads:
            for decoded in threads.map(lambda _: self.decode(stored, chunk), range(100)):
                np.testing.assert_array_equal(decoded, chunk)

    def test_cut_chunks(self) -> None:
        """Bytes that end too early are a `DecodeError`, or decode to the same elements."""
        if not self.detects_cuts:
            pytest.skip("the codec cannot tell")
        for chunk in self.chunks():
            stored = self.encode(chunk)
            for n_bytes in sorted({0, 1, len(stored) // 2, len(stored) - 1} - {len(stored)}):
                try:
                    decoded = self.decode(stored[:n_bytes], chunk)
                except DecodeError:
                    continue
                np.testing.assert_array_equal(decoded, chunk, f"{n_bytes} bytes")

    def test_junk(self) -> None:
        """Whatever the bytes are: elements of the right shape and dtype, or a `DecodeError`."""
        random = np.random.default_rng(2)
        for chunk in self.chunks():
            stored = np.frombuffer(self.encode(chunk), np.uint8)
            for _ in range(50):
                junk = stored.copy()
                positions = random.integers(0, len(junk), random.integers(1, 5))
                junk[positions] = random.integers(0, 256, len(positions))
                try:
                    decoded = self.decode(junk.tobytes(), chunk)
                except DecodeError:
                    continue
                assert decoded.shape == chunk.shape
                assert decoded.dtype == _native(chunk.dtype)

    def test_required_configuration(self) -> None:
        """What a configuration lacks is named before anything is decoded."""
        kind = codec_named(self.codec.name)
        assert kind is not None
        for key in kind.required:
            rest = {name: v for name, v in self.codec.configuration.items() if name != key}
            assert key in str(why_not(Codec.of(self.codec.name, **rest)))
