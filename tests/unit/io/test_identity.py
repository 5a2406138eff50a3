from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from gridref.errors import SourceChangedError
from gridref.io.identity import check_identity, source_of_info, tags_of
from gridref.model.manifest import Source

JULY, AUGUST = "Wed, 01 Jul 2026 00:00:00 GMT", "Sat, 01 Aug 2026 00:00:00 GMT"
BOTH = f'"x", Last-Modified={JULY}'


def test_the_version_of_a_remote_file() -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    assert source_of_info("u", {"size": 5, "ETag": '"abc"', "LastModified": moment}) == Source(
        "u", 5, None, '"abc"'
    )
    assert source_of_info("u", {"size": 5, "LastModified": moment}).etag == (
        "LastModified=2026-01-02T00:00:00+00:00"
    )
    assert source_of_info("u", {"size": None, "ETag": ""}) == Source("u")
    assert source_of_info("u", {"ETag": '"x"', "Last-Modified": JULY}).etag == BOTH
    assert tags_of(BOTH) == {"ETag": '"x"', "Last-Modified": JULY}
    assert tags_of(f"Last-Modified={JULY}") == {"Last-Modified": JULY}
    assert tags_of(None) == {}


@pytest.mark.parametrize(
    ("recorded", "found"),
    [
        (Source("u"), Source("u", 5, 7, "x")),
        (Source("u", 5, 7, "x"), Source("u")),
        (Source("u", 5, etag='"x"'), Source("u", 5, etag='W/"x"')),
        (Source("u", 5, etag='"x"'), Source("u", 5, etag="mtime=3")),
        (Source("/u", 5, etag=BOTH), Source("/u", 5, 7)),
        (Source("/u", 5, 7), Source("http://u", 5, etag=BOTH)),
        (Source("http://u", 5, etag='"x"'), Source("http://u", 5, etag=BOTH)),
        (Source("http://u", 5, etag=f"Last-Modified={JULY}"), Source("http://u", 5, etag=BOTH)),
        (Source("s3://u", 5, etag=BOTH), Source("s3://u", 5, etag='"x"')),
        (Source("http://u", 5, etag=BOTH, told_by="size"), Source("http://u", 5)),
    ],
)
def test_what_is_not_known_or_not_comparable_does_not_count(
    recorded: Source, found: Source
) -> None:
    check_identity(recorded, found)


@pytest.mark.parametrize(
    ("recorded", "found", "message"),
    [
        (BOTH, f'"y", Last-Modified={JULY}', 'its version was "x", now "y"'),
        (BOTH, f'"x", Last-Modified={AUGUST}', f"its Last-Modified was {JULY}, now {AUGUST}"),
        (BOTH, '"x"', f"its Last-Modified was {JULY}, and now the server states none"),
        (BOTH, f"Last-Modified={JULY}", 'its version was "x", and now the server states none'),
        (BOTH, None, 'its version was "x", and now the server states none; its Last-Modified'),
        (f"Last-Modified={JULY}", f'"x", Last-Modified={AUGUST}', "its Last-Modified was"),
    ],
)
def test_tags_that_the_scan_had_are_there_and_the_same(
    recorded: str, found: str | None, message: str
) -> None:
    with pytest.raises(SourceChangedError, match=re.escape(message)):
        check_identity(Source("https://u", 5, etag=recorded), Source("https://u", 5, etag=found))


def test_everything_that_changed_is_said() -> None:
    with pytest.raises(SourceChangedError) as caught:
        check_identity(Source("u", 5, 1, "x"), Source("u", 6, 10**9 + 1, "y"))
    message = str(caught.value)
    assert "its size was 5 bytes, now 6" in message
    assert "1970-01-01 00:00:00.000000001 UTC, now 1970-01-01 00:00:01.000000001 UTC" in message
    assert "its version was x, now y" in message
    assert "file u" in message
