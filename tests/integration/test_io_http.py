"""Remote files over HTTP: ranges, identities, retries and cubes."""

from __future__ import annotations

import io
import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

import gridref
from gridref import concat
from gridref.catalog import open_catalog
from gridref.catalog.commit import write_catalog
from gridref.errors import (
    CatalogNotFoundError,
    FilesFailedError,
    ShortReadError,
    SourceChangedError,
    SourceUnavailableError,
)
from gridref.faces.exports.kerchunk import to_kerchunk
from gridref.formats import expand_files
from gridref.formats.hdf5.original import OriginalFile
from gridref.io import Merging, RetryPolicy, SourcePool, describe_source, open_for_scan
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.manifest import Source
from tests.http_server import Site, nginx_serving, serving

DATA = np.random.default_rng(5).bytes(300_000)
FAST = RetryPolicy(n_attempts=3, first_delay=0.01)
APART = Merging(0, 1)


@pytest.fixture
def site() -> Iterator[Site]:
    with serving(Site({"/a.bin": DATA}, {"/a.bin": '"v1"'})) as running:
        yield running


def test_ranges(site: Site) -> None:
    source = describe_source(f"{site.url}/a.bin")
    assert source == Source(f"{site.url}/a.bin", len(DATA), None, '"v1"')
    rng = np.random.default_rng(0)
    offsets, lengths = rng.integers(0, 299_000, 50), rng.integers(0, 1000, 50)
    for merging in (APART, Merging(10_000, 100_000)):
        parts = SourcePool(remote_merging=merging).read_ranges(source, offsets, lengths)
        assert [bytes(part) for part in parts] == [
            DATA[a : a + n] for a, n in zip(offsets, lengths, strict=True)
        ]


def test_merged_ranges_are_one_request_and_identity_rides_on_them(site: Site) -> None:
    source, pool = describe_source(f"{site.url}/a.bin"), SourcePool()
    site.requests.clear()
    pool.read_ranges(source, [100, 5000], [10, 10])
    pool.read_ranges(source, [200_000], [10])
    assert [entry for entry in site.requests if entry[0] == "GET"] == [
        ("GET", "/a.bin", "bytes=100-5009"),
        ("GET", "/a.bin", "bytes=200000-200009"),
    ]
    assert len(site.requests) == 2
    assert pool.n_bytes == 4910 + 10


def test_a_new_etag_is_a_changed_source(site: Site) -> None:
    source = describe_source(f"{site.url}/a.bin")
    site.etags["/a.bin"] = '"v2"'
    with pytest.raises(SourceChangedError, match='its version was "v1", now "v2"'):
        SourcePool().read(source, 0, 10)
    assert bytes(SourcePool(identity="skip").read(source, 0, 10)) == DATA[:10]


JULY, AUGUST = "Wed, 01 Jul 2026 00:00:00 GMT", "Sat, 01 Aug 2026 00:00:00 GMT"
ONES_AND_TWOS = [np.full(9, value).tobytes() for value in (1.5, 2.5)]


