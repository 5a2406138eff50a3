"""``kerchunk.hdf``: references of one HDF5 or NetCDF4 file.

Source: the interface of kerchunk 0.2.10, ``kerchunk.hdf.SingleHdf5ToZarr``.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, MutableMapping
from typing import Any, Literal

from gridref.api.readable import reader_for
from gridref.api.scan import scan
from gridref.compat.kerchunk.references import filled
from gridref.errors import InvalidRequestError
from gridref.faces.exports.kerchunk import to_kerchunk
from gridref.faces.exports.references import INLINE_LIMIT_BYTES
from gridref.io import absolute_url

__all__ = ["SingleHdf5ToZarr"]

_WHOLE = 1 << 62
"""Contiguous data is one chunk."""


class SingleHdf5ToZarr:
    """References of an HDF5 or NetCDF4 file; the file is read by gridref.

    Parameters
    ----------
    h5f
        Address of the file; or an open file of fsspec, or an ``h5py.File``, with its address in
        `url`.
    url
        Address of an open file.
    spec
        Version of the references: 1, or 0 for the keys alone.
    inline_threshold
        Chunks that are stored in fewer bytes are written into the references.
    storage_options
        fsspec options; by default those of an open file.
    error
        What becomes of what cannot be referenced faithfully: ``"warn"`` leaves it out and warns,
        ``"ignore"`` leaves it out, ``"raise"`` and ``"pdb"`` raise.
    vlen_encode
        ``"embed"``: strings of any length are written into the references.
    out
        A mapping that is filled, as a ``LazyReferenceMapper``.
    unsupported_inline_threshold
        Most bytes of an array that is written, decoded, into the references where they cannot point
        to its chunks; None is 1 MiB.

    Raises
    ------
    InvalidRequestError
        For an open file without an address, a group inside of a file, or another `vlen_encode`.
    """

    def __init__(
        self,
        h5f: Any,
        url: str | None = None,
        spec: int = 1,
        inline_threshold: int = 500,
        storage_options: Mapping[str, Any] | None = None,
        error: Literal["warn", "ignore", "raise", "pdb"] = "warn",
        vlen_encode: str = "embed",
        out: MutableMapping[str, Any] | None = None,
        unsupported_inline_threshold: int | None = None,
    ) -> None:
        if vlen_encode != "embed":
            raise InvalidRequestError(
                f"vlen_encode={vlen_encode!r}: gridref always embeds strings of any length"
            )
        self.url = _address(h5f, url)
        opened_with = getattr(getattr(h5f, "fs", None), "storage_options", None)
        self.storage_options = storage_options or opened_with or {}
        self.spec = spec
        self.inline_threshold = max(0, inline_threshold or 0)
        self.error = error
        self.out = out
        limit = unsupported_inline_threshold
        self.inline_limit = INLINE_LIMIT_BYTES if limit is None else limit

    def translate(self, preserve_linked_dsets: bool = False) -> Any:
        """The references.

        Parameters
        ----------
        preserve_linked_dsets
            Datasets that links name are there in any case.

        Returns
        -------
        dict
            Of version 1; with ``spec=0`` what each key holds; `out` where it was given.

        Raises
        ------
        ScanError
            As `gridref.scan` does; with ``error="raise"`` also for a single object.
        NotRepresentableError
            With ``error="raise"``, naming every array that references cannot express.
        """
        policy: Literal["raise", "skip"] = "raise" if self.error in ("raise", "pdb") else "skip"
        with warnings.catch_warnings():
            if self.error == "ignore":
                warnings.simplefilter("ignore", UserWarning)
            group = scan(
                self.url,
                storage_options=self.storage_options,
                on_unsupported=policy,
                max_chunk_bytes=_WHOLE,
            )
            for finding in group.report.skipped:
                warnings.warn(f"{finding.path} is left out: {finding.reason}", stacklevel=2)
            document = to_kerchunk(
                group,
                reader=reader_for(self.storage_options),
                inline_limit=self.inline_limit,
                inline_threshold=self.inline_threshold,
                on_unsupported=policy,
            )
        refs = _as_named(document["refs"], self.url)
        if self.out is not None:
            return filled(self.out, refs)
        return refs if self.spec < 1 else {"version": 1, "refs": refs}

    def close(self) -> None:
        """Nothing is open."""


def _address(h5f: Any, url: str | None) -> str:
    if isinstance(h5f, str | os.PathLike):
        return os.fspath(h5f)
    if hasattr(h5f, "attrs") and h5f.name != "/":
        raise InvalidRequestError(
            f"{h5f.name} is a group inside of a file: give the file; the keys of its references"
            " begin with the path of the group"
        )
    found = url or getattr(h5f, "filename", None)
    if not isinstance(found, str):
        raise InvalidRequestError(f"{type(h5f).__name__} does not say where it is: give its url")
    return found


def _as_named(refs: Mapping[str, Any], url: str) -> dict[str, Any]:
    """References with the address of the file as it was given."""
    absolute = absolute_url(url)
    return {
        key: [url, *held[1:]] if isinstance(held, list) and held[0] == absolute else held
        for key, held in refs.items()
    }
