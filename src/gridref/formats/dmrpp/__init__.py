"""DMR++ documents of OPeNDAP: the description of a granule, with the places of its chunks.

`scan` reads the document, and makes an array of each variable. A variable that cannot be served
faithfully is refused for itself. Its values are byte ranges of the granule, or the document itself
holds them (compact and missing data, texts of variable length). What no chunk holds reads as the
fill value, where the document states it with all its digits.

Paths in a document count from the data folder of the server that wrote it. So only the last part of
a path is used, beside the document; paths that begin with a dot count from the document's folder.
URLs are used as they are. Where the address is a placeholder or missing, the granule has the
document's own name without ``.dmrpp``.

Source: DMR++ documentation of the BES, https://github.com/OPENDAP/bes (``modules/dmrpp_module``).
It leaves open what ``DMZ.cc``, ``vlsa_util.cc`` and ``build_dmrpp_util.cc`` there settle: documents
without ``dmrpp:version`` list filters in any order, and bit i of ``fm`` is the i-th filter.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
from numpy.typing import NDArray

from gridref.codecs import encode_chunk
from gridref.errors import (
    GridrefError,
    Message,
    Place,
    ScanError,
    SourceFormatError,
    SourceUnavailableError,
    UnsupportedFeatureError,
)
from gridref.formats.chunks import (
    Piece,
    check_chunks,
    chunks_of_pieces,
    edge_policy,
    require_inside,
    scattered_chunks,
)
from gridref.formats.dmrpp.document import (
    DAP,
    DMRPP,
    VARIABLES,
    Attributes,
    ElementType,
    Scope,
    attributes_of,
    element_type_of,
    exact_fill,
    integer,
    read_document,
    walk,
)
from gridref.formats.hdf5.chunks import numbers_inside
from gridref.formats.hdf5.filters import Filter, filter_codecs
from gridref.formats.location import Location
from gridref.formats.scanner import Findings, ScanOptions, check_element_size
from gridref.io import (
    ScanFile,
    absolute_url,
    beside,
    describe_source,
    is_absent,
    is_local,
    policy_for,
    real_path,
)
from gridref.limits import beyond, limits
from gridref.model.array import VirtualArray, VirtualGroup, check_name, dims_of, zero_of
from gridref.model.encoding import Codec, Encoding, bytes_codec, shared_encoding
from gridref.model.grid import chunk_counts
from gridref.model.joining import missing_array
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.model.scan_report import Fate
from gridref.model.source_policy import SourcePolicy, common_folders


def scan(location: Location, options: ScanOptions) -> VirtualGroup:
    """Describe a document; raises as `gridref.formats.scan` does."""
    file = location.opened
    root = read_document(file.read_many([0], [file.size])[0])
    found = _Scan(file, root, options)
    group = found.group(root)
    return group.with_changes(report=found.findings.report(options))


class _Scan:
    """The scan of one document; it collects findings and refused variables."""

    def __init__(self, file: ScanFile, root: ET.Element, options: ScanOptions) -> None:
        self.scope = Scope(root)
        self.document = Document(
            GranuleFiles(file.name, root.get(f"{DMRPP}href", ""), options).source,
            f"{DMRPP}version" in root.attrib,
            options.max_chunk_bytes,
            options.max_inline_bytes,
        )
        self.findings = Findings(file.name)
        n_objects = sum(1 + len(variables_in(group)) for _, group in walk(root))
        if n_objects > options.max_objects:
            raise UnsupportedFeatureError(
                f"the DMR++ has {n_objects} groups and variables, more than max_objects,"
                f" {options.max_objects}"
            )

    def group(self, node: ET.Element, path: str = "") -> VirtualGroup:
        attributes = self.attributes(node, path)
        arrays: dict[str, VirtualArray] = {}
        shaped: list[tuple[ET.Element, tuple[int, ...]]] = []
        for variable in variables_in(node):
            with self.refusing(f"{path}/{variable.get('name')}"):
                check_name(variable.get("name", ""))
                shaped.append((variable, self.scope.shape(variable, path)))
        names = self.scope.names(shaped, path)
        for (variable, shape), dims in zip(shaped, names, strict=True):
            own = f"{path}/{variable.get('name')}"
            with self.refusing(own):
                if own.rpartition("/")[2] in arrays:
                    raise SourceFormatError("there are two variables of its name")
                array, inlined = self.array(variable, path, shape, dims)
                arrays[own.rpartition("/")[2]] = array
                self.findings.note(own, Fate.INLINED if inlined else Fate.TAKEN, inlined)
        groups = {}
        for child in node.iterfind(f"{DAP}Group"):
            name = child.get("name", "")
            if name in groups or name in arrays:
                raise SourceFormatError(f"there are two objects {path}/{name}")
            groups[name] = self.group(child, f"{path}/{name}")
        used = dims_of(arrays.values())
        unlimited = attributes.unlimited & used
        return VirtualGroup(arrays, groups, attributes.public, unlimited_dims=unlimited)

    def attributes(self, node: ET.Element, path: str) -> Attributes:
        found = attributes_of(node)
        for name, reason in found.left_out.items():
            self.findings.note(
                f"{path}@{name}", Fate.SKIPPED, f"the attribute is left out: {reason}"
            )
        return found

    @contextmanager
    def refusing(self, path: str) -> Iterator[None]:
        """Remember a variable that cannot be served: one error names all of them."""
        try:
            yield
        except (ScanError, ValueError, TypeError) as error:
            refusal = error if isinstance(error, ScanError) else _not_an_array(error)
            self.findings.refuse(path, refusal)

    def array(
        self, node: ET.Element, path: str, shape: tuple[int, ...], dims: tuple[str, ...]
    ) -> tuple[VirtualArray, str]:
        """The array of a variable, and why its values are kept in the references, if they are."""
        attrs = self.attributes(node, f"{path}/{node.get('name')}").public
        element = element_type_of(node, path, self.scope)
        check_element_size(element.dtype)
        stored = stored_values(Variable(node, shape, element, attrs), self.document)
        if attrs.keys().isdisjoint(element.flags):
            attrs = {**attrs, **element.flags}
        if stored.chunks is None:
            array = missing_array(shape, element.dtype, dims=dims, fill_value=stored.fill)
        else:
            encoding, manifest = stored.chunks
            array = VirtualArray.of_one_block(
                shape,
                element.dtype,
                encoding=encoding,
                manifest=manifest,
                dims=dims,
                fill_value=stored.fill,
            )
        return array.with_changes(attrs=attrs, enumeration=element.enumeration), stored.inlined


def _not_an_array(error: Exception) -> UnsupportedFeatureError:
    """The refusal of what numpy, or a name, cannot be."""
    reason = error.reason if isinstance(error, GridrefError) else str(error)
    return UnsupportedFeatureError(f"it cannot be an array: {reason}")


def variables_in(group: ET.Element) -> list[ET.Element]:
    """The variables of a group, in the order of the document."""
    return [child for child in group if child.tag in VARIABLES]


# The files that a document refers to: its granule, and files beside it


_PLACEHOLDER = "OPeNDAP_DMRpp_DATA_ACCESS_URL"
_SUFFIX = ".dmrpp"


class GranuleFiles:
    """Files that a document names, as they are now; none is read.

    Parameters
    ----------
    href
        Address of the granule in the document; empty if it has none.
    options
        Options of the scan.
    """

    def __init__(self, url: str, href: str, options: ScanOptions) -> None:
        self.url = absolute_url(url)
        self.href = href
        self._options = options
        self._policy: SourcePolicy = policy_for(self.url, options.allow)
        self._sources: dict[str, Source] = {}
        self._reachable = True

    def source(self, href: str | None = None) -> Source:
        """The file that an address means; None means the granule.

        Remote files of a server that cannot be reached are known by their addresses only.
        """
        url = self._address(self.href if href is None else href)
        if url not in self._sources:
            if len(self._sources) >= limits().external_files:
                what = f"the DMR++ names {len(self._sources) + 1} files so far"
                raise UnsupportedFeatureError(beyond("external_files", what))
            address = real_path(url)
            if not self._policy.allows(address):
                replace(self._policy, needed=common_folders([url])).require(address)
            self._sources[url] = self._described(url)
        return self._sources[url]

    def _address(self, href: str) -> str:
        if href in ("", _PLACEHOLDER):
            return absolute_url(self._own)
        if "://" in href:
            return absolute_url(href)
        is_relative = href.startswith(("./", "../"))
        return absolute_url(beside(self.url, href if is_relative else href.rpartition("/")[2]))

    @cached_property
    def _own(self) -> str:
        """The document's address without the suffix; queries stay."""
        path, mark, query = (self.url, "", "") if is_local(self.url) else self.url.partition("?")
        if not path.endswith(_SUFFIX):
            raise SourceFormatError(
                f"the DMR++ does not name its granule: call it like the granule, with {_SUFFIX}"
                " at the end",
                Place(source=self.url),
            )
        return f"{path.removesuffix(_SUFFIX)}{mark}{query}"

    def _described(self, url: str) -> Source:
        if is_local(url) or self._reachable:
            try:
                return describe_source(url, self._options.storage_options, self._policy)
            except SourceUnavailableError as error:
                if is_local(url) or is_absent(error):
                    reason = Message("the granule of the DMR++ ", self.url, ": ", error.reason)
                    raise SourceUnavailableError(reason, error.place) from error
                self._reachable = False
        return Source(url, policy=self._policy)


