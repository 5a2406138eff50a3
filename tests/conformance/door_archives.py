"""Archives for the door matrix: every shared file, and one of each codec, dtype and layout."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numcodecs
import numpy as np
import tifffile
import zarr
from numpy.typing import NDArray
from pyhdf.SD import SD, SDC

import gridref
from gridref.errors import GridrefError
from gridref.io import SourcePool
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.zarr_metadata import packed_dtype
from gridref.serve.reader import Reader
from tests.conformance.door_formats import image_and_volume_files
from tests.hdf4_files import set_chunks, set_nbit
from tests.integration.archives import write_months
from tests.shared_data import shared_data_folder

CORNER = 24
"""Elements along each axis of the two corners that are read of a large array, at most."""
LARGE = 4096
"""Elements from which an array is large."""
MANY = 64
"""Chunks from which it is, too."""
LEFT_OUT = {"bad_input", "cve", "not_hdf5"}
"""Folders of what is hostile on purpose."""
SUFFIXES = {
    *(".h5", ".hdf5", ".nc", ".nc4", ".mat", ".tif", ".tiff"),
    *(".hdf", ".hdf4", ".grib", ".grib1", ".grib2", ".dmrpp", ".cdf"),
    *(".jp2", ".j2k", ".j2c", ".jpc", ".fits", ".b2nd"),
}
FOLDERS = ("formats/n5/*/*/",)
"""Patterns of what is a folder."""

Selection = tuple[slice, ...]


@dataclass(frozen=True)
class Archive:
    """One archive, and what the own reader reads of it.

    Attributes
    ----------
    name
        Its name in addresses.
    sources
        Its files; of cubes there are several.
    group
        What is tried of it.
    values
        By path of the array, its corners and what they hold.
    unreadable
        Why the own reader cannot read an array, by path.
    samples
        Paths of the arrays that no archive before has alike.
    """

    name: str
    sources: tuple[Path, ...]
    group: VirtualGroup
    values: dict[str, list[tuple[Selection, NDArray[Any]]]] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    samples: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return str(self.sources[0])


def all_archives(folder: Path, *, every_array: bool = False) -> Iterator[Archive]:
    """Scan and read one array of each kind, or every one; generated files go into a folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exactly: set[Any] = set()
        roughly: set[Any] = set()
        for number, (sources, group) in enumerate([*_generated(folder), *_shared()]):
            chosen = group if every_array else distinct(group, exactly)
            if not chosen.all_arrays():
                continue
            archive = Archive(f"a{number}", sources, chosen)
            _read(archive)
            arrays = archive.group.all_arrays()
            for path in archive.values:
                if (kind := _roughly(arrays[path])) not in roughly:
                    roughly.add(kind)
                    archive.samples.append(path)
            yield archive


def distinct(group: VirtualGroup, seen: set[Any]) -> VirtualGroup:
    """The group without arrays that are stored as one seen before, in whatever file."""

    def kept(part: VirtualGroup) -> VirtualGroup:
        arrays = {}
        for name, array in part.arrays.items():
            if (kind := _kind(array)) not in seen:
                seen.add(kind)
                arrays[name] = array
        return part.with_changes(
            arrays=arrays, groups={name: kept(child) for name, child in part.groups.items()}
        )

    return kept(group)


def _kind(array: VirtualArray) -> Any:
    """How an array is stored: of its lengths only how each axis is cut into chunks, and where."""
    encodings = {
        (each.dtype, each.codecs, each.edge, each.prefix != b"", each.fill, each.unpacking)
        for each in array.encodings
    }
    cuts = tuple(
        (extent > n, extent < n, extent % max(1, n) > 0)
        for extent, n in zip(array.shape, _chunk(array), strict=True)
    )
    layout = (cuts, is_large(array), array.n_blocks > 1, array.manifests != ())
    return (array.dtype, frozenset(encodings), array.has_filter_masks, *layout)


def _roughly(array: VirtualArray) -> Any:
    """The same without what codecs are told."""
    chains = {(entry.codecs, entry.edge, bool(entry.prefix)) for entry in array.encodings}
    uneven = any(extent % n for extent, n in zip(array.shape, _chunk(array), strict=True) if n)
    named = tuple(tuple(codec.name for codec in chain) for chain, *_ in chains)
    layout = (len(array.shape), 0 in array.shape, array.n_blocks > 1, uneven)
    return (array.dtype, named, array.has_filter_masks, *layout)


