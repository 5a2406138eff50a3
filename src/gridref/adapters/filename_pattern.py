"""Coordinates out of file names: ``{time:%Y%m%d}`` finds the date in ``lst_20230114_v2.tif``."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError, Place
from gridref.model.array import VirtualArray

__all__ = ["coordinate_of_labels", "labels_from_names"]

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


def labels_from_names(urls: Sequence[str], dim: str, pattern: str) -> NDArray[np.int64]:
    """Labels that stand in file names.

    Parameters
    ----------
    urls
        The files.
    dim
        Name of the dimension, which is also the field's name in the pattern.
    pattern
        What to find in the name: literal text and one field, ``{time:%Y%m%d}`` for times by the
        directives of `datetime.strptime`, or ``{version}`` for an integer.

    Returns
    -------
    numpy.ndarray
        int64 (number of files,): the integers, or seconds since 1970-01-01.

    Raises
    ------
    InvalidRequestError
        If the pattern has no such field, or a file name does not match it.
    """
    fields = list(_FIELD.finditer(pattern))
    if len(fields) != 1 or fields[0][1] != dim:
        raise InvalidRequestError(
            f"a pattern has one field named like the dimension, as in {{{dim}:%Y%m%d}};"
            f" got {pattern!r}"
        )
    field, time_format = fields[0], fields[0][2]
    inner = r"\d+" if time_format is None else _expression(time_format)
    expression = re.compile(
        f"{re.escape(pattern[: field.start()])}({inner}){re.escape(pattern[field.end() :])}"
    )
    return np.array([_value(expression, url, pattern, time_format) for url in urls], np.int64)


def coordinate_of_labels(labels: NDArray[np.int64], dim: str, pattern: str) -> VirtualArray:
    """The coordinate of a dimension, by CF conventions, from what `labels_from_names` found."""
    field = _FIELD.search(pattern)
    is_time = field is not None and field[2] is not None
    return VirtualArray.from_numpy(labels, (dim,), _TIME_ATTRIBUTES if is_time else {})


_TIME_ATTRIBUTES = {
    "standard_name": "time",
    "units": "seconds since 1970-01-01",
    "calendar": "proleptic_gregorian",
}


def _expression(time_format: str) -> str:
    parts = re.split(r"%(.)", time_format)
    unknown = [code for code in parts[1::2] if code not in _DIRECTIVES]
    if unknown:
        known = ", ".join(f"%{code}" for code in _DIRECTIVES)
        raise InvalidRequestError(f"%{unknown[0]} is not known in a pattern; known are {known}")
    return "".join(
        _DIRECTIVES[part] if number % 2 else re.escape(part) for number, part in enumerate(parts)
    )


def _value(expression: re.Pattern[str], url: str, pattern: str, time_format: str | None) -> int:
    name = os.path.basename(url)
    found = expression.search(name)
    if found is None:
        raise InvalidRequestError(f"the file name does not match {pattern!r}", Place(source=url))
    if time_format is None:
        return int(found[1])
    try:
        moment = datetime.strptime(found[1], time_format)  # noqa: DTZ007 - the calendar has no zone
    except ValueError as error:
        raise InvalidRequestError(f"{found[1]!r} is no time: {error}", Place(source=url)) from error
    return int(np.datetime64(moment, "s").astype(np.int64))
