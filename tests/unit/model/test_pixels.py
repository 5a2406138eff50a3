"""Transforms of GDAL, against rasterio, and the axes of pixels that they are made of."""

from __future__ import annotations

import rasterio

from gridref.model.pixels import Affine, PixelAxis


def test_transforms_of_gdal() -> None:
    place = rasterio.Affine(10, 0.5, 100, -0.25, -20, 500)
    text = " ".join(map(str, place.to_gdal()))
    assert Affine.of({"GeoTransform": text}) == Affine(*place.to_gdal())
    for wrong in ("", "1 2 3 4 5", "1 2 3 4 5 6 7", "1 2 3 x 5 6"):
        assert Affine.of({"GeoTransform": wrong}) is None


def test_transforms_are_written_as_gdal_reads_them() -> None:
    affine = Affine.along(PixelAxis(100.0, 10.0), PixelAxis(500.0, -20.0))
    assert affine.gdal() == "100.0 10.0 0.0 500.0 0.0 -20.0"
