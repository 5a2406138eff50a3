"""Read a JPEG 2000 file with rasterio, for `verify`."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.codecs.jpeg2000 import read_header
from gridref.formats.jpeg2000.boxes import read_boxes, reader_of
from gridref.io import ScanFile

_MOST_BOXES = 10_000

type _Shape = tuple[int, ...]


class RasterioFile:
    """An image and its overviews, by their shapes.

    Parameters
    ----------
    file
        The file. If it is on a server, rasterio gets a copy.

    Raises
    ------
    ImportError
        If rasterio is not installed.
    ValueError
        In the words of GDAL, or if GDAL shows other elements than the file has.
    """

    def __init__(self, file: ScanFile) -> None:
        read = reader_of(file)
        start = read_boxes(read, file.size, _MOST_BOXES).start
        if read_header(read, start).size.dtype == np.int8:
            raise ValueError("rasterio shows its signed bytes as unsigned ones")
        import rasterio
        from rasterio.errors import RasterioError

        self._error = RasterioError
        self.levels: dict[_Shape, Any] = {}
        with ExitStack() as stack, warnings.catch_warnings(action="ignore"):
            opened: Any = partial(rasterio.open, file.name)
            if file.is_remote:
                copy = rasterio.MemoryFile(read(0, file.size))
                opened = stack.enter_context(copy).open
            try:
                image = stack.enter_context(opened())
                coarse = [opened(overview_level=n) for n, _ in enumerate(image.overviews(1))]
            except RasterioError as error:
                raise ValueError(f"rasterio cannot open it: {error}") from error
            for level in (image, *map(stack.enter_context, coarse)):
                self.levels.setdefault((level.count, *level.shape), level)
            self._open = stack.pop_all()

    def read(self, shape: _Shape, region: tuple[slice, ...]) -> NDArray[Any]:
        """Elements of the level of a shape."""
        bands, rows, columns = region
        window = (rows.start, rows.stop), (columns.start, columns.stop)
        numbers = [*range(bands.start + 1, bands.stop + 1)]
        try:
            return np.asarray(self.levels[shape].read(numbers, window=window))
        except self._error as error:
            raise ValueError(f"rasterio cannot read it: {error}") from error

    def centres(self, shape: _Shape, axis: int) -> NDArray[np.float64] | None:
        """Places of the pixels' centres along rows or columns; None if nothing says them."""
        affine = self.levels[shape].transform
        if axis == 0 or affine.is_identity or affine.b or affine.d:
            return None
        start, step = (affine.f, affine.e) if axis == 1 else (affine.c, affine.a)
        centres: NDArray[np.float64] = start + (np.arange(shape[axis]) + 0.5) * step
        return centres

    def close(self) -> None:
        """Close the file."""
        self._open.close()
