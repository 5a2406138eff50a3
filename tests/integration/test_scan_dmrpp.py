"""DMR++ documents beside the HDF5 files that they describe: scanned, and as hints."""

from __future__ import annotations

import base64
import random
import re
import shutil
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtualizarr.parsers import DMRPPParser

import gridref
from gridref.errors import (
    GridrefError,
    SourceChangedError,
    SourceFormatError,
    SourceNotAllowedError,
    SourceUnavailableError,
    UnsupportedFeatureError,
)
from gridref.formats import expand_files
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.grid import chunk_counts
from gridref.model.manifest import ChunkState
from gridref.model.scan_report import Fate
from tests.cold_scans import all_caches, described_group
from tests.dmrpp_files import NAMESPACES, write_dmrpp
from tests.http_server import Site, serving
from tests.integration.archives import write_hdf5

VALUES = np.random.default_rng(4).normal(size=(13, 17))


def array_of(document: Path, name: str, **options: Any) -> VirtualArray:
    """The array of a variable that a scan finds."""
    return gridref.scan(document, **options).all_arrays()[name]


def granule(path: Path) -> Path:
    """An HDF5 file with each kind of storage, type and filter that DMR++ describes."""
    with h5py.File(path, "w") as file:
        file.attrs["title"] = "a granule"
        file.attrs["numbers"] = np.array([1.5, -2.25], "f4")
        file["time"] = np.arange(13.0)
        file["time"].make_scale("time")
        file["time"].attrs["units"] = "days since 2020-01-01"
        filters: dict[str, dict[str, Any]] = {
            "plain": {},
            "deflate": {"compression": 4},
            "shuffled": {"shuffle": True},
            "both": {"shuffle": True, "compression": 6},
            "all": {"shuffle": True, "compression": 1, "fletcher32": True},
        }
        for name, options in filters.items():
            for dtype in ("<f4", ">i2", "<i8", "u1"):
                values = (VALUES * 50).astype(dtype)
                each = file.create_dataset(
                    f"{name}_{dtype[-2:]}", data=values, chunks=(4, 6), **options
                )
                each.dims[0].attach_scale(file["time"])
                each.attrs["valid"] = np.array([3], dtype.replace(">", "<"))
        file["contiguous"] = VALUES
        file["contiguous_be"] = VALUES.astype(">f8")
        file["scalar"] = np.float32(1.25)
        group = file.create_group("deep/down")
        group.attrs["note"] = "h\u00e9llo <&>"
        partly = group.create_dataset("partly", (20, 20), "f8", chunks=(5, 5), fillvalue=-1.5)
        partly[3:7, 3:12] = 2
        group.create_dataset("never", (7, 3), "i4", chunks=(2, 2), fillvalue=-99)
        group.create_dataset("unwritten", (6,), "i4", fillvalue=7)
        file.create_dataset("empty", (0, 4), "f4", maxshape=(None, 4))
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        for name, values in {"compact": np.arange(6, dtype="<i4").reshape(2, 3)}.items():
            space = h5py.h5s.create_simple(values.shape)
            dtype = h5py.h5t.py_create(values.dtype)
            h5py.h5d.create(file.id, name.encode(), dtype, space, compact).write(
                h5py.h5s.ALL, h5py.h5s.ALL, values
            )
        texts = np.array([b"one", b"", b"three  "] * 3, "S7")
        for name, padding in {"terminated": 0, "zeros": 1, "spaces": 2}.items():
            kind = h5py.h5t.C_S1.copy()
            kind.set_size(7)
            kind.set_strpad(padding)
            space = h5py.h5s.create_simple((9,))
            own = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            own.set_chunk((4,))
            made = h5py.h5d.create(file.id, f"text_{name}".encode(), kind, space, own)
            made.write(h5py.h5s.ALL, h5py.h5s.ALL, texts, h5py.h5t.py_create(texts.dtype))
        long = ["caf\u00e9", "", "the same", "x" * 40]
        file.create_dataset("names", data=long, dtype=h5py.string_dtype())
        colors = h5py.enum_dtype({"RED": 1, "GREEN BLUE": 2}, "i2")
        file.create_dataset("color", data=np.array([1, 2, 2], "i2"), dtype=colors)
        file["flag"] = np.array([True, False, True])
        pair = np.dtype(
            {
                "names": ["a", "b"],
                "formats": ["<i4", ("<f8", (2,))],
                "offsets": [0, 8],
                "itemsize": 32,
            }
        )
        records = np.zeros(9, pair)
        records["a"], records["b"] = np.arange(9), np.arange(18).reshape(9, 2)
        file.create_dataset("records", data=records, chunks=(4,), compression=1)
        waves = (VALUES + 1j).astype("c8")
        file.create_dataset("waves", data=waves, chunks=(5, 17), compression=1, shuffle=True)
        missed = file.create_dataset("missed", data=VALUES.astype("f4")[:3], chunks=(2, 17))
        missed.attrs["_FillValue"] = np.float32(-9999.875)
        masked = file.create_dataset(
            "masked", (8,), "<u4", chunks=(4,), compression=1, shuffle=True
        )
        masked[:] = np.arange(8)
        masked.id.write_direct_chunk((0,), np.arange(4, dtype="<u4").tobytes(), 3)
    return path


