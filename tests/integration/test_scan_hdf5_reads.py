"""How HDF5 files are read: few requests, hints from files alike, and damaged ones."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest

import gridref
from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats import ScanOptions
from gridref.formats.hdf5.bytes import lookup3
from gridref.formats.hdf5.files import open_file
from gridref.formats.registry import scan
from gridref.io import open_for_scan
from gridref.model.array import VirtualGroup
from tests.cold_scans import all_caches, described
from tests.http_server import Site, serving
from tests.property.test_scan_hdf5_fuzz import intact
from tools.fuzz.hdf5_mutations import checked_spans, mend

N_BIG = 4_000_000
FEW_BYTES = 200_000


def big() -> Any:
    return np.arange(N_BIG, dtype="i4")


def make_big_files(folder: Path) -> None:
    """16 MB in each layout: in the file itself, in external files, in sources of a mapping."""
    big().tofile(folder / "raw.bin")
    with h5py.File(folder / "source.h5", "w", libver="latest") as file:
        file.create_dataset("x", data=big(), chunks=(100_000,), compression="gzip")
    with h5py.File(folder / "big.h5", "w", libver="latest") as file:
        file.create_dataset("contiguous", data=big())
        file.create_dataset("chunked", data=big(), chunks=(100_000,))
        file.create_dataset("zipped", data=big(), chunks=(50_000,), compression="gzip")
        file.create_dataset("outside", (N_BIG,), "i4", external=[("raw.bin", 0, 4 * N_BIG)])
        layout = h5py.VirtualLayout((2, N_BIG), "i4")
        layout[0] = h5py.VirtualSource("source.h5", "x", (N_BIG,))
        layout[1] = h5py.VirtualSource(".", "contiguous", (N_BIG,))
        file.create_virtual_dataset("virtual", layout)
        file["link"] = h5py.ExternalLink("source.h5", "/x")
        file["attributes"] = 1
        file["attributes"].attrs["long"] = "x" * 20_000


@contextmanager
def few_bytes_read() -> Iterator[None]:
    """Let this process read few bytes, whoever does it: HDF5 reads on its own too."""
    counts = Path("/proc/self/io")
    if not counts.exists():
        yield
        return

    def n_read() -> int:
        return int(counts.read_text().split()[1])

    before = n_read()
    yield
    assert n_read() - before < 3 * FEW_BYTES


def n_chunks_of(group: VirtualGroup) -> int:
    return sum(m.n_rows for array in group.arrays.values() for m in array.manifests)


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HDF5_EXTFILE_PREFIX", "${ORIGIN}")


def test_only_metadata_of_local_files_is_read(tmp_path: Path, beside: None) -> None:
    make_big_files(tmp_path)
    scan(tmp_path / "source.h5")  # what is imported late is read before
    with few_bytes_read():
        group = scan(tmp_path / "big.h5")
    assert set(group.arrays) == {
        *("contiguous", "chunked", "zipped", "outside", "virtual", "link", "attributes")
    }
    assert 0 < group.report.n_bytes < FEW_BYTES
    assert 0 < group.report.n_requests < 100


def test_what_is_read_does_not_grow_with_the_data(tmp_path: Path) -> None:
    sizes = []
    for factor in (1, 100):
        path = tmp_path / f"{factor}.h5"
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=np.zeros(factor * 40_000), chunks=(factor * 10_000,))
            file["y"] = np.zeros(factor * 1000)
        report = scan(path).report
        sizes.append((report.n_requests, report.n_bytes))
    (few, small), (many, large) = sizes
    assert many <= few + 2
    assert large <= small + 20_000


def test_requests_of_a_remote_scan_are_few(tmp_path: Path) -> None:
    make_big_files(tmp_path)
    files = {f"/{path.name}": path.read_bytes() for path in tmp_path.iterdir()}
    with serving(Site(files, {name: f'"{name}"' for name in files})) as site:
        group = scan(f"{site.url}/big.h5")
        requests = list(site.requests)
    assert group.report.n_requests == len(requests)
    gets = [wanted for method, _, wanted in requests if method == "GET"]
    assert len(requests) <= 40
    assert None not in gets, "a whole file was asked for"
    spans = [tuple(map(int, str(wanted).removeprefix("bytes=").split("-"))) for wanted in gets]
    assert sum(stop - start + 1 for start, stop in spans) < 10 * FEW_BYTES
    assert n_chunks_of(group) > 100


def test_requests_of_a_remote_file_of_twenty_variables(tmp_path: Path) -> None:
    path = tmp_path / "daily.nc"
    with h5py.File(path, "w") as file:
        for number in range(20):
            data = file.create_dataset(f"v{number}", data=np.zeros((40, 50)), chunks=(20, 25))
            data.attrs.update(units="K", long_name="a variable")
    with serving(Site({"/daily.nc": path.read_bytes()}, {"/daily.nc": '"v1"'})) as site:
        scan(f"{site.url}/daily.nc")
        assert len(site.requests) <= 3  # its size, its beginning, and the rest


def test_metadata_at_the_beginning_takes_one_request(tmp_path: Path) -> None:
    values = np.random.default_rng(3).integers(0, 99, 300_000, "i4")
    with h5py.File(tmp_path / "a.h5", "w", fs_strategy="page", fs_page_size=1 << 16) as file:
        for name in "abcdef":
            file.create_dataset(name, data=values, chunks=(50_000,))
    with serving(Site({"/a.h5": (tmp_path / "a.h5").read_bytes()})) as site:
        scan(f"{site.url}/a.h5")
        assert len(site.requests) == 1


def test_chunk_indexes_of_all_variables_are_asked_for_at_once(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number in range(8):
            file.create_dataset(f"v{number}", data=big()[:200_000], chunks=(50_000,))
    site = Site({"/a.h5": (tmp_path / "a.h5").read_bytes()}, delay_seconds=0.05)
    with serving(site):
        scan(f"{site.url}/a.h5")
        assert site.most_at_once >= 4


@pytest.mark.long(but=1)
@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("endless", [False, True])
def test_memory_a_chunk(tmp_path: Path, libver: str, endless: bool) -> None:
    path = tmp_path / "a.h5"
    n_chunks = 1_000_000
    with h5py.File(path, "w", libver=libver) as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((1, 1))
        properties.set_shuffle()
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        limits = (h5py.h5s.UNLIMITED,) * 2 if endless else (n_chunks // 100, 100)
        space = h5py.h5s.create_simple((n_chunks // 100, 100), limits)
        h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT8, space, properties)
    scan(path)
    tracemalloc.start()
    try:
        group = scan(path)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert n_chunks_of(group) == n_chunks
    assert peak < 100 * n_chunks
    assert kept < 26 * n_chunks


ROOT = Path(__file__).parents[2]

FLAWS: dict[str, dict[str, Any]] = {
    "equal": {},
    "an attribute": {"units": "m"},
    "a number": {"scale": 2.0},
    "the dtype": {"dtype": ">i4"},
    "the fill value": {"fill": 7},
    "the extent": {"n_rows": 40},
    "the chunks": {"chunk": 10},
    "the compression": {"level": 9},
    "a text of the heap": {"history": "written on the 2nd"},
    "data": {"seed": 5},
    "the user block": {"userblock": 512},
}
"""One thing in which a file differs from the first, at the same size where that is possible."""


def write(path: Path, libver: str, **flaw: Any) -> None:
    kind = {
        "units": "K",
        "scale": 1.0,
        "dtype": "<i4",
        "fill": 1,
        "n_rows": 50,
        "chunk": 20,
        "level": 4,
        "history": "written on the 1st",
        "seed": 0,
        "userblock": 0,
        **flaw,
    }
    with h5py.File(path, "w", libver=libver, userblock_size=kind["userblock"]) as file:
        file.attrs["history"] = kind["history"]
        values = np.random.default_rng(kind["seed"]).integers(0, 100, (kind["n_rows"], 6))
        for name in ("a", "b"):
            variable = file.create_dataset(
                name,
                data=values.astype(kind["dtype"]),
                chunks=(kind["chunk"], 4),
                compression="gzip",
                compression_opts=kind["level"],
                fillvalue=kind["fill"],
                track_times=True,
            )
            variable.attrs["units"] = np.bytes_(kind["units"])
            variable.attrs["scale_factor"] = kind["scale"]
            variable.attrs["history"] = kind["history"]
        file.create_dataset("contiguous", data=values[:, 0])


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_only_what_is_equal_is_taken_over(tmp_path: Path, libver: str) -> None:
    for order in (FLAWS, dict(reversed(FLAWS.items()))):
        for name, flaw in order.items():
            path = tmp_path / f"{name}.h5"
            write(path, libver, **flaw)
            group = gridref.scan(path)
            with h5py.File(path) as file:
                for variable in ("a", "b"):
                    array, stored = group[variable], file[variable]
                    assert array.dtype == stored.dtype.newbyteorder("=")
                    assert array.fill_value == stored.fillvalue
                    assert array.encodings[0].chunk_shape == stored.chunks
                    np.testing.assert_array_equal(array[...], stored[...])
                    assert array.attrs == {
                        "units": stored.attrs["units"].decode(),
                        "scale_factor": stored.attrs["scale_factor"],
                        "history": stored.attrs["history"],
                    }
                np.testing.assert_array_equal(group["contiguous"][...], file["contiguous"][...])


def test_what_is_equal_is_one_object_and_cannot_be_changed(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / f"{number}.h5", "latest", seed=number)
    one, other = (gridref.scan(tmp_path / f"{number}.h5") for number in range(2))
    assert one["a"].encodings[0] is other["b"].encodings[0]
    mine, theirs = one["a"].manifests[0], other["a"].manifests[0]
    assert mine.state is theirs.state
    assert mine.source is theirs.source
    with pytest.raises(ValueError, match="read-only"):
        mine.state[0] = 1
    one["a"].attrs["units"] = "changed"
    assert other["a"].attrs["units"] == gridref.scan(tmp_path / "0.h5")["a"].attrs["units"] == "K"


def series(path: Path, libver: str) -> None:
    """A small file with what the files of series have: a dimension scale, chunks, attributes."""
    with h5py.File(path, "w", libver=libver) as file:
        file.create_dataset("x", data=np.arange(6)).make_scale("x")
        values = np.arange(6).astype("<i2")
        variable = file.create_dataset("a", data=values, chunks=(3,), shuffle=True, fillvalue=7)
        variable.attrs["units"] = np.bytes_("K")
        variable.attrs["range"] = np.array([1, 2], "<i2")
        variable.dims[0].attach_scale(file["x"])


def header_blocks(path: Path, name: bytes) -> list[tuple[int, int]]:
    """Byte ranges of the blocks of an object's header, with their checksums."""
    with open_file(open_for_scan(path), ScanOptions()) as file:
        header = file.header(file.links(file.bytes.root).by_name[name].address)
    later = header.blocks[1:]
    is_old = path.read_bytes()[header.address :][:4] != b"OHDR"
    n_head, n_checksum = (0, 0) if is_old else (4, 4)
    starts = [header.address, *(block.address - n_head for block in later)]
    stops = [block.address + len(block.data) + n_checksum for block in header.blocks]
    return list(zip(starts, stops, strict=True))


