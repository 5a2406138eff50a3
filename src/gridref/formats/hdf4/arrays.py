"""Turn an HDF4 file into a virtual group: its scientific data sets under their names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import count

from gridref.errors import (
    GridrefError,
    Place,
    UnsupportedFeatureError,
)
from gridref.formats.damage import refusing_damage
from gridref.formats.findings import Findings
from gridref.formats.hdf4.datasets import Contents, Dataset, read_datasets
from gridref.formats.hdf4.elements import Elements
from gridref.formats.hdf4.eos import Structures
from gridref.formats.hdf4.old import read_old_datasets
from gridref.formats.hdf4.storage import Stored, array_of
from gridref.formats.options import ScanOptions
from gridref.io import ScanFile
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.manifest import ChunkManifest
from gridref.model.scan_report import Fate


def scan_hdf4(file: ScanFile, head: bytes, options: ScanOptions) -> VirtualGroup:
    """Describe a file; `head` is its beginning; raises as `gridref.formats.scan` does."""
    try:
        with refusing_damage(file.name):
            elements = Elements(file, head, options.max_objects)
            contents = read_datasets(elements)
            if contents.is_old:
                datasets, refused = read_old_datasets(elements)
                contents.datasets[:0], contents.refused[:0] = datasets, refused
            return _Scan(file.name, Stored(elements, contents.tables, options)).group(contents)
    except GridrefError as error:
        error.located(Place(source=file.name))
        raise


class _Scan:
    """Describes what a file holds, and notes what became of each object."""

    def __init__(self, url: str, stored: Stored) -> None:
        self._stored = stored
        self._findings = Findings(url)

    def group(self, contents: Contents) -> VirtualGroup:
        """All data sets; grids and swaths are groups, where there are several."""
        structures = Structures(contents.attrs)
        arrays: dict[str, dict[str, VirtualArray]] = {"": {}}
        unlimited = defaultdict[str, set[str]](set)
        for name, error in contents.refused:
            self._findings.refuse(f"/{name}", error)
        for group, name, dataset in with_distinct_names(map(structures.placed, contents.datasets)):
            array = self._array(f"/{group}/{name}" if group else f"/{name}", dataset)
            if array is not None:
                arrays.setdefault(group, {})[name] = array
                unlimited[group] |= {*dataset.dims[:1]} if dataset.is_record else set()
        report = self._findings.report(self._stored.options)
        for group, coordinates in structures.coordinates():
            if group in arrays:
                arrays[group] = {**coordinates, **arrays[group]}
        groups = {
            group: VirtualGroup(own, unlimited_dims=frozenset(unlimited[group]))
            for group, own in arrays.items()
        }
        root = groups.pop("")
        return root.with_changes(groups=groups, attrs=contents.attrs, report=report)

    def _array(self, path: str, dataset: Dataset) -> VirtualArray | None:
        if dataset.is_scale and dataset.data is None:
            self._findings.note(path, Fate.NAMED, "a dimension with attributes and no labels")
            return None
        try:
            if "/" in dataset.name or not dataset.name:
                raise UnsupportedFeatureError("its name is empty or has a slash")
            array = array_of(dataset, self._stored)
        except GridrefError as error:
            self._findings.refuse(path, error)
            return None
        inline = any(isinstance(each, ChunkManifest) and each.inline for each in array.manifests)
        self._findings.note(path, Fate.INLINED if inline else Fate.TAKEN)
        if not path.endswith(dataset.name):
            self._findings.note(
                path, Fate.RENAMED, f"another data set is named {dataset.name!r}, too"
            )
        return array


def with_distinct_names(
    datasets: Iterable[tuple[str, Dataset]],
) -> Iterator[tuple[str, str, Dataset]]:
    """Groups, names and data sets; of several with one name the later ones are numbered.

    Dimensions without labels do not take the name of a data set.
    """
    placed = sorted(datasets, key=lambda each: each[1].is_scale and each[1].data is None)
    taken = {(group, dataset.name) for group, dataset in placed}
    used = set[tuple[str, str]]()
    for group, dataset in placed:
        name = dataset.name
        if (group, name) in used:
            numbered = (f"{dataset.name}_{n}" for n in count(1))
            name = next(new for new in numbered if (group, new) not in taken)
        taken.add((group, name))
        used.add((group, name))
        yield group, name, dataset
