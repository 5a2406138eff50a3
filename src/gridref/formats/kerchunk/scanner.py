"""The scanner of kerchunk references: it recognises them and starts the scan."""

from __future__ import annotations

import os
import re

from gridref.formats.damage import refusing_damage
from gridref.formats.location import Location
from gridref.formats.options import ScanOptions
from gridref.formats.scanner import About, OwnScanner, Reach
from gridref.io import is_local
from gridref.model.array import VirtualGroup

_MARKS = (b'"refs"', b'.zgroup"', b'.zarray"', b'.zattrs"', b'"templates"')


class KerchunkScanner(OwnScanner):
    """Scans JSON references of version 0 and 1, and folders of Parquet references."""

    name = "kerchunk references (JSON, folders of Parquet)"
    markers = (".zmetadata",)
    folder_suffixes = (".parq", ".parquet")
    reach: Reach = "anywhere"
    about = About(
        read="version 0 and 1 in JSON, Parquet; keys of Zarr v2 and v3",
        refused="codecs that are not known, templates that are programs",
        codecs="those of Zarr v3 and numcodecs",
        oracle="fsspec, zarr",
        native="readers that know the codecs",
    )

    def recognises(self, location: Location) -> bool:
        """Whether a file begins like references, or a folder holds their metadata.

        No request is sent for a remote folder: its name decides.
        """
        if location.is_folder:
            return self.names(location) and _is_local_table(location.url) is not False
        if location.head.lstrip()[:1] not in (b"{", b"["):
            return False
        text = re.sub(rb"\s+", b"", location.head)
        return text.startswith((b"{", b"[{")) and any(mark in text for mark in _MARKS)

    def scan(self, location: Location, options: ScanOptions) -> VirtualGroup:
        """Describe the arrays of the references; their chunks stay in the files they name.

        Raises
        ------
        SourceFormatError
            If the references are invalid.
        UnsupportedFeatureError
            For templates that are more than arithmetic and names, and as for Zarr stores.
        """
        from gridref.formats.kerchunk.files import scan_reference_file, scan_reference_folder

        with refusing_damage(location.url):
            if location.file is None:
                return scan_reference_folder(location.url, options)
            return scan_reference_file(location.file, options)


def _is_local_table(url: str) -> bool | None:
    """Whether a local folder's metadata is that of references; a Zarr v2 store has such a file too.

    None for remote ones.
    """
    if not is_local(url):
        return None
    with open(os.path.join(url, ".zmetadata"), "rb") as file:
        return b'"record_size"' in file.read()
