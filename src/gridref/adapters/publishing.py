"""A catalog as a site of files that any web server or bucket shows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gridref.adapters.kerchunk import to_kerchunk
from gridref.adapters.stac import to_stac
from gridref.adapters.web.extent import ends_with, extents
from gridref.adapters.web.static_site import ITEM, REFERENCES, StaticSite
from gridref.catalog import CatalogGroup
from gridref.catalog.kept_report import CatalogReport
from gridref.errors import InvalidRequestError, NotRepresentableError
from gridref.io import Allow
from gridref.options import verb
from gridref.serve.reader import Reader
from gridref.workflows.catalogs import open_catalog, write_catalog
from gridref.workflows.opening import reader_for

__all__ = ["Published", "publish"]


@dataclass(frozen=True)
class Published:
    """What was written.

    Attributes
    ----------
    files
        Paths of files in the folder, without those of the catalog's copy.
    left_out
        Files that cannot be, with the reasons.
    """

    files: tuple[str, ...]
    left_out: Mapping[str, str]


@verb()
def publish(
    catalog: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    base_url: str,
    prefixes: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    allow: Allow = None,
) -> Published:
    """Write a site of files for a catalog: pages, a copy of it, kerchunk references, a STAC Item.

    The values stay in the sources, which visitors read by byte ranges. Small arrays, and what
    pages tell of coordinates, are read from there now: a source that visitors could not read is
    told before anything is written.

    Parameters
    ----------
    catalog
        Address of the catalog.
    folder
        A local folder, new, empty, or with the same catalog published before. Upload all of it.
    base_url
        Address that the folder will have on the web.
    prefixes
        Where sources lie on the web: folders as the catalog has them, with their addresses,
        ``{"/data/": "https://data.example.org/"}``.
    storage_options, allow
        As for `open_catalog`.

    Returns
    -------
    Published
        Which files there are, and which there are not: references that cannot express the catalog,
        a STAC Item without a moment.

    Raises
    ------
    InvalidRequestError
        If sources lie where no browser reads, the folder holds something else, or an address is not
        one of HTTP.
    CatalogError, ReadError
        If the catalog or a source cannot be read.
    """
    base, name, place = base_url.rstrip("/"), _name_of(catalog), Path(folder)
    if not base.startswith(("http://", "https://")):
        raise InvalidRequestError(f"base_url is an address of HTTP, got {base_url!r}")
    _check_folder(place, name)
    group = open_catalog(catalog, storage_options=storage_options, allow=allow, prefixes=prefixes)
    _check_sources(group)
    group = replace(group, report=_moved(group.report, prefixes or {}))
    reader = reader_for(storage_options)
    found = tuple(extents(group, ends_with(reader.read)))
    place.mkdir(parents=True, exist_ok=True)
    write_catalog(group, place / f"{name}.gridref")
    left_out = _described(group, place, f"{base}/{name}.gridref", reader)
    written = [file for file in (REFERENCES, ITEM) if file not in left_out]
    for path, content in StaticSite(name, group, base, left_out, found, reader.read).files():
        file = place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        written.append(path)
    return Published(tuple(written), left_out)


def _described(group: CatalogGroup, place: Path, address: str, reader: Reader) -> dict[str, str]:
    """Write references and Item; gives the reasons why there is none."""
    left_out = {}
    for file in (REFERENCES, ITEM):
        (place / file).unlink(missing_ok=True)
    try:
        to_kerchunk(group, place / REFERENCES, reader=reader)
    except NotRepresentableError as error:
        left_out[REFERENCES] = error.reason.partition(":\n")[2] or error.reason
    references = None if left_out else f"{address.rpartition('/')[0]}/{REFERENCES}"
    shown = replace(group, info=replace(group.info, url=address))
    try:
        to_stac(shown, place / ITEM, references=references)
    except (InvalidRequestError, NotRepresentableError) as error:
        left_out[ITEM] = error.reason
    return left_out


def _moved(report: CatalogReport, prefixes: Mapping[str, str]) -> CatalogReport:
    """The report with files named by where they are now: nobody is told where they were."""
    drifts = tuple(
        {
            key: _public(value, prefixes) if key in ("first_file", "last_file") and value else value
            for key, value in row.items()
        }
        for row in report.drifts
    )
    return replace(report, findings=(), drifts=drifts)


def _public(address: str, prefixes: Mapping[str, str]) -> str:
    for old in sorted(prefixes, key=len, reverse=True):
        if address.startswith(old):
            return prefixes[old] + address[len(old) :]
    return address if _on_the_web(address) else address.rpartition("/")[2]


def _on_the_web(url: str) -> bool:
    return url.rpartition("::")[2].startswith(("http://", "https://"))


def _name_of(catalog: str | os.PathLike[str]) -> str:
    name = os.fspath(catalog).rstrip("/").rpartition("/")[2].removesuffix(".gridref")
    if not name:
        raise InvalidRequestError(f"the catalog has no name: {os.fspath(catalog)!r}")
    return name


def _check_folder(folder: Path, name: str) -> None:
    if folder.is_dir() and any(folder.iterdir()) and not (folder / f"{name}.gridref").is_dir():
        raise InvalidRequestError(
            f"{folder} holds something else than {name}, published before: give a new folder"
        )


def _check_sources(group: CatalogGroup) -> None:
    """Check that visitors can read all sources.

    Raises
    ------
    InvalidRequestError
        Naming the first that they cannot.
    """
    urls = [source.url for source in group.source_list]
    hidden = [url for url in urls if not _on_the_web(url)]
    if hidden:
        raise InvalidRequestError(
            f"{len(hidden)} of {len(urls)} sources lie where no visitor reads, like {hidden[0]}:"
            " say where they are on the web (prefixes=, --from and --to)"
        )
