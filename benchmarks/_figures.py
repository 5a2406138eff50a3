"""What benchmarks find, in a form that can be kept and compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

type Unit = Literal["times as fast", "times as long", "requests", "MB", "s", "ms", "µs"]


@dataclass(frozen=True)
class Figure:
    """One number of a benchmark, with the name of its row in docs/measurements.md.

    Attributes
    ----------
    now, unit
        The number. `times as fast` and `times as long` are against a peer in the same run.
    target
        What is aimed at, in words.
    own
        What the number is made of, in words: gridref's time, or its speed.
    """

    row: str
    now: float
    target: str = ""
    unit: Unit = "times as fast"
    own: str = ""

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
        unit = "request" if (self.now, self.unit) == (1, "requests") else self.unit
        return digits if self.more_is_better else f"{digits} {unit}"


def print_table(figures: Iterable[Figure]) -> None:
    """Print a table in Markdown, line by line as the figures come."""
    print("| work | gridref | now | target |\n|---|---|---|---|", flush=True)
    for figure in figures:
        print(f"| {figure.row} | {figure.own} | {figure.said} | {figure.target} |", flush=True)
