"""One layout by its number: through xarray's engine, Zarr stores, addresses, HTTP and exports."""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import httpx
import numpy as np
import pytest
import xarray as xr
import zarr

import gridref
from gridref.errors import InvalidRequestError, NotRepresentableError, OverlayNotUsedWarning
from gridref.faces.http import create_app
from gridref.faces.picture import human_bytes
from tests.command import run_command
from tests.integration.test_http_pages import BROWSER
from tests.integration.test_icechunk import opened as session_of
from tests.integration.test_overlays import SERIES, Cube
from tests.uvicorn_server import running


@pytest.fixture(scope="module")
def cube(tmp_path_factory: pytest.TempPathFactory) -> Cube:
    """A cube with an overlay of series, and one of blocks."""
    cube = Cube(tmp_path_factory.mktemp("cube"))
    cube.open().rechunk("tas", SERIES).rechunk("tas", {"time": 6, "lat": 4, "lon": 7})
    return cube


def lengths(variable: xr.DataArray) -> tuple[tuple[int, ...], ...]:
    """Chunk lengths of a variable that was opened with ``chunks={}``."""
    assert variable.chunks is not None
    return variable.chunks


def zarr_by_address(url: str, **options: Any) -> xr.Dataset:
    return xr.open_zarr(f"gridref::file://{url}", storage_options=options, chunks={})


def zarr_by_store(url: str, **options: Any) -> xr.Dataset:
    return xr.open_zarr(gridref.open_store(url, **options), chunks={})


def engine(url: str, **options: Any) -> xr.Dataset:
    return xr.open_dataset(url, engine="gridref", chunks={}, **options)


def tree(url: str, **options: Any) -> xr.Dataset:
    return xr.open_datatree(url, engine="gridref", chunks={}, **options).to_dataset()


def opened(url: str, **options: Any) -> xr.Dataset:
    return gridref.open_catalog(url).to_xarray(chunks={}, **options)


