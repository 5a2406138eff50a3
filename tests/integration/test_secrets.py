"""Credentials that are given for files: where they go, and where they do not stand."""

import gzip
import json
import logging
import pickle
import traceback

import h5py
import httpx
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.api.scan import scan_many
from gridref.catalog.commit import MERGED_PARTS
from gridref.errors import GridrefError, InvalidRequestError
from gridref.faces.http import create_app
from gridref.faces.web.publishing import publish
from gridref.io import options_for
from tests.command import run_command
from tests.http_server import Site, serving
from tests.uvicorn_server import running

SECRET = "S3cr3tX"
VALUES = np.arange(12, dtype="<i4")
SHAPES = [
    f"http://me:{SECRET}@{{host}}/a.h5",
    f"http://{{host}}/a.h5?X-Amz-Credential={SECRET}%2F20260101&X-Amz-Signature={SECRET}",
    f"http://{{host}}/a.h5?sv=2022&sr=b&sig={SECRET}%3D",
    f"http://{{host}}/a.h5?Expires=1&Signature={SECRET}&Key-Pair-Id={SECRET}",
    f"http://{{host}}/a.h5?token={SECRET}",
    f"simplecache::http://{{host}}/a.h5?access_token={SECRET}",
    f"http://{{host}}/a.h5?time=2020-01-01 00:00&sig={SECRET}",
    f"http://{{host}}/a.h5?box[0]=(1, 2)>'\"&sig={SECRET}",
    f"http://me:{SECRET}@{{host}}/a.h5?a=b]&sig={SECRET} {SECRET}",
]


