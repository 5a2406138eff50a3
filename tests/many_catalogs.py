"""Catalogs of many kinds in memory, and what a search through them should find."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from gridref.model.array import VirtualArray, VirtualGroup

VARIABLES = {
    "tas": "air_temperature",
    "tasmax": "air_temperature",
    "pr": "precipitation_flux",
    "tos": "sea_surface_temperature",
}
INSTITUTIONS = ("MPI-M", "Met Office", "NOAA GFDL")
DECADES = (1950, 1980, 2010)
BOXES = ((-10.0, 35.0, 30.0, 60.0), (100.0, -45.0, 180.0, 0.0), (350.0, -10.0, 370.0, 10.0))
"""West, south, east and north; the last crosses the meridian of Greenwich."""


@dataclass(frozen=True)
class Made:
    """What a catalog was made of."""

    name: str
    variable: str
    institution: str
    decade: int
    box: tuple[float, float, float, float]

    @property
    def group(self) -> VirtualGroup:
        """Its root group."""
        west, south, east, north = self.box
        make = VirtualArray.from_numpy
        days = np.array([0.0, 3650.0])
        missing = np.float32(1e20)
        about = {"standard_name": VARIABLES[self.variable], "_FillValue": missing}
        about |= {"coordinates": "cell", "grid_mapping": "spatial_ref"}
        values = np.full((2, 2, 3), missing)
        values[:, :, 0] = [1, 5]
        return VirtualGroup(
            {
                "time": make(days, ("time",), {"units": f"days since {self.decade}-01-01"}),
                "spatial_ref": make(np.array(0), (), {"grid_mapping_name": "latitude_longitude"}),
                "cell": make(np.zeros((2, 3)), ("lat", "lon"), {"standard_name": "cell_area"}),
                "lat": make(np.array([south, north]), ("lat",), {"units": "degrees_north"}),
                "lon": make(
                    np.array([west, (west + east) / 2, east]), ("lon",), {"units": "degrees_east"}
                ),
                self.variable: make(values, ("time", "lat", "lon"), about, fill_value=missing),
            },
            attrs={
                "title": f"{self.variable} of {self.institution} from {self.decade}",
                "institution": self.institution,
                "tracking_id": self.name,
                "of a lab": self.institution,
                "quoted": f'"{self.institution}" said so',
                "numbers": list(range(2_000)),
                "summary": "Too long to choose by. " * 9,
            },
        )


def made(n: int) -> list[Made]:
    """So many of them, all kinds in turn."""
    kinds = list(product(VARIABLES, INSTITUTIONS, DECADES, BOXES))
    return [Made(f"cube-{i:04}", *kinds[i % len(kinds)]) for i in range(n)]
