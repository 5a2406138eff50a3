"""Names that are shown otherwise, and what a client means by a key."""

from __future__ import annotations

import numpy as np
import pytest

from gridref.errors import InvalidRequestError, NotRepresentableError, ReadError
from gridref.model.array import VirtualGroup
from gridref.serve.objects import (
    IN_ADDRESSES,
    IN_ZARR,
    asked_key,
    shown_name,
    shown_names,
    with_shown_names,
)
from gridref.serve.reader import Scratch, empty, never_absent
from gridref.testing.builders import chunked_array


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
