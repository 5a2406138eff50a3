"""Where stored chunks are: in contiguous data of a file, or in files of their own in a folder.

Formats keep arrays as one run of elements in C order, or as several pieces of it. Large ones are
split, so that reading a few elements does not read all of them. No bytes are moved
(`contiguous_chunks`, `chunks_of_pieces`).

`StoreFiles` reads metadata documents and lists the files of chunks, local or on any fsspec
filesystem. `ChunkFiles` is the protocol that the scanner of Zarr stores needs: references of
kerchunk implement it, too. `whole_files` makes a manifest of chunks that are a file each.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from gridref.errors import Place, SourceFormatError, SourceUnavailableError, UnsupportedFeatureError
from gridref.formats.location import Location, only_allowed
from gridref.formats.scanner import ScanOptions
from gridref.io import (
    Allow,
    Buffer,
    RetryPolicy,
    SourcePool,
    absolute_url,
    current_traffic,
    is_absent,
    is_local,
    policy_for,
    read_file,
    real_path,
    within_limit,
)
from gridref.io.address import open_filesystem
from gridref.io.ahead import in_threads
from gridref.io.faults import unavailable
from gridref.io.identity import source_of_info
from gridref.io.remote import RemoteFiles
from gridref.limits import beyond, chunk_limit, limits
from gridref.model.encoding import EdgePolicy
from gridref.model.grid import chunk_counts, chunk_runs
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.typing import Int64Array

# Contiguous data


def contiguous_chunks(
    shape: Sequence[int], itemsize: int, source: Source, offset: int, max_chunk_bytes: int
) -> tuple[tuple[int, ...], ChunkManifest]:
    """Chunk shape and chunks of contiguous data that begins at byte `offset` of a file."""
    require_inside(source, offset, offset + math.prod(shape) * itemsize)
    chunk_shape = split_contiguous(shape, itemsize, max_chunk_bytes)
    start, count = chunk_runs(shape, chunk_shape)
    manifest = ChunkManifest.from_columns(
        [source], offset=offset + start * itemsize, length=count * itemsize
    )
    return chunk_shape, manifest


def require_inside(source: Source, start: int, stop: int) -> None:
    """Refuse data that reaches beyond the end of its file."""
    size = source.size_bytes
    if size is not None and stop > size:
        place = Place(source=source.url, start=start, stop=stop)
        raise SourceFormatError(
            f"the data reaches beyond the end of the file at byte {size}", place
        )


def edge_policy(shape: Sequence[int], chunk_shape: Sequence[int]) -> EdgePolicy:
    """Truncated, unless chunks divide the shape: then the grid is regular."""
    regular = all(extent % length == 0 for extent, length in zip(shape, chunk_shape, strict=True))
    return EdgePolicy.PADDED if regular else EdgePolicy.TRUNCATED


def split_contiguous(shape: Sequence[int], itemsize: int, max_bytes: int) -> tuple[int, ...]:
    """Choose chunks of at most `max_bytes` with contiguous elements in C order.

    All axes after the one that is cut stay whole, and those before it have chunks of one element.
    """
    chunk = [max(1, extent) for extent in shape]
    for axis, extent in enumerate(chunk):
        row_bytes = max(1, itemsize) * math.prod(chunk[axis + 1 :])
        if row_bytes * extent <= max_bytes:
            break
        chunk[axis] = _chunk_length(extent, max(1, max_bytes // row_bytes))
        if row_bytes <= max_bytes:
            break
    return tuple(chunk)


def _chunk_length(extent: int, longest: int) -> int:
    """A divisor of `extent` between a quarter of `longest` and `longest`, else `longest`."""
    for n_chunks in range(-(-extent // longest), 4 * extent // longest + 1):
        if extent % n_chunks == 0:
            return extent // n_chunks
    return longest


class Piece(NamedTuple):
    """Consecutive bytes of an array, and the first byte of them in a file."""

    source: Source
    offset: int
    length: int


def chunks_of_pieces(
    shape: Sequence[int], itemsize: int, pieces: Sequence[Piece], max_chunk_bytes: int
) -> tuple[tuple[int, ...], ChunkManifest] | None:
    """Chunk shape and chunks of contiguous data in pieces; no chunk is in two of them.

    None if a piece begins inside of an element.
    """
    length: Int64Array = np.array([piece.length for piece in pieces], np.int64)
    first = np.cumsum(length) - length
    chunk_shape = _chunks_between(shape, itemsize, first[1:].tolist(), max_chunk_bytes)
    if chunk_shape is None:
        return None
    n_chunks = math.prod(chunk_counts(shape, chunk_shape))
    check_chunks(n_chunks, n_chunks)
    start, count = (each * itemsize for each in chunk_runs(shape, chunk_shape))
    which = np.searchsorted(first, start, side="right") - 1
    offset: Int64Array = np.array([piece.offset for piece in pieces], np.int64)
    sources = list(dict.fromkeys(piece.source for piece in pieces))
    number_of = {source: number for number, source in enumerate(sources)}
    numbers = np.array([number_of[piece.source] for piece in pieces], np.int32)
    manifest = ChunkManifest.from_columns(
        sources, source=numbers[which], offset=offset[which] + start - first[which], length=count
    )
    return chunk_shape, manifest


def _chunks_between(
    shape: Sequence[int], itemsize: int, bounds: Sequence[int], max_bytes: int
) -> tuple[int, ...] | None:
    """The largest contiguous chunks of at most `max_bytes` that cross no bound.

    Bounds are bytes of the array; None if one of them cuts an element.
    """
    if any(bound % itemsize for bound in bounds):
        return None
    if not bounds:
        return split_contiguous(shape, itemsize, max_bytes)
    unit = math.gcd(*(bound // itemsize for bound in bounds))
    chunk = [max(1, extent) for extent in shape]
    for axis, extent in enumerate(chunk):
        row = math.prod(chunk[axis + 1 :])
        if unit % row == 0 and row * itemsize <= max_bytes:
            common = unit // row if axis == 0 else math.gcd(unit // row, extent)
            chunk[axis] = _largest_divisor(common, min(max_bytes // (row * itemsize), extent))
            return tuple(chunk)
        chunk[axis] = 1
    return tuple(chunk)


def _largest_divisor(number: int, limit: int) -> int:
    """The largest divisor of `number` that is at most `limit`."""
    best = 1
    for divisor in range(1, math.isqrt(number) + 1):
        if number % divisor == 0:
            for candidate in (divisor, number // divisor):
                if best < candidate <= limit:
                    best = candidate
    return best


# Files of chunks


class ChunkFiles(Protocol):
    """The protocol of a store, or of references in place of one."""

    url: str
    """Its address."""
    pool: SourcePool
    """What reads its chunks."""

    def address(self, key: str) -> str: ...

    def get(self, key: str) -> bytes | None:
        """All of a small file; None where there is none."""
        ...

    def folders(self, key: str) -> list[str]:
        """Names of the folders right below a key."""
        ...

    def ranges(
        self, keys: Sequence[str], below: str
    ) -> Iterable[tuple[str, Source | bytes, int, int]]:
        """For each existing key: key, place (or its bytes), offset and size."""
        ...


class StoreFiles:
    """Reads a store's files.

    Parameters
    ----------
    url
        Address of the store's root.
    storage_options
        fsspec options.
    allow
        Folders that its symbolic links may lead into, besides its own.
    """

    def __init__(
        self,
        url: str,
        storage_options: Mapping[str, Any] | None = None,
        allow: Allow = None,
    ) -> None:
        self.url = absolute_url(url).rstrip("/")
        self._policy = policy_for(self.url, allow)
        self._inside = f"{real_path(self.url)}/"
        self._followed: set[str] = set()
        self.storage_options = storage_options
        self.pool = SourcePool(storage_options, identity="skip")
        self._remote = RemoteFiles(storage_options)
        self._traffic = current_traffic()
        self._local = is_local(self.url)
        self._filesystem: Any = None
        self._path = self.url
        if not self._local:
            self._filesystem, self._path = open_filesystem(self.url, storage_options)

    @classmethod
    def at(cls, location: Location, options: ScanOptions) -> StoreFiles:
        """The store that is scanned: a folder, or the one around a file that stands for it."""
        return cls(location.folder, options.storage_options, options.allow)

    def address(self, key: str) -> str:
        return f"{self.url}/{key}" if key else self.url

    def get(self, key: str) -> bytes | None:
        """All of a small file; None where there is none."""
        self._traffic.add(1)
        try:
            data = self._read(key)
        except SourceUnavailableError as error:
            if is_absent(error) or isinstance(error.__cause__, IsADirectoryError):
                return None
            raise
        self._traffic.add(0, len(data))
        return data

    def _read(self, key: str) -> bytes:
        if self._local:
            self._follow(self.address(key))
            return read_file(self.address(key))
        path = f"{self._path}/{key}"
        return bytes(self._asked(key, "cat_file", path))

    def _follow(self, path: str) -> None:
        """Refuse a file or folder of the store that symbolic links lead out of it.

        Raises
        ------
        UnsupportedFeatureError
            If their target is not allowed.
        """
        real = real_path(path)
        if not real.startswith(self._inside):
            with only_allowed(self._policy, path):
                pass
        self._followed.add(path)

    def _asked(self, key: str, method: str, path: str, **options: Any) -> Any:
        """The answer of the filesystem; what it raises becomes one of gridref's errors."""
        ask = within_limit(self._filesystem, method)
        return RetryPolicy().call(lambda: ask(path, **options), self.address(key))

    def folders(self, key: str) -> list[str]:
        """Names of the folders right below a key, sorted."""
        self._traffic.add(1)
        if self._local:
            return _folders_in(self.address(key))
        path = f"{self._path}/{key}".rstrip("/")
        entries_below = self._asked(key, "ls", path, detail=True)
        names = (
            str(entry["name"]).rstrip("/").rpartition("/")[2]
            for entry in entries_below
            if entry["type"] == "directory"
        )
        return sorted(set(names) - {""})

    def keys_below(self, key: str) -> list[str] | None:
        """Keys of all files below a key, sorted; None where nothing can be listed (HTTP)."""
        if not self._local and self._lists_nothing:
            return None
        self._traffic.add(1)
        if self._local:
            paths: Iterable[str] = _files_below(self.address(key))
            root = self.url
        else:
            root = self._path
            paths = self._asked(key, "find", f"{root}/{key}".rstrip("/"))
        return sorted(str(path).removeprefix(f"{root}/") for path in paths)

    @property
    def _lists_nothing(self) -> bool:
        return self._filesystem.protocol in ("http", "https", ("http", "https"))

    def ranges(
        self, keys: Sequence[str], below: str
    ) -> Iterable[tuple[str, Source | bytes, int, int]]:
        """For each existing key: key, file, 0 and its size."""
        for key, source in self.sources(keys, below).items():
            yield key, source, 0, source.size_bytes or 0

    def sources(self, keys: Sequence[str], below: str) -> dict[str, Source]:
        """The existing keys, with size and version.

        One listing if the filesystem can list, else one request for each key.

        Parameters
        ----------
        keys
            Keys that may exist.
        below
            A key that is the beginning of all of them.
        """
        if self._local:
            return _found(keys, map(self._local_source, keys))
        listed = self._listed(below)
        if listed is not None:
            return {
                key: source_of_info(self.address(key), listed[f"{self._path}/{key}"])
                for key in keys
                if f"{self._path}/{key}" in listed
            }
        return _found(keys, in_threads(self._remote_source, keys))

    def listed(self, below: str) -> dict[str, Source] | None:
        """The files right below a key by name, none if there is no such folder.

        None if the filesystem cannot list them with their versions.
        """
        if self._local:
            names = _files_in(self.address(below))
            return _found(names, (self._local_source(f"{below}/{name}") for name in names))
        found = self._listed(below)
        if found is None:
            return None
        head = f"{self._path}/{below}/"
        names = [path.removeprefix(head) for path in found]
        return {
            name: source_of_info(self.address(f"{below}/{name}"), info)
            for name, info in zip(names, found.values(), strict=True)
            if "/" not in name
        }

    def named(self, below: str, names: Iterable[str]) -> dict[str, Source]:
        """Those of some files right below a key that are there, by name."""
        found = self.sources([f"{below}/{name}" for name in names], below)
        return {key.rpartition("/")[2]: source for key, source in found.items()}

    def _listed(self, below: str) -> dict[str, Mapping[str, Any]] | None:
        """The listing's information about each file; None if it lacks versions."""
        if self._lists_nothing:
            return None
        self._traffic.add(1)
        path = f"{self._path}/{below}".rstrip("/")
        listed = self._asked(below, "find", path, detail=True)
        if not listed and not self._is_empty(path, below):
            return None
        if not all("ETag" in info for info in listed.values()):
            return None
        return {str(path).rstrip("/"): info for path, info in listed.items()}

    def _is_empty(self, path: str, key: str) -> bool:
        """Whether there is nothing: fsspec also finds nothing if it cannot reach the server."""
        try:
            return not self._asked(key, "ls", path, detail=False)
        except SourceUnavailableError as error:
            if is_absent(error):
                return True
            raise

    def _local_source(self, key: str) -> Source | None:
        path = self.address(key)
        folder = os.path.dirname(path)
        if folder not in self._followed:
            self._follow(folder)
        try:
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                self._follow(path)
                status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise unavailable(path, error) from error
        return Source(path, status.st_size, status.st_mtime_ns)

    def _remote_source(self, key: str) -> Source | None:
        try:
            return self._remote.describe(self.address(key))
        except SourceUnavailableError as error:
            if is_absent(error):
                return None
            raise


