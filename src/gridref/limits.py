"""Limits on what files, catalogs, servers and clients of strangers may cost, in one table.

A few bytes can stand for gigabytes: a shape, a size, a template. Each limit is far above what
honest files need, and each error names the limit that it applies. `GRIDREF_LIMITS` in the
environment raises limits for the files that need more. Constants of a format (its largest rank, the
bytes of a header) are no limits and stay beside its parser.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from functools import cache

from gridref.errors import InvalidRequestError

VARIABLE = "GRIDREF_LIMITS"
"""Environment variable with other numbers: ``generated_references=5000000,element_bytes=...``."""


MAX_GROUP_DEPTH = 200
"""Groups inside each other, in files and catalogs. The environment cannot raise it: functions that
walk a tree are recursive."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits; ``docs/reference/limits.md`` lists them for users."""

    # Arrays and chunks of every format

    element_bytes: int = 2**24
    """Bytes of one element of an array."""
    decoded_bytes: int = 2**31
    """Bytes that a chunk may decode to where nothing else says its size, and that OpenJPEG may take
    for a chunk of a JPEG 2000 file."""
    lzma_bytes: int = 2**30
    """Bytes of memory that an LZMA stream may ask for as its dictionary."""
    nbit_fields: int = 2**16
    """Fields of an element that the N-Bit filter of HDF5 packs."""

    # HDF5 files

    read_bytes: int = 2**26
    """Bytes to read of a file, or to take from one of its heaps, besides a multiple of its size."""
    read_times: int = 64
    """How many times the size of the file that is: structures of a valid file do not overlap."""
    heap_object_bytes: int = 2**26
    """Bytes of an object or block of a fractal heap that filters compressed."""
    path_bytes: int = 2**24
    """Bytes of the paths of all objects, besides eight for each byte of the file."""
    repeated_groups: int = 10_000
    """Groups that have another name, which are read once for each."""
    chunk_rows: int = 2**27
    """Chunks of a dataset, stored or not: each is a row of its manifest, of 21 to 25 bytes."""
    sparse_chunk_rows: int = 2**24
    """Chunks of a dataset that stores fewer than one in 64 of them."""
    inline_chunk_bytes: int = 2**28
    """Bytes of a decoded chunk whose values are kept in the references, such as texts."""
    inline_decoded_bytes: int = 2**30
    """Bytes of all decoded chunks of such a dataset, or eight times its values; and of all values
    that a DMR++ document holds."""
    external_files: int = 4096
    """Pieces of external files that hold a dataset, and files that a DMR++ document or a
    Sentinel-2 product names."""
    mapping_pieces: int = 100_000
    """Pieces, and numbered files, of a mapping of a virtual dataset."""
    virtual_blocks: int = 1_000_000
    """Blocks into which the edges of its sources cut a virtual dataset."""
    virtual_depth: int = 8
    """Virtual datasets inside of virtual datasets."""

    # HDF4 files

    huffman_bytes: int = 2**22
    """Bytes that skipping Huffman may decode to: Python takes some 9 seconds for them."""

    # TIFF and JPEG 2000 files

    directory_tags: int = 4096
    """Tags of a directory of a TIFF file."""
    image_chunks: int = 2**31
    """Strips or tiles of an image of a TIFF file."""
    marker_segments: int = 2**16
    """Segments of a header of a JPEG 2000 codestream."""
    xml_characters: int = 4 * 2**20
    """Characters of GDAL's metadata in a tag, which is XML; bytes of a JPEG 2000 box."""
    companion_bytes: int = 64 * 2**20
    """Bytes of the file beside an OME-TIFF file that holds its XML, and of index files of GRIB."""
    coordinates: int = 2**23
    """Coordinates along an axis of an image; they are kept inline, and longer axes have none. Also
    two-dimensional latitudes and longitudes that a server reads for map tiles."""

    # NetCDF3 and GRIB files

    header_bytes: int = 64 * 2**20
    """Bytes of a NetCDF3 header or a GRIB section; they are read whole, and a damaged length may
    reach far."""
    gap_bytes: int = 2**20
    """Bytes between GRIB messages that are no message: zeros, or lines of bulletins."""
    gaussian_parallels: int = 8192
    """Parallels between a pole and the equator of a Gaussian grid, whose latitudes are computed;
    operational models have at most 2560."""
    image_parts: int = 2**16
    """Tiles of a field that is stored as a JPEG 2000 image, times its layers; writers of GRIB make
    one of each."""
    field_places: int = 4096
    """Places in the dimensions of a variable for each field of it that a GRIB file has."""

    # DMR++ documents

    dmrpp_bytes: int = 2**27
    """Bytes of the document, which is read whole; the XML takes several times as many in memory."""

    # Zarr stores, N5 containers and kerchunk references

    chunk_files: int = 2**26
    """Chunks of an array, each a file or a reference that is looked up by its name."""
    expression_characters: int = 200
    """Characters of an expression in a template."""
    rendered_characters: int = 64 * 2**10
    """Characters that a text with templates may expand to; addresses are shorter."""
    generated_references: int = 1_000_000
    """References that all entries of ``gen`` stand for; 10,000,000 took minutes and 3 GB."""
    generated_bytes: int = 2**28
    """Bytes of all keys and addresses that ``gen`` stands for."""
    reference_rows: int = 1_000_000
    """Rows of a Parquet file of references, and one for each byte of it: missing chunks take none.
    """
    aggregation_fragments: int = 2**17
    """Fragments of a CF aggregation variable; a file of a kilobyte can declare billions."""

    # Parquet tables and snapshots of catalogs

    expanded_bytes: int = 2**26
    """Bytes that a row group or a description may take, besides a multiple of the file's size."""
    expanded_times: int = 1000
    """How many times the size of the file its numbers may take."""
    expanded_text_times: int = 100
    """How many times the size of the file its texts may take, which can share stored bytes."""

    # Listings of files

    listing_bytes: int = 2**30
    """Bytes of a listing, decompressed: one that names ``/dev/zero`` as its table never ends."""
    listing_columns: int = 1000
    """Names of properties in a listing: a table has a cell for each in every row."""

    # Servers that files are read from

    answer_seconds: int = 120
    """Seconds that an answer of any size may take."""
    answer_bytes_a_second: int = 32 * 2**10
    """Bytes a second that a server must send besides: larger answers may take longer."""

    # Clients of `gridref serve`

    request_head_bytes: int = 64 * 2**10
    """Bytes of the head of a request, with its address."""
    request_head_seconds: int = 20
    """Seconds in which the head of a request must arrive, after the connection or its first byte.
    """
    request_body_bytes: int = 2**20
    """Bytes of the body of a request, which nobody looks at."""
    request_ranges: int = 128
    """Ranges of one request; more are refused, as RFC 9110, section 14.2 allows."""
    stalled_seconds: int = 60
    """Seconds for which a client may take nothing of an answer."""
    peer_connections: int = 2048
    """Connections of one address."""

    def numbers_of(self, n_bytes: int) -> int:
        """Bytes of numbers that a file of so many bytes may stand for."""
        return self.expanded_bytes + self.expanded_times * n_bytes

    def text_of(self, n_bytes: int) -> int:
        """Bytes of text that a file of so many bytes may stand for."""
        return self.expanded_bytes + self.expanded_text_times * n_bytes

    def reads_of(self, n_bytes: int) -> int:
        """Bytes that may be read of a file of so many bytes, or taken from one of its heaps."""
        return self.read_bytes + self.read_times * n_bytes

    def seconds_for(self, n_bytes: int) -> float:
        """How long a server may take to send so many bytes."""
        return self.answer_seconds + n_bytes / self.answer_bytes_a_second