def assert_same(own: VirtualGroup, expected: VirtualGroup) -> None:
    """Names, attributes, dtypes, fill values, values and, for ranges, chunks."""
    assert own.all_arrays().keys() == expected.all_arrays().keys()
    for (path, one), (other_path, other) in zip(own.walk(), expected.walk(), strict=True):
        assert path == other_path
        assert_same_attrs(one.attrs, other.attrs)
    for name, array in own.all_arrays().items():
        assert_same_array(name, array, expected.all_arrays()[name])


def assert_same_array(name: str, array: VirtualArray, other: VirtualArray) -> None:
    assert (array.dtype, array.shape) == (other.dtype, other.shape), name
    assert np.array_equal(array.fill_value, other.fill_value) or not array.manifests, name
    assert_same_attrs(array.attrs, other.attrs)
    np.testing.assert_array_equal(np.asarray(array[...]), np.asarray(other[...]), name)
    for mine, theirs in zip(array.manifests, other.manifests, strict=False):
        one, two = (each.take(np.arange(each.n_rows)) for each in (mine, theirs))
        if not (one.inline or two.inline):
            assert [(s.url, s.size_bytes, s.mtime_ns) for s in one.sources] == [
                (s.url, s.size_bytes, s.mtime_ns) for s in two.sources
            ]
            for column in ("offset", "length", "state"):
                np.testing.assert_array_equal(getattr(one, column), getattr(two, column), name)


def assert_same_attrs(attrs: Any, expected: Any) -> None:
    assert attrs.keys() == expected.keys()
    for name, value in attrs.items():
        np.testing.assert_array_equal(value, expected[name])


@pytest.mark.parametrize("version", [True, False])
def test_each_kind_of_storage_is_as_in_our_scan_of_the_granule(
    tmp_path: Path, version: bool
) -> None:
    path = granule(tmp_path / "a.h5")
    document = write_dmrpp(path, version=version)
    own, expected = gridref.scan(document), gridref.scan(path)
    assert_same(own, expected)
    assert own.arrays["both_f4"].dims[0] == own.arrays["time"].dims[0] == "time"
    assert {n: a.dims for n, a in own.arrays.items()} == {
        n: a.dims for n, a in expected.arrays.items()
    }
    assert {finding.fate for finding in own.report} == {Fate.TAKEN, Fate.INLINED}
    with h5py.File(path) as file:
        for name, array in own.all_arrays().items():
            if array.dtype.kind != "T":
                np.testing.assert_array_equal(array[...], file[name][...], name)


# ---- what the samples of OPeNDAP describe -----------------------------------------------
NOWHERE = "does not say where its values are"
REFUSED = {
    "chunked_scalar_string.h5": {"/scalar_big_string": "a pointer to one of variable length"},
    "compound_simple_scalar_memb_str_array.h5": {"/DSC_scalar_base_array": "type String"},
    "grid_1_2d_extra_missing.h5": dict.fromkeys(
        ["/HDFEOS/GRIDS/GeoGrid/YDim", "/HDFEOS/GRIDS/GeoGrid/XDim"], NOWHERE
    ),
    "grid_1_2d_missing.h5": dict.fromkeys(["/lon", "/lat"], NOWHERE),
    "sinusoid.hdf.nmd": dict.fromkeys(["/grid1/Latitude", "/grid1/Longitude"], NOWHERE),
    "t_string_chunk.h5": {"/array_1d_hacked_to_bytes": "not a number for each dimension"},
}
"""What is refused of the samples, and a part of the reason."""
NO_DOCUMENTS = ("47939dcf_OPENDAP__bes__SDS_simple_comp.hdf", "OPENDAP__bes__t_vl_string_1d.h5")
"""One begins with a line of text, one is a request to a server."""


def beside_stubs(document: Path, folder: Path) -> Path:
    """A copy of a document that names no server, and files of zeros for its granule."""
    copy = folder / document.name
    text = document.read_text("latin-1").replace("https://s3.amazonaws.com/", "")
    copy.write_text(text, "latin-1")
    names = {href.rpartition("/")[2] for href in re.findall(r'href="([^"]*)"', text)}
    for name in names | {document.name.removesuffix(".dmrpp")}:
        with (folder / name).open("wb") as file:
            file.truncate(1 << 33)
    return copy


