"""What a report says of requests and bytes, against what the server counted itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tifffile
import zarr

import gridref
from gridref.errors import SourceChangedError
from tests.http_server import Site, serving

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


def served(folder: Path) -> dict[str, bytes]:
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
    with serving(Site(served(tmp_path))) as site:
        report = gridref.scan(f"{site.url}/{name}").report
        assert report.findings
        assert report.n_requests == len(site.requests) > 0
        assert report.n_bytes == sent_bytes(site) > 0


@pytest.mark.parametrize("make", [small_hdf5, tiff])
def test_what_is_asked_for_again_counts_again(tmp_path: Path, make: Callable[[Path], str]) -> None:
    name = make(tmp_path)
    with serving(Site(served(tmp_path), statuses=[503, 503])) as site:
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
    site = Site(served(tmp_path), {name: '"first"'})
    site.requests = Requests(site, name)
    with serving(site), pytest.raises(SourceChangedError, match="changed while it was scanned"):
        gridref.scan(f"{site.url}{name}")
    assert len(site.requests) >= 2
