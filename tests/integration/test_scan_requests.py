"""What scans ask of servers: counted as the server counts, and few requests for files alike."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import tifffile
import zarr

import gridref
from gridref.api.scan import scan_many
from gridref.errors import CombineError, FilesFailedError, SourceChangedError
from gridref.io.context import MAX_BLOCKS, MAX_MISSES, Layouts
from tests.cold_scans import all_caches, described
from tests.http_server import Site, serving
from tests.shared_data import missing_reason, shared_data_folder, skip_or_fail

VALUES = np.arange(48.0).reshape(6, 8)


def small_hdf5(folder: Path) -> str:
    with h5py.File(folder / "small.h5", "w") as file:
        file["x"] = VALUES
    return "small.h5"


def large_hdf5(folder: Path) -> str:
    with h5py.File(folder / "large.h5", "w") as file:
        for number in range(40):
            file.create_dataset(f"x{number}", data=np.arange(40_000.0), chunks=(1000,))
    return "large.h5"


def hdf5_with_external_link(folder: Path) -> str:
    small_hdf5(folder)
    with h5py.File(folder / "links.h5", "w") as file:
        file["other"] = h5py.ExternalLink("small.h5", "x")
        file.create_dataset("raw", (10,), "f8", external=[("raw.bin", 0, 80)])
    (folder / "raw.bin").write_bytes(bytes(80))
    return "links.h5"


def tiff(folder: Path) -> str:
    tifffile.imwrite(folder / "a.tif", VALUES.astype("u2"), tile=(16, 16))
    return "a.tif"


def ome_set(folder: Path) -> str:
    paths = [folder / "one.ome.tif", folder / "two.ome.tif"]
    one, two = (
        f'<TiffData FirstT="{n}" IFD="0" PlaneCount="1">'
        f'<UUID FileName="{path.name}">urn:uuid:{n}</UUID></TiffData>'
        for n, path in enumerate(paths)
    )
    xml = (
        '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" UUID="urn:uuid:{}">'
        '<Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYZCT" Type="uint16"'
        f' SizeX="8" SizeY="6" SizeZ="1" SizeC="1" SizeT="2">{one}{two}</Pixels></Image></OME>'
    )
    for number, path in enumerate(paths):
        tifffile.imwrite(path, VALUES.astype("u2"), description=xml.format(number), metadata=None)
    return "one.ome.tif"


def zarr_store(folder: Path, **options: Any) -> str:
    root = zarr.create_group(folder / "s.zarr")
    root.create_array("x", data=VALUES, chunks=(2, 4), **options)
    zarr.consolidate_metadata(str(folder / "s.zarr"))
    return "s.zarr"


def sharded_store(folder: Path) -> str:
    root = zarr.create_group(folder / "s.zarr")
    root.create_array("x", data=VALUES, chunks=(1, 4), shards=(3, 4))
    zarr.consolidate_metadata(str(folder / "s.zarr"))
    return "s.zarr"


def references(folder: Path) -> dict[str, Any]:
    (folder / "x.bin").write_bytes(VALUES.tobytes())
    document = {
        "zarr_format": 2,
        "shape": [6, 8],
        "chunks": [6, 8],
        "dtype": "<f8",
        "order": "C",
        "compressor": None,
        "filters": None,
        "fill_value": None,
    }
    return {
        ".zgroup": json.dumps({"zarr_format": 2}),
        "x/.zarray": json.dumps(document),
        "x/0.0": ["x.bin", 0, VALUES.nbytes],
    }


def kerchunk_json(folder: Path) -> str:
    (folder / "r.json").write_text(json.dumps({"version": 1, "refs": references(folder)}))
    return "r.json"


CASES = [
    small_hdf5,
    large_hdf5,
    hdf5_with_external_link,
    tiff,
    ome_set,
    zarr_store,
    sharded_store,
    kerchunk_json,
]


def files_of(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {f"/{path.relative_to(folder)}": path.read_bytes() for path in paths}


def sent_bytes(site: Site) -> int:
    """Bytes of the bodies that a server sent."""
    total = 0
    for method, path, wanted in site.requests:
        if method == "GET":
            content = site.files[path]
            first, last = (wanted or "bytes=0-").removeprefix("bytes=").split("-")
            total += len(content[int(first) : int(last or len(content)) + 1])
    return total


@pytest.mark.parametrize("make", CASES)
def test_reports_count_what_the_server_counted(tmp_path: Path, make: Callable[[Path], str]) -> None:
    name = make(tmp_path)
    with serving(Site(files_of(tmp_path))) as site:
        report = gridref.scan(f"{site.url}/{name}").report
        assert report.findings
        assert report.n_requests == len(site.requests) > 0
        assert report.n_bytes == sent_bytes(site) > 0


@pytest.mark.parametrize("make", [small_hdf5, tiff])
def test_what_is_asked_for_again_counts_again(tmp_path: Path, make: Callable[[Path], str]) -> None:
    name = make(tmp_path)
    with serving(Site(files_of(tmp_path), statuses=[503, 503])) as site:
        report = gridref.scan(f"{site.url}/{name}").report
        assert report.n_requests == len(site.requests) >= 3  # two of them refused


@pytest.mark.parametrize("make", CASES)
def test_local_reads_are_counted(tmp_path: Path, make: Callable[[Path], str]) -> None:
    report = gridref.scan(tmp_path / make(tmp_path)).report
    assert report.n_requests > 0
    assert report.n_bytes > 0


def test_scans_at_the_same_time_count_apart(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    path = tmp_path / large_hdf5(tmp_path)
    gridref.scan(path)  # the second file of a kind takes fewer reads
    alone = gridref.scan(path).report
    with ThreadPoolExecutor(4) as threads:
        for group in threads.map(gridref.scan, [path] * 8):
            assert group.report == alone


class Requests(list[Any]):
    """Requests of a server whose file is written anew after the first of them."""

    def __init__(self, site: Site, path: str) -> None:
        super().__init__()
        self._site, self._path = site, path

    def append(self, request: Any) -> None:
        super().append(request)
        if len(self) == 2:
            content = self._site.files[self._path]
            self._site.files[self._path] = content[:-8] + bytes(8)
            self._site.etags[self._path] = '"another"'


def test_a_file_that_changes_while_it_is_scanned_is_told(tmp_path: Path) -> None:
    name = f"/{large_hdf5(tmp_path)}"
    site = Site(files_of(tmp_path), {name: '"first"'})
    site.requests = Requests(site, name)
    with serving(site), pytest.raises(SourceChangedError, match="changed while it was scanned"):
        gridref.scan(f"{site.url}{name}")
    assert len(site.requests) >= 2


def small_file(folder: Path, n_variables: int, seed: int = 0) -> bytes:
    path = folder / "one.h5"
    with h5py.File(path, "w") as file:
        for number in range(n_variables):
            values = np.arange(900.0).reshape(30, 30) + seed
            file.create_dataset(f"x{number}", data=values, chunks=(5, 30))
    return path.read_bytes()


def scanned_from_server(files: dict[str, bytes]) -> tuple[list[int], Counter[str]]:
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
    files = {f"/f{n}.h5": small_file(tmp_path, 30, seed=n) for n in range(6)}
    _, n_requests = scanned_from_server(files)
    assert n_requests["/f0.h5"] > 1
    assert {n_requests[f"/f{n}.h5"] for n in range(1, 6)} == {1}


def test_a_wrong_hint_changes_no_value(tmp_path: Path) -> None:
    counts = [40, 1, 2, 40, 1, 40]
    files = {f"/f{n}.h5": small_file(tmp_path, count) for n, count in enumerate(counts)}
    found, _ = scanned_from_server(files)
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
    data = small_file(tmp_path, 30)
    files = {f"/f{n:02}.h5": data for n in range(40)}
    with serving(Site(files, {path: f'"{path}"' for path in files})) as site:
        groups = scan_many([f"{site.url}{path}" for path in files], max_in_flight=8)
        n_requests = Counter(path for _, path, _ in site.requests)
    assert [group.report.n_requests for group in groups] == [n_requests[path] for path in files]
    assert {n_requests[path] for path in list(files)[20:]} == {1}
    assert {group.report.n_bytes for group in groups[20:]} == {groups[-1].report.n_bytes}


def test_files_of_several_servers_are_asked_for_together(tmp_path: Path) -> None:
    data = small_file(tmp_path, 3)
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
    data = small_file(tmp_path, 20)
    assert 100_000 < len(data) < 256 * 2**10
    files = {f"/{n}/f.h5": data for n in range(3)}
    with serving(Site(files, {path: f'"{path}"' for path in files})) as site:
        groups = scan_many([f"{site.url}{path}" for path in files])
        assert Counter(path for _, path, _ in site.requests) == dict.fromkeys(files, 1)
    assert [group.report.n_bytes for group in groups] == [len(data)] * 3


N_FILES = 8


def write_file(path: Path, number: int) -> None:
    """A file whose coordinates lie at its end, behind more data than is read whole."""
    with netCDF4.Dataset(path, "w") as file:
        for name, size in (("time", None), ("lat", 30), ("lon", 40)):
            file.createDimension(name, size)
        for name in ("first", "second"):
            values = file.createVariable(name, "f8", ("time", "lat", "lon"))
            values[:] = np.random.default_rng(number).random((40, 30, 40))
        for name, size in (("time", 40), ("lat", 30), ("lon", 40)):
            coordinate = file.createVariable(name, "f8", (name,))
            coordinate.units = "days since 2000-01-01" if name == "time" else "degrees"
            coordinate[:] = np.arange(size) + (40 * number if name == "time" else 0)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("ahead")
    paths = [folder / f"{number}.nc" for number in range(N_FILES)]
    for number, path in enumerate(paths):
        write_file(path, number)
    return paths


@pytest.fixture
def site(paths: list[Path]) -> Iterator[Site]:
    files = {f"/{path.name}": path.read_bytes() for path in paths}
    with serving(Site(files, {name: f'"{name}"' for name in files})) as site:
        yield site


def test_files_take_few_requests(site: Site, paths: list[Path], tmp_path: Path) -> None:
    urls = [f"{site.url}/{path.name}" for path in paths]
    built = gridref.build(
        urls, tmp_path / "c.gridref", "time", run=gridref.RunOptions(max_in_flight=1)
    )
    # Metadata and coordinates lie in three places of each file; asked for alone, they took six.
    assert len(site.requests) == 3 * N_FILES
    for name in ("first", "time", "lat"):
        values = []
        for path in paths:
            with netCDF4.Dataset(path) as file:
                values.append(file[name][...].filled())
        expected = values[0] if name == "lat" else np.concatenate(values)
        np.testing.assert_array_equal(built[name][...], expected)


def test_opening_and_appending_take_few_requests(
    site: Site, paths: list[Path], tmp_path: Path
) -> None:
    urls = [f"{site.url}/{path.name}" for path in paths]
    opened = gridref.open_virtual_mfdataset(
        urls[:-1], concat_dim="time", combine="nested", data_vars="minimal"
    )
    assert len(site.requests) <= 4 * (N_FILES - 1)  # all at a time, so that none learns
    assert opened["lat"][7] == 7.0
    gridref.build(urls[:-1], tmp_path / "c.gridref", "time")
    site.requests.clear()
    gridref.open_catalog(tmp_path / "c.gridref").append(urls[-1])
    of_the_new = [path for _, path, _ in site.requests if path == f"/{paths[-1].name}"]
    assert len(of_the_new) == 4  # three places of metadata, and all coordinates at once


def test_values_are_read_anew_after_the_work(site: Site, paths: list[Path], tmp_path: Path) -> None:
    """Bytes of a scan serve the call that scans; a file that changes later is noticed."""
    urls = [f"{site.url}/{path.name}" for path in paths]
    built = gridref.build(urls, tmp_path / "c.gridref", "time")
    site.etags["/0.nc"] = '"other"'
    with pytest.raises(SourceChangedError):
        built["lat"][...]


def test_coordinates_are_compared(site: Site, paths: list[Path], tmp_path: Path) -> None:
    """What was fetched along with metadata is what the rules see: another latitude is noticed."""
    other = tmp_path / "other.nc"
    write_file(other, 3)
    with netCDF4.Dataset(other, "a") as file:
        file["lat"][7] += 0.25
    site.files["/3.nc"] = other.read_bytes()
    urls = [f"{site.url}/{path.name}" for path in paths]
    with pytest.raises(CombineError, match=r"lat: .*3\.nc"):
        gridref.build(urls, tmp_path / "c.gridref", "time")


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    "folder", ["netcdf4", "tiff", "ome_tiff", "hdf5", "families", "bad_input", "cve"]
)
def test_files_scan_the_same_alone_and_after_others(folder: str) -> None:
    reason = missing_reason()
    if reason is not None:
        skip_or_fail(reason)
    paths = sorted(path for path in (shared_data_folder() / folder).rglob("*") if path.is_file())
    described(paths[0])  # so that all modules are loaded
    alone = {}
    for path in paths:
        for clear in all_caches():
            clear()
        alone[path] = described(path)
    for order in (paths, paths[::-1]):
        for path in order:
            assert described(path) == alone[path], f"{path}, after others"
