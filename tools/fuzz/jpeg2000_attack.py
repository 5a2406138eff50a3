"""Mutations of JPEG 2000 files: each ends in values, or in an error of ours, in time.

``python -m tools.fuzz.jpeg2000_attack 100000`` mutates small files that GDAL wrote, and scans and
reads what comes out. Where rasterio or imagecodecs reads it, too, the values must be equal.
OpenJPEG may bring the process down, so that mutations are tried in a process of their own. One that
ends otherwise, takes longer than 20 s or more than 4 GiB is written to ``build/jpeg2000_attack``
and listed.
"""

from __future__ import annotations

import logging
import multiprocessing
import random
import resource
import sys
import tempfile
import warnings
from collections import Counter
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import imagecodecs
import numpy as np
from rasterio.errors import RasterioError
from rasterio.transform import from_origin

import gridref
from gridref.errors import GridrefError
from gridref.io import SourcePool
from gridref.model.array import VirtualGroup
from gridref.serve.reader import Reader
from tests.jp2_files import codestream_of, image_of, read_jp2, tile_parts, with_parts, write_jp2
from tools.fuzz.endings import end_of

SECONDS = 20
MOST_BYTES = 4 << 30
MOST_ELEMENTS = 1 << 20
UTM = {"crs": "EPSG:32631", "transform": from_origin(6e5, 4.9e6, 10, 10)}
SEEDS = (
    {},
    {**UTM, "GMLJP2": "NO", "TLM": "YES", "PLT": "YES"},
    {**UTM, "GeoJP2": "NO", "GEOBOXES_AFTER_JP2C": "YES"},
    {"CODEC": "J2K", "TILEPARTS": "RESOLUTIONS", "TLM": "YES"},
    {"CODEC": "J2K", "PRECINCTS": "{32,32},{16,16}", "PROGRESSION": "RPCL", "SOP": "YES"},
    {"CODEC": "J2K", "REVERSIBLE": "NO", "QUALITY": "10,30", "tile": 64},
    {"CODEC": "J2K", "YCC": "NO", "PROGRESSION": "CPRL", "EPH": "YES"},
)
NUMBERS = (0, 1, 2, 7, 31, 32, 33, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1)


def seeds(folder: Path) -> list[bytes]:
    """Small files; the parts of tiles of the last one are apart from each other."""
    written = []
    for number, options in enumerate(SEEDS):
        image = image_of((3 if number % 2 else 1, 40, 50), "u1" if number % 3 else "u2")
        written.append(
            write_jp2(folder / "seed.jp2", image, **{"tile": 32, **options}).read_bytes()
        )
    parts = len(tile_parts(written[3]))
    return [*written, with_parts(written[3], sorted(range(parts), key=lambda n: (n % 3, n)))]


def mutated(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """A copy with one to four changes, most of them in boxes and headers."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at, width = _place(changed, rng), rng.choice((1, 1, 2, 4))
        word = int.from_bytes(changed[at : at + width], "big")
        match rng.randrange(9):
            case 0 | 1:
                chosen = rng.choice(NUMBERS) % 256**width
                changed[at : at + width] = chosen.to_bytes(width, "big")
            case 2 | 3:
                near = (word + rng.choice((-8, -1, 1, 8))) % 256**width
                changed[at : at + width] = near.to_bytes(width, "big")
            case 4 | 5:
                if at < len(changed):
                    changed[at] ^= 1 << rng.randrange(8)
            case 6:
                del changed[at : at + rng.randrange(1, 20)]
            case 7:
                piece = _place(bytearray(other), rng)
                changed[at : at + width] = other[piece : piece + rng.randrange(1, 60)]
            case _:
                if rng.random() < 0.3:
                    del changed[rng.randrange(len(changed) + 1) :]
                else:
                    changed[at:at] = changed[at : at + rng.randrange(1, 40)]
    return bytes(changed)


def mutant(files: list[bytes], seed: int) -> bytes:
    """The mutation of a seed."""
    rng = random.Random(seed)
    return mutated(rng.choice(files), rng.choice(files), rng)


def _place(data: bytearray, rng: random.Random) -> int:
    """A byte, mostly of a box, the main header, or the header of a tile-part."""
    start = max(data.find(b"\xff\x4f\xff\x51"), 0)
    parts = [at for at in range(len(data)) if data[at : at + 4] == b"\xff\x90\0\x0a"]
    kind = rng.randrange(10)
    if kind < 5:
        return start + rng.randrange(120)
    if kind < 7 and parts:
        return rng.choice(parts) + rng.randrange(16)
    if kind < 9 and start:
        return rng.randrange(start)
    return rng.randrange(len(data) + 1)


def attempt(path: Path) -> str:
    """What a file ends in: the kind of the error, or that it was read, and what rasterio says."""
    try:
        group = gridref.scan(path, on_unsupported="skip")
        if "band_data" not in group.arrays:
            return "refused"
        if group["band_data"].size > MOST_ELEMENTS:
            return "large"
        values = _values(group)
    except GridrefError as error:
        return error.kind
    try:
        expected = read_jp2(path)
    except (RasterioError, ValueError):
        return "read, and not by rasterio"
    if expected.dtype == values.dtype and np.array_equal(values, expected):
        return "equal"
    # GDAL shows signed bytes as unsigned, and memory as it is where an image is not at the origin.
    data = path.read_bytes()
    decoded = imagecodecs.jpeg2k_decode(data[codestream_of(data) :], planar=True)
    same = decoded.dtype == values.dtype and np.array_equal(values, decoded.reshape(values.shape))
    return "equal to imagecodecs" if same else "broke: rasterio and imagecodecs read other values"


def _values(group: VirtualGroup) -> np.ndarray:
    with SourcePool() as pool:
        found = [Reader(pool).read(array, (...,)) for array in group.all_arrays().values()]
    names = list(group.all_arrays())
    return found[names.index("band_data")]


def work(answers: Connection, files: list[bytes], path: Path, first: int, stop: int) -> None:
    """Try seeds, and send what each ends in."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    for seed in range(first, stop):
        path.write_bytes(mutant(files, seed))
        answers.send(end_of(partial(attempt, path), SECONDS / 2))


def main(n_mutations: int, first_seed: int) -> None:
    kept = Path("build/jpeg2000_attack")
    ends: Counter[str] = Counter()
    processes = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        files, path = seeds(Path(folder)), Path(folder) / "mutated.jp2"
        seed, stop = first_seed, first_seed + n_mutations
        while seed < stop:
            answers, theirs = processes.Pipe(duplex=False)
            worker = processes.Process(target=work, args=(theirs, files, path, seed, stop))
            worker.start()
            theirs.close()
            while seed < stop:
                try:
                    end = answers.recv() if answers.poll(SECONDS + 40) else "broke: it hangs"
                except EOFError:
                    end = "broke: the process died"
                if end.startswith("broke"):
                    kept.mkdir(parents=True, exist_ok=True)
                    (kept / f"{seed}.jp2").write_bytes(mutant(files, seed))
                    print(seed, end, flush=True)
                ends[end.partition(":")[0]] += 1
                seed += 1
                if end in ("broke: it hangs", "broke: the process died"):
                    break
            worker.kill()
            worker.join()
    print(dict(ends))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
