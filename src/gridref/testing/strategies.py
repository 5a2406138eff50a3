"""Hypothesis strategies for virtual arrays and groups, and for their parts.

`arrays` and `groups` are described in every way that the model allows, so that what keeps or shows
them can be tested; their files are not there. `arrays_with_values` read, and come with the
elements that they must read as.

Needs hypothesis, which gridref itself does not depend on.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.model.array import Enumeration, VirtualArray, VirtualGroup
from gridref.model.blocks import MISSING_BLOCK, BlockTable
from gridref.model.encoding import Codec, EdgePolicy, Encoding, Unpacking
from gridref.model.grid import ChunkGrid, chunk_counts
from gridref.model.indexing import isel
from gridref.model.joining import concatenate
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.model.reshaping import broadcast_axis
from gridref.testing.builders import chunked_array

try:
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as npst
except ModuleNotFoundError as error:
    message = "gridref.testing.strategies needs hypothesis: pip install gridref[test]"
    raise ModuleNotFoundError(message, name=error.name) from None

__all__ = [
    "arrays",
    "arrays_with_values",
    "attributes",
    "dtypes",
    "encodings",
    "grids",
    "groups",
    "manifests",
    "scalars",
    "selections",
]

_NAMES = st.text(
    st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1, max_size=6
)
_TEXTS = st.text(max_size=8) | st.just("broken \udc80")
_FLOATS = st.floats(width=64)

_DTYPES = st.sampled_from(
    [
        *(np.dtype(code) for code in ("?", "i1", "u1", "i2", "u8", "f2", "f4", "f8", "c8", "c16")),
        *(np.dtype(code) for code in ("S3", "U2", "V5", "M8[ns]", "m8[s]")),
        np.dtype([("a", "i4"), ("b", "f8")]),
        np.dtype({"names": ["a", "b"], "formats": ["i1", "f8"], "offsets": [0, 8], "itemsize": 24}),
        np.dtype([("a", "f4", (2, 3)), ("n", [("x", "S2")])]),
        np.dtype(np.dtypes.StringDType()),
    ]
)


def dtypes() -> st.SearchStrategy[np.dtype[Any]]:
    """Dtypes of elements: numbers, text, bytes, times and compounds, in native byte order."""
    return _DTYPES


@st.composite
def scalars(draw: st.DrawFn, dtype: np.dtype[Any]) -> Any:
    """Elements of a dtype, any bit pattern: fill values, for one."""
    if dtype.kind == "T":
        return draw(st.text(max_size=5))
    if dtype.kind == "U":
        return np.asarray(draw(st.text(st.characters(max_codepoint=1000), max_size=2)), dtype)[()]
    raw = draw(st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize))
    if dtype.kind == "b":
        return np.bool_(raw[0] & 1)
    return np.frombuffer(raw, dtype)[0]


def _plain_values() -> st.SearchStrategy[Any]:
    simple = (
        st.none()
        | st.booleans()
        | st.integers()
        | _FLOATS
        | st.complex_numbers()
        | _TEXTS
        | st.binary(max_size=5)
    )
    return st.recursive(
        simple,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(st.sampled_from(["a", "$float", "$numpy", "b"]), inner, max_size=2)
        ),
        max_leaves=4,
    )


def _numpy_values() -> st.SearchStrategy[Any]:
    kinds = st.sampled_from(
        ["?", "i1", "<u2", ">i4", "i8", "u8", "f2", "<f4", ">f8", "c8", "S4", "U3", ">U2", "M8[D]"]
    ).map(np.dtype)
    values = npst.arrays(kinds, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    large = st.just(np.arange(100, dtype=">f4"))
    objects = st.lists(st.text(max_size=3), max_size=3).map(lambda v: np.array(v, object))
    fields = st.just(np.array([(1, 2.5)], [("a", "i2"), ("b", ">f8")]))
    strings = st.just(np.array(["a", "bc"], np.dtypes.StringDType()))
    scalar = values.filter(lambda array: array.size > 0).map(lambda array: array.reshape(-1)[0])
    return values | large | objects | fields | strings | scalar


_CODECS = st.lists(
    st.sampled_from(
        [
            Codec("bytes"),
            Codec.of("bytes", endian="big"),
            Codec.of("transpose", order=[1, 0]),
            Codec.of("numcodecs.zlib", level=3),
            Codec("odd", '{"b":1,  "a":NaN}'),
            Codec("gridref.x", '{"unsorted": 1, "also": [1.5]}'),
        ]
    ),
    max_size=3,
).map(tuple)

_UNPACKINGS = st.none() | st.builds(
    Unpacking,
    st.none() | _FLOATS,
    st.none() | _FLOATS,
    st.lists(_FLOATS | st.integers(), max_size=2).map(tuple),
    st.none() | st.booleans(),
    st.sampled_from(["float32", "float64"]),
)

_SOURCES = st.builds(
    Source,
    st.sampled_from(["/data/a.nc", "/data/b c#%.nc", "s3://bucket/k.h5", "memory://x/y"]),
    st.none() | st.integers(0, 2**50),
    st.none() | st.integers(-(2**40), 2**62),
    st.none() | st.text(max_size=4),
)


@st.composite
def manifests(draw: st.DrawFn, n_rows: int) -> ChunkManifest:
    """Manifests of so many chunks: ranges of files that are not there, inline and missing ones."""
    sources = tuple(draw(st.lists(_SOURCES, max_size=3)))
    states = [ChunkState.MISSING, ChunkState.INLINE] + [ChunkState.RANGE] * 2 * bool(sources)
    inline = draw(st.binary(max_size=20))
    rows: list[tuple[int, ...]] = []
    for _ in range(n_rows):
        state = draw(st.sampled_from(states))
        if state == ChunkState.INLINE:
            offset = draw(st.integers(0, len(inline)))
            rows.append((0, offset, draw(st.integers(0, len(inline) - offset)), state))
        elif state == ChunkState.RANGE:
            source = draw(st.integers(0, len(sources) - 1))
            rows.append((source, draw(st.integers(0, 2**50)), draw(st.integers(0, 2**33)), state))
        else:
            rows.append((draw(st.integers(-3, 7)), draw(st.integers(-5, 5)), 9, state))
    columns = np.array(rows, np.int64).reshape(n_rows, 4).T
    mask = draw(st.none() | st.lists(st.integers(0, 3), min_size=n_rows, max_size=n_rows))
    return ChunkManifest.from_columns(
        sources,
        source=columns[0],
        offset=columns[1],
        length=columns[2],
        state=columns[3],
        filter_mask=mask,
        inline=inline,
    )


def attributes() -> st.SearchStrategy[dict[str, Any]]:
    """Attributes of arrays and groups: Python's and numpy's values, nested ones too."""
    return st.dictionaries(st.text(max_size=5), _plain_values() | _numpy_values(), max_size=3)


def encodings(ndim: int) -> st.SearchStrategy[Encoding]:
    """Encodings of chunks of so many dimensions; their codecs need not fit together."""
    return st.builds(
        Encoding,
        st.lists(st.integers(1, 4), min_size=ndim, max_size=ndim).map(tuple),
        dtypes(),
        _CODECS,
        st.sampled_from(EdgePolicy),
        st.binary(max_size=3),
        st.none() | st.binary(max_size=3),
        _UNPACKINGS,
    )


def grids(ndim: int) -> st.SearchStrategy[ChunkGrid]:
    """Grids of a few blocks of uneven lengths, or of none."""
    edges = st.lists(st.integers(1, 5), max_size=3)
    return st.lists(edges, min_size=ndim, max_size=ndim).map(ChunkGrid.from_edges)


@st.composite
def arrays(draw: st.DrawFn) -> VirtualArray:
    """Arrays of up to three dimensions, with any blocks that their manifests have rows for."""
    ndim = draw(st.integers(0, 3))
    grid = draw(grids(ndim))
    dtype = draw(dtypes())
    kinds = draw(st.lists(encodings(ndim), min_size=1, max_size=3))
    tables = draw(st.lists(st.integers(0, 40).flatmap(manifests), max_size=3))
    shapes = [grid.data_shape(coords) for coords in np.ndindex(*grid.grid_shape)]
    rows = [_block(draw, ndim, shape, kinds, tables) for shape in shapes]
    columns = list(zip(*rows, strict=True)) or [()] * 7
    blocks = BlockTable(
        np.array(columns[0], np.int32),
        np.array(columns[1], np.int32),
        np.array(columns[2], np.int64),
        *(np.array(column, np.int64).reshape(len(rows), ndim) for column in columns[3:]),
    )
    return VirtualArray(
        grid,
        dtype,
        draw(scalars(dtype)),
        tuple(draw(st.lists(st.text(max_size=3), min_size=ndim, max_size=ndim))),
        draw(attributes()),
        tuple(kinds),
        tuple(tables),
        blocks,
        enumeration=draw(st.none() | enumerations()),
    )


def enumerations() -> st.SearchStrategy[Enumeration]:
    """Enumerations of any names and numbers."""
    numbers = st.integers(-(2**63), 2**64 - 1)
    members = st.dictionaries(st.text(max_size=3), numbers, max_size=3)
    items = members.map(lambda by_name: tuple(by_name.items()))
    return st.builds(Enumeration, st.text(min_size=1, max_size=3), items, st.booleans())


def _block(
    draw: st.DrawFn,
    ndim: int,
    shape: tuple[int, ...],
    kinds: list[Encoding],
    tables: list[ChunkManifest],
) -> tuple[Any, ...]:
    """A window whose chunks lie inside a manifest; a missing block where none is large enough."""
    number = draw(st.integers(0, len(kinds) - 1))
    origin, step, stored, n_chunks = [], [], [], []
    for extent, length in zip(shape, kinds[number].chunk_shape, strict=True):
        stride = draw(st.sampled_from([1, 1, 2, -1, 0]))
        low = draw(st.integers(0, 5))
        reach = abs(stride) * (extent - 1)
        origin.append(low + reach if stride < 0 else low)
        step.append(stride)
        stored.append(low + reach + 1 + draw(st.integers(0, 3)))
        n_chunks.append(-(-(low + reach + 1) // length))
    order = draw(st.permutations(range(ndim)))
    strides = [0] * ndim
    for rank, axis in enumerate(order):
        strides[axis] = math.prod(n_chunks[other] for other in order[rank + 1 :])
    fits = [i for i, manifest in enumerate(tables) if manifest.n_rows >= math.prod(n_chunks)]
    if not fits or draw(st.integers(0, 4)) == 0:
        return MISSING_BLOCK, 0, 0, [0] * ndim, [0] * ndim, [0] * ndim, [1] * ndim
    manifest = draw(st.sampled_from(fits))
    first_row = draw(st.integers(0, tables[manifest].n_rows - math.prod(n_chunks)))
    return number, manifest, first_row, strides, stored, origin, step


def groups() -> st.SearchStrategy[VirtualGroup]:
    """Groups of `arrays`, some with groups in them."""
    leaf = st.builds(
        VirtualGroup, st.dictionaries(_NAMES, arrays(), max_size=2), st.just({}), attributes()
    )
    return st.recursive(
        leaf,
        lambda inner: st.builds(
            VirtualGroup,
            st.dictionaries(_NAMES, arrays(), max_size=1),
            st.dictionaries(_NAMES, inner, max_size=2),
            attributes(),
        ),
        max_leaves=3,
    )


@st.composite
def arrays_with_values(
    draw: st.DrawFn, min_rank: int = 0, max_rank: int = 5
) -> tuple[VirtualArray, NDArray[np.int32]]:
    """Arrays of one to three files along an axis, cut and flipped, and what they read as.

    Files differ in chunk shape, edge policy, byte order and compression; chunks are inline, and
    some are absent. One element along an axis may be shown twice.
    """
    rank = draw(st.integers(min_rank, max_rank))
    longest = 9 if rank <= 2 else 5 if rank == 3 else 3
    shape = [draw(st.integers(1, longest)) for _ in range(rank)]
    dims = [f"d{axis}" for axis in range(rank)]
    if not rank:
        return draw(_files(shape, dims, 0))
    axis = draw(st.integers(0, rank - 1))
    files = []
    for number in range(draw(st.integers(1, 3))):
        shape[axis] = draw(st.integers(1, longest))
        files.append(draw(_files(shape, dims, number)))
    whole = concatenate([array for array, _ in files], axis)
    expected = np.concatenate([values for _, values in files], axis=axis)
    if draw(st.booleans()):
        window = tuple(draw(st.sampled_from(_WINDOWS)) for _ in range(rank))
        whole, expected = isel(whole, dict(zip(dims, window, strict=True))), expected[window]
    axis = draw(st.integers(0, rank - 1))
    if expected.shape[axis] and draw(st.booleans()):
        first = isel(whole, {dims[axis]: slice(0, 1)})
        whole, expected = broadcast_axis(first, axis, 2), expected.take([0, 0], axis)
    return whole, expected


_WINDOWS = [slice(None), slice(1, None), slice(None, None, -1), slice(0, -1, 2)]


@st.composite
def _files(
    draw: st.DrawFn, shape: list[int], dims: list[str], number: int
) -> tuple[VirtualArray, NDArray[np.int32]]:
    """The array of one file, and what it reads as."""
    first = 10_000 * number
    values = np.arange(first, first + math.prod(shape), dtype=np.int32).reshape(shape)
    chunk_shape = [draw(st.integers(1, extent + 2)) for extent in shape]
    counts = chunk_counts(shape, chunk_shape)
    absent = draw(st.sets(st.integers(0, math.prod(counts) - 1), max_size=1))
    array = chunked_array(
        values,
        chunk_shape,
        dims,
        edge=draw(st.sampled_from(EdgePolicy)),
        big_endian=draw(st.booleans()),
        compressed=draw(st.booleans()),
        fill_value=np.int32(-1),
        absent=absent,
    )
    for chunk in absent:
        coords = np.unravel_index(chunk, counts) if counts else ()
        window = zip(coords, chunk_shape, strict=True)
        values[tuple(slice(k * n, (k + 1) * n) for k, n in window)] = -1
    return array, values


def selections(extent: int, *, keep: bool = False) -> st.SearchStrategy[Any]:
    """What may select along an axis of so many elements: slices, integers, several, masks.

    With `keep`, only what keeps the axis: no integers.
    """
    bound = st.none() | st.integers(-extent - 3, extent + 3)
    slices = st.builds(slice, bound, bound, st.none() | st.integers(-9, 9).filter(bool))
    if extent == 0:
        return slices
    index = st.integers(-extent, extent - 1)
    several = st.lists(index, max_size=12).map(lambda numbers: np.array(numbers, np.int64))
    masks = st.lists(st.booleans(), min_size=extent, max_size=extent).map(np.array)
    return slices | several | masks if keep else slices | index | several | masks
