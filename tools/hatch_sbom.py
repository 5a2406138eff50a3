"""Adds to wheels what lists the packages in the viewer (PEP 770), where the viewer was built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIST = "src/gridref/faces/web/built/viewer.cdx.json"


class SbomHook(BuildHookInterface):
    """What `make assets` has not made yet, in a fresh clone, is not asked for."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the file among the wheel's lists of contents."""
        if Path(self.root, LIST).is_file():
            build_data["sbom_files"].append(LIST)
