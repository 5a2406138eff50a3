"""Zarr stores as sources: what is scanned reads as zarr-python reads it."""

import json
import struct
import uuid
from pathlib import Path

import fsspec
import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec
from zarr.core.dtype import VariableLengthBytes

import gridref
from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.io import SourcePool
from gridref.model.joining import concatenate
from gridref.model.manifest import ChunkState
from gridref.serve.reader import Reader

VALUES = np.arange(11 * 13, dtype="i4").reshape(11, 13)


def read(array):
    return Reader(SourcePool()).read(array)


def check(store, path="a", **options):
    """Scan a store, compare an array with what zarr-python reads, and return it."""
    array = gridref.scan(store, **options)[path]
    expected = np.asarray(zarr.open_group(str(store), mode="r")[path][...])
    got = read(array)
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)
    return array


def make(folder, *, fill=-1, values=VALUES, skip=None, **options):
    group = zarr.open_group(str(folder), mode="w", zarr_format=options.pop("zarr_format", 3))
    array = group.create_array(
        "a", shape=values.shape, dtype=values.dtype, fill_value=fill, **options
    )
    array[...] = values
    if skip is not None:
        array[skip] = fill
    return folder


@pytest.mark.parametrize("index_location", ["start", "end"])
def test_shards(tmp_path, index_location):
    codec = ShardingCodec(
        chunk_shape=(2, 3),
        codecs=[BytesCodec(), GzipCodec()],
        index_codecs=[BytesCodec(endian="big"), Crc32cCodec()],
        index_location=index_location,
    )
    array = check(make(tmp_path / "s.zarr", chunks=(4, 6), serializer=codec, compressors=None))
    assert array.encodings[0].chunk_shape == (2, 3)
    assert array.n_blocks == 1


def test_missing_shards_and_chunks(tmp_path):
    folder = make(tmp_path / "s.zarr", chunks=(2, 3), shards=(4, 6), skip=np.s_[0:6, 0:9])
    array = check(folder)
    states = array.manifests[0].state
    assert (states == ChunkState.MISSING).sum() == 9


def test_nested_shards(tmp_path):
    inner = ShardingCodec(chunk_shape=(1, 3), codecs=[BytesCodec()], index_location="start")
    outer = ShardingCodec(chunk_shape=(2, 6), codecs=[inner])
    array = check(make(tmp_path / "s.zarr", chunks=(4, 12), serializer=outer, compressors=None))
    assert array.encodings[0].chunk_shape == (1, 3)


def test_transposed_shards(tmp_path):
    # zarr-python checks a shard's edges before transposing, so both orders have to divide
    codec = ShardingCodec(chunk_shape=(3, 2), codecs=[TransposeCodec(order=(1, 0)), BytesCodec()])
    folder = make(
        tmp_path / "s.zarr",
        chunks=(6, 6),
        filters=[TransposeCodec(order=(1, 0))],
        serializer=codec,
        compressors=None,
    )
    assert check(folder).encodings[0].chunk_shape == (2, 3)


@pytest.mark.parametrize("index_location", ["start", "end"])
@pytest.mark.parametrize("is_written", [True, False])
def test_a_shard_without_dimensions(tmp_path, index_location, is_written):
    codec = ShardingCodec(
        chunk_shape=(), codecs=[BytesCodec(), GzipCodec()], index_location=index_location
    )
    group = zarr.open_group(str(tmp_path / "s.zarr"), mode="w")
    array = group.create_array("a", shape=(), dtype="f8", serializer=codec, compressors=None)
    if is_written:
        array[...] = 2.5
    check(tmp_path / "s.zarr")


def test_bytes_of_variable_length_are_refused_by_name(tmp_path):
    group = zarr.open_group(str(tmp_path / "s.zarr"), mode="w")
    group.create_array("a", shape=(3,), dtype=VariableLengthBytes())
    group.create_array("b", data=VALUES)
    with pytest.raises(UnsupportedFeatureError, match="'variable_length_bytes'") as caught:
        gridref.scan(tmp_path / "s.zarr")
    assert caught.value.place.variable == "/a"
    skipped = gridref.scan(tmp_path / "s.zarr", on_unsupported="skip")
    assert list(skipped.arrays) == ["b"]
    assert skipped.report.skipped[0].path == "/a"


