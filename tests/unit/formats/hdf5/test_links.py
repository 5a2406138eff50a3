"""Links of groups: what h5py lists, and what is corrupt."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import pytest

from gridref.errors import GridrefError, SourceFormatError
from gridref.formats.hdf5.bytes import Hdf5Bytes, read_superblock
from gridref.formats.hdf5.headers import read_header
from gridref.formats.hdf5.links import Link, LinkKind, is_group, read_links
from tests.hdf5_bytes import BufferReader, LocalReader
from tests.shared_data import shared_hdf5_files
from tools.fuzz.hdf5_mutations import Span, checked_spans, mend

FORMATS: list[dict[str, Any]] = [
    {"libver": "earliest"},
    {"libver": "earliest", "track_order": True},
    {"libver": "latest"},
    {"libver": "latest", "track_order": True},
    {"libver": "earliest", "userblock_size": 512},
]


def as_h5py_lists(group: h5py.Group) -> list[Link]:
    found = []
    for name in group.id:
        kind = group.id.links.get_info(name).type
        if kind == h5py.h5l.TYPE_HARD:
            address = h5py.h5o.get_info(group.id, name).addr
            found.append(Link(name, LinkKind.HARD, address=address))
        elif kind == h5py.h5l.TYPE_SOFT:
            found.append(Link(name, LinkKind.SOFT, target=group.id.links.get_val(name)))
        else:
            file_name, target = group.id.links.get_val(name)
            found.append(Link(name, kind, target=target, file_name=file_name))
    return found


def as_we_list(file: Hdf5Bytes, address: int) -> list[Link]:
    header = read_header(file, address)
    assert is_group(header)
    links = read_links(file, header).listed
    return [Link(ln.name, ln.kind, ln.address, ln.target, ln.file_name) for ln in links]


def compare(path: Path) -> int:
    """Compare all groups of a file; returns how many there are."""
    groups = {}

    def visit(_: str, found: Any) -> None:
        if isinstance(found, h5py.Group):
            groups[h5py.h5o.get_info(found.id).addr] = found

    with h5py.File(path, "r") as file, LocalReader(path) as reader:
        visit("/", file["/"])
        file.visititems(visit)
        view = read_superblock(reader)
        assert view.root in groups
        for address, group in groups.items():
            assert as_we_list(view, address) == as_h5py_lists(group)
    return len(groups)


@pytest.mark.parametrize("settings", FORMATS, ids=str)
def test_any_number_of_links(tmp_path: Path, settings: dict[str, Any]) -> None:
    path = tmp_path / "a.h5"
    numbers = [0, 3, 9, 40, 3000]
    with h5py.File(path, "w", **settings) as file:
        for n_links in numbers:
            group = file.create_group(f"of {n_links}")
            for number in range(n_links):
                name = f"n{number * 7919 % 3001}" + "x" * (number % 13)
                if number % 3 == 0:
                    group.create_group(name)
                elif number % 3 == 1:
                    group[name] = h5py.SoftLink(f"/n{number}/é")
                elif settings["libver"] == "latest" or "track_order" in settings:
                    group[name] = h5py.ExternalLink("other é.h5", f"/n{number}")
    assert compare(path) == 1 + sum(1 + len(range(0, n_links, 3)) for n_links in numbers)


@pytest.mark.parametrize("settings", FORMATS, ids=str)
def test_long_names_and_targets(tmp_path: Path, settings: dict[str, Any]) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", **settings) as file:
        for number in range(60):
            group = file.create_group(f"{number}-" + "n" * 97 * number)
            group["a"] = h5py.SoftLink("/b" * (1 + 211 * number))
    assert compare(path) == 61


def test_removed_links_are_gone(tmp_path: Path) -> None:
    for number, settings in enumerate(FORMATS):
        path = tmp_path / f"{number}.h5"
        with h5py.File(path, "w", **settings) as file:
            for member in range(200):
                file.create_group(f"n{member}")
            for member in range(0, 200, 3):
                del file[f"n{member}"]
        compare(path)


@pytest.mark.long(but=16)
@pytest.mark.parametrize("path", shared_hdf5_files("hdf5/**/*", "netcdf4/**/*", "families/**/*"))
def test_shared_files(path: Path) -> None:
    compare(path)


# ---- corrupt ----------------------------------------------------------------------------


@cache
def many_links(libver: str) -> tuple[bytes, tuple[Span, ...]]:
    """A file, and its structures that have checksums."""
    content = io.BytesIO()
    with h5py.File(content, "w", libver=libver) as file:
        for number in range(100):
            file.create_group(f"name{number:03}")
    return content.getvalue(), checked_spans(content.getvalue())


def broken(libver: str, change: Callable[[bytearray], None]) -> None:
    """Read the root group of a file with many links after a change, with its checksums mended."""
    before, spans = many_links(libver)
    data = bytearray(before)
    change(data)
    assert data != before
    mend(data, spans)
    view = read_superblock(BufferReader(bytes(data)))
    read_links(view, read_header(view, view.root))


def put(data: bytearray, signature: bytes, place: int, value: bytes) -> None:
    start = data.index(signature) + place
    data[start : start + len(value)] = value


@pytest.mark.long(but=4)
@pytest.mark.parametrize(
    ("signature", "place", "value", "reason"),
    [
        (b"TREE", 4, b"\1", "type"),
        (b"TREE", 5, b"\x09", "signature"),
        (b"TREE", 6, b"\xff\xff", ""),
        (b"TREE", 24, b"\xff" * 8, "no string"),
        (b"TREE", 32, bytes(8), ""),
        (b"SNOD", 0, b"DONS", "signature"),
        (b"SNOD", 6, b"\xff\xff", ""),
        (b"SNOD", 8, b"\xff" * 8, "no string"),
        (b"SNOD", 8, bytes(8), "not in order"),
        (b"SNOD", 24, b"\3", "unknown kind 3"),
        (b"HEAP", 4, b"\7", "version"),
        (b"HEAP", 16, b"\x18\0", "free pieces, at"),
        (b"HEAP", 16, b"\xff" * 7, "free pieces"),
        (b"HEAP", 8, b"\xff" * 7, "outside of the file"),
        (b"HEAP", 24, b"\xff" * 7, "outside of the file"),
    ],
)
def test_corrupt_symbol_tables(signature: bytes, place: int, value: bytes, reason: str) -> None:
    with pytest.raises(SourceFormatError, match=reason):
        broken("earliest", lambda data: put(data, signature, place, value))


def test_a_symbol_table_that_goes_in_circles() -> None:
    def change(data: bytearray) -> None:
        start = data.index(b"TREE")
        data[start + 5] = 1  # its children are nodes like itself
        for child in range(2):
            at = start + 32 + 16 * child
            data[at : at + 8] = start.to_bytes(8, "little")

    with pytest.raises(SourceFormatError, match="twice"):
        broken("earliest", change)


def test_names_that_overlap_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_group("n" * 5000)
        for number in range(60):
            file.create_group(f"name{number:02}")
    data = bytearray(path.read_bytes())
    start = data.index(b"HEAP")
    heap = int.from_bytes(data[start + 24 : start + 32], "little")
    longest = data.index(b"n" * 5000, heap) - heap
    for node in (at for at in range(len(data)) if data[at : at + 5] == b"SNOD\1"):
        for symbol in range(int.from_bytes(data[node + 6 : node + 8], "little")):
            at = node + 8 + 40 * symbol
            data[at : at + 8] = (longest + 8 * symbol).to_bytes(8, "little")
    view = read_superblock(BufferReader(bytes(data)))
    with pytest.raises(SourceFormatError, match=r"overlap|not in order"):
        read_links(view, read_header(view, view.root))


@pytest.mark.long(but=4)
@pytest.mark.parametrize(
    ("signature", "place", "value", "reason"),
    [
        (b"BTHD", 5, b"\6", "records of type"),
        (b"BTHD", 6, b"\1\0\0\0", ""),
        (b"BTHD", 10, b"\0\0", "records of 0 bytes"),
        (b"BTHD", 12, b"\xff\xff", "levels deep"),
        (b"BTHD", 16, b"\xff" * 7, "outside of the file"),
        (b"BTHD", 24, b"\xff\xff", "impossible number"),
        (b"BTHD", 26, b"\xff" * 7, "more than the file can hold"),
        (b"BTHD", 26, b"\x70", "instead of"),
        (b"BTLF", 5, b"\7", "record type"),
        (b"BTLF", 6, b"\xff" * 4, "not in order"),
        (b"BTLF", 10, b"\x40", "kind"),
        (b"BTLF", 11, b"\xff" * 4, "no block"),
        (b"BTLF", 15, b"\xff\xff", "no object"),
        (b"FHDB", 5, b"\0", "heap"),
        (b"FHDB", 21, b"\7", "version"),
        (b"FHIB", 5, b"\0", "heap"),
        (b"FHIB", 17, b"\xff" * 7, "outside of the file"),
    ],
)
def test_corrupt_dense_links(signature: bytes, place: int, value: bytes, reason: str) -> None:
    with pytest.raises(GridrefError, match=reason):
        broken("latest", lambda data: put(data, signature, place, value))
