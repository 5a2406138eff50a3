"""Credentials reach those that need them, expire, and are never written or told."""

from __future__ import annotations

import gzip
import itertools
import json
import logging
import pickle
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import h5py
import httpx
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.api.scan import scan_many
from gridref.errors import GridrefError, InvalidRequestError, SourceUnavailableError
from gridref.faces.cli.options import parse_options
from gridref.faces.http import create_app
from gridref.faces.web.publishing import publish
from gridref.io import options_for
from gridref.io.credentials import Credentials
from tests.command import run_command
from tests.http_server import Site, serving
from tests.s3_server import BUCKET, SECRET, Bucket, bearer_only, guarded_s3, new_token, s3_bucket
from tests.uvicorn_server import running

SECONDS = 0.2
"""How long a credential holds, where one second would only make a test slower."""


def day_file(folder: Path, number: int) -> Path:
    """Three records of a hundred numbers; none of them is twice in any file."""
    path = folder / f"{number}.nc"
    values = 1000.0 * number + np.arange(300.0).reshape(3, 100)
    time_ = xr.Variable("time", 3 * number + np.arange(3))
    data = xr.Dataset({"v": (("time", "x"), values)}, {"time": time_})
    data.to_netcdf(path, engine="h5netcdf", encoding={"v": {"chunksizes": (1, 10)}})
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("days")
    return [day_file(folder, number) for number in range(3)]


@pytest.fixture(scope="module")
def expected(files: list[Path]) -> np.ndarray:
    parts = []
    for file in files:
        with h5py.File(file) as opened:
            parts.append(opened["v"][...])
    return np.concatenate(parts)


@pytest.fixture
def site(files: list[Path]) -> Iterator[Site]:
    contents = {f"/{file.name}": file.read_bytes() for file in files}
    with serving(Site(contents, dict.fromkeys(contents, '"1"'))) as site:
        site.refuses = bearer_only(SECONDS)
        yield site


@pytest.fixture(scope="module")
def bucket(files: list[Path]) -> Iterator[Bucket]:
    with s3_bucket() as bucket:
        for file in files:
            bucket.put(f"data/{file.name}", file.read_bytes())
        yield bucket


def bearer() -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {new_token()}"}}


def keys() -> dict[str, Any]:
    return {"key": new_token(), "secret": SECRET, "token": SECRET}


def s3_options(endpoint: str, provider: Any) -> dict[str, Any]:
    client = {"endpoint_url": endpoint, "region_name": "us-east-1"}
    return {"s3": {"credential_provider": provider, "client_kwargs": client}}


def read_for(seconds: float, array: Any, expected: np.ndarray) -> None:
    """Read one chunk after the other, and compare."""
    end = time.monotonic() + seconds
    for row in itertools.cycle(range(len(expected))):
        np.testing.assert_array_equal(array[row, 10:20], expected[row, 10:20])
        if time.monotonic() > end:
            return
        time.sleep(0.02)


def test_a_long_read_over_http(site: Site, expected: np.ndarray, tmp_path: Path) -> None:
    asked: list[float] = []

    def provider() -> dict[str, Any]:
        asked.append(time.monotonic())
        return bearer()

    site.refuses = bearer_only(1)
    options = {"http": provider}
    urls = [f"{site.url}/{number}.nc" for number in range(3)]
    catalog = tmp_path / "cube.gridref"
    gridref.build(urls, catalog, "time", storage_options=options)
    opened = gridref.open_catalog(catalog, storage_options=options)
    read_for(1.2, opened["v"], expected)
    assert 2 <= len(asked) <= 3  # once a second, whatever was read
    assert SECRET not in b"".join(p.read_bytes() for p in catalog.rglob("*.*")).decode("latin-1")