def test_one_request_a_shard(tmp_path):
    folder = make(tmp_path / "s.zarr", chunks=(2, 3), shards=(4, 6))
    report = gridref.scan(folder).report
    # metadata of the root and the array, one listing, and 3 x 3 shards
    assert report.n_requests <= 9 + 4
    documents = sum(path.stat().st_size for path in folder.glob("**/zarr.json"))
    assert report.n_bytes == documents + 9 * (4 * 16 + 4)


def test_rectilinear(tmp_path):
    with zarr.config.set({"array.rectilinear_chunks": True}):
        folder = make(tmp_path / "s.zarr", chunks=[[4, 4, 3], [5, 8]])
        array = check(folder)
    assert array.grid.grid_shape == (2, 2)


def test_rectilinear_shards(tmp_path):
    with zarr.config.set({"array.rectilinear_chunks": True}):
        folder = make(
            tmp_path / "s.zarr",
            chunks=(1, 3),
            shards=[[4, 4, 3], [6, 9]],
            values=np.arange(165).reshape(11, 15),
        )
        array = check(folder)
    assert array.encodings[0].chunk_shape == (1, 3)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<i4", ">i2", "<f8", "|u1", ">f4"])
def test_version_2(tmp_path, order, dtype):
    folder = make(
        tmp_path / "s.zarr",
        zarr_format=2,
        chunks=(4, 5),
        order=order,
        values=VALUES.astype(dtype),
        fill=7,
        skip=np.s_[0:4, 0:5],
    )
    array = check(folder)
    assert array.attrs["_FillValue"] == 7


@pytest.mark.parametrize(
    "compressor",
    ["zlib", "gzip", "zstd", "blosc", None],
)
def test_version_2_compressors(tmp_path, compressor):
    made = None if compressor is None else numcodecs.get_codec({"id": compressor})
    filters = [numcodecs.Shuffle(4)] if compressor == "zlib" else None
    check(
        make(tmp_path / "s.zarr", zarr_format=2, chunks=(4, 5), compressors=made, filters=filters)
    )


FILTERS = {
    "delta": [numcodecs.Delta("<i4")],
    "delta of fewer bytes": [numcodecs.Delta("<i4", astype="<i2")],
    "delta of big-endian integers": [numcodecs.Delta(">i4")],
    "delta of delta": [numcodecs.Delta("<i4"), numcodecs.Delta("<i4", astype=">i2")],
    "delta, then shuffle": [numcodecs.Delta("<i4"), numcodecs.Shuffle(4)],
    "delta of floats": [numcodecs.Delta("<f8")],
    "offset": [numcodecs.FixedScaleOffset(5, 2, "<f8", astype="<i2")],
    "quantize": [numcodecs.Quantize(2, "<f8", astype="<f4")],
    "astype": [numcodecs.AsType("<i2", "<f8")],
    "bitround": [numcodecs.BitRound(5)],
    "packbits": [numcodecs.PackBits()],
    "crc32": [numcodecs.CRC32()],
    "crc32c": [numcodecs.CRC32C()],
    "adler32": [numcodecs.Adler32()],
    "jenkins_lookup3": [numcodecs.JenkinsLookup3()],
}


@pytest.mark.parametrize(("order", "compressor"), [("C", None), ("F", numcodecs.Zlib())], ids="CF")
@pytest.mark.parametrize("name", FILTERS)
def test_version_2_filters(tmp_path, name, compressor, order):
    filters = FILTERS[name]
    config = filters[0].get_config()
    dtype = config.get("dtype", config.get("decode_dtype", "<f4"))
    values = VALUES % 3 == 0 if name == "packbits" else VALUES.astype(dtype)
    options = {"filters": filters, "compressors": compressor, "order": order}
    check(make(tmp_path / "s.zarr", zarr_format=2, chunks=(4, 5), values=values, **options))


@pytest.mark.parametrize("filters", [[numcodecs.Delta("<i2")], [numcodecs.Categorize("ab", "<U1")]])
def test_version_2_filters_that_do_not_fit_are_refused(tmp_path, filters):
    folder = make(tmp_path / "s.zarr", zarr_format=2, chunks=(4, 5))
    path = Path(folder) / "a/.zarray"
    document = json.loads(path.read_text())
    document["filters"] = [entry.get_config() for entry in filters]
    path.write_text(json.dumps(document))
    with pytest.raises(UnsupportedFeatureError, match=r"the filter (delta|categorize)") as caught:
        gridref.scan(folder)
    assert caught.value.place.variable == "/a"


