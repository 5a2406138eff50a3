"""Read the JSON of kerchunk references, with templates and generated references.

`parse_references` takes the text of a JSON file and returns, for each key, its bytes or a byte
range of a file. It fills in templates, and expands the generated references (``gen``) of version 1.

A template has expressions between double braces: names, integers and strings; ``+ - * // %`` of
integers; ``+`` of strings; ``'%03d' % number``; and calls of templates with keywords, like
``f(c='text')``. Everything else is refused. No template engine is used.

Source: https://fsspec.github.io/kerchunk/spec.html (versions 0 and 1; the expressions of version 1
are Jinja's), and what fsspec's ``ReferenceFileSystem`` makes of it.
"""

from __future__ import annotations

import ast
import base64
import binascii
import itertools
import json
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.limits import beyond, limits
from gridref.secrets import without_secrets

# Templates

type Value = int | str | Template

MAX_BITS = 64
"""Most bits of an integer within an expression: larger ones are errors."""

_PIECES = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_NUMBER_FORMAT = re.compile(r"[^%]*%0?\d{0,2}d[^%]*")
_INTEGERS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


@dataclass(frozen=True)
class Template:
    """A text with expressions in it, parsed once.

    Raises
    ------
    UnsupportedFeatureError
        If an expression is of an unsupported kind.
    """

    text: str

    def __post_init__(self) -> None:
        _parsed(self.text)

    def render(self, names: Mapping[str, Value]) -> str:
        """The text with all expressions replaced by their values.

        Raises
        ------
        UnsupportedFeatureError
            For an unknown name, or an expression without a value.
        """
        literals, expressions = _parsed(self.text)
        most = limits().rendered_characters
        parts, room = [literals[0]], most - sum(map(len, literals))
        for expression, literal in zip(expressions, literals[1:], strict=True):
            value = self._value(expression, names)
            if isinstance(value, Template):
                raise self._refused(f"the template {value.text!r} is named without its values")
            parts += (str(value), literal)
            room -= len(parts[-2])
            if room < 0:
                what = f"it stands for {most - room} characters"
                raise _refused(without_secrets(self.text)[:80], beyond("rendered_characters", what))
        return "".join(parts)

    def _value(self, node: ast.expr, names: Mapping[str, Value]) -> Value:
        if isinstance(node, ast.Constant) and type(node.value) in (int, str):
            return node.value  # type: ignore[return-value]
        if isinstance(node, ast.Name):
            if node.id not in names:
                raise self._refused(f"the name {node.id!r} is not known")
            return names[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self._calculated(ast.Sub(), 0, self._value(node.operand, names))
        if isinstance(node, ast.BinOp):
            left, right = self._value(node.left, names), self._value(node.right, names)
            return self._calculated(node.op, left, right)
        if isinstance(node, ast.Call) and not node.args:
            return self._called(node, names)
        raise self._refused(f"{ast.unparse(node)!r} is more than arithmetic and names")

    def _called(self, node: ast.Call, names: Mapping[str, Value]) -> str:
        called = self._value(node.func, names)
        if not isinstance(called, Template) or any(
            keyword.arg is None for keyword in node.keywords
        ):
            raise self._refused(f"{ast.unparse(node)!r} is no call of a template")
        values = {str(keyword.arg): self._value(keyword.value, names) for keyword in node.keywords}
        if any(isinstance(value, Template) for value in values.values()):
            raise self._refused("a template is given to another")
        return called.render(values)

    def _calculated(self, kind: ast.operator, left: Value, right: Value) -> Value:
        if isinstance(left, int) and isinstance(right, int) and type(kind) in _INTEGERS:
            try:
                value = _INTEGERS[type(kind)](left, right)
            except ZeroDivisionError as error:
                raise self._refused("it divides by zero") from error
            if value.bit_length() > MAX_BITS:
                raise self._refused("its numbers are too large")
            return value
        if isinstance(left, str) and isinstance(kind, ast.Add) and isinstance(right, str):
            return left + right
        if isinstance(left, str) and isinstance(kind, ast.Mod) and isinstance(right, int):
            if _NUMBER_FORMAT.fullmatch(left):
                return left % right
            raise self._refused(f"the format {left!r} is not read")
        raise self._refused("it is more than arithmetic of integers")

    def _refused(self, reason: str) -> UnsupportedFeatureError:
        return _refused(self.text, reason)


@lru_cache(maxsize=1024)
def _parsed(text: str) -> tuple[list[str], list[ast.expr]]:
    """The text around expressions, and the expressions."""
    pieces = _PIECES.split(text)
    if "{{" in "".join(pieces[::2]) or "{%" in text:
        raise _refused(text, "it is no expression in double braces")
    parsed = []
    for expression in map(str.strip, pieces[1::2]):
        if len(expression) > limits().expression_characters:
            what = f"an expression of {len(expression)} characters"
            raise _refused(text[:80], beyond("expression_characters", what))
        try:
            parsed.append(ast.parse(expression, mode="eval").body)
        except (SyntaxError, ValueError) as error:
            raise _refused(text, f"{expression!r} is not an expression") from error
    return pieces[::2], parsed


def _refused(text: str, reason: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(f"the template {text!r} cannot be read: {reason}")


# Generated references: ``gen`` of version 1

type Generated = tuple[str, str, int | None, int | None]
"""Key, address, offset and length; the last two are None for a whole file."""


def generated(entries: Sequence[Any], templates: Mapping[str, Value]) -> Iterator[Generated]:
    """Each reference that the entries of ``gen`` generate.

    Raises
    ------
    SourceFormatError
        If an entry does not follow the specification.
    UnsupportedFeatureError
        For unsupported templates, and references beyond the limits.
    """
    n_generated, n_bytes, most_bytes = 0, 0, limits().generated_bytes
    for entry in entries:
        dimensions = _dimensions(entry)
        n_generated += math.prod(map(len, dimensions.values()))
        if n_generated > limits().generated_references:
            what = f"gen stands for {n_generated} references"
            raise UnsupportedFeatureError(beyond("generated_references", what))
        for each in _generated(entry, dimensions, templates):
            n_bytes += len(each[0]) + len(each[1])
            if n_bytes > most_bytes:
                what = f"gen stands for keys and addresses of {n_bytes} bytes so far"
                raise UnsupportedFeatureError(beyond("generated_bytes", what))
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


# The JSON document: versions 0 and 1


@dataclass(frozen=True)
class Reference:
    """The place of the bytes of a key.

    Attributes
    ----------
    url
        The file, templates replaced.
    offset, length
        The byte range; a length of None is all of the file.
    """

    url: str
    offset: int = 0
    length: int | None = None


def parse_references(data: bytes) -> dict[str, bytes | Reference]:
    """The content of each key: bytes, or a reference.

    Raises
    ------
    SourceFormatError
        If this is not JSON with references.
    UnsupportedFeatureError
        For templates that `gridref.formats.kerchunk.references` does not read.
    """
    try:
        document = json.loads(data)
    except ValueError as error:
        raise SourceFormatError(f"not JSON: {error}") from error
    return references_in(document)


def references_in(document: Any) -> dict[str, bytes | Reference]:
    """The content of each key of a set of references; in version 0, values may be bytes.

    Raises as `parse_references` does.
    """
    if isinstance(document, list):
        raise SourceFormatError(
            f"a list of {len(document)} documents: put each set of references into its own file"
        )
    if not isinstance(document, dict):
        raise SourceFormatError("not a JSON object")
    if "version" not in document:
        return {key: _entry(key, value, {}) for key, value in document.items()}
    generators, refs = document.get("gen") or [], document.get("refs", {})
    if document["version"] != 1 or not isinstance(refs, dict) or not isinstance(generators, list):
        raise SourceFormatError(f"references of version {document['version']!r} are not known")
    templates = _templates(document.get("templates") or {})
    references = {key: _entry(key, value, templates) for key, value in refs.items()}
    for key, url, offset, length in generated(generators, templates):
        if key in references:
            raise SourceFormatError(f"there are two references of {key!r}")
        references[key] = Reference(url, offset or 0, length)
    return references


def _templates(texts: Any) -> dict[str, Value]:
    if not isinstance(texts, Mapping) or not all(isinstance(t, str) for t in texts.values()):
        raise SourceFormatError("the templates are not texts by name")
    return {name: Template(text) if "{{" in text else text for name, text in texts.items()}


def _entry(key: str, value: Any, templates: Mapping[str, Value]) -> bytes | Reference:
    if isinstance(value, bytes):
        return value
    if isinstance(value, Mapping):
        return json.dumps(value).encode()
    if isinstance(value, str):
        return _inline(key, value)
    if not isinstance(value, list) or len(value) not in (1, 3) or not isinstance(value[0], str):
        raise SourceFormatError(f"the reference of {key!r} is {value!r}")
    url = value[0]
    if "{{" in url:
        url = Template(url).render(templates)
    if len(value) == 1:
        return Reference(url)
    offset, length = value[1:]
    if type(offset) is not int or type(length) is not int or offset < 0 or length < 0:
        raise SourceFormatError(f"the reference of {key!r} is {value!r}")
    return Reference(url, offset, length)


def as_text(data: bytes) -> str:
    """Bytes in the form of references."""
    return "base64:" + base64.b64encode(data).decode()


def _inline(key: str, text: str) -> bytes:
    if not text.startswith("base64:"):
        return text.encode()
    try:
        return base64.b64decode(text.removeprefix("base64:"), validate=True)
    except binascii.Error as error:
        raise SourceFormatError(f"the bytes of {key!r} are not base64: {error}") from error
