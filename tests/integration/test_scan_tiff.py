"""Every TIFF of the shared data equals tifffile and GDAL, or is refused as documented."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray

from gridref.errors import DecodeError, GridrefError
from gridref.formats import scan
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.testing.reference_reader import read_slowly
from tests.shared_data import shared_data_folder, shared_files

pytestmark = pytest.mark.usefixtures("quiet_tifffile")

TIFFS = shared_files(
    *(
        f"{folder}/**/*{suffix}"
        for folder, suffix in (
            ("tiff", ".tif"),
            ("tiff", ".tiff"),
            ("tiff", ".dng"),
            ("bad_input", ".tif"),
            ("bad_input", ".tiff"),
            ("families", ".tif"),
            ("ome_tiff", ".tif"),
            ("ome_tiff", ".tiff"),
        )
    )
)
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "formats" / "tiff.md"
ROW = re.compile(r"^\| `([^`]+)` \| (scan|read `[^`]+`|`[^`]+`) \| (.+) \|$")
# Here GDAL shows something else on purpose: one plane of several, or colours converted.
GDAL_DIFFERS = {
    *("multi-channel-time-series", "multi-channel-z-series", "multifile-Z"),
    *("gray.depth", "cielab"),
}


@cache
def documented() -> dict[str, dict[str, str]]:
    """Refusals by file: what is refused, and why."""
    found: dict[str, dict[str, str]] = {}
    for line in DOCUMENT.read_text().splitlines():
        match = ROW.match(line)
        if match and "/" in match[1]:
            found.setdefault(match[1], {})[match[2].replace("`", "")] = match[3]
    return found


def scanned(path: Path) -> VirtualGroup:
    return scan(str(path), on_unsupported="skip")


def images(group: VirtualGroup) -> dict[str, VirtualArray]:
    return {
        path: array for path, array in group.all_arrays().items() if "tiff_series" in array.attrs
    }


def refusals(path: Path) -> dict[str, str]:
    """What is refused of a file, and why."""
    try:
        group = scanned(path)
    except GridrefError as error:
        return {"scan": error.reason}
    found = {entry.path: entry.reason for entry in group.report.skipped}
    for name, array in images(group).items():
        try:
            read_slowly(array)
        except DecodeError as error:
            found[f"read /{name}"] = error.reason
    return found


def as_laid_out(values: NDArray[Any], axes: str, array: VirtualArray) -> NDArray[Any]:
    """What tifffile gives, with the bands in front where the array has them there."""
    if "band" not in array.dims:
        samples_in_front = "sample" in array.dims[:-1] and axes.endswith("YXS")
        return np.moveaxis(values, -1, array.dims.index("sample")) if samples_in_front else values
    if axes.endswith("YXS"):
        return np.moveaxis(values, -1, -3)
    return values[np.newaxis] if values.ndim == 2 else values


@pytest.mark.long(but=24)
@pytest.mark.parametrize("path", TIFFS)
def test_refused_as_documented(path: Path) -> None:
    expected = documented().get(path.relative_to(shared_data_folder()).as_posix(), {})
    assert refusals(path) == expected


@pytest.mark.long(but=24)
@pytest.mark.parametrize("path", TIFFS)
def test_equals_tifffile(path: Path) -> None:
    try:
        group = scanned(path)
    except GridrefError:
        return
    found = images(group)
    if path.parent.name == "companion_multifile":  # tifffile reads no metadata of other files
        planes = [tifffile.imread(each) for each in sorted(path.parent.glob("*.tiff"))]
        (array,) = found.values()
        np.testing.assert_array_equal(read_slowly(array), np.stack(planes))
        return
    with tifffile.TiffFile(path) as file:
        series = list(file.series)
        numbers = {
            (number, depth) for number, one in enumerate(series) for depth in range(len(one.levels))
        }
        seen = {(a.attrs["tiff_series"], a.attrs["tiff_level"]) for a in found.values()}
        assert len(seen) + len(group.report.skipped) == len(numbers)
        for array in found.values():
            level = series[array.attrs["tiff_series"]].levels[array.attrs["tiff_level"]]
            try:
                values = read_slowly(array)
            except DecodeError:
                continue
            try:
                expected = as_laid_out(level.asarray(), level.axes, array)
            except (ValueError, RuntimeError):
                continue  # tifffile cannot; GDAL is asked below
            assert values.dtype == expected.dtype
            assert values.shape == expected.shape
            assert np.ascontiguousarray(values).tobytes() == expected.tobytes()


@pytest.mark.long(but=16)
@pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
@pytest.mark.parametrize("path", TIFFS)
def test_equals_gdal(path: Path) -> None:
    rasterio = pytest.importorskip("rasterio")
    if any(name in path.name for name in GDAL_DIFFERS):
        return
    try:
        found = images(scanned(path))
    except GridrefError:
        return
    for array in found.values():
        level = array.attrs["tiff_level"]
        options = {"overview_level": level - 1} if level else {}
        try:
            with rasterio.open(path, **options) as file:
                expected = file.read()
        except rasterio.errors.RasterioError:
            continue
        if array.attrs["tiff_series"]:
            continue
        try:
            values = read_slowly(array)
        except DecodeError:
            continue
        values = values[0] if array.dims[0] == "page" else values
        values = np.moveaxis(values, -1, 0) if array.dims[-1] == "sample" else values
        values = values[np.newaxis] if values.ndim == 2 else values
        np.testing.assert_array_equal(values.astype(expected.dtype), expected)


def test_documented_files_exist(shared_data: Path) -> None:
    assert documented()
    for name in documented():
        assert (shared_data / name).is_file()


def test_few_requests(shared_data: Path) -> None:
    path = shared_data / "families/lcmap_cog_2years/lcmap_tiny_cog_2019.tif"
    report = scanned(path).report
    assert report.n_requests == 1
    assert report.n_bytes <= 16 << 10


@pytest.mark.long(but=16)
@pytest.mark.parametrize("path", TIFFS)
def test_never_a_whole_file(path: Path) -> None:
    """Metadata and offsets only: what is read does not grow with the pixels."""
    try:
        group = scanned(path)
    except GridrefError:
        return
    rows = sum(array.manifests[0].n_rows for array in images(group).values())
    with tifffile.TiffFile(path) as file:
        n_pages = len(file.pages)
    assert group.report.n_bytes <= (40 << 10) + 16 * rows + (8 << 10) * n_pages
