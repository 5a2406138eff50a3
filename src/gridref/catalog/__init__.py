"""Virtual groups kept as a directory of one JSON file and three Parquet tables."""

from gridref.catalog.checking import check_catalog
from gridref.catalog.document import FORMAT_VERSIONS, ROOT_FILE
from gridref.catalog.reader import CatalogGroup, CatalogInfo, open_catalog
from gridref.catalog.rows import ParquetManifest
from gridref.catalog.writer import write_catalog

__all__ = [
    "FORMAT_VERSIONS",
    "ROOT_FILE",
    "CatalogGroup",
    "CatalogInfo",
    "ParquetManifest",
    "check_catalog",
    "open_catalog",
    "write_catalog",
]
