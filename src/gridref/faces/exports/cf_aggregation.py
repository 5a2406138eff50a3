"""Write a group as a NetCDF4 file of aggregation variables, whose values stay in their files.

Source: CF conventions 1.13, 2.8 "Aggregation Variables".
"""

from __future__ import annotations

import io
import os
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.api.aggregations import as_part
from gridref.api.opening import open_group
from gridref.api.readable import reader_for
from gridref.api.scan import RunOptions, outcomes
from gridref.catalog.folder import publish_file
from gridref.catalog.listing import manifest_rows
from gridref.combine.rules.packing import Packing, float_dtype
from gridref.errors import GridrefError, NotRepresentableError, ScanError, SourceFormatError
from gridref.extras import needed_for
from gridref.faces.exports.references import INLINE_LIMIT_BYTES, is_nameable, refuse
from gridref.formats import ScanOptions
from gridref.io import absolute_url, is_local
from gridref.io.identity import check_identity
from gridref.model.array import VirtualArray, VirtualGroup, path_in
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.conventions import PACKING_ATTRIBUTES, stored_fill
from gridref.model.encoding import Encoding
from gridref.model.listing import ChunkListing
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.secrets import shown_address, without_signature
from gridref.typing import Int64Array

_VERSION = "CF-1.13"
_TEXT = np.dtype("O", metadata={"vlen": str})
"""The dtype by which h5netcdf writes texts of any length."""


def to_cf_aggregation(
    catalog: VirtualGroup | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    relative: bool = False,
    inline_limit: int = INLINE_LIMIT_BYTES,
    storage_options: Mapping[str, Any] | None = None,
) -> dict[str, tuple[int, ...]]:
    """Write a group as a NetCDF4 file of aggregation variables, as cf-python and cfdm read them.

    An aggregation variable is a grid of whole variables of files. All files are scanned once more,
    to find the names of their variables. Coordinates of dimensions and their bounds are written by
    value, and so are small arrays that aggregation variables cannot express.

    Parameters
    ----------
    catalog
        A group that was scanned, combined or opened, or the address of a catalog.
    path
        The file to write: a local path or an fsspec URL. It is replaced in one step.
    relative
        Whether to name files below its folder relative to it. All can then be moved together. By
        default, files are named by absolute URIs.
    inline_limit
        Largest array, in decoded bytes, that is written by value.
    storage_options
        Options of fsspec's filesystems of catalog, files and path, or of several by protocol.

    Returns
    -------
    dict
        The number of fragments along each dimension, by path of the aggregation variable.

    Raises
    ------
    NotRepresentableError
        Lists every array that aggregation variables cannot express, with the reason.
    SourceChangedError, SourceUnavailableError
        If a file has changed since it was scanned, or cannot be read.
    MissingPackageError
        Without h5netcdf.
    """
    group = open_group(catalog, storage_options)
    arrays = group.all_arrays()
    written = {p for p in _of_coordinates(group) if arrays[p].nbytes <= inline_limit}
    others = {p: a for p, a in arrays.items() if p not in written}
    found, reasons = whole_fragments(others, storage_options)
    reasons |= {p: _ARCHIVE for p, own in found.items() if not all(map(is_nameable, own.sources))}
    reasons |= {p: reason for p in found if (reason := _why_no_netcdf(_shown_dtype(arrays[p])))}
    small = {p for p in reasons if arrays[p].nbytes <= inline_limit}
    reasons = {p: reason for p, reason in reasons.items() if p not in small}
    written |= small
    reasons |= {p: reason for p in written if (reason := _why_no_netcdf(arrays[p].dtype))}
    refuse("aggregation variables", reasons | _unlike_lengths(group))
    _check_names(group)
    url = absolute_url(path)
    kept = {p: own for p, own in found.items() if p not in written}
    read = reader_for(storage_options).read
    values = {p: read(arrays[p], name=p) for p in written}
    folder = url.rpartition("/")[0] if relative else None
    try:
        content = _file(group, values, kept, folder)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, GridrefError):
            raise
        raise NotRepresentableError(
            f"NetCDF cannot hold a name or an attribute of it: {error}"
        ) from error
    publish_file("the aggregation file", url, content, storage_options)
    return {p: own.array.grid.grid_shape for p, own in kept.items()}


