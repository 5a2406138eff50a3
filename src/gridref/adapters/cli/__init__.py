"""The command line: ``gridref build | info | verify | plan | serve | demo``."""

from __future__ import annotations

from gridref.adapters.cli.app import app, main

__all__ = ["app", "main"]