# Where the values of a variable are, by the elements of the ``dmrpp`` namespace


_MAX_OFFSET = 1 << 48
_MAX_CHUNK_BYTES = 1 << 32
_MAX_MASK = (1 << 32) - 1
_FILTERS = {"deflate": 1, "shuffle": 2, "fletcher32": 3, "zstd": 32015}
"""Names of filters that need no parameters, and their registered numbers."""
_TEXTS = Codec("vlen-utf8")
_OLD_ORDER = ("shuffle", "deflate", "fletcher32")


@dataclass(frozen=True)
class Stored:
    """The values of a variable.

    Attributes
    ----------
    chunks
        The encoding of chunks, and their places; None if nothing is stored.
    fill
        What is in no chunk reads as this.
    inlined
        Why its values are kept in the references, if they are.
    """

    chunks: tuple[Encoding, ChunkManifest] | None
    fill: Any
    inlined: str = ""


@dataclass
class Document:
    """What the variables of a document share.

    Attributes
    ----------
    source
        Finds the file that an address in the document means; None is the document's own granule.
    n_rows, n_inline_bytes
        Rows of all manifests so far, and bytes of values that are kept in them.
    """

    source: Callable[[str | None], Source]
    has_version: bool
    max_chunk_bytes: int
    max_inline_bytes: int
    n_rows: int = 0
    n_inline_bytes: int = 0

    def count(self, n_rows: int, n_inline_bytes: int = 0) -> None:
        """Count rows and bytes of another manifest."""
        if self.n_rows + n_rows > limits().chunk_rows:
            what = f"the variables so far have {self.n_rows + n_rows} chunks"
            raise UnsupportedFeatureError(beyond("chunk_rows", what))
        if self.n_inline_bytes + n_inline_bytes > limits().inline_decoded_bytes:
            what = f"the DMR++ holds values of {self.n_inline_bytes + n_inline_bytes} bytes so far"
            raise UnsupportedFeatureError(beyond("inline_decoded_bytes", what))
        self.n_rows += n_rows
        self.n_inline_bytes += n_inline_bytes


