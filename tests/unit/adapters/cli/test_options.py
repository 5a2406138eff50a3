"""The command line has the options that Python has, with the same choices and defaults."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields
from typing import Any, get_args

import pytest

import gridref
from gridref.errors import InvalidRequestError
from gridref.faces.cli.options import (
    BUILD_OPTIONS,
    VIEW_OPTIONS,
    as_on_the_command_line,
    by_name,
    call_options,
    parse_lengths,
    parse_options,
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
        spelled = as_on_the_command_line(f"say layout={layout!r} or so")
        assert spelled.startswith("say --")
        assert spelled.endswith(" or so")


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


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("join='outer' fills in, join=\"inner\" does not", "--join outer fills in, --join inner"),
        ("lossy=True allows it", "--lossy allows it"),
        ("combine_attrs='drop' or max_objects=7", "--combine-attrs drop or --max-objects 7"),
        ("concat_dim=... names it", "--concat-dim ... names it"),
        ("all=True", "--all"),
        ("layout=Stack('t', labels='{t:%Y}.nc') (x)", "--stack t --pattern {t:%Y}.nc (x)"),
        ("layout='first' takes the first", "--yes takes the first"),
        ("combine=CombineOptions(overlap='keep')", "--overlap keep"),
        ("a file with units=None and depth=3", "a file with units=None and depth=3"),
    ],
)
def test_options_in_messages_are_spelled_as_on_the_command_line(message: str, shown: str) -> None:
    assert as_on_the_command_line(message).startswith(shown)
