"""Faces of gridref: Zarr store, fsspec filesystem, xarray, HTTP, command line."""