@dataclass(frozen=True)
class Variable:
    """A variable, as far as its values are concerned."""

    node: ET.Element
    shape: tuple[int, ...]
    element: ElementType
    attrs: Mapping[str, Any]

    @property
    def n_bytes(self) -> int:
        return math.prod(self.shape) * self.element.dtype.itemsize


def stored_values(variable: Variable, document: Document) -> Stored:
    """Find the values of a variable."""
    nodes = [node for node in variable.node if node.tag.startswith(DMRPP)]
    children = {node.tag.removeprefix(DMRPP): node for node in nodes}
    is_repeated = len(children) < len(nodes)
    children.pop("FixedLengthStringArray", None)
    chunks = children.pop("chunks", None)
    if is_repeated or len(children) > 1 or (chunks is not None and len(chunks) and children):
        raise SourceFormatError("the document states several places for its values")
    for name, node in children.items():
        if name == "chunk":
            return _in_granule(variable, [node], {}, document)
        if name not in _INLINE:
            raise UnsupportedFeatureError(f"values in dmrpp:{name} are not read")
        fill = _fill(variable, {} if chunks is None else chunks.attrib, any_missing=False)
        return Stored(_INLINE[name](variable, node, document), fill, _WHY_INLINE[name])
    if chunks is None:
        raise UnsupportedFeatureError("the DMR++ does not say where its values are")
    return _in_granule(variable, list(chunks), chunks.attrib, document)


