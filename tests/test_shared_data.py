"""Tests of the test data helpers: a missing folder must never pass unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shared_data import shared_files, skip_or_fail


def test_every_match_is_a_parameter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRIDREF_TEST_DATA", str(tmp_path))
    (tmp_path / "a").mkdir()
    for name in ("a/2.nc", "a/1.nc", "a/1.h5"):
        (tmp_path / name).touch()
    parameters = shared_files("a/*.nc", "a/1.*")
    assert [parameter.id for parameter in parameters] == ["a/1.h5", "a/1.nc", "a/2.nc"]
    assert parameters[0].values == (tmp_path / "a/1.h5",)
    assert not any(parameter.marks for parameter in parameters)


def test_a_pattern_without_a_match_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRIDREF_TEST_DATA", str(tmp_path))
    (parameter,) = shared_files("*.nc")
    (mark,) = parameter.marks
    assert mark.kwargs == {"wrong": True}
    assert "no file in" in mark.args[0]


def test_an_absent_folder_is_one_parameter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRIDREF_TEST_DATA", str(tmp_path / "absent"))
    (parameter,) = shared_files("*.nc", "*.h5")
    (mark,) = parameter.marks
    assert mark.kwargs == {"wrong": False}


def test_absent_data_skips_unless_it_is_required(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRIDREF_REQUIRE_DATA", "0")
    with pytest.raises(pytest.skip.Exception, match="gone"):
        skip_or_fail("gone")
    monkeypatch.setenv("GRIDREF_REQUIRE_DATA", "1")
    with pytest.raises(pytest.fail.Exception, match="gone"):
        skip_or_fail("gone")
