"""Many small TIFF files, one way to store pixels each: what the scanner is tried with, changed."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import tifffile

__all__ = ["tiff_files"]

_IMAGE = np.arange(18 * 20, dtype="u1").reshape(18, 20)
_STACK = np.stack([_IMAGE, _IMAGE[::-1]])
_COLOURS = np.stack([_IMAGE] * 3, axis=-1)
_CODECS = (None, "lzw", "zlib", "packbits", "lzma", "zstd", "jpeg", "webp", "png", "jpegxl", "lerc",
           "jpeg2000", "jpegxr", "adobe_deflate")  # fmt: skip
_GEO = (
    (33550, "d", 3, (0.5, 0.5, 0.0)),
    (33922, "d", 6, (0.0, 0.0, 0.0, 10.0, 50.0, 0.0)),
    (34735, "H", 16, (1, 1, 0, 3, 1024, 0, 1, 2, 1025, 0, 1, 1, 2048, 0, 1, 4326)),
    (42113, "s", 0, "-1"),
)
_TURNED = ((34264, "d", 16, tuple(float(n) for n in range(16))), _GEO[2])


def tiff_files() -> dict[str, bytes]:
    """Files by what they hold; codecs that are not installed are left out."""
    files = {}
    for name, image, options in itertools.chain(_plain(), _kinds()):
        with suppress(ImportError, ValueError, RuntimeError, NotImplementedError, KeyError):
            files[name] = _written(image, **options)
    return files | {"pyramid": _pyramid(), "pyramid of pages": _pages(), "mixed": _mixed()}


def _written(image: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    created = {name: options.pop(name) for name in _CREATED & options.keys()}
    with tifffile.TiffWriter(buffer, **created) as file:
        file.write(image, **{"metadata": None, "software": False} | options)
    return buffer.getvalue()


_CREATED = {"bigtiff", "byteorder", "imagej", "ome", "shaped"}


def _plain() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Both byte orders and sizes of offsets, strips and tiles, every codec and predictor."""
    for order, big, layout in itertools.product("<>", (False, True), ("strip", "strips", "tiles")):
        options = {"byteorder": order, "bigtiff": big, **_LAYOUTS[layout]}
        name = f"{layout} {order}{'big' if big else ''}"
        yield name, _IMAGE, options
        yield f"{name} float", _IMAGE.astype("f4"), options
        yield f"{name} deflate", _IMAGE.astype("u2"), options | _DIFFERENCES
    for codec, layout in itertools.product(_CODECS, ("strips", "tiles")):
        yield f"{codec} {layout}", _IMAGE, {"compression": codec, **_LAYOUTS[layout]}
        colours = {"compression": codec, "photometric": "rgb", **_LAYOUTS[layout]}
        yield f"{codec} {layout} colours", _COLOURS, colours
    for dtype in ("i1", "i2", "u4", "i8", "f2", "f8", "c8", "?"):
        yield f"of {dtype}", _IMAGE.astype(dtype), {}
    for predictor in (2, 3, 34892):
        deflated = {"predictor": predictor, "compression": "zlib"}
        yield f"predictor {predictor}", _IMAGE.astype("f4" if predictor == 3 else "u2"), deflated


_LAYOUTS: dict[str, dict[str, Any]] = {
    "strip": {},
    "strips": {"rowsperstrip": 5},
    "tiles": {"tile": (16, 16)},
}
_DIFFERENCES = {"compression": "zlib", "predictor": 2}


def _kinds() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Planes, pages, and the metadata of programs."""
    planes = {"planarconfig": "separate", "photometric": "rgb"}
    yield "planes", _COLOURS.transpose(2, 0, 1), planes
    yield "planes of tiles", _COLOURS.transpose(2, 0, 1), planes | _LAYOUTS["tiles"]
    alpha = {"photometric": "rgb", "extrasamples": ["unassalpha"]}
    yield "alpha", np.stack([_IMAGE] * 4, -1), alpha
    palette = np.zeros((3, 256), "u2")
    yield "palette", _IMAGE, {"photometric": "palette", "colormap": palette}
    yield "bits", _IMAGE % 2, {"bitspersample": 1, "photometric": "minisblack"}
    yield "4 bits", _IMAGE % 16, {"bitspersample": 4, "photometric": "minisblack"}
    yield "pages", _STACK, {"photometric": "minisblack"}
    yield "volume", _STACK, {"volumetric": True, "tile": (16, 16, 16)}
    yield "no data", np.zeros_like(_IMAGE), {"tile": (16, 16), "compression": "zlib"}
    yield "shaped", _STACK, {"metadata": {"axes": "TYX"}, "photometric": "minisblack"}
    yield "described", _IMAGE, {"description": "text", "resolution": (72, 72), "datetime": True}
    imagej = {"imagej": True, "metadata": {"axes": "TYX", "unit": "um"}}
    yield "imagej", _STACK, imagej | {"resolution": (2.0, 2.0)}
    runs = {"imagej": True, "metadata": {"axes": "TZYX"}}
    yield "imagej of one run", np.stack([_STACK] * 2), runs
    ome = {"axes": "CYX", "PhysicalSizeX": 0.5, "Channel": {"Name": ["a", "b"]}}
    yield "ome", _STACK, {"ome": True, "metadata": ome, "photometric": "minisblack"}
    yield "geo", _IMAGE, {"extratags": _tags(_GEO)}
    yield "geo tiles", _IMAGE.astype("f4"), {"extratags": _tags(_GEO), **_LAYOUTS["tiles"]}
    yield "geo turned", _IMAGE, {"extratags": _tags(_TURNED)}
    xml = '<GDALMetadata><Item name="scale" sample="0" role="scale">0.1</Item></GDALMetadata>'
    yield "gdal", _IMAGE, {"extratags": [(42112, "s", 0, xml, True), *_tags(_GEO)]}


def _tags(tags: Any) -> list[tuple[Any, ...]]:
    return [(*tag, True) for tag in tags]


def _pyramid() -> bytes:
    """Levels below the image, in its own directories."""
    buffer = io.BytesIO()
    with tifffile.TiffWriter(buffer) as file:
        options: dict[str, Any] = {"tile": (16, 16), "metadata": None, "software": False}
        file.write(np.tile(_IMAGE, (2, 2)), subifds=1, **options)
        file.write(_IMAGE, subfiletype=1, **options)
    return buffer.getvalue()


def _pages() -> bytes:
    """Levels behind the image, as COG has them."""
    buffer = io.BytesIO()
    with tifffile.TiffWriter(buffer) as file:
        options: dict[str, Any] = {"tile": (16, 16), "metadata": None, "software": False}
        file.write(np.tile(_IMAGE, (2, 2)), extratags=_tags(_GEO), **options)
        file.write(_IMAGE, subfiletype=1, **options)
    return buffer.getvalue()


def _mixed() -> bytes:
    """Pages of other shapes and types."""
    buffer = io.BytesIO()
    with tifffile.TiffWriter(buffer) as file:
        for image in (_IMAGE, _IMAGE.astype("f4"), _COLOURS):
            file.write(image, metadata=None, software=False)
    return buffer.getvalue()
