"""Lists of files: folders, servers, catalogs of others and inventories."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
import pystac
import pytest
import xarray as xr
from typer.testing import CliRunner

import gridref
from gridref.errors import GridrefError, InvalidRequestError, SourceChangedError
from gridref.faces.cli import app
from tests.by_name import by_name
from tests.s3_server import BUCKET, Bucket, s3_bucket

SCHEMA = "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size"
KEYS = ["data/day 1+a.nc", "data/day 2.nc"]
LISTED = [f"s3://{BUCKET}/{key}" for key in KEYS]
MANIFEST = f"s3://{BUCKET}/inventory/archive/all/2026-01-01T00-00Z/manifest.json"


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    with s3_bucket() as bucket:
        for number, key in enumerate(KEYS):
            path = tmp_path_factory.mktemp("s3") / "a.nc"
            xr.Dataset(
                {"t": ("time", np.arange(3.0))}, {"time": np.arange(3) + 3 * number}
            ).to_netcdf(path)
            bucket.put(key, path.read_bytes())
        yield bucket


def rows() -> list[list[str]]:
    """Every version of every object, the way S3 lists a versioned bucket."""
    return [
        [BUCKET, KEYS[0], "v2", "true", "false", "9"],
        [BUCKET, KEYS[0], "v1", "false", "false", "8"],
        [BUCKET, "data/gone.nc", "v9", "true", "true", ""],
        [BUCKET, "data/", "v3", "true", "false", "0"],
        [BUCKET, "data/readme.txt", "v4", "true", "false", "7"],
        [BUCKET, KEYS[1], "v5", "true", "false", "9"],
    ]


def inventory_parts(form: str, folder: Path) -> list[tuple[str, bytes]]:
    """The files of an inventory, two rows and four."""
    parts = []
    for number, some in enumerate((rows()[:2], rows()[2:])):
        if form == "CSV":
            lines = [[r[0], quote(r[1], safe="/").replace("%20", "+"), *r[2:]] for r in some]
            text = "\n".join(",".join(f'"{value}"' for value in line) for line in lines) + "\n"
            parts.append((f"{number}.csv.gz", gzip.compress(text.encode())))
            continue
        names = ["bucket", "key", "version_id", "is_latest", "is_delete_marker", "size"]
        frame = pd.DataFrame(some, columns=names)
        for name in names[3:5]:
            frame[name] = frame[name] == "true"
        frame.to_parquet(folder / "part.parquet")
        parts.append((f"{number}.parquet", (folder / "part.parquet").read_bytes()))
    return parts


def manifest(form: str, parts: list[tuple[str, bytes]]) -> bytes:
    document = {
        "sourceBucket": BUCKET,
        "destinationBucket": f"arn:aws:s3:::{BUCKET}",
        "version": "2016-11-30",
        "fileFormat": form,
        "fileSchema": SCHEMA if form == "CSV" else "message s3.inventory { ... }",
        "files": [
            {
                "key": f"inventory/archive/all/data/{name}",
                "size": len(data),
                "MD5checksum": hashlib.md5(data).hexdigest(),
            }
            for name, data in parts
        ],
    }
    return json.dumps(document).encode()


@pytest.mark.parametrize("form", ["CSV", "Parquet"])
def test_an_inventory_on_its_server(bucket: Bucket, tmp_path: Path, form: str) -> None:
    parts = inventory_parts(form, tmp_path)
    for name, data in parts:
        bucket.put(f"inventory/archive/all/data/{name}", data)
    bucket.put(MANIFEST.removeprefix(f"s3://{BUCKET}/"), manifest(form, parts))
    assert gridref.files_from(MANIFEST, storage_options=bucket.options) == LISTED
    catalog = tmp_path / "cube.gridref"
    group = gridref.build(
        [],
        catalog,
        "time",
        layout=gridref.Labels(inventory=MANIFEST),
        storage_options=bucket.options,
    )
    assert group["t"].shape == (6,)
    chosen = gridref.files_from(MANIFEST, match="*/day 2*", storage_options=bucket.options)
    assert chosen == LISTED[1:]


@pytest.mark.parametrize("form", ["CSV", "Parquet"])
def test_a_copied_inventory_and_files_that_are_no_more_its_own(tmp_path: Path, form: str) -> None:
    parts = inventory_parts(form, tmp_path)
    folder = tmp_path / "all"
    for name, data in parts:
        (folder / "data").mkdir(parents=True, exist_ok=True)
        (folder / "data" / name).write_bytes(data)
    (folder / "2026").mkdir()
    (folder / "2026" / "manifest.json").write_bytes(manifest(form, parts))
    assert gridref.files_from(folder / "2026" / "manifest.json") == LISTED
    (folder / "data" / parts[1][0]).write_bytes(parts[1][1][:-1])
    with pytest.raises(SourceChangedError, match="MD5"):
        gridref.files_from(folder / "2026" / "manifest.json")
    (folder / "data" / parts[1][0]).unlink()
    with pytest.raises(InvalidRequestError, match="not there"):
        gridref.files_from(folder / "2026" / "manifest.json")
    orc = manifest("ORC", parts)
    (folder / "2026" / "manifest.json").write_bytes(orc)
    with pytest.raises(InvalidRequestError, match="CSV and Parquet"):
        gridref.files_from(folder / "2026" / "manifest.json")


@pytest.fixture
def items(tmp_path: Path) -> tuple[Path, list[Path]]:
    """An item collection as pystac saves it, and its files: two bands of each of two days."""
    found, paths = [], []
    for number in range(2):
        when = pd.Timestamp("2020-01-01", tz="UTC") + pd.Timedelta(days=number)
        item = pystac.Item(f"day{number}", None, None, when.to_pydatetime(), {"run": number})
        for band in ("red", "nir"):
            path = tmp_path / f"{band}{number}.nc"
            xr.Dataset({"v": ("x", np.full(4, 10.0 * number + (band == "red")))}).to_netcdf(path)
            item.add_asset(band, pystac.Asset(path.name))
            paths.append(path)
        item.add_asset("thumbnail", pystac.Asset("thumbnail.png"))
        found.append(item)
    document = pystac.ItemCollection(found).to_dict()
    (tmp_path / "items.json").write_text(json.dumps(document))
    return tmp_path / "items.json", paths


def test_assets_of_stac_items_by_name(items: tuple[Path, list[Path]], tmp_path: Path) -> None:
    listing, paths = items
    assert gridref.files_from(listing, asset="red") == list(map(str, paths[::2]))
    assert gridref.files_from(listing, asset=["red", "nir"]) == list(map(str, paths))
    table = tmp_path / "items.parquet"
    frame = pd.DataFrame(json.loads(listing.read_text())["features"])
    frame[["id", "assets"]].to_parquet(table)
    assert gridref.files_from(table, asset="nir") == list(map(str, paths[1::2]))


def test_properties_and_assets_are_labels(items: tuple[Path, list[Path]], tmp_path: Path) -> None:
    gridref.build(
        [],
        tmp_path / "cube.gridref",
        layout=gridref.Labels(
            sources={"time": "column:datetime", "band": "column:asset"},
            inventory=items[0],
            asset=["red", "nir"],
        ),
    )
    with xr.open_dataset(tmp_path / "cube.gridref") as ds:
        assert ds["band"].values.tolist() == ["nir", "red"]
        assert ds["time"].values.astype("M8[D]").tolist() == [
            np.datetime64("2020-01-01").item(), np.datetime64("2020-01-02").item()
        ]  # fmt: skip
        assert ds["v"].isel(x=0).values.tolist() == [[0.0, 1.0], [10.0, 11.0]]


def test_a_data_frame_of_items_is_no_part_of_what_is_kept(
    items: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    frame = pd.DataFrame(
        [
            {"run": n, "assets": {"nir": {"href": str(path)}}}
            for n, path in enumerate(items[1][1::2])
        ]
    )
    catalog = tmp_path / "cube.gridref"
    gridref.build([], catalog, "run", layout=gridref.Labels(inventory=frame[:1], asset="nir"))
    gridref.open_catalog(catalog).append(
        items[1][3], layout=gridref.Labels(sources={"run": "constant:1"})
    )
    with xr.open_dataset(catalog) as ds:
        assert ds["v"].isel(x=0).values.tolist() == [0.0, 10.0]


def test_on_the_command_line(items: tuple[Path, list[Path]], tmp_path: Path) -> None:
    catalog = str(tmp_path / "cube.gridref")
    listed = ["--files-from", str(items[0]), "--asset", "red", "--asset", "nir"]
    how = ["--match", "*red*", "--stack", "run", "--pattern", "red{run:d}.nc", "-o", catalog]
    done = CliRunner().invoke(app, ["build", *listed, *how])
    assert done.exit_code == 0, (done.output, done.exception)
    with xr.open_dataset(catalog) as ds:
        assert ds["v"].isel(x=0).values.tolist() == [1.0, 11.0]
    by_table = ["--inventory", str(items[0]), "--asset", "nir", "--stack", "run"]
    done = CliRunner().invoke(app, ["plan", *by_table, "--pattern", "nir{run:d}.nc", "--json"])
    assert done.exit_code == 0, (done.output, done.exception)


def test_what_listings_lack_is_told(items: tuple[Path, list[Path]], tmp_path: Path) -> None:
    listing = items[0]
    with pytest.raises(InvalidRequestError, match=r"without the asset 'blue'.*red, nir"):
        gridref.files_from(listing, asset="blue")
    with pytest.raises(InvalidRequestError, match="say which"):
        gridref.files_from(listing)
    with pytest.raises(InvalidRequestError, match="no file, of 2, is like"):
        gridref.files_from(listing, asset="red", match="*.tif")
    document = json.loads(listing.read_text())
    document["links"] = [{"rel": "next", "href": "https://example.org/search?page=2"}]
    (tmp_path / "page.json").write_text(json.dumps(document))
    with pytest.raises(InvalidRequestError, match="one page of several"):
        gridref.files_from(tmp_path / "page.json", asset="red")
    with pytest.raises(InvalidRequestError, match="inventory="):
        gridref.plan(items[1], layout=gridref.Labels(asset="red"))


BAD: list[bytes] = [
    b"",
    b"[]",
    b"{}",
    b"null",
    b"\xff\xfe",
    b'{"assets": []}',
    b'{"fileSchema": 1}',
    b'{"fileSchema": "Key", "fileFormat": "CSV", "files": [{"key": "a"}]}',
    b'{"fileSchema": "Key", "fileFormat": "CSV", "files": []}',
    b'{"type": "FeatureCollection"}',
    b'{"type": "FeatureCollection", "features": [{}]}',
    b'{"type": "FeatureCollection", "features": 1}',
    b'{"type": "FeatureCollection", "features": [{"id": 1, "assets": 7}]}',
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_documents_that_are_something_else_end_in_errors_of_ours(
    tmp_path: Path, number: int
) -> None:
    (tmp_path / "x.json").write_bytes(BAD[number])
    with pytest.raises(GridrefError, match=r"x\.json"):
        gridref.files_from(tmp_path / "x.json")


def test_texts(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("b.nc\n\n  a.nc \nb.nc\n")
    assert gridref.files_from(tmp_path / "list.txt") == ["b.nc", "a.nc"]
    (tmp_path / "list.txt").write_text("b.nc\r\na.nc\r\n", "utf-8-sig")  # as Windows writes it
    assert gridref.files_from(tmp_path / "list.txt") == ["b.nc", "a.nc"]
    with pytest.raises(InvalidRequestError, match="cannot be read"):
        gridref.files_from(tmp_path / "none.txt")


def test_an_item_of_very_many_assets_is_refused_in_few_words(tmp_path: Path) -> None:
    assets = {f"a{number}": {"href": "f.nc"} for number in range(100_000)}
    item = {"type": "Feature", "id": "i", "properties": {}, "assets": assets}
    (tmp_path / "item.json").write_text(json.dumps(item))
    with pytest.raises(InvalidRequestError, match="a49 and 99950 more") as caught:
        gridref.files_from(tmp_path / "item.json")
    assert len(str(caught.value)) < 1000


def test_items_that_each_have_other_properties_are_refused(tmp_path: Path) -> None:
    """A table of them has as many cells as there are names times items: 1 GB for 385 kB."""
    items = [
        {
            "type": "Feature",
            "id": str(number),
            "properties": {f"{number}-{other}": 1 for other in range(30)},
            "assets": {"data": {"href": "f.nc"}},
        }
        for number in range(100)
    ]
    document = {"type": "FeatureCollection", "features": items}
    (tmp_path / "items.json").write_text(json.dumps(document))
    with pytest.raises(
        InvalidRequestError,
        match="3003 names of properties",
    ):
        gridref.files_from(tmp_path / "items.json")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("suffix", [".txt", ".csv"])
def test_texts_say_their_encoding(tmp_path: Path, encoding: str, suffix: str) -> None:
    """PowerShell writes texts in UTF-16 with a byte order mark."""
    lines = "/d/é.nc\r\n/d/b.nc\r\n"
    text = lines if suffix == ".txt" else f"path\r\n{lines}"
    path = tmp_path / f"list{suffix}"
    path.write_bytes(text.encode(encoding))
    assert gridref.files_from(path) == ["/d/é.nc", "/d/b.nc"]


def test_lines_end_where_other_programs_end_them(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("/d/a\u2028b\x0cc\x85d.nc\n/d/e.nc\n", "utf-8", newline="")
    assert gridref.files_from(path) == ["/d/a\u2028b\x0cc\x85d.nc", "/d/e.nc"]


@pytest.mark.parametrize("content", [b"a.nc\n\0b.nc\n", "a.nc\n".encode("utf-16-le")])
def test_texts_that_are_none_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "list.txt"
    path.write_bytes(content)
    with pytest.raises(InvalidRequestError, match=r"line [12] holds a NUL"):
        gridref.files_from(path)


@pytest.mark.parametrize("address", [None, np.nan, "", 7, b"a.nc", "a\0.nc"])
def test_rows_without_an_address_are_refused(tmp_path: Path, address: object) -> None:
    """They were taken for files called `nan`, `None` or `7`, and for the folder itself."""
    frame = pd.DataFrame({"path": pd.Series(["/d/a.nc", address], dtype=object)})
    with pytest.raises(InvalidRequestError, match="a row without an address"):
        gridref.files_from(frame)
    if address == "":
        (tmp_path / "list.csv").write_text("path,n\n/d/a.nc,1\n,2\n")
        with pytest.raises(InvalidRequestError, match="a row without an address"):
            gridref.files_from(tmp_path / "list.csv")


def test_listings_without_end_are_refused(tmp_path: Path, limited: Callable[[str], None]) -> None:
    """A collection of a stranger may name ``/dev/zero`` as its table."""
    limited("listing_bytes=1000")
    collection = {"assets": {"column_name": "path"}, "catalog_file": "/dev/zero"}
    (tmp_path / "esm.json").write_text(json.dumps(collection))
    with pytest.raises(InvalidRequestError, match="more than the limit listing_bytes of 1000"):
        gridref.files_from(tmp_path / "esm.json")


@pytest.fixture
def archive(tmp_path: Path) -> tuple[Path, pd.DataFrame]:
    """Files whose names say nothing, and the table of what they are."""
    rows = []
    for number, (model, member) in enumerate((m, r) for m in ("x", "y") for r in (3, 1)):
        name = f"{'dbca'[number]}.nc"
        xr.Dataset({"t": ("i", np.arange(3.0) + 10 * number)}).to_netcdf(tmp_path / name)
        start = pd.Timestamp("2001-01-01") + pd.Timedelta(days=number)
        rows.append({"path": name, "model": model, "member": member, "start": start})
    return tmp_path, pd.DataFrame(rows)


EXPECTED = np.add.outer([[10.0, 0.0], [30.0, 20.0]], np.arange(3.0))


def check(catalog: Path) -> None:
    with xr.open_dataset(catalog) as ds:
        assert ds["t"].dims == ("model", "member", "i")
        np.testing.assert_array_equal(ds["t"].values, EXPECTED)
        assert ds["model"].values.tolist() == ["x", "y"]
        assert ds["member"].values.tolist() == [1, 3]


def written(folder: Path, table: pd.DataFrame, kind: str) -> Path:
    if kind == "parquet":
        table.to_parquet(folder / "table.parquet")
        return folder / "table.parquet"
    if kind == "items":
        items = table.assign(assets=[{"data": {"href": path}} for path in table["path"]])
        items.drop(columns="path").to_parquet(folder / "items.parquet")
        return folder / "items.parquet"
    table.to_csv(folder / "table.csv.gz", index=False)
    if kind == "csv":
        return folder / "table.csv.gz"
    document = {"catalog_file": "table.csv.gz", "assets": {"column_name": "path"}}
    (folder / "collection.json").write_text(json.dumps(document))
    return folder / "collection.json"


@pytest.mark.parametrize("kind", ["csv", "parquet", "items", "intake"])
def test_columns_are_labels(archive: tuple[Path, pd.DataFrame], kind: str) -> None:
    folder, table = archive
    inventory = written(folder, table, kind)
    gridref.build(
        [], folder / "cube.gridref", ["model", "member"], layout=gridref.Labels(inventory=inventory)
    )
    check(folder / "cube.gridref")


def test_a_column_labels_stacked_files(archive: tuple[Path, pd.DataFrame]) -> None:
    folder, table = archive
    inventory = written(folder, table, "csv")
    layout = gridref.Stack("start", gridref.Labels(inventory=inventory))
    gridref.build([folder / f"{name}.nc" for name in "db"], folder / "cube.gridref", layout=layout)
    grown = gridref.open_catalog(folder / "cube.gridref").append([folder / "a.nc", folder / "c.nc"])
    assert grown["t"].shape == (4, 3)
    with xr.open_dataset(folder / "cube.gridref") as ds:
        for name, start in zip(table["path"], table["start"], strict=True):
            with xr.open_dataset(folder / name) as own:
                np.testing.assert_array_equal(ds["t"].sel(start=start), own["t"])


def test_files_that_are_listed_later_are_added(archive: tuple[Path, pd.DataFrame]) -> None:
    folder, table = archive
    inventory = written(folder, table, "csv")
    gridref.build(
        [folder / name for name in table["path"][:3]],
        folder / "cube.gridref",
        ["model", "member"],
        layout=gridref.Labels(inventory=inventory),
    )
    gridref.open_catalog(folder / "cube.gridref").append(folder / table["path"][3])
    check(folder / "cube.gridref")


def test_data_frames_and_columns_of_other_names(archive: tuple[Path, pd.DataFrame]) -> None:
    folder, table = archive
    table["path"] = [str(folder / name) for name in table["path"]]
    labels = {"model": "column:model", "member": "column:member"}
    gridref.build(
        folder / "*.nc",
        folder / "cube.gridref",
        layout=gridref.Labels(sources=labels, inventory=table),
    )
    check(folder / "cube.gridref")
    group = gridref.build(
        [],
        folder / "times.gridref",
        layout=gridref.Labels(sources={"time": "column:start"}, inventory=table),
    )
    assert group.arrays["t"].dims == ("time", "i")
    with xr.open_dataset(folder / "times.gridref") as ds:
        expected = table["start"].to_numpy("M8[ns]")
        np.testing.assert_array_equal(ds["time"].values.astype("M8[ns]"), expected)


def test_inventories_on_the_command_line(archive: tuple[Path, pd.DataFrame]) -> None:
    folder, table = archive
    inventory = str(written(folder, table, "csv"))
    arguments = ["--inventory", inventory, "--labels", "model=column:model,member=column:member"]
    done = CliRunner().invoke(app, ["build", *arguments, "-o", str(folder / "cube.gridref")])
    assert done.exit_code == 0, (done.output, done.exception)
    check(folder / "cube.gridref")


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"labels": {"run": "column:run"}}, "no column 'run': there are model, member"),
        ({"model": ["x", "", "y", "y"]}, {"labels": {"model": "column:model"}}, "has no value"),
        ({"path": ["d.nc", "b.nc", "c.nc", "q.nc"]}, {"labels": {"model": "column:model"}},
         "does not list it"),
    ],
)  # fmt: skip
def test_what_tables_lack_is_told(
    archive: tuple[Path, pd.DataFrame], change: dict[str, Any], options: Any, message: str
) -> None:
    folder, table = archive
    inventory = written(folder, table.assign(**change), "csv")
    with pytest.raises(InvalidRequestError, match=message):
        gridref.plan(folder / "*.nc", **by_name(inventory=inventory, **options))


def test_tables_without_addresses_and_labels_without_tables(
    archive: tuple[Path, pd.DataFrame],
) -> None:
    folder, table = archive
    with pytest.raises(InvalidRequestError, match="no column of addresses"):
        gridref.plan([], layout=gridref.Labels(inventory=table.drop(columns="path")))
    with pytest.raises(InvalidRequestError, match="cannot be read"):
        gridref.plan([], layout=gridref.Labels(inventory=folder / "nothing.csv"))
    with pytest.raises(InvalidRequestError, match="inventory="):
        gridref.plan(folder / "*.nc", layout=gridref.Labels(sources={"model": "column:model"}))
