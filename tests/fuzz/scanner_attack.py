"""Mutated files for the scanners: an error of ours or a description, in time."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tifffile
import zarr

from gridref.errors import GridrefError
from tests.fuzz.catalog_attack import STRANGE, make_catalog
from tests.fuzz.hdf5_mutations import Mutator as HDF5Mutator
from tests.fuzz.reference_attack import SECONDS
from tests.fuzz.tiff_mutations import Mutator as TIFFMutator
from tests.fuzz.timed_scan import WrongDataError, scan_in_time

__all__ = ["scanner_attacks"]

type Try = Callable[[int], str | None]
type Mutate = Callable[[bytes, int, int], bytes]

MOST_BYTES = 24_000


def scanner_attacks(folder: Path) -> dict[str, Try]:
    """Attempts by name of the scanner."""
    folder.mkdir()
    make_catalog(folder)
    image = np.arange(64 * 64, dtype="u2").reshape(64, 64)
    tifffile.imwrite(folder / "a.tif", image, tile=(16, 16), compression="zlib", metadata={})
    tifffile.imwrite(folder / "b.ome.tif", np.stack([image, image]), metadata={"axes": "CYX"})
    hdf5 = [path.read_bytes() for path in (folder / "0.nc", folder / "1.nc")]
    tiff = [path.read_bytes() for path in (folder / "a.tif", folder / "b.ome.tif")]
    return {
        "scanner: HDF5": _of(HDF5Mutator(), hdf5, folder / "fuzzed.h5"),
        "scanner: TIFF": _of(TIFFMutator(), tiff, folder / "fuzzed.tif"),
        "scanner: Zarr": _of_zarr(folder / "fuzzed.zarr"),
    }


def _of(mutate: Mutate, seeds: list[bytes], path: Path) -> Try:
    def attempt(seed: int) -> str | None:
        data = mutate(seeds[seed % len(seeds)], MOST_BYTES, seed)
        if seed % 3 == 0:
            data = mutate(data, MOST_BYTES, seed + 1)
        path.write_bytes(data)
        return _scanned(path)

    return attempt


def _of_zarr(path: Path) -> Try:
    group = zarr.open_group(path, mode="w")
    group.create_array("a", shape=(8, 8), chunks=(4, 4), shards=(8, 8), dtype="i4")[...] = 1
    group.create_array("s", shape=(4,), dtype="U3")[...] = "abc"
    files = sorted(each for each in path.rglob("*") if each.is_file())
    contents = [file.read_bytes() for file in files]

    def attempt(seed: int) -> str | None:
        rng = random.Random(seed)
        number = rng.randrange(len(files))
        files[number].write_bytes(_changed(contents[number], rng))
        try:
            return _scanned(path)
        finally:
            files[number].write_bytes(contents[number])

    return attempt


def _changed(content: bytes, rng: random.Random) -> bytes:
    """A bit, or a member of JSON."""
    if content[:1] != b"{" or rng.random() < 0.2:
        changed = bytearray(content)
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        return bytes(changed)
    holder = document = json.loads(content)
    while True:
        key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        if not isinstance(holder[key], dict | list) or not holder[key] or rng.random() < 0.3:
            break
        holder = holder[key]
    if rng.random() < 0.3:
        del holder[key]
    else:
        holder[key] = rng.choice(STRANGE)
    return json.dumps(document).encode()


def _scanned(path: Path) -> str | None:
    try:
        scan_in_time(path, SECONDS)
    except WrongDataError as error:
        return str(error)
    except GridrefError:
        return None
    except Exception as error:  # noqa: BLE001 - whatever is raised is the finding
        return f"{type(error).__name__}: {error}"[:200]
    return None
