"""Kerchunk references: exported, built of, and verified."""

from __future__ import annotations

import json
import re
import subprocess
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import h5py
import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.core.metadata.v3 import RectilinearChunksDisabledError

import gridref
from gridref.api.catalog import write_catalog
from gridref.errors import NotRepresentableError, SourceFormatError
from gridref.faces.exports.kerchunk import to_kerchunk
from gridref.model.array import VirtualGroup
from gridref.model.indexing import getitem
from gridref.model.zarr_metadata import packed_dtype
from tests.command import run_command
from tests.hdf5_oracle import read_original, why_different
from tests.shared_data import shared_hdf5_files

TEXT = ["", "wet", "dürr", "x" * 400, "\N{SNOWMAN}"]


@contextmanager
def opened(document: Any) -> Iterator[zarr.Group]:
    """The group of a document, as fsspec and zarr read it, through JSON text."""
    filesystem = fsspec.filesystem(
        "reference",
        fo=json.loads(json.dumps(document)),
        asynchronous=True,
        skip_instance_cache=True,
    )
    store = zarr.storage.FsspecStore(filesystem, read_only=True, path="")
    with warnings.catch_warnings(), zarr.config.set({"array.rectilinear_chunks": True}):
        warnings.simplefilter("ignore")  # zarr: types and codecs without a specification
        yield zarr.open_group(store, mode="r")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kerchunk") / "all.h5"
    random = np.random.default_rng(0)
    cube = random.normal(280, 9, (13, 9, 5)).astype("f4")
    with h5py.File(path, "w") as file:
        for name, options in {
            "plain": {},
            "contiguous_chunks": {"chunks": (13, 9, 5)},
            "zlib": {"chunks": (4, 4, 5), "compression": "gzip", "shuffle": True},
            "checked": {"chunks": (4, 4, 5), "compression": "gzip", "fletcher32": True},
            "only_checked": {"chunks": (4, 4, 5), "fletcher32": True},
            "lzf": {"chunks": (4, 4, 5), "compression": "lzf"},
        }.items():
            file.create_dataset(name, data=cube, **options)
        file.create_dataset("big_endian", data=cube.astype(">f8"), chunks=(5, 9, 2))
        holes = file.create_dataset("holes", (20, 6), "i2", chunks=(3, 4), fillvalue=-7)
        holes[4:9, 1] = 5
        file.create_dataset("scalar", data=np.float64(2.5))
        file.create_dataset("fixed", data=np.array([b"a", b"bc", b""], "S4"), chunks=(2,))
        file.create_dataset("text", data=np.array(TEXT, object), dtype=h5py.string_dtype())
        pairs = np.array([(1, 2.5), (3, 4.5)], [("a", "<i4"), ("b", "<f8")])
        file.create_dataset("pairs", data=pairs)
        nested = np.zeros(3, [("a", "<i4", (4,)), ("b", "<f4", (5, 6))])
        nested["a"] = np.arange(12).reshape(3, 4)
        file.create_dataset("nested", data=nested)
        made = file.create_dataset("masked", (8,), "i4", chunks=(4,), compression="gzip")
        made[:] = np.arange(8)
        made.id.write_direct_chunk((4,), np.arange(4, dtype="<i4").tobytes(), filter_mask=1)
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((6,))
        small = h5py.h5d.create(file.id, b"compact", h5py.h5t.NATIVE_INT32, space, compact)
        small.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(6, dtype="i4"))
        inner = file.create_group("deep/deeper")
        inner.attrs["title"] = "inside"
        inner.create_dataset("values", data=np.arange(7), chunks=(3,))
    return path


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_every_kind_of_dataset_reads_as_in_h5py(path: Path, zarr_format: Any) -> None:
    scanned = gridref.scan(path)
    if zarr_format == 2:
        with pytest.raises(NotRepresentableError, match=r"; write a catalog.*\n  - holes: absent"):
            to_kerchunk(scanned, inline_limit=scanned["holes"].nbytes - 1)
    document = to_kerchunk(scanned, zarr_format=zarr_format)
    with opened(document) as group:
        assert group["deep/deeper"].attrs["title"] == "inside"
        assert_equals_h5py(path, scanned, group)
    chunk = re.compile(r"(zlib|checked|only_checked|deep/deeper/values)/(c/)?[0-9]")
    chunks = [value for key, value in document["refs"].items() if chunk.match(key)]
    assert len(chunks) == 3 * 12 + 3
    assert {value[0] for value in chunks} == {str(path)}
    assert "holes/c/6/0" not in document["refs"]


