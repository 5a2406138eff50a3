"""Scanning and reading FITS files: gridref beside astropy, kerchunk.fits and VirtualiZarr.

Run with ``python -m benchmarks.fits_scan [--files N]``. The first part scans many exposures of one
image; the second opens an image and reads one cut-out of it, as it is stored, compressed without
loss, and quantised. Runs alternate between the tools, and the best of each counts.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits

import gridref
from benchmarks._peers import parsed_by
from benchmarks._timing import best_of

SIDE = 2048
N_KEYWORDS = 100
CUT_OUT = (slice(900, 1000), slice(700, 800))


def write_exposures(folder: Path, n_files: int) -> list[Path]:
    """Write small images with headers as long as those of telescopes."""
    files = []
    for number in range(n_files):
        hdu = fits.PrimaryHDU(np.full((32, 32), number, "u2"))
        hdu.header.update({f"KEY{n}": n * 0.5 for n in range(N_KEYWORDS)})
        hdu.header["DATE-OBS"] = f"2024-03-01T00:{number // 60 % 60:02}:{number % 60:02}"
        files.append(folder / f"{number}.fits")
        hdu.writeto(files[-1])
    return files


def write_images(folder: Path) -> dict[str, Path]:
    """Write one image as it is stored, and compressed."""
    noise = np.random.default_rng(1).normal(1000, 10, (SIDE, SIDE))
    compressed = {
        "RICE_1, int16": (noise.astype("i2"), {}),
        "RICE_1, float32 quantised": (noise.astype("f4"), {"quantize_method": 1}),
    }
    files = {"uncompressed": folder / "plain.fits"}
    fits.PrimaryHDU(noise.astype("f4")).writeto(files["uncompressed"])
    for name, (values, options) in compressed.items():
        files[name] = folder / f"{len(files)}.fits.fz"
        hdu: Any = fits.CompImageHDU(values, tile_shape=(128, 128), **options)
        fits.HDUList([fits.PrimaryHDU(), hdu]).writeto(files[name])
    return files


def scans() -> dict[str, Callable[[Path], Any]]:
    """The tools that scan, by name; astropy reads headers."""
    from kerchunk.fits import process_file
    from virtualizarr.parsers import FITSParser

    def headers(path: Path) -> None:
        with fits.open(path) as hdus:
            for hdu in hdus:
                dict(hdu.header)

    return {
        "gridref": gridref.scan,
        "astropy": headers,
        "kerchunk": lambda path: process_file(str(path)),
        "virtualizarr": parsed_by(FITSParser()),
    }


def by_gridref(path: Path) -> np.ndarray[Any, Any]:
    """A cut-out, by scanning the file."""
    (array,) = gridref.scan(path).arrays.values()
    return array[CUT_OUT]


def by_astropy(path: Path) -> np.ndarray[Any, Any]:
    """A cut-out, by ``.section``."""
    with fits.open(path) as hdus:
        return np.asarray(hdus[-1].section[CUT_OUT])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1000)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"Python {platform.python_version()}, {platform.machine()}")
    with tempfile.TemporaryDirectory() as made_folder:
        folder = Path(made_folder)
        files, tools = write_exposures(folder, arguments.files), scans()
        for scan in tools.values():
            scan(files[0])
        many = {name: lambda scan=scan: list(map(scan, files)) for name, scan in tools.items()}
        print(f"{len(files)} files of one image and {N_KEYWORDS} keywords, ms a file")
        for name, seconds in best_of(many, 2).items():
            print(f"  {name:14} {seconds / len(files) * 1e3:10.2f}")
        for kind, path in write_images(folder).items():
            np.testing.assert_array_equal(by_gridref(path), by_astropy(path))
            reads = {
                "gridref": lambda path=path: by_gridref(path),
                "astropy": lambda path=path: by_astropy(path),
            }
            print(f"{SIDE} x {SIDE} pixels, {kind}: open and read 100 x 100, ms")
            for name, seconds in best_of(reads, 3).items():
                print(f"  {name:14} {seconds * 1e3:10.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