# Byte ranges of the granule


def _in_granule(
    variable: Variable, nodes: Sequence[ET.Element], about: Mapping[str, str], document: Document
) -> Stored:
    by_tag: dict[str, list[ET.Element]] = {}
    for node in nodes:
        by_tag.setdefault(node.tag, []).append(node)
    lengths = by_tag.pop(f"{DMRPP}chunkDimensionSizes", [])
    places = Places.of(by_tag.pop(f"{DMRPP}chunk", []))
    blocks = Places.of(by_tag.pop(f"{DMRPP}block", []))
    is_linked = about.get("LBChunk") == "true" or places.is_linked
    if by_tag or is_linked or (blocks.n and (places.n or lengths)):
        raise UnsupportedFeatureError("chunks of several linked blocks are not read")
    filters = _filters(about, document.has_version, variable.element.dtype.itemsize)
    if 0 in variable.shape or not (places.n or blocks.n):
        return Stored(None, _fill(variable, about, any_missing=0 not in variable.shape))
    if variable.element.dtype.kind == "T":
        raise UnsupportedFeatureError("strings of variable length are pointers in the granule")
    if lengths:
        sizes = _integers((lengths[0].text or "").split(), "the shape").tolist()
        chunks = _in_chunks(variable, places, tuple(sizes), filters, document)
    elif places.n > 1:
        raise SourceFormatError(f"it has {places.n} chunks, but the document states no chunk shape")
    elif filters and blocks.n:
        raise UnsupportedFeatureError("compressed data in several linked blocks are not read")
    elif filters:
        whole = places.at_origin(variable.shape)
        chunks = _in_chunks(variable, whole, variable.shape, filters, document)
    else:
        chunks = _in_pieces(variable, blocks if blocks.n else places, document)
    any_missing = bool((chunks[1].state == ChunkState.MISSING).any())
    return Stored(chunks, _fill(variable, about, any_missing=any_missing))


