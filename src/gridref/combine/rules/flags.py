"""Unite names of numbers (enumerations, CF flags) that differ between inputs.

Where names agree and their numbers do not, a file's numbers become the first file's. Names that
only some files have are added. A number that would mean two things is a problem. Flags are the
attributes of CF conventions, section 3.5.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gridref.combine.columns import Column, Kind, Notes, value_text
from gridref.combine.rules.packing import Packing
from gridref.errors import Message, Option
from gridref.model.array import CF_FLAGS, Enumeration, VirtualArray
from gridref.model.encoding import Codec, Encoding

type _Names = dict[tuple[str, int], tuple[int, int | None]]
"""Number and bit mask by name; the integer tells apart names that one file repeats."""

_ATTRIBUTES = (*CF_FLAGS, "flag_masks")
_ORDERS = frozenset({"transpose", "reshape", "gridref.select", "gridref.reverse"})
"""Codecs that move elements and leave their numbers."""


def resolve_flags(columns: Mapping[str, Column], notes: Notes) -> dict[str, Column]:
    """Give the numbers of each variable one meaning in all files.

    The sources of names are enumerations and the attributes ``flag_values``, ``flag_masks`` and
    ``flag_meanings`` (CF conventions, section 3.5).
    """
    return {name: _resolved(column, notes) for name, column in columns.items()}


def _resolved(column: Column, notes: Notes) -> Column:
    stating = [kind for kind in column.kinds if _states_names(kind.array)]
    if len({_stated(kind.array) for kind in stating}) < 2:
        return column
    if notes.options.combine_attrs in ("no_conflicts", "identical"):
        return column  # differing attributes are a problem
    cases = _cases(column)
    if notes.options.combine_attrs in ("drop", "drop_conflicts"):
        notes.drift("flags", column.path, cases, "names left out")
        return column.map_kinds(lambda _, array: _without_names(array))
    united = _united(stating)
    if united is None:
        return _refused(column, cases, "one number would mean two things", notes)
    moves, flags, enumeration = united
    if any(moves.values()):
        if len(moves) < len(column.kinds):
            return _refused(column, cases, "some files do not name their numbers", notes)
        if not all(
            _can_move(column.arrays[position], moves[kind.members[0]])
            for kind in column.kinds
            for position in kind.members
        ):
            return _refused(column, cases, "these numbers cannot be changed", notes)
    known: dict[tuple[Encoding, tuple[tuple[int, int], ...]], Encoding] = {}

    def change(kind: Kind, array: VirtualArray) -> VirtualArray:
        moved = moves.get(kind.members[0])
        if moved is None:
            return array
        named = None if array.enumeration is None else enumeration
        return _renumbered(
            array.with_changes(attrs={**array.attrs, **flags}, enumeration=named), moved, known
        )

    done = "numbered as in the first file that has the name"
    notes.drift("flags", column.path, cases, done if any(moves.values()) else "names of all files")
    return column.map_kinds(change)


def _united(
    stating: Sequence[Kind],
) -> tuple[dict[int, dict[int, int]], dict[str, Any], Enumeration | None] | None:
    """Names of all files together; None where they contradict each other.

    Returns
    -------
    tuple or None
        For the first member of each kind, which of its numbers become which others; the attributes
        and the enumeration of the result.
    """
    moves: dict[int, dict[int, int]] = {}
    enumeration = next(filter(None, (kind.array.enumeration for kind in stating)), None)
    attrs = stating[0].array.attrs
    flags = {name: attrs[name] for name in _ATTRIBUTES if name in attrs}
    for read in (_members, _flags):
        own = {kind.members[0]: read(kind.array) for kind in stating}
        if None in own.values() and read is _flags:
            return None
        stated = {member: names for member, names in own.items() if names is not None}
        target = _all_names(list(stated.values()))
        if target is None:
            return None
        for member, names in stated.items():
            moved = _moves(names, target)
            if moved is None or moves.setdefault(member, moved) != moved:
                return None
        if read is _members and enumeration is not None:
            members = tuple((name, number) for (name, _), (number, _) in target.items())
            enumeration = replace(enumeration, members=members)
        elif read is _flags and target != next(iter(stated.values())):
            flags |= _as_attributes(target, stating)
    return moves, flags, enumeration


def _states_names(array: VirtualArray) -> bool:
    return array.enumeration is not None or not array.attrs.keys().isdisjoint(_ATTRIBUTES)


def _stated(array: VirtualArray) -> tuple[frozenset[Any], ...]:
    """What an array says of names, in no order."""
    flags = _flags(array)
    given = {name: array.attrs[name] for name in _ATTRIBUTES if name in array.attrs}
    if flags is None:  # it cannot be understood, only compared
        said = frozenset((name, str(np.asarray(value).tolist())) for name, value in given.items())
        return said, frozenset()
    return frozenset(flags.items()), frozenset((_members(array) or {}).items())


def _members(array: VirtualArray) -> _Names | None:
    """Names of an enumeration."""
    if array.enumeration is None:
        return None
    return {(name, 0): (number, None) for name, number in array.enumeration.members}


def _flags(array: VirtualArray) -> _Names | None:
    """Names of the attributes, none without any; None where they do not fit each other."""
    values, meanings, masks = (array.attrs.get(name) for name in _ATTRIBUTES)
    if values is meanings is masks is None:
        return {}
    if not isinstance(meanings, str) or (values is None and masks is None):
        return None
    words = meanings.split()
    numbers = [_numbers(masks if values is None else values, len(words))]
    numbers += [[None] * len(words) if masks is None else _numbers(masks, len(words))]
    if None in numbers:
        return None
    seen: dict[str, itertools.count[int]] = {}
    keys = [(word, next(seen.setdefault(word, itertools.count()))) for word in words]
    return dict(zip(keys, zip(*numbers, strict=True), strict=True))


def _numbers(value: Any, n: int) -> list[int | None] | None:
    numbers = np.asarray(value).reshape(-1)
    if len(numbers) != n or numbers.dtype.kind not in "iuf" or (numbers % 1 != 0).any():
        return None
    return [int(number) for number in numbers.tolist()]


def _all_names(every: Sequence[_Names]) -> _Names | None:
    """Names of all files, with the number of the first that has each; None if numbers clash."""
    target: _Names = {}
    for names in every:
        taken = set(target.values())
        new = {name: number for name, number in names.items() if name not in target}
        if not taken.isdisjoint(new.values()):
            return None
        target |= new
    return target


def _moves(names: _Names, target: _Names) -> dict[int, int] | None:
    """Which of a file's numbers become which others; None where that would hide some.

    No two numbers become one: a number that the file does not name makes room for one that it does.
    """
    moved = {number: target[name] for name, number in names.items() if target[name] != number}
    if not moved:
        return {}
    if any(mask is not None for _, mask in (*names.values(), *target.values())):
        return None  # bits: a number may have several
    if len(set(names.values())) < len(names):
        return None  # two names of one number
    becomes = set(moved.values())
    displaced = sorted(becomes - set(names.values()))
    free = sorted(moved.keys() - becomes)
    if len(becomes) < len(moved) or (displaced and not set(free).isdisjoint(target.values())):
        return None
    moved |= dict(zip(displaced, free, strict=True))
    return {number: other for (number, _), (other, _) in moved.items()}


def _can_move(array: VirtualArray, moved: Mapping[int, int]) -> bool:
    """Whether stored numbers can be changed: they are the values, and none means "no data"."""
    if not moved:
        return True
    packing = Packing.of(array)
    if not packing.is_exact or packing.unsigned is not None or packing.fills & set(moved):
        return False
    return all(_fits(encoding, moved) for encoding in array.encodings)


def _fits(encoding: Encoding, moved: Collection[int]) -> bool:
    unpacking = encoding.unpacking
    if unpacking is not None and (
        unpacking.scale is not None
        or unpacking.offset is not None
        or unpacking.unsigned is not None
        or not set(unpacking.fill_values).isdisjoint(moved)
    ):
        return False
    if encoding.dtype.kind not in "iu":
        return False
    limits = np.iinfo(encoding.dtype)
    return limits.min <= min(moved) and max(moved) <= limits.max


def _renumbered(
    array: VirtualArray,
    moved: Mapping[int, int],
    known: dict[tuple[Encoding, tuple[tuple[int, int], ...]], Encoding],
) -> VirtualArray:
    """The array with other numbers, those of missing chunks included."""
    if not moved:
        return array
    pairs = tuple(sorted(moved.items()))
    for encoding in array.encodings:
        if (encoding, pairs) not in known:
            known[encoding, pairs] = _with_numbers(encoding, moved)
    encodings = tuple(known[encoding, pairs] for encoding in array.encodings)
    fill = array.fill_value
    return array.with_changes(
        encodings=encodings, fill_value=array.dtype.type(moved.get(fill.item(), fill))
    )


def _with_numbers(encoding: Encoding, moved: Mapping[int, int]) -> Encoding:
    pairs = [[number, moved[number]] for number in sorted(moved)]
    codecs = encoding.codecs
    at = next(k for k, codec in enumerate(codecs) if codec.name not in _ORDERS)
    codec = Codec.of("gridref.renumber", pairs=pairs)
    fill = encoding.fill
    if fill is not None:
        number = np.frombuffer(fill, encoding.dtype)[0].item()
        fill = encoding.dtype.type(moved.get(number, number)).tobytes()
    return replace(encoding, codecs=(*codecs[:at], codec, *codecs[at:]), fill=fill)


def _as_attributes(target: _Names, stating: Sequence[Kind]) -> dict[str, Any]:
    """The attributes that say names, in dtypes that hold those of all files."""
    numbers = zip(("flag_values", "flag_masks"), zip(*target.values(), strict=True), strict=True)
    made: dict[str, Any] = {}
    for name, column in numbers:
        given = [kind.array.attrs[name] for kind in stating if name in kind.array.attrs]
        if given:
            made[name] = np.array(column, np.result_type(*map(np.asarray, given)))
    return {**made, "flag_meanings": " ".join(name for name, _ in target)}


def _without_names(array: VirtualArray) -> VirtualArray:
    attrs = {name: value for name, value in array.attrs.items() if name not in _ATTRIBUTES}
    return array.with_changes(attrs=attrs, enumeration=None)


def _cases(column: Column) -> dict[str, list[int]]:
    """Files by the names that not all files give."""
    named = [set(named_numbers(kind.array)) for kind in column.kinds if _states_names(kind.array)]
    common = set.intersection(*named)
    return column.cases(
        lambda kind: (
            ", ".join(name for name in named_numbers(kind.array) if name not in common)
            or ("no further names" if _states_names(kind.array) else "no names")
        )
    )


def named_numbers(array: VirtualArray) -> list[str]:
    """Each number that an array has a name for, with the name, in words."""
    names = _flags(array) or _members(array)
    if names is None:  # what is stated cannot be understood
        return [
            f"{name} {value_text(array.attrs[name])}" for name in _ATTRIBUTES if name in array.attrs
        ]
    return [f"{number} is {name}" for (name, _), (number, _) in names.items()]


def _refused(column: Column, cases: dict[str, list[int]], why: str, notes: Notes) -> Column:
    advice = Message(
        f"{why}: combine alike files; ",
        Option("combine_attrs", "drop_conflicts"),
        " leaves the names out, and other attributes that differ",
    )
    notes.conflict("flags-differ", column.path, "names of its numbers", cases, advice)
    return column
