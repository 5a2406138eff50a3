"""Image formats that TIFF uses as compressions: a segment is an image of its own.

Sources: TIFF 6.0, sections 10, 11 (CCITT) and 22 (JPEG, superseded by Adobe Photoshop TIFF
Technical Note 2: JPEG tables); ITU-T T.81, B.1 (JPEG markers); ITU-T T.832, annex A (the file
format of JPEG XR). Which decoder is taken, and with
which parameters, follows tifffile's `TiffPage.decode`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from gridref.codecs.stage import ArraySpec, BytesCodec, BytesDecode, Config, Raw, as_bytes
from gridref.codecs.tiff import little_endian_bytes

__all__ = ["BYTES_CODECS", "split_jpeg_tables"]

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


def _decoder(
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
_START_OF_SCAN = 0xDA


def split_jpeg_tables(stream: bytes) -> tuple[bytes | None, bytes]:
    """Tell a stream of tables from the image behind it.

    Parameters
    ----------
    stream
        An image, or a whole stream of tables (SOI, tables, EOI) and an image behind it.

    Returns
    -------
    tuple
        The stream of tables or None, and the image.
    """
    position = 2
    while stream[:2] == _SOI and position + 4 <= len(stream) and stream[position] == 0xFF:
        if stream[position : position + 2] == _EOI:
            return stream[: position + 2], stream[position + 2 :]
        if stream[position + 1] == _START_OF_SCAN:
            break
        position += 2 + int.from_bytes(stream[position + 2 : position + 4], "big")
    return None, stream


def _decode_jpeg(data: bytes, config: Config, out: NDArray[Any]) -> NDArray[Any]:
    tables, image = split_jpeg_tables(data)
    decoded: NDArray[Any]
    try:
        decoded = imagecodecs.jpeg_decode(
            image,
            tables=tables,
            colorspace=config.get("colorspace"),
            outcolorspace=config.get("outcolorspace"),
            shape=out.shape[:2],
            out=out,
        )
    except imagecodecs.Jpeg8Error as error:
        # Lossless JPEG of more precisions and colours, as in DNG.
        try:
            decoded = imagecodecs.ljpeg_decode(image, out=out)
        except (imagecodecs.LjpegError, ValueError):
            raise error from None
    return decoded


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
    """How many bytes the directory of a JPEG XR file says it has at least."""
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
    # This decoder makes up what an image that is cut short lacks.
    wanted = _jpegxr_bytes(data)
    if len(data) < wanted:
        raise ValueError(f"is cut short: {len(data)} bytes of {wanted}")
    decoded: NDArray[Any] = imagecodecs.jpegxr_decode(data, out=out)
    return decoded


def _decode_webp(data: bytes, config: Config, out: NDArray[Any]) -> NDArray[Any]:
    # A segment may leave out an alpha channel that is opaque all over.
    has_alpha = True if out.shape[2:] == (4,) else None
    decoded: NDArray[Any] = imagecodecs.webp_decode(data, hasalpha=has_alpha, out=out)
    return decoded


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
    """Whether a stream ends before its image: what is put behind it then shows.

    The decoders leave white what a stream lacks, and a stream of scheme 4 says where it ends.
    """
    last_bits = f"{int.from_bytes(data[-4:], 'big'):032b}"
    if scheme == "fax4" and _END_OF_LINE * 2 in last_bits:
        return False
    return any(_differs(decode, data + pixels, decoded) for pixels in _BLACK_PIXELS)


def _differs(decode: Callable[[bytes], NDArray[Any]], data: bytes, decoded: NDArray[Any]) -> bool:
    try:
        return bool((decode(data) != decoded).any())
    except imagecodecs.CcittError:
        return True


_CCITT_DECODERS: dict[str, Callable[..., NDArray[Any]]] = {
    "rle": imagecodecs.ccittrle_decode,
    "fax3": imagecodecs.ccittfax3_decode,
    "fax4": imagecodecs.ccittfax4_decode,
}
_END_OF_LINE = "000000000001"
_PIXEL, _HORIZONTAL = "00110101010", "001"
"""Codes of ITU-T T.4 (tables 2 and 4: no white pixel, a black one) and T.6 (table 1)."""


def _begun_at_each_bit(code: str) -> list[bytes]:
    """A code, repeated, from each of its bits on: one goes on where a stream is cut in a code."""
    repeated = code * 33
    return [int(repeated[start : start + 256], 2).to_bytes(32, "big") for start in range(len(code))]


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
        partial(_decoder, decode_image), required=("width", "samples"), problem=_size_problem
    )


BYTES_CODECS = {
    "gridref.tiff_jpeg": _image_codec(_decode_jpeg),
    "gridref.tiff_jpeg2000": _image_codec(_decode_jpeg2000),
    "gridref.tiff_jpegxl": _image_codec(_plain(partial(imagecodecs.jpegxl_decode, numthreads=1))),
    "gridref.tiff_jpegxr": _image_codec(_decode_jpegxr),
    "gridref.tiff_png": _image_codec(_plain(imagecodecs.png_decode)),
    "gridref.tiff_webp": _image_codec(_decode_webp),
    "gridref.tiff_lerc": _image_codec(_plain(imagecodecs.lerc_decode)),
    "gridref.tiff_ccitt": BytesCodec(
        partial(_decoder, _decode_ccitt),
        required=("scheme", "width", "samples"),
        problem=_ccitt_problem,
    ),
}