@pytest.mark.parametrize("door", [engine, tree, opened, zarr_by_store, zarr_by_address])
def test_an_overlay_by_its_number_gives_chunks_and_values(
    cube: Cube, door: Callable[..., xr.Dataset]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shown = {which: door(cube.url, overlay=which)["tas"] for which in (0, 1, "none", "check")}
    for variable in shown.values():
        np.testing.assert_array_equal(variable.values, cube.values)
    assert lengths(shown["check"]) == lengths(shown["none"]) == lengths(door(cube.url)["tas"])
    for which, chunks in ((0, (24, 5, 5)), (1, (6, 4, 7))):
        pieces = zip(lengths(shown[which]), chunks, cube.values.shape, strict=True)
        assert all(max(along) == extent or max(along) % n == 0 for along, n, extent in pieces)


def test_dask_gets_chunks_of_an_overlay(cube: Cube) -> None:
    assert lengths(engine(cube.url)["tas"]) == ((4,) * 6, (12,), (14,))
    assert lengths(engine(cube.url, overlay=0)["tas"]) == ((24,), (12,), (14,))  # a shard
    asked = xr.open_dataset(cube.url, engine="gridref", overlay=0, chunks={"lat": "auto"})
    np.testing.assert_array_equal(asked["tas"].values, cube.values)


def test_pieces_of_the_direct_view_are_whole_chunks_of_an_overlay(
    cube: Cube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridref.serve.grids.SUPER_CHUNK_BYTES", 24 * 5 * 10 * 4)
    for options, pieces in (({}, ((4,) * 6, (12,), (14,))), ({"overlay": 0}, (24, 5, 10))):
        shown = lengths(zarr_by_store(cube.url, **options)["tas"])
        assert tuple(max(along) for along in shown) == tuple(map(np.max, pieces))


def test_what_is_opened_reads_the_overlay_that_was_asked_for(tmp_path: Path) -> None:
    cube = Cube(tmp_path)
    catalog = cube.open().rechunk("tas", SERIES)
    without = catalog.to_xarray(overlay="none")
    with_it = cube.open(overlay="none").to_xarray(overlay=0)
    for path in cube.objects():
        path.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(without["tas"].values, cube.values)
    with pytest.warns(OverlayNotUsedWarning, match=catalog.overlays()[0].id):
        np.testing.assert_array_equal(with_it["tas"].values, cube.values)


def test_pickles_keep_the_overlay(cube: Cube) -> None:
    store = gridref.open_store(cube.url, overlay=1)
    again = pickle.loads(pickle.dumps(store))
    assert again == store != gridref.open_store(cube.url)
    filesystem = fsspec.filesystem("gridref", fo=cube.url, overlay=1)
    for each in (
        xr.open_zarr(again),
        xr.open_zarr(pickle.loads(pickle.dumps(filesystem)).get_mapper()),
    ):
        np.testing.assert_array_equal(each["tas"].values, cube.values)
    for space in (again.space, pickle.loads(pickle.dumps(filesystem)).space):
        assert [each.is_forced for each in space.group["tas"].overlays] == [True]


# One layout alone: chunks as they are stored in it


def native(url: str, path: Path, **options: Any) -> zarr.Array:
    """The native view of a store."""
    return zarr.open_group(gridref.open_store(url, "native", **options), mode="r")["tas"]


def served(url: str, path: Path, **options: Any) -> zarr.Array:
    """The native view over HTTP, all of which is read before the server goes."""
    with running(create_app([url], **options)) as address:
        array = zarr.open_group(f"{address}/cube/native", mode="r")["tas"]
        return zarr.create_array({}, data=array[...], chunks=array.chunks)


def kerchunk(url: str, path: Path, **options: Any) -> zarr.Array:
    """References to the chunks, read by fsspec."""
    document = gridref.open_catalog(url, **options).export(None, zarr_format=3)
    filesystem = fsspec.filesystem("reference", fo=document, asynchronous=True)
    return zarr.open_group(zarr.storage.FsspecStore(filesystem, read_only=True), mode="r")["tas"]


def icechunk(url: str, path: Path, **options: Any) -> zarr.Array:
    """References in an Icechunk repository."""
    gridref.open_catalog(url, **options).export(path, to="icechunk")
    return zarr.open_group(session_of(path).store, mode="r")["tas"]


@pytest.mark.parametrize("door", [native, served, kerchunk, icechunk])
def test_an_overlay_by_its_number_is_shown_as_it_is_stored(
    cube: Cube, tmp_path: Path, door: Callable[..., zarr.Array]
) -> None:
    for options, chunks in (({}, (1, 12, 14)), ({"overlay": 0}, (24, 5, 5))):
        shown = door(cube.url, tmp_path / str(len(options)), **options)
        assert shown.chunks == chunks
        np.testing.assert_array_equal(shown[...], cube.values)


def test_clients_choose_an_overlay_by_the_address(cube: Cube) -> None:
    catalog = cube.open()
    catalog.tag("before")
    with running(create_app([cube.url])) as address, httpx.Client(base_url=address) as client:

        def chunks(name: str, view: str = "native") -> tuple[int, ...]:
            array = zarr.open_group(f"{address}/{name}/{view}", mode="r")["tas"]
            np.testing.assert_array_equal(array[...], cube.values)
            return array.chunks

        assert chunks("cube") == chunks("cube@overlay=none") == (1, 12, 14)
        assert chunks("cube@overlay=0") == chunks("cube@before@overlay=0") == (24, 5, 5)
        assert chunks("cube@overlay=1") == (6, 4, 7)
        assert chunks("cube@overlay=0", "portable") == (24, 15, 15)  # its shards
        shown = client.get("/cube/native/tas/zarr.json", params={"overlay": "0"})
        assert shown.json() == client.get("/cube@overlay=0/native/tas/zarr.json").json()
        series = [
            client.get("/cube/series/tas?at=:,3,4", params={"overlay": each}).text
            for each in ("none", "0")
        ]
        assert series[0].splitlines()[1:] == series[1].splitlines()[1:]
        refusals = {"2": "no array of cube has an overlay 2"}
        refusals |= dict.fromkeys(("best", "", "-1", "9" * 5000), "must be")
        for asked, reason in refusals.items():
            refused = client.get("/cube/native/tas/zarr.json", params={"overlay": asked})
            assert (refused.status_code, reason in refused.text) == (400, True), refused.text


def test_commands_name_an_overlay(cube: Cube, tmp_path: Path) -> None:
    done = run_command("export", cube.url, str(tmp_path / "refs.json"), "--overlay", "1")
    assert done.returncode == 0, done.stderr
    filesystem = fsspec.filesystem("reference", fo=str(tmp_path / "refs.json"), asynchronous=True)
    shown = zarr.open_group(zarr.storage.FsspecStore(filesystem, read_only=True), mode="r")["tas"]
    assert shown.chunks == (6, 4, 7)
    np.testing.assert_array_equal(shown[...], cube.values)
    with pytest.raises(InvalidRequestError, match="overlay=2 is of no array"):
        cube.open(overlay=2).export(tmp_path / "none.json")
    assert not (tmp_path / "none.json").exists()


def test_an_overlay_of_several_sheets(tmp_path: Path) -> None:
    """Appended steps are in a sheet of their own, whose chunks follow those of the first."""
    cube = Cube(tmp_path)
    cube.open().rechunk("tas", {"time": 4, "lat": 4, "lon": 7})
    more = np.arange(4 * 12 * 14, dtype="f4").reshape(4, 12, 14)
    cube.open().append(cube.write(6, more))
    with pytest.raises(NotRepresentableError, match=r"overlay \w+ holds 85.7 % of its elements"):
        zarr.open_group(gridref.open_store(cube.url, "native", overlay=0), mode="r")
    shown = gridref.open_store(cube.url, overlay=0, view="portable")
    whole = np.concatenate([cube.values, more])
    np.testing.assert_array_equal(xr.open_zarr(shown)["tas"].values, whole)
    assert cube.open().rechunk("tas").overlays()[0].n_sheets == 2
    shown = zarr.open_group(gridref.open_store(cube.url, "native", overlay=0), mode="r")["tas"]
    assert shown.chunks == (4, 4, 7)
    np.testing.assert_array_equal(shown[...], whole)


@pytest.mark.parametrize("door", [engine, zarr_by_store, zarr_by_address])
def test_unknown_choices_are_refused(cube: Cube, door: Callable[..., xr.Dataset]) -> None:
    with pytest.raises(InvalidRequestError, match="overlay"):
        door(cube.url, overlay="sometimes")


def test_files_and_groups_in_memory_have_no_overlays(cube: Cube) -> None:
    with pytest.raises(InvalidRequestError, match="overlay= is for catalogs"):
        xr.open_dataset(cube.files[0], engine="gridref", overlay=0)
    with pytest.raises(InvalidRequestError, match="overlay=0 is for catalogs"):
        gridref.open_store(gridref.scan(cube.files[0]), overlay=0)


# What lists them


def rows_of(page: str, title: str = "Overlays") -> list[list[str]]:
    """Cells of the table below a title of a page."""
    table = page.partition(f"<h2>{title}</h2>")[2].partition("</table>")[0]
    rows = table.partition("<tbody>")[2].split("<tr>")[1:]
    return [re.findall(r"<t[hd][^>]*>([^<]*)", row) for row in rows]


def test_pages_list_the_overlays_of_an_array(tmp_path: Path) -> None:
    cube = Cube(tmp_path)
    catalog = cube.open().rechunk("tas", SERIES)
    catalog = catalog.rechunk("tas", {"time": 6}, where={"lat": slice(3, 6)})
    first = catalog.overlays()[0]
    size = f"{human_bytes(first.n_bytes)} in 1 object"
    with running(create_app([cube.url])) as address:
        for path in ("cube", "cube/array/tas"):
            rows = rows_of(httpx.get(f"{address}/{path}", headers=BROWSER).text)
            assert rows[0] == ["tas 0", "allx5x5", "all", "100 %", size]
            assert rows[1][:4] == ["tas 1", "6xanyxany", "lat 3 to 6", "33.3 %"]
        assert rows_of(httpx.get(f"{address}/cube/array/lat", headers=BROWSER).text) == []
