"""What benchmarks find, in a form that can be kept and compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

type Unit = Literal["times as fast", "times as long", "requests", "MB", "s", "ms", "µs"]


@dataclass(frozen=True)
class Figure:
    """One number of a benchmark, with the name of its row in docs/performance.md.

    `times as fast` and `times as long` are against the peer that the row names.
    """

    row: str
    now: float
    target: float | None = None
    unit: Unit = "times as fast"

    @property
    def more_is_better(self) -> bool:
        return self.unit == "times as fast"

    @property
    def is_of_any_machine(self) -> bool:
        """Whether other machines of the kind find about the same, so that it can be compared."""
        return self.unit not in ("s", "ms", "µs")

    @property
    def said(self) -> str:
        """The number as a cell of a table."""
        digits = f"{self.now:.0f}" if self.now >= 100 else f"{self.now:.3g}"
        return digits if self.more_is_better else f"{digits} {self.unit}"

    @property
    def said_target(self) -> str:
        if self.target is None:
            return ""
        return f"{'>=' if self.more_is_better else '<='} {self.target:g}"


def print_table(figures: Iterable[Figure]) -> None:
    """Print a table in Markdown, line by line as the figures come."""
    print("| work | now | target |\n|---|---|---|", flush=True)
    for figure in figures:
        print(f"| {figure.row} | {figure.said} | {figure.said_target} |", flush=True)
