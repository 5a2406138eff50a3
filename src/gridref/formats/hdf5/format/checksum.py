"""The checksum of HDF5 metadata, Jenkins' lookup3, for one block or for many at once.

Newer structures (version 2 object headers, fixed and extensible arrays, version 2 B-trees, fractal
heaps) end with it. HDF5 File Format Specification v3, "I.A. This Document"; the algorithm is Bob
Jenkins' `lookup3 <https://www.burtleburtle.net/bob/hash/doobs.html>`_, ``hashlittle`` with an
initial value of 0, on bytes taken as little-endian words. numcodecs has it compiled.
"""

from __future__ import annotations

import numpy as np
from numcodecs.jenkins import jenkins_lookup3
from numpy.typing import NDArray

__all__ = ["lookup3", "lookup3_rows"]


def lookup3(data: bytes) -> int:
    """Checksum of one block of metadata.

    Parameters
    ----------
    data
        The block without the checksum that follows it.
    """
    return int(jenkins_lookup3(data, 0))


def lookup3_rows(rows: NDArray[np.uint8], lengths: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Checksums of many blocks of metadata.

    Parameters
    ----------
    rows
        (n, width) one block a row.
    lengths
        (n,) how many bytes of each row count.

    Returns
    -------
    NDArray[np.uint32]
        (n,) checksums.
    """
    width, data = rows.shape[1], rows.tobytes()
    starts = range(0, len(data), width)
    pieces = (data[start : start + n] for start, n in zip(starts, lengths.tolist(), strict=True))
    return np.fromiter(map(lookup3, pieces), np.uint32, len(rows))
