"""Read HDF5 files with h5py, for `verify`.

Checks compare scanned arrays with what `OriginalFile` returns for the same paths.
"""

from __future__ import annotations

import atexit
import io
import os
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5p, h5r, h5s
from numpy.typing import NDArray

from gridref.errors import GridrefError, InvalidRequestError, Place, SourceFormatError
from gridref.formats.hdf5.arrays import RENAMED, ROW_SIZE
from gridref.formats.hdf5.datatypes import ElementType, Form, element_type
from gridref.io import absolute_url, collector_paused, is_local, open_for_scan
from gridref.model.array import zero_of

WHOLE_BYTES = 16 << 20
"""Remote files of up to so many bytes are read by one request."""

_HDF5_ERRORS = (
    OSError,
    RuntimeError,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    OverflowError,
    NotImplementedError,
    MemoryError,
)
"""What h5py raises when HDF5 reports an error: it maps HDF5's error numbers to these."""


@contextmanager
def _hdf5_errors(place: Place, doing: str) -> Iterator[None]:
    """Turn exceptions of h5py into a `SourceFormatError` about `place`."""
    try:
        yield
    except GridrefError as error:
        _release_frames(error)
        raise
    except _HDF5_ERRORS as error:
        _release_frames(error)
        detail = str(error.args[0] if error.args else error) or type(error).__name__
        raise SourceFormatError(f"cannot {doing}: {detail}", place) from error


def _release_frames(error: BaseException) -> None:
    """Clear the frames of an error's traceback, which keep h5py's objects open.

    An error may be kept until the interpreter ends. Objects of h5py that are alive then are freed
    by HDF5, which calls the Python file object below them, and the process crashes.
    """
    traceback.clear_frames(error.__traceback__)


@dataclass(frozen=True)
class OriginalVariable:
    """A dataset as h5py shows it.

    Attributes
    ----------
    attrs
        Attributes that are texts, numbers or arrays of them.
    scales
        For each axis the paths of the dimension scales that label it.
    members
        Names and numbers of its enumeration.
    """

    shape: tuple[int, ...]
    attrs: Mapping[str, Any]
    scales: tuple[tuple[str, ...], ...]
    members: Mapping[str, int]


