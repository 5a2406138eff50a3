"""Where the pixels of an image are: by an affine transform, and by labels at their middles.

Labels count where they contradict a transform: arrays may have been joined or selected from, and
GDAL writes the rows of NetCDF files from south to north under a transform that goes the other way.

Source: GDAL's ``GeoTransform``, which its "netCDF" driver and rioxarray keep in grid mappings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.model.array import VirtualArray

SAME_PIXEL = 0.25
"""How far, in pixels, labels may be off a transform that means the same pixels."""
EVEN = 0.05
"""How far, in pixels, evenly spaced labels may be off their places, by rounding."""

type Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PixelAxis:
    """Evenly spaced pixels along x or y.

    Attributes
    ----------
    begin
        Where the first pixel begins.
    step
        From a pixel to the next; may be negative.
    """

    begin: float
    step: float

    @classmethod
    def through(cls, labels: Floats, pixels: NDArray[Any], whole: int = -1) -> PixelAxis:
        """The axis with the first label, and the one at `whole`, at the middles of their pixels."""
        step = (labels[whole] - labels[0]) / (pixels[whole] - pixels[0])
        return cls(float(labels[0] - 0.5 * step), float(step))

    def middles(self, pixels: NDArray[Any]) -> Floats:
        """Where the middles of pixels are."""
        return self.begin + (pixels + 0.5) * self.step

    def off(self, labels: Floats, pixels: NDArray[Any]) -> Floats:
        """How far labels are off the middles of these pixels, in pixels."""
        distances: Floats = np.abs(labels - self.middles(pixels)) / abs(self.step or 1.0)
        return distances

    def pixels(self, labels: Floats) -> Floats:
        """The numbers of the pixels at whose middles labels are."""
        return (labels - self.begin) / self.step - 0.5

    def moved(self, pixels: int) -> PixelAxis:
        """The axis that begins so many pixels further."""
        return replace(self, begin=self.begin + pixels * self.step)

    def pixels_to(self, other: PixelAxis) -> float:
        """How many pixels further another axis begins."""
        return (other.begin - self.begin) / self.step

    def every(self, first: float, factor: float) -> PixelAxis:
        """Pixels so many times larger, the first one around the middle of pixel `first`."""
        return PixelAxis(
            float(self.begin + (first - (factor - 1) / 2) * self.step), float(factor * self.step)
        )


@dataclass(frozen=True)
class Affine:
    """Pixel corners to map coordinates: ``x = x0 + col * dx_col + row * dx_row``, ``y`` likewise.

    Attributes
    ----------
    x0, y0
        Map coordinates of the outer corner of the first pixel.
    dx_col, dx_row, dy_col, dy_row
        Steps of the map coordinates from a pixel to the next along the columns and rows.
    """

    x0: float
    dx_col: float
    dx_row: float
    y0: float
    dy_col: float
    dy_row: float

    @classmethod
    def of(cls, attrs: Mapping[str, Any]) -> Affine | None:
        """The ``GeoTransform`` in a grid mapping's attributes; None without six numbers."""
        try:
            numbers = [float(word) for word in str(attrs.get("GeoTransform", "")).split()]
        except ValueError:
            return None
        return cls(*numbers) if len(numbers) == 6 else None

    @classmethod
    def along(cls, x: PixelAxis, y: PixelAxis) -> Affine:
        """Columns along x and rows along y."""
        return cls(x.begin, x.step, 0.0, y.begin, 0.0, y.step)

    @property
    def is_rectilinear(self) -> bool:
        """Whether columns run along x and rows along y."""
        return self.dx_row == 0 and self.dy_col == 0

    @property
    def x(self) -> PixelAxis:
        """The columns of a rectilinear image."""
        return PixelAxis(self.x0, self.dx_col)

    @property
    def y(self) -> PixelAxis:
        """The rows of a rectilinear image."""
        return PixelAxis(self.y0, self.dy_row)

    def scaled(self, columns: float, rows: float) -> Affine:
        """The placement of an image whose pixels are so many times larger."""
        return Affine(
            self.x0,
            self.dx_col * columns,
            self.dx_row * rows,
            self.y0,
            self.dy_col * columns,
            self.dy_row * rows,
        )

    def gdal(self) -> str:
        """The form in which GDAL writes it: ``x0 dx_col dx_row y0 dy_col dy_row``."""
        return " ".join(repr(float(value)) for value in astuple(self))

    def stated_in(self, mapping: VirtualArray) -> VirtualArray:
        """A grid mapping that states it."""
        return mapping.with_changes(attrs={**mapping.attrs, "GeoTransform": self.gdal()})
