"""Where the elements of an HDF5 dataset lie, layout by layout, as virtual arrays."""
