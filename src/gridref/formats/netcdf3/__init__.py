"""NetCDF3 files: classic (CDF-1), 64-bit offsets (CDF-2) and 64-bit data (CDF-5)."""
