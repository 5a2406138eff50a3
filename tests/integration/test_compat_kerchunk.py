"""Kerchunk's interface with gridref behind it, against kerchunk itself and the readers of files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import fsspec
import h5py
import kerchunk.combine
import kerchunk.tiff
import numpy as np
import pytest
import tifffile
import xarray as xr
import zarr
from fsspec.implementations.reference import LazyReferenceMapper
from kerchunk.zarr import single_zarr

from gridref.compat.kerchunk import MultiZarrToZarr, SingleHdf5ToZarr, drop, tiff_to_zarr
from gridref.errors import (
    CombineError,
    InvalidRequestError,
    NotRepresentableError,
    SourceFormatError,
    SourceUnavailableError,
)
from tests.by_kerchunk import hdf5_references
from tests.shared_data import shared_files

SAMPLES = Path(__file__).parents[2] / "sample_data"
MONTH = str(SAMPLES / "daily_2023-01.nc")
TILE = str(SAMPLES / "hills_east.tif")

pytestmark = pytest.mark.filterwarnings("ignore")  # kerchunk's and zarr's own


def as_read(refs: Any) -> dict[str, Any]:
    """What fsspec makes of references: documents as values, bytes as bytes."""
    filesystem = fsspec.filesystem("reference", fo=refs)
    read: dict[str, Any] = {}
    for key, held in filesystem.references.items():
        if isinstance(held, list):
            read[key] = held
        elif key.rpartition("/")[2].startswith(".z"):
            read[key] = json.loads(held)
        else:
            read[key] = filesystem.cat_file(key)
    return read


def opened(refs: Any, **options: Any) -> xr.Dataset:
    return xr.open_dataset(refs, engine="kerchunk", chunks=None, **options).compute()


@pytest.mark.parametrize("inline_threshold", [0, 500, 10_000])
def test_references_of_a_file_are_kerchunks(inline_threshold: int) -> None:
    ours = SingleHdf5ToZarr(MONTH, inline_threshold=inline_threshold).translate()
    theirs = hdf5_references(MONTH, inline_threshold=inline_threshold)
    assert as_read(ours) == as_read(theirs)
    assert ours["version"] == theirs["version"] == 1


@pytest.mark.parametrize("path", shared_files("netcdf4/realistic/*CMIP6*", "families/*/*day*.nc"))
def test_real_files_read_as_in_netcdf4(path: Path) -> None:
    refs = SingleHdf5ToZarr(str(path), error="ignore").translate()
    expected = xr.open_dataset(path, engine="netcdf4")
    read = opened(refs)
    assert set(read.data_vars) == set(expected.data_vars)
    xr.testing.assert_equal(read, expected.compute())


def test_open_files_say_where_they_are() -> None:
    expected = SingleHdf5ToZarr(MONTH).translate()
    with fsspec.open(MONTH) as file:
        assert SingleHdf5ToZarr(file, MONTH).translate() == expected
    with h5py.File(MONTH) as file:
        assert SingleHdf5ToZarr(file).translate() == expected
        with pytest.raises(InvalidRequestError, match="/low is a group"):
            SingleHdf5ToZarr(type("Group", (), {"attrs": {}, "name": "/low"})())
    with open(MONTH, "rb", buffering=0) as raw, pytest.raises(InvalidRequestError, match="its url"):
        SingleHdf5ToZarr(raw)
    fsspec.filesystem("memory").pipe("/month.nc", Path(MONTH).read_bytes())
    scanned = SingleHdf5ToZarr("memory://month.nc", inline_threshold=0).translate()
    assert scanned["refs"]["tas/0.0.0"][0] == "memory://month.nc"
    assert SingleHdf5ToZarr(MONTH, spec=0).translate() == expected["refs"]


def unsupported(path: Path) -> str:
    """One dataset that references can express, and one of 2 MB that they cannot."""
    with h5py.File(path, "w") as file:
        file["plain"] = np.arange(5)
        file.create_dataset("lzf", data=np.arange(1 << 18), compression="lzf")
    return str(path)


def test_what_references_cannot_say_is_left_out_with_a_warning(tmp_path: Path) -> None:
    path = unsupported(tmp_path / "a.h5")
    with pytest.warns(UserWarning, match="lzf is left out"):
        refs = SingleHdf5ToZarr(path).translate()["refs"]
    assert "plain/.zarray" in refs
    assert not [key for key in refs if key.startswith("lzf")]
    with pytest.raises(NotRepresentableError, match="lzf"):
        SingleHdf5ToZarr(path, error="raise").translate()
    refs = SingleHdf5ToZarr(path, unsupported_inline_threshold=1 << 22).translate()
    group = zarr.open_group(zarr.storage.FsspecStore(reference(refs)), mode="r", zarr_format=2)
    np.testing.assert_array_equal(group["lzf"][...], np.arange(1 << 18))


def reference(refs: Any, protocol: str | None = None) -> Any:
    return fsspec.filesystem("reference", fo=refs, remote_protocol=protocol, asynchronous=True)


def test_out_is_filled(tmp_path: Path) -> None:
    out = LazyReferenceMapper.create(str(tmp_path / "refs.parq"))
    assert SingleHdf5ToZarr(MONTH, out=out).translate() is out
    expected = xr.open_dataset(MONTH, engine="netcdf4").compute()
    # Without the protocol fsspec looks for one in all references, also those of absent chunks.
    read = opened(str(tmp_path / "refs.parq"), storage_options={"remote_protocol": "file"})
    xr.testing.assert_equal(read, expected)


# --------------------------------------------------------------------------------------- TIFF


def test_references_of_a_tiff_are_kerchunks(tmp_path: Path) -> None:
    assert as_read(tiff_to_zarr(TILE)) == as_read(kerchunk.tiff.tiff_to_zarr(TILE))
    written = tiff_to_zarr(TILE, target=str(tmp_path / "refs.json"))
    assert json.loads((tmp_path / "refs.json").read_text()) == written


@pytest.mark.parametrize("inline_threshold", [0, 600, 1 << 20])
def test_tiffs_that_kerchunk_fails_for(inline_threshold: int, tmp_path: Path) -> None:
    path = str(tmp_path / "a.tif")
    image = np.arange(64 * 48, dtype="u2").reshape(64, 48)
    tifffile.imwrite(path, image, tile=(16, 16), compression="zlib")
    with pytest.raises(TypeError):  # its metadata is a tuple
        kerchunk.tiff.tiff_to_zarr(path)
    refs = tiff_to_zarr(path, inline_threshold=inline_threshold)
    array = zarr.open_array(zarr.storage.FsspecStore(reference(refs)), mode="r", zarr_format=2)
    np.testing.assert_array_equal(array[...], image)
    assert isinstance(refs["0.0"], str) == (inline_threshold > 0)


def test_what_is_no_tiff_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tif").write_bytes(b"no image")
    with pytest.raises(SourceFormatError, match=r"a\.tif"):
        tiff_to_zarr(str(tmp_path / "a.tif"))
    with pytest.raises(SourceUnavailableError, match=r"gone\.tif"):
        tiff_to_zarr(str(tmp_path / "gone.tif"))


# --------------------------------------------------------------------------------- combining

FIELD = np.random.default_rng(0).random((1, 10, 10))


def stored(name: str, dataset: xr.Dataset, **chunks: int) -> dict[str, Any]:
    """References of a dataset in Zarr v2."""
    encoding = {v: {"chunks": tuple(chunks.get(d, dataset.sizes[d]) for d in dataset[v].dims)}
                for v in dataset.data_vars}  # fmt: skip
    dataset.to_zarr(f"memory://{name}.zarr", zarr_format=2, mode="w", encoding=encoding)
    refs: dict[str, Any] = single_zarr(f"memory://{name}.zarr")
    return refs


def dated(day: int, n_days: int = 1, **attrs: Any) -> xr.Dataset:
    time = ("time", np.arange(day, day + n_days))
    values = FIELD + np.arange(day, day + n_days)[:, None, None]
    return xr.Dataset({"data": (("time", "x", "y"), values, attrs)}, {"time": time})


@pytest.fixture(scope="module")
def refs() -> dict[str, Any]:
    static = xr.DataArray(FIELD[0], dims=("x", "y"))
    plain = {
        n: xr.Dataset({name: (("x", "y"), FIELD[0] + n)}, attrs={"attr0": n})
        for n, name in ((3, "data"), (4, "data"), (5, "datum"), (6, "datum"))
    }
    return {
        "one": stored("one", dated(1, attr0=3).assign(static=static).assign_attrs(attr1=5)),
        "two": stored("two", dated(2, attr0=4).assign(static=static).assign_attrs(attr1=6)),
        "four": stored("four", dated(1, 4), time=2),
        "more": stored("more", dated(5, 4), time=2),
        **{f"plain{n}": stored(f"plain{n}", dataset) for n, dataset in plain.items()},
    }


def both(*args: Any, **kwargs: Any) -> tuple[xr.Dataset, xr.Dataset]:
    """What kerchunk's class and ours make of the same call, opened."""
    made = [
        kind(*args, remote_protocol="memory", **kwargs).translate()
        for kind in (MultiZarrToZarr, kerchunk.combine.MultiZarrToZarr)
    ]
    ours, theirs = (
        opened(one, decode_cf=False, storage_options={"remote_protocol": "memory"}) for one in made
    )
    return ours, theirs


