"""Turn a FITS file into a virtual group: its images, under the names of their HDUs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import count
from typing import Any

from gridref.errors import Place, ScanError, SourceFormatError, UnsupportedFeatureError
from gridref.formats.contiguous import contiguous_chunks, edge_policy, require_inside
from gridref.formats.findings import Findings
from gridref.formats.fits.header import UNNAMED, Unit, bits_of_pixels, image_shape, units
from gridref.formats.fits.pixels import attributes_of, dims_of, is_of_pixels, pixels_of
from gridref.formats.fits.tiles import compressed_chunks
from gridref.formats.options import ScanOptions
from gridref.io import ScanFile
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import bytes_codec, shared_encoding
from gridref.model.scan_report import Fate

_MAX_RANK = 32
PRIMARY = "PRIMARY"


def scan_fits(file: ScanFile, head: bytes, options: ScanOptions) -> VirtualGroup:
    """Describe a file; `head` is its beginning; raises as `gridref.formats.scan` does."""
    return _Scan(file, options).group(head)


class _Scan:
    """Describes the units of a file, and notes what became of each."""

    def __init__(self, file: ScanFile, options: ScanOptions) -> None:
        self._file = file
        self._options = options
        self._findings = Findings(file.name)
        self._arrays: dict[str, VirtualArray] = {}
        self._attrs: dict[str, Any] = {}
        self._has_image = False

    def group(self, head: bytes) -> VirtualGroup:
        """All images; the group has the attributes of the primary header."""
        number = 0
        try:
            for unit in units(self._file, head):
                number = unit.number + 1
                if number > self._options.max_objects:
                    raise SourceFormatError(
                        f"it has more HDUs than max_objects, {self._options.max_objects}"
                    )
                self._take(unit)
        except ScanError as error:
            if number == 0:
                error.located(Place(source=self._file.name))
                raise
            self._findings.refuse(f"/HDU{number}", error)
        report = self._findings.report(self._options)
        if not self._has_image:
            raise UnsupportedFeatureError(
                "it has no image: tables are not read", Place(source=self._file.name)
            )
        return VirtualGroup(self._arrays, attrs=self._attrs, report=report)

    def _take(self, unit: Unit) -> None:
        attrs = attributes_of(unit.cards)
        is_primary = unit.number == 0 or unit.cards.get("ZSIMPLE") is True
        name = self._name(unit, is_primary)
        if is_primary:
            self._attrs |= {key: attrs[key] for key in attrs if not is_of_pixels(key)}
            attrs = {key: attrs[key] for key in attrs if is_of_pixels(key)}
        if unit.kind != "IMAGE" and not unit.is_compressed:
            self._leave_out(unit, name)
            return
        self._has_image |= unit.data_bytes > 0
        with self._findings.refusing(f"/{name}"):
            array = self._image(unit, name, attrs)
            if array is not None:
                self._arrays[name] = array
                self._findings.note(f"/{name}", Fate.TAKEN)
            elif unit.number > 0:
                self._findings.note(f"/{name}", Fate.NAMED, "a header without data")

    def _leave_out(self, unit: Unit, name: str) -> None:
        with self._findings.refusing(f"/{name}"):
            stop = unit.data_offset + unit.data_bytes
            require_inside(self._file.source, unit.data_offset, stop)
            self._findings.note(f"/{name}", Fate.SKIPPED, "tables are not read")

    def _name(self, unit: Unit, is_primary: bool) -> str:
        """``EXTNAME``, with ``EXTVER`` where that is not 1; a name that is there is numbered."""
        stated, version = unit.cards.get("EXTNAME"), unit.cards.get("EXTVER", 1)
        name = PRIMARY if is_primary else f"HDU{unit.number}"
        if isinstance(stated, str) and stated.strip() not in ("", UNNAMED):
            name = stated.strip()
            name = f"{name}_{version}" if type(version) is int and version != 1 else name
        if name not in self._arrays:
            return name
        free = next(new for n in count(1) if (new := f"{name}_{n}") not in self._arrays)
        self._findings.note(f"/{free}", Fate.RENAMED, f"another HDU is named {name!r}, too")
        return free

    def _image(self, unit: Unit, name: str, attrs: Mapping[str, Any]) -> VirtualArray | None:
        """The image of a unit; None if it has no pixels."""
        prefix = "Z" if unit.is_compressed else ""
        shape, bits = image_shape(unit.cards, prefix), bits_of_pixels(unit.cards, prefix)
        if math.prod(shape or (0,)) == 0 and unit.cards.get("GROUPS") is not True:
            return None
        if "/" in name:
            raise UnsupportedFeatureError("its name has a slash, which separates groups")
        if len(shape) > _MAX_RANK:
            raise UnsupportedFeatureError(f"it has {len(shape)} dimensions")
        pixels = pixels_of(unit.cards, bits)
        if not unit.is_compressed:
            self._check_plain(unit, shape, pixels.stored.itemsize)
        fields = {
            "dims": dims_of(len(shape)),
            "attrs": {**attrs, **pixels.packing},
            "fill_value": pixels.fill_value,
        }
        source, most = self._file.source, self._options.max_chunk_bytes
        if unit.is_compressed:
            chunk_shape, manifest, codecs = compressed_chunks(
                unit, shape, pixels.stored, self._file
            )
        else:
            itemsize, start = pixels.stored.itemsize, unit.data_offset
            chunk_shape, manifest = contiguous_chunks(shape, itemsize, source, start, most)
            codecs = (bytes_codec(pixels.stored, big_endian=True),)
        encoding = shared_encoding(
            chunk_shape,
            pixels.dtype,
            (*pixels.codecs, *codecs),
            edge_policy(shape, chunk_shape),
        )
        return VirtualArray.of_one_block(
            shape, pixels.dtype, encoding=encoding, manifest=manifest, **fields
        )

    def _check_plain(self, unit: Unit, shape: tuple[int, ...], itemsize: int) -> None:
        if unit.cards.get("GROUPS") is True and shape[-1:] == (0,):
            raise UnsupportedFeatureError("it holds random groups")
        if math.prod(shape) * itemsize != unit.data_bytes:
            raise SourceFormatError("PCOUNT or GCOUNT says that it holds more than an image")
