"""Kerchunk references: JSON files of version 0 and 1, and folders of Parquet files.

The references are read as the keys of a Zarr store. The chunks of its arrays then point into the
files that the references name.

`parse_references` takes the text of a JSON file and returns, for each key, its bytes or a byte
range of a file. It fills in templates, and expands the generated references (``gen``) of version 1.
A template has expressions between double braces: names, integers and strings; ``+ - * // %`` of
integers; ``+`` of strings; ``'%03d' % number``; and calls of templates with keywords, like
``f(c='text')``. Everything else is refused. No template engine is used.

A folder of Parquet files has ``.zmetadata`` and files of rows by array. Row ``n`` of array ``a``,
counted through its files ``a/refs.0.parq``, ``a/refs.1.parq``, …, is its chunk number ``n`` in C
order. A missing file holds no references.

Source: https://fsspec.github.io/kerchunk/spec.html (versions 0 and 1; the expressions of version 1
are Jinja's), and what fsspec's ``ReferenceFileSystem`` and ``LazyReferenceMapper`` make of it.
"""

from __future__ import annotations

import ast
import base64
import binascii
import io
import itertools
import json
import math
import operator
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from gridref.cache import LRU, cache_bytes
from gridref.errors import (
    Place,
    SourceFormatError,
    SourceUnavailableError,
    UnsupportedFeatureError,
)
from gridref.formats.chunks import StoreFiles, check_chunk_files
from gridref.formats.location import Location
from gridref.formats.metadata import json_object
from gridref.formats.scanner import ScanOptions, located
from gridref.formats.zarr import folders_of, scan_files
from gridref.io import (
    SourcePool,
    absolute_url,
    beside,
    describe_source,
    is_absent,
    is_local,
    policy_for,
    real_path,
)
from gridref.io.ahead import in_threads
from gridref.io.remote import RemoteFiles
from gridref.limits import beyond, limits
from gridref.model.array import VirtualGroup
from gridref.model.manifest import Source
from gridref.model.source_policy import common_folders
from gridref.secrets import shown_address, without_secrets

# The files that references name

_MOST_BYTES = 1 << 62
"""No file is larger."""


def scan(location: Location, options: ScanOptions) -> VirtualGroup:
    """Describe the arrays of the references in a JSON file or a folder of Parquet files."""
    file = location.file
    if file is None:
        files = StoreFiles.at(location, options)
        return scan_references(location.url, ParquetReferences(files, metadata_of(files)), options)
    with located(location.place):
        references = parse_references(file.read_many([0], [file.size])[0])
    return scan_references(file.name, references, options)


def scan_references(
    url: str, references: Mapping[str, bytes | Reference], options: ScanOptions
) -> VirtualGroup:
    """Describe the arrays of references.

    Parameters
    ----------
    url
        Their own address: relative addresses in them are relative to its folder.
    references
        The content of each Zarr key.
    Raises as `scan` does.
    """
    return scan_files(_ReferencedFiles(url, references, options), options)


