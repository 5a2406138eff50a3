"""The conda recipe agrees with pyproject.toml: names, lower bounds, Python, Windows."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import yaml

from tests.shared_data import ROOT

TEXT = (ROOT / "recipe" / "meta.yaml").read_text(encoding="utf-8")
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SETTINGS["project"]


def rendered(on_windows: bool) -> Any:
    """The recipe as conda reads it: lines for another system left out, variables put in."""
    variables = dict(re.findall(r"\{% set (\w+) = \"([^\"]*)\" %\}", TEXT)) | {"PYTHON": "python"}
    lines = []
    for line in re.sub(r"\{%.*?%\}\n", "", TEXT).splitlines():
        selector = re.search(r"# \[(not )?win\]$", line)
        if selector is None or bool(selector[1]) != on_windows:
            lines.append(re.sub(r"\{\{ (\w+) \}\}", lambda found: variables[found[1]], line))
    return yaml.safe_load("\n".join(lines))


def bounds(on_windows: bool) -> dict[str, str]:
    """What pyproject.toml asks for."""
    found = {}
    for line in PROJECT["dependencies"]:
        requirement, _, marker = line.partition(";")
        assert marker.strip() in ("", "sys_platform != 'win32'")
        if not (marker and on_windows):
            name, bound = requirement.strip().split(">=")
            found[name] = f">={bound}"
    return found


def test_what_is_needed_is_what_the_package_asks_for() -> None:
    for on_windows in (False, True):
        needed = dict(line.split() for line in rendered(on_windows)["requirements"]["run"])
        assert needed.pop("python") == PROJECT["requires-python"]
        assert needed == bounds(on_windows)
    assert bounds(on_windows=True) != bounds(on_windows=False)


def test_it_builds_this_version_as_pip_does() -> None:
    recipe = rendered(on_windows=False)
    assert recipe["package"] == {"name": PROJECT["name"], "version": PROJECT["version"]}
    assert recipe["source"]["url"] == f"../build/dist/gridref-{PROJECT['version']}.tar.gz"
    host = {line.replace(" ", "") for line in recipe["requirements"]["host"]}
    python = f"python{PROJECT['requires-python']}"
    assert host == {"pip", python, *SETTINGS["build-system"]["requires"]}
    assert recipe["about"]["license"] == PROJECT["license"]
    assert recipe["about"]["summary"] == PROJECT["description"]
    (entry,) = recipe["build"]["entry_points"]
    assert entry == f"gridref = {PROJECT['scripts']['gridref']}"
