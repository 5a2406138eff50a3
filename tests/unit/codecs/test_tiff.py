from __future__ import annotations

import io
import logging
import zlib

import imagecodecs
import numpy as np
import pytest
import tifffile

from gridref.codecs import decode_chunk, why_not
from gridref.codecs.tiff import split_jpeg_tables
from gridref.errors import DecodeError
from gridref.model.encoding import Codec, EdgePolicy, Encoding, bytes_codec
from tests.unit.codecs.support import encoding, image_like

logging.getLogger("tifffile").setLevel(logging.CRITICAL)

IMAGES = {
    **dict.fromkeys((6, 7, 33007, 34892), "jpeg"),
    **dict.fromkeys((33003, 33004, 33005, 34712), "jpeg2000"),
    **dict.fromkeys((22610, 34934), "jpegxr"),
    **dict.fromkeys((50002, 52546), "jpegxl"),
    34887: "lerc",
    34933: "png",
    50001: "webp",
}
COMPRESSIONS = {
    1: (),
    5: (Codec("gridref.tiff_lzw"),),
    32773: (Codec("gridref.tiff_packbits"),),
    **dict.fromkeys((8, 32946, 50013), (Codec("numcodecs.zlib"),)),
    50000: (Codec("zstd"),),
    34925: (Codec("numcodecs.lzma"),),
}
CCITT = {2: "rle", 3: "fax3", 4: "fax4"}


def page_encoding(page):
    """The encoding of a page's segments; None where tifffile does not decode them."""
    samples = page.samplesperpixel if page.planarconfig == 1 else 1
    width = page.tilewidth if page.is_tiled else page.imagewidth
    rows = page.tilelength if page.is_tiled else page.rowsperstrip
    depth = page.tiledepth if page.is_tiled else 1
    chain = _chain(page, width, samples, rows)
    if chain is None:
        return None
    shape = (depth, rows, width, samples)
    edge = EdgePolicy.PADDED if page.is_tiled else EdgePolicy.TRUNCATED
    tables = page.jpegtables if page.compression == 7 else None
    return Encoding(shape, page.dtype, chain, edge, prefix=tables or b"")


def _chain(page, width, samples, rows):
    if page.dtype is None or (page.is_subsampled and page.compression not in IMAGES):
        return None
    plain = bytes_codec(page.dtype)
    bit_order = (Codec("gridref.tiff_bitorder"),) if page.fillorder == 2 else ()
    if page.compression in IMAGES:
        name, colours = IMAGES[page.compression], {}
        if name == "jpeg":
            names = ("colorspace", "outcolorspace")
            found = tifffile.tifffile.jpeg_decode_colorspace(
                page.photometric, page.planarconfig, page.extrasamples, page.is_jfif
            )
            pairs = zip(names, found, strict=True)
            colours = {key: int(value) for key, value in pairs if value is not None}
        size = {"width": width, "samples": samples, "rows": rows}
        return plain, Codec.of(f"gridref.tiff_{name}", **size, **colours)
    if page.compression in CCITT:
        options = page.tags.valueof(292, 0)
        scheme = {"scheme": CCITT[page.compression], "t4options": int(options)}
        codec = Codec.of("gridref.tiff_ccitt", width=width, samples=samples, **scheme)
        return (plain, codec, *bit_order) if samples == 1 and page.bitspersample == 1 else None
    if page.compression not in COMPRESSIONS:
        return None
    before = ()
    if page.predictor != 1:
        before = (Codec.of("gridref.tiff_predictor", predictor=int(page.predictor), axis=-2),)
    packing = _packing(page, width * samples)
    return (*before, *packing, *COMPRESSIONS[page.compression], *bit_order)


