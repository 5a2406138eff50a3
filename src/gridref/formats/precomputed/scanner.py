"""The scanner of neuroglancer precomputed volumes: it recognises them and starts the scan."""

from __future__ import annotations

import os

from gridref.formats.damage import refusing_damage
from gridref.formats.location import Location
from gridref.formats.options import ScanOptions
from gridref.formats.scanner import About, OwnScanner, Reach
from gridref.io import is_local, note_opened, read_file
from gridref.model.array import VirtualGroup

INFO = "info"


class PrecomputedScanner(OwnScanner):
    """Scans volumes, named by their folder or by the file ``info`` in it."""

    name = "neuroglancer precomputed (folders)"
    markers = (INFO,)
    folder_suffixes = (".precomputed",)
    reach: Reach = "folder"
    about = About(
        read="images and segmentations in all scales, chunk files and shards",
        refused="by scale: Compresso, shards in two files",
        codecs="raw, JPEG, PNG, JPEG XL, compressed segmentation, gzip",
        oracle="tensorstore",
        native="raw: every Zarr v3 reader",
    )

    def recognises(self, location: Location) -> bool:
        """Whether this is a volume's folder or its ``info``, which is JSON that lists scales."""
        if not location.is_folder:
            return location.name == INFO and _lists_scales(location.head)
        if not self.names(location):
            return False
        if not is_local(location.url):
            return True
        return _lists_scales(read_file(os.path.join(location.url, INFO))[: 16 << 10])

    def scan(self, location: Location, options: ScanOptions) -> VirtualGroup:
        """Describe a volume: a group for each scale."""
        from gridref.formats.chunk_files import StoreFiles
        from gridref.formats.precomputed.arrays import scan_volume

        if not location.is_folder:
            note_opened(
                location.folder
            )  # a kept scan of ``info`` alone would not notice other chunks
        with refusing_damage(location.url):
            files = StoreFiles(location.folder, options.storage_options, options.allow)
            document = None
            if location.file is not None:
                document = location.file.read_many([0], [location.file.size])[0]
            return scan_volume(files, document, options)


def _lists_scales(head: bytes) -> bool:
    """Whether a file begins as ``info`` of a volume: meshes and skeletons have such files, too."""
    return head.lstrip()[:1] == b"{" and (
        b"neuroglancer_multiscale_volume" in head or b'"scales"' in head
    )
