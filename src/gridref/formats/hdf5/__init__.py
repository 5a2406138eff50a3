"""HDF5 and NetCDF4 files, read without the HDF5 library.

Whatever reads a file here raises `SourceFormatError` if bytes are missing, damaged or contradict
each other, and `UnsupportedFeatureError` for what this reader does not know or cannot serve
faithfully: a version, a class of datatypes, a filter. Both name the place in the file. A function
says only what it raises beside these, or where the reason is not plain.
"""