def each_changed(path: Path, changed: Path, every: int) -> Iterator[int]:
    """Write the file with bytes of a header changed in turn, under a checksum that is right."""
    data = path.read_bytes()
    for start, stop in header_blocks(path, b"a"):
        n_checksum = 4 if data[start : start + 4] in (b"OHDR", b"OCHK") else 0
        for at in range(start, stop - n_checksum, every):
            flawed = bytearray(data)
            flawed[at] ^= 1 << at % 8
            if n_checksum:
                checksum = lookup3(bytes(flawed[start : stop - 4]))
                flawed[stop - 4 : stop] = checksum.to_bytes(4, "little")
            changed.write_bytes(flawed)
            os.utime(changed, ns=(0, 0))
            yield at


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_siblings_that_differ_in_one_byte_are_told_apart(
    tmp_path: Path, libver: str, every: int
) -> None:
    original, changed = tmp_path / "original.h5", tmp_path / "changed.h5"
    series(original, libver)
    expected = described(original)
    caches = all_caches()
    alone = {}
    for at in each_changed(original, changed, every):
        for clear in caches:
            clear()
        alone[at] = described(changed)
    assert len(set(alone.values())) > 50 / every
    assert described(original) == expected
    for at in each_changed(original, changed, every):
        assert described(changed) == alone[at], f"byte {at}, after the other files"
        assert at % 16 or described(original) == expected