@pytest.mark.long(but=6)
@pytest.mark.parametrize("n_files", [1, 2])
@pytest.mark.parametrize("asks_for", ["a file", "references to a file"])
@pytest.mark.parametrize(
    ("etag", "modified"), [(None, AUGUST), ('"v1"', AUGUST), (None, JULY), ('"v1"', None)]
)
def test_what_the_server_stated_at_the_scan_it_states_again(
    site: Site, tmp_path: Path, n_files: int, asks_for: str, etag: str | None, modified: str | None
) -> None:
    names = [f"/{number}.nc" for number in range(n_files)]
    for number, name in enumerate(names):
        data = xr.Dataset({"v": (("n", "x"), np.full((1, 9), 1.5))}, {"n": [number]})
        data.to_netcdf(tmp_path / "file.nc")
        site.files[name] = (tmp_path / "file.nc").read_bytes()
        site.etags[name], site.modified[name] = '"v1"', JULY
    files = [f"{site.url}{name}" for name in names]
    gridref.build(files, tmp_path / "c.gridref", "n")
    if asks_for != "a file":
        references = tmp_path / "refs.json"
        references.write_text(json.dumps(to_kerchunk(gridref.open_catalog(tmp_path / "c.gridref"))))
        shutil.rmtree(tmp_path / "c.gridref")
        gridref.build(references, tmp_path / "c.gridref", allow=site.url)
    cube = gridref.open_catalog(tmp_path / "c.gridref")
    assert {source.etag for source in cube.source_list} == {f'"v1", Last-Modified={JULY}'}
    for name in names:
        site.files[name] = site.files[name].replace(*ONES_AND_TWOS)
        site.etags[name], site.modified[name] = etag, modified
    with pytest.raises(SourceChangedError, match=r"version was|Last-Modified was"):
        gridref.open_catalog(tmp_path / "c.gridref")["v"].read()
    by_size = gridref.open_catalog(tmp_path / "c.gridref", identity="size")
    assert (by_size["v"].read() == 2.5).all()
    for name in names:
        site.files[name] = site.files[name].replace(*ONES_AND_TWOS[::-1])
        site.etags[name], site.modified[name] = 'W/"v1"', JULY
    assert (gridref.open_catalog(tmp_path / "c.gridref")["v"].read() == 1.5).all()


@pytest.mark.parametrize("etag", [None, '"v1"', f"Last-Modified={JULY}"])
def test_catalogs_that_recorded_fewer_tags_go_on_reading(site: Site, etag: str | None) -> None:
    site.modified["/a.bin"] = JULY
    source = Source(f"{site.url}/a.bin", len(DATA), etag=etag)
    assert bytes(SourcePool().read(source, 0, 10)) == DATA[:10]
    site.modified["/a.bin"], site.etags["/a.bin"] = AUGUST, '"v2"'
    if etag is not None:
        with pytest.raises(SourceChangedError):
            SourcePool().read(source, 0, 10)


def test_a_file_that_shrank(site: Site) -> None:
    source = describe_source(f"{site.url}/a.bin")
    site.files["/a.bin"] = DATA[:1000]
    with pytest.raises(SourceChangedError, match="size was 300000 bytes, now 1000"):
        SourcePool().read(source, 0, 10)
    for start, came in ((995, 5), (5000, 0)):
        with pytest.raises(ShortReadError, match=f"{came} of 10 bytes arrived") as caught:
            SourcePool(identity="skip").read(source, start, 10)
        assert (caught.value.place.start, caught.value.place.stop) == (start, start + 10)


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_busy_server_is_asked_again(site: Site, status: int) -> None:
    source = describe_source(f"{site.url}/a.bin")
    site.statuses = [status, status]
    parts = SourcePool(retry=FAST, remote_merging=APART).read_ranges(source, [0, 9000], [5, 5])
    assert [bytes(part) for part in parts] == [DATA[:5], DATA[9000:9005]]


@pytest.mark.parametrize("states_length", [True, False])
def test_a_broken_transfer_is_repeated(site: Site, states_length: bool) -> None:
    source = describe_source(f"{site.url}/a.bin")
    site.states_length, site.cuts_bodies = states_length, 1
    assert bytes(SourcePool(retry=FAST).read(source, 10, 50_000)) == DATA[10:50_010]


@pytest.mark.parametrize(
    ("status", "message"),
    [(503, "503.*max_in_flight"), (429, "429.*max_in_flight"), (500, "failed each time.*500")],
)
def test_a_server_that_never_recovers(site: Site, status: int, message: str) -> None:
    source = describe_source(f"{site.url}/a.bin")
    site.statuses = [status] * 50
    with pytest.raises(SourceUnavailableError, match=message):
        SourcePool(retry=FAST).read(source, 0, 10)


@pytest.mark.parametrize(("status", "message"), [(403, "permission"), (404, "does not exist")])
def test_refusals_are_not_repeated(site: Site, status: int, message: str) -> None:
    source = describe_source(f"{site.url}/a.bin")
    site.statuses = [status] * 50
    site.requests.clear()
    with pytest.raises(SourceUnavailableError, match=message):
        SourcePool(identity="skip", retry=RetryPolicy(first_delay=30)).read(source, 0, 10)
    assert len(site.requests) == 1


