"""Virtual groups kept as a directory of JSON and Parquet tables.

Here is what readers need. `commit` writes catalogs, `examining` examines them.
"""

from gridref.catalog.document import FORMAT_VERSION, ROOT_FILE
from gridref.catalog.group import CatalogGroup, CatalogInfo
from gridref.catalog.opening import open_catalog
from gridref.catalog.parts import ParquetManifest
from gridref.catalog.sources import Trust

__all__ = [
    "FORMAT_VERSION",
    "ROOT_FILE",
    "CatalogGroup",
    "CatalogInfo",
    "ParquetManifest",
    "Trust",
    "open_catalog",
]