_ARCHIVE = "its files are inside an archive, and a URI cannot name a part of that"


def _of_coordinates(group: VirtualGroup) -> set[str]:
    """Paths of scalars and of coordinates of dimensions, and of their bounds."""
    found: set[str] = set()
    for path, part in group.walk():
        names = {n for n, a in part.arrays.items() if a.ndim == 0 or a.is_index(n)}
        bounds = {str(part.arrays[name].attrs.get("bounds")) for name in names}
        found |= {path_in(path, n) for n in names | (bounds & {*part.arrays})}
    return found


def _check_names(group: VirtualGroup) -> None:
    """Refuse names that HDF5 would cut, or take for something else."""
    for _, part in group.walk():
        arrays = part.arrays.items()
        used = {*part.arrays, *part.groups, *part.attrs}
        used |= {name for _, array in arrays for name in (*array.dims, *array.attrs)}
        odd = sorted(name for name in used if name in ("", ".") or "\0" in name)
        if odd:
            raise NotRepresentableError(f"NetCDF cannot hold the name {odd[0][:100]!r}")


def _unlike_lengths(group: VirtualGroup) -> dict[str, str]:
    """The arrays with a dimension that has another length in their group."""
    found: dict[str, str] = {}
    for path, part in group.walk():
        lengths: dict[str, int] = {}
        for name, array in part.arrays.items():
            for dim, extent in zip(array.dims, array.shape, strict=True):
                if lengths.setdefault(dim, extent) != extent:
                    reason = f"the dimension {dim!r} is {extent} long, and {lengths[dim]} before"
                    found[path_in(path, name)] = reason
    return found


def _why_no_netcdf(dtype: np.dtype[Any]) -> str:
    text = dtype.kind == "T" or dtype == np.dtype("S1")
    number = dtype.kind in "iu" or (dtype.kind == "f" and dtype.itemsize in (4, 8))
    return "" if text or number else f"NetCDF has no type {dtype}"


def _shown_dtype(array: VirtualArray) -> np.dtype[Any]:
    """The type of the values that readers unpack: fragments are unpacked by their own numbers."""
    packing = Packing.of(array)
    is_packed = packing.scale is not None or packing.offset is not None
    return float_dtype(array, packing) if is_packed else array.dtype


def _file(
    group: VirtualGroup,
    values: Mapping[str, NDArray[Any]],
    fragmented: Mapping[str, Fragmented],
    folder: str | None,
) -> bytes:
    """The content of the file."""
    with needed_for("writing aggregation files"):
        import h5netcdf
    buffer = io.BytesIO()
    with h5netcdf.File(buffer, "w") as file:
        for path, part in group.walk():
            target = _Target(file.create_group(path) if path else file, path, folder)
            attrs = dict(part.attrs)
            if not path:
                attrs["Conventions"] = _conventions(attrs.get("Conventions"))
            target.group.attrs.update(attrs)
            for array in part.arrays.values():
                target.define(array)
            for name, array in part.arrays.items():
                own = path_in(path, name)
                if own in values:
                    target.write(name, array, values[own])
                else:
                    target.aggregate(name, fragmented[own])
    return buffer.getvalue()


def _conventions(known: Any) -> str:
    """What the file follows: the version of the CF conventions that has aggregation variables."""
    text = str(known or "")
    if re.search(r"\bCF-[\d.]+\d", text):
        return re.sub(r"\bCF-[\d.]+\d", _VERSION, text)
    return f"{_VERSION} {text}".strip()


