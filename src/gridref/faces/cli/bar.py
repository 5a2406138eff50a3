"""The bar of `progress.ScanProgress`, of rich: its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from gridref.faces.cli.console import Console

if TYPE_CHECKING:
    from gridref.io import Traffic


def bar_with(traffic: TrafficColumn, console: Console, quiet: bool, unit: str) -> Progress:
    """A bar with what is done, traffic, speed and time left; silent where no one looks."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        traffic,
        _SpeedColumn(unit),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    )


class _SpeedColumn(ProgressColumn):
    """Things per second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.0f} {self.unit}/s", style="dim")


class TrafficColumn(ProgressColumn):
    """What was asked of files so far, and what came."""

    def __init__(self) -> None:
        super().__init__()
        self.traffic: Traffic | None = None

    def render(self, task: Task) -> Text:
        from gridref.faces.picture import human_bytes

        if self.traffic is None:
            return Text()
        n_bytes = human_bytes(self.traffic.n_bytes)
        return Text(f"{self.traffic.n_requests} requests, {n_bytes}", style="dim")