class _ReferencedFiles:
    """Keys whose bytes are elsewhere."""

    def __init__(
        self,
        url: str,
        references: Mapping[str, bytes | Reference],
        options: ScanOptions,
    ) -> None:
        self.url = absolute_url(url)
        self._policy = policy_for(self.url, options.allow)
        storage_options = self._storage_options = options.storage_options
        self.pool = SourcePool(storage_options, identity="skip")
        self._references = references
        self._remote = RemoteFiles(storage_options)
        self._sources: dict[str, Source] = {}
        self._reachable = True
        self._folders = folders_of(references)

    def address(self, key: str) -> str:
        return f"{self.url}#{key}"

    def get(self, key: str) -> bytes | None:
        held = self._references.get(key)
        if held is None or isinstance(held, bytes):
            return held
        source, offset, length = self._located(held)
        return bytes(self.pool.read(source, offset, length))

    def folders(self, key: str) -> list[str]:
        return list(self._folders.get(key, ()))

    def ranges(
        self, keys: Sequence[str], below: str
    ) -> Iterable[tuple[str, Source | bytes, int, int]]:
        references = {key: held for key in keys if (held := self._references.get(key)) is not None}
        first_keys: dict[str, str] = {}
        for key, held in references.items():
            if isinstance(held, Reference):
                first_keys.setdefault(held.url, key)
        self._describe_remote(first_keys)
        for key, held in references.items():
            if isinstance(held, bytes):
                yield key, held, 0, len(held)
                continue
            with located(_place_of(key)):
                found = self._located(held)
            yield (key, *found)

    def _located(self, reference: Reference) -> tuple[Source, int, int]:
        source = self._source(reference)
        length = reference.length
        if length is None:
            length = (source.size_bytes or 0) - reference.offset
        size = _MOST_BYTES if source.size_bytes is None else source.size_bytes
        if reference.offset + length > size:
            raise SourceFormatError(
                f"a reference reaches beyond the end of its file at byte {size}",
                Place(source.url, start=reference.offset, stop=reference.offset + length),
            )
        return source, reference.offset, length

    def _source(self, reference: Reference) -> Source:
        """The current file of a reference; a remote one may be known by its address only."""
        known = self._sources.get(reference.url)
        if known is not None and (reference.length is not None or known.size_bytes is not None):
            return known
        url = self._full_url(reference.url)
        if is_local(url) or reference.length is None:
            known = describe_source(url, self._storage_options, self._policy)
        else:
            known = known or Source(url, policy=self._policy)
        return self._sources.setdefault(reference.url, known)

    def _full_url(self, url: str) -> str:
        """Address of a file that may be read."""
        address = self._address(url)
        if not self._policy.allows(real_path(address)):
            replace(self._policy, needed=self._all_folders()).require(real_path(address))
        return address

    def _address(self, url: str) -> str:
        """Address of a file; relative ones are beside the references."""
        return absolute_url(url if os.path.isabs(url) else beside(self.url, url))

    def _all_folders(self) -> tuple[str, ...]:
        """The folders of all files that may not be read."""
        urls = {held.url for held in self._references.values() if isinstance(held, Reference)}
        addresses = map(self._address, sorted(urls))
        return common_folders(a for a in addresses if not self._policy.allows(real_path(a)))

    def _is_local(self, url: str, key: str) -> bool:
        with located(_place_of(key)):
            return is_local(self._full_url(url))

    def _describe_remote(self, first_keys: Mapping[str, str]) -> None:
        """Request size and version of remote files, given with a key of each, once for each file.

        References can be scanned without access to their files. After the first file that cannot be
        reached, files are known by their addresses only.
        """
        new = [url for url in first_keys if url not in self._sources]
        remote = [url for url in new if not self._is_local(url, first_keys[url])]

        def describe(url: str) -> Source | None:
            if not self._reachable:
                return None
            try:
                return self._remote.describe(self._full_url(url), self._policy)
            except SourceUnavailableError as error:
                if is_absent(error):
                    raise error.located(_place_of(first_keys[url])) from error.__cause__
                self._reachable = False
                return None

        for url, source in zip(remote, in_threads(describe, remote), strict=True):
            self._sources[url] = source or Source(self._full_url(url), policy=self._policy)


def _place_of(key: str) -> Place:
    """Array and chunk of a key, as Zarr v2 (``a/1.0``) and v3 (``a/c/1/0``) write them."""
    head, _, last = key.rpartition("/")
    array, separator, coords = f"/{key}".rpartition("/c/")
    path, numbers = (array, coords.split("/")) if separator else (f"/{head}", last.split("."))
    chunk = tuple(map(int, numbers)) if all(number.isdecimal() for number in numbers) else None
    return Place(variable=path, chunk=chunk)


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
    """A text with expressions in it, parsed once."""

    text: str

    def __post_init__(self) -> None:
        _parsed(self.text)

    def render(self, names: Mapping[str, Value]) -> str:
        """The text with all expressions replaced by their values."""
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
    if any(mark in text for mark in ("{%", "{#", "{{-", "{{+")) or "{{" in "".join(pieces[::2]):
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
    """Each reference that the entries of ``gen`` generate."""
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
    """The content of each key: bytes, or a reference."""
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


# Folders of Parquet files


METADATA_FILE = ".zmetadata"
ROW_BYTES = 200
"""Approximate size of a row in Python objects."""
_COLUMNS = ("raw", "path", "offset", "size")


type _Columns = Mapping[str, list[Any]]


def metadata_of(files: StoreFiles) -> Mapping[str, Any]:
    """The ``.zmetadata`` of a folder of references."""
    data, address = files.get(METADATA_FILE), files.address(METADATA_FILE)
    place = Place(source=address)
    if data is None:
        raise SourceFormatError("the folder holds no references: it has no .zmetadata", place)
    document = json_object(data, address)
    if "record_size" not in document:
        raise SourceFormatError("the folder holds no references: it has no record_size", place)
    return document


