"""A JPEG 2000 file in rasterio, which `verify` compares with."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

type _Shape = tuple[int, ...]


class RasterioFile:
    """An image and its overviews, by their shapes.

    Parameters
    ----------
    file
        Path, or all bytes.

    Raises
    ------
    ImportError
        If rasterio is not installed.
    ValueError
        In the words of GDAL.
    """

    def __init__(self, file: str | bytes) -> None:
        import rasterio
        from rasterio.errors import RasterioError

        self._error = RasterioError
        self.levels: dict[_Shape, dict[str, int]] = {}
        with ExitStack() as stack:
            memory = (
                None if isinstance(file, str) else stack.enter_context(rasterio.MemoryFile(file))
            )
            self._open = memory.open if memory else lambda **level: rasterio.open(file, **level)
            n_overviews = self._add({})
            for number in range(n_overviews):
                self._add({"overview_level": number})
            self._copy = stack.pop_all()

    def _add(self, level: dict[str, int]) -> int:
        """Remember a level; returns the number of its overviews."""
        try:
            with self._open(**level) as image:
                self.levels.setdefault((image.count, *image.shape), level)
                return len(image.overviews(1))
        except self._error as error:
            raise ValueError(f"rasterio cannot open it: {error}") from error

    def read(self, shape: _Shape, region: tuple[slice, ...]) -> NDArray[Any]:
        """Elements of the level of a shape.

        Raises
        ------
        ValueError
            In the words of GDAL.
        """
        bands, rows, columns = region
        window = (rows.start, rows.stop), (columns.start, columns.stop)
        try:
            with self._open(**self.levels[shape]) as image:
                numbers = range(bands.start + 1, bands.stop + 1)
                return np.asarray(image.read([*numbers], window=window))
        except self._error as error:
            raise ValueError(f"rasterio cannot read it: {error}") from error

    def centres(self, shape: _Shape, axis: int) -> NDArray[np.float64] | None:
        """Places of the pixels' centres along rows or columns; None if nothing says them."""
        with self._open(**self.levels[shape]) as image:
            affine = image.transform
            if axis == 0 or affine.is_identity or affine.b or affine.d:
                return None
            start, step = (affine.f, affine.e) if axis == 1 else (affine.c, affine.a)
        centres: NDArray[np.float64] = start + (np.arange(shape[axis]) + 0.5) * step
        return centres

    def close(self) -> None:
        """Forget a copy."""
        self._copy.close()
