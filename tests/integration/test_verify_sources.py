"""Verifying what several files make up, or files refer to, finds the right values to compare."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest

import gridref
from gridref.errors import InvalidRequestError
from gridref.formats.hdf5.original import OriginalFile
from gridref.model.array import VirtualGroup
from gridref.model.encoding import Codec
from gridref.model.indexing import isel
from gridref.model.joining import concatenate
from tests.http_server import Site, serving


def write_parts(folder: Path, n_files: int, chunks: Any) -> list[Path]:
    files = []
    for number in range(n_files):
        path = folder / f"part{number}.h5"
        with h5py.File(path, "w") as file:
            file["other"] = np.arange(3)
            values = 100 * number + np.arange(24, dtype="i4").reshape(4, 6)
            file.create_dataset("t", data=values, chunks=chunks)
        files.append(path)
    return files


def combined_references(files: list[Path]) -> dict[str, Any]:
    """Kerchunk references of the files' array ``t``, one after the other."""
    refs: dict[str, Any] = {".zgroup": json.dumps({"zarr_format": 2})}
    for number, path in enumerate(files):
        with h5py.File(path) as file:
            dataset = file["t"]
            if dataset.chunks is None:
                refs[f"t/{number}.0"] = [str(path), dataset.id.get_offset(), 96]
                continue
            for index in range(dataset.id.get_num_chunks()):
                info = dataset.id.get_chunk_info(index)
                row, column = (at // n for at, n in zip(info.chunk_offset, (2, 3), strict=True))
                refs[f"t/{row + 2 * number}.{column}"] = [str(path), info.byte_offset, info.size]
    chunks = [2, 3] if "t/1.1" in refs else [4, 6]
    metadata = {
        "zarr_format": 2, "shape": [4 * len(files), 6], "chunks": chunks, "dtype": "<i4",
        "compressor": None, "filters": None, "fill_value": 0, "order": "C",
    }  # fmt: skip
    refs["t/.zarray"] = json.dumps(metadata)
    refs["t/.zattrs"] = json.dumps({"_ARRAY_DIMENSIONS": ["y", "x"]})
    return {"version": 1, "refs": refs}


@pytest.mark.parametrize("chunks", [(2, 3), None])
def test_combined_references_are_compared_with_their_own_file(tmp_path: Path, chunks: Any) -> None:
    files = write_parts(tmp_path, 3, chunks)
    references = combined_references(files)
    (tmp_path / "refs.json").write_text(json.dumps(references))
    group = gridref.scan(tmp_path / "refs.json")
    result = gridref.verify(group, all=True)
    assert result.ok
    assert result.n_values == 72
    assert not result.not_compared


def test_chunks_in_each_others_place_are_found(tmp_path: Path) -> None:
    (path,) = write_parts(tmp_path, 1, (2, 3))
    references = combined_references([path])
    refs = references["refs"]
    refs["t/0.0"], refs["t/1.1"] = refs["t/1.1"], refs["t/0.0"]
    (tmp_path / "refs.json").write_text(json.dumps(references))
    result = gridref.verify(gridref.scan(tmp_path / "refs.json"), all=True)
    assert [difference.place.chunk for difference in result.differences] == [(0, 0), (1, 1)]


def test_sources_of_virtual_datasets_have_other_names(tmp_path: Path) -> None:
    files = write_parts(tmp_path, 2, (2, 3))
    layout = h5py.VirtualLayout((8, 6), "i4")
    for number, path in enumerate(files):
        layout[4 * number : 4 * number + 4] = h5py.VirtualSource(path, "t", (4, 6))
    with h5py.File(tmp_path / "whole.h5", "w") as file:
        file.create_virtual_dataset("cube", layout)
    result = gridref.verify(gridref.scan(tmp_path / "whole.h5"), all=True)
    assert result.ok
    assert result.n_values == 48


def test_variables_joined_by_their_names_keep_their_axes_of_length_1(tmp_path: Path) -> None:
    values = np.arange(24, dtype="f4").reshape(2, 2, 6)
    for number, parts in enumerate(values):
        with netCDF4.Dataset(tmp_path / f"{number}.nc", "w") as file:
            for name, extent in {"time": 1, "height": 1, "x": 6}.items():
                file.createDimension(name, extent)
            file.createVariable("time", "f8", ("time",))[:] = number
            for level, part in zip((500, 850), parts, strict=True):
                one = file.createVariable(f"t_p{level}", "f4", ("time", "height", "x"), zlib=True)
                one[:] = part
    labels = {"p": "name:{variable}_p{p:d}"}
    group = gridref.build(
        sorted(tmp_path.glob("*.nc")),
        tmp_path / "cube.gridref",
        "time",
        layout=gridref.Labels(sources=labels),
    )
    assert group["t"].shape == (2, 2, 1, 6)
    result = gridref.verify(tmp_path / "cube.gridref", all=True)
    assert result.ok
    assert result.n_values == values.size + 2
    assert [path for path, _ in result.not_compared] == ["p"]
    assert "from names, attributes or options" in result.not_compared[0][1]


@pytest.mark.parametrize("what", ["v", "x"])
def test_datasets_of_one_file_have_labels_and_packing_of_their_own(
    tmp_path: Path, what: str
) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number in range(2):
            group = file.create_group(f"g{number}")
            values = np.arange(6, dtype="i2").reshape(2, 3) + number
            array = group.create_dataset("v", data=values, chunks=(1, 3))
            array.attrs["scale_factor"] = 0.5 + number * (what == "v")
            group["x"] = np.arange(3.0) + number * (what == "x")
            group["x"].make_scale("x")
            array.dims[1].attach_scale(group["x"])
    one, other = gridref.scan(tmp_path / "a.h5").groups.values()
    rows = [group.arrays["v"].with_changes(dims=("y", "x")) for group in (one, other)]
    joined = concatenate(rows, 0).with_changes(attrs=rows[0].attrs)
    result = gridref.verify(VirtualGroup({"v": joined, "x": one.arrays["x"]}), all=True)
    assert {difference.place.variable for difference in result.differences} == {what}
    right = gridref.verify(VirtualGroup({"v": rows[0], "x": one.arrays["x"]}), all=True)
    assert (right.ok, right.n_labels) == (True, 3)


def test_external_data_that_begins_like_tiff_is_not_compared(tmp_path: Path) -> None:
    (tmp_path / "raw.bin").write_bytes(b"IIxx" + bytes(60))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("t", (16,), "i4", external=[(str(tmp_path / "raw.bin"), 0, 64)])
    result = gridref.verify(gridref.scan(tmp_path / "a.h5"), all=True)
    assert result.ok
    assert [reason for _, reason in result.not_compared if "tifffile cannot open" in reason]


def test_each_chunk_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = write_parts(tmp_path, 1, (4, 6))
    array = gridref.scan(path).arrays["t"]
    rows = [isel(array, {0: slice(k, k + 1)}) for k in (0, 3, 1, 2, 0, 3)]
    cube = VirtualGroup({"t": concatenate(rows, 0)})
    reads = []
    read = OriginalFile.read

    def counted(self: OriginalFile, path: str, selection: Any = None) -> Any:
        reads.append((path, selection))
        return read(self, path, selection)

    monkeypatch.setattr(OriginalFile, "read", counted)
    said: list[tuple[int, int]] = []
    result = gridref.verify(cube, all=True, announce=lambda n, n_bytes: said.append((n, n_bytes)))
    assert result.ok
    assert result.n_values == 36
    assert len(reads) == 1
    assert said == [(1, 96)]


def write_series(folder: Path, n_files: int, n_variables: int = 3) -> list[Path]:
    """Files of several variables, all chunked along their first axis."""
    files = []
    for number in range(n_files):
        path = folder / f"series{number:02}.h5"
        with h5py.File(path, "w") as file:
            for name in range(n_variables):
                values = np.arange(24, dtype="i4").reshape(4, 6) + 100 * number + 1000 * name
                made = file.create_dataset(f"v{name}", data=values, chunks=(2, 6))
                made.dims[0].label, made.dims[1].label = "t", "x"
        files.append(path)
    return files


def test_each_file_is_opened_once_for_all_its_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_series(tmp_path, 4)
    group = gridref.concat([gridref.scan(path) for path in files], "t")
    opened: list[str] = []
    begin = OriginalFile.__init__

    def counted(self: OriginalFile, source_url: str, *args: Any, **options: Any) -> None:
        opened.append(Path(source_url).name)
        begin(self, source_url, *args, **options)

    monkeypatch.setattr(OriginalFile, "__init__", counted)
    result = gridref.verify(group, all=True)
    assert (result.ok, result.n_arrays, result.n_values) == (True, 3, 4 * 3 * 24)
    assert sorted(opened) == [path.name for path in files]


@pytest.mark.long
def test_remote_files_are_compared_at_the_same_time(tmp_path: Path) -> None:
    files = write_series(tmp_path, 12)
    contents = {f"/{path.name}": path.read_bytes() for path in files}
    site = Site(contents, {path: f'"{path}"' for path in contents}, delay_seconds=0.05)
    with serving(site):
        group = gridref.concat([gridref.scan(site.url + path) for path in contents], "t")
        site.most_at_once = 0
        assert gridref.verify(group, all=True, max_in_flight=1).ok
        alone, site.most_at_once = site.most_at_once, 0
        seen: list[tuple[int, int]] = []
        result = gridref.verify(
            group, all=True, progress=lambda done, total: seen.append((done, total))
        )
        together = site.most_at_once
        with pytest.raises(InvalidRequestError, match="max_in_flight"):
            gridref.verify(group, max_in_flight=0)
    assert result.ok
    assert result.n_values == 12 * 3 * 24
    assert seen == [(done + 1, 72) for done in range(72)]
    assert alone < 4 < together


def test_what_differs_is_listed_file_by_file_however_many_are_compared(tmp_path: Path) -> None:
    files = write_series(tmp_path, 6)
    contents = {f"/{path.name}": path.read_bytes() for path in files}
    site = Site(contents, {path: f'"{path}"' for path in contents})
    with serving(site):
        group = gridref.concat([gridref.scan(site.url + path) for path in contents], "t")
        swapped = group.with_changes(arrays={**group.arrays, "v1": group.arrays["v0"]})
        results = [gridref.verify(swapped, all=True, max_in_flight=count) for count in (1, 2, 64)]
    first = results[0]
    assert len(first.differences) == 12
    assert all(difference.place.variable == "v1" for difference in first.differences)
    assert results[1:] == [first, first]


@pytest.mark.parametrize(("codec", "is_known"), [("gzip", True), ("nobody.knows", False)])
def test_what_only_an_unknown_codec_hides_is_not_compared(
    tmp_path: Path, codec: str, is_known: bool
) -> None:
    (tmp_path / "raw.bin").write_bytes(b"IIxx" + bytes(60))  # tifffile and h5py cannot open it
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("t", (16,), "i4", external=[(str(tmp_path / "raw.bin"), 0, 64)])
    array = gridref.scan(tmp_path / "a.h5").arrays["t"]
    encoding = replace(
        array.encodings[0], codecs=(*array.encodings[0].codecs, Codec.of(codec, level=1))
    )
    group = VirtualGroup({"t": replace(array, encodings=(encoding,))})
    result = gridref.verify(group, all=True)
    assert [str(each.place.variable) for each in result.differences] == ["t"] * is_known
    assert [name for name, _ in result.not_compared] == ["t"] * (not is_known)
