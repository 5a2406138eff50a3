"""Turn a Zarr v3 or v2 hierarchy into a virtual group.

`scan_files` reads the metadata of all groups and arrays below the root, consolidated or not, and
returns the group with a finding for each node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from gridref.errors import (
    InvalidRequestError,
    Place,
    ScanError,
    SourceFormatError,
    UnsupportedFeatureError,
)
from gridref.formats.chunk_files import ChunkFiles
from gridref.formats.json_metadata import attributes_from_json, dimension_names, json_object
from gridref.formats.options import ScanOptions
from gridref.formats.zarr.arrays import virtual_array
from gridref.formats.zarr.version2 import array_metadata_v2
from gridref.model.array import MAX_GROUP_DEPTH, VirtualArray, VirtualGroup
from gridref.model.scan_report import Fate, Finding, ScanReport
from gridref.model.zarr_metadata import ArrayMetadata

_NO_METADATA = "no group and no array: it has no zarr.json, .zgroup or .zarray of its own"


def scan_files(files: ChunkFiles, options: ScanOptions) -> VirtualGroup:
    """Describe a Zarr v3 or v2 hierarchy, wherever its keys are kept.

    Parameters
    ----------
    files
        Its keys: of metadata, of chunks, and of shards with chunks in them.

    Returns
    -------
    VirtualGroup
        A hierarchy that is one array becomes a group with that array, named as the folder.

    Raises
    ------
    SourceFormatError
        If metadata or a shard's index is bad.
    UnsupportedFeatureError
        If an array cannot be read faithfully and ``on_unsupported`` is ``"raise"``.
    SourceUnavailableError
        If the store cannot be read.
    """
    scan = _Scan(files, options)
    root = scan.node("")
    if root is None:
        raise SourceFormatError("no Zarr metadata is there", Place(source=files.url))
    if isinstance(root, _ArrayNode):
        name = files.url.rpartition("/")[2].partition(".")[0] or "array"
        group = scan.group_of({name: root}, {}, {}, "")
    else:
        scan.consolidated = root.consolidated
        group = scan.group(root, "")
    return group.with_changes(report=ScanReport(tuple(scan.findings)))


def folders_of(keys: Iterable[str]) -> dict[str, dict[str, None]]:
    """The folders right below each folder of keys, as deep as groups may be nested."""
    folders: dict[str, dict[str, None]] = {}
    for key in keys:
        start = 0
        for _ in range(MAX_GROUP_DEPTH + 2):
            stop = key.find("/", start)
            if stop <= start:  # the end, or no name
                break
            folders.setdefault(key[: max(0, start - 1)], {})[key[start:stop]] = None
            start = stop + 1
    return folders


@dataclass(frozen=True)
class _ArrayNode:
    path: str
    metadata: ArrayMetadata | ScanError


@dataclass(frozen=True)
class _GroupNode:
    attrs: Mapping[str, Any]
    consolidated: Mapping[str, Mapping[str, Any]] | None = None


@dataclass
class _Scan:
    """One scan in progress."""

    files: ChunkFiles
    options: ScanOptions
    consolidated: Mapping[str, Mapping[str, Any]] | None = None
    findings: list[Finding] = field(default_factory=list)

    def node(self, path: str) -> _ArrayNode | _GroupNode | None:
        head = f"{path}/" if path else ""
        document = self._document(f"{head}zarr.json")
        if document is not None:
            return self._node_v3(path, document)
        document = self._document(f"{head}.zarray")
        if document is not None:
            return self._array_v2(path, document, self._document(f"{head}.zattrs") or {})
        group = self._document(f"{head}.zgroup")
        if group is None:
            return None
        merged = None if path else self._document(".zmetadata")
        attrs = self._document(f"{head}.zattrs") or {}
        return _GroupNode(attrs, None if merged is None else merged.get("metadata"))

    def group(self, node: _GroupNode, path: str) -> VirtualGroup:
        """Describe a group and all its members."""
        arrays: dict[str, _ArrayNode] = {}
        groups: dict[str, VirtualGroup] = {}
        for name in self._children(path):
            below = f"{path}/{name}" if path else name
            try:
                child = self.node(below)
            except UnsupportedFeatureError as error:
                self._leave_out(f"/{below}", error)
                continue
            if isinstance(child, _ArrayNode):
                arrays[name] = child
            elif child is None:
                self.findings.append(
                    Finding(f"/{below}", Fate.SKIPPED, _NO_METADATA, self.files.url)
                )
            elif self._may_go_down(below):
                groups[name] = self.group(child, below)
        return self.group_of(arrays, groups, node.attrs, path)

    def group_of(
        self,
        nodes: Mapping[str, _ArrayNode],
        groups: Mapping[str, VirtualGroup],
        attrs: Mapping[str, Any],
        path: str,
    ) -> VirtualGroup:
        """A group of described arrays."""
        phony: dict[int, list[str]] = {}
        arrays: dict[str, VirtualArray] = {}
        for name, node in nodes.items():
            below = f"/{path}/{name}" if path else f"/{name}"
            try:
                arrays[name] = self._array(node, phony)
                self.findings.append(Finding(below, Fate.TAKEN, "", self.files.url))
            except ScanError as error:
                self._leave_out(below, error)
        return VirtualGroup(arrays, dict(groups), attributes_from_json(attrs, None))

    def _may_go_down(self, path: str) -> bool:
        """Whether a group is not nested too deep, if such groups may be left out."""
        if path.count("/") < MAX_GROUP_DEPTH:
            return True
        reason = f"groups are nested more than {MAX_GROUP_DEPTH} deep"
        self._leave_out(f"/{path}", UnsupportedFeatureError(reason))
        return False

    def _leave_out(self, path: str, error: ScanError) -> None:
        """Report what cannot be served faithfully, if it may be left out; else raise the error."""
        error.located(Place(source=self.files.url, variable=path))
        if self.options.on_unsupported == "raise" or not isinstance(error, UnsupportedFeatureError):
            raise error
        self.findings.append(Finding(path, Fate.SKIPPED, error.reason, self.files.url))

    def _array(self, node: _ArrayNode, phony: dict[int, list[str]]) -> VirtualArray:
        if isinstance(node.metadata, ScanError):
            raise node.metadata
        metadata = node.metadata
        dims = dimension_names(metadata.dims, metadata.grid.shape, phony)
        metadata = replace(metadata, attrs=attributes_from_json(metadata.attrs, metadata.dtype))
        return virtual_array(self.files, node.path, metadata, dims)

    def _children(self, path: str) -> list[str]:
        if self.consolidated is None:
            return self.files.folders(path)
        return sorted(name for name in self._folders.get(path, ()) if not name.startswith(".z"))

    @cached_property
    def _folders(self) -> Mapping[str, Mapping[str, None]]:
        """The children in the consolidated metadata; in Zarr v3 the keys are paths of groups."""
        return folders_of(f"{key}/" for key in self.consolidated or ())

    def _node_v3(self, path: str, document: Mapping[str, Any]) -> _ArrayNode | _GroupNode:
        if document.get("node_type") == "group":
            merged = document.get("consolidated_metadata") or {}
            documents = merged.get("metadata") if not path else None
            return _GroupNode(document.get("attributes", {}), documents or None)
        try:
            return _ArrayNode(path, ArrayMetadata.from_json(document))
        except InvalidRequestError as error:
            return _ArrayNode(path, UnsupportedFeatureError(error.reason))

    def _array_v2(
        self, path: str, document: Mapping[str, Any], attrs: Mapping[str, Any]
    ) -> _ArrayNode:
        try:
            return _ArrayNode(path, array_metadata_v2(document, attrs))
        except ScanError as error:
            return _ArrayNode(path, error)

    def _document(self, key: str) -> Mapping[str, Any] | None:
        """A metadata document, from the consolidated ones if there are any."""
        if self.consolidated is not None:
            if key in self.consolidated:
                return self.consolidated[key]
            return self.consolidated.get(key.removesuffix("/zarr.json"))
        data = self.files.get(key)
        return None if data is None else json_object(data, self.files.address(key))
