"""Codecs by the names that Zarr readers know, for chunks that are passed on as they are stored.

Some codecs of gridref are the same as one of numcodecs or imagecodecs, and are shown by its name.
What has no such name is refused: zarr-python cannot open a group with an array that has a codec
unknown to it.

Left out are codecs of imagecodecs that need to know the decoded size: of LZF, and of LZW, as many
TIFF writers add a byte. ``imagecodecs_floatpred`` is two codecs: imagecodecs and virtual-tiff give
it different parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from gridref.errors import NotRepresentableError
from gridref.model.encoding import Codec, Encoding

READER_CODECS = frozenset(
    {"bytes", "transpose", "gzip", "zstd", "blosc", "crc32c", "vlen-utf8", "vlen-bytes"}
    | {
        f"numcodecs.{name}"
        for name in (
            *("adler32", "astype", "bitround", "blosc", "bz2", "crc32", "crc32c", "delta"),
            *("fixedscaleoffset", "fletcher32", "gzip", "jenkins_lookup3", "lz4", "lzma"),
            *("packbits", "quantize", "shuffle", "zlib", "zstd"),
        )
    }
)
"""Codecs that zarr-python has of itself: one that it lacks would make a whole group unreadable."""
SHUFFLE_CODEC = "gridref.shuffle"
"""HDF5's shuffle, which takes any number of bytes; known where gridref is installed."""
INSTALLED_CODECS = frozenset({"gridref.grib", "gridref.grib_places", "gridref.jpeg2000"})
"""Codecs that zarr-python has where gridref is installed, of files that no other codec reads."""
PACKAGE_CODECS = {"n5_default": "zarr-n5"} | {
    f"imagecodecs_{name}": "imagecodecs"
    for name in ("delta", "hcomp", "lz4h5", "packbits", "packints", "rcomp", "szip")
}
"""Codecs that packages add to zarr-python. Those of imagecodecs are also added by gridref, as
imagecodecs waits for a call of ``imagecodecs.zarr.register_codecs()``."""


def in_known_codecs(encoding: Encoding) -> Encoding:
    """The same chunks, in codecs that Zarr readers know."""
    codecs = tuple(_renamed(encoding))
    for codec in _with_inner(codecs):
        if codec.name not in READER_CODECS | INSTALLED_CODECS | PACKAGE_CODECS.keys():
            raise NotRepresentableError(f"no Zarr reader knows the codec {codec.name}")
    return encoding if codecs == encoding.codecs else replace(encoding, codecs=codecs)


def _with_inner(codecs: Sequence[Codec]) -> Iterator[Codec]:
    """The codecs of a chain, and those inside of them."""
    for codec in codecs:
        yield codec
        yield from map(Codec.from_json, codec.configuration.get("codecs", ()))


def _renamed(encoding: Encoding) -> Iterator[Codec]:
    codecs = [_as_known(codec) for codec in encoding.codecs]
    for codec, before, following in zip(codecs, [None, *codecs], [*codecs[1:], None], strict=False):
        if _is_packed(codec, following, encoding):
            continue  # one codec stands for both
        if before is not None and _is_packed(before, codec, encoding):
            config = codec.configuration
            yield Codec.of(
                "imagecodecs_packints", bitspersample=config["bits"], runlen=config["run_length"]
            )
        else:
            yield codec


def _is_packed(codec: Codec, following: Codec | None, encoding: Encoding) -> bool:
    """Whether integers of some bits become the elements of an array."""
    return (
        codec.name == "bytes"
        and following is not None
        and following.name == "gridref.tiff_packints"
        and np.dtype(following.configuration["dtype"]) == encoding.dtype
    )


def _as_known(codec: Codec) -> Codec:
    """The same codec by another name, or itself."""
    config = codec.configuration
    match codec.name:
        case "gridref.hdf5_bzip2":
            return Codec.of("numcodecs.bz2", level=1)
        case "gridref.hdf5_lz4":
            return Codec("imagecodecs_lz4h5")
        case "gridref.hdf5_szip":
            options, block, bits, scanline = config["cd_values"][:4]
            if block and scanline % block == 0:  # else scanlines are stored padded
                return Codec.of(
                    "imagecodecs_szip",
                    options_mask=options,
                    pixels_per_block=block,
                    bits_per_pixel=bits,
                    pixels_per_scanline=scanline,
                    header=True,
                )
        case "gridref.tiff_packbits" if "short_bytes" not in config:
            return Codec("imagecodecs_packbits")
        case "gridref.tiff_predictor" if config["predictor"] == 2:
            return Codec.of("imagecodecs_delta", axis=config["axis"], dist=1)
    return codec
