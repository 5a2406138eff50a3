"""The templates of kerchunk references, without a template engine.

Between double braces stands an expression: names, integers and strings; ``+ - * // %`` of integers;
``+`` of strings; ``'%03d' % number``; and calls of templates with keywords, like ``f(c='text')``.
All else is refused.

Source: https://fsspec.github.io/kerchunk/spec.html, version 1, where expressions are Jinja's.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from gridref.errors import UnsupportedFeatureError

__all__ = ["Template", "Value"]

type Value = int | str | Template

MAX_BITS = 64
"""Of an integer on the way: larger ones cannot be meant."""
MAX_EXPRESSION = 200
"""Characters of an expression."""
MAX_RENDERED = 64 * 2**10
"""Most characters that a text with expressions may stand for; addresses are shorter."""

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
        If an expression is of another kind than those above.
    """

    text: str

    def __post_init__(self) -> None:
        _parsed(self.text)

    def render(self, names: Mapping[str, Value]) -> str:
        """The text with all expressions replaced by their values.

        Raises
        ------
        UnsupportedFeatureError
            For an unknown name, or what cannot be calculated.
        """
        literals, expressions = _parsed(self.text)
        parts, room = [literals[0]], MAX_RENDERED - sum(map(len, literals))
        for expression, literal in zip(expressions, literals[1:], strict=True):
            value = self._value(expression, names)
            if isinstance(value, Template):
                raise self._refused(f"the template {value.text!r} is named without its values")
            parts += (str(value), literal)
            room -= len(parts[-2])
            if room < 0:
                raise _refused(f"{self.text:.80}", f"it stands for more than {MAX_RENDERED} bytes")
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
    """What stands around the expressions of a text, and the expressions."""
    pieces = _PIECES.split(text)
    if "{{" in "".join(pieces[::2]) or "{%" in text:
        raise _refused(text, "it is no expression in double braces")
    parsed = []
    for expression in map(str.strip, pieces[1::2]):
        if len(expression) > MAX_EXPRESSION:
            raise _refused(text[:80], "its expression is too long")
        try:
            parsed.append(ast.parse(expression, mode="eval").body)
        except (SyntaxError, ValueError) as error:
            raise _refused(text, f"{expression!r} is not an expression") from error
    return pieces[::2], parsed


def _refused(text: str, reason: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(f"the template {text!r} cannot be read: {reason}")
