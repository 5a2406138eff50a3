"""How much work code does, counted in lines run: the same on every machine, however busy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

import gridref

__all__ = ["Work", "counted_work"]

_SOURCE = str(Path(gridref.__file__).parent)
_TOOL = 3  # of sys.monitoring: none that Python names


@dataclass
class Work:
    """Lines of the package that were run, repeated ones each time."""

    n_lines: int = 0


@contextmanager
def counted_work() -> Iterator[Work]:
    """Count, in all threads, while the block runs."""
    monitoring, work = sys.monitoring, Work()

    def count(code: CodeType, line: int) -> object:
        if not code.co_filename.startswith(_SOURCE):
            return monitoring.DISABLE
        work.n_lines += 1
        return None

    monitoring.use_tool_id(_TOOL, "work")
    monitoring.register_callback(_TOOL, monitoring.events.LINE, count)
    monitoring.restart_events()
    monitoring.set_events(_TOOL, monitoring.events.LINE)
    try:
        yield work
    finally:
        monitoring.set_events(_TOOL, monitoring.events.NO_EVENTS)
        monitoring.free_tool_id(_TOOL)
