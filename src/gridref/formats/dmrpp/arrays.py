"""Turn a DMR++ document into a virtual group.

`scan_dmrpp` reads the document, and makes an array of each variable. A variable that cannot be
served faithfully is refused for itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from xml.etree import ElementTree as ET

from gridref.errors import (
    GridrefError,
    Place,
    ScanError,
    SourceFormatError,
    UnsupportedFeatureError,
)
from gridref.formats.damage import check_element_size
from gridref.formats.dmrpp.document import (
    DAP,
    DMRPP,
    VARIABLES,
    Attributes,
    Scope,
    attributes_of,
    read_document,
    walk,
)
from gridref.formats.dmrpp.files import GranuleFiles
from gridref.formats.dmrpp.storage import Document, Variable, stored_values
from gridref.formats.dmrpp.types import element_type_of
from gridref.formats.findings import Findings
from gridref.formats.options import ScanOptions
from gridref.io import ScanFile
from gridref.model.array import VirtualArray, VirtualGroup, check_name
from gridref.model.joining import missing_array
from gridref.model.scan_report import Fate


def scan_dmrpp(file: ScanFile, options: ScanOptions) -> VirtualGroup:
    """Describe a document; raises as `gridref.formats.scan` does."""
    try:
        root = read_document(file.read_many([0], [file.size])[0])
        scan = _Scan(file, root, options)
        group = scan.group(root)
    except GridrefError as error:
        raise error.located(Place(source=file.name)) from error.__cause__
    return group.with_changes(report=scan.findings.report(options))


class _Scan:
    """The scan of one document; it collects findings and refused variables."""

    def __init__(self, file: ScanFile, root: ET.Element, options: ScanOptions) -> None:
        self.scope = Scope(root)
        self.document = Document(
            GranuleFiles(file.name, root.get(f"{DMRPP}href", ""), options).source,
            f"{DMRPP}version" in root.attrib,
            options.max_chunk_bytes,
            options.max_inline_bytes,
        )
        self.findings = Findings(file.name)
        n_objects = sum(1 + len(variables_in(group)) for _, group in walk(root))
        if n_objects > options.max_objects:
            raise UnsupportedFeatureError(
                f"the DMR++ has {n_objects} groups and variables, more than max_objects,"
                f" {options.max_objects}"
            )

    def group(self, node: ET.Element, path: str = "") -> VirtualGroup:
        attributes = self.attributes(node, path)
        arrays: dict[str, VirtualArray] = {}
        shaped: list[tuple[ET.Element, tuple[int, ...]]] = []
        for variable in variables_in(node):
            with self.refusing(f"{path}/{variable.get('name')}"):
                check_name(variable.get("name", ""))
                shaped.append((variable, self.scope.shape(variable, path)))
        names = self.scope.names(shaped, path)
        for (variable, shape), dims in zip(shaped, names, strict=True):
            own = f"{path}/{variable.get('name')}"
            with self.refusing(own):
                if own.rpartition("/")[2] in arrays:
                    raise SourceFormatError("there are two variables of its name")
                array, inlined = self.array(variable, path, shape, dims)
                arrays[own.rpartition("/")[2]] = array
                self.findings.note(own, Fate.INLINED if inlined else Fate.TAKEN, inlined)
        groups = {}
        for child in node.iterfind(f"{DAP}Group"):
            name = child.get("name", "")
            if name in groups or name in arrays:
                raise SourceFormatError(f"there are two objects {path}/{name}")
            groups[name] = self.group(child, f"{path}/{name}")
        used = {dim for array in arrays.values() for dim in array.dims}
        unlimited = attributes.unlimited & used
        return VirtualGroup(arrays, groups, attributes.public, unlimited_dims=unlimited)

    def attributes(self, node: ET.Element, path: str) -> Attributes:
        found = attributes_of(node)
        for name, reason in found.left_out.items():
            self.findings.note(
                f"{path}@{name}", Fate.SKIPPED, f"the attribute is left out: {reason}"
            )
        return found

    @contextmanager
    def refusing(self, path: str) -> Iterator[None]:
        """Remember a variable that cannot be served: one error names all of them."""
        try:
            yield
        except (ScanError, ValueError, TypeError) as error:
            refusal = error if isinstance(error, ScanError) else _not_an_array(error)
            self.findings.refuse(path, refusal)

    def array(
        self, node: ET.Element, path: str, shape: tuple[int, ...], dims: tuple[str, ...]
    ) -> tuple[VirtualArray, str]:
        """The array of a variable, and why its values are kept in the references, if they are."""
        attrs = self.attributes(node, f"{path}/{node.get('name')}").public
        element = element_type_of(node, path, self.scope)
        check_element_size(element.dtype)
        stored = stored_values(Variable(node, shape, element, attrs), self.document)
        if attrs.keys().isdisjoint(element.flags):
            attrs = {**attrs, **element.flags}
        if stored.chunks is None:
            array = missing_array(shape, element.dtype, dims=dims, fill_value=stored.fill)
        else:
            encoding, manifest = stored.chunks
            array = VirtualArray.of_one_block(
                shape,
                element.dtype,
                encoding=encoding,
                manifest=manifest,
                dims=dims,
                fill_value=stored.fill,
            )
        return array.with_changes(attrs=attrs, enumeration=element.enumeration), stored.inlined


def _not_an_array(error: Exception) -> UnsupportedFeatureError:
    """The refusal of what numpy, or a name, cannot be."""
    reason = error.reason if isinstance(error, GridrefError) else str(error)
    return UnsupportedFeatureError(f"it cannot be an array: {reason}")


def variables_in(group: ET.Element) -> list[ET.Element]:
    """The variables of a group, in the order of the document."""
    return [child for child in group if child.tag in VARIABLES]
