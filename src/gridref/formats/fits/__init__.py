"""FITS files: images, whole or compressed by tiles."""
