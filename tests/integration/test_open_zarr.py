"""Catalogs through zarr-python: every codec that a view may name is one that zarr-python takes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numcodecs.registry
import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec
from zarr.core.metadata.v3 import parse_codecs
from zarr.registry import get_codec_class

import gridref
from gridref.api.catalog import write_catalog
from gridref.codecs.pipeline import own_codecs
from gridref.errors import GridrefError
from gridref.model.array import VirtualArray
from gridref.model.encoding import Codec
from gridref.model.zarr_metadata import packed_dtype
from gridref.serve.grids import READER_CODECS

VIEWS = ["native", "portable", "auto"]
FLOATS = np.linspace(-3, 40, 35, dtype="f4").reshape(5, 7)
INTS = np.arange(35, dtype="i4").reshape(5, 7)

CONFIGURATIONS: dict[str, list[dict[str, Any]]] = {
    "blosc": [{"cname": "zstd", "typesize": 4, "shuffle": "shuffle"}],
    "bytes": [{"endian": "little"}, {"endian": "big"}],
    "cast_value": [{"data_type": "float64"}],
    "n5_default": [
        {
            "codecs": [
                {"name": "transpose", "configuration": {"order": [1, 0]}},
                {"name": "bytes", "configuration": {"endian": "big"}},
            ]
        }
    ],
    "numcodecs.astype": [{"encode_dtype": "<f8", "decode_dtype": "<f4"}],
    "numcodecs.bitround": [{"keepbits": 5}],
    "numcodecs.crc32": [{}, {"location": "end"}],
    "numcodecs.delta": [{"dtype": "<i4"}, {"dtype": "<i4", "astype": "<i2"}],
    "numcodecs.fixedscaleoffset": [{"scale": 4, "offset": 1, "dtype": "<f4", "astype": "<i2"}],
    "numcodecs.lzma": [{}, {"format": 2, "preset": 1}],
    "numcodecs.quantize": [{"digits": 2, "dtype": "<f4"}],
    "numcodecs.shuffle": [{"elementsize": 4}, {}],
    "transpose": [{"order": [1, 0]}],
}
"""Configurations to try, where an empty one is not all."""

CODECS = [
    pytest.param(name, configuration, id=f"{name}-{number}")
    for name in sorted(READER_CODECS - {"vlen-bytes"})
    for number, configuration in enumerate(CONFIGURATIONS.get(name, [{}]))
]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """zarr-python warns of every codec that is not in the specification."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def written_by_zarr(folder: Path, name: str, configuration: dict[str, Any]) -> Any:
    """Write an array with a codec, and beside it one without; return what zarr reads of both."""
    values: Any = INTS if name == "numcodecs.delta" else FLOATS
    values = FLOATS > 3 if name == "numcodecs.packbits" else values
    if name == "vlen-utf8":
        values = np.array([["a", "", "ccc"]] * 4 + [["ä", "e", "日本"]], np.dtypes.StringDType())
    kind = get_codec_class(name)
    codec = kind.from_dict({"name": name, "configuration": dict(configuration)})
    chain: dict[str, Any] = {"compressors": [codec]}
    if isinstance(codec, ArrayBytesCodec):
        chain = {"serializer": codec, "compressors": None}
    elif isinstance(codec, ArrayArrayCodec):
        chain = {"filters": [codec], "compressors": None}
    group = zarr.open_group(str(folder), mode="w")
    dims = ("y", "x")
    group.create_array("plain", data=FLOATS[:, :3], chunks=(2, 3), dimension_names=("y", "z"))
    group.create_array("coded", data=values, chunks=(2, 3), dimension_names=dims, **chain)
    return {path: np.asarray(group[path][...]) for path in ("plain", "coded")}


def through_doors(source: Path, folder: Path) -> Iterator[tuple[str, xr.Dataset]]:
    """The catalog of a file through `xr.open_zarr`, by every view and by URL."""
    group = gridref.scan(source)
    catalog = folder / "c.gridref"
    write_catalog(group, catalog)
    options = {"mask_and_scale": False, "consolidated": False}
    for view in VIEWS:
        yield view, xr.open_zarr(gridref.open_store(group, view), **options)
        yield f"{view} catalog", xr.open_zarr(gridref.open_store(catalog, view), **options)
    yield "URL", xr.open_zarr(f"gridref::file://{catalog}", **options)


