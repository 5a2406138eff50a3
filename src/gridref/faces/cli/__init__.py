"""The command line: ``gridref build | info | chunks | sources | verify | plan | serve``."""

from __future__ import annotations

from gridref.faces.cli.app import app, main

__all__ = ["app", "main"]