def test_a_server_that_ignores_ranges_is_found_out(site: Site) -> None:
    site.ignores_ranges = True
    source = describe_source(f"{site.url}/a.bin")
    with pytest.raises(SourceUnavailableError, match="ignores byte ranges"):
        SourcePool().read(source, 100, 10)
    assert bytes(SourcePool().read(source, 0, len(DATA))) == DATA


@pytest.mark.parametrize("n_values", [50, 5_000, 50_000])
@pytest.mark.parametrize("named", [["a.nc"], ["a.nc", "b.nc"], ["*.nc"], [""]])
def test_a_server_that_ignores_ranges_is_refused_when_building(
    site: Site, tmp_path: Path, n_values: int, named: list[str]
) -> None:
    for number, name in enumerate(["a.nc", "b.nc"]):
        data = xr.Dataset({"v": (("n", "x"), np.ones((1, n_values)))}, {"n": [number]})
        data.to_netcdf(tmp_path / name)
        site.files[f"/d/{name}"] = (tmp_path / name).read_bytes()
    site.files["/d/"] = b'<a href="a.nc">a</a> <a href="b.nc">b</a>'
    site.ignores_ranges = True
    files = [f"{site.url}/d/{name}" for name in named]
    refusal = pytest.raises((SourceUnavailableError, FilesFailedError), match="ignores byte ranges")
    with refusal:
        gridref.build(files, tmp_path / "c.gridref", "n")
    with refusal:
        gridref.plan(files, "n")
    assert not (tmp_path / "c.gridref").exists()
    site.ignores_ranges = False
    gridref.build(files, tmp_path / "c.gridref", "n")
    assert (gridref.open_catalog(tmp_path / "c.gridref")["v"].read() == 1).all()


def test_of_a_server_that_ignores_ranges_whole_files_are_read(site: Site, tmp_path: Path) -> None:
    site.ignores_ranges = True
    values = np.arange(12.0)
    zarr.create_array(tmp_path / "a.zarr", data=values, chunks=(5,), compressors=None)
    for file in (tmp_path / "a.zarr").rglob("*"):
        if file.is_file():
            site.files[f"/{file.relative_to(tmp_path)}"] = file.read_bytes()
    assert gridref.scan(f"{site.url}/a.zarr")["a"].read().tolist() == values.tolist()
    metadata = json.loads(site.files["/a.zarr/zarr.json"])
    chunks = {f"v/c/{n}": [f"{site.url}/a.zarr/c/{n}", 0, 40] for n in range(2)}
    refs = {"zarr.json": '{"zarr_format": 3, "node_type": "group"}', "v/zarr.json": metadata}
    site.files["/refs.json"] = json.dumps({"version": 1, "refs": refs | chunks}).encode()
    whole = gridref.scan(f"{site.url}/refs.json")["v"].read()
    assert whole[:10].tolist() == values[:10].tolist()
    site.files["/a.zarr/c/1"] += b"more"
    with pytest.raises(SourceUnavailableError, match=r"ignores byte ranges.*a\.zarr/c/1"):
        gridref.scan(f"{site.url}/refs.json")


def test_a_server_that_is_gone() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/a.bin"
    source = Source(url, 100)
    for identity in ("check", "skip"):
        with pytest.raises(SourceUnavailableError, match="no server answers at") as caught:
            SourcePool(identity=identity, retry=FAST).read(source, 0, 10)  # type: ignore[arg-type]
        assert caught.value.place.source == url


def test_hdf5_is_parsed_in_few_requests(site: Site) -> None:
    content = io.BytesIO()
    values = np.arange(1_000_000.0).reshape(1000, 1000)
    with h5py.File(content, "w") as written:
        written.create_dataset("x", data=values, chunks=(100, 100))
        written["x"].attrs["units"] = "K"
    site.files["/x.h5"] = content.getvalue()
    site.requests.clear()
    with open_for_scan(f"{site.url}/x.h5") as file, h5py.File(file) as opened:
        assert opened["x"].attrs["units"] == "K"
        assert opened["x"].id.get_num_chunks() == 100
        assert file.n_requests == len([entry for entry in site.requests if entry[0] == "GET"])
        assert file.n_requests <= 4
        assert file.n_bytes < 200_000
        assert np.array_equal(opened["x"][150:160], values[150:160])


