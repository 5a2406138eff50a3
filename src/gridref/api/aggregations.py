"""Read aggregation variables: variables of a NetCDF file whose values are in other files.

An aggregation variable is a scalar whose attribute ``aggregated_dimensions`` names its true
dimensions, and whose ``aggregated_data`` names variables with instructions: ``map``, the lengths of
the fragments along each dimension, and either ``uris`` and ``identifiers``, the file of each
fragment and the variable in it, or ``unique_values``, one value for each fragment.
`with_aggregations` scans the fragments' files and puts them in place of the scalars.

Source: CF conventions 1.13, 2.8 "Aggregation Variables"; cfdm 1.13 is the oracle.
"""

from __future__ import annotations

import itertools
import os
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.api.readable import reader_for
from gridref.api.units import converter
from gridref.combine.boxes import Runs
from gridref.combine.columns import Column, Notes
from gridref.combine.level import Inherited, combine_columns
from gridref.combine.options import CombineOptions, Read
from gridref.combine.placement import Placement, Task
from gridref.combine.report import Combination
from gridref.combine.values import Values
from gridref.errors import (
    GridrefError,
    Message,
    Place,
    SourceFormatError,
    UnsupportedFeatureError,
    number_of,
)
from gridref.formats import ScanOptions
from gridref.formats.location import only_allowed
from gridref.formats.metadata import DEFAULT_FILLS
from gridref.io import absolute_url, beside, is_local, note_opened, policy_for
from gridref.limits import beyond, limits
from gridref.model.array import VirtualArray, VirtualGroup, dims_of, path_in
from gridref.model.conventions import PACKING_ATTRIBUTES, is_scaled
from gridref.model.indexing import isel
from gridref.model.joining import missing_array
from gridref.model.reshaping import broadcast_axis, expand_dims, squeeze
from gridref.model.scan_report import Fate, Finding, ScanReport

type ScanFiles = Callable[[Sequence[str], ScanOptions], Iterable[VirtualGroup | GridrefError]]
"""Describes files, in their order."""

type _Scanned = dict[str, VirtualGroup | UnsupportedFeatureError]
"""Fragments' files by URI, or why they may not be read."""

_DIMENSIONS, _DATA = "aggregated_dimensions", "aggregated_data"
_TERMS = {"map", "uris", "identifiers", "unique_values"}


def with_aggregations(
    group: VirtualGroup, address: str, options: ScanOptions, scan_files: ScanFiles
) -> VirtualGroup:
    """A file's group with the values of its aggregation variables, whose fragments are scanned.

    Parameters
    ----------
    group
        What the file itself holds: handed through where it has no aggregation variables.
    options
        How it was scanned. Fragments beside it may be read, others where ``allow`` says so.
    scan_files
        Describes the fragments' files.

    Raises
    ------
    SourceFormatError
        If the instructions contradict each other or the fragments.
    UnsupportedFeatureError
        For fragments that may not be read, or cannot be brought on the variable's terms; with
        ``on_unsupported="skip"`` such variables are left out, and the report says so.
    SourceUnavailableError
        If a fragment's file is not there or cannot be read.
    """
    found = {path: a for path, a in group.all_arrays().items() if {_DIMENSIONS, _DATA} & {*a.attrs}}
    if not found:
        return group
    file = _AggregationFile(absolute_url(address), group, options)
    variables = {path: file.variable(path, array) for path, array in found.items()}
    scanned = file.scanned(variables.values(), scan_files)
    arrays: dict[str, VirtualArray] = {}
    findings: dict[str, Finding] = {}
    drifts: list[Mapping[str, Any]] = []
    for path, variable in variables.items():
        place = Place(source=file.url, variable=f"/{path}")
        try:
            arrays[path], rows = variable.combined(scanned, file)
            drifts += rows
        except UnsupportedFeatureError as error:
            if options.on_unsupported == "raise":
                raise error.located(place) from error.__cause__
            findings[path] = Finding(f"/{path}", Fate.SKIPPED, error.reason, file.url)
    named = {term for variable in variables.values() for term in variable.terms.values()}
    for term in named:
        findings[term] = Finding(f"/{term}", Fate.NAMED, "names the places of fragments", file.url)
    parts = [scan.report for scan in scanned.values() if isinstance(scan, VirtualGroup)]
    report = _report(group.report, parts, findings, drifts)
    return _replaced(group, arrays, {*found, *named} - {*arrays}).with_changes(report=report)


