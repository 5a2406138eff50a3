"""Every codec of gridref's own passes the suite that other codecs must pass.

The stored bytes come from other programs. Where those round, or only decode, the values are what
they themselves decode the bytes to.
"""

from __future__ import annotations

import base64
import gzip
import io
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, override

import blosc2
import h5py
import hdf5plugin
import imagecodecs
import numcodecs
import numpy as np
import pytest
import rasterio
import tifffile
from astropy.io.fits.hdu.compressed._codecs import PLIO1, HCompress1, Rice1
from numpy.typing import NDArray
from pyhdf.SD import SD, SDC

import gridref
from gridref.codecs import decode_chunk
from gridref.codecs.pipeline import own_codecs
from gridref.errors import DecodeError
from gridref.model.encoding import Codec, Encoding, bytes_codec
from gridref.testing.codecs import CodecTests
from tests.hdf4_files import TYPES, set_nbit
from tests.jp2_files import tile_parts
from tests.n5_files import block, lz4_stream
from tests.precomputed_files import ENCODINGS, voxels, write_volume
from tests.unit.codecs.support import dataset_encoding, image_like, stored_chunks

type Values = NDArray[Any]
type Pair = tuple[Values, bytes]

LITTLE = Codec.of("bytes", endian="little")
RANDOM = np.random.default_rng(0)
NUMBERS = [
    RANDOM.integers(0, 1000, (4, 6)).astype("<i4"),
    RANDOM.random((3, 5, 2)),
    np.zeros((7,), "<u2"),
    np.array([[255]], "u1"),
]
IMAGE = np.clip(image_like((16, 32), "i4") + 100, 0, 255).astype("u1")
BITS = RANDOM.random((5, 13)) < 0.5
NO_CASE: dict[str, str] = dict.fromkeys(
    ("gridref.grib", "gridref.grib_places"),
    "integration/test_scan_grib.py compares messages with eccodes, which has its own process",
) | {"gridref.fits_tiles": "integration/test_scan_fits.py compares whole tables with astropy"}
"""Codecs that no case stands for, and why."""


@dataclass(frozen=True)
class Case:
    """A codec in its chain, and chunks with the bytes that another program stored for them."""

    name: str
    chain: tuple[Codec, ...]
    pairs: Sequence[Pair]
    detects_cuts: bool = True

    @property
    def codec(self) -> Codec:
        return next(codec for codec in self.chain if codec.name == self.name)


def on_bytes(
    codec: Codec, encode: Callable[[bytes], Any], chunks: Sequence[Values] = NUMBERS, **more: Any
) -> Case:
    """A bytes -> bytes codec."""
    pairs = [(chunk, bytes(encode(chunk.tobytes()))) for chunk in chunks]
    return Case(codec.name, (LITTLE, codec), pairs, **more)


def on_values(codec: Codec, encode: Callable[[Values], Any], *chunks: Values, **more: Any) -> Case:
    """An array -> bytes codec."""
    pairs = [(chunk, bytes(encode(chunk))) for chunk in chunks]
    return Case(codec.name, (codec,), pairs, **more)


def on_array(codec: Codec, *pairs: tuple[Values, Values]) -> Case:
    """An array -> array codec; pairs are of the values and the array that is stored."""
    serial = bytes_codec(pairs[0][1].dtype)
    return Case(codec.name, (codec, serial), [(v, s.tobytes()) for v, s in pairs])


def by_numcodecs(values: Values, name: str, **config: Any) -> Case:
    """An array -> array codec of numcodecs."""
    codec = numcodecs.get_codec({"id": name, **config})
    stored = np.ascontiguousarray(codec.encode(values))
    shown = np.asarray(codec.decode(stored)).reshape(values.shape)
    return on_array(Codec.of(f"numcodecs.{name}", **config), (shown, stored))


def by_hdf5(
    name: str, values: Values, type_id: Any = None, *, detects_cuts: bool = True, **filters: Any
) -> Case:
    """A codec of HDF5's, in the chain of a dataset that the HDF5 library writes and reads."""
    with h5py.File("memory", "w", driver="core", backing_store=False) as file:
        dtype = None if type_id is None else h5py.Datatype(type_id)
        dataset = file.create_dataset(
            "v", values.shape, dtype or values.dtype, chunks=values.shape, **filters
        )
        dataset[...] = values
        encoding = dataset_encoding(dataset)
        assert encoding is not None
        ((stored, mask, _),) = stored_chunks(dataset)
        assert mask == 0
        shown = dataset[...]
        return Case(
            f"gridref.hdf5_{name}", encoding.codecs, [(shown, stored)], detects_cuts=detects_cuts
        )


