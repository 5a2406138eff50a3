"""Give files their labels: from names, attributes, variables, a function or a constant.

A label is a number, a string or a time. It becomes a coordinate along a new dimension, or one of
length 1. Combining files along the dimension joins their labels.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gridref.api.layout.labels import Label, LabelPattern, duration_seconds
from gridref.combine.columns import label_text, source_name
from gridref.combine.options import Read
from gridref.combine.report import DriftReport
from gridref.errors import InvalidRequestError, Message, Option, Place
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.conventions import is_time_like, numpy_time_attributes

# Groups with a label


def with_label(
    group: VirtualGroup, dim: str, label: Any, attrs: Mapping[str, Any] | None = None
) -> VirtualGroup:
    """A group with its label as a coordinate, which stacking lays along the new dimension.

    Parameters
    ----------
    dim
        Name of the dimension; its length is 1 if the group has it.
    label
        A number or a string.

    Raises
    ------
    InvalidRequestError
        If the group has the dimension already, of another length than 1.
    """
    has_dim = any(dim in array.dims for array in _checked(group, dim).arrays.values())
    values = np.asarray(label).reshape((1,) if has_dim else ())
    coordinate = VirtualArray.from_numpy(values, (dim,) if has_dim else (), attrs)
    return group.with_changes(arrays={**group.arrays, dim: coordinate})


def with_labels(
    groups: Iterable[VirtualGroup], dim: str | Sequence[str], labels: ArrayLike
) -> Iterator[VirtualGroup]:
    """Groups that can be stacked along a new dimension, with a label each.

    Parameters
    ----------
    groups
        The inputs. They may have the dimension with length 1.
    labels
        One label for each input: numbers, strings or ``datetime64``. They become the coordinate of
        the dimension; times are kept as integers with CF ``units`` (CF conventions, 4.4).

    Raises
    ------
    InvalidRequestError
        For an input that has the dimension with another length than 1, or labels that are not one
        for each input.
    """
    if not isinstance(dim, str):
        raise InvalidRequestError(f"labels need the name of one dimension, got {dim!r}")
    return _one_each(groups, dim, *label_values(labels))


def stackable(groups: Iterable[VirtualGroup], dim: str) -> Iterator[VirtualGroup]:
    """Groups that can be stacked along a new dimension, without labels.

    Raises
    ------
    InvalidRequestError
        For an input that has the dimension with another length than 1.
    """
    return (_checked(group, dim) for group in groups)


def _checked(group: VirtualGroup, dim: str) -> VirtualGroup:
    """The group, which has no dimension of that name but of length 1."""
    for name, array in group.arrays.items():
        if dim in array.dims and (extent := array.sizes[dim]) != 1:
            raise InvalidRequestError(
                Message(
                    f"it already has a dimension {dim!r} of length {extent}, and stacking makes a"
                    " new one: choose another name, or concatenate along the existing one with ",
                    Option("concat_dim", dim),
                ),
                Place(source_name(group), name),
            )
    return group


def label_values(labels: ArrayLike) -> tuple[NDArray[Any], dict[str, str]]:
    """Labels as stored, and the attributes of their coordinate."""
    values = np.asarray(labels)
    if values.dtype == object:
        values = _of_objects(values.tolist())
    if values.ndim != 1 or values.dtype.kind not in "biufUSM":
        raise InvalidRequestError(
            f"labels must be a sequence of numbers, strings or times, got {values.dtype} of shape"
            f" {values.shape}"
        )
    if values.dtype.kind != "M":
        return values, {}
    if np.isnat(values).any():
        raise InvalidRequestError("labels must not contain NaT")
    attrs = numpy_time_attributes(values.dtype)
    if attrs is None:
        unit, _ = np.datetime_data(values.dtype)
        values = _in_unit(values, "D" if unit in ("Y", "M", "W") else "ns")
        attrs = numpy_time_attributes(values.dtype)
    assert attrs is not None
    return values.astype(np.int64), attrs


def _in_unit(values: NDArray[Any], unit: str) -> NDArray[Any]:
    """The same times in another unit."""
    try:
        found = values.astype(f"M8[{unit}]")
    except OverflowError:
        found = None
    if found is None or (found != values).any():
        raise InvalidRequestError(f"times of {values.dtype} that {unit} cannot count exactly")
    return found


def _of_objects(values: Any) -> NDArray[Any]:
    """Labels that are objects of Python: numbers or texts, or times as ``datetime64``."""
    held = values if isinstance(values, list) else [values]
    are_plain = [isinstance(own, int | float | str | bytes | np.generic) for own in held]
    if all(are_plain):
        return np.asarray(values)
    of_pandas = [own.to_datetime64() for own in held if hasattr(own, "to_datetime64")]
    whole = of_pandas if len(of_pandas) == len(held) else values
    try:
        if any(are_plain):
            raise TypeError("they are of several kinds")
        return np.asarray(whole, "M8[ns]" if of_pandas else "M8[us]")
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"labels must be numbers, strings or times: {error}") from error


def _one_each(
    groups: Iterable[VirtualGroup], dim: str, labels: NDArray[Any], attrs: Mapping[str, str]
) -> Iterator[VirtualGroup]:
    """Each group with its label."""
    for number, (group, label) in enumerate(itertools.zip_longest(groups, labels)):
        if label is None or group is None:
            inputs = "more inputs" if label is None else f"{number} inputs"
            raise InvalidRequestError(
                f"give one label for each input: got {len(labels)} for {inputs}"
            )
        yield with_label(group, dim, label, attrs)


# Labels of files, from a pattern or other sources

REPLACED, KEPT = "label-replaced", "label-kept"
"""Causes of drifts: a label contradicts a coordinate of the file, and takes its place or not."""
_ANSWERS = {
    REPLACED: "the labels take the place of the coordinate in the files",
    KEPT: "the coordinate in the files is kept",
}

LabelSource = str | Callable[[str], Any]
"""``"attribute:NAME"``, ``"variable:NAME"``, ``"constant:VALUE"``, ``"column:NAME"`` of a table,
``"name:PATTERN"`` of variables or a function of the address."""
LabelSources = Mapping[str, LabelSource] | Callable[[str], Mapping[str, Any]]
"""A source for each dimension, or one function of the address that gives labels by dimension."""

type Scanned = Sequence[tuple[str, VirtualGroup]]
"""Addresses of files, and what was scanned of each."""

_SOURCES = ("attribute", "variable", "constant", "column")
_NUMBERS = ((int, r"[+-]?\d{1,18}"), (float, r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?"))
_MOMENT = re.compile(r"\d{4}-\d{2}(-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?)?)?(Z|\+00:00)?")


def check_labels(labels: LabelSources | None) -> None:
    """Check that sources of labels are known.

    Raises
    ------
    InvalidRequestError
        For the first that is not.
    """
    for dim, source in labels.items() if isinstance(labels, Mapping) else ():
        if callable(source):
            continue
        kind, separator, name = str(source).partition(":")
        if kind not in _SOURCES or not separator or not name:
            known = ", ".join(f"{kind}:..." for kind in (*_SOURCES, "name"))
            raise InvalidRequestError(
                f"labels of {dim!r} are from {known} or a function of the address, got {source!r}"
            )


def labelled_files(
    scanned: Scanned,
    pattern: LabelPattern | None,
    pattern_of: str | None,
    labels: LabelSources | None,
    noted: Contradicted,
) -> tuple[list[VirtualGroup], list[str]]:
    """Files with their labels as coordinates, where they have none of the dimension themselves.

    Parameters
    ----------
    scanned
        Addresses and groups.
    pattern, pattern_of
        What to find in names, or in an attribute of that name.
    noted
        Takes down where labels contradict coordinates of the files.

    Returns
    -------
    tuple
        The files' groups, and the dimensions that there are labels of.

    Raises
    ------
    InvalidRequestError
        For names that do not match, attributes and variables that are missing, and labels that are
        no numbers, texts or times.
    """
    files, groups = [file for file, _ in scanned], [group for _, group in scanned]
    before, dims = groups, list[str]()
    if pattern is not None:
        groups, dims = _by_pattern(scanned, pattern, pattern_of, noted), list(pattern.fields)
    if callable(labels):
        groups, found = _by_function(files, groups, labels, noted)
    else:
        found = list(labels or ())
        for dim, source in (labels or {}).items():
            groups = _by_source(list(zip(files, groups, strict=True)), dim, source, noted)
    dims = list(dict.fromkeys([*dims, *found]))
    return list(noted.noting(zip(before, groups, strict=True), dims)), dims


def found_labels(
    scanned: Scanned, pattern: LabelPattern, of: str | None
) -> tuple[list[VirtualGroup], list[dict[str, Label]]]:
    """The labels that a pattern finds in names, or in an attribute, which the groups then lack."""
    files, groups = [file for file, _ in scanned], [group for _, group in scanned]
    if of is None:
        return groups, pattern.of_names(files)
    found = pattern.of_attributes([group.attrs for group in groups], of, files)
    return [without_attribute(group, of) for group in groups], found


def _by_pattern(
    scanned: Scanned, pattern: LabelPattern, pattern_of: str | None, noted: Contradicted
) -> list[VirtualGroup]:
    groups, found = found_labels(scanned, pattern, pattern_of)
    for dim in pattern.fields:
        values, _ = label_values([own[dim] for own in found])
        known = pattern.n_known(dim)
        groups = _labelled(groups, dim, values, pattern.attrs(dim), noted, known)
    pairs = zip(groups, found, strict=True)
    return [with_labels_beside(group, own, pattern) for group, own in pairs]


def with_labels_beside(
    group: VirtualGroup, labels: Mapping[str, Any], pattern: LabelPattern
) -> VirtualGroup:
    """A group with labels that are no dimensions as scalar coordinates, if it has none itself."""
    names = [name for name in pattern.beside if name[1:] not in group.arrays]
    if not names:
        return group
    scalars = {
        name[1:]: VirtualArray.from_numpy(np.asarray(labels[name]), (), pattern.attrs(name))
        for name in names
    }
    known = str(group.attrs.get("coordinates", "")).split()
    attrs = {**group.attrs, "coordinates": " ".join([*known, *scalars])}
    return group.with_changes(arrays={**group.arrays, **scalars}, attrs=attrs)


def without_attribute(group: VirtualGroup, name: str) -> VirtualGroup:
    """A group that lacks an attribute."""
    return group.with_changes(
        attrs={key: value for key, value in group.attrs.items() if key != name}
    )


def _by_function(
    files: Sequence[str],
    groups: list[VirtualGroup],
    function: Callable[[str], Mapping[str, Any]],
    noted: Contradicted,
) -> tuple[list[VirtualGroup], list[str]]:
    found = [function(file) for file in files]
    for file, own in zip(files, found, strict=True):
        if not isinstance(own, Mapping) or own.keys() != found[0].keys():
            raise InvalidRequestError(
                f"the function returned the labels {own!r}: it must return a label for each "
                "dimension, and the same dimensions for all files",
                Place(source=file),
            )
    for dim in found[0]:
        groups = _labelled(groups, dim, *_stored([own[dim] for own in found]), noted)
    return groups, list(found[0])


def _by_source(
    scanned: Scanned, dim: str, source: LabelSource, noted: Contradicted
) -> list[VirtualGroup]:
    groups = [group for _, group in scanned]
    if callable(source):
        return _labelled(groups, dim, *_stored([source(file) for file, _ in scanned]), noted)
    kind, _, name = source.partition(":")
    if kind == "column":
        raise InvalidRequestError(
            Message(
                f"labels of {dim!r} from {source!r} need the table: ",
                Option("inventory", ..., "Labels(inventory=...)"),
            )
        )
    if kind == "constant":
        return _labelled(groups, dim, *_stored([name] * len(groups)), noted)
    if kind == "variable":
        return [_renamed(group, name, dim, file) for file, group in scanned]
    values = [_attribute(group, name, file) for file, group in scanned]
    return _labelled([without_attribute(g, name) for g in groups], dim, *_stored(values), noted)


def _attribute(group: VirtualGroup, name: str, file: str) -> Any:
    value = attribute_of(group, name)
    if value is None:
        known = ", ".join(group.attrs) or "none"
        raise InvalidRequestError(
            f"the file has no attribute {name!r}; it has {known}", Place(source=file)
        )
    if np.size(value) != 1:
        raise InvalidRequestError(f"the attribute {name!r} is no single value", Place(source=file))
    return np.asarray(value).reshape(()).item()


def attribute_of(group: VirtualGroup, name: str) -> Any:
    """An attribute of a group, or of one below it (``where/elangle``); None if there is none."""
    if name in group.attrs:
        return group.attrs[name]
    path, _, own_name = name.rpartition("/")
    held = dict(group.walk()).get(path)
    return None if held is None else held.attrs.get(own_name)


def _renamed(group: VirtualGroup, name: str, dim: str, file: str) -> VirtualGroup:
    """A group whose scalar variable has the dimension's name."""
    held = group.arrays.get(name)
    if held is None or held.size != 1:
        what = "has no variable" if held is None else "has more than one value of"
        raise InvalidRequestError(f"the file {what} {name!r}", Place(source=file))
    arrays = {dim if key == name else key: array for key, array in group.arrays.items()}
    return group.with_changes(arrays=arrays)


