from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

import gridref
from gridref.errors import InvalidRequestError, NotRepresentableError, ReadError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.serve import pages
from gridref.serve.names import (
    IN_ADDRESSES,
    IN_ZARR,
    asked_key,
    shown_name,
    shown_names,
    with_shown_names,
)
from gridref.serve.objects import KeySpace
from gridref.serve.pages import keys_present
from gridref.serve.reader import Scratch, empty, never_absent
from gridref.serve.views import View, ViewOptions
from gridref.testing.builders import chunked_array

# Keys and folders of a hierarchy: what is there, what is listed, and nothing else


def array(absent: tuple[int, ...] = (), **options: object) -> VirtualArray:
    """4 by 2 chunks."""
    values = np.arange(8 * 6, dtype="i4").reshape(8, 6)
    return chunked_array(values, (2, 3), ("t", "x"), absent=absent, **options)


SCALAR = chunked_array(np.array(5, "i4"), (), ())
NOTHING = chunked_array(np.array(0, "i4"), (), (), absent=(0,))
GROUP = VirtualGroup(
    {"a": array((0, 1, 5)), "s": SCALAR, "n": NOTHING, "c": array()},
    attrs={"k": 1},
    groups={
        "g": VirtualGroup(
            {"a": array((*range(8),))}, attrs={"k": 2}, groups={"h": VirtualGroup({"b": array()})}
        ),
        "ga": VirtualGroup({}, attrs={"k": 3}),
    },
)


@pytest.fixture
def space() -> KeySpace:
    return KeySpace(GROUP, ViewOptions(View.NATIVE))


FOLDERS = {
    "": "zarr.json a s n c g ga",
    "/": "zarr.json a s n c g ga",
    "a": "zarr.json c",
    "a/": "zarr.json c",
    "a/c": "1 2 3",
    "a/c/0": "",
    "a/c/1": "0 1",
    "a/c/2": "0",
    "a/c/4": "",
    "a/c/1/0": "",
    "a/c/01": "",
    "s": "zarr.json c",
    "s/c": "",
    "n": "zarr.json",
    "c": "zarr.json c",
    "c/c": "0 1 2 3",
    "c/c/3": "0 1",
    "g": "zarr.json a h",
    "g/a": "zarr.json c",
    "g/a/c": "",
    "g/h": "zarr.json b",
    "g/h/b/c/3": "0 1",
    "ga": "zarr.json",
    "x": "",
    "a/x": "",
    "g/c": "",
    "c/0": "",
}


@pytest.mark.parametrize("path", FOLDERS)
def test_folders_hold_what_is_there(space: KeySpace, path: str) -> None:
    assert space.list_dir(path) == FOLDERS[path].split()
    assert space.is_dir(path) == bool(FOLDERS[path])


def test_every_key_that_is_listed_is_there_and_no_other(space: KeySpace) -> None:
    keys = [*space.keys()]
    assert len(keys) == len(set(keys))
    documents = [f"{path}zarr.json" for path in ("", "g/", "g/h/", "ga/")]
    documents += [f"{path}/zarr.json" for path in ("a", "s", "n", "c", "g/a", "g/h/b")]
    every = [f"{t}/{x}" for t in range(4) for x in range(2)]
    held = [key for key in every if key not in ("0/0", "0/1", "2/1")]
    chunks = [f"a/c/{key}" for key in held] + [
        f"{a}/c/{key}" for a in ("c", "g/h/b") for key in every
    ]
    assert set(keys) == {*documents, *chunks, "s/c"}
    assert all(space.resolve(key) is not None for key in keys)
    for prefix in (
        "a",
        "a/",
        "a/c",
        "a/c/",
        "a/c/1",
        "a/c/1/0",
        "c/c/3",
        "g",
        "g/",
        "g/h",
        "z",
        "s/c",
    ):
        assert [*space.keys(prefix)] == [key for key in keys if key.startswith(prefix)]


@pytest.mark.parametrize(
    "key",
    [
        *("a/c/0/0", "a/c/4/0", "a/c/1/2", "a/c/1", "a/c/1/0/0", "a/c", "a/c/", "a/c/1/0/", "n/c"),
        *("a/c/01/0", "a/c/+1/0", "a/c/-1/0", "a/c/1e0/0", "a/c/1//0", "a/c/١/0", "a/c/1.0"),
        *("s/c/0", "s/c/", "x/c/0", "g/c/0", "a", "", "x/zarr.json", "zarr.json/", "a//zarr.json"),
        f"a/c/{10**18}/0",
        f"a/c/{10**30}/0",
    ],
)
def test_no_other_key_is_there(space: KeySpace, key: str) -> None:
    assert space.resolve(key) is None
    assert space.peek(key) is None


