"""The mutants themselves: each is one change, compiles, and leaves the rest as it is."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.shared_data import ROOT
from tools.mutation.__main__ import costs, known, text_of
from tools.mutation.mutants import mutants_of, mutated_code
from tools.mutation.runner import source_of

SOURCE = '''
class Box:
    """A box."""

    @staticmethod
    def first(values, limit):
        """The first."""
        if not values and limit < 3:
            raise ValueError("none" + "at all")
        return max(values)[1:]
'''


def test_what_is_changed_in_a_function() -> None:
    found = {(mutant.before, mutant.after) for mutant in mutants_of("box.py", SOURCE)}
    condition = "if not values and limit < 3:"
    returned = "return max(values)[1:]"
    assert found == {
        (condition, "if values and limit < 3:"),
        (condition, "if not values or limit < 3:"),
        (condition, "if not values and limit <= 3:"),
        (condition, "if not values and limit >= 3:"),
        (condition, "if not values and limit < 4:"),
        (condition, "if not values and limit < 2:"),
        ("raise ValueError('none' + 'at all')", "pass"),
        (returned, "return None"),
        (returned, "return min(values)[1:]"),
        (returned, "return max(values)[:]"),
        (returned, "return max(values)[2:]"),
        (returned, "return max(values)[0:]"),
    }


def test_what_nobody_can_tell_is_left_alone() -> None:
    source = "def f(a):\n    return a.reshape(-1).astype(int, copy=False)\n"
    found = {mutant.after for mutant in mutants_of("f.py", source)}
    assert found == {"return None", "return a.reshape(1).astype(int, copy=False)"}


def test_the_changed_code_does_what_its_text_says() -> None:
    def first(values: list[str]) -> str:
        raise NotImplementedError

    for mutant in mutants_of("box.py", SOURCE):
        if "min" in mutant.after:
            assert (mutant.function, mutant.first_line, mutant.lines) == ("Box.first", 5, (10, 10))
            code = mutated_code(mutant, SOURCE, "box.py")
            assert code is not None
            space: dict[str, object] = {}
            function = type(first)(code, {"__builtins__": __builtins__, **space})
            assert function(["abc", "xyz"], 1) == "bc"


def test_generic_functions_and_classes_have_mutants() -> None:
    source = (
        "class Box[T]:\n    def one(self):\n        return 1\ndef two[T](a: T):\n    return 2\n"
    )
    found = [each for each in mutants_of("f.py", source) if each.after == "return None"]
    assert [each.function for each in found] == ["Box.one", "two"]
    for mutant in found:
        code = mutated_code(mutant, source, "f.py")
        assert code is not None
        assert type(test_generic_functions_and_classes_have_mutants)(code, {})(0) is None


def test_what_is_listed_as_equivalent_is_there() -> None:
    """An entry whose code has changed says nothing any more."""
    paths = {path for path, *_ in known() | costs()}
    there = [mutant for path in paths for mutant in mutants_of(path, source_of(path))]
    assert known() - {*map(text_of, there)} == set()
    assert costs() - {(mutant.path, mutant.function) for mutant in there} == set()


@pytest.mark.long
def test_tests_are_run_on_mutants() -> None:
    tests = "tests/unit/model/test_grid.py"
    options = ["--packages", "model", "--mutants", "100", "--least", "0", "--tests", tests]
    command = [sys.executable, "-m", "tools.mutation", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(f"^killed +model/.* by {tests}::", done.stdout, re.MULTILINE), done.stdout
