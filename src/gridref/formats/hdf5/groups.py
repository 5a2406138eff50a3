"""An open HDF5 or NetCDF4 file -> a virtual group."""

from __future__ import annotations

from gridref.errors import ScanError, UnsupportedFeatureError
from gridref.formats.hdf5.objects.dimensions import (
    is_not_a_variable,
    name_dimensions,
)
from gridref.formats.hdf5.objects.files import OpenFile, open_file
from gridref.formats.hdf5.objects.tree import DatasetNode, GroupNode, read_tree
from gridref.formats.hdf5.storage.alike import NamedDataset, alike_arrays, remember_array
from gridref.formats.hdf5.storage.arrays import ScannedArray, plain_name, scan_array
from gridref.formats.hdf5.storage.ragged import ROW_SIZE, sample_dimension
from gridref.formats.options import ScanOptions
from gridref.io import ScanFile
from gridref.model.array import VirtualGroup
from gridref.model.scan_report import Fate, Finding, ScanReport

__all__ = ["scan_hdf5"]


def scan_hdf5(file: ScanFile, options: ScanOptions) -> VirtualGroup:
    """Describe a file; raises as `gridref.formats.scan` does."""
    with open_file(file, options) as opened:
        root = read_tree(opened, options.max_objects)
        scan = _Scan(opened, options, root)
        group = scan.group(root)
        scan.raise_refused()
        return group.replace(report=ScanReport(tuple(scan.findings)))


class _Scan:
    """One file being turned into groups; collects findings and what is refused."""

    def __init__(self, file: OpenFile, options: ScanOptions, root: GroupNode) -> None:
        self.file = file
        self.options = options
        self.dimensions = name_dimensions(root, options.phony_dims)
        everything = (node for group in root.walk() for node in group.datasets.values())
        shown = (node for node in everything if node.shape is not None)
        self.alike = alike_arrays(file, map(self.named, shown), options)
        self.findings: list[Finding] = []
        self.refused: list[ScanError] = []

    def note(self, path: str, fate: Fate, reason: str = "") -> None:
        self.findings.append(Finding(path, fate, reason, self.file.source.url))

    def group(self, node: GroupNode) -> VirtualGroup:
        self.unreadable(node.path.rstrip("/"), node.attributes.unreadable)
        arrays = {}
        for name, dataset in node.datasets.items():
            scanned = self.dataset(dataset, node)
            if scanned is not None:
                arrays[plain_name(name)] = scanned.array
            if scanned is not None and scanned.row_sizes is not None:
                arrays[plain_name(name) + ROW_SIZE] = scanned.row_sizes
        for skipped in node.skipped:
            if skipped.error is not None:
                self.refuse(skipped.error, skipped.path)
            else:
                self.note(skipped.path, Fate.SKIPPED, skipped.reason)
        groups = {name: self.group(child) for name, child in node.groups.items()}
        unlimited = self.dimensions.unlimited.get(node.path, frozenset())
        return VirtualGroup(arrays, groups, node.attributes.public, unlimited_dims=unlimited)

    def named(self, dataset: DatasetNode) -> NamedDataset:
        path, dimensions = dataset.path, self.dimensions
        return NamedDataset(dataset, dimensions.names[path], dimensions.sizes[path])

    def scanned(self, dataset: DatasetNode) -> ScannedArray:
        """The array of a dataset: alike one of another file, or described from the beginning."""
        array = self.alike.get(dataset.path)
        if array is not None:
            return ScannedArray(array)
        named = self.named(dataset)
        scanned = scan_array(dataset, named.dims, named.sizes, self.options)
        if scanned.fate is Fate.TAKEN and scanned.row_sizes is None:
            remember_array(named, scanned.array, self.options)
        return scanned

    def dataset(self, dataset: DatasetNode, group: GroupNode) -> ScannedArray | None:
        path = dataset.path
        self.unreadable(path, dataset.attributes.unreadable)
        if dataset.shape is None:
            self.note(path, Fate.SKIPPED, "a null dataspace holds no elements")
            return None
        if is_not_a_variable(dataset):
            self.note(path, Fate.NAMED, "a dimension without a variable")
            return None
        try:
            self.check_plain(dataset.name, group)
            scanned = self.scanned(dataset)
            if scanned.row_sizes is not None:
                self.check_names(plain_name(dataset.name), group)
        except ScanError as error:
            self.refuse(error, path)
            return None
        self.note(path, scanned.fate, scanned.reason)
        return scanned

    def check_plain(self, name: str, group: GroupNode) -> None:
        """Raise if netCDF would show a variable under the name of another one."""
        plain = plain_name(name)
        other = group.datasets.get(plain)
        if plain != name and other is not None and not is_not_a_variable(other):
            raise UnsupportedFeatureError(f"netCDF renames it to {plain}, which there is, too")

    def check_names(self, name: str, group: GroupNode) -> None:
        """Raise if names that a ragged array needs are taken."""
        used = set(group.datasets) | set(group.groups)
        dimensions = {name for names in self.dimensions.names.values() for name in names}
        if name + ROW_SIZE in used or sample_dimension(name) in dimensions:
            raise UnsupportedFeatureError(
                f"variable-length sequences need the names {name}{ROW_SIZE} and"
                f" {sample_dimension(name)}, which the file uses"
            )

    def unreadable(self, path: str, attributes: dict[str, str]) -> None:
        for name, reason in attributes.items():
            self.note(f"{path}@{name}", Fate.SKIPPED, f"the attribute cannot be read: {reason}")

    def refuse(self, error: ScanError, path: str) -> None:
        """Remember what cannot be served, so that all of it is named."""
        error.located(self.file.place(path))
        self.refused.append(error)
        self.note(path, Fate.SKIPPED, error.reason)

    def raise_refused(self) -> None:
        if not self.refused or self.options.on_unsupported == "skip":
            return
        # A file that is corrupt is worse news than one that holds something unusual.
        first = min(self.refused, key=lambda error: isinstance(error, UnsupportedFeatureError))
        others = [error for error in self.refused if error is not first]
        if others:
            named = ", ".join(str(error.place.variable) for error in others[:10])
            more = " and more" if len(others) > 10 else ""
            first.reason += f"; {len(others)} other objects are refused too: {named}{more}"
        first.reason += '; on_unsupported="skip" leaves out what is refused'
        raise first