def scaled(path: Path, way: str) -> None:
    """Files whose headers have the same forms, and whose dimensions are other ones."""
    nowhere = "This is a netCDF dimension but not a netCDF variable."
    with h5py.File(path, "w", libver="latest") as file:
        for name in ("x", "y"):
            scale = file.create_dataset(name, data=np.arange(4))
            scale.make_scale(nowhere if (way, name) == ("no variable", "y") else "a".ljust(53))
            dimid = ("x", "y").index(name)
            scale.attrs["_Netcdf4Dimid"] = np.int32(1 - dimid if way == "dimids" else dimid)
        a = file.create_dataset("a", data=np.arange(4))
        for name in {"y": ["y"], "both": ["x", "y"], "itself": []}.get(way, ["x"]):
            a.dims[0].attach_scale(file[name])
        if way == "itself":
            a.make_scale("a".ljust(53))
        if way == "class":
            file["x"].attrs.modify("CLASS", np.bytes_("DIMENSION_SCALF"))
        a.attrs["coordinate"] = np.int32(1)
        a.attrs["_Netcdf4Coordinates" if way == "coordinates" else "_netcdf4Coordinates"] = [1]


WAYS = ("x", "y", "both", "itself", "no variable", "dimids", "class", "coordinates")


def test_dimensions_are_those_of_each_file(tmp_path: Path) -> None:
    caches, alone = all_caches(), {}
    for way in WAYS:
        scaled(tmp_path / f"{way}.h5", way)
        for clear in caches:
            clear()
        alone[way] = described(tmp_path / f"{way}.h5")
    dims = {way: re.findall(r"\('a', [^)]*\), \('(\w+)',\)", text) for way, text in alone.items()}
    assert len(set(map(str, dims.values()))) > 1
    for first in WAYS:
        for clear in caches:
            clear()
        for way in (first, *WAYS, *reversed(WAYS)):
            assert described(tmp_path / f"{way}.h5") == alone[way], f"{way}, after {first}"


