"""Groups and datasets of HDF5 files: names, attributes, datatypes and dimensions."""
