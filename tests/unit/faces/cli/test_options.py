"""The command line has the options that Python has, with the same choices and defaults."""

from __future__ import annotations

import inspect
import re
import shlex
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
from typer.testing import CliRunner

import gridref
from gridref.errors import InvalidRequestError, Message, Option
from gridref.faces.cli import app
from gridref.faces.cli.options import (
    BUILD_OPTIONS,
    VIEW_OPTIONS,
    by_name,
    call_options,
    parse_lengths,
    parse_options,
    spelled,
    takes,
)
from gridref.options import choices_of

LAYOUTS: tuple[Any, ...] = (
    gridref.Labels("{time:%Y%m%d}.nc", of="TIFFTAG_DATETIME"),
    gridref.Labels(sources={"member": "attribute:realization_index"}),
    gridref.Stack("time", "{time:%Y%m%d}.nc"),
    gridref.Mosaic("{variable}_{time:%Y}.tif", stack="time", tolerance=0.1, grids="groups"),
    gridref.Ragged("orbit", padded=True, labels="{orbit}.nc"),
    gridref.Plate("{well}_{field}.tif"),
    gridref.Groups("model", labels="{model}_{time:%Y}.nc"),
    gridref.Groups(frequency=True, each="by_coords"),
    "first",
)

DATACLASSES = (gridref.Mosaic, gridref.CombineOptions, gridref.ScanOptions, gridref.RunOptions)

CALLED = {
    "Labels": {"of": "pattern_of", "sources": "labels"},
    "Stack": {"dim": "stack"},
    "Mosaic": {"labels": "mosaic"},
    "Ragged": {"instance": "stack", "padded": "layout"},
    "Plate": {},
    "Groups": {"by": "group_by", "frequency": "split", "each": "combine"},
}
"""By class of layout: how the command line calls fields that have other names in Python."""


def help_of(name: str) -> str:
    return str(get_args(BUILD_OPTIONS[name])[1].help)


def test_build_and_plan_take_the_same_and_the_command_line_takes_all_of_it() -> None:
    build = dict(inspect.signature(gridref.build).parameters)
    plan = dict(inspect.signature(gridref.plan).parameters)
    of_catalogs = {"catalog", "relative", "identity", "checksums", "keep_secrets", "overwrite"}
    assert {*build} - of_catalogs == {*plan}
    assert len(build) <= 18
    for name, parameter in plan.items():
        assert parameter.default == build[name].default
        assert parameter.annotation == build[name].annotation
    kinds: tuple[Any, ...] = (gridref.CombineOptions, gridref.ScanOptions, gridref.RunOptions)
    named = {option.name for kind in kinds for option in fields(kind)}
    for kind, names in CALLED.items():
        named |= {names.get(each.name, each.name) for each in fields(getattr(gridref, kind))}
    objects = {"files", "progress", "layout", "combine", "scan", "run", "catalog"}
    assert {*named, *build, "yes"} - objects == {*BUILD_OPTIONS} - objects


def test_options_by_name_and_objects_are_the_same() -> None:
    named: dict[str, Any] = {
        "concat_dim": "time",
        "pattern": "{member:d}_{time:%Y}.nc",
        "labels": {"run": "attribute:run"},
        "join": "exact",
        "on_unsupported": "skip",
    }
    assert call_options(named) == {
        "concat_dim": "time",
        "layout": gridref.Labels(named["pattern"], sources=named["labels"]),
        "combine": gridref.CombineOptions(join="exact"),
        "scan": gridref.ScanOptions(on_unsupported="skip"),
    }
    for layout in LAYOUTS:
        assert call_options(by_name(layout)) == {"layout": layout}


@pytest.mark.parametrize("options", DATACLASSES)
def test_help_names_the_choices_and_defaults(options: Any) -> None:
    for name, choices in choices_of(options).items():
        for choice in choices:
            assert choice in help_of(name), name
    for option in fields(options):
        default: Any = option.default
        if option.name == "executor":
            continue  # commands take as many processes as pay off
        if default not in (MISSING, None, False) and option.name not in choices_of(options):
            assert f"{default}" in help_of(option.name), option.name


def test_help_names_the_choices_of_views() -> None:
    assert {*VIEW_OPTIONS} == {
        *(o.name for o in fields(gridref.ViewOptions)),
        "storage_options",
        "allow",
    }
    for name, choices in choices_of(gridref.ViewOptions).items():
        for choice in choices:
            assert choice in get_args(VIEW_OPTIONS[name])[1].help, (name, choice)


@pytest.mark.parametrize("options", DATACLASSES)
def test_dataclasses_document_each_field(options: Any) -> None:
    for option in fields(options):
        assert option.name in (options.__doc__ or ""), option.name


