"""Print the lowest versions that pyproject.toml allows, as constraints for pip."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
NOT_FOR_USERS = {"all", "dev", "docs", "test"}

_BOUND = re.compile(r"(?P<name>[\w.-]+)(?:\[[\w,]+\])?>=(?P<version>[\w.]+)(?P<marker>;.*)?")


def lowest_versions(pyproject: Path = PYPROJECT) -> list[str]:
    """Lines like ``numpy==2.1``, for all that users install.

    Raises
    ------
    ValueError
        If a dependency has no lower bound.
    """
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    requirements = [
        *project["dependencies"],
        *(line for name in extras if name not in NOT_FOR_USERS for line in extras[name]),
    ]
    matches = {line: _BOUND.fullmatch(line) for line in requirements}
    if unbounded := [line for line, match in matches.items() if match is None]:
        raise ValueError(f"write a lower bound, like numpy>=2.1, for {', '.join(unbounded)}")
    found = [match for match in matches.values() if match is not None]
    return [f"{match['name']}=={match['version']}{match['marker'] or ''}" for match in found]


if __name__ == "__main__":
    print("\n".join(lowest_versions()))