@dataclass(frozen=True)
class Places:
    """Columns of the attributes of chunks or blocks."""

    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    position: list[str]
    href: list[str | None]
    mask: NDArray[np.int64] | None
    is_linked: bool = False

    @classmethod
    def of(cls, nodes: Sequence[ET.Element]) -> Places:
        """Raises SourceFormatError for numbers that are none."""
        rows = [node.attrib for node in nodes]
        masks = [row.get("fm", "0") for row in rows]
        offset = _integers([row.get("offset", "") for row in rows], "offset")
        length = _integers([row.get("nBytes", "") for row in rows], "nBytes")
        if ((offset + length) > _MAX_OFFSET).any() or (length == 0).any():
            raise SourceFormatError("it has chunks without bytes, or where no file has bytes")
        mask = _integers(masks, "fm") if set(masks) - {"0"} else None
        if mask is not None and mask.max() > _MAX_MASK:
            raise SourceFormatError(f"it has the filter mask {mask.max()}")
        return cls(
            offset,
            length,
            [row.get("chunkPositionInArray", "") for row in rows],
            [row.get("href") for row in rows],
            mask,
            any("LinkedBlockIndex" in row for row in rows),
        )

    @property
    def n(self) -> int:
        return len(self.offset)

    def at_origin(self, shape: tuple[int, ...]) -> Places:
        """The same, for one chunk that holds a whole array."""
        origin = f"[{','.join('0' for _ in shape)}]"
        return Places(self.offset, self.length, [origin], self.href, self.mask)

    def coords(self, rank: int) -> NDArray[np.int64]:
        """First element of each chunk, (n, rank)."""
        joined = "".join(self.position)
        plain = r"(\[[0-9]{1,18}(,[0-9]{1,18})*\])+" if rank else r"(\[\])+"
        commas = {position.count(",") for position in self.position}
        starts = joined.count("[")
        if starts != self.n or commas != {max(0, rank - 1)} or not re.fullmatch(plain, joined):
            raise SourceFormatError("the position of a chunk has not a number for each dimension")
        texts = joined[1:-1].replace("][", ",").split(",") if rank else []
        return np.array(list(map(int, texts)), np.int64).reshape(self.n, rank)

    def sources(self, document: Document) -> tuple[tuple[Source, ...], NDArray[np.int32]]:
        """The files, and the number of the file of each place."""
        hrefs = list(dict.fromkeys(self.href))
        sources = list(dict.fromkeys(map(document.source, hrefs)))
        numbers = {href: sources.index(document.source(href)) for href in hrefs}
        which = np.array([numbers[href] for href in self.href], np.int32)
        for at, source in enumerate(sources):
            own = which == at
            stops = (self.offset + self.length)[own]
            last = int(stops.argmax())
            require_inside(source, int(self.offset[own][last]), int(stops[last]))
        return tuple(sources), which


def _integers(texts: Sequence[str], what: str) -> NDArray[np.int64]:
    joined = ",".join(texts)
    if texts and not re.fullmatch(r"[0-9]{1,18}(,[0-9]{1,18})*", joined):
        wrong = next(text for text in texts if not re.fullmatch(r"[0-9]{1,18}", text))
        raise SourceFormatError(f"{what} of a chunk is {wrong[:40]!r}")
    return np.array(list(map(int, texts)), np.int64)


def _filters(about: Mapping[str, str], has_version: bool, itemsize: int) -> tuple[Codec, ...]:
    """The codecs of the filters. Writers without a version listed them in any order."""
    names = about.get("compressionType", "").split()
    unknown = [name for name in names if name not in _FILTERS]
    if unknown:
        raise UnsupportedFeatureError(f"the filter {unknown[0]!r} cannot be decoded")
    if not has_version and sorted(names) == sorted(set(names)) and set(names) <= set(_OLD_ORDER):
        names = [name for name in _OLD_ORDER if name in names]
    values = {"shuffle": (itemsize,)}
    return filter_codecs(tuple(Filter(_FILTERS[n], n, values.get(n, ())) for n in names))


