"""Plan how to rewrite an array with other chunks in bounded memory. Pure: reads no chunk.

The array is written unit by unit. A unit is a box of whole objects (shards, or chunks without
shards) that is read into memory at once, encoded and written, while the next one is read. A stored
chunk that serves several units is decoded once for each of them. So the unit is the box with the
fewest decodes of all that fit the memory.

If these are still many, two passes are better, for example from maps to series. The first one reads
whole stored chunks, as many as fit the memory, and writes them to intermediate files, cut into
pieces, which are not compressed: that would take longer than a disk. The second one puts the pieces
together. Both are rewrites: what the first one writes is the array that the second one reads.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gridref.errors import InvalidRequestError, Message, Option, number_of
from gridref.io import MAX_REQUESTS, is_local
from gridref.model.array import VirtualArray
from gridref.model.encoding import Codec, Encoding
from gridref.model.grid import ChunkGrid, GridAxis, chunk_counts
from gridref.model.manifest import ChunkManifest, KnownSources
from gridref.model.projection import SliceProjection
from gridref.model.shard import ShardLayout
from gridref.serve.plan import CrossProduct, plan_read
from gridref.serve.tasks import TASK_BYTES
from gridref.serve.views import ArrayView, View, ViewOptions, show
from gridref.typing import Int64Array

# What is written: chunks, shards and codecs

CODECS: Mapping[str, Callable[[int], tuple[Codec, ...]]] = {
    "blosc": lambda item_bytes: (_blosc("zstd", item_bytes),),
    "blosc-lz4": lambda item_bytes: (_blosc("lz4", item_bytes),),
    "zstd": lambda item_bytes: (Codec.of("zstd", level=1, checksum=False),),
    "gzip": lambda item_bytes: (Codec.of("gzip", level=5),),
    "shuffle-zstd": lambda item_bytes: (
        Codec.of("numcodecs.shuffle", elementsize=item_bytes),
        Codec.of("zstd", level=1, checksum=False),
    ),
    "none": lambda item_bytes: (),
}
"""Bytes -> bytes codecs by the name under which users choose them, for the size of a number."""

_MOST_TYPESIZE = 16
"""Larger elements are texts and records, whose bytes do not resemble each other by place."""


def _blosc(name: str, item_bytes: int) -> Codec:
    shuffle = "noshuffle" if item_bytes == 1 else "shuffle"
    return Codec.of(
        "blosc", cname=name, clevel=1, shuffle=shuffle, typesize=item_bytes, blocksize=0
    )


def view_to_write(
    array: VirtualArray,
    chunks: ChunkGrid,
    shard_shape: Sequence[int] | None,
    codec: str,
    *,
    key_separator: str = "/",
) -> ArrayView:
    """An array as the Zarr v3 array that is to be written.

    Parameters
    ----------
    chunks
        Grid of the chunks; of the inner ones where there are shards.
    shard_shape
        Shape of the shards, divisible by the chunks; None for no shards.
    codec
        One of `CODECS`.
    key_separator
        Between the coords in the names of objects: ``c/0/1`` or ``c.0.1``.

    Raises
    ------
    InvalidRequestError
        If shards are not divisible by chunks.
    NotRepresentableError
        If Zarr has no data type for the elements.
    """
    shown = show(array, ViewOptions(View.PORTABLE, grid="rectilinear"))
    dtype = shown.metadata.dtype
    is_plain = dtype.kind in "biufcmM" and dtype.itemsize <= _MOST_TYPESIZE
    # The bytes of parts of complex numbers and of characters resemble each other.
    item_bytes = {"c": dtype.itemsize // 2, "U": 4}.get(
        dtype.kind, dtype.itemsize if is_plain else 1
    )
    codecs = (*shown.metadata.codecs[:1], *CODECS[codec](item_bytes))
    metadata = replace(shown.metadata, grid=chunks, codecs=codecs, key_separator=key_separator)
    if shard_shape is None:
        return ArrayView(array, View.PORTABLE, metadata)
    chunk_shape = tuple(axis.uniform_length for axis in chunks.axes)
    shards = ShardLayout(ChunkGrid.regular(array.shape, shard_shape), chunk_shape)
    metadata = replace(metadata, grid=shards.grid, codecs=(shards.codec(codecs),))
    return ArrayView(array, View.PORTABLE, metadata, shards=shards)


SHARD_BYTES = 128 * 2**20
"""Decoded size up to which shards grow by themselves."""
_MOST_CHUNKS = 16_384
"""Most chunks of such a shard: an index of 256 KiB."""


def shard_shape_for(
    chunks: ChunkGrid, item_bytes: int, most_bytes: int = SHARD_BYTES
) -> tuple[int, ...]:
    """Shards of whole chunks, grown along the last axes up to a size; at least one chunk."""
    lengths = [axis.uniform_length for axis in chunks.axes]
    left = max(1, most_bytes // max(1, math.prod(lengths) * item_bytes))
    left = min(left, _MOST_CHUNKS)
    for axis in reversed(range(chunks.ndim)):
        n_chunks = max(1, chunks.axes[axis].n_chunks)
        n_shards = -(-n_chunks // left)
        lengths[axis] *= -(-n_chunks // n_shards)  # about equal ones
        left //= min(left, n_chunks)
    return tuple(lengths)


ENCODED_TOGETHER = 2**20
"""Chunks of so many bytes are encoded by one thread: to hand each to a thread would take longer."""
BASE_BYTES = 200 * 10**6
"""What a process takes that has imported everything and works on nothing."""


def shard_bytes_for(memory: int) -> int:
    """Decoded size of shards in a process that may take so many bytes: several are in memory."""
    return min(SHARD_BYTES, (memory - BASE_BYTES) // 8)


# Which objects are read and written together

_UNIT_BYTES = 64 * 2**20
"""Units are at least about so large if that costs no decodes: each one has fixed costs."""


@dataclass(frozen=True)
class Unit:
    """Objects that are read and written together.

    Attributes
    ----------
    first, counts
        Coords of the first object, and number of objects along each axis.
    region
        The elements, as a selection of the array.
    """

    first: tuple[int, ...]
    counts: tuple[int, ...]
    region: tuple[slice, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the region."""
        return tuple(part.stop - part.start for part in self.region)

    def objects(self) -> Iterator[tuple[int, ...]]:
        """Coords of the objects, in C order."""
        for place in np.ndindex(*self.counts):
            yield tuple(k + at for k, at in zip(self.first, place, strict=True))


