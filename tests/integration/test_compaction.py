"""Parts of many commits become one, and the content stays what it is."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.client import AioBaseClient

import gridref
from gridref.catalog import tables as table_file
from tests.by_name import by_name
from tests.integration.growing import assert_shows, built, month, steps
from tests.s3_server import BUCKET, s3_bucket


@pytest.mark.long
def test_many_commits_leave_few_parts(tmp_path: Path) -> None:
    months = [month(tmp_path, number) for number in range(40)]
    catalog = built(months[:1], tmp_path / "cube")
    most = 0
    for file in months[1:]:
        catalog = catalog.append(file)
        most = max(most, len(catalog.parts))
    assert most < 20
    assert len(gridref.open_catalog(tmp_path / "cube").parts) == len(catalog.parts)
    assert catalog.info.digest == built(months, tmp_path / "whole").info.digest
    assert_shows(tmp_path / "cube", months)
    old = gridref.open_catalog(tmp_path / "cube", snapshot=catalog.history()[25].id)
    assert old["tas"][...].shape[0] == 5 * 15
    catalog.remove(months[3])
    assert_shows(tmp_path / "cube", months[:3] + months[4:])


def test_a_commit_is_five_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three tables, the former snapshot, the root file; also where parts become one."""
    asked: Counter[str] = Counter()
    call = getattr(AioBaseClient, "_make_api_call")  # noqa: B009 - what all requests go through

    def counted(self: Any, operation: str, sent: dict[str, Any]) -> Any:
        asked[operation] += sent.get("Key", "").startswith("cube")
        return call(self, operation, sent)

    monkeypatch.setattr("gridref.catalog.commit.MERGED_PARTS", 4)
    with s3_bucket() as bucket:
        url, options = f"s3://{BUCKET}/cube", {"storage_options": bucket.options}
        files = [steps(tmp_path, [float(number)]) for number in range(8)]
        there = [bucket.put(f"data/{file.name}", file.read_bytes()) for file in files]
        gridref.build(there[:4], url, "time", **by_name(**options))
        catalog = gridref.open_catalog(url, **options).append(there[4])
        monkeypatch.setattr(AioBaseClient, "_make_api_call", counted)
        n_read, n_parts = 0, [len(catalog.parts)]
        for file in there[5:]:
            asked.clear()
            catalog = catalog.append(file)
            n_parts.append(len(catalog.parts))
            n_read += asked.pop("GetObject", 0)
            assert +asked == Counter({"PutObject": 5})
        assert n_parts != sorted(n_parts), "parts became one"
        assert n_read <= 2, "blocks and chunks of what another call wrote"
        assert len(bucket.keys("cube/blocks-")) == 5, "what is merged right away is not written"
        again = gridref.open_catalog(url, **options)
        assert again["v"][...].tolist() == [10.0 * number for number in range(8)]


def test_tables_of_parts_are_opened_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    barrier, real = threading.Barrier(3), table_file.open_for_scan

    def together(address: str, *args: Any, **options: Any) -> Any:
        if "/blocks-" in address:
            barrier.wait(timeout=30)  # breaks where one waits for the other
        return real(address, *args, **options)

    with s3_bucket() as bucket:
        url, options = f"s3://{BUCKET}/cube", {"storage_options": bucket.options}
        files = [steps(tmp_path, [float(number)]) for number in range(3)]
        gridref.build(files[:1], url, "time", **by_name(**options))
        catalog = gridref.open_catalog(url, allow=tmp_path, **options)
        for file in files[1:]:
            catalog = catalog.append(file)
        monkeypatch.setattr(table_file, "open_for_scan", together)
        again = gridref.open_catalog(url, allow=tmp_path, **options)
        assert again["v"][...].tolist() == [0.0, 10.0, 20.0]
        assert not barrier.broken
