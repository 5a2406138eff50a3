"""What notebooks show for reports and catalogs."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import gridref
from gridref.api.catalog import Difference, Verification
from gridref.combine import Combination
from gridref.combine.report import Drift, DriftReport
from gridref.errors import Place, Problem
from gridref.model.array import VirtualGroup
from gridref.model.scan_report import Fate, Finding, ScanReport
from gridref.testing.builders import chunked_array

NASTY = "<script>alert('&')</script>"


def drifts(n: int) -> DriftReport:
    cases = {f"{NASTY} {number}": [number] for number in range(12)}
    files = tuple(f"s3://bucket/{NASTY}/{number}.nc" for number in range(12))
    return DriftReport(
        tuple(Drift.of("packing", f"/v{number}{NASTY}", cases, "widened") for number in range(n)),
        files,
    )


def combination(n: int) -> Combination:
    problem = Problem("units-differ", f"K, and {NASTY}", f"/{NASTY}", (f"/data/{NASTY}.nc",) * 5)
    group = VirtualGroup(
        {f"{NASTY}{i}": chunked_array(np.zeros(9), (2,), ("x",)) for i in range(n)}
    )
    failed = (Finding("/", Fate.FAILED, f"cut off: {NASTY}", f"/data/{NASTY}"),)
    return Combination(group, drifts(n), (problem,) * n, failed * n)


def verification(n: int) -> Verification:
    place = Place("https://me:secret@host/a.nc", f"/{NASTY}", (1, 2))
    return Verification(3, 20, 4000, (Difference(place, f"1 {NASTY}"),) * n, (("/tas", NASTY),) * n)


def scan_report(n: int) -> ScanReport:
    findings = tuple(Finding(f"/{i}", Fate.SKIPPED, NASTY, f"/data/{NASTY}") for i in range(n))
    return ScanReport(findings, drifts=drifts(n).rows())


def parsed(shown: object) -> ET.Element:
    """The HTML of something, which is well-formed XML too."""
    html = shown._repr_html_()
    assert len(html.encode()) < 30_000
    assert "<script" not in html
    return ET.fromstring(f"<div>{html}</div>")


@pytest.mark.parametrize("make", [combination, drifts, verification, scan_report])
@pytest.mark.parametrize("n", [1, 4, 300])
def test_reports_are_small_and_escaped(make, n: int) -> None:
    text = "".join(parsed(make(n)).itertext())
    assert NASTY in text
    assert "secret" not in text


def test_what_does_not_fit_is_counted() -> None:
    root = parsed(verification(300))
    differences = root.find("details/table")
    assert differences is not None
    *rows, last = differences.findall("tr")[1:]
    more = re.fullmatch(r"and (\d+) more", "".join(last.itertext()))
    assert more is not None
    assert len(rows) + int(more[1]) == 300


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (drifts(1), "12 files, 1 drift"),
        (DriftReport(), "0 files, 0 drifts"),
        (
            verification(0),
            "3 arrays, 20 chunks, 4000 values, 0 labels compared: 0 chunks and 0 labels differ",
        ),
        (scan_report(2), "2 skipped"),
        (ScanReport(), "nothing was scanned"),
        (Combination(None, drifts(1)), "12 files, 1 drift, 0 problems"),
    ],
)
def test_reports_begin_with_counts(shown: object, text: str) -> None:
    assert parsed(shown).findtext("p") == text


def test_a_plan_shows_its_problems_and_what_would_be_built(tmp_path: Path) -> None:
    root = parsed(combination(2))
    assert [each.text for each in root.iter("summary")][:3] == [
        *("Problems (2)", "Left out (2)", "Drift (24)")
    ]
    assert root.find(".//{http://www.w3.org/2000/svg}svg") is not None


def test_an_array_says_how_it_is_stored() -> None:
    array = chunked_array(np.zeros((30, 6)), (10, 4), ("time", "x"))
    rows = {row[0].text: row[1].text for row in parsed(array).iter("tr")}
    assert rows == {"blocks": "1", "stored chunks": "10 × 4", "codecs": "none"}


def test_a_catalog_says_where_it_is_and_what_it_holds(tmp_path: Path) -> None:
    gridref.build("sample_data/daily_2023-0*.nc", tmp_path / "a.gridref", "time")
    catalog = gridref.open_catalog(tmp_path / "a.gridref").tag("v1")
    rows = {row[0].text: row[1].text for row in parsed(catalog).find("table").findall("tr")}
    info = catalog.info
    assert rows == {
        "catalog": info.url,
        "snapshot": f"{info.snapshot}, v1",
        "holds": f"{info.n_chunks} stored chunks of {info.n_sources} sources",
        "written by": info.created_by,
    }
    assert parsed(catalog.report).findtext("p")