def read_each(
    pool: SourcePool, sources: Sequence[Source], starts: Any, lengths: Any
) -> list[bytes]:
    """One range of each source, several at once; neighbours in one source are read together."""
    groups: dict[Source, list[int]] = {}
    for number, source in enumerate(sources):
        groups.setdefault(source, []).append(number)
    start, length = np.asarray(starts, np.int64), np.asarray(lengths, np.int64)

    def read(group: tuple[Source, list[int]]) -> list[Buffer]:
        source, members = group
        return pool.read_ranges(source, start[members], length[members])

    parts: list[bytes] = [b""] * len(sources)
    for members, buffers in zip(groups.values(), in_threads(read, groups.items()), strict=True):
        for number, buffer in zip(members, buffers, strict=True):
            parts[number] = bytes(buffer)
    return parts


def _folders_in(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except OSError as error:
        raise unavailable(path, error) from error


def _files_in(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_file()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unavailable(path, error) from error


def _files_below(path: str) -> Iterator[str]:
    def refuse(error: OSError) -> None:
        raise unavailable(path, error) from error

    for folder, _, names in os.walk(path, onerror=refuse):
        yield from (f"{folder}/{name}" for name in names)


def _found(keys: Iterable[str], sources: Iterable[Source | None]) -> dict[str, Source]:
    return {key: source for key, source in zip(keys, sources, strict=True) if source is not None}


def array_name(url: str) -> str:
    """The name of the only array of a file or folder: that of the file, without suffixes."""
    return url.rpartition("/")[2].partition(".")[0] or "array"


def check_chunk_files(n_files: int) -> None:
    """Refuse arrays of more chunk files than can be looked up."""
    if n_files > limits().chunk_files:
        raise UnsupportedFeatureError(beyond("chunk_files", f"{n_files} chunk files"))


def check_chunks(n_chunks: int, n_stored: int) -> None:
    """Refuse grids of more chunks than a manifest may list, or of few stored ones among many."""
    if limit := chunk_limit(n_chunks, n_stored):
        what = f"it is declared to have {n_chunks} chunks ({n_stored} stored)"
        raise UnsupportedFeatureError(beyond(limit, what))


def scattered_chunks(
    n_chunks: int, rows: Any, sources: Iterable[Source], inline: bytes = b"", **columns: Any
) -> ChunkManifest:
    """The chunks of a grid, if only some are stored.

    Parameters
    ----------
    n_chunks
        All chunks of the grid.
    rows
        Numbers of the stored ones in C order, or whether each is stored.
    columns
        Those of `ChunkManifest.from_columns`, of the stored chunks.
    """
    stored = {"offset": 0, "state": np.uint8(ChunkState.RANGE), **columns}
    whole: dict[str, Any] = {}
    for name, values in stored.items():
        if values is not None:
            whole[name] = np.zeros(n_chunks, getattr(values, "dtype", np.int64))
            whole[name][rows] = values
    return ChunkManifest.from_columns(sources, inline=inline, **whole)


def whole_files(files: StoreFiles, keys: Sequence[str], below: str) -> ChunkManifest:
    """A row for each key, in order: the whole file, or missing where there is none.

    Parameters
    ----------
    keys
        Keys that may exist; `check_chunk_files` bounds their number.
    below
        A key that is the beginning of all of them.
    """
    held = files.sources(keys, below) if keys else {}
    sources = tuple(held.values())
    numbers = {key: number for number, key in enumerate(held)}
    source: Int64Array = np.array([numbers.get(key, -1) for key in keys], np.int64)
    is_there = source >= 0
    sizes: Int64Array = np.array([each.size_bytes or 0 for each in sources], np.int64)
    stored = source[is_there]
    return scattered_chunks(len(keys), is_there, sources, source=stored, length=sizes[stored])
