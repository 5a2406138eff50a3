"""Files on one grid are described by the first of them: as each would be on its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gridref
from gridref.errors import SourceFormatError
from gridref.formats.tiff import structure
from gridref.learned import FORMS
from gridref.model.array import VirtualGroup

rasterio = pytest.importorskip("rasterio")
pytestmark = pytest.mark.filterwarnings("ignore:Dataset has no geotransform")

GRID = {"crs": "EPSG:32632", "transform": rasterio.Affine(20, 0, 600000, 0, -20, 5000040)}


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Each test begins without files that were seen before."""
    FORMS.clear()
    yield
    FORMS.clear()


def values_of(seed: int, bands: int = 1, *, empty_tiles: bool = False) -> Any:
    values = np.random.default_rng(seed).integers(1, 200, (bands, 600, 700)).astype("u2")
    if empty_tiles:
        values[:, 256 * (seed % 2) : 256 * (seed % 2) + 256] = 0
    return values


def write(path: Path, values: Any, **options: Any) -> Path:
    settings = {"driver": "COG", "compress": "deflate", "blocksize": 256, "nodata": 0, **GRID}
    settings.update(options)
    masked = settings.pop("masked", False)
    count, height, width = values.shape
    with rasterio.open(
        path, "w", count=count, height=height, width=width, dtype=values.dtype, **settings
    ) as file:
        file.write(values)
        if masked:
            file.write_mask(values[0] > 100)
    return path


def described(group: VirtualGroup) -> Any:
    """All that a group says of a file, without its name."""
    return [
        (path, array.dims, array.shape, str(array.dtype), array.encodings, str(array.attrs),
         [[column.tolist() for column in (rows.offset, rows.length, rows.state, rows.source)]
          + [[source.size_bytes for source in rows.sources], rows.inline]
          for rows in array.manifests])
        for path, array in group.all_arrays().items()
    ], str(group.attrs), [finding._replace(source="") for finding in group.report]  # fmt: skip


def scanned_alone(path: Path) -> Any:
    FORMS.clear()
    return described(gridref.scan(path))


KINDS: dict[str, dict[str, Any]] = {
    "deflate": {},
    "LZW, predictor": {"compress": "lzw", "predictor": 2},
    "sparse": {"sparse_ok": True},
    "several bands": {"bands": 3},
    "bands apart": {"bands": 3, "driver": "GTiff", "tiled": True, "interleave": "band"},
    "strips": {"driver": "GTiff"},
    "BigTIFF": {"bigtiff": "yes"},
    "one tile": {"driver": "GTiff", "tiled": True, "blockxsize": 704, "blockysize": 704},
    "big-endian": {"driver": "GTiff", "endianness": "big"},
    "JPEG": {"compress": "jpeg", "dtype": "u1", "bands": 3, "nodata": None},
    "mask": {"masked": True, "nodata": None},
    "no georeference": {"driver": "GTiff", "crs": None, "transform": None},
}


@pytest.mark.parametrize("kind", KINDS)
def test_siblings_are_described_by_the_first(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = dict(KINDS[kind])
    bands, dtype = options.pop("bands", 1), options.pop("dtype", "u2")
    paths, alone = [], []
    for seed in range(3):
        values = values_of(seed, bands, empty_tiles=kind == "sparse").astype(dtype)
        paths.append(write(tmp_path / f"{seed}.tif", values, **options))
        alone.append(scanned_alone(paths[-1]))
    assert len({str(each) for each in alone}) == 3
    FORMS.clear()
    first = gridref.scan(paths[0])
    monkeypatch.setattr(structure, "read_plain_structure", None)  # nobody else reads their tags
    found = [described(first), *(described(gridref.scan(path)) for path in paths[1:])]
    assert found == alone
    name = "image" if kind == "no georeference" else "band_data"
    for path in paths:
        with rasterio.open(path) as file:
            np.testing.assert_array_equal(
                gridref.scan(path)[name][...].reshape(file.count, 600, 700), file.read()
            )


@pytest.mark.parametrize(
    "other",
    [
        {"transform": rasterio.Affine(20, 0, 600020, 0, -20, 5000040)},
        {"crs": "EPSG:32633"},
        {"nodata": 1},
        {"blocksize": 128},
        {"compress": "lzw"},
    ],
    ids=["place", "crs", "nodata", "blocks", "compression"],
)
def test_what_differs_in_more_is_no_sibling(other: dict[str, Any], tmp_path: Path) -> None:
    values = values_of(0)
    one = write(tmp_path / "one.tif", values)
    two = write(tmp_path / "two.tif", values, **other)
    alone = scanned_alone(two)
    FORMS.clear()
    assert described(gridref.scan(one)) != alone
    assert described(gridref.scan(two)) == alone


def test_uncompressed_images_show_where_they_lie_in_more_than_offsets(tmp_path: Path) -> None:
    """One run of elements is split into chunks of its own."""
    paths = [
        write(tmp_path / f"{seed}.tif", values_of(seed), driver="GTiff", compress=None)
        for seed in range(2)
    ]
    alone = [scanned_alone(path) for path in paths]
    FORMS.clear()
    assert [described(gridref.scan(path)) for path in paths] == alone


def test_a_damaged_sibling_is_refused_as_if_it_were_alone(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{seed}.tif", values_of(seed)) for seed in range(2)]
    data = paths[1].read_bytes()
    paths[1].write_bytes(data[: len(data) // 2])
    for _ in range(2):
        with pytest.raises(SourceFormatError, match=r"lie behind the end of the file.*1\.tif"):
            gridref.scan(paths[1])
        gridref.scan(paths[0])