def test_an_error_below_h5py_is_ours(site: Site) -> None:
    content = io.BytesIO()
    with h5py.File(content, "w") as written:
        written["x"] = np.arange(200_000.0)
    site.files["/x.h5"] = content.getvalue()
    with open_for_scan(f"{site.url}/x.h5", retry=FAST) as file, h5py.File(file) as opened:
        site.statuses = [503] * 100
        with pytest.raises(SourceUnavailableError, match="503"):
            opened["x"][:]
        with pytest.raises(SourceUnavailableError, match="503"):
            file.raise_last_error()
        site.statuses = []


def test_an_original_that_cannot_be_reached_is_no_corrupt_one(site: Site) -> None:
    content = io.BytesIO()
    with h5py.File(content, "w") as written:
        written.create_dataset("x", data=np.arange(3_000_000.0), chunks=(1000,))
    site.files["/x.h5"] = content.getvalue()
    original = OriginalFile(f"{site.url}/x.h5")
    site.statuses = [403] * 100
    try:
        with pytest.raises(SourceUnavailableError, match="permission"):
            original.read("x")
    finally:
        site.statuses = []
        original.close()


def test_a_catalog_is_read_over_http_with_its_sources_beside_it(site: Site, tmp_path: Path) -> None:
    group = VirtualGroup({"v": VirtualArray.from_numpy(np.arange(5.0), ("x",))})
    write_catalog(group, tmp_path / "c", sources="relative")
    for file in (tmp_path / "c").iterdir():
        site.files[f"/cubes/c/{file.name}"] = file.read_bytes()
    site.requests.clear()
    opened = open_catalog(f"{site.url}/cubes/c")
    assert [entry[:2] for entry in site.requests] == [("GET", "/cubes/c/gridref.json")]
    manifest = opened.arrays["v"].manifests[0].take(np.array([0]))
    assert np.frombuffer(manifest.inline_bytes(0), "f8").tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(CatalogNotFoundError):
        open_catalog(f"{site.url}/cubes/d")


@pytest.fixture
def nginx(tmp_path: Path) -> Iterator[str]:
    www = tmp_path / "www"
    www.mkdir()
    without = (
        f"location /without-etag/ {{ alias {www}/; etag off; }}\n"
        f'location /undated/ {{ alias {www}/; add_header Last-Modified ""; }}'
    )
    with nginx_serving(www, tmp_path, without) as url:
        yield url


@pytest.mark.parametrize(
    ("place", "message"),
    [("/without-etag", "version was .* states none"), ("/undated", "Last-Modified was .* none")],
)
def test_a_proxy_that_drops_what_nginx_states(
    nginx: str, tmp_path: Path, place: str, message: str
) -> None:
    with h5py.File(tmp_path / "www" / "a.h5", "w") as written:
        written["v"] = np.arange(5)
    gridref.build(f"{nginx}/a.h5", tmp_path / "c.gridref")
    moved = {f"{nginx}/": f"{nginx}{place}/"}
    with pytest.raises(SourceChangedError, match=message):
        gridref.open_catalog(tmp_path / "c.gridref", prefixes=moved)["v"].read()
    for identity in ("size", "strict"):
        prefixes = moved if identity == "size" else {}
        cube = gridref.open_catalog(tmp_path / "c.gridref", prefixes=prefixes, identity=identity)
        assert cube["v"].read().tolist() == [0, 1, 2, 3, 4]


def test_nginx(nginx: str, tmp_path: Path) -> None:
    for name in ("a10.nc", "a2.nc", "notes.txt"):
        (tmp_path / "www" / name).write_bytes(DATA)
    source = describe_source(f"{nginx}/a2.nc")
    assert source.size_bytes == len(DATA)
    assert source.etag is not None
    pool = SourcePool(remote_merging=APART)
    parts = pool.read_ranges(source, [0, 299_990, 1000], [10, 10, 100])
    assert [bytes(part) for part in parts] == [DATA[:10], DATA[-10:], DATA[1000:1100]]
    with open_for_scan(source.url) as file:
        assert file.read() == DATA
    assert expand_files(f"{nginx}/") == [f"{nginx}/a2.nc", f"{nginx}/a10.nc"]
    assert expand_files(f"{nginx}/a*.nc") == [f"{nginx}/a2.nc", f"{nginx}/a10.nc"]
    (tmp_path / "www" / "a2.nc").write_bytes(DATA[::-1] + b"more")
    with pytest.raises(SourceChangedError):
        SourcePool().read(source, 0, 10)