def test_version_2_strings_and_structs(tmp_path):
    group = zarr.open_group(str(tmp_path / "s.zarr"), mode="w", zarr_format=2)
    text = group.create_array("s", shape=(3,), chunks=(2,), dtype=str, fill_value="")
    text[...] = np.array(["a", "", "ß"], dtype=object)
    pair = np.zeros(4, dtype=[("x", "<i4"), ("y", "<f8")])
    pair["x"] = range(4)
    struct_array = group.create_array("p", shape=(4,), chunks=(3,), dtype=pair.dtype)
    struct_array[...] = pair
    scanned = gridref.scan(tmp_path / "s.zarr")
    assert read(scanned["s"]).tolist() == ["a", "", "ß"]
    assert read(scanned["p"]).tolist() == pair.tolist()


def test_version_2_fills_of_big_endian_structs_and_complex_numbers(tmp_path):
    group = zarr.open_group(str(tmp_path / "s.zarr"), mode="w", zarr_format=2)
    fields = [("x", ">i4"), ("y", ">f8"), ("z", "S3")]
    fill = np.array((258, 1.5, b"ab"), fields)[()]
    options = {"shape": (4,), "chunks": (3,)}
    struct_array = group.create_array("p", dtype=np.dtype(fields), fill_value=fill, **options)
    struct_array[:3] = np.ones(3, fields)
    group.create_array("c", dtype=">c16", fill_value=1 - 2j, **options)
    assert read(gridref.scan(tmp_path / "s.zarr")["p"]).tolist() == struct_array[...].tolist()
    assert check(tmp_path / "s.zarr", "c").attrs["_FillValue"] == 1 - 2j


@pytest.mark.parametrize("kind", ["U2", object])
def test_missing_texts_of_version_2_are_missing_as_in_xarray(tmp_path, kind):
    dataset = xr.Dataset({"a": ("x", np.array(["ab", "NA", ""], kind))})
    encoding = {"a": {"_FillValue": "NA"}}
    dataset.to_zarr(tmp_path / "a.zarr", zarr_format=2, encoding=encoding)
    expected = xr.open_zarr(tmp_path / "a.zarr").load()
    assert expected["a"].isnull().values.tolist() == [False, True, False]
    xr.testing.assert_equal(xr.open_dataset(tmp_path / "a.zarr", engine="gridref"), expected)
    store = gridref.open_store(gridref.scan(tmp_path / "a.zarr"))
    xr.testing.assert_equal(xr.open_zarr(store, consolidated=False).load(), expected)


def test_dates_become_integers_with_units(tmp_path):
    days = np.array(["2000-01-01", "2020-02-29", "NaT"], "M8[s]")
    group = zarr.open_group(str(tmp_path / "s.zarr"), mode="w", zarr_format=2)
    group.create_array("t", shape=3, chunks=2, dtype="M8[s]")[...] = days
    array = gridref.scan(tmp_path / "s.zarr")["t"]
    assert array.attrs["units"] == "seconds since 1970-01-01"
    assert read(array).tolist() == days.view("i8").tolist()


@pytest.mark.parametrize("fill", [None, "NaT", 5])
def test_version_2_fill_values_of_dates(tmp_path, fill):
    group = zarr.open_group(str(tmp_path / "s.zarr"), mode="w", zarr_format=2)
    group.create_array("t", shape=3, chunks=2, dtype="M8[s]")
    path = tmp_path / "s.zarr/t/.zarray"
    path.write_text(json.dumps({**json.loads(path.read_text()), "fill_value": fill}))
    expected = zarr.open_array(str(tmp_path / "s.zarr/t"), mode="r")[...]
    found = read(gridref.scan(tmp_path / "s.zarr")["t"])
    assert found.tolist() == expected.view("i8").tolist()


def test_xarray_reads_the_same(tmp_path):
    xr = pytest.importorskip("xarray")
    for zarr_format in (2, 3):
        folder = tmp_path / f"{zarr_format}.zarr"
        made = xr.Dataset(
            {"v": (("t", "x"), np.array([[1.5, np.nan], [3, 4]]), {"units": "K", "list": [1, 2]})},
            coords={"t": np.array(["2000-01-01", "2000-01-02"], "M8[ns]")},
        )
        made.to_zarr(folder, zarr_format=zarr_format)
        expected = xr.open_zarr(folder).load()
        store = gridref.open_store(gridref.scan(folder))
        xr.testing.assert_identical(xr.open_zarr(store, consolidated=False).load(), expected)