class _Target:
    """A group that is being written.

    Parameters
    ----------
    group
        Of h5netcdf.
    folder
        What files are named relative to; None for absolute URIs.
    """

    def __init__(self, group: Any, path: str, folder: str | None) -> None:
        self.group, self.path, self.folder = group, path, folder
        self._instructions: dict[Any, str] = {}

    def define(self, array: VirtualArray) -> None:
        """The dimensions of an array, where no group above has them."""
        for dim, extent in zip(array.dims, array.shape, strict=True):
            self._dimension(dim, extent)

    def _dimension(self, name: str, extent: int) -> str:
        known = self.group.dimensions
        if name not in known or known[name].size != extent:
            self.group.dimensions[name] = extent
        return name

    def write(self, name: str, array: VirtualArray, values: NDArray[Any]) -> None:
        """An array with its values."""
        if values.dtype.kind == "T":
            values = values.astype(object)
        self._put(name, array.dims, array.dtype, array.attrs, values)

    def _put(
        self,
        name: str,
        dims: tuple[str, ...],
        dtype: np.dtype[Any],
        attrs: Mapping[str, Any],
        values: Any = None,
    ) -> None:
        kept = dict(attrs)
        fill = kept.pop("_FillValue", None)
        text = dtype.kind == "T"
        if dtype.kind in "iuf":
            fill = stored_fill(attrs, dtype)
        elif fill is not None and not text:
            fill = dtype.type(np.ravel(fill)[0])
        made = self.group.create_variable(
            name,
            dims,
            dtype=_TEXT if text else dtype,
            data=values,
            fillvalue=None if text else fill,
        )
        made.attrs.update(kept)

    def aggregate(self, name: str, own: Fragmented) -> None:
        """An aggregation variable, and the variables of its instructions; alike ones once."""
        array, dtype = own.array, _shown_dtype(own.array)
        packed = dtype != array.dtype
        attrs = {k: v for k, v in array.attrs.items() if not packed or k not in PACKING_ATTRIBUTES}
        counts = array.grid.grid_shape
        uris = [_uri(source, self.folder) for source in own.sources]
        identifiers = [own.identifiers[block] for block in range(len(uris))]
        alike = len(set(identifiers)) == 1
        dims = tuple(
            self._dimension(f"f_{d}_{n}", n) for d, n in zip(array.dims, counts, strict=True)
        )
        lengths = (f"map_{array.ndim}", f"map_{max(counts)}_lengths")
        terms = {
            "map": self._instruction("map", lengths, _map(own.edges)),
            "uris": self._instruction("uris", dims, np.array(uris, object).reshape(counts)),
            "identifiers": self._instruction(
                "identifiers",
                () if alike else dims,
                np.array(identifiers[0] if alike else identifiers, object).reshape(
                    () if alike else counts
                ),
            ),
        }
        said = " ".join(f"{term}: {variable}" for term, variable in terms.items())
        told = {"aggregated_dimensions": " ".join(array.dims), "aggregated_data": said}
        self._put(name, (), dtype, {**attrs, **told})

    def _instruction(self, term: str, dims: tuple[str, ...], values: NDArray[Any]) -> str:
        """Name of the variable with these values."""
        key = (term, dims, values.shape, tuple(values.reshape(-1).tolist()))
        if key not in self._instructions:
            number = sum(known[0] == term for known in self._instructions)
            name = f"fragment_{term}{f'_{number + 1}' if number else ''}"
            for dim, extent in zip(dims, values.shape, strict=True):
                self._dimension(dim, extent)
            text = values.dtype == object
            fill = {} if text else {"_FillValue": np.int64(-1)}
            dtype = np.dtypes.StringDType() if text else values.dtype
            self._put(name, dims, dtype, fill, values)
            self._instructions[key] = name
        return self._instructions[key]


def _map(edges: list[tuple[int, ...]]) -> NDArray[np.int64]:
    """Lengths along each dimension, a row each; behind the last one -1, which is declared so."""
    rows = np.full((len(edges), max(map(len, edges))), -1, np.int64)
    for row, lengths in zip(rows, edges, strict=True):
        row[: len(lengths)] = lengths
    return rows


