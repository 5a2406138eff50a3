"""What several modules of tests of codecs use."""

from __future__ import annotations

from collections.abc import Iterator

import h5py
import pytest


@pytest.fixture
def file() -> Iterator[h5py.File]:
    """An HDF5 file in memory, whose chunks are stored as soon as they are written."""
    with h5py.File("memory", "w", driver="core", backing_store=False, rdcc_nbytes=0) as handle:
        yield handle