def test_zarr_combines_with_itself(tmp_path):
    one = make(tmp_path / "1.zarr", chunks=(2, 3), shards=(4, 6))
    two = make(tmp_path / "2.zarr", zarr_format=2, chunks=(5, 13), order="F")
    arrays = [gridref.scan(folder)["a"] for folder in (one, two)]
    np.testing.assert_array_equal(read(concatenate(arrays, 0)), np.concatenate([VALUES, VALUES]))


def test_a_store_in_memory(tmp_path):
    folder = make(tmp_path / "s.zarr", chunks=(2, 3), shards=(4, 6))
    url = f"memory://{uuid.uuid4()}/s.zarr"
    memory = fsspec.filesystem("memory")
    memory.put(str(folder), url.removeprefix("memory:/"), recursive=True)
    np.testing.assert_array_equal(read(gridref.scan(url)["a"]), VALUES)


def test_a_store_that_is_one_array(tmp_path):
    zarr.create_array(tmp_path / "one.zarr", data=VALUES, chunks=(4, 4))
    np.testing.assert_array_equal(read(gridref.scan(tmp_path / "one.zarr")["one"]), VALUES)


def test_consolidated_metadata_saves_requests(tmp_path):
    folder = make(tmp_path / "s.zarr", chunks=(11, 13))
    zarr.consolidate_metadata(str(folder))
    assert gridref.scan(folder).report.n_requests == 1
    check(folder)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ((2**64 - 1, 5), "one side"),
        ((5, 2**64 - 1), "one side"),
        ((10**9, 5), "outside"),
        ((0, 10**9), "outside"),
        ((2**64 - 2, 4), "outside"),
    ],
)
def test_bad_entries_are_refused(tmp_path, entry, message):
    import google_crc32c

    folder = make(tmp_path / "s.zarr", chunks=(2, 3), shards=(12, 15))
    shard = Path(folder) / "a/c/0/0"
    data = bytearray(shard.read_bytes())
    index = len(data) - (30 * 16 + 4)
    data[index : index + 16] = struct.pack("<QQ", *entry)
    data[-4:] = google_crc32c.value(bytes(data[index:-4])).to_bytes(4, "little")
    shard.write_bytes(data)
    with pytest.raises(SourceFormatError, match=message) as caught:
        gridref.scan(folder)
    assert str(shard) in str(caught.value)


def test_a_bad_checksum_is_refused(tmp_path):
    folder = make(tmp_path / "s.zarr", chunks=(2, 3), shards=(12, 15))
    shard = Path(folder) / "a/c/0/0"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    with pytest.raises(SourceFormatError, match="checksum"):
        gridref.scan(folder)
    shard.write_bytes(data[:20])
    with pytest.raises(SourceFormatError, match="shorter than its shard index"):
        gridref.scan(folder)


def test_unknown_codecs_are_skipped_or_refused(tmp_path):
    folder = make(tmp_path / "s.zarr", chunks=(4, 6))
    path = Path(folder) / "a/zarr.json"
    document = json.loads(path.read_text())
    document["codecs"].append({"name": "acme.secret"})
    path.write_text(json.dumps(document))
    with pytest.raises(UnsupportedFeatureError, match=r"acme\.secret"):
        gridref.scan(folder)
    group = gridref.scan(folder, on_unsupported="skip")
    assert not group.arrays
    assert "acme.secret" in group.report.skipped[0].reason


def test_what_has_no_metadata_of_its_own_is_told(tmp_path):
    folder = make(tmp_path / "s.zarr")
    zarr.open_group(str(folder)).create_group("lost").create_array("b", shape=(2,), dtype="i4")
    (folder / "lost" / "zarr.json").unlink()
    group = gridref.scan(folder)
    with pytest.warns(UserWarning, match="lost is not recognized"):
        assert [*zarr.open_group(str(folder)).keys()] == ["a"]
    assert [*group.all_arrays()] == ["a"]
    assert [(each.path, each.fate) for each in group.report.skipped] == [("/lost", "skipped")]


@pytest.mark.parametrize("name", ["zarrita_fixture/data.zarr"])
def test_real_stores(shared_data, name):
    folder = shared_data / "zarr_v3_sharded" / name
    group = gridref.scan(folder)
    expected = zarr.open_group(str(folder), mode="r")
    assert len(group.arrays) == 19
    for path, array in group.arrays.items():
        np.testing.assert_array_equal(read(array), expected[path][...])