@pytest.mark.long(but=8)
@pytest.mark.parametrize(("name", "configuration"), CODECS)
def test_data_that_zarr_wrote(tmp_path: Path, name: str, configuration: dict[str, Any]) -> None:
    source = tmp_path / "a.zarr"
    expected = written_by_zarr(source, name, configuration)
    for door, dataset in through_doors(source, tmp_path):
        for path, values in expected.items():
            np.testing.assert_array_equal(dataset[path].values, values, err_msg=f"{door} {path}")


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_fletcher32_of_hdf5(tmp_path: Path, compression: str | None, shuffled: bool) -> None:
    source = tmp_path / "a.h5"
    with h5py.File(source, "w") as file:
        file.create_dataset(
            "checked",
            data=FLOATS,
            chunks=(2, 3),
            fletcher32=True,
            compression=compression,
            shuffle=shuffled,
        )
        file["plain"] = INTS
    for door, dataset in through_doors(source, tmp_path):
        np.testing.assert_array_equal(dataset["checked"].values, FLOATS, err_msg=door)
        np.testing.assert_array_equal(dataset["plain"].values, INTS, err_msg=door)


def test_views_name_only_codecs_of_zarr() -> None:
    ours = set(own_codecs())
    ours |= {f"numcodecs.{name}" for name in numcodecs.registry.codec_registry}
    unknown = set()
    for name in ours:
        try:
            parse_codecs([Codec.of(name, **CONFIGURATIONS.get(name, [{}])[0]).to_json()])
        except zarr.errors.UnknownCodecError:
            unknown.add(name)
    assert not READER_CODECS & unknown
    assert ours >= READER_CODECS


def test_times_out_of_hdf5(tmp_path: Path) -> None:
    source = tmp_path / "a.h5"
    times = np.array(["2000-01-01T00:00:01", "NaT", "1950-05-05"], "M8[s]")
    spans = np.array([1, 2**40, -5], "m8[ms]")
    with h5py.File(source, "w") as file:
        file["time"] = times.astype(h5py.opaque_dtype(times.dtype))
        file["span"] = spans.astype(h5py.opaque_dtype(spans.dtype))
        file["plain"] = INTS
    for door, dataset in through_doors(source, tmp_path):
        for name, values in (("time", times), ("span", spans), ("plain", INTS)):
            assert dataset[name].dtype == values.dtype, door
            np.testing.assert_array_equal(dataset[name].values, values, err_msg=door)


def test_an_array_without_a_zarr_type_is_refused_alone(tmp_path: Path) -> None:
    empty_text = VirtualArray.from_numpy(np.array(["", ""], "S1"), ("x",))
    wide = VirtualArray.from_numpy(np.arange(2, dtype=np.longdouble), ("x",))
    plain = VirtualArray.from_numpy(np.arange(2), ("x",))
    group = gridref.VirtualGroup({"wide": wide, "plain": plain, "text": empty_text})
    for view in VIEWS:
        for consolidated in (True, False):
            store = gridref.open_store(group, view)
            with pytest.warns(UserWarning, match="wide is left out: Zarr has no data type"):
                dataset = xr.open_zarr(store, consolidated=consolidated)
            assert sorted(dataset.variables) == ["plain", "text"]
            assert dataset["plain"].values.tolist() == [0, 1]
            with pytest.raises(GridrefError, match=r"no data type for .* \[variable wide\]"):
                zarr.open_array(store, path="wide", mode="r")


def masked_file(path: Path) -> Path:
    """Strings and integers with fill values as files have them."""
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(4)
        file["x"].make_scale("x")
        texts = np.array(["a", "NA", "c", "NA"], object)
        variables: dict[str, tuple[Any, Any, dict[str, Any]]] = {
            "text": (texts, h5py.string_dtype(), {"_FillValue": "NA"}),
            "signed": ([1, 2, 200, 255], "u1", {"_FillValue": np.uint8(255), "_Unsigned": "false"}),
            "packed": (
                [1, 2, 65436, 65535],
                "u2",
                {"_FillValue": np.uint16(65535), "_Unsigned": "false", "scale_factor": 0.5},
            ),
            "unsigned": ([1, 2, -100, -1], "i1", {"_FillValue": np.int8(-1), "_Unsigned": "true"}),
            "misfit": ([1, 2, 3, 4], "i4", {"_FillValue": "none"}),
            "not a number": ([1, 2, 3, 4], "i4", {"_FillValue": np.float32(np.nan)}),
        }
        for name, (values, dtype, attrs) in variables.items():
            file.create_dataset(name, data=values, dtype=dtype)
            file[name].attrs.update(attrs)
            file[name].dims[0].attach_scale(file["x"])
    return path


