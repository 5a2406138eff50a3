"""Compare what gridref returns with what the original readers return.

`verify` takes a catalog, a file or files, chooses stored chunks of every array, reads them with
gridref and with h5py or tifffile, and reports every difference in values and labels. It reads parts
of overlays, too, and computes levels of overviews again. A `Summary` of that is a file to publish
beside a catalog.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import PurePosixPath
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gridref.api.catalog import Difference, Verification
from gridref.api.each_chunk import ChecksumScan
from gridref.api.job import Job
from gridref.api.keeper import Keeper
from gridref.api.opening import open_group
from gridref.api.originals import (
    Choice,
    Original,
    Piece,
    Share,
    axis_order,
    choose,
    open_original,
    pieces_of,
    shares_of,
)
from gridref.api.overviews import coarsening_of
from gridref.api.readable import from_files, reader_for
from gridref.api.rewriting.levels import tile_shape
from gridref.api.verify_labels import NOT_IN_FILES, Labels, LabelsOfFile, texts_of
from gridref.catalog import ROOT_FILE, CatalogGroup
from gridref.catalog.commit import recording
from gridref.catalog.examining import check_catalog
from gridref.catalog.folder import publish_file
from gridref.catalog.group import CatalogInfo
from gridref.catalog.overlays import is_current
from gridref.codecs import renumber, unpack, why_not
from gridref.errors import (
    ChecksumError,
    DecodeError,
    GridrefError,
    InvalidRequestError,
    Message,
    Option,
    Place,
    ReadError,
    SourceNotAllowedError,
    UnsupportedFeatureError,
    number_of,
)
from gridref.extras import version_of
from gridref.formats import scan
from gridref.io import MAX_REQUESTS, Allow, absolute_url, is_local, open_for_scan
from gridref.io.ahead import in_threads
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.grid import ChunkGrid
from gridref.model.manifest import ChunkState, Source
from gridref.model.overlay import Box, Cover
from gridref.options import verb
from gridref.serve.plan import plan_read
from gridref.serve.reader import Reader

# The call `verify`

_EXPORTS = (".json", ".parq", ".parquet", ".icechunk")
"""What addresses of references end in that `gridref.verify` reads in place of a catalog."""


_DAMAGED = (ChecksumError, DecodeError)
"""Errors of one chunk. After any other, nothing more of the file is read."""


@dataclass
class _Tally:
    n_chunks: int = 0
    n_values: int = 0
    n_labels: int = 0
    labels: set[str] = field(default_factory=set)
    arrays: set[str] = field(default_factory=set)
    differences: dict[Difference, None] = field(default_factory=dict)
    not_compared: dict[tuple[str, str], None] = field(default_factory=dict)

    def add(self, other: _Tally) -> None:
        self.n_chunks += other.n_chunks
        self.n_values += other.n_values
        self.n_labels += other.n_labels
        self.labels |= other.labels
        self.arrays |= other.arrays
        self.differences |= other.differences
        self.not_compared |= other.not_compared

    def differs(self, place: Place, message: str) -> None:
        self.differences[Difference(place, message)] = None

    def fails(self, error: ReadError, place: Place) -> None:
        """Note a chunk that is damaged, or a file that cannot be read; each file once.

        Raises
        ------
        SourceNotAllowedError
            That is a matter of the call, and not of the file.
        """
        if isinstance(error, SourceNotAllowedError):
            raise error
        where = error.place.within(place)
        if where.source is not None and not isinstance(error, _DAMAGED):
            where = Place(source=where.source)
        self.differs(where, error.reason)


def _is_export(address: str | os.PathLike[str]) -> bool:
    path = PurePosixPath(os.fspath(address))
    return path.suffix in _EXPORTS and path.name != ROOT_FILE


def _opened(
    catalog: str | os.PathLike[str] | VirtualGroup,
    storage_options: Mapping[str, Any] | None,
    allow: Allow,
    snapshot: str | None,
) -> VirtualGroup:
    """The group behind an address. The files of a catalog are checked first."""
    if isinstance(catalog, VirtualGroup):
        group = open_group(catalog, storage_options, allow, snapshot)
        if isinstance(group, CatalogGroup):
            check_catalog(group.info.url, storage_options, group.info.snapshot)
        return group
    if _is_export(catalog) and snapshot is None:
        return scan(catalog, storage_options, allow=allow)
    check_catalog(catalog, storage_options, snapshot)
    return open_group(catalog, storage_options, allow, snapshot)


def _catalog_to_record_in(
    catalog: str | os.PathLike[str] | VirtualGroup, snapshot: str | None
) -> str:
    """The address of a catalog that checksums are recorded in."""
    if isinstance(catalog, VirtualGroup) or snapshot is not None or _is_export(catalog):
        raise InvalidRequestError(
            "checksums are recorded in a catalog: give its address, and no snapshot of it"
        )
    return absolute_url(catalog)


@verb()
def verify(
    catalog: str | os.PathLike[str] | VirtualGroup,
    *,
    all: bool = False,  # noqa: A002 - as on the command line
    checksums: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    allow: Allow = None,
    snapshot: str | None = None,
    seed: int = 0,
    max_in_flight: int = MAX_REQUESTS,
    progress: Callable[[int, int], None] | None = None,
    announce: Callable[[int, int], None] | None = None,
) -> Verification:
    """Compare values and labels of every array with what h5py or tifffile returns for them.

    The labels of each file that is read are compared too: its own coordinates with the cube's at
    the same place, decoded by the CF conventions. So are units, packing and enumerations, which
    define what values mean. Labels that come from names, attributes or options are listed in
    ``not_compared``.

    First, the catalog's own files are compared with their recorded hashes. Each stored chunk is
    read once by gridref and once by the original reader, even if arrays show it several times.

    Parameters
    ----------
    catalog
        Address of a catalog, or of an export (``.json``, ``.parq``, ``.icechunk``); or a group.
    all
        Compare every stored chunk, and the labels of every file. By default, compare the corners
        and a random sample of each array, and the labels of their files.
    checksums
        If nothing differs, read each stored chunk without a checksum and record its CRC-32C in the
        catalog, as a commit. Later reads are compared with it.
    storage_options
        Options of fsspec's filesystem of the catalog and of its sources, or of several by protocol:
        ``{"s3": {"anon": True}, "https": {...}}``.
    allow, snapshot
        As for `gridref.open_catalog`.
    seed
        Seed of the sample.
    max_in_flight
        Remote files that are compared at the same time.
    progress
        Called with the number of chunks compared, and of all chunks to compare.
    announce
        Called before anything is read, with the number of stored chunks to compare and of their
        bytes.

    Raises
    ------
    SourceNotAllowedError
        If a file may not be read. A file that cannot be read, or a chunk that cannot be decoded, is
        a difference.
    CatalogCorruptError
        If a file of the catalog is not as it was written.
    InvalidRequestError
        If `max_in_flight` is below 1, or checksums are to be recorded in an export or a former
        snapshot.
    """
    recorded = _catalog_to_record_in(catalog, snapshot) if checksums else None
    if max_in_flight < 1:
        raise InvalidRequestError(Message(Option("max_in_flight", max_in_flight), " must be >= 1"))
    opened = _opened(catalog, storage_options, allow, snapshot)
    group = from_files(opened)
    random = np.random.default_rng(seed)
    chosen = [
        Choice.of(path, cross, choose(cross, all, random))
        for path, array in group.all_arrays().items()
        for cross in plan_read(array).crosses
    ]
    total = sum(len(choice.batch) for choice in chosen)
    if announce is not None:
        announce(sum(choice.n_chunks for choice in chosen), sum(c.stored_bytes for c in chosen))
    shares = shares_of(chosen)
    reader = reader_for(storage_options)
    labels = Labels(group, reader, Job.of(group))
    work = _Comparison(reader, labels, storage_options, total, progress)
    tally = _Tally()
    for other in work.results(shares, max_in_flight):
        tally.add(other)
    written = _Written(reader, all, random, tally)
    written.compare_overlays(opened)
    if isinstance(opened, CatalogGroup):
        written.compare_levels(opened)
    n_checksums = 0
    if recorded is not None and not tally.differences:
        scan = ChecksumScan(storage_options, progress)
        keeper = Keeper(recorded, storage_options, allow)
        keeper.commit(recording("checksums", scan.of, "all arrays"))
        n_checksums = scan.n_chunks
    return Verification(
        len(tally.arrays),
        tally.n_chunks,
        tally.n_values,
        tuple(tally.differences),
        tuple(
            (path, reason)
            for path, reason in tally.not_compared
            if not (reason == _INLINE and path in tally.labels)
            and (reason == NOT_IN_FILES or (path, NOT_IN_FILES) not in tally.not_compared)
        ),
        n_checksums,
        tally.n_labels,
    )


_INLINE = "its values are inline and name no file"
_ABSENT = "no file holds some of its chunks, which read as the fill value"


class _Comparison:
    """Compares files with what is read of them, several remote ones at the same time."""

    def __init__(
        self,
        reader: Reader,
        labels: Labels,
        storage_options: Mapping[str, Any] | None,
        total: int,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.reader = reader
        self.labels = labels
        self.storage_options = storage_options
        self._done, self._total, self._progress = 0, total, progress
        self._counting = threading.Lock()

    def results(self, shares: Mapping[str | None, Share], max_in_flight: int) -> Iterator[_Tally]:
        """What was found in each file, in order."""
        n_remote = sum(url is not None and not is_local(url) for url in shares)
        return in_threads(self._compared, shares.values(), min(max_in_flight, n_remote))

    def _compared(self, share: Share) -> _Tally:
        tally, seen = _Tally(), LabelsOfFile(self.labels)
        with ExitStack() as stack:

            @cache
            def original(source: Source) -> Original:
                opened = open_original(source.url, self.storage_options, source.policy)
                stack.callback(opened.close)
                return opened

            is_read = True
            for piece in pieces_of(share):
                try:
                    if is_read:
                        _compare(piece, self.reader, original, seen, tally)
                except ReadError as error:
                    tally.fails(error, piece.place)
                    is_read = piece.source is None
                self._tell()
        return tally

    def _tell(self) -> None:
        if self._progress is not None:
            with self._counting:
                self._done += 1
                self._progress(self._done, self._total)


def _compare(
    piece: Piece,
    reader: Reader,
    original_of: Callable[[Source], Original],
    labels: LabelsOfFile,
    tally: _Tally,
) -> None:
    batch, member = piece.batch, piece.member
    if batch.encoding[member] == MISSING_BLOCK:
        tally.not_compared[piece.path, _ABSENT] = None
        return
    source, place = piece.source, piece.place
    got = _read(piece, reader)
    try:
        if source is None:
            raise UnsupportedFeatureError(_why_no_file(piece))
        original = original_of(source)
        raw = _original(original, piece)
    except UnsupportedFeatureError as error:
        if isinstance(got, _DAMAGED) and not any(map(why_not, piece.encoding.codecs)):
            tally.fails(got, place)
        else:
            tally.not_compared[piece.path, error.reason] = None
        return
    if isinstance(got, _DAMAGED):
        tally.fails(got, place)
        return
    raw = np.broadcast_to(raw, got.shape)  # where one stored element is shown several times
    tally.arrays.add(piece.path)
    tally.n_chunks += 1
    tally.n_values += got.size
    message = _difference(got, _as_shown(raw, piece))
    if message and not (piece.offset is None and labels.is_encoded_anew(piece, original, got, raw)):
        tally.differs(place, message)
    for found in labels.compared(piece, original, got, raw):
        if found.path != piece.path:
            tally.labels.add(found.path)
        tally.n_labels += found.n_labels
        if found.difference:
            tally.differs(Place(source=place.source, variable=found.path), found.difference)
        if found.failure:
            tally.fails(found.failure, place)
        if found.not_compared:
            tally.not_compared[found.path, found.not_compared] = None


def _why_no_file(piece: Piece) -> str:
    batch, member = piece.batch, piece.member
    manifest = piece.array.manifests[int(batch.manifest[member])]
    chunk = manifest.take(batch.row[member : member + 1])
    return _ABSENT if chunk.state[0] == ChunkState.MISSING else _INLINE


def _read(piece: Piece, reader: Reader) -> NDArray[Any] | ChecksumError | DecodeError:
    """The values of a piece as gridref reads them, or how they are damaged."""
    selection = piece.cross.in_output(piece.batch.piece[piece.member])
    try:
        return reader.read(piece.array, selection, name=piece.path)
    except _DAMAGED as error:
        return error


def _original(original: Original, piece: Piece) -> NDArray[Any]:
    """The values of a piece as the original reader returns them, numbers as all files name them."""
    encoding = piece.encoding
    if piece.key not in piece.shared:
        whole = original.read(piece)
        piece.shared.clear()
        piece.shared[piece.key] = whole.transpose(np.argsort(axis_order(encoding)))
    chosen: Any = (*piece.cross.in_chunk(piece.batch.piece[piece.member]), ...)
    values: NDArray[Any] = piece.shared[piece.key][chosen]
    for codec in encoding.codecs:
        if codec.name == "gridref.renumber":
            values = renumber(values, codec.configuration["pairs"])
    return values


def _as_shown(values: NDArray[Any], piece: Piece) -> NDArray[Any]:
    """What the array should hold, worked out from the original reader's values."""
    array, encoding = piece.array, piece.encoding
    if encoding.unpacking is not None:
        values = unpack(values, encoding.unpacking)
    if array.dtype.kind == "T":
        return texts_of(values).astype(np.dtypes.StringDType())
    return values.astype(array.dtype, copy=False)


