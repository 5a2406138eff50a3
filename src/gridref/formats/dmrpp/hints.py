"""Use DMR++ documents as hints for scans of the files beside them.

A document lists where the data of its granule are, so the metadata lie between. All that lies
between is asked for at once, and the scan then goes on as without it. So a wrong document costs
bytes and never changes what is found; the report says where the scan found other places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from xml.etree import ElementTree as ET

import numpy as np
from numpy.typing import NDArray

from gridref.errors import ScanError, SourceFormatError
from gridref.formats.dmrpp import Places
from gridref.formats.dmrpp.document import DMRPP, VARIABLES, read_document, walk
from gridref.formats.location import remote_sidecar
from gridref.formats.scanner import ScanOptions
from gridref.io import ScanFile
from gridref.io.context import BLOCK_BYTES
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.manifest import ChunkManifest, ChunkState
from gridref.model.scan_report import Fate, Finding

_PIECE_BYTES = 256 << 10
_MOST_BLOCKS = 1024
"""16 MiB. What is between the data beyond that is not worth reading ahead."""

Ranges = NDArray[np.int64]
"""Starts and stops of byte ranges, shape (n, 2), ascending."""


@dataclass(frozen=True)
class Hints:
    """What a document says of a file beside it.

    Attributes
    ----------
    name
        Name of the document, for the report.
    data
        Where the values of each variable are, by path.
    unfit
        Why the document cannot be used; empty if it can.
    """

    name: str
    data: dict[str, Ranges]
    unfit: str = ""

    def read_ahead(self, file: ScanFile) -> None:
        """Read what lies between the data, all at once, if it is not too much."""
        if self.unfit or not self.data:
            return
        data = _merged(np.concatenate(list(self.data.values())))
        begins = np.concatenate(([0], data[:, 1]))
        ends = np.concatenate((data[:, 0], [file.size]))
        n_blocks = -(-ends // BLOCK_BYTES) - begins // BLOCK_BYTES
        if n_blocks[ends > begins].sum() > _MOST_BLOCKS:
            return
        starts: list[int] = []
        lengths: list[int] = []
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            starts += range(begin, end, _PIECE_BYTES)
            lengths += [min(_PIECE_BYTES, end - at) for at in range(begin, end, _PIECE_BYTES)]
        file.read_many(starts, lengths)

    def reported(self, group: VirtualGroup) -> VirtualGroup:
        """The result of a scan, whose report says if the document did not fit the file."""
        unfit = self.unfit or self._unlike(group)
        if not unfit:
            return group
        reason = f"{self.name} does not fit the file: {unfit}"
        source = next((finding.source for finding in group.report if finding.source), "")
        finding = Finding(f"/{self.name}", Fate.SKIPPED, reason, source)
        return group.with_changes(report=replace(group.report, findings=(*group.report, finding)))

    def _unlike(self, group: VirtualGroup) -> str:
        arrays = group.all_arrays()
        for path, stated in self.data.items():
            found = _places(arrays[path]) if path in arrays else None
            if found is not None and not np.array_equal(_merged(stated), _merged(found)):
                return f"{path or '/'} is elsewhere"
        return ""


def scan_hinted(
    scan: Callable[[], VirtualGroup], file: ScanFile, options: ScanOptions
) -> VirtualGroup:
    """Scan a file; if it is remote and has a document beside it, with its metadata read ahead."""
    hints = _hints_beside(file, options)
    if hints is None:
        return scan()
    hints.read_ahead(file)
    return hints.reported(scan())


def _hints_beside(file: ScanFile, options: ScanOptions) -> Hints | None:
    """What the document beside a remote file says; None if there is none, or nothing to gain.

    Nothing is gained where files beside this one have shown already where metadata lie.
    """
    if not file.is_remote or file.is_foreseen:
        return None
    sidecar = remote_sidecar(file.source.url, ("+.dmrpp",), options.storage_options)
    if sidecar is None:
        return None
    address, content = sidecar
    name = address.rpartition("/")[2]
    try:
        data = dict(_stated(read_document(content), file.size))
    except (ScanError, ValueError) as error:
        return Hints(name, {}, str(error))
    return Hints(name, data)


def _stated(root: ET.Element, size: int) -> Iterator[tuple[str, Ranges]]:
    """Path and places of each variable that has places in the document's own granule.

    Raises SourceFormatError for places that are none, or beyond the file.
    """
    for group, node in walk(root):
        for variable in (child for child in node if child.tag in VARIABLES):
            places = Places.of(
                [
                    each
                    for tag in ("chunk", "block")
                    for each in variable.iter(f"{DMRPP}{tag}")
                    if each.get("href") is None and each.get("nBytes") != "0"
                ]
            )
            stops = places.offset + places.length
            path = f"{group}/{variable.get('name', '')}".removeprefix("/")
            if (stops > size).any():
                raise SourceFormatError(f"{path} would be beyond the end of the file")
            if places.n:
                yield path, np.column_stack((places.offset, stops))


def _merged(ranges: Ranges) -> Ranges:
    """Ranges that touch or overlap as one, ascending."""
    ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
    reach = np.maximum.accumulate(ranges[:, 1])
    begins = np.concatenate(([True], ranges[1:, 0] > reach[:-1]))
    ends = np.concatenate((begins[1:], [True]))
    return np.column_stack((ranges[begins, 0], reach[ends]))


def _places(array: VirtualArray) -> Ranges | None:
    """Where the chunks of an array are; None if its values are kept in the references."""
    found = []
    for manifest in array.manifests:
        if not isinstance(manifest, ChunkManifest) or (manifest.state == ChunkState.INLINE).any():
            return None
        there = manifest.state == ChunkState.RANGE
        start = manifest.offset[there].astype(np.int64)
        found.append(np.column_stack((start, start + manifest.length[there])))
    return np.concatenate(found) if found else None
