"""What the bytes of an HDF5 file say: superblock, headers, messages, heaps, B-trees, links."""