@pytest.fixture
def site(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("v", data=VALUES, chunks=(4,))
    with serving(Site({"/a.h5": (tmp_path / "a.h5").read_bytes()}, {"/a.h5": '"1"'})) as site:
        yield site


def written(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("shape", SHAPES)
def test_addresses_with_credentials(shape, site, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    url = shape.format(host=site.url.removeprefix("http://"))
    catalog = tmp_path / "cube.gridref"
    group = gridref.build(url, str(catalog))
    assert group["v"].read().tolist() == VALUES.tolist()
    shown = [repr(group), repr(group["v"]), repr(group["v"].manifests), repr(group.report.findings)]
    opened = gridref.open_catalog(catalog)
    assert opened["v"].read().tolist() == VALUES.tolist()
    shown += [repr(opened), repr(opened.info), repr(opened.sources().to_pydict())]
    shown += [repr(gridref.open_store(catalog)), pickle.dumps(opened).decode("latin-1")]
    with xr.open_dataset(catalog, engine="gridref") as dataset:
        shown += [repr(dataset), repr(dataset.encoding), repr(dataset["v"].encoding)]
    shown += [repr(gridref.open_virtual_dataset(url).encoding)]
    shown += [written(catalog).decode("latin-1")]
    site.forbidden.add("/a.h5")
    for fails in (lambda: gridref.scan(url), lambda: scan_many([url, url + "x"])):
        with pytest.raises(GridrefError) as raised:
            fails()
        shown += ["".join(traceback.format_exception(raised.value)), repr(raised.value)]
    shown += [record.getMessage() for record in caplog.records if record.name.startswith("gridref")]
    for number, text in enumerate(shown):
        assert SECRET not in text, number


@pytest.mark.long(but=3)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_server_of_a_catalog_that_keeps_them(shape, site, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    url = shape.format(host=site.url.removeprefix("http://"))
    gridref.build(url, str(tmp_path / "cube.gridref"), keep_secrets=True)
    foreign = gridref.open_catalog(tmp_path / "cube.gridref", allow="/nowhere")
    with running(create_app([tmp_path / "cube.gridref"])) as server:
        shown = [httpx.get(f"{server}/cube{page}").text for page in ("", "/array/v", "/chunks/v")]
        site.failing["/a.h5"] = 403
        answer = httpx.get(f"{server}/cube/portable/v/c/0")
        assert answer.status_code == 502
        page = httpx.get(f"{server}/cube/portable/v/c/0", headers={"Accept": "text/html"})
        shown += [answer.text, page.text, caplog.text]
    with pytest.raises(gridref.errors.SourceNotAllowedError, match="allow=") as raised:
        foreign["v"].read()
    shown += ["".join(traceback.format_exception(raised.value))]
    for number, text in enumerate(shown):
        assert SECRET not in text, number


@pytest.mark.parametrize("password", [f"{SECRET}/b", f"a/{SECRET}", f"{SECRET}?#", f"[{SECRET}"])
def test_a_password_that_is_not_escaped(password, site, tmp_path):
    url = f"http://me:{password}@{site.url.removeprefix('http://')}/a.h5"
    gridref.build(f"{site.url}/a.h5", str(tmp_path / "cube.gridref"))
    for fails in (
        lambda: gridref.scan(url),
        lambda: gridref.build([url, url], str(tmp_path / "c.gridref"), "time"),
        lambda: gridref.open_catalog(url),
        lambda: gridref.open_catalog(tmp_path / "cube.gridref", allow=url),
        lambda: xr.open_dataset(url, engine="gridref"),
    ):
        with pytest.raises(InvalidRequestError, match=r"cannot be read.*%2F") as raised:
            fails()
        assert SECRET not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("shape", SHAPES)
def test_what_a_catalog_says_of_its_changes(shape, tmp_path):
    site = Site()
    for day in range(3):
        name = tmp_path / f"{day}.h5"
        xr.Dataset({"v": ("time", [day])}, {"time": [day]}).to_netcdf(name, engine="h5netcdf")
        site.files[f"/{day}.h5"] = name.read_bytes()
    with serving(site):
        url = shape.format(host=site.url.removeprefix("http://"))
        files = [url.replace("a.h5", f"{day}.h5") for day in range(3)]
        gridref.build(files[:2], str(tmp_path / "cube.gridref"), "time")
        after = gridref.open_catalog(tmp_path / "cube.gridref").append(files[2])
    assert SECRET not in repr(after.history())
    assert SECRET not in repr(after.report.findings)
    assert SECRET not in written(tmp_path / "cube.gridref").decode("latin-1")
    with pytest.raises(InvalidRequestError, match="must not have a user or a query") as raised:
        publish(
            tmp_path / "cube.gridref", tmp_path / "site", base_url=f"https://{SECRET}@h/?{SECRET}"
        )
    assert SECRET not in str(raised.value)


def test_they_are_kept_where_that_is_asked_for(site, tmp_path):
    catalog = tmp_path / "cube.gridref"
    gridref.build(f"{site.url}/a.h5?token={SECRET}", str(catalog), keep_secrets=True)
    (source,) = gridref.open_catalog(catalog).source_list
    assert source.url.endswith(f"?token={SECRET}")
    assert SECRET not in repr(gridref.open_catalog(catalog).sources().to_pydict())


def test_they_are_kept_when_small_parts_of_a_catalog_become_one(tmp_path):
    catalog, site = tmp_path / "cube.gridref", Site()
    for day in range(MERGED_PARTS + 1):
        name = tmp_path / f"{day}.h5"
        xr.Dataset({"v": ("time", [day])}, {"time": [day]}).to_netcdf(name, engine="h5netcdf")
        site.files[f"/{day}.h5"] = name.read_bytes()
    with serving(site):
        first, *others = [f"{site.url}/{day}.h5" for day in range(MERGED_PARTS + 1)]
        cube = gridref.build(f"{first}?token={SECRET}", str(catalog), "time", keep_secrets=True)
        for file in others:
            cube = gridref.open_catalog(catalog).append(file)
            (kept,) = [each.url for each in cube.source_list if "/0.h5" in each.url]
            assert kept.endswith(f"?token={SECRET}"), file
    newest = max(catalog.glob("snapshot-*"), key=lambda path: path.stat().st_mtime_ns)
    assert len(json.loads(gzip.decompress(newest.read_bytes()))["snapshot"]["parts"]) < MERGED_PARTS


def test_options_are_for_what_they_were_given_for(site):
    options = {
        "https": {"headers": {"X-Key": "general"}},
        "https://a.example.org/": {"headers": {"X-Key": SECRET}},
        "https://a.example.org/deeper": {"headers": {"X-Key": "deeper"}},
    }

    def key(url):
        options_of_it = options_for(url, options)
        inner = options_of_it["https"] if "::" in url else options_of_it
        return inner.get("headers", {}).get("X-Key")

    assert key("https://a.example.org/x.nc") == SECRET
    assert key("https://a.example.org/deeper/x.nc") == "deeper"
    assert key("zip://x.nc::https://a.example.org/x.zip") == SECRET
    for other in ("https://b.example.org/x.nc", "https://a.example.org.evil.org/x.nc"):
        assert key(other) == "general"
    assert "headers" not in options_for("http://a.example.org/x.nc", options)
    assert SECRET not in str(options_for("s3://a/x", options))
    with pytest.raises(InvalidRequestError, match="beside them, anon"):
        options_for("s3://a/x", {"https://a.example.org/": {}, "anon": True})
    options = {f"{site.url}/": {"headers": {"X-Key": SECRET}}}
    assert gridref.scan(f"{site.url}/a.h5", storage_options=options)["v"].read()[3] == 3
    assert all(headers["X-Key"] == SECRET for headers in site.headers)


def test_options_stand_in_no_repr_error_or_answer(site, tmp_path, caplog):
    options = {"http": {"headers": {"X-Key": SECRET}}}
    catalog = tmp_path / "cube.gridref"
    group = gridref.build(f"{site.url}/a.h5", str(catalog), storage_options=options)
    opened = gridref.open_catalog(catalog, storage_options=options)
    shown = [repr(each) for each in (group, group["v"], opened, opened["v"], opened["v"].access)]
    with running(create_app([catalog], storage_options=options)) as url:
        site.failing["/a.h5"] = 403
        answer = httpx.get(f"{url}/cube/portable/v/c/0")
        assert answer.status_code == 502
        shown += [answer.text, str(answer.headers), httpx.get(f"{url}/metrics").text]
    with pytest.raises(GridrefError) as raised:
        opened["v"].read()
    shown += ["".join(traceback.format_exception(raised.value)), caplog.text]
    shown += [written(catalog).decode("latin-1")]
    for number, text in enumerate(shown):
        assert SECRET not in text, number


def test_options_out_of_a_file(site, tmp_path):
    path = tmp_path / "options.json"
    path.write_text(json.dumps({site.url: {"headers": {"X-Key": SECRET}}}))

    done = run_command("build", f"{site.url}/a.h5", "-o", tmp_path / "c.gridref", "-O", f"@{path}")
    assert done.returncode == 0, done.stderr
    assert site.headers
    assert all(headers["X-Key"] == SECRET for headers in site.headers)
    refused = run_command("info", tmp_path / "c.gridref", "-O", SECRET)
    assert refused.returncode == 1
    assert SECRET not in refused.stderr
    for content in ("[]", "{", None):
        path.unlink() if content is None else path.write_text(content)
        assert run_command("info", tmp_path / "c.gridref", "-O", f"@{path}").returncode == 1


@pytest.mark.parametrize("kind", ["csv", "stac"])
@pytest.mark.parametrize("href", ["gone.h5?version=2&sig={}", "./gone.h5?sv=2022&se=1&sig={}%3D"])
def test_signatures_in_relative_addresses_of_a_listing(tmp_path, kind, href):
    href = href.format(SECRET)
    if kind == "csv":
        listing = tmp_path / "files.csv"
        listing.write_text(f"path,time\n{href},1\n{href},2\n")
    else:
        listing = tmp_path / "items.json"
        items = [
            {"type": "Feature", "id": str(n), "properties": {"time": n}, "geometry": None,
             "stac_version": "1.0.0", "links": [], "assets": {"data": {"href": href}}}
            for n in (1, 2)
        ]  # fmt: skip
        listing.write_text(json.dumps({"type": "FeatureCollection", "features": items}))
    with pytest.raises(GridrefError, match=r"gone\.h5") as caught:
        gridref.build([], tmp_path / "c", "time", layout=gridref.Labels(inventory=listing))
    told = "".join(traceback.format_exception(caught.value))
    assert SECRET not in told.replace(repr(href), "")
    output = run_command(
        "build", "--inventory", listing, "--concat-dim", "time", "-o", tmp_path / "c"
    )
    assert "gone.h5" in str(output)
    assert SECRET not in str(output)