def _stored(values: Sequence[Any]) -> tuple[Any, dict[str, str]]:
    """Labels as stored, numbers and times read from texts, and their coordinate's attributes."""
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) < len(values):
        return label_values(values)
    for kind, form in _NUMBERS:
        if all(re.fullmatch(form, text) for text in texts):
            return np.asarray([kind(text) for text in texts]), {}
    if all(map(_MOMENT.fullmatch, texts)):
        plain = [text.removesuffix("Z").removesuffix("+00:00") for text in texts]
        finest = "ns" if any("." in text for text in plain) else "s"
        return label_values(np.array(plain, f"M8[{finest}]"))
    if all(re.fullmatch(r"P\S+", text) for text in texts):
        return np.asarray([duration_seconds(text) for text in texts]), {"units": "seconds"}
    return label_values(texts)


def _labelled(
    groups: Sequence[VirtualGroup],
    dim: str,
    values: Any,
    attrs: Mapping[str, str],
    noted: Contradicted,
    n_known: int | None = None,
) -> list[VirtualGroup]:
    """Groups with their labels; those that have a coordinate of the dimension keep it."""
    labelled = []
    for group, value in zip(groups, values, strict=True):
        own = group.arrays.get(dim)
        if own is not None and own.dims == (dim,):
            noted.keeping(group, dim, value, attrs, n_known)
            labelled.append(group)
        else:
            labelled.append(with_label(group, dim, value, attrs))
    return labelled


