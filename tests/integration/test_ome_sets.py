"""OME-TIFF sets of several files, and names of microscopy images that are no wells of a plate."""

from __future__ import annotations

import itertools
import uuid
from pathlib import Path

import numpy as np
import pytest
import tifffile

import gridref
from gridref.api.layout.names import wells_in_names
from gridref.errors import InvalidRequestError

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


@pytest.mark.parametrize("yes", [False, True])
def test_the_files_of_a_set_are_one_image(tmp_path: Path, yes: bool) -> None:
    files = write_set(tmp_path, "exp_T{1}_C{2}_Z{3}.ome.tif", (1, 4, 2, 3))
    catalog = tmp_path / "set.gridref"
    group = gridref.build(list(files.values()), catalog, yes=yes)
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
        with pytest.raises(InvalidRequestError, match="parts of one OME-TIFF set of 4 files"):
            gridref.build(list(files.values()), tmp_path / "set.gridref", **options)


def test_planes_of_a_companion_file_lie_along_what_their_names_count(
    shared_data: Path, tmp_path: Path
) -> None:
    folder = shared_data / "ome_tiff/companion_multifile"
    files = sorted(folder.glob("*.ome.tiff"))
    group = gridref.build(files, tmp_path / "set.gridref")
    whole = gridref.scan(folder / "multifile.companion.ome")["image"]
    assert group.arrays["z"][...].tolist() == [1, 2, 3, 4, 5]
    assert group.arrays["image"].dims == whole.dims == ("z", "y", "x")
    np.testing.assert_array_equal(group.arrays["image"][...], whole[...])


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
