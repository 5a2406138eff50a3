"""What a server's messages may show; no server needed."""

import pytest

from gridref.errors import Place, SourceNotAllowedError, SourceUnavailableError
from gridref.faces.http.requests import Preconditions, UnsatisfiableError, parse_range
from gridref.faces.http.site import public_text


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (
            SourceUnavailableError("gone: '/my data/x/a.nc'", Place(source="/my data/x/a.nc")),
            "gone: 'a.nc' [file a.nc]",
        ),
        (SourceUnavailableError("cannot read file:///srv/x/a.nc"), "cannot read a.nc"),
        (SourceUnavailableError("no https://u:p@h/x/a.nc?k=1"), "no https://h/x/a.nc"),
        (SourceNotAllowedError("say allow='/srv/x'", Place(source="/srv/x/a.nc")), "see --allow"),
        (FileNotFoundError(2, "No such file", "/my data/b/root.json"), "'root.json'"),
    ],
)
def test_folders_of_this_machine_are_not_shown(error, shown):
    assert public_text(error).endswith(shown)


def test_ranges_are_cut_and_merged():
    assert parse_range("bytes=0-4,10-12", 100) == ((0, 5), (10, 13))
    assert parse_range("bytes=10-12,0-4", 100) == ((10, 13), (0, 5))
    assert parse_range("bytes=0-4,4-9,200-", 100) == ((0, 10),)
    assert parse_range(None, 100) is None
    with pytest.raises(UnsatisfiableError):
        parse_range("bytes=0-0", 0)


def test_tags():
    assert Preconditions({"if-match": '"a", "b"'}, "b").status is None
    assert Preconditions({"if-range": "*"}, "b").range_counts is False
