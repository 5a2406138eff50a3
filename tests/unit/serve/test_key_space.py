"""Keys and folders of a hierarchy: what is there, what is listed, and nothing else."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gridref.errors import InvalidRequestError, NotRepresentableError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.serve import pages
from gridref.serve.objects import KeySpace
from gridref.serve.pages import keys_present
from gridref.serve.views import View, ViewOptions
from gridref.testing.builders import chunked_array


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
