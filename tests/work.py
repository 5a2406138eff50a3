"""How much work code does, in lines run: the same on every machine; and how much tests do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

from hypothesis import settings

import gridref

__all__ = ["FEWER", "Work", "counted_work"]

FEWER = settings(max_examples=max(30, settings().max_examples // 3))
"""For properties of which one example takes long: a third of those of CI and of `make fuzz`."""

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
