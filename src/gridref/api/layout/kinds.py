"""Sort files into kinds, and name each kind.

Files are of one kind if they share variables along the same dimensions, on one grid, with times of
one calendar.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from gridref.api.layout.facts import Facts, Source
from gridref.api.layout.names import NameField, name_parts, whole_names

_PRODUCTS = ("realm", "ShortName", "short_name", "product", "product_name", "domain")
"""Attributes that name a product (CMIP, ECS), if they are the same in all files of a kind."""

_LONGEST_NAME = 64


def kinds_of(facts: Facts) -> list[int]:
    """The number of the kind of each file, counted in the order of the files.

    Where variables tell kinds apart, grids do so only if several files of a kind share each.
    """
    products = _products(facts)
    if len(set(products)) == 1:
        return _numbered(facts.grids)
    both = [*zip(products, facts.grids, strict=True)]
    n_files, n_grids = Counter(products), Counter(product for product, _ in set(both))
    return _numbered(
        [(product, grid if n_grids[product] < n_files[product] else None) for product, grid in both]
    )


def _products(facts: Facts) -> list[int]:
    """Numbers of files that share variables, and have these along the same dimensions."""
    held = [
        {path: array.dims for path, array in group.all_arrays().items()} for group in facts.groups
    ]
    firsts: list[int] = []
    found = []
    for number, own in enumerate(held):
        alike = (
            product
            for product, first in enumerate(firsts)
            if facts.variables[number] & facts.variables[first]
            and all(own[path] == held[first][path] for path in own.keys() & held[first].keys())
        )
        product = next(alike, len(firsts))
        if product == len(firsts):
            firsts.append(number)
        found.append(product)
    return found


def telling_kinds(facts: Facts, kinds: Sequence[int]) -> list[Source]:
    """Attributes and parts of names that have one value for each kind, the best known first."""
    parts = name_parts(facts.files) or whole_names(facts.files)
    products = facts.told_by({name: name for name in _PRODUCTS})
    names = [_with_letters(source) for source in facts.names(parts)]
    found = [*facts.attributes, *products, *names]
    told = [own for own in found if _numbered(own.values) == list(kinds)]
    return sorted(told, key=lambda source: source.rank)


def _with_letters(source: Source) -> Source:
    """A number in names with the letters before and behind it: ``d01``."""
    if source.field is None or source.field.kind != "d":
        return source
    number, before, behind = source.field.part
    values = tuple(f"{before}{value}{behind}" for value in source.values)
    field = NameField(source.dim, "", values, (number, "", ""))
    return replace(source, values=values, field=field)


def names_of_kinds(facts: Facts) -> list[str]:
    """The name of the kind of each file: what tells it, else its largest variable or its number."""
    kinds = kinds_of(facts)
    for source in telling_kinds(facts, kinds):
        if max(map(len, source.values)) <= _LONGEST_NAME:
            return [*source.values]
    largest = [_largest(facts, number) for number in range(len(facts.files))]
    if _numbered(largest) == kinds:
        return largest
    return [f"kind{kind + 1}" for kind in kinds]


def counted(names: Sequence[str]) -> str:
    """How many files are of each kind: ``ocean (5), ice (4)``."""
    return ", ".join(f"{name} ({n})" for name, n in Counter(names).most_common())


def _largest(facts: Facts, number: int) -> str:
    arrays = facts.groups[number].all_arrays()
    return max(arrays, key=lambda path: arrays[path].size, default="").rpartition("/")[2]


def _numbered(values: Sequence[object]) -> list[int]:
    known: dict[object, int] = {}
    return [known.setdefault(value, len(known)) for value in values]
