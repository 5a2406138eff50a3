"""Mutations of DMR++ documents: most leave the XML whole, and change what it says."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

__all__ = ["Mutator"]

_NUMBERS = ("0", "1", "-1", "2", "3", "4096", "2147483648", "4294967296", str(2**46), str(2**62))
_WORDS = (
    *("", "LE", "BE", "deflate", "shuffle deflate", "fletcher32", "zstd", "szip", "Container"),
    *("nan", "-9999.9", "9.96921e+36", "1e999", "unsupported-string", "[0,0]", "[]", "1 1", "/x"),
    *("Int8", "Int16", "Float64", "String", "true", "null_term", "A" * 5000, "AAAA", "\u20ac"),
)
_TAGS = (
    *("Int8", "Int16", "UInt64", "Float32", "String", "Byte", "Enum", "Structure", "Opaque"),
    *("Group", "Dimension", "Dim", "Attribute", "Value", "dmrpp:chunks", "dmrpp:chunk"),
    *("dmrpp:block", "dmrpp:compact", "dmrpp:missingdata", "dmrpp:vlsa", "v", "dmrpp:other"),
)
_NAMES = (
    "name",
    "size",
    "offset",
    "nBytes",
    "chunkPositionInArray",
    "fm",
    "href",
    "c",
    "s",
    "LBChunk",
)
_ELEMENT = re.compile(r"<([A-Za-z][\w:]*)\b[^>]*?(?:/>|>.*?</\1>)", re.DOTALL)


class Mutator:
    """Changes documents."""

    def __call__(self, data: bytes, max_size: int, seed: int) -> bytes:
        """A copy with one to four changes."""
        rng = random.Random(seed)
        text = data.decode("latin-1")
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            text = _changed(text, rng)
        return text.encode("utf-8", "surrogateescape")[:max_size]

    def crossed(self, one: bytes, other: bytes, max_size: int, seed: int) -> bytes:
        """A copy with an element of another document in place of one."""
        rng = random.Random(seed)
        first, second = one.decode("latin-1"), other.decode("latin-1")
        mine, theirs = _element(first, rng), _element(second, rng)
        crossed = first[: mine[0]] + second[theirs[0] : theirs[1]] + first[mine[1] :]
        return crossed.encode("latin-1")[:max_size]


def _element(text: str, rng: random.Random) -> tuple[int, int]:
    """Where an element below the first one begins and ends."""
    found = list(_ELEMENT.finditer(text, text.find("<Dataset") + 8))
    if not found:
        return len(text), len(text)
    within = rng.choice(found)
    inner = list(_ELEMENT.finditer(text, within.start() + 1, within.end()))
    return rng.choice([within, *inner]).span()


def _changed(text: str, rng: random.Random) -> str:
    match rng.randrange(10):
        case 0 | 1:
            return _replaced(text, r"(?<=\")-?\d+(?=\")|(?<=[\[, >])\d+", _NUMBERS, rng)
        case 2 | 3:
            return _replaced(text, r"(?<==\")[^\"]*(?=\")", (*_WORDS, *_NUMBERS), rng)
        case 4:
            return _replaced(text, r"(?<= )[A-Za-z:]+(?==\")", _NAMES, rng)
        case 5:
            start, stop = _element(text, rng)
            return text[:start] + text[stop:]
        case 6:  # an element twice, or at another place
            start, stop = _element(text, rng)
            at, _ = _element(text, rng)
            return text[:at] + text[start:stop] + text[at:]
        case 7:
            start, stop = _element(text, rng)
            tag = rng.choice(_TAGS)
            return (
                text[:start]
                + re.sub(r"^<[\w:]+|[\w:]+(?=>$)", _put(tag), text[start:stop])
                + text[stop:]
            )
        case 8:
            at = rng.randrange(len(text) + 1)
            return text[:at] + chr(rng.randrange(256)) + text[at + 1 :]
        case _:
            return text[: rng.randrange(len(text) + 1)]


def _put(tag: str) -> Callable[[re.Match[str]], str]:
    return lambda found: f"<{tag}" if found[0].startswith("<") else tag


def _replaced(text: str, pattern: str, values: tuple[str, ...], rng: random.Random) -> str:
    found = list(re.finditer(pattern, text))
    if not found:
        return text
    one = rng.choice(found)
    near = str(int(one[0]) + rng.choice((-1, 1))) if one[0].isdecimal() else rng.choice(values)
    value = near if rng.random() < 0.3 else rng.choice(values)
    return text[: one.start()] + value + text[one.end() :]