def by_openjpeg(values: Values) -> bytes:
    """A lossless JPEG 2000 codestream."""
    stored: bytes = imagecodecs.jpeg2k_encode(values, codecformat="j2k", level=0)
    return stored


def tile_of_jpeg2000() -> Case:
    """A tile without the main header."""
    stream = by_openjpeg(IMAGE)
    ((_, start, stop),) = tile_parts(stream)
    codec = Codec.of("gridref.jpeg2000", header=base64.b64encode(stream[:start]).decode())
    return Case(codec.name, (codec,), [(IMAGE, stream[start:stop])])


def image(name: str, stored: bytes, decode: Callable[[bytes], Values], **more: Any) -> Case:
    """A compressed image in a tile or strip of TIFF."""
    shown = decode(stored)
    samples = shown.shape[2] if shown.ndim == 3 else 1
    codec = Codec.of(f"gridref.tiff_{name}", width=shown.shape[1], samples=samples)
    return Case(codec.name, (Codec("bytes"), codec), [(shown, stored)], **more)


def b2nd_chunk() -> Case:
    """The only chunk of an array, with blocks that overhang it."""
    array = blosc2.asarray(SMALL, chunks=SMALL.shape, blocks=(3, 4))
    codec = Codec.of("gridref.b2nd", block_shape=[3, 4], endian="little")
    return Case(codec.name, (codec,), [(SMALL, array.schunk.get_chunk(0))])


CCITT = {"rle": "CCITTRLE", "fax3": "CCITTFAX3", "fax4": "CCITTFAX4"}


def ccitt(scheme: str) -> Case:
    """A strip of a bilevel image that libtiff writes."""
    options = {"driver": "GTiff", "compress": CCITT[scheme], "nbits": 1}
    options["photometric"] = "MINISBLACK"
    options["transform"] = rasterio.Affine(2, 0, 0, 0, -2, 0)
    with rasterio.MemoryFile() as memory:
        with memory.open(height=5, width=13, count=1, dtype="uint8", **options) as file:
            file.write(BITS.astype("u1"), 1)
        with memory.open() as file:
            shown = file.read(1).astype(bool)
        with tifffile.TiffFile(io.BytesIO(memory.read())) as tiff:
            page = tiff.pages.first
            tiff.filehandle.seek(page.dataoffsets[0])
            stored = tiff.filehandle.read(page.databytecounts[0])
    codec = Codec.of("gridref.tiff_ccitt", width=13, samples=1, scheme=scheme, t4options=0)
    return Case(codec.name, (Codec("bytes"), codec), [(shown, stored)])


def rgb_bits() -> Case:
    """Pixels of 5, 6 and 5 bits, which tifffile widens to 8."""
    stored = RANDOM.integers(0, 256, 40, "u1").tobytes()
    shown = tifffile.tifffile.unpack_rgb(stored, np.dtype("u1"), (5, 6, 5)).reshape(4, 5, 3)
    codec = Codec.of("gridref.tiff_rgb_bits", bits=[5, 6, 5], dtype="uint8", endian="little")
    return Case(codec.name, (Codec("bytes"), codec), [(shown, stored)])


def float24() -> Case:
    """Floats of 24 bits."""
    stored = imagecodecs.float24_encode(image_like((5, 13), "f4"), byteorder="<")
    shown = imagecodecs.float24_decode(stored, byteorder="<").reshape(5, 13)
    codec = Codec.of("gridref.tiff_float24", endian="little")
    return Case(codec.name, (LITTLE, codec), [(shown, bytes(stored))])


def complex_integers() -> Case:
    """Complex numbers of two int16."""
    parts = RANDOM.integers(-100, 100, (5, 7, 2))
    shown = (parts[..., 0] + 1j * parts[..., 1]).astype("c8")
    codec = Codec.of("gridref.tiff_complex_integers", bits=16, endian="little")
    return Case(codec.name, (LITTLE, codec), [(shown, parts.astype("<i2").tobytes())])


