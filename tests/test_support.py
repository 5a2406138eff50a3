"""What tests use to skip, to mark long cases, and to find shared data."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.programs import Skipped, program
from tests.shared_data import ROOT, shared_files, skip_or_fail


def test_the_first_program_that_is_there_is_taken() -> None:
    assert Path(program("gridref-no-such-program", "sh")).name == "sh"


def test_absent_programs_skip_unless_they_are_required(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("GRIDREF_REQUIRE_PROGRAMS", "curl nginx")
    with pytest.raises(pytest.skip.Exception, match="needs npm: it is not on PATH"):
        program("npm")
    with pytest.raises(pytest.fail.Exception, match="nginx: it is not on PATH"):
        program("nginx")


def test_the_skipped_tests_are_listed(tmp_path: Path) -> None:
    def report(name: str, reason: str) -> pytest.TestReport:
        where = (__file__, 1, f"Skipped: {reason}")
        return pytest.TestReport(name, (__file__, 1, name), {}, "skipped", where, "setup")

    skipped = Skipped(tmp_path / "skipped")
    skipped.pytest_runtest_logreport(report("a.py::a[x y]", "needs curl: it is not on PATH"))
    skipped.pytest_runtest_logreport(report("a.py::b", "not run: it needs a release"))
    skipped.pytest_sessionfinish()
    assert (tmp_path / "skipped").read_text() == "a.py::a[x y]\n"


def test_ci_requires_what_it_installs() -> None:
    text = (ROOT / ".ci/run").read_text()
    (installed,) = re.findall(r"^install_missing (.*)$", text, re.MULTILINE)
    (required,) = re.findall(r'^programs="(.*)"', text, re.MULTILINE)
    assert "\nexport GRIDREF_REQUIRE_PROGRAMS=$programs\n" in text
    assert installed.split()[::2] == required.split()


pytest_plugins = ["pytester"]

MODULE = """
import pytest

@pytest.mark.long
def test_exhaustive(): pass

@pytest.mark.long(but=3)
@pytest.mark.parametrize("b", [0, 1])
@pytest.mark.parametrize("a", range(6))
def test_product(a, b): pass

@pytest.mark.long(but=3)
@pytest.mark.parametrize("a", range(2))
def test_few(a): pass

def test_quick(): pass
"""


@pytest.fixture
def module(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest(
        "import pathlib, pytest\nfrom tests.long import has_no_long_test, mark_long\n"
        "def pytest_addoption(parser): parser.addoption('--and-tests-of', type=pathlib.Path)\n"
        "def pytest_ignore_collect(collection_path, config):\n"
        "    return has_no_long_test(collection_path, config) or None\n"
        "@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_collection_modifyitems(items, config): mark_long(items, config)\n"
    )
    pytester.makeini(
        "[pytest]\nmarkers = long(but=n): left out\nasyncio_default_fixture_loop_scope = function"
    )
    pytester.makepyfile(test_module=MODULE)
    return pytester


def names(run: pytest.RunResult) -> list[str]:
    return [name for line in run.outlines for name in re.findall(r"^test_module.py::(\S+)", line)]


def test_make_test_takes_a_sample_and_make_test_all_the_rest(module: pytest.Pytester) -> None:
    arguments = ["--collect-only", "-q"]
    every = names(module.runpytest_inprocess(*arguments))
    quick = names(module.runpytest_inprocess(*arguments, "-m", "not long"))
    rest = names(module.runpytest_inprocess(*arguments, "-m", "long"))
    sample = ["test_product[0-0]", "test_product[2-0]", "test_product[4-0]"]
    assert quick == [*sample, "test_few[0]", "test_few[1]", "test_quick"]
    assert sorted(quick + rest) == sorted(every)


def test_modules_without_long_tests_are_not_imported(module: pytest.Pytester) -> None:
    quick = module.path / "test_none.py"
    quick.write_text("raise ImportError('quick')\n")
    (module.path / "picture.png").write_bytes(b"\x89PNG")
    (module.path / "test_whole.py").write_text("raise ImportError('long')  # mark.long\n")

    def fails(*arguments: object) -> set[str]:
        run = module.runpytest_inprocess("--collect-only", *arguments)
        return set(re.findall(r"(?:Import|Decode)Error: (\w+|'utf-8')", run.stdout.str()))

    assert fails() == fails("-m", "not long") == {"quick", "long"}
    assert fails("-m", "long") == {"long"}
    assert fails("-m", "long", quick) == {"quick"}


def test_listed_tests_are_run_beside_the_long_ones(module: pytest.Pytester) -> None:
    skipped = module.path / "skipped"
    skipped.write_text("test_other.py::test_b\ntest_module.py::test_quick\n")
    (module.path / "test_other.py").write_text("def test_a(): pass\ndef test_b(): pass\n")
    arguments = ["-m", "long", f"--and-tests-of={skipped}"]
    module.runpytest_inprocess(*arguments).assert_outcomes(passed=12, deselected=6)
    skipped.write_text("test_module.py::test_gone\n")
    run = module.runpytest_inprocess(*arguments)
    assert (
        "skipped lists tests that are not there: ['test_module.py::test_gone']" in run.stderr.str()
    )


def test_no_long_test_is_hidden_in_a_module_without_the_marker(module: pytest.Pytester) -> None:
    (module.path / "test_other.py").write_text("from test_module import test_exhaustive\n")
    run = module.runpytest_inprocess("--collect-only")
    assert "test_other.py has long tests: write" in run.stderr.str()


def test_a_case_that_is_named_is_run(module: pytest.Pytester) -> None:
    named = ["test_module.py::test_product[0-1]", "test_module.py::test_few[1]"]
    run = module.runpytest_inprocess("-m", "not long", *named)
    run.assert_outcomes(passed=2)


def test_ci_runs_what_make_test_leaves_out() -> None:
    """Quick tests, then long ones and those of the quick ones that were skipped."""
    makefile, ci = (ROOT / "Makefile").read_text(), (ROOT / ".ci/run").read_text()
    assert re.search(r'^test:.*\n(?:.*\n)?\t.*pytest .*-m "not long"', makefile, re.MULTILINE)
    assert re.findall(r"make (test(?:-all)? .*)", ci) == [
        "test ARGS=--skipped-to=build/skipped",
        "test-all ARGS='-m long --and-tests-of=build/skipped'",
    ]


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