@dataclass(frozen=True, eq=False)
class RewritePlan:
    """How an array is written anew.

    Attributes
    ----------
    cuts
        Along each axis, int64: the first object of each unit, and the number of objects.
    n_threads, n_requests
        Threads that decode and that encode; threads that read from servers.
    n_stored, n_decoded
        Number of stored chunks, and how many are decoded in all.
    peak_bytes
        Most memory that the process takes.
    first
        What to write to intermediate files before. `view` then is of an array that has the shape
        and chunks of these files, and is yet to be written; None if there is one pass.
    """

    view: ArrayView
    cuts: tuple[Int64Array, ...]
    unit_bytes: int
    n_threads: int
    n_requests: int
    n_stored: int
    n_decoded: int
    peak_bytes: int
    first: RewritePlan | None = None

    @property
    def n_units(self) -> int:
        """Number of units."""
        return math.prod(len(cuts) - 1 for cuts in self.cuts)

    @property
    def n_steps(self) -> int:
        """Number of units of all passes."""
        return self.n_units + (0 if self.first is None else self.first.n_steps)

    @property
    def often(self) -> str:
        """How often each stored chunk is decoded: ``once``, ``3 times``."""
        times = self.n_decoded / max(1, self.n_stored)
        through = "" if self.first is None else ", into intermediate files"
        return f"{'once' if times <= 1 else f'{times:.3g} times'}{through}"

    @property
    def work_in_words(self) -> str:
        """What it takes: ``24 stored chunks, each decoded once; at most 300 MB of memory``."""
        memory = f"at most {self.peak_bytes / 1e6:.0f} MB of memory"
        return f"{number_of(self.n_stored, 'stored chunk')}, each decoded {self.often}; {memory}"

    def units(self) -> Iterator[Unit]:
        """The units, in C order."""
        along = []
        for axis, cuts in zip(self.view.metadata.grid.axes, self.cuts, strict=True):
            bounds = np.append(axis.starts(cuts[:-1]), axis.extent).tolist()
            objects = itertools.pairwise(cuts.tolist())
            regions = itertools.starmap(slice, itertools.pairwise(bounds))
            along.append(list(zip(objects, regions, strict=True)))
        for parts in itertools.product(*along):
            first = tuple(low for (low, _), _ in parts)
            counts = tuple(high - low for (low, high), _ in parts)
            yield Unit(first, counts, tuple(region for _, region in parts))


@dataclass(frozen=True)
class Resources:
    """What a rewrite may take.

    Attributes
    ----------
    memory
        Bytes that the process may take in all.
    n_threads
        Threads that decode and that encode; None takes one for each core.
    n_requests
        Threads that read from servers; None takes `n_threads`, which is right for local files.
    is_streamed
        Whether objects are written piece by piece; else each one is in memory as a whole.
    has_disk
        Whether there may be intermediate files.
    """

    memory: int
    n_threads: int | None = None
    n_requests: int | None = None
    is_streamed: bool = True
    has_disk: bool = False


