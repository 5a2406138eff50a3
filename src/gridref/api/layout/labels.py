"""Find labels in text: ``{model}_{member:d}_{time:%Y%m}.nc`` has three in a file's name."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

import numpy as np

from gridref.errors import InvalidRequestError, Place, some_of

Label = int | float | str

_FIELD = re.compile(r"\{(\w+)(?::([^{}]+))?\}")
_DIRECTIVES = {
    "Y": r"\d{4}",
    "m": r"\d{2}",
    "d": r"\d{2}",
    "H": r"\d{2}",
    "M": r"\d{2}",
    "S": r"\d{2}",
    "j": r"\d{3}",
    "y": r"\d{2}",
    "b": r"[A-Za-z]{3}",
    "B": r"[A-Za-z]+",
    "f": r"\d{1,6}",
}
"""Regular expressions of the directives of `datetime.strptime` that a pattern may have."""

_DURATION = r"P(?:\d+W)?(?:\d+D)?(?:T(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d+)?S)?)?"
_KINDS = {
    None: r"\d+|[^/_.]+",
    "d": r"[+-]?\d+",
    "f": r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?",
    "s": r"[^/]+",
    "duration": _DURATION,
}
"""Regular expressions of the kinds of fields that are no times."""

_AMOUNTS = re.compile(r"(\d+(?:\.\d+)?)([WDHMS])")
_SHORT_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(w|d|h|min|m|s)\s*")
_SECONDS = {"W": 604_800, "D": 86_400, "H": 3600, "M": 60, "S": 1}
_SHOWN_CHARACTERS, _SHOWN_FILES = 60, 5


@dataclass(frozen=True)
class LabelPattern:
    """What to find in a text: literal text and fields.

    Attributes
    ----------
    text
        The pattern as the user wrote it.
    expression
        Finds the fields' texts as its groups; several of one field where its parts stand apart.
    fields
        For each name what it is: ``"d"`` and other kinds, directives of `datetime.strptime` joined
        by blanks for a time, or None for whole numbers or words.
    beside
        The same for names that begin with an underscore: labels that are no dimension.
    """

    text: str
    expression: re.Pattern[str]
    fields: Mapping[str, str | None]
    beside: Mapping[str, str | None] = dataclasses.field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, only: str | None = None) -> Self:
        """Parse a pattern.

        Parameters
        ----------
        text
            Literal text and fields: ``{time:%Y%m%d}`` for times by the directives of
            `datetime.strptime`, ``{member:d}`` for an integer, ``{height:f}`` for a number,
            ``{step:duration}`` for a duration like ``PT6H`` (ISO 8601), ``{model:s}`` for any text
            without a slash, ``{model}`` for an integer or a word. A name that stands twice has the
            same text twice, or is a time in two parts; ``{_}`` is no label. ``{_sweep}`` is a label
            but no dimension: the coordinate ``sweep`` along the dimensions of the others. With a
            slash, a pattern is of the whole address, else of the file's name.
        only
            The one field that it has to have.
        """
        found = list(_FIELD.finditer(text))
        names = {field[1] for field in found if not field[1].startswith("_")}
        n_labels = sum(not field[1].startswith("_") for field in found)
        if only is not None and (n_labels != 1 or names != {only}):
            raise InvalidRequestError(
                f"a pattern has one field named like the dimension, as in {{{only}:%Y%m%d}};"
                f" got {text!r}"
            )
        if not names and {field[1] for field in found} <= {"_"}:
            raise InvalidRequestError(f"a pattern has fields, as in {{time:%Y%m%d}}; got {text!r}")
        fields: dict[str, str | None] = {}
        parts, end = [], 0
        for field in found:
            parts += [re.escape(text[end : field.start()]), _group(field[1], field[2], fields)]
            end = field.end()
        expression = re.compile("".join([*parts, re.escape(text[end:])]))
        beside = {name: kind for name, kind in fields.items() if name.startswith("_")}
        return cls(text, expression, {n: fields[n] for n in fields if n not in beside}, beside)

    def attrs(self, name: str) -> dict[str, str]:
        """CF attributes of a field's labels (CF conventions 1.11, section 4.4)."""
        kind = {**self.fields, **self.beside}[name]
        if kind == "duration":
            return {"units": "seconds"}
        if kind is None or "%" not in kind:
            return {}
        return {
            "standard_name": "time",
            "units": f"{'microseconds' if '%f' in kind else 'seconds'} since 1970-01-01",
            "calendar": "proleptic_gregorian",
        }

    def n_known(self, name: str) -> int | None:
        """How much of a moment a field says, in characters of ISO 8601; None for other fields."""
        codes = set(re.findall("%(.)", self.fields[name] or ""))
        lengths = {"fS": 19, "M": 16, "H": 13, "dj": 10, "mbB": 7, "yY": 4}
        return next((n for known, n in lengths.items() if codes & {*known}), None)

    def texts_of_names(self, urls: Sequence[str]) -> list[dict[str, str]] | None:
        """The fields' texts in files' names as they are; None where a name does not match."""
        matches = [self.expression.search(text) for text in self._named(urls)]
        known = [self._held(match) for match in matches if match is not None]
        return known if len(known) == len(urls) else None

    def _named(self, urls: Sequence[str]) -> list[str]:
        """The names, or with a slash in the pattern the addresses, of files."""
        return [url if "/" in self.text else os.path.basename(url.rstrip("/")) for url in urls]

    def of_names(self, urls: Sequence[str]) -> list[dict[str, Label]]:
        """The labels in files' names: as `of_texts`."""
        texts = self._named(urls)
        return self.of_texts(texts, [f"the file name {text!r}" for text in texts], urls)

    def of_attributes(
        self, attrs: Sequence[Mapping[str, Any]], name: str, urls: Sequence[str]
    ) -> list[dict[str, Label]]:
        """The labels in an attribute of each file: as `of_texts`."""
        texts, origins = [], []
        for own, url in zip(attrs, urls, strict=True):
            if name not in own:
                known = ", ".join(own) or "none"
                raise InvalidRequestError(
                    f"the file has no attribute {name!r}; it has {known}", Place(source=url)
                )
            texts.append(str(own[name]))
            shown = texts[-1][:_SHOWN_CHARACTERS]
            more = "..." if len(texts[-1]) > _SHOWN_CHARACTERS else ""
            origins.append(f"the attribute {name} = {shown + more!r}")
        return self.of_texts(texts, origins, urls)

    def of_texts(
        self, texts: Sequence[str], origins: Sequence[str], urls: Sequence[str]
    ) -> list[dict[str, Label]]:
        """The labels in texts.

        Parameters
        ----------
        origins, urls
            What each text is, and the file that it is about: for messages.

        Returns
        -------
        list of dict
            Labels by name, those of dimensions first. Times are seconds since 1970-01-01,
            microseconds where the pattern has ``%f``; durations are seconds. A field of any
            kind is text for all if it is for one.

        Raises
        ------
        InvalidRequestError
            For the texts that do not match, or hold no time: all of them.
        """
        matches = [self.expression.search(text) for text in texts]
        unlike = [number for number, match in enumerate(matches) if match is None]
        if unlike:
            shown = some_of(unlike, _SHOWN_FILES, origins.__getitem__)
            told = f"{shown} does not match {self.text!r}"
            if len(unlike) > 1:
                n_unlike = f"{len(unlike)} of {len(texts)}"
                told = f"{n_unlike} do not match {self.text!r}: {shown}"
            raise InvalidRequestError(told, Place(source=urls[unlike[0]]))
        held = [self._held(match) for match in matches if match is not None]
        words = {
            name
            for name, kind in self.fields.items()
            if kind is None and not all(own[name].isdecimal() for own in held)
        }
        return [
            {name: self._label(name, text, words, url) for name, text in own.items()}
            for own, url in zip(held, urls, strict=True)
        ]

    def _held(self, match: re.Match[str]) -> dict[str, str]:
        """Text of each field; of a time in parts, joined as its directives are."""
        held: dict[str, list[str]] = {name: [] for name in (*self.fields, *self.beside)}
        for group, text in match.groupdict().items():
            name = group.rpartition("__")[0]
            held[name].append(text)
        return {name: " ".join(texts) for name, texts in held.items()}

    def _label(self, name: str, text: str, words: set[str], url: str) -> Label:
        kind = {**self.fields, **self.beside}[name]
        if kind is not None and "%" in kind:
            return _time(text, kind, url)
        if kind == "duration":
            return duration_seconds(text)
        if kind == "f":
            return float(text)
        if kind is None and (name in words or name in self.beside):
            return text
        return int(text) if kind in ("d", None) else text


