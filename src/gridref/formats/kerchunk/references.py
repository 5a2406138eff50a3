"""The JSON of kerchunk references.

Source: https://fsspec.github.io/kerchunk/spec.html (version 0 and 1), and what fsspec's
``ReferenceFileSystem`` makes of it.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gridref.errors import SourceFormatError
from gridref.formats.kerchunk.generated import generated
from gridref.formats.kerchunk.templates import Template, Value

__all__ = ["Reference", "as_text", "parse_references", "references_in"]


@dataclass(frozen=True)
class Reference:
    """Where the bytes of a key lie.

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
    """What each key holds: bytes, or a reference.

    Raises
    ------
    SourceFormatError
        If this is not the JSON of references.
    UnsupportedFeatureError
        For templates that `gridref.formats.kerchunk.templates` does not read.
    """
    try:
        document = json.loads(data)
    except ValueError as error:
        raise SourceFormatError(f"not JSON: {error}") from error
    return references_in(document)


def references_in(document: Any) -> dict[str, bytes | Reference]:
    """What each key of a set of references holds; of version 0 values may be bytes.

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
    """Bytes as they stand in references."""
    return "base64:" + base64.b64encode(data).decode()


def _inline(key: str, text: str) -> bytes:
    if not text.startswith("base64:"):
        return text.encode()
    try:
        return base64.b64decode(text.removeprefix("base64:"), validate=True)
    except binascii.Error as error:
        raise SourceFormatError(f"the bytes of {key!r} are not base64: {error}") from error
