"""The faces towards xarray: the engine, virtual datasets, and their duck arrays."""
