"""A Sentinel-2 product (SAFE): the images that its metadata names, a group for each resolution.

``MTD_MSIL1C.xml`` or ``MTD_MSIL2A.xml`` lists the images, JPEG 2000 files of one band each and of
one grid for each resolution. Bands are variables under their names (``B02``, ``SCL``, ``TCI``).

Source: Sentinel-2 Products Specification Document (S2-PDGS-TAS-DI-PSD), sections 3.4 and 4.9.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from gridref.errors import SourceUnavailableError, UnsupportedFeatureError
from gridref.formats.georeference import SPATIAL_REF
from gridref.formats.jpeg2000 import scan_file
from gridref.formats.location import Location, only_allowed
from gridref.formats.metadata import parsed_xml
from gridref.formats.scanner import Findings, ScanOptions, refusing_damage
from gridref.io import ScanFile, beside, is_absent, open_for_scan, policy_for
from gridref.limits import beyond, limits
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.reshaping import squeeze
from gridref.model.scan_report import Fate

_BAND = re.compile(r"[^/]*_([A-Z][A-Z0-9]{2})(?:_\d+m)?")
_LEVELS = ("1C", "2A")
_START = "PRODUCT_START_TIME"
_OFFSETS = {"Radiometric_Offset_List", "BOA_ADD_OFFSET_VALUES_LIST"}
_BANDS = ("B01", "B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B09", "B10", "B11", "B12")
"""By ``band_id``."""
_FACTS = {"Product_Info", "Special_Values", "QUANTIFICATION_VALUES_LIST"}


def scan(location: Location, options: ScanOptions) -> VirtualGroup:
    """Describe a product by its folder, or by the metadata in it."""
    if location.file is not None:
        return _scan(location.file, options)
    with open_for_scan(_metadata_in(location), options.storage_options) as file:
        return _scan(file, options)


def _metadata_in(location: Location) -> str:
    """Address of the metadata in a folder; the name of a remote one tells the level."""
    level = re.search("MSIL(1C|2A)", location.name)
    names = [f"{location.url}/MTD_MSIL{each}.xml" for each in ([level[1]] if level else _LEVELS)]
    return next((path for path in names if os.path.isfile(path)), names[-1])


def _scan(file: ScanFile, options: ScanOptions) -> VirtualGroup:
    findings = Findings(file.name)
    with refusing_damage(file.name):
        root = _parsed(file)
        product = _Product(file.name, options, findings)
        names = [(element.text or "").strip() for element in root.iter("IMAGE_FILE")]
        if not names:  # those before December 2016 list IMAGE_ID instead
            raise UnsupportedFeatureError("the metadata names no image (IMAGE_FILE)")
        if len(names) > limits().external_files:
            what = f"the metadata names {len(names)} images"
            raise UnsupportedFeatureError(beyond("external_files", what))
        for name in names:
            product.add(name)
        report = findings.report(options)
        return product.group(root).with_changes(report=report)


def _parsed(file: ScanFile) -> ET.Element:
    if file.size > limits().xml_characters:
        what = f"the metadata has {file.size} bytes"
        raise UnsupportedFeatureError(beyond("xml_characters", what))
    return parsed_xml(file.read_many([0], [file.size])[0], "the metadata")


class _Product:
    """Collects images by resolution; the overviews of a resolution are groups in its group."""

    def __init__(self, url: str, options: ScanOptions, findings: Findings) -> None:
        self._url = url
        self._options = replace(options, on_unsupported="raise")
        self._policy = policy_for(url, options.allow)
        self._findings = findings
        self._grids: dict[str, Any] = {}
        self._levels = defaultdict[str, dict[str, dict[str, VirtualArray]]](dict)

    def add(self, name: str) -> None:
        """Add an image by its name in the metadata, which lacks the suffix."""
        path = f"/{name}"
        with self._findings.refusing(path):
            band = _BAND.fullmatch(name.rpartition("/")[2])
            if band is None or ".." in name.split("/") or "://" in name or name.startswith("/"):
                raise UnsupportedFeatureError("its name has no band in it, or leads elsewhere")
            image = self._scanned(f"{name}.jp2")
            if image is None:
                self._findings.note(path, Fate.SKIPPED, "the file is not there")
                return
            for taken in self._place(band[1], image):
                self._findings.note(taken, Fate.TAKEN)

    def _scanned(self, name: str) -> VirtualGroup | None:
        address = beside(self._url, name)
        with only_allowed(self._policy, address):
            try:
                file = open_for_scan(address, self._options.storage_options, policy=self._policy)
            except (FileNotFoundError, SourceUnavailableError) as error:
                if not is_absent(error):
                    raise
                return None
            with file:
                return scan_file(file, self._options)

    def _place(self, band: str, image: VirtualGroup) -> list[str]:
        """Put the levels of an image where they belong; returns their paths."""
        transform = str(image.arrays.get(SPATIAL_REF, _NOWHERE).attrs.get("GeoTransform", ""))
        if not transform:
            raise UnsupportedFeatureError("it has no georeference")
        resolution = f"{abs(float(transform.split()[1])):g}m"
        levels = self._levels[resolution]
        grid = transform, image.arrays["band_data"].shape[1:]
        if band in levels.get("", {}) or self._grids.setdefault(resolution, grid) != grid:
            raise UnsupportedFeatureError(
                f"another image of {resolution} is on another grid, or has its band, too"
            )
        for level, group in {"": image, **image.groups}.items():
            arrays = dict(group.arrays)
            array = arrays.pop("band_data")
            if array.shape[0] == 1:
                array = squeeze(array, [0])
                del arrays["band"]
            levels[level] = {**arrays, **levels.get(level, {}), band: array}
        below = [f"/{level}" if level else "" for level in ("", *image.groups)]
        return [f"/{resolution}{level}/{band}" for level in below]

    def group(self, root: ET.Element) -> VirtualGroup:
        groups = {}
        for resolution, levels in self._levels.items():
            overviews = {name: VirtualGroup(arrays) for name, arrays in levels.items() if name}
            groups[resolution] = VirtualGroup(levels[""], overviews)
        attrs = _facts(root)
        return VirtualGroup(_time(attrs.get(_START, "")), groups, attrs)


_NOWHERE = VirtualArray.from_numpy(np.array(0), ())


def _facts(root: ET.Element) -> dict[str, str]:
    """What the metadata says in single words, under its names."""
    facts: dict[str, str] = {}
    for part in root.iter():
        if part.tag in _OFFSETS:
            bands = {str(number): band for number, band in enumerate(_BANDS)}
            for each in part:
                band = each.get("band_id", "")
                facts[f"{each.tag}_{bands.get(band, band)}"] = (each.text or "").strip()
        if part.tag in _FACTS:
            leaves = {each.tag: (each.text or "").strip() for each in part if not len(each)}
            if part.tag == "Special_Values":
                leaves = {
                    f"SPECIAL_VALUE_{leaves.get('SPECIAL_VALUE_TEXT', '')}": leaves.get(
                        "SPECIAL_VALUE_INDEX", ""
                    )
                }
            facts |= leaves
    return {name: text for name, text in facts.items() if text}


def _time(text: str) -> dict[str, VirtualArray]:
    """The beginning of the product's time, as the label of the product."""
    try:
        moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return {}
    microseconds = np.datetime64(moment.replace(tzinfo=None), "us").astype(np.int64)
    attrs = {"units": "microseconds since 1970-01-01", "standard_name": "time"}
    return {"time": VirtualArray.from_numpy(np.array(microseconds), (), attrs)}
