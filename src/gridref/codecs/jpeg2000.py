"""JPEG 2000 codestreams: read the main header, and decode a single tile.

``gridref.jpeg2000`` decodes the tile-parts of one tile. Its configuration holds the main header of
the codestream. Both are put together to a codestream with that tile alone, for OpenJPEG. The tile
keeps its place on the reference grid, which its wavelets and code-blocks follow. Without a header
in the configuration, the bytes are a whole codestream.

Damaged codestreams can ask for gigabytes in a few bytes. So the header is checked before OpenJPEG
sees it: the size of the tile must be that of the chunk, and each packet takes at least a byte.

Source: ITU-T T.800 (2015), annexes A (marker segments) and B (tiles, precincts, packets).
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from gridref.codecs.stage import (
    ArraySpec,
    Config,
    Raw,
    SerialCodec,
    SerialDecode,
    as_bytes,
    without_unit_axes,
)
from gridref.limits import beyond, limits

NAME = "gridref.jpeg2000"

SOC, SIZ, COD, COC, TLM, PPM, SOT, SOD, EOC = (
    *(0xFF4F, 0xFF51, 0xFF52, 0xFF53, 0xFF55, 0xFF60),
    *(0xFF90, 0xFF93, 0xFFD9),
)
"""Markers: T.800, table A.2."""
_DECODING = {0xFF00 + code for code in (0x50, 0x51, 0x52, 0x53, 0x59, 0x5C, 0x5D, 0x5E, 0x5F)}
"""Segments of the main header that decoding a tile needs: CAP, SIZ, COD to RGN, CPF, QCD to POC."""
_LENGTHS = {TLM, 0xFF57, PPM, 0xFF63, 0xFF64}
"""Others that may be there: lengths of tile-parts and packets, PPM, CRG, comments."""
_MOST_BITS = 31
SOT_BYTES, LEAST_PART_BYTES = 12, 14
"""Bytes of SOT, and of the smallest tile-part: SOT and SOD."""
_FEW_PACKETS = 1 << 16
_ELEMENT_BYTES, _BLOCK_BYTES = 4, 100
"""Memory of OpenJPEG for an element, and for a code-block."""

type Read = Callable[[int, int], bytes]
"""The bytes from a place on, so many; fewer at the end."""

type Rectangle = tuple[int, int, int, int]
"""Left, top, right and bottom on the reference grid."""


class CodestreamError(ValueError):
    """A codestream that is damaged."""


class UnsupportedCodestreamError(ValueError):
    """A codestream with something that is not decoded."""


@dataclass(frozen=True)
class _Style:
    """The resolutions of a tile-component: COD or COC.

    Attributes
    ----------
    levels
        How often it is halved.
    precincts
        Exponents of the width and height of precincts, by resolution from the smallest one.
    block
        Elements of a code-block.
    """

    levels: int
    precincts: bytes
    block: int

    def n_precincts(self, tile: Rectangle) -> int:
        """Precincts of all resolutions: T.800, B.5 and B.6."""
        total = 0
        for resolution in range(self.levels + 1):
            left, top, right, bottom = reduced(tile, self.levels - resolution)
            if left < right and top < bottom:
                size = self.precincts[resolution] if self.precincts else 0xFF
                across, down = size & 15, size >> 4
                columns = -(-right >> across) - (left >> across)
                rows = -(-bottom >> down) - (top >> down)
                total += columns * rows
        return total


@dataclass(frozen=True)
class Header:
    """The main header of a codestream, or the header of a tile-part.

    Attributes
    ----------
    segments
        Markers, and what follows the length of their segments.
    stop
        Where the first tile-part begins, or the data.
    """

    segments: tuple[tuple[int, bytes], ...]
    stop: int

    @cached_property
    def size(self) -> Size:
        """What SIZ says."""
        if not self.segments or self.segments[0][0] != SIZ:
            raise CodestreamError("its header does not begin with the size of the image")
        return Size.parse(self.segments[0][1])

    def coding(self, n_components: int) -> tuple[int, dict[int, _Style]]:
        """Layers, and styles by component; that of all others is at -1."""
        layers, styles = 0, dict[int, _Style]()
        wide = n_components > 256
        for marker, segment in self.segments:
            if marker == COD and len(segment) >= 10:
                layers = int.from_bytes(segment[2:4], "big")
                styles[-1] = _style(segment[0], segment[5:])
            elif marker == COC and len(segment) >= 7 + wide:
                component = int.from_bytes(segment[: 1 + wide], "big")
                styles[component] = _style(segment[1 + wide], segment[2 + wide :])
        return layers, styles

    @property
    def levels(self) -> int:
        """How often every component is halved."""
        _, styles = self.coding(len(self.size.components))
        if -1 not in styles:
            raise CodestreamError("its header does not say how it is coded")
        return min(style.levels for style in styles.values())

    def for_tiles(self) -> bytes:
        """The header without what decoding a tile does not need; SIZ is the first segment."""
        kept = [segment for segment in self.segments if segment[0] in _DECODING]
        return b"".join([struct.pack(">H", SOC), *(_written(*segment) for segment in kept)])

    def has(self, marker: int) -> bool:
        """Whether there is a segment."""
        return any(each == marker for each, _ in self.segments)


def _written(marker: int, segment: bytes) -> bytes:
    return struct.pack(">HH", marker, 2 + len(segment)) + segment


def _style(flags: int, fields: bytes) -> _Style:
    levels, precincts = fields[0], fields[5:] if flags & 1 else b""
    if levels > 32 or (flags & 1 and len(precincts) <= levels):
        raise CodestreamError(f"its header states {levels} levels of resolution")
    if fields[1] + fields[2] > 8:  # T.800, table A.18
        raise CodestreamError("its header states code-blocks of more than 4096 elements")
    return _Style(levels, precincts, 1 << (fields[1] + fields[2] + 4))


@dataclass(frozen=True)
class Size:
    """SIZ: the image and its tiles on the reference grid (T.800, A.5.1 and B.3).

    Attributes
    ----------
    tile
        The first tile, as if it were not cut by the image.
    components
        Bits, less one, and 128 where it is signed, of each component.
    """

    image: Rectangle
    tile: Rectangle
    components: bytes

    @classmethod
    def parse(cls, segment: bytes) -> Size:
        """Parse and check the segment."""
        if len(segment) < 39:
            raise CodestreamError("its size is cut off")
        _, right, bottom, left, top, width, height, x, y, count = struct.unpack(
            ">H8IH", segment[:36]
        )
        components = segment[36::3]
        if len(segment) != 36 + 3 * count or not count:
            raise CodestreamError(f"its size has {len(segment)} bytes for {count} components")
        if not (x <= left < right and y <= top < bottom and left < x + width and top < y + height):
            raise CodestreamError("its image is empty, or outside of its tiles")
        if any(step != 1 for at in (37, 38) for step in segment[at::3]):
            raise UnsupportedCodestreamError("its components are subsampled")
        if len(set(components)) > 1:
            bits = ", ".join(str((each & 127) + 1) for each in components[:8])
            raise UnsupportedCodestreamError(
                f"its components differ in type: they have {bits} bits"
            )
        if (components[0] & 127) + 1 > _MOST_BITS:
            raise UnsupportedCodestreamError(f"its elements have {(components[0] & 127) + 1} bits")
        return cls((left, top, right, bottom), (x, y, x + width, y + height), components)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of all components."""
        bits = (self.components[0] & 127) + 1
        n_bytes = 1 if bits <= 8 else 2 if bits <= 16 else 4
        return np.dtype(f"{'i' if self.components[0] & 128 else 'u'}{n_bytes}")

    @property
    def n_tiles(self) -> tuple[int, int]:
        """Rows and columns of tiles."""
        x, y, stop_x, stop_y = self.tile
        _, _, right, bottom = self.image
        return -((y - bottom) // (stop_y - y)), -((x - right) // (stop_x - x))

    def chunk_shape(self, levels: int, *, in_tiles: bool) -> tuple[int, int, int]:
        """Bands, rows and columns of the image, or of each tile, after some halvings.

        Tiles at the end are padded, as a regular grid has them.
        """
        left, top, right, bottom = reduced(self.image, levels)
        rows, columns = bottom - top, right - left
        if in_tiles:
            rows = min(rows, -(-(self.tile[3] - self.tile[1]) >> levels))
            columns = min(columns, -(-(self.tile[2] - self.tile[0]) >> levels))
        return len(self.components), rows, columns

    def place(self, index: int) -> Rectangle:
        """A tile, cut by the image."""
        x, y, stop_x, stop_y = self.tile
        row, column = divmod(index, self.n_tiles[1])
        x, y = x + column * (stop_x - x), y + row * (stop_y - y)
        left, top, right, bottom = self.image
        stop_x, stop_y = x + self.tile[2] - self.tile[0], y + self.tile[3] - self.tile[1]
        return max(x, left), max(y, top), min(stop_x, right), min(stop_y, bottom)


def reduced(place: Rectangle, levels: int) -> Rectangle:
    """A rectangle after it was halved a few times: T.800, B.5."""
    left, top, right, bottom = (-(-edge >> levels) for edge in place)
    return left, top, right, bottom


# Reading headers and tile-parts


def read_header(read: Read, at: int, end: int = SOT) -> Header:
    """The main header of a codestream, or from behind a SOT on that of a tile-part up to SOD."""
    if end == SOT:
        if read(at, 2) != struct.pack(">H", SOC):
            raise CodestreamError("it does not begin with a start of codestream")
        at += 2
    segments: list[tuple[int, bytes]] = []
    while len(segments) < limits().marker_segments:
        head = read(at, 4).ljust(4, b"\0")
        marker, length = struct.unpack(">HH", head)
        if marker == end:
            return Header(tuple(segments), at)
        if 0xFF30 <= marker <= 0xFF3F:  # a marker by itself
            at += 2
            continue
        known = _DECODING | _LENGTHS if end == SOT else _DECODING | {0xFF58, 0xFF61, 0xFF64}
        segment = read(at + 4, max(length - 2, 0))
        if marker not in known or length < 2 or len(segment) != length - 2:
            raise CodestreamError(f"its header is damaged at byte {at} ({head[:2].hex()})")
        segments.append((marker, segment))
        at += 2 + length
    said = f"its header has {len(segments)} segments or more"
    raise CodestreamError(beyond("marker_segments", said))


@dataclass(frozen=True)
class TilePart:
    """What SOT says (T.800, A.4.2).

    Attributes
    ----------
    tile
        Number of its tile.
    start, stop
        Where it begins, and where the next one does.
    """

    tile: int
    start: int
    stop: int


def tile_parts(read: Read, start: int, stop: int) -> Iterator[TilePart]:
    """The tile-parts of a codestream from its first one on.

    Raises
    ------
    CodestreamError
        If one is damaged, or cut off.
    """
    at = start
    while at < stop and (head := read(at, SOT_BYTES))[:2] != struct.pack(">H", EOC):
        part = tile_part(head, at, stop)
        yield part
        at = part.stop


def tile_part(head: bytes, at: int, stop: int) -> TilePart:
    """The tile-part with a SOT at a place of a codestream that ends at `stop`."""
    if len(head) < SOT_BYTES or head[:4] != b"\xff\x90\0\x0a":
        raise CodestreamError(f"no tile-part begins at its byte {at}")
    tile, length = struct.unpack(">HI", head[4:10])
    part = TilePart(tile, at, at + length if length else stop)
    if part.stop > stop or part.stop - at < LEAST_PART_BYTES:
        raise CodestreamError(f"its tile-part at byte {at} of {part.stop - at} bytes is cut off")
    return part


# Decoding


def _slices(data: bytes) -> Read:
    return lambda at, n_bytes: data[at : at + n_bytes]


def _check_coding(main: Header, part: Header, place: Rectangle, n_bytes: int) -> None:
    """Refuse a tile for which OpenJPEG takes much more memory than it has elements or bytes."""
    n_components = len(main.size.components)
    layers, styles = main.coding(n_components)
    own_layers, own_styles = part.coding(n_components)
    if -1 in own_styles:  # COD of a tile comes before any COC of the main header
        layers, styles = own_layers, own_styles
    else:
        styles |= own_styles
    each = [styles.get(component, styles[-1]) for component in range(n_components)]
    n_packets = layers * sum(style.n_precincts(place) for style in each)
    if n_packets > max(n_bytes, _FEW_PACKETS):
        raise CodestreamError(f"it states {n_packets} packets in {n_bytes} bytes")
    area = (place[2] - place[0]) * (place[3] - place[1])
    needed = sum(_ELEMENT_BYTES * area + _BLOCK_BYTES * area // style.block for style in each)
    if needed > limits().decoded_bytes:
        raise CodestreamError(beyond("decoded_bytes", f"decoding it takes {needed} bytes"))


def _one_tile(main: Header, data: bytes) -> tuple[bytes, Rectangle]:
    """A codestream with one tile, made of its tile-parts, and its place."""
    parts = list(tile_parts(_slices(data), 0, len(data)))
    tile = parts[0].tile if parts else -1
    if {part.tile for part in parts} != {tile} or parts[-1].stop != len(data):
        raise CodestreamError("its bytes are not the tile-parts of one tile")
    if tile >= math.prod(main.size.n_tiles):
        raise CodestreamError(f"its tile {tile} is outside of the image")
    place = main.size.place(tile)
    left, top, right, bottom = place
    _check_coding(main, read_header(_slices(data), SOT_BYTES, SOD), place, len(data))
    edges = struct.pack(">8I", right, bottom, left, top, right - left, bottom - top, left, top)
    header = main.for_tiles()
    pieces = [header[:8], edges, header[40:]]  # SOC, the head of SIZ, and Rsiz take 8 bytes
    for part in parts:
        own = struct.pack(">HHHI", SOT, 10, 0, part.stop - part.start)
        pieces += [own, data[part.start + len(own) : part.stop]]
    return b"".join([*pieces, struct.pack(">H", EOC)]), place


def _whole(data: bytes) -> tuple[bytes, Rectangle]:
    """A codestream that has no more tiles or packets than its bytes can hold, and its place."""
    main = read_header(_slices(data), 0)
    size = main.size
    if math.prod(size.n_tiles) * LEAST_PART_BYTES > len(data):
        raise CodestreamError(f"it states {math.prod(size.n_tiles)} tiles in {len(data)} bytes")
    seen = set[int]()
    for part in tile_parts(_slices(data), main.stop, len(data)):
        if part.tile >= math.prod(size.n_tiles):
            raise CodestreamError(f"its tile {part.tile} is outside of the image")
        if part.tile not in seen:
            own = read_header(_slices(data), part.start + SOT_BYTES, SOD)
            _check_coding(main, own, size.place(part.tile), len(data))
        seen.add(part.tile)
    return data, size.image


def _decoder(config: Config, spec: ArraySpec) -> SerialDecode:
    header, levels = config.get("header"), config.get("levels", 0)
    main = None if header is None else _parsed(base64.b64decode(header))

    def decode(raw: Raw) -> NDArray[Any]:
        data = as_bytes(raw)
        size = (main or read_header(_slices(data), 0)).size
        shape = size.chunk_shape(levels, in_tiles=main is not None)
        if without_unit_axes(shape) != without_unit_axes(spec.shape):
            raise CodestreamError(f"it holds images of shape {shape}, expected {spec.shape}")
        stream, place = _whole(data) if main is None else _one_tile(main, data)
        left, top, right, bottom = reduced(place, levels)
        own = len(size.components), bottom - top, right - left
        image = imagecodecs.jpeg2k_decode(stream, planar=True, skipres=levels, numthreads=1)
        if image.size != math.prod(own) or image.dtype != spec.dtype:
            raise CodestreamError(f"it decodes to {image.dtype} of shape {image.shape}")
        if own != shape:
            padded = np.zeros(shape, spec.dtype)
            padded[:, : own[1], : own[2]] = image.reshape(own)
            image = padded
        return np.ascontiguousarray(image).reshape(spec.shape)

    return decode


def _parsed(header: bytes) -> Header:
    return read_header(_slices(header + struct.pack(">H", SOT)), 0)


def _problem(config: Config) -> str | None:
    levels, header = config.get("levels", 0), config.get("header")
    if not isinstance(levels, int) or not 0 <= levels <= 32:
        return f"levels must be between 0 and 32, got {levels!r}"
    if header is not None:
        try:
            _parsed(base64.b64decode(header, validate=True)).size  # noqa: B018
        except (TypeError, ValueError) as error:
            return f"its header cannot be read: {error}"
    return None


CODECS = {NAME: SerialCodec(_decoder, problem=_problem)}