@pytest.mark.long(but=6)
@pytest.mark.parametrize(
    ("names", "options"),
    [
        (("one", "two"), {"concat_dims": ["time"]}),
        (("two", "one"), {"concat_dims": "time"}),
        (("one", "two"), {"concat_dims": ["time"], "identical_dims": ["static"]}),
        (("one", "two"), {"concat_dims": ["time"], "coo_dtypes": {"time": "int16"}}),
        (("one", "two"), {"coo_map": {"time": "INDEX"}}),
        (("one", "two"), {"coo_map": {"time": [9, 10]}}),
        (("one", "two"), {"coo_map": {"time": "attr:attr1"}}),
        (("one", "two"), {"coo_map": {"time": "vattr:data:attr0"}}),
        (("one", "two"), {"coo_map": {"time": lambda number, z, var, fn: int(z["time"][0]) * 10}}),
        (("one", "two"), {"concat_dims": ["time"], "preprocess": drop("static")}),
        (("four", "more"), {"concat_dims": ["time"]}),
        (("more", "four"), {"concat_dims": ["time"], "inline_threshold": 0}),
        (("plain3", "plain4"), {"coo_map": {"time": "attr:attr0"}}),
        (("plain3", "plain5"), {"concat_dims": ["var"]}),
        (
            ("plain3", "plain4", "plain5", "plain6"),
            {"concat_dims": ["var", "time"], "coo_map": {"time": [1, 2, 1, 2]}},
        ),
        (
            ("plain3", "plain4", "plain5", "plain6"),
            {
                "concat_dims": ["z", "time"],
                "coo_map": {"time": [1, 2, 1, 2], "z": [0, 0, 7, 7], "var": "data"},
            },
        ),
    ],
    ids=lambda value: re.sub(r" at 0x\w+", "", repr(value)),  # the same in every process
)
def test_combined_references_read_as_kerchunks(
    refs: dict[str, Any], names: tuple[str, ...], options: dict[str, Any]
) -> None:
    ours, theirs = both([refs[name] for name in names], **options)
    xr.testing.assert_equal(ours, theirs)
    for name in theirs.variables:
        assert ours[name].dims == theirs[name].dims
        assert ours[name].dtype == theirs[name].dtype