@cache
def limits() -> Limits:
    """The limits of this process. The environment is read once.

    Raises
    ------
    InvalidRequestError
        If the environment variable names no limit, or no number.
    """
    known = {field.name for field in fields(Limits)}
    numbers: dict[str, int] = {}
    for item in filter(None, map(str.strip, os.environ.get(VARIABLE, "").split(","))):
        name, _, number = map(str.strip, item.partition("="))
        if name not in known or not number.isdecimal() or not int(number):
            raise InvalidRequestError(
                f"{VARIABLE} in the environment says {item!r}: write NAME=NUMBER, several with"
                f" commas between them; the names are {', '.join(sorted(known))}"
            )
        numbers[name] = int(number)
    return Limits(**numbers)


_CHUNKS_A_STORED_ONE = 64
"""More chunks for each that is stored are hardly honest, and have a lower limit."""


def chunk_limit(n_chunks: int, n_stored: int) -> str:
    """The limit that a dataset of so many chunks is beyond; empty if it is beyond none."""
    limit = "sparse_chunk_rows" if n_chunks > _CHUNKS_A_STORED_ONE * n_stored else "chunk_rows"
    return limit if n_chunks > getattr(limits(), limit) else ""


def beyond(limit: str, what: str) -> str:
    """A message about something that is beyond a limit: what it is, the limit, what to do."""
    return (
        f"{what}, more than the limit {limit} of {getattr(limits(), limit)} (if you trust the file,"
        f" set {VARIABLE}={limit}=NUMBER in the environment)"
    )
