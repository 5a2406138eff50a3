"""The chunk grids and codecs that views show: native, portable and direct.

`native_grid` declares the stored chunks. `portable_grid` follows them, but joins tiny ones.
`direct_grid` has super-chunks: the pieces in which zarr and dask request selections. Nothing is
fetched by super-chunks. They are large, made of whole stored chunks, and cut where files end if
that gives equal ones.

`in_known_codecs` names codecs for chunks that are passed on as they are stored. Some codecs of
gridref are the same as one of numcodecs or imagecodecs, and are shown by its name. What has no such
name is refused: zarr-python cannot open a group with an array that has a codec unknown to it. Left
out are codecs of imagecodecs that need to know the decoded size: of LZF, and of LZW, as many TIFF
writers add a byte. ``imagecodecs_floatpred`` is two codecs: imagecodecs and virtual-tiff give it
different parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from gridref.errors import Message, NotRepresentableError, Option
from gridref.model.array import VirtualArray
from gridref.model.blocks import MISSING_BLOCK, common_along
from gridref.model.encoding import Codec, EdgePolicy, Encoding, bytes_codec, element_bytes
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.model.zarr_metadata import data_type_from_json, data_type_to_json, packed_dtype
from gridref.typing import Int64Array

# Codecs by the names that Zarr readers know

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


# Native grid: stored chunks, shown untouched


def one_encoding(array: VirtualArray) -> Encoding:
    """The encoding that all blocks share but for the chunk shape, in codecs that Zarr readers know.

    What is shuffled by parts of elements has `SHUFFLE_CODEC`.
    """
    used = np.unique(array.blocks.encoding)
    used = used[used != MISSING_BLOCK]
    shared = {
        replace(array.encodings[number], chunk_shape=(1,) * array.ndim) for number in used.tolist()
    }
    if len(shared) != 1:
        raise NotRepresentableError(
            "its blocks differ in encoding" if shared else "no file holds any of it"
        )
    encoding = array.encodings[int(used[0])]
    if array.has_filter_masks:
        if encoding.codecs[-1].name in INSTALLED_CODECS:
            raise NotRepresentableError(
                Message(
                    "index files say what its messages are, which only gridref checks: scan with ",
                    Option("index_files", "offsets"),
                )
            )
        raise NotRepresentableError("single chunks have filters switched off")
    if encoding.prefix:
        raise NotRepresentableError("bytes must be put before each chunk")
    if encoding.unpacking is not None or encoding.dtype != array.dtype:
        raise NotRepresentableError("stored values are converted")
    if encoding.fill not in (None, element_bytes(array.fill_value, array.dtype)):
        raise NotRepresentableError("missing chunks hold another fill value than the array's")
    encoding = in_known_codecs(encoding)
    if has_uneven_shuffle(encoding):
        encoding = _with_own_shuffle(encoding)
    if array.dtype.kind == "V" and data_type_from_json(data_type_to_json(array.dtype)) != (
        array.dtype
    ):
        raise NotRepresentableError(f"Zarr cannot express the data type {array.dtype}")
    return encoding


def has_uneven_shuffle(encoding: Encoding) -> bool:
    """Whether what is shuffled may not be a whole number of elements.

    HDF5 leaves the bytes behind the last whole element where they are; numcodecs gives up. It
    happens where a checksum is taken before shuffling, as netCDF-C writes fletcher32.
    """
    even = True
    for codec in encoding.codecs:
        if codec.name == "numcodecs.shuffle":
            if not even or encoding.dtype.itemsize % _shuffled_bytes(codec):
                return True
        elif codec.name not in ("bytes", "transpose"):
            even = False  # of whatever size
    return False


def _shuffled_bytes(codec: Codec) -> int:
    """Bytes of the elements that are shuffled: the default of numcodecs is 4."""
    size = codec.configuration.get("elementsize", 4)
    if not isinstance(size, int) or size < 1:
        raise NotRepresentableError(f"numcodecs.shuffle has elementsize {size!r}")
    return size


def _with_own_shuffle(encoding: Encoding) -> Encoding:
    codecs = tuple(
        Codec.of(SHUFFLE_CODEC, elementsize=_shuffled_bytes(codec))
        if codec.name == "numcodecs.shuffle"
        else codec
        for codec in encoding.codecs
    )
    return replace(encoding, codecs=codecs)


def native_grid(array: VirtualArray, encoding: Encoding) -> ChunkGrid:
    """The stored chunks of all blocks as one grid that declares every chunk's decoded shape."""
    tables = array.axis_tables
    if tables is None:
        raise NotRepresentableError("blocks are cut differently")
    present = array.held_blocks
    axes = []
    for axis, (table, outer) in enumerate(zip(tables, array.grid.axes, strict=True)):
        if (table.step != 1).any():
            raise NotRepresentableError("a block is reversed, repeated or taken in steps")
        stored = common_along(
            array.blocks.stored_shape[:, axis].reshape(array.grid.grid_shape), present, axis
        )
        if stored is None and encoding.edge is EdgePolicy.TRUNCATED:
            raise NotRepresentableError("blocks are cut differently")
        axes.append(
            _native_axis(outer, table.chunk_length, table.origin, stored, encoding.edge, axis)
        )
    return ChunkGrid(tuple(axes))


