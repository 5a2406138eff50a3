"""Attacks on gridref: changed files, catalogs, references, requests, and killed processes."""

# First of all, as in tests: after netCDF4, h5py finds a filter of Blosc that cannot write.
import hdf5plugin  # noqa: F401
