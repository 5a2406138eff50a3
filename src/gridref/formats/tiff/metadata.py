"""Read metadata in TIFF files: GDAL items, OME-XML channels, pyramids.

`read_gdal_metadata` and `nodata_of` read the tags that GDAL adds.
Source: GDAL's GTiff driver, "Metadata" and "Nodata value"
(https://gdal.org/drivers/raster/gtiff.html): tag 42112 holds XML ``<GDALMetadata><Item name=
sample= role= domain=>``, tag 42113 a number as text.

`pixels_of` reads the channels of images from OME-XML.
Source: OME data model 2016-06, ``Pixels`` and ``Channel``
(https://www.openmicroscopy.org/Schemas/OME/2016-06/).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from gridref.errors import UnsupportedFeatureError
from gridref.learned import FORMS
from gridref.limits import beyond, limits
from gridref.model.ome_zarr import Channel

# GDAL's own tags: metadata items and the value that means "no data"


@dataclass(frozen=True)
class BandMetadata:
    """Metadata of an image and its bands.

    Attributes
    ----------
    items
        Items that concern the whole image.
    descriptions, scales, offsets, units
        By band, counted from 0, if the file has them.
    """

    items: Mapping[str, str] = field(default_factory=dict)
    descriptions: Mapping[int, str] = field(default_factory=dict)
    scales: Mapping[int, float] = field(default_factory=dict)
    offsets: Mapping[int, float] = field(default_factory=dict)
    units: Mapping[int, str] = field(default_factory=dict)


@FORMS.remembers
def read_gdal_metadata(text: str) -> BandMetadata:
    """Parse the value of the GDAL_METADATA tag; what cannot be parsed is left out.

    A document type declaration is not parsed, because its entities could expand without limit.

    Raises
    ------
    UnsupportedFeatureError
        For a text that is too long: it may hold the scales of the bands.
    """
    if "<!DOCTYPE" in text:
        return BandMetadata()
    if len(text) > limits().xml_characters:
        what = f"GDAL's metadata has {len(text)} characters"
        raise UnsupportedFeatureError(beyond("xml_characters", what))
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


# Channels of images in OME-XML


@dataclass(frozen=True)
class PixelsMetadata:
    """An image's channels, and the number of used bits in its values, if it is stated."""

    channels: tuple[Channel, ...] = ()
    bits: int | None = None


def pixels_of(text: str | None) -> list[PixelsMetadata]:
    """The metadata of each image, in their order; none if the text is not OME-XML."""
    try:
        root = ET.fromstring(text or "")
    except ET.ParseError:
        return []
    return [
        PixelsMetadata(tuple(_channels(pixels)), _number(pixels.get("SignificantBits")))
        for image in _children(root, "Image")
        for pixels in [next(_children(image, "Pixels"), image)]
    ]


def _channels(pixels: ET.Element) -> Iterator[Channel]:
    for number, channel in enumerate(_children(pixels, "Channel")):
        if (_number(channel.get("SamplesPerPixel")) or 1) == 3:
            yield from map(Channel, ("red", "green", "blue"), ("FF0000", "00FF00", "0000FF"))
            continue
        label = channel.get("Name") or f"channel {number}"
        yield Channel(label, _color(channel.get("Color")))


def _color(text: str | None) -> str | None:
    """Six hexadecimal digits from a signed number of 32 bits: red, green, blue and alpha."""
    number = _number(text)
    rgb = None if number is None else (number & 0xFFFFFFFF) >> 8
    return f"{rgb:06X}" if rgb else None


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _children(element: ET.Element, name: str) -> Iterator[ET.Element]:
    """Children of that name in any namespace: each version of the schema has its own."""
    return (child for child in element if child.tag.rpartition("}")[2] == name)