def packints() -> Case:
    """Integers of 12 bits, rows of which begin at a byte."""
    values = RANDOM.integers(0, 1 << 12, (5, 7)).astype("u2")
    stored = imagecodecs.packints_encode(values, 12, runlen=7)
    codec = Codec.of("gridref.tiff_packints", bits=12, dtype="uint16", run_length=7)
    return Case(codec.name, (LITTLE, codec), [(values, bytes(stored))])


def strings(codec: str, values: Values, encoder: Any) -> Case:
    """Strings of varying length."""
    stored = bytes(encoder.encode(values.astype(object)))
    return Case(codec, (Codec(codec),), [(values, stored)])


def odd_integers() -> Case:
    """Integers that take 11 of 16 bits, from the third on."""
    tid = h5py.h5t.STD_I16LE.copy()
    tid.set_precision(11)
    tid.set_offset(2)
    return by_hdf5("integer", RANDOM.integers(-1000, 1000, (5, 7)).astype("i2"), tid)


def odd_floats() -> Case:
    """bfloat16: a float32 without its last 16 bits."""
    tid = h5py.h5t.IEEE_F32LE.copy()
    tid.set_fields(15, 7, 8, 0, 7)
    tid.set_size(2)
    tid.set_ebias(127)
    return by_hdf5("float", image_like((5, 7), "f4"), tid)


def nbit() -> Case:
    """Integers of 11 bits, packed by the N-Bit filter."""
    tid = h5py.h5t.STD_U16LE.copy()
    tid.set_precision(11)
    tid.set_offset(0)
    values = RANDOM.integers(0, 2000, (5, 7)).astype("u2")
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_chunk(values.shape)
    creation.set_filter(h5py.h5z.FILTER_NBIT, h5py.h5z.FLAG_MANDATORY, ())
    with h5py.File("memory", "w", driver="core", backing_store=False) as file:
        space = h5py.h5s.create_simple(values.shape)
        dataset = h5py.Dataset(h5py.h5d.create(file.id, b"v", tid, space, creation))
        dataset[...] = values
        encoding = dataset_encoding(dataset)
        assert encoding is not None
        ((stored, mask, _),) = stored_chunks(dataset)
        assert mask == 0
        return Case("gridref.hdf5_nbit", encoding.codecs, [(dataset[...], stored)])


def szip() -> Case:
    """Written by libaec, as the HDF5 library does: with the mask of NN coding."""
    values = image_like((4, 64), "i4")
    options = {"options_mask": 141, "pixels_per_block": 32}
    options |= {"bits_per_pixel": 32, "pixels_per_scanline": 64}
    stored = imagecodecs.szip_encode(values.tobytes(), header=True, **options)
    codec = Codec.of("gridref.hdf5_szip", cd_values=[141, 32, 32, 64])
    return Case(codec.name, (LITTLE, codec), [(values, bytes(stored))])


def hdf4(store: Callable[[Any], object], name: str, *values: Values) -> Case:
    """What the HDF4 library stores of whole data sets."""
    pairs, codecs = [], set()
    with tempfile.TemporaryDirectory() as folder:
        for number, chunk in enumerate(values):
            path = Path(folder, f"{number}.hdf")
            file = SD(str(path), SDC.WRITE | SDC.CREATE)
            dataset = file.create("v", TYPES[chunk.dtype.str[1:]], chunk.shape)
            store(dataset)
            dataset[:] = chunk
            dataset.endaccess()
            file.end()
            array = gridref.scan(path)["v"]
            (row,) = (manifest.take(np.array([0])) for manifest in array.manifests)
            start, length = int(row.offset[0]), int(row.length[0])
            pairs.append((SD(str(path)).select("v")[:], path.read_bytes()[start : start + length]))
            codecs.add(array.encodings[0].codecs)
    (chain,) = codecs
    return Case(name, chain, pairs)


def hdf4_szip(*, flag: int) -> Case:
    """As HDF 4.2r1 and later write it: a flag, and the size."""
    values = image_like((4, 64), "i4")
    stored = bytes(imagecodecs.szip_encode(values.tobytes(), 141, 32, 32, 64))
    stored = values.tobytes() if flag else stored
    codec = Codec.of("gridref.hdf4_szip", parameters=[141 | 0x10000, 32, 32, 64])
    frame = bytes([flag]) + len(stored).to_bytes(4, "big")
    return Case(codec.name, (LITTLE, codec), [(values, frame + stored)])


