"""OME-TIFF sets of several files, and names of microscopy images that are no wells of a plate."""

from __future__ import annotations

import itertools
import uuid
from pathlib import Path

import numpy as np
import pytest
import tifffile

import gridref
from gridref.api.layout.plates import wells_in_names
from gridref.errors import InvalidRequestError, LeftOutWarning, UnsupportedFeatureError
from tests.by_name import by_name

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
