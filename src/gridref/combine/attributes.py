"""Attributes of many inputs become those of one."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gridref.combine.columns import Notes, text_beside, value_keys, value_text

__all__ = ["combine_attributes"]

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
    notes
        Where drift is noted.
    resolved
        Names whose differences another rule has dealt with; the first set's value is taken.
    """
    first = dict(cases[0][0]) if cases else {}
    rule = notes.options.combine_attrs
    if rule == "drop":
        return {name: first[name] for name in first if name in resolved}
    for name in dict.fromkeys(itertools.chain.from_iterable(attrs for attrs, _ in cases)):
        if name in resolved:
            continue
        shown, n_present = _values(cases, name)
        if not shown:
            continue
        if rule == "identical" or (rule == "no_conflicts" and n_present > 1):
            notes.conflict(
                "attributes",
                path,
                f"attributes {name!r}",
                shown,
                "combine_attrs='override' allows it",
            )
        elif rule == "drop_conflicts" and n_present > 1:
            first.pop(name, None)
            notes.drift("attributes", path, _named(name, shown), f"{name} left out")
        elif rule in ("no_conflicts", "drop_conflicts"):
            first.setdefault(name, next(attrs[name] for attrs, _ in cases if name in attrs))
        else:
            notes.drift("attributes", path, _named(name, shown), "the first file's")
    return first


_ABSENT = object()


def _values(cases: Cases, name: str) -> tuple[dict[str, list[int]], int]:
    """Distinct values of one attribute as text, with their files, and how many there are.

    No texts where all are the same; files without the attribute count as a value in the texts only.
    """
    values = [attrs.get(name, _ABSENT) for attrs, _ in cases]
    keys = value_keys(values)
    if keys is None:
        return {}, 1
    found: dict[Any, tuple[Any, list[int]]] = {}
    for key, value, (_, files) in zip(keys, values, cases, strict=True):
        held = found.get(key)
        if held is None:
            held = found[key] = (value, [])
        held[1].extend(files)
    shown: dict[str, list[int]] = {}
    first_of: dict[str, Any] = {}
    for held_value, files in found.values():
        value = None if held_value is _ABSENT else held_value
        text = value_text(value)
        if text in first_of:
            text = text_beside(value, first_of[text])
        first_of.setdefault(text, value)
        shown.setdefault(text, []).extend(files)
    return shown, sum(value is not _ABSENT for value, _ in found.values())


def _named(name: str, shown: Mapping[str, list[int]]) -> dict[str, list[int]]:
    return {f"{name} = {text}": files for text, files in shown.items()}
