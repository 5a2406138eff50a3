"""GRIB files of both editions, with or without an index beside them."""