def _report(
    own: ScanReport,
    fragments: Sequence[ScanReport],
    changed: Mapping[str, Finding],
    drifts: Sequence[Mapping[str, Any]],
) -> ScanReport:
    """The file's report, with the requests that its fragments took."""
    findings = [changed.get(finding.path.strip("/"), finding) for finding in own.findings]
    costs = ScanReport.joined([own, *fragments])
    return replace(costs, findings=tuple(findings), drifts=(*own.drifts, *drifts))


def _replaced(
    group: VirtualGroup, arrays: Mapping[str, VirtualArray], dropped: set[str], path: str = ""
) -> VirtualGroup:
    """The group with other arrays at some paths, and without those at others."""
    kept = {
        name: arrays.get(path_in(path, name), array)
        for name, array in group.arrays.items()
        if path_in(path, name) not in dropped
    }
    below = {
        name: _replaced(part, arrays, dropped, path_in(path, name))
        for name, part in group.groups.items()
    }
    dims = dims_of(kept.values())
    return group.with_changes(arrays=kept, groups=below, unlimited_dims=group.unlimited_dims & dims)


@dataclass(frozen=True, eq=False)
class _AggregationFile:
    """A file with aggregation variables."""

    url: str
    group: VirtualGroup
    options: ScanOptions

    @cached_property
    def arrays(self) -> Mapping[str, VirtualArray]:
        """All of its arrays by path."""
        return self.group.all_arrays()

    @cached_property
    def read(self) -> Read:
        """Reads all values of an array."""
        return reader_for(self.options.storage_options).read

    def variable(self, path: str, array: VirtualArray) -> _Aggregation:
        """What the attributes of an aggregation variable say."""
        place = Place(source=self.url, variable=f"/{path}")
        named = str(array.attrs.get(_DATA, ""))
        terms = dict(re.findall(r"(\S+):\s+(\S+)", named))
        known = {term: terms[term] for term in terms.keys() & _TERMS}
        if {*known} not in ({"map", "uris", "identifiers"}, {"map", "unique_values"}):
            raise SourceFormatError(
                f"{_DATA} {named!r} does not name map, and uris and identifiers or unique_values",
                place,
            )
        paths = {term: self._resolved(name, path, place) for term, name in known.items()}
        words = str(array.attrs.get(_DIMENSIONS, "")).split()
        dims = tuple(word.rpartition("/")[2] for word in words)
        size = max(self.arrays[own].size for own in paths.values())
        if size > limits().aggregation_fragments:
            what = f"it has {size} fragments"
            raise UnsupportedFeatureError(beyond("aggregation_fragments", what), place)
        lengths = self.arrays[paths["map"]]
        edges = _edges(self.read(lengths), lengths, len(dims), place)
        counts = tuple(map(len, edges))
        held: dict[str, NDArray[Any]] = {}
        for term, shapes in (("uris", {counts}), ("identifiers", {counts, ()})):
            if term in paths:
                held[term] = _texts(self.read(self.arrays[paths[term]]), len(counts))
                if held[term].shape not in shapes:
                    raise _misfit(term, held[term].shape, counts, place)
        if "unique_values" in paths and self.arrays[paths["unique_values"]].shape != counts:
            raise _misfit("unique_values", self.arrays[paths["unique_values"]].shape, counts, place)
        return _Aggregation(path, array.attrs, dims, edges, paths, held)

    def _resolved(self, name: str, path: str, place: Place) -> str:
        """The path of a variable that is named in a group: there, or in one above (CF 2.7)."""
        if name.startswith("/"):
            candidates = [name.strip("/")]
        else:
            above = path.split("/")[:-1]
            candidates = ["/".join([*above[:n], name]) for n in range(len(above), -1, -1)]
        for candidate in candidates:
            if candidate in self.arrays:
                return candidate
        raise SourceFormatError(f"{_DATA} names {name!r}, which is not there", place)

    def scanned(self, variables: Iterable[_Aggregation], scan_files: ScanFiles) -> _Scanned:
        """The groups of all fragments' files by URI, or why they may not be read."""
        every = [v.held["uris"].reshape(-1).tolist() for v in variables if "uris" in v.held]
        uris = [uri for uri in dict.fromkeys(itertools.chain(*every)) if uri]
        policy = policy_for(self.url, self.options.allow)
        found: _Scanned = {}
        addresses: dict[str, str] = {}
        for uri in uris:
            try:
                addresses[uri] = fragment_address(self.url, uri)
                with only_allowed(policy, addresses[uri]):
                    pass
            except UnsupportedFeatureError as error:
                found[uri] = error
            note_opened(addresses.get(uri, uri))
        wanted = {uri: address for uri, address in addresses.items() if uri not in found}
        # What else a file holds does not matter to the fragment in it.
        options = replace(self.options, on_unsupported="skip")
        for uri, outcome in zip(wanted, scan_files([*wanted.values()], options), strict=True):
            if isinstance(outcome, GridrefError):
                raise outcome
            found[uri] = outcome
        return found


