"""Parts of file names as labels: fields, tiles, wells of plates.

`name_parts` compares the names of files and finds the parts that differ. `labelled_tiles` and
`combine_plate_files` use the labels that a pattern finds.
"""

from __future__ import annotations

import os
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from gridref.api.layout.labels import LabelPattern
from gridref.api.layout.sources import label_values, with_label
from gridref.errors import InvalidRequestError, Place
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.reshaping import squeeze

# Parts that differ: numbers, dates, and a pattern that finds them

_FORMATS: Mapping[int, Sequence[tuple[str, ...]]] = {
    4: [("%Y",)],
    6: [("%Y%m",), ("%y%m%d", "%d%m%y")],
    7: [("%Y-%m", "%Y_%m", "%Y.%m", "%Y%j")],
    8: [("%Y%m%d", "%d%m%Y")],
    10: [("%Y%m%d%H", "%Y-%m-%d", "%Y_%m_%d", "%Y.%m.%d")],
    12: [("%Y%m%d%H%M",)],
    13: [("%Y-%m-%dT%H", "%Y%m%dT%H%M")],
    14: [("%Y%m%d%H%M%S",)],
    15: [("%Y%m%dT%H%M%S",)],
    16: [("%Y%m%d%H%M%S%f",)],
}
"""Formats of dates by the length of their text; the first list with a match counts."""

_NAMES = {"m": "member", "mem": "member", "ens": "member", "r": "member"}
"""What letters before a number stand for."""

_WORDS = {"ens": "member", "lev": "level"}
_WORDS |= {w: w for w in ("member", "realization", "sweep", "level", "step", "orbit", "run")}
"""Words that name the number behind them, as in ``sweep_0``."""

_TELLING = {*_WORDS, *_WORDS.values(), "el", "elev", "elevation", "elangle", "tilt", "scan"}
_TELLING |= {"band", "channel", "ch"}
"""Names of parts that say what a file holds, and not only which one it is."""

_BAND = re.compile(
    r"(?:SR_|ST_)?B\d{1,2}A?|VV|VH|HH|HV|TCI|SCL|AOT|WVP|QA_PIXEL|nir|red|green|blue|swir\d{2}"
    r"|rededge\d",
    re.IGNORECASE,
)
"""Names of bands and layers as Sentinel, Landsat and their catalogs write them."""

_YEARS = range(1850, 2151)
_CUT_DATE = re.compile(r"(?<!\d)\d{4}([_.])(?:0[1-9]|1[0-2])(?:\1(?:[0-2]\d|3[01]))?(?!\d)")
"""A date whose separators are those between parts."""
_KEPT = str.maketrans("_.", "\0\1")
_BACK = str.maketrans("\0\1", "_.")


@dataclass(frozen=True)
class NameField:
    """A part of file names that differs.

    Attributes
    ----------
    name
        What it is called: after letters before it, or ``time`` for a date.
    kind
        Kind of field in a `LabelPattern`; empty for a word.
    values
        Its text in each file.
    part
        Number of the part, and what stands before and behind the field in it.
    """

    name: str
    kind: str
    values: tuple[str, ...]
    part: tuple[int, str, str]

    @property
    def is_time(self) -> bool:
        """Whether it is a date."""
        return "%" in self.kind


