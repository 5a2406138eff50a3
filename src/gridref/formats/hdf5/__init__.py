"""HDF5 and NetCDF4."""