def _in_chunks(
    variable: Variable,
    places: Places,
    chunk_shape: tuple[int, ...],
    filters: tuple[Codec, ...],
    document: Document,
) -> tuple[Encoding, ChunkManifest]:
    shape, element = variable.shape, variable.element
    if len(chunk_shape) != len(shape) or 0 in chunk_shape:
        raise SourceFormatError(f"its chunks of shape {chunk_shape} do not fit its shape {shape}")
    chunk_bytes = math.prod(chunk_shape) * element.dtype.itemsize
    if chunk_bytes > _MAX_CHUNK_BYTES:
        raise UnsupportedFeatureError(f"its chunks of shape {chunk_shape} have {chunk_bytes} bytes")
    if not filters and (places.length != chunk_bytes).any():
        raise SourceFormatError(
            f"the document states other sizes for its chunks of {chunk_bytes} bytes"
        )
    coords, rest = np.divmod(places.coords(len(shape)), np.array(chunk_shape, np.int64))
    grid = chunk_counts(shape, chunk_shape)
    numbers = numbers_inside(coords.T, grid) if shape else np.zeros(places.n, np.int64)
    if rest.any() or (numbers < 0).any() or len(np.unique(numbers)) < places.n:
        raise SourceFormatError("its chunks are not at places of the grid, each at one")
    sources, which = places.sources(document)
    mask = None if places.mask is None else places.mask.astype(np.uint32)
    n_chunks = math.prod(grid)
    document.count(n_chunks)
    check_chunks(n_chunks, places.n)
    manifest = scattered_chunks(
        n_chunks,
        numbers,
        sources,
        source=which,
        offset=places.offset,
        length=places.length,
        filter_mask=mask,
    )
    return shared_encoding(chunk_shape, element.dtype, (*element.codecs, *filters)), manifest


def _in_pieces(
    variable: Variable, pieces: Places, document: Document
) -> tuple[Encoding, ChunkManifest]:
    """Contiguous data, mostly in one piece; it is cut so that no chunk is in two of them."""
    shape, element = variable.shape, variable.element
    _require_all(variable, int(pieces.length.sum()))
    sources, which = pieces.sources(document)
    runs = zip(which.tolist(), pieces.offset.tolist(), pieces.length.tolist(), strict=True)
    own = [Piece(sources[number], offset, length) for number, offset, length in runs]
    chunks = chunks_of_pieces(shape, element.dtype.itemsize, own, document.max_chunk_bytes)
    if chunks is None:
        raise UnsupportedFeatureError("its linked blocks begin inside of elements")
    chunk_shape, manifest = chunks
    document.count(manifest.n_rows)
    edge = edge_policy(shape, chunk_shape)
    return shared_encoding(chunk_shape, element.dtype, element.codecs, edge), manifest


def _require_all(variable: Variable, n_bytes: int) -> None:
    if n_bytes != variable.n_bytes:
        raise SourceFormatError(
            f"it needs {variable.n_bytes} bytes, but the document states {n_bytes}"
        )


# Values in the document itself


def _compact(
    variable: Variable, node: ET.Element, document: Document
) -> tuple[Encoding, ChunkManifest]:
    raw = _from_base64(node, document)
    if variable.element.dtype.kind != "T":
        return _values(variable, raw, document)
    if math.prod(variable.shape) != 1:
        raise UnsupportedFeatureError("the length of its strings is not stated")
    return _texts(variable, [raw.partition(b"\0")[0]], document)


def _missing_data(
    variable: Variable, node: ET.Element, document: Document
) -> tuple[Encoding, ChunkManifest]:
    """Values that the writer worked out: compressed, unless it is only one."""
    if variable.element.dtype.kind in "ST":
        raise UnsupportedFeatureError("missing data that are texts are not read")
    _check_size(variable.n_bytes, document)
    raw = _from_base64(node, document)
    is_single = math.prod(variable.shape) == 1
    return _values(variable, raw if is_single else _inflated(raw, variable.n_bytes), document)


def _values(variable: Variable, raw: bytes, document: Document) -> tuple[Encoding, ChunkManifest]:
    """Values as they were in the memory of the writer, which is little-endian."""
    element = variable.element
    if element.dtype.names is not None:
        raise UnsupportedFeatureError("structures that the DMR++ itself holds are not read")
    _require_all(variable, len(raw))
    codecs = (*element.codecs[:-1], bytes_codec(element.dtype))
    return _as_chunk(variable, raw, document, codecs)


