"""DMR++ documents as hints: a scan finds the same with and without them, in fewer rounds."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

import gridref
from gridref.model.array import VirtualGroup
from gridref.model.scan_report import Fate
from tests.cold_scans import all_caches, described_group
from tests.dmrpp_files import write_dmrpp
from tests.http_server import Site, serving

NAME = "/granule.h5"


@pytest.fixture(scope="module")
def granule(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file whose metadata are all over it."""
    path = tmp_path_factory.mktemp("granule") / "granule.h5"
    values = np.random.default_rng(1).integers(0, 99, (64, 512), "i4")
    with h5py.File(path, "w") as file:
        for each in range(24):
            chunks = (16, 256) if each % 3 else None
            dataset = file.create_dataset(f"g{each % 5}/v{each}", data=values, chunks=chunks)
            dataset.attrs["units"] = "m"
    return path


@pytest.fixture(scope="module")
def site(granule: Path) -> Iterator[Site]:
    with serving(Site({NAME: granule.read_bytes()})) as site:
        yield site


def scanned(site: Site, document: bytes | None, hints: str = "dmrpp") -> VirtualGroup:
    """What a first scan finds."""
    for clear in all_caches():
        clear()
    site.files.pop(f"{NAME}.dmrpp", None)
    if document is not None:
        site.files[f"{NAME}.dmrpp"] = document
    site.requests.clear()
    return gridref.scan(f"{site.url}{NAME}", hints=hints)


def complaints(group: VirtualGroup) -> list[str]:
    return [finding.reason for finding in group.report if finding.fate is Fate.SKIPPED]


def test_the_same_is_found_in_fewer_rounds(site: Site, granule: Path) -> None:
    without = scanned(site, None)
    document = write_dmrpp(granule).read_bytes()
    never_asked = scanned(site, document, hints="none")
    assert not any(".dmrpp" in path for _, path, _ in site.requests)
    hinted = scanned(site, document)
    assert described_group(hinted) == described_group(without) == described_group(never_asked)
    assert list(hinted.report) == list(without.report)
    # All that the scan asks for after the document is asked for at once.
    site.delay_seconds = 0.05
    site.most_at_once = 0
    try:
        scanned(site, document)
        assert site.most_at_once >= 8
        site.most_at_once = 0
        scanned(site, None)
        assert site.most_at_once < 8
    finally:
        site.delay_seconds = 0


WRONG = {
    "no XML": (lambda text: text[: len(text) // 2], "not XML"),
    "a document type": (lambda text: text.replace("?>", "?><!DOCTYPE x>", 1), "document type"),
    "beyond the end": (
        lambda text: re.sub(r'offset="\d+"', 'offset="999999999999"', text),
        "beyond the end",
    ),
    "not a number": (lambda text: re.sub(r'nBytes="\d+"', 'nBytes="many"', text), "many"),
    "elsewhere": (
        lambda text: re.sub(r'offset="(\d+)"', lambda m: f'offset="{int(m[1]) - 64}"', text),
        "is elsewhere",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_document_is_reported_and_changes_nothing(
    site: Site, granule: Path, wrong: str
) -> None:
    change, reason = WRONG[wrong]
    without = scanned(site, None)
    document = write_dmrpp(granule).read_text(encoding="latin-1")
    hinted = scanned(site, change(document).encode("latin-1"))
    assert described_group(hinted) == described_group(without)
    complaint = next(iter(complaints(hinted)))
    assert complaint.startswith("granule.h5.dmrpp does not fit the file: ")
    assert reason in complaint


def test_mutated_documents_change_nothing(site: Site, granule: Path) -> None:
    without = described_group(scanned(site, None))
    document = bytearray(write_dmrpp(granule).read_bytes())
    pick = random.Random(7)
    for _ in range(20):
        mutated = document.copy()
        for _ in range(pick.randint(1, 8)):
            mutated[pick.randrange(len(mutated))] = pick.choice(b'0123456789<>/"x \xff\0')
        assert described_group(scanned(site, bytes(mutated))) == without


def test_a_folder_without_documents_is_asked_once(site: Site, granule: Path) -> None:
    names = [f"/plain/{number}.h5" for number in range(3)]
    site.files |= dict.fromkeys(names, granule.read_bytes())
    site.requests.clear()
    run = gridref.RunOptions(max_in_flight=1)
    scan = gridref.ScanOptions(hints="dmrpp")
    gridref.plan([site.url + name for name in names], layout=gridref.Stack("n"), scan=scan, run=run)
    assert sum(".dmrpp" in path for _, path, _ in site.requests) == 1


def test_local_files_take_no_hints(granule: Path) -> None:
    document = write_dmrpp(granule)
    document.write_bytes(b"wrong")
    assert not complaints(gridref.scan(granule, hints="dmrpp"))
