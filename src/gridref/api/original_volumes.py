"""Volumes whose chunks are files of their own, in their original readers, for `verify`.

`verify` comes from a chunk's file, and looks for the volume around it: an N5 dataset or a scale of
a precomputed volume in tensorstore, a file of a WKW magnification in ``wkw``, a sparse frame in
``blosc2``. Readers raise errors of their own, and ImportError where they are not installed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import ScanError, SourceUnavailableError
from gridref.formats.metadata import json_object
from gridref.formats.n5 import is_dataset
from gridref.formats.wkw import Header
from gridref.io import ScanFile, is_absent, is_local, open_for_scan
from gridref.model.source_policy import SourcePolicy

Region = tuple[slice, ...]

_MOST_LEVELS = 32


class VolumeFiles:
    """The folders around a file, on the local disk for readers that open nothing else.

    Of a volume on a server, the metadata and that file are copied: to the original reader, all
    other chunks are absent.

    Parameters
    ----------
    url
        Absolute address of the file of a chunk, or of several.
    storage_options
        fsspec options.
    policy
        Decides what may be opened.
    """

    def __init__(
        self,
        url: str,
        storage_options: Mapping[str, Any] | None = None,
        policy: SourcePolicy | None = None,
    ) -> None:
        self.url = url
        self._storage_options = storage_options
        self._policy = policy
        self._copy: TemporaryDirectory[str] | None = None

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.url.rpartition("/")[2]

    def folders(self) -> Iterator[tuple[str, str]]:
        """Each folder around the file, from the next one on, and the file's key in it."""
        folder = self.url
        for _ in range(_MOST_LEVELS):
            folder, slash, _ = folder.rpartition("/")
            if not slash or folder.endswith("/"):
                return
            yield folder, self.url[len(folder) + 1 :]

    def get(self, url: str) -> bytes | None:
        """All of a file; None where there is none."""
        try:
            with open_for_scan(url, self._storage_options, policy=self._policy) as file:
                return bytes(file.read_many([0], [file.size])[0]) if file.size else b""
        except SourceUnavailableError as error:
            if is_absent(error) or isinstance(error.__cause__, IsADirectoryError):
                return None
            raise

    def local(self, folder: str, metadata: Mapping[str, bytes]) -> str:
        """A path at which a folder can be opened.

        Parameters
        ----------
        folder
            One of those around the file.
        metadata
            Files of it that belong in a copy, beside the file itself.
        """
        if is_local(folder):
            return folder
        self._copy = TemporaryDirectory()
        key = self.url[len(folder) + 1 :]
        for name, data in {**metadata, key: self.get(self.url) or b""}.items():
            path = Path(self._copy.name, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return os.path.realpath(self._copy.name)

    def close(self) -> None:
        """Delete copies."""
        if self._copy is not None:
            self._copy.cleanup()


class Volume:
    """An array in its original reader, with the axes that gridref shows."""

    shape: tuple[int, ...]

    def read(self, region: Region) -> NDArray[Any]:
        """Elements; raises as the reader does."""
        raise NotImplementedError

    def centres(self, axis: int) -> NDArray[np.float64] | None:
        """Places of the elements' centres along an axis in nm; None where the reader has none."""
        return None

    def close(self) -> None:
        """Close it, if the reader keeps it open."""


class _Tensorstore(Volume):
    """An array that is open in tensorstore, from its corner on."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.shape = tuple(store.shape)

    def read(self, region: Region) -> NDArray[Any]:
        return np.asarray(self._store.translate_to[0][region].read().result())


class _Scale(_Tensorstore):
    """A scale of a precomputed volume, with the axes channel, z, y and x."""

    def centres(self, axis: int) -> NDArray[np.float64] | None:
        unit = self._store.dimension_units[axis]
        if unit is None or unit.base_unit != "nm":
            return None
        numbers = self._store.origin[axis] + np.arange(self.shape[axis]) + 0.5
        places: NDArray[np.float64] = numbers * unit.multiplier
        return places


def _in_tensorstore(driver: str, path: str, **options: Any) -> Any:
    import tensorstore

    kvstore = {"driver": "file", "path": f"{path}/"}
    return tensorstore.open({"driver": driver, "kvstore": kvstore, **options}, read=True).result()


def _n5_dataset(files: VolumeFiles) -> Volume | None:
    """The dataset of N5 that a block belongs to."""
    attributes = "attributes.json"
    for folder, key in files.folders():
        if not key.replace("/", "").isdecimal():
            return None
        data = files.get(f"{folder}/{attributes}")
        if data is None:
            continue
        try:
            if not is_dataset(json_object(data, attributes)):
                return None
        except ScanError:
            return None
        return _Tensorstore(_in_tensorstore("n5", files.local(folder, {attributes: data})))
    return None


_PRECOMPUTED = re.compile(r"-?\d+-\d+_-?\d+-\d+_-?\d+-\d+(\.gz)?|[0-9a-f]+\.shard")


def _precomputed_scale(files: VolumeFiles) -> Volume | None:
    """The scale that a chunk file or a shard belongs to."""
    if _PRECOMPUTED.fullmatch(files.name) is None:
        return None
    for folder, key in files.folders():
        data = files.get(f"{folder}/info")
        if data is not None:
            try:
                keys = [scale["key"].strip("/") for scale in json.loads(data)["scales"]]
                number = keys.index(key.rpartition("/")[0])
            except (AttributeError, KeyError, TypeError, ValueError):
                return None
            path = files.local(folder, {"info": data})
            store = _in_tensorstore("neuroglancer_precomputed", path, scale_index=number)
            return _Scale(store.T)
    return None


class _WKWFile(Volume):
    """The voxels of one file of a magnification that is open in ``wkw``.

    Parameters
    ----------
    path
        Folder of the magnification.
    corner
        Number of the file along x, y and z.
    """

    def __init__(self, path: str, header: Header, corner: tuple[int, ...]) -> None:
        import wkw

        length = header.file_length
        self._dataset: Any = wkw.Dataset.open(path)
        self._start = np.array(corner) * length
        self.shape = (length, length, length, header.n_channels)

    def read(self, region: Region) -> NDArray[Any]:
        z, y, x, channels = region
        start = self._start + np.array([x.start, y.start, z.start])
        lengths = [along.stop - along.start for along in (x, y, z)]
        values = self._dataset.read(tuple(start.tolist()), tuple(lengths))
        return np.asarray(values)[channels].T

    def close(self) -> None:
        self._dataset.close()


_WKW = re.compile(r"z(\d+)/y(\d+)/x(\d+)\.wkw")


def _wkw_file(files: VolumeFiles) -> Volume | None:
    """The voxels of a file, if it is one of a magnification."""
    for folder, key in files.folders():
        if (match := _WKW.fullmatch(key)) is not None:
            data = files.get(f"{folder}/header.wkw")
            if data is None:
                return None
            z, y, x = map(int, match.groups())
            path = files.local(folder, {"header.wkw": data})
            return _WKWFile(path, Header.from_bytes(data), (x, y, z))
    return None


class _Blosc2Array(Volume):
    """An array that is open in ``blosc2``."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.shape = tuple(array.shape)

    def read(self, region: Region) -> NDArray[Any]:
        values = np.asarray(self._array[region])
        return values.astype(values.dtype.newbyteorder("="), copy=False)


def blosc2_frame(file: ScanFile) -> Volume:
    """The array of a contiguous frame."""
    import blosc2

    if file.is_remote:
        (data,) = file.read_many([0], [file.size])
        return _Blosc2Array(blosc2.ndarray_from_cframe(bytes(data), copy=True))
    return _Blosc2Array(blosc2.open(file.name, mode="r"))


_B2ND = re.compile(r"[0-9A-F]{8}\.chunk")


def _blosc2_array(files: VolumeFiles) -> Volume | None:
    """The array that a chunk of a sparse frame belongs to."""
    if _B2ND.fullmatch(files.name) is None:
        return None
    folder = files.url.rpartition("/")[0]
    # It looks at the first chunk for the sizes of all.
    held = {name: files.get(f"{folder}/{name}") for name in ("chunks.b2frame", "00000000.chunk")}
    if held["chunks.b2frame"] is None:
        return None
    import blosc2

    copied = {name: data for name, data in held.items() if data is not None}
    return _Blosc2Array(blosc2.open(files.local(folder, copied), mode="r"))


VOLUMES: Mapping[str, tuple[str, Callable[[VolumeFiles], Volume | None]]] = {
    "N5 containers": ("tensorstore", _n5_dataset),
    "precomputed volumes": ("tensorstore", _precomputed_scale),
    "WKW datasets": ("wkw", _wkw_file),
    "Blosc2 arrays": ("blosc2", _blosc2_array),
}
"""The reader of each format, and what finds the array around a file: None where there is none."""