@dataclass(frozen=True)
class NameParts:
    """The parts of names, cut at ``_``, ``.`` and ``/``, that have them at the same places.

    A date like ``2020_01_31`` is one part. Words are cut at ``-`` where only digits differ between
    these, one date at most.

    Attributes
    ----------
    parts
        The parts of the first name, separators among them.
    fields
        Those that differ; more than one for a part whose date can be read in several ways.
    """

    parts: tuple[str, ...]
    fields: tuple[NameField, ...]

    def pattern(self, fields: Sequence[NameField]) -> str:
        """The pattern that finds some of the fields."""
        chosen = {field.part[0]: field for field in fields}
        differing = {field.part[0]: field for field in self.fields}
        written = []
        for number, part in enumerate(self.parts):
            field = chosen.get(number)
            if field is not None:
                before, behind = field.part[1:]
                kind = f":{field.kind}" if field.kind else ""
                written.append(f"{before}{{{field.name}{kind}}}{behind}")
            elif number in differing:
                written.append("{_}")
            else:
                written.append(part)
        return "".join(written)

    def bands(self, name: str) -> NameField | None:
        """The part that names a band, as a field; None where none does, or several do."""
        found = {}
        for field in self.fields:
            number, before, behind = field.part
            texts = tuple(before + value + behind for value in field.values)
            if all(map(_BAND.fullmatch, texts)):
                found[number] = NameField(name, "", texts, (number, "", ""))
        return next(iter(found.values())) if len(found) == 1 else None


def name_parts(files: Sequence[str]) -> NameParts | None:
    """The parts of the names of files; None where they are not cut alike."""
    shared = _common_start([os.path.dirname(file) + "/" for file in files])
    folder = shared[: shared.rfind("/") + 1]
    texts = [file[len(folder) :] for file in files]
    cut = [_cut(text) for text in texts]
    if len({(len(parts), *parts[1::2]) for parts in cut}) != 1:
        return None
    for number in reversed(range(0, len(cut[0]), 2)):
        for parts, pieces in zip(cut, _at_dashes([own[number] for own in cut]), strict=True):
            parts[number : number + 1] = pieces
    fields: list[NameField] = []
    for number in range(0, len(cut[0]), 2):
        column = tuple(parts[number] for parts in cut)
        if len(set(column)) > 1:
            before = {parts[number - 2].lower() for parts in cut} if number else set()
            named = _WORDS.get(before.pop()) if len(before) == 1 else None
            fields += _fields(number, column, named or f"part{len(fields) + 1}")
    return NameParts(tuple(cut[0]), tuple(fields))


def whole_names(files: Sequence[str]) -> NameParts | None:
    """The names as one part, without what they have in common at both ends; None if one is empty.

    What they have in common is cut where parts are.
    """
    names = [os.path.basename(file) for file in files]
    head = re.match(r".*[_./]|", _common_start(names))
    tail = re.search(r"[_./][^_./]*$|$", _common_start([name[::-1] for name in names])[::-1])
    start, end = head[0] if head else "", tail[0] if tail else ""
    inner = tuple(name[len(start) : len(name) - len(end)] for name in names)
    if len(set(inner)) < len(files) or not all(inner):
        return None
    return NameParts((start, inner[0], end), (NameField("part1", "s", inner, (1, "", "")),))


def _cut(text: str) -> list[str]:
    """The parts of a name and, between them, what separates them."""
    kept = _CUT_DATE.sub(lambda date: date[0].translate(_KEPT), text)
    return [part.translate(_BACK) for part in re.split(r"([_./]+)", kept)]


def _at_dashes(column: Sequence[str]) -> list[list[str]]:
    """A part of each name, cut at dashes if only digits, and one date at most, differ there."""
    cut = [re.split("(-)", text) for text in column]
    if len(set(map(len, cut))) == 1 and not _fields(0, tuple(column), "")[0].kind:
        pieces = [own for own in zip(*cut, strict=True) if len(set(own)) > 1]
        n_dates = sum(bool(_date_formats(own)) for own in pieces)
        if pieces and n_dates < 2 and all(text.isdecimal() for own in pieces for text in own):
            return cut
    return [[text] for text in column]


