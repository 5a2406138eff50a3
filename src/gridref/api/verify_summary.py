"""Write and check the summary of `gridref verify`, a file to publish beside a catalog.

A summary is a JSON object: the digest of the catalog, how much was compared and how, and with which
versions of the readers. Its own ``digest`` is the SHA-256 of the rest: JSON text, names sorted,
without white space.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from gridref.api.catalog import Verification
from gridref.catalog.folder import publish_file
from gridref.catalog.group import CatalogInfo
from gridref.errors import InvalidRequestError, Place
from gridref.extras import version_of
from gridref.io import absolute_url, open_for_scan

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
