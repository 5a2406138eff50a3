"""Microscopy images as ome-zarr-py opens them from our server, beside what tifffile reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import xarray as xr
from numpy.typing import NDArray

import gridref
from gridref.errors import CombineError, InvalidRequestError
from gridref.faces.http import create_app
from tests.by_name import by_name
from tests.command import run_command
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


def test_overviews_are_levels_of_the_image(tmp_path: Path) -> None:
    data = values(2, 60, 80)
    sizes = {"PhysicalSizeX": 0.5, "PhysicalSizeY": 0.25}
    tifffile.imwrite(tmp_path / "a.ome.tif", data, metadata={"axes": "CYX", **sizes})
    gridref.build(tmp_path / "a.ome.tif", tmp_path / "a.gridref")
    before = gridref.open_catalog(tmp_path / "a.gridref")
    catalog = before.overviews("image", levels=2, method="max")
    with running(create_app({"a": catalog})) as address:
        (node,) = nodes_of(f"{address}/a/portable")
    shapes = [level.shape for level in node.data]
    assert shapes == [(2, 60, 80), (2, 30, 40), (2, 15, 20)]
    for level, size in ((1, 2), (2, 4)):
        windows = data.reshape(2, 60 // size, size, 80 // size, size)
        np.testing.assert_array_equal(catalog[f"overview_{level}/image"], windows.max((2, 4)))
        # As ome-zarr-py states the places of pixels: the centre of the first window
        scale, translation = node.metadata["coordinateTransformations"][level]
        assert scale["scale"] == [1, 0.25 * size, 0.5 * size]
        assert translation["translation"] == [0, 0.25 * (size - 1) / 2, 0.5 * (size - 1) / 2]
    assert catalog.from_files().attrs == before.attrs
    assert catalog.drop_overviews("image").attrs == before.attrs


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


def test_published_sets_and_files(shared_data: Path, tmp_path: Path) -> None:
    """Of the OME consortium: a set with a companion file, and files of several axes."""
    folder = shared_data / "ome_tiff"
    planes = sorted((folder / "companion_multifile").glob("*.tiff"))
    expected = {
        "companion_multifile/multifile.companion.ome": np.stack([*map(tifffile.imread, planes)])
    }
    for path in sorted((folder / "singles").glob("*.tif")):
        expected[f"singles/{path.name}"] = tifffile.imread(path)
    for number, (name, values_read) in enumerate(expected.items()):
        gridref.build(str(folder / name), tmp_path / f"{number}.gridref")
        with running(create_app({"image": tmp_path / f"{number}.gridref"})) as site:
            (node,) = nodes_of(f"{site}/image/portable")
            np.testing.assert_array_equal(node.data[0].compute(), values_read)


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
    gridref.build(str(tmp_path / "*.tif"), tmp_path / "film.gridref", **by_name(**options))
    with running(create_app({"film": tmp_path / "film.gridref"})) as site:
        (node,) = nodes_of(f"{site}/film/portable")
        np.testing.assert_array_equal(node.data[0].compute(), images)
    assert [axis["type"] for axis in node.metadata["axes"]] == ["time", "channel", "space", "space"]


WELLS = {("A", "1"): 2, ("A", "2"): 2, ("B", "12"): 1}
"""Wells of a plate, and how many fields each has."""


def field_of(row: str, column: str, field: int, *shape: int) -> NDArray[np.uint16]:
    seed = [ord(row), int(column), field]
    return np.random.default_rng(seed).integers(0, 4096, shape, np.uint16)


def stitched(*shape: int) -> NDArray[np.uint16]:
    """First fields of all wells as ome-zarr-py shows a plate; wells that are not there are 0."""
    columns = sorted({column for _, column in WELLS}, key=int)
    rows = sorted({row for row, _ in WELLS})
    return np.block(
        [
            [
                field_of(row, column, 0, *shape)
                if (row, column) in WELLS
                else np.zeros(shape, "u2")
                for column in columns
            ]
            for row in rows
        ]
    )


@pytest.fixture
def plate(tmp_path: Path) -> Path:
    """A file for each field, of two channels."""
    folder = tmp_path / "plate1"
    folder.mkdir()
    for (row, column), n_fields in WELLS.items():
        for field in range(n_fields):
            name = folder / f"exp_{row}{int(column):02}_s{field}.ome.tif"
            channels = {"axes": "CYX", "Channel": {"Name": ["DAPI", "GFP"]}}
            image = field_of(row, column, field, 2, 24, 32)
            tifffile.imwrite(name, image, metadata=channels, compression="zlib")
    return folder


def test_a_plate_without_any_option_but_the_layout(plate: Path, tmp_path: Path) -> None:
    done = run_command("build", plate, "--layout", "plate", "-o", tmp_path / "plate.gridref")
    assert done.returncode == 0, done.stderr
    with running(create_app({"plate": tmp_path / "plate.gridref"})) as site:
        address = f"{site}/plate/portable"
        (node,) = nodes_of(address)
        np.testing.assert_array_equal(node.data[0].compute(), stitched(2, 24, 32))
        assert node.metadata["metadata"]["plate"]["name"] == "plate1"
        (well,) = nodes_of(f"{address}/A/2")
        both = [field_of("A", "2", field, 2, 24, 32) for field in range(2)]
        np.testing.assert_array_equal(well.data[0].compute(), np.concatenate(both, axis=-1))
        (image,) = nodes_of(f"{address}/B/12/0")
        np.testing.assert_array_equal(image.data[0].compute(), field_of("B", "12", 0, 2, 24, 32))
        assert image.metadata["channel_names"] == ["DAPI", "GFP"]
    hcs = pytest.importorskip("ome_zarr_models.v05.hcs")
    attrs = gridref.open_catalog(tmp_path / "plate.gridref").attrs["ome"]
    assert len(hcs.HCSAttrs.model_validate(attrs).plate.wells) == len(WELLS)


def test_a_plate_is_found_by_itself(plate: Path, tmp_path: Path) -> None:
    gridref.build(plate, tmp_path / "found.gridref")
    gridref.build(plate, tmp_path / "asked.gridref", layout=gridref.Plate())
    found = gridref.open_catalog(tmp_path / "found.gridref")
    asked = gridref.open_catalog(tmp_path / "asked.gridref")
    assert found.attrs == asked.attrs
    assert set(found.all_arrays()) == set(asked.all_arrays())


def test_a_plate_as_one_array(plate: Path, tmp_path: Path) -> None:
    gridref.build(plate, tmp_path / "plate.gridref", layout=gridref.Plate())
    with xr.open_dataset(tmp_path / "plate.gridref", engine="gridref", group="cube") as cube:
        assert cube.image.dims == ("well", "field", "c", "y", "x")
        for (row, column), n_fields in WELLS.items():
            for field in range(2):
                shown = cube.image.sel(well=f"{row}{int(column):02}", field=field)
                if field < n_fields:
                    np.testing.assert_array_equal(shown, field_of(row, column, field, 2, 24, 32))
                else:
                    assert np.isnan(shown).all()


def test_planes_in_files_of_their_own(tmp_path: Path) -> None:
    """As Operetta and ImageXpress write them: a file for each channel and depth, rows by number."""
    folder = tmp_path / "operetta"
    folder.mkdir()
    for (row, column), n_fields in WELLS.items():
        for field in range(n_fields):
            image = field_of(row, column, field, 2, 3, 24, 32)
            for c, z in np.ndindex(2, 3):
                number = ord(row) - 64
                name = f"r{number:02}c{int(column):02}f{field:02}p{z:02}-ch{c + 1}.tiff"
                tifffile.imwrite(folder / name, image[c, z], metadata=None)
    pattern = "r{row}c{column}f{field}p{z}-ch{c}.tiff"
    with pytest.raises(InvalidRequestError, match="takes its dimensions from the pattern"):
        gridref.build(folder, tmp_path / "no.gridref", "c", layout=gridref.Plate())
    with pytest.raises(CombineError, match=r"field 0 of well A1 is in 6 files; fields of the patt"):
        gridref.build(folder, tmp_path / "no.gridref", layout=gridref.Plate())
    gridref.build(folder, tmp_path / "plate.gridref", layout=gridref.Plate(pattern))
    with running(create_app({"plate": tmp_path / "plate.gridref"})) as site:
        (node,) = nodes_of(f"{site}/plate/portable/A/1/1")
        np.testing.assert_array_equal(node.data[0].compute(), field_of("A", "1", 1, 2, 3, 24, 32))
        assert [axis["name"] for axis in node.metadata["axes"]] == ["c", "z", "y", "x"]
        (whole,) = nodes_of(f"{site}/plate/portable")
        np.testing.assert_array_equal(whole.data[0].compute(), stitched(2, 3, 24, 32))
    later = folder / "r03c01f00p00-ch1.tiff"
    tifffile.imwrite(later, np.zeros((24, 32), "u2"))
    files = sorted(map(str, folder.glob("*.tiff")))
    grown = gridref.open_catalog(tmp_path / "plate.gridref").append(files)
    gridref.build(folder, tmp_path / "whole.gridref", layout=gridref.Plate(pattern))
    assert grown.info.digest == gridref.open_catalog(tmp_path / "whole.gridref").info.digest


def test_a_plate_of_pyramids(tmp_path: Path) -> None:
    folder = tmp_path / "slides"
    folder.mkdir()
    levels = {
        well: write_pyramid(folder / f"{well}.ome.tif", values(3, 64, 96) + n, 2)
        for n, well in enumerate(("C03", "C04"))
    }
    gridref.build(folder, tmp_path / "plate.gridref", layout=gridref.Plate("{well}.ome.tif"))
    with running(create_app({"plate": tmp_path / "plate.gridref"})) as site:
        (node,) = nodes_of(f"{site}/plate/portable")
        for level, shown in enumerate(node.data):
            both = [levels[well][level] for well in ("C03", "C04")]
            np.testing.assert_array_equal(shown.compute(), np.concatenate(both, axis=-1))


def test_names_without_a_well(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "cells.tif", np.zeros((8, 8), "u2"))
    with pytest.raises(InvalidRequestError, match="the file name contains no well such as B02"):
        gridref.build(tmp_path / "cells.tif", tmp_path / "no.gridref", layout=gridref.Plate())
    with pytest.raises(InvalidRequestError, match="'cells' is no well like B02"):
        gridref.build(
            tmp_path / "cells.tif", tmp_path / "no.gridref", layout=gridref.Plate("{well}.tif")
        )
