"""Mutated files for the scanners: an error of ours or a description, in time."""

from __future__ import annotations

import io
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import h5py
import numpy as np
import tifffile

from gridref.errors import GridrefError
from tests.cold_scans import all_caches, described
from tests.dmrpp_files import write_dmrpp
from tests.shared_data import shared_data_folder
from tools.fuzz import dmrpp_target, fits_mutations, fits_target, hdf4_mutations, netcdf3_mutations
from tools.fuzz.catalog_attack import change_member, make_catalog
from tools.fuzz.compared_attack import ComparedAttack
from tools.fuzz.dmrpp_mutations import Mutator as DMRppMutator
from tools.fuzz.hdf5_mutations import Mutator as HDF5Mutator
from tools.fuzz.reference_attack import SECONDS
from tools.fuzz.small_fits import fits_files
from tools.fuzz.small_hdf4 import hdf4_files
from tools.fuzz.small_hdf5 import EXTERNAL, hdf5_files
from tools.fuzz.small_netcdf3 import netcdf3_files
from tools.fuzz.small_tiff import tiff_files
from tools.fuzz.small_zarr import write_stores
from tools.fuzz.tiff_mutations import Mutator as TIFFMutator
from tools.fuzz.timed_scan import WrongDataError, scan_in_time

__all__ = ["scanner_attacks"]

type Try = Callable[[int], str | None]

MOST_BYTES = 24_000
_SMALL = 13_000
_EACH = 24
"""One of so many attempts is with a file of many structures."""


class Mutate(Protocol):
    """What changes files."""

    def __call__(self, data: bytes, max_size: int, seed: int) -> bytes:
        """A changed copy."""
        ...

    def crossed(self, one: bytes, other: bytes, max_size: int, seed: int) -> bytes:
        """A copy with a piece of another file."""
        ...


def scanner_attacks(folder: Path) -> dict[str, Try]:
    """Attempts by name of the scanner."""
    folder.mkdir()
    make_catalog(folder)
    (folder / EXTERNAL).write_bytes(bytes(16))
    with h5py.File(folder / "elsewhere.h5", "w") as file:
        file["a"] = file["s"] = np.zeros((4, 4), "i4")
    hdf5 = [*hdf5_files().values(), *(path.read_bytes() for path in folder.glob("*.nc"))]
    tiff = [*tiff_files().values(), *_large_tiff()]
    (folder / "zarr").mkdir()
    hdf5, tiff = hdf5 + _real("HDF"), tiff + _real("TIFF")
    in_hdf5, in_netcdf3 = HDF5Mutator(), netcdf3_mutations.MUTATOR
    in_tiff, in_hdf4 = TIFFMutator(), hdf4_mutations.MUTATOR
    netcdf3 = netcdf3_files(folder) + _real("CDF")
    hdf4 = hdf4_files(folder) + _real("HDF4")
    in_fits, fits = fits_mutations.MUTATOR, fits_files()
    dmrpp = _documents(folder / "dmrpp")
    return {
        "scanner: HDF5": _of(in_hdf5, hdf5, folder / "fuzzed.h5"),
        "scanner: TIFF": _of(in_tiff, tiff, folder / "fuzzed.tif"),
        "scanner: NetCDF3": _of(in_netcdf3, netcdf3, folder / "fuzzed.nc3"),
        "scanner: HDF4": _of(in_hdf4, hdf4, folder / "fuzzed.hdf"),
        "scanner: DMR++": _read(
            DMRppMutator(), dmrpp, folder / "dmrpp" / "a.h5.dmrpp", dmrpp_target.check
        ),
        "scanner: FITS": _read(in_fits, fits, folder / "fuzzed.fits", fits_target.read_all),
        "scanner: Zarr": _of_zarr(write_stores(folder / "zarr")),
        "compared: HDF5": _compared("HDF5", in_hdf5, hdf5, folder / "compared.h5"),
        "compared: TIFF": _compared("TIFF", in_tiff, tiff, folder / "compared.tif"),
        "compared: NetCDF3": _compared("NetCDF3", in_netcdf3, netcdf3, folder / "compared.nc3"),
        "compared: FITS": _compared("FITS", in_fits, fits, folder / "compared.fits"),
        "compared: HDF4": _compared("HDF4", in_hdf4, hdf4, folder / "compared.hdf"),
        "alike: HDF5": _beside_its_like(in_hdf5, hdf5, folder / "alike.h5"),
        "alike: TIFF": _beside_its_like(in_tiff, tiff, folder / "alike.tif"),
    }


def _large_tiff() -> list[bytes]:
    image = np.arange(64 * 64, dtype="u2").reshape(64, 64)
    buffers = [io.BytesIO(), io.BytesIO()]
    tifffile.imwrite(buffers[0], image, tile=(16, 16), compression="zlib", metadata={})
    tifffile.imwrite(buffers[1], np.stack([image, image]), ome=True, metadata={"axes": "CYX"})
    return [buffer.getvalue() for buffer in buffers]


