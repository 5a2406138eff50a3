"""Parts of file names that differ: which count, which are dates, and a pattern that finds them."""

from __future__ import annotations

import os
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gridref.errors import InvalidRequestError
from gridref.workflows.layout.labels import LabelPattern

__all__ = ["NameField", "NameParts", "finds_all", "name_parts"]

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
}
"""Formats of dates by the length of their text; the first ones of which any fits are taken."""

_NAMES = {"m": "member", "mem": "member", "ens": "member", "r": "member"}
"""What letters before a number stand for."""

_WORDS = {"ens": "member", "lev": "level"}
_WORDS |= {w: w for w in ("member", "realization", "sweep", "level", "step", "orbit", "run")}
"""Words that name the number behind them, as in ``sweep_0``."""

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

    A date like ``2020_01_31`` is one part.

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
    fields: list[NameField] = []
    for number in range(0, len(cut[0]), 2):
        column = tuple(parts[number] for parts in cut)
        if len(set(column)) > 1:
            before = {parts[number - 2].lower() for parts in cut} if number else set()
            named = _WORDS.get(before.pop()) if len(before) == 1 else None
            fields += _fields(number, column, named or f"part{len(fields) + 1}")
    return NameParts(tuple(cut[0]), tuple(fields))


def _cut(text: str) -> list[str]:
    """The parts of a name and, between them, what separates them."""
    kept = _CUT_DATE.sub(lambda date: date[0].translate(_KEPT), text)
    return [part.translate(_BACK) for part in re.split(r"([_./]+)", kept)]


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
    """The ways in which all texts are dates."""
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
