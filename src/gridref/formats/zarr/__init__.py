"""Zarr v3 and v2 stores as sources: plain, rectilinear and sharded arrays."""