def _documents(folder: Path) -> list[bytes]:
    """Documents of one granule, those of others changed so that they are of this one."""
    folder.mkdir()
    with h5py.File(folder / "a.h5", "w") as file:
        values = np.arange(24.0).reshape(6, 4)
        file.create_dataset("t", data=values, chunks=(4, 3), compression=1, shuffle=True)
        file.create_dataset("group/plain", data=values.astype(">i2"))
        file["texts"] = ["one", "two", "t" * 40]
        file["fixed"] = np.array([b"a", b"bc"], "S3")
        file["flag"] = [True, False]
    own = write_dmrpp(folder / "a.h5").read_bytes()
    return [own, *(re.sub(rb' (dmrpp:)?href="[^"]*"', b"", data) for data in _real("DMRPP"))]


def _real(kind: str) -> list[bytes]:
    """The small files of the shared test data, where that is there."""
    parts = {
        "HDF": ("hdf5", "netcdf4", "families", "bad_input/hdf5"),
        "TIFF": ("tiff", "ome_tiff"),
        "CDF": ("formats/netcdf3",),
        "HDF4": ("formats/hdf4",),
        "DMRPP": ("formats/dmrpp",),
    }
    paths = (path for part in parts[kind] for path in (shared_data_folder() / part).rglob("*"))
    files = sorted(path for path in paths if path.is_file() and path.stat().st_size <= MOST_BYTES)
    return [path.read_bytes() for path in files]


def _mutants(mutate: Mutate, seeds: list[bytes]) -> Callable[[int], tuple[bytes, bytes]]:
    """Files, and changes of them: mostly small ones, where what is changed matters more often."""
    small = [data for data in dict.fromkeys(seeds) if len(data) <= _SMALL]
    large = [data for data in dict.fromkeys(seeds) if len(data) > _SMALL] or small

    def mutant(seed: int) -> tuple[bytes, bytes]:
        number, rest = divmod(seed, _EACH)
        base = data = large[number % len(large)] if rest == 0 else small[seed % len(small)]
        if seed % 5 == 0:
            other = small[hash((seed, 1)) % len(small)]
            data = mutate.crossed(data, other, MOST_BYTES, seed + 1)
        return base, mutate(data, MOST_BYTES, seed)

    return mutant


def _of(mutate: Mutate, seeds: list[bytes], path: Path) -> Try:
    mutant = _mutants(mutate, seeds)

    def attempt(seed: int) -> str | None:
        path.write_bytes(mutant(seed)[1])
        return _scanned(path)

    return attempt


def _read(mutate: Mutate, seeds: list[bytes], path: Path, check: Callable[[Path], None]) -> Try:
    mutant = _mutants(mutate, seeds)

    def attempt(seed: int) -> str | None:
        path.write_bytes(mutant(seed)[1])
        try:
            check(path)
        except GridrefError:
            return None
        except Exception as error:  # noqa: BLE001 - whatever is raised is the finding
            return f"{type(error).__name__}: {error}"[:200]
        return None

    return attempt


def _compared(kind: str, mutate: Mutate, seeds: list[bytes], path: Path) -> Try:
    mutant = _mutants(mutate, seeds)
    return ComparedAttack(kind, lambda seed: mutant(seed)[1], path)


def _beside_its_like(mutate: Mutate, seeds: list[bytes], path: Path) -> Try:
    """A file and its change, each scanned after the other: neither alters what is read of it."""
    mutant = _mutants(mutate, seeds)
    path.write_bytes(seeds[0])
    described(path)  # so that all modules are loaded
    clear_all = all_caches()

    def attempt(seed: int) -> str | None:
        base, changed = mutant(seed)
        alone = {}
        for data in (base, changed):
            for clear in clear_all:
                clear()
            path.write_bytes(data)
            alone[data] = described(path)
        for data in (base, changed):
            path.write_bytes(data)
            if described(path) != alone[data]:
                return f"the {'file' if data == base else 'change'} scans otherwise after the other"
        return None

    return attempt


def _of_zarr(stores: list[Path]) -> Try:
    """Changes of a file of a store, and files that are missing or of another store."""
    files = [
        (store, path, path.read_bytes())
        for store in stores
        for path in sorted(store.rglob("*"))
        if path.is_file()
    ]

    def attempt(seed: int) -> str | None:
        rng = random.Random(seed)
        store, path, content = files[seed % len(files)]
        if rng.random() < 0.02:
            path.unlink()
        else:
            other = rng.choice(files)[2] if rng.random() < 0.03 else content
            path.write_bytes(_changed(other, rng))
        try:
            return _scanned(store)
        finally:
            path.write_bytes(content)

    return attempt


def _changed(content: bytes, rng: random.Random) -> bytes:
    """A bit or the length, or members of JSON."""
    if content[:1] == b"{" and rng.random() < 0.85:
        document = json.loads(content)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            if document:
                change_member(document, rng)
        return json.dumps(document).encode()
    changed = bytearray(content)
    if changed and rng.random() < 0.9:
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    else:
        del changed[rng.randrange(len(changed) + 1) :]
    return bytes(changed)


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
