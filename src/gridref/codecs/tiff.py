"""TIFF's own compressions, packings and predictors, and images that it uses as compressions.

Sources: TIFF 6.0, sections 9 (PackBits), 10 and 11 (CCITT), 13 (LZW), 14 (predictor 2) and 22
(JPEG, superseded by Adobe Photoshop TIFF Technical Note 2: JPEG tables), ``FillOrder`` and
``BitsPerSample``; Adobe Photoshop TIFF Technical Note 3 (predictor 3 and floats of 24 bits); ITU-T
T.81, B.1 and B.2 (JPEG markers); Adobe DNG 1.7, "Compression"; ITU-T T.832, annex A (the file
format of JPEG XR). In doubtful cases, the decoded bytes are those of tifffile's `TiffPage.decode`;
the decoders of images and their parameters are its, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from gridref.codecs.stage import (
    AnyCodec,
    ArrayCodec,
    ArrayDecode,
    ArraySpec,
    BytesCodec,
    BytesDecode,
    Config,
    Raw,
    as_bytes,
    most_bytes,
    same_bytes,
)


def little_endian_bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of an array's elements in C order, each in little-endian order."""
    ordered = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    flat: NDArray[np.uint8] = ordered.reshape(-1).view(np.uint8)
    return flat


def _lzw_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    size = most_bytes(decoded_bytes)
    short = config.get("short_bytes")
    # The decoder stops where the output is full.
    return lambda raw: _padded(imagecodecs.lzw_decode(raw, out=size), short, decoded_bytes)


def _packbits_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    short = config.get("short_bytes")
    # A byte makes 64 at most: the output needs no limit.
    return lambda raw: _padded(
        imagecodecs.packbits_decode(raw)[:decoded_bytes], short, decoded_bytes
    )


def _padded(decoded: Raw, short: int | None, decoded_bytes: int | None) -> Raw:
    """Pad a tile that lacks the rows beyond the end of the image."""
    if short is not None and decoded_bytes is not None and len(decoded) == short:
        return as_bytes(decoded).ljust(decoded_bytes, b"\0")
    return decoded


def _byte_order(config: Config) -> Literal["<", ">"]:
    return ">" if config.get("endian", "little") == "big" else "<"


def _endian_problem(config: Config) -> str | None:
    endian = config.get("endian", "little")
    return None if endian in ("little", "big") else f"endian {endian!r} is neither big nor little"


