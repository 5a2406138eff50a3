"""Bytes -> ndarray: one decoder for each codec name.

Scanners describe stored chunks with these names and configurations; `why_not` says by name what
cannot be decoded. A chain is written in the order of encoding: array -> array codecs, one
array -> bytes codec, bytes -> bytes codecs. *Size* marks the bytes -> bytes codecs whose stored
size follows from the decoded one.

Array -> bytes
--------------
=================================== ===============================================================
``bytes``                           ``endian``: ``"little"``, ``"big"``, or absent: bytes are taken
                                    as the dtype of the encoding stands (structured dtypes of mixed
                                    byte order). Kinds b, i, u, f, c, S, U, V and structured
``vlen-utf8``                       none; dtype is ``StringDType`` or object
``vlen-bytes``                      none; dtype is object
``packbits``                        ``padding_encoding``, ``first_bit``, ``last_bit``
                                    (zarr-extensions)
``numcodecs.zfpy``,                 as numcodecs writes them
``numcodecs.pcodec``
``gridref.b2nd``                    ``block_shape``, ``endian``: a chunk of Blosc2 with the blocks
                                    of an array
``imagecodecs_rcomp``               ``nblock``: a tile of RICE_1 in FITS; integers of 1, 2 or 4
                                    bytes
``imagecodecs_hcomp``               ``smooth``: a tile of HCOMPRESS_1 in FITS
``gridref.fits_plio``               none: a tile of PLIO_1 in FITS
``gridref.fits_tiles``              ``row_bytes``, ``heap``, ``columns``, ``tile``, ``compression``
                                    and what that needs, ``dither``, ``seed``, ``blank``: the
                                    binary table of a FITS image that is compressed by tiles, with
                                    its heap
``gridref.grib``                    none: a GRIB message of either edition, or its beginning up to
                                    the field; float32, NaN in holes of the bitmap, rows in the
                                    order of scanning
``gridref.grib_places``             ``coordinate``: ``"latitude"`` or ``"longitude"``; ``edition``:
                                    a grid section of GRIB, whose points have these places; float64
``n5_default``                      ``codecs``: ``transpose``, ``bytes`` and at most one compressor
                                    (zarr-extensions): a block of N5 with its header; what it does
                                    not hold is zero
``gridref.jpeg2000``                ``header``: main header of a codestream in base64; the bytes
                                    are the tile-parts of one tile, or without it a whole
                                    codestream. ``levels``: how often the image is halved (default
                                    0). Bands come first; axes of length 1 do not matter
``gridref.precomputed_jpeg``,       none: an image with the pixels of a chunk of axes channel, z,
``.precomputed_png``,               y, x, and the channels as samples
``.precomputed_jpegxl``
``gridref.compressed_segmentation`` ``block_shape``: of the blocks of a compressed segmentation,
                                    along z, y, x; uint32 or uint64 of axes channel, z, y, x
=================================== ===============================================================

Array -> array
--------------
==================================  ===============================================================
``transpose``                       ``order``
``reshape``                         ``shape`` (zarr-extensions; no -1)
``gridref.select``                  ``axis``, ``index``, ``length``: the array is one place along an
                                    axis of the stored one
``gridref.reverse``                 ``axes``: stored last element first along these
``gridref.fits_unsigned``           none: uint64 stored as int64 that are 2**63 less
``gridref.renumber``                ``pairs``: stored integer and the one that it is shown as
``scale_offset``                    ``scale``, ``offset`` (zarr-extensions)
``cast_value``                      ``data_type``, ``rounding``, ``out_of_range``, ``scalar_map``
``numcodecs.delta``                 ``dtype``, ``astype``
``numcodecs.fixedscaleoffset``      ``scale``, ``offset``, ``dtype``, ``astype``
``numcodecs.quantize``              ``digits``, ``dtype``, ``astype``
``numcodecs.astype``                ``encode_dtype``, ``decode_dtype``
``numcodecs.bitround``              ``keepbits``; nothing to undo
``numcodecs.packbits``              none; bool
``gridref.hdf5_integer``            ``precision``, ``offset``: elements that use only some of their
                                    bits (offset from the least significant one); signed ones are
                                    sign-extended
``gridref.hdf5_float``              ``size``, ``sign_position``, ``exponent_position``,
                                    ``exponent_bits``, ``exponent_bias``, ``mantissa_position``,
                                    ``mantissa_bits``, ``normalization`` (``"implied"``, ``"set"``):
                                    floats of any layout, stored as unsigned integers of ``size``
                                    bytes (1, 2, 4 or 8); all as HDF5's datatype message has them
``gridref.hdf5_string``             ``padding``: ``"terminated"`` (what lies behind the first zero
                                    byte is no part of the string) or ``"spaces"`` (nor are spaces
                                    at its end)
``gridref.tiff_predictor``          ``predictor``: 2 or 3; ``axis``: that of the image's width, in
                                    the array as it is stored (after ``transpose``); ``distance``: 1
                                    (default) or, for predictor 3, 2 or 4. For 3 the ``bytes`` codec
                                    is to be little-endian, whatever the file is
==================================  ===============================================================

Bytes -> bytes
--------------
==================================  ===============================================================
``gzip``, ``zstd``, ``blosc``       as in the Zarr registry
``crc32c``                          none. *Size*
``numcodecs.zlib``, ``.gzip``,      as numcodecs writes them. TIFF: deflate is ``numcodecs.zlib``,
``.bz2``, ``.lzma``, ``.lz4``,      LZMA is ``numcodecs.lzma``, Zstandard is ``zstd``
``.zstd``, ``.blosc``
``numcodecs.shuffle``               ``elementsize``; bytes behind the last whole element are not
                                    shuffled, as in HDF5. *Size*
``numcodecs.fletcher32``            none; HDF5's, verified. *Size*
``numcodecs.crc32``, ``.crc32c``,   as numcodecs writes them, verified. *Size*
``.adler32``, ``.jenkins_lookup3``
``numcodecs.*``                     whatever bytes -> bytes codec is registered with numcodecs
``gridref.n5_lz4``                  none: a stream of lz4-java, in ``n5_default`` only
``gridref.hdf4_rle``                none: HDF4's run-length encoding
``gridref.hdf4_nbit``               ``element_bytes``, ``start_bit``, ``n_bits``, ``sign_extended``,
                                    ``fill_ones``: which bits of each element are stored
``gridref.hdf4_skphuff``            ``skip``: bytes of an element, each with a tree of its own
``gridref.hdf4_szip``               ``parameters``: options, block, bits of a pixel, scanline
``gridref.hdf5_nbit``               ``cd_values``. The bits that a value does not use come out as
                                    zero, as HDF5's filter does it: see ``gridref.hdf5_integer`` and
                                    ``gridref.hdf5_float``
``gridref.hdf5_scaleoffset``        ``cd_values``
``gridref.hdf5_szip``               ``cd_values``
``gridref.hdf5_lzf``                ``cd_values``
``gridref.hdf5_lz4``                ``cd_values``
``gridref.hdf5_bitshuffle``         ``cd_values``
``gridref.hdf5_bzip2``              ``cd_values``
``gridref.hdf5_blosc2``             ``cd_values``
``gridref.hdf5_zfp``                ``cd_values``
``gridref.hdf5_jpegls``             FCIDECOMP, filter 32018
``gridref.hdf5_jpeg``               filter 32019
``gridref.hdf5_bitgroom``,          filters 32022 and 32023; nothing to undo. *Size*
``gridref.hdf5_granularbr``
``gridref.tiff_lzw``,               What decodes to more than the chunk is cut, as all TIFF readers
``gridref.tiff_packbits``           do. ``short_bytes``: a chunk that decodes to just this size is
                                    padded with zeros; only for images of a single row of tiles,
                                    where writers may leave out the rows behind the image's end
``gridref.tiff_bitorder``           none; FillOrder 2, for compressions that are not images. *Size*
``gridref.tiff_jpeg``               ``width``, ``samples`` and ``rows`` of a segment, whatever shape
                                    the last strip has (``rows`` may be absent, and then that strip
                                    must not be stored with more rows than it shows);
                                    ``colorspace``, ``outcolorspace`` as `imagecodecs.jpeg_decode`
                                    takes them (absent: its default). Tables: see below
``gridref.tiff_jpeg2000``,          ``width``, ``samples``, ``rows`` as above
``.tiff_jpegxl``, ``.tiff_jpegxr``,
``.tiff_png``, ``.tiff_webp``,
``.tiff_lerc``
``gridref.tiff_ccitt``              ``scheme``: ``"rle"``, ``"fax3"`` or ``"fax4"``; ``width``,
                                    ``samples`` (1); ``t4options`` (fax3). Decodes to bool
``gridref.tiff_packints``           ``bits``: 1 to 31; ``dtype``: of the unpacked integers, like
                                    ``"uint16"``, ``"bool"``; ``run_length``: number of values in a
                                    row (width times samples). The file's byte order makes no
                                    difference. *Size*
``gridref.tiff_float24``            ``endian``; decodes to float32. *Size*
``gridref.tiff_rgb_bits``           ``bits``: bits of each sample like ``[5, 6, 5]``; ``dtype``;
                                    ``endian``. *Size*
``gridref.tiff_complex_integers``   ``bits`` of a part: 8, 16 or 32; ``endian``; decodes to complex
                                    numbers of the encoding's dtype. *Size*
==================================  ===============================================================

What the packings and images of TIFF decode to is in little-endian order: ``bytes`` with ``endian:
"little"`` stands before them. They stand in the order of encoding: ``gridref.tiff_predictor``,
``bytes``, packing or image, compression, ``gridref.tiff_bitorder``. Truncated strips need nothing
else than their shape. No codec undoes chroma subsampling outside of images, nor predictor 3 of
floats of 24 bits: refuse them.

The ``prefix`` of an encoding may be a whole stream of JPEG tables (SOI, tables, EOI) with chunks
that are whole too, or the same without EOI, and references that leave out the SOI of the chunk;
the latter makes streams that any JPEG decoder takes.
"""

from __future__ import annotations

from gridref.codecs.arithmetic import renumber, unpack
from gridref.codecs.encode import (
    REWRAP_BYTES,
    encode_bytes_codecs,
    encode_chunk,
    gzip_from_zlib,
)
from gridref.codecs.pipeline import codec_named, decode_chunk, decode_together, why_not
from gridref.codecs.stage import (
    ArrayCodec,
    ArraySpec,
    BytesCodec,
    Config,
    Raw,
    SerialCodec,
    as_bytes,
    as_u1,
)

__all__ = [
    "REWRAP_BYTES",
    "ArrayCodec",
    "ArraySpec",
    "BytesCodec",
    "Config",
    "Raw",
    "SerialCodec",
    "as_bytes",
    "as_u1",
    "codec_named",
    "decode_chunk",
    "decode_together",
    "encode_bytes_codecs",
    "encode_chunk",
    "gzip_from_zlib",
    "renumber",
    "unpack",
    "why_not",
]
