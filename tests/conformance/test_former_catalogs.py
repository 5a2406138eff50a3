"""Catalogs of every released version read as they did, and `gridref.json` keeps to its schema."""

from __future__ import annotations

import copy
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given

import gridref
from gridref.api.catalog import write_catalog
from gridref.catalog.document import FORMAT_VERSION, KNOWN_FEATURES, Root, digest_of, dumped
from gridref.errors import CatalogError
from gridref.model.array import VirtualGroup
from gridref.testing.strategies import groups
from tests.conformance.second_reader import same_bits, second
from tests.shared_data import ROOT

FOLDER = ROOT / "tests" / "catalogs"
VERSIONS = sorted(path.name for path in FOLDER.iterdir() if (path / "expected.json").is_file())
SCHEMA = jsonschema.Draft202012Validator(
    json.loads((ROOT / "docs" / "catalog-format.schema.json").read_text(encoding="utf-8"))
)
PAGE = (ROOT / "docs" / "catalog-format.md").read_text(encoding="utf-8")
LACKING = {"lzf", "tas", "text"}
"""Arrays of codecs and types that the second reader lacks."""


@pytest.fixture(params=VERSIONS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of what a version wrote; the files are younger than it, as those of a checkout are."""
    copied = shutil.copytree(FOLDER / request.param, tmp_path / request.param)
    for file in copied.glob("*.h5"):
        file.touch()
    return Path(copied)


def open_catalog(folder: Path, name: str, **options: Any) -> gridref.Catalog:
    return gridref.open_catalog(folder / f"{name}.gridref", allow=folder, **options)


def test_a_version_has_catalogs() -> None:
    assert "0.1" in VERSIONS


@pytest.mark.parametrize("name", ["plain", "full"])
def test_values_are_those_that_h5py_reads_of_the_files(folder: Path, name: str) -> None:
    told = json.loads((folder / "expected.json").read_text())[name]
    catalog = open_catalog(folder, name)
    assert catalog.info.digest == told["digest"]
    expected = np.load(folder / "expected.npz")
    assert expected.keys() == {*catalog.all_arrays()}
    for path, values in expected.items():
        got = np.asarray(catalog[path][...])[: len(values)] if values.ndim else catalog[path][...]
        if values.dtype.kind == "U":
            assert got.tolist() == values.tolist()
        else:
            native = values.astype(values.dtype.newbyteorder("="))
            assert same_bits(np.asarray(got), native), path
    assert np.asarray(catalog["site/height"].attrs["limits"]).tolist() == [-np.inf, 9000]
    two = open_catalog(folder, name, snapshot="two")
    assert two.info.digest == told["digest of two"]
    assert two["tas"].shape == (9, 3, 4)
    assert [commit.operation for commit in catalog.history()][-1] == "write"


@pytest.mark.filterwarnings("error::gridref.errors.OverlayNotUsedWarning")
def test_an_overlay_is_read(folder: Path) -> None:
    catalog = open_catalog(folder, "plain", overlay=0)
    chosen = [row["layout"] for row in catalog.explain("tas").to_pylist() if row["chosen"]]
    assert chosen == ["overlay 0"]
    np.testing.assert_array_equal(catalog["tas"][...], np.load(folder / "expected.npz")["tas"])


def test_verify_finds_nothing_and_files_can_be_added(folder: Path) -> None:
    catalog = open_catalog(folder, "full")
    assert gridref.verify(folder / "full.gridref", allow=folder).ok
    grown = catalog.remove(str(folder / "2.h5")).append(str(folder / "2.h5"))
    np.testing.assert_array_equal(grown["tas"][...], catalog["tas"][...])
    assert grown.info.n_checksums == catalog.info.n_checksums > 0


def test_the_second_reader_reads_what_it_can(folder: Path) -> None:
    expected = np.load(folder / "expected.npz")
    catalog = second.Catalog(folder / "plain.gridref")
    assert {path for path in catalog.arrays if catalog.lacks(path)} == LACKING
    for path in expected.keys() - LACKING:
        assert same_bits(catalog.read(path), expected[path]), path
    with pytest.raises(second.LackingError, match="chunk-checksums"):
        second.Catalog(folder / "full.gridref")


# The schema


def test_the_schema_takes_catalogs_of_released_versions(folder: Path) -> None:
    for path in folder.glob("*.gridref/gridref.json"):
        document = json.loads(path.read_text())
        SCHEMA.validate(document)
        assert document["format_version"] == FORMAT_VERSION


@given(groups())
def test_the_schema_takes_what_is_written(group: VirtualGroup) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_catalog(group, folder)
        SCHEMA.validate(json.loads(Path(folder, "gridref.json").read_text()))


def members(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all members that the format names, of the first of each list."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield (*path, name)
            if name not in ("attributes", "configuration"):
                yield from members(value, (*path, name))
    elif isinstance(document, list) and document:
        yield from members(document[0], (*path, 0))


def opens(document: dict[str, Any], path: Path) -> bool:
    """Whether the library opens a changed document, under a right checksum."""
    unsigned = {name: value for name, value in document.items() if name != "checksum"}
    signed = unsigned | ({"checksum": digest_of(unsigned)} if "checksum" in document else {})
    try:
        snapshot = Root.from_bytes(dumped(signed), str(path)).snapshot
        for entry in snapshot.root.all_arrays().values():
            entry.described(snapshot.shared)
    except (CatalogError, KeyError, ValueError):
        return False
    return True


def test_what_the_schema_demands_is_what_the_library_demands(folder: Path) -> None:
    """Without any one member both take it or both refuse it."""
    path = folder / "full.gridref" / "gridref.json"
    document = json.loads(path.read_text())
    differ = set()
    for member in members(document):
        changed = copy.deepcopy(document)
        inner = changed
        for step in member[:-1]:
            inner = inner[step]
        del inner[member[-1]]
        if opens(changed, path) != SCHEMA.is_valid(changed):
            differ.add("/".join(map(str, member)))
    # That an overlay names no array that there is, no schema says.
    assert differ == {"snapshot/root/arrays/tas"}


def test_every_feature_is_specified() -> None:
    for feature in KNOWN_FEATURES:
        assert f'`"{feature}"`' in PAGE
