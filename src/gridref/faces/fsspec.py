"""A read-only fsspec filesystem over a catalog: ``gridref::file:///data/cube.gridref``.

Its files are the keys of a Zarr view (`serve.objects`). In the direct view these are metadata only:
elements go through `faces.zarr.direct`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NoReturn

import fsspec
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from gridref.api.opening import open_group, open_space, view_options
from gridref.catalog import CatalogGroup, Trust
from gridref.catalog.overlays import OverlayPolicy
from gridref.errors import InvalidRequestError, ReadOnlyError
from gridref.io import Allow
from gridref.model.array import VirtualGroup, path_in
from gridref.options import check_names, options_of
from gridref.serve.object_reader import ObjectReader
from gridref.serve.objects import KeySpace
from gridref.serve.pages import VirtualObject
from gridref.serve.views import ViewOptions

_FSSPEC_OPTIONS = (
    *("fo", "target_protocol", "target_options", "storage_options", "asynchronous", "loop"),
    *("use_listings_cache", "listings_expiry_time", "max_paths", "skip_instance_cache"),
)


@dataclass(frozen=True)
class _Access:
    """Options of filesystems as fsspec and users hand them over.

    Attributes
    ----------
    by_protocol
        Those of sources, by protocol.
    taken
        Names of options that were given beside gridref's own.
    """

    of_catalog: dict[str, Any]
    by_protocol: dict[str, dict[str, Any]]
    taken: frozenset[str]

    @classmethod
    def of(
        cls, protocol: str | None, options: Mapping[str, Any] | None, given: Mapping[str, Any]
    ) -> _Access:
        named = {
            name: dict(value)
            for name, value in given.items()
            if isinstance(value, Mapping) and name in fsspec.available_protocols()
        }
        plain = {name: given[name] for name in given.keys() & _names_of(protocol)}
        of_catalog = {k: v for k, v in (options or {}).items() if k != "fo"} | plain
        links, link, inner = dict(named), protocol, of_catalog
        while link is not None:
            for alias in _aliases_of(link):
                links.setdefault(alias, inner)
            link, inner = inner.get("target_protocol"), inner.get("target_options") or {}
        by_protocol = {name: held for name, held in links.items() if held}
        return cls(of_catalog, by_protocol, frozenset(named) | frozenset(plain))


def _names_of(protocol: str | None) -> set[str]:
    """Names of the options of a filesystem, those left out that all have."""
    if protocol in (None, "file", "local"):
        return set()
    parameters = inspect.signature(fsspec.get_filesystem_class(protocol).__init__).parameters
    return parameters.keys() - {"self", "kwargs", *_FSSPEC_OPTIONS}


def _aliases_of(protocol: str) -> tuple[str, ...]:
    names = fsspec.get_filesystem_class(protocol).protocol
    return (names,) if isinstance(names, str) else tuple(names)


class GridrefFileSystem(AbstractFileSystem):
    """The keys of a catalog as files.

    Registered with fsspec as ``gridref``: chain it before the catalog's own address. Options:

    Parameters
    ----------
    fo
        Address of the catalog, or a `VirtualGroup`.
    target_protocol, target_options
        fsspec protocol and options of the catalog's address, as chaining gives them.
    storage_options
        Options for the sources; by default `target_options`, for sources of that protocol, and
        those of other protocols by their names: ``{"s3": {...}, "https": {...}}``.
    allow, snapshot, overlay
        As for `gridref.open_store`.
    asynchronous
        Given by zarr-python when it opens an address. ``view="auto"`` may then be the direct view.
        For all others, who read keys as files, it is native or portable.
    digest
        What the catalog's digest has to be, in pickles; None takes any.
    **kwargs
        Fields of `ViewOptions`, as for `gridref.open_store`, fsspec's own options, options of the
        catalog's filesystem (``anon=True``), and options of other filesystems by protocol.

    Examples
    --------
    >>> xr.open_zarr("gridref::file:///data/cube.gridref")  # doctest: +SKIP
    """

    protocol = "gridref"
    root_marker = ""
    cachable = False
    """Not one instance for each address: the catalog there may have been built anew."""
    space: KeySpace
    reader: ObjectReader

    def __init__(
        self,
        fo: str | VirtualGroup | None = None,
        target_protocol: str | None = None,
        target_options: Mapping[str, Any] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        allow: Allow | Trust = None,
        asynchronous: bool = False,
        snapshot: str | None = None,
        overlay: OverlayPolicy | None = None,
        digest: str | None = None,
        **kwargs: Any,
    ) -> None:
        view = options_of(ViewOptions, kwargs)
        own = {name: value for name, value in kwargs.items() if name not in view}
        access = _Access.of(target_protocol, target_options, own)
        own = {name: value for name, value in own.items() if name not in access.taken}
        check_names("gridref::", own, {*_FSSPEC_OPTIONS, *(f.name for f in fields(ViewOptions))})
        super().__init__(asynchronous=asynchronous, **own)
        if fo is None:
            raise InvalidRequestError(
                "no catalog is named: write gridref::ADDRESS, like "
                "gridref::file:///data/cube.gridref"
            )
        if isinstance(fo, str) and target_protocol not in (None, "file", "local"):
            fo = fo if "://" in fo else f"{target_protocol}://{fo}"
        options = view_options(view, in_process=asynchronous)
        group = open_group(fo, access.of_catalog, allow, snapshot, overlay, digest=digest)
        self._catalog = group if isinstance(group, CatalogGroup) else None
        self._held = isinstance(fo, VirtualGroup)
        self.space, self.reader = open_space(
            group, options, access.by_protocol if storage_options is None else storage_options
        )

    def __reduce__(self) -> tuple[Any, ...]:
        make, (cls, arguments, options) = super().__reduce__()
        catalog = self._catalog
        if catalog is not None:
            options = {**options, "digest": catalog.info.digest}
            if not self._held:
                options |= {"allow": catalog.decided_trust(), "snapshot": catalog.info.snapshot}
        return make, (cls, arguments, options)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        return str(path).removeprefix("gridref://").removeprefix("gridref:").strip("/")

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """Files and folders right below a path.

        Raises
        ------
        FileNotFoundError
            If there is nothing at the path.
        """
        path = self._strip_protocol(path)
        if self.space.is_dir(path):
            names = self.space.list_dir(path)
            paths = [path_in(path, name) for name in names]
        else:
            self._object_at(path)
            paths = [path]
        return [self.info(each) for each in paths] if detail else paths

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Name, type, size and ETag of a file or folder."""
        path = self._strip_protocol(path)
        virtual_object = self.space.resolve(path)
        if virtual_object is not None:
            return {
                "name": path,
                "type": "file",
                "size": self.reader.size(virtual_object),
                "ETag": virtual_object.etag,
            }
        if self.space.is_dir(path):
            return {"name": path, "type": "directory", "size": 0}
        raise FileNotFoundError(path)

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Whether there is a file or folder at a path."""
        path = self._strip_protocol(path)
        return self.space.resolve(path) is not None or self.space.is_dir(path)

    def isfile(self, path: str) -> bool:
        """Whether there is a file at a path."""
        return self.space.resolve(self._strip_protocol(path)) is not None

    def isdir(self, path: str) -> bool:
        """Whether there is a folder at a path."""
        return self.space.is_dir(self._strip_protocol(path))

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        """The bytes ``start:end`` of a file; negative numbers count from its end."""
        virtual_object = self._object_at(self._strip_protocol(path))
        if (start or 0) < 0 or (end or 0) < 0:
            size = self.reader.size(virtual_object)
            start, end, _ = slice(start, end).indices(size)
        return self.reader.read(virtual_object, start or 0, end)

    def created(self, path: str) -> NoReturn:
        """Not known: raises NotImplementedError."""
        raise NotImplementedError("files of a catalog have no time of creation")

    def modified(self, path: str) -> NoReturn:
        """Not known: raises NotImplementedError."""
        raise NotImplementedError("files of a catalog have no time of modification")

    def ukey(self, path: str) -> str:
        """What changes whenever the content of a file does."""
        return self._object_at(self._strip_protocol(path)).etag

    def _object_at(self, path: str) -> VirtualObject:
        virtual_object = self.space.resolve(path)
        if virtual_object is None:
            raise FileNotFoundError(path)
        return virtual_object

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> GridrefFile:
        if mode != "rb":
            self._refuse()
        return GridrefFile(self, self._strip_protocol(path), mode, **kwargs)

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: a catalog is not written key by key."""
        raise ReadOnlyError("a gridref filesystem is read-only")

    _rm = rm = rm_file = cp_file = mv = _refuse
    mkdir = makedirs = rmdir = pipe_file = put_file = touch = _refuse


class GridrefFile(AbstractBufferedFile):
    """A key opened as a seekable binary file."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        data: bytes = self.fs.cat_file(self.path, start, end)
        return data
