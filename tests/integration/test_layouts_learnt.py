"""Files that lie beside each other take one request each, and what was learnt is a hint only."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import pytest

from gridref.api.scan import scan_many
from gridref.errors import FilesFailedError
from gridref.io.context import MAX_BLOCKS, MAX_MISSES, Layouts
from tests.http_server import Site, serving


def content(folder: Path, n_variables: int, seed: int = 0) -> bytes:
    path = folder / "one.h5"
    with h5py.File(path, "w") as file:
        for number in range(n_variables):
            values = np.arange(900.0).reshape(30, 30) + seed
            file.create_dataset(f"x{number}", data=values, chunks=(5, 30))
    return path.read_bytes()


def scanned(files: dict[str, bytes]) -> tuple[list[int], Counter[str]]:
    with serving(Site(files, {path: f'"{path}"' for path in files})) as site:
        groups = scan_many([f"{site.url}{path}" for path in files], max_in_flight=1)
        n_requests = Counter(path for _, path, _ in site.requests)
        assert [group.report.n_requests for group in groups] == [n_requests[path] for path in files]
        for group, data in zip(groups, files.values(), strict=True):
            with h5py.File(io.BytesIO(data), "r") as file:
                for name, array in group.all_arrays().items():
                    np.testing.assert_array_equal(array[...], file[name][...])
    return [len(group.all_arrays()) for group in groups], n_requests


def test_siblings_take_one_request(tmp_path: Path) -> None:
    files = {f"/f{n}.h5": content(tmp_path, 30, seed=n) for n in range(6)}
    _, n_requests = scanned(files)
    assert n_requests["/f0.h5"] > 1
    assert {n_requests[f"/f{n}.h5"] for n in range(1, 6)} == {1}


def test_a_wrong_hint_changes_no_value(tmp_path: Path) -> None:
    counts = [40, 1, 2, 40, 1, 40]
    files = {f"/f{n}.h5": content(tmp_path, count) for n, count in enumerate(counts)}
    found, _ = scanned(files)
    assert found == counts


def test_a_hint_is_dropped_after_misses() -> None:
    layouts = Layouts()
    layouts.learn("http://a/f.nc", set(range(20)))
    assert layouts.expected("http://a/g.nc") == list(range(20))
    assert layouts.expected("http://a/g.tif") == layouts.expected("http://b/g.nc") == [0]
    for _ in range(MAX_MISSES - 1):
        layouts.learn("http://a/g.nc", {0, 30})
        assert set(range(20)) < set(layouts.expected("http://a/h.nc"))
    layouts.learn("http://a/g.nc", {0, 30})
    assert layouts.expected("http://a/h.nc") == [0, 30]


def test_a_hint_stays_small() -> None:
    layouts = Layouts()
    layouts.learn("http://a/f.nc", set(range(10 * MAX_BLOCKS)))
    assert layouts.expected("http://a/g.nc") == list(range(MAX_BLOCKS))


def test_siblings_in_flight_together_take_one_request(tmp_path: Path) -> None:
    """What is asked for ahead counts once, and is what the server saw."""
    data = content(tmp_path, 30)
    files = {f"/f{n:02}.h5": data for n in range(40)}
    with serving(Site(files, {path: f'"{path}"' for path in files})) as site:
        groups = scan_many([f"{site.url}{path}" for path in files], max_in_flight=8)
        n_requests = Counter(path for _, path, _ in site.requests)
    assert [group.report.n_requests for group in groups] == [n_requests[path] for path in files]
    assert {n_requests[path] for path in list(files)[20:]} == {1}
    assert {group.report.n_bytes for group in groups[20:]} == {groups[-1].report.n_bytes}


def test_files_of_several_servers_are_asked_for_together(tmp_path: Path) -> None:
    data = content(tmp_path, 3)
    files = {f"/f{n:02}.h5": data for n in range(12)}
    with serving(Site(dict(files))) as one, serving(Site(dict(files))) as other:
        urls = [f"{site.url}{path}" for path in files for site in (one, other)]
        groups = scan_many(urls, max_in_flight=4)
    assert [group["x0"].manifests[0].sources[0].url for group in groups] == urls


def test_a_remote_store_is_not_asked_for_as_a_file() -> None:
    with serving(Site()) as site:
        urls = [f"{site.url}/{n}.zarr" for n in range(3)]
        with pytest.raises(FilesFailedError):
            scan_many(urls)
        assert not {f"/{n}.zarr" for n in range(3)} & {path for _, path, _ in site.requests}


def test_small_files_of_which_nothing_is_known_take_one_request(tmp_path: Path) -> None:
    data = content(tmp_path, 20)
    assert 100_000 < len(data) < 256 * 2**10
    files = {f"/{n}/f.h5": data for n in range(3)}
    with serving(Site(files, {path: f'"{path}"' for path in files})) as site:
        groups = scan_many([f"{site.url}{path}" for path in files])
        assert Counter(path for _, path, _ in site.requests) == dict.fromkeys(files, 1)
    assert [group.report.n_bytes for group in groups] == [len(data)] * 3
