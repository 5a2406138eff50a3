"""The face towards Zarr: a read-only store."""