def test_labels_out_of_addresses(refs: dict[str, Any]) -> None:
    ours, theirs = both(
        ["a1.json", "a2.json"],
        indicts=[refs["plain3"], refs["plain4"]],
        coo_map={"time": re.compile(r"a(\d)")},
        coo_dtypes={"time": "int32"},
    )
    xr.testing.assert_equal(ours, theirs)


@pytest.mark.parametrize(
    ("labels", "dtype", "expected"),
    [
        (np.array(["2020-01-01T00:00:00", "2020-01-01T00:00:00.000001700"], "M8[ns]"), None, None),
        (["2020-01-01", "2021-06-01"], "M8[s]", np.array(["2020-01-01", "2021-06-01"], "M8[ns]")),
        (["007", "300"], "int16", np.array([7, 300], "i2")),
        ([1, 2], "float32", np.array([1, 2], "f4")),
    ],
)
def test_labels_are_exact(refs: dict[str, Any], labels: Any, dtype: Any, expected: Any) -> None:
    combined = MultiZarrToZarr(
        [refs["plain3"], refs["plain4"]],
        coo_map={"time": list(labels)},
        coo_dtypes={"time": dtype},
        remote_protocol="memory",
    ).translate()
    read = opened(combined, storage_options={"remote_protocol": "memory"})["time"].values
    np.testing.assert_array_equal(read, labels if expected is None else expected, strict=True)


def test_texts_of_any_length_are_labels(tmp_path: Path) -> None:
    inputs = []
    for name in ("a", "a longer \u00e4"):
        dataset = xr.Dataset({"v": ("name", [1.0])}, {"name": np.array([name], object)})
        dataset.to_netcdf(tmp_path / f"{name}.nc", engine="h5netcdf")
        inputs.append(SingleHdf5ToZarr(str(tmp_path / f"{name}.nc")).translate())
    combined = MultiZarrToZarr(inputs, concat_dims="name").translate()
    assert opened(combined)["name"].values.tolist() == ["a", "a longer \u00e4"]


