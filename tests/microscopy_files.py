"""Files laid out as microscopes and slide scanners write them: LSM, SVS and NDPI.

Sources: Zeiss, "LSM 5 MP, LSM 510 and LSM 510 META Release 3.5: Image File Format Description";
Aperio, "Digital Slides and Third-Party Data Interchange"; OpenSlide's page "Hamamatsu format".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import tifffile
from numpy.typing import NDArray

FIELD_FORMATS = {1: "B", 2: "B", 3: "H", 4: "I", 11: "f", 12: "d", 5: "I"}
HOLE_BYTES = (4 << 30) + 4321 * 2
"""Size of the hole in files of more than 4 GiB: it takes no room on disk."""


class TiffFileWriter:
    """Little-endian directories with 32-bit offsets; or NDPI's, with the high halves behind them.

    Parameters
    ----------
    ndpi
        Whether offsets have high halves.
    n_reserved
        Room at the beginning of the file for directories; without any they come last.
    """

    def __init__(self, *, ndpi: bool = False, n_reserved: int = 0) -> None:
        self.ndpi = ndpi
        self.body = bytearray(16 + n_reserved)
        self.free = (16, 16 + n_reserved)
        self.hole = (0, 0)
        self.directories: list[dict[int, tuple[int, Any]]] = []

    def put(self, data: bytes) -> int:
        """Write data, and tell where."""
        self.body += bytes(-len(self.body) % 2)
        where = len(self.body) + self.hole[1]
        self.body += data
        return where

    def skip(self, n_bytes: int) -> None:
        """Leave a hole in front of all that comes."""
        self.hole = (len(self.body), n_bytes)

    def add(self, tags: Mapping[int, tuple[int, Any]]) -> None:
        """Add a directory: code to (field type, values)."""
        self.directories.append(dict(tags))

    def write(self, path: Path) -> None:
        """Write all of it."""
        places = [self._directory(tags) for tags in self.directories]
        pointer = "<Q" if self.ndpi else "<I"
        for tags, here, following in zip(self.directories, places, [*places[1:], 0], strict=True):
            at = here - (self.hole[1] if here >= sum(self.hole) else 0) + 2 + 12 * len(tags)
            struct.pack_into(pointer, self.body, at, following)
        self.body[:4] = b"II*\0"
        struct.pack_into(pointer, self.body, 4, places[0])
        at, n_bytes = self.hole
        with path.open("wb") as file:
            file.write(self.body[:at])
            file.seek(at + n_bytes)
            file.write(self.body[at:])

    def _put_early(self, data: bytes) -> int:
        """Write into the room for directories, if there is any."""
        start, stop = self.free
        if stop == 16:
            return self.put(data)
        assert start + len(data) <= stop
        self.body[start : start + len(data)] = data
        self.free = (start + len(data) + len(data) % 2, stop)
        return start

    def _directory(self, tags: Mapping[int, tuple[int, Any]]) -> int:
        fields, high = b"", b""
        for code in sorted(tags):
            kind, values = tags[code]
            items = list(values) if isinstance(values, Sequence | bytes) else [values]
            large = kind == 4 and len(items) == 1 and items[0] >= 1 << 32
            raw = struct.pack("<Q" if large else f"<{len(items)}{FIELD_FORMATS[kind]}", *items)
            count = len(items) // (2 if kind == 5 else 1)
            # Zeiss keeps two values of 16 bits outside of the directory, although they fit into it.
            outside = (self.ndpi and kind == 2) or (code == 258 and len(items) == 2)
            if (len(raw) > 4 and not large) or outside:
                raw = struct.pack("<Q", self._put_early(raw))
            raw = raw.ljust(8, b"\0")
            fields += struct.pack("<HHI", code, kind, count) + raw[:4]
            high += raw[4:]
        tail = bytes(8) + high if self.ndpi else bytes(4)
        return self._put_early(struct.pack("<H", len(tags)) + fields + tail)


def write_lsm(
    path: Path,
    planes: NDArray[Any],
    *,
    scan_type: int,
    compression: int = 1,
    voxel: tuple[float, float, float] = (2e-7, 1e-7, 5e-7),
    beyond: bool = False,
) -> NDArray[Any]:
    """Write an LSM file: each image has a thumbnail behind it.

    Parameters
    ----------
    planes
        Shape (time, z, channel, y, x).
    scan_type
        0: z stack, 3: time series, 6: time series of z stacks.
    compression
        1, or 5 (LZW, with differences).
    beyond
        Whether the data go on beyond 4 GiB, where offsets start again from 0.

    Returns
    -------
    numpy.ndarray
        The thumbnails, of shape (time, z, 3, 8, 8).
    """
    n_times, n_slices, n_channels, n_rows, n_columns = planes.shape
    writer = TiffFileWriter(n_reserved=16 << 10)
    info = np.zeros((), np.dtype([(n or "Reserved", t) for n, t in tifffile.TIFF.CZ_LSMINFO]))
    info["MagicNumber"], info["StructureSize"] = 67127628, info.nbytes
    info["DimensionX"], info["DimensionY"], info["DimensionZ"] = n_columns, n_rows, n_slices
    info["DimensionChannels"], info["DimensionTime"] = n_channels, n_times
    info["DataType"], info["ScanType"] = planes.dtype.itemsize, scan_type
    info["ThumbnailX"] = info["ThumbnailY"] = 8
    info["VoxelSizeX"], info["VoxelSizeY"], info["VoxelSizeZ"] = voxel
    stamps = struct.pack(f"<ii{n_times}d", 8 + 8 * n_times, n_times, *range(n_times))
    info["OffsetTimeStamps"] = writer.put(stamps)
    info["OffsetChannelColors"] = writer.put(_channel_colors(n_channels))
    bits = [8 * planes.dtype.itemsize] * n_channels
    thumbnails = np.random.default_rng(8).integers(0, 255, (n_times, n_slices, 3, 8, 8), np.uint8)
    shapes: list[tuple[NDArray[Any], int]] = []
    for image, thumbnail in zip(
        planes.reshape(-1, n_channels, n_rows, n_columns),
        thumbnails.reshape(-1, 3, 8, 8),
        strict=True,
    ):
        shapes += [(image, compression), (thumbnail, 1)]
    for number, (image, scheme) in enumerate(shapes):
        if beyond and number == 2:
            writer.skip((4 << 30) - (8 << 10))
        strips = [_lzw(plane) if scheme == 5 else plane.tobytes() for plane in image]
        offsets = [writer.put(strip) % (1 << 32) for strip in strips]
        tags = {
            254: (4, number % 2),
            256: (4, image.shape[2]),
            257: (4, image.shape[1]),
            258: (3, bits if number % 2 == 0 else [8, 8, 8]),
            259: (3, scheme),
            262: (3, 1 if len(image) == 1 else 2),
            273: (4, offsets),
            277: (3, len(image)),
            279: (4, [plane.nbytes for plane in image]),
            284: (3, 2),
        }
        if scheme == 5:
            tags[317] = (3, 2)
        if number == 0:
            tags[34412] = (1, info.tobytes())
        writer.add(tags)
    writer.write(path)
    return thumbnails


def _lzw(plane: NDArray[Any]) -> bytes:
    rows = imagecodecs.delta_encode(plane[..., np.newaxis], axis=-2)
    return bytes(imagecodecs.lzw_encode(rows.tobytes()))


def _channel_colors(n_channels: int) -> bytes:
    names = b"".join(
        struct.pack("<I", len(name)) + name
        for name in (f"Ch{number}\0".encode() for number in range(1, n_channels + 1))
    )
    start = 24 + 4 * n_channels
    head = struct.pack("<IIIIII", start + len(names), n_channels, n_channels, 24, start, 0)
    return head + bytes(range(4 * n_channels)) + names


APERIO = (
    "Aperio Image Library v10.0.51\r\n{width}x{length} [0,0 {width}x{length}] (64x48)"
    " JPEG/RGB Q=70|AppMag = 20|StripeWidth = 64|ScanScope ID = CPAPERIOCS|Filename = CMU-1"
    "|Date = 12/29/09|Time = 09:59:15|MPP = 0.4990|Left = 25.691574|OriginalWidth = {width}"
)


def write_svs(
    path: Path, slide: NDArray[np.uint8], *, compression: str = "jpeg", photometric: str = "rgb"
) -> None:
    """Write an Aperio slide: the image, a thumbnail, two coarser levels, a label and a macro."""
    tiles: dict[str, Any] = {"tile": (48, 64), "photometric": photometric}
    tiles |= {"compression": compression, "metadata": None, "software": False}
    strips: dict[str, Any] = {"photometric": "rgb", "metadata": None, "software": False}
    if compression == "jpeg" and photometric == "ycbcr":
        tiles |= {"subsampling": (2, 2), "compressionargs": {"level": 70}}
    description = APERIO.format(width=slide.shape[1], length=slide.shape[0])
    if photometric != "rgb":
        description = description.replace("JPEG/RGB", "JPEG/YCC")
    with tifffile.TiffWriter(path) as writer:
        writer.write(slide, description=description, **tiles)
        writer.write(
            np.ascontiguousarray(slide[::8, ::8]),
            description=description.split("|")[0],
            compression="jpeg",
            rowsperstrip=16,
            **strips,
        )
        for step in (2, 4):
            level = np.ascontiguousarray(slide[::step, ::step])
            writer.write(level, description=description.replace("[0,0", "-> [0,0"), **tiles)
        label = np.ascontiguousarray(slide[:37, :50])
        writer.write(
            label,
            subfiletype=1,
            compression="lzw",
            predictor=2,
            rowsperstrip=7,
            description="Aperio Image Library v10.0.51\r\nlabel 50x37",
            **strips,
        )
        writer.write(
            np.ascontiguousarray(slide[::3, ::3]),
            subfiletype=9,
            compression="jpeg",
            rowsperstrip=16,
            description="Aperio Image Library v10.0.51\r\nmacro",
            **strips,
        )


@dataclass(frozen=True)
class RestartJpeg:
    """A JPEG stream with restart markers: header, and where each interval begins."""

    stream: bytes
    starts: tuple[int, ...]


def restart_jpeg(
    image: NDArray[np.uint8], tile_width: int, subsampling: tuple[int, int] = (1, 1)
) -> RestartJpeg:
    """Encode an image so that each run of units of `tile_width` pixels stands for itself.

    ITU-T T.81: B.2.4.4 (restart interval), F.1.1.5.1 (what is reset at a restart). The tiles are
    encoded by themselves with the same tables, and their scans laid one behind the other.
    """
    n_rows, n_columns = image.shape[:2]
    height, unit = 8 * subsampling[1], 8 * subsampling[0]
    assert not n_columns % tile_width
    padded = np.pad(image, [(0, -n_rows % height), (0, 0), (0, 0)][: image.ndim], "edge")
    scans, header = [], b""
    for row in range(0, n_rows, height):
        for column in range(0, n_columns, tile_width):
            tile = np.ascontiguousarray(padded[row : row + height, column : column + tile_width])
            encoded = bytes(
                imagecodecs.jpeg8_encode(tile, level=80, subsampling=subsampling, optimize=False)
            )
            header, scan = _split_scan(encoded)
            scans.append(scan)
    start_of_frame = header.index(b"\xff\xc0")
    start_of_scan = header.index(b"\xff\xda")
    size = struct.pack(">HH", *(n if n <= 65500 else 0 for n in (n_rows, n_columns)))
    header = header[: start_of_frame + 5] + size + header[start_of_frame + 9 :]
    interval = b"\xff\xdd" + struct.pack(">HH", 4, tile_width // unit)
    stream = bytearray(header[:start_of_scan] + interval + header[start_of_scan:])
    starts = []
    for number, scan in enumerate(scans):
        starts.append(len(stream))
        stream += scan + (
            b"\xff\xd9" if number == len(scans) - 1 else bytes([255, 208 + number % 8])
        )
    return RestartJpeg(bytes(stream), tuple(starts))


def _split_scan(stream: bytes) -> tuple[bytes, bytes]:
    start = stream.index(b"\xff\xda")
    start += 2 + struct.unpack_from(">H", stream, start + 2)[0]
    return stream[:start], stream[start:-2]


def write_ndpi(
    path: Path,
    slide: NDArray[np.uint8],
    *,
    subsampling: tuple[int, int] = (1, 1),
    with_starts: bool = True,
    beyond: bool = False,
) -> None:
    """Write a Hamamatsu slide: levels of one strip each, a macro image and a map."""
    writer = TiffFileWriter(ndpi=True)
    if beyond:
        writer.skip(HOLE_BYTES)
    for step, lens in ((1, 20.0), (2, 10.0), (4, 5.0)):
        level = np.ascontiguousarray(slide[::step, ::step])
        jpeg = restart_jpeg(level, 64, subsampling)
        tags = _ndpi_tags(writer, level, jpeg.stream, lens)
        if with_starts:
            tags[65426] = (4, jpeg.starts)
        writer.add(tags)
    macro = np.ascontiguousarray(slide[::3, ::3])
    encoded = bytes(imagecodecs.jpeg8_encode(macro, level=80, subsampling=(2, 2)))
    writer.add(_ndpi_tags(writer, macro, encoded, -1.0))
    plan = np.ascontiguousarray(slide[::5, ::5, 0])
    tags = _ndpi_tags(writer, plan, plan.tobytes(), -2.0)
    tags |= {258: (3, 8), 259: (3, 1), 262: (3, 1), 277: (3, 1)}
    writer.add({code: value for code, value in tags.items() if code != 530})
    writer.write(path)


def _ndpi_tags(
    writer: TiffFileWriter, image: NDArray[np.uint8], strip: bytes, lens: float
) -> dict[int, tuple[int, Any]]:
    resolution = (int(lens * 2000) or 1, 1) if lens > 0 else (10, 1)
    return {
        254: (4, 0),
        256: (4, image.shape[1]),
        257: (4, image.shape[0]),
        258: (3, [8, 8, 8]),
        259: (3, 7),
        262: (3, 6),
        271: (2, b"Hamamatsu\0"),
        272: (2, b"NanoZoomer\0"),
        273: (4, writer.put(strip)),
        274: (3, 1),
        277: (3, 3),
        278: (4, image.shape[0]),
        279: (4, len(strip)),
        282: (5, resolution),
        283: (5, resolution),
        284: (3, 1),
        296: (3, 3),
        305: (2, b"NDP.scan\0"),
        306: (2, b"2009:12:31 09:11:46\0"),
        530: (3, [2, 2]),
        65420: (4, 1),
        65421: (11, lens),
        65422: (4, 0),
        65423: (4, 0),
        65424: (4, 0),
        65427: (2, b"CMU-1\0"),
    }