def _uri(source: Source, folder: str | None) -> str:
    """How a file is named (RFC 3986)."""
    url = without_signature(source.url)
    if is_local(url):
        below = folder is not None and is_local(folder) and Path(url).is_relative_to(folder)
        if below:
            return urllib.parse.quote(os.path.relpath(url, folder))
        return Path(url).as_uri()
    if folder is not None and url.startswith(f"{folder}/"):
        return urllib.parse.quote(url.removeprefix(f"{folder}/"))
    return url


# Arrays that are grids of whole variables of files. A catalog does not keep the name of a variable
# in its file, so files are scanned, and a variable is found by its stored chunks


@dataclass(eq=False)
class Fragmented:
    """An array that is a grid of whole variables of files. Filled file by file.

    Attributes
    ----------
    sources
        The file of each block, in C order.
    """

    array: VirtualArray
    sources: list[Source]
    identifiers: dict[int, str] = field(default_factory=dict)

    @property
    def edges(self) -> list[tuple[int, ...]]:
        """Lengths of the fragments along each dimension."""
        return [tuple(axis.edges().tolist()) for axis in self.array.grid.axes]


def whole_fragments(
    arrays: Mapping[str, VirtualArray], storage_options: Mapping[str, Any] | None = None
) -> tuple[dict[str, Fragmented], dict[str, str]]:
    """The arrays that are grids of whole variables, by path; and why others are not.

    Raises
    ------
    SourceChangedError, SourceUnavailableError
        If a file is not what it was when it was scanned, or cannot be read.
    """
    stored: dict[str, _StoredChunks] = {}
    found: dict[str, Fragmented] = {}
    reasons: dict[str, str] = {}
    wanted: dict[str, list[tuple[str, int]]] = {}
    for path, array in arrays.items():
        sources: list[Source] = []
        reason = _why_not_whole(array)
        if not reason:
            stored[path] = _StoredChunks.of(array)
            sources, reason = stored[path].files()
        if reason:
            reasons[path] = reason
            continue
        found[path] = Fragmented(array, sources)
        for block, source in enumerate(sources):
            wanted.setdefault(source.url, []).append((path, block))
    for url, group in _scanned([*wanted], storage_options):
        if isinstance(group, SourceFormatError):  # like chunks of Zarr, which are a file each
            paths = {path for path, _ in wanted[url]} & found.keys()
            reasons |= dict.fromkeys(paths, f"{shown_address(url)} is no file with variables")
            found = {path: own for path, own in found.items() if path not in paths}
            continue
        for path, block in wanted[url]:
            if path in found:
                one = found[path]
                check_identity(one.sources[block], _source_of(group, one.sources[block]))
                name, reason = _identifier(path, one.array, block, stored[path], group)
                one.identifiers[block] = name
                if reason:
                    reasons[path] = reason
                    del found[path]
    return found, reasons


def _scanned(
    urls: list[str], storage_options: Mapping[str, Any] | None
) -> Iterator[tuple[str, VirtualGroup | SourceFormatError]]:
    """The groups of files, or why one is none; what they hold beside does not matter."""
    options = ScanOptions(on_unsupported="skip", storage_options=storage_options)
    for url, outcome in outcomes(urls, options, RunOptions()):
        if isinstance(outcome, GridrefError) and not isinstance(outcome, SourceFormatError):
            raise outcome
        yield url, outcome


def _source_of(group: VirtualGroup, recorded: Source) -> Source:
    """The file as it is now; as it was recorded where nothing of it is referenced any more."""
    manifests = (m for array in group.all_arrays().values() for m in array.manifests)
    held = (source for manifest in manifests for source in getattr(manifest, "sources", ()))
    return next((source for source in held if source.url == recorded.url), recorded)


