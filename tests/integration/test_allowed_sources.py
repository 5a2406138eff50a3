"""What a stranger's catalog or references may read, through every door."""

import hashlib
import json
import os
import pickle

import h5py
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.api.catalog import write_catalog
from gridref.catalog.commit import write_catalog as write_catalog_with
from gridref.errors import InvalidRequestError, SourceNotAllowedError, UnsupportedFeatureError
from gridref.model.array import VirtualGroup
from gridref.model.manifest import ChunkManifest, Source
from tests.attack_doors import DOORS, RAW, told_at_a_door
from tests.command import run_command
from tests.http_server import Site, serving

VALUES = np.arange(12, dtype="<i4")


@pytest.fixture
def as_stranger(tmp_path_factory, monkeypatch):
    """Catalogs that are written before are not this user's."""

    def forget():
        monkeypatch.setenv("GRIDREF_STATE", str(tmp_path_factory.mktemp("state")))

    return forget


def file_at(path, values=VALUES):
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=values, chunks=(4,))
    return path


def catalog_of(file, address):
    gridref.build(str(file), str(address))
    return address


def naming(url, address, size=48):
    """A catalog whose one array lies at any address, which need not be there."""
    array = gridref.scan(file_at(address.parent / "of_shape.h5"))["v"]
    rows = array.manifests[0].take(np.arange(array.manifests[0].n_rows))
    manifest = ChunkManifest.from_columns([Source(url)], offset=rows.offset, length=rows.length)
    group = VirtualGroup({"v": array.with_changes(manifests=(manifest,), access=None)})
    write_catalog(group, address)
    return address


def assert_refused(read, *arguments):
    with told_at_a_door(SourceNotAllowedError) as raised:
        read(*arguments)
    return raised.value


@pytest.mark.parametrize("door", DOORS)
def test_own_catalogs_read_everything_and_those_of_strangers_what_is_allowed(
    door, tmp_path, as_stranger, monkeypatch
):
    file = file_at(tmp_path / "data" / "a.h5")
    catalog = catalog_of(file, tmp_path / "shared" / "cube.gridref")
    assert DOORS[door](catalog, "v").tolist() == VALUES.tolist()
    as_stranger()
    error = assert_refused(DOORS[door], catalog, "v")
    if isinstance(error, SourceNotAllowedError):
        for told in (str(file), str(catalog), f"allow='{tmp_path}/data/'", "GRIDREF_ALLOW"):
            assert told in str(error)
    monkeypatch.setenv("GRIDREF_ALLOW", f"https://host/x,{tmp_path}/data")
    assert DOORS[door](catalog, "v").tolist() == VALUES.tolist()


@pytest.mark.parametrize("door", DOORS)
def test_what_lies_with_the_catalog_may_be_read(door, tmp_path, as_stranger):
    catalog = catalog_of(file_at(tmp_path / "data" / "a.h5"), tmp_path / "cube.gridref")
    as_stranger()
    assert DOORS[door](catalog, "v").tolist() == VALUES.tolist()


@pytest.mark.parametrize(
    "url",
    [
        "/etc/hostname",
        "{folder}/../outside/a.h5",
        "{folder}/link.h5",
        "{folder}/linked/a.h5",
        "{folder}/.hidden/a.h5",
        "file://{outside}/a.h5",
        "simplecache::file://{outside}/a.h5",
        "simplecache::file://{folder}/a.h5",
        "dir://a.h5::file://{folder}",
        "reference://v::file://{folder}/a.json",
        "zip://a.h5::file://{outside}/a.zip",
        "zip://a.h5::file://{folder}/linked/a.zip",
        "zip://a.h5::zip://b.zip::{outside}/a.zip",
        "gridref::{outside}/a.gridref",
        "memory://elsewhere/a.h5",
        "http://169.254.169.254/latest/meta-data/",
        "http://localhost:1/a.h5",
        "https://example.org@169.254.169.254/a.h5",
    ],
)
def test_addresses_that_strangers_may_not_name(url, tmp_path, as_stranger):
    folder, outside = tmp_path / "in", tmp_path / "outside"
    file_at(outside / "a.h5")
    file_at(folder / "a.h5")
    file_at(folder / ".hidden" / "a.h5")
    os.symlink(outside / "a.h5", folder / "link.h5")
    os.symlink(outside, folder / "linked")
    catalog = naming(url.format(folder=folder, outside=outside), folder / "cube.gridref")
    as_stranger()
    with pytest.raises(SourceNotAllowedError):
        gridref.open_catalog(catalog)["v"].read()


