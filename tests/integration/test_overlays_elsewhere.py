"""Overlays on object stores, and writers that are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import gridref
from gridref.errors import OverlayNotUsedWarning, SourceChangedError
from tests.integration.test_overlays import SERIES, Cube, read_without_warnings
from tests.s3_server import s3_bucket


@pytest.fixture
def cube(tmp_path: Path) -> Cube:
    return Cube(tmp_path)


def test_an_overlay_of_local_files_on_s3(cube: Cube) -> None:
    """A call that was interrupted goes on, and objects must be the ones that were written."""

    def interrupt(done: int, of: int) -> None:
        raise KeyboardInterrupt

    with s3_bucket() as bucket:
        options = {"storage_options": bucket.options}
        where = {"to": "s3://archive/overlays"}
        with pytest.raises(KeyboardInterrupt):
            cube.open(**options).rechunk("tas", SERIES, progress=interrupt, **where)
        catalog = cube.open(**options).rechunk("tas", SERIES, **where)
        assert "1 of them by an earlier run" in catalog.report.lines[0]
        assert catalog.overlays()[0].to == "s3://archive/overlays"
        opened = cube.open(overlay=0, **options)
        np.testing.assert_array_equal(read_without_warnings(opened), cube.values)
        listed = bucket.client.list_objects_v2(Bucket="archive")["Contents"]
        shard = next(each["Key"] for each in listed if "/c." in each["Key"])
        body = bucket.client.get_object(Bucket="archive", Key=shard)["Body"].read()
        bucket.client.put_object(Bucket="archive", Key=shard, Body=body[::-1])
        with pytest.warns(OverlayNotUsedWarning, match="SourceChangedError"):
            got = cube.open(overlay=0, **options)["tas"].read()
        np.testing.assert_array_equal(got, cube.values)


def test_prune_removes_objects_on_s3_that_no_snapshot_names(cube: Cube) -> None:
    with s3_bucket() as bucket:
        options = {"storage_options": bucket.options}
        url = "s3://archive/cube.gridref"
        gridref.build([*map(str, cube.files)], url, concat_dim="time", **options)
        catalog = gridref.open_catalog(url, **options)
        catalog = catalog.rechunk("tas", SERIES).rechunk("tas", {"time": 6})
        dropped, kept = (info.id for info in catalog.overlays())
        note = f"cube.gridref/overlays/{dropped}/notes.txt"
        bucket.client.put_object(Bucket="archive", Key=note, Body=b"mine")

        def objects(overlay: str) -> list[str]:
            prefix = f"cube.gridref/overlays/{overlay}/"
            found = bucket.client.list_objects_v2(Bucket="archive", Prefix=prefix)
            return [each["Key"] for each in found.get("Contents", [])]

        assert len(objects(dropped)) == len(objects(kept)) + 1 == 3
        catalog = catalog.drop_overlay("tas", 0)
        assert catalog.prune(grace_seconds=3600).sheets == ()
        pruned = catalog.prune(grace_seconds=0)
        assert [sheet.split("/")[1] for sheet in pruned.sheets] == [dropped]
        assert (objects(dropped), len(objects(kept))) == ([note], 2)
        opened = gridref.open_catalog(url, overlay=0, **options)
        np.testing.assert_array_equal(read_without_warnings(opened), cube.values)


@pytest.mark.long
def test_a_catalog_on_s3_with_its_files_and_overlays(
    cube: Cube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridref.serve.choosing.WORTH", 100.0)  # overlays, also of so few files
    with s3_bucket() as bucket:
        options = {"storage_options": bucket.options}
        for path in cube.files:
            bucket.client.upload_file(str(path), "archive", path.name)
        files = [f"s3://archive/{path.name}" for path in cube.files]
        url = "s3://archive/cube.gridref"
        gridref.build(files, url, concat_dim="time", **options)
        catalog = gridref.open_catalog(url, **options).rechunk("tas", SERIES)
        assert catalog.overlays()[0].covered == 1
        np.testing.assert_array_equal(
            read_without_warnings(gridref.open_catalog(url, overlay=0, **options)), cube.values
        )
        # A file that was replaced behind the catalog's back: asked only if that is wanted.
        bucket.client.upload_file(str(cube.files[1]), "archive", cube.files[0].name)
        shown = gridref.open_catalog(url, **options)
        np.testing.assert_array_equal(shown["tas"][:, 3, 4], cube.values[:, 3, 4])
        with pytest.raises(SourceChangedError):
            gridref.open_catalog(url, overlay="check", **options)["tas"][:, 3, 4]


RECHUNK = """
import sys, gridref
gridref.open_catalog(sys.argv[1]).rechunk(
    "tas", {"time": -1, "lat": 5, "lon": 5}, shards={"time": -1, "lat": 5, "lon": 5}
)
"""


@pytest.mark.long
@pytest.mark.parametrize("seed", range(int(os.environ.get("N_KILLS", "2"))))
def test_a_killed_writer_is_continued(cube: Cube, seed: int) -> None:
    """SIGKILL at any moment: reads stay right, and the same call ends with the same overlay."""
    moments = random.Random(seed)
    for _ in range(4):
        writer = subprocess.Popen([sys.executable, "-c", RECHUNK, cube.url])
        time.sleep(moments.uniform(0.5, 1.6))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        np.testing.assert_array_equal(read_without_warnings(cube.open(overlay=0)), cube.values)
    catalog = cube.open().rechunk("tas", SERIES, shards={"time": -1, "lat": 5, "lon": 5})
    (info,) = catalog.overlays()
    assert (info.covered, info.n_sheets, info.n_objects) == (1, 1, 9)
    assert {path.name for path in cube.objects()[0].parent.iterdir()} == {
        "zarr.json", *(path.name for path in cube.objects())
    }  # fmt: skip
    np.testing.assert_array_equal(read_without_warnings(cube.open(overlay=0)), cube.values)