def _why_not_whole(array: VirtualArray) -> str:
    """Why blocks are no whole variables of files, as far as the array itself tells."""
    blocks = array.blocks
    if (blocks.encoding == MISSING_BLOCK).any():
        return "no file holds some of its blocks"
    whole = (
        (blocks.origin == 0) & (blocks.step == 1) & (blocks.stored_shape == array.block_shapes())
    )
    return "" if whole.all() else "some blocks are parts of what their files hold, or repeat it"


@dataclass(frozen=True, eq=False)
class _StoredChunks:
    """The stored chunks of an array, block by block.

    Attributes
    ----------
    ends
        int64, one past the last chunk of each block.
    chunks
        All of them, block after block.
    """

    ends: Int64Array
    chunks: ChunkManifest

    @classmethod
    def of(cls, array: VirtualArray) -> _StoredChunks:
        """All chunks of an array without missing blocks."""
        listing = ChunkListing(array)
        listed = listing.rows(0, listing.n_rows)
        ends = np.searchsorted(listed.block, np.arange(array.n_blocks), side="right")
        return cls(ends, manifest_rows(listed))

    def of_block(self, block: int) -> ChunkManifest:
        """The chunks of a block."""
        start = int(self.ends[block - 1]) if block else 0
        return self.chunks.take(slice(start, int(self.ends[block])))

    def files(self) -> tuple[list[Source], str]:
        """The file of each block; or why there is not one."""
        found: list[Source] = []
        if (self.chunks.state == ChunkState.INLINE).any():
            return [], "its values are kept in the catalog, and not in files"
        for block in range(len(self.ends)):
            held = self.of_block(block)
            used = held.source[held.state == ChunkState.RANGE]
            urls = {held.sources[number].url for number in np.unique(used).tolist()}
            if len(urls) != 1:
                many = "several files hold parts" if urls else "no file holds a chunk"
                return [], f"{many} of a block"
            found.append(held.sources[int(used[0])])
        return found, ""


def _identifier(
    path: str, array: VirtualArray, block: int, stored: _StoredChunks, group: VirtualGroup
) -> tuple[str, str]:
    """Path of the variable in a file that a block shows; or why it shows none."""
    arrays = group.all_arrays()
    chunks = stored.of_block(block)
    shape = tuple(array.block_shapes()[block].tolist())
    encoding = array.encodings[array.blocks.encoding[block]]
    for name in [path, *(other for other in arrays if other != path)]:
        if name in arrays and _is_shown(arrays[name], shape, array.dims, encoding, chunks):
            return f"/{name}", _why_read_otherwise(arrays[name], array, encoding)
    source = chunks.sources[int(chunks.source[0])]
    return "", f"no variable of {shown_address(source.url)} is stored in the same form"


def _is_shown(
    held: VirtualArray,
    shape: tuple[int, ...],
    dims: tuple[str, ...],
    encoding: Encoding,
    chunks: ChunkManifest,
) -> bool:
    """Whether a block is a variable of its file, as it is stored."""
    try:
        part = as_part(held, shape, dims, "")
    except ScanError:
        return False
    if part.n_blocks != 1 or _why_not_whole(part):
        return False
    own = part.encodings[part.blocks.encoding[0]]
    if _bare(own) != _bare(encoding):
        return False
    stored = _StoredChunks.of(part).chunks
    columns = ("state", "offset", "length", "masks")
    return all(np.array_equal(getattr(stored, name), getattr(chunks, name)) for name in columns)


def _bare(encoding: Encoding) -> Encoding:
    return replace(encoding, fill=None, unpacking=None)


def _why_read_otherwise(held: VirtualArray, array: VirtualArray, encoding: Encoding) -> str:
    """Why a reader that unpacks the file's variable would get other values than the array's."""
    own, shown = Packing.of(held), encoding.unpacking
    if shown is None:
        packing = Packing.of(array)
        alike = (packing.scale, packing.offset) == (own.scale, own.offset)
    else:
        alike = (
            Packing(shown.scale, shown.offset, frozenset(shown.fill_values), shown.unsigned) == own
        )
    return "" if alike else "numbers are scaled otherwise than in files (units, times or packing)"