def test_the_address_of_a_chunk(space: KeySpace) -> None:
    found = space.chunk_of("g/h/b/c/3/1")
    assert found is not None
    assert (found[0], found[2]) == ("g/h/b", (3, 1))
    assert found[1] is space.array_view("g/h/b")
    missing = space.chunk_of("a/c/0/0")
    assert missing is not None
    assert missing[2] == (0, 0)
    assert space.chunk_of("zarr.json") is None
    assert space.chunk_of("a/c/4/0") is None
    assert space.array_view("g") is None
    assert space.array_view("x/a") is None
    assert [*space.views()] == ["a", "s", "n", "c", "g/a", "g/h/b"]


def test_groups_describe_all_below_them(space: KeySpace) -> None:
    def document(path: str) -> dict:
        found = space.resolve(path)
        assert found is not None
        return json.loads(found.segments[0].data)

    root, g = document("zarr.json"), document("g/zarr.json")
    assert root["attributes"] == {"k": 1}
    members = root["consolidated_metadata"]["metadata"]
    assert set(members) == {*("a", "s", "n", "c", "g", "g/a", "g/h", "g/h/b", "ga")}
    assert members["g/h/b"] == document("g/h/b/zarr.json")
    assert (members["g"]["attributes"], members["ga"]["attributes"]) == ({"k": 2}, {"k": 3})
    assert set(g["consolidated_metadata"]["metadata"]) == {"a", "h", "h/b"}
    assert not document("ga/zarr.json")["consolidated_metadata"]["metadata"]


def test_at_hand_is_what_was_asked_for_before(space: KeySpace) -> None:
    for key in ("zarr.json", "a/zarr.json", "g/h/b/c/3/1", "s/c"):
        assert space.peek(key) is None
        found = space.resolve(key)
        assert found is not None
        again = space.peek(key)
        assert again is not None
        assert again.etag == found.etag


def test_shards_at_hand_are_those_asked_for() -> None:
    space = KeySpace(GROUP, ViewOptions(View.NATIVE, shards={"t": 4, "x": 6}))
    assert space.peek("a/c/0/0") is None
    found = space.resolve("a/c/0/0")
    assert space.peek("a/c/0/0") is found is space.resolve("a/c/0/0")
    assert space.resolve("a/c/2/0") is None
    assert (
        KeySpace(VirtualGroup({"a": array((*range(8),))}), space.options).resolve("a/c/0/0") is None
    )


def test_single_arrays_have_options_of_their_own() -> None:
    group = VirtualGroup({"odd": array(), "a": array()})
    space = KeySpace(group, ViewOptions(View.NATIVE), {"odd": ViewOptions(View.PORTABLE)})
    views = {path: view.view for path, view in space.views().items()}
    assert views == {"odd": View.PORTABLE, "a": View.NATIVE}


def test_refusals_name_the_array() -> None:
    mixed = array(big_endian=True).with_changes(dtype=np.dtype("f8"))
    space = KeySpace(VirtualGroup({"a": mixed}), ViewOptions(View.NATIVE))
    with pytest.raises(NotRepresentableError) as caught:
        space.resolve("a/zarr.json")
    assert caught.value.place.variable == "a"


@pytest.mark.parametrize("at_a_time", [1, 3, 4, 7, 10**6])
@pytest.mark.parametrize("view", [View.NATIVE, View.PORTABLE])
@pytest.mark.parametrize("shards", [None, {"t": 2, "x": 6}, {"t": 4, "x": 3}, {"t": 6, "x": 6}])
def test_listings_are_the_same_however_much_is_looked_up_at_a_time(
    monkeypatch: pytest.MonkeyPatch, at_a_time: int, view: View, shards: dict[str, int] | None
) -> None:
    monkeypatch.setattr(pages, "LISTED_CHUNKS", at_a_time)
    options = ViewOptions(view, chunks={"t": 2, "x": 3}, shards=shards)
    for absent in ((), (0, 1, 5), (0, 2, 4, 6), (*range(8),)):
        space = KeySpace(VirtualGroup({"a": array(absent)}), options)
        shown = space.array_view("a")
        assert shown is not None
        rows, columns = shown.metadata.grid.grid_shape
        there = [
            (t, x)
            for t in range(rows)
            for x in range(columns)
            if space.resolve(f"a/c/{t}/{x}") is not None
        ]
        assert [*keys_present(shown)] == there
        for t in range(rows):
            assert [*keys_present(shown, (t,))] == [each for each in there if each[0] == t]
        for coords in np.ndindex(rows, columns):
            assert [*keys_present(shown, coords)] == [c for c in there if c == coords]


