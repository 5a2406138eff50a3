"""Combine the attributes of many inputs into one set.

The option for attributes says how. Values that differ are noted with their files.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gridref.combine.columns import Notes, text_beside, value_keys, value_text
from gridref.combine.report import Drift
from gridref.combine.rules.packing import PACKING_ATTRIBUTES
from gridref.errors import Message, Option
from gridref.model.times import duration_base, is_time_like

_MEANING = (*PACKING_ATTRIBUTES, "dtype", "coordinates", "bounds", "grid_mapping")
"""Attributes that say what stored numbers mean, or what variables are to each other.

xarray has them in the encoding, and drops none of them.
"""
_UNITS = ("units", "calendar")

Cases = Sequence[tuple[Mapping[str, Any], Sequence[int]]]


def combine_attributes(
    cases: Cases, path: str, notes: Notes, resolved: Collection[str] = ()
) -> dict[str, Any]:
    """Apply the rule for attributes and note what differs.

    Parameters
    ----------
    cases
        The distinct sets of attributes, each with the files that have it.
    path
        Path of the variable or group.
    resolved
        Names whose differences another rule has dealt with; the first set's value is taken.
    """
    first = dict(cases[0][0]) if cases else {}
    rule = notes.options.combine_attrs
    if rule == "drop":
        kept = {*resolved, *_MEANING, *(_UNITS if _counts_time(first) else ())}
        return {name: first[name] for name in first if name in kept}
    for name in dict.fromkeys(itertools.chain.from_iterable(attrs for attrs, _ in cases)):
        if name in resolved:
            continue
        values = _values(cases, name)
        if values is None:
            continue
        if rule == "identical" or (rule == "no_conflicts" and values.n_present > 1):
            notes.conflict(
                "attributes",
                path,
                f"attributes {name!r}",
                values.files,
                Message(
                    Option("combine_attrs", "override"),
                    " keeps the first file's and loses the others",
                ),
            )
        elif rule == "drop_conflicts" and values.n_present > 1:
            first.pop(name, None)
            notes.drift("attributes", path, values.named(name), f"{name} left out", values.n_values)
        elif rule in ("no_conflicts", "drop_conflicts"):
            first.setdefault(name, next(attrs[name] for attrs, _ in cases if name in attrs))
        else:
            notes.drift("attributes", path, values.named(name), "the first file's", values.n_values)
    return first


def _counts_time(attrs: Mapping[str, Any]) -> bool:
    """Whether numbers are times or durations in the units that the attributes say."""
    return is_time_like(attrs) or duration_base(attrs) is not None


@dataclass(frozen=True)
class _Values:
    """The values that one attribute has.

    Attributes
    ----------
    files
        Files by value, as text. Values beyond the first `Drift.MAX_CASES` are one case.
    n_values, n_present
        Number of distinct values, with and without "none" of files that lack the attribute.
    """

    files: dict[str, list[int]]
    n_values: int
    n_present: int

    def named(self, name: str) -> dict[str, list[int]]:
        """Files by value, with the attribute's name."""
        return {f"{name} = {text}": files for text, files in self.files.items()}


_ABSENT = object()


def _values(cases: Cases, name: str) -> _Values | None:
    """The values of one attribute with the files that have each; None where all files agree."""
    values = [attrs.get(name, _ABSENT) for attrs, _ in cases]
    keys = value_keys(values)
    if keys is None:
        return None
    by_key: dict[Any, tuple[Any, list[int]]] = {}
    others: list[int] = []
    for key, value, (_, files) in zip(keys, values, cases, strict=True):
        held = by_key.get(key)
        if held is not None:
            held[1].extend(files)
        elif len(by_key) < Drift.MAX_CASES:
            by_key[key] = (value, list(files))
        else:
            others.extend(files)
    n_values = len(set(keys))
    texts = _texts(by_key.values())
    if others:
        texts[f"{n_values - len(by_key)} more values"] = others
    return _Values(texts, n_values, n_values - any(value is _ABSENT for value in values))


def _texts(values: Iterable[tuple[Any, list[int]]]) -> dict[str, list[int]]:
    """Files by the text of their value; distinct values get distinct texts."""
    shown: dict[str, list[int]] = {}
    first_of: dict[str, Any] = {}
    for held_value, files in values:
        value = None if held_value is _ABSENT else held_value
        text = value_text(value)
        if text in first_of:
            text = text_beside(value, first_of[text])
        first_of.setdefault(text, value)
        shown.setdefault(text, []).extend(files)
    return shown
