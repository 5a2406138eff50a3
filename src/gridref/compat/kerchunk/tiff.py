"""``kerchunk.tiff``: references of the first image of a TIFF file, as tifffile writes them.

Sources: the interface of kerchunk 0.2.10, ``kerchunk.tiff.tiff_to_zarr``; documentation of
tifffile, "ZarrStore.write_fsspec".
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from enum import Enum
from typing import Any

from gridref.compat.kerchunk.references import write_json
from gridref.errors import Place, SourceFormatError, UnsupportedFeatureError
from gridref.formats.kerchunk import as_text
from gridref.formats.tiff.images import read_gdal_metadata
from gridref.io import SourcePool, absolute_url, describe_source, open_for_scan

__all__ = ["tiff_to_zarr"]


def tiff_to_zarr(
    urlpath: str,
    remote_options: Mapping[str, Any] | None = None,
    target: str | None = None,
    target_options: Mapping[str, Any] | None = None,
    inline_threshold: int = 0,
    storage_options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """References of the first image of a TIFF file, of version 0.

    Reading them takes the codecs of imagecodecs, where the image is compressed by what numcodecs
    does not have: ``imagecodecs.numcodecs.register_codecs()``.

    Parameters
    ----------
    urlpath
        Address of the file.
    remote_options, storage_options
        fsspec options of the file; the first wins.
    target
        Where the references go as a JSON document; in one step.
    target_options
        fsspec options there.
    inline_threshold
        Segments of fewer bytes are written into the references.

    Raises
    ------
    SourceFormatError
        If it is no TIFF file.
    UnsupportedFeatureError
        If references cannot express the image; names what tifffile says.
    SourceUnavailableError
        If the file is not there or cannot be read.
    """
    options = remote_options or storage_options or {}
    refs = _references(urlpath, options)
    if inline_threshold:
        refs |= _inlined(refs, inline_threshold, options)
    if target is not None:
        write_json(refs, target, target_options)
    return refs


def _references(url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    import tifffile

    folder, _, name = url.rpartition("/")
    written = io.StringIO()
    place = Place(source=url)
    with open_for_scan(url, options) as opened:
        file: Any = opened
        try:
            tiff = tifffile.TiffFile(file, name=name)
        except tifffile.TiffFileError as error:
            raise SourceFormatError(f"tifffile cannot open it: {error}", place) from error
        with tiff:
            try:
                with tiff.series[0].aszarr() as store:
                    store.write_fsspec(written, url=folder or ".")
            except (ValueError, NotImplementedError, tifffile.TiffFileError) as error:
                raise UnsupportedFeatureError(
                    f"references cannot express the image: {error}", place
                ) from error
            found = _metadata(tiff)
    refs: dict[str, Any] = json.loads(written.getvalue())
    attrs = json.loads(refs[".zattrs"]) | found
    refs[".zattrs"] = json.dumps(attrs)
    return refs


def _metadata(tiff: Any) -> dict[str, Any]:
    """What tifffile knows of the whole file, by name."""
    found: dict[str, Any] = {}
    for name in sorted(dir(type(tiff))):
        if not name.endswith("_metadata"):
            continue
        held = getattr(tiff, name, None)
        if name == "gdal_metadata" and isinstance(held, str):
            held = read_gdal_metadata(held).items
        if isinstance(held, Mapping):
            found |= {str(key): value for key, value in held.items()}
    plain: dict[str, Any] = json.loads(json.dumps(found, default=_plain))
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _inlined(refs: Mapping[str, Any], threshold: int, options: Mapping[str, Any]) -> dict[str, str]:
    """The segments of fewer bytes, as text."""
    small = {
        key: held
        for key, held in refs.items()
        if isinstance(held, list) and len(held) == 3 and held[2] < threshold
    }
    if not small:
        return {}
    pool = SourcePool(options, identity="skip")
    source = describe_source(absolute_url(next(iter(small.values()))[0]), options)
    starts, lengths = ([held[n] for held in small.values()] for n in (1, 2))
    parts = pool.read_ranges(source, starts, lengths)
    return {key: as_text(bytes(part)) for key, part in zip(small, parts, strict=True)}
