"""What the types of the model refuse on construction, and what tells two of them apart."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gridref.errors import InvalidRequestError, NotRepresentableError
from gridref.model.array import Enumeration, VirtualArray, VirtualGroup, check_name
from gridref.model.blocks import BlockTable
from gridref.model.encoding import Codec, EdgePolicy, Encoding, Unpacking, bytes_codec
from gridref.model.grid import ChunkGrid
from gridref.model.indexing import getitem
from gridref.model.manifest import ChunkManifest, Source
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly

I4 = np.dtype("<i4")
PLAIN = Encoding((2,), I4, (bytes_codec(I4),))


def line(n: int = 4) -> VirtualArray:
    return chunked_array(np.arange(n, dtype="i4"), (2,), ("x",), fill_value=-1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: line().with_changes(dims=("x", "y")),
        lambda: line().with_changes(dims=()),
        lambda: line().with_changes(grid=ChunkGrid.regular((4,), (2,))),
        lambda: line().with_changes(encodings=(replace(PLAIN, chunk_shape=(2, 2)),)),
        lambda: replace(line().blocks, manifest=np.zeros(2, np.int32)),
        lambda: Encoding((2, 0), I4, (bytes_codec(I4),)),
        lambda: Encoding((-1,), I4, (bytes_codec(I4),)),
        lambda: Encoding((2,), I4, (Codec("numcodecs.zlib"),)).split_codecs,
        lambda: Enumeration("", (("a", 1),)),
        lambda: Enumeration("e", (("a", 1), ("a", 2))),
        lambda: check_name(""),
        lambda: check_name("a/b"),
        lambda: np.asarray(line()),
        lambda: line().__array__(copy=False),
    ],
    ids=range(14),
)
def test_what_cannot_be(make: Any) -> None:
    with pytest.raises(InvalidRequestError):
        make()


def test_manifests_have_columns_of_one_length() -> None:
    rows = ChunkManifest.from_columns([Source("/a")], offset=[0, 4], length=4)
    for name in ("source", "offset", "length", "state"):
        with pytest.raises(InvalidRequestError, match="columns differ"):
            replace(rows, **{name: getattr(rows, name)[:1]})
    with pytest.raises(InvalidRequestError, match="columns differ"):
        replace(rows, filter_mask=np.zeros(1, np.uint32))
    wide = {
        name: getattr(rows, name)[:, np.newaxis] for name in ("source", "offset", "length", "state")
    }
    with pytest.raises(InvalidRequestError, match="columns differ"):
        replace(rows, **wide)
    assert replace(rows, filter_mask=np.zeros(2, np.uint32)).n_rows == 2
    with pytest.raises(NotRepresentableError, match="expand_dims"):
        getitem(line(), (None, slice(None)))


def test_the_least_of_everything_can_be() -> None:
    assert Encoding((1,), I4, (bytes_codec(I4),)).ndim == 1
    assert Enumeration("e", (("a", 1), ("b", 1))).members == (("a", 1), ("b", 1))
    assert Enumeration("e", ()).members == ()
    check_name("a")
    assert BlockTable.missing(0, 2).encoding.size == 0


CHANGES: list[dict[str, Any]] = [
    {},
    {"chunk_shape": (3,)},
    {"dtype": np.dtype("<u4")},
    {"codecs": (bytes_codec(I4), Codec("crc32c"))},
    {"edge": EdgePolicy.TRUNCATED},
    {"prefix": b"p"},
    {"fill": bytes(4)},
    {"unpacking": Unpacking(scale=2.0)},
]


def test_encodings_are_equal_where_all_of_them_is() -> None:
    encodings = [replace(PLAIN, **change) for change in CHANGES]
    for (i, one), (j, other) in itertools.product(enumerate(encodings), repeat=2):
        again = Encoding(
            *(
                getattr(other, name)
                for name in (
                    "chunk_shape",
                    "dtype",
                    "codecs",
                    "edge",
                    "prefix",
                    "fill",
                    "unpacking",
                )
            )
        )
        assert (one == again) == (i == j)
        assert (hash(one) == hash(again)) == (i == j)
        assert pickle.loads(pickle.dumps(one)) == one
    assert PLAIN != "PLAIN"
    shuffle, zlib, turn = Codec("numcodecs.shuffle"), Codec("numcodecs.zlib"), Codec("transpose")
    chain = replace(PLAIN, codecs=(turn, bytes_codec(I4), shuffle, zlib))
    assert chain.split_codecs == ((turn,), bytes_codec(I4), (shuffle, zlib))
    assert PLAIN.split_codecs == ((), bytes_codec(I4), ())


def test_codecs_in_json() -> None:
    codec = Codec.of("gzip", level=5)
    for document in (codec.to_json(), {"name": "gzip", "configuration": {"level": 5}}):
        assert Codec.from_json(document) == codec
    assert Codec.from_json("bytes") == Codec.from_json({"name": "bytes"})
    assert Codec("bytes").to_json() == {"name": "bytes", "configuration": {}}


def test_what_a_path_leads_to() -> None:
    inner = VirtualGroup({"v": line()})
    group = VirtualGroup({"v": line(2)}, groups={"g": inner})
    assert group["v"] is group.arrays["v"]
    assert group["/g/"] is inner
    assert group["g/v"] is inner.arrays["v"]
    for path in ("w", "g/w", "v/x", "g/v/x", ""):
        with pytest.raises(KeyError):
            _ = group[path]
        assert path not in group
    for path, near in (("vv", "'v'"), ("g/w", "'g/v'"), ("xyz", "there are g, g/v, v")):
        with pytest.raises(KeyError, match=near):
            _ = group[path]
    assert "g/v" in group
    assert 5 not in group


def test_numpy_gets_values_that_are_read() -> None:
    class Access:
        def read(self, array: VirtualArray, selection: Any = None) -> Any:
            assert selection is None
            return read_slowly(array)

    array = line().with_changes(access=Access())
    assert np.asarray(array).tolist() == [0, 1, 2, 3]
    assert np.asarray(array, "f8").dtype == "f8"
    assert np.array(array, copy=True).tolist() == [0, 1, 2, 3]
    with pytest.raises(InvalidRequestError, match="without a copy"):
        array.__array__(copy=False)


@pytest.mark.parametrize("number", [10**400, "2", None, [1.0]])
def test_factors_that_no_float_can_hold_are_refused(number: Any) -> None:
    with pytest.raises(InvalidRequestError, match="must be numbers"):
        Unpacking(fill_values=(number,))
    if number is not None:
        with pytest.raises(InvalidRequestError, match="must be numbers"):
            Unpacking(offset=number)