class ParquetReferences(Mapping[str, bytes | Reference]):
    """The content of each key. Iterating gives the keys of metadata only.

    Raises
    ------
    SourceFormatError
        If the metadata is invalid.
    UnsupportedFeatureError
        For Zarr v3: the layout counts chunks by the metadata of Zarr v2.
    """

    def __init__(self, files: StoreFiles, document: Mapping[str, Any]) -> None:
        self._files = files
        self._place = Place(source=files.address(METADATA_FILE))
        rows, metadata = document["record_size"], document.get("metadata")
        if type(rows) is not int or rows < 1 or not isinstance(metadata, dict):
            raise SourceFormatError("it has no record_size above 0 or no metadata", self._place)
        if any(key.rpartition("/")[2] == "zarr.json" for key in metadata):
            raise UnsupportedFeatureError(
                "references in Parquet count chunks by the metadata of Zarr v2; this is v3:"
                " write them as JSON",
                self._place,
            )
        self._rows_per_file = rows
        self._metadata = {key: json.dumps(value).encode() for key, value in metadata.items()}
        self._counts = {
            key.rpartition("/")[0]: self._chunk_counts(key, value)
            for key, value in metadata.items()
            if key.rpartition("/")[2] == ".zarray"
        }
        self._tables = LRU[_Columns](
            cache_bytes(),
            lambda columns: ROW_BYTES * max(map(len, columns.values()), default=0),
            keeps_last=1,
        )

    def __getitem__(self, key: str) -> bytes | Reference:
        if key in self._metadata:
            return self._metadata[key]
        field, _, chunk = key.rpartition("/")
        counts = self._counts.get(field)
        number = None if counts is None else _number(chunk, counts)
        if number is None:
            raise KeyError(key)
        record, row = divmod(number, self._rows_per_file)
        columns = self._tables.get_or_load((field, record), lambda: self._read(field, record))
        reference = self._row(columns, row, key)
        if reference is None:
            raise KeyError(key)
        return reference

    def __iter__(self) -> Iterator[str]:
        return iter(self._metadata)

    def __len__(self) -> int:
        return len(self._metadata)

    def with_chunks(self) -> Iterator[tuple[str, bytes | Reference]]:
        """All keys with their content, those of chunks too."""
        yield from self._metadata.items()
        for field, counts in self._counts.items():
            check_chunk_files(math.prod(counts))
            for coords in itertools.product(*map(range, counts)):
                key = f"{field}/{'.'.join(map(str, coords))}"
                held = self.get(key)
                if held is not None:
                    yield key, held

    def _chunk_counts(self, key: str, document: Any) -> tuple[int, ...]:
        if isinstance(document, dict) and document.get("dimension_separator", ".") != ".":
            raise UnsupportedFeatureError(
                f"{key} states chunk keys with slashes; this layout has no slashes", self._place
            )
        try:
            pairs = list(zip(document["shape"], document["chunks"], strict=True))
            return tuple(math.ceil(extent / length) for extent, length in pairs) or (1,)
        except (TypeError, KeyError, ValueError, ArithmeticError) as error:
            raise SourceFormatError(f"{key} is no metadata of an array", self._place) from error

    def _read(self, field: str, record: int) -> _Columns:
        """The columns of a file; none where there is no file."""
        name = f"{field}/refs.{record}.parq"
        data = self._files.get(name)
        return {} if data is None else _columns_of(data, Place(source=self._files.address(name)))

    def _row(self, columns: _Columns, row: int, key: str) -> bytes | Reference | None:
        def value(name: str) -> Any:
            column = columns.get(name, ())
            return column[row] if row < len(column) else None

        raw, url, offset, length = map(value, _COLUMNS)
        if raw is not None:
            return raw if isinstance(raw, bytes) else str(raw).encode()
        if url is None:
            return None
        if isinstance(url, str) and not offset and not length:
            return Reference(url)
        are_numbers = isinstance(offset, int) and isinstance(length, int)
        if not isinstance(url, str) or not are_numbers or min(offset, length) < 0:
            place = Place(source=self._files.url)
            shown = shown_address(url) if isinstance(url, str) else url
            raise SourceFormatError(
                f"the reference of {key!r} is {shown!r:.100}, {offset!r:.20}, {length!r:.20}", place
            )
        return Reference(url, offset, length)


def _columns_of(data: bytes, place: Place) -> _Columns:
    import pyarrow as pa

    from gridref.io.parquet import BoundedParquet

    def values(part: Any) -> list[Any]:
        """Those of an array of Arrow's; equal ones of a dictionary are one object."""
        if not pa.types.is_dictionary(part.type):
            return list(part.to_pylist())
        known = [*part.dictionary.to_pylist(), None]
        numbers = part.indices.cast(pa.int64()).fill_null(-1).to_pylist()
        return [known[number] for number in numbers]

    try:
        file = BoundedParquet(io.BytesIO(data), len(data))
        metadata = file.parquet.metadata
        if metadata.num_rows > limits().reference_rows + len(data):
            what = f"{len(data)} bytes that say they are {metadata.num_rows} rows"
            raise ValueError(beyond("reference_rows", what))
        columns = [name for name in _COLUMNS if name in file.parquet.schema_arrow.names]
        groups = [file.read_row_group(i, columns) for i in range(metadata.num_row_groups)]
        return {
            name: [each for group in groups for part in group[name].chunks for each in values(part)]
            for name in columns
        }
    except (pa.ArrowException, OSError, ValueError) as error:
        raise SourceFormatError(f"not a Parquet file of references: {error}", place) from error


def _number(chunk: str, counts: tuple[int, ...]) -> int | None:
    """C-order number of a chunk key like ``1.0``; None for one outside the array."""
    parts = chunk.split(".")
    if len(parts) != len(counts) or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    number = 0
    for part, count in zip(parts, counts, strict=True):
        if int(part) >= count:
            return None
        number = number * count + int(part)
    return number