def fragment_address(aggregation: str, uri: str) -> str:
    """The address of a fragment's file (RFC 3986, 5: a reference is resolved against its base).

    Parameters
    ----------
    aggregation
        Absolute address of the file that names it.
    uri
        An absolute URI, or one relative to that file.
    """
    if uri.startswith("file:"):
        parts = urllib.parse.urlsplit(uri)
        if parts.netloc not in ("", "localhost"):
            raise UnsupportedFeatureError(f"the fragment {uri} is on another machine")
        return _unquoted(absolute_url(f"file://{parts.path}"))
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", uri):
        return uri
    if aggregation.startswith(("http://", "https://")) and "::" not in aggregation:
        return urllib.parse.urljoin(aggregation, uri)
    if is_local(aggregation):
        return _unquoted(beside(aggregation, uri))
    if uri.startswith("/"):
        protocol, _, rest = aggregation.partition("://")
        return f"{protocol}://{rest.partition('/')[0]}{urllib.parse.unquote(uri)}"
    return beside(aggregation, urllib.parse.unquote(uri))


def _unquoted(path: str) -> str:
    """A local path out of a URI; some writers do not quote what has to be."""
    bare = urllib.parse.unquote(path)
    return path if os.path.exists(path) and not os.path.exists(bare) else bare


@dataclass(frozen=True, eq=False)
class _Aggregation:
    """What an aggregation variable says.

    Attributes
    ----------
    edges
        Lengths of the fragments along each dimension.
    terms
        Path of the variable with each kind of instruction.
    held
        ``uris`` and ``identifiers``, one for each fragment.
    """

    path: str
    attrs: Mapping[str, Any]
    dims: tuple[str, ...]
    edges: Sequence[tuple[int, ...]]
    terms: Mapping[str, str]
    held: Mapping[str, NDArray[Any]]

    def combined(
        self, scanned: _Scanned, file: _AggregationFile
    ) -> tuple[VirtualArray, Sequence[Mapping[str, Any]]]:
        """The variable's values, and the drift that its fragments have."""
        shape = tuple(sum(lengths) for lengths in self.edges)
        attrs = {k: v for k, v in self.attrs.items() if k not in (_DIMENSIONS, _DATA)}
        named = "uris" in self.held
        fragments = list(self._in_files(scanned) if named else self._of_values(file))
        if not fragments:
            raise UnsupportedFeatureError(
                "all of its fragments are missing, so its dtype is unknown"
            )
        if not self.dims:
            return fragments[0].array.with_changes(attrs={**fragments[0].array.attrs, **attrs}), ()
        if is_scaled(attrs) and any(is_scaled(fragment.array.attrs) for fragment in fragments):
            raise UnsupportedFeatureError("both the variable and its fragments are packed")
        done = combine_fragments(
            self.path, attrs, shape, fragments, read=file.read, options=_OPTIONS
        )
        if done.group is None:
            problem = done.problems[0]
            raise UnsupportedFeatureError(Message("its fragments do not fit: ", problem.message))
        return done.group.arrays[self.path], done.report.rows()

    def _places(self) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
        """Of each fragment its index, its corner and its shape."""
        starts = [[0, *itertools.accumulate(lengths)] for lengths in self.edges]
        for index in itertools.product(*(range(len(lengths)) for lengths in self.edges)):
            corner = tuple(along[k] for along, k in zip(starts, index, strict=True))
            yield index, corner, tuple(own[k] for own, k in zip(self.edges, index, strict=True))

    def _in_files(self, scanned: _Scanned) -> Iterator[Fragment]:
        identifiers = np.broadcast_to(self.held["identifiers"], self.held["uris"].shape)
        for index, corner, shape in self._places():
            uri = str(self.held["uris"][index])
            if not uri and self.held["identifiers"].shape and identifiers[index]:
                raise UnsupportedFeatureError(
                    f"fragment {index} has an identifier and no URI: it may be in this file, or"
                    " missing"
                )
            if uri:
                array = _fragment(scanned[uri], str(identifiers[index]), uri)
                yield Fragment(as_part(array, shape, self.dims, uri), corner, uri)

    def _of_values(self, file: _AggregationFile) -> Iterator[Fragment]:
        """A part of the variable of values for each fragment, repeated to its shape."""
        values = file.arrays[self.terms["unique_values"]]
        missing = _is_missing(file.read(values), values)
        bare = {k: v for k, v in values.attrs.items() if k not in ("_FillValue", "missing_value")}
        values = values.with_changes(dims=self.dims, attrs=bare)
        for index, corner, shape in self._places():
            if not missing[index]:
                one = isel(values, {axis: slice(k, k + 1) for axis, k in enumerate(index)})
                for axis, extent in enumerate(shape):
                    one = broadcast_axis(one, axis, extent)
                yield Fragment(one, corner, file.url)