@pytest.mark.long(but=1)
@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidAccessKeyId"])
def test_a_cube_on_s3(bucket: Bucket, files: list[Path], expected: np.ndarray, code: str) -> None:
    catalog = f"s3://{BUCKET}/{code}.gridref"
    with guarded_s3(SECONDS, code) as (endpoint, refused):
        options = s3_options(endpoint, keys)
        data = f"s3://{BUCKET}/data"
        gridref.build(f"{data}/[01].nc", catalog, "time", storage_options=options)
        time.sleep(SECONDS)
        opened = gridref.open_catalog(catalog, storage_options=options)
        read_for(3 * SECONDS, opened["v"], expected[:6])
        watched = opened.watch(f"{data}/*.nc", once=True)
        assert watched.appended == (f"{data}/2.nc",)
        time.sleep(SECONDS)
        again = gridref.open_catalog(catalog, storage_options=options)
        np.testing.assert_array_equal(again["v"][...], expected)
        with pytest.raises(gridref.errors.CatalogNotFoundError):
            gridref.open_catalog(f"s3://{BUCKET}/none.gridref", storage_options=options)
    assert len(refused) >= 3


@pytest.fixture
def google(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A bucket of Google's, as gcsfs asks for its objects."""
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")  # no gRPC here
    contents = {}
    for file in files:
        about = {"bucket": "archive", "name": file.name, "etag": "1", "generation": "1"}
        about |= {"size": str(file.stat().st_size), "updated": "2026-01-01T00:00:00Z"}
        contents[f"/storage/v1/b/archive/o/{file.name}"] = json.dumps(about).encode()
        contents[f"/download/storage/v1/b/archive/o/{file.name}"] = file.read_bytes()
    with serving(Site(contents)) as site:
        yield site


@pytest.fixture
def azure(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A container of Azure's; adlfs speaks HTTPS alone, so its client is told of HTTP here."""
    spec = pytest.importorskip("adlfs.spec")
    client = spec.AIOBlobServiceClient

    def plain(account_url: str, **options: Any) -> Any:
        return client(account_url=account_url.replace("https", "http"), **options)

    monkeypatch.setattr(spec, "AIOBlobServiceClient", plain)
    contents = {f"/archive/{file.name}": file.read_bytes() for file in files}
    since = dict.fromkeys(contents, "Thu, 01 Jan 2026 00:00:00 GMT")
    with serving(Site(contents, dict.fromkeys(contents, '"1"'), since)) as site:
        yield site


def read_rows(catalog: Path, options: dict[str, Any], expected: np.ndarray) -> None:
    """Read nine rows, each of other chunks, one after the other."""
    array = gridref.open_catalog(catalog, storage_options=options)["v"]
    for row in range(len(expected)):
        np.testing.assert_array_equal(array[row], expected[row])


def test_a_long_read_from_google(google: Site, expected: np.ndarray, tmp_path: Path) -> None:
    uses: Counter[str] = Counter()

    def refuses(headers: Mapping[str, str], path: str) -> int | None:
        uses[headers["Authorization"]] += 1
        return 401 if uses[headers["Authorization"]] > 3 else None

    google.refuses = refuses
    provider = lambda: {"token": new_token()}  # noqa: E731
    options = {"gs": {"credential_provider": provider, "endpoint_url": google.url}}
    urls = [f"gs://archive/{number}.nc" for number in range(3)]
    gridref.build(urls, tmp_path / "cube.gridref", "time", storage_options=options)
    n_tokens = len(uses)
    read_rows(tmp_path / "cube.gridref", options, expected)
    assert len(uses) > n_tokens + 1
    of_grpc: dict[str, str] = {}
    options_for(urls[0], options)["token"].before_request("", "", "", of_grpc)
    assert SECRET in of_grpc["authorization"]


@pytest.mark.parametrize("name", ["token", "sas_token"])
def test_a_long_read_from_azure(
    azure: Site, expected: np.ndarray, tmp_path: Path, name: str
) -> None:
    issued: list[str] = []

    async def provider() -> dict[str, Any]:
        issued.append(new_token())
        secret = issued[-1] if name == "token" else f"?sv=2025&sig={issued[-1]}%3D"
        return {name: secret, "expires_at": datetime.now(UTC) + timedelta(milliseconds=1)}

    def refuses(headers: Mapping[str, str], path: str) -> int | None:
        sent = headers.get("Authorization", "") + path
        return None if any(token in sent for token in issued[-8:]) else 403

    azure.refuses = refuses
    host = azure.url.removeprefix("http://")
    held = {"credential_provider": provider, "account_name": "a", "account_host": host}
    urls = [f"abfs://archive/{number}.nc" for number in range(3)]
    gridref.build(urls, tmp_path / "cube.gridref", "time", storage_options={"abfs": held})
    n_issued = len(issued)
    read_rows(tmp_path / "cube.gridref", {"abfs": held}, expected)
    assert len(issued) > n_issued + 8  # the first ones are refused by now


def test_a_time_of_expiry_is_kept_to(bucket: Bucket, site: Site, expected: np.ndarray) -> None:
    def soon() -> datetime:
        return datetime.now(UTC) + timedelta(seconds=SECONDS)

    site.refuses = bearer_only(10 * SECONDS)
    with guarded_s3(2 * SECONDS) as (endpoint, refused):
        options = s3_options(endpoint, lambda: {**keys(), "Expiration": soon()})
        group = gridref.scan(f"s3://{BUCKET}/data/0.nc", storage_options=options)
        read_for(4 * SECONDS, group["v"], expected[:3])
        assert refused == []
    tokens: list[str] = []

    def counting() -> dict[str, Any]:
        tokens.append(new_token())
        return {"token": tokens[-1], "expires_at": soon()}

    group = gridref.scan(f"{site.url}/0.nc", storage_options={"http": counting})
    read_for(1.5 * SECONDS, group["v"], expected[:3])
    assert len(tokens) in (2, 3)


def test_how_a_time_of_expiry_is_written() -> None:
    moment = datetime(2126, 1, 31, 12, tzinfo=UTC)
    for written in (moment, "2126-01-31T12:00:00Z", "2126-01-31T12:00:00", moment.timestamp()):
        credentials = Credentials(lambda written=written: {"token": "x", "expiration": written})
        assert moment.timestamp() - credentials.current().renew_at == pytest.approx(60)
        assert credentials.current().options == {"token": "x"}


def test_names_of_other_libraries(bucket: Bucket, site: Site, expected: np.ndarray) -> None:
    import boto3
    from obstore.auth.boto3 import Boto3CredentialProvider

    async def awaited() -> dict[str, Any]:
        return {"access_key_id": new_token(), "secret_access_key": SECRET, "token": None}

    providers: list[Any] = [
        lambda: {"accessKeyId": new_token(), "secretAccessKey": SECRET, "sessionToken": "x"},
        lambda: {"AccessKeyId": new_token(), "SecretAccessKey": SECRET, "SessionToken": "x"},
        awaited,
        Boto3CredentialProvider(boto3.Session(new_token(), SECRET, region_name="us-east-1")),
    ]
    with guarded_s3(60) as (endpoint, _):
        for provider in providers:
            options = s3_options(endpoint, provider)
            group = gridref.scan(f"s3://{BUCKET}/data/0.nc", storage_options=options)
            np.testing.assert_array_equal(group["v"][...], expected[:3])
    for answer in (
        {"token": new_token()},
        {"params": {"sig": new_token()}},
        {"sas_token": f"?sv=1&sig={new_token()}"},
    ):
        site.refuses = bearer_only(60)
        options = {site.url: lambda answer=answer: answer}
        group = gridref.scan(f"{site.url}/0.nc", storage_options=options)
        np.testing.assert_array_equal(group["v"][...], expected[:3])


@dataclass
class Account:
    """A provider that cannot be hashed, and whose text does not say whose it is."""

    name: str

    def __call__(self) -> dict[str, Any]:
        return {"headers": {"X-Account": self.name}}

    def __repr__(self) -> str:
        return "Account()"


def test_providers_are_not_mixed_up(site: Site) -> None:
    site.refuses = lambda headers, path: None
    for name in ("ann", "bob"):
        before = len(site.headers)
        options = {"http": {"headers": {"X-Fixed": "1"}, "credential_provider": Account(name)}}
        gridref.scan(f"{site.url}/0.nc", storage_options=options)["v"].read()
        sent = site.headers[before:]
        assert {(each.get("X-Account"), each.get("X-Fixed")) for each in sent} == {(name, "1")}


def test_another_server_does_not_see_them(site: Site, files: list[Path]) -> None:
    site.refuses = lambda headers, path: None
    with serving(Site()) as first:
        first.redirects["/0.nc"] = f"{site.url}/0.nc"
        gridref.scan(f"{first.url}/0.nc", storage_options={"http": bearer})["v"].read()
        assert all(SECRET in each["Authorization"] for each in first.headers)
    assert site.headers
    assert not any("Authorization" in each for each in site.headers)


def test_every_door(site: Site, expected: np.ndarray, tmp_path: Path) -> None:
    options = {"http": {"credential_provider": bearer}}
    urls = [f"{site.url}/{number}.nc" for number in range(3)]
    catalog = tmp_path / "cube.gridref"
    gridref.build(urls, catalog, "time", storage_options=options)
    opened = xr.open_dataset(catalog, engine="gridref", storage_options=options)
    zarr = xr.open_zarr(f"gridref::file://{catalog}", chunks=None, storage_options=options)
    time.sleep(SECONDS)
    np.testing.assert_array_equal(zarr["v"].values, expected)
    time.sleep(SECONDS)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(opened))["v"].values, expected)
    with running(create_app([catalog], storage_options=options)) as url:
        for _ in range(2):
            served = xr.open_zarr(f"{url}/cube/portable", chunks=None)
            np.testing.assert_array_equal(served["v"].values, expected)
            time.sleep(SECONDS)