@pytest.mark.parametrize("name", ["chunks", "shards"])
def test_lengths_are_at_least_1(name: str) -> None:
    ViewOptions(**{name: {"t": 1}})
    for length in (0, -1):
        with pytest.raises(InvalidRequestError, match=f"'t'.*|{length}"):
            ViewOptions(**{name: {"x": 2, "t": length}})


def test_words_that_options_take() -> None:
    for shards in ("blocks", "auto"):
        assert ViewOptions(shards=shards).shards == shards
    for wrong in ({"shards": "files"}, {"compressor": "blosc"}, {"compressor": ""}):
        with pytest.raises(InvalidRequestError):
            ViewOptions(**wrong)
    assert ViewOptions(grid="rectilinear").rectilinear
    assert not ViewOptions(grid="regular").rectilinear


# Names that are shown otherwise, and what a client means by a key


@pytest.mark.parametrize(
    ("name", "in_zarr", "in_addresses"),
    [
        ("plain", "plain", "plain"),
        ("a#b?", "a#b?", "a%23b%3F"),
        ("a%2Fb", "a%2Fb", "a%252Fb"),
        ("50%", "50%", "50%"),
        ("a\\b", "a%5Cb", "a%5Cb"),
        ("zarr.json", "zarr%2Ejson", "zarr%2Ejson"),
        (".zarray", "%2Ezarray", "%2Ezarray"),
        ("zarr.json2", "zarr.json2", "zarr.json2"),
        (" a b ", " a b ", "%20a b%20"),
        ("a\r\nb\t\x7f", "a\r\nb\t\x7f", "a%0D%0Ab%09%7F"),
    ],
)
def test_what_is_shown(name: str, in_zarr: str, in_addresses: str) -> None:
    assert shown_name(name, IN_ZARR) == in_zarr
    assert shown_name(name, IN_ADDRESSES) == in_addresses


def group(*names: str, below: str | None = None, dims: str = "x") -> VirtualGroup:
    arrays = {name: chunked_array(np.zeros(2), (2,), (dims,)) for name in names}
    groups = {} if below is None else {below: VirtualGroup({"v#": arrays[names[0]]})}
    return VirtualGroup(arrays, groups=groups, unlimited_dims=frozenset({dims}))


def test_names_of_all_parts_are_shown() -> None:
    plain = group("a", "b", below=None)
    assert with_shown_names(plain, IN_ADDRESSES) is plain
    odd = group("a?", "b", below="g#", dims="x?")
    assert shown_names(odd, IN_ADDRESSES) == {"a%3F": "a?", "g%23": "g#", "v%23": "v#"}
    shown = with_shown_names(odd, IN_ADDRESSES)
    assert [*shown.arrays] == ["a%3F", "b"]
    assert shown.arrays["b"].dims == ("x%3F",)
    assert [*shown.groups] == ["g%23"]
    assert [*shown.groups["g%23"].arrays] == ["v%23"]
    assert shown.unlimited_dims == {"x%3F"}


@pytest.mark.parametrize("names", [("a?", "a%3F"), (".",), ("..",)])
def test_names_that_cannot_be_told_apart(names: tuple[str, ...]) -> None:
    with pytest.raises(NotRepresentableError):
        shown_names(group(*names), IN_ADDRESSES)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("a?/c/0", "a%3F/c/0"),
        ("a%3F/c/0", "a%3F/c/0"),
        ("b?/c/0", "b?/c/0"),
        ("g/a?/zarr.json", "g/a%3F/zarr.json"),
        ("zarr.json", "zarr.json"),
        ("zarr.json/zarr.json", "zarr%2Ejson/zarr.json"),
        ("a?", "a%3F"),
    ],
)
def test_what_a_client_means(key: str, meant: str) -> None:
    assert asked_key(key, {"a%3F", "zarr%2Ejson"}, IN_ADDRESSES) == meant