def _convert(unit: str, target: str) -> tuple[float, float] | None:
    return converter()(unit, target)  # needs a package, so not before units differ


_OPTIONS = CombineOptions(convert_units=_convert)


def _fragment(
    group: VirtualGroup | UnsupportedFeatureError, identifier: str, uri: str
) -> VirtualArray:
    """The variable of a fragment's file."""
    if isinstance(group, UnsupportedFeatureError):
        raise group
    path = identifier.strip("/")
    array = group.all_arrays().get(path)
    if array is None:
        reasons = [f.reason for f in group.report.skipped if f.path.strip("/") == path]
        if reasons:
            raise UnsupportedFeatureError(f"the fragment {uri} is left out: {reasons[0]}")
        raise SourceFormatError(f"there is no variable {identifier!r}", Place(source=uri))
    if _DIMENSIONS in array.attrs:
        raise UnsupportedFeatureError(f"the fragment {uri} is an aggregation variable itself")
    return array


def as_part(
    array: VirtualArray, shape: tuple[int, ...], dims: tuple[str, ...], uri: str
) -> VirtualArray:
    """A fragment with the variable's dimensions. It may lack dimensions of length 1."""
    longer = [extent for extent in shape if extent != 1]
    swapped = {*array.dims} == {*dims} and array.dims != dims
    if [extent for extent in array.shape if extent != 1] != longer or array.ndim > len(shape):
        raise SourceFormatError(
            f"the fragment has the shape {array.shape}, but the map states {shape}",
            Place(source=uri),
        )
    if swapped:
        raise UnsupportedFeatureError(
            f"the fragment {uri} has its dimensions in another order: {array.dims}"
        )
    if array.shape != shape:
        array = squeeze(array, [axis for axis, extent in enumerate(array.shape) if extent == 1])
        for axis, extent in enumerate(shape):
            if extent == 1:
                array = expand_dims(array, axis, f"added {axis}")
    return array.with_changes(dims=dims)


def _edges(
    values: NDArray[Any], array: VirtualArray, n_dims: int, place: Place
) -> list[tuple[int, ...]]:
    """Lengths of fragments along each dimension; what is missing at the end of a row is none."""
    if values.dtype.kind not in "iuf":
        raise SourceFormatError(f"a map of {values.dtype} holds no lengths", place)
    if n_dims == 0 and values.size == 1:
        return []
    if values.ndim != 2 or len(values) != n_dims:
        raise SourceFormatError(
            f"a map of shape {values.shape} is for {number_of(n_dims, 'dimension')}", place
        )
    missing = _is_missing(values, array)
    edges = []
    for row, absent in zip(values, missing, strict=True):
        lengths = tuple(int(length) for length in row[~absent])
        if not lengths or absent[: len(lengths)].any() or min(lengths) < 1:
            raise SourceFormatError(
                f"the map states the lengths {row.tolist()} for a dimension",
                place,
            )
        edges.append(lengths)
    return edges


def _is_missing(values: NDArray[Any], array: VirtualArray) -> NDArray[np.bool_]:
    """Where values are declared to be missing, or were never written."""
    declared = [array.attrs.get(name) for name in ("_FillValue", "missing_value")]
    fills = [item for fill in declared if fill is not None for item in np.ravel(fill).tolist()]
    if values.dtype.kind in "iuf" and not fills:
        fills = [DEFAULT_FILLS.get(values.dtype.newbyteorder("="), np.nan)]
    missing = np.isin(values, fills) if fills else np.zeros(values.shape, bool)
    return missing | (values != values) if values.dtype.kind == "f" else missing


