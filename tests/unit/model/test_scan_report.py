"""Reports of many scans kept as runs of alike files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridref.model.scan_report import Fate, Finding, FindingRuns, ScanReport

findings = st.builds(
    Finding,
    st.sampled_from(["/a", "/b"]),
    st.sampled_from([Fate.TAKEN, Fate.SKIPPED]),
    st.sampled_from(["", "why"]),
    st.sampled_from(["x.nc", "y.nc"]),
)


@given(st.lists(st.lists(findings, max_size=4), max_size=6), st.integers(1, 3))
def test_joined_findings_are_those_of_the_parts(parts: list[list[Finding]], size: int) -> None:
    everything = [finding for part in parts for finding in part]
    batches = [parts[start : start + size] for start in range(0, len(parts), size)]
    joined = FindingRuns.joined([FindingRuns.joined(batch) for batch in batches])
    assert list(joined) == everything
    assert len(joined) == len(everything)
    assert [joined[place] for place in range(len(joined))] == everything
    assert joined[1:-1] == tuple(everything[1:-1])
    if everything:
        assert joined[-1] == everything[-1]
        assert joined[-len(everything)] == everything[0]
    for outside in (len(everything), -len(everything) - 1):
        with pytest.raises(IndexError):
            _ = joined[outside]


def test_alike_files_are_one_run() -> None:
    reports = []
    for n in range(1000):
        url = f"{n}.nc"
        found = (Finding("/a", Fate.TAKEN, "", url), Finding("/b", Fate.SKIPPED, "why", url))
        reports.append(ScanReport(found, 2, 10))
    joined = ScanReport.joined(reports)
    assert isinstance(joined.findings, FindingRuns)
    assert len(joined.findings.runs) == 1
    assert (joined.n_requests, joined.n_bytes) == (2000, 10_000)
    assert joined.skipped[-1] == Finding("/b", Fate.SKIPPED, "why", "999.nc")