def jpeg_filter() -> Case:
    """The JPEG filter of HDF5: chunks of one image."""
    stored = bytes(imagecodecs.jpeg8_encode(IMAGE, level=90))
    codec = Codec.of("gridref.hdf5_jpeg", cd_values=[90, 32, 16, 0])
    shown = imagecodecs.jpeg8_decode(stored)
    return Case(codec.name, (LITTLE, codec), [(shown, stored)])


def fits_tile(codec: Codec, encoder: Any, values: Values, **more: Any) -> Case:
    """A tile of a compressed FITS image, as astropy writes it."""
    stored = np.frombuffer(encoder.encode(values), np.uint8)
    if codec.name == "gridref.fits_plio":  # astropy's table swaps these
        stored = stored.view("<i2").astype(">i2").view(np.uint8)
    return Case(codec.name, (codec,), [(values, stored.tobytes())], **more)


def predictor() -> Case:
    """Horizontal differences."""
    values = image_like((5, 13), "i2")
    codec = Codec.of("gridref.tiff_predictor", predictor=2, axis=-1)
    return on_array(codec, (values, imagecodecs.delta_encode(values, axis=-1)))


VOXEL_IMAGES = {
    "jpeg": (imagecodecs.jpeg8_encode, imagecodecs.jpeg8_decode),
    "jpegxl": (partial(imagecodecs.jpegxl_encode, lossless=True), imagecodecs.jpegxl_decode),
    "png": (imagecodecs.png_encode, imagecodecs.png_decode),
}


def voxel_image(name: str) -> Case:
    """Chunks of a precomputed volume: the pixels of an image of rows along x."""
    encode, decode = VOXEL_IMAGES[name]
    pairs = []
    for n_channels in (1, 3):
        pixels = np.moveaxis(voxels("uint8", (n_channels, 3, 5, 8)), 0, -1).reshape(15, 8, -1)
        stored = bytes(encode(np.ascontiguousarray(np.squeeze(pixels))))
        shown = np.moveaxis(decode(stored).reshape(3, 5, 8, n_channels), -1, 0)
        pairs.append((shown, stored))
    return Case(f"gridref.precomputed_{name}", (Codec(f"gridref.precomputed_{name}"),), pairs)


def compressed_segmentation(values: Values) -> bytes:
    """A chunk of all the values, as tensorstore writes it."""
    x, y, z = values.shape[:0:-1]
    with tempfile.TemporaryDirectory() as folder:
        encoding = ENCODINGS["compressed_segmentation"]
        write_volume(Path(folder), values, chunk=(x, y, z), encoding=encoding)
        return Path(folder, f"4_4_40/0-{x}_0-{y}_0-{z}").read_bytes()


SMALL = image_like((4, 6), "i4")
FLOATS = image_like((9, 8), "f4")
RGB = np.clip(image_like((16, 32, 3), "i4") + 100, 0, 255).astype("u1")
RGBA = np.dstack([RGB, IMAGE])
NUMCODECS = {
    "zlib": numcodecs.Zlib(),
    "gzip": numcodecs.GZip(),
    "zstd": numcodecs.Zstd(),
    "blosc": numcodecs.Blosc("zstd", shuffle=numcodecs.Blosc.BITSHUFFLE),
    "fletcher32": numcodecs.Fletcher32(),
    "bz2": numcodecs.BZ2(),
    "lzma": numcodecs.LZMA(),
    "lz4": numcodecs.LZ4(),
    "crc32": numcodecs.CRC32(),
    "crc32c": numcodecs.CRC32C(),
    "adler32": numcodecs.Adler32(),
    "jenkins_lookup3": numcodecs.JenkinsLookup3(),
}

SHORTS = image_like((13, 17), "i2")
BYTES = RANDOM.integers(0, 9, (40, 30)).astype("i2")