def _chunk(array: VirtualArray) -> tuple[int, ...]:
    return array.encodings[0].chunk_shape if array.encodings else array.shape


def is_large(array: VirtualArray) -> bool:
    """Whether two corners are read of an array, and not all of it."""
    chunks = zip(array.shape, _chunk(array), strict=True)
    n_chunks = np.prod([-(-extent // max(1, n)) for extent, n in chunks], dtype=float)
    return bool(np.prod(array.shape, dtype=float) > LARGE or n_chunks > MANY)


def corners(array: VirtualArray) -> list[Selection]:
    """All of a small array, the first and the last elements of a large one."""
    shape = array.shape
    if not is_large(array):
        return [tuple(slice(0, extent) for extent in shape)]
    most = CORNER if len(shape) < 3 else 6
    # Three chunks: one that is whole, and both ends of a row of them.
    sides = [min(extent, most, 2 * n + 1) for extent, n in zip(shape, _chunk(array), strict=True)]
    return [
        tuple(slice(0, side) for side in sides),
        tuple(slice(extent - side, extent) for extent, side in zip(shape, sides, strict=True)),
    ]


def _read(archive: Archive) -> None:
    reader = Reader(SourcePool())
    for path, array in archive.group.all_arrays().items():
        try:
            archive.values[path] = [
                (corner, comparable(reader.read(array, corner))) for corner in corners(array)
            ]
        except GridrefError as error:
            archive.unreadable[path] = error.reason


def comparable(values: Any) -> NDArray[Any]:
    """Values as any door may give them: strings as objects, compounds without gaps."""
    values = np.asarray(values)
    if values.dtype.kind in "TUOS":
        return values.astype(object)
    packed = packed_dtype(values.dtype.newbyteorder("="))
    return values.astype(packed)


def _shared() -> Iterator[tuple[tuple[Path, ...], VirtualGroup]]:
    files = (path for path in shared_data_folder().rglob("*") if path.suffix in SUFFIXES)
    folders = (path for pattern in FOLDERS for path in shared_data_folder().glob(pattern))
    for path in sorted([*filter(Path.is_file, files), *folders]):
        if LEFT_OUT & {*path.parts}:
            continue
        try:
            yield (path,), gridref.scan(path, on_unsupported="skip")
        except GridrefError:
            continue  # what cannot be scanned has tests of its own


def _generated(folder: Path) -> Iterator[tuple[tuple[Path, ...], VirtualGroup]]:
    makers: Mapping[str, Callable[[Path], None]] = {
        "dtypes.h5": _hdf5_dtypes,
        "filters.h5": _hdf5_filters,
        "layouts.h5": _hdf5_layouts,
        "codecs.hdf": _hdf4_codecs,
        "v3.zarr": _zarr_v3,
        "v2.zarr": _zarr_v2,
    }
    for name, make in makers.items():
        make(folder / name)
        yield (folder / name,), gridref.scan(folder / name)
    for path in image_and_volume_files(folder):
        yield (path,), gridref.scan(path)
    for name, options in TIFFS.items():
        image = np.arange(50 * 37 * 3, dtype="u2").reshape(50, 37, 3)
        tifffile.imwrite(folder / name, image, photometric="rgb", **options)
        yield (folder / name,), gridref.scan(folder / name)
    for chunk in (10, 31):
        months = folder / f"months of {chunk}"
        months.mkdir()
        files = write_months(months, lengths=(31, 28, 31), chunks=((chunk, 7, 9),))
        yield tuple(files), gridref.concat([gridref.scan(file) for file in files], "time")


TIFFS: Mapping[str, dict[str, Any]] = {
    "strips.tif": {"rowsperstrip": 7},
    "big.tif": {"rowsperstrip": 7, "byteorder": ">"},
    "deflate.tif": {"tile": (16, 16), "compression": "zlib", "predictor": True},
    "lzw.tif": {"rowsperstrip": 7, "compression": "lzw"},
    "zstd.tif": {"tile": (16, 32), "compression": "zstd"},
    "packbits.tif": {"rowsperstrip": 9, "compression": "packbits"},
    "planes.tif": {"planarconfig": "separate", "tile": (16, 16), "compression": "lzma"},
}

NUMBERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")


def _numbers(code: str, shape: tuple[int, ...] = (11, 7)) -> NDArray[Any]:
    raw = np.random.default_rng(5).integers(0, 256, np.dtype(code).itemsize * np.prod(shape), "u1")
    return raw.view(code).reshape(shape)


def _hdf5_dtypes(path: Path) -> None:
    gaps = np.dtype({"names": ["a", "b"], "formats": ["i1", "f8"], "offsets": [0, 8]})
    made: dict[str, Any] = {
        **{f"{order}{code}": _numbers(order + code) for code in NUMBERS for order in "<>"},
        "bool": _numbers("u1") > 99,
        "bytes": np.array([b"ab", b"", b"abcde"], "S5"),
        "compound": np.array([(1, 2.5, b"x")] * 5, [("a", "i4"), ("b", "f8"), ("c", "S3")]),
        "gaps": np.array([(1, 2.5)] * 5, gaps),
        "arrays": np.array([([1, 2, 3],)] * 5, [("a", "i2", (3,))]),
        "opaque": np.array([b"abcd", b"\0\1\2\3"], "V4"),
        "time": np.array([1, 2], "M8[s]").astype(h5py.opaque_dtype("M8[s]")),
    }
    with h5py.File(path, "w") as file:
        for name, values in made.items():
            file.create_dataset(
                name, data=values, chunks=tuple(max(1, n // 2) for n in values.shape)
            )
        file.create_dataset("text", data=["a", "", "ä"], dtype=h5py.string_dtype(), chunks=(2,))
        file.create_dataset("one text", data="ä", dtype=h5py.string_dtype())
        people = np.dtype([("n", "i4"), ("name", h5py.string_dtype())])
        file.create_dataset("text in compounds", data=np.array([(1, "ä"), (2, "")], people))
        colours = h5py.enum_dtype({"red": 1, "blue": 2}, "i2")
        file.create_dataset("enum", data=np.array([1, 2, 1], "i2"), dtype=colours)


def _hdf5_filters(path: Path) -> None:
    filters: dict[str, dict[str, Any]] = {
        "none": {},
        "gzip": {"compression": "gzip"},
        "shuffle": {"compression": "gzip", "shuffle": True},
        "shuffle only": {"shuffle": True},
        "fletcher32": {"fletcher32": True},
        "all": {"compression": 9, "shuffle": True, "fletcher32": True},
        "lzf": {"compression": "lzf"},
        "blosc": hdf5plugin.Blosc(cname="lz4", shuffle=hdf5plugin.Blosc.BITSHUFFLE),
        "blosc2": hdf5plugin.Blosc2(),
        "zstd": hdf5plugin.Zstd(),
        "lz4": hdf5plugin.LZ4(),
        "bitshuffle": hdf5plugin.Bitshuffle(),
        "bzip2": hdf5plugin.BZip2(),
        "zfp": hdf5plugin.Zfp(reversible=True),
    }
    values = {"f4": np.linspace(0, 5, 1100, dtype="f4").reshape(50, 22), "i2": _smooth()}
    with h5py.File(path, "w") as file:
        for name, options in filters.items():
            for code, data in values.items():
                if name != "zfp" or code == "f4":
                    file.create_dataset(f"{name} {code}", data=data, chunks=(16, 9), **options)
        file.create_dataset("scaleoffset", data=_smooth(), chunks=(16, 9), scaleoffset=True)
        file.create_dataset("all bits", data=_smooth(), chunks=(16, 9), scaleoffset=16)
        planes = np.stack([_smooth()] * 3).astype("u1")
        file.create_dataset("jpegls", data=planes, chunks=planes.shape, **hdf5plugin.FciDecomp())


def _smooth() -> NDArray[Any]:
    return (np.arange(1100) // 7).astype("i2").reshape(50, 22)


def _hdf5_layouts(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["scalar"] = np.float32(2.5)
        file["contiguous"] = np.arange(60.0).reshape(5, 12)
        file["none"] = np.zeros((0, 3), "f4")
        file.create_dataset("chunk is larger", data=np.arange(5), chunks=(9,), maxshape=(None,))
        file.create_dataset("even", data=np.arange(60).reshape(6, 10), chunks=(3, 5))
        for name, fill in (("f8", np.nan), ("i4", -7), ("u1", 255), ("S3", b"ab")):
            absent = file.create_dataset(
                f"absent {name}", (10, 6), name, chunks=(4, 4), fillvalue=fill
            )
            absent[:3, :3] = np.ones((3, 3), "u1").astype(name)
            file.create_dataset(f"nothing {name}", (4,), name, fillvalue=fill)
        file.create_group("inner/most")["v"] = np.arange(3)


def _hdf4_codecs(path: Path) -> None:
    file = SD(str(path), SDC.WRITE | SDC.CREATE)
    for name, store in PACKED.items():
        dataset = file.create(name, SDC.INT16, (50, 22))
        store(dataset)
        dataset[:] = _smooth()
        dataset.endaccess()
    file.end()


PACKED: Mapping[str, Callable[[Any], object]] = {
    "deflate": lambda dataset: dataset.setcompress(SDC.COMP_DEFLATE, 6),
    "chunks": lambda dataset: set_chunks(dataset, (16, 9), deflate=6),
    "runs": lambda dataset: dataset.setcompress(SDC.COMP_RLE),
    "Huffman": lambda dataset: dataset.setcompress(SDC.COMP_SKPHUFF, 2),
    "bits": lambda dataset: set_nbit(dataset, (8, 9, 0, 0)),
    "chunks of bits": lambda dataset: set_nbit(dataset, (8, 9, 0, 0), (16, 9)),
}


def _zarr_v3(path: Path) -> None:
    group = zarr.open_group(str(path), mode="w")
    values = np.arange(35, dtype="f4").reshape(5, 7)
    options: dict[str, dict[str, Any]] = {
        "default": {},
        "gzip": {"compressors": zarr.codecs.GzipCodec()},
        "blosc": {"compressors": zarr.codecs.BloscCodec()},
        "crc32c": {"compressors": zarr.codecs.Crc32cCodec()},
        "big": {"serializer": zarr.codecs.BytesCodec(endian="big"), "compressors": None},
        "transposed": {"filters": zarr.codecs.TransposeCodec(order=(1, 0))},
        "shards": {"shards": (4, 6)},
        "fill": {"fill_value": np.nan},
        "scaled": {"filters": zarr.codecs.ScaleOffset(offset=1, scale=2)},
    }
    for name, option in options.items():
        array = group.create_array(name, shape=(9, 7), dtype="f4", chunks=(2, 3), **option)
        array[:5] = values
    texts = np.array(["a", "", "ä"], np.dtypes.StringDType())
    group.create_array("text", data=texts, chunks=(2,))
    sharded = zarr.codecs.ShardingCodec(chunk_shape=())
    for name, serializer in (("number", "auto"), ("sharded number", sharded)):
        number = group.create_array(
            name, shape=(), dtype="f8", serializer=serializer, compressors=None
        )
        number[...] = 2.5
    group.create_array("unicode", data=np.array(["a", "ää"], "U2"))
    group.create_array("time", data=np.array(["2000", "NaT"], "M8[D]"))


def _zarr_v2(path: Path) -> None:
    group = zarr.open_group(str(path), mode="w", zarr_format=2)
    for code in ("<i4", ">f8", "|b1", "|S3", "<U2"):
        values = (np.arange(35).reshape(5, 7) % 3).astype(code)
        for order in ("C", "F"):
            array = group.create_array(
                f"{code[1:]} {order}", shape=(9, 7), dtype=code, chunks=(2, 3), order=order
            )
            array[:5] = values
    filters = {
        "delta": [numcodecs.Delta("<i4", astype="<i2")],
        "big delta": [numcodecs.Delta(">i4")],
        "offset": [numcodecs.FixedScaleOffset(5, 2, "<f4", astype="<i2")],
    }
    for name, chain in filters.items():
        code = chain[0].dtype
        array = group.create_array(name, shape=(9, 7), dtype=code, chunks=(2, 3), filters=chain)
        array[:5] = np.arange(35).reshape(5, 7).astype(code)