def _fields(number: int, column: tuple[str, ...], unnamed: str) -> list[NameField]:
    """What a part that differs can be: a date in one way or several, a number, or a word.

    `unnamed` is what it is called where its own letters say nothing.
    """
    start, end = _common_start(column), _common_start([text[::-1] for text in column])[::-1]
    tail = end[len(end.rstrip(string.ascii_letters)) :]
    for head in dict.fromkeys(["", re.sub(r"[\d-]+$", "", start)]):
        inner = tuple(text[len(head) : len(text) - len(tail)] for text in column)
        kinds = _date_formats(inner)
        if kinds:
            return [NameField("time", kind, inner, (number, head, tail)) for kind in kinds]
    before = re.sub(r"\d+$", "", start)
    behind = re.sub(r"^\d+", "", end) if re.search(r"\D", end) else ""
    behind = behind if all(len(before) + len(behind) < len(text) for text in column) else ""
    inner = tuple(text[len(before) : len(text) - len(behind)] for text in column)
    letters = re.sub(r"[^A-Za-z]", "", before).lower()
    name = _NAMES.get(letters, letters if len(letters) > 1 else unnamed)
    if all(map(str.isdecimal, inner)):
        return [NameField(name, "d", inner, (number, before, behind))]
    return [NameField(unnamed, "", column, (number, "", ""))]


def _common_start(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)
    pairs = enumerate(zip(first, last, strict=False))
    end = next((n for n, (one, other) in pairs if one != other), min(len(first), len(last)))
    return first[:end]


def _date_formats(texts: Sequence[str]) -> list[str]:
    """The formats by which all texts are dates."""
    if len(set(map(len, texts))) > 1:
        return []
    for formats in _FORMATS.get(len(texts[0]), ()):
        fitting = [kind for kind in formats if _are_dates(texts, kind)]
        if fitting:
            return fitting
    return []


def _are_dates(texts: Sequence[str], kind: str) -> bool:
    try:
        moments = [datetime.strptime(text, kind) for text in texts]  # noqa: DTZ007 - no zone
    except ValueError:
        return False
    return all(moment.year in _YEARS for moment in moments)


def finds_all(pattern: str, files: Sequence[str], fields: Sequence[NameField]) -> bool:
    """Whether a pattern finds the fields where they are in every name."""
    try:
        found = LabelPattern.parse(pattern).of_names(files)
    except InvalidRequestError:
        return False
    return all(
        len({own[field.name] for own in found}) == len(set(field.values)) for field in fields
    )


def with_telling_parts(pattern: str, files: Sequence[str], *, known: bool = False) -> str:
    """Replace each ``{_}`` that hides a part shared by files by a label: ``{_sweep:d}``.

    That is a part that several files have, and others not, or whose name says what it is. Parts of
    the pattern's own labels, as the year in a folder, hide nothing. Nor do dates and numbers
    without a name where the labels do not tell all files apart: these are placed by labels that
    they hold, which such parts only repeat.

    Parameters
    ----------
    known
        Whether only parts with a known name count, and only where files share them.
    """
    pieces = pattern.split("{_}")
    if len(pieces) == 1:
        return pattern
    numbered = [f"{piece}{{_{number}}}" for number, piece in enumerate(pieces[:-1])]
    found = LabelPattern.parse("".join([*numbered, pieces[-1]])).texts_of_names(files)
    if found is None:
        return pattern
    dims = [name for name in found[0] if not re.fullmatch(r"_\d+", name)]
    labels = ["".join(re.findall(r"\w+", " ".join(own[dim] for dim in dims))) for own in found]
    are_apart = len(set(labels)) == len(files)
    written, used = [pieces[0]], set(dims)
    for number, piece in enumerate(pieces[1:]):
        column = tuple(own[f"_{number}"] for own in found)
        part = None
        if not all(value in label for value, label in zip(column, labels, strict=True)):
            part = _telling(pieces[number], column, number, known=known)
        repeats = not are_apart and part is not None and part.kind and part.name.startswith("part")
        if part is None or part.name in used or repeats:
            written += ["{_}", piece]
            continue
        used.add(part.name)
        kind = f":{part.kind}" if part.kind else ""
        written += [f"{part.part[1]}{{_{part.name}{kind}}}{part.part[2]}", piece]
    return "".join(written)