def _difference(got: NDArray[Any], expected: NDArray[Any]) -> str:
    """How two arrays differ, bit for bit; empty if they do not."""
    if got.shape != expected.shape:
        return f"shape {got.shape} instead of {expected.shape}"
    n_different = int(_differs(got, expected).sum())
    return f"{n_different} of {number_of(got.size, 'value')} differ" if n_different else ""


def _differs(got: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.bool_]:
    """Which elements differ, flattened; bytes between the members of a compound do not count."""
    if got.dtype.kind == "T":
        return np.asarray(got != expected).reshape(-1)
    result = np.zeros(got.size, bool)
    if not got.size or not got.dtype.itemsize:
        return result
    if got.dtype.names is not None:
        for name in got.dtype.names:
            result |= _differs(got[name], expected[name]).reshape(got.size, -1).any(axis=1)
        return result
    left, right = (
        np.ascontiguousarray(values).reshape(-1).view(np.uint8) for values in (got, expected)
    )
    return np.asarray((left != right).reshape(got.size, -1).any(axis=1))


# Overlays and overviews, whose chunks gridref has written

_SAMPLED = 8
"""Parts of each box of an overlay, or of an overview, that are compared, if not all are."""


@dataclass(frozen=True, eq=False)
class _Written:
    """Compares what gridref has written with the files."""

    reader: Reader
    all: bool
    random: np.random.Generator
    tally: _Tally

    def compare_overlays(self, group: VirtualGroup) -> None:
        """Compare chunks of all overlays."""
        for path, array in group.all_arrays().items():
            files = array.with_changes(overlays=())
            for overlay in array.overlays:
                for cover in overlay.coverage:
                    sheet = overlay.sheets[cover.sheet]
                    for coords, box in self._chunks(cover, sheet.encodings[0].chunk_shape):
                        place = zip(box, cover.shift, strict=True)
                        in_files = tuple(slice(low - by, high - by) for (low, high), by in place)
                        expected = self._read(files, in_files, path)
                        where = Place(variable=path, chunk=coords)
                        if expected is not None:
                            self._compare(sheet, _slices(box), expected, where, overlay.id)

    def _read(self, array: VirtualArray, part: tuple[slice, ...], path: str) -> NDArray[Any] | None:
        """Elements in the files; None if any of them cannot be read, which is noted."""
        try:
            return self.reader.read(array, part, name=path)
        except ReadError as error:
            self.tally.fails(error, Place(variable=path))
            return None

    def _chunks(
        self, cover: Cover, lengths: tuple[int, ...]
    ) -> Iterator[tuple[tuple[int, ...], Box]]:
        """Coords of chunks of a sheet that a box holds any element of, and these elements."""
        along = list(zip(cover.sheet_box, lengths, strict=True))
        firsts = [low // n for (low, _), n in along]
        counts = [-(-high // n) - low // n for (low, high), n in along]
        for number in self._sample(math.prod(counts)):
            at = np.unravel_index(number, counts)
            coords = tuple(first + int(k) for first, k in zip(firsts, at, strict=True))
            ends = zip(coords, along, strict=True)
            yield (
                coords,
                tuple((max(k * n, low), min((k + 1) * n, high)) for k, ((low, high), n) in ends),
            )

    def compare_levels(self, group: CatalogGroup) -> None:
        """Make parts of all levels that are shown of the elements in the files, and compare."""
        arrays = group.from_files().all_arrays()
        for entry in group.snapshot.overviews:
            array = arrays[entry.array].with_changes(overlays=())
            if not is_current(entry, array):
                continue
            levels = [group.levels.level(entry, n, array) for n in range(1, entry.n_levels + 1)]
            coarsening = coarsening_of(entry, array, levels[0].dtype)
            tile = tile_shape(array.shape, array.dtype.itemsize, entry.factors, entry.n_levels)
            tiles = ChunkGrid.regular(array.shape, tile)
            for number in self._sample(tiles.n_chunks):
                coords = tuple(map(int, np.unravel_index(number, tiles.grid_shape)))
                start = tiles.start(coords)
                shape = tiles.data_shape(coords)
                box = tuple((low, low + n) for low, n in zip(start, shape, strict=True))
                values = self._read(array, _slices(box), entry.array)
                if values is None:
                    continue
                for level, expected in enumerate(coarsening.levels(values), 1):
                    pairs = zip(start, entry.windows(level), strict=True)
                    first = tuple(low // n for low, n in pairs)
                    ends = zip(first, expected.shape, strict=True)
                    part = tuple(slice(low, low + n) for low, n in ends)
                    where = Place(variable=entry.paths[level - 1], chunk=first)
                    self._compare(levels[level - 1], part, expected, where, entry.id)

    def _sample(self, n: int) -> Sequence[int]:
        """Numbers of the parts that are compared."""
        if self.all or n <= _SAMPLED:
            return range(n)
        return sorted({int(each) for each in self.random.integers(0, n, _SAMPLED)})

    def _compare(
        self,
        written: VirtualArray,
        part: tuple[slice, ...],
        expected: NDArray[Any],
        place: Place,
        overlay: str,
    ) -> None:
        """Compare a part of what was written with the elements that files give for it."""
        self.tally.n_chunks += 1
        self.tally.n_values += expected.size
        try:
            message = _difference(self.reader.read(written, part, name=place.variable), expected)
        except GridrefError as error:
            message = str(error.reason)
        if message:
            self.tally.differs(place, f"overlay {overlay}: {message}")


def _slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(low, high) for low, high in box)


# Summaries: JSON objects, whose ``digest`` is the SHA-256 of the rest as JSON text
# with sorted names and without white space

_FORMAT = "gridref verification 1"
_MOST_BYTES = 4 << 20
_READERS = (
    "astropy",
    "blosc2",
    "eccodes",
    "h5py",
    "netCDF4",
    "pyhdf",
    "rasterio",
    "tensorstore",
    "tifffile",
    "wkw",
    "zarr",
)
"""Packages of the original readers."""
_FACTS = {"n_sources": "files", "n_blocks": "blocks", "n_chunks": "stored chunks"}
_COUNTS = {
    "n_arrays": "arrays compared",
    "n_chunks": "chunks compared",
    "n_values": "values compared",
    "n_labels": "labels compared",
}


@dataclass(frozen=True)
class Summary:
    """A summary of a comparison in which nothing differed.

    Attributes
    ----------
    document
        The JSON object, without its own digest.
    """

    document: Mapping[str, Any]

    @classmethod
    def of(cls, info: CatalogInfo, result: Verification, *, all: bool) -> Self:  # noqa: A002
        """The summary of what was just compared."""
        if not result.ok:
            raise InvalidRequestError(
                "the catalog differs from its files, so no summary is written: build it again, or "
                "restore the files"
            )
        versions = {name: version_of(name) for name in ("gridref", *_READERS)}
        return cls(
            {
                "format": _FORMAT,
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
                "catalog": {
                    "digest": info.digest,
                    "snapshot": info.snapshot,
                    **{name: getattr(info, name) for name in _FACTS},
                },
                "compared": {
                    "all": all,
                    **{name: getattr(result, name) for name in _COUNTS},
                    "not_compared": sorted(map(list, {*result.not_compared})),
                },
                "versions": {
                    "python": platform.python_version(),
                    **{name: found for name, found in versions.items() if found is not None},
                },
            }
        )

    @classmethod
    def read(
        cls, path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
    ) -> Self:
        """Read a summary that was published.

        Raises
        ------
        InvalidRequestError
            If it is no summary, or not as it was written.
        SourceUnavailableError
            If it cannot be read.
        """
        url = absolute_url(path)
        with open_for_scan(url, storage_options) as file:
            content = file.read() if file.size <= _MOST_BYTES else b""
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict) or document.get("format") != _FORMAT:
            raise InvalidRequestError(
                f'no summary of this version of gridref ("format": "{_FORMAT}"): write one with'
                " gridref verify CATALOG --summary FILE",
                Place(source=url),
            )
        rest = {name: value for name, value in document.items() if name != "digest"}
        sections = (rest.get("catalog"), rest.get("compared"))
        if document.get("digest") != _digest(rest) or not all(
            isinstance(section, dict) for section in sections
        ):
            raise InvalidRequestError(
                "the summary was changed after it was written (its digest differs): get it again"
                " from where it was published",
                Place(source=url),
            )
        return cls(rest)

    def write(
        self, path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
    ) -> None:
        """Write it, with its digest, to a local path or a URL.

        Raises
        ------
        InvalidRequestError
            If it cannot be written.
        """
        whole = {**self.document, "digest": _digest(self.document)}
        text = json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
        publish_file("the summary", absolute_url(path), text.encode(), storage_options)

    def differences(self, now: Summary) -> list[str]:
        """What a comparison that was just made found to be other than this one, one a line.

        How much was compared counts only if both compared as much: every chunk, or a sample.
        """
        catalogs = self.document["catalog"], now.document["catalog"]
        if catalogs[0].get("digest") != catalogs[1]["digest"]:
            return _unlike(*catalogs, {"digest": "digest", **_FACTS})
        compared = self.document["compared"], now.document["compared"]
        return _unlike(*compared, _COUNTS) if compared[0].get("all") == compared[1]["all"] else []


def _digest(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _unlike(then: Mapping[str, Any], now: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    """The facts that differ, in words."""
    return [
        f"{words}: {now[name]} here, {then.get(name)} in the summary"
        for name, words in names.items()
        if then.get(name) != now[name]
    ]