@pytest.fixture
def cube(tmp_path: Path) -> Iterator[tuple[Site, str, xr.Dataset]]:
    rng = np.random.default_rng(0)
    parts = [
        xr.Dataset(
            {"tas": (("time", "x"), rng.random((length, 40)).astype("f4"))},
            coords={"time": np.arange(length) + start},
        )
        for length, start in ((31, 0), (28, 31))
    ]
    site = Site()
    for i, part in enumerate(parts):
        path = tmp_path / f"{i}.nc"
        encoding = {"tas": {"zlib": True, "chunksizes": (10, 40)}}
        part.to_netcdf(path, encoding=encoding, engine="h5netcdf")
        site.files[f"/{i}.nc"] = path.read_bytes()
        site.etags[f"/{i}.nc"] = f'"{i}"'
    with serving(site) as running:
        groups = [gridref.scan(f"{running.url}/{i}.nc") for i in range(len(parts))]
        catalog = tmp_path / "c.gridref"
        write_catalog(concat(groups, "time"), catalog)
        yield running, str(catalog), xr.concat(parts, "time")


FACES = {
    "store": lambda catalog: xr.open_zarr(
        gridref.open_store(catalog), consolidated=False, zarr_format=3, chunks=None
    ),
    "filesystem": lambda catalog: xr.open_zarr(f"gridref::file://{catalog}", chunks=None),
    "engine": lambda catalog: xr.open_dataset(catalog, engine="gridref"),
}


def test_a_point_of_a_large_contiguous_variable_costs_little(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((40, 300, 200))
    with h5py.File(tmp_path / "large.h5", "w") as file:
        file["v"] = values
    raw = (tmp_path / "large.h5").read_bytes()
    with serving(Site({"/large.h5": raw}, {"/large.h5": '"1"'})) as site:
        gridref.build(f"{site.url}/large.h5", tmp_path / "c.gridref")
        for opened in (
            xr.open_dataset(tmp_path / "c.gridref"),
            xr.open_zarr(f"gridref::file://{tmp_path / 'c.gridref'}", chunks=None),
        ):
            site.requests.clear()
            assert opened["v"][7, 8, 9].values == values[7, 8, 9]
            assert np.array_equal(opened["v"][3:5].values, values[3:5])
            data = [asked for asked in site.requests if asked[1] == "/large.h5"]
            assert [method for method, _, _ in data] == ["GET", "GET"]
            sizes = [1 - eval(str(wanted).removeprefix("bytes=")) for _, _, wanted in data]
            assert sizes == [8, 2 * 300 * 200 * 8]


@pytest.mark.long(but=4)
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("harm", ["changed", "lost", "emptied", "refused"])
def test_a_harmed_source_is_an_error_and_never_fill_values(
    cube: tuple[Site, str, xr.Dataset], face: str, harm: str
) -> None:
    site, catalog, _ = cube
    if harm == "changed":
        site.etags["/1.nc"] = '"another"'
    elif harm == "lost":
        del site.files["/1.nc"]
    elif harm == "emptied":
        site.files["/1.nc"] = b""
    else:
        site.statuses = [403] * 1000
    error = SourceChangedError if harm in ("changed", "emptied") else SourceUnavailableError
    with pytest.raises(error, match=r"file http://127\.0\.0\.1:\d+/\d\.nc"):
        # Opening reads the coordinate, of which each file holds a part.
        _ = FACES[face](catalog)["tas"].values
    store = gridref.open_store(catalog)
    opened = xr.open_zarr(
        store, consolidated=False, zarr_format=3, chunks=None, drop_variables=["time"]
    )
    with pytest.raises(error, match="variable tas"):
        _ = opened["tas"][-1].values
