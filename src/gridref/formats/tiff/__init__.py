"""TIFF and its relatives: BigTIFF, GeoTIFF, COG, OME-TIFF, ImageJ, LSM, SVS, NDPI.

Whatever reads a file here raises `SourceFormatError` if the file is damaged or contradicts itself,
and `UnsupportedFeatureError` for what cannot be decoded faithfully. A function says only what it
raises beside these, or where the reason is not plain.
"""