def _group(name: str, kind: str | None, fields: dict[str, str | None]) -> str:
    """The regular expression of a field, which is noted among those that are known."""
    is_time = kind is not None and "%" in kind
    if not is_time and kind not in _KINDS:
        known = ", ".join(repr(known) for known in _KINDS if known)
        raise InvalidRequestError(
            f"{{{name}:{kind}}}: a field is {known}, or a time by directives like %Y%m%d"
        )
    inner = _expression(str(kind)) if is_time else _KINDS[kind]
    if name == "_":
        return f"(?:{inner})"
    before = fields.get(name)
    if name in fields and not (is_time and before is not None and "%" in before):
        return f"(?P={name}__0)"
    fields[name] = kind if name not in fields else f"{before} {kind}"
    number = 0 if kind is None or before is None else before.count(" ") + 1
    return f"(?P<{name}__{number}>{inner})"


def _expression(time_format: str) -> str:
    parts = re.split(r"%(.)", time_format)
    unknown = [code for code in parts[1::2] if code not in _DIRECTIVES]
    if unknown:
        known = ", ".join(f"%{code}" for code in _DIRECTIVES)
        raise InvalidRequestError(f"%{unknown[0]} is not known in a pattern; known are {known}")
    return "".join(
        _DIRECTIVES[part] if number % 2 else re.escape(part) for number, part in enumerate(parts)
    )


def _time(text: str, time_format: str, url: str) -> int:
    try:
        moment = datetime.strptime(text, time_format)  # noqa: DTZ007 - no zone
    except ValueError as error:
        reason = f"{text!r} is no time: {error}"
        raise InvalidRequestError(reason, Place(source=url)) from error
    exact = np.datetime64(moment, "us" if "%f" in time_format else "s")
    return int(exact.astype(np.int64))


def duration_seconds(text: str, option: str = "") -> int | float:
    """Seconds of a duration like ``6h``, or of ISO 8601 like ``P1DT6H``; ``0`` is none.

    Raises
    ------
    InvalidRequestError
        For another text, naming the option: months and years are of no fixed length.
    """
    if text == "0":
        return 0
    short = _SHORT_DURATION.fullmatch(text)
    amounts = [(short[1], short[2][0].upper())] if short else _AMOUNTS.findall(text)
    if not amounts or not (short or re.fullmatch(_DURATION, text)):
        raise InvalidRequestError(
            (f"{option}={text!r}" if option else repr(text))
            + " is not a duration: write weeks, days, hours, minutes and seconds like 6h or PT6H"
        )
    total = sum(float(amount) * _SECONDS[unit] for amount, unit in amounts)
    return int(total) if total.is_integer() else total
