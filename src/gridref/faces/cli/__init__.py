"""The command line: ``gridref build | plan | info | list | verify | append | serve | ...``."""

from __future__ import annotations

from gridref.faces.cli.app import app, main

__all__ = ["app", "main"]