@pytest.mark.parametrize("door", DOORS)
def test_redirects_lead_to_allowed_servers_only(door, tmp_path, as_stranger, monkeypatch):
    file = file_at(tmp_path / "a.h5")
    content = file.read_bytes()
    with serving(Site({"/a.h5": content})) as inner, serving(Site({"/a.h5": content})) as outer:
        catalog = catalog_of(f"{outer.url}/a.h5", tmp_path / "cube.gridref")
        outer.redirects["/a.h5"] = f"{inner.url}/a.h5"
        as_stranger()
        monkeypatch.setenv("GRIDREF_ALLOW", outer.url)
        assert_refused(DOORS[door], catalog, "v")
        assert inner.requests == []
        monkeypatch.setenv("GRIDREF_ALLOW", f"{outer.url},{inner.url}")
        assert DOORS[door](catalog, "v").tolist() == VALUES.tolist()


def test_two_colons_in_a_name_are_no_chain(tmp_path, as_stranger):
    """The advice for such names: aiohttp shows them unescaped to the policy."""
    content = file_at(tmp_path / "a.h5").read_bytes()
    with serving(Site({"/data/a::b.h5": content})) as site:
        write_catalog(gridref.scan(f"{site.url}/data/a%3A%3Ab.h5"), tmp_path / "a.gridref")
        as_stranger()
        opened = gridref.open_catalog(tmp_path / "a.gridref", allow=f"{site.url}/data/")
        assert opened["v"].read().tolist() == VALUES.tolist()


@pytest.mark.parametrize("door", DOORS)
def test_redirects_within_a_server_lead_to_allowed_folders_only(
    door, tmp_path, as_stranger, monkeypatch
):
    content = file_at(tmp_path / "a.h5").read_bytes()
    with serving(Site({"/pub/a.h5": content, "/priv/a.h5": content})) as site:
        catalog = catalog_of(f"{site.url}/pub/a.h5", tmp_path / "cube.gridref")
        # The last hop is back where reading is allowed: each one counts.
        site.redirects = {"/pub/a.h5": "/priv/a.h5", "/priv/a.h5": "/pub/b.h5"}
        site.files["/pub/b.h5"] = content
        as_stranger()
        monkeypatch.setenv("GRIDREF_ALLOW", f"{site.url}/pub")
        site.requests.clear()
        assert_refused(DOORS[door], catalog, "v")
        assert {path for _, path, _ in site.requests} == {"/pub/a.h5"}
        monkeypatch.setenv("GRIDREF_ALLOW", f"{site.url}/pub,{site.url}/priv")
        assert DOORS[door](catalog, "v").tolist() == VALUES.tolist()


def test_verify_follows_redirects_to_allowed_folders_only(tmp_path, as_stranger):
    content = file_at(tmp_path / "a.h5").read_bytes()
    with serving(Site({"/pub/a.h5": content, "/priv/a.h5": content})) as site:
        catalog = catalog_of(f"{site.url}/pub/a.h5", tmp_path / "cube.gridref")
        site.redirects["/pub/a.h5"] = "/priv/a.h5"
        as_stranger()
        site.requests.clear()
        with pytest.raises(SourceNotAllowedError, match="priv"):
            gridref.verify(catalog, allow=f"{site.url}/pub")
        assert {path for _, path, _ in site.requests} == {"/pub/a.h5"}
        assert gridref.verify(catalog, allow=site.url).differences == ()


def h5_naming_others(site, path):
    """A file on a server with an external link, external storage and a virtual dataset."""
    layout = h5py.VirtualLayout((12,), "<i4")
    layout[:] = h5py.VirtualSource("a.h5", "v", (12,))
    with h5py.File(path, "w", libver="latest") as file:
        file["own"] = VALUES
        file["linked"] = h5py.ExternalLink("a.h5", "v")
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("external", (12,), "<i4", external=[("raw.bin", 0, 48)])
    site.files["/pub/names.h5"] = path.read_bytes()