@dataclass(frozen=True, eq=False)
class Contradicted:
    """Coordinates of files that other labels contradict, noted while files are labelled."""

    read: Read
    cases: dict[tuple[str, str, str], dict[str, list[str]]] = field(default_factory=dict)

    def noting(
        self, pairs: Iterable[tuple[VirtualGroup, VirtualGroup]], dims: Sequence[str]
    ) -> Iterator[VirtualGroup]:
        """The labelled groups out of pairs of a group before and after it is labelled."""
        for before, after in pairs:
            for dim in dims:
                own, label = before.arrays.get(dim), after.arrays.get(dim)
                if own is None or label is None or own is label:
                    continue
                was, now = (self._text(array) for array in (own, label))
                if was != now:
                    self._note(REPLACED, dim, before, was, now)
            yield after

    def keeping(
        self,
        group: VirtualGroup,
        dim: str,
        label: Any,
        attrs: Mapping[str, Any],
        n_known: int | None,
    ) -> None:
        """Note the label of a group that keeps its own coordinate, if it is none of its labels.

        Parameters
        ----------
        label, attrs
            The label, and the attributes that it would have.
        n_known
            How much of a moment the label says, in characters of ISO 8601; None for all.
        """
        array = group.arrays[dim]
        if not array.size or array.dtype.kind not in "iufSUT":
            return
        own = self.read(array).reshape(-1).tolist()
        ends = min(own), max(own)
        first, last = (_in_words(array.dtype.type(end), array.attrs) for end in ends)
        now = _in_words(label, attrs)
        if is_time_like(array.attrs) and not _MOMENT.fullmatch(first):
            return  # of a calendar that cannot be compared here
        moments = [_whole_moment(text)[:n_known] for text in (first, now, last)]
        if all(map(_MOMENT.fullmatch, (first, now, last))):
            agrees = moments[0] <= moments[1] <= moments[2]
        elif array.dtype.kind in "iuf" and isinstance(label, np.number):
            agrees = ends[0] <= label <= ends[1]
        else:
            agrees = now in {_in_words(each, array.attrs) for each in own}
        if not agrees:
            self._note(KEPT, dim, group, first if first == last else f"{first} to {last}", now)

    def _note(self, cause: str, dim: str, group: VirtualGroup, was: str, now: str) -> None:
        case = f"{was} in the file, {now} as its label"
        cases = self.cases.setdefault((cause, dim, _ANSWERS[cause]), {})
        cases.setdefault(case, []).append(source_name(group) or "")

    def _text(self, array: VirtualArray) -> str:
        """The label that an array holds, in words; equal numbers of other types look the same."""
        if array.size != 1:
            return f"{array.size} values"
        (label,) = self.read(array).reshape(-1)
        return _in_words(label, array.attrs)

    def told(self, report: DriftReport) -> DriftReport:
        """The report, with a drift for each coordinate that labels contradict."""
        return report.with_noted(self.cases)


def _in_words(label: Any, attrs: Mapping[str, Any]) -> str:
    label = label.decode(errors="replace") if isinstance(label, bytes) else label
    text = label_text(label, attrs)
    return text.removesuffix(".0") if isinstance(label, np.floating) else text


def _whole_moment(text: str) -> str:
    return text if "T" in text else f"{text}T00:00:00"