def _telling(before: str, column: tuple[str, ...], number: int, *, known: bool) -> NameField | None:
    """A hidden part as a field, if it means something; `before` is what stands before it."""
    n_values = len(set(column))
    if n_values == 1:
        return None
    word = re.search(r"([A-Za-z]+)[-_.]?$", before)
    named = word[1].lower() if word and word[1].lower() in _TELLING else None
    unnamed = _WORDS.get(named, named) if named else f"part{number + 1}"
    part = _fields(number, column, unnamed)[0]
    if all(map(_BAND.fullmatch, column)):
        part = NameField("band", "", column, (number, "", ""))
    is_named = part.name in _TELLING
    if part.is_time:
        part = replace(part, name=f"part{number + 1}")
    shared = n_values < len(column)
    return part if (is_named and shared) or (not known and (is_named or shared)) else None


# Labels of tiles: dates and bands as dimensions, or bands as variables

VARIABLE = "variable"
"""The field of a pattern that names a tile's variable."""
_BAND_DIM, _MASK = "band", "mask"


def labelled_tiles(
    files: Sequence[str],
    groups: list[VirtualGroup],
    found: Sequence[Mapping[str, Any]],
    pattern: LabelPattern,
) -> list[VirtualGroup]:
    """Tiles with the labels that a pattern found; these go before coordinates of their own.

    Parameters
    ----------
    found
        Labels of each by field. What the field ``variable`` says becomes the name of its variable.

    Raises
    ------
    InvalidRequestError
        If a tile that is to be one variable holds several.
    """
    if VARIABLE in pattern.fields:
        groups = [
            _as_variable(group, str(own[VARIABLE]), file)
            for file, group, own in zip(files, groups, found, strict=True)
        ]
    for dim in pattern.fields:
        if dim != VARIABLE:
            values, _ = label_values([own[dim] for own in found])
            attrs = pattern.attrs(dim)
            groups = [with_label(g, dim, v, attrs) for g, v in zip(groups, values, strict=True)]
    return groups


def _as_variable(group: VirtualGroup, name: str, file: str) -> VirtualGroup:
    """A tile whose one variable has that name, without a dimension of one band."""
    held = [
        key for key, array in group.arrays.items() if "grid_mapping" in array.attrs and key != _MASK
    ]
    if len(held) != 1:
        raise InvalidRequestError(
            f"its name says that it holds the one variable {name!r}, but it holds"
            f" {', '.join(held) or 'no georeferenced variable'}",
            Place(source=file),
        )
    return _renamed(group, {held[0]: name, _MASK: f"{name}_{_MASK}"})


def _renamed(group: VirtualGroup, names: Mapping[str, str]) -> VirtualGroup:
    arrays = {
        names.get(key, key): _without_band(array) if key in names else array
        for key, array in group.arrays.items()
    }
    if not any(_BAND_DIM in array.dims and array.ndim > 1 for array in arrays.values()):
        arrays.pop(_BAND_DIM, None)
    groups = {key: _renamed(below, names) for key, below in group.groups.items()}
    attrs = dict(group.attrs)
    pyramid = attrs.get("multiscales")
    if isinstance(pyramid, Mapping):
        levels = [_renamed_level(level, names) for level in pyramid.get("layout", [])]
        attrs["multiscales"] = {**pyramid, "layout": levels}
    return group.with_changes(arrays=arrays, groups=groups, attrs=attrs)


def _renamed_level(level: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The entry of a level, whose arrays have two axes now."""
    changed = dict(level)
    for key in ("asset", "derived_from"):
        path, slash, name = str(level.get(key, "")).rpartition("/")
        if name in names:
            changed[key] = f"{path}{slash}{names[name]}"
    if isinstance(level.get("transform"), Mapping):
        changed["transform"] = {key: list(v)[-2:] for key, v in level["transform"].items()}
    return changed


def _without_band(array: VirtualArray) -> VirtualArray:
    axis = array.dims.index(_BAND_DIM) if _BAND_DIM in array.dims else -1
    return squeeze(array, (axis,)) if axis >= 0 and array.shape[axis] == 1 else array