def _texts(values: NDArray[Any], n_dims: int) -> NDArray[Any]:
    """Texts for each fragment, also out of arrays of characters; or one for all of them."""
    if values.dtype == np.dtype("S1") and values.ndim in (1, n_dims + 1) and values.size:
        joined = [b"".join(row.tolist()) for row in values.reshape(-1, values.shape[-1])]
        values = np.array(joined, object).reshape(values.shape[:-1])
    texts = [
        (text.decode(errors="replace") if isinstance(text, bytes) else str(text)).rstrip("\0 ")
        for text in values.reshape(-1).tolist()
    ]
    return np.array(texts, object).reshape(values.shape)


def _misfit(
    name: str, shape: tuple[int, ...], counts: tuple[int, ...], place: Place
) -> SourceFormatError:
    return SourceFormatError(f"{name} of shape {shape} for {counts} fragments of the map", place)


# Fragments at their places, in the units of the variable: they go through the same rules of drift
# as files, and elements that no fragment holds are missing

_UNITS = ("units", "calendar")


@dataclass(frozen=True, eq=False)
class Fragment:
    """A part of an aggregation variable.

    Attributes
    ----------
    array
        What it holds, with the dimensions of the variable, in their order.
    corner
        Where its first element is along each dimension.
    """

    array: VirtualArray
    corner: tuple[int, ...]
    name: str


def combine_fragments(
    path: str,
    attrs: Mapping[str, Any],
    shape: Sequence[int],
    fragments: Sequence[Fragment],
    *,
    read: Read,
    options: CombineOptions,
) -> Combination:
    """Put fragments at their places by the rules of drift; what none of them holds is missing.

    Parameters
    ----------
    attrs
        Attributes of the variable. Fragments are converted to its units, and its fill value applies
        to fragments without one.
    fragments
        One or more, which do not overlap, with their corners.

    Returns
    -------
    Combination
        A group with the one array, by its path.
    """
    first = fragments[0].array
    arrays = [_with_defaults(fragment.array, attrs) for fragment in fragments]
    wanted = {**arrays[0].attrs, **{name: attrs[name] for name in _UNITS if name in attrs}}
    # The rules bring all inputs on the units of the first one, which is the variable itself.
    reference = missing_array(
        (0,) * first.ndim, first.dtype, dims=first.dims, fill_value=first.fill_value, attrs=wanted
    )
    names = ["the aggregation variable", *(fragment.name for fragment in fragments)]
    notes = Notes(options, [VirtualGroup()] * len(names), names)
    files = range(1, len(names))
    runs = {
        dim: Runs.whole(files, [fragment.corner[axis] for fragment in fragments], extent)
        for axis, (dim, extent) in enumerate(zip(first.dims, shape, strict=True))
    }
    placement = Placement(first.dims, runs, pads=True)
    column = Column(path, path, range(len(names)), [reference, *arrays])
    task = Task(placement, notes, Values(read))
    combined, _, _ = combine_columns({path: column}, "", task, Inherited())
    report, problems = notes.report(), tuple(notes.problems)
    if problems or path not in combined:
        return Combination(None, report, problems)
    array = combined[path]
    shown = array.with_changes(attrs=_shown_attributes(attrs, array.attrs))
    return Combination(VirtualGroup({path: shown}), report)


def _with_defaults(array: VirtualArray, attrs: Mapping[str, Any]) -> VirtualArray:
    """A fragment that says nothing of units or missing values is as the variable says."""
    added: dict[str, Any] = {}
    if "units" not in array.attrs:
        added = {name: attrs[name] for name in _UNITS if name in attrs}
    fill = attrs.get("_FillValue")
    declares = {"_FillValue", "missing_value"} & set(array.attrs)
    if fill is not None and not declares and np.asarray(fill).dtype == array.dtype:
        added["_FillValue"] = fill
    return array.with_changes(attrs={**added, **array.attrs}) if added else array


def _shown_attributes(attrs: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The variable's attributes, but for those that say how stored numbers are to be read.

    A variable that says a scale itself has fragments without one: their values are packed numbers.
    """
    told = {name: found[name] for name in (*PACKING_ATTRIBUTES, *_UNITS) if name in found}
    return {
        **{name: value for name, value in attrs.items() if name not in ("_FillValue", *_UNITS)},
        **told,
    }
