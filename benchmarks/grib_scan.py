"""Scan a forecast file of 743 fields beside gribberish, and decode fields beside it.

Run ``python -m benchmarks.grib_scan [FILE ...]``. Files are decoded, too; without any, the fields
that are written for the scan are.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import gribberish
import numpy as np

import gridref
from benchmarks._timing import best
from gridref.codecs.grib import decode_field
from gridref.formats.grib.header import walk
from gridref.io import open_for_scan
from tests.grib_files import field, write_grib

UPPER = ("t", "u", "v", "q", "gh", "w", "r", "absv", "clwmr")
N_FIELDS = 743


def forecast(path: Path) -> Path:
    """A file of 743 fields on 181 x 360 points, nearly all of them on levels of pressure."""
    places = [
        {"shortName": name, "typeOfLevel": "isobaricInhPa", "level": 10 + 11 * level}
        for level in range(90)
        for name in UPPER
    ]
    packed = {"packingType": "grid_complex_spatial_differencing", "bitsPerValue": 12}
    fields = []
    for number, keys in enumerate(places[:N_FIELDS]):
        one = field(181, 360, seed=number, **packed, **keys, step=6)
        y, x = np.mgrid[0:181, 0:360]
        one["values"] = 280 + 20 * np.sin(y / 30 + number) * np.cos(x / 40)
        one["keys"] |= {
            "longitudeOfLastGridPointInDegrees": 359,
            "latitudeOfFirstGridPointInDegrees": 90,
            "latitudeOfLastGridPointInDegrees": -90,
            "iDirectionIncrementInDegrees": 1,
            "jDirectionIncrementInDegrees": 1,
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


def main(files: list[Path]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = forecast(Path(folder) / "forecast.grib2")
        data = path.read_bytes()
        print(f"{N_FIELDS} fields, {len(data) / 1e6:.0f} MB")
        print(f"gridref.scan      {best(lambda: gridref.scan(path), 7) * 1e3:8.1f} ms")
        theirs = best(lambda: gribberish.parse_grib_dataset(path.read_bytes()), 7)
        print(f"gribberish        {theirs * 1e3:8.1f} ms")
        for each in files or [path]:
            ours, theirs = decoding(each)
            print(f"decode {each.name}: gridref {ours * 1e3:.1f} ms,", end=" ")
            print(f"gribberish {theirs * 1e3:.1f} ms: {theirs / ours:.2f} of its speed")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