def plan_rewrite(view: ArrayView, resources: Resources) -> RewritePlan:
    """Choose how an array is written with few decodes.

    Parameters
    ----------
    view
        What to write, of `view_to_write`.

    Raises
    ------
    InvalidRequestError
        If the memory is too little for one object; says how much is needed.
    """
    direct = _in_one_pass(view, resources)
    if not resources.has_disk or direct.n_decoded <= _WORTH_A_PASS * direct.n_stored:
        return direct
    spilled = _in_two_passes(view, resources)
    if spilled is None or spilled.n_decoded * _WORTH_A_PASS > direct.n_decoded:
        return direct
    return spilled


def requests_for(array: VirtualArray) -> int | None:
    """Threads to read an array with, if servers have to be waited for; some sources tell."""
    known = (each.sources for each in array.manifests if isinstance(each, KnownSources))
    is_far = any(not is_local(source.url) for sources in known for source in sources[:1])
    return MAX_REQUESTS if is_far else None


_WORTH_A_PASS = 2
"""About how many decodes of a stored chunk take the time of writing and reading it once more."""


def _in_one_pass(view: ArrayView, resources: Resources) -> RewritePlan:
    """The unit with the fewest decodes of those that fit the memory."""
    array, grid = view.array, view.metadata.grid
    item_bytes = max(1, array.dtype.itemsize)
    object_bytes = _largest(grid.axes) * item_bytes
    n_threads, n_requests, thread_bytes = _threads(view, resources, object_bytes)
    most_bytes = (resources.memory - BASE_BYTES - thread_bytes) // 2
    pieces = plan_read(array).crosses
    options = [
        _options(axis, _stored_starts(pieces, number)) if pieces else [_Option(1, 1, 1)]
        for number, axis in enumerate(grid.axes)
    ]
    best = _fewest_decodes(options, most_bytes // item_bytes)
    best = _grown(best, options, min(most_bytes, _UNIT_BYTES) // item_bytes)
    unit_bytes = math.prod(option.length for option in best) * item_bytes
    n_stored = sum(cross.n_pieces for cross in pieces)
    share = math.prod(
        option.n_pieces / along[-1].n_pieces for option, along in zip(best, options, strict=True)
    )
    cuts = tuple(
        np.append(np.arange(0, axis.n_chunks, option.n_objects), axis.n_chunks)
        for axis, option in zip(grid.axes, best, strict=True)
    )
    peak = BASE_BYTES + thread_bytes + 2 * unit_bytes
    return RewritePlan(
        view, cuts, unit_bytes, n_threads, n_requests, n_stored, round(n_stored * share), peak
    )


def _stored_starts(pieces: Sequence[CrossProduct], number: int) -> Int64Array:
    """Where stored chunks begin along an axis; in any block, where blocks differ."""
    starts = [np.zeros(0, np.int64)]
    for cross in pieces:
        along = cross.axes[number].pieces
        assert isinstance(along, SliceProjection)
        starts.append(along.out_start)
    return np.unique(np.concatenate(starts))


def _largest(axes: Sequence[GridAxis]) -> int:
    """Number of elements of the largest chunk of a grid that are inside the array."""
    return math.prod(min(axis.extent, int(axis.run_lengths.max())) for axis in axes)


def _threads(view: ArrayView, resources: Resources, object_bytes: int) -> tuple[int, int, int]:
    """How many threads encode and how many read, and the memory that they take beside the units."""
    item_bytes = view.metadata.dtype.itemsize
    chunk_bytes = math.prod(int(axis.run_lengths.max()) for axis in view.chunk_grid.axes)
    # Elements in their order, and shuffled; what is encoded, and what waits to be written.
    encoded_bytes = max(chunk_bytes * item_bytes, min(object_bytes, ENCODED_TOGETHER))
    encoder_bytes = 2 * chunk_bytes * item_bytes + 2 * encoded_bytes
    if not resources.is_streamed:
        encoder_bytes += 2 * object_bytes
    reader_bytes = _reader_bytes(view.array)
    least = BASE_BYTES + encoder_bytes + reader_bytes + 2 * object_bytes
    if resources.memory < least:
        whole_mb, rest = divmod(resources.memory, 10**6)
        given = f"{resources.memory}B" if rest else f"{whole_mb}MB"
        raise InvalidRequestError(
            Message(
                Option("memory", given),
                f" is too little: it takes {-(-least // 10**6)}MB to write objects of"
                f" {-(-object_bytes // 10**6)} MB; give more, or write smaller chunks or shards",
            )
        )
    room = resources.memory - BASE_BYTES - 2 * object_bytes
    wanted = resources.n_threads or os.cpu_count() or 1
    n_threads = max(1, min(wanted, room // 2 // (encoder_bytes + reader_bytes)))
    left = room // 2 - n_threads * encoder_bytes
    n_requests = max(n_threads, min(resources.n_requests or 1, left // reader_bytes))
    return n_threads, n_requests, n_threads * encoder_bytes + n_requests * reader_bytes


def _reader_bytes(array: VirtualArray) -> int:
    """What a reading thread takes: what it fetches, what it decodes, and the same shuffled."""
    return TASK_BYTES[1] + 3 * max(map(_held_bytes, array.encodings), default=0)


def _held_bytes(encoding: Encoding) -> int:
    """Decoded size of a stored chunk; of plain ones, no more is read than is wanted."""
    n_bytes = math.prod(encoding.chunk_shape) * encoding.dtype.itemsize
    is_plain = [codec.name for codec in encoding.codecs] == ["bytes"]
    return min(n_bytes, TASK_BYTES[1]) if is_plain else n_bytes


@dataclass(frozen=True)
class _Option:
    """A way to cut one axis into units.

    Attributes
    ----------
    n_objects
        Number of objects of each unit along the axis.
    length
        Elements of the longest unit.
    n_pieces
        Into how many pieces the units cut the stored chunks.
    """

    n_objects: int
    length: int
    n_pieces: int


def _options(axis: GridAxis, stored: Int64Array) -> list[_Option]:
    """Ways to cut an axis, from one object a unit to one unit; `stored` is where chunks begin."""
    n_objects = axis.n_chunks
    counts = {n_objects}
    steps = [1]
    if axis.is_uniform and len(stored) > 1:
        length = axis.uniform_length
        steps.append(math.lcm(length, int(np.median(np.diff(stored)))) // length)
    for step in steps:
        counts |= {step << n for n in range(n_objects.bit_length()) if step << n < n_objects}
    options = []
    for count in sorted(counts):
        begins = axis.starts(np.arange(0, n_objects, count))
        longest = int(np.diff(begins, append=axis.extent).max())
        n_cut = len(begins) - int(np.isin(begins, stored, assume_unique=True).sum())
        options.append(_Option(count, longest, len(stored) + n_cut))
    return options


def _fewest_decodes(
    options: Sequence[Sequence[_Option]], most_elements: int
) -> tuple[_Option, ...]:
    """One option for each axis: of the units that fit, the smallest with the fewest decodes."""
    # By size, only those that are decoded less often than all smaller ones.
    best: list[tuple[int, int, tuple[_Option, ...]]] = [(1, 1, ())]
    for along in options:
        products = sorted(
            (
                (elements * each.length, n_pieces * each.n_pieces, (*chosen, each))
                for elements, n_pieces, chosen in best
                for each in along
                if elements * each.length <= max(most_elements, 1)
            ),
            key=lambda product: product[:2],
        )
        best = []
        for product in products:
            if not best or product[1] < best[-1][1]:
                best.append(product)
    return best[-1][2]


def _grown(
    chosen: tuple[_Option, ...], options: Sequence[Sequence[_Option]], most_elements: int
) -> tuple[_Option, ...]:
    """A larger unit, if it is not decoded more often, along the last axes first."""
    grown = list(chosen)
    for axis in reversed(range(len(grown))):
        others = math.prod(each.length for each in grown) // max(1, grown[axis].length)
        for option in options[axis]:
            is_larger = option.length > grown[axis].length
            fits = option.length * others <= most_elements
            if is_larger and fits and option.n_pieces <= grown[axis].n_pieces:
                grown[axis] = option
    return tuple(grown)


# Two passes, with intermediate files

_SHARES = (0.7, 0.5, 0.3, 0.15)
"""What units may take of the memory that one reading thread leaves: others need some, too."""
_MOST_AGAIN = 2
"""How often pieces are decoded at most: smaller boxes may fit together better."""
_MOST_PIECE_BYTES = 2 * 2**20
"""Larger pieces are cut: what is copied at a time should stay in the cache of a processor."""
_PIECE_BYTES = 16 * 2**10
_MANY_PIECES = 100_000
"""More pieces than these must not be smaller: each has fixed costs."""


def _in_two_passes(view: ArrayView, resources: Resources) -> RewritePlan | None:
    """A plan with intermediate files; None if pieces would be too small, or boxes too large."""
    array, grid, dtype = view.array, view.metadata.grid, view.metadata.dtype
    if not grid.is_regular or dtype.kind == "T":
        return None
    crosses = plan_read(array).crosses
    stored = [
        int(np.median(np.diff(_stored_starts(crosses, number), append=extent)))
        for number, extent in enumerate(array.shape)
    ]
    objects = [axis.uniform_length for axis in grid.axes]
    room = (resources.memory - BASE_BYTES - _reader_bytes(array)) // 2
    for share in _SHARES:
        most = max(1, int(room * share) // dtype.itemsize)
        read_box, piece = boxes_between(array.shape, stored, objects, most)
        n_pieces = math.prod(chunk_counts(array.shape, piece))
        if math.prod(piece) * dtype.itemsize < _PIECE_BYTES and n_pieces > _MANY_PIECES:
            return None
        piece = _cut(piece, max(1, _MOST_PIECE_BYTES // dtype.itemsize))
        chunks = ChunkGrid.regular(array.shape, piece)
        between = view_to_write(array, chunks, read_box, "none", key_separator=".")
        unwritten = VirtualArray.of_one_block(
            array.shape,
            dtype,
            encoding=Encoding(piece, dtype, between.chunk_codecs),
            manifest=ChunkManifest.missing(0),
            dims=array.dims,
            fill_value=view.metadata.fill_value,
        )
        try:
            first = _in_one_pass(between, replace(resources, is_streamed=True))
            second = _in_one_pass(replace(view, array=unwritten), resources)
        except InvalidRequestError:  # the threads leave less
            continue
        if second.n_decoded > _MOST_AGAIN * second.n_stored:
            continue
        return replace(
            second,
            first=first,
            n_stored=first.n_stored,
            n_decoded=first.n_decoded,
            peak_bytes=max(first.peak_bytes, second.peak_bytes),
        )
    return None


def boxes_between(
    shape: Sequence[int], stored: Sequence[int], objects: Sequence[int], most_elements: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The boxes that are read in the first of two passes, and the pieces that they are cut into.

    Boxes of whole stored chunks grow where objects are longer, and boxes of whole objects where
    stored chunks are longer, up to a size. A piece is what both have in common.

    Parameters
    ----------
    shape
        Shape of the array.
    stored, objects
        Shape of the stored chunks, and of the objects to be written.
    """
    read = [min(n, k) for n, k in zip(shape, stored, strict=True)]
    write = [min(n, k) for n, k in zip(shape, objects, strict=True)]
    for axis in reversed(range(len(shape))):
        if read[axis] < write[axis]:
            read[axis] = _longer(read, axis, write[axis], shape[axis], most_elements)
    for axis in reversed(range(len(shape))):
        if write[axis] < read[axis]:
            write[axis] = _longer(write, axis, read[axis], shape[axis], most_elements)
    piece = tuple(map(_common, read, write, shape))
    # Boxes consist of whole pieces. What overhangs the array takes no memory.
    box = tuple(
        -(-k // p) * p if k >= n else max(p, k // p * p)
        for k, p, n in zip(read, piece, shape, strict=True)
    )
    return box, piece


def _longer(lengths: Sequence[int], axis: int, wanted: int, extent: int, most_elements: int) -> int:
    """A multiple of a box's length along an axis, up to a wanted one.

    If the axis goes on behind the wanted length, the multiple divides that, where there is one.
    """
    length = lengths[axis]
    most = max(1, min(most_elements // math.prod(lengths), -(-wanted // length)))
    if wanted >= extent:
        n_parts = -(-wanted // (length * most))
        return length * -(-wanted // (length * n_parts))  # about equal parts
    dividing = (n for n in range(most, 0, -1) if wanted % (length * n) == 0)
    return length * next(dividing, most)


def _common(read: int, write: int, extent: int) -> int:
    """The length of pieces along an axis. Boxes that are read and written consist of pieces.

    Where a box that is read is longer, and not the whole axis, nor several that are written, this
    is the greatest common divisor, unless that is small.
    """
    if read <= write or read >= extent:
        return min(read, write)
    common = math.gcd(read, write)
    return common if common * _MOST_PARTS >= write else write


_MOST_PARTS = 16


def _cut(piece: Sequence[int], most_elements: int) -> tuple[int, ...]:
    """Equal parts of a piece of at most a size, cut along the first axes."""
    lengths = list(piece)
    for axis, length in enumerate(piece):
        most = most_elements // (math.prod(lengths) // length)
        lengths[axis] = next(n for n in range(max(1, min(most, length)), 0, -1) if length % n == 0)
    return tuple(lengths)
