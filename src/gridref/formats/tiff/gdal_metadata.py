"""What GDAL writes into TIFF tags of its own: metadata items and the value that means "no data".

Source: GDAL's GTiff driver, "Metadata" and "Nodata value"
(https://gdal.org/drivers/raster/gtiff.html): tag 42112 holds XML ``<GDALMetadata><Item name=
sample= role= domain=>``, tag 42113 a number as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

__all__ = ["BandMetadata", "nodata_of", "read_gdal_metadata"]

_MAX_XML_CHARACTERS = 4 << 20


@dataclass(frozen=True)
class BandMetadata:
    """Metadata of an image and its bands.

    Attributes
    ----------
    items
        Items that concern the whole image.
    descriptions, scales, offsets, units
        By band, counted from 0, where the file has them.
    """

    items: Mapping[str, str] = field(default_factory=dict)
    descriptions: Mapping[int, str] = field(default_factory=dict)
    scales: Mapping[int, float] = field(default_factory=dict)
    offsets: Mapping[int, float] = field(default_factory=dict)
    units: Mapping[int, str] = field(default_factory=dict)


@lru_cache(maxsize=64)
def read_gdal_metadata(text: str | None) -> BandMetadata:
    """Parse the value of the GDAL_METADATA tag; what cannot be parsed is left out.

    A document type declaration is not parsed: entities could blow up.
    """
    if text is None or len(text) > _MAX_XML_CHARACTERS or "<!DOCTYPE" in text:
        return BandMetadata()
    try:
        root = ET.fromstring(text)
    except ET.ParseError:
        return BandMetadata()
    items: dict[str, str] = {}
    by_role: dict[str, dict[int, str]] = {
        "description": {},
        "scale": {},
        "offset": {},
        "unittype": {},
    }
    for item in root.iter("Item"):
        name, value = item.get("name", ""), item.text or ""
        sample, role = item.get("sample"), item.get("role")
        if role in by_role and sample is not None and sample.isdecimal():
            by_role[role][int(sample)] = value
        elif sample is None and role is None and item.get("domain") is None and name:
            items[name] = value
    return BandMetadata(
        items,
        by_role["description"],
        _numbers(by_role["scale"]),
        _numbers(by_role["offset"]),
        by_role["unittype"],
    )


def _numbers(values: Mapping[int, str]) -> dict[int, float]:
    result = {}
    for band, text in values.items():
        try:
            result[band] = float(text)
        except ValueError:
            continue
    return result


@lru_cache(maxsize=256)
def nodata_of(text: str | None, dtype: np.dtype[Any]) -> Any:
    """The GDAL_NODATA tag as a scalar of `dtype`.

    Returns
    -------
    numpy scalar or None
        None if there is none, or if no element of `dtype` can be equal to it.
    """
    if text is None:
        return None
    try:
        if dtype.kind in "iu":
            whole = _integer(text)
            limits = np.iinfo(dtype)
            return (
                None
                if whole is None or not limits.min <= whole <= limits.max
                else dtype.type(whole)
            )
        number = float(text.strip().replace(",", "."))
        with np.errstate(over="ignore"):
            return np.asarray(number).astype(dtype)[()] if dtype.kind in "fc" else None
    except ValueError:
        return None


def _integer(text: str) -> int | None:
    """An integer, also written as ``255.0``; large ones exactly."""
    text = text.strip()
    try:
        return int(text)
    except ValueError:
        number = float(text.replace(",", "."))
        return int(number) if np.isfinite(number) and number == int(number) else None
