"""Files that are nearly alike: what is taken over from one to the next is only what is equal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest

import gridref
from gridref.formats.hdf5.bytes import lookup3
from gridref.formats.hdf5.files import open_file
from gridref.formats.options import ScanOptions
from gridref.io import open_for_scan
from tests.cold_scans import all_caches, described

ROOT = Path(__file__).parents[2]

FLAWS: dict[str, dict[str, Any]] = {
    "equal": {},
    "an attribute": {"units": "m"},
    "a number": {"scale": 2.0},
    "the dtype": {"dtype": ">i4"},
    "the fill value": {"fill": 7},
    "the extent": {"n_rows": 40},
    "the chunks": {"chunk": 10},
    "the compression": {"level": 9},
    "a text of the heap": {"history": "written on the 2nd"},
    "data": {"seed": 5},
    "the user block": {"userblock": 512},
}
"""One thing in which a file differs from the first, at the same size where that is possible."""


def write(path: Path, libver: str, **flaw: Any) -> None:
    kind = {
        "units": "K",
        "scale": 1.0,
        "dtype": "<i4",
        "fill": 1,
        "n_rows": 50,
        "chunk": 20,
        "level": 4,
        "history": "written on the 1st",
        "seed": 0,
        "userblock": 0,
        **flaw,
    }
    with h5py.File(path, "w", libver=libver, userblock_size=kind["userblock"]) as file:
        file.attrs["history"] = kind["history"]
        values = np.random.default_rng(kind["seed"]).integers(0, 100, (kind["n_rows"], 6))
        for name in ("a", "b"):
            variable = file.create_dataset(
                name,
                data=values.astype(kind["dtype"]),
                chunks=(kind["chunk"], 4),
                compression="gzip",
                compression_opts=kind["level"],
                fillvalue=kind["fill"],
                track_times=True,
            )
            variable.attrs["units"] = np.bytes_(kind["units"])
            variable.attrs["scale_factor"] = kind["scale"]
            variable.attrs["history"] = kind["history"]
        file.create_dataset("contiguous", data=values[:, 0])


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_only_what_is_equal_is_taken_over(tmp_path: Path, libver: str) -> None:
    for order in (FLAWS, dict(reversed(FLAWS.items()))):
        for name, flaw in order.items():
            path = tmp_path / f"{name}.h5"
            write(path, libver, **flaw)
            group = gridref.scan(path)
            with h5py.File(path) as file:
                for variable in ("a", "b"):
                    array, stored = group[variable], file[variable]
                    assert array.dtype == stored.dtype.newbyteorder("=")
                    assert array.fill_value == stored.fillvalue
                    assert array.encodings[0].chunk_shape == stored.chunks
                    np.testing.assert_array_equal(array[...], stored[...])
                    assert array.attrs == {
                        "units": stored.attrs["units"].decode(),
                        "scale_factor": stored.attrs["scale_factor"],
                        "history": stored.attrs["history"],
                    }
                np.testing.assert_array_equal(group["contiguous"][...], file["contiguous"][...])


def test_what_is_equal_is_one_object_and_cannot_be_changed(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / f"{number}.h5", "latest", seed=number)
    one, other = (gridref.scan(tmp_path / f"{number}.h5") for number in range(2))
    assert one["a"].encodings[0] is other["b"].encodings[0]
    mine, theirs = one["a"].manifests[0], other["a"].manifests[0]
    assert mine.state is theirs.state
    assert mine.source is theirs.source
    with pytest.raises(ValueError, match="read-only"):
        mine.state[0] = 1
    one["a"].attrs["units"] = "changed"
    assert other["a"].attrs["units"] == gridref.scan(tmp_path / "0.h5")["a"].attrs["units"] == "K"


def series(path: Path, libver: str) -> None:
    """A small file with what the files of series have: a dimension scale, chunks, attributes."""
    with h5py.File(path, "w", libver=libver) as file:
        file.create_dataset("x", data=np.arange(6)).make_scale("x")
        values = np.arange(6).astype("<i2")
        variable = file.create_dataset("a", data=values, chunks=(3,), shuffle=True, fillvalue=7)
        variable.attrs["units"] = np.bytes_("K")
        variable.attrs["range"] = np.array([1, 2], "<i2")
        variable.dims[0].attach_scale(file["x"])


def header_blocks(path: Path, name: bytes) -> list[tuple[int, int]]:
    """Byte ranges of the blocks of an object's header, with their checksums."""
    with open_file(open_for_scan(path), ScanOptions()) as file:
        header = file.header(file.members(file.bytes.root)[name].address)
    later = header.blocks[1:]
    is_old = path.read_bytes()[header.address :][:4] != b"OHDR"
    n_head, n_checksum = (0, 0) if is_old else (4, 4)
    starts = [header.address, *(block.address - n_head for block in later)]
    stops = [block.address + len(block.data) + n_checksum for block in header.blocks]
    return list(zip(starts, stops, strict=True))


