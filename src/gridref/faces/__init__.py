"""What callers use: xarray, Zarr, fsspec, HTTP and its pages, the command line, exports."""
