"""Mutations of volumes: each ends in values, or in an error of ours, in time.

``python -m tools.fuzz.volume_attack n5 100000`` mutates files of small volumes that another program
wrote, and scans and reads what comes out. Where the other program reads it, too, the values must be
equal. A mutation that ends otherwise, or takes longer than 20 s, is written to
``build/volume_attack`` and listed.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import blosc2
import numpy as np
import wkw
from numpy.typing import NDArray

import gridref
from gridref.errors import GridrefError
from gridref.io import SourcePool
from gridref.model.array import VirtualGroup
from gridref.serve.reader import Reader
from tests import b2nd_files, n5_files, precomputed_files, wkw_files
from tools.fuzz.catalog_attack import change_member
from tools.fuzz.endings import end_of

SECONDS = 20
MOST_ELEMENTS = 1 << 20
NUMBERS = (0, 1, 2, 7, 127, 128, 255, 2**15, 2**16, 2**31, 2**32 - 1, 2**63, 2**64 - 1)

type Values = NDArray[Any]


@dataclass(frozen=True)
class Kind:
    """A format: how its volumes are written, and read by the other program.

    Attributes
    ----------
    write
        Writes volumes into a folder, and returns them.
    read
        The values of a volume's arrays by path, as far as the other program reads them; it gets
        their paths and attributes. It works in a process of its own, since it may die.
    order
        Byte order of the numbers in headers.
    """

    write: Callable[[Path], list[Path]]
    read: Callable[[Path, dict[str, Any]], dict[str, Values]]
    order: str


# Formats


def _write_n5(folder: Path) -> list[Path]:
    volumes = []
    for number, compression in enumerate(n5_files.COMPRESSIONS.values()):
        path = n5_files.write_attributes(folder / f"{number}.n5", n5="2.0.0", resolution=[4, 4])
        values = n5_files.numbers(n5_files.TYPES[number], (5, 4)) + 1
        n5_files.write_dataset(path / "s0", values, (3, 2), compression)
        n5_files.write_dataset(path / "s1", values[::2, ::2], (3, 2), compression)
        if number == 0:
            (path / "s0" / "0" / "0").write_bytes(n5_files.block(values[:2, :2]))
        volumes.append(path)
    shutil.copytree(volumes[0], folder / "lz4.n5")
    document = json.loads((folder / "lz4.n5" / "s0" / "attributes.json").read_text())
    n5_files.write_attributes(folder / "lz4.n5" / "s0", **{**document, "compression": "lz4"})
    for block in (folder / "lz4.n5" / "s0").glob("*/*"):
        stored = block.read_bytes()
        block.write_bytes(stored[:12] + n5_files.lz4_stream(stored[12:], 7))
    return [*volumes, folder / "lz4.n5"]


def _read_n5(path: Path, arrays: dict[str, Any]) -> dict[str, Values]:
    found = {}
    for name in arrays:
        try:
            found[name] = n5_files.read_dataset(path / name)
        except (ValueError, OverflowError, TypeError):
            continue
    return found


def _write_wkw(folder: Path) -> list[Path]:
    volumes = []
    for number, kind in enumerate(wkw_files.KINDS):
        values = wkw_files.voxels(wkw_files.TYPES[number], (number + 1, 4, 4, 4)) + 1
        path = folder / f"v{number}" / "color" / "1"
        cubes = [((0, 0, 0), values), ((4, 0, 4), values[:, ::-1].copy(order="F"))]
        wkw_files.write_mag(path, *cubes, kind=kind, block_length=2, file_blocks=2)
        box = {"topLeft": [1, 0, 0], "width": 6, "height": 4, "depth": 7}
        layer = {"name": "color", "boundingBox": box, "mags": [{"mag": [1, 1, 1]}]}
        volume = wkw_files.write_properties(folder / f"v{number}", [layer], scale=[4, 4, 40])
        volumes += [path, volume]
    return volumes


def _read_wkw(path: Path, arrays: dict[str, Any]) -> dict[str, Values]:
    found = {}
    for name, about in arrays.items():
        start = np.array(about["offset"])
        folder = path if (path / "header.wkw").exists() else path / name
        try:
            found[name] = wkw_files.read_mag(folder, start, start + about["shape"][1:])
        except (wkw.wkw.WKWException, OverflowError):
            continue
    return found


def _write_b2nd(folder: Path) -> list[Path]:
    values = b2nd_files.numbers("<i2", (5, 4)) + np.int16(1)
    holes = values.astype("f8")
    holes[:2, :2] = 0
    written = []
    for number, (each, more) in enumerate(
        (
            (values, {}),
            (holes, {"codec": blosc2.Codec.LZ4}),
            (values.astype(">f4"), {"filters": [blosc2.Filter.BITSHUFFLE]}),
            (values, {"sparse": True}),
        )
    ):
        path = folder / f"v{number}" / "a.b2nd"
        path.parent.mkdir()
        attrs = {"units": "m", "scale": [1, 0.5]}
        written.append(b2nd_files.write_array(path, each, (2, 2), (2, 1), attrs=attrs, **more))
    return written


def _read_b2nd(path: Path, arrays: dict[str, Any]) -> dict[str, Values]:
    try:
        array = blosc2.open(str(path), mode="r")
        if not isinstance(array, blosc2.NDArray):
            return {}
        chunks = array.schunk
        if any(chunks.get_chunk(n)[31] >> 4 & 7 == 4 for n in range(chunks.nchunks)):
            return {}  # never written: whatever is in memory
        return {name: b2nd_files.read_array(path) for name in arrays}
    except (RuntimeError, ValueError, TypeError, OverflowError):
        return {}


def _write_precomputed(folder: Path) -> list[Path]:
    volumes = []
    for name, encoding in precomputed_files.ENCODINGS.items():
        dtype = "uint32" if name == "compressed_segmentation" else "uint8"
        values = precomputed_files.voxels(dtype, (1, 5, 6, 7), n_values=9)
        for number, more in enumerate(_SHARDS if name != "jpeg" else _SHARDS[:1]):
            precomputed_files.write_volume(
                folder / f"{name}{number}",
                values,
                values[..., ::2, ::2].copy(),
                chunk=(4, 4, 4),
                offset=(0, 1, 0),
                encoding=encoding,
                **more,
            )
            volumes.append(folder / f"{name}{number}")
    return volumes


_SHARDS: tuple[dict[str, Any], ...] = (
    {},
    {"sharding": precomputed_files.sharding(minishard_bits=1, shard_bits=1)},
    {
        "sharding": precomputed_files.sharding(
            hash="murmurhash3_x86_128",
            minishard_index_encoding="raw",
            data_encoding="raw",
            minishard_bits=1,
            shard_bits=1,
        )
    },
)


def _read_precomputed(path: Path, arrays: dict[str, Any]) -> dict[str, Values]:
    found = {}
    for name in arrays:
        if name.count("/") == 1 and not name.endswith(("/x", "/y", "/z")):
            try:
                found[name] = precomputed_files.volume_values(path, int(name.partition("/")[0]))
            except (ValueError, OverflowError, TypeError):
                continue
    return found


KINDS = {
    "b2nd": Kind(_write_b2nd, _read_b2nd, "big"),
    "n5": Kind(_write_n5, _read_n5, "big"),
    "precomputed": Kind(_write_precomputed, _read_precomputed, "little"),
    "wkw": Kind(_write_wkw, _read_wkw, "little"),
}


# Mutations


def mutated(data: bytes, other: bytes, rng: random.Random, order: Any) -> bytes:
    """A copy of a file with one to four changes, most of them near its beginning."""
    if data[:1] == b"{" and rng.random() < 0.8:
        document = json.loads(data)
        for _ in range(rng.choice((1, 1, 2, 3))):
            if document:
                change_member(document, rng)
        return json.dumps(document).encode()
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(min(len(changed) + 1, rng.choice((24, 64, *(2 * [len(changed) + 1])))))
        width = rng.choice((1, 1, 2, 4, 8))
        match rng.randrange(8):
            case 0 | 1:
                number = rng.choice(NUMBERS)
                changed[at : at + width] = (number % 256**width).to_bytes(width, order)
            case 2:
                near = int.from_bytes(changed[at : at + width], order) + rng.choice((-1, 1))
                changed[at : at + width] = (near % 256**width).to_bytes(width, order)
            case 3 | 4:
                if at < len(changed):
                    changed[at] ^= 1 << rng.randrange(8)
            case 5:
                del changed[at : at + rng.randrange(1, 12)]
            case 6:
                piece = rng.randrange(len(other) + 1)
                changed[at : at + width] = other[piece : piece + rng.randrange(1, 30)]
            case _:
                del changed[rng.randrange(len(changed) + 1) :]
    return bytes(changed)


class OtherProgram:
    """A process that reads volumes with the other program; another one follows if it dies."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.n_died = 0
        self._start()

    def _start(self) -> None:
        self.pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))

    def read(self, path: Path, group: VirtualGroup) -> dict[str, Values]:
        """The values that it reads; none if it dies."""
        arrays = {
            name: {**array.attrs, "shape": array.shape}
            for name, array in group.all_arrays().items()
            if array.size <= MOST_ELEMENTS
        }
        try:
            return self.pool.submit(self.kind.read, path, arrays).result(SECONDS)
        except (BrokenProcessPool, TimeoutError):
            self.n_died += 1
            for process in list(self.pool._processes.values()):  # noqa: SLF001 - one that hangs
                process.kill()
            self._start()
            return {}