@pytest.mark.parametrize("given", ["*.json", "one.parq two.parq"])
def test_globs_and_folders_anywhere_are_combined(refs: dict[str, Any], given: str) -> None:
    memory = fsspec.filesystem("memory")
    for name in ("one", "two"):
        memory.pipe(f"kept/{name}.json", json.dumps(refs[name]).encode())
        out = LazyReferenceMapper.create(f"kept/{name}.parq", fs=memory)
        held = fsspec.filesystem("reference", fo=refs[name]).references
        out.update({key: held[key] for key in sorted(held, key=lambda key: "/.z" not in key)})
        out.flush()
    paths = [f"memory://kept/{name}" for name in given.split()]
    combined = MultiZarrToZarr(paths, concat_dims="time", remote_protocol="memory").translate()
    read = opened(combined, decode_cf=False, storage_options={"remote_protocol": "memory"})
    assert read["time"].values.tolist() == [1, 2]
    assert (read["data"].values == FIELD + np.arange(1, 3)[:, None, None]).all()


def test_references_on_disk_are_combined_into_a_file(refs: dict[str, Any], tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.json").write_text(json.dumps(refs[name]))
    combined = MultiZarrToZarr(
        [str(tmp_path / "one.json"), str(tmp_path / "two.json")],
        concat_dims=["time"],
        remote_protocol="memory",
        postprocess=lambda refs: {**refs, ".zattrs": '{"title": "both"}'},
    ).translate(str(tmp_path / "both.json"))
    assert json.loads((tmp_path / "both.json").read_text()) == combined
    both = opened(str(tmp_path / "both.json"), storage_options={"remote_protocol": "memory"})
    assert both.attrs["title"] == "both"
    assert both["time"].values.tolist() == [1, 2]


def test_references_grow(refs: dict[str, Any], tmp_path: Path) -> None:
    options: dict[str, Any] = {"concat_dims": ["time"], "remote_protocol": "memory"}
    three = stored("three", dated(3).assign(static=(("x", "y"), FIELD[0])))
    first = MultiZarrToZarr([refs["one"], refs["two"]], **options).translate()
    grown = MultiZarrToZarr.append([three], first, **options).translate()
    at_once = MultiZarrToZarr([refs["one"], refs["two"], three], **options).translate()
    assert as_read(grown) == as_read(at_once)
    out = LazyReferenceMapper.create(str(tmp_path / "refs.parq"))
    MultiZarrToZarr([refs["one"], refs["two"]], out=out, **options).translate()
    former = LazyReferenceMapper(str(tmp_path / "refs.parq"))
    MultiZarrToZarr.append([three], former, **options).translate()
    read = opened(
        str(tmp_path / "refs.parq"), decode_cf=False, storage_options={"remote_protocol": "memory"}
    )
    assert read["time"].values.tolist() == [1, 2, 3]
    assert (read["data"].values == FIELD + np.arange(1, 4)[:, None, None]).all()


def test_files_are_scanned_and_combined() -> None:
    months = [str(SAMPLES / f"daily_2023-0{n}.nc") for n in (1, 2)]
    scanned = [SingleHdf5ToZarr(month).translate() for month in months]
    same = ["lat", "lon", "lat_bnds", "lon_bnds", "crs"]
    combined = MultiZarrToZarr(scanned, concat_dims=["time"], identical_dims=same).translate()
    expected = xr.open_mfdataset(months, engine="netcdf4", data_vars="minimal")
    xr.testing.assert_equal(opened(combined)["tas"], expected["tas"].compute())
    ds = [xr.open_dataset(month, engine="netcdf4", decode_cf=False)["tas"][:27] for month in months]
    halves = [stored(f"half{n}", d.to_dataset(), time=9, lat=20, lon=40) for n, d in enumerate(ds)]
    ours, theirs = both(halves, concat_dims=["time"], identical_dims=["lat", "lon"])
    xr.testing.assert_equal(ours, theirs)


def test_chunks_that_zarr_2_cannot_have_are_refused_by_name() -> None:
    """Three days in chunks of two, and then more: kerchunk puts the fourth in the wrong place."""
    wide = [
        xr.Dataset({"data": (("time", "x"), np.ones((3, 1 << 16)))}, {"time": np.arange(n, n + 3)})
        for n in (0, 3)
    ]
    inputs = [stored(f"wide{n}", dataset, time=2) for n, dataset in enumerate(wide)]
    with pytest.raises(NotRepresentableError, match="data: "):
        MultiZarrToZarr(inputs, concat_dims=["time"], remote_protocol="memory").translate()


def test_times_of_different_units_are_one_axis(refs: dict[str, Any]) -> None:
    """Kerchunk takes the numbers as they are: both days would be at one label."""
    days = []
    for month in (1, 2):
        dataset = dated(0)
        dataset["time"].attrs["units"] = f"days since 2020-0{month}-01"
        days.append(stored(f"units{month}", dataset))
    combined = MultiZarrToZarr(days, concat_dims=["time"], coo_map={"time": "cf:time"},
                               remote_protocol="memory").translate()  # fmt: skip
    read = opened(combined, storage_options={"remote_protocol": "memory"})
    assert read["time"].values.tolist() == np.array(["2020-01-01", "2020-02-01"], "M8[ns]").tolist()


def test_what_does_not_fit_together_is_refused_by_name(refs: dict[str, Any]) -> None:
    options: dict[str, Any] = {"concat_dims": ["time"], "remote_protocol": "memory"}
    with pytest.raises(InvalidRequestError, match="both hold data"):
        MultiZarrToZarr([refs["one"], refs["one"]], **options).translate()
    overlapping = stored("overlapping", dated(3, 4), time=2)
    with pytest.raises(CombineError, match="time"):
        MultiZarrToZarr([refs["four"], overlapping], **options).translate()
    with pytest.raises(InvalidRequestError, match="no variable 'level'"):
        MultiZarrToZarr([refs["one"]], coo_map={"time": "data:level"}).translate()
    with pytest.raises(InvalidRequestError, match="no attribute 'nothing'"):
        MultiZarrToZarr([refs["one"]], coo_map={"time": "attr:nothing"}).translate()
    with pytest.raises(InvalidRequestError, match=r"a\.json does not match"):
        MultiZarrToZarr(["a.json"], [refs["plain3"]], coo_map={"time": re.compile("b")}).translate()
    with pytest.raises(InvalidRequestError, match=r"2 variables \(data, static\)"):
        MultiZarrToZarr([refs["one"]], concat_dims=["var", "time"]).translate()
    with pytest.raises(InvalidRequestError, match="both concat_dims and identical_dims"):
        MultiZarrToZarr([], concat_dims=["time"], identical_dims=["time"])
    with pytest.raises(InvalidRequestError, match="name dimensions"):
        MultiZarrToZarr([])
    with pytest.raises(SourceFormatError, match="version 7"):
        MultiZarrToZarr([{"version": 7, "refs": {}}], concat_dims=["time"]).translate()
    with pytest.raises(InvalidRequestError, match=r"no file matches '/nowhere/\*\.json'"):
        MultiZarrToZarr("/nowhere/*.json", concat_dims=["time"]).translate()
    with pytest.raises(SourceUnavailableError, match=r"does not exist.*/nowhere/a\.json"):
        MultiZarrToZarr("/nowhere/a.json", concat_dims=["time"]).translate()


@pytest.mark.parametrize(
    ("labels", "dtype", "reason"),
    [
        ([1, 300], "int8", "int8, which was asked for in coo_dtypes, cannot hold 300"),
        ([0.5, 1], "int32", "cannot hold 0.5"),
        (["abc", "d"], "U2", "cannot hold 'abc'"),
        (["a", "b"], "int32", "'a'; int32 was asked for"),
        (["noon", "2020-01-01"], "M8[s]", '"noon".*datetime64.s. was asked for'),
        ([None, 1], None, "must not contain NaT"),
        ([float("nan"), 1], None, "first label is missing along time"),
        ([1, "a"], None, "labels of time are numbers in some inputs, and texts in others"),
        ([[], [1]], None, "no labels along time"),
    ],
)
def test_labels_that_are_none_are_refused(
    refs: dict[str, Any], labels: list[Any], dtype: str | None, reason: str
) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        MultiZarrToZarr(
            [refs["plain3"], refs["plain4"]],
            coo_map={"time": labels},
            coo_dtypes={"time": dtype},
            remote_protocol="memory",
        ).translate()


def test_other_labels_of_another_dimension_are_refused() -> None:
    shifted = [dated(n).assign_coords(x=("x", np.arange(10) + n / 2)) for n in (1, 2)]
    inputs = [stored(f"shifted{n}", dataset) for n, dataset in enumerate(shifted)]
    options: dict[str, Any] = {"concat_dims": ["time"], "remote_protocol": "memory"}
    with pytest.raises(InvalidRequestError, match="different labels of x"):
        MultiZarrToZarr(inputs, **options).translate()
    taken = MultiZarrToZarr(inputs, identical_dims=["x"], **options).translate()
    read = opened(taken, decode_cf=False, storage_options={"remote_protocol": "memory"})
    assert read["x"].values.tolist() == shifted[0]["x"].values.tolist()
