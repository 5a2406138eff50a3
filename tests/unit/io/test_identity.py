from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gridref.errors import SourceChangedError
from gridref.io.identity import check_identity, source_of_info
from gridref.model.manifest import Source


def test_the_version_of_a_remote_file() -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    assert source_of_info("u", {"size": 5, "ETag": '"abc"', "LastModified": moment}) == Source(
        "u", 5, None, '"abc"'
    )
    assert source_of_info("u", {"size": 5, "LastModified": moment}).etag == (
        "LastModified=2026-01-02T00:00:00+00:00"
    )
    assert source_of_info("u", {"size": None, "ETag": ""}) == Source("u")


@pytest.mark.parametrize(
    ("recorded", "found"),
    [
        (Source("u"), Source("u", 5, 7, "x")),
        (Source("u", 5, 7, "x"), Source("u")),
        (Source("u", 5, etag='"x"'), Source("u", 5, etag='W/"x"')),
        (Source("u", 5, etag='"x"'), Source("u", 5, etag="mtime=3")),
    ],
)
def test_what_is_not_known_or_not_comparable_does_not_count(
    recorded: Source, found: Source
) -> None:
    check_identity(recorded, found)


def test_everything_that_changed_is_said() -> None:
    with pytest.raises(SourceChangedError) as caught:
        check_identity(Source("u", 5, 1, "x"), Source("u", 6, 10**9 + 1, "y"))
    message = str(caught.value)
    assert "its size was 5 bytes, now 6" in message
    assert "1970-01-01 00:00:00.000000001 UTC, now 1970-01-01 00:00:01.000000001 UTC" in message
    assert "its version was x, now y" in message
    assert "file u" in message
