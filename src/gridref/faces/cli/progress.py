"""Progress bars in the terminal, with requests, bytes and speed. Imported only when needed."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from rich.console import Console
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

from gridref.errors import number_of

if TYPE_CHECKING:
    from gridref.io import Traffic


# The columns of the bar


def _bar_with(traffic: _TrafficColumn, console: Console, quiet: bool, unit: str) -> Progress:
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


class _TrafficColumn(ProgressColumn):
    """What was asked of files so far, and what came."""

    def __init__(self) -> None:
        super().__init__()
        self.traffic: Traffic | None = None

    def render(self, task: Task) -> Text:
        from gridref.faces.picture import human_bytes

        if self.traffic is None:
            return Text()
        n_bytes = human_bytes(self.traffic.n_bytes)
        return Text(f"{number_of(self.traffic.n_requests, 'request')}, {n_bytes}", style="dim")


class ScanProgress:
    """A progress bar with requests, bytes, speed and time left; calls with (done, total) move it.

    Requests and bytes are those of all readers that are made inside of the ``with`` block. Files
    are listed until the first call, and combined after all are done. A second call with all files
    done means that the result is written.

    Attributes
    ----------
    what
        What is being done to files.
    """

    def __init__(self, console: Console, quiet: bool, unit: str = "files") -> None:
        self._traffic = _TrafficColumn()
        self._counting = ExitStack()
        self._bar = _bar_with(self._traffic, console, quiet, unit)
        self._of_files, self.what = unit == "files", "listing files"
        self._task = self._bar.add_task(self.what if self._of_files else unit, total=None)

    def __enter__(self) -> Self:
        from gridref.io import counted_traffic

        self._traffic.traffic = self._counting.enter_context(counted_traffic())
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()
        self._counting.close()

    def __call__(self, done: int, total: int) -> None:
        """Show that so much is done."""
        if done < total:
            self.what = "reading files"
        else:
            self.what = "writing" if self.what == "combining files" else "combining files"
        shown = self.what if self._of_files else None
        self._bar.update(self._task, completed=done, total=total, description=shown)