def test_a_file_of_options_is_read_again(site: Site, expected: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "options.json"
    holds: list[str] = []
    site.refuses = lambda headers, _: None if headers.get("Authorization") in holds else 401

    def rotate() -> dict[str, Any]:
        options = bearer()
        holds[:] = options["headers"].values()
        path.write_text(json.dumps({"http": options}))
        return options

    rotate()
    catalog = tmp_path / "cube.gridref"
    options = parse_options([f"@{path}"])
    gridref.build(f"{site.url}/0.nc", catalog, storage_options=options)
    with running(create_app([catalog], storage_options=options)) as url:
        for _ in range(2):
            rotate()
            served = xr.open_zarr(f"{url}/cube/portable", chunks=None)
            np.testing.assert_array_equal(served["v"].values, expected[:3])
        holds.clear()
        answer = httpx.get(f"{url}/cube/native/v/c/0/9")
        path.write_text("{")
        broken = httpx.get(f"{url}/cube/native/v/c/0/9")
    assert (answer.status_code, broken.status_code) == (502, 502)
    assert "(status 401), and new ones did not help" in answer.json()["reason"]
    assert SECRET not in answer.text + broken.text
    flat = tmp_path / "flat.json"
    flat.write_text(json.dumps({**rotate(), "client_kwargs": {"trust_env": False}}))
    held = options_for(f"{site.url}/0.nc", parse_options([f"@{flat}"]))
    assert held["client_kwargs"]["trust_env"] is False
    assert gridref.scan(f"{site.url}/0.nc", storage_options=parse_options([f"@{flat}"]))


def test_what_is_refused_after_all(
    site: Site, bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    shown = [repr(options_for(f"{site.url}/0.nc", {"http": bearer}))]
    site.refuses = lambda headers, path: 401
    with pytest.raises(SourceUnavailableError, match=r"status 401.*did not help") as raised:
        gridref.scan(f"{site.url}/0.nc", storage_options={"http": bearer})
    assert f"{site.url}/0.nc" in str(raised.value)
    shown.append("".join(traceback.format_exception(raised.value)))
    with guarded_s3(-1) as (endpoint, _):
        options = s3_options(endpoint, keys)
        shown.append(repr(options_for(f"s3://{BUCKET}/data/0.nc", options)))
        with pytest.raises(SourceUnavailableError, match=r"ExpiredToken.*did not help") as raised:
            gridref.scan(f"s3://{BUCKET}/data/0.nc", storage_options=options)
        assert f"s3://{BUCKET}/data/0.nc" in str(raised.value)
        shown.append("".join(traceback.format_exception(raised.value)))
    same = bearer()
    with pytest.raises(SourceUnavailableError, match="did not help") as raised:
        gridref.scan(f"{site.url}/0.nc", storage_options={"http": lambda: same})
    shown.append("".join(traceback.format_exception(raised.value)))
    shown += [each.getMessage() for each in caplog.records if each.name.startswith("gridref")]
    for number, text in enumerate(shown):
        assert SECRET not in text, number


def test_a_forbidden_file_does_not_ask_again_and_again(site: Site) -> None:
    n_asked = 0

    def provider() -> dict[str, Any]:
        nonlocal n_asked
        n_asked += 1
        return bearer()

    site.refuses = lambda headers, path: 403
    for _ in range(20):
        with pytest.raises(SourceUnavailableError, match="status 403"):
            gridref.scan(f"{site.url}/0.nc", storage_options={"http": provider})
    assert n_asked <= 4


def test_a_provider_that_fails(site: Site) -> None:
    cases: list[tuple[Any, type[GridrefError], str]] = [
        (lambda: 1 / 0, SourceUnavailableError, "credential_provider failed: ZeroDivisionError"),
        (lambda: [SECRET], InvalidRequestError, "returned list: it must return a mapping"),
        (lambda: {"token": SECRET, "expires_at": []}, InvalidRequestError, "expires_at as"),
        ({"credential_provider": SECRET}, InvalidRequestError, "is a function.*got str"),
    ]
    for provider, kind, words in cases:
        for url in (f"{site.url}/0.nc", "s3://bucket/key.nc"):
            with pytest.raises(kind, match=words) as raised:
                gridref.scan(url, storage_options={"http": provider, "s3": provider})
            assert SECRET not in "".join(traceback.format_exception(raised.value))
    answer, n_asked = bearer(), 0

    def fails_later() -> dict[str, Any]:
        nonlocal n_asked
        n_asked += 1
        if n_asked > 1:
            raise RuntimeError(f"the server for {answer['headers']['Authorization']} is down")
        return answer

    group = gridref.scan(f"{site.url}/0.nc", storage_options={"http": fails_later})
    time.sleep(SECONDS)
    with pytest.raises(SourceUnavailableError, match="RuntimeError: the server for") as raised:
        group["v"].read()
    assert SECRET not in "".join(traceback.format_exception(raised.value))
    with pytest.raises(InvalidRequestError, match="storage_options must be a mapping"):
        gridref.scan(f"{site.url}/0.nc", storage_options=bearer)  # type: ignore[arg-type]


SIGNATURE = "S3cr3tX"
VALUES = np.arange(12, dtype="<i4")
SHAPES = [
    f"http://me:{SIGNATURE}@{{host}}/a.h5",
    f"http://{{host}}/a.h5?X-Amz-Credential={SIGNATURE}%2F20260101&X-Amz-Signature={SIGNATURE}",
    f"http://{{host}}/a.h5?sv=2022&sr=b&sig={SIGNATURE}%3D",
    f"http://{{host}}/a.h5?Expires=1&Signature={SIGNATURE}&Key-Pair-Id={SIGNATURE}",
    f"http://{{host}}/a.h5?token={SIGNATURE}",
    f"simplecache::http://{{host}}/a.h5?access_token={SIGNATURE}",
    f"http://{{host}}/a.h5?time=2020-01-01 00:00&sig={SIGNATURE}",
    f"http://{{host}}/a.h5?box[0]=(1, 2)>'\"&sig={SIGNATURE}",
    f"http://me:{SIGNATURE}@{{host}}/a.h5?a=b]&sig={SIGNATURE} {SIGNATURE}",
]


@pytest.fixture
def site_of_secrets(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("v", data=VALUES, chunks=(4,))
    with serving(Site({"/a.h5": (tmp_path / "a.h5").read_bytes()}, {"/a.h5": '"1"'})) as site:
        yield site


def written(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("shape", SHAPES)
def test_addresses_with_credentials(shape, site_of_secrets, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    url = shape.format(host=site_of_secrets.url.removeprefix("http://"))
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
    site_of_secrets.forbidden.add("/a.h5")
    for fails in (lambda: gridref.scan(url), lambda: scan_many([url, url + "x"])):
        with pytest.raises(GridrefError) as raised:
            fails()
        shown += ["".join(traceback.format_exception(raised.value)), repr(raised.value)]
    shown += [record.getMessage() for record in caplog.records if record.name.startswith("gridref")]
    for number, text in enumerate(shown):
        assert SIGNATURE not in text, number


@pytest.mark.long(but=3)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_server_of_a_catalog_that_keeps_them(shape, site_of_secrets, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    url = shape.format(host=site_of_secrets.url.removeprefix("http://"))
    gridref.build(url, str(tmp_path / "cube.gridref"), keep_secrets=True)
    foreign = gridref.open_catalog(tmp_path / "cube.gridref", allow="/nowhere")
    with running(create_app([tmp_path / "cube.gridref"])) as server:
        shown = [httpx.get(f"{server}/cube{page}").text for page in ("", "/array/v", "/chunks/v")]
        site_of_secrets.failing["/a.h5"] = 403
        answer = httpx.get(f"{server}/cube/portable/v/c/0")
        assert answer.status_code == 502
        page = httpx.get(f"{server}/cube/portable/v/c/0", headers={"Accept": "text/html"})
        shown += [answer.text, page.text, caplog.text]
    with pytest.raises(gridref.errors.SourceNotAllowedError, match="allow=") as raised:
        foreign["v"].read()
    shown += ["".join(traceback.format_exception(raised.value))]
    for number, text in enumerate(shown):
        assert SIGNATURE not in text, number


@pytest.mark.parametrize(
    "password", [f"{SIGNATURE}/b", f"a/{SIGNATURE}", f"{SIGNATURE}?#", f"[{SIGNATURE}"]
)
def test_a_password_that_is_not_escaped(password, site_of_secrets, tmp_path):
    url = f"http://me:{password}@{site_of_secrets.url.removeprefix('http://')}/a.h5"
    gridref.build(f"{site_of_secrets.url}/a.h5", str(tmp_path / "cube.gridref"))
    for fails in (
        lambda: gridref.scan(url),
        lambda: gridref.build([url, url], str(tmp_path / "c.gridref"), "time"),
        lambda: gridref.open_catalog(url),
        lambda: gridref.open_catalog(tmp_path / "cube.gridref", allow=url),
        lambda: xr.open_dataset(url, engine="gridref"),
    ):
        with pytest.raises(InvalidRequestError, match=r"cannot be read.*%2F") as raised:
            fails()
        assert SIGNATURE not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("shape", SHAPES)
def test_what_a_catalog_says_of_its_changes(shape, files, tmp_path):
    with serving(Site({f"/{file.name}": file.read_bytes() for file in files})) as site:
        url = shape.format(host=site.url.removeprefix("http://"))
        urls = [url.replace("a.h5", file.name) for file in files]
        gridref.build(urls[:2], str(tmp_path / "cube.gridref"), "time")
        after = gridref.open_catalog(tmp_path / "cube.gridref").append(urls[2])
    assert SIGNATURE not in repr(after.history())
    assert SIGNATURE not in repr(after.report.findings)
    assert SIGNATURE not in written(tmp_path / "cube.gridref").decode("latin-1")
    with pytest.raises(InvalidRequestError, match="must not have a user or a query") as raised:
        publish(
            tmp_path / "cube.gridref",
            tmp_path / "site",
            base_url=f"https://{SIGNATURE}@h/?{SIGNATURE}",
        )
    assert SIGNATURE not in str(raised.value)


def test_they_are_kept_where_that_is_asked_for(site_of_secrets, tmp_path):
    catalog = tmp_path / "cube.gridref"
    gridref.build(f"{site_of_secrets.url}/a.h5?token={SIGNATURE}", str(catalog), keep_secrets=True)
    (source,) = gridref.open_catalog(catalog).source_list
    assert source.url.endswith(f"?token={SIGNATURE}")
    assert SIGNATURE not in repr(gridref.open_catalog(catalog).sources().to_pydict())


def test_they_are_kept_when_small_parts_of_a_catalog_become_one(tmp_path, monkeypatch):
    monkeypatch.setattr("gridref.catalog.commit.MERGED_PARTS", 4)
    catalog, site = tmp_path / "cube.gridref", Site()
    for day in range(5):
        name = tmp_path / f"{day}.h5"
        xr.Dataset({"v": ("time", [day])}, {"time": [day]}).to_netcdf(name, engine="h5netcdf")
        site.files[f"/{day}.h5"] = name.read_bytes()
    with serving(site):
        first, *others = [f"{site.url}/{day}.h5" for day in range(5)]
        cube = gridref.build(f"{first}?token={SIGNATURE}", str(catalog), "time", keep_secrets=True)
        for file in others:
            cube = gridref.open_catalog(catalog).append(file)
            (kept,) = [each.url for each in cube.source_list if "/0.h5" in each.url]
            assert kept.endswith(f"?token={SIGNATURE}"), file
    newest = max(catalog.glob("snapshot-*"), key=lambda path: path.stat().st_mtime_ns)
    assert len(json.loads(gzip.decompress(newest.read_bytes()))["snapshot"]["parts"]) < 4


def test_options_are_for_what_they_were_given_for(site_of_secrets):
    options = {
        "https": {"headers": {"X-Key": "general"}},
        "https://a.example.org/": {"headers": {"X-Key": SIGNATURE}},
        "https://a.example.org/deeper": {"headers": {"X-Key": "deeper"}},
    }

    def key(url):
        options_of_it = options_for(url, options)
        inner = options_of_it["https"] if "::" in url else options_of_it
        return inner.get("headers", {}).get("X-Key")

    assert key("https://a.example.org/x.nc") == SIGNATURE
    assert key("https://a.example.org/deeper/x.nc") == "deeper"
    assert key("zip://x.nc::https://a.example.org/x.zip") == SIGNATURE
    for other in ("https://b.example.org/x.nc", "https://a.example.org.evil.org/x.nc"):
        assert key(other) == "general"
    assert "headers" not in options_for("http://a.example.org/x.nc", options)
    assert SIGNATURE not in str(options_for("s3://a/x", options))
    with pytest.raises(InvalidRequestError, match="beside them, anon"):
        options_for("s3://a/x", {"https://a.example.org/": {}, "anon": True})
    options = {f"{site_of_secrets.url}/": {"headers": {"X-Key": SIGNATURE}}}
    assert gridref.scan(f"{site_of_secrets.url}/a.h5", storage_options=options)["v"].read()[3] == 3
    assert all(headers["X-Key"] == SIGNATURE for headers in site_of_secrets.headers)


def test_options_stand_in_no_repr_error_or_answer(site_of_secrets, tmp_path, caplog):
    options = {"http": {"headers": {"X-Key": SIGNATURE}}}
    catalog = tmp_path / "cube.gridref"
    group = gridref.build(f"{site_of_secrets.url}/a.h5", str(catalog), storage_options=options)
    opened = gridref.open_catalog(catalog, storage_options=options)
    shown = [repr(each) for each in (group, group["v"], opened, opened["v"], opened["v"].access)]
    with running(create_app([catalog], storage_options=options)) as url:
        site_of_secrets.failing["/a.h5"] = 403
        answer = httpx.get(f"{url}/cube/portable/v/c/0")
        assert answer.status_code == 502
        shown += [answer.text, str(answer.headers), httpx.get(f"{url}/metrics").text]
    with pytest.raises(GridrefError) as raised:
        opened["v"].read()
    shown += ["".join(traceback.format_exception(raised.value)), caplog.text]
    shown += [written(catalog).decode("latin-1")]
    for number, text in enumerate(shown):
        assert SIGNATURE not in text, number


def test_options_out_of_a_file(site_of_secrets, tmp_path):
    path = tmp_path / "options.json"
    path.write_text(json.dumps({site_of_secrets.url: {"headers": {"X-Key": SIGNATURE}}}))

    done = run_command(
        "build", f"{site_of_secrets.url}/a.h5", "-o", tmp_path / "c.gridref", "-O", f"@{path}"
    )
    assert done.returncode == 0, done.stderr
    assert site_of_secrets.headers
    assert all(headers["X-Key"] == SIGNATURE for headers in site_of_secrets.headers)
    refused = run_command("info", tmp_path / "c.gridref", "-O", SIGNATURE)
    assert refused.returncode == 1
    assert SIGNATURE not in refused.stderr
    for content in ("[]", "{", None):
        path.unlink() if content is None else path.write_text(content)
        assert run_command("info", tmp_path / "c.gridref", "-O", f"@{path}").returncode == 1


@pytest.mark.parametrize("kind", ["csv", "stac"])
@pytest.mark.parametrize("href", ["gone.h5?version=2&sig={}", "./gone.h5?sv=2022&se=1&sig={}%3D"])
def test_signatures_in_relative_addresses_of_a_listing(tmp_path, kind, href):
    href = href.format(SIGNATURE)
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
    assert SIGNATURE not in told.replace(repr(href), "")
    output = run_command(
        "build", "--inventory", listing, "--concat-dim", "time", "-o", tmp_path / "c"
    )
    assert "gone.h5" in str(output)
    assert SIGNATURE not in str(output)
