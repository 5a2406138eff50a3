"""What tifffile reads of a file, against what a scan says of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tifffile
import zarr

from gridref.formats import scan
from gridref.model.array import VirtualGroup
from gridref.testing.reference_reader import read_slowly


def same_as_tifffile(path: Path, *, by_tiles: bool = False) -> VirtualGroup:
    """Compare each image and level."""
    group = scan(str(path))
    checked = 0
    with tifffile.TiffFile(path) as file:
        series = list(file.series)
        for array in group.all_arrays().values():
            if "tiff_series" in array.attrs:
                one, depth = series[array.attrs["tiff_series"]], array.attrs["tiff_level"]
                if by_tiles:
                    expected = zarr.open_array(one.aszarr(level=depth), mode="r")[...]
                else:
                    expected = one.levels[depth].asarray()
                found = read_slowly(array)
                if one.is_pyramidal and found.ndim == 3:
                    found = np.moveaxis(found, 0, -1)  # OME-Zarr has channels in front
                assert found.dtype == expected.dtype
                np.testing.assert_array_equal(found, expected)
                checked += 1
        assert checked == sum(len(one.levels) for one in series)
    return group
