"""What OME-XML says of the channels of images.

Source: OME data model 2016-06, ``Pixels`` and ``Channel``
(https://www.openmicroscopy.org/Schemas/OME/2016-06/).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from gridref.model.ome_zarr import Channel

__all__ = ["PixelsMetadata", "pixels_of"]


@dataclass(frozen=True)
class PixelsMetadata:
    """An image's channels, and how many bits of its values are used if that is said."""

    channels: tuple[Channel, ...] = ()
    bits: int | None = None


def pixels_of(text: str | None) -> list[PixelsMetadata]:
    """What is said of each image, in their order; nothing if the text is no OME-XML."""
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
    """Six hexadecimal digits out of a signed number of 32 bits: red, green, blue and alpha."""
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
