"""Kinds of errors and causes of problems are names that others rely on: only ever added."""

from __future__ import annotations

import inspect
import pickle

import pytest

from gridref import errors
from gridref.errors import (
    PROBLEM_CAUSES,
    CombineError,
    FilesFailedError,
    GridrefError,
    InvalidRequestError,
    Place,
    Problem,
)

KINDS = {
    "BlockPendingError": "block-pending",
    "CatalogConflictError": "catalog-conflict",
    "CatalogCorruptError": "catalog-corrupt",
    "CatalogError": "catalog",
    "CatalogNotFoundError": "catalog-not-found",
    "CatalogVersionError": "catalog-version",
    "CombineError": "combine",
    "DecodeError": "decode",
    "FilesFailedError": "files-failed",
    "GridrefError": "gridref",
    "GroupNotFoundError": "group-not-found",
    "OutOfBoundsError": "out-of-bounds",
    "InvalidRequestError": "invalid-request",
    "NotRepresentableError": "not-representable",
    "ReadError": "read",
    "ReadOnlyError": "read-only",
    "ScanError": "scan",
    "ChecksumError": "checksum",
    "ShortReadError": "short-read",
    "SourceChangedError": "source-changed",
    "SourceFormatError": "source-format",
    "SourceNotAllowedError": "source-not-allowed",
    "SourceUnavailableError": "source-unavailable",
    "MissingPackageError": "missing-package",
    "UnclearLayoutError": "unclear-layout",
    "UnsupportedFeatureError": "unsupported-feature",
}
"""Every kind there ever was. Add lines; never change or remove one."""

CAUSES = {
    "attributes",
    "calendar-differs",
    "crs-differs",
    "dimension-missing",
    "dimensions-differ",
    "dtype-differs",
    "flags-differ",
    "index-shift",
    "labels-differ",
    "labels-missing",
    "nodata-differs",
    "not-georeferenced",
    "off-grid",
    "overlap",
    "packing-differs",
    "resolution-differs",
    "rotated",
    "shape-differs",
    "spacing-differs",
    "time-units-differ",
    "unexpected",
    "units-differ",
    "values-differ",
    "variable-damaged",
    "variable-missing",
}
"""Every cause there ever was. Add lines; never change or remove one."""


def error_classes() -> dict[str, type[GridrefError]]:
    return {
        name: member
        for name, member in inspect.getmembers(errors, inspect.isclass)
        if issubclass(member, GridrefError)
    }


def test_kinds_are_only_added() -> None:
    assert {name: kind.kind for name, kind in error_classes().items()} == KINDS


def test_every_class_states_a_kind_of_its_own() -> None:
    classes = error_classes().values()
    assert all("kind" in vars(member) for member in classes)
    assert len({member.kind for member in classes}) == len(classes)


def test_causes_are_only_added() -> None:
    assert PROBLEM_CAUSES == CAUSES


def test_a_cause_that_is_not_listed_is_noticed() -> None:
    with pytest.raises(AssertionError, match="add 'new-one'"):
        Problem("new-one", "it is new")


def test_every_public_class_stands_in_the_tree() -> None:
    lines = str(errors.__doc__).splitlines()
    tree = [line for line in lines if "├──" in line or "└──" in line or line == "    GridrefError"]
    named = [line.replace("│", " ").strip(" ├└─").split()[0] for line in tree]
    assert sorted(named) == sorted(error_classes())


@pytest.mark.parametrize(
    "error",
    [
        InvalidRequestError("bad", Place("a.nc", "tas", (1, 2), 3, 4)),
        CombineError([Problem("overlap", "twice", "tas", ("a.nc", "b.nc"))]),
        FilesFailedError([]),
    ],
)
def test_errors_travel_between_processes(error: GridrefError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_a_place_is_filled_in_and_what_is_known_stays() -> None:
    error = InvalidRequestError("bad", Place(variable="tas"))
    assert error.located(Place("a.nc", "group")) is error
    assert error.place == Place("a.nc", "tas")


def test_messages_keep_their_options_wherever_they_go() -> None:
    option = errors.Option("overlap", "first")
    message = errors.Message("labels repeat: ", option, " shows one")
    assert message == "labels repeat: overlap='first' shows one"
    problem = errors.Problem("overlap", message, "t", ("a.nc",))
    failed = errors.FilesFailedError([errors.ScanError(message)], errors.Message(option))
    for each in (
        message + "!",
        "so: " + message,
        errors.Message.joined("; ", ["a", message]),
        errors.InvalidRequestError(message, errors.Place("a.nc")),
        errors.CombineError([problem]),
        failed,
    ):
        again = pickle.loads(pickle.dumps(each))
        assert str(again) == str(each)
        assert option in again.options
        assert again.options == each.options
    assert (
        errors.CombineError([problem]).problems
        == pickle.loads(pickle.dumps(errors.CombineError([problem]))).problems
    )
    secret = errors.Message(
        "see https://me:secret@a.org/x, ", errors.Option("allow", "s3://k:v@b/")
    )
    assert "secret" not in secret
    assert "k:v" not in secret


def test_a_combine_error_lists_equal_problems_once_and_the_folder_once() -> None:
    files = ("/archive/a.nc", "/archive/b.nc")
    sizes = [
        Problem("shape-differs", "5 in /archive/a.nc; 6 in /archive/b.nc", name, files)
        for name in ("tas", "pr", "ps", "hus", "ua")
    ]
    error = CombineError([*sizes, Problem("off-grid", "is off by 0.5 pixels", "x", files[:1])])
    assert len(error.problems) == 6
    assert str(error).splitlines() == [
        "6 problems in combining, counted for each variable:",
        "  - each of tas, pr, ps, hus and 1 more: 5 in a.nc; 6 in b.nc",
        "  - x: is off by 0.5 pixels [a.nc]",
        "  - all files are in /archive/",
    ]


def test_a_combine_error_says_how_many_problems_it_does_not_list() -> None:
    problems = [Problem("off-grid", f"is off by {n} pixels", "x", (f"/{n}/a",)) for n in range(8)]
    error = CombineError(problems)
    head, *lines, last = str(error).splitlines()
    assert head == "8 problems in combining:"
    assert [f"[/{n}/a]" in line for n, line in enumerate(lines)] == [True] * 5
    assert last.startswith("  - 3 more: ")
    assert error.problems == tuple(problems)


def test_a_combine_error_counts_what_it_does_not_list_for_each_variable() -> None:
    shared = [
        Problem("off-grid", f"is off by {n} pixels", name) for n in range(7) for name in ("x", "y")
    ]
    head, *_, last = str(CombineError(shared)).splitlines()
    assert head == "14 problems in combining, counted for each variable:"
    assert last.startswith("  - 4 more: ")


def test_a_combine_error_lists_problems_of_each_cause() -> None:
    off = [Problem("off-grid", f"is off by {n} pixels", "x") for n in range(8)]
    error = CombineError([*off, Problem("rotated", "is rotated", "x")])
    assert "is off by 3 pixels" in str(error)
    assert "is off by 4 pixels" not in str(error)
    assert "is rotated" in str(error)


def test_a_combine_error_leaves_names_without_a_folder_alone() -> None:
    problems = [Problem("units-differ", f"K/day and K/hour ({n})", "x", ("a.nc",)) for n in (1, 2)]
    assert str(CombineError(problems)).count("K/day and K/hour") == 2