def _native_axis(
    outer: GridAxis,
    length: Int64Array,
    origin: Int64Array,
    stored: Int64Array | None,
    edge: EdgePolicy,
    axis: int,
) -> GridAxis:
    extents = outer.edges()
    if (origin % length).any():
        raise NotRepresentableError(f"a block begins inside a stored chunk (dimension {axis})")
    n_chunks = -(-extents // length)
    data = extents - (n_chunks - 1) * length
    decoded = length
    if edge is EdgePolicy.TRUNCATED and stored is not None:
        held = stored - origin - (n_chunks - 1) * length
        # Where only missing blocks are, nothing is stored and any length will do.
        decoded = np.minimum(length, np.where(held > 0, held, length))
    if (decoded[:-1] != data[:-1]).any():
        raise NotRepresentableError(
            f"a stored chunk inside the array overhangs its data (dimension {axis})"
        )
    return GridAxis.from_runs(
        np.stack([length, decoded], axis=1).reshape(-1),
        np.stack([n_chunks - 1, np.ones_like(n_chunks)], axis=1).reshape(-1),
        outer.extent,
    )


# Portable grid: decoded chunks near the stored ones, but not tiny

TINY_CHUNK_BYTES = 8 * 2**10
"""Below this size a chunk costs more to ask for than to carry."""
MANY_CHUNKS = 32
"""Fewer tiny chunks than this do no harm."""
GROWN_CHUNK_BYTES = 2**20
"""Size up to which the portable view puts tiny chunks together."""


def portable_grid(
    array: VirtualArray, chunks: Mapping[str, int], *, rectilinear: bool, grow: bool
) -> ChunkGrid:
    """The chunk grid of the portable view.

    Parameters
    ----------
    chunks
        Chunk lengths that were asked for, by dimension name; the others follow the stored chunks.
    rectilinear
        Whether the grid may be uneven.
    grow
        Whether tiny chunks are put together.
    """
    axes = []
    for axis, (dim, outer) in enumerate(zip(array.dims, array.grid.axes, strict=True)):
        length = chunks.get(dim)
        if length is None and array.forced_overlay is not None:
            length = array.forced_overlay.stored.chunk_shape[axis]
        if length is not None:
            axes.append(GridAxis.uniform(outer.extent, min(length, max(1, outer.extent))))
        else:
            axes.append(_portable_axis(array, axis, rectilinear=rectilinear))
    if grow:
        axes = _joined_chunks(axes, array.dtype.itemsize)
    return ChunkGrid(tuple(axes))


def _joined_chunks(axes: Sequence[GridAxis], item_bytes: int) -> list[GridAxis]:
    """Several tiny chunks together, the last axis first; larger chunks stay as they are."""
    lengths = [commonest(axis.run_lengths, axis.run_counts) for axis in axes]
    chunk_bytes = math.prod(lengths) * max(1, item_bytes)
    if chunk_bytes >= TINY_CHUNK_BYTES:
        return list(axes)
    left = GROWN_CHUNK_BYTES // chunk_bytes
    grown = list(axes)
    for axis in reversed(range(len(axes))):
        factor = min(left, max(1, axes[axis].n_chunks))
        if factor > 1:
            grown[axis] = GridAxis.uniform(axes[axis].extent, lengths[axis] * factor)
        left //= factor
    return grown


def _portable_axis(array: VirtualArray, axis: int, *, rectilinear: bool) -> GridAxis:
    """Chunks that follow the stored ones if they can, else equal ones of the commonest length."""
    outer = array.grid.axes[axis]
    extents = outer.edges()
    tables = array.axis_tables
    if not len(extents) or not array.n_blocks:
        return GridAxis.uniform(outer.extent, max(1, outer.extent))
    if tables is None:
        length = array.stored_chunk_shapes[:, axis]
        return GridAxis.uniform(outer.extent, commonest(length, np.ones_like(length)))
    table = tables[axis]
    stride = np.maximum(np.abs(table.step), 1)
    length = np.minimum(np.maximum(table.chunk_length // stride, 1), extents)
    aligned = not (table.origin % table.chunk_length).any() and not (table.step != 1).any()
    if aligned:
        n_chunks = -(-extents // length)
        rest = extents - (n_chunks - 1) * length
        rest[-1] = length[-1]  # the last chunk may overhang: regular, if the others are
        runs = np.stack([length, rest], axis=1).reshape(-1)
        counts = np.stack([n_chunks - 1, np.ones_like(n_chunks)], axis=1).reshape(-1)
        chunks = GridAxis.from_runs(runs, counts, outer.extent)
        if chunks.is_uniform or rectilinear:
            return chunks
    return GridAxis.uniform(outer.extent, commonest(length, extents))


def block_chunks(array: VirtualArray, max_bytes: int) -> tuple[tuple[int, ...], ...]:
    """Chunks for lazy computation: the blocks, cut along stored chunks where they are too large.

    Returns
    -------
    tuple of tuple of int
        Chunk lengths along each axis, as dask writes them.
    """
    chunks = [axis.edges() for axis in array.grid.axes]
    for axis in range(array.ndim):
        largest = [max(lengths.tolist(), default=0) for lengths in chunks]
        too_large = math.prod(largest) * array.dtype.itemsize / max_bytes
        if too_large <= 1:
            break
        stored = array.stored_chunk_shapes[:, axis]
        unit = int(stored.max()) if len(stored) else 1
        longest = max(unit, int(largest[axis] / too_large) // unit * unit)
        chunks[axis] = _cut(chunks[axis], longest)
    return tuple(tuple(lengths.tolist()) for lengths in chunks)


def _cut(lengths: Int64Array, longest: int) -> Int64Array:
    n_parts = -(-lengths // longest)
    parts = np.full(int(n_parts.sum()), longest, np.int64)
    parts[np.cumsum(n_parts) - 1] = lengths - (n_parts - 1) * longest
    return parts


def commonest(lengths: Int64Array, weights: Int64Array) -> int:
    """The length with the most weight; of several, the shortest."""
    values, inverse = np.unique(lengths, return_inverse=True)
    return int(values[np.argmax(np.bincount(inverse, weights=weights))])


# Direct grid: super-chunks, and the codecs with which zarr writes copies

DIRECT_CODEC = "gridref.direct"
"""Name of the array -> bytes codec of the direct view."""
SUPER_CHUNK_BYTES = 128 * 2**20
"""Most decoded bytes of a super-chunk, unless one stored chunk is larger."""
SMALLEST_COPIED_BYTES = 64 * 2**10
"""Stored chunks below this size are not kept in copies: each costs zarr-python much time."""

COPIED_CODECS = frozenset(
    {
        "bytes",
        "transpose",
        "gzip",
        "zstd",
        "blosc",
        "crc32c",
        "numcodecs.zlib",
        "numcodecs.shuffle",
        "numcodecs.bz2",
        "numcodecs.lzma",
        "numcodecs.lz4",
        "numcodecs.fletcher32",
    }
)
"""Codecs that zarr-python can write, and that give back what was written."""
CHECKSUM_CODECS = frozenset({"crc32c", "numcodecs.fletcher32"})
PLAIN_CODECS = frozenset({"bytes", "transpose", "gridref.reverse"})
"""Codecs that compress nothing."""
DEFAULT_COMPRESSOR = Codec.of("zstd", level=0, checksum=False)
"""Shown for stored forms that zarr-python cannot write: what it takes by itself."""


def direct_grid(array: VirtualArray, chunks: Mapping[str, int]) -> ChunkGrid:
    """The super-chunks of an array, all of one shape.

    They grow from the stored chunk along the last axis first, to at most `SUPER_CHUNK_BYTES`.

    Parameters
    ----------
    chunks
        Lengths that were asked for, by dimension name.
    """
    asked = tuple(chunks.get(dim) for dim in array.dims)
    stored = tuple(_stored_length(array, axis) for axis in range(array.ndim))
    item_bytes = max(1, array.dtype.itemsize)
    return _super_chunks(array.grid, stored, asked, SUPER_CHUNK_BYTES // item_bytes)


@lru_cache(maxsize=256)  # the arrays of a cube have few grids
def _super_chunks(
    grid: ChunkGrid, stored: tuple[int, ...], asked: tuple[int | None, ...], most_elements: int
) -> ChunkGrid:
    extents = [max(1, extent) for extent in grid.shape]
    lengths = [
        min(extent, length or stored_length)
        for extent, length, stored_length in zip(extents, asked, stored, strict=True)
    ]
    for axis in reversed(range(grid.ndim)):
        if asked[axis] is not None:
            continue
        unit = lengths[axis]
        most = max(unit, most_elements // (math.prod(lengths) // unit))
        lengths[axis] = _grown(extents[axis], unit, _file_length(grid.axes[axis]), most)
    return ChunkGrid.regular(grid.shape, lengths)


def _stored_length(array: VirtualArray, axis: int) -> int:
    """The stored chunk length along an axis; the commonest, where blocks differ.

    It is that of the overlay, where all reads are to use one.
    """
    outer = array.grid.axes[axis]
    if array.forced_overlay is not None:
        return array.forced_overlay.stored.chunk_shape[axis]
    if not outer.n_chunks or not array.n_blocks:
        return 1
    lengths = {encoding.chunk_shape[axis] for encoding in array.encodings}
    if len(lengths) == 1:  # without a look at the blocks, which opening many arrays would load
        return _commonest_below(outer, lengths.pop())
    tables = array.axis_tables
    if tables is None:
        length = array.stored_chunk_shapes[:, axis]
        return commonest(length, np.ones_like(length))
    edges = outer.edges()
    return commonest(np.minimum(tables[axis].chunk_length, edges), edges)


@lru_cache(maxsize=256)
def _commonest_below(outer: GridAxis, length: int) -> int:
    edges = outer.edges()
    return commonest(np.minimum(edges, length), edges)


def _file_length(outer: GridAxis) -> int | None:
    """The length of the blocks along an axis, if all but the last are alike."""
    edges = outer.edges()
    if len(edges) < 2 or (edges[:-1] != edges[0]).any() or edges[-1] > edges[0]:
        return None
    return int(edges[0])


def _grown(extent: int, unit: int, file_length: int | None, most: int) -> int:
    """The length of equal pieces of an axis: at most `most`, of whole files or stored chunks."""
    if extent <= most:
        return extent
    if file_length is not None and file_length <= most:
        return _balanced(extent, file_length, most)
    if file_length is not None and file_length % unit == 0:
        n_units = file_length // unit
        for n_parts in range(2, min(n_units, 4 * file_length // most) + 1):
            if n_units % n_parts == 0 and file_length // n_parts <= most:
                return file_length // n_parts
    return _balanced(extent, unit, most)


def _balanced(extent: int, unit: int, most: int) -> int:
    """A multiple of `unit` up to `most` that cuts the extent into pieces of nearly one size."""
    n_units = -(-extent // unit)
    n_pieces = -(-n_units // max(1, most // unit))
    return -(-n_units // n_pieces) * unit


def direct_codec(array: VirtualArray, grid: ChunkGrid) -> Codec:
    """The codec of the direct view, which names chunks and codecs that copies are written by."""
    return _codec_of(_copied_chunk_shape(array, grid), _copied_codecs(array))


@lru_cache(maxsize=256)
def _codec_of(chunk_shape: tuple[int, ...], codecs: tuple[Codec, ...]) -> Codec:
    inner = [codec.to_json() for codec in codecs]
    return Codec.of(DIRECT_CODEC, chunk_shape=chunk_shape, codecs=inner)


def _copied_chunk_shape(array: VirtualArray, grid: ChunkGrid) -> tuple[int, ...]:
    """The shape of the inner chunks of copies: that of stored chunks, if not tiny."""
    stored = tuple(_stored_length(array, axis) for axis in range(array.ndim))
    if math.prod(stored) * array.dtype.itemsize >= SMALLEST_COPIED_BYTES:
        return stored
    return tuple(axis.uniform_length for axis in grid.axes)


def _commonest_encoding(array: VirtualArray) -> int:
    if len(array.encodings) == 1:
        return 0
    used = array.blocks.encoding[array.blocks.encoding != MISSING_BLOCK]
    return int(np.argmax(np.bincount(used))) if len(used) else 0


def _copied_codecs(array: VirtualArray) -> tuple[Codec, ...]:
    """The codecs by which copies are written.

    Those of the commonest stored form, if zarr-python can write it; else plain elements, compressed
    if the stored ones are.
    """
    dtype = packed_dtype(array.dtype)
    plain = (bytes_codec(dtype),)
    if not array.encodings:
        return plain
    encoding = array.encodings[_commonest_encoding(array)]
    names = [codec.name for codec in encoding.codecs]
    converted = encoding.dtype != dtype or encoding.unpacking is not None
    if not converted and COPIED_CODECS.issuperset(names):
        return _checksums_last(encoding.codecs)
    return plain if set(names) <= PLAIN_CODECS else (*plain, DEFAULT_COMPRESSOR)


def _checksums_last(codecs: tuple[Codec, ...]) -> tuple[Codec, ...]:
    """The same codecs, checksums behind all others.

    Files may take a checksum before shuffling; zarr-python cannot shuffle what it makes uneven.
    """
    return tuple(sorted(codecs, key=lambda codec: codec.name in CHECKSUM_CODECS))
