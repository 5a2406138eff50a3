"""Arrays read as users read them: out of files, catalogs and combinations, against h5py."""

from __future__ import annotations

import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest

import gridref
from gridref.api.scan import scan_many
from gridref.errors import InvalidRequestError, SourceUnavailableError
from gridref.model.array import VirtualArray


def make(path: Path, first: int, n: int) -> str:
    with h5py.File(path, "w") as file:
        time = file.create_dataset("time", data=np.arange(first, first + n))
        time.make_scale("time")
        values = np.arange(first * 10.0, (first + n) * 10.0).reshape(n, 10)
        tas = file.create_dataset("model/tas", data=values, chunks=(2, 4), compression="gzip")
        tas.dims[0].attach_scale(time)
        flat = file.create_dataset("flat", data=values[:, 0], chunks=(2,))
        flat.dims[0].attach_scale(time)
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    return [make(tmp_path / "a.h5", 0, 5), make(tmp_path / "b.h5", 5, 3)]


def values_of(file: str, path: str) -> np.ndarray:
    with h5py.File(file) as handle:
        return np.asarray(handle[path][...])


@pytest.mark.parametrize(
    "selection", [..., 0, -1, (slice(None, None, -2), 3), ([4, 0], slice(1, 9, 3)), None]
)
def test_scanned_arrays_read_like_h5py(files: list[str], selection: object) -> None:
    array = gridref.scan(files[0])["model/tas"]
    assert isinstance(array, VirtualArray)
    expected = values_of(files[0], "model/tas")
    if selection is not None:
        np.testing.assert_array_equal(array[selection], expected[selection])
    np.testing.assert_array_equal(
        array.read(selection), expected if selection is None else expected[selection]
    )


def test_selections_by_dimension_name_and_lazy_ones(files: list[str]) -> None:
    array = gridref.scan(files[0]).arrays["flat"]
    expected = values_of(files[0], "flat")
    (dim,) = array.dims
    np.testing.assert_array_equal(array.read(**{dim: slice(1, 4)}), expected[1:4])
    part = array.isel(**{dim: slice(4, None, -2)})
    assert isinstance(part, VirtualArray)
    np.testing.assert_array_equal(part[...], expected[4::-2])
    np.testing.assert_array_equal(np.asarray(part, np.float32), expected[4::-2].astype("f4"))
    with pytest.raises(InvalidRequestError, match=f"no dimension 'tim'.*did you mean '{dim}'"):
        array.isel(tim=0)
    with pytest.raises(InvalidRequestError, match="not both"):
        array.read(0, **{dim: 0})


def test_catalogs_read_by_path_and_after_pickling(files: list[str], tmp_path: Path) -> None:
    made = gridref.build(files, tmp_path / "cube.gridref", "time")
    cube = gridref.open_catalog(tmp_path / "cube.gridref")
    expected = np.concatenate([values_of(file, "flat") for file in files])
    for group in (made, cube, pickle.loads(pickle.dumps(cube))):
        assert "flat" in group
        assert "falt" not in group
        np.testing.assert_array_equal(group["flat"][...], expected)


def test_an_error_names_the_array_that_could_not_be_read(files: list[str], tmp_path: Path) -> None:
    gridref.build(files, tmp_path / "cube.gridref", "time")
    Path(files[1]).unlink()
    cube = gridref.open_catalog(tmp_path / "cube.gridref")
    with pytest.raises(SourceUnavailableError, match="variable flat"):
        cube["flat"][...]
    assert cube["flat"][0] == 0


def test_combined_arrays_read_without_a_reader_of_the_callers(files: list[str]) -> None:
    groups = scan_many(files)
    expected = np.concatenate([values_of(file, "flat") for file in files])
    np.testing.assert_array_equal(gridref.concat(groups, "time")["flat"][...], expected)
    flat = gridref.concat([group["flat"] for group in groups], "time")
    np.testing.assert_array_equal(flat[1:7], expected[1:7])
    same = gridref.concat([groups[0], groups[0]], "member", labels=[3, 7])
    np.testing.assert_array_equal(same["member"][...], [3, 7])
    assert same["flat"].shape == (2, 5)
    np.testing.assert_array_equal(same["flat"][1], values_of(files[0], "flat"))


def test_unlike_storage_options_have_to_be_named(files: list[str]) -> None:
    groups = [
        gridref.scan(files[0]),
        gridref.scan(files[1], storage_options={"s3": {"anon": True}}),
    ]
    with pytest.raises(InvalidRequestError, match="opened with different storage options"):
        gridref.concat(groups, "time")
    cube = gridref.concat(groups, "time", storage_options={"s3": {"anon": True}})
    assert cube["flat"].shape == (8,)


def test_arrays_made_in_memory_say_what_to_do() -> None:
    array = VirtualArray.from_numpy(np.arange(3), ("x",))
    with pytest.raises(InvalidRequestError, match="made in memory"):
        array[...]
    with pytest.raises(TypeError, match="not iterable"):
        iter(array)  # type: ignore[call-overload]
    joined = gridref.concat([array, array], "x")
    np.testing.assert_array_equal(joined[...], [0, 1, 2, 0, 1, 2])
