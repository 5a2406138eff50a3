"""Describe files that differ from an earlier file only in addresses, attribute values and chunks.

In the files of a series all headers have the forms of those in the first file, under the same
names. Names and sizes of dimensions, and the arrays without their chunks, then follow. This module
keeps them in `gridref.learned.FORMS` for the first file. Each further file is described by them,
after its headers, attributes and chunk indexes were read and checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gridref.errors import GridrefError
from gridref.formats.hdf5.arrays import (
    Known,
    Like,
    NamedDataset,
    arrays_like,
    known_array,
    plain_name,
)
from gridref.formats.hdf5.attributes import read_attributes
from gridref.formats.hdf5.files import OpenFile
from gridref.formats.hdf5.headers import ObjectHeader
from gridref.formats.hdf5.links import LinkKind
from gridref.formats.hdf5.tree import DatasetNode, GroupNode
from gridref.formats.options import ScanOptions
from gridref.learned import FORMS
from gridref.model.array import VirtualGroup
from gridref.model.scan_report import Fate, FindingRuns, Found, ScanReport
from gridref.secrets import shown_address


class _Dataset(NamedTuple):
    """A dataset of the first file.

    Attributes
    ----------
    path
        Its path.
    known
        Its array; None for a dimension without a variable.
    records
        netCDF4's own attributes, as `_comparable` gives them.
    """

    path: str
    known: Known | None
    records: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class _First:
    """The first of similar files: its datasets in the order of its links, and their fates."""

    datasets: Sequence[_Dataset]
    found: Found
    unlimited: frozenset[str]


class ScannedFile(NamedTuple):
    """A file that was scanned as a whole.

    Attributes
    ----------
    root
        Its tree.
    named
        Gives a dataset with names and sizes of its dimensions.
    group
        What was found, with its report.
    """

    root: GroupNode
    named: Callable[[DatasetNode], NamedDataset]
    group: VirtualGroup


class _Headers(NamedTuple):
    """The headers of a file without groups, and a key that is equal for similar files."""

    root: ObjectHeader
    datasets: Sequence[ObjectHeader]
    key: tuple[Any, ...]

    @property
    def numbers(self) -> dict[int, int]:
        """The number of each dataset by its address."""
        return {header.address: number for number, header in enumerate(self.datasets)}


def _headers(file: OpenFile, options: ScanOptions) -> _Headers | None:
    """None for a file with anything unusual."""
    root = file.header(file.bytes.root)
    links = file.links(root.address).listed
    if len(links) > options.max_objects or any(link.kind != LinkKind.HARD for link in links):
        return None
    file.prefetch(links)
    headers = [file.header(link.address) for link in links]
    forms, names = [header.form for header in headers], [link.name for link in links]
    given = options.phony_dims, options.max_chunk_bytes
    return _Headers(root, headers, (_First, *given, root.form, *names, *forms))


def _comparable(records: Mapping[str, Any], numbers: Mapping[int, int]) -> dict[str, Any] | None:
    """netCDF4's own attributes, with the numbers of scales; None where these are not datasets."""
    result = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in records.items()
    }
    if "DIMENSION_LIST" in result:
        try:
            listed = [[numbers[to] for to in scales] for scales in result["DIMENSION_LIST"]]
        except (KeyError, TypeError):
            return None
        result["DIMENSION_LIST"] = listed
    return result


def describe_as_sibling(file: OpenFile, options: ScanOptions) -> VirtualGroup | None:
    """Describe a file by a similar one; None if there is none, or if the file has a fault."""
    try:
        headers = _headers(file, options)
        first: _First | None = None if headers is None else FORMS.get(headers.key)
        return None if headers is None or first is None else _described(file, headers, first)
    except GridrefError:  # the full scan finds it, too, and reports it
        return None


def _described(file: OpenFile, headers: _Headers, first: _First) -> VirtualGroup | None:
    numbers = headers.numbers
    own = read_attributes(file, headers.root)
    if own.unreadable or len(numbers) < len(headers.datasets):
        return None
    like = []
    for header, (path, known, records) in zip(headers.datasets, first.datasets, strict=True):
        attributes = read_attributes(file, header)
        if attributes.unreadable or _comparable(attributes.records, numbers) != records:
            return None
        if known is not None:
            like.append(Like(path, header, known, attributes.public))
    found = arrays_like(file, like)
    if len(found) < len(like):
        return None
    arrays = {plain_name(path[1:]): found[path] for path, *_ in like}
    findings = FindingRuns(((first.found, (shown_address(file.source.url),)),))
    return VirtualGroup(arrays, {}, own.public, ScanReport(findings), first.unlimited)


def keep_for_siblings(file: OpenFile, scanned: ScannedFile, options: ScanOptions) -> None:
    """Keep what a scan found in a file without groups, if its arrays are of the usual kind."""
    root, findings = scanned.root, scanned.group.report.findings
    if root.groups or root.skipped or len(findings) != len(root.datasets):
        return
    headers = _headers(file, options)
    if headers is None or len(headers.numbers) != len(root.datasets):
        return
    numbers, datasets = headers.numbers, []
    for finding, node in zip(findings, root.datasets.values(), strict=True):
        known = known_array(scanned.named(node), options) if finding.fate is Fate.TAKEN else None
        records = _comparable(node.attributes.records, numbers)
        is_usual = known is not None or finding.fate is Fate.NAMED
        if records is None or not is_usual or finding.path != node.path:
            return
        datasets.append(_Dataset(node.path, known, records))
    paths, fates, reasons, _ = zip(*findings, strict=True) if findings else ((),) * 4
    first = _First(datasets, (paths, fates, reasons), scanned.group.unlimited_dims)
    FORMS.put(headers.key, first, 1000 + 1500 * len(datasets))
