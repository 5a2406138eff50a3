"""Catalogs written for other tools: kerchunk, Icechunk, CF aggregation, STAC, static sites."""