@pytest.mark.parametrize(
    ("raised", "seen"),
    [
        (KeyError("k"), ReadError),
        (IndexError("i"), ReadError),
        (FileNotFoundError("f"), ReadError),
        (ReadError("r"), ReadError),
        (InvalidRequestError("n"), InvalidRequestError),
        (ValueError("v"), ValueError),
    ],
)
def test_no_error_looks_like_absence(raised: Exception, seen: type[Exception]) -> None:
    with pytest.raises(seen) as caught, never_absent():
        raise raised
    assert (caught.value is raised) == (type(raised) is seen)
    if caught.value is not raised:
        assert caught.value.__cause__ is raised
        assert type(raised).__name__ in str(caught.value)


@pytest.mark.parametrize("allocate", [empty, Scratch().empty])
def test_more_than_there_is_memory_for(allocate: object) -> None:
    assert callable(allocate)
    for n in (2**50, 2**62):
        with pytest.raises(InvalidRequestError, match=rf"\({n}, 1\) has {8 * n} bytes"):
            allocate((n, 1), np.dtype("f8"))


@pytest.mark.parametrize(
    ("n_bytes", "is_taken"),
    [((2 << 20) - 1, False), (2 << 20, True), (8 << 20, True), ((8 << 20) + 1, False)],
)
def test_kept_memory_of_another_size_is_left_for_others(n_bytes: int, is_taken: bool) -> None:
    scratch = Scratch(1 << 30)
    kept = scratch.empty((8 << 20,), np.dtype("u1"))
    del kept
    assert scratch.n_bytes == 8 << 20
    held = scratch.empty((n_bytes,), np.dtype("u1"))
    assert scratch.n_bytes == (0 if is_taken else 8 << 20)
    assert held.size == n_bytes


# Shards put together of many runs, of several files and of none

VALUES = np.arange(48, dtype="i4").reshape(12, 4)


@pytest.fixture
def scattered(tmp_path: Path) -> VirtualArray:
    """Three files, whose chunks lie in the order in which they were written."""
    parts = []
    for number in range(3):
        path = tmp_path / f"{number}.h5"
        with h5py.File(path, "w", libver="latest") as file:
            data = file.create_dataset("v", (4, 4), "i4", chunks=(1, 2), maxshape=(None, 4))
            for row in (2, 0, 3, 1):
                data[row] = VALUES[4 * number + row]
                file.create_dataset(f"between{row}", data=np.zeros(5))
        parts.append(gridref.scan(path).arrays["v"])
    return gridref.concat(parts, parts[0].dims[0])


@pytest.mark.parametrize("view", ["native", "portable"])
@pytest.mark.parametrize("shape", [(12, 4), (6, 4), (4, 2), (1, 4)])
def test_shards_hold_what_was_asked_for(
    scattered: VirtualArray, view: str, shape: tuple[int, int]
) -> None:
    asked = dict(zip(scattered.dims, shape, strict=True))
    group = VirtualGroup({"v": scattered})
    chunks = dict(zip(scattered.dims, (1, 2), strict=True)) if view == "portable" else None
    store = gridref.open_store(group, view, shards=asked, chunks=chunks)
    array = zarr.open_group(store, mode="r")["v"]
    assert (array.shards, array.chunks) == (shape, (1, 2))
    np.testing.assert_array_equal(array[...], VALUES)
    for part in (np.s_[1:11:3], np.s_[7], np.s_[3:5, 1:3]):
        np.testing.assert_array_equal(array[part], VALUES[part])


def test_inline_chunks_and_files_in_one_shard(scattered: VirtualArray) -> None:
    inline = chunked_array(100 + VALUES[:4], (1, 2), scattered.dims)
    mixed = gridref.concat([scattered, inline, scattered], scattered.dims[0])
    expected = np.concatenate([VALUES, 100 + VALUES[:4], VALUES])
    store = gridref.open_store(
        VirtualGroup({"v": mixed}), "native", shards=dict(zip(mixed.dims, (28, 4), strict=True))
    )
    array = zarr.open_group(store, mode="r")["v"]
    assert array.shards == (28, 4)
    np.testing.assert_array_equal(array[...], expected)
