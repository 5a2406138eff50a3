"""Catalogs and sources that are copied and moved, by the programs that people do it with."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.errors import InvalidRequestError, SourceChangedError
from tests.by_name import by_name
from tests.http_server import Site, serving
from tests.integration.archives import assert_same_bits, flip, read_raw, write_months
from tests.integration.test_cli import run
from tests.programs import program, skip_or_fail
from tests.s3_server import BUCKET, Bucket


@pytest.fixture(scope="module")
def months(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("months")
    write_months(folder, lengths=[90, 28])
    return folder


@pytest.fixture
def folder(months: Path, tmp_path: Path) -> Path:
    return shutil.copytree(months, tmp_path / "here")


def build(folder: Path, **options: object) -> Path:
    gridref.build(folder / "*.nc", folder / "cube.gridref", "time", **by_name(**options))  # type: ignore[arg-type]
    return folder / "cube.gridref"


def assert_reads(catalog: object, folder: Path, **options: object) -> None:
    """Through our own reader, and through xarray."""
    opened = gridref.open_catalog(catalog, **options)  # type: ignore[arg-type]
    expected = read_raw(sorted(folder.glob("*.nc")), "tas", "time")
    assert_same_bits(opened["tas"].read(), expected)
    shown = xr.open_dataset(opened, engine="gridref", mask_and_scale=False)
    assert_same_bits(shown["tas"].values, expected)


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    "command", [["cp", "-r", "here", "there"], ["rsync", "-r", "here/", "there"]]
)
def test_a_relative_catalog_is_copied_with_its_files(folder: Path, command: list[str]) -> None:
    program(command[0])
    words = ["build", "*.nc", "--concat-dim", "time", "--relative", "-o", "cube.gridref"]
    assert run(*words, cwd=folder).returncode == 0
    for file in folder.glob("*.nc"):
        os.utime(file, ns=(10**18, file.stat().st_mtime_ns))
    subprocess.run(command, cwd=folder.parent, check=True)
    there = folder.parent / "there"
    shutil.rmtree(folder)
    assert {f.stat().st_mtime_ns for f in there.glob("*.nc")}
    assert_reads(there / "cube.gridref", there)
    done = run("verify", str(there / "cube.gridref"), "--all", cwd=there)
    assert done.returncode == 0, done.stdout + done.stderr


def copied(folder: Path) -> Path:
    there = folder.parent / "there"
    subprocess.run(["cp", "-r", folder, there], check=True)
    for file in there.glob("*.nc"):
        os.utime(file, ns=(10**18, 10**18))
    return there


@pytest.mark.parametrize("identity", ["size", "content"])
def test_copies_are_taken_for_the_files_that_were_scanned(folder: Path, identity: str) -> None:
    build(folder, relative=True, identity=identity)
    there = copied(folder)
    assert_reads(there / "cube.gridref", there)


def test_copies_are_refused_where_identity_is_strict(folder: Path) -> None:
    build(folder, relative=True, identity="strict")
    there = copied(folder)
    with pytest.raises(SourceChangedError, match=r"it is a copy.*identity=.size."):
        gridref.open_catalog(there / "cube.gridref")["tas"].read()
    assert_reads(there / "cube.gridref", there, identity="size")
    refused = run("verify", "cube.gridref", cwd=there)
    advice = "--identity size (gridref relocate records it)"
    assert advice in " ".join(refused.stdout.split())
    run("relocate", "cube.gridref", "--identity", "size", cwd=there).check_returncode()
    assert run("verify", "cube.gridref", cwd=there).returncode == 0
    assert_reads(there / "cube.gridref", there)


def test_a_recorded_identity_is_overridden_at_opening(folder: Path) -> None:
    build(folder, relative=True)
    there = copied(folder)
    assert gridref.open_catalog(there / "cube.gridref").snapshot.identity == "content"
    with pytest.raises(SourceChangedError):
        gridref.open_catalog(there / "cube.gridref", identity="strict")["tas"].read()
    assert_reads(there / "cube.gridref", there, identity="size")


def test_content_is_compared_where_it_is_a_copy(folder: Path) -> None:
    build(folder, relative=True)
    there = copied(folder)
    opened = gridref.open_catalog(there / "cube.gridref")
    flip(there / "month_00.nc", 9)
    with pytest.raises(SourceChangedError, match=r"its checksum was blake2b:16x4096:.*month_00"):
        opened["tas"].read()
    short = there / "month_00.nc"
    short.write_bytes((folder / "month_00.nc").read_bytes()[:-1])
    with pytest.raises(SourceChangedError, match="its size was"):
        opened["tas"].read()


def test_all_of_a_file_is_compared_where_that_was_asked_for(folder: Path) -> None:
    """Between the ranges that are sampled a change is seen by a checksum of everything only."""
    size = (folder / "month_00.nc").stat().st_size
    assert size > 16 * 4096 + 15 * 2000
    between = (size - 4096) // 15 - 100
    for identity, seen in (("content", False), ("content-all", True)):
        build(folder, relative=True, identity=identity, overwrite=True)
        there = copied(folder)
        flip(there / "month_00.nc", between)
        time = gridref.open_catalog(there / "cube.gridref")["time"]
        if seen:
            with pytest.raises(SourceChangedError, match="its checksum was blake2b:all:"):
                time.read()
        else:
            assert time.read().size == 118
        shutil.rmtree(there)


def test_what_changes_after_it_was_compared_is_compared_again(folder: Path) -> None:
    build(folder, relative=True)
    there = copied(folder)
    tas = gridref.open_catalog(there / "cube.gridref")["tas"]
    expected = tas.read()
    os.utime(there / "month_00.nc", ns=(10**18, 2 * 10**18))  # touched: the same content
    assert_same_bits(tas.read(), expected)
    flip(there / "month_00.nc", 9)
    os.utime(there / "month_00.nc", ns=(10**18, 3 * 10**18))
    with pytest.raises(SourceChangedError, match="its checksum was"):
        tas.read()


def test_files_that_are_appended_are_told_in_the_same_way(folder: Path) -> None:
    last = folder / "month_01.nc"
    shutil.move(last, folder.parent / "month_01.nc")
    build(folder, relative=True, identity="content-all")
    shutil.move(folder.parent / "month_01.nc", last)
    there = copied(folder)
    gridref.open_catalog(there / "cube.gridref").append(there / "*.nc")  # the first is a copy
    again = there.parent / "again"
    shutil.copytree(there, again, copy_function=shutil.copyfile)
    assert_reads(again / "cube.gridref", again)
    opened = gridref.open_catalog(again / "cube.gridref")
    assert [source.checksum[:12] for source in opened.source_list if source.checksum] == [
        "blake2b:all:"
    ] * 2


def test_unknown_identities(folder: Path) -> None:
    for options in ({"identity": "sise"}, {"identity": "content-some"}):
        with pytest.raises(InvalidRequestError, match="is none of"):
            build(folder, **options)
    catalog = build(folder)
    with pytest.raises(InvalidRequestError, match="did you mean 'size'"):
        gridref.open_catalog(catalog, identity="sise")  # type: ignore[arg-type]


@pytest.mark.long
def test_the_command_records_identities(folder: Path) -> None:
    names = ["month_00.nc", "month_01.nc", "--concat-dim", "time", "-o", "cube.gridref"]
    names.append("--overwrite")
    done = run("build", *names, "-q", "--relative", "--identity", "size", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert gridref.open_catalog(folder / "cube.gridref").snapshot.identity == "size"
    done = run("build", *names, "--identity", "content-all", cwd=folder)
    assert done.returncode == 0, done.stderr
    (checksum,) = {
        each.checksum and each.checksum[:12]
        for each in gridref.open_catalog(folder / "cube.gridref").source_list
    }
    assert checksum == "blake2b:all:"
    wrong = run("build", *names, "--identity", "sise", cwd=folder)
    assert wrong.returncode == 1
    assert "did you mean 'size'" in wrong.stderr


@pytest.mark.parametrize(
    ("old", "new"), [("here", "there"), ("here/", "there/"), ("here/", "there")]
)
def test_opened_with_other_prefixes(
    folder: Path, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = build(folder)
    shutil.copytree(catalog, folder.parent / "kept.gridref")
    folder.rename(folder.parent / "there")
    monkeypatch.chdir(folder.parent)
    before = sorted((folder.parent / "kept.gridref").iterdir())
    assert_reads("kept.gridref", folder.parent / "there", prefixes={old: new})
    assert sorted((folder.parent / "kept.gridref").iterdir()) == before


def test_the_longest_prefix_counts_and_only_whole_folders(tmp_path: Path) -> None:
    for name in ("a/b", "ab"):
        (tmp_path / name).mkdir(parents=True)
    files = write_months(tmp_path / "a", lengths=[5, 5, 5])
    shutil.move(files[1], tmp_path / "a" / "b" / "1.nc")
    shutil.move(files[2], tmp_path / "ab" / "2.nc")
    named = [tmp_path / "a/month_00.nc", tmp_path / "a/b/1.nc", tmp_path / "ab/2.nc"]
    gridref.build(named, tmp_path / "c.gridref", "time")
    opened = gridref.open_catalog(
        tmp_path / "c.gridref", prefixes={f"{tmp_path}/a": "/x", f"{tmp_path}/a/b": "s3://y/"}
    )
    urls = [source.url for source in opened.source_list]
    assert urls == ["/x/month_00.nc", "s3://y/1.nc", f"{tmp_path}/ab/2.nc"]


def test_prefixes_that_no_source_has(folder: Path) -> None:
    catalog = build(folder)
    with pytest.raises(InvalidRequestError, match=r"no source begins with '/nowhere'; they begin"):
        gridref.open_catalog(catalog, prefixes={"/nowhere": "/x"})
    with pytest.raises(InvalidRequestError, match="empty"):
        gridref.open_catalog(catalog, prefixes={"": "/x"})
    with pytest.raises(InvalidRequestError, match=r"no source is in '.*/sub'; there is"):
        gridref.open_catalog(catalog).relocate({f"{folder}/sub": "/x"})


def test_relocated_to_an_http_server(folder: Path) -> None:
    catalog = build(folder)
    with serving(
        Site({f"/{path.name}": path.read_bytes() for path in folder.glob("*.nc")})
    ) as server:
        done = run("relocate", str(catalog), "--from", f"{folder}/", "--to", server.url, cwd=folder)
        assert done.returncode == 0, done.stderr
        assert all(
            source.url.startswith(server.url)
            for source in gridref.open_catalog(catalog).source_list
        )
        assert_reads(catalog, folder)


def test_relocated_there_and_back_is_the_same_catalog(folder: Path) -> None:
    catalog = build(folder)
    digest = gridref.open_catalog(catalog).info.digest
    moved = (
        gridref.open_catalog(catalog)
        .relocate({str(folder): "s3://bucket/x"}, identity="size")
        .info.digest
    )
    assert moved != digest
    assert gridref.open_catalog(catalog).snapshot.identity == "size"
    back = (
        gridref.open_catalog(catalog)
        .relocate({"s3://bucket/x/": str(folder)}, identity="strict")
        .info.digest
    )
    assert back == digest
    assert_reads(catalog, folder)


def test_relocating_is_rolled_back(folder: Path) -> None:
    catalog = build(folder)
    digest = gridref.open_catalog(catalog).scan_values(["tas"]).info.digest
    gridref.open_catalog(catalog).relocate({str(folder): "s3://bucket/x"})
    moved = gridref.open_catalog(catalog)
    assert [c.operation for c in moved.history()] == ["relocate", "statistics", "write"]
    assert all(source.url.startswith("s3://bucket/x/") for source in moved.source_list)
    known = {row["path"]: row for row in moved.statistics().to_pylist()}["tas"]
    assert known["n_known"] == known["n_chunks"]  # no value is another one
    with pytest.raises(InvalidRequestError, match="no source begins with"):
        gridref.open_catalog(catalog, prefixes={str(folder): "/x"})
    back = moved.rollback()
    assert back.info.digest == digest
    assert_reads(catalog, folder)


def test_relocate_refuses_what_cannot_be_meant(folder: Path) -> None:
    catalog = str(build(folder))
    for arguments, message in (
        (["--from", "/nowhere", "--to", "/x"], "error: no source begins with '/nowhere'"),
        (["--from", "/a", "--from", "/b", "--to", "/x"], "error: 2 --from, and 1 --to"),
        ([], "error: nothing to change: say where files are now, or give --identity"),
    ):
        done = run("relocate", catalog, *arguments, cwd=folder)
        assert done.returncode == 1
        assert done.stderr.startswith(message)
        assert done.stderr.count("\n") == 1


def upload(bucket: Bucket, folder: Path, prefix: str) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            bucket.put(f"{prefix}/{path.relative_to(folder)}", path.read_bytes())


def test_a_relative_catalog_is_uploaded_and_copied_on_the_server(
    bucket: Bucket, folder: Path
) -> None:
    build(folder, relative=True)
    upload(bucket, folder, "first")
    assert_reads_remote(f"s3://{BUCKET}/first/cube.gridref", folder, bucket)
    for key in bucket.keys("first/"):
        source = {"Bucket": BUCKET, "Key": key}
        bucket.client.copy_object(
            Bucket=BUCKET, Key=key.replace("first/", "second/"), CopySource=source
        )
        bucket.client.delete_object(Bucket=BUCKET, Key=key)
    assert_reads_remote(f"s3://{BUCKET}/second/cube.gridref", folder, bucket)
    changed = bytearray((folder / "month_00.nc").read_bytes())
    changed[9] ^= 1
    bucket.put("second/month_00.nc", bytes(changed))
    with pytest.raises(SourceChangedError, match="its checksum was"):
        assert_reads_remote(f"s3://{BUCKET}/second/cube.gridref", folder, bucket)


def test_a_catalog_that_was_built_on_the_server_is_copied_there(
    bucket: Bucket, folder: Path
) -> None:
    upload(bucket, folder, "first")
    url = f"s3://{BUCKET}/first"
    gridref.build(
        f"{url}/*.nc", f"{url}/cube.gridref", "time", relative=True, storage_options=bucket.options
    )
    for key in bucket.keys("first/"):
        body = bucket.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        bucket.put(key.replace("first/", "second/"), body)
    assert_reads_remote(f"s3://{BUCKET}/second/cube.gridref", folder, bucket)


def test_a_relative_catalog_is_synced_with_the_aws_command(bucket: Bucket, folder: Path) -> None:
    aws = program("aws")
    if subprocess.run([aws, "--version"], capture_output=True, check=False).returncode:
        skip_or_fail("aws", "`aws --version` fails")
    build(folder, relative=True)
    endpoint = bucket.options["s3"]["client_kwargs"]["endpoint_url"]
    keys = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    command = [aws, "--endpoint-url", endpoint, "s3", "sync", "--quiet", "."]
    done = subprocess.run(
        [*command, f"s3://{BUCKET}/synced"],
        cwd=folder,
        env={**os.environ, **keys},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert_reads_remote(f"s3://{BUCKET}/synced/cube.gridref", folder, bucket)


def assert_reads_remote(catalog: str, folder: Path, bucket: Bucket) -> None:
    opened = gridref.open_catalog(catalog, storage_options=bucket.options)
    expected = read_raw(sorted(folder.glob("*.nc")), "tas", "time")
    got = opened["tas"].read()
    assert np.array_equal(got, expected)