@pytest.mark.parametrize("name", ["linked", "virtual", "external"])
def test_files_that_a_file_names_redirect_to_allowed_folders_only(name, tmp_path):
    content = file_at(tmp_path / "a.h5").read_bytes()
    with serving(Site()) as site:
        site.files |= {"/priv/a.h5": content, "/priv/raw.bin": VALUES.tobytes()}
        h5_naming_others(site, tmp_path / "names.h5")
        site.redirects = {"/pub/a.h5": "/priv/a.h5", "/pub/raw.bin": "/priv/raw.bin"}
        url = f"{site.url}/pub/names.h5"
        group = gridref.scan(url, on_unsupported="skip")
        assert [*group.arrays] == ["own"]
        assert not [path for _, path, _ in site.requests if path.startswith("/priv")]
        with pytest.raises(UnsupportedFeatureError, match="allow="):
            gridref.scan(url)
        allowed = gridref.scan(url, allow=f"{site.url}/priv")
        assert allowed[name].read().tolist() == VALUES.tolist()


@pytest.mark.parametrize("length", [[0, 48], []])
def test_files_that_references_name_redirect_to_allowed_folders_only(length, tmp_path):
    with serving(Site({"/priv/raw.bin": VALUES.tobytes()})) as site:
        array = {
            "zarr_format": 2,
            "shape": [12],
            "chunks": [12],
            "dtype": "<i4",
            "compressor": None,
            "filters": None,
            "fill_value": 0,
            "order": "C",
        }
        refs = {".zgroup": '{"zarr_format": 2}', "v/.zarray": json.dumps(array)}
        refs["v/0"] = [f"{site.url}/pub/raw.bin", *length]
        path = tmp_path / "refs.json"
        path.write_text(json.dumps({"version": 1, "refs": refs}))
        site.redirects["/pub/raw.bin"] = "/priv/raw.bin"
        with pytest.raises(SourceNotAllowedError, match="allow="):
            gridref.scan(path, allow=f"{site.url}/pub")["v"].read()
        assert not [path for _, path, _ in site.requests if path.startswith("/priv")]
        allowed = gridref.scan(path, allow=[f"{site.url}/pub", f"{site.url}/priv"])
        assert allowed["v"].read().tolist() == VALUES.tolist()


def test_credentials_do_not_follow_redirects(tmp_path):
    content = file_at(tmp_path / "a.h5").read_bytes()
    options = {"headers": {"Authorization": "Bearer secret", "X-Api-Key": "secret"}}
    with serving(Site({"/a.h5": content})) as inner, serving(Site()) as outer:
        outer.redirects["/a.h5"] = f"{inner.url}/a.h5"
        group = gridref.scan(f"{outer.url}/a.h5", storage_options=options)
        assert group["v"].read().tolist() == VALUES.tolist()
        assert all("X-Api-Key" in headers for headers in outer.headers)
        assert inner.headers
        assert "secret" not in str(inner.headers)


def test_each_face_takes_what_is_allowed(tmp_path, as_stranger):
    catalog = catalog_of(file_at(tmp_path / "data" / "a.h5"), tmp_path / "x" / "cube.gridref")
    as_stranger()
    allow = [tmp_path / "data"]
    url = f"gridref::file://{catalog}"
    opened = (
        gridref.open_catalog(catalog, allow=allow)["v"].read,
        lambda: xr.open_zarr(gridref.open_store(catalog, allow=allow), **RAW)["v"].values,
        lambda: xr.open_zarr(url, storage_options={"allow": allow}, **RAW)["v"].values,
        lambda: xr.open_dataset(catalog, engine="gridref", allow=allow)["v"].values,
        lambda: xr.open_datatree(catalog, engine="gridref", allow=allow)["v"].values,
    )
    for read in opened:
        assert read().tolist() == VALUES.tolist()
    assert gridref.verify(catalog, allow=allow).n_chunks == 3
    with pytest.raises(SourceNotAllowedError):
        gridref.verify(catalog)
    with pytest.raises(InvalidRequestError, match="opened already"):
        gridref.open_store(gridref.open_catalog(catalog), allow=allow)