def test_a_sibling_takes_less_work(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.nc" for number in range(3)]
    for seed, path in enumerate(paths):
        with netCDF4.Dataset(path, "w") as file:
            file.createDimension("x", 10)
            for number in range(8):
                variable = file.createVariable(f"v{number}{tmp_path.name}", "f4", ("x",), zlib=True)
                variable.setncatts({f"a{n}": f"{n} {tmp_path}" for n in range(5)})
                variable[:] = np.random.default_rng(seed).random(10)
    # In a process of its own: this one may have scanned their like before.
    code = (
        "import sys, gridref, gridref.formats.built_in\n"
        "from tests.work import counted_work\n"
        "for path in sys.argv[1:]:\n"
        "    with counted_work() as work:\n"
        "        gridref.scan(path)\n"
        "    print(work.n_lines)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    n_lines = [int(line) for line in done.stdout.split()]
    assert 5 * n_lines[2] < 4 * n_lines[0], n_lines


def test_a_scan_leaves_nothing_to_the_garbage_collector(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.h5" for number in range(3)]
    for path in paths:
        series(path, "latest")
    # In a process of its own: threads of other tests leave cycles of their own.
    code = (
        "import gc, sys, gridref\n"
        "gridref.scan(sys.argv[1])\n"
        "gc.collect()\n"
        "gc.disable()\n"
        "for path in sys.argv[1:]:\n"
        "    gridref.scan(path)\n"
        "print(gc.collect())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "0"


SCAN = """
import sys
from gridref import scan
from gridref.errors import GridrefError
for path in sys.argv[1:]:
    try:
        scan(path, on_unsupported="skip")
    except GridrefError as error:
        print(type(error).__name__, error)
    print("scanned", path)
"""
WIDTH = 110  # of the doubling table, inside a fractal heap's header


def broken(path: Path, signature: bytes, place: int, value: bytes) -> None:
    """A file whose first structure of a kind has other bytes in it, and the right checksum."""
    data = bytearray(intact("latest"))
    spans = checked_spans(bytes(data))
    start = data.index(signature) + place
    assert data[start : start + len(value)] != value
    data[start : start + len(value)] = value
    mend(data, spans)
    path.write_bytes(data)


DENSE_STORAGE = [
    (b"FRHP", WIDTH, bytes(2)),  # the library divides by it
    (b"FRHP", WIDTH + 2, bytes(8)),
    (b"FRHP", WIDTH + 10, bytes(8)),
    (b"FRHP", WIDTH + 18, b"\xff\xff"),
    (b"FRHP", WIDTH + 22, b"\x7f" * 6),
    (b"FRHP", WIDTH + 30, b"\xff\xff"),
    (b"BTHD", 10, b"\1\0"),
    (b"BTHD", 12, b"\xff\0"),
    (b"BTHD", 22, b"\2"),  # the root lies nowhere
    (b"BTHD", 24, bytes(2)),
]


def test_corrupt_dense_storage_does_not_end_the_process(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.h5" for number in range(len(DENSE_STORAGE))]
    for path, damage in zip(paths, DENSE_STORAGE, strict=True):
        broken(path, *damage)
    command = [sys.executable, "-c", SCAN, *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    scanned = [line for line in done.stdout.splitlines() if line.startswith("scanned")]
    assert scanned == [f"scanned {path}" for path in paths]
    assert (done.returncode, done.stderr) == (0, "")


def test_variable_length_strings_of_gigabytes_each_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=["a", "bb"], dtype=h5py.string_dtype())
    data = bytearray(path.read_bytes())
    size = data.index(b"\x19\x01\x01\x00\x10\x00\x00\x00") + 4
    data[size : size + 4] = (1 << 31).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(SourceFormatError, match="bytes each"):
        scan(path)


def test_compounds_of_no_elements_are_attributes(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    datatype = np.dtype([("number", "i4"), ("name", h5py.string_dtype())])
    with h5py.File(path, "w") as file:
        file.attrs.create("none", np.zeros(0, datatype), dtype=datatype)
    assert scan(path).attrs == {"none": []}


def test_a_class_that_is_no_text_makes_no_dimension_scale(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    values = [np.zeros((), [("number", "i4")]), np.arange(3), np.void(b"abc"), ["a", "b"]]
    with h5py.File(path, "w") as file:
        for number, value in enumerate(values):
            file[f"v{number}"] = np.arange(3)
            file[f"v{number}"].attrs["CLASS"] = value
    group = scan(path, on_unsupported="skip")
    assert [array.dims for array in group.arrays.values()] == [("phony_dim_0",)] * len(values)


def test_elements_of_a_gigabyte_are_refused(tmp_path: Path) -> None:
    """Half a kilobyte: no data was written."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("a", (2,), "V1342177285")
    with pytest.raises(UnsupportedFeatureError, match="elements of 1342177285 bytes, more than"):
        scan(path)


def test_a_chunk_tree_that_is_out_of_order_is_refused(tmp_path: Path) -> None:
    """HDF5 searches it by halves, and reads fill values where it finds nothing."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        data = file.create_dataset("a", (4, 4), "i4", chunks=(2, 2), maxshape=(None, None))
        data[...] = 1
    content = bytearray(path.read_bytes())
    spans = checked_spans(bytes(content))
    third = content.index(b"BTLF") + 6 + 2 * 24
    assert content[third + 8 : third + 16] == (1).to_bytes(8, "little")
    content[third + 10] = 1
    mend(content, spans)
    path.write_bytes(content)
    with h5py.File(path) as file:
        assert file["a"][3, 3] == 0
    with pytest.raises(SourceFormatError, match="out of order"):
        scan(path)


def test_a_key_beyond_the_grid_that_hides_chunks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file.create_dataset("a", (8,), "i4", chunks=(1,))[...] = 1
    content = bytearray(path.read_bytes())
    leaf = content.index(b"TREE\1\0")
    sixth = leaf + 24 + 5 * 32 + 8
    assert content[sixth : sixth + 8] == (5).to_bytes(8, "little")
    content[sixth + 2] = 1
    path.write_bytes(content)
    with h5py.File(path) as file:
        assert file["a"][...].tolist() == [1] * 5 + [0] * 3
    with pytest.raises(SourceFormatError, match="out of order"):
        scan(path)
