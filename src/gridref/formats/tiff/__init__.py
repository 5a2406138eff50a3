"""TIFF and its relatives: BigTIFF, GeoTIFF, COG, OME-TIFF, ImageJ, LSM, SVS, NDPI."""
