"""Archives and servers that several modules of tests use."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.archives import month
from tests.s3_server import Bucket, s3_bucket


@pytest.fixture(scope="module")
def months(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Files of as many months as the module says."""
    folder = tmp_path_factory.mktemp("months")
    return [month(folder, number) for number in range(request.module.N_MONTHS)]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A Dask cluster of two processes, for all modules: starting one takes seconds."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(cluster: Any) -> Iterator[Any]:
    with cluster.get_client() as client:
        yield client


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    """A bucket of a server of its own."""
    with s3_bucket() as bucket:
        yield bucket


@pytest.fixture
def quiet_tifffile() -> Iterator[None]:
    """Without what tifffile logs of files that are odd on purpose."""
    logging.getLogger("tifffile").disabled = True
    yield
    logging.getLogger("tifffile").disabled = False
