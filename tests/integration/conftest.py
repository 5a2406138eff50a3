"""Archives and servers that several modules of tests use."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.archives import month
from tests.s3_server import Bucket, s3_bucket


@pytest.fixture(scope="module")
def months(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Files of as many months as the module says."""
    folder = tmp_path_factory.mktemp("months")
    return [month(folder, number) for number in range(request.module.N_MONTHS)]


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
