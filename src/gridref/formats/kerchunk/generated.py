"""References that are generated: ``gen`` of kerchunk's version 1."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.kerchunk.templates import Template, Value

__all__ = ["MAX_GENERATED", "generated"]

MAX_GENERATED = 1_000_000
"""Most references of all entries; 10,000,000 took minutes and 3 GB."""
MAX_TEXT_BYTES = 256 * 2**20
"""Of all keys and addresses that are generated."""


type Generated = tuple[str, str, int | None, int | None]
"""Key, address, offset and length; these are None where the reference is all of a file."""


def generated(entries: Sequence[Any], templates: Mapping[str, Value]) -> Iterator[Generated]:
    """Each reference that the entries of ``gen`` stand for.

    Raises
    ------
    SourceFormatError
        If an entry is not as the specification says.
    UnsupportedFeatureError
        For templates that are not read, and more than `MAX_GENERATED` references.
    """
    n_generated, n_bytes_left = 0, MAX_TEXT_BYTES
    for entry in entries:
        dimensions = _dimensions(entry)
        n_generated += math.prod(map(len, dimensions.values()))
        if n_generated > MAX_GENERATED:
            raise UnsupportedFeatureError(
                f"gen stands for {n_generated} references; at most {MAX_GENERATED} are read"
            )
        for each in _generated(entry, dimensions, templates):
            n_bytes_left -= len(each[0]) + len(each[1])
            if n_bytes_left < 0:
                raise UnsupportedFeatureError("gen stands for very long keys and addresses")
            yield each


def _dimensions(entry: Any) -> dict[str, Sequence[int | str]]:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("dimensions"), Mapping):
        raise SourceFormatError("an entry of gen has no dimensions")
    return {str(name): _values(values) for name, values in entry["dimensions"].items()}


def _generated(
    entry: Mapping[str, Any],
    dimensions: Mapping[str, Sequence[int | str]],
    templates: Mapping[str, Value],
) -> Iterator[Generated]:
    if ("offset" in entry) != ("length" in entry):
        raise SourceFormatError("an entry of gen needs both offset and length, or neither")
    key, url = (_template(entry, name) for name in ("key", "url"))
    span = [_template(entry, name) for name in ("offset", "length") if name in entry]
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