def test_fsspec_options() -> None:
    entries = ["anon=true", "n=3", "key=a=b", "s3.client_kwargs.endpoint_url=http://x:1", "s3.k=1"]
    assert parse_options(entries) == {
        "anon": True,
        "n": 3,
        "key": "a=b",
        "s3": {"client_kwargs": {"endpoint_url": "http://x:1"}, "k": 1},
    }
    for bad in (["anon"], ["=1"], ["a..b=1"], ["a=1", "a.b=2"]):
        with pytest.raises(InvalidRequestError, match="--storage-options"):
            parse_options(bad)


@pytest.mark.parametrize("text", ["time", "time=", "=3", "time=x", "time=1,lat"])
def test_lengths_that_are_none(text: str) -> None:
    assert parse_lengths("time=24, lat=180") == {"time": 24, "lat": 180}
    with pytest.raises(InvalidRequestError, match="got"):
        parse_lengths(text)


# Options in messages: both faces write what they themselves take


def taken(options: dict[str, Any], text: str) -> dict[str, Any]:
    """What a command with these options makes of its arguments."""
    got: dict[str, Any] = {}
    app = typer.Typer()

    @app.command()
    @takes(options)
    def command(**given: Any) -> None:
        got.update(given)

    done = CliRunner().invoke(app, shlex.split(text), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return got


SAMPLES: dict[Any, Any] = {str: "a", bool: True, int: 7, float: 0.5, list[str]: ["a", "b"]}
MAPPINGS = {"labels", "repeated", "index_variables", "storage_options"}


@pytest.mark.parametrize("name", BUILD_OPTIONS)
def test_each_option_is_written_as_each_face_takes_it(name: str) -> None:
    kind = get_args(get_args(BUILD_OPTIONS[name])[0])[0]
    value = {"a": "b"} if name in MAPPINGS else SAMPLES[kind]
    message = Message("say ", Option(name, value), " or so")
    assert message == f"say {name}={value!r} or so"
    shown = spelled(message)
    assert shown.startswith("say --")
    assert taken({name: BUILD_OPTIONS[name]}, shown[4:-6]) == {name: value}


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_each_layout_is_written_as_each_face_takes_it(layout: Any) -> None:
    asked = {"layout": layout, "combine": gridref.CombineOptions(overlap="keep")}
    message = Message.naming(asked)
    assert message == f"layout={layout!r}, combine=CombineOptions(overlap='keep')"
    names = {name: getattr(gridref, name) for name in dir(gridref) if name[0].isupper()}
    assert eval(f"dict({message})", names) == asked
    assert call_options(taken(dict(BUILD_OPTIONS), spelled(message))) == asked


CHOICES = [(kind, name) for kind in DATACLASSES for name in choices_of(kind)]


@pytest.mark.parametrize(("kind", "name"), CHOICES)
def test_errors_name_option_and_value_and_faces_write_them(kind: Any, name: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"^{name}='nope' is none of ") as refused:
        kind(**{name: "nope"})
    assert refused.value.options == (Option(name, "nope"),)
    asked = ["--mosaic"] if kind is gridref.Mosaic else []
    done = CliRunner().invoke(app, ["plan", "a.nc", *asked, f"--{name.replace('_', '-')}", "nope"])
    assert isinstance(done.exception, InvalidRequestError)
    shown = spelled(done.exception.message)
    assert shown.startswith(f"--{name.replace('_', '-')} nope is none of ")


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ([Option("concat_dim")], "--concat-dim ..."),
        ([Option("stack", "time", "layout=Stack('time')")], "--stack time"),
        ([Option("prefixes", {"a": "b"})], "prefixes={'a': 'b'}"),
        ([Option("combine", gridref.CombineOptions(overlap="keep"))], "--overlap keep"),
        ([Option("allow", "https://me:secret@a.org/")], "--allow https://a.org/"),
    ],
)
def test_options_in_messages(options: list[Option], shown: str) -> None:
    assert spelled(Message(*options)) == shown
    assert spelled("a file with depth=3") == "a file with depth=3"


def test_options_that_messages_name_are_spelled_for_commands() -> None:
    named: set[str] = set()
    for path in Path(gridref.__file__).parent.rglob("*.py"):
        named |= set(re.findall(r'\bOption\(\s*"(\w+)"', path.read_text(encoding="utf-8")))
    assert len(named) > 30
    unknown = {name for name in named if spelled(Message(Option(name, "v")))[:2] != "--"}
    assert unknown == {"coords", "data_vars", "pending", "prefixes"}  # of Python only


def test_the_dimension_of_ragged_files_is_named_as_each_face_takes_it() -> None:
    with pytest.raises(InvalidRequestError, match="instance='station'"):
        gridref.Ragged(labels="{station}.nc")
    words = ["plan", "a.nc", "--layout", "ragged", "--pattern", "{station}.nc"]
    refused = CliRunner().invoke(app, words).exception
    assert isinstance(refused, InvalidRequestError)
    advice = re.findall(r"\((--stack station)\)", spelled(refused.message))
    followed = CliRunner().invoke(app, [*words, *advice[0].split()]).exception
    assert "no file matches" in str(followed)  # as far as it comes without files
