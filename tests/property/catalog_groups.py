"""Random virtual groups, and equality of virtual groups by all that they mean."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from gridref.model.array import MISSING_BLOCK, BlockTable, VirtualArray, VirtualGroup
from gridref.model.encoding import Codec, EdgePolicy, Encoding, Unpacking
from gridref.model.grid import ChunkGrid
from gridref.model.manifest import ChunkManifest, ChunkState, Source

NAMES = st.text(
    st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1, max_size=6
)
TEXTS = st.text(max_size=8) | st.just("broken \udc80")
FLOATS = st.floats(width=64)

DTYPES = st.sampled_from(
    [
        *(np.dtype(code) for code in ("?", "i1", "u1", "i2", "u8", "f2", "f4", "f8", "c8", "c16")),
        *(np.dtype(code) for code in ("S3", "U2", "V5", "M8[ns]", "m8[s]")),
        np.dtype([("a", "i4"), ("b", "f8")]),
        np.dtype({"names": ["a", "b"], "formats": ["i1", "f8"], "offsets": [0, 8], "itemsize": 24}),
        np.dtype([("a", "f4", (2, 3)), ("n", [("x", "S2")])]),
        np.dtype(np.dtypes.StringDType()),
    ]
)


@st.composite
def scalars(draw: st.DrawFn, dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "T":
        return draw(st.text(max_size=5))
    if dtype.kind == "U":
        return np.asarray(draw(st.text(st.characters(max_codepoint=1000), max_size=2)), dtype)[()]
    raw = draw(st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize))
    if dtype.kind == "b":
        return np.bool_(raw[0] & 1)
    return np.frombuffer(raw, dtype)[0]


def plain_values() -> st.SearchStrategy[Any]:
    simple = (
        st.none()
        | st.booleans()
        | st.integers()
        | FLOATS
        | st.complex_numbers()
        | TEXTS
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


def numpy_values() -> st.SearchStrategy[Any]:
    dtypes = st.sampled_from(
        ["?", "i1", "<u2", ">i4", "i8", "u8", "f2", "<f4", ">f8", "c8", "S4", "U3", ">U2", "M8[D]"]
    ).map(np.dtype)
    arrays = npst.arrays(dtypes, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    large = st.just(np.arange(100, dtype=">f4"))
    objects = st.lists(st.text(max_size=3), max_size=3).map(lambda v: np.array(v, object))
    fields = st.just(np.array([(1, 2.5)], [("a", "i2"), ("b", ">f8")]))
    strings = st.just(np.array(["a", "bc"], np.dtypes.StringDType()))
    scalar = arrays.filter(lambda array: array.size > 0).map(lambda array: array.reshape(-1)[0])
    return arrays | large | objects | fields | strings | scalar


ATTRS = st.dictionaries(st.text(max_size=5), plain_values() | numpy_values(), max_size=3)

CODECS = st.lists(
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

UNPACKINGS = st.none() | st.builds(
    Unpacking,
    st.none() | FLOATS,
    st.none() | FLOATS,
    st.lists(FLOATS | st.integers(), max_size=2).map(tuple),
    st.none() | st.booleans(),
    st.sampled_from(["float32", "float64"]),
)

SOURCES = st.builds(
    Source,
    st.sampled_from(["/data/a.nc", "/data/b c#%.nc", "s3://bucket/k.h5", "memory://x/y"]),
    st.none() | st.integers(0, 2**50),
    st.none() | st.integers(-(2**40), 2**62),
    st.none() | st.text(max_size=4),
)


@st.composite
def manifests(draw: st.DrawFn, n_rows: int) -> ChunkManifest:
    sources = tuple(draw(st.lists(SOURCES, max_size=3)))
    states = [ChunkState.MISSING, ChunkState.INLINE] + [ChunkState.RANGE] * 2 * bool(sources)
    inline = draw(st.binary(max_size=20))
    rows = []
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


@st.composite
def arrays(draw: st.DrawFn) -> VirtualArray:
    ndim = draw(st.integers(0, 3))
    grid = ChunkGrid.from_edges(
        [draw(st.lists(st.integers(1, 5), max_size=3)) for _ in range(ndim)]
    )
    dtype = draw(DTYPES)
    shapes = st.lists(st.integers(1, 4), min_size=ndim, max_size=ndim).map(tuple)
    encodings = draw(
        st.lists(
            st.builds(
                Encoding,
                shapes,
                DTYPES,
                CODECS,
                st.sampled_from(EdgePolicy),
                st.binary(max_size=3),
                st.none() | st.binary(max_size=3),
                UNPACKINGS,
            ),
            min_size=1,
            max_size=3,
        )
    )
    found = draw(st.lists(st.integers(0, 40).flatmap(manifests), max_size=3))
    rows = [_block(draw, ndim, edges, encodings, found) for edges in _block_shapes(grid)]
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
        draw(ATTRS),
        tuple(encodings),
        tuple(found),
        blocks,
    )


def _block_shapes(grid: ChunkGrid) -> list[tuple[int, ...]]:
    return [grid.data_shape(coords) for coords in np.ndindex(*grid.grid_shape)]


def _block(
    draw: st.DrawFn,
    ndim: int,
    shape: tuple[int, ...],
    encodings: list[Encoding],
    found: list[ChunkManifest],
) -> tuple[Any, ...]:
    """A window whose chunks lie inside a manifest; a missing block where none is large enough."""
    number = draw(st.integers(0, len(encodings) - 1))
    origin, step, stored, n_chunks = [], [], [], []
    for extent, length in zip(shape, encodings[number].chunk_shape, strict=True):
        stride = draw(st.sampled_from([1, 1, 2, -1, 0]))
        low = draw(st.integers(0, 5))
        reach = abs(stride) * (extent - 1)
        origin.append(low + reach if stride < 0 else low)
        step.append(stride)
        stored.append(low + reach + 1 + draw(st.integers(0, 3)))
        n_chunks.append(-(-(low + reach + 1) // length))
    order = draw(st.permutations(range(ndim)))
    strides = [0] * ndim
    for place, axis in enumerate(order):
        strides[axis] = math.prod(n_chunks[other] for other in order[place + 1 :])
    fits = [i for i, manifest in enumerate(found) if manifest.n_rows >= math.prod(n_chunks)]
    if not fits or draw(st.integers(0, 4)) == 0:
        return MISSING_BLOCK, 0, 0, [0] * ndim, [0] * ndim, [0] * ndim, [1] * ndim
    manifest = draw(st.sampled_from(fits))
    first_row = draw(st.integers(0, found[manifest].n_rows - math.prod(n_chunks)))
    return number, manifest, first_row, strides, stored, origin, step


GROUPS = st.recursive(
    st.builds(VirtualGroup, st.dictionaries(NAMES, arrays(), max_size=2), st.just({}), ATTRS),
    lambda inner: st.builds(
        VirtualGroup,
        st.dictionaries(NAMES, arrays(), max_size=1),
        st.dictionaries(NAMES, inner, max_size=2),
        ATTRS,
    ),
    max_leaves=3,
)


def assert_same_group(found: VirtualGroup, expected: VirtualGroup) -> None:
    assert_same_value(dict(found.attrs), dict(expected.attrs))
    assert list(found.arrays) == list(expected.arrays)
    assert list(found.groups) == list(expected.groups)
    for name, array in expected.arrays.items():
        assert_same_array(found.arrays[name], array)
    for name, group in expected.groups.items():
        assert_same_group(found.groups[name], group)


def assert_same_array(found: VirtualArray, expected: VirtualArray) -> None:
    assert found.grid == expected.grid
    assert found.dtype == expected.dtype
    assert found.dims == expected.dims
    assert_same_value(dict(found.attrs), dict(expected.attrs))
    assert np.asarray(found.fill_value, found.dtype).tobytes() == (
        np.asarray(expected.fill_value, expected.dtype).tobytes()
        if expected.dtype.kind != "T"
        else np.asarray(found.fill_value, found.dtype).tobytes()
    )
    assert expected.dtype.kind != "T" or found.fill_value == expected.fill_value
    assert_same_encodings(found.encodings, expected.encodings)
    for name in ("encoding", "row_stride", "stored_shape", "origin", "step"):
        column = getattr(found.blocks, name)
        assert column.dtype == getattr(expected.blocks, name).dtype
        assert np.array_equal(column, getattr(expected.blocks, name)), name
    for block, shape in enumerate(_block_shapes(expected.grid)):
        if expected.blocks.encoding[block] != MISSING_BLOCK:
            assert_same_rows(*(rows_of(array, block, shape) for array in (found, expected)))


def assert_same_encodings(found: tuple[Encoding, ...], expected: tuple[Encoding, ...]) -> None:
    for one, other in zip(found, expected, strict=True):
        for name in ("chunk_shape", "dtype", "codecs", "edge", "prefix", "fill"):
            assert getattr(one, name) == getattr(other, name)
        assert_same_value(
            None if one.unpacking is None else vars(one.unpacking),
            None if other.unpacking is None else vars(other.unpacking),
        )


def rows_of(array: VirtualArray, block: int, shape: tuple[int, ...]) -> ChunkManifest:
    """The chunk references that a block's window touches, in C order."""
    table = array.blocks
    chunk_shape = np.array(array.encodings[table.encoding[block]].chunk_shape, np.int64)
    last = table.origin[block] + table.step[block] * (np.array(shape, np.int64) - 1)
    low = np.minimum(table.origin[block], last) // chunk_shape
    high = np.maximum(table.origin[block], last) // chunk_shape
    coords = [low + np.array(k, np.int64) for k in np.ndindex(*(high - low + 1).tolist())]
    rows = [int(table.first_row[block] + k @ table.row_stride[block]) for k in coords]
    return array.manifests[table.manifest[block]].take(np.array(rows, np.int64))


def assert_same_rows(found: ChunkManifest, expected: ChunkManifest) -> None:
    assert np.array_equal(found.state, expected.state)
    for row, state in enumerate(expected.state.tolist()):
        if state == ChunkState.MISSING:
            continue
        assert found.length[row] == expected.length[row]
        assert mask_of(found, row) == mask_of(expected, row)
        if state == ChunkState.INLINE:
            assert found.inline_bytes(row) == expected.inline_bytes(row)
        else:
            assert found.offset[row] == expected.offset[row]
            assert found.sources[found.source[row]] == expected.sources[expected.source[row]]


def mask_of(manifest: ChunkManifest, row: int) -> int:
    return 0 if manifest.filter_mask is None else int(manifest.filter_mask[row])


def assert_same_value(found: Any, expected: Any) -> None:
    """Equal in type, dtype, shape and bits."""
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray | np.generic):
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert found.tolist() == expected.tolist() or found.tobytes() == expected.tobytes()
    elif isinstance(expected, Mapping):
        assert list(found) == list(expected)
        for name in expected:
            assert_same_value(found[name], expected[name])
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same_value(one, other)
    else:
        assert repr(found) == repr(expected)
