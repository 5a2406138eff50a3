"""The scanners of gridref's own formats: how each is recognised, and what it reads.

Recognising a file takes only this module. The module of a format is imported when a file of it is
scanned: `OwnScanner.module` names it, and its function ``scan`` takes a location and options. The
modules of HDF5 and TIFF also describe how a file is organised.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from gridref.extras import needed_for
from gridref.formats.location import Location
from gridref.formats.scanner import About, OrganisedScanner, OwnScanner, ScanOptions
from gridref.io import is_local, read_file
from gridref.model.array import VirtualGroup

# References to chunks in other files


class KerchunkScanner(OwnScanner):
    """Scans JSON references of version 0 and 1, and folders of Parquet references."""

    name = "kerchunk references (JSON, folders of Parquet)"
    module = "kerchunk"
    markers = (".zmetadata",)
    folder_suffixes = (".parq", ".parquet")
    reach = "anywhere"
    any_error_is_damage = True
    about = About(
        read="version 0 and 1 in JSON, Parquet; keys of Zarr v2 and v3",
        refused="codecs that are not known, templates that are programs",
        codecs="those of Zarr v3 and numcodecs",
        oracle="fsspec, zarr",
        native="readers that know the codecs",
    )

    def recognises(self, location: Location) -> bool:
        """Whether a file begins like references, or a folder holds their metadata.

        No request is sent for a remote folder: its name decides. A Zarr v2 store has metadata of
        the same name.
        """
        if location.is_folder:
            return super().recognises(location) and (
                not is_local(location.url)
                or b'"record_size"' in read_file(os.path.join(location.url, self.markers[0]))
            )
        if location.head.lstrip()[:1] not in (b"{", b"["):
            return False
        text = re.sub(rb"\s+", b"", location.head)
        return text.startswith((b"{", b"[{")) and any(mark in text for mark in _KERCHUNK_MARKS)


_KERCHUNK_MARKS = (b'"refs"', b'.zgroup"', b'.zarray"', b'.zattrs"', b'"templates"')


class IcechunkScanner(OwnScanner):
    """Scans the branch ``main`` of Icechunk repositories: native, virtual and inline chunks."""

    name = "Icechunk (repositories)"
    module = "icechunk"
    markers = ("repo",)
    folder_suffixes = (".icechunk",)
    reach = "anywhere"
    about = About(
        read="virtual and stored chunks",
        refused="codecs that are not known",
        codecs="those of Zarr v3 and numcodecs",
        oracle="icechunk, zarr",
        native="readers that know the codecs",
    )

    def recognises(self, location: Location) -> bool:
        """Whether this is a folder with a repository in it, or a remote one with such a name."""
        if location.is_folder and is_local(location.url):
            return os.path.isdir(os.path.join(location.url, "snapshots"))
        return super().recognises(location)

    def scan(self, location: Location, options: ScanOptions) -> VirtualGroup:
        """Describe the newest snapshot."""
        with needed_for("reading Icechunk repositories"):
            return super().scan(location, options)


class DMRppScanner(OwnScanner):
    """Scans DMR++ documents. The granules that they describe are not read.

    Documents mostly are beside their granules, so those in a directory are not taken by themselves.
    """

    name = "DMR++"
    module = "dmrpp"
    reach = "anywhere"
    any_error_is_damage = True
    about = About(
        read="the places of chunks in HDF5 and HDF4 granules, compact and missing data, texts",
        refused="by variable: what the document does not say exactly",
        codecs="deflate, shuffle, fletcher32, Zstandard",
        oracle="our scan of the granule, h5py, pyhdf",
        native="every Zarr v3 reader with numcodecs",
    )

    def recognises(self, location: Location) -> bool:
        """Whether a file is XML that begins with a dataset of DAP4."""
        head = location.head.removeprefix(_BOM).lstrip()
        return head.startswith(b"<") and all(
            mark in head for mark in (b"<Dataset", b"://xml.opendap.org/ns/DAP/4.0#")
        )


_BOM = b"\xef\xbb\xbf"


# Folders of chunk files and shards


class ZarrScanner(OwnScanner):
    """Scans Zarr v3 and v2 stores, shards too."""

    name = "Zarr (folders)"
    module = "zarr"
    markers = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")
    folder_suffixes = (".zarr",)
    any_error_is_damage = True
    about = About(
        read="v2 and v3, shards",
        refused="codecs that are not known",
        codecs="those of Zarr v3 and numcodecs",
        oracle="zarr",
        native="readers that know the codecs",
    )


class N5Scanner(OwnScanner):
    """Scans N5 containers, and single groups and datasets of them.

    A local folder that is not named ``*.n5`` is one if its attributes are those of a container or a
    dataset, or a folder in it has attributes, too. A remote one that is not named ``*.n5`` is named
    by its ``attributes.json``.
    """

    name = "N5 (folders)"
    module = "n5"
    markers = ("attributes.json",)
    folder_suffixes = (".n5",)
    reach = "folder"
    any_error_is_damage = True
    about = About(
        read="datasets of numbers in blocks of mode default, groups, pyramids",
        refused="blocks of mode varlength and object, JPEG",
        codecs="gzip, zlib, bzip2, xz, Blosc, Zstandard, LZ4",
        oracle="tensorstore",
        native="Zarr v3 readers with zarr-n5",
    )

    def recognises(self, location: Location) -> bool:
        """Whether this is a folder with attributes, one named ``*.n5``, or the attributes."""
        if not location.is_folder:
            return location.name == self.markers[0] and location.head.lstrip()[:1] == b"{"
        if location.name.endswith(self.folder_suffixes):
            return True
        return super().recognises(location) and (
            not is_local(location.url) or self._is_container(location.url)
        )

    def _is_container(self, folder: str) -> bool:
        """Whether attributes are there because this is N5: other programs write them, too."""
        name = self.markers[0]
        head = read_file(os.path.join(folder, name)).lstrip()
        if head[:1] != b"{":
            return False
        if any(key in head for key in (b'"n5"', b'"dimensions"', b'"multiscales"', b'"scales"')):
            return True
        return any(
            os.path.isfile(os.path.join(folder, below, name)) for below in os.listdir(folder)
        )


class WKWScanner(OwnScanner):
    """Scans WEBKNOSSOS datasets, and single magnifications of them.

    A remote one is named by its ``header.wkw`` or ``datasource-properties.json``.
    """

    name = "WKW (folders)"
    module = "wkw"
    markers = ("header.wkw", "datasource-properties.json")
    reach = "folder"
    any_error_is_damage = True
    about = About(
        read="magnifications with any number of channels, layers with their voxel sizes",
        refused="layers in other formats",
        codecs="none, LZ4, LZ4HC",
        oracle="wkw",
        native="every Zarr v3 reader, if raw",
    )

    def recognises(self, location: Location) -> bool:
        """Whether this is a folder with a header, or the header itself."""
        if location.is_folder:
            return super().recognises(location)
        if location.name == self.markers[0]:
            return location.head.startswith(b"WKW")
        return location.name == self.markers[1] and b'"dataLayers"' in location.head


class PrecomputedScanner(OwnScanner):
    """Scans volumes, named by their folder or by the file ``info`` in it."""

    name = "neuroglancer precomputed (folders)"
    module = "precomputed"
    markers = ("info",)
    folder_suffixes = (".precomputed",)
    reach = "folder"
    any_error_is_damage = True
    about = About(
        read="images and segmentations in all scales, chunk files and shards",
        refused="by scale: Compresso, shards in two files",
        codecs="raw, JPEG, PNG, JPEG XL, compressed segmentation, gzip",
        oracle="tensorstore",
        native="raw: every Zarr v3 reader",
    )

    def recognises(self, location: Location) -> bool:
        """Whether this is a volume's folder or its ``info``, which is JSON that lists scales.

        Meshes and skeletons have such files, too.
        """
        (name,) = self.markers
        if not location.is_folder:
            head = location.head if location.name == name else b""
        elif not super().recognises(location):
            return False
        elif is_local(location.url):
            head = read_file(os.path.join(location.url, name))[: 16 << 10]
        else:
            return True
        return head.lstrip()[:1] == b"{" and (
            b"neuroglancer_multiscale_volume" in head or b'"scales"' in head
        )


class B2NDScanner(OwnScanner):
    """Scans Blosc2 arrays in contiguous frames, and in sparse ones, which are folders.

    A remote sparse frame is named by its ``chunks.b2frame``.
    """

    name = "Blosc2 (b2nd)"
    module = "b2nd"
    suffixes = (".b2nd",)
    markers = ("chunks.b2frame",)
    reach = "folder"
    any_error_is_damage = True
    about = About(
        read="arrays of numbers and texts, repeated values, vlmeta",
        refused="frames without dimensions, dates, structured types, the filter delta",
        codecs="all of Blosc2",
        oracle="blosc2",
        native="none: chunks are shown decoded",
    )

    def recognises(self, location: Location) -> bool:
        """Whether a file begins as a frame, or a folder holds one."""
        if location.is_folder:
            return super().recognises(location)
        return location.head[1:10] == b"\xa8b2frame\x00"


# Single files


class HDF5Scanner(OrganisedScanner):
    """Scans HDF5 files, and NetCDF4 files, which are HDF5 files."""

    name = "HDF5/NetCDF4"
    module = "hdf5.groups"
    suffixes = (".nc", ".nc4", ".h5", ".hdf5", ".he5", ".hdf")
    magic = (b"\x89HDF\r\n\x1a\n",)
    first_bytes = 256 << 10
    """Metadata is all over a file, and reading so many bytes takes as long as another request."""
    reach = "anywhere"
    """External links, external raw data and virtual datasets."""
    about = About(
        read="chunked, contiguous, compact and external storage, virtual datasets, links",
        refused="by object: filters without a codec, types without a dtype",
        codecs="deflate, shuffle, fletcher32, szip, LZF, Blosc, Zstandard, ZFP and others",
        oracle="h5py",
        native="depends on the filters",
    )

    def recognises(self, location: Location) -> bool:
        """Whether the signature is at byte 0, 512, 1024 or any further power of two."""
        near = (location.head[start : start + 8] for start in (0, 512, 1024, 2048))
        return self.magic[0] in near or self.magic[0] in location.later


class TIFFScanner(OrganisedScanner):
    """Scans TIFF, BigTIFF and formats that are built on them."""

    name = "TIFF"
    module = "tiff.structure"
    suffixes = (".tif", ".tiff")
    magic = (b"II*\0", b"MM\0*", b"II+\0\x08\0\0\0", b"MM\0+\0\x08\0\0")
    reach = "folder"
    """The files of an OME-TIFF set."""
    about = About(
        read="TIFF, BigTIFF, GeoTIFF, COG, OME-TIFF and others",
        refused="by image: compressions without a codec",
        codecs="Deflate, LZW, PackBits, JPEG, JPEG 2000, Zstandard, LERC, WebP and others",
        oracle="tifffile",
        native="depends on the compression",
    )

    def recognises(self, location: Location) -> bool:
        """Whether a file begins as in TIFF 6.0, Section 2 or the BigTIFF design.

        Companion files of OME-TIFF are XML that names TIFF files.
        """
        head = location.head
        is_xml = head.startswith((b"<?xml", b"<OME"))
        return super().recognises(location) or (is_xml and b"<OME" in head)


class NetCDF3Scanner(OwnScanner):
    """Scans NetCDF3 files; those named ``.nc`` may as well be NetCDF4, which is HDF5."""

    name = "NetCDF3"
    module = "netcdf3"
    suffixes = (".nc", ".cdf", ".nc3")
    magic = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
    first_bytes = 64 << 10
    """Most headers are shorter."""
    about = About(
        read="CDF-1, CDF-2, CDF-5",
        refused="files that are cut off, compressed files",
        codecs="none: values are stored as they are",
        oracle="netCDF4",
        native="every Zarr v3 reader",
    )


class HDF4Scanner(OwnScanner):
    """Scans HDF4 files; those named ``.hdf`` may as well be HDF5."""

    name = "HDF4"
    module = "hdf4"
    suffixes = (".hdf", ".hdf4", ".h4")
    magic = (b"\x0e\x03\x13\x01",)
    first_bytes = 64 << 10
    reach = "anywhere"
    """Data may be in an external file."""
    any_error_is_damage = True
    about = About(
        read="scientific data sets in every layout, grids and swaths of HDF-EOS2",
        refused="by variable: JPEG compression, much skipping Huffman; raster images",
        codecs="deflate, szip, run lengths, n-bit, skipping Huffman",
        oracle="pyhdf",
        native="every Zarr v3 reader with numcodecs, if deflated",
    )


class GRIBScanner(OwnScanner):
    """Scans GRIB files of edition 1 and edition 2, with the index files beside remote ones."""

    name = "GRIB"
    module = "grib"
    suffixes = (".grib", ".grib2", ".grib1", ".grb", ".grb2", ".grb1", ".grib_api")
    reach = "folder"
    about = About(
        read="editions 1 and 2: all packings but second order, all grids but spectral",
        refused="spherical harmonics, fields of unknown kinds",
        codecs="gridref.grib, with the extra grib",
        oracle="eccodes",
        native="Zarr v3 readers where gridref is installed",
    )

    def recognises(self, location: Location) -> bool:
        """Whether a message begins in the first bytes; bulletins have some before it."""
        at = location.head.find(b"GRIB", 0, 512)
        return at >= 0 and location.head[at + 7 : at + 8] in (b"\x01", b"\x02")


class FITSScanner(OwnScanner):
    """Scans the images of FITS files."""

    name = "FITS"
    module = "fits"
    suffixes = (".fits", ".fit", ".fts", ".fz")
    magic = (b"SIMPLE  =",)
    about = About(
        read="images of every BITPIX, tile-compressed images, headers as attributes",
        refused="by HDU: random groups, unknown compressions; tables are left out",
        codecs="RICE_1, GZIP_1, GZIP_2, PLIO_1, HCOMPRESS_1, quantised floats with dithering",
        oracle="astropy",
        native="every Zarr v3 reader, with imagecodecs for RICE_1 and HCOMPRESS_1; but for PLIO_1"
        " and quantised floats",
    )


class JPEG2000Scanner(OwnScanner):
    """Scans JP2 files and JPEG 2000 codestreams."""

    name = "JPEG 2000"
    module = "jpeg2000"
    suffixes = (".jp2", ".j2k", ".j2c", ".jpc", ".jpx")
    magic = (b"\0\0\0\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51")
    """The signature box of JP2 (ITU-T T.800, I.5.1); SOC and SIZ of a codestream (A.4.1, A.5.1)."""
    first_bytes = 64 << 10
    about = About(
        read="JP2 and codestreams: tiles as chunks, resolutions as overviews, GeoJP2, GMLJP2",
        refused="subsampled components, and components of differing types",
        codecs="gridref.jpeg2000, by OpenJPEG",
        oracle="rasterio",
        native="Zarr v3 readers where gridref is installed",
    )


class SAFEScanner(OwnScanner):
    """Scans Sentinel-2 products: folders (SAFE), or the metadata in them."""

    name = "Sentinel-2 (SAFE)"
    module = "safe"
    markers = ("MTD_MSIL1C.xml", "MTD_MSIL2A.xml")
    folder_suffixes = (".safe",)
    reach = "folder"
    about = About(
        read="products of levels 1C and 2A: a group for each resolution, bands as variables",
        refused="by image: as of JPEG 2000; images of one resolution on several grids",
        codecs="gridref.jpeg2000, by OpenJPEG",
        oracle="rasterio",
        native="Zarr v3 readers where gridref is installed",
    )

    def recognises(self, location: Location) -> bool:
        """Whether this is a product's metadata, or a folder that holds it."""
        if location.is_folder:
            return super().recognises(location)
        return location.head.removeprefix(_BOM).startswith(b"<?xml") and bool(
            re.search(rb"<(\w+:)?Level-(1C|2A)_User_Product", location.head[:4096])
        )


BUILT_IN: Mapping[str, OwnScanner] = {
    "tiff": TIFFScanner(),
    "kerchunk": KerchunkScanner(),
    "icechunk": IcechunkScanner(),
    "zarr": ZarrScanner(),
    "precomputed": PrecomputedScanner(),
    "netcdf3": NetCDF3Scanner(),
    "hdf4": HDF4Scanner(),
    "dmrpp": DMRppScanner(),
    "grib": GRIBScanner(),
    "b2nd": B2NDScanner(),
    "n5": N5Scanner(),
    "jpeg2000": JPEG2000Scanner(),
    "wkw": WKWScanner(),
    "fits": FITSScanner(),
    "safe": SAFEScanner(),
    "hdf5": HDF5Scanner(),
}
"""gridref's own formats, in the order in which they are tried, before those of other packages.

HDF5 comes last: to exclude a signature behind a user's block takes reading more of a file.
Its package metadata lists the same ones; they stand here so that they are found without it.
"""