def assert_equals_h5py(path: Path, scanned: VirtualGroup, group: zarr.Group) -> None:
    for name, array in scanned.all_arrays().items():
        try:
            expected = read_original(str(path), f"/{name}")
        except gridref.errors.GridrefError:
            continue  # h5py lacks the filter: no oracle
        dtype = array.dtype if array.dtype.kind in "biufc" else group[name].dtype
        read = np.asarray(group[name][...], dtype)
        if array.dtype.kind == "T":
            assert read.astype(object).tolist() == expected.astype(object).tolist(), name
            continue
        if array.dtype.kind == "V":
            read = read.view(packed_dtype(array.dtype))
        window = read[(*(slice(0, n) for n in expected.shape), ...)]  # unlimited dimensions
        assert why_different(window, expected) is None, name


def test_what_references_cannot_say_is_refused_by_name(path: Path) -> None:
    with pytest.raises(NotRepresentableError) as caught:
        to_kerchunk(gridref.scan(path), inline_limit=8)
    message = str(caught.value)
    assert re.search(
        r"^  - masked: single chunks have filters switched off$", message, re.MULTILINE
    )
    assert "zlib" not in message
    cut = getitem(gridref.scan(path).arrays["text"], slice(1, None))  # begins inside of a chunk
    with opened(to_kerchunk(VirtualGroup({"text": cut}))) as group:
        assert group["text"][...].tolist() == TEXT[1:]
    with pytest.raises(NotRepresentableError, match=r"1 array;.*\n  - text: "):
        to_kerchunk(VirtualGroup({"text": cut}), inline_limit=200)