class OriginalFile:
    """A file open in h5py; its datasets are read in the form in which a scan presents them.

    Parameters
    ----------
    storage_options
        Options for fsspec.

    Raises
    ------
    SourceFormatError
        If h5py cannot open it.
    SourceUnavailableError
        If it is not there.
    """

    def __init__(self, source_url: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self._url = absolute_url(source_url)
        self._stream = open_for_scan(self._url, storage_options)
        self._opened: tuple[str, h5py.Dataset] | None = None
        try:
            with self._reading(Place(self._url), "open it with h5py"):
                self._file = h5py.File(self._opened_by_hdf5(), "r")
        except GridrefError:
            self._stream.close()
            raise
        _open_files.add(self)

    def _opened_by_hdf5(self) -> Any:
        """A small remote file is read whole: other threads' files wait while h5py reads one."""
        if is_local(self._url):
            return self._url
        return io.BytesIO(self._stream.read()) if self._stream.size <= WHOLE_BYTES else self._stream

    def read(self, path: str, selection: tuple[slice, ...] | None = None) -> NDArray[Any]:
        """Values of a dataset.

        Parameters
        ----------
        path
            Path of the array in the scanned group, like ``"model/tas"``.
        selection
            One slice with a positive step for each axis, all axes of an array datatype included; by
            default everything. What is beyond the dataset's extents reads as its fill value, as
            where an unlimited dimension has grown.

        Returns
        -------
        numpy.ndarray
            In native byte order; variable-length strings as ``StringDType``, references as paths.

        Raises
        ------
        InvalidRequestError
            If there is no dataset of that name.
        SourceFormatError
            If h5py cannot read it.
        SourceUnavailableError
            If a read fails.
        """
        place = Place(self._url, variable=path)
        with self._reading(place, "read it with h5py"):
            if self._opened is None or self._opened[0] != path:
                self._opened = path, _open(self._file, path, place)
            return _read(*self._opened, selection)

    def element_at(
        self, path: str, start: tuple[int, ...], offset: int
    ) -> tuple[str, tuple[int, ...]] | None:
        """The dataset that the bytes from an offset on belong to, and its first element there.

        Parameters
        ----------
        path
            The dataset to look at first.
        start
            The element of it to look at first.
        offset
            Place in the file, in bytes.

        Returns
        -------
        tuple or None
            Path and coordinates; None where no chunk, or element of contiguous data, is there.
        """
        with self._reading(Place(self._url, variable=path), "find a chunk with h5py"):
            did = _open_named(self._file, path)
            if did is not None and _starts_at(did, start, offset):
                return path, start
            chunks, contiguous = self._places
        if offset in chunks:
            name, origin = chunks[offset]
            return name, tuple(origin)
        for name, first, n_bytes, shape, itemsize in contiguous:
            if first <= offset < first + n_bytes:
                at = np.unravel_index((offset - first) // itemsize, shape)
                return name, tuple(int(index) for index in at)
        return None

    def shape_of(self, path: str) -> tuple[int, ...]:
        """Shape of the values that `read` returns for a dataset."""
        place = Place(self._url, variable=path)
        with self._reading(place, "read it with h5py"):
            dataset = _open(self._file, path, place)
            element = _element(dataset.id)
            if element.form is Form.RAGGED:
                return self.read(path).shape
            shape: tuple[int, ...] = dataset.shape + element.subshape
            return shape

    def variable(self, path: str) -> OriginalVariable | None:
        """A dataset as h5py shows it; None where there is none of that name."""
        if path not in self._described:
            with self._reading(Place(self._url, variable=path), "read it with h5py"):
                did = _open_named(self._file, path)
                self._described[path] = None if did is None else _described(h5py.Dataset(did))
        return self._described[path]

    def near(self, path: str, name: str) -> str | None:
        """Path of the dataset of a name in a dataset's group, or the next one above it."""
        group = path.strip("/").rpartition("/")[0]
        while True:
            candidate = f"{group}/{name}".strip("/")
            if self.variable(candidate) is not None:
                return candidate
            if not group:
                return None
            group = group.rpartition("/")[0]

    @cached_property
    def _described(self) -> dict[str, OriginalVariable | None]:
        return {}

    @cached_property
    def _places(self) -> tuple[dict[int, Any], list[Any]]:
        """The places of the chunks and the contiguous data of all datasets."""
        chunks: dict[int, Any] = {}
        contiguous: list[Any] = []

        def visit(name: str, member: Any) -> None:
            if not isinstance(member, h5py.Dataset):
                return
            if member.chunks is not None:

                def note(chunk: Any) -> None:  # any return value would end the iteration
                    chunks.setdefault(chunk.byte_offset, (name, chunk.chunk_offset))

                member.id.chunk_iter(note)
            elif member.id.get_offset() is not None and member.size:
                itemsize = member.id.get_type().get_size()
                size = member.id.get_storage_size()
                contiguous.append((name, member.id.get_offset(), size, member.shape, itemsize))

        self._file.visititems(visit)
        return chunks, contiguous

    def close(self) -> None:
        with self._waiting(), suppress(*_HDF5_ERRORS):  # where it is corrupt
            self._opened = None
            self._file.close()
        self._stream.close()

    @contextmanager
    def _reading(self, place: Place, doing: str) -> Iterator[None]:
        try:
            with self._waiting(), _hdf5_errors(place, doing):
                yield
        except (SourceFormatError, InvalidRequestError):
            self._stream.raise_last_error()  # a read that failed looks to HDF5 like corruption
            raise

    def _waiting(self) -> AbstractContextManager[None]:
        """A context for calls of h5py that may wait for fsspec."""
        return nullcontext() if is_local(self._url) else collector_paused()


_open_files = weakref.WeakSet[OriginalFile]()


@atexit.register
def _close_files() -> None:
    """Close all open files while Python can still be called: see `_release_frames`."""
    for file in list(_open_files):
        file.close()


def _open(file: h5py.File, path: str, place: Place) -> h5py.Dataset:
    """The dataset that becomes an array."""
    sequences = path.removesuffix(ROW_SIZE)
    for name in (path, sequences):
        did = _open_named(file, name)
        if did is not None and (name == path or _element(did).form is Form.RAGGED):
            return h5py.Dataset(did)
    raise InvalidRequestError("the file has no such dataset", place)


def _described(dataset: h5py.Dataset) -> OriginalVariable:
    attrs = {}
    for name in dataset.attrs:
        with suppress(*_HDF5_ERRORS):
            value = np.asarray(dataset.attrs[name])
            if value.dtype.kind in "biufSUO" and name not in _ABOUT_SCALES:
                attrs[name] = _plain(value)
    scales: list[tuple[str, ...]] = []
    for axis in range(dataset.ndim):
        own: list[str] = []
        with suppress(*_HDF5_ERRORS):
            found = [dataset] if dataset.is_scale else dataset.dims[axis].values()
            own = [scale.name.strip("/") for scale in found if scale.name and scale.ndim == 1]
        scales.append(tuple(own))
    members = h5py.check_enum_dtype(dataset.dtype) or {}
    return OriginalVariable(dataset.shape or (), attrs, tuple(scales), members)


_ABOUT_SCALES = {"DIMENSION_LIST", "REFERENCE_LIST"}


def _plain(value: NDArray[Any]) -> Any:
    """An attribute as its one value, or as an array; texts as str."""
    if value.dtype.kind in "SO":
        texts = [
            item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else item
            for item in value.reshape(-1).tolist()
        ]
        value = np.array(texts, object).reshape(value.shape)
    return value.reshape(())[()] if value.size == 1 else value


def _open_named(file: h5py.File, path: str) -> Any:
    group, _, name = path.strip("/").rpartition("/")
    for candidate in (RENAMED + name, name):
        full = f"{group}/{candidate}".strip("/").encode("utf-8", "surrogateescape")
        try:
            did = h5d.open(file.id, full)
        except _HDF5_ERRORS:
            continue
        creation = did.get_create_plist()
        if creation.get_external_count() == 0:
            return did
        access = h5p.create(h5p.DATASET_ACCESS)
        access.set_efile_prefix(_folder_of_external_files(creation))
        did.close()  # an open dataset keeps the folder that it was opened with
        return h5d.open(file.id, full, access)
    return None


def _starts_at(did: Any, start: tuple[int, ...], offset: int) -> bool:
    """Whether an element of a chunked dataset is the first one of the chunk at a byte."""
    start = start[: did.rank]  # without the axes of an array datatype
    if did.get_create_plist().get_layout() != h5d.CHUNKED or len(start) != did.rank:
        return False
    if any(at >= extent for at, extent in zip(start, did.shape, strict=True)):
        return False
    chunk = did.get_chunk_info_by_coord(start)
    return bool(chunk.byte_offset == offset and chunk.chunk_offset == start)


def _element(did: Any) -> ElementType:
    return element_type(did.get_type().encode()[2:])


def _folder_of_external_files(creation: Any) -> bytes:
    """The folder of external files, as in `external_file`; HDF5 reads its variable only once."""
    prefix = os.environ.get("HDF5_EXTFILE_PREFIX")
    if prefix:
        return os.fsencode(prefix)
    names = [creation.get_external(index)[0] for index in range(creation.get_external_count())]
    return b"" if all(map(os.path.exists, names)) else b"${ORIGIN}"


def _read(path: str, dataset: Any, selection: tuple[slice, ...] | None) -> NDArray[Any]:
    element = _element(dataset.id)
    if element.form is Form.RAGGED:
        is_size = path.endswith(ROW_SIZE) and not dataset.name.endswith(ROW_SIZE)
        values = _row_sizes(dataset) if is_size else _elements(dataset, element)
        wanted = _wanted(values.shape, selection)
        chosen: Any = (*_inside(wanted, values.shape), ...)
        return _padded(values[chosen], wanted, lambda: None)
    shape = dataset.shape + element.subshape
    wanted = _wanted(shape, selection)
    inside = _inside(wanted, shape)
    rank = len(dataset.shape)
    # An ellipsis keeps arrays of no dimensions arrays.
    own: Any = (*(slice(None),) * rank, *inside[rank:], ...)
    values = _values(dataset, element, (*inside[:rank], ...))[own]
    return _padded(values, wanted, lambda: dataset.fillvalue)


def _wanted(shape: tuple[int, ...], selection: tuple[slice, ...] | None) -> tuple[slice, ...]:
    return tuple(slice(0, n) for n in shape) if selection is None else selection


def _inside(wanted: tuple[slice, ...], shape: tuple[int, ...]) -> tuple[slice, ...]:
    """The part of a selection that is inside the dataset."""
    return tuple(
        slice(part.start, min(part.stop, n), part.step)
        for part, n in zip(wanted, shape, strict=True)
    )


def _padded(
    values: NDArray[Any], wanted: tuple[slice, ...], fill_value: Callable[[], Any]
) -> NDArray[Any]:
    """Values, and the fill value for the part of a selection that is beyond the dataset."""
    full = tuple(len(range(part.start, part.stop, part.step or 1)) for part in wanted)
    if values.shape == full:
        return values
    fill = fill_value()
    padded = np.full(full, zero_of(values.dtype) if fill is None else fill, values.dtype)
    padded[tuple(slice(0, n) for n in values.shape)] = values
    return padded


def _rows(dataset: Any) -> NDArray[Any]:
    """Each variable-length sequence as an array."""
    rows = np.empty(dataset.shape, dataset.dtype)
    if rows.size:
        dataset.id.read(h5s.ALL, h5s.ALL, rows)
    return rows


@cache
def _forgets_byte_order() -> bool:
    """Whether h5py takes elements of sequences for native ones, as versions up to 3.16 do."""
    with h5py.File("probe", "w", driver="core", backing_store=False) as file:
        dataset = file.create_dataset("x", (1,), h5py.vlen_dtype(np.dtype(">i2")))
        dataset[0] = [1]
        return bool(dataset[0][0] != 1)


def _row_sizes(dataset: Any) -> NDArray[Any]:
    """The number of elements of each variable-length sequence."""
    rows = _rows(dataset)
    return np.array([len(row) for row in rows.reshape(-1)], np.int64).reshape(rows.shape)


def _elements(dataset: Any, element: ElementType) -> NDArray[Any]:
    """The elements of all variable-length sequences, one after the other."""
    stored = h5py.check_vlen_dtype(dataset.dtype)
    rows = [row.view(stored) if _forgets_byte_order() else row for row in _rows(dataset).flat]
    values = np.concatenate([np.zeros(0, stored), *rows])
    return values if element.base is None else values.astype(element.base.dtype)


def _values(dataset: Any, element: ElementType, inside: Any) -> NDArray[Any]:
    if element.form is Form.TEXT:
        return np.asarray(dataset.asstr()[inside], element.dtype)
    if element.form is Form.REFERENCE:
        references = np.asarray(dataset[inside], object)
        paths = [_referenced_path(item, dataset.file.id) for item in references.reshape(-1)]
        return np.array(paths, element.dtype).reshape(references.shape)
    if element.form is Form.MIXED:
        return _with_bytes(np.asarray(dataset[inside]), dataset.file.id)
    if element.dtype.kind == "V" and element.dtype.names is None:
        # Opaque elements: h5py's own type for them lacks the tag, so that HDF5 would not convert.
        opaque = np.zeros(dataset.shape, element.dtype)
        if opaque.size:
            dataset.id.read(h5s.ALL, h5s.ALL, opaque, dataset.id.get_type())
        chosen: NDArray[Any] = opaque[inside]
        return chosen
    values = np.asarray(dataset[inside])
    return values if element.dtype.kind == "V" else values.astype(element.dtype)


def _with_bytes(values: NDArray[Any], fid: Any) -> NDArray[Any]:
    """Compounds whose strings are bytes as wide as the longest, and references are their paths."""
    if values.dtype.names is not None:
        columns = {name: _with_bytes(values[name], fid) for name in values.dtype.names}
        n_own = values.ndim
        dtype = [(name, part.dtype, part.shape[n_own:]) for name, part in columns.items()]
        compounds = np.empty(values.shape, dtype)
        for name, part in columns.items():
            compounds[name] = part
        return compounds
    if not values.dtype.hasobject:
        return values
    texts = [
        item
        if isinstance(item, bytes)
        else _referenced_path(item, fid).encode("utf-8", "surrogateescape")
        for item in values.reshape(-1)
    ]
    return np.array(texts, bytes).reshape(values.shape)


def _referenced_path(reference: Any, fid: Any) -> str:
    """Path of the target of a reference; empty for a null one, or one to a deleted object."""
    if not reference:
        return ""
    try:
        name = h5r.get_name(reference, fid)
    except _HDF5_ERRORS:
        return ""
    return (name or b"").decode("utf-8", "surrogateescape")
