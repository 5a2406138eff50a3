"""STAC Items and Collections that describe catalogs."""

from gridref.adapters.stac.document import to_stac

__all__ = ["to_stac"]
