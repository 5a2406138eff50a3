"""Scan a forecast file of 743 fields beside gribberish, and decode fields beside it.

Run ``python -m benchmarks.grib_scan [FILE ...]``. Files are decoded, too; without any, the fields
that are written for the scan are. Then files of this kind are scanned on a server that answers 25
ms late: without an index file beside them, the first of a series with one, and further ones.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gribberish
import numpy as np

import gridref
from benchmarks._timing import best
from gridref.codecs.grib import decode_field
from gridref.formats.grib.header import walk
from gridref.io import open_for_scan
from tests.cold_scans import all_caches
from tests.grib_files import field, idx, write_grib

UPPER = ("t", "u", "v", "q", "gh", "w", "r", "absv", "clwmr")
N_FIELDS = 743


def forecast(path: Path, *, in_degree: int = 1) -> Path:
    """A file of 743 fields, nearly all of them on levels of pressure, of 181 x 360 points."""
    n_rows, n_columns, step = 180 * in_degree + 1, 360 * in_degree, 1 / in_degree
    places = [
        {"shortName": name, "typeOfLevel": "isobaricInhPa", "level": 10 + 11 * level}
        for level in range(90)
        for name in UPPER
    ]
    packed = {"packingType": "grid_complex_spatial_differencing", "bitsPerValue": 12}
    fields = []
    for number, keys in enumerate(places[:N_FIELDS]):
        one = field(n_rows, n_columns, seed=number, **packed, **keys, step=6)
        y, x = np.mgrid[0:181:step, 0:360:step][:, :n_rows]
        one["values"] = 280 + 20 * np.sin(y / 30 + number) * np.cos(x / 40)
        one["keys"] |= {
            "longitudeOfLastGridPointInDegrees": 360 - step,
            "latitudeOfFirstGridPointInDegrees": 90,
            "latitudeOfLastGridPointInDegrees": -90,
            "iDirectionIncrementInDegrees": step,
            "jDirectionIncrementInDegrees": step,
        }
        fields.append(one)
    return write_grib(path, *fields)


def decoding(path: Path) -> tuple[float, float]:
    """Seconds of gridref and of gribberish for the first fields of a file."""
    data = path.read_bytes()
    with open_for_scan(path) as file:
        fields = walk(file, b"", 1 << 20)[:20]
    ours = theirs = 0.0
    for each in fields:
        message = data[each.offset : each.offset + each.length]
        n_points = gribberish.parse_grib_array(message, 0).size
        ours += best(lambda message=message, n=n_points: decode_field(message, n), 5)
        theirs += best(lambda message=message: gribberish.parse_grib_array(message, 0), 5)
    return ours, theirs


@contextmanager
def late_server(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks._slow_server", str(folder), "0.025"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.terminate()


def on_a_server(folder: Path) -> None:
    """Scans of files of 743 messages of some 80 kB, with and without index files."""
    (folder / "indexed").mkdir()
    (folder / "plain").mkdir()
    first = forecast(folder / "indexed" / "f0.grib2", in_degree=2)
    print(f"on a server, 25 ms late: {N_FIELDS} fields, {first.stat().st_size / 1e6:.0f} MB")
    lines = idx(first)
    for number in range(4):
        path = folder / "indexed" / f"f{number}.grib2"
        if number:
            path.symlink_to(first)
        Path(f"{path}.idx").write_text(lines)
        shutil.copy(path, folder / "plain" / path.name, follow_symlinks=False)
    with late_server(folder) as url:
        for kind in ("plain", "indexed"):
            for clear in all_caches():
                clear()
            gridref.scan(first)  # the names of parameters
            for number in range(4):
                began = time.perf_counter()
                group = gridref.scan(f"{url}/{kind}/f{number}.grib2")
                seconds = time.perf_counter() - began
                print(f"{kind} {number}: {seconds:.3f} s, {group.report.n_requests} requests")


def main(files: list[Path]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = forecast(Path(folder) / "forecast.grib2")
        data = path.read_bytes()
        print(f"{N_FIELDS} fields, {len(data) / 1e6:.0f} MB")
        print(f"gridref.scan      {best(lambda: gridref.scan(path), 7) * 1e3:8.1f} ms")
        theirs = best(lambda: gribberish.parse_grib_dataset(path.read_bytes()), 7)
        print(f"gribberish        {theirs * 1e3:8.1f} ms")
        on_a_server(Path(folder))
        for each in files or [path]:
            ours, theirs = decoding(each)
            print(f"decode {each.name}: gridref {ours * 1e3:.1f} ms,", end=" ")
            print(f"gribberish {theirs * 1e3:.1f} ms: {theirs / ours:.2f} of its speed")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
