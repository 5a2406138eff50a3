"""References that are generated: ``gen`` of kerchunk's version 1."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.kerchunk.templates import Template, Value

__all__ = ["MAX_GENERATED", "generated"]

MAX_GENERATED = 10_000_000
"""Most references of one entry."""


def generated(
    entry: Any, templates: Mapping[str, Value]
) -> Iterator[tuple[str, str, int | None, int | None]]:
    """Key, address, offset and length of each reference that an entry stands for.

    Offset and length are None where the reference is all of a file.

    Raises
    ------
    SourceFormatError
        If the entry is not as the specification says.
    UnsupportedFeatureError
        For templates that are not read, and more than `MAX_GENERATED` references.
    """
    if not isinstance(entry, Mapping) or not isinstance(entry.get("dimensions"), Mapping):
        raise SourceFormatError("an entry of gen has no dimensions")
    if ("offset" in entry) != ("length" in entry):
        raise SourceFormatError("an entry of gen needs both offset and length, or neither")
    key, url = (_template(entry, name) for name in ("key", "url"))
    span = [_template(entry, name) for name in ("offset", "length") if name in entry]
    dimensions = {str(name): _values(values) for name, values in entry["dimensions"].items()}
    n_generated = math.prod(map(len, dimensions.values()))
    if n_generated > MAX_GENERATED:
        raise UnsupportedFeatureError(
            f"an entry of gen stands for {n_generated} references; at most {MAX_GENERATED} are read"
        )
    for values in itertools.product(*dimensions.values()):
        names = {**templates, **dict(zip(dimensions, values, strict=True))}
        offset, length = [_integer(template.render(names)) for template in span] or (None, None)
        yield key.render(names), url.render(names), offset, length


def _template(entry: Mapping[str, Any], name: str) -> Template:
    text = entry.get(name)
    if type(text) is int:
        return Template(str(text))
    if not isinstance(text, str):
        raise SourceFormatError(f"{name} of an entry of gen is {text!r}")
    return Template(text)


def _values(values: Any) -> Sequence[int | str]:
    if isinstance(values, list) and all(type(value) in (int, str) for value in values):
        return values
    if isinstance(values, Mapping) and "stop" in values:
        bounds = [values.get("start", 0), values["stop"], values.get("step", 1)]
        if all(type(bound) is int and abs(bound) < 2**62 for bound in bounds) and bounds[2]:
            return range(*bounds)
    raise SourceFormatError(f"a dimension of gen is {values!r}")


def _integer(text: str) -> int:
    if len(text) > 20 or not text.isascii() or not text.isdigit():
        raise SourceFormatError(f"an offset or length of gen is {text!r}")
    return int(text)