def _packints_stored_bytes(config: Config, decoded: int | None, spec: ArraySpec) -> int | None:
    if decoded is None:
        return None
    run_length = int(config["run_length"])
    n_values = decoded // np.dtype(config["dtype"]).itemsize
    rows, rest = divmod(n_values, run_length)
    if rest:
        raise ValueError(f"{n_values} values are no rows of {run_length}")
    return rows * -(-int(config["bits"]) * run_length // 8)


def _packints_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    """Rows begin on a byte boundary, and the highest bit of a value comes first in any file."""
    dtype = np.dtype(config["dtype"])
    bits, run_length = config["bits"], config["run_length"]

    def decode(raw: Raw) -> Raw:
        values = imagecodecs.packints_decode(as_bytes(raw), dtype, bits, runlen=run_length)
        return little_endian_bytes(values)

    return decode


def _packints_problem(config: Config) -> str | None:
    bits, dtype = config["bits"], np.dtype(config["dtype"])
    if dtype.kind not in "bu" or not 1 <= bits <= 8 * dtype.itemsize:
        return f"{bits} bits do not become {dtype}"
    if bits > 31:
        return f"integers of {bits} bits are not supported"
    if config["run_length"] < 1:
        return f"run_length must be >= 1, got {config['run_length']}"
    return _endian_problem(config)


def _float24_stored_bytes(config: Config, decoded: int | None, spec: ArraySpec) -> int | None:
    return None if decoded is None else decoded // 4 * 3


def _float24_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    order = _byte_order(config)
    return lambda raw: little_endian_bytes(
        imagecodecs.float24_decode(as_bytes(raw), byteorder=order)
    )


def _pixel_dtype(config: Config) -> np.dtype[Any]:
    """The unsigned integer that holds all samples of a pixel."""
    n_bits = sum(config["bits"])
    size = next(size for size in (1, 2, 4) if 8 * size >= n_bits)
    return np.dtype(f"{_byte_order(config)}u{size}")


def _rgb_bits_problem(config: Config) -> str | None:
    n_bits, dtype = sum(config["bits"]), np.dtype(config["dtype"])
    if dtype.kind != "u" or n_bits > 32 or max(config["bits"]) > 8 * dtype.itemsize:
        return f"samples of {config['bits']} bits do not become {dtype}"
    if config.get("endian") == "big" and dtype.itemsize == 1:
        return "readers disagree about the byte order of pixels of odd samples"
    return _endian_problem(config)


def _rgb_bits_stored_bytes(config: Config, decoded: int | None, spec: ArraySpec) -> int | None:
    if decoded is None:
        return None
    n_pixels = decoded // (np.dtype(config["dtype"]).itemsize * len(config["bits"]))
    return n_pixels * _pixel_dtype(config).itemsize


def _rgb_bits_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    """Samples are stretched to all bits of the dtype by repeating their bits."""
    dtype, pixel_dtype = np.dtype(config["dtype"]), _pixel_dtype(config)
    widths = config["bits"]
    target_bits = 8 * dtype.itemsize

    def decode(raw: Raw) -> Raw:
        pixels = np.frombuffer(raw, pixel_dtype).astype(np.uint64)
        samples = np.empty((len(pixels), len(widths)), dtype)
        for index, width in enumerate(widths):
            sample = pixels >> sum(widths[index + 1 :]) & ((1 << width) - 1)
            repeated = (target_bits // width + 1) * width
            sample *= ((1 << repeated) - 1) // ((1 << width) - 1)
            samples[:, index] = sample >> (repeated - target_bits)
        return little_endian_bytes(samples)

    return decode


def _complex_stored_bytes(config: Config, decoded: int | None, spec: ArraySpec) -> int | None:
    return None if decoded is None else decoded // spec.dtype.itemsize * config["bits"] // 4


def _complex_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    """Pairs of integers: real and imaginary part."""
    if spec.dtype.kind != "c":
        raise ValueError(f"decodes to complex numbers, not {spec.dtype}")
    part = np.dtype(f"{_byte_order(config)}i{config['bits'] // 8}")
    real = np.dtype(f"f{spec.dtype.itemsize // 2}")
    return lambda raw: little_endian_bytes(np.frombuffer(raw, part).astype(real))


def _complex_problem(config: Config) -> str | None:
    if config["bits"] not in (8, 16, 32):
        return f"parts of {config['bits']} bits are not supported"
    return _endian_problem(config)


def _predictor_problem(config: Config) -> str | None:
    if config["predictor"] not in (2, 3):
        return f"predictor {config['predictor']} is unknown"
    # imagecodecs, and with it tifffile, has other distances for floats only.
    if config.get("distance", 1) not in ((1,) if config["predictor"] == 2 else (1, 2, 4)):
        return f"distance {config['distance']} of predictor {config['predictor']} is not supported"
    return None


def _predictor_decoder(config: Config, spec: ArraySpec) -> ArrayDecode:
    """Undo differences along the width of the image, for each sample by itself."""
    is_float = config["predictor"] == 3
    if is_float and spec.dtype.kind != "f":
        raise ValueError(f"predictor 3 does not apply to {spec.dtype}")
    axis, distance = config["axis"], config.get("distance", 1)
    axis += len(spec.shape) if axis < 0 else 0
    shape = (
        math.prod(spec.shape[:axis]),
        spec.shape[axis],
        math.prod(spec.shape[axis + 1 :]),
    )
    undo = imagecodecs.floatpred_decode if is_float else imagecodecs.delta_decode

    def decode(stored: NDArray[Any]) -> NDArray[Any]:
        if stored.size == 0:
            return stored
        rows = np.ascontiguousarray(stored).reshape(shape)
        values: NDArray[Any] = undo(rows, axis=-2, dist=distance)
        return values.reshape(spec.shape)

    return decode


# Images: each segment is an image of its own


type _Segment = tuple[int, int, int]
"""Rows, width and samples of a segment."""

type _ImageDecoder = Callable[[bytes, Config, NDArray[Any]], NDArray[Any]]
"""Decodes into an array of the size and dtype that the image must have."""


def _segment(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> _Segment:
    width, samples = int(config["width"]), int(config["samples"])
    size = spec.n_bytes if decoded_bytes is None else decoded_bytes
    rows, rest = divmod(size, width * samples * spec.dtype.itemsize)
    if rest:
        raise ValueError(f"{size} bytes are no rows of {width} pixels of {samples} samples")
    return rows, width, samples


def _image_decoder(
    decode_image: _ImageDecoder, config: Config, decoded_bytes: int | None, spec: ArraySpec
) -> BytesDecode:
    rows, width, samples = _segment(config, decoded_bytes, spec)
    # The last strip of an image may be stored with as many rows as the others.
    heights = [rows, config["rows"]] if config.get("rows", 0) > rows else [rows]
    last = heights[-1]

    def decode(raw: Raw) -> Raw:
        data = as_bytes(raw)
        for height in heights:
            # The decoders compare the size of the image with the output before they decode it.
            out = np.empty((height, width, samples)[: 2 + (samples > 1)], spec.dtype)
            try:
                image = decode_image(data, config, out)
            except ValueError:
                if height == last:
                    raise
            else:
                return little_endian_bytes(image[:rows])
        raise AssertionError("unreachable")

    return decode


_SOI, _EOI = b"\xff\xd8", b"\xff\xd9"
_LOSSLESS_FRAME, _START_OF_SCAN = 0xC3, 0xDA


def marker_segments(stream: bytes) -> Iterator[int]:
    """Where the marker segments of a JPEG stream begin, up to its first scan."""
    position = 2
    while stream[:2] == _SOI and position + 4 <= len(stream) and stream[position] == 0xFF:
        if stream[position + 1] == _START_OF_SCAN:
            return
        yield position
        position += 2 + int.from_bytes(stream[position + 2 : position + 4], "big")


def split_jpeg_tables(stream: bytes) -> tuple[bytes | None, bytes]:
    """Split a stream of tables from the image that follows it.

    Parameters
    ----------
    stream
        An image, or a whole stream of tables (SOI, tables, EOI) followed by an image.

    Returns
    -------
    tuple
        The stream of tables or None, and the image.
    """
    for position in marker_segments(stream):
        if stream[position : position + 2] == _EOI:
            return stream[: position + 2], stream[position + 2 :]
    return None, stream


def _lossless_frame(stream: bytes) -> tuple[int, ...]:
    """Shape of the frame of a lossless JPEG stream (T.81, B.2.2); empty for other streams."""
    for position in marker_segments(stream):
        if stream[position + 1] == _LOSSLESS_FRAME:
            rows, width, samples = (
                int.from_bytes(stream[position + start : position + stop], "big")
                for start, stop in ((5, 7), (7, 9), (9, 10))
            )
            return (rows, width, samples)[: 2 + (samples > 1)]
    return ()


def _decode_jpeg(data: bytes, config: Config, out: NDArray[Any]) -> NDArray[Any]:
    tables, image = split_jpeg_tables(data)
    # In DNG a lossless frame may have the samples of a tile in another shape: two neighbours are
    # one pixel of two components, as each is predicted from samples of its own component.
    frame = _lossless_frame(image)
    framed = out.reshape(frame) if frame and math.prod(frame) == out.size else out
    decoded: NDArray[Any]
    try:
        decoded = imagecodecs.jpeg_decode(
            image,
            tables=tables,
            colorspace=config.get("colorspace"),
            outcolorspace=config.get("outcolorspace"),
            shape=framed.shape[:2],
            out=framed,
        )
    except imagecodecs.Jpeg8Error as error:
        # Lossless JPEG of more precisions and colours, as in DNG.
        try:
            decoded = imagecodecs.ljpeg_decode(image, out=framed)
        except imagecodecs.LjpegError:
            raise error from None
    return decoded.reshape(out.shape)


_CODESTREAM_START = b"\xff\x4f\xff\x51"
"""JPEG 2000: start of codestream, and of the marker segment with the size of the image."""


def _decode_jpeg2000(data: bytes, config: Config, out: NDArray[Any]) -> NDArray[Any]:
    start = data.find(_CODESTREAM_START)
    # ITU-T T.800, A.5.1: Xsiz, Ysiz, XOsiz, YOsiz. This decoder looks at the output afterwards.
    size = np.frombuffer(data[start + 8 : start + 24], ">u4").astype(np.int64)
    if start < 0 or len(size) < 4:
        raise ValueError("is no JPEG 2000 codestream")
    pixels = (int(size[1] - size[3]), int(size[0] - size[2]))
    if pixels != out.shape[:2]:
        raise ValueError(f"holds an image of {pixels} pixels, expected {out.shape[:2]}")
    decoded: NDArray[Any] = imagecodecs.jpeg2k_decode(data, numthreads=1, out=out)
    return decoded


_JPEGXR_START = b"II\xbc"
_JPEGXR_IMAGE, _JPEGXR_ALPHA = (0xBCC0, 0xBCC1), (0xBCC2, 0xBCC3)
"""Tags of JPEG XR: offset and size in bytes of the image, and of its alpha plane."""


def _jpegxr_bytes(data: bytes) -> int:
    """The least size in bytes of a JPEG XR file, by its directory."""
    start = int.from_bytes(data[4:8], "little")
    n_entries = int.from_bytes(data[start : start + 2], "little")
    listed = data[start + 2 : start + 2 + 12 * n_entries]
    if not data.startswith(_JPEGXR_START) or not 0 < 12 * n_entries == len(listed):
        raise ValueError("is no JPEG XR file")
    entries = np.frombuffer(listed, [("tag", "<u2"), ("type", "<u2"), ("n", "<u4"), ("at", "<u4")])
    values = {int(entry["tag"]): int(entry["at"]) for entry in entries}
    # The reference encoder writes the end of the alpha plane where its size belongs.
    return max(
        sum(values.get(tag, 0) for tag in _JPEGXR_IMAGE),
        *(values.get(tag, 0) for tag in _JPEGXR_ALPHA),
    )


def _decode_jpegxr(data: bytes, config: Config, out: NDArray[Any]) -> NDArray[Any]:
    # This decoder invents the missing part of a truncated image.
    wanted = _jpegxr_bytes(data)
    if len(data) < wanted:
        raise ValueError(f"is cut short: {len(data)} instead of {wanted} bytes")
    decoded: NDArray[Any] = imagecodecs.jpegxr_decode(data, out=out)
    return decoded


def _decode_webp(data: bytes, config: Config, out: NDArray[Any]) -> NDArray[Any]:
    # A segment may leave out an alpha channel that is opaque all over.
    has_alpha = True if out.shape[2:] == (4,) else None
    decoded: NDArray[Any] = imagecodecs.webp_decode(data, hasalpha=has_alpha, out=out)
    return decoded


def _decode_lerc(data: bytes, config: Config, out: NDArray[Any]) -> NDArray[Any]:
    """Decode as libtiff does: floats outside the mask of valid pixels are NaN.

    Bands with masks of their own are planes, one after the other. An alpha channel of bytes may be
    the mask alone.
    """
    pixels, (n_samples,) = out.shape[:2], out.shape[2:] or (1,)
    colours = (*pixels, n_samples - 1)[: 2 + (n_samples > 2)]
    image, valid = _lerc_image(data, out.dtype, [out.shape, (n_samples, *pixels), colours])
    valid = np.ones(pixels, bool) if valid is None else valid
    if image.size < out.size:
        alpha = valid.astype(out.dtype) * np.iinfo(out.dtype).max
        return np.dstack([image, alpha])
    if out.dtype.kind == "f":
        image[~valid if image.shape == out.shape else (..., ~valid)] = np.nan
    return image if image.shape == out.shape else np.moveaxis(image, 0, -1)


def _lerc_image(
    data: bytes, dtype: np.dtype[Any], shapes: list[tuple[int, ...]]
) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """The image, in the first of these shapes that it has, and its mask."""
    shape, *others = shapes
    try:
        return imagecodecs.lerc_decode(data, masks=True, out=np.empty(shape, dtype))
    except ValueError:  # it has another shape, which is compared before it is decoded
        if not others:
            raise
        return _lerc_image(data, dtype, others)


def _plain(decode: Callable[..., NDArray[Any]]) -> _ImageDecoder:
    return lambda data, config, out: decode(data, out=out)


def _decode_ccitt(data: bytes, config: Config, out: NDArray[Any]) -> NDArray[Any]:
    rows, width = out.shape
    if out.dtype != np.bool_:
        raise ValueError(f"decodes to bool, not {out.dtype}")
    options = {"t4options": config.get("t4options", 0)} if config["scheme"] == "fax3" else {}
    decode = partial(_CCITT_DECODERS[config["scheme"]], height=rows, width=width, **options)
    decoded: NDArray[Any] = decode(data)
    if decoded.shape != out.shape:
        raise ValueError(f"decodes to shape {decoded.shape}, expected {out.shape}")
    if _is_cut(data, decode, decoded, config["scheme"]):
        raise ValueError("stream is cut short")
    return decoded.view(np.bool_)


def _is_cut(
    data: bytes, decode: Callable[[bytes], NDArray[Any]], decoded: NDArray[Any], scheme: str
) -> bool:
    """Whether a stream ends before its image: bytes appended to it then show.

    The decoders leave white what a stream lacks, and a stream of scheme 4 marks its end. Zeros at
    the end would hide the appended bytes: three remain, the most that a code ends with.
    """
    stored = data.rstrip(b"\0")
    if scheme == "fax4" and _END_OF_LINE * 2 in f"{int.from_bytes(stored[-4:], 'big'):032b}":
        return False
    last = f"{int.from_bytes(stored[-1:], 'big'):08b}"
    if stored != data:
        last = last.rstrip("0") + "000"
    streams = (stored[:-1] + _packed(last + pixels) for pixels in _BLACK_PIXELS)
    return any(_differs(decode, stream, decoded) for stream in streams)


def _packed(bits: str) -> bytes:
    n_bytes = -(-len(bits) // 8)
    return int(bits.ljust(8 * n_bytes, "0"), 2).to_bytes(n_bytes, "big")


def _differs(decode: Callable[[bytes], NDArray[Any]], data: bytes, decoded: NDArray[Any]) -> bool:
    try:
        return bool((decode(data) != decoded).any())
    except imagecodecs.CcittrleError:
        return True


_CCITT_DECODERS: dict[str, Callable[..., NDArray[Any]]] = {
    "rle": imagecodecs.ccittrle_decode,
    "fax3": imagecodecs.ccittfax3_decode,
    "fax4": imagecodecs.ccittfax4_decode,
}
_END_OF_LINE = "000000000001"
_PIXEL, _HORIZONTAL = "00110101010", "001"
"""Codes of ITU-T T.4 (tables 2 and 4: no white pixel, a black one) and T.6 (table 1)."""


def _begun_at_each_bit(code: str) -> list[str]:
    """A code, repeated, from each of its bits on: one continues a stream cut within a code."""
    repeated = code * 33
    return [repeated[start : start + 256] for start in range(len(code))]


_BLACK_PIXELS = [
    pixels
    for code in (_PIXEL, _HORIZONTAL + _PIXEL, _END_OF_LINE + _PIXEL)
    for pixels in _begun_at_each_bit(code)
]


def _size_problem(config: Config) -> str | None:
    width, samples = config["width"], config["samples"]
    if width < 1 or samples < 1:
        return f"width and samples must be >= 1, got {width} and {samples}"
    return None


def _ccitt_problem(config: Config) -> str | None:
    if config["scheme"] not in _CCITT_DECODERS:
        return f"scheme {config['scheme']} is unknown"
    if config["samples"] != 1:
        return f"pixels of {config['samples']} samples are not supported"
    return _size_problem(config)


def _image_codec(decode_image: _ImageDecoder) -> BytesCodec:
    return BytesCodec(
        partial(_image_decoder, decode_image), required=("width", "samples"), problem=_size_problem
    )


CODECS: dict[str, AnyCodec] = {
    "gridref.tiff_lzw": BytesCodec(_lzw_decoder),
    "gridref.tiff_packbits": BytesCodec(_packbits_decoder),
    "gridref.tiff_bitorder": BytesCodec(
        lambda config, decoded_bytes, spec: lambda raw: imagecodecs.bitorder_decode(as_bytes(raw)),
        same_bytes,
    ),
    "gridref.tiff_packints": BytesCodec(
        _packints_decoder,
        _packints_stored_bytes,
        required=("bits", "dtype", "run_length"),
        problem=_packints_problem,
    ),
    "gridref.tiff_float24": BytesCodec(
        _float24_decoder, _float24_stored_bytes, problem=_endian_problem
    ),
    "gridref.tiff_rgb_bits": BytesCodec(
        _rgb_bits_decoder,
        _rgb_bits_stored_bytes,
        required=("bits", "dtype"),
        problem=_rgb_bits_problem,
    ),
    "gridref.tiff_complex_integers": BytesCodec(
        _complex_decoder,
        _complex_stored_bytes,
        required=("bits",),
        problem=_complex_problem,
    ),
    "gridref.tiff_predictor": ArrayCodec(
        _predictor_decoder, required=("predictor", "axis"), problem=_predictor_problem
    ),
    "gridref.tiff_jpeg": _image_codec(_decode_jpeg),
    "gridref.tiff_jpeg2000": _image_codec(_decode_jpeg2000),
    "gridref.tiff_jpegxl": _image_codec(_plain(partial(imagecodecs.jpegxl_decode, numthreads=1))),
    "gridref.tiff_jpegxr": _image_codec(_decode_jpegxr),
    "gridref.tiff_png": _image_codec(_plain(imagecodecs.png_decode)),
    "gridref.tiff_webp": _image_codec(_decode_webp),
    "gridref.tiff_lerc": _image_codec(_decode_lerc),
    "gridref.tiff_ccitt": BytesCodec(
        partial(_image_decoder, _decode_ccitt),
        required=("scheme", "width", "samples"),
        problem=_ccitt_problem,
    ),
}