def _texts_of_variable_length(
    variable: Variable, node: ET.Element, document: Document
) -> tuple[Encoding, ChunkManifest]:
    if variable.element.dtype.kind != "T":
        raise SourceFormatError("it has texts, but its type is not text")
    n_texts = math.prod(variable.shape)
    _check_size(4 * n_texts, document)
    texts: list[bytes] = []
    for each in node.iterfind(f"{DAP}v"):
        count = integer(each.get("c", "1"), "the number of equal texts")
        if len(texts) + count > n_texts:
            raise SourceFormatError(f"it has more than {n_texts} texts")
        text, size = (each.text or "").encode(), each.get("s")
        if size is not None:
            n_bytes = integer(size, "the size of a text")
            _check_size(n_bytes, document)
            text = _inflated(_from_base64(each, document), n_bytes)
        texts += [text] * count
    if len(texts) != n_texts:
        raise SourceFormatError(f"it has {len(texts)} of {n_texts} texts")
    return _texts(variable, texts, document)


_INLINE = {
    "compact": _compact,
    "missingdata": _missing_data,
    "vlsa": _texts_of_variable_length,
}
_WHY_INLINE = {
    "compact": "compact data, which the DMR++ holds",
    "missingdata": "values that the DMR++ holds",
    "vlsa": "strings of variable length, which the DMR++ holds",
}


def _texts(
    variable: Variable, texts: Sequence[bytes], document: Document
) -> tuple[Encoding, ChunkManifest]:
    _check_size(4 * len(texts) + sum(map(len, texts)), document)
    for text in texts:
        try:
            text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UnsupportedFeatureError(f"a text is not UTF-8: {text[:40]!r}") from error
    raw = encode_chunk(np.array(texts, object), (_TEXTS,))
    return _as_chunk(variable, raw, document, (_TEXTS,))


def _as_chunk(
    variable: Variable, raw: bytes, document: Document, codecs: tuple[Codec, ...]
) -> tuple[Encoding, ChunkManifest]:
    document.count(1, len(raw))
    shape = tuple(max(1, extent) for extent in variable.shape)
    return shared_encoding(shape, variable.element.dtype, codecs), ChunkManifest.from_inline([raw])


def _from_base64(node: ET.Element, document: Document) -> bytes:
    text = "".join((node.text or "").split())
    _check_size(len(text) // 4 * 3, document)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SourceFormatError(f"its values are not base64: {error}") from error


def _inflated(raw: bytes, n_bytes: int) -> bytes:
    decoder = zlib.decompressobj()
    try:
        data = decoder.decompress(raw, n_bytes + 1)
    except zlib.error as error:
        raise SourceFormatError(f"its values cannot be inflated: {error}") from error
    if len(data) != n_bytes or not decoder.eof:
        raise SourceFormatError(f"its values are no stream of {n_bytes} bytes")
    return data


def _check_size(n_bytes: int, document: Document) -> None:
    if n_bytes > document.max_inline_bytes:
        raise UnsupportedFeatureError(
            f"the DMR++ holds {n_bytes} bytes of its values, which would be kept in the references;"
            f" raise max_inline_bytes (now {document.max_inline_bytes}) to keep them"
        )


# What no chunk holds


def _fill(variable: Variable, about: Mapping[str, str], *, any_missing: bool) -> Any:
    """The fill value of a variable; zero if it is not known and nothing reads as it."""
    text = about.get("fillValue")
    fill = exact_fill(text, variable.element, variable.attrs.get("_FillValue"))
    if fill is None and any_missing:
        how = "not stated" if text is None else f"stated as {text[:40]!r}, which may not be exact"
        raise UnsupportedFeatureError(
            f"it has chunks that the granule does not hold, and its fill value is {how}"
        )
    return zero_of(variable.element.dtype) if fill is None else fill