def test_groups_and_selections_of_a_catalog_may_read_no_more(tmp_path, as_stranger):
    catalog = catalog_of(file_at(tmp_path / "data" / "a.h5"), tmp_path / "x" / "cube.gridref")
    as_stranger()
    group = gridref.open_catalog(catalog)
    plain = VirtualGroup({"w": group["v"].isel(phony_dim_0=slice(0, 5))})
    for shown in (group, plain, pickle.loads(pickle.dumps(group)), gridref.concat([group], "n")):
        name = next(iter(shown.arrays))
        opened = xr.open_zarr(gridref.open_store(shown), **RAW)
        with pytest.raises(SourceNotAllowedError):
            opened[name].load()
    copied = tmp_path / "y" / "copy.gridref"
    write_catalog(group, copied)
    with pytest.raises(SourceNotAllowedError):
        gridref.open_catalog(copied)["v"].read()
    write_catalog(gridref.open_catalog(catalog, allow="*"), copied)
    assert gridref.open_catalog(copied)["v"].read().tolist() == VALUES.tolist()


def test_another_process_may_read_what_this_one_may(tmp_path, as_stranger):
    catalog = catalog_of(file_at(tmp_path / "data" / "a.h5"), tmp_path / "x" / "cube.gridref")
    url = xr.open_zarr(f"gridref::file://{catalog}", **RAW)
    engine = xr.open_dataset(catalog, engine="gridref", chunks={})
    pickled = pickle.dumps((xr.open_zarr(gridref.open_store(catalog), **RAW), url, engine))
    as_stranger()  # that process runs on a machine where nothing is remembered
    for opened in pickle.loads(pickled):
        assert opened["v"].values.tolist() == VALUES.tolist()


def test_without_a_home_only_the_process_that_built_a_catalog_trusts_it(tmp_path, monkeypatch):
    file, address = file_at(tmp_path / "data" / "a.h5"), tmp_path / "x" / "cube.gridref"
    monkeypatch.setenv("GRIDREF_STATE", os.devnull)
    built = gridref.build(str(file), address)
    for catalog in (built, gridref.build(str(file), address, overwrite=True)):
        assert catalog["v"][...].tolist() == VALUES.tolist()
    refused = run_command("verify", address)
    assert refused.returncode == 1
    assert f"--allow {tmp_path}/data/" in refused.stderr


def test_changed_tables_are_not_trusted(tmp_path):
    catalog = catalog_of(file_at(tmp_path / "x" / "a.h5"), tmp_path / "y" / "cube.gridref")
    os.rename(tmp_path / "x", tmp_path / "z")
    document = json.loads((catalog / "gridref.json").read_text())
    document["snapshot"]["prefixes"] = [f"{tmp_path}/z/"]
    del document["checksum"]
    text = json.dumps(document, separators=(",", ":"))
    document["checksum"] = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    (catalog / "gridref.json").write_text(json.dumps(document))
    with pytest.raises(SourceNotAllowedError):
        gridref.open_catalog(catalog)["v"].read()
    assert gridref.open_catalog(catalog, allow="*")["v"].read().tolist() == VALUES.tolist()


def test_in_a_home_or_the_root_only_what_lies_in_the_catalog(tmp_path, as_stranger, monkeypatch):
    catalog = catalog_of(file_at(tmp_path / "a.h5"), tmp_path / "cube.gridref")
    inner = naming(str(tmp_path / "in.gridref" / "a.h5"), tmp_path / "in.gridref")
    with h5py.File(file_at(tmp_path / "in.gridref" / "a.h5")) as file:
        assert file["v"].shape == VALUES.shape
    as_stranger()
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(SourceNotAllowedError):
        gridref.open_catalog(catalog)["v"].read()
    assert gridref.open_catalog(inner)["v"].read().shape == VALUES.shape


def references(url, folder, name="refs.json"):
    array = {
        "shape": [4], "chunks": [4], "dtype": "<i2", "fill_value": 0, "order": "C",
        "filters": None, "compressor": None, "zarr_format": 2,
    }  # fmt: skip
    refs = {".zgroup": '{"zarr_format": 2}', "v/.zarray": json.dumps(array), "v/0": [url, 0, 8]}
    path = folder / name
    path.write_text(json.dumps({"version": 1, "refs": refs}))
    return path


