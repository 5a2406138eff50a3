"""TIFF files written byte by byte, also such as no library would write."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

FIELD_FORMATS = {2: "s", 3: "H", 4: "I", 12: "d", 13: "I", 16: "Q"}


def entry(code: int, kind: int, values: Sequence[Any] | bytes) -> tuple[int, int, Any]:
    return code, kind, values


def tiff_bytes(
    pages: Sequence[Mapping[int, tuple[int, Any]]],
    data: bytes = b"",
    *,
    big: bool = False,
    order: str = "<",
    next_of_last: int = 0,
    patches: Mapping[int, tuple[int, int, int]] | None = None,
) -> bytes:
    """Build a file: header, `data` from byte 16 on, then directories with their values.

    Parameters
    ----------
    pages
        Tags of each page: code to (field type, values).
    next_of_last
        Where the last directory says the next one is: an offset, or -1 for the first directory.
    patches
        Tags of the first page whose entry is written as (type, count, value), true or not.
    """
    width, pointer, count_format = (8, "Q", "Q") if big else (4, "I", "H")
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "H", 43 if big else 42)
    head += struct.pack(order + "HH", 8, 0) if big else b""
    body = data + b"\0" * (len(data) % 2)
    directories = []
    offset = 16 + len(body)
    for number, page in enumerate(pages):
        directory, values = b"", b""
        n_bytes = (
            struct.calcsize(order + count_format) + len(page) * (12 if width == 4 else 20) + width
        )
        for code in sorted(page):
            kind, items = page[code]
            raw = (
                bytes(items)
                if kind in (2, 7)
                else struct.pack(f"{order}{len(items)}{FIELD_FORMATS[kind]}", *items)
            )
            count = len(raw) if kind in (2, 7) else len(items)
            if number == 0 and patches and code in patches:
                kind, count, value = patches[code]
                field = struct.pack(order + pointer, value)
            elif len(raw) <= width:
                field = raw.ljust(width, b"\0")
            else:
                field = struct.pack(order + pointer, offset + n_bytes + len(values))
                values += raw + b"\0" * (len(raw) % 2)
            directory += struct.pack(order + "HH" + pointer, code, kind, count) + field
        directories.append((offset, len(page), directory, values))
        offset += n_bytes + len(values)
    tail = b""
    for number, (_, n_entries, directory, values) in enumerate(directories):
        following = directories[number + 1][0] if number + 1 < len(directories) else next_of_last
        following = directories[0][0] if following == -1 else following
        tail += struct.pack(order + count_format, n_entries) + directory
        tail += struct.pack(order + pointer, following) + values
    start = directories[0][0] if directories else 0
    return (head + struct.pack(order + pointer, start)).ljust(16, b"\0") + body + tail


def gray_page(
    width: int, length: int, offsets: Sequence[int], counts: Sequence[int], **tags: Any
) -> dict[int, tuple[int, Any]]:
    """Tags of a page of bytes in strips, with further tags by number, like ``t322=(3, [16])``."""
    page: dict[int, tuple[int, Any]] = {
        256: (4, [width]),
        257: (4, [length]),
        258: (3, [8]),
        259: (3, [1]),
        262: (3, [1]),
        273: (4, list(offsets)),
        277: (3, [1]),
        278: (4, [length]),
        279: (4, list(counts)),
    }
    page.update({int(name[1:]): value for name, value in tags.items()})
    return {code: value for code, value in page.items() if value is not None}
