"""FITS files: everything that astropy reads of their images, or a refusal."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from astropy.io import fits
from astropy.wcs import WCS

import gridref
from gridref.errors import GridrefError, SourceFormatError, UnsupportedFeatureError
from gridref.formats import expand_files
from gridref.model.array import VirtualGroup
from gridref.model.scan_report import Fate
from tests.fits_files import COMPRESSED, COMPRESSIONS, PLAIN, real_files, write_images
from tests.http_server import Site, serving

SKIP = gridref.ScanOptions(on_unsupported="skip")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Astropy warns of what its own test files have wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def assert_as_in_astropy(path: Path, group: VirtualGroup, names: dict[str, int]) -> None:
    """Compare stored values bit for bit, and physical ones through xarray."""
    ours = xr.open_dataset(path, engine="gridref", scan=SKIP)
    raw = fits.open(path, do_not_scale_image_data=True, memmap=False)
    scaled = fits.open(path, memmap=False)
    with ours, raw, scaled:
        for name, number in names.items():
            expected, physical = np.asarray(raw[number].data), np.asarray(scaled[number].data)
            if physical.dtype.kind == "u":
                expected = physical
            elif raw[number].header.get("BZERO") == -128 and expected.dtype == np.uint8:
                expected = physical.astype("i1")
            values = group.arrays[name][...]
            assert values.dtype == expected.dtype.newbyteorder("="), name
            assert values.shape == expected.shape, name
            native = expected.astype(expected.dtype.newbyteorder("="))
            assert values.tobytes() == native.tobytes(), name
            shown = ours[name].values
            if physical.dtype.kind == "f":
                assert shown.dtype == physical.dtype.newbyteorder("="), name
            np.testing.assert_array_equal(shown, physical, err_msg=name)


# Values, against astropy


@pytest.mark.parametrize("kind", ["plain", "compressed"])
def test_images_of_every_kind(tmp_path: Path, kind: str) -> None:
    images: dict[str, Any] = PLAIN if kind == "plain" else COMPRESSED
    path = write_images(tmp_path / "a.fits", images)
    group = gridref.scan(path)
    assert list(group.arrays) == list(images)
    assert_as_in_astropy(path, group, {name: n for n, name in enumerate(images, 1)})


def test_files_are_compressed_as_their_names_say(tmp_path: Path) -> None:
    path = write_images(tmp_path / "a.fits", COMPRESSED)
    elsewhere = set()
    with fits.open(path, disable_image_compression=True) as hdus:
        for hdu in hdus[1:]:
            named = [name for name in COMPRESSIONS if hdu.name.startswith(name)]
            assert all(hdu.header["ZCMPTYPE"] == name for name in named)
            if "_dither" in hdu.name:
                assert hdu.header["ZQUANTIZ"] == f"SUBTRACTIVE_DITHER_{hdu.name[-1]}"
            elsewhere |= {hdu.name for tile in hdu.data["COMPRESSED_DATA"] if len(tile) == 0}
    assert "constant_tiles" in elsewhere


def images_of(path: Path) -> list[int]:
    """Numbers of the HDUs in which astropy has pixels."""
    with fits.open(path, memmap=False) as hdus:
        kinds = (fits.PrimaryHDU, fits.ImageHDU, fits.CompImageHDU)
        return [n for n, hdu in enumerate(hdus) if type(hdu) in kinds and hdu.size > 0]


@pytest.mark.parametrize("path", real_files(), ids=lambda path: path.name)
def test_files_of_others(path: Path) -> None:
    if refused_by_astropy(path) or not images_of(path):
        with pytest.raises(GridrefError):
            gridref.scan(path)
        return
    group = gridref.scan(path, on_unsupported="skip")
    numbers = images_of(path)
    assert len(group.arrays) == len(numbers)
    names = dict(zip(group.arrays, numbers, strict=True))
    assert_as_in_astropy(path, group, names)
    assert_attributes(path, group, names)


def refused_by_astropy(path: Path) -> bool:
    try:
        with fits.open(path) as hdus:
            return not isinstance(hdus[0], fits.PrimaryHDU)
    except (OSError, ValueError):
        return True


# Names, dimensions, attributes, chunks


def test_names_dimensions_and_attributes(tmp_path: Path) -> None:
    primary = fits.PrimaryHDU(np.zeros((3, 4), "f4"))
    primary.header["DATE-OBS"] = "2024-03-01T00:00:00"
    primary.header["BUNIT"] = "adu"
    primary.header["CTYPE1"] = "RA---TAN"
    primary.header["HIERARCH ESO DET GAIN"] = 1.5
    primary.header["LONG"] = "it's a long text & more, " * 9
    primary.header["FLAG"], primary.header["EMPTY"] = True, fits.card.Undefined()
    primary.header["COMMENT"] = "one"
    primary.header["COMMENT"] = "two"
    first, second, third, other = (fits.ImageHDU(np.zeros((2, 3, 4, 5), "i2")) for _ in range(4))
    first.header["EXTNAME"] = second.header["EXTNAME"] = third.header["EXTNAME"] = "SCI"
    first.header["EXPTIME"], second.header["EXTVER"] = 30, 2
    empty = fits.ImageHDU(name="ERR")
    table = fits.BinTableHDU.from_columns([fits.Column("a", "I", array=[1])], name="EVENTS")
    path = tmp_path / "a.fits"
    hdus = fits.HDUList([primary, first, second, third, other, empty, table])
    hdus.writeto(path)
    group = gridref.scan(path)
    assert list(group.arrays) == ["PRIMARY", "SCI", "SCI_2", "SCI_1", "HDU4"]
    assert group.arrays["PRIMARY"].attrs == {"BUNIT": "adu", "CTYPE1": "RA---TAN"}
    assert group.attrs == {
        "DATE-OBS": "2024-03-01T00:00:00",
        "ESO DET GAIN": 1.5,
        "LONG": ("it's a long text & more, " * 9).rstrip(),
        "FLAG": True,
        "COMMENT": "one\ntwo",
    }
    assert group.arrays["SCI"].attrs == {"EXTNAME": "SCI", "EXPTIME": 30}
    assert group.arrays["SCI"].dims == ("axis4", "z", "y_1", "x_1")
    found = {finding.path: finding.fate for finding in group.report if finding.reason}
    assert found["/ERR"] is Fate.NAMED
    assert found["/EVENTS"] is Fate.SKIPPED


def assert_attributes(path: Path, group: VirtualGroup, names: dict[str, int]) -> None:
    """Every keyword that astropy has, but those of storage."""
    with fits.open(path) as hdus:
        for name, number in names.items():
            header = hdus[number].header
            attrs = {**group.attrs, **group.arrays[name].attrs}
            kept = set(header) & set(attrs) - {"COMMENT", "HISTORY"}
            assert {key: attrs[key] for key in kept} == {key: header[key] for key in kept}
            missing = {key for key in set(header) - set(attrs) if not is_of_storage(key)}
            assert all(isinstance(header[key], fits.card.Undefined) for key in missing), missing


def is_of_storage(keyword: str) -> bool:
    """Whether a keyword says how pixels are stored, which arrays say otherwise."""
    named = {"SIMPLE", "XTENSION", "BITPIX", "PCOUNT", "GCOUNT", "EXTEND", "GROUPS", "BSCALE"}
    named |= {"BZERO", "BLANK", "CHECKSUM", "DATASUM", "BLOCKED", ""}
    return keyword in named or keyword.startswith("NAXIS")


def test_texts_that_are_continued_between_doubled_quotes(tmp_path: Path) -> None:
    """Astropy cuts long texts anywhere, also between two quotes that stand for one."""
    path = tmp_path / "long.fits"
    header = fits.Header()
    for n_before in range(60, 70):
        header[f"TEXT{n_before}"] = "x" * n_before + "'q" * 40
    fits.PrimaryHDU(np.zeros((2, 2), "i2"), header).writeto(path)
    attrs = gridref.scan(path).attrs
    assert {key: attrs[key] for key in header} == dict(header)


def test_attributes_make_the_same_world_coordinates(tmp_path: Path) -> None:
    values, plane = np.zeros((30, 40), "i2"), WCS(naxis=2)
    plane.wcs.ctype, plane.wcs.crval = ["RA---TAN", "DEC--TAN"], [83.6, 22.0]
    plane.wcs.crpix, plane.wcs.cd = [20.5, 15.5], [[-1e-4, 2e-5], [2e-5, 1e-4]]
    header = plane.to_header()
    compressed = fits.CompImageHDU(values, header, name="TILES")
    fits.HDUList([fits.PrimaryHDU(values, header), compressed]).writeto(tmp_path / "a.fits")
    group = gridref.scan(tmp_path / "a.fits")
    for array in group.arrays.values():
        ours = WCS(fits.Header(array.attrs))
        np.testing.assert_array_equal(
            ours.all_pix2world([[3, 4]], 0), plane.all_pix2world([[3, 4]], 0)
        )


def test_large_images_are_split_and_tiles_are_chunks(tmp_path: Path) -> None:
    values = np.arange(40 * 30, dtype="f4").reshape(40, 30)
    tiles = fits.CompImageHDU(values.astype("i4"), tile_shape=(16, 10), name="TILES")
    fits.HDUList([fits.PrimaryHDU(values), tiles]).writeto(tmp_path / "a.fits")
    group = gridref.scan(tmp_path / "a.fits", max_chunk_bytes=1200)
    assert group.arrays["PRIMARY"].encodings[0].chunk_shape == (10, 30)
    assert group.arrays["TILES"].encodings[0].chunk_shape == (16, 10)
    assert group.arrays["TILES"].manifests[0].n_rows == 9
    np.testing.assert_array_equal(group.arrays["TILES"][17:39, 9:21], values[17:39, 9:21])


@pytest.mark.parametrize("wide", [False, True])
def test_descriptors_of_both_widths(tmp_path: Path, wide: bool) -> None:
    """Descriptors of 32 and 64 bits; astropy chooses the wide ones for large files only."""
    values = np.arange(40 * 30, dtype="i4").reshape(40, 30)
    path = write_images(tmp_path / "a.fits", {"a": fits.CompImageHDU(values)})
    with fits.open(path, disable_image_compression=True, memmap=False) as hdus:
        form = str(hdus[1].header["TFORM1"])
    if wide:
        path.write_bytes(with_wide_descriptors(path.read_bytes(), form, n_rows=40))
    assert_as_in_astropy(path, gridref.scan(path), {"a": 1})


def with_wide_descriptors(data: bytes, form: str, n_rows: int) -> bytes:
    """A compressed file whose descriptors have 64 bits, so that its rows are longer."""
    start = data.index(b"XTENSION")
    header_bytes = (data.index(b"END" + b" " * 77, start) + 80 - start + 2879) // 2880 * 2880
    header = data[start : start + header_bytes]
    header = header.replace(form.encode(), form.replace("P", "Q").encode())
    header = header.replace(b"NAXIS1  =                    8", b"NAXIS1  =                   16")
    table = np.frombuffer(data, ">i4", 2 * n_rows, start + header_bytes).astype(">i8").tobytes()
    heap = data[start + header_bytes + 8 * n_rows :]
    body = table + heap.rstrip(b"\0")
    return data[:start] + header + body + bytes(-len(body) % 2880)


PORTABLE = ("u8", "RICE_1_i2", "PLIO_1_i2", "HCOMPRESS_1_i4", "RICE_1_f4_dither1")
NATIVE = ("u1", "i1", "u2", "u4", "f8", "packed_i2", "GZIP_1_f8", "even_u4", "even_f4")


@pytest.mark.parametrize("view", ["native", "portable"])
def test_views(tmp_path: Path, view: Any) -> None:
    names = NATIVE if view == "native" else NATIVE + PORTABLE
    known: dict[str, Any] = {**PLAIN, **COMPRESSED}
    group = gridref.scan(write_images(tmp_path / "a.fits", {name: known[name] for name in names}))
    root = zarr.open_group(gridref.open_store(group, view), mode="r")
    assert {name for name, _ in root.arrays()} == set(names)
    for name in names:
        assert root[name][...].tobytes() == group.arrays[name][...].tobytes(), name


# Refused


def test_what_is_no_image_is_refused(tmp_path: Path) -> None:
    table = fits.BinTableHDU.from_columns([fits.Column("a", "I", array=[1])])
    fits.HDUList([fits.PrimaryHDU(), table]).writeto(tmp_path / "a.fits")
    with pytest.raises(UnsupportedFeatureError, match="no image: tables are not read"):
        gridref.scan(tmp_path / "a.fits")
    (tmp_path / "a.fits.gz").write_bytes(gzip.compress((tmp_path / "a.fits").read_bytes()))
    with pytest.raises(SourceFormatError, match="decompress it first"):
        gridref.scan(tmp_path / "a.fits.gz")
    assert expand_files(tmp_path) == [str(tmp_path / "a.fits")]


CHANGES: dict[str, tuple[bytes, bytes, str]] = {
    "compression": (b"'RICE_1  '", b"'ZSTD_9  '", "no codec decodes its compression 'ZSTD_9'"),
    "rows": (
        b"ZNAXIS2 =                   40",
        b"ZNAXIS2 =                   41",
        "40 rows for 41",
    ),
    "heap": (
        b"GCOUNT  =                    1",
        b"THEAP   =                    1",
        "its heap begins",
    ),
    "column": (b"'COMPRESSED_DATA'", b"'COMPRESSED_DOTS'", "no column COMPRESSED_DATA"),
    "form": (b"TFORM1  = '1PB", b"TFORM1  = '1PY", "a column has the format"),
    "bits": (b"ZBITPIX =                   32", b"ZBITPIX =                   33", "is none of"),
    "tile": (b"ZTILE1  =                   30", b"ZTILE1  =                   -2", "the length -2"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_damaged_tables(tmp_path: Path, name: str) -> None:
    values = np.arange(40 * 30, dtype="i4").reshape(40, 30)
    path = write_images(
        tmp_path / "a.fits", {"good": fits.ImageHDU(values), "bad": fits.CompImageHDU(values)}
    )
    old, new, message = CHANGES[name]
    head, found, rest = path.read_bytes().rpartition(old)
    assert found
    path.write_bytes(head + new + rest)
    with pytest.raises((SourceFormatError, UnsupportedFeatureError), match=message):
        gridref.scan(path)
    assert list(gridref.scan(path, on_unsupported="skip").arrays) == ["good"]


def test_tiles_without_data_or_outside_of_the_heap(tmp_path: Path) -> None:
    values = np.arange(40 * 30, dtype="i4").reshape(40, 30)
    path = write_images(tmp_path / "a.fits", {"a": fits.CompImageHDU(values)})
    with fits.open(path, disable_image_compression=True, memmap=False) as hdus:
        table = hdus[1].fileinfo()["datLoc"]
    for fields, message in (
        ((0, 0), "without data"),
        ((9, 1 << 20), "not in the heap"),
        ((-4, 8), "not in the heap"),
    ):
        data = bytearray(path.read_bytes())
        data[table + 80 : table + 88] = np.array(fields, ">i4").tobytes()
        damaged = tmp_path / "b.fits"
        damaged.write_bytes(data)
        with pytest.raises(SourceFormatError, match=message):
            gridref.scan(damaged)


@pytest.mark.parametrize("step", [211, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["plain", "tiles"])
def test_cut_off_anywhere(tmp_path: Path, kind: str, step: int) -> None:
    """Every length but those that end with an HDU is refused; those hold what they hold."""
    values = np.arange(12 * 10, dtype="i2").reshape(12, 10)
    hdus = fits.HDUList([fits.PrimaryHDU(values)])
    hdus.append(fits.ImageHDU(values) if kind == "plain" else fits.CompImageHDU(values))
    hdus.writeto(tmp_path / "a.fits")
    whole, path = (tmp_path / "a.fits").read_bytes(), tmp_path / "b.fits"
    first = whole.index(b"XTENSION")
    for n_bytes in sorted({*range(0, len(whole), step), *range(first - 3, first + 4)}):
        path.write_bytes(whole[:n_bytes])
        if n_bytes == first:
            assert list(gridref.scan(path).arrays) == ["PRIMARY"]
            continue
        with pytest.raises(GridrefError, match=r"b\.fits"):
            gridref.scan(path)


def test_numbers_that_no_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "a.fits"
    sizes = ({"NAXIS1": 2**62}, {"NAXIS1": -3}, {"BITPIX": 17}, {"PCOUNT": 2**40}, {"NAXIS": 1000})
    for changes in sizes:
        cards = {"SIMPLE": "T", "BITPIX": 8, "NAXIS": 1, "NAXIS1": 10, **changes}
        text = "".join(f"{key:8}= {value!s:>20}".ljust(80) for key, value in cards.items())
        header = (text + "END".ljust(80)).ljust(2880).encode()
        path.write_bytes(header + bytes(2880))
        with pytest.raises(SourceFormatError):
            gridref.scan(path)


# Together with other files, and growing


def night(path: Path, day: int, **options: Any) -> Path:
    """An exposure of one night."""
    values = np.random.default_rng(day).integers(0, 60_000, (20, 30)).astype("u2")
    header = fits.Header({"DATE-OBS": f"2024-03-{day:02}T01:00:00", "EXPTIME": 30})
    if options:
        hdus = fits.HDUList([fits.PrimaryHDU(), fits.CompImageHDU(values, header, **options)])
    else:
        hdus = fits.HDUList([fits.PrimaryHDU(values, header)])
    hdus.writeto(path)
    return path


def test_nights_lie_along_time_whether_compressed_or_not(tmp_path: Path) -> None:
    files = [night(tmp_path / f"{day}.fits", day) for day in (3, 1, 2)]
    catalog = tmp_path / "cube.gridref"
    layout = gridref.Labels(sources={"time": "attribute:DATE-OBS"})
    gridref.build(files, catalog, layout=layout)
    gridref.open_catalog(catalog).append([night(tmp_path / "4.fits", 4)])
    ds = xr.open_dataset(catalog)
    days = np.array([f"2024-03-0{day}T01" for day in (1, 2, 3, 4)], "M8[ns]")
    np.testing.assert_array_equal(ds.time.values, days)
    expected = [fits.getdata(tmp_path / f"{day}.fits") for day in (1, 2, 3, 4)]
    np.testing.assert_array_equal(ds.PRIMARY.values, expected)
    checked = gridref.verify(catalog, all=True)
    assert (checked.ok, checked.n_chunks) == (True, 4)
    assert {name for name, _ in checked.not_compared} == {"time"}


def test_verify_compares_every_kind_with_astropy(tmp_path: Path) -> None:
    known: dict[str, Any] = {**PLAIN, **COMPRESSED}
    images = {name: known[name] for name in (*NATIVE, *PORTABLE, "constant_tiles", "i8")}
    path = write_images(tmp_path / "a.fits", images)
    gridref.build([path], tmp_path / "a.gridref")
    verified = gridref.open_catalog(tmp_path / "a.gridref").verify(all=True)
    assert verified.differences == ()
    assert not verified.not_compared


def test_a_remote_image_is_scanned_in_one_request(tmp_path: Path) -> None:
    values = np.arange(500 * 400, dtype="i4").reshape(500, 400)
    fits.PrimaryHDU(values).writeto(tmp_path / "a.fits")
    with serving(Site({"/a.fits": (tmp_path / "a.fits").read_bytes()})) as site:
        group = gridref.scan(f"{site.url}/a.fits")
        assert len(site.requests) == 1
        np.testing.assert_array_equal(group.arrays["PRIMARY"][400:402], values[400:402])


@pytest.mark.parametrize(("keyword", "value"), [("GAIN", 7), ("BITPIX", 16), ("BITPIX", 32)])
def test_keywords_of_storage_have_one_value(tmp_path: Path, keyword: str, value: int) -> None:
    path = tmp_path / "a.fits"
    fits.PrimaryHDU(np.zeros((3, 4), "i2"), fits.Header({"GAIN": 2})).writeto(path)
    data, end = path.read_bytes(), b"END".ljust(80)
    repeated = f"{keyword:8}= {value:>20}".ljust(80).encode() + end
    path.write_bytes(data.replace(end + b" " * 80, repeated))
    if value == 32:
        with pytest.raises(SourceFormatError, match="the keyword BITPIX has two values"):
            gridref.scan(path)
        return
    group = gridref.scan(path)
    assert group.arrays["PRIMARY"].dtype == np.int16
    assert group.attrs == {"GAIN": 2}


@pytest.mark.parametrize("card", ["BSCALE  =", "BSCALE"])
def test_keywords_of_storage_have_a_value(tmp_path: Path, card: str) -> None:
    path = tmp_path / "a.fits"
    fits.PrimaryHDU(np.zeros((3, 4), "u2")).writeto(path)
    whole = b"BSCALE  =                    1"
    path.write_bytes(path.read_bytes().replace(whole, card.ljust(30).encode()))
    with pytest.raises(SourceFormatError, match="the keyword BSCALE has no value"):
        gridref.scan(path)