CASES = [
    hdf4(lambda each: each.setcompress(SDC.COMP_RLE), "gridref.hdf4_rle", BYTES // 8, BYTES * 99),
    hdf4(lambda each: each.setcompress(SDC.COMP_SKPHUFF, 2), "gridref.hdf4_skphuff", BYTES, SHORTS),
    hdf4(lambda each: set_nbit(each, (7, 6, 1, 1)), "gridref.hdf4_nbit", BYTES, SHORTS),
    hdf4_szip(flag=0),
    hdf4_szip(flag=1),
    on_values(Codec.of("bytes", endian="big"), lambda v: v.byteswap().tobytes(), *NUMBERS),
    on_values(Codec("packbits"), lambda v: np.packbits(v, bitorder="little").tobytes(), BITS),
    strings(
        "vlen-utf8", np.array(["a", "", "日本"], np.dtypes.StringDType()), numcodecs.VLenUTF8()
    ),
    strings("vlen-bytes", np.array([b"a", b"", b"\0b"], object), numcodecs.VLenBytes()),
    on_values(
        Codec("numcodecs.zfpy"),
        lambda v: imagecodecs.zfp_encode(v, header=True),
        FLOATS,
        detects_cuts=False,  # the stream has no end
    ),
    on_values(Codec("numcodecs.pcodec"), imagecodecs.pcodec_encode, FLOATS, SMALL),
    on_values(
        Codec.of(
            "n5_default",
            codecs=[
                {"name": "transpose", "configuration": {"order": [1, 0]}},
                {"name": "bytes", "configuration": {"endian": "big"}},
                {"name": "zstd"},
            ],
        ),
        lambda v: block(v)[:12] + numcodecs.Zstd().encode(block(v)[12:]),
        SMALL,
        FLOATS,
    ),
    on_bytes(Codec("gridref.n5_lz4"), lz4_stream),
    b2nd_chunk(),
    on_array(Codec.of("transpose", order=[1, 0]), (SMALL, np.ascontiguousarray(SMALL.T))),
    on_array(Codec.of("gridref.reverse", axes=[0]), (SMALL, SMALL[::-1].copy())),
    on_array(Codec.of("gridref.renumber", pairs=[[0, 1], [1, 0]]), (IMAGE ^ (IMAGE < 2), IMAGE)),
    on_array(Codec.of("reshape", shape=[[0, 1]]), (SMALL, SMALL.reshape(-1))),
    on_array(Codec.of("gridref.select", axis=1, index=1, length=6), (SMALL[:, 1], SMALL)),
    on_array(Codec.of("scale_offset", scale=2, offset=1), (SMALL / 2 + 1, SMALL.astype("f8"))),
    on_array(Codec.of("cast_value", data_type="uint8"), (IMAGE.astype("i2"), IMAGE)),
    by_numcodecs(SMALL, "delta", dtype="<i4"),
    by_numcodecs(FLOATS, "fixedscaleoffset", scale=10, offset=1, dtype="<f4", astype="<i2"),
    by_numcodecs(FLOATS, "quantize", digits=1, dtype="<f4"),
    by_numcodecs(SMALL, "astype", encode_dtype="<i2", decode_dtype="<i4"),
    by_numcodecs(FLOATS, "bitround", keepbits=5),
    by_numcodecs(BITS, "packbits"),
    on_bytes(Codec.of("gzip", level=5), gzip.compress),
    on_bytes(Codec.of("zstd", level=3, checksum=False), numcodecs.Zstd().encode),
    on_bytes(
        Codec.of("blosc", cname="lz4", clevel=5, shuffle="noshuffle", blocksize=0),
        numcodecs.Blosc("lz4", shuffle=0).encode,
    ),
    on_bytes(Codec("crc32c"), numcodecs.CRC32C(location="end").encode),
    *(on_bytes(Codec(f"numcodecs.{name}"), codec.encode) for name, codec in NUMCODECS.items()),
    on_bytes(
        Codec.of("numcodecs.shuffle", elementsize=4), numcodecs.Shuffle(4).encode, [SMALL, FLOATS]
    ),
    odd_integers(),
    odd_floats(),
    on_array(
        Codec.of("gridref.hdf5_string", padding="spaces"),
        (np.array([b"a", b"bcd", b""], "S3"), np.array([b"a  ", b"bcd", b"   "], "S3")),
    ),
    szip(),
    by_hdf5("lzf", SMALL.repeat(9, 0), compression="lzf"),
    by_hdf5("lz4", SMALL.repeat(9, 0), **hdf5plugin.LZ4()),
    by_hdf5("bzip2", SMALL.repeat(9, 0), **hdf5plugin.BZip2()),
    by_hdf5("bitshuffle", SMALL.repeat(9, 0), **hdf5plugin.Bitshuffle()),
    by_hdf5("blosc2", SMALL.repeat(9, 0), **hdf5plugin.Blosc2("zstd")),
    by_hdf5("zfp", FLOATS, detects_cuts=False, **hdf5plugin.Zfp(reversible=True)),
    on_bytes(Codec("gridref.hdf5_jpegls"), lambda _: imagecodecs.jpegls_encode(IMAGE), [IMAGE]),
    jpeg_filter(),
    on_bytes(Codec("gridref.hdf5_bitgroom"), bytes),
    on_bytes(Codec("gridref.hdf5_granularbr"), bytes),
    nbit(),
    by_hdf5("scaleoffset", SMALL, scaleoffset=0),
    on_bytes(Codec("gridref.tiff_lzw"), imagecodecs.lzw_encode),
    on_bytes(Codec("gridref.tiff_packbits"), imagecodecs.packbits_encode),
    on_bytes(Codec("gridref.tiff_bitorder"), imagecodecs.bitorder_encode),
    packints(),
    float24(),
    rgb_bits(),
    complex_integers(),
    predictor(),
    fits_tile(
        Codec.of("imagecodecs_rcomp", nblock=16), Rice1(blocksize=16, bytepix=4, tilesize=24), SMALL
    ),
    fits_tile(
        Codec.of("imagecodecs_hcomp", smooth=0),
        HCompress1(scale=0, smooth=False, bytepix=8, nx=4, ny=6),
        SMALL,
        detects_cuts=False,  # the stream does not say how long it is
    ),
    fits_tile(Codec("gridref.fits_plio"), PLIO1(tilesize=512), IMAGE.astype("i4")),
    on_array(
        Codec("gridref.fits_unsigned"),
        (np.array([0, 2**63, 2**64 - 1], "u8"), np.array([-(2**63), 0, 2**63 - 1], "i8")),
    ),
    image("jpeg", imagecodecs.jpeg8_encode(IMAGE, level=90), imagecodecs.jpeg8_decode),
    image("jpeg2000", imagecodecs.jpeg2k_encode(IMAGE), imagecodecs.jpeg2k_decode),
    on_values(Codec.of("gridref.jpeg2000"), by_openjpeg, IMAGE),
    tile_of_jpeg2000(),
    image("jpegxl", imagecodecs.jpegxl_encode(IMAGE, lossless=True), imagecodecs.jpegxl_decode),
    image("jpegxr", imagecodecs.jpegxr_encode(RGB), imagecodecs.jpegxr_decode),
    image("jpegxr", imagecodecs.jpegxr_encode(RGBA), imagecodecs.jpegxr_decode),
    image("png", imagecodecs.png_encode(IMAGE), imagecodecs.png_decode),
    image("webp", imagecodecs.webp_encode(RGB, lossless=True), imagecodecs.webp_decode),
    image("lerc", imagecodecs.lerc_encode(IMAGE), imagecodecs.lerc_decode),
    *(ccitt(scheme) for scheme in CCITT),
    *(voxel_image(name) for name in VOXEL_IMAGES),
    on_values(
        Codec.of("gridref.compressed_segmentation", block_shape=[2, 4, 8]),
        compressed_segmentation,
        voxels("uint32", (2, 7, 9, 13)),
        voxels("uint64", (1, 4, 4, 8)),
    ),
]


@pytest.mark.parametrize("scheme", CCITT)
def test_ccitt_streams_that_are_cut_are_refused(scheme: str) -> None:
    case = ccitt(scheme)
    shown, stored = case.pairs[0]
    n_refused = 0
    for n_bytes in range(len(stored)):
        encoding = Encoding(shown.shape, shown.dtype, case.chain)
        try:
            decoded = decode_chunk(stored[:n_bytes], encoding)
        except DecodeError:
            n_refused += 1
        else:
            np.testing.assert_array_equal(decoded, shown, f"{n_bytes} bytes")
    assert n_refused > len(stored) // 2


class TestOwnCodecs(CodecTests):
    case: Case

    @pytest.fixture(autouse=True, params=CASES, ids=lambda case: case.name)
    def _case(self, request: pytest.FixtureRequest) -> None:
        self.case = request.param
        self.codec, self.chain = self.case.codec, self.case.chain
        self.detects_cuts = self.case.detects_cuts

    @override
    def chunks(self) -> Sequence[Values]:
        return [values for values, _ in self.case.pairs]

    @override
    def encode(self, values: Values) -> bytes:
        return next(stored for chunk, stored in self.case.pairs if chunk is values)


def test_every_codec_has_a_case() -> None:
    assert {case.name for case in CASES} | NO_CASE.keys() == own_codecs().keys()
    assert not NO_CASE.keys() & {case.name for case in CASES}
