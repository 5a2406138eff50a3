"""Progress bars in the terminal, with requests, bytes and speed."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Self

from gridref.faces.cli.console import Console


class ScanProgress:
    """A progress bar with requests, bytes, speed and time left; calls with (done, total) move it.

    Requests and bytes are those of all readers that are made inside of the ``with`` block. Files
    are listed until the first call, and combined after all are done. When that is said again, the
    result is written.

    Attributes
    ----------
    what
        What is being done to files.
    """

    def __init__(self, console: Console, quiet: bool, unit: str = "files") -> None:
        from gridref.faces.cli.bar import TrafficColumn, bar_with  # much of rich

        self._traffic = TrafficColumn()
        self._counting = ExitStack()
        self._bar = bar_with(self._traffic, console, quiet, unit)
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
