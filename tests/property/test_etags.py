"""Entity tags differ where contents do, whatever it is that differs, and are stable."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridref.api.readable import reader_for
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Encoding, bytes_codec
from gridref.model.indexing import flip, getitem
from gridref.model.joining import concatenate
from gridref.model.manifest import ChunkManifest, Source
from gridref.serve.object_reader import ObjectReader
from gridref.serve.objects import KeySpace
from gridref.serve.views import View, ViewOptions
from gridref.testing.builders import chunked_array
from tests.work import FEWER

VIEWS = [
    ViewOptions(View.AUTO),
    ViewOptions(View.PORTABLE),
    ViewOptions(View.PORTABLE, chunks={"t": 5, "x": 4}),
    ViewOptions(View.PORTABLE, chunks={"t": 5, "x": 4}, compressor="gzip"),
    ViewOptions(View.PORTABLE, chunks={"t": 3, "x": 2}, shards={"t": 6, "x": 4}),
    ViewOptions(View.AUTO, shards="blocks"),
]


SHIFTS = st.sampled_from([0, 1])


@st.composite
def arrays(draw: st.DrawFn) -> VirtualArray:
    """Arrays that have much in common: few values, cut, turned round and put together."""
    blocks = []
    for _ in range(draw(st.integers(1, 2))):
        dtype = draw(st.sampled_from(["i2", "u2"]))
        values = np.arange(24, dtype=dtype).reshape(6, 4) + np.dtype(dtype).type(draw(SHIFTS))
        array = chunked_array(
            values,
            draw(st.sampled_from([(2, 2), (3, 4), (6, 4)])),
            ("t", "x"),
            compressed=draw(st.booleans()),
            big_endian=draw(st.booleans()),
            absent=draw(st.sampled_from([(), (0,)])),
            fill_value=draw(st.sampled_from([0, 7])),
        )
        for axis in draw(st.sets(st.integers(0, 1))):
            array = flip(array, axis)
        cut = draw(st.sampled_from([np.s_[:], np.s_[1:], np.s_[::2], np.s_[:5]]))
        blocks.append(getitem(array, cut))
    same = [block for block in blocks if block.dtype == blocks[0].dtype]
    return (
        same[0]
        if len(same) == 1 or same[0].fill_value != same[1].fill_value
        else concatenate(same, 0)
    )


def contents(array: VirtualArray, options: ViewOptions) -> dict[str, bytes]:
    """The bytes of every object of a view, by entity tag; each tag has one content."""
    space, reader = KeySpace(VirtualGroup({"a": array}), options), ObjectReader(reader_for())
    found: dict[str, bytes] = {}
    for key in space.keys(""):
        held = space.resolve(key)
        assert held is not None
        data = reader.read(held)
        assert found.setdefault(held.etag, data) == data
    return found


@FEWER
@given(first=arrays(), second=arrays(), one=st.sampled_from(VIEWS), other=st.sampled_from(VIEWS))
def test_one_tag_never_has_two_contents(first, second, one, other):
    mine, theirs = contents(first, one), contents(second, other)
    for tag in mine.keys() & theirs.keys():
        assert mine[tag] == theirs[tag]


@FEWER
@given(array=arrays(), options=st.sampled_from(VIEWS))
def test_the_same_has_the_same_tags(array, options):
    assert contents(array, options) == contents(array, options)


SOURCE = Source("memory://a.bin", 800, 5, "tag")


def of_source(source: Source, offset: int = 0, length: int = 40, dtype: str = "<i4", mask: int = 0):
    manifest = ChunkManifest.from_columns(
        [source], offset=np.array([offset]), length=length, filter_mask=np.array([mask], "u4")
    )
    native = np.dtype(dtype).newbyteorder("=")
    codec = bytes_codec(native, big_endian=dtype.startswith(">"))
    encoding = Encoding((10,), native, (codec,))
    return VirtualArray.of_one_block(
        (10,), native, encoding=encoding, manifest=manifest, dims=("t",)
    )


CHANGES = {
    "address": of_source(replace(SOURCE, url="memory://b.bin")),
    "size": of_source(replace(SOURCE, size_bytes=801)),
    "time": of_source(replace(SOURCE, mtime_ns=6)),
    "its own tag": of_source(replace(SOURCE, etag="other")),
    "offset": of_source(SOURCE, offset=4),
    "byte order": of_source(SOURCE, dtype=">i4"),
    "dtype": of_source(SOURCE, dtype="<u4"),
    "direction": flip(of_source(SOURCE), 0),
}


@pytest.mark.parametrize("options", [VIEWS[1], VIEWS[2]])
@pytest.mark.parametrize("change", CHANGES)
def test_what_must_change_a_tag(change, options):
    def tag(array: VirtualArray) -> str:
        held = KeySpace(VirtualGroup({"a": array}), options).resolve("a/c/0")
        assert held is not None
        return held.etag

    same_bytes = change == "dtype" and options is VIEWS[1]  # sent as they are stored
    assert (tag(CHANGES[change]) == tag(of_source(SOURCE))) == same_bytes
    assert tag(of_source(SOURCE)) == tag(of_source(SOURCE))


def test_tags_are_equal_in_every_process():
    code = (
        "from tests.property.test_etags import *\n"
        "print([KeySpace(VirtualGroup({'a': of_source(SOURCE)}), o).resolve('a/c/0').etag"
        " for o in VIEWS])"
    )
    other = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    group = VirtualGroup({"a": of_source(SOURCE)})
    mine = [KeySpace(group, options).resolve("a/c/0").etag for options in VIEWS]
    assert other.stdout.strip() == str(mine)
