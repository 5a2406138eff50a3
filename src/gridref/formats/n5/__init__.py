"""N5 containers as sources: datasets in groups, and pyramids with their voxel sizes."""
