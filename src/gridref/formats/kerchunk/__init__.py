"""Kerchunk references as sources: JSON files of version 0 and 1, and folders of Parquet files."""
