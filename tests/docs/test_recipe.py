"""The conda recipe agrees with pyproject.toml: names, lower bounds, Python, Windows."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
import rattler_build

from tests.shared_data import ROOT

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SETTINGS["project"]
SYSTEMS = ("linux-64", "osx-arm64", "win-64")


def rendered(system: str) -> Any:
    """The recipe as rattler-build understands it for a system."""
    recipe = rattler_build.Stage0Recipe.from_file(ROOT / "recipe" / "recipe.yaml")
    platform = rattler_build.PlatformConfig(target_platform=system, host_platform=system)
    (variant,) = recipe.render(render_config=rattler_build.RenderConfig(platform=platform))
    return variant.recipe.to_dict()


def bounds(system: str) -> set[str]:
    """What pyproject.toml asks for."""
    found = {f"python {PROJECT['requires-python']}"}
    for line in PROJECT["dependencies"]:
        requirement, _, marker = line.partition(";")
        assert marker.strip() in ("", "sys_platform != 'win32'")
        if not (marker and system.startswith("win")):
            found.add(requirement.strip().replace(">=", " >="))
    return found


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_is_needed_is_what_the_package_asks_for(system: str) -> None:
    needed = rendered(system)["requirements"]["run"]
    assert {*needed} == bounds(system)
    assert len(needed) == len(PROJECT["dependencies"]) + (not system.startswith("win"))


def test_it_builds_this_version_as_pip_does() -> None:
    recipe = rendered(SYSTEMS[0])
    assert recipe["package"] == {"name": PROJECT["name"], "version": PROJECT["version"]}
    assert recipe["source"] == [{"path": f"../build/dist/gridref-{PROJECT['version']}.tar.gz"}]
    host = {line.replace(" ", "") for line in recipe["requirements"]["host"]}
    python = f"python{PROJECT['requires-python']}"
    assert host == {"pip", python, *SETTINGS["build-system"]["requires"]}
    assert recipe["about"]["license"] == PROJECT["license"]
    assert recipe["about"]["summary"] == PROJECT["description"]
    (entry,) = recipe["build"]["python"]["entry_points"]
    assert entry == f"gridref = {PROJECT['scripts']['gridref']}"