@pytest.mark.parametrize(
    "url",
    [
        "{outside}/a.bin",
        "../outside/a.bin",
        "link.bin",
        "file://{outside}/a.bin",
        "simplecache::file://{outside}/a.bin",
        "zip://a.bin::{outside}/a.zip",
        "http://localhost:1/a.bin",
        "memory://a.bin",
    ],
)
def test_references_name_what_is_allowed_only(url, tmp_path):
    folder, outside = tmp_path / "in", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "a.bin").write_bytes(bytes(8))
    os.symlink(outside / "a.bin", folder / "link.bin")
    path = references(url.format(outside=outside), folder)
    for read in (
        lambda: gridref.scan(path),
        lambda: gridref.build(str(path), str(folder / "cube.gridref")),
        lambda: gridref.open_virtual_dataset(path),
        lambda: gridref.plan(str(path)),
    ):
        with pytest.raises(SourceNotAllowedError, match="allow="):
            read()


def test_references_that_are_allowed(tmp_path, monkeypatch):
    folder, outside = tmp_path / "in", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "a.bin").write_bytes(bytes(range(8)))
    (folder / "b.bin").write_bytes(bytes(range(8)))
    expected = np.arange(8, dtype="u1").view("<i2").tolist()
    assert gridref.scan(references("b.bin", folder))["v"].read().tolist() == expected
    path = references(str(outside / "a.bin"), folder)
    assert gridref.scan(path, allow=outside)["v"].read().tolist() == expected
    opened = gridref.open_virtual_dataset(path, allow="*", loadable_variables=["v"])
    assert opened["v"].values.tolist() == expected
    gridref.build(str(path), str(folder / "cube.gridref"), allow=[str(outside)])
    assert gridref.open_catalog(folder / "cube.gridref")["v"].read().tolist() == expected
    monkeypatch.setenv("GRIDREF_ALLOW", str(outside))
    assert gridref.scan(path)["v"].read().tolist() == expected


@pytest.mark.long
def test_the_command_line(tmp_path):
    catalog = catalog_of(file_at(tmp_path / "data" / "a.h5"), tmp_path / "x" / "cube.gridref")
    stranger = {**os.environ, "GRIDREF_STATE": str(tmp_path / "state")}

    def run(*arguments):
        return run_command(*arguments, env=stranger)

    refused = run("verify", catalog)
    assert refused.returncode == 1
    assert f"--allow {tmp_path}/data/" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert run("verify", catalog, "--allow", tmp_path / "data").returncode == 0
    assert "1 source" in run("info", catalog).stdout
    assert "--allow" in run("build", "--help-all").stdout
    path = references(str(tmp_path / "data" / "a.h5"), tmp_path / "x")
    assert run("build", path, "-o", tmp_path / "r.gridref").returncode == 1
    allowed = run("build", path, "-o", tmp_path / "r.gridref", "--allow", tmp_path)
    assert allowed.returncode == 0


def test_globs_are_folders_and_other_ports_other_servers(tmp_path):
    content = file_at(tmp_path / "a.h5").read_bytes()
    stranger = {**os.environ, "GRIDREF_STATE": str(tmp_path / "state")}
    with serving(Site({"/a.h5": content})) as site:
        catalog = catalog_of(f"{site.url}/a.h5", tmp_path / "x" / "cube.gridref")

        def run(prefix):
            return run_command("verify", catalog, "--allow", prefix, env=stranger)

        other = run(f"{site.url.rpartition(':')[0]}/*")
        assert other.returncode == 1
        assert f"--allow {site.url}/" in other.stderr
        assert run(f"{site.url}/*").returncode == 0


def test_what_a_catalog_says_of_how_it_grows_allows_nothing(tmp_path, as_stranger):
    folder = tmp_path / "in"
    group = gridref.scan(file_at(folder / "a.h5"))
    recipe = {"concat_dim": "phony_dim_0", "allow": "*"}
    write_catalog_with(group, folder / "cube.gridref", recipe=recipe)
    (tmp_path / "secret.bin").write_bytes(bytes(8))
    path = references(str(tmp_path / "secret.bin"), folder)
    as_stranger()
    with pytest.raises(SourceNotAllowedError):
        gridref.open_catalog(folder / "cube.gridref").append(path)


def test_nothing_is_looked_at_when_a_catalog_of_a_stranger_grows(tmp_path, as_stranger):
    file = file_at(tmp_path / "data" / "a.h5")
    address = tmp_path / "x" / "cube.gridref"
    gridref.build(str(file), str(address), "phony_dim_0")
    as_stranger()
    with pytest.raises(SourceNotAllowedError):
        gridref.open_catalog(address).append(file)
