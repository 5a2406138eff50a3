"""Compare what gridref returns with what the original readers return.

`verify` takes a catalog, a file or files, chooses stored chunks of every array, reads them with
gridref and with h5py or tifffile, and reports every difference in values and labels.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.api.building import Job
from gridref.api.catalog import Difference, Keeper, Verification
from gridref.api.each_chunk import ChecksumScan
from gridref.api.opening import open_group
from gridref.api.originals import (
    Choice,
    Originals,
    Piece,
    Share,
    axis_order,
    choose,
    shares_of,
    source_of,
)
from gridref.api.readable import from_files, reader_for
from gridref.api.verify_labels import NOT_IN_FILES, Labels, LabelsOfFile, texts_of
from gridref.api.verify_overlays import ComparedChunk, compared_chunks
from gridref.api.verify_overviews import compared_levels
from gridref.catalog import ROOT_FILE, CatalogGroup
from gridref.catalog.commit import recording
from gridref.catalog.examining import check_catalog
from gridref.codecs import renumber, unpack, why_not
from gridref.errors import (
    DecodeError,
    GridrefError,
    InvalidRequestError,
    Place,
    UnsupportedFeatureError,
)
from gridref.formats import scan
from gridref.io import MAX_REQUESTS, Allow, absolute_url, is_local
from gridref.io.ahead import in_threads
from gridref.model.array import VirtualGroup
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.manifest import ChunkState
from gridref.options import verb
from gridref.serve.plan import plan_read
from gridref.serve.reader import Reader

# The call `verify`

_EXPORTS = (".json", ".parq", ".parquet", ".icechunk")
"""What addresses of references end in that `gridref.verify` reads in place of a catalog."""


@dataclass
class _Tally:
    n_chunks: int = 0
    n_values: int = 0
    n_labels: int = 0
    labels: set[str] = field(default_factory=set)
    arrays: set[str] = field(default_factory=set)
    differences: list[Difference] = field(default_factory=list)
    not_compared: dict[tuple[str, str], None] = field(default_factory=dict)

    def add(self, other: _Tally) -> None:
        self.n_chunks += other.n_chunks
        self.n_values += other.n_values
        self.n_labels += other.n_labels
        self.labels |= other.labels
        self.arrays |= other.arrays
        self.differences += other.differences
        self.not_compared |= other.not_compared

    def add_overlay(self, chunk: ComparedChunk) -> None:
        """A chunk of an overlay that was compared with the files."""
        self.n_chunks += 1
        self.n_values += chunk.expected.size
        if isinstance(chunk.got, GridrefError):
            message = str(chunk.got.reason)
        else:
            message = _difference(chunk.got, chunk.expected)
        if message:
            found = f"overlay {chunk.overlay}: {message}"
            self.differences.append(Difference(chunk.place, found))


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
    ReadError
        If a chunk cannot be read. One that is read and cannot be decoded is a difference.
    CatalogCorruptError
        If a file of the catalog is not as it was written.
    InvalidRequestError
        If `max_in_flight` is below 1, or checksums are to be recorded in an export or a former
        snapshot.
    """
    recorded = _catalog_to_record_in(catalog, snapshot) if checksums else None
    if max_in_flight < 1:
        raise InvalidRequestError(f"max_in_flight must be >= 1, got {max_in_flight}")
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
    for chunk in compared_chunks(opened, reader, all, random):
        tally.add_overlay(chunk)
    if isinstance(opened, CatalogGroup):
        for chunk in compared_levels(opened, reader, all, random):
            tally.add_overlay(chunk)
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

    def results(self, shares: Sequence[Share], max_in_flight: int) -> Iterator[_Tally]:
        """What was found in each file, in order."""
        n_remote = sum(share.url is not None and not is_local(share.url) for share in shares)
        n_threads = min(max_in_flight, n_remote)
        return in_threads(self._compared, shares, n_threads)

    def _compared(self, share: Share) -> _Tally:
        tally = _Tally()
        originals = Originals(self.storage_options)
        seen = LabelsOfFile(self.labels)
        try:
            for piece in share.pieces():
                _compare(piece, self.reader, originals, seen, tally)
                self._tell()
        finally:
            originals.close()
        return tally

    def _tell(self) -> None:
        if self._progress is not None:
            with self._counting:
                self._done += 1
                self._progress(self._done, self._total)


def _compare(
    piece: Piece, reader: Reader, originals: Originals, labels: LabelsOfFile, tally: _Tally
) -> None:
    array, batch, member = piece.cross.array, piece.batch, piece.member
    if batch.encoding[member] == MISSING_BLOCK:
        return
    source, offset = source_of(array, int(batch.block[member]), int(batch.row[member]))
    url = None if source is None else source.url
    place = Place(source=url, variable=piece.path, chunk=tuple(batch.chunk[member].tolist()))
    got = _read(piece, reader)
    try:
        if source is None:
            raise UnsupportedFeatureError(_why_no_file(piece))
        originals.of(source.url, source.policy)
        raw = _original(originals, source.url, offset, piece)
    except UnsupportedFeatureError as error:
        if isinstance(got, DecodeError) and not any(map(why_not, piece.encoding.codecs)):
            tally.differences.append(Difference(got.place.within(place), got.reason))
        else:
            tally.not_compared[piece.path, error.reason] = None
        return
    if isinstance(got, DecodeError):
        tally.differences.append(Difference(got.place.within(place), got.reason))
        return
    raw = np.broadcast_to(raw, got.shape)  # where one stored element is shown several times
    tally.arrays.add(piece.path)
    tally.n_chunks += 1
    tally.n_values += got.size
    message = _difference(got, _as_shown(raw, piece))
    original = originals.of(source.url)
    if message and not (offset is None and labels.is_encoded_anew(piece, original, got, raw)):
        tally.differences.append(Difference(place, message))
    for found in labels.compared(piece, original, offset, got, raw):
        if found.path != piece.path:
            tally.labels.add(found.path)
        tally.n_labels += found.n_labels
        if found.difference:
            where = Place(source=url, variable=found.path)
            tally.differences.append(Difference(where, found.difference))
        if found.not_compared:
            tally.not_compared[found.path, found.not_compared] = None


def _why_no_file(piece: Piece) -> str:
    batch, member = piece.batch, piece.member
    manifest = piece.cross.array.manifests[int(batch.manifest[member])]
    chunk = manifest.take(batch.row[member : member + 1])
    return _ABSENT if chunk.state[0] == ChunkState.MISSING else _INLINE


def _read(piece: Piece, reader: Reader) -> NDArray[Any] | DecodeError:
    """The values of a piece as gridref reads them, or why they cannot be decoded."""
    selection = piece.cross.in_output(piece.batch.piece[piece.member])
    try:
        return reader.read(piece.cross.array, selection, name=piece.path)
    except DecodeError as error:
        return error


def _original(originals: Originals, url: str, offset: int | None, piece: Piece) -> NDArray[Any]:
    """The values of a piece as the original reader returns them, numbers as all files name them."""
    encoding = piece.encoding
    if piece.key not in piece.shared:
        whole = originals.read(url, piece.chunk(offset))
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
    array, encoding = piece.cross.array, piece.encoding
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
    return f"{n_different} of {got.size} values differ" if n_different else ""


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
