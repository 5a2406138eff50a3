"""Labels of a stack out of text: ``{time:%Y%m%d}`` finds the date in ``lst_20230114_v2.tif``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

import numpy as np

from gridref.errors import InvalidRequestError, Place

__all__ = ["LabelPattern"]

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
"""Regular expressions of the directives of `datetime.strptime` that may stand in a pattern."""

_SHOWN_CHARACTERS = 60


@dataclass(frozen=True)
class LabelPattern:
    """What to find in a text: literal text and one field.

    Attributes
    ----------
    text
        The pattern as the user wrote it.
    expression
        Finds the field's text as its first group.
    time_format
        Directives of `datetime.strptime`; None for an integer.
    """

    text: str
    expression: re.Pattern[str]
    time_format: str | None

    @classmethod
    def parse(cls, text: str, dim: str) -> Self:
        """Parse a pattern.

        Parameters
        ----------
        text
            Literal text and one field, ``{time:%Y%m%d}`` for times by the directives of
            `datetime.strptime`, or ``{version}`` for an integer.
        dim
            Name of the dimension, which is also the field's.

        Raises
        ------
        InvalidRequestError
            If it has no such field, or an unknown directive.
        """
        fields = list(_FIELD.finditer(text))
        if len(fields) != 1 or fields[0][1] != dim:
            raise InvalidRequestError(
                f"a pattern has one field named like the dimension, as in {{{dim}:%Y%m%d}};"
                f" got {text!r}"
            )
        field, time_format = fields[0], fields[0][2]
        inner = r"\d+" if time_format is None else _expression(time_format)
        before, behind = re.escape(text[: field.start()]), re.escape(text[field.end() :])
        return cls(text, re.compile(f"{before}({inner}){behind}"), time_format)

    @property
    def attrs(self) -> dict[str, str]:
        """CF attributes of the labels (CF conventions 1.11, section 4.4)."""
        if self.time_format is None:
            return {}
        return {
            "standard_name": "time",
            "units": f"{'microseconds' if self._is_fine else 'seconds'} since 1970-01-01",
            "calendar": "proleptic_gregorian",
        }

    @property
    def _is_fine(self) -> bool:
        return self.time_format is not None and "%f" in self.time_format

    def label_of_name(self, url: str) -> int:
        """The label in a file's name; see `label_in`."""
        name = os.path.basename(url.rstrip("/"))
        return self.label_in(name, f"the file name {name!r}", url)

    def label_of_attribute(self, attrs: Mapping[str, Any], name: str, url: str) -> int:
        """The label in an attribute of a file; see `label_in`."""
        if name not in attrs:
            known = ", ".join(attrs) or "none"
            raise InvalidRequestError(
                f"the file has no attribute {name!r}; it has {known}", Place(source=url)
            )
        text = str(attrs[name])
        shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
        return self.label_in(text, f"the attribute {name} = {shown!r}", url)

    def label_in(self, text: str, origin: str, url: str) -> int:
        """The label in a text.

        Parameters
        ----------
        text
            Where to look.
        origin
            What the text is, for messages.
        url
            The file that it is about, for messages.

        Returns
        -------
        int
            The integer; or seconds since 1970-01-01, microseconds where the pattern has ``%f``.

        Raises
        ------
        InvalidRequestError
            If the text does not match, or holds no time.
        """
        match = self.expression.search(text)
        if match is None:
            raise InvalidRequestError(f"{origin} does not match {self.text!r}", Place(source=url))
        if self.time_format is None:
            return int(match[1])
        try:
            moment = datetime.strptime(match[1], self.time_format)  # noqa: DTZ007 - no zone
        except ValueError as error:
            reason = f"{match[1]!r} is no time: {error}"
            raise InvalidRequestError(reason, Place(source=url)) from error
        return int(np.datetime64(moment, "us" if self._is_fine else "s").astype(np.int64))


def _expression(time_format: str) -> str:
    parts = re.split(r"%(.)", time_format)
    unknown = [code for code in parts[1::2] if code not in _DIRECTIVES]
    if unknown:
        known = ", ".join(f"%{code}" for code in _DIRECTIVES)
        raise InvalidRequestError(f"%{unknown[0]} is not known in a pattern; known are {known}")
    return "".join(
        _DIRECTIVES[part] if number % 2 else re.escape(part) for number, part in enumerate(parts)
    )
