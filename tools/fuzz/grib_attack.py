"""Mutations of GRIB files: each ends in values, or in an error of ours, in time.

``python -m tools.fuzz.grib_attack 100000`` mutates small files that eccodes wrote, of both
editions, each packing and each grid, and scans and reads what comes out. A mutation that raises
anything else, or takes longer than 20 s, is written to ``build/grib_attack`` and listed.
"""

from __future__ import annotations

import random
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

import gridref
from gridref.errors import GridrefError
from gridref.io import SourcePool
from gridref.serve.reader import Reader
from tests.grib_files import field, message, write_grib
from tools.fuzz.endings import end_of

SECONDS = 20
MOST_ELEMENTS = 1 << 20
PACKINGS = ("simple", "ieee", "complex", "complex_spatial_differencing", "ccsds", "jpeg")
GRIDS = (
    *("regular_gg_sfc_grib2", "reduced_gg_pl_32_grib1", "reduced_gg_sfc_grib2"),
    *("rotated_ll_sfc_grib1", "rotated_ll_sfc_grib2", "regular_ll_sfc_grib1"),
)


def seeds(folder: Path) -> list[bytes]:
    """Small files."""
    written = []
    for number, packing in enumerate(PACKINGS):
        one = field(8, 9, shortName="sp", packingType=f"grid_{packing}", bitsPerValue=12)
        one["values"][2:4, 3] = np.nan
        rain = field(8, 9, shortName="tp", stepRange="0-6")
        written.append(write_grib(folder / f"packing{number}", one, rain))
    pair = [field(shortName="10u"), field(shortName="10v")]
    pair[0]["multi"] = 2
    written.append(write_grib(folder / "pair", *pair, field(shortName="t")))
    for number, sample in enumerate(GRIDS):
        written.append(write_grib(folder / f"grid{number}", message(sample=sample)))
    return [path.read_bytes() for path in written]


def mutated(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """A copy with one to four changes, most of them in headers."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        starts = [at for at in range(len(changed)) if changed[at : at + 4] == b"GRIB"] or [0]
        at = rng.choice(starts) + rng.randrange(rng.choice((8, 40, 250, len(changed) + 1)))
        width = rng.choice((1, 1, 2, 4, 8))
        match rng.randrange(8):
            case 0:
                number = rng.choice((0, 1, 7, 127, 128, 255, 2**15, 2**31, 2**32 - 1, 2**63))
                changed[at : at + width] = (number % 256**width).to_bytes(width, "big")
            case 1 | 2:
                word = int.from_bytes(changed[at : at + width], "big")
                near = word + rng.choice((-9, -1, 1, 9))
                changed[at : at + width] = (near % 256**width).to_bytes(width, "big")
            case 3 | 4:
                if at < len(changed):
                    changed[at] ^= 1 << rng.randrange(8)
            case 5:
                del changed[at : at + rng.randrange(1, 30)]
            case 6:
                piece = rng.randrange(len(other))
                changed[at : at + width] = other[piece : piece + rng.randrange(1, 60)]
            case _:
                del changed[rng.randrange(len(changed) + 1) :]
    return bytes(changed)


def attack(path: Path) -> str:
    """What a file ends in: the kind of the error, or that it was read."""
    try:
        group = gridref.scan(path, on_unsupported="skip")
        with SourcePool() as pool:
            reader = Reader(pool)
            for array in group.all_arrays().values():
                if array.size <= MOST_ELEMENTS:
                    reader.read(array, (...,))
    except GridrefError as error:
        return error.kind
    return "read"


def main(n_mutations: int, first_seed: int) -> None:
    kept = Path("build/grib_attack")
    ends: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = seeds(Path(folder))
        path = Path(folder) / "mutated.grib"
        for seed in range(first_seed, first_seed + n_mutations):
            rng = random.Random(seed)
            path.write_bytes(mutated(rng.choice(files), rng.choice(files), rng))
            end = end_of(partial(attack, path), SECONDS)
            if end.startswith("broke"):
                kept.mkdir(parents=True, exist_ok=True)
                (kept / f"{seed}.grib").write_bytes(path.read_bytes())
                print(seed, end, flush=True)
                end = end.partition(":")[0]
            ends[end] = ends.get(end, 0) + 1
    print(ends)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
