"""Icechunk: groups written into repositories, and repositories as groups."""

import gridref.formats.icechunk  # noqa: F401 - quiets icechunk before it is imported
from gridref.extras import missing_package

try:
    from gridref.faces.exports.icechunk.reading import from_icechunk
    from gridref.faces.exports.icechunk.writing import to_icechunk
except ImportError as error:
    raise missing_package("Icechunk", error) from error

__all__ = ["from_icechunk", "to_icechunk"]