def attack(path: Path, other: OtherProgram) -> str:
    """What a volume ends in: kinds of errors, or that it was read and compared."""
    try:
        group = gridref.scan(path, on_unsupported="skip")
    except GridrefError as error:
        return error.kind
    ends, ours = set(), {}
    with SourcePool() as pool:
        reader = Reader(pool)
        for name, array in group.all_arrays().items():
            if array.size <= MOST_ELEMENTS:
                try:
                    ours[name] = reader.read(array, (...,))
                except GridrefError as error:
                    ends.add(error.kind)
    theirs = other.read(path, group) if ours else {}
    for name, values in ours.items():
        expected = theirs.get(name)
        ends.add("read" if expected is None else "compared")
        if expected is not None:
            native = np.asarray(expected, values.dtype)
            if values.tobytes() != native.tobytes():
                return f"broke: {name} reads otherwise"
    return ", ".join(sorted(ends)) or "empty"


def main(name: str, n_mutations: int, first_seed: int) -> None:
    kind, kept = KINDS[name], Path("build/volume_attack")
    other = OtherProgram(kind)
    ends: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        volumes = kind.write(Path(folder))
        files = [
            (volume, path, path.read_bytes())
            for volume in volumes
            for path in [volume, *sorted(volume.rglob("*"))]
            if path.is_file()
        ]
        for seed in range(first_seed, first_seed + n_mutations):
            rng = random.Random(seed)
            volume, path, content = rng.choice(files)
            if rng.random() < 0.01:
                path.unlink()
            else:
                path.write_bytes(mutated(content, rng.choice(files)[2], rng, kind.order))
            end = end_of(partial(attack, volume, other), SECONDS)
            if end.startswith("broke"):
                kept.mkdir(parents=True, exist_ok=True)
                copy: Any = shutil.copytree if volume.is_dir() else shutil.copy2
                copy(volume, kept / f"{name}_{seed}")
                print(seed, path.relative_to(folder), end, flush=True)
                end = end.partition(":")[0]
            ends[end] = ends.get(end, 0) + 1
            path.write_bytes(content)
    print(ends, f"{other.n_died} times the other program died")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