def _packing(page, run_length):
    plain, bits = bytes_codec(page.dtype), page.bitspersample
    endian = "big" if page.parent.byteorder == ">" else "little"
    name = page.dtype.name
    if page.sampleformat == 5:
        return plain, Codec.of("gridref.tiff_complex_integers", bits=bits // 2, endian=endian)
    if isinstance(bits, tuple):
        return plain, Codec.of("gridref.tiff_rgb_bits", bits=list(bits), dtype=name, endian=endian)
    if bits in (8, 16, 32, 64, 128):
        return (bytes_codec(page.dtype, big_endian=endian == "big" and page.predictor != 3),)
    if page.dtype.kind == "f":
        return plain, Codec.of("gridref.tiff_float24", endian=endian)
    return plain, Codec.of("gridref.tiff_packints", bits=bits, dtype=name, run_length=run_length)


def check_page(tiff, page, limit=100):
    """Compare the segments of a page with tifffile; how many could be."""
    keyframe = page.keyframe
    encoded = page_encoding(keyframe)
    if encoded is None:
        return 0
    n_compared = 0
    tiff._decoders.clear()  # noqa: SLF001 (its keys lack T4Options)
    segments = list(zip(page.dataoffsets, page.databytecounts, strict=True))[:limit]
    for index, (offset, count) in enumerate(segments):
        if not count:
            continue
        tiff.filehandle.seek(offset)
        raw = tiff.filehandle.read(count)
        tables = {"jpegtables": page.jpegtables} if keyframe.compression in (6, 7) else {}
        try:
            wanted, _, shape = keyframe.decode(raw, index, **tables)
        except Exception:  # noqa: BLE001, S112 (whatever it is, tifffile does not decode it)
            continue
        if wanted.shape[1:3] != shape[1:3]:
            continue  # a tile that lacks the rows behind the image's end
        if keyframe.compression == 1:
            n_pixels = int(np.prod(shape))
            raw = raw[: n_pixels * np.max(keyframe.bitspersample) // 8 or None]
            raw = raw if isinstance(keyframe.bitspersample, int) else tiff.filehandle.read(0)
            if not raw or keyframe.bitspersample % 8:
                continue
        found = decode_chunk(raw, encoded, tuple(shape))
        assert found.dtype == keyframe.dtype
        assert found.tobytes() == wanted.astype(keyframe.dtype).tobytes()
        n_compared += 1
    return n_compared


def written(values, **options):
    stream = io.BytesIO()
    tifffile.imwrite(stream, values, metadata=None, **options)
    stream.seek(0)
    return tifffile.TiffFile(stream)


RAW = ["u1", "i2", "u4", "i8", "f2", "f4", "f8", "c8"]


TILES, STRIPS = {"tile": (16, 32)}, {"rowsperstrip": 7}


@pytest.mark.parametrize("byteorder", "<>")
@pytest.mark.parametrize("dtype", RAW)
def test_byte_orders(byteorder, dtype):
    options = {"compression": "lzw", "byteorder": byteorder, "photometric": "minisblack"}
    with written(image_like((37, 45), dtype), **TILES, **options) as tiff:
        assert check_page(tiff, tiff.pages[0]) >= 6


@pytest.mark.parametrize("compression", ["lzw", "packbits", "zlib", "zstd", "lzma"])
@pytest.mark.parametrize("layout", [TILES, STRIPS], ids=str)
def test_compressions(compression, layout):
    for dtype in ("u1", "f8"):
        options = {"compression": compression, "photometric": "minisblack"}
        with written(image_like((37, 45), dtype), **layout, **options) as tiff:
            assert check_page(tiff, tiff.pages[0]) >= 6


@pytest.mark.parametrize("byteorder", "<>")
@pytest.mark.parametrize(
    ("dtype", "predictor"),
    [(dtype, 2) for dtype in ("u1", "i2", "u4", "i8")] + [(f, 3) for f in ("f2", "f4", "f8")],
)
@pytest.mark.parametrize(("planar", "layout"), [("contig", TILES), ("separate", STRIPS)], ids=str)
def test_predictors(byteorder, dtype, predictor, planar, layout):
    shape = (37, 45, 3) if planar == "contig" else (3, 37, 45)
    options = {"predictor": predictor, "photometric": "rgb", "planarconfig": planar}
    values = image_like(shape, dtype)
    with written(values, compression="zlib", byteorder=byteorder, **layout, **options) as tiff:
        assert check_page(tiff, tiff.pages[0]) >= 6


@pytest.mark.parametrize("name", ["jpeg2000", "jpegxl", "png", "webp", "lerc", "jpegxr"])
@pytest.mark.parametrize("samples", [1, 3, 4])
@pytest.mark.parametrize("layout", [{"tile": (16, 32)}, {"rowsperstrip": 16}], ids=str)
def test_images(name, samples, layout):
    if name == "webp" and samples == 1:
        samples = 3
    shape = (37, 45) if samples == 1 else (37, 45, samples)
    values = np.clip(image_like(shape, "i4") + 100, 0, 255).astype("u1")
    options = {"photometric": "minisblack"} if samples == 1 else {"photometric": "rgb"}
    if samples == 4:
        options["extrasamples"] = ["unassalpha"]
    with written(values, compression=name, **layout, **options) as tiff:
        assert check_page(tiff, tiff.pages[0]) >= 3


@pytest.mark.parametrize("photometric", ["minisblack", "rgb", "ycbcr"])
@pytest.mark.parametrize("layout", [{"tile": (16, 32)}, {"rowsperstrip": 16}], ids=str)
def test_jpeg(photometric, layout):
    shape = (37, 45) if photometric == "minisblack" else (37, 45, 3)
    values = np.clip(image_like(shape, "i4") + 100, 0, 255).astype("u1")
    compression = {"compression": "jpeg", "compressionargs": {"level": 80}}
    with written(values, photometric=photometric, **compression, **layout) as tiff:
        assert check_page(tiff, tiff.pages[0]) >= 3


def _split_stream(stream):
    """Tables and image of a JPEG stream, as TIFF writers keep them apart."""
    tables, image, position = bytearray(stream[:2]), bytearray(stream[:2]), 2
    while stream[position + 1] != 0xDA:
        size = 2 + int.from_bytes(stream[position + 2 : position + 4], "big")
        part = stream[position : position + size]
        (tables if part[1] in (0xC4, 0xDB) else image).extend(part)
        position += size
    return bytes(tables) + b"\xff\xd9", bytes(image) + stream[position:]


def test_jpeg_tables_as_prefix():
    values = np.clip(image_like((24, 32), "i4") + 100, 0, 255).astype("u1")
    stream = imagecodecs.jpeg8_encode(values, level=90)
    wanted = imagecodecs.jpeg8_decode(stream)
    tables, image = _split_stream(stream)
    assert split_jpeg_tables(tables + image) == (tables, image)
    assert split_jpeg_tables(stream) == (None, stream)
    codec = Codec.of("gridref.tiff_jpeg", width=32, samples=1)
    chain = (Codec("bytes"), codec)
    for prefix, data in ((tables, image), (tables[:-2], image[2:]), (b"", stream)):
        encoded = Encoding((24, 32), np.dtype("u1"), chain, prefix=prefix)
        np.testing.assert_array_equal(decode_chunk(data, encoded), wanted)
    with pytest.raises(DecodeError, match="tiff_jpeg"):
        decode_chunk(image, Encoding((24, 32), np.dtype("u1"), chain))


def test_the_last_strip_may_have_more_rows():
    values = image_like((16, 32), "u1")
    stored = imagecodecs.png_encode(values)
    codec = Codec.of("gridref.tiff_png", width=32, samples=1, rows=16)
    encoded = Encoding((16, 32), np.dtype("u1"), (Codec("bytes"), codec))
    np.testing.assert_array_equal(decode_chunk(stored, encoded, (5, 32)), values[:5])
    np.testing.assert_array_equal(
        decode_chunk(imagecodecs.png_encode(values[:5]), encoded, (5, 32)), values[:5]
    )
    for other in (values[:6], values[:4], values[:, :31], values.T):
        with pytest.raises(DecodeError, match="tiff_png"):
            decode_chunk(imagecodecs.png_encode(np.ascontiguousarray(other)), encoded, (5, 32))


def test_images_of_another_dtype():
    stored = imagecodecs.png_encode(image_like((16, 32), "u2"))
    codec = Codec.of("gridref.tiff_png", width=32, samples=1)
    with pytest.raises(DecodeError, match="tiff_png"):
        decode_chunk(stored, Encoding((16, 32), np.dtype("u1"), (Codec("bytes"), codec)))


def test_images_that_are_too_large_are_not_decoded():
    image = np.zeros((500, 500), "u1")
    encoders = {
        "jpeg": imagecodecs.jpeg8_encode,
        "jpeg2000": imagecodecs.jpeg2k_encode,
        "jpegxl": imagecodecs.jpegxl_encode,
        "png": imagecodecs.png_encode,
        "lerc": imagecodecs.lerc_encode,
    }
    for name, encode in encoders.items():
        codec = Codec.of(f"gridref.tiff_{name}", width=16, samples=1, rows=16)
        encoded = Encoding((16, 16), np.dtype("u1"), (Codec("bytes"), codec))
        with pytest.raises(DecodeError, match=f"tiff_{name}"):
            decode_chunk(encode(image), encoded)


def test_lossless_jpeg():
    values = image_like((24, 32), "u2")
    stored = imagecodecs.ljpeg_encode(values, bitspersample=16)
    codec = Codec.of("gridref.tiff_jpeg", width=32, samples=1)
    chain = (bytes_codec(values.dtype), codec)
    np.testing.assert_array_equal(
        decode_chunk(stored, Encoding((24, 32), values.dtype, chain)), values
    )


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 7, 9, 10, 12, 14, 15, 17, 24, 31])
def test_odd_bit_depths(bits):
    dtype = np.dtype("u1" if bits < 8 else "u2" if bits < 16 else "u4")
    values = np.random.default_rng(0).integers(0, 1 << bits, (5, 7, 3)).astype(dtype)
    stored = imagecodecs.packints_encode(values, bits, runlen=21)
    codec = Codec.of("gridref.tiff_packints", bits=bits, dtype=dtype.name, run_length=21)
    for data, chain in (
        (stored, (codec,)),
        (zlib.compress(stored), (codec, Codec("numcodecs.zlib"))),
    ):
        encoded = encoding(values, *chain)
        np.testing.assert_array_equal(decode_chunk(data, encoded), values)
    with pytest.raises(DecodeError, match="tiff_packints"):
        decode_chunk(stored[:-1], encoding(values, codec))
    row = -(-bits * 21 // 8)
    encoded = encoding(values, codec)
    np.testing.assert_array_equal(decode_chunk(stored[: 2 * row], encoded, (2, 7, 3)), values[:2])


def test_bilevel():
    values = image_like((5, 13), bool)
    stored = np.packbits(values, axis=-1).tobytes()
    codec = Codec.of("gridref.tiff_packints", bits=1, dtype="bool", run_length=13)
    np.testing.assert_array_equal(decode_chunk(stored, encoding(values, codec)), values)
    reversed_bits = imagecodecs.bitorder_decode(stored)
    encoded = encoding(values, codec, Codec("gridref.tiff_bitorder"))
    np.testing.assert_array_equal(decode_chunk(reversed_bits, encoded), values)


@pytest.mark.parametrize("endian", ["little", "big"])
def test_floats_of_24_bits(endian):
    values = image_like((5, 13), "f4")
    stored = imagecodecs.float24_encode(values, byteorder="<" if endian == "little" else ">")
    wanted = imagecodecs.float24_decode(stored, byteorder="<" if endian == "little" else ">")
    codec = Codec.of("gridref.tiff_float24", endian=endian)
    decoded = decode_chunk(stored, encoding(values, codec))
    np.testing.assert_array_equal(decoded, wanted.reshape(5, 13))


@pytest.mark.parametrize(
    "bits", [[3, 3, 2], [8, 1], [5, 6, 5], [5, 5, 5], [4, 4, 4, 4], [9, 8], [10, 10, 10]], ids=str
)
@pytest.mark.parametrize("endian", ["little", "big"])
def test_pixels_of_odd_samples(bits, endian):
    dtype = np.dtype("u1" if max(bits) <= 8 else "u2")
    stored = np.random.default_rng(0).integers(0, 256, 40, "u1").tobytes()
    order = "<" if endian == "little" else ">"
    wanted = tifffile.tifffile.unpack_rgb(stored, dtype.newbyteorder(order), tuple(bits))
    codec = Codec.of("gridref.tiff_rgb_bits", bits=bits, dtype=dtype.name, endian=endian)
    if endian == "big" and dtype.itemsize == 1:
        assert "readers disagree" in str(why_not(codec))
        return
    encoded = encoding(wanted.astype(dtype), codec)
    np.testing.assert_array_equal(decode_chunk(stored, encoded), wanted)


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("endian", ["little", "big"])
def test_complex_integers(bits, endian):
    parts = np.random.default_rng(0).integers(-100, 100, (5, 7, 2))
    wanted = (parts[..., 0] + 1j * parts[..., 1]).astype("c16" if bits == 32 else "c8")
    stored = parts.astype(f"{'<' if endian == 'little' else '>'}i{bits // 8}").tobytes()
    codec = Codec.of("gridref.tiff_complex_integers", bits=bits, endian=endian)
    np.testing.assert_array_equal(decode_chunk(stored, encoding(wanted, codec)), wanted)


@pytest.mark.parametrize(
    ("predictor", "dtype", "distance"), [(2, "i2", 1), (3, "f4", 1), (3, "f4", 2), (3, "f8", 4)]
)
def test_predictors_of_other_axes_and_distances(predictor, dtype, distance):
    values = image_like((3, 8, 20), dtype)
    encode = imagecodecs.delta_encode if predictor == 2 else imagecodecs.floatpred_encode
    stored = encode(values, axis=-1, dist=distance)
    for axis in (2, -1):
        codec = Codec.of(
            "gridref.tiff_predictor", predictor=predictor, axis=axis, distance=distance
        )
        decoded = decode_chunk(stored.tobytes(), encoding(values, before=(codec,)))
        np.testing.assert_array_equal(decoded, values)


def test_lzw_and_packbits_are_cut_where_the_chunk_ends():
    values = image_like((5, 13), "u1")
    longer = values.tobytes() + bytes(100)
    shorter = values.tobytes()[:-13]
    for name, encode in (
        ("gridref.tiff_lzw", imagecodecs.lzw_encode),
        ("gridref.tiff_packbits", imagecodecs.packbits_encode),
    ):
        encoded = encoding(values, Codec(name))
        np.testing.assert_array_equal(decode_chunk(encode(longer), encoded), values)
        with pytest.raises(DecodeError, match="decodes to 52 bytes, expected 65"):
            decode_chunk(encode(shorter), encoded)
        padded = decode_chunk(encode(shorter), encoding(values, Codec.of(name, short_bytes=52)))
        np.testing.assert_array_equal(padded[:4], values[:4])
        assert not padded[4].any()
        with pytest.raises(DecodeError, match="decodes to 51 bytes, expected 65"):
            decode_chunk(encode(shorter[:-1]), encoding(values, Codec.of(name, short_bytes=52)))
