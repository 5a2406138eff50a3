"""Virtual groups kept as a directory of JSON and Parquet tables."""

from gridref.catalog.arrays import ParquetManifest
from gridref.catalog.checking import check_catalog
from gridref.catalog.comparing import Change, compare_catalogs
from gridref.catalog.document import FORMAT_VERSIONS, ROOT_FILE
from gridref.catalog.group import CatalogGroup, CatalogInfo
from gridref.catalog.reader import open_catalog
from gridref.catalog.trust import Trust
from gridref.catalog.writer import write_catalog

__all__ = [
    "FORMAT_VERSIONS",
    "ROOT_FILE",
    "CatalogGroup",
    "CatalogInfo",
    "Change",
    "ParquetManifest",
    "Trust",
    "check_catalog",
    "compare_catalogs",
    "open_catalog",
    "write_catalog",
]