@pytest.mark.long
def test_samples_are_read_or_refused_with_a_reason(shared_data: Path, tmp_path: Path) -> None:
    n_taken = n_refused = n_compared = 0
    samples = sorted((shared_data / "formats" / "dmrpp").glob("*.dmrpp"))
    for number, path in enumerate(samples):
        folder = tmp_path / str(number)
        folder.mkdir()
        name = path.name.removesuffix(".dmrpp")
        document = beside_stubs(path, folder)
        if name in NO_DOCUMENTS:
            with pytest.raises(SourceFormatError, match="looks like"):
                gridref.scan(document)
            continue
        group = gridref.scan(document, on_unsupported="skip")
        refused = {f.path: f.reason for f in group.report.skipped if "@" not in f.path}
        expected = REFUSED.get(name.partition("bes__")[2], {})
        assert refused.keys() == expected.keys(), name
        assert all(expected[each] in reason for each, reason in refused.items()), refused
        n_taken += len(group.all_arrays())
        n_refused += len(refused)
        n_compared += n_as_in_virtualizarr(document, group)
    assert (len(samples), n_taken, n_refused) == (137, 847, 9)
    assert n_compared == 651


def n_as_in_virtualizarr(document: Path, group: VirtualGroup) -> int:
    """Compare places of chunks with those that VirtualiZarr finds; how many variables that are."""
    n_compared = 0
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    for path, part in group.walk():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                store = DMRPPParser(group=path or None)(f"file://{document}", registry)
            except (ValueError, KeyError, AttributeError):
                continue
        for name, array in store._group.arrays.items():  # noqa: SLF001 - it has no public name
            own = part.arrays.get(name)
            if own is None or own.dtype.kind not in "iuf" or not own.manifests or not own.ndim:
                continue
            rows = own.manifests[0].take(np.arange(own.manifests[0].n_rows))
            if rows.inline or len(rows.sources) > 1:
                continue
            assert array.shape == own.shape, name
            found = array.manifest.dict()
            grid = chunk_counts(own.shape, own.encodings[0].chunk_shape)
            stored = np.flatnonzero(rows.state == ChunkState.RANGE)
            places = {
                ".".join(map(str, np.unravel_index(row, grid))): (
                    rows.offset[row],
                    rows.length[row],
                )
                for row in stored
            }
            assert places == {k: (v["offset"], v["length"]) for k, v in found.items()}, name
            n_compared += 1
    return n_compared


@pytest.mark.parametrize(
    "name",
    [
        "SDS_chunk_extra_area.hdf",
        "257f4bb7_SDS_fillchunk_comp.hdf",
        "773a37b9_SDS_fillchunk_comp.hdf",
        "SDS_simple_chunk_comp.hdf",
        "SDS_simple_double.hdf",
        "SDS_simple_float.hdf",
        "vg_hl_test.hdf",
    ],
)
def test_samples_of_hdf4_granules_equal_pyhdf(name: str, shared_data: Path, tmp_path: Path) -> None:
    pyhdf = pytest.importorskip("pyhdf.SD")
    mark, _, own = name.rpartition("_SDS") if name[0].isdigit() else ("", "", name)
    own = f"SDS{own}" if mark else own
    folder = shared_data / "formats"
    document = tmp_path / f"{own}.dmrpp"
    shutil.copyfile(
        folder / "dmrpp" / f"{mark}{'_' * bool(mark)}OPENDAP__bes__{own}.dmrpp", document
    )
    shutil.copyfile(folder / "hdf4" / f"OPENDAP__bes__{own}", tmp_path / own)
    arrays = gridref.scan(document).all_arrays()
    assert arrays
    file = pyhdf.SD(str(tmp_path / own))
    for path, array in arrays.items():
        expected = file.select(path.rpartition("/")[2])[:]
        np.testing.assert_array_equal(array[...], expected)


