"""Kerchunk references as sources: JSON files of version 0 and 1."""
