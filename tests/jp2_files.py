"""JPEG 2000 files, and Sentinel-2 products of them."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.errors import NotGeoreferencedWarning
from rasterio.transform import from_origin

__all__ = [
    "BANDS_1C",
    "BANDS_2A",
    "codestream_of",
    "image_of",
    "read_jp2",
    "tile_parts",
    "with_parts",
    "write_jp2",
    "write_product",
]


def image_of(shape: tuple[int, ...], dtype: str = "u2", seed: int = 0) -> NDArray[Any]:
    """An image with structure, within 12 bits."""
    random = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    smooth = np.cumsum(random.integers(-3, 4, shape), axis=-1) + 100
    return np.clip(smooth, max(info.min, -2000), min(info.max, 4000)).astype(dtype)


def write_jp2(path: Path, image: NDArray[Any], tile: int = 64, **options: Any) -> Path:
    """Write bands without loss, in square tiles."""
    bands, height, width = image.shape
    settings: dict[str, Any] = {
        "driver": "JP2OpenJPEG",
        "blockxsize": tile,
        "blockysize": tile,
        "REVERSIBLE": "YES",
        "QUALITY": "100",
        "RESOLUTIONS": 3,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(
            path,
            "w",
            count=bands,
            height=height,
            width=width,
            dtype=image.dtype.name,
            **settings | options,
        ) as file:
            file.write(image)
    path.with_name(f"{path.name}.aux.xml").unlink(missing_ok=True)
    return path


def read_jp2(path: Path, **options: Any) -> NDArray[Any]:
    """All bands, or those of an overview."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path, **options) as file:
            values: NDArray[Any] = file.read()
            return values


def codestream_of(data: bytes) -> int:
    """Where the codestream of a file begins."""
    return data.index(b"\xff\x4f\xff\x51")


def tile_parts(data: bytes) -> list[tuple[int, int, int]]:
    """Tile, first byte and end of each tile-part of a file."""
    at = codestream_of(data) + 2
    while data[at : at + 2] != b"\xff\x90":
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    found = []
    while data[at : at + 2] == b"\xff\x90":
        tile, length = struct.unpack(">HI", data[at + 4 : at + 10])
        found.append((tile, at, at + length))
        at += length
    return found


def with_parts(data: bytes, order: Sequence[int]) -> bytes:
    """A file with its tile-parts in another order."""
    parts = tile_parts(data)
    moved = b"".join(data[parts[number][1] : parts[number][2]] for number in order)
    return data[: parts[0][1]] + moved + data[parts[-1][2] :]


BANDS_1C = {10: ("B02", "B03", "B04", "B08", "TCI"), 20: ("B05", "B11"), 60: ("B01", "B09")}
BANDS_2A = {
    10: ("B02", "B03", "TCI"),
    20: ("B02", "B03", "B05", "SCL", "TCI"),
    60: ("B01", "B02", "SCL"),
}
_DOCUMENT = """<?xml version="1.0" encoding="UTF-8" standalone="no"?>
<n1:Level-{level}_User_Product xmlns:n1="https://psd-14.sentinel2.eo.esa.int/PSD/User_Product.xsd">
  <n1:General_Info>
    <Product_Info>
      <PRODUCT_START_TIME>{start}</PRODUCT_START_TIME>
      <PRODUCT_STOP_TIME>{start}</PRODUCT_STOP_TIME>
      <PRODUCT_URI>{name}</PRODUCT_URI>
      <PROCESSING_LEVEL>Level-{level}</PROCESSING_LEVEL>
      <PROCESSING_BASELINE>05.09</PROCESSING_BASELINE>
      <Datatake datatakeIdentifier="GS2A">
        <SPACECRAFT_NAME>Sentinel-2A</SPACECRAFT_NAME>
      </Datatake>
      <Product_Organisation><Granule_List>
        <Granule granuleIdentifier="{granule}" imageFormat="JPEG2000">
{images}
        </Granule>
      </Granule_List></Product_Organisation>
    </Product_Info>
    <Product_Image_Characteristics>
      <Special_Values>
        <SPECIAL_VALUE_TEXT>NODATA</SPECIAL_VALUE_TEXT>
        <SPECIAL_VALUE_INDEX>0</SPECIAL_VALUE_INDEX>
      </Special_Values>
      <Special_Values>
        <SPECIAL_VALUE_TEXT>SATURATED</SPECIAL_VALUE_TEXT>
        <SPECIAL_VALUE_INDEX>65535</SPECIAL_VALUE_INDEX>
      </Special_Values>
      <QUANTIFICATION_VALUES_LIST>
        <BOA_QUANTIFICATION_VALUE unit="none">10000</BOA_QUANTIFICATION_VALUE>
      </QUANTIFICATION_VALUES_LIST>
      <BOA_ADD_OFFSET_VALUES_LIST>
        <BOA_ADD_OFFSET band_id="1">-1000</BOA_ADD_OFFSET>
        <BOA_ADD_OFFSET band_id="8">-900</BOA_ADD_OFFSET>
      </BOA_ADD_OFFSET_VALUES_LIST>
    </Product_Image_Characteristics>
  </n1:General_Info>
</n1:Level-{level}_User_Product>
"""


def write_product(
    folder: Path,
    level: str = "2A",
    date: str = "20230601",
    tile: str = "31UFS",
    bands: Mapping[int, Sequence[str]] | None = None,
    corner: tuple[float, float] = (600_000, 5_000_040),
    metres: int = 2400,
    epsg: int = 32631,
) -> Path:
    """Write a product of a square of so many metres; returns its folder."""
    bands = bands or (BANDS_2A if level == "2A" else BANDS_1C)
    time = f"{date}T105031"
    name = f"S2A_MSIL{level}_{time}_N0509_R051_T{tile}_{date}T182955.SAFE"
    granule = f"L{level}_T{tile}_A041_{date}T105300"
    images = []
    for resolution, names in bands.items():
        for band in names:
            place = f"GRANULE/{granule}/IMG_DATA/"
            place += f"R{resolution}m/" if level == "2A" else ""
            place += f"T{tile}_{time}_{band}" + (f"_{resolution}m" if level == "2A" else "")
            n_pixels = metres // resolution
            shape = (3 if band == "TCI" else 1, n_pixels, n_pixels)
            path = folder / name / f"{place}.jp2"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_jp2(
                path,
                image_of(shape, "u1" if band in ("TCI", "SCL") else "u2", sum(map(ord, place))),
                128,
                crs=f"EPSG:{epsg}",
                transform=from_origin(*corner, resolution, resolution),
                TLM="YES",
                GeoJP2="NO",
            )
            images.append(f"          <IMAGE_FILE>{place}</IMAGE_FILE>")
    start = f"{date[:4]}-{date[4:6]}-{date[6:]}T10:50:31.024Z"
    document = _DOCUMENT.format(
        level=level, name=name, granule=granule, start=start, images="\n".join(images)
    )
    (folder / name / f"MTD_MSIL{level}.xml").write_text(document)
    return folder / name
