"""Write the catalogs that every later version has to read: ``python -m tests.catalogs.make 0.1``.

Run once for each release. What a released version wrote is never written again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import gridref

FOLDER = Path(__file__).parent
LENGTHS = (5, 4, 6)
DECLARED = np.array(["2000-01-16", "2000-01-17"], "M8[ns]")


def write_file(path: Path, number: int) -> None:
    """A file of a few steps; files differ in chunks, filters, packing and byte order."""
    n = LENGTHS[number]
    first = sum(LENGTHS[:number])
    rng = np.random.default_rng(number)
    with h5py.File(path, "w", libver="latest") as file:
        scales = {
            "time": np.arange(first, first + n, dtype="f8"),
            "y": np.array([10.0, 20.0, 30.0]),
            "x": np.arange(4, dtype="i2"),
        }
        for name, labels in scales.items():
            file[name] = labels
            file[name].make_scale(name)
        file["time"].attrs["units"] = "days since 2000-01-01"

        def add(name: str, values: Any, dims: str = "time y x", **options: Any) -> h5py.Dataset:
            dataset = file.create_dataset(name, data=values, **options)
            for axis, dim in enumerate(dims.split()):
                dataset.dims[axis].attach_scale(file[dim])
            return dataset

        zlib: dict[str, Any] = {"compression": "gzip", "shuffle": True}
        stored: list[dict[str, Any]] = [
            {"chunks": (2, 3, 4), **zlib}, {}, {"chunks": (4, 2, 3), "fletcher32": True, **zlib}
        ]  # fmt: skip
        tas = rng.normal(280, 9, (n, 3, 4)).astype(">f4" if number == 1 else "<f4")
        add("tas", tas, **stored[number]).attrs["units"] = "K"
        packed = add("packed", rng.integers(-99, 99, (n, 3)).astype("i2"), "time y", chunks=(3, 2))
        packed.attrs["scale_factor"] = np.float32([0.1, 0.25, 0.5][number])
        packed.attrs["_FillValue"] = np.array([-99], "i2")
        holes = add("holes", None, "time", shape=(n,), dtype="i4", chunks=(2,), fillvalue=-7)
        holes[:2] = number
        add("text", [f"day {first + i}" for i in range(n)], "time", dtype=h5py.string_dtype())
        kinds = h5py.enum_dtype({"good": 0, "bad": 1}, "u1")
        add("quality", (np.arange(n) % 2).astype("u1"), "time", dtype=kinds)
        add("lzf", np.arange(n, dtype="u8"), "time", chunks=(4,), compression="lzf")
        file.create_group("site").create_dataset("height", data=np.float32(12.5))
        file["site/height"].attrs["limits"] = np.array([-np.inf, 9000], "f4")


def expected_values(files: list[Path]) -> dict[str, Any]:
    """What h5py reads, one file after another."""
    values: dict[str, Any] = {}
    opened = [h5py.File(file) for file in files]
    for name in ("tas", "holes", "quality", "lzf", "time"):
        values[name] = np.concatenate([file[name][...] for file in opened])
    texts = [file["text"].asstr()[...] for file in opened]
    values["text"] = np.concatenate(texts).astype(str)
    parts = []
    for file in opened:
        stored, attrs = file["packed"][...], file["packed"].attrs
        scaled = (stored * np.float64(attrs["scale_factor"])).astype("f4")
        parts.append(np.where(stored == attrs["_FillValue"], np.float32(np.nan), scaled))
    values["packed"] = np.concatenate(parts)
    values["y"], values["x"] = opened[0]["y"][...], opened[0]["x"][...]
    values["site/height"] = opened[0]["site/height"][...]
    return values


def main(version: str) -> None:
    """Write the files, the catalogs and what must be read of them."""
    folder = FOLDER / version
    folder.mkdir()
    files = [folder / f"{number}.h5" for number in range(len(LENGTHS))]
    for number, file in enumerate(files):
        write_file(file, number)
    told: dict[str, Any] = {}
    for name, options in {
        "plain": {"identity": "size"},
        "full": {"identity": "content", "checksums": True},
    }.items():
        path = folder / f"{name}.gridref"
        gridref.build(files[:2], path, "time", relative=True, **options)
        catalog = gridref.open_catalog(path).tag("two").append(files[2])
        catalog = catalog.rechunk("tas", {"time": -1, "y": 2, "x": 2})
        if name == "full":
            catalog = catalog.scan_values().declare("time", DECLARED)
        (path / ".gridref.json.lock").unlink()
        told[name] = {
            "digest": catalog.info.digest,
            "digest of two": gridref.open_catalog(path, snapshot="two").info.digest,
        }
    (folder / "expected.json").write_text(json.dumps(told, indent=2) + "\n")
    np.savez_compressed(folder / "expected.npz", **expected_values(files))


if __name__ == "__main__":
    main(sys.argv[1])
