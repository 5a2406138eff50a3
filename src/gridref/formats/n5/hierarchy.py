"""Turn an N5 container into a virtual group: its groups and datasets.

Every folder is a group; ``attributes.json`` with dimensions makes it a dataset. Servers that list
no folders are asked for the datasets that a pyramid's attributes name, or for ``s0``, ``s1`` and so
on, as pyramids call them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gridref.errors import Place, SourceFormatError, SourceUnavailableError, UnsupportedFeatureError
from gridref.formats.chunk_files import StoreFiles
from gridref.formats.findings import Findings
from gridref.formats.json_metadata import attributes_from_json, dimension_names, json_object
from gridref.formats.n5.arrays import array_of, is_dataset, shape_of
from gridref.formats.n5.pyramids import axis_names, named_datasets, pyramid_attributes
from gridref.formats.options import ScanOptions
from gridref.model.array import MAX_GROUP_DEPTH, VirtualArray, VirtualGroup
from gridref.model.scan_report import Fate

_VERSION = "n5"
_MOST_PROBED = 64


def scan_container(files: StoreFiles, options: ScanOptions) -> VirtualGroup:
    """Describe a container; raises as `gridref.formats.scan` does.

    A container that is one dataset becomes a group with that array, named as the folder.
    """
    scan = _Scan(files, options)
    attrs = scan.attributes("")
    if attrs is not None and is_dataset(attrs):
        name = files.url.rpartition("/")[2].partition(".")[0] or "array"
        group = scan.group_of({name: ("", attrs)}, {}, {}, "")
    else:
        group = scan.group("", attrs or {})
    if attrs is None and not group.arrays and not group.groups:
        raise SourceFormatError("no attributes.json is there", Place(source=files.url))
    return group.with_changes(report=scan.findings.report(options))


class _Scan:
    """One scan in progress."""

    def __init__(self, files: StoreFiles, options: ScanOptions) -> None:
        self.findings = Findings(files.url)
        self._files = files
        self._n_objects, self._max_objects = 0, options.max_objects

    def group(self, path: str, attrs: Mapping[str, Any]) -> VirtualGroup:
        """Describe a group and all below it."""
        datasets: dict[str, tuple[str, Mapping[str, Any]]] = {}
        groups: dict[str, VirtualGroup] = {}
        for name, below, own in self._members(path, attrs):
            if own is not None and is_dataset(own):
                datasets[name] = (below, own)
            elif below.count("/") >= MAX_GROUP_DEPTH:
                reason = f"groups are nested more than {MAX_GROUP_DEPTH} deep"
                self.findings.refuse(f"/{below}", UnsupportedFeatureError(reason))
            else:
                member = self.group(below, own or {})
                if own is not None or member.arrays or member.groups:
                    groups[name] = member
        return self.group_of(datasets, groups, attrs, path)

    def group_of(
        self,
        datasets: Mapping[str, tuple[str, Mapping[str, Any]]],
        groups: Mapping[str, VirtualGroup],
        attrs: Mapping[str, Any],
        path: str,
    ) -> VirtualGroup:
        """A group of datasets by name, each with its path and attributes."""
        phony: dict[int, list[str]] = {}
        arrays: dict[str, VirtualArray] = {}
        for name, (below, own) in datasets.items():
            with self.findings.refusing(f"/{below or name}"):
                shape = shape_of(own)
                dims = dimension_names(axis_names(own, attrs, len(shape)), shape, phony)
                arrays[name] = array_of(self._files, below, own, dims)
                self.findings.note(f"/{below or name}", Fate.TAKEN)
        levels = {name: datasets[name][1] for name in arrays}
        shown = {key: value for key, value in attrs.items() if key != _VERSION}
        about = pyramid_attributes(path.rpartition("/")[2], shown, levels, arrays)
        return VirtualGroup(arrays, dict(groups), attributes_from_json({**about, **shown}, None))

    def _members(
        self, path: str, attrs: Mapping[str, Any]
    ) -> Iterator[tuple[str, str, Mapping[str, Any] | None]]:
        """Name, path and attributes of what is in a group."""
        try:
            names = self._files.folders(path)
        except SourceUnavailableError:
            if not self._files.url.startswith(("http://", "https://")):
                raise
            names = []
        if not names and self._files.url.startswith(("http://", "https://")):
            yield from self._asked_for(path, attrs)
            return
        for name in names:
            if name.startswith("."):
                continue
            below = f"{path}/{name}" if path else name
            own = self.attributes(below)
            if own is not None or not name.isdecimal():  # such folders hold blocks
                yield name, below, own

    def _asked_for(
        self, path: str, attrs: Mapping[str, Any]
    ) -> Iterator[tuple[str, str, Mapping[str, Any] | None]]:
        """What is in a group of a server that does not list folders, as far as it has a name."""
        found = False
        stated = named_datasets(attrs)
        for name in stated or (f"s{level}" for level in range(_MOST_PROBED)):
            below = f"{path}/{name}" if path else name
            own = self.attributes(below)
            if own is not None:
                found = True
                yield name, below, own
            elif not stated:
                break
        if not found and not path:
            reason = (
                "the server lists no folders, and attributes.json names no datasets: scan the"
                " attributes.json of a dataset, or list datasets in the attribute multiscales"
            )
            raise SourceFormatError(reason, Place(source=self._files.url))

    def attributes(self, path: str) -> Mapping[str, Any] | None:
        """The attributes of a folder; None if it has none."""
        self._n_objects += 1
        if self._n_objects > self._max_objects:
            reason = f"there are more folders than max_objects, {self._max_objects}"
            raise SourceFormatError(reason, Place(source=self._files.url))
        key = f"{path}/attributes.json" if path else "attributes.json"
        data = self._files.get(key)
        return None if data is None else json_object(data, self._files.address(key))
