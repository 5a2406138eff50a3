"""Find the files that a DMR++ document refers to: its granule, and files beside it.

Paths in a document count from the data folder of the server that wrote it. So only the last part of
a path is used, beside the document; paths that begin with a dot count from the document's folder.
URLs are used as they are. Where the address is a placeholder or missing, the granule has the
document's own name without ``.dmrpp``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from gridref.errors import (
    Message,
    Place,
    SourceFormatError,
    SourceUnavailableError,
    UnsupportedFeatureError,
)
from gridref.formats.options import ScanOptions
from gridref.io import (
    absolute_url,
    beside,
    describe_source,
    is_absent,
    is_local,
    policy_for,
    real_path,
)
from gridref.io.remote import RemoteFiles
from gridref.limits import beyond, limits
from gridref.model.manifest import Source
from gridref.model.source_policy import SourcePolicy, common_folders

_PLACEHOLDER = "OPeNDAP_DMRpp_DATA_ACCESS_URL"
_SUFFIX = ".dmrpp"


class GranuleFiles:
    """Files that a document names, as they are now; none is read.

    Parameters
    ----------
    href
        Address of the granule in the document; empty if it has none.
    options
        Options of the scan.
    """

    def __init__(self, url: str, href: str, options: ScanOptions) -> None:
        self.url = absolute_url(url)
        self.href = href
        self._options = options
        self._policy: SourcePolicy = policy_for(self.url, options.allow)
        self._sources: dict[str, Source] = {}
        self._reachable = True

    def source(self, href: str | None = None) -> Source:
        """The file that an address means; None means the granule.

        Remote files of a server that cannot be reached are known by their addresses only.

        Raises
        ------
        SourceUnavailableError
            If there is no such file.
        SourceNotAllowedError
            If it is elsewhere, and not allowed.
        UnsupportedFeatureError
            If the document names more files than the limit.
        SourceFormatError
            If neither the document nor its name says where it is.
        """
        url = self._address(self.href if href is None else href)
        if url not in self._sources:
            if len(self._sources) >= limits().external_files:
                what = f"the DMR++ names {len(self._sources) + 1} files so far"
                raise UnsupportedFeatureError(beyond("external_files", what))
            address = real_path(url)
            if not self._policy.allows(address):
                replace(self._policy, needed=common_folders([url])).require(address)
            self._sources[url] = self._described(url)
        return self._sources[url]

    def _address(self, href: str) -> str:
        if href in ("", _PLACEHOLDER):
            return absolute_url(self._own)
        if "://" in href:
            return absolute_url(href)
        is_relative = href.startswith(("./", "../"))
        return absolute_url(beside(self.url, href if is_relative else href.rpartition("/")[2]))

    @cached_property
    def _own(self) -> str:
        """The document's address without the suffix; queries stay."""
        path, mark, query = (self.url, "", "") if is_local(self.url) else self.url.partition("?")
        if not path.endswith(_SUFFIX):
            raise SourceFormatError(
                f"the DMR++ does not name its granule: call it like the granule, with {_SUFFIX}"
                " at the end",
                Place(source=self.url),
            )
        return f"{path.removesuffix(_SUFFIX)}{mark}{query}"

    def _described(self, url: str) -> Source:
        try:
            if is_local(url):
                return describe_source(url, policy=self._policy)
            if self._reachable:
                return RemoteFiles(self._options.storage_options).describe(url, self._policy)
        except SourceUnavailableError as error:
            if is_local(url) or is_absent(error):
                reason = Message("the granule of the DMR++ ", self.url, ": ", error.reason)
                raise SourceUnavailableError(reason, error.place) from error
            self._reachable = False
        return Source(url, policy=self._policy)
