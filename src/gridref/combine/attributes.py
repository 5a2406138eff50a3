"""Attributes of many inputs become those of one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gridref.combine.columns import Notes, attribute_key, value_text

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
    names = dict.fromkeys(name for attrs, _ in cases for name in attrs)
    for name in names:
        if name in resolved:
            continue
        values = _values(cases, name)
        if len(values) == 1:
            continue
        present = [text for key, (text, _) in values.items() if key is not None]
        shown = dict(values.values())
        if rule == "identical" or (rule == "no_conflicts" and len(present) > 1):
            notes.conflict(
                "attributes",
                path,
                f"attributes {name!r}",
                shown,
                "combine_attrs='override' allows it",
            )
        elif rule == "no_conflicts":
            first.setdefault(name, next(attrs[name] for attrs, _ in cases if name in attrs))
        elif rule == "drop_conflicts" and len(present) > 1:
            first.pop(name, None)
            notes.drift("attributes", path, _named(name, shown), f"{name} left out")
        elif rule == "drop_conflicts":
            first.setdefault(name, next(attrs[name] for attrs, _ in cases if name in attrs))
        else:
            notes.drift("attributes", path, _named(name, shown), "the first file's")
    return first


def _values(cases: Cases, name: str) -> dict[Any, tuple[str, list[int]]]:
    """Distinct values of one attribute as text, with their files; of key None where absent."""
    values: dict[Any, tuple[str, list[int]]] = {}
    for attrs, files in cases:
        key = attribute_key({name: attrs[name]}) if name in attrs else None
        text = value_text(attrs.get(name))
        values.setdefault(key, (text, []))[1].extend(files)
    return values


def _named(name: str, shown: Mapping[str, list[int]]) -> dict[str, list[int]]:
    return {f"{name} = {text}": files for text, files in shown.items()}
