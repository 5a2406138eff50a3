"""docs/errors.md has a paragraph for every error, with its cause, its remedy and true messages."""

from __future__ import annotations

import ast
import re
import traceback
from functools import cache

import pytest
from typer.testing import CliRunner

from gridref import errors
from gridref.errors import PROBLEM_CAUSES, GridrefError
from gridref.faces.cli import app
from tests.command import run_command
from tests.shared_data import ROOT

PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (\S+)$\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
KINDS = {
    kind.kind: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, GridrefError)
}


def test_there_is_a_paragraph_for_every_kind() -> None:
    assert set(SECTIONS) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_paragraph_names_the_class_cause_and_remedy(kind: str) -> None:
    text = SECTIONS[kind]
    assert f"`{KINDS[kind].__name__}`" in text
    assert "**Cause" in text
    assert "**Remedy.**" in text or "**Cause and remedy.**" in text


@pytest.mark.long(but=10)
@pytest.mark.parametrize("kind", [*KINDS, *sorted(PROBLEM_CAUSES)])
def test_the_command_line_explains(kind: str) -> None:
    told = CliRunner().invoke(app, ["--explain", kind])
    assert told.exit_code == 0
    assert told.stdout.startswith(f"## {kind}\n")
    assert SECTIONS.get(kind, f"| `{kind}` |").split("`")[1] in told.stdout
    assert "](" not in told.stdout
    named = re.findall(r"`(\w+)=", told.stdout)
    assert {*named} <= {"prefixes", "pending", "group"}  # of Python alone


def test_the_command_line_spells_options_as_commands_do() -> None:
    told = CliRunner().invoke(app, ["--explain", "CombineError"]).stdout
    assert set(PROBLEM_CAUSES) <= {*re.findall(r"^\| `([\w-]+)` \|", told, re.MULTILINE)}
    assert "`--overlap keep` keeps all" in told
    assert "`--layout ragged`" in told
    assert "drift (docs/drift.md) shows every" in told


def test_errors_say_where_they_are_explained() -> None:
    done = run_command("info", "nowhere.gridref")
    assert done.stderr.endswith("(see gridref --explain catalog-not-found)\n")
    error = errors.ShortReadError("cut")
    assert traceback.format_exception(error)[-1].endswith("gridref --explain short-read\n")
    kinds = CliRunner().invoke(app, ["--explain", "all"]).stdout
    assert all(kind in kinds for kind in KINDS)
    assert isinstance(
        CliRunner().invoke(app, ["--explain", "?"]).exception, errors.InvalidRequestError
    )


def test_every_cause_of_a_problem_is_in_the_table() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \|", SECTIONS["combine"], re.MULTILINE)
    assert rows == sorted(PROBLEM_CAUSES)


MESSAGES = [
    (kind, message)
    for kind, text in SECTIONS.items()
    for message in re.findall(r"`([^`]+)`", text.strip().partition("\n\n")[0])[1:]
    if " " in message
]


@cache
def texts() -> list[list[str]]:
    """The parts of every text of the code that always read the same, in order."""
    found = []
    for path in (ROOT / "src" / "gridref").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.append([part.value for part in node.values if isinstance(part, ast.Constant)])
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
                found.append([node.value])
    return found


def says(message: str, parts: list[str]) -> bool:
    """Whether a text reads so, for as long as what is shown of it lasts."""
    message = message.removesuffix("...")
    n_same = place = 0
    for part in parts:
        found = message.find(part, place)
        if found < 0:
            rest = message[place:]
            longest = min(len(part), len(rest))
            last = next(n for n in range(longest, -1, -1) if rest.endswith(part[:n]))
            return n_same + last > 7
        n_same += len(part)
        place = found + len(part)
    return n_same > 7


def test_messages_are_those_of_the_code() -> None:
    unsaid = [each for each in MESSAGES if not any(says(each[1], parts) for parts in texts())]
    assert not unsaid
