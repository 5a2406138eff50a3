"""Virtual groups kept as a directory of JSON and Parquet tables."""

from gridref.catalog.checking import check_catalog
from gridref.catalog.commit import write_catalog
from gridref.catalog.comparing import CatalogChange, compare_catalogs
from gridref.catalog.document import FORMAT_VERSION, ROOT_FILE
from gridref.catalog.group import CatalogGroup, CatalogInfo
from gridref.catalog.opening import ParquetManifest, open_catalog
from gridref.catalog.sources import Trust

__all__ = [
    "FORMAT_VERSION",
    "ROOT_FILE",
    "CatalogChange",
    "CatalogGroup",
    "CatalogInfo",
    "ParquetManifest",
    "Trust",
    "check_catalog",
    "compare_catalogs",
    "open_catalog",
    "write_catalog",
]
