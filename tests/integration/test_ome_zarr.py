"""Microscopy images as ome-zarr-py opens them from our server, beside what tifffile reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray

import gridref
from gridref.adapters.http import create_app
from tests.uvicorn_server import running

io = pytest.importorskip("ome_zarr.io")
reader = pytest.importorskip("ome_zarr.reader")


def nodes_of(address: str) -> list[Any]:
    """What ome-zarr-py finds at an address."""
    location = io.parse_url(address)
    assert location is not None, f"no OME-Zarr at {address}"
    return list(reader.Reader(location)())


def values(*shape: int) -> NDArray[np.uint16]:
    return np.random.default_rng(len(shape)).integers(0, 4096, shape, np.uint16)


CHANNELS = '<Channel ID="Channel:0:{n}" Name="{name}" Color="{color}" SamplesPerPixel="1"/>'


def write_set(folder: Path, data: NDArray[Any], order: str) -> Path:
    """An OME-TIFF set: a file for each plane of a stack along the leading axes."""
    leading = data.shape[:-2]
    sizes = dict.fromkeys("TCZ", 1) | dict(zip(order, leading, strict=True))
    channels = "".join(
        CHANNELS.format(n=n, name=name, color=color)
        for n, (name, color) in enumerate([("DAPI", 65535), ("GFP", 16711935)])
    )
    planes = "".join(
        "<TiffData "
        + " ".join(f'First{axis}="{index}"' for axis, index in zip(order, place, strict=True))
        + f' IFD="0" PlaneCount="1"><UUID FileName="p{n}.ome.tif">urn:uuid:{n}</UUID></TiffData>'
        for n, place in enumerate(np.ndindex(leading))
    )
    rows, columns = data.shape[-2:]
    others = "".join(axis for axis in "TCZ" if axis not in order)
    for n, place in enumerate(np.ndindex(leading)):
        xml = (
            '<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"'
            f' UUID="urn:uuid:{n}"><Image ID="Image:0" Name="cells"><Pixels ID="Pixels:0"'
            f' Type="uint16" DimensionOrder="XY{order[::-1]}{others}"'
            f' SizeX="{columns}" SizeY="{rows}" SizeZ="{sizes["Z"]}" SizeC="{sizes["C"]}"'
            f' SizeT="{sizes["T"]}" SignificantBits="12" PhysicalSizeX="0.5"'
            f' PhysicalSizeXUnit="µm" PhysicalSizeY="0.25" PhysicalSizeYUnit="µm">'
            f"{channels}{planes}</Pixels></Image></OME>"
        )
        tifffile.imwrite(
            folder / f"p{n}.ome.tif", data[place], description=xml.encode(), metadata=None
        )
    return folder / "p0.ome.tif"


@pytest.mark.parametrize("order", ["CZ", "ZC"])
def test_a_set_of_files(tmp_path: Path, order: str) -> None:
    data = values(*((2, 3) if order == "CZ" else (3, 2)), 40, 50)
    first = write_set(tmp_path, data, order)
    gridref.build(str(first), tmp_path / "cells.gridref")
    expected = data if order == "CZ" else data.swapaxes(0, 1)
    np.testing.assert_array_equal(tifffile.imread(first), data)
    with running(create_app({"cells": tmp_path / "cells.gridref"})) as site:
        (node,) = nodes_of(f"{site}/cells/portable")
        np.testing.assert_array_equal(node.data[0].compute(), expected)
    assert [axis["name"] for axis in node.metadata["axes"]] == ["c", "z", "y", "x"]
    assert node.metadata["axes"][-1]["unit"] == "micrometer"
    (scale,) = node.metadata["coordinateTransformations"][0]
    assert scale["scale"][-2:] == [0.25, 0.5]
    assert node.metadata["channel_names"] == ["DAPI", "GFP"]
    assert node.metadata["contrast_limits"] == [[0, 4095], [0, 4095]]
    assert [color[1] for color in node.metadata["colormap"]] == [[0, 0, 1], [0, 1, 0]]


def write_pyramid(path: Path, data: NDArray[Any], n_levels: int) -> Sequence[NDArray[Any]]:
    levels = [data[..., :: 2**level, :: 2**level] for level in range(n_levels)]
    options: dict[str, Any] = {"tile": (32, 32), "compression": "zlib"}
    with tifffile.TiffWriter(path, ome=True) as writer:
        axes = {"axes": "CYX", "Channel": {"Name": ["a", "b", "c"]}}
        writer.write(levels[0], subifds=n_levels - 1, metadata=axes, **options)
        for level in levels[1:]:
            writer.write(level, subfiletype=1, **options)
    return levels


def test_a_pyramid(tmp_path: Path) -> None:
    levels = write_pyramid(tmp_path / "slide.ome.tif", values(3, 128, 192), 3)
    gridref.build(str(tmp_path / "slide.ome.tif"), tmp_path / "slide.gridref")
    with running(create_app({"slide": tmp_path / "slide.gridref"})) as site:
        (node,) = nodes_of(f"{site}/slide/portable")
        assert len(node.data) == len(levels)
        for shown, level in zip(node.data, levels, strict=True):
            np.testing.assert_array_equal(shown.compute(), level)
    assert node.metadata["channel_names"] == ["a", "b", "c"]


def test_a_stack_of_images_along_time(tmp_path: Path) -> None:
    images = values(3, 2, 40, 50)
    for number, image in enumerate(images):
        name = tmp_path / f"frame_{number}.ome.tif"
        tifffile.imwrite(name, image, metadata={"axes": "CYX", "Channel": {"Name": ["a", "b"]}})
    options = {"stack": "t", "pattern": "frame_{t}"}
    gridref.build(str(tmp_path / "*.tif"), tmp_path / "film.gridref", **options)
    with running(create_app({"film": tmp_path / "film.gridref"})) as site:
        (node,) = nodes_of(f"{site}/film/portable")
        np.testing.assert_array_equal(node.data[0].compute(), images)
    assert [axis["type"] for axis in node.metadata["axes"]] == ["time", "channel", "space", "space"]
