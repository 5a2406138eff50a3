"""OME files: sets of OME-TIFF beside tifffile, and OME-Zarr."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import xarray as xr
from numpy.typing import NDArray

import gridref
from gridref.api.layout.plates import wells_in_names
from gridref.errors import (
    CombineError,
    InvalidRequestError,
    LeftOutWarning,
    UnsupportedFeatureError,
)
from gridref.faces.http import create_app
from tests.by_name import by_name
from tests.command import run_command
from tests.uvicorn_server import running

NAMESPACE = "http://www.openmicroscopy.org/Schemas/OME/2016-06"

Place = tuple[int, int, int, int]
"""Position, time, channel and slice of a plane."""


def write_set(
    folder: Path, name: str, sizes: tuple[int, int, int, int], *, all_positions: bool = True
) -> dict[Place, Path]:
    """Write a set of one plane a file, each with OME-XML of all files, or of its position's.

    `name` takes the position, time, channel and slice.
    """
    places = list(itertools.product(*map(range, sizes)))
    ids = {place: f"urn:uuid:{uuid.uuid4()}" for place in places}
    _, n_times, n_channels, n_slices = sizes

    def image(position: int) -> str:
        planes = "".join(
            f'<TiffData FirstT="{t}" FirstC="{c}" FirstZ="{z}" IFD="0" PlaneCount="1">'
            f'<UUID FileName="{name.format(p, t, c, z)}">{ids[p, t, c, z]}</UUID></TiffData>'
            for p, t, c, z in places
            if p == position
        )
        return (
            f'<Image ID="Image:{position}" Name="pos{position}"><Pixels ID="Pixels:{position}"'
            f' DimensionOrder="XYZCT" Type="uint16" SizeX="8" SizeY="6" SizeZ="{n_slices}"'
            f' SizeC="{n_channels}" SizeT="{n_times}">{planes}</Pixels></Image>'
        )

    files = {}
    for place in places:
        images = map(image, range(sizes[0])) if all_positions else [image(place[0])]
        xml = f'<OME xmlns="{NAMESPACE}" UUID="{ids[place]}">{"".join(images)}</OME>'
        files[place] = folder / name.format(*place)
        plane = np.arange(48, dtype="u2").reshape(6, 8) + 1000 * places.index(place)
        tifffile.imwrite(files[place], plane, description=xml, metadata=None)
    return files


def plane_of(path: Path) -> np.ndarray:
    with tifffile.TiffFile(path) as file:
        return file.pages[0].asarray()


@pytest.mark.long(but=1)
@pytest.mark.parametrize("yes", [False, True])
def test_the_files_of_a_set_are_one_image(tmp_path: Path, yes: bool) -> None:
    files = write_set(tmp_path, "exp_T{1}_C{2}_Z{3}.ome.tif", (1, 4, 2, 3))
    catalog = tmp_path / "set.gridref"
    group = gridref.build(list(files.values()), catalog, layout="first")
    image = group.arrays["image"]
    assert (image.dims, image.shape) == (("t", "c", "z", "y", "x"), (4, 2, 3, 6, 8))
    (note,) = [row for row in group.report.drifts if row["cause"] == "layout"]
    assert (note["value"], note["n_files"]) == ("one set of 24 files", 24)
    for (_, t, c, z), path in files.items():
        np.testing.assert_array_equal(image[t, c, z], plane_of(path))
    assert gridref.verify(catalog).ok


def test_a_set_of_several_positions_has_a_group_for_each(tmp_path: Path) -> None:
    files = write_set(tmp_path, "P{0}_T{1}.ome.tif", (3, 8, 1, 1))
    group = gridref.build(list(files.values()), tmp_path / "set.gridref")
    for (position, t, _, _), path in files.items():
        image = group[f"series_{position}/image"]
        assert image.dims == ("t", "y", "x")
        np.testing.assert_array_equal(image[t], plane_of(path))


@pytest.mark.parametrize("suffix", ["ome.tif", "tif"])
def test_sets_beside_each_other(tmp_path: Path, suffix: str) -> None:
    files = write_set(tmp_path, f"P{{0}}_T{{1}}.{suffix}", (3, 8, 1, 1), all_positions=False)
    group = gridref.build(list(files.values()), tmp_path / "sets.gridref")
    image = group.arrays["image"]
    assert (image.dims, image.shape) == (("position", "t", "y", "x"), (3, 8, 6, 8))
    assert group.arrays["position"][...].tolist() == [0, 1, 2]
    for (position, t, _, _), path in files.items():
        np.testing.assert_array_equal(image[position, t], plane_of(path))


@pytest.mark.parametrize("ome", [False, True])
def test_images_whose_names_count_positions_and_times(tmp_path: Path, ome: bool) -> None:
    files = {}
    for position, t in itertools.product((1, 2, 3), range(8)):
        files[position, t] = tmp_path / f"P{position}_T{t}{'.ome' if ome else ''}.tif"
        plane = np.full((6, 8), 10 * position + t, "u2")
        tifffile.imwrite(files[position, t], plane, ome=ome)
    group = gridref.build(list(files.values()), tmp_path / "cube.gridref")
    image = group.arrays["image"]
    assert (image.dims, image.shape) == (("position", "t", "y", "x"), (3, 8, 6, 8))
    assert group.arrays["position"][...].tolist() == [1, 2, 3]
    for (position, t), path in files.items():
        np.testing.assert_array_equal(image[position - 1, t], plane_of(path))


def test_parts_of_a_set_are_not_stacked(tmp_path: Path) -> None:
    files = write_set(tmp_path, "x_T{1}.ome.tif", (1, 4, 1, 1))
    for options in ({"stack": "frame"}, {"stack": "n", "pattern": "x_T{n:d}.ome.tif"}):
        with pytest.raises(InvalidRequestError, match="belong to one OME-TIFF set of 4 files"):
            gridref.build(list(files.values()), tmp_path / "set.gridref", **by_name(**options))


def test_files_whose_metadata_is_in_a_companion_file_are_its_set(
    shared_data: Path, tmp_path: Path
) -> None:
    folder = shared_data / "ome_tiff/companion_multifile"
    files = sorted(folder.glob("*.ome.tiff"))
    group = gridref.build(files, tmp_path / "set.gridref")
    image = group.arrays["image"]
    assert image.dims == ("z", "y", "x")
    np.testing.assert_array_equal(image[...], np.stack([plane_of(path) for path in files]))
    assert gridref.verify(tmp_path / "set.gridref", all=True).ok


def write_companion_set(folder: Path, *, named: str = "set.companion.ome") -> list[Path]:
    """Six planes, three times of two channels, whose file names say neither, as tifffile writes."""
    files = [folder / f"plane{number}.ome.tif" for number in range(6)]
    ids = [f"urn:uuid:{uuid.uuid4()}" for _ in files]
    places = itertools.product(range(3), range(2))
    planes = "".join(
        f'<TiffData FirstT="{t}" FirstC="{c}" FirstZ="0" IFD="0" PlaneCount="1">'
        f'<UUID FileName="{files[-1 - number].name}">{ids[-1 - number]}</UUID></TiffData>'
        for number, (t, c) in enumerate(places)
    )
    (folder / "set.companion.ome").write_text(
        f'<OME xmlns="{NAMESPACE}"><Image ID="Image:0"><Pixels ID="Pixels:0" Type="uint16"'
        ' DimensionOrder="XYZCT" SizeX="8" SizeY="6" SizeZ="1" SizeC="2" SizeT="3">'
        f"{planes}</Pixels></Image></OME>"
    )
    for number, (path, own) in enumerate(zip(files, ids, strict=True)):
        xml = f'<OME xmlns="{NAMESPACE}" UUID="{own}"><BinaryOnly MetadataFile="{named}"/></OME>'
        plane = np.arange(48, dtype="u2").reshape(6, 8) + 1000 * number
        tifffile.imwrite(path, plane, description=xml, metadata=None)
    return files


def test_axes_are_those_of_the_companion_file_not_of_names(tmp_path: Path) -> None:
    files = write_companion_set(tmp_path)
    expected = np.stack([plane_of(path) for path in files[::-1]]).reshape(3, 2, 6, 8)
    group = gridref.build(files, tmp_path / "set.gridref")
    assert group.arrays["image"].dims == ("t", "c", "y", "x")
    np.testing.assert_array_equal(group.arrays["image"][...], expected)
    assert not group.report.skipped
    assert gridref.verify(tmp_path / "set.gridref", all=True).ok
    for path in files[:2]:
        np.testing.assert_array_equal(gridref.scan(path)["image"][...], expected)


def test_a_companion_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    files = write_companion_set(tmp_path)
    (tmp_path / "set.companion.ome").unlink()
    with pytest.warns(LeftOutWarning, match="set.companion.ome, which is not beside it"):
        group = gridref.build(files, tmp_path / "set.gridref", layout=gridref.Stack("plane"))
    np.testing.assert_array_equal(
        group.arrays["image"][...], np.stack([plane_of(path) for path in files])
    )
    (line,) = [line for line in group.report.lines if "OME-XML" in line]
    assert "plane0.ome.tif and 5 more" in line


@pytest.mark.parametrize("named", ["../set.companion.ome", "/etc/passwd", "http://host/x.ome"])
def test_a_companion_file_elsewhere_is_not_followed(tmp_path: Path, named: str) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    files = write_companion_set(inner, named=named)
    (inner / "set.companion.ome").rename(tmp_path / "set.companion.ome")
    group = gridref.scan(files[0])
    assert "which is not beside it" in group.report.skipped[0].reason
    np.testing.assert_array_equal(group["image"][...], plane_of(files[0]))


def test_a_companion_file_through_a_link_needs_to_be_allowed(tmp_path: Path) -> None:
    inner, other = tmp_path / "inner", tmp_path / "other"
    inner.mkdir()
    other.mkdir()
    files = write_companion_set(inner)
    (inner / "set.companion.ome").rename(other / "set.companion.ome")
    (inner / "set.companion.ome").symlink_to(other / "set.companion.ome")
    with pytest.raises(UnsupportedFeatureError, match="allow"):
        gridref.scan(files[0])
    assert gridref.scan(files[0], allow=[other])["image"].shape == (3, 2, 6, 8)


def test_a_companion_file_of_another_set_is_said(tmp_path: Path) -> None:
    files = write_companion_set(tmp_path)
    renamed = files[0].rename(tmp_path / "other.ome.tif")
    with pytest.raises(UnsupportedFeatureError, match=r"not there: plane0\.ome\.tif"):
        gridref.scan(renamed)  # of the set by its UUID
    text = (tmp_path / "set.companion.ome").read_text()
    with tifffile.TiffFile(renamed) as file:
        own = file.pages[0].description.partition('UUID="')[2].partition('"')[0]
    (tmp_path / "set.companion.ome").write_text(text.replace(own, f"urn:uuid:{uuid.uuid4()}"))
    group = gridref.scan(renamed)
    assert "which does not name it" in group.report.skipped[0].reason
    assert group["image"].shape == (6, 8)


@pytest.mark.parametrize(
    ("names", "wells"),
    [
        (["P1_T0.tif", "P1_T1.tif", "P2_T0.tif"], []),
        (["a_P01.tif", "a_P02.tif"], []),
        (["x_C0_Z1.tif", "x_C1_Z1.tif"], []),
        (["x_C1_TP10.tif", "x_C2_TP10.tif"], []),
        (["x_F1_T1.tif", "x_F2_T1.tif"], []),
        (["plate_C03_s1.tif", "plate_C04_s1.tif"], ["C03", "C04"]),
        (["plate_A1_f0.tif", "plate_B2_f0.tif"], ["A1", "B2"]),
        (["A01_T0.tif", "P01_T0.tif"], ["A01", "P01"]),
        (["r01c02f01.tif", "r02c02f01.tif"], ["A2", "B2"]),
    ],
)
def test_wells_in_names(names: list[str], wells: list[str]) -> None:
    found = wells_in_names(names)
    assert [well.replace("0", "") for well in found] == [well.replace("0", "") for well in wells]


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


def write_ome_tiffs(folder: Path, data: NDArray[Any], order: str) -> Path:
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
    first = write_ome_tiffs(tmp_path, data, order)
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
