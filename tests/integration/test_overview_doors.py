"""Overviews where people meet them: listed by Python, commands and pages."""

from __future__ import annotations

import json
from pathlib import Path

import httpx

from gridref.faces.http.app import create_app
from gridref.faces.picture import bytes_in_objects
from tests.command import run_command
from tests.integration.test_http_pages import BROWSER
from tests.integration.test_overlay_doors import rows_of
from tests.integration.test_overviews import Images, floats
from tests.uvicorn_server import running


def test_overviews_are_listed_with_their_size_and_whether_they_are_shown(tmp_path: Path) -> None:
    images = Images(tmp_path, floats())
    catalog = images.open().overviews("tas", levels=2)
    (found,) = catalog.list_overviews()
    assert (found.array, found.method, found.factor, found.n_levels) == ("tas", "mean", 2, 2)
    shards = [*Path(images.url, "overlays").glob("*/*/*/c.*.*.*")]  # those of labels are c.0
    assert (found.n_objects, found.to) == (len(shards), str(shards[0].parents[3]))
    assert 0 < found.n_bytes < sum(each.stat().st_size for each in shards)
    size = bytes_in_objects(found.n_bytes, found.n_objects)
    for is_shown, said in ((True, "yes"), (False, "no: files changed")):
        (listed,) = json.loads(run_command("info", images.url, "--json").stdout)["overviews"]
        assert (listed["array"], listed["is_shown"]) == ("tas", is_shown)
        shown = run_command("info", images.url, "tas").stdout
        assert f"tas: overview, mean, 2 levels by 2, {size}" in shown
        assert ("out of date and not shown" in shown) is not is_shown
        with running(create_app([images.url])) as address:
            for path in ("cube", "cube/array/tas"):
                page = httpx.get(f"{address}/{path}", headers=BROWSER).text
                assert rows_of(page, "Overviews") == [["tas", "mean, 2 levels by 2", said, size]]
            page = httpx.get(f"{address}/cube/array/y", headers=BROWSER).text
            assert rows_of(page, "Overviews") == []
        images.open().append(images.files[2])
