"""How much of HDF5 files a scan reads, and how much memory it takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from gridref.formats.registry import scan
from gridref.model.array import VirtualGroup
from tests.http_server import Site, serving

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
