"""HDF5 and NetCDF4 files, read without the HDF5 library."""