# ---- documents of the tests' own --------------------------------------------------------
def document_of(folder: Path, *inner: str, head: str = "", n_bytes: int = 4096) -> Path:
    """A document with the given content, and a granule in which each byte is its own number."""
    (folder / "a.h5").write_bytes((bytes(range(256)) * (n_bytes // 256 + 1))[:n_bytes])
    path = folder / "a.h5.dmrpp"
    version = head or 'dmrpp:version="3.21.1"'
    path.write_text(f"<Dataset {NAMESPACES} {version}>{''.join(inner)}</Dataset>", "utf-8")
    return path


def variable(inner: str, sizes: tuple[int, ...] = (4,), kind: str = "UInt16") -> str:
    dims = "".join(f'<Dim size="{size}"/>' for size in sizes)
    return f'<{kind} name="v">{dims}{inner}</{kind}>'


def chunks(*inner: str, about: str = "", lengths: str = "") -> str:
    sizes = lengths and f"<dmrpp:chunkDimensionSizes>{lengths}</dmrpp:chunkDimensionSizes>"
    return f"<dmrpp:chunks {about}>{sizes}{''.join(inner)}</dmrpp:chunks>"


def chunk(offset: int, n_bytes: int, place: str = "", more: str = "") -> str:
    at = place and f'chunkPositionInArray="[{place}]"'
    return f'<dmrpp:chunk offset="{offset}" nBytes="{n_bytes}" {at} {more}/>'


def block(offset: int, n_bytes: int) -> str:
    return f'<dmrpp:block offset="{offset}" nBytes="{n_bytes}"/>'


def packed(values: bytes) -> str:
    return base64.b64encode(values).decode()


@pytest.mark.parametrize("stated", ["deflate shuffle", "shuffle deflate"])
def test_filters_of_old_documents_are_in_the_order_of_their_time(
    tmp_path: Path, stated: str
) -> None:
    path = granule(tmp_path / "a.h5")
    document = write_dmrpp(path, version=False)
    text = document.read_text("latin-1").replace('"shuffle deflate"', f'"{stated}"')
    document.write_text(text, "latin-1")
    np.testing.assert_array_equal(array_of(document, "both_i8")[...], (VALUES * 50).astype("i8"))


@pytest.mark.parametrize("view", ["native", "portable"])
def test_catalogs_views_and_verification(tmp_path: Path, view: Any) -> None:
    path = granule(tmp_path / "a.h5")
    document = write_dmrpp(path, missing=frozenset({"missed"}))
    gridref.build([document], tmp_path / "a.gridref")
    catalog = gridref.open_catalog(tmp_path / "a.gridref")
    found = catalog.verify(all=True)
    assert found.n_arrays == 36
    why = "no file holds some of its chunks, which read as the fill value"
    assert found.not_compared == (("deep/down/never", why), ("deep/down/unwritten", why))
    assert [str(each.place.variable) for each in found.differences] == ["color"]  # blanks in names
    names = ("both_f4", "all_i2", "contiguous_be", "text_zeros", "waves", "compact")
    held = VirtualGroup({name: catalog.all_arrays()[name] for name in names})
    root: Any = zarr.open_group(gridref.open_store(held, view), mode="r")
    with h5py.File(path) as file:
        for name in names:
            np.testing.assert_array_equal(root[name][...], file[name][...])


def test_linked_blocks_are_joined_where_they_end_between_elements(tmp_path: Path) -> None:
    data = chunks(block(100, 12), block(300, 4), block(256, 8), about='byteOrder="BE"')
    found = array_of(document_of(tmp_path, variable(data, (4, 3))), "v")
    raw = bytes(range(256)) * 2
    expected = np.frombuffer(raw[100:112] + raw[300:304] + raw[256:264], ">u2").reshape(4, 3)
    np.testing.assert_array_equal(found[...], expected)
    odd = document_of(tmp_path, variable(chunks(block(100, 11), block(300, 13)), (4, 3)))
    with pytest.raises(UnsupportedFeatureError, match="blocks begin inside of elements"):
        gridref.scan(odd)


def test_values_that_the_writer_worked_out(tmp_path: Path) -> None:
    path = granule(tmp_path / "a.h5")
    with h5py.File(path, "a") as file:
        file["one"] = np.array([2.5], "f4")
    document = write_dmrpp(path, missing=frozenset({"contiguous_be", "both_i2", "one", "plain_u1"}))
    own = gridref.scan(document)
    for name in ("contiguous_be", "both_i2", "one", "plain_u1"):
        np.testing.assert_array_equal(own.arrays[name][...], array_of(path, name)[...])
    assert {f.fate for f in own.report if f.path in ("/one", "/both_i2")} == {Fate.INLINED}


@pytest.mark.parametrize(
    ("fill", "attribute", "kind", "expected"),
    [
        ("-1.5", "", "Float64", -1.5),
        ("-9999.9", "", "Float32", np.float32(-9999.9)),
        ("9.96921e+36", "", "Float32", np.float32(9.969209968386869e36)),
        ("1.23457", "1.2345678", "Float32", np.float32(1.2345678)),
        ("1.23457", "7", "Float32", None),
        ("1.23457", "", "Float64", None),
        ("-99", "", "Int32", -99),
        ("", "", "Int32", None),
        (None, "5", "Int32", 5),
        (None, "", "Int32", None),
        ("100", "", "Int32 BE", None),
        ("1677721600", "100", "Int32 BE", 100),
        ("0", "", "Int32 BE", 0),
    ],
)
def test_missing_chunks_need_a_fill_value_of_all_digits(
    tmp_path: Path, fill: str | None, attribute: str, kind: str, expected: Any
) -> None:
    kind, _, order = kind.partition(" ")
    about = f'byteOrder="{order or "LE"}"' + (f' fillValue="{fill}"' if fill is not None else "")
    attrs = f'<Attribute name="_FillValue" type="{kind}"><Value>{attribute}</Value></Attribute>'
    itemsize = 8 if kind == "Float64" else 4
    data = chunks(chunk(0, 2 * itemsize, "2"), about=about, lengths="2")
    document = document_of(tmp_path, variable((attrs if attribute else "") + data, (6,), kind))
    if expected is None:
        with pytest.raises(UnsupportedFeatureError, match="chunks that the granule does not hold"):
            gridref.scan(document)
        return
    values = array_of(document, "v")[...]
    assert (values[[0, 1, 4, 5]] == expected).all()
    stored = values[2:4].astype(values.dtype.newbyteorder(">" if order else "<"))
    assert stored.tobytes() == bytes(range(2 * itemsize))


def test_attributes(tmp_path: Path) -> None:
    document = document_of(
        tmp_path,
        '<Attribute name="one" type="Int16"><Value>-3</Value></Attribute>',
        '<Attribute name="many" type="Float64"><Value>1.5</Value><Value>nan</Value></Attribute>',
        '<Attribute name="texts" type="String"><Value>a</Value><Value/></Attribute>',
        '<Attribute name="wrong" type="Byte"><Value>256</Value></Attribute>',
        '<Attribute name="build_dmrpp_metadata" type="Container"><Attribute name="x"/></Attribute>',
        '<Attribute name="HDF5_GLOBAL" type="Container">'
        '<Attribute name="title" type="String"><Value>t</Value></Attribute></Attribute>',
        '<Attribute name="other" type="Container"/>',
        '<Attribute name="DODS_EXTRA" type="Container">'
        '<Attribute name="Unlimited_Dimension" type="String"><Value>t</Value></Attribute>'
        "</Attribute>",
        '<Dimension name="t" size="4"/><UInt16 name="v"><Dim name="/t"/><Dim name="t"/>',
        chunks(chunk(0, 32)),
        '</UInt16><UInt16 name="w"><Dim name="/t"/><Dim size="4"/>',
        chunks(chunk(0, 32)),
        "</UInt16>",
    )
    group = gridref.scan(document)
    assert list(group.attrs) == ["one", "many", "texts", "title"]
    assert (group.attrs["one"], group.attrs["one"].dtype) == (-3, np.int16)
    np.testing.assert_array_equal(group.attrs["many"], [1.5, np.nan])
    assert group.attrs["texts"] == ["a", ""]
    assert {f.path for f in group.report.skipped} == {"@wrong", "@other"}
    assert group.arrays["v"].dims == ("t", "t")
    assert group.arrays["w"].dims == ("t", "w_axis_1")
    assert group.unlimited_dims == {"t"}


# ---- where the granule is ---------------------------------------------------------------
def test_a_granule_on_a_server_is_not_read(tmp_path: Path) -> None:
    path = granule(tmp_path / "a.h5")
    document = write_dmrpp(path).read_bytes()
    site = Site({"/a.h5.dmrpp": document, "/a.h5": path.read_bytes()})
    with serving(site) as site:
        group = gridref.scan(f"{site.url}/a.h5.dmrpp")
        asked = [request for request in site.requests if "dmrpp" not in str(request)]
        assert [(method, span) for method, _, span in asked] == [("GET", "bytes=0-0")]
        assert group.report.n_requests == len(site.requests) == 3
        assert group.report.n_bytes <= len(document) + 1
        np.testing.assert_array_equal(group.arrays["both_i8"][...], (VALUES * 50).astype("i8"))


@pytest.mark.parametrize(
    ("href", "place"),
    [
        ("", "a.h5"),
        ("OPeNDAP_DMRpp_DATA_ACCESS_URL", "a.h5"),
        ("data/dmrpp/b.h5", "b.h5"),
        ("/data/b.h5", "b.h5"),
        ("./below/b.h5", "below/b.h5"),
    ],
)
def test_the_granule_is_found(tmp_path: Path, href: str, place: str) -> None:
    head = f'dmrpp:href="{href}"' if href else ""
    document = document_of(tmp_path, variable(chunks(chunk(2, 8))), head=head or 'name="x"')
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_bytes(bytes(range(2, 14)))
    expected = np.frombuffer(bytes(range(4, 12)), "<u2")
    found = array_of(document, "v")
    np.testing.assert_array_equal(found[...], expected)
    assert found.manifests[0].take(np.arange(1)).sources[0].url == str(tmp_path / place)
    (tmp_path / place).unlink()
    with pytest.raises(SourceUnavailableError, match=f"granule of the DMR.*{place}"):
        gridref.scan(document)


def test_granules_elsewhere_must_be_allowed(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "b.h5").write_bytes(bytes(64))
    one = variable(chunks(chunk(2, 8)))
    document = document_of(tmp_path / "below", one, head='dmrpp:href="../b.h5"')
    with pytest.raises(SourceNotAllowedError, match="allow"):
        gridref.scan(document)
    assert array_of(document, "v", allow=tmp_path).shape == (4,)
    document = document_of(tmp_path / "below", one, head='dmrpp:href="http://127.0.0.1:9/b.h5"')
    with pytest.raises(SourceNotAllowedError, match=r"127\.0\.0\.1"):
        gridref.scan(document)
    found = array_of(document, "v", allow="http://127.0.0.1:9")
    source = found.manifests[0].take(np.arange(1)).sources[0]
    assert (source.url, source.size_bytes) == ("http://127.0.0.1:9/b.h5", None)
    renamed = document.rename(tmp_path / "below" / "a.xml")
    renamed.write_text(document_of(tmp_path / "below", one).read_text())
    with pytest.raises(SourceFormatError, match="does not name its granule"):
        gridref.scan(renamed)


def test_chunks_of_several_files(tmp_path: Path) -> None:
    (tmp_path / "b.h5").write_bytes(bytes(range(100, 200)))
    data = chunks(
        chunk(4, 4, "2", 'href="data/b.h5"'), chunk(8, 4, "0"), about='byteOrder="LE"', lengths="2"
    )
    found = array_of(document_of(tmp_path, variable(data)), "v")[...]
    expected = np.frombuffer(bytes([8, 9, 10, 11, 104, 105, 106, 107]), "<u2")
    np.testing.assert_array_equal(found, expected)


# ---- with other files -------------------------------------------------------------------
def test_a_cube_of_documents_and_granules(tmp_path: Path) -> None:
    paths = []
    for day in range(4):
        path = tmp_path / f"{day}.h5"
        time = np.arange(2.0) + 2 * day, {"units": "days since 2020-01-01"}
        values = np.arange(24.0).reshape(2, 12) + day
        storage = {"chunks": (1, 6), "compression": 1, "shuffle": True}
        write_hdf5(path, {"time": time}, {"t": (["time"], values, {}, storage)})
        paths.append(write_dmrpp(path) if day % 2 else path)
    catalog = tmp_path / "cube.gridref"
    gridref.build(paths[:3], catalog, "time")
    grown = gridref.open_catalog(catalog).append(paths[3:])
    np.testing.assert_array_equal(grown.all_arrays()["time"][...], np.arange(8))
    np.testing.assert_array_equal(grown.all_arrays()["t"][7], np.arange(12.0, 24) + 3)
    assert grown.verify(all=True).differences == ()
    with (tmp_path / "3.h5").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(SourceChangedError):
        gridref.open_catalog(catalog).all_arrays()["t"][...]


def test_a_directory_holds_granules_not_documents(tmp_path: Path) -> None:
    write_dmrpp(granule(tmp_path / "a.h5"))
    assert [Path(each).name for each in expand_files(tmp_path)] == ["a.h5"]


# ---- bad input --------------------------------------------------------------------------
GROUPS = '<Group name="g">' * 5000
HOSTILE = {
    "not XML: ": "<Dataset",
    "document type": '<!DOCTYPE Dataset [<!ENTITY a "b">]>&a;',
    "nested more than": GROUPS + "</Group>" * 5000,
    "has the name 'a/b'": '<Group name="a/b"/>',
    "two objects": '<Group name="g"/><Group name="g"/>',
    "two variables": variable(chunks(chunk(0, 8))) * 2,
    "declared to be": variable(chunks(chunk(0, 8)), (2**40, 2**40)),
    "size of a dimension": '<Byte name="v"><Dim size="-1"/></Byte>',
    "dimension '/x' is not": '<Byte name="v"><Dim name="/x"/></Byte>',
    "enumeration 'e' is not": '<Enum name="v" enum="e"/>',
    "states 6": variable(chunks(chunk(0, 6))),
    "beyond the end": variable(chunks(chunk(4090, 8))),
    "without bytes": variable(chunks(chunk(0, 0))),
    "where no file has bytes": variable(chunks(chunk(2**50, 8))),
    "offset of a chunk is '11": variable(chunks(chunk(2**60, 8))),
    "offset of a chunk is '-1'": variable(chunks(chunk(-1, 8))),
    "states no chunk shape": variable(chunks(chunk(0, 4), chunk(4, 4))),
    "places of the grid": variable(chunks(chunk(0, 4, "1"), lengths="2")),
    "the grid, each at one": variable(chunks(chunk(0, 4, "2"), chunk(4, 4, "2"), lengths="2")),
    "at places of the": variable(chunks(chunk(0, 4, "4"), lengths="2")),
    "a number for each": variable(chunks(chunk(0, 4, "0,0"), lengths="2")),
    "do not fit its shape": variable(chunks(chunk(0, 4, "0"), lengths="2 2")),
    "other sizes for its chunks of 4 bytes": variable(chunks(chunk(0, 3, "0"), lengths="2")),
    "have 2000000000000 bytes": variable(
        chunks(chunk(0, 3, "0"), lengths="1000000000000", about='compressionType="deflate"')
    ),
    "chunk_rows of": variable(chunks(chunk(0, 2, "0"), lengths="1"), (2**40,)),
    "filter 'szip'": variable(chunks(chunk(0, 8), about='compressionType="szip"')),
    "byte order 'PDP'": variable(chunks(chunk(0, 8), about='byteOrder="PDP"')),
    "linked blocks are not": variable(
        chunks(chunk(0, 4, "0", 'LinkedBlockIndex="0"'), lengths="4", about='LBChunk="true"')
    ),
    "states several places for": variable(chunks() + chunks(chunk(0, 8))),
    "it has 33 dimensions": variable(chunks(chunk(0, 1)), (1,) * 33),
    "compressed data in several": variable(
        chunks(block(0, 4), block(8, 4), about='compressionType="deflate"')
    ),
    "several places": variable(chunks(chunk(0, 8)) + "<dmrpp:compact>AAA=</dmrpp:compact>"),
    "dmrpp:other": variable("<dmrpp:other/>"),
    "not base64": variable("<dmrpp:compact>?</dmrpp:compact>"),
    "states 2": variable("<dmrpp:compact>AAA=</dmrpp:compact>"),
    "cannot be inflated": variable("<dmrpp:missingdata>AAAA</dmrpp:missingdata>"),
    "no stream of 8 bytes": variable(
        f"<dmrpp:missingdata>{packed(zlib.compress(bytes(10**6)))}</dmrpp:missingdata>"
    ),
    "raise max_inline_bytes": variable("<dmrpp:missingdata/>", (2**40,)),
    "more than 4 texts": variable('<dmrpp:vlsa><v c="999999999999"/></dmrpp:vlsa>', kind="String"),
    "1 of 4 texts": variable("<dmrpp:vlsa><v/></dmrpp:vlsa>", kind="String"),
    "type is not text": variable("<dmrpp:vlsa><v/></dmrpp:vlsa>"),
    "type Opaque": variable(chunks(chunk(0, 8)), kind="Opaque"),
    "members are at": variable(
        '<Byte name="a"/>' + chunks(chunk(0, 8), about='structOffset="1 2"'), kind="Structure"
    ),
    "members overlap": variable(
        '<Int32 name="a"/><Byte name="b"/>' + chunks(chunk(0, 8), about='structOffset="2 8"'),
        kind="Structure",
    ),
    "cannot be an array": variable(
        '<Byte name="a"/><Byte name="a"/>' + chunks(chunk(0, 8)), kind="Structure"
    ),
}


@pytest.mark.parametrize("reason", HOSTILE)
def test_what_is_wrong_is_named(tmp_path: Path, reason: str) -> None:
    document = document_of(tmp_path, HOSTILE[reason])
    with pytest.raises((SourceFormatError, UnsupportedFeatureError), match=re.escape(reason)):
        gridref.scan(document)


def test_a_refused_variable_leaves_the_others(tmp_path: Path) -> None:
    inner = '<Opaque name="o"/><Sequence name="s"/>' + variable(chunks(chunk(0, 8)))
    document = document_of(tmp_path, inner)
    with pytest.raises(UnsupportedFeatureError, match="1 other object is refused too: /") as raised:
        gridref.scan(document)
    assert "on_unsupported='skip'" in str(raised.value)
    group = gridref.scan(document, on_unsupported="skip")
    assert list(group.arrays) == ["v"]
    assert {finding.path for finding in group.report.skipped} == {"/o", "/s"}


def test_all_values_in_a_document_have_a_limit(
    tmp_path: Path, limited: Callable[[str], None]
) -> None:
    one = f"<dmrpp:missingdata>{packed(zlib.compress(bytes(8000)))}</dmrpp:missingdata>"
    all_of_them = [variable(one, (4000,)).replace('"v"', f'"v{n}"') for n in range(3)]
    document = document_of(tmp_path, *all_of_them)
    assert len(gridref.scan(document).arrays) == 3
    limited("inline_decoded_bytes=20000")
    with pytest.raises(UnsupportedFeatureError, match="values of 24000 bytes so far, more than"):
        gridref.scan(document)


def test_files_have_a_limit(tmp_path: Path, limited: Callable[[str], None]) -> None:
    names = [f"{number}.h5" for number in range(4)]
    for name in names:
        (tmp_path / name).write_bytes(bytes(64))
    each = [chunk(0, 2, str(at), f'href="{name}"') for at, name in enumerate(names)]
    document = document_of(tmp_path, variable(chunks(*each, lengths="1")))
    assert len(array_of(document, "v").manifests[0].take(np.arange(4)).sources) == 4
    limited("external_files=3")
    with pytest.raises(UnsupportedFeatureError, match="more than the limit external_files of 3"):
        gridref.scan(document)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_a_document_type_in_another_encoding(tmp_path: Path, encoding: str) -> None:
    document = document_of(tmp_path)
    text = document.read_text()
    declared = f'<?xml version="1.0" encoding="{encoding}"?><!DOCTYPE x [<!ENTITY a "b">]>{text}'
    document.write_bytes(declared.encode(encoding))
    with pytest.raises(SourceFormatError):
        gridref.scan(document)


def test_documents_have_a_limit(tmp_path: Path, limited: Callable[[str], None]) -> None:
    document = document_of(tmp_path, "<!-- " + "x" * 1000 + " -->")
    limited("dmrpp_bytes=900")
    with pytest.raises(UnsupportedFeatureError, match="more than the limit dmrpp_bytes of 900"):
        gridref.scan(document)


def test_documents_that_are_cut_off_anywhere(tmp_path: Path) -> None:
    inner = '<Attribute name="a" type="Int16"><Value>3</Value></Attribute>'
    one = variable(inner + chunks(chunk(0, 4, "0"), chunk(4, 4, "2"), lengths="2"))
    document = document_of(tmp_path, '<Dimension name="x" size="3"/>', one)
    assert array_of(document, "v").shape == (4,)
    data = document.read_bytes()
    for stop in range(len(data) - 1):
        document.write_bytes(data[:stop])
        with pytest.raises(GridrefError):
            gridref.scan(document, on_unsupported="skip")


NAME = "/granule.h5"


@pytest.fixture(scope="module")
def granule_beside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file whose metadata are all over it."""
    path = tmp_path_factory.mktemp("granule") / "granule.h5"
    values = np.random.default_rng(1).integers(0, 99, (64, 512), "i4")
    with h5py.File(path, "w") as file:
        for each in range(24):
            chunks = (16, 256) if each % 3 else None
            dataset = file.create_dataset(f"g{each % 5}/v{each}", data=values, chunks=chunks)
            dataset.attrs["units"] = "m"
    return path


@pytest.fixture(scope="module")
def site(granule_beside: Path) -> Iterator[Site]:
    with serving(Site({NAME: granule_beside.read_bytes()})) as site:
        yield site


def scanned(site: Site, document: bytes | None, hints: str = "dmrpp") -> VirtualGroup:
    """What a first scan finds."""
    for clear in all_caches():
        clear()
    site.files.pop(f"{NAME}.dmrpp", None)
    if document is not None:
        site.files[f"{NAME}.dmrpp"] = document
    site.requests.clear()
    return gridref.scan(f"{site.url}{NAME}", hints=hints)


def complaints(group: VirtualGroup) -> list[str]:
    return [finding.reason for finding in group.report if finding.fate is Fate.SKIPPED]


def test_the_same_is_found_in_fewer_rounds(site: Site, granule_beside: Path) -> None:
    without = scanned(site, None)
    document = write_dmrpp(granule_beside).read_bytes()
    never_asked = scanned(site, document, hints="none")
    assert not any(".dmrpp" in path for _, path, _ in site.requests)
    hinted = scanned(site, document)
    assert described_group(hinted) == described_group(without) == described_group(never_asked)
    assert list(hinted.report) == list(without.report)
    # All that the scan asks for after the document is asked for at once.
    site.delay_seconds = 0.05
    site.most_at_once = 0
    try:
        scanned(site, document)
        assert site.most_at_once >= 8
        site.most_at_once = 0
        scanned(site, None)
        assert site.most_at_once < 8
    finally:
        site.delay_seconds = 0


WRONG = {
    "no XML": (lambda text: text[: len(text) // 2], "not XML"),
    "a document type": (lambda text: text.replace("?>", "?><!DOCTYPE x>", 1), "document type"),
    "beyond the end": (
        lambda text: re.sub(r'offset="\d+"', 'offset="999999999999"', text),
        "beyond the end",
    ),
    "not a number": (lambda text: re.sub(r'nBytes="\d+"', 'nBytes="many"', text), "many"),
    "elsewhere": (
        lambda text: re.sub(r'offset="(\d+)"', lambda m: f'offset="{int(m[1]) - 64}"', text),
        "is elsewhere",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_document_is_reported_and_changes_nothing(
    site: Site, granule_beside: Path, wrong: str
) -> None:
    change, reason = WRONG[wrong]
    without = scanned(site, None)
    document = write_dmrpp(granule_beside).read_text(encoding="latin-1")
    hinted = scanned(site, change(document).encode("latin-1"))
    assert described_group(hinted) == described_group(without)
    complaint = next(iter(complaints(hinted)))
    assert complaint.startswith("granule.h5.dmrpp does not fit the file: ")
    assert reason in complaint


def test_mutated_documents_change_nothing(site: Site, granule_beside: Path) -> None:
    without = described_group(scanned(site, None))
    document = bytearray(write_dmrpp(granule_beside).read_bytes())
    pick = random.Random(7)
    for _ in range(20):
        mutated = document.copy()
        for _ in range(pick.randint(1, 8)):
            mutated[pick.randrange(len(mutated))] = pick.choice(b'0123456789<>/"x \xff\0')
        assert described_group(scanned(site, bytes(mutated))) == without


def test_a_folder_without_documents_is_asked_once(site: Site, granule_beside: Path) -> None:
    names = [f"/plain/{number}.h5" for number in range(3)]
    site.files |= dict.fromkeys(names, granule_beside.read_bytes())
    site.requests.clear()
    run = gridref.RunOptions(max_in_flight=1)
    scan = gridref.ScanOptions(hints="dmrpp")
    gridref.plan([site.url + name for name in names], layout=gridref.Stack("n"), scan=scan, run=run)
    assert sum(".dmrpp" in path for _, path, _ in site.requests) == 1


def test_local_files_take_no_hints(granule_beside: Path) -> None:
    document = write_dmrpp(granule_beside)
    document.write_bytes(b"wrong")
    assert not complaints(gridref.scan(granule_beside, hints="dmrpp"))
