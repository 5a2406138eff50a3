"""GRIB files of both editions."""
