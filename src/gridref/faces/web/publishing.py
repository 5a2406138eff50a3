"""Publish a catalog as a site of files that any web server or bucket can serve."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gridref.api.catalog import Published, open_catalog, write_catalog
from gridref.api.readable import reader_for
from gridref.catalog import CatalogGroup
from gridref.catalog.folder import write_errors_told
from gridref.catalog.kept_report import CatalogReport
from gridref.errors import InvalidRequestError, NotRepresentableError
from gridref.faces.exports.kerchunk import to_kerchunk
from gridref.faces.exports.stac import to_stac
from gridref.faces.web.extent import ends_of, ends_with, extents
from gridref.faces.web.static_site import ITEM, REFERENCES, StaticSite
from gridref.io import Allow, refuse_names_alike
from gridref.options import verb
from gridref.secrets import shown_address
from gridref.serve.reader import Reader


@verb()
def publish(
    catalog: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    base_url: str,
    prefixes: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    allow: Allow = None,
    snapshot: str | None = None,
) -> Published:
    """Write a site of files for a catalog: pages, a copy of it, kerchunk references, a STAC Item.

    The values stay in the sources, which visitors read by byte ranges. `publish` reads small arrays
    and the coordinates on the pages from there. If visitors could not read a source, it raises
    before anything is written.

    Parameters
    ----------
    catalog
        Address of the catalog.
    folder
        A local folder, new, empty, or with the same catalog published before. Upload all of it.
    base_url
        Address that the folder will have on the web.
    prefixes
        Addresses of sources on the web: recorded folders with their addresses, ``{"/data/":
        "https://data.example.org/"}``.
    storage_options, allow, snapshot
        As for `gridref.open_catalog`.

    Returns
    -------
    Published
        The files that were written, and those that could not be: references that cannot express the
        catalog, a STAC Item without a time.

    Raises
    ------
    InvalidRequestError
        If a browser cannot read the sources, the folder holds something else, or base_url is not an
        HTTP address, or has a user or a query.
    CatalogError, ReadError
        If the catalog or a source cannot be read.
    """
    base, name, place = base_url.rstrip("/"), _name_of(catalog), Path(folder)
    shown = shown_address(base_url)
    if not base.startswith(("http://", "https://")):
        raise InvalidRequestError(f"base_url must be an http or https address, got {shown!r}")
    if shown != base_url:
        raise InvalidRequestError(
            f"base_url appears on all pages and must not have a user or a query: write {shown!r}"
        )
    _check_folder(place, name)
    group = open_catalog(
        catalog,
        storage_options=storage_options,
        allow=allow,
        snapshot=snapshot,
        prefixes=prefixes,
        overlay="none",  # which are not published
    )
    _check_sources(group)
    group = replace(group, report=_moved(group.report, prefixes or {}))
    reader = reader_for(storage_options)
    found = tuple(extents(ends_of(group, ends_with(reader.read))))
    draft = place / _DRAFT
    with write_errors_told("the site", str(place)):
        try:
            shutil.rmtree(draft, ignore_errors=True)  # of a process that died
            draft.mkdir(parents=True)
            left_out = _described(group, draft, f"{base}/{name}.gridref", reader)
            written = [file for file in (REFERENCES, ITEM) if file not in left_out]
            site = StaticSite(name, group, base, left_out, found, reader.read)
            refuse_names_alike((f"{path}/" for path in group.all_arrays()), str(place))
            for path, content in site.files():
                file = draft / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
                written.append(path)
            write_catalog(group, place / f"{name}.gridref")
            for path in written:
                (place / path).parent.mkdir(parents=True, exist_ok=True)
                (draft / path).replace(place / path)
            for path in left_out:
                (place / path).unlink(missing_ok=True)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return Published(tuple(written), left_out)


_DRAFT = ".publish.tmp"
"""Folder in the site's where files are written first, so that a full disk leaves the old site."""


def _described(group: CatalogGroup, place: Path, address: str, reader: Reader) -> dict[str, str]:
    """Write references and Item; gives the reasons why there is none."""
    left_out = {}
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
    """The report with present addresses of files: it does not show former ones."""
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
        raise InvalidRequestError(f"the catalog has no name: {shown_address(os.fspath(catalog))!r}")
    return name


def _check_folder(folder: Path, name: str) -> None:
    held = {file.name for file in folder.iterdir()} if folder.is_dir() else set()
    if held - {_DRAFT} and not (folder / f"{name}.gridref").is_dir():
        raise InvalidRequestError(
            f"{folder} is not empty and holds no earlier publication of {name}: give a new folder"
        )


def _check_sources(group: CatalogGroup) -> None:
    """Check that visitors can read all sources."""
    urls = [source.url for source in group.source_list]
    hidden = [url for url in urls if not _on_the_web(url)]
    if hidden:
        raise InvalidRequestError(
            f"{len(hidden)} of {len(urls)} sources are at addresses that visitors of the site "
            "cannot read, like"
            f" {shown_address(hidden[0])}: give their address on the web (prefixes=, or --from "
            "and --to)"
        )