def test_what_is_masked_is_what_netcdf_masks(tmp_path: Path) -> None:
    source = masked_file(tmp_path / "a.h5")
    with xr.open_dataset(source, engine="h5netcdf") as expected:
        for view in VIEWS:
            dataset = xr.open_zarr(gridref.open_store(gridref.scan(source), view))
            for name in expected.variables:
                np.testing.assert_array_equal(
                    dataset[name].isnull(), expected[name].isnull(), err_msg=f"{view} {name}"
                )
                here, there = (
                    data[name].where(expected[name].notnull(), 0) for data in (dataset, expected)
                )
                np.testing.assert_array_equal(here, there, err_msg=f"{view} {name}")


@pytest.mark.parametrize("shape", [(), (5,), (3, 2)])
@pytest.mark.parametrize(
    "dtype",
    [
        [("a", "i2", (3,))],
        [("a", "u1"), ("b", "f8", (2, 2)), ("c", "S3")],
        {"names": ["a", "b"], "formats": ["i1", ("f4", (2,))], "offsets": [3, 8], "itemsize": 20},
    ],
    ids=str,
)
def test_compounds_with_arrays_are_their_bytes(
    tmp_path: Path, dtype: Any, shape: tuple[int, ...]
) -> None:
    kind = np.dtype(dtype)
    raw = np.random.default_rng(3).integers(1, 99, kind.itemsize * int(np.prod(shape)), "u1")
    values = np.frombuffer(raw.tobytes(), kind).reshape(shape)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("v", data=values)
    group = gridref.scan(tmp_path / "a.h5")
    expected = values.astype(packed_dtype(kind)).tobytes()
    for view in ("portable", "auto"):
        shown = xr.open_zarr(gridref.open_store(group, view), consolidated=False)["v"]
        assert np.asarray(shown.values).tobytes() == expected, view
        assert np.lib.format.descr_to_dtype(shown.attrs["numpy_descr"]) == packed_dtype(kind)


def test_raw_bytes_say_which_compound_they_are(tmp_path: Path) -> None:
    """Members that are arrays, in big-endian order, nested, with gaps and strings of any length."""
    inner = np.dtype([("x", ">u2", (2,)), ("y", "<f4")])
    text = h5py.string_dtype()
    members = {"names": ["a", "n"], "formats": [("c8", (2, 3)), inner], "offsets": [8, 64]}
    kinds = {"deep": np.dtype(members), "text": np.dtype([("name", text), ("n", ">i4", (2,))])}
    with h5py.File(tmp_path / "a.h5", "w") as file:
        deep = np.zeros(3, kinds["deep"])
        deep["a"], deep["n"]["x"], deep["n"]["y"] = np.arange(18).reshape(3, 2, 3), 258, 0.5
        file["deep"] = deep
        file["text"] = np.array([("ab", (1, 2)), ("cdefü", (3, 4))], kinds["text"])
        file["plain"] = np.zeros(2, [("a", "i4"), ("b", "S3")])
    group = gridref.scan(tmp_path / "a.h5")
    for view in ("direct", "portable", "auto"):
        shown = xr.open_zarr(gridref.open_store(group, view), consolidated=False, chunks=None)
        assert "numpy_descr" not in shown["plain"].attrs, view
        described = {n: shown[n].attrs["numpy_descr"] for n in kinds}
        found = {n: shown[n].values.view(np.lib.format.descr_to_dtype(described[n])) for n in kinds}
        np.testing.assert_array_equal(found["deep"], deep)
        assert found["text"]["name"].tolist() == [b"ab", "cdefü".encode()]
        assert found["text"]["n"].tolist() == [[1, 2], [3, 4]]
