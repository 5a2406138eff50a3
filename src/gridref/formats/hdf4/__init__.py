"""HDF4 files: scientific data sets, small tables, and grids and swaths of HDF-EOS2."""
