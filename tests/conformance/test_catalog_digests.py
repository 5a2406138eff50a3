"""What archives become, to the bit: digests of the catalogs of all sample and shared files.

A digest covers every array, attribute, grid edge, encoding and chunk reference. A change that is
meant to keep what catalogs say keeps these; one that mends what they say writes the file again:

    python -m tests.conformance.test_catalog_digests
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import gridref
from gridref.api.catalog import write_catalog
from gridref.errors import GridrefError
from gridref.model.array import VirtualGroup
from gridref.model.manifest import ChunkManifest, Manifest, RunManifest, Source
from tests.shared_data import missing_reason, shared_data_folder, skip_or_fail

LEDGER = Path(__file__).with_name("catalog_digests.json")
SAMPLES = Path(__file__).parents[2] / "sample_data"
SUFFIXES = {
    *(".nc", ".nc4", ".h5", ".hdf5", ".he5", ".cdf", ".hdf", ".hdf4", ".tif", ".tiff", ".json"),
}


def test_catalogs_of_sample_data_say_what_they_said() -> None:
    expected = json.loads(LEDGER.read_text())
    found = digests(SAMPLES)
    assert len(found) > 3
    assert found == {name: expected[name] for name in found}


@pytest.mark.long
def test_catalogs_say_what_they_said() -> None:
    reason = missing_reason()
    if reason is not None:
        skip_or_fail(reason)
    expected = json.loads(LEDGER.read_text())
    found = digests(SAMPLES, shared_data_folder())
    changed = {
        name: (expected.get(name), found.get(name))
        for name in expected.keys() | found.keys()
        if expected.get(name) != found.get(name)
    }
    assert not changed, "run this module if what catalogs say was meant to change"


def digests(*roots: Path) -> dict[str, str]:
    """By file and folder of files: the digest of its catalog, or why it is refused."""
    found = {"sample_data/daily_*.nc": digest(lambda: planned(SAMPLES.glob("daily_*.nc")), SAMPLES)}
    for root in roots:
        files = sorted(path for path in root.rglob("*") if is_sample(path))
        for path in files:
            found[f"{root.name}/{path.relative_to(root)}"] = digest(partial(scanned, path), root)
        for folder in sorted({path.parent for path in files} - {SAMPLES}):
            together = [path for path in files if path.parent == folder]
            if 1 < len(together) <= 50:
                name = f"{root.name}/{folder.relative_to(root)}/"
                found[name] = digest(partial(planned, together), root)
    return found


def is_sample(path: Path) -> bool:
    return path.suffix in SUFFIXES and path.is_file()


def scanned(path: Path) -> VirtualGroup:
    return gridref.scan(path, on_unsupported="skip")


def planned(files: Iterable[Path]) -> VirtualGroup:
    return gridref.plan(
        sorted(files), scan=gridref.ScanOptions(on_unsupported="skip"), layout="first"
    ).unwrap()


def digest(read: Callable[[], VirtualGroup], root: Path) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            write_catalog(moved(read(), root), "memory://digests.gridref")
            return gridref.open_catalog("memory://digests.gridref").info.digest[7:23]
        except GridrefError as error:
            return f"refused: {error.kind}"


def moved(group: VirtualGroup, root: Path) -> VirtualGroup:
    """A group whose files have addresses and times that are the same on every machine."""

    def source(there: Source) -> Source:
        url = there.url
        for folder in (root.absolute(), root.resolve()):  # the data may lie behind a link
            url = url.replace(str(folder), f"/{root.name}")
        return replace(there, url=url, mtime_ns=None, etag=None)

    def manifest(there: Manifest) -> Manifest:
        if not isinstance(there, ChunkManifest | RunManifest):
            return there
        return there.with_sources(tuple(map(source, there.sources)))

    arrays = {
        name: array.with_changes(manifests=tuple(map(manifest, array.manifests)))
        for name, array in group.arrays.items()
    }
    groups = {name: moved(below, root) for name, below in group.groups.items()}
    return group.with_changes(arrays=arrays, groups=groups)


if __name__ == "__main__":
    found = digests(SAMPLES, shared_data_folder())
    LEDGER.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n")