def test_a_file_in_an_archive_is_written_out_or_refused(path: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(path, "all.h5")
    url = f"zip://all.h5::file://{tmp_path}/a.zip"
    scanned = gridref.scan(url)
    with opened(to_kerchunk(scanned, zarr_format=3)) as group:
        assert_equals_h5py(path, scanned, group)
    with pytest.raises(NotRepresentableError, match=r"(?s)lzf: .*plain: its files are inside"):
        to_kerchunk(scanned, inline_limit=500, zarr_format=3)


@pytest.mark.long(but=8)
@pytest.mark.parametrize("source", shared_hdf5_files("hdf5/*/*", "netcdf4/*/*"))
def test_real_files_equal_h5py_or_are_refused_by_name(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of them in each format of Zarr: every kind of dataset is in both, see above."""
    zarr_format: Any = 2 + len(source.name) % 2
    monkeypatch.setenv("HDF5_EXTFILE_PREFIX", "${ORIGIN}")
    scanned = gridref.scan(source, on_unsupported="skip")
    try:
        document = to_kerchunk(scanned, zarr_format=zarr_format)
    except NotRepresentableError as error:
        refused = set(re.findall(r"^  - (.+?): ", str(error), re.MULTILINE))
        assert refused <= set(scanned.all_arrays())
        scanned = without(scanned, refused)
        document = to_kerchunk(scanned, zarr_format=zarr_format)
    with opened(document) as group:
        assert_equals_h5py(source, scanned, group)


def without(group: VirtualGroup, names: set[str], at: str = "") -> VirtualGroup:
    """A group without some of its arrays."""
    return replace(
        group,
        arrays={k: v for k, v in group.arrays.items() if f"{at}{k}" not in names},
        groups={k: without(v, names, f"{at}{k}/") for k, v in group.groups.items()},
    )


SAMPLES = Path(__file__).parents[2] / "sample_data"


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", ["refs.json", "refs.parq"])
def test_exported_catalogs_open_with_the_engine_of_kerchunk(name: str, tmp_path: Path) -> None:
    """As a user does: the installed command, then xarray."""
    month, catalog, output = SAMPLES / "daily_2023-01.nc", tmp_path / "a.gridref", tmp_path / name
    write_catalog(gridref.scan(month), catalog)
    for _ in range(2):  # what is there is replaced
        told = run_export(catalog, output)
        assert told.returncode == 0, told.stderr
    expected = xr.open_dataset(month, engine="netcdf4")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = xr.open_dataset(str(output), engine="kerchunk")
        xr.testing.assert_equal(read, expected)
    for variable in expected.variables:
        assert read[variable].attrs == expected[variable].attrs
        assert read[variable].encoding.get("_FillValue") == expected[variable].encoding.get(
            "_FillValue"
        )
    assert sorted(tmp_path.iterdir()) == sorted([catalog, output])


@pytest.mark.long
def test_templates_and_small_chunks(tmp_path: Path) -> None:
    month, catalog, output = (
        SAMPLES / "daily_2023-01.nc",
        tmp_path / "a.gridref",
        tmp_path / "r.json",
    )
    write_catalog(gridref.scan(month), catalog)
    told = run_export(catalog, output, "--templates", "--inline-threshold", "1500")
    assert told.returncode == 0, told.stderr
    document = json.loads(output.read_bytes())
    assert document["templates"] == {"u0": str(month)}
    ranges = [held for held in document["refs"].values() if isinstance(held, list)]
    assert {held[0] for held in ranges} == {"{{u0}}"}
    assert min(held[2] for held in ranges) >= 1500
    plain = to_kerchunk(gridref.scan(month))["refs"]
    assert len(ranges) == sum(isinstance(r, list) and r[2] >= 1500 for r in plain.values())
    expected = xr.open_dataset(month, engine="netcdf4").compute()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        xr.testing.assert_equal(xr.open_dataset(str(output), engine="kerchunk"), expected)
    again = gridref.open_store(gridref.scan(output, allow=str(SAMPLES)))
    xr.testing.assert_equal(xr.open_zarr(again).compute(), expected)


def test_small_arrays_that_were_never_written_read_as_in_h5py(tmp_path: Path) -> None:
    """As netCDF4 leaves variables of grid mappings: with a fill value, and no chunk."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("crs", (), "<i4", fillvalue=-2147483647)
        file.create_dataset("some", (5,), ">f8", fillvalue=9.5, chunks=(2,), maxshape=(None,))
        file["some"][2:4] = 1
        file.create_dataset("negative", (3,), "<f4", fillvalue=-0.0, chunks=(2,))
    document = to_kerchunk(gridref.scan(tmp_path / "a.h5"))
    with h5py.File(tmp_path / "a.h5") as file, opened(document) as group:
        for name in ("crs", "some", "negative"):
            np.testing.assert_array_equal(group[name][...], file[name][...])
        assert np.signbit(group["negative"][...]).all()


SIXTEEN_BITS = {"id": "fixedscaleoffset", "scale": 100, "offset": 10, "astype": "<i2"}


@pytest.mark.parametrize(
    ("filters", "dtype"),
    [
        ([{**SIXTEEN_BITS, "dtype": ">f8"}], ">f8"),
        ([{"id": "delta", "dtype": ">i4", "astype": "<i2"}], ">i4"),
        ([{"id": "astype", "encode_dtype": "<f4", "decode_dtype": ">f8"}], ">f8"),
    ],
    ids=["fixedscaleoffset", "delta", "astype"],
)
def test_filters_have_the_byte_order_of_what_they_filter(
    filters: list[Any], dtype: str, tmp_path: Path
) -> None:
    """Zarr v2 takes what the first filter returns as bytes of the array's dtype."""
    made = zarr.create_array(
        tmp_path / "a.zarr", shape=(7, 4), chunks=(3, 4), dtype=dtype, zarr_format=2,
        filters=[numcodecs.get_codec(each) for each in filters],
    )  # fmt: skip
    made[...] = np.arange(28).reshape(7, 4)
    with opened(to_kerchunk(gridref.scan(tmp_path / "a.zarr"), inline_limit=0)) as group:
        np.testing.assert_array_equal(group["a"][...], made[...])


@pytest.mark.parametrize("orders", [[(2, 1, 0), (2, 1, 0)], [(1, 2, 0), (1, 0, 2)]], ids=["C", "F"])
def test_several_transpositions_are_one_order_of_elements(orders: Any, tmp_path: Path) -> None:
    made = zarr.create_array(
        tmp_path / "a.zarr", shape=(4, 6, 5), chunks=(3, 2, 5), dtype="i4",
        filters=[zarr.codecs.TransposeCodec(order=order) for order in orders],
    )  # fmt: skip
    made[...] = np.arange(120).reshape(4, 6, 5)
    with opened(to_kerchunk(gridref.scan(tmp_path / "a.zarr"), inline_limit=0)) as group:
        np.testing.assert_array_equal(group["a"][...], made[...])


def test_what_references_cannot_say_can_be_left_out(path: Path) -> None:
    group = gridref.scan(path)
    with pytest.raises(NotRepresentableError) as refused:
        to_kerchunk(group, inline_limit=0)
    names = set(re.findall(r"- (\S+): ", str(refused.value)))
    with pytest.warns(UserWarning, match="is left out of the references: "):
        refs = to_kerchunk(group, inline_limit=0, on_unsupported="skip")["refs"]
    kept = {key.removesuffix("/.zarray") for key in refs if key.endswith("/.zarray")}
    assert names
    assert kept == set(group.all_arrays()) - names


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_what_is_left_out_is_in_no_document(path: Path, zarr_format: Any) -> None:
    """zarr reads an array that a group's document lists, and whose chunks are absent, as fill."""
    group = gridref.scan(path)
    with pytest.warns(UserWarning, match="is left out of the references: ") as warned:
        document = to_kerchunk(
            group, zarr_format=zarr_format, inline_limit=0, on_unsupported="skip"
        )
    left_out = {str(each.message).partition(" is left out")[0] for each in warned}
    assert left_out
    with opened(document) as read:
        shown = {
            name for name, node in read.members(max_depth=None) if isinstance(node, zarr.Array)
        }
    assert shown == group.all_arrays().keys() - left_out


def test_uneven_grids_need_keys_of_zarr_3(tmp_path: Path) -> None:
    files, refs = [tmp_path / f"{n}.nc" for n in (3, 4)], tmp_path / "refs.json"
    for n, file in zip((3, 4), files, strict=True):
        xr.Dataset({"v": ("x", np.arange(n))}).to_netcdf(file, engine="h5netcdf")
    catalog = gridref.build(files, tmp_path / "cube.gridref", "x")
    with pytest.raises(NotRepresentableError, match="zarr_format=3"):
        catalog.export(refs, inline_limit=0)
    assert not refs.exists()
    catalog.export(refs, inline_limit=0, zarr_format=3)


def test_keys_of_zarr_3_are_advised_only_where_they_help(tmp_path: Path) -> None:
    catalog, output = tmp_path / "cube.gridref", tmp_path / "refs.json"
    gridref.build([SAMPLES / f"daily_2023-0{k}.nc" for k in (1, 2, 4)], catalog, "time")
    for version in ("2", "3"):
        told = run_export(catalog, output, "--inline-limit", "2000", "--zarr-format", version)
        assert told.returncode == 1
        assert "; write a catalog instead:" in told.stderr
        assert "- tas: " in told.stderr
    assert not output.exists()


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("refs.parq", ("--zarr-format", "3"), "need Zarr v2: --zarr-format 2"),
        ("mine.parq", (), "holds no references"),
        ("refs.json", ("--zarr-format", "4"), "must be 2 or 3"),
        ("refs.parq", ("--templates",), "no templates"),
        ("refs.icechunk", ("--templates",), "--templates is no option of an export to icechunk"),
    ],
)
def test_bad_exports_leave_what_is_there(
    name: str, arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    catalog = tmp_path / "a.gridref"
    (tmp_path / "mine.parq").mkdir()
    (tmp_path / "mine.parq" / "kept").write_text("mine")
    write_catalog(gridref.scan(SAMPLES / "daily_2023-01.nc"), catalog)
    told = run_export(catalog, tmp_path / name, *arguments)
    assert told.returncode != 0
    assert message in told.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.gridref", "mine.parq"]
    assert (tmp_path / "mine.parq" / "kept").read_text() == "mine"


def run_export(catalog: Path, output: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command("export", catalog, output, *arguments)


@pytest.mark.parametrize("output", ["refs.json", "cube.icechunk"])
def test_arrays_written_by_value_are_reported(path: Path, tmp_path: Path, output: str) -> None:
    cube = gridref.build(path, tmp_path / "cube.gridref")
    found: dict[str, str] = {}
    cube.export(tmp_path / f"again_{output}", announce=found.update)
    assert found["masked"] == "single chunks have filters switched off"
    assert ("holes" in found) == (output == "refs.json")  # whose absent chunks read as zero
    assert "zlib" not in found
    told = run_export(tmp_path / "cube.gridref", tmp_path / output)
    assert told.returncode == 0, told.stderr
    line = (
        r"^written by value, not as references: .*masked.*\(single chunks have filters switched off"
    )
    assert re.search(line, told.stdout, re.MULTILINE)


def test_uneven_chunks_without_zarrs_setting_are_an_error_that_names_it(tmp_path: Path) -> None:
    groups = []
    for number, extent in enumerate((31, 28, 31)):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file.create_dataset("v", data=np.ones((extent, 20)), chunks=(extent, 20))
        groups.append(gridref.scan(tmp_path / f"{number}.h5"))
    document = to_kerchunk(
        gridref.concat(groups, groups[0]["v"].dims[0]), inline_limit=0, zarr_format=3
    )
    filesystem = fsspec.filesystem("reference", fo=document, asynchronous=True)
    store = zarr.storage.FsspecStore(filesystem, read_only=True, path="")
    with pytest.raises(RectilinearChunksDisabledError, match=r"array\.rectilinear_chunks"):
        zarr.open_group(store, mode="r")["v"]
    with opened(document) as group:
        assert group["v"][:].tolist() == np.ones((90, 20)).tolist()


MONTH = SAMPLES / "daily_2023-01.nc"


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", ["refs.json", "templates.json", "refs.parq", "cube.icechunk"])
def test_an_export_comes_back_and_is_verified(name: str, tmp_path: Path) -> None:
    catalog, output, again = (tmp_path / part for part in ("a.gridref", name, "again.gridref"))
    gridref.build(MONTH, catalog)
    options = ["--templates"] if name == "templates.json" else []
    told = run_command("export", catalog, output, *options)
    assert told.returncode == 0, told.stderr
    told = run_command("build", output, "-o", again, "--allow", SAMPLES, "--verify")
    assert told.returncode == 0, told.stderr
    assert "0 chunks differ" in told.stdout
    expected = xr.open_dataset(MONTH, engine="netcdf4").compute()
    xr.testing.assert_equal(xr.open_dataset(again, engine="gridref").compute(), expected)
    checked = run_command("verify", output, "--allow", SAMPLES, "--all")
    assert checked.returncode == 0, checked.stderr
    n_chunks = gridref.verify(catalog, all=True).n_chunks
    assert gridref.verify(output, all=True, allow=str(SAMPLES)).n_chunks >= n_chunks - 8


def test_generated_references_are_imported(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["a"] = np.arange(12, dtype="<i4")
        start = file["a"].id.get_offset()
    zarray = {"zarr_format": 2, "shape": [12], "chunks": [4], "dtype": "<i4", "order": "C",
              "compressor": None, "filters": None, "fill_value": None}  # fmt: skip
    document = {
        "version": 1,
        "templates": {"f": str(tmp_path / "{{c}}.h5")},
        "gen": [
            {
                "key": "a/{{i}}",
                "url": "{{f(c='a')}}",
                "offset": "{{" + f"{start} + i * 16" + "}}",
                "length": "16",
                "dimensions": {"i": {"stop": 3}},
            }
        ],
        "refs": {
            ".zgroup": '{"zarr_format": 2}',
            "a/.zarray": json.dumps(zarray),
            "a/.zattrs": '{"_ARRAY_DIMENSIONS": ["x"]}',
        },
    }
    (tmp_path / "refs.json").write_text(json.dumps(document))
    told = run_command("build", tmp_path / "refs.json", "-o", tmp_path / "a.gridref", "--verify")
    assert told.returncode == 0, told.stderr
    assert "1 array, 3 chunks, 12 values compared: 0 chunks differ" in told.stdout
    assert gridref.open_catalog(tmp_path / "a.gridref")["a"][...].tolist() == list(range(12))


def test_a_wrong_reference_is_found_by_verify(tmp_path: Path) -> None:
    document = to_kerchunk(gridref.scan(MONTH))
    refs = document["refs"]
    refs["tas/0.0.0"], refs["tas/1.0.0"] = refs["tas/1.0.0"], refs["tas/0.0.0"]
    (tmp_path / "refs.json").write_text(json.dumps(document))
    told = run_command("verify", tmp_path / "refs.json", "--allow", SAMPLES, "--all")
    assert told.returncode == 1
    assert "2 chunks differ" in told.stdout
    assert "tas" in told.stdout


def test_references_that_leave_their_folder_need_permission(tmp_path: Path) -> None:
    to_kerchunk(gridref.scan(MONTH), tmp_path / "refs.json")
    told = run_command("build", tmp_path / "refs.json", "-o", tmp_path / "a.gridref")
    assert told.returncode == 1
    assert f"--allow {SAMPLES}" in told.stderr.replace("\n", "")
    assert not (tmp_path / "a.gridref").exists()


def changed(refs: dict[str, Any], key: str, **changes: Any) -> None:
    refs[key] = json.dumps({**json.loads(refs[key]), **changes})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: d.update(version=2), r"version 2.*refs\.json"),
        (lambda d: changed(d["refs"], "tas/.zarray", zarr_format=3), r"zarr_format 3.*tas"),
        (
            lambda d: d["refs"]["tas/1.0.0"].__setitem__(1, 1 << 40),
            r"beyond.*/tas, chunk \(1, 0, 0\)",
        ),
        (lambda d: d["refs"].update({"tas/1.0.0": ["x", -1, 5]}), r"tas/1\.0\.0"),
        (
            lambda d: d["refs"].update({"tas/1.0.0": ["gone.nc", 0, 5]}),
            r"gone\.nc,.*/tas, chunk \(1, 0, 0\)",
        ),
        (lambda d: changed(d["refs"], "tas/.zarray", chunks=[0, 0]), r"tas"),
    ],
)
def test_bad_references_are_refused_by_array_and_chunk(
    damage: Any, message: str, tmp_path: Path
) -> None:
    document = to_kerchunk(gridref.scan(MONTH))
    damage(document)
    (tmp_path / "refs.json").write_text(json.dumps(document))
    with pytest.raises(gridref.errors.GridrefError, match=f"(?s){message}"):
        gridref.scan(tmp_path / "refs.json", allow="*")


def test_references_to_a_file_that_changed_since_name_array_and_chunk(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    path.write_bytes(MONTH.read_bytes())
    to_kerchunk(gridref.scan(path), tmp_path / "refs.json")
    path.write_bytes(MONTH.read_bytes()[:6000])  # before it is imported: it is too short
    with pytest.raises(SourceFormatError, match=r"(?s)beyond the end.*a\.nc"):
        gridref.build(tmp_path / "refs.json", tmp_path / "cube.gridref")
    path.write_bytes(MONTH.read_bytes())
    gridref.build(tmp_path / "refs.json", tmp_path / "cube.gridref")
    path.write_bytes(MONTH.read_bytes() + b"more")
    with pytest.raises(gridref.errors.SourceChangedError, match=r"tas.*a\.nc|a\.nc.*tas"):
        gridref.open_catalog(tmp_path / "cube.gridref")["tas"][...]