def each_changed(path: Path, changed: Path) -> Iterator[int]:
    """Write the file with each byte of a header changed in turn, under a checksum that is right."""
    data = path.read_bytes()
    for start, stop in header_blocks(path, b"a"):
        n_checksum = 4 if data[start : start + 4] in (b"OHDR", b"OCHK") else 0
        for at in range(start, stop - n_checksum):
            flawed = bytearray(data)
            flawed[at] ^= 1 << at % 8
            if n_checksum:
                checksum = lookup3(bytes(flawed[start : stop - 4]))
                flawed[stop - 4 : stop] = checksum.to_bytes(4, "little")
            changed.write_bytes(flawed)
            os.utime(changed, ns=(0, 0))
            yield at


@pytest.mark.long(but=1)
@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_siblings_that_differ_in_one_byte_are_told_apart(tmp_path: Path, libver: str) -> None:
    original, changed = tmp_path / "original.h5", tmp_path / "changed.h5"
    series(original, libver)
    expected = described(original)
    caches = all_caches()
    alone = {}
    for at in each_changed(original, changed):
        for clear in caches:
            clear()
        alone[at] = described(changed)
    assert len(set(alone.values())) > 50
    assert described(original) == expected
    for at in each_changed(original, changed):
        assert described(changed) == alone[at], f"byte {at}, after the other files"
        assert at % 16 or described(original) == expected


def scaled(path: Path, way: str) -> None:
    """Files whose headers have the same forms, and whose dimensions are other ones."""
    nowhere = "This is a netCDF dimension but not a netCDF variable."
    with h5py.File(path, "w", libver="latest") as file:
        for name in ("x", "y"):
            scale = file.create_dataset(name, data=np.arange(4))
            scale.make_scale(nowhere if (way, name) == ("no variable", "y") else "a".ljust(53))
            dimid = ("x", "y").index(name)
            scale.attrs["_Netcdf4Dimid"] = np.int32(1 - dimid if way == "dimids" else dimid)
        a = file.create_dataset("a", data=np.arange(4))
        for name in {"y": ["y"], "both": ["x", "y"], "itself": []}.get(way, ["x"]):
            a.dims[0].attach_scale(file[name])
        if way == "itself":
            a.make_scale("a".ljust(53))
        if way == "class":
            file["x"].attrs.modify("CLASS", np.bytes_("DIMENSION_SCALF"))
        a.attrs["coordinate"] = np.int32(1)
        a.attrs["_Netcdf4Coordinates" if way == "coordinates" else "_netcdf4Coordinates"] = [1]


WAYS = ("x", "y", "both", "itself", "no variable", "dimids", "class", "coordinates")


def test_dimensions_are_those_of_each_file(tmp_path: Path) -> None:
    caches, alone = all_caches(), {}
    for way in WAYS:
        scaled(tmp_path / f"{way}.h5", way)
        for clear in caches:
            clear()
        alone[way] = described(tmp_path / f"{way}.h5")
    dims = {way: re.findall(r"\('a', [^)]*\), \('(\w+)',\)", text) for way, text in alone.items()}
    assert len(set(map(str, dims.values()))) > 1
    for first in WAYS:
        for clear in caches:
            clear()
        for way in (first, *WAYS, *reversed(WAYS)):
            assert described(tmp_path / f"{way}.h5") == alone[way], f"{way}, after {first}"


def test_a_sibling_takes_less_work(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.nc" for number in range(3)]
    for seed, path in enumerate(paths):
        with netCDF4.Dataset(path, "w") as file:
            file.createDimension("x", 10)
            for number in range(8):
                variable = file.createVariable(f"v{number}{tmp_path.name}", "f4", ("x",), zlib=True)
                variable.setncatts({f"a{n}": f"{n} {tmp_path}" for n in range(5)})
                variable[:] = np.random.default_rng(seed).random(10)
    # In a process of its own: this one may have scanned their like before.
    code = (
        "import sys, gridref, gridref.formats.hdf5.scanner\n"
        "from tests.work import counted_work\n"
        "for path in sys.argv[1:]:\n"
        "    with counted_work() as work:\n"
        "        gridref.scan(path)\n"
        "    print(work.n_lines)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    n_lines = [int(line) for line in done.stdout.split()]
    assert 5 * n_lines[2] < 4 * n_lines[0], n_lines


def test_a_scan_leaves_nothing_to_the_garbage_collector(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.h5" for number in range(3)]
    for path in paths:
        series(path, "latest")
    # In a process of its own: threads of other tests leave cycles of their own.
    code = (
        "import gc, sys, gridref\n"
        "gridref.scan(sys.argv[1])\n"
        "gc.collect()\n"
        "gc.disable()\n"
        "for path in sys.argv[1:]:\n"
        "    gridref.scan(path)\n"
        "print(gc.collect())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "0"
